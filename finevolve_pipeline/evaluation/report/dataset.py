"""The dataset as views: its facts beside the paper's, and what its news consists of before and after selection.

What must not live here: counting (see `evaluation.dataset`, `evaluation.news_statistics`), HTML.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from finevolve_pipeline.evaluation.dataset import DatasetFacts
from finevolve_pipeline.evaluation.layout.numbers import format_count, format_number, format_share
from finevolve_pipeline.evaluation.news_statistics import COUNTED, TITLE_ONLY
from finevolve_pipeline.evaluation.published import PUBLISHED_DATASET
from finevolve_pipeline.evaluation.report import charts, figures
from finevolve_pipeline.evaluation.report.findings import Findings
from finevolve_pipeline.evaluation.report.months import month_of, month_table
from finevolve_pipeline.evaluation.report.names import industry_names
from finevolve_pipeline.evaluation.report.views import Block, FigureView, TableView, text_table
from finevolve_pipeline.evaluation.report.words import Words
from finevolve_pipeline.llm.schemas import TOPICS
from finevolve_pipeline.universe import INDUSTRIES


def facts_table(findings: Findings, words: Words) -> TableView:
    """The dataset's facts beside those that the paper prints of its own."""
    ours, papers = _facts(findings.facts, words), _facts(PUBLISHED_DATASET, words)
    rows = [[what, value, papers[what] or "–"] for what, value in ours.items()]
    rows += [
        [words("Known labels"), f"{findings.facts.labels:,} / {findings.facts.cells:,}", "–"],
        [words("Predictions"), f"{findings.facts.predictions:,}", "–"],
        [words("of these invalid"), f"{findings.facts.invalid:,}", "–"],
    ]
    note = words(
        "The paper counts 300 prediction days; the exchange calendar has 299 sessions in its window. News per day: "
        "articles shown, by calendar day of the news span."
    )
    columns = [words("What"), words("This dataset"), words("The paper's")]
    return text_table(words("The dataset"), columns, rows, notes=[note])


def _facts(facts: DatasetFacts, words: Words) -> dict[str, str]:
    source, largest = facts.largest_source
    return {
        words("Industries"): f"{facts.industries}",
        words("Horizons, sessions"): ", ".join(map(str, facts.horizons)),
        words("Prediction window"): " – ".join(facts.window),
        words("Prediction sessions"): f"{facts.sessions}",
        words("News span"): " – ".join(facts.news_span),
        words("Labels known through"): facts.label_end or "–",
        words("News sources"): f"{facts.sources}",
        words("Articles before selection"): f"{facts.articles:,}",
        words("Articles shown to agents"): f"{facts.selected:,}",
        words("Days with news shown"): f"{facts.active_days:,}",
        words("News per day"): format_number(facts.per_day, ",.2f"),
        words("Importance reaches the threshold"): format_share(facts.important),
        words("Largest source"): f"{source} {format_share(largest)}".strip(),
        words("Runs"): f"{facts.runs}",
    }


def news_block(findings: Findings, words: Words) -> Block:
    """What the news consists of: months, industries, topics, scopes, lengths; nothing where no article is known."""
    news = findings.inputs.news
    if findings.inputs.news_counts.empty:
        return Block()
    drawn = [_months(findings, words)]
    if len(news.industries):
        drawn.append(_industries(findings, words))
    if len(news.topics):
        drawn.append(_topics(news.topics, words))
    if len(news.lengths):
        drawn.append(_lengths(findings, words))
    tables = (scope_table(news.scopes, words),) if len(news.scopes) else ()
    return Block(figures=tuple(drawn), tables=tables)


def _layers(words: Words) -> dict[str, str]:
    """Columns of counts, and what they are called."""
    return dict(zip(COUNTED, (words("tagged"), words("shown to agents")), strict=True))


def _months(findings: Findings, words: Words) -> FigureView:
    counts = findings.months
    by_source = counts.groupby("source")["articles"].sum().sort_values(ascending=False, kind="stable")
    sources = [str(source) for source in by_source.index]
    table = counts.pivot_table(index="month", columns="source", values="articles", aggfunc="sum", fill_value=0)
    months = [str(month) for month in table.index]
    layers = {source: table[source].tolist() for source in sources}
    title = words("Tagged articles by month and source")
    rows = [
        [month, format_count(sum(of_month)), *(format_count(number) for number in of_month)]
        for month, of_month in zip(months, zip(*layers.values(), strict=True), strict=True)
    ]
    return FigureView(
        "newsmonths",
        title,
        words("Before selection; the source with most is at the bottom."),
        figures.stacked_bars("newsmonths", title, months, layers),
        text_table(words("{title}: numbers", title=title), [words("Month"), words("All sources"), *sources], rows),
        charts.stacked_bars(months, layers),
    )


def _industries(findings: Findings, words: Words) -> FigureView:
    counts = findings.inputs.news.industries.set_index("code")
    listed = [industry for industry in INDUSTRIES if industry.code in findings.inputs.settings.benchmark.codes]
    counts = counts.reindex([industry.code for industry in listed], fill_value=0)
    names = [industry_names(industry, words) for industry in listed]
    order = sorted(range(len(names)), key=lambda at: -int(counts["articles"].iloc[at]))
    return _counted_figure(
        "newsindustries",
        words("Articles by industry"),
        words("An article counts for each of its industries."),
        [names[at] for at in order],
        counts.iloc[order],
        words("Industry"),
        words,
    )


