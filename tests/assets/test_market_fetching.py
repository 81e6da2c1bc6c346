"""Bars that a run fetches, what its checks say of the sources, and what one revised close makes due."""

from __future__ import annotations

import datetime as dt
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from asset_world import DAYS, AssetWorld
from dagster import AssetCheckKey, AssetKey, asset, build_schedule_context, materialize
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

sys.path.insert(0, str(Path(__file__).parent.parent / "resources"))

from service_world import ERROR_500, TOKEN, CsIndexSite, FakeTime, TushareService, close_of, serving
from small_world import BAR_SESSIONS, settings_text

from assets.automation import BARS_AT
from assets.checks import checks
from assets.planning import freshness
from finevolve_pipeline import calendar
from finevolve_pipeline.definitions import build_graph
from finevolve_pipeline.settings import load_settings
from finevolve_pipeline.universe import BENCHMARK, CODES
from resources.market import Revisions, bring, second_store, sources
from resources.market.csindex import CsIndex
from resources.table_store import TableStore

BARS = ("industry_bars", "benchmark_bars")
FIRST, LAST = (session.isoformat() for session in (BAR_SESSIONS[0], BAR_SESSIONS[-1]))


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[TushareService, CsIndexSite]]:
    monkeypatch.setenv("TUSHARE_TOKEN", TOKEN)
    tushare, csindex = TushareService(), CsIndexSite()
    with serving(tushare), serving(csindex) as url:
        monkeypatch.setitem(sources.SOURCES, "csindex", lambda settings: CsIndex(FakeTime().politeness(), url))
        yield tushare, csindex


@pytest.fixture
def fetched(services: tuple[TushareService, CsIndexSite], tmp_path: Path) -> Iterator[AssetWorld]:
    """An empty home whose settings name tushare for the industries, csindex and then tushare for the benchmark."""
    lines = '[market]\nindustries = ["tushare"]\nbenchmark = ["csindex", "tushare"]\n'
    limits = f'[tushare]\nbase_url = "{services[0].url}"\nrequests_per_minute = 100000\nattempts = 1\n'
    config = tmp_path / "finevolve.toml"
    config.write_text(settings_text().replace("[market]\n", lines) + limits)
    with AssetWorld.at(tmp_path / "home", config) as world:
        yield world


def check(world: AssetWorld, asset: str, name: str) -> tuple[bool, dict[str, object]]:
    """Whether a check passed when it last ran, and its figures."""
    key = AssetCheckKey(AssetKey(asset), name)
    (newest,) = world.instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
    assert newest.event is not None
    evaluation = newest.event.dagster_event.asset_check_evaluation_data
    figures = {label: value.value for label, value in evaluation.metadata.items()}
    return newest.status == AssetCheckExecutionRecordStatus.SUCCEEDED, figures


def test_a_run_fetches_what_its_partitions_lack(
    fetched: AssetWorld, services: tuple[TushareService, CsIndexSite]
) -> None:
    fetched.materialise(BARS, FIRST, DAYS[2])
    wanted = [session.isoformat() for session in BAR_SESSIONS if session.isoformat() <= DAYS[2]]
    for name in BARS:
        assert [key for key, _ in fetched.versions(name)] == wanted
    assert fetched.store.read("benchmark_bars", DAYS[0])["close"].tolist() == [
        close_of(BENCHMARK, dt.date.fromisoformat(DAYS[0]))
    ]
    assert fetched.store.read("industry_bars", DAYS[0])["code"].tolist() == list(CODES)
    asked = {call["end_date"] for call in services[0].calls("sw_daily")}
    assert asked == {DAYS[2].replace("-", "")}
    assert check(fetched, "industry_bars", "all_sessions_there")[0]


def test_two_sources_that_agree_pass_and_show_the_figures(fetched: AssetWorld) -> None:
    fetched.materialise(["benchmark_bars"], FIRST, LAST)
    passed, figures = check(fetched, "benchmark_bars", "sources_agree")
    assert passed
    assert figures["sources"] == {
        "tushare": {
            "closes_compared": len(BAR_SESSIONS),
            "largest_relative_difference": 0.0,
            "where": "",
            "missing_there": 0,
            "missing_here": 0,
            "sessions_missing_there": 0,
        }
    }


