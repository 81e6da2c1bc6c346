"""Incremental truth: a table of changes, for each the partitions that become stale, why, and what is made again.

`stale` is what status says before anything is made: all that rests on the change, however far. `written` is what
then had to be made, `changed` what came out with another content: where nothing did, the wave ends.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from changed_world import ChangedWorld, Made
from small_world import SESSIONS, import_arguments, write_small_world

from finevolve_pipeline.calendar import days_between
from finevolve_pipeline.cli.output import Pipeline
from finevolve_pipeline.universe import CODES
from resources.table_store import TableStore

S = tuple(session.isoformat() for session in SESSIONS)
DAYS = tuple(day.isoformat() for day in days_between(SESSIONS[0], SESSIONS[-1]))
BEFORE = ("2024-12-29", "2024-12-30", "2024-12-31", "2025-01-01")
NEWS_DAYS = (*BEFORE, *DAYS)
ALL = ("all",)
EXPERIMENTS = ("pipe-rules", "reflexion-rules", "memrl-rules")
TAG, PREDICT, REFLECT = "TagRequest", "PredictRequest", "ReflectRequest"

Stale = Mapping[str, Sequence[str]]


def evaluation(*experiments: str) -> Stale:
    """All that is made of the predictions of some experiments."""
    return {
        "ic_by_experiment": experiments,
        **dict.fromkeys(("ic_matrix", "comparison", "inference", "sensitivity", "report"), ALL),
    }


def tables(*stale: Stale) -> Stale:
    """The same without the report, which this test does not make."""
    return {name: keys for one in stale for name, keys in one.items() if name != "report"}


def news(days: Sequence[str], *names: str) -> Stale:
    """Some days of the tables of news."""
    return dict.fromkeys(names, tuple(days))


NEWS = ("articles", "tagged_articles", "benchmark_news")
WINDOWS_OF_7TH, WINDOWS_OF_7TH_TO_9TH = S[3:7], S[3:8]
FROM_THE_FIRST = dict.fromkeys(EXPERIMENTS, S[0])
FROM_7TH = dict.fromkeys(EXPERIMENTS, "2025-01-07")
FROM_8TH = dict.fromkeys(EXPERIMENTS, "2025-01-08")


# -- the changes


def news_file(world: ChangedWorld, day: str) -> dict[str, Any]:
    """The first important article that `cls` published on a day, as it was imported."""
    selected = TableStore(world.home).read("benchmark_news", day)
    url = selected.loc[selected["source"] == "cls", "url"].iloc[0]
    with gzip.open(world.config.parent / "news.jsonl.gz", "rt", encoding="utf-8") as lines:
        return next(one for one in map(json.loads, lines) if one["url"] == url)


def import_article(world: ChangedWorld, article: Mapping[str, Any]) -> None:
    path = world.home.parent / "changed.jsonl"
    path.write_text(json.dumps(article, ensure_ascii=False) + "\n", "utf-8")
    world.command("import", "news", str(path), "--replace")


def edit_text(world: ChangedWorld) -> None:
    content = "国务院发布重大政策，大幅下调银行存款准备金率，银行股涨停，银行业净利润预计大增。"
    import_article(world, {**news_file(world, "2025-01-07"), "content": content})


def move_over_midnight(world: ChangedWorld) -> None:
    import_article(world, {**news_file(world, "2025-01-08"), "published_at": "2025-01-07T23:50:00+08:00"})


def revise(world: ChangedWorld, side: str, session: str) -> None:
    """Another close of the first code of a session."""
    landing = TableStore(world.home).landing
    first = landing.read_bars(side, session).iloc[[0]]
    landing.merge_bars(side, pd.DataFrame(first).assign(close=first["close"] * 1.01))


# -- the table


@dataclass(frozen=True)
class Change:
    """A change and what it must lead to.

    Attributes:
        make: makes it.
        stale: what status calls stale, replays apart.
        stale_replays: first stale session by experiment.
        causes: (table, words) of every cause that is no mere waiting for something upstream.
        refused_by: what the refusal of each stale replay names; empty where making the inputs shows that none of them
            has changed.
        written: what is made again; None: all that was called stale.
        changed: tables of which that changed something, as far as the change alone decides it.
        asked: questions to the model by type, before any reset.
    """

    make: Callable[[ChangedWorld], None]
    stale: Stale
    causes: frozenset[tuple[str, str]]
    stale_replays: Mapping[str, str] = field(default_factory=dict)
    refused_by: str = ""
    written: Stale | None = None
    changed: Stale = field(default_factory=dict)
    asked: Mapping[str, int] = field(default_factory=dict)


def why(**causes: str) -> frozenset[tuple[str, str]]:
    return frozenset((table, words) for table, words in causes.items())


TAGGED_AGAIN: dict[str, Any] = {
    "stale": {
        **news(NEWS_DAYS, "tagged_articles", "benchmark_news"),
        "news_window": S,
        **evaluation(*EXPERIMENTS),
    },
    "stale_replays": FROM_THE_FIRST,
    # The tagger's name stands in these tables; windows hold what it said, and that is the same.
    "written": {**news(NEWS_DAYS, "tagged_articles", "benchmark_news"), "news_window": S},
    "changed": news(NEWS_DAYS, "tagged_articles", "benchmark_news"),
    "asked": {TAG: 150},
}

CHANGES = {
    "an article's text": Change(
        edit_text,
        {
            "raw_news": ("2025-01-07|cls",),
            **news(("2025-01-07", "2025-01-08"), *NEWS),
            "news_window": WINDOWS_OF_7TH,
            **evaluation(*EXPERIMENTS),
        },
        why(raw_news="landing_news 2025-01-07|cls changed"),
        FROM_7TH,
        "made from another news_window",
        # Whether the 8th holds a copy of an article of the 7th is known when it is made: it holds none.
        {
            "raw_news": ("2025-01-07|cls",),
            "articles": ("2025-01-07", "2025-01-08"),
            **news(("2025-01-07",), "tagged_articles", "benchmark_news"),
            "news_window": WINDOWS_OF_7TH,
        },
        {
            "raw_news": ("2025-01-07|cls",),
            **news(("2025-01-07",), *NEWS),
            "news_window": WINDOWS_OF_7TH,
        },
        {TAG: 12},
    ),
    "an article's time, over midnight": Change(
        move_over_midnight,
        {
            "raw_news": ("2025-01-07|cls", "2025-01-08|cls"),
            **news(("2025-01-07", "2025-01-08", "2025-01-09"), *NEWS),
            "news_window": WINDOWS_OF_7TH_TO_9TH,
            **evaluation(*EXPERIMENTS),
        },
        why(raw_news="landing_news 2025-01-07|cls to 2025-01-08|cls (2) changed", report="news coverage all changed"),
        FROM_7TH,
        "made from another news_window",
        {
            "raw_news": ("2025-01-07|cls", "2025-01-08|cls"),
            "articles": ("2025-01-07", "2025-01-08", "2025-01-09"),
            **news(("2025-01-07", "2025-01-08"), "tagged_articles", "benchmark_news"),
            "news_window": WINDOWS_OF_7TH,
        },
        {
            "raw_news": ("2025-01-07|cls", "2025-01-08|cls"),
            **news(("2025-01-07", "2025-01-08"), *NEWS),
            "news_window": WINDOWS_OF_7TH,
        },
        {TAG: 24},
    ),
    "a close": Change(
        lambda world: revise(world, "industry_bars", "2025-01-08"),
        {
            "industry_bars": ("2025-01-08",),
            # Known that day, and from there one and two sessions on; four sessions on the window is over.
            "matured_alpha": ("2025-01-08", "2025-01-09", "2025-01-10"),
            **dict.fromkeys(("alpha", "label_bases"), ALL),
            **evaluation(*EXPERIMENTS),
        },
        why(industry_bars="landing_industry_bars 2025-01-08 changed"),
        FROM_8TH,
        "made from another matured_alpha",
        {
            "industry_bars": ("2025-01-08",),
            "matured_alpha": ("2025-01-08", "2025-01-09", "2025-01-10"),
            **dict.fromkeys(("alpha", "label_bases"), ALL),
        },
        {
            "industry_bars": ("2025-01-08",),
            "matured_alpha": ("2025-01-08", "2025-01-09", "2025-01-10"),
            **dict.fromkeys(("alpha", "label_bases"), ALL),
        },
    ),
    "a close of the benchmark, after the last prediction": Change(
        lambda world: revise(world, "benchmark_bars", "2025-01-16"),
        {
            "benchmark_bars": ("2025-01-16",),
            **dict.fromkeys(("alpha", "label_bases"), ALL),
            **evaluation(*EXPERIMENTS),
        },
        why(benchmark_bars="landing_benchmark_bars 2025-01-16 changed"),
        changed={"benchmark_bars": ("2025-01-16",), **dict.fromkeys(("alpha", "label_bases"), ALL)},
    ),
    "the prompt of tagging": Change(
        lambda world: world.edit_template("tag.zh"),
        causes=why(tagged_articles="code prompt templates of tagging (zh) changed"),
        **TAGGED_AGAIN,
    ),
    "the prompt of predictions": Change(
        lambda world: world.edit_template("predict.zh"),
        evaluation(*EXPERIMENTS),
        why(),
        FROM_THE_FIRST,
        "made with other settings or code: prompts.templates was ",
        {},
    ),
    "the prompt of reflection": Change(
        lambda world: world.edit_template("reflect.zh"),
        evaluation("reflexion-rules"),
        why(),
        {"reflexion-rules": S[0]},
        "made with other settings or code: prompts.templates was ",
        {},
    ),
    "a mechanism's setting": Change(
        lambda world: world.set("\n[mechanisms.memrl]\ntop_k = 4\n"),
        evaluation("memrl-rules"),
        why(report="settings.mechanisms.memrl.top_k was 5 and is 4"),
        {"memrl-rules": S[0]},
        "made with other settings or code: mechanism.settings.top_k was 5 and is 4",
        {},
    ),
    "the model of tagging": Change(
        lambda world: world.set('\n[tagging]\nbackbone = "other"\n[backbones.other]\nkind = "rules"\n'),
        causes=frozenset(
            {
                ("tagged_articles", "settings.tagging.backbone was 'rules' and is 'other'"),
                ("report", "settings.tagging.backbone was 'rules' and is 'other'"),
                ("report", "settings.backbones.other was None and is {'kind': 'rules'"),
            }
        ),
        **TAGGED_AGAIN,
    ),
    "the threshold of importance": Change(
        lambda world: world.set("[news]\nmin_importance = 9", "[news]"),
        {"benchmark_news": NEWS_DAYS, "news_window": S, **evaluation(*EXPERIMENTS)},
        why(
            benchmark_news="settings.news.min_importance was 8 and is 9",
            report="settings.news.min_importance was 8 and is 9",
        ),
        FROM_THE_FIRST,
        "made from another news_window",
        {"benchmark_news": NEWS_DAYS, "news_window": S},
        {"news_window": S},
    ),
    "a setting of the evaluation": Change(
        lambda world: world.set("confidence = 0.9\nbootstrap_draws", "bootstrap_draws"),
        evaluation(*EXPERIMENTS),
        frozenset((table, "settings.evaluation.confidence was 0.95 and is 0.9") for table in evaluation(*EXPERIMENTS)),
        changed=dict.fromkeys(("inference",), ALL),
    ),
    "one more source, without articles": Change(
        lambda world: world.set('"sina", "yicai"]', '"sina"]'),
        {"report": ALL},
        frozenset(
            {
                ("report", "settings.news.sources was ['cls', 'sina'] and is ['cls', 'sina', 'yicai']"),
                ("report", "news coverage all changed"),
            }
        ),
    ),
    "a knowledge cutoff": Change(
        lambda world: world.set('\n[backbones.rules]\nkind = "rules"\nknowledge_cutoff = 2025-01-07\n'),
        {"sensitivity": ALL, "report": ALL},
        why(
            sensitivity="settings.backbones.rules was None and is {'knowledge_cutoff': '2025-01-07'}",
            report="settings.backbones.rules.knowledge_cutoff was None and is '2025-01-07'",
        ),
        changed={"sensitivity": ALL},
    ),
    "a mechanism's code": Change(
        lambda world: world.edit_code("mechanisms/memrl.py"),
        evaluation("memrl-rules"),
        why(report="code of mechanism memrl changed"),
        {"memrl-rules": S[0]},
        "made with other settings or code: mechanism.code was ",
        {},
    ),
    "a rule for duplicates that meets none": Change(
        lambda world: world.set("\n[news.deduplicate]\nhours = 23\n"),
        {
            **news(NEWS_DAYS, *NEWS),
            "news_window": S,
            **evaluation(*EXPERIMENTS),
        },
        why(
            articles="settings.news.deduplicate.hours was 24 and is 23",
            report="settings.news.deduplicate.hours was 24 and is 23",
        ),
        FROM_THE_FIRST,
        written=news(NEWS_DAYS, "articles"),
    ),
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files, settings and a home in which everything has been made once."""
    folder = write_small_world(tmp_path_factory.mktemp("world"), ("pipe", "reflexion", "memrl"), articles_per_day=12)
    config = folder / "finevolve.toml"
    config.write_text(config.read_text().replace("min_sessions = 3", "min_sessions = 3\nbootstrap_draws = 100"))
    with pytest.MonkeyPatch.context() as patch:
        world = ChangedWorld.at(folder / "home", config, patch)
        for arguments in import_arguments(folder):
            world.command(*arguments)
        assert not world.bring_up().refused
        world.publish()
    return folder


