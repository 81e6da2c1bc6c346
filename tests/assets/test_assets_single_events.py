"""Assets in one process: one event a partition with its own digest, exact staleness, checks that stop the graph."""

from __future__ import annotations

import json
from pathlib import Path

import dagster as dg
import pandas as pd
import pytest
from asset_world import DAYS, AssetWorld
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from assets.planning import RunFailed, freshness
from finevolve_pipeline.graph import SINGLE

NEWS = ("articles", "tagged_articles", "benchmark_news")
NEWS_DAYS = tuple(f"2025-01-{day:02}" for day in range(2, 10))


def land(world: AssetWorld, day: str, content: str) -> None:
    """One more item of `cls`, the first one of a day."""
    found = world.store.landing.read_news("cls", day)
    first = pd.Timestamp(f"{day} 00:00:00.000001", tz="Asia/Shanghai")
    row = found.iloc[[0]].assign(
        source_id=f"late-{day}",
        title="",
        content=content,
        published_at=first,
    )
    world.store.landing.merge_news(row)


def test_a_range_logs_one_event_a_partition_with_the_digest_of_its_content(built: AssetWorld) -> None:
    for source in built.graph.sources:
        mine = [key for key in built.wanted.partitions["raw_news"] if key.endswith(f"|{source}")]
        seen = [(key, version) for key, version in built.versions("raw_news") if key in mine]
        assert seen == [(key, built.store.digest("raw_news", key)) for key in mine]


@pytest.mark.parametrize("assets", [NEWS, ("industry_bars", "benchmark_bars"), ("news_window", "matured_alpha")])
def test_all_assets_of_one_run_are_materialised_the_downstream_ones_too(
    built: AssetWorld, assets: tuple[str, ...]
) -> None:
    for name in assets:
        keys = built.wanted.partitions[name]
        assert built.versions(name) == [(key, built.store.digest(name, key)) for key in keys]
        assert all(event.metadata["reused"].value is False for event in built.events(name))


def test_each_tagged_day_tells_what_its_tagging_took(built: AssetWorld) -> None:
    events = built.events("tagged_articles")
    assert any(event.metadata["asked"].value for event in events)
    for event in events:
        told = {label: value.value for label, value in event.metadata.items()}
        rows = built.store.read("tagged_articles", str(event.partition))
        assert told["asked"] == (rows["tagger"] != "given").sum()
        assert (told["calls"], told["cost_usd"], told["articles_cut"]) == (told["asked"], 0.0, 0)
        assert told["rejected_industries"] == rows["rejected_industries"].map(len).sum()
        assert (told["asked_again"], told["unreadable"], told["failures"]) == (0, 0, {})


def test_unpartitioned_tables_have_one_event_with_the_digest_of_their_content(built: AssetWorld) -> None:
    for name in ("alpha", "ic_matrix", "comparison", "inference"):
        assert built.versions(name) == [(None, built.store.digest(name, SINGLE))]


def test_every_day_of_a_replay_is_one_event_with_the_digest_of_its_manifest(built: AssetWorld) -> None:
    replays = built.store.replays
    manifests = [
        (f"{session}|{experiment.key}", replays.manifest(experiment.key, session).digest)
        for experiment in built.graph.settings.all_experiments
        for session in built.graph.sessions
    ]
    assert built.versions("replay") == manifests


def test_the_finished_graph_is_fresh_to_dagster(built: AssetWorld) -> None:
    stale = {name: built.stale(name, built.keys(name)) for name in (*built.graph.tables, "replay")}
    assert {name: found for name, found in stale.items() if found} == {}


def test_materialising_again_reuses_and_makes_nothing_stale(world: AssetWorld) -> None:
    before = {name: world.versions(name) for name in ("raw_news", "articles")}
    for source in world.graph.sources:
        world.materialise(["raw_news"], f"{NEWS_DAYS[0]}|{source}", f"{NEWS_DAYS[-1]}|{source}")
    world.materialise(["articles"], NEWS_DAYS[0], NEWS_DAYS[-1])
    for name, old in before.items():
        new = world.versions(name)[len(old) :]
        assert new
        assert set(new) <= set(old)
        assert all(event.metadata["reused"].value is True for event in world.events(name)[len(old) :])
    for name in NEWS:
        assert world.stale(name, world.keys(name)) == {}


def test_a_changed_input_makes_its_own_day_stale_and_no_other(world: AssetWorld) -> None:
    day, after = NEWS_DAYS[2:4]
    land(world, day, "央行宣布全面降准，银行板块大涨，市场流动性明显改善。")
    world.materialise(["raw_news"], f"{day}|cls")
    found = world.stale("articles", world.keys("articles"))
    assert found == {day: [("has a new dependency data version", f"raw_news {day}|cls")]}
    assert world.stale("tagged_articles", world.keys("tagged_articles")) == {}

    world.materialise(["articles"], day)
    assert list(world.stale("articles", world.keys("articles"))) == [after]
    world.materialise(["articles"], after)
    assert list(world.stale("tagged_articles", world.keys("tagged_articles"))) == [day]
    world.materialise(["tagged_articles", "benchmark_news"], day)
    for name in NEWS:
        assert world.stale(name, world.keys(name)) == {}