def _topics(topics: pd.DataFrame, words: Words) -> FigureView:
    named = {topic.name_zh: {"en": topic.name_en, "zh": topic.name_zh}[words.language] for topic in TOPICS}
    counts = topics.sort_values("articles", ascending=False, kind="stable")
    return _counted_figure(
        "newstopics",
        words("Articles by topic"),
        words("An article counts for each of its topics; some have none."),
        [named.get(str(topic), str(topic)) for topic in counts["topic"]],
        counts,
        words("Topic"),
        words,
    )


def _counted_figure(
    name: str, title: str, reading: str, places: Sequence[str], counts: pd.DataFrame, head: str, words: Words
) -> FigureView:
    """Lying bars of both counts, in the order given."""
    layers = {label: counts[column].tolist() for column, label in _layers(words).items()}
    return FigureView(
        name,
        title,
        reading,
        figures.row_bars(name, title, places, layers),
        _counts_table(words("{title}: numbers", title=title), head, places, layers, words),
        charts.row_bars(places, layers),
    )


def _counts_table(
    caption: str, head: str, places: Sequence[str], layers: Mapping[str, Sequence[float]], words: Words
) -> TableView:
    tagged, selected = layers.values()
    rows = [
        [place, format_count(one), format_count(other), format_share(other / one if one else math.nan)]
        for place, one, other in zip(places, tagged, selected, strict=True)
    ]
    return text_table(caption, [head, *layers, words("Share shown")], rows)


def _lengths(findings: Findings, words: Words) -> FigureView:
    classes = findings.length_classes
    places = [words("title only") if length == TITLE_ONLY else length for length in classes["length"]]
    layers = {label: classes[column].tolist() for column, label in _layers(words).items()}
    title = words("Length of articles, characters")
    return FigureView(
        "newslengths",
        title,
        words("Of the body; hot lists have titles only."),
        figures.row_bars("newslengths", title, places, layers),
        length_table(findings.lengths, words),
        charts.row_bars(places, layers),
    )


def length_table(summary: pd.DataFrame, words: Words) -> TableView:
    """Lengths by source, before and after selection; all sources together first."""
    layers = _layers(words)
    rows = [
        [
            str(row["source"]) or words("All sources"),
            layers[str(row["which"])],
            format_count(row["count"]),
            format_share(row["title_only"]),
            *(format_count(row[name]) for name in ("mean", "median", "p90", "longest")),
        ]
        for row in summary.to_dict("records")
        if row["count"]
    ]
    columns = [
        words("Source"),
        words("Which"),
        words("Articles"),
        words("Title only"),
        words("Mean"),
        words("Median"),
        words("90 %"),
        words("Longest"),
    ]
    return text_table(words("Length of article bodies, characters"), columns, rows, 2)


def scope_table(scopes: pd.DataFrame, words: Words) -> TableView:
    """Articles by scope: what selection takes away."""
    names = {
        "industry": words("specific industries"),
        "market": words("the whole market"),
        "none": words("no industry"),
    }
    counts = scopes.set_index("scope").reindex(list(names), fill_value=0)
    layers = {label: counts[column].tolist() for column, label in _layers(words).items()}
    return _counts_table(words("Articles by scope"), words("Scope"), list(names.values()), layers, words)


def shown_block(findings: Findings, words: Words) -> Block:
    """How many articles agents were shown: over time, and by industry; a sentence before any prediction."""
    shown = findings.shown
    if shown.empty:
        return Block((words("No agent has been shown an article yet."),))
    return Block(figures=(_shown_figure(findings, words),), tables=(shown_table(findings, words),))


def _shown_figure(findings: Findings, words: Words) -> FigureView:
    by_session = findings.shown.groupby("session", sort=True)["articles"]
    lines = {
        words("most, of all industries"): by_session.max(),
        words("mean over industries"): by_session.mean(),
        words("fewest"): by_session.min(),
    }
    title = words("Articles shown per industry and session")
    series = pd.concat(
        pd.DataFrame({"panel": title, "label": label, "session": values.index, "value": values.to_numpy()})
        for label, values in lines.items()
    )
    sessions, labels = findings.inputs.sessions, list(lines)
    marks = findings.evaluation.marks(words)
    by_month = series.groupby(["panel", "label", month_of(series["session"])])["value"].mean()
    return FigureView(
        "newsshown",
        title,
        words("What stood in a prompt; the news budget is the same for every mechanism."),
        figures.session_lines("newsshown", title, series, sessions, [title], labels, marks),
        month_table(
            words("{title}, mean within each month", title=title),
            by_month,
            [title],
            labels,
            words,
            [words("Every session and industry stands in {file}.", file="tables/shown_articles.csv")],
            ",.1f",
        ),
        charts.session_lines(series, sessions, [title], labels, marks, ",.1f"),
    )


def shown_table(findings: Findings, words: Words) -> TableView:
    """Articles shown by industry: mean, fewest and most per session, sessions without any, mean cut by the budget."""
    rows = []
    parts = {str(code): part for code, part in findings.shown.groupby("code", sort=False)}
    for industry in INDUSTRIES:
        part = parts.get(industry.code)
        if part is not None:
            articles = part["articles"]
            rows.append(
                [
                    f"{industry.code} {industry_names(industry, words)}",
                    f"{articles.mean():,.1f}",
                    format_count(articles.min()),
                    format_count(articles.max()),
                    format_share(float((articles == 0).mean())),
                    f"{part['articles_cut'].mean():,.1f}",
                ]
            )
    columns = [
        words("Industry"),
        words("Mean"),
        words("Fewest"),
        words("Most"),
        words("Sessions without news"),
        words("Cut by the budget, mean"),
    ]
    return text_table(words("Articles shown per session, by industry"), columns, rows)