@pytest.fixture
def world(built: Path, tmp_path: Path) -> Iterator[ChangedWorld]:
    """A copy of the built world, of this test's own."""
    folder = tmp_path / "world"
    shutil.copytree(built, folder)
    with pytest.MonkeyPatch.context() as patch:
        yield ChangedWorld.at(folder / "home", folder / "finevolve.toml", patch)


def places(stale: Stale) -> set[tuple[str, str]]:
    return {(table, key) for table, keys in stale.items() for key in keys}


def stale_in(status: Mapping[str, Any]) -> set[tuple[str, str]]:
    return places({table: told["stale"] for table, told in status["assets"].items()})


def causes_in(status: Mapping[str, Any]) -> set[tuple[str, str]]:
    told = ((table, one) for table, own in status["assets"].items() for one in own["why"])
    return {(table, one["words"]) for table, one in told if one["cause"] != "upstream"}


def test_where_nothing_was_changed_nothing_is_stale_or_made(world: ChangedWorld) -> None:
    status = world.status()
    assert stale_in(status) == set()
    assert {key: told["next"] for key, told in status["experiments"].items()} == dict.fromkeys(EXPERIMENTS)
    assert world.bring_up() == Made()


@pytest.mark.parametrize("name", CHANGES)
def test_exactly_what_rests_on_a_change_is_stale_and_made_again(world: ChangedWorld, name: str) -> None:
    change = CHANGES[name]
    change.make(world)
    status = world.status()
    assert stale_in(status) == places(change.stale)
    assert {key: told["next"] for key, told in status["experiments"].items() if told["next"]} == change.stale_replays
    _same_causes(causes_in(status), change.causes)

    made = world.bring_up()
    assert made.written == places(tables(change.stale if change.written is None else change.written))
    assert places(change.changed) <= made.changed <= made.written
    assert dict(made.asked) == change.asked
    assert made.refused.keys() == (change.stale_replays.keys() if change.refused_by else set())
    for key, refusal in made.refused.items():
        first = change.stale_replays[key]
        assert refusal.startswith(f"replay {key} {first}: {change.refused_by}")
        assert world.status()["experiments"][key]["refused"] == refusal
        (command,) = re.findall(r"`finevolve (reset [^`]*)`", refusal)
        assert command == f"reset {key} --from {first}"
        world.command(*command.split(), "--yes")
    if made.refused:
        _replayed_anew(world.bring_up(), change.stale_replays)
    assert stale_in(world.status()) <= {("report", "all")}
    assert world.bring_up() == Made()


