"""Checks on raw_news: days that are not complete, sources that fell silent, days that dropped to nearly nothing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path

import dagster as dg
import pytest
from published_articles import publish

from assets.checks import checks
from assets.news import news_assets
from finevolve_pipeline.calendar import SHANGHAI, shanghai_now
from finevolve_pipeline.definitions import build_graph
from finevolve_pipeline.news.coverage import DayCoverage, SourceCoverage
from finevolve_pipeline.partitions import Partitions
from finevolve_pipeline.settings import load_settings
from resources.coverage_store import CoverageStore
from resources.observer import Silent
from resources.table_store import TableStore

NOW = dt.datetime(2026, 5, 29, 21, 0, tzinfo=SHANGHAI)
"""A Friday."""
HOUR, DAY, WEEK = dt.timedelta(hours=1), dt.timedelta(days=1), dt.timedelta(weeks=1)
COMPLETE = DayCoverage({"feed": ""}, NOW - HOUR)
OPEN = DayCoverage({"feed": ""}, NOW - HOUR, open=True)
PARTIAL = DayCoverage({"feed": "HTTP 503", "roll": ""}, NOW - HOUR)


def known(home: Path, source: str, days: Mapping[str, DayCoverage]) -> None:
    CoverageStore(home).write(SourceCoverage(source, days))


def judged(home: Path, first: str, last: str | None = None) -> dict[str, dg.AssetCheckEvaluation]:
    """Materialise raw_news from one partition to another of the same source, and what each check says."""
    settings = load_settings(overrides={"news": {"sources": ["cls", "sina"]}})
    graph = build_graph(settings, home)
    raw_news = news_assets(graph, Partitions.of(graph), home, shanghai_now)[0]
    mine = [check for check in checks(graph, lambda: NOW) if next(iter(check.check_keys)).asset_key == raw_news.key]
    result = dg.materialize(
        [raw_news, *mine],
        resources={"store": TableStore(home), "observer": Silent()},
        tags={"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last or first},
    )
    return {found.check_name: found for found in result.get_asset_check_evaluations()}


def test_complete_and_open_days_and_days_from_files_pass(home: Path) -> None:
    publish(home, "cls", [NOW - 2 * DAY, NOW - DAY, NOW - HOUR])
    known(home, "cls", {"2026-05-28": COMPLETE, "2026-05-29": OPEN})
    found = judged(home, "2026-05-27|cls", "2026-05-29|cls")
    assert {name: check.passed for name, check in found.items()} == {
        "complete": True,
        "fresh": True,
        "not_dropped_to_zero": True,
    }


def test_a_partial_day_is_an_error_with_its_reason_and_stops_nothing(home: Path) -> None:
    publish(home, "cls", [NOW - 2 * DAY, NOW - DAY])
    known(home, "cls", {"2026-05-27": PARTIAL, "2026-05-28": COMPLETE})
    check = judged(home, "2026-05-27|cls", "2026-05-28|cls")["complete"]
    assert (check.passed, check.severity, check.blocking) == (False, dg.AssetCheckSeverity.ERROR, False)
    assert check.description == "1 of 2 days of sources are not complete, first: 2026-05-27|cls: feed: HTTP 503"


def test_a_day_that_was_asked_for_and_has_no_partition_is_not_complete(home: Path) -> None:
    publish(home, "cls", [NOW - DAY])
    known(home, "cls", {"2026-05-27": COMPLETE, "2026-05-28": COMPLETE})
    check = judged(home, "2026-05-26|cls", "2026-05-28|cls")["complete"]
    assert check.description == (
        "1 of 3 days of sources are not complete, first: 2026-05-27|cls: asked for, and no partition is stored"
    )


def test_an_unreadable_coverage_file_is_told_and_costs_its_source_alone(home: Path) -> None:
    publish(home, "cls", [NOW - DAY])
    (home / "crawl" / "coverage").mkdir(parents=True)
    (home / "crawl" / "coverage" / "cls.json").write_text("{", "utf-8")
    found = judged(home, "2026-05-28|cls")
    assert "cls.json: not readable" in str(found["complete"].description)
    assert (found["complete"].passed, found["fresh"].passed) == (False, True)


def test_partial_days_outside_the_run_are_not_its_affair(home: Path) -> None:
    publish(home, "cls", [NOW - DAY])
    known(home, "cls", {"2026-05-20": PARTIAL, "2026-05-28": COMPLETE})
    assert judged(home, "2026-05-28|cls")["complete"].passed


@pytest.mark.parametrize(("silent", "passed"), [(3, True), (9, False)])
def test_a_source_that_was_just_asked_and_is_silent_warns(home: Path, silent: int, passed: bool) -> None:
    publish(home, "cls", [NOW - silent * HOUR - 2 * HOUR * number for number in range(12 * 33)])
    known(home, "cls", {"2026-05-29": OPEN})
    check = judged(home, "2026-05-29|cls")["fresh"]
    assert (check.passed, check.severity) == (passed, dg.AssetCheckSeverity.WARN)
    assert passed or "cls: newest publication 2026-05-29 12:00" in (check.description or "")


def test_a_run_over_history_says_nothing_about_the_present(home: Path) -> None:
    publish(home, "cls", [NOW - 30 * HOUR - 2 * HOUR * number for number in range(12 * 33)])
    known(home, "cls", {"2026-05-20": COMPLETE, "2026-05-29": OPEN})
    assert judged(home, "2026-05-20|cls")["fresh"].passed


FRIDAYS = [NOW - WEEK * back for back in range(9)]


def articles(home: Path, counts: Mapping[int, int]) -> None:
    """So many articles on the Friday so many weeks ago."""
    for back, count in counts.items():
        publish(home, "cls", [FRIDAYS[back].replace(hour=1) + dt.timedelta(minutes=n) for n in range(count)])


@pytest.mark.parametrize(("count", "passed"), [(0, False), (1, False), (2, True), (30, True)])
def test_a_complete_day_with_nearly_nothing_warns(home: Path, count: int, passed: bool) -> None:
    articles(home, {0: count, **dict.fromkeys(range(1, 9), 20)})
    TableStore(home).landing.note_day("cls", "2026-05-29")
    known(home, "cls", {"2026-05-29": COMPLETE})
    check = judged(home, "2026-05-29|cls")["not_dropped_to_zero"]
    assert (check.passed, check.severity) == (passed, dg.AssetCheckSeverity.WARN)
    assert passed or f"cls 2026-05-29: {count} articles, usually 20 on a Friday" in (check.description or "")


@pytest.mark.parametrize("state", [OPEN, PARTIAL], ids=["open", "partial"])
def test_a_day_that_is_not_complete_has_not_dropped(home: Path, state: DayCoverage) -> None:
    articles(home, {0: 1, **dict.fromkeys(range(1, 9), 20)})
    known(home, "cls", {"2026-05-29": state})
    assert judged(home, "2026-05-29|cls")["not_dropped_to_zero"].passed


def test_earlier_days_that_were_not_read_to_their_end_are_no_measure(home: Path) -> None:
    articles(home, {0: 1, **dict.fromkeys(range(1, 9), 20)})
    partial = {f"{FRIDAYS[back]:%Y-%m-%d}": PARTIAL for back in range(1, 6)}
    known(home, "cls", {**partial, "2026-05-29": COMPLETE})
    assert judged(home, "2026-05-29|cls")["not_dropped_to_zero"].passed