@pytest.mark.parametrize(
    ("more", "instead_of"),
    [
        ("[news]\nmin_importance = 9", "[news]"),
        ("confidence = 0.9\nmin_sessions", "min_sessions"),
        ('[backbones.rules]\nkind = "rules"\nknowledge_cutoff = 2025-01-07\n[experiments]', "[experiments]"),
        ('"sina", "yicai"]', '"sina"]'),
    ],
    ids=["threshold", "evaluation", "knowledge cutoff", "source"],
)
def test_dagster_calls_stale_what_status_says_other_settings_made_so(
    world: AssetWorld, more: str, instead_of: str, tmp_path: Path
) -> None:
    """Code and settings are one code version to Dagster. What waits for a stale asset is not stale to it itself: its
    own digests will tell."""
    text = world.config.read_text()
    assert text.count(instead_of) == 1
    (tmp_path / "finevolve.toml").write_text(text.replace(instead_of, more))
    with AssetWorld.at(world.home, tmp_path / "finevolve.toml") as changed:
        ours = {
            name: freshness(changed.graph, changed.store, changed.wanted, name).stale for name in changed.graph.tables
        }
        dagsters = {name: changed.stale(name, changed.keys(name)) for name in changed.graph.tables}
        for name, stale in dagsters.items():
            of_code = [key or SINGLE for key, causes in stale.items() if ("has a new code version", name) in causes]
            assert tuple(of_code) == ours[name], name
        assert any(ours.values()) == ("yicai" not in more)


def test_a_day_replayed_anew_makes_the_next_day_stale(world: AssetWorld) -> None:
    """Dagster judges this edge only below 100 partitions; above, the store itself refuses to go on."""
    key, day, after = world.wanted.experiments[1], *DAYS[-2:]
    tags = {"dagster/data_version": "another", "dagster/data_version_is_user_provided": "true"}
    event = dg.AssetMaterialization("replay", partition=f"{day}|{key}", tags=tags)
    world.instance.report_runless_asset_event(event)
    found = world.stale("replay", [f"{DAYS[-1]}|{key}"])
    assert found == {f"{after}|{key}": [("has a new dependency data version", f"replay {day}|{key}")]}


def tampered(world: AssetWorld, name: str, key: str, frame: pd.DataFrame) -> None:
    """Store other rows under the recipe of the right ones, so that they pass for fresh."""
    stored = world.store.stored(name, key)
    assert stored is not None
    world.store.write(world.graph.tables[name], key, frame, stored.recipe)


def test_labels_that_contradict_what_agents_were_told_stop_the_evaluation(world: AssetWorld) -> None:
    labels = world.store.read("alpha", SINGLE)
    tampered(world, "alpha", SINGLE, labels.assign(alpha=labels["alpha"] + 0.01))
    before = {name: len(world.events(name)) for name in ("alpha", "ic_matrix", "comparison", "inference")}
    with pytest.raises(RunFailed, match=r"check agrees_with_matured_alpha of alpha: .* sessions differ, first: 2025"):
        world.materialise(["alpha", "ic_matrix", "comparison", "inference"])
    after = {name: len(world.events(name)) for name in before}
    assert after == {**before, "alpha": before["alpha"] + 1}


def test_news_from_after_the_cutoff_stops_the_run(world: AssetWorld) -> None:
    frame = world.store.read("news_window", DAYS[3])
    late = frame["published_at"] + pd.Timedelta(days=9)
    tampered(world, "news_window", DAYS[3], frame.assign(published_at=late))
    with pytest.raises(RunFailed, match=rf"check observable_at_cutoff of news_window: .* first: {DAYS[3]} article"):
        world.materialise(["news_window", "matured_alpha"], DAYS[0], DAYS[-1])


def test_a_damaged_day_of_a_replay_stops_its_evaluation(world: AssetWorld) -> None:
    key = world.wanted.experiments[0]
    manifest = world.store.replays.manifest(key, world.graph.sessions[2])
    path = world.store.replays.folder(key, manifest.session) / next(iter(manifest.files))
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(RunFailed, match=rf"check replay_verifies of ic_by_experiment: .*{key} {manifest.session}"):
        world.materialise(["ic_by_experiment"], key)


HTML = "<script>alert(1)</script><img src=x onerror=alert(2)> 银行板块 [link](javascript:alert(3)) {{ title }}"


def test_article_text_appears_in_metadata_as_plain_table_cells_only(world: AssetWorld) -> None:
    day = NEWS_DAYS[1]
    land(world, day, HTML)
    known = {name: len(world.events(name)) for name in ("raw_news", *NEWS)}
    world.materialise(["raw_news"], f"{day}|cls")
    world.materialise(NEWS, day)
    for name, count in known.items():
        (event,) = world.events(name)[count:]
        preview = event.metadata["preview"]
        assert isinstance(preview, dg.TableMetadataValue)
        cells = [cell for record in preview.records for cell in record.data.values()]
        assert all(isinstance(cell, str) for cell in cells)
        assert name != "raw_news" or any("<script>" in cell for cell in cells if isinstance(cell, str))
        for label, value in event.metadata.items():
            if label != "preview":
                assert not any(
                    word in json.dumps(value.value, default=str) for word in ("script", "onerror", "title }}")
                )


def test_every_check_has_said_yes_about_the_whole_range(built: AssetWorld) -> None:
    keys = built.definitions.resolve_asset_graph().asset_check_keys
    assert len(keys) == 12
    for key in keys:
        (newest,) = built.instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
        assert newest.status == AssetCheckExecutionRecordStatus.SUCCEEDED, key
        assert newest.partition is None