def _same_causes(found: set[tuple[str, str]], expected: frozenset[tuple[str, str]]) -> None:
    """Each expected cause is the beginning of one that was found, and no other was found."""
    begun = {
        (table, words): {told for told in found if told[0] == table and told[1].startswith(words)}
        for table, words in expected
    }
    assert all(len(own) == 1 for own in begun.values()), (found, expected)
    assert set().union(*begun.values()) == found


def _replayed_anew(made: Made, first: Mapping[str, str]) -> None:
    """Only the days that had been forgotten were made again, and then what the evaluation makes of them."""
    days = {(key, session) for key, since in first.items() for session in S if session >= since}
    own = {(table, key) for table, key in made.written if table in EXPERIMENTS}
    assert own == days
    assert made.written - own <= places(tables(evaluation(*first)))
    assert ("ic_by_experiment", next(iter(first))) in made.written
    assert made.asked[PREDICT] == len(days) * len(CODES)
    assert made.asked.keys() <= {PREDICT, REFLECT}


def test_content_that_comes_out_the_same_ends_the_wave(world: ChangedWorld) -> None:
    CHANGES["a rule for duplicates that meets none"].make(world)
    assert world.bring_up().changed == set()


def test_causes_are_told_in_a_line_each(world: ChangedWorld) -> None:
    CHANGES["the threshold of importance"].make(world)
    lines = world.command("status").splitlines()
    assert "benchmark_news 2024-12-29 to 2025-01-13 (16): settings.news.min_importance was 8 and is 9" in lines
    assert (
        "news_window 2025-01-02 to 2025-01-13 (8): rests on what is due before it: "
        "benchmark_news 2024-12-29 to 2025-01-13 (16)"
    ) in lines
    (reason,) = world.status()["assets"]["benchmark_news"]["why"]
    assert (reason["cause"], reason["name"]) == ("setting", "news.min_importance")
    assert (reason["count"], reason["first"], reason["last"]) == (16, NEWS_DAYS[0], NEWS_DAYS[-1])


def test_what_was_made_before_causes_were_kept_says_so(world: ChangedWorld) -> None:
    store, day = TableStore(world.home), "2025-01-07"
    table = Pipeline.in_force().graph.tables["benchmark_news"]
    store.write(table, day, store.read("benchmark_news", day), "an old recipe")
    assert causes_in(world.status()) == {("benchmark_news", "made before causes were kept")}
    assert world.bring_up() == Made({("benchmark_news", day)})
    assert store.parts("benchmark_news", day) is not None
