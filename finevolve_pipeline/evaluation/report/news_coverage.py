"""The report's section on news coverage: the map, and the tables behind it, as plain views.

What must not live here: HTML. Text is escaped by the template, whatever it holds.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pandas as pd

from finevolve_pipeline.evaluation.report import coverage_map
from finevolve_pipeline.evaluation.report.coverage_map import Block
from finevolve_pipeline.evaluation.report.sections import TableView, text_table
from finevolve_pipeline.news.coverage_table import CoverageTable, Standing

SHOWN_SPANS = 100
"""Spans of partial days in the page; all days are in the file."""

FILE = "tables/news_coverage.csv"
"""Every source's day on which something landed or that was asked for."""


@dataclass(frozen=True)
class NewsCoverageView:
    """The section: the sentence under its heading; map and tables, if there is anything to show."""

    sentence: str
    legend: str = ""
    blocks: tuple[Block, ...] = ()
    sources: TableView | None = None
    partial: TableView | None = None
    months: TableView | None = None


def news_coverage(table: CoverageTable, configured: Collection[str]) -> NewsCoverageView:
    """The section on what the sources brought.

    Args:
        table: coverage of all sources.
        configured: sources of the settings.
    """
    if not table.days:
        if table.unreadable:
            return NewsCoverageView(f"No news has landed yet. {_unreadable(table)}")
        return NewsCoverageView("No news has landed yet, and no site has been asked for any.")
    partial = any(counts[Standing.PARTIAL] for counts in table.standings.values())
    return NewsCoverageView(
        _sentence(table),
        coverage_map.legend(),
        coverage_map.blocks(table, configured),
        source_table(table),
        partial_table(table) if partial else None,
        month_table(table),
    )


def _sentence(table: CoverageTable) -> str:
    totals = {standing: sum(counts[standing] for counts in table.standings.values()) for standing in Standing}
    articles = sum(table.articles.values())
    brought = coverage_map.counted_articles(articles) if articles else "No article has landed"
    days = ", ".join(f"{count:,} {standing.value}" for standing, count in totals.items())
    told = f"{brought}, {table.days[0]} to {table.days[-1]}. Days by source: {days}."
    return f"{told} {_unreadable(table)}" if table.unreadable else told


def _unreadable(table: CoverageTable) -> str:
    """Sources of which it is not known what their crawls found."""
    return " ".join(f"What is known of {source} is unreadable: {why}." for source, why in table.unreadable.items())


def source_table(table: CoverageTable) -> TableView:
    """What is known of each source."""
    rows = [
        [
            source,
            one.state or "–",
            one.reason or "–",
            one.earliest[:10] or "–",
            one.newest[:16].replace("T", " ") or "–",
            f"{table.articles[source]:,}",
            *(f"{table.standings[source][standing]:,}" for standing in Standing),
        ]
        for source, one in table.sources.items()
    ]
    columns = ["Source", "Last crawl", "Why", "Reaches back to", "Newest seen", "Articles"]
    return text_table(
        f"Sources, {table.days[0]} to {table.days[-1]}",
        [*columns, *(standing.value.capitalize() for standing in Standing)],
        rows,
        len(columns) - 1,
        [f"Times are Asia/Shanghai. Complete to never asked: days. Every day stands in {FILE}."],
    )


def partial_table(table: CoverageTable) -> TableView:
    """Partial days and why, consecutive days with the same reason in one row, newest first."""
    spans = table.partial_spans()
    rows = [
        [
            span.source,
            span.first if span.first == span.last else f"{span.first} to {span.last}",
            span.reason,
            f"{span.days:,}",
            f"{span.articles:,}",
        ]
        for span in spans[:SHOWN_SPANS]
    ]
    more = len(spans) - len(rows)
    notes = [f"The newest {len(rows)}; {more:,} older ones stand in {FILE}."] if more else []
    columns = ["Source", "Days", "Why they are partial", "How many", "Articles brought"]
    return text_table("Partial days", columns, rows, 3, notes)


def month_table(table: CoverageTable) -> TableView:
    """Articles by month and source."""
    months = sorted({month for _, month in table.months})
    rows = [[month, *(_month(table, source, month) for source in table.sources)] for month in months]
    notes = ["In brackets: partial days. –: nothing landed, and nothing was asked for."]
    return text_table("Articles by month and source", ["Month", *table.sources], rows, notes=notes)


def _month(table: CoverageTable, source: str, month: str) -> str:
    counts = table.months.get((source, month))
    if counts is None:
        return "–"
    partial = counts.get(Standing.PARTIAL, 0)
    return f"{counts['articles']:,}" + (f" ({partial})" if partial else "")


def day_rows(table: CoverageTable) -> pd.DataFrame:
    """Every known day: day, source, articles (missing if nothing landed), state, reason; by day."""
    order = {source: position for position, source in enumerate(table.sources)}
    known = sorted(table.known.items(), key=lambda item: (item[0][1], order[item[0][0]]))
    return pd.DataFrame(
        {
            "day": [day for (_, day), _ in known],
            "source": [source for (source, _), _ in known],
            "articles": pd.array([found.articles for _, found in known], dtype="Int64"),
            "state": [found.standing.value for _, found in known],
            "reason": [found.reason for _, found in known],
        }
    )
