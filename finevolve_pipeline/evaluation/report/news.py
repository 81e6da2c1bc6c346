"""The news as views: articles by day, window, importance and source, and a few of them to look at.

What they consist of is in `dataset`, how complete they are in `news_coverage`. What must not live here: counting (see
`evaluation.news_statistics`), HTML.
"""

from __future__ import annotations

import math

import pandas as pd

from finevolve_pipeline.evaluation.layout.numbers import format_share
from finevolve_pipeline.evaluation.report import charts, figures
from finevolve_pipeline.evaluation.report.inputs import ReportInputs
from finevolve_pipeline.evaluation.report.months import month_of
from finevolve_pipeline.evaluation.report.views import FigureView, TableView, text_table
from finevolve_pipeline.evaluation.report.words import Words
from finevolve_pipeline.universe import INDUSTRIES

SAMPLE = 12
"""Articles shown."""


def news_figures(inputs: ReportInputs, words: Words) -> tuple[FigureView, ...]:
    """News per calendar day, per session's window, and by importance."""
    if inputs.news_counts.empty:
        return ()
    windows = () if inputs.news_sessions.empty else (_windows_figure(inputs, words),)
    return (_days_figure(inputs, words), *windows, _importance_figure(inputs, words))


def _layers(counts: pd.DataFrame, words: Words) -> dict[str, list[float]]:
    """Articles tagged and shown, in the order of rows."""
    return {words("tagged"): counts["articles"].tolist(), words("shown to agents"): counts["selected"].tolist()}


def _days_figure(inputs: ReportInputs, words: Words) -> FigureView:
    by_day = inputs.news_counts.groupby("day", sort=True)[["articles", "selected"]].sum()
    days, layers = [str(day) for day in by_day.index], _layers(by_day, words)
    title = words("Articles per calendar day")
    months = by_day.groupby(by_day.index.str.slice(0, 7)).sum()
    rows = [[str(month), f"{row['articles']:,}", f"{row['selected']:,}"] for month, row in months.iterrows()]
    return FigureView(
        "newsdays",
        title,
        words("Tagged articles, and those important and specific enough to be shown to agents."),
        figures.daily_areas(
            "newsdays", words("{title}, {first} to {last}", title=title, first=days[0], last=days[-1]), days, layers
        ),
        text_table(words("Articles by month"), [words("Month"), words("Tagged"), words("Shown to agents")], rows),
        charts.areas(days, layers),
    )


def _windows_figure(inputs: ReportInputs, words: Words) -> FigureView:
    windows = inputs.news_sessions.sort_values("session")
    sessions, layers = windows["session"].tolist(), {words("in the window"): windows["articles"].tolist()}
    title = words("Articles in each session's news window")
    months = windows.groupby(month_of(windows["session"]))["articles"].agg(["count", "min", "mean", "max"])
    rows = [
        [str(month), f"{row['count']:.0f}", f"{row['min']:,.0f}", f"{row['mean']:,.1f}", f"{row['max']:,.0f}"]
        for month, row in months.iterrows()
    ]
    columns = [words("Month"), words("Sessions"), words("Fewest"), words("Mean"), words("Most")]
    return FigureView(
        "newssessions",
        title,
        words("What could be observed at the session's 24:00 cutoff, all industries together."),
        figures.daily_areas(
            "newssessions",
            words(
                "{title}, {least} to {most}",
                title=title,
                least=windows["articles"].min(),
                most=windows["articles"].max(),
            ),
            sessions,
            layers,
        ),
        text_table(words("Articles in news windows, by month"), columns, rows),
        charts.areas(sessions, layers),
    )


def _importance_figure(inputs: ReportInputs, words: Words) -> FigureView:
    counts = _by_importance(inputs)
    levels, layers = list(counts.index), _layers(counts, words)
    return FigureView(
        "importance",
        words("Importance"),
        words(
            "Articles by importance, 1 to 10; agents see {least} and above.", least=inputs.settings.news.min_importance
        ),
        figures.histogram("importance", words("Articles by importance"), levels, layers),
        importance_table(inputs, words),
        charts.histogram(levels, layers),
    )


def _by_importance(inputs: ReportInputs) -> pd.DataFrame:
    counts = inputs.news_counts.groupby("importance")[["articles", "selected"]].sum()
    return counts.reindex(range(1, 11), fill_value=0)


def source_table(inputs: ReportInputs, words: Words) -> TableView:
    """Articles by source, most first."""
    counts = inputs.news_counts.groupby("source")[["articles", "selected"]].sum().reset_index()
    counts = counts.sort_values(["articles", "source"], ascending=[False, True])
    total = max(1, int(counts["articles"].sum()))
    rows = [
        [
            str(row["source"]),
            f"{row['articles']:,}",
            format_share(row["articles"] / total),
            f"{row['selected']:,}",
            format_share(row["selected"] / row["articles"] if row["articles"] else math.nan),
        ]
        for row in counts.to_dict("records")
    ]
    columns = [words("Source"), words("Tagged"), words("Share"), words("Shown to agents"), words("Share shown")]
    return text_table(words("Articles by source"), columns, rows)


def importance_table(inputs: ReportInputs, words: Words) -> TableView:
    """Articles by importance, the figure's numbers."""
    rows = [
        [f"{level}", f"{row['articles']:,}", f"{row['selected']:,}"] for level, row in _by_importance(inputs).iterrows()
    ]
    columns = [words("Importance"), words("Tagged"), words("Shown to agents")]
    return text_table(words("Articles by importance"), columns, rows)


def news_sample(inputs: ReportInputs, words: Words) -> TableView | None:
    """The first articles of the sample, to see what agents read; None without a sample."""
    if inputs.news_sample.empty:
        return None
    names = {industry.code: industry.name_zh for industry in INDUSTRIES}
    rows = []
    for row in inputs.news_sample.head(SAMPLE).to_dict("records"):
        industries = ", ".join(f"{code} {names.get(code, '')}".strip() for code in row["industries"])
        stamp = row["published_at"].strftime("%Y-%m-%d %H:%M")
        rows.append([stamp, str(row["source"]), str(row["title"]), industries or "–", f"{row['importance']}"])
    columns = [
        words("Published (+08:00)"),
        words("Source"),
        words("Title"),
        words("Industries"),
        words("Importance"),
    ]
    return text_table(words("A few of the articles shown to agents"), columns, rows, 4)
