"""What a home that follows the present still owes, on a small world whose tables are all there."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Iterator

import dagster as dg
import pytest
from asset_world import DAYS, AssetWorld
from dagster._core.test_utils import create_run_for_test

from assets import alerting
from assets.automation import ASKED_AT_TAG, CATCH_UP_TAG, EXPERIMENT_TAG, automation
from assets.following import Owed, Work, owed
from assets.planning import RANGE_END, RANGE_START
from finevolve_pipeline import alerts
from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.definitions import build_graph
from finevolve_pipeline.errors import SettingsError
from finevolve_pipeline.settings import load_settings
from resources.table_store import TableStore

LAST = dt.date.fromisoformat(DAYS[-1])
NOON = dt.datetime.combine(LAST + dt.timedelta(days=1), dt.time(12), SHANGHAI)
"""Of the day after the last session, when all of its time has come."""

NEWS = ("articles", "tagged_articles", "benchmark_news")
EXPERIMENTS = ("pipe-rules", "mem0-rules", "memrl-rules")


def found(world: AssetWorld, now: dt.datetime = NOON) -> Owed:
    return owed(world.graph, world.store, now, ())


def forget(world: AssetWorld, table: str, *keys: str) -> None:
    for key in keys:
        world.store.path(table, key).unlink()


def forget_days(world: AssetWorld, experiment: str, first: str) -> None:
    for session in world.store.replays.sessions(experiment):
        if session.isoformat() >= first:
            shutil.rmtree(world.store.replays.folder(experiment, session))


def revise(world: AssetWorld, day: str) -> None:
    """Let another close of a session land, and make its bars."""
    bars = world.store.landing.read_bars("benchmark_bars", day)
    for column in ("open", "high", "low", "close"):
        bars[column] *= 1.001
    world.store.landing.merge_bars("benchmark_bars", bars)
    world.materialise(["benchmark_bars"], day)


def test_where_everything_is_there_nothing_is_owed(world: AssetWorld) -> None:
    assert found(world) == Owed((), {}, {}, ())


def test_before_its_time_nothing_is_owed(world: AssetWorld) -> None:
    forget(world, "benchmark_news", DAYS[-1])
    midnight = dt.datetime.combine(LAST + dt.timedelta(days=1), dt.time(0, 50), SHANGHAI)
    assert found(world, midnight).work == ()
    later = midnight + dt.timedelta(minutes=15)
    assert found(world, later).work == (Work("news_day", ("benchmark_news",), DAYS[-1], DAYS[-1]),)
    assert found(world, later).late == {}
    assert found(world, midnight + dt.timedelta(hours=2)).late == {"benchmark_news": (DAYS[-1],)}


def test_neighbouring_days_are_made_in_one_run_and_what_rests_on_them_waits(world: AssetWorld) -> None:
    for table in NEWS:
        forget(world, table, DAYS[4], DAYS[5])
    forget(world, "news_window", DAYS[5])
    for experiment in EXPERIMENTS:
        forget_days(world, experiment, DAYS[5])
    now = found(world)
    assert now.work[0] == Work("news_day", NEWS, DAYS[4], DAYS[5])
    assert not [work for work in now.work if work.job in ("session_inputs", "replay_session")]
    assert f"replay pipe-rules {DAYS[5]}: news_window is not there yet" in now.notes


def test_a_chain_goes_on_with_its_oldest_session_alone(world: AssetWorld) -> None:
    forget_days(world, "mem0-rules", DAYS[3])
    key = f"{DAYS[3]}|mem0-rules"
    assert found(world).work == (Work("replay_session", ("replay",), key, key, "mem0-rules"),)
    assert found(world).late == {"replay mem0-rules": DAYS[3:]}


def test_a_chain_that_ends_too_long_ago_is_left_to_a_person(world: AssetWorld) -> None:
    forget_days(world, "mem0-rules", DAYS[0])
    much_later = NOON + dt.timedelta(days=10)
    (note,) = [note for note in found(world, much_later).notes if note.startswith("replay")]
    assert note == (
        f"replay mem0-rules {DAYS[0]}: lies before the last 14 days; "
        "`finevolve run --mechanism mem0 --backbone rules --seed 0` does it"
    )


def test_only_chosen_experiments_are_followed(world: AssetWorld) -> None:
    for experiment in EXPERIMENTS:
        forget_days(world, experiment, DAYS[-1])
    chosen = load_settings(world.config, {"automation": {"experiments": ["memrl-rules"]}})
    work = owed(build_graph(chosen, world.home), world.store, NOON, ()).work
    assert [one.subject for one in work if one.job == "replay_session"] == ["memrl-rules"]
    with pytest.raises(SettingsError, match=r"automation\.experiments: 'pipe' is not among"):
        load_settings(world.config, {"automation": {"experiments": ["pipe"]}})


def test_a_revised_close_changes_what_nobody_has_read_and_is_told_of_the_rest(world: AssetWorld) -> None:
    """Horizons are 1, 2 and 4: outcomes of its own session and of those 1, 2 and 4 later rest on it."""
    for experiment in EXPERIMENTS:
        forget_days(world, experiment, DAYS[3])
    revise(world, DAYS[1])
    now = found(world)
    assert now.kept == {"matured_alpha": (DAYS[1], DAYS[2])}
    inputs = [work for work in now.work if work.job == "session_inputs"]
    assert inputs == [Work("session_inputs", ("matured_alpha",), day, day) for day in (DAYS[3], DAYS[5])]
    assert not [work for work in now.work if work.job == "replay_session"], "not from stale outcomes"

    for work in inputs:
        world.materialise(["matured_alpha"], work.first, work.last)
    again = found(world)
    assert again.kept == now.kept
    replays = [work for work in again.work if work.job == "replay_session"]
    assert [work.first for work in replays] == [f"{DAYS[3]}|{experiment}" for experiment in EXPERIMENTS]
    # The labels hold the revised close, the outcomes as they were read do not: that is no disagreement.
    world.materialise(["alpha"])


def test_inputs_that_were_read_and_would_come_out_the_same_are_made_again(world: AssetWorld) -> None:
    table = world.graph.tables["news_window"]
    world.store.write(table, DAYS[2], world.store.read("news_window", DAYS[2]), "of another recipe")
    assert found(world).work == (Work("session_inputs", ("news_window",), DAYS[2], DAYS[2]),)
    assert found(world).kept == {}


def test_coefficients_are_owed_once_chain_and_labels_are_level(world: AssetWorld) -> None:
    forget(world, "ic_by_experiment", *EXPERIMENTS)
    forget_days(world, "mem0-rules", DAYS[-1])
    level = [(work.first, work.last) for work in found(world).work if work.job == "experiment_ic"]
    assert level == [("pipe-rules", "pipe-rules"), ("memrl-rules", "memrl-rules")]
    forget(world, "alpha", "all")
    assert not [work for work in found(world).work if work.job == "experiment_ic"]


# What the sensor asks for


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as found:
        yield found


def caught_up(
    world: AssetWorld, instance: dg.DagsterInstance, now: dt.datetime = NOON
) -> tuple[list[dg.RunRequest], str]:
    sensors = automation(world.graph, lambda: now).sensors
    (sensor,) = (one for one in sensors if one.name == "catch_up")
    context = dg.build_sensor_context(
        instance=instance,
        resources={"store": world.store},
        repository_def=world.definitions.get_repository_def(),
    )
    tick = sensor.evaluate_tick(context)
    return list(tick.run_requests or ()), tick.skip_message or ""


def test_each_try_comes_later_than_the_one_before(world: AssetWorld, instance: dg.DagsterInstance) -> None:
    forget_days(world, "mem0-rules", DAYS[-1])
    key, waits = f"{DAYS[-1]}|mem0-rules", []
    now = NOON
    for tries in range(6):
        (request,) = caught_up(world, instance, now)[0]
        assert (request.job_name, request.tags[RANGE_START], request.tags[RANGE_END]) == ("replay_session", key, key)
        assert request.tags[EXPERIMENT_TAG] == "mem0-rules"
        assert request.run_key == f"replay_session|replay|{key}|{tries}"
        create_run_for_test(
            instance, job_name="replay_session", tags=dict(request.tags), status=dg.DagsterRunStatus.FAILURE
        )
        asked_at, minutes = now, 0
        while not caught_up(world, instance, now)[0]:
            minutes += 10
            now = asked_at + dt.timedelta(minutes=minutes)
        waits.append(minutes)
    assert waits == [30, 60, 120, 240, 240, 240]


def test_what_is_under_way_is_not_asked_for_again(world: AssetWorld, instance: dg.DagsterInstance) -> None:
    for experiment in ("pipe-rules", "mem0-rules"):
        forget_days(world, experiment, DAYS[-1])
    create_run_for_test(
        instance,
        job_name="replay_session",
        tags={EXPERIMENT_TAG: "mem0-rules"},
        status=dg.DagsterRunStatus.STARTED,
    )
    requests, _ = caught_up(world, instance)
    assert [request.tags[EXPERIMENT_TAG] for request in requests] == ["pipe-rules"]
    assert CATCH_UP_TAG in requests[0].tags
    assert requests[0].tags[ASKED_AT_TAG] == NOON.isoformat()


def test_inputs_that_stay_as_they_were_read_are_named(world: AssetWorld, instance: dg.DagsterInstance) -> None:
    revise(world, DAYS[-1])
    world.materialise(["alpha"])
    world.materialise(["label_bases"])
    for experiment in EXPERIMENTS:
        world.materialise(["ic_by_experiment"], experiment)
    assert caught_up(world, instance) == ([], f"matured_alpha {DAYS[-1]}: stays as it was read")


def test_people_are_told_of_what_is_late_and_of_what_has_changed_since_it_was_read(
    world: AssetWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_days(world, "mem0-rules", DAYS[-1])
    revise(world, DAYS[-2])
    chosen = load_settings(world.config, {"crawl": {"enabled": True}})
    monkeypatch.setattr(alerting, "crawled", lambda settings: ())
    graph = build_graph(chosen, world.home)
    told = list(alerting._of_what_is_owed(graph, TableStore(world.home), NOON))
    assert {one.message.subject.removeprefix("FinEvolve: ") for one in told} == {
        f"replay mem0-rules of {DAYS[-1]} is late",
        f"matured_alpha of {DAYS[-2]} has changed since it was read",
        f"matured_alpha of {DAYS[-1]} has changed since it was read",
    }
    texts = [one.message.text for one in told if one.id.startswith("revised")]
    for day, text in zip(DAYS[-2:], texts, strict=True):
        assert f"`finevolve reset EXPERIMENT --from {day}`" in text
    assert list(alerting._of_what_is_owed(world.graph, world.store, NOON)) == [], "a finished history owes nobody"
    assert list(alerts.late_partitions("x", ())) == list(alerts.revised_inputs("x", ())) == []