def test_two_sources_that_differ_are_told_and_stop_nothing(
    fetched: AssetWorld, services: tuple[TushareService, CsIndexSite]
) -> None:
    day = dt.date.fromisoformat(DAYS[3])
    services[0].revised = {(BENCHMARK, DAYS[3]): close_of(BENCHMARK, day) * 1.01}
    fetched.materialise(["benchmark_bars"], FIRST, LAST)
    passed, figures = check(fetched, "benchmark_bars", "sources_agree")
    assert not passed
    assert figures["first"] == [f"tushare: {BENCHMARK} {DAYS[3]}"]
    told = figures["sources"]
    assert isinstance(told, dict)
    assert told["tushare"]["largest_relative_difference"] == pytest.approx(0.01, rel=1e-4)
    assert fetched.store.read("benchmark_bars", DAYS[3])["close"].tolist() == [close_of(BENCHMARK, day)]


def test_a_broken_source_leaves_the_run_whole_and_the_gap_told(
    fetched: AssetWorld, services: tuple[TushareService, CsIndexSite]
) -> None:
    fetched.materialise(["industry_bars"], FIRST, DAYS[1])
    services[0].first(10_000, ERROR_500)
    fetched.materialise(["industry_bars"], DAYS[0], DAYS[3])
    assert fetched.versions("industry_bars")[-2:] == [
        (day, fetched.store.digest("industry_bars", day)) for day in DAYS[:2]
    ]
    passed, figures = check(fetched, "industry_bars", "all_sessions_there")
    assert not passed
    assert figures["first"] == [f"{day}: 31 closes missing, first {CODES[0]}" for day in DAYS[2:4]]


def test_what_the_second_source_said_is_read_by_nothing_else(fetched: AssetWorld) -> None:
    fetched.materialise(["benchmark_bars"], FIRST, LAST)
    before = fetched.store.digest("benchmark_bars", DAYS[0])
    beside = second_store(fetched.home, "tushare")
    beside.merge_bars("benchmark_bars", beside.read_bars("benchmark_bars", DAYS[0]).assign(close=1.0))
    fetched.materialise(["benchmark_bars"], DAYS[0])
    assert fetched.store.digest("benchmark_bars", DAYS[0]) == before
    assert not check(fetched, "benchmark_bars", "sources_agree")[0]


# Revisions


def test_the_evening_s_run_brings_what_a_source_has_revised_of_the_newest_sessions(
    fetched: AssetWorld, services: tuple[TushareService, CsIndexSite]
) -> None:
    fetched.materialise(BARS, FIRST, LAST)
    before = BAR_SESSIONS[-2].isoformat()
    services[0].revised = {(CODES[0], before): 4321.0}
    evening = dt.datetime.combine(BAR_SESSIONS[-1], BARS_AT, calendar.SHANGHAI)
    context = build_schedule_context(
        scheduled_execution_time=evening, repository_def=fetched.definitions.get_repository_def()
    )
    (request,) = fetched.definitions.resolve_schedule_def("daily_bars").evaluate_tick(context).run_requests or ()
    job = fetched.definitions.resolve_job_def("market_session")
    assert job.execute_in_process(tags=dict(request.tags), instance=fetched.instance).success
    assert fetched.store.read("industry_bars", before).set_index("code").loc[CODES[0], "close"] == 4321.0


class Revising:
    """A source that repeats what has landed, with one close changed."""

    name = "tushare"

    def __init__(self, world: AssetWorld, day: str, code: str) -> None:
        self.world, self.cell = world, (day, code)

    def bars(self, table: str, codes: object, span: tuple[dt.date, dt.date], now: object) -> object:
        from finevolve_pipeline.market.fetching import Fetched

        days = [d.isoformat() for d in calendar.sessions_between(*span)]
        frame = pd.concat([self.world.store.landing.read_bars(table, day) for day in days], ignore_index=True)
        revised = (frame["session"] == self.cell[0]) & (frame["code"] == self.cell[1])
        for column in ("open", "high", "low", "close"):
            frame.loc[revised, column] *= 1.001
        return Fetched(frame)


