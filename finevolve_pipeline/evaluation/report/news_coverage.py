"""The report's section on news coverage: the map, and the tables behind it, as plain views.

What must not live here: HTML. Text is escaped by the template, whatever it holds.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pandas as pd

from finevolve_pipeline.evaluation.report import coverage_map
from finevolve_pipeline.evaluation.report.coverage_map import Block, standing_name
from finevolve_pipeline.evaluation.report.views import TableView, text_table
from finevolve_pipeline.evaluation.report.words import Words
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


def news_coverage(table: CoverageTable, configured: Collection[str], words: Words) -> NewsCoverageView:
    """The section on what the sources brought.

    Args:
        table: coverage of all sources.
        configured: sources of the settings.
        words: the language.
    """
    if not table.days:
        if table.unreadable:
            return NewsCoverageView(words(" ").join((words("No news has landed yet."), *_unreadable(table, words))))
        return NewsCoverageView(words("No news has landed yet, and no site has been asked for any."))
    partial = any(counts[Standing.PARTIAL] for counts in table.standings.values())
    return NewsCoverageView(
        _sentence(table, words),
        coverage_map.legend(words),
        coverage_map.blocks(table, configured, words),
        source_table(table, words),
        partial_table(table, words) if partial else None,
        month_table(table, words),
    )


def _sentence(table: CoverageTable, words: Words) -> str:
    totals = {standing: sum(counts[standing] for counts in table.standings.values()) for standing in Standing}
    articles = sum(table.articles.values())
    told = words(
        "{articles}, {first} to {last}. Days by source: {days}.",
        articles=coverage_map.counted_articles(articles, words) if articles else words("No article has landed"),
        first=table.days[0],
        last=table.days[-1],
        days=words(", ").join(f"{count:,} {standing_name(one, words)}" for one, count in totals.items()),
    )
    return words(" ").join((told, *_unreadable(table, words)))


def _unreadable(table: CoverageTable, words: Words) -> list[str]:
    """Sources of which it is not known what their crawls found."""
    return [
        words("What is known of {source} is unreadable: {why}.", source=source, why=why)
        for source, why in table.unreadable.items()
    ]


def source_table(table: CoverageTable, words: Words) -> TableView:
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
    columns = [
        words("Source"),
        words("Last crawl"),
        words("Why"),
        words("Reaches back to"),
        words("Newest seen"),
        words("Articles"),
    ]
    return text_table(
        words("Sources, {first} to {last}", first=table.days[0], last=table.days[-1]),
        [*columns, *(standing_name(standing, words).capitalize() for standing in Standing)],
        rows,
        len(columns) - 1,
        [words("Times are Asia/Shanghai. Complete to never asked: days. Every day stands in {file}.", file=FILE)],
    )


def partial_table(table: CoverageTable, words: Words) -> TableView:
    """Partial days and why, consecutive days with the same reason in one row, newest first."""
    spans = table.partial_spans()
    rows = [
        [
            span.source,
            span.first if span.first == span.last else words("{first} to {last}", first=span.first, last=span.last),
            span.reason,
            f"{span.days:,}",
            f"{span.articles:,}",
        ]
        for span in spans[:SHOWN_SPANS]
    ]
    more = len(spans) - len(rows)
    told = words("The newest {shown}; {more} older ones stand in {file}.", shown=len(rows), more=f"{more:,}", file=FILE)
    columns = [
        words("Source"),
        words("Days"),
        words("Why they are partial"),
        words("How many"),
        words("Articles brought"),
    ]
    return text_table(words("Partial days"), columns, rows, 3, [told] if more else [])


def month_table(table: CoverageTable, words: Words) -> TableView:
    """Articles by month and source."""
    months = sorted({month for _, month in table.months})
    rows = [[month, *(_month(table, source, month) for source in table.sources)] for month in months]
    notes = [words("In brackets: partial days. –: nothing landed, and nothing was asked for.")]
    return text_table(words("Articles by month and source"), [words("Month"), *table.sources], rows, notes=notes)


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
