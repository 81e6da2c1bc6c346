"""The coverage table: what is said of each source's day, and that all its sums agree."""

from __future__ import annotations

import datetime as dt

import pytest

from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.news.coverage import DayCoverage, SourceCoverage
from finevolve_pipeline.news.coverage_table import (
    CoverageTable,
    PartialSpan,
    SourceDay,
    Standing,
    all_sources,
    coverage_table,
)

ASKED = dt.datetime(2026, 5, 8, 9, tzinfo=SHANGHAI)


def day(reason: str = "", *, is_open: bool = False) -> DayCoverage:
    return DayCoverage({"feed": reason}, ASKED, 2, is_open)


def two_sources() -> CoverageTable:
    """cls: complete, complete without an article, partial, open on 4 to 7 May; sina: files of 2 and 4 May."""
    cls = SourceCoverage(
        "cls",
        {
            "2026-05-04": day(),
            "2026-05-05": day(),
            "2026-05-06": day("blocked"),
            "2026-05-07": day(is_open=True),
        },
        earliest="2026-05-04T00:00:00+08:00",
        newest="2026-05-07T08:59:00+08:00",
        state="ok",
    )
    counts = {("cls", "2026-05-04"): 7, ("cls", "2026-05-06"): 2, ("cls", "2026-05-07"): 1}
    files = {("sina", "2026-05-02"): 5, ("sina", "2026-05-04"): 6, ("other", "2026-05-01"): 9}
    return coverage_table([cls, SourceCoverage("sina")], {**counts, **files})


def test_a_day_without_articles_is_told_from_one_that_was_never_asked_for() -> None:
    table = two_sources()
    assert table.days == ("2026-05-02", "2026-05-04", "2026-05-05", "2026-05-06", "2026-05-07")
    assert [table.at("cls", each) for each in table.days] == [
        SourceDay(None, Standing.NEVER_ASKED),
        SourceDay(7, Standing.COMPLETE),
        SourceDay(None, Standing.COMPLETE),
        SourceDay(2, Standing.PARTIAL, "feed: blocked"),
        SourceDay(1, Standing.OPEN),
    ]
    assert [table.at("sina", each).standing.value for each in table.days] == ["imported"] * 2 + ["never asked"] * 3


def test_days_of_sources_that_are_not_asked_for_are_left_out() -> None:
    assert "2026-05-01" not in two_sources().days
    assert ("other", "2026-05-01") not in two_sources().known


def test_every_source_has_as_many_days_as_the_span_has() -> None:
    table = two_sources()
    assert len(table.span) == 6  # the third of May, on which nobody has anything, included
    assert {source: sum(counts.values()) for source, counts in table.standings.items()} == {"cls": 6, "sina": 6}
    assert table.standings["cls"][Standing.NEVER_ASKED] == 2
    assert dict(table.articles) == {"cls": 10, "sina": 11}
    by_month = {key: counts["articles"] for key, counts in table.months.items()}
    assert by_month == {("cls", "2026-05"): 10, ("sina", "2026-05"): 11}


def test_days_before_and_after_the_bounds_are_left_out() -> None:
    cls = SourceCoverage("cls", {f"2026-05-0{n}": day("gone") for n in range(1, 8)})
    counts = {("cls", f"2026-05-0{n}"): n for n in range(1, 10)}
    table = coverage_table([cls], counts, first=dt.date(2026, 5, 3), last=dt.date(2026, 5, 8))
    assert (table.days[0], table.days[-1]) == ("2026-05-03", "2026-05-08")
    assert dict(table.articles) == {"cls": 3 + 4 + 5 + 6 + 7 + 8}
    assert [span.first for span in table.partial_spans()] == ["2026-05-03"]


@pytest.mark.parametrize("second", [day("timed out"), day(), day(is_open=True), None])
def test_partial_days_are_one_span_only_if_nothing_lies_between(second: DayCoverage | None) -> None:
    days = {"2026-04-30": day("blocked"), "2026-05-02": day("blocked")}
    if second is not None:
        days["2026-05-01"] = second
    table = coverage_table([SourceCoverage("cls", days)], {})
    assert [span.first for span in table.partial_spans() if span.reason == "feed: blocked"] == [
        "2026-05-02",
        "2026-04-30",
    ]


def test_consecutive_partial_days_with_one_reason_are_one_span_newest_first() -> None:
    days = {"2026-04-30": day("blocked"), "2026-05-01": day("blocked"), "2026-05-02": day("gone")}
    sources = [SourceCoverage("cls", days), SourceCoverage("sina", {"2026-05-02": day("gone")})]
    table = coverage_table(sources, {("cls", "2026-04-30"): 3, ("cls", "2026-05-01"): 4})
    assert table.partial_spans() == (
        PartialSpan("cls", "2026-05-02", "2026-05-02", 0, "feed: gone"),
        PartialSpan("sina", "2026-05-02", "2026-05-02", 0, "feed: gone"),
        PartialSpan("cls", "2026-04-30", "2026-05-01", 7, "feed: blocked"),
    )
    assert [span.days for span in table.partial_spans()] == [1, 1, 2]


def test_the_document_has_every_day_of_every_source() -> None:
    document = two_sources().document()
    assert document["sources"]["cls"] == {  # type: ignore[index]
        "earliest": "2026-05-04T00:00:00+08:00",
        "newest": "2026-05-07T08:59:00+08:00",
        "state": "ok",
        "reason": "",
        "days": {
            "2026-05-02": {"articles": None, "state": None, "reason": ""},
            "2026-05-04": {"articles": 7, "state": "complete", "reason": ""},
            "2026-05-05": {"articles": None, "state": "complete", "reason": ""},
            "2026-05-06": {"articles": 2, "state": "partial", "reason": "feed: blocked"},
            "2026-05-07": {"articles": 1, "state": "open", "reason": ""},
        },
    }


def test_configured_sources_come_first_and_none_twice() -> None:
    assert all_sources(("sina", "cls"), ["zzz", "cls", "aaa"], ["mmm", "sina"]) == ("sina", "cls", "aaa", "mmm", "zzz")


def test_a_table_of_nothing_has_no_days() -> None:
    table = coverage_table([SourceCoverage("cls")], {})
    assert (table.days, table.span, table.partial_spans()) == ((), (), ())
    assert dict(table.articles) == {"cls": 0}