def revise(world: AssetWorld, table: str, day: str, code: str) -> None:
    settings = load_settings(world.config, {"market": {"industries": ["tushare"], "benchmark": ["tushare"]}})
    now = dt.datetime(2025, 2, 1, 18, tzinfo=calendar.SHANGHAI)
    source = Revising(world, day, code)
    build = lambda name, _: source  # noqa: E731
    brought = bring(settings, world.home, table, BAR_SESSIONS, now, again=True, build=build)  # type: ignore[arg-type]
    assert [f"{r.session} {r.code}" for r in brought.landed.revised_closes] == [f"{day} {code}"]


@pytest.mark.parametrize(("table", "code"), [("industry_bars", "801080"), ("benchmark_bars", BENCHMARK)])
def test_one_revised_close_makes_exactly_the_outcomes_due_that_read_its_session(
    world: AssetWorld, table: str, code: str
) -> None:
    """Horizons are 1, 2 and 4 sessions, so its own session and those three after it read it."""
    day = DAYS[1]
    readers = (DAYS[1], DAYS[2], DAYS[3], DAYS[5])
    revise(world, table, day, code)
    bars = freshness(world.graph, world.store, world.wanted, table)
    assert (bars.stale, bars.missing) == ((day,), ())
    other = BARS[1 - BARS.index(table)]
    assert freshness(world.graph, world.store, world.wanted, other).due == ()

    world.materialise([table], day)
    outcomes = freshness(world.graph, world.store, world.wanted, "matured_alpha")
    assert (outcomes.stale, outcomes.missing) == (readers, ())
    passed, figures = check(world, table, "no_revised_closes")
    assert not passed
    assert f"{code} {day} close" in str(figures["first"])

    for reader in readers:
        world.materialise(["matured_alpha"], reader)
    assert freshness(world.graph, world.store, world.wanted, "matured_alpha").due == ()
    assert [entry.session for entry in Revisions(world.home).closes(table)] == [day]


def test_at_the_paper_s_horizons_four_sessions_read_a_close(tmp_path: Path) -> None:
    graph = build_graph(load_settings(), tmp_path)
    table, revised = graph.tables["matured_alpha"], dt.date(2025, 6, 3)

    class Digests:
        def __init__(self, changed: str) -> None:
            self.changed = changed

        def digest(self, name: str, partition: str) -> str:
            return "new" if (name, partition) == ("industry_bars", self.changed) else "old"

        def read(self, name: str, partition: str) -> pd.DataFrame:
            raise AssertionError

    recipes = [
        [table.recipe(key, Digests(changed)).digest for key in table.partitions] for changed in ("", f"{revised}")
    ]
    due = [key for key, before, after in zip(table.partitions, *recipes, strict=True) if before != after]
    assert due == [calendar.shift(revised, shift).isoformat() for shift in (0, 10, 20, 40)]


def test_a_world_without_sources_asks_nobody(built: AssetWorld, tmp_path: Path) -> None:
    shutil.copytree(built.home, tmp_path / "home")
    with AssetWorld.at(tmp_path / "home", built.config) as world:
        names = {key.name for key in world.definitions.resolve_asset_graph().asset_check_keys}
        assert not names & {"all_sessions_there", "sources_agree"}
        world.materialise(BARS, DAYS[0], DAYS[1])
    assert not (tmp_path / "home" / "market").exists()


def test_which_sessions_are_over_is_told_by_the_clock_that_checks_are_given(tmp_path: Path) -> None:
    market = {"first_session": "2024-01-02", "industries": ["tushare", "akshare"]}
    graph = build_graph(load_settings(overrides={"market": market}), tmp_path)
    third = dt.datetime(2024, 1, 4, 18, tzinfo=calendar.SHANGHAI)
    names = ("all_sessions_there", "sources_agree")
    wanted = {AssetCheckKey(AssetKey("industry_bars"), name) for name in names}
    ours = [check for check in checks(graph, lambda: third) if set(check.check_keys) <= wanted]

    @asset(name="industry_bars")
    def bars() -> None:
        pass

    run = materialize([bars, *ours], resources={"store": TableStore(tmp_path)})
    evaluations = run.get_asset_check_evaluations()
    assert {one.check_name: one.metadata["looked_at"].value for one in evaluations} == dict.fromkeys(names, 3)
