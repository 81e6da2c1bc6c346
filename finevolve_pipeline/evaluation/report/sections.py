"""The report's content as plain views: tables of text, figures, sentences. The template only lays them out. Every
sentence goes through `Words`; numbers and dates read alike in both languages.

What must not live here: HTML. Text is escaped by the template, whatever it holds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from finevolve_pipeline.evaluation import diagnostics, ic
from finevolve_pipeline.evaluation.comparison import ALL_HORIZONS, experiment_label, mechanism_label
from finevolve_pipeline.evaluation.layout import (
    Estimate,
    Panel,
    Table2Row,
    by_backbone,
    format_coefficient,
    format_gain,
    legend,
    table2_notes,
    table2_rows,
)
from finevolve_pipeline.evaluation.layout.numbers import format_percent
from finevolve_pipeline.evaluation.layout.statistics import differences, estimate_texts, levels
from finevolve_pipeline.evaluation.published import PUBLISHED_METHOD, published_comparison
from finevolve_pipeline.evaluation.report import charts, figures
from finevolve_pipeline.evaluation.report.inference_view import inference_tables
from finevolve_pipeline.evaluation.report.inputs import ReportInputs
from finevolve_pipeline.evaluation.report.sensitivity_page import LABEL_BASES
from finevolve_pipeline.evaluation.report.views import Cell, FigureView, TableView, text_table
from finevolve_pipeline.evaluation.report.words import Words
from finevolve_pipeline.evaluation.significance import significance_level
from finevolve_pipeline.evaluation.stages import COLD_START, EXPLOITATION, OVERALL, STAGES, split_stages
from finevolve_pipeline.mechanisms.registry import without_experience
from finevolve_pipeline.settings import Experiment
from finevolve_pipeline.universe import INDUSTRIES, Industry

ROLLING = 20
"""Sessions of the rolling mean."""

SAMPLE = 12
"""Articles shown."""

METHOD_NAMES = {"spearman": "Spearman", "pearson": "Pearson"}


def stage_name(stage: str, words: Words) -> str:
    """A stage as people write it."""
    names = {
        OVERALL: words("Overall"),
        COLD_START: words("Cold start"),
        EXPLOITATION: words("Exploitation"),
    }
    return names[stage]


def cells_name(cells: str, words: Words) -> str:
    """Which cells a coefficient is of."""
    return {ic.COMMON: words("common"), ic.OWN: words("own")}[cells]


@dataclass(frozen=True)
class PanelView:
    """What is shown per backbone."""

    backbone: str
    headline: TableView
    tested: tuple[TableView, ...]
    stages: tuple[TableView, ...]
    figures: tuple[FigureView, ...]
    heat_map: TableView


@dataclass(frozen=True)
class ManifestView:
    """One heading of the manifest with its values, each as text."""

    heading: str
    values: tuple[tuple[str, str], ...]


def share(value: float) -> str:
    """A fraction as a percentage with one decimal, a dash if undefined."""
    return "–" if math.isnan(value) else f"{value:.1%}"


def number(value: float, digits: int = 2) -> str:
    """A number with separators, a dash if undefined."""
    return "–" if math.isnan(value) else f"{value:,.{digits}f}"


def industry_names(industry: Industry, words: Words) -> str:
    """An industry's names: both in English, the Chinese one in Chinese."""
    names = {"en": f"{industry.name_zh} {industry.name_en}", "zh": industry.name_zh}
    return names[words.language]


class Evaluation:
    """Series and coefficients of all runs on common cells with the headline method, computed once."""

    def __init__(self, inputs: ReportInputs) -> None:
        self.inputs = inputs
        self.settings = inputs.settings.evaluation
        self.method: ic.Method = self.settings.headline
        self.runs = inputs.runs

    @cached_property
    def panels(self) -> dict[Experiment, ic.Panel]:
        """Panels of all runs, scores kept on common cells."""
        benchmark = self.inputs.settings.benchmark
        axes = ic.make_axes(benchmark.sessions, benchmark.horizons, benchmark.codes)
        panels = ic.make_panels(self.runs, self.inputs.alpha, axes)
        common = ic.common_cells(panels)
        return {e: panel.within(common[e.backbone]) for e, panel in panels.items()}

    @cached_property
    def daily(self) -> pd.DataFrame:
        """csIC by session: experiment, session, horizon, ic, pairs, rolling, cumulative."""
        return self._of_each(
            lambda panel: ic.with_running_means(ic.daily_ic(panel, self.settings, self.method), ROLLING)
        )

    @cached_property
    def industries(self) -> pd.DataFrame:
        """tsIC by industry over the whole window: experiment, code, horizon, ic, pairs."""
        return self._of_each(lambda panel: ic.industry_ic(panel, self.settings, self.method))

    def _of_each(self, compute: Callable[[ic.Panel], pd.DataFrame]) -> pd.DataFrame:
        parts = [compute(panel).assign(experiment=experiment.key) for experiment, panel in self.panels.items()]
        if not parts:
            return pd.DataFrame(columns=["experiment", "horizon", "ic", "pairs"])
        frame = pd.concat(parts, ignore_index=True)
        return frame.loc[:, ["experiment", *frame.columns.drop("experiment")]]

    def experiments_of(self, backbone: str) -> list[Experiment]:
        """The runs of one backbone."""
        return [experiment for experiment in self.runs if experiment.backbone == backbone]

    def marks(self, words: Words) -> figures.Marks:
        """What time figures show behind their lines."""
        sessions = self.inputs.sessions
        cold = split_stages(sessions, self.settings)[0].end
        regimes = self.inputs.truth.regimes if self.inputs.truth else {}
        named = {session: words("regime {regime}", regime=regime) for session, regime in regimes.items()}
        return figures.Marks(sessions[cold] if 0 < cold < len(sessions) else None, named)


def facts(evaluation: Evaluation, words: Words) -> tuple[tuple[str, str], ...]:
    """The run in a few numbers: what, value."""
    inputs = evaluation.inputs
    sessions, horizons = inputs.sessions, inputs.settings.benchmark.horizons
    common = inputs.ic_matrix[(inputs.ic_matrix["cells"] == ic.COMMON) & (inputs.ic_matrix["stage"] == OVERALL)]
    coverage = common["coverage"].dropna()
    covered = f"{coverage.min():.1%} – {coverage.max():.1%}" if len(coverage) else "–"
    runs = words("{some} of {all}", some=len(evaluation.runs), all=len(inputs.settings.all_experiments))
    return (
        (words("Window"), f"{sessions[0]} – {sessions[-1]}"),
        (words("Sessions"), f"{len(sessions)}"),
        (words("Industries"), f"{len(inputs.settings.benchmark.codes)}"),
        (words("Horizons"), words("{count} sessions", count=", ".join(map(str, horizons)))),
        (words("Returns"), words(LABEL_BASES[evaluation.settings.label_base])),
        (words("Runs"), runs),
        (words("Predictions"), f"{len(inputs.predictions):,}"),
        (words("Articles tagged"), f"{int(inputs.news_counts['articles'].sum()):,}"),
        (words("Common coverage"), covered),
    )


def coefficient_table(
    caption: str, rows: Sequence[Table2Row], lines: Sequence[Sequence[str]], notes: Sequence[str], words: Words
) -> TableView:
    """One panel in the layout of the paper's Table 2: columns of its rows, and its lines of text."""
    names = [f"{c.metric} {c.horizon}d" for c in rows[0].cells] if rows else []
    return text_table(caption, [words("Method"), *names, words("Mean ΔtsIC"), words("Mean ΔcsIC")], lines, notes=notes)


def beside_the_paper(rows: Sequence[Table2Row], words: Words) -> list[list[str]]:
    """Rows as text, the paper's own figures below those of the same name."""
    lines = []
    for row in rows:
        lines.append(row.texts())
        if row.is_published:
            lines.append([words("{method}, paper", method=row.label), *row.published_texts()[1:]])
    return lines


def panel(evaluation: Evaluation, place: int, backbone: str, words: Words) -> PanelView:
    """All that is shown about one backbone. `place` makes ids unique."""
    overall, cold, late = (_stage_panel(evaluation, stage, backbone) for stage in (OVERALL, COLD_START, EXPLOITATION))
    return PanelView(
        backbone=backbone,
        headline=_stage_table(overall, evaluation, words),
        tested=(
            *tested_tables(overall, evaluation.settings.confidence, words),
            *inference_tables(evaluation.inputs.inference, backbone, evaluation.settings, words),
        ),
        stages=tuple(
            table
            for one in (cold, late)
            for table in (
                _stage_table(one, evaluation, words),
                *tested_tables(one, evaluation.settings.confidence, words),
            )
        ),
        figures=(
            _bars(evaluation, f"p{place}bars", backbone, words),
            _running(evaluation, f"p{place}rolling", backbone, "rolling", words),
            _running(evaluation, f"p{place}cumulative", backbone, "cumulative", words),
        ),
        heat_map=heat_map(evaluation, backbone, words),
    )


def _stage_panel(evaluation: Evaluation, stage: str, backbone: str) -> Panel:
    inputs, method = evaluation.inputs, evaluation.method
    alone = without_experience(inputs.settings)
    rows = table2_rows(inputs.comparison, stage, method, inputs.inference, evaluation.settings.confidence, alone)
    return Panel(stage, method, by_backbone(rows).get(backbone, ()))


def _stage_table(panel: Panel, evaluation: Evaluation, words: Words) -> TableView:
    caption = words(
        "{stage}, {method}, common cells", stage=stage_name(panel.stage, words), method=METHOD_NAMES[panel.method]
    )
    level = significance_level(evaluation.settings.confidence)
    return coefficient_table(
        caption, panel.rows, beside_the_paper(panel.rows, words), legend(panel, level, words), words
    )


def tested_tables(panel: Panel, confidence: float, words: Words) -> tuple[TableView, ...]:
    """Differences from Pipe, then coefficients against zero, with intervals and p-values; none if nothing was tested.

    Args:
        panel: the rows of one backbone, stage and kind of correlation.
        confidence: of the intervals.
        words: the language.
    """
    told = (
        (words("Differences from Pipe"), words("Difference"), format_gain, differences(panel.rows)),
        (words("Coefficients against zero"), words("Coefficient"), format_coefficient, levels(panel.rows)),
    )
    stage, method = stage_name(panel.stage, words), METHOD_NAMES[panel.method]
    return tuple(
        text_table(
            words("{what}, {stage}, {method}", what=what, stage=stage, method=method),
            [
                words("Method"),
                words("Horizon"),
                words("Metric"),
                quantity,
                words("{confidence} interval", confidence=format_percent(confidence)),
                words("p"),
                words("Holm p"),
                words("BH p"),
                words("Least detectable"),
            ],
            [
                [row.label, _horizon(cell.horizon, words), cell.metric, *_estimate(estimate, style, words)]
                for row, cell, estimate in found
            ],
            3,
        )
        for what, quantity, style, found in told
        if found
    )


def _horizon(horizon: int, words: Words) -> str:
    return words("mean") if horizon == ALL_HORIZONS else f"{horizon}d"


def _estimate(estimate: Estimate, style: Callable[[float], str], words: Words) -> list[str]:
    """Value, interval, p, Holm's and Benjamini-Hochberg's adjusted p, least detectable value."""
    value, _, *rest = estimate_texts(estimate, style)
    interval = "–"
    if not math.isnan(estimate.low) and not math.isnan(estimate.high):
        interval = words("{first} to {last}", first=format_gain(estimate.low), last=format_gain(estimate.high))
    return [value, interval, *rest]


def _bars(evaluation: Evaluation, name: str, backbone: str, words: Words) -> FigureView:
    comparison = evaluation.inputs.comparison
    rows = comparison[
        (comparison["backbone"] == backbone)
        & (comparison["stage"] == OVERALL)
        & (comparison["method"] == evaluation.method)
        & (comparison["horizon"] != ALL_HORIZONS)
    ]
    values = rows.set_index(["mechanism", "metric", "horizon"])["value"].to_dict()
    horizons = sorted({int(horizon) for horizon in rows["horizon"]})
    layers = {
        mechanism_label(mechanism): [
            [values.get((mechanism, metric, horizon), math.nan) for horizon in horizons] for metric in ic.METRICS
        ]
        for mechanism in dict.fromkeys(str(mechanism) for mechanism in rows["mechanism"])
    }
    places = [words("{count} sessions", count=horizon) for horizon in horizons]
    title = words("Coefficients by horizon and mechanism")
    described = words("{title}, backbone {backbone}", title=title, backbone=backbone)
    return FigureView(
        name,
        title,
        words("Above zero the scores order outcomes the right way round."),
        figures.bars(name, described, ic.METRICS, places, layers),
        words("The numbers stand in the first table of this backbone."),
        charts.bars(ic.METRICS, places, layers),
    )


def _running(evaluation: Evaluation, name: str, backbone: str, column: str, words: Words) -> FigureView:
    keys = {e.key: experiment_label(e, words) for e in evaluation.experiments_of(backbone)}
    daily = evaluation.daily[evaluation.daily["experiment"].isin(list(keys))]
    titles = {h: words("Horizon {count} sessions", count=h) for h in evaluation.inputs.settings.benchmark.horizons}
    series = pd.DataFrame(
        {
            "panel": daily["horizon"].map(titles),
            "label": daily["experiment"].map(keys),
            "session": daily["session"],
            "value": daily[column],
        }
    )
    if column == "rolling":
        title = words("csIC, mean of the last {count} sessions", count=ROLLING)
        reading = [words("Gaps: fewer than half of those sessions have a defined csIC.")]
    else:
        title = words("Cumulative csIC")
        reading = [words("The sum of daily csIC; a steady slope is a steady ability, a bend is a change.")]
    marks, sessions, panels = evaluation.marks(words), evaluation.inputs.sessions, list(titles.values())
    if marks.exploitation:
        reading.append(words("The dotted line is where exploitation begins."))
    if marks.regimes:
        reading.append(words("Shaded: the other planted regime."))
    described = words("{title}, backbone {backbone}", title=title, backbone=backbone)
    labels = list(keys.values())
    return FigureView(
        name,
        title,
        words(" ").join(reading),
        figures.session_lines(name, described, series, sessions, panels, labels, marks),
        month_table(
            words("{title}, on the last session of each month", title=title),
            series.groupby(["panel", "label", _month(series["session"])])["value"].last(),
            panels,
            labels,
            words,
            [words("Every session stands in {file}.", file="tables/daily_csic.csv")],
        ),
        charts.session_lines(series, sessions, panels, labels, marks),
    )


def _month(days: pd.Series) -> pd.Series:
    return days.str.slice(0, 7).rename("month")


def month_table(
    caption: str,
    values: pd.Series,
    panels: Sequence[str],
    labels: Sequence[str],
    words: Words,
    notes: Sequence[str] = (),
    style: str = "{:.4f}",
) -> TableView:
    """A figure over time in few numbers: a row per panel and month that has any, a column per label.

    Args:
        caption: what the numbers are.
        values: indexed by panel, label, month (YYYY-MM).
        panels: titles of the figure's panels.
        labels: names of its lines; those without values are left out.
        words: the language.
        notes: what stands below.
        style: how numbers are written.
    """
    known = values.to_dict()
    drawn = set(values.index.get_level_values("label"))
    columns = [label for label in labels if label in drawn]
    months = sorted(set(values.index.get_level_values("month")))
    numbers = {
        (panel, month): [known.get((panel, label, month), math.nan) for label in columns]
        for panel in panels
        for month in months
    }
    rows = [
        [*place, *(_styled(value, style) for value in found)]
        for place, found in numbers.items()
        if not all(map(math.isnan, found))
    ]
    return text_table(caption, [words("Panel"), words("Month"), *columns], rows, 2, notes)


def _styled(value: float, style: str) -> str:
    return "–" if math.isnan(value) else style.format(value)


def heat_map(evaluation: Evaluation, backbone: str, words: Words) -> TableView:
    """tsIC by industry (rows) and mechanism x horizon (columns), coloured by value."""
    experiments = evaluation.experiments_of(backbone)
    horizons = evaluation.inputs.settings.benchmark.horizons
    frame = evaluation.industries
    frame = frame[frame["experiment"].isin([e.key for e in experiments])]
    values = {
        (str(experiment), str(code), int(horizon)): float(value)
        for experiment, code, horizon, value in frame[["experiment", "code", "horizon", "ic"]].itertuples(index=False)
    }
    largest = max((abs(value) for value in values.values() if not math.isnan(value)), default=0.0) or 1.0
    rows = tuple(
        (
            Cell(f"{industry.code} {industry_names(industry, words)}"),
            *(
                _heat(values[experiment.key, industry.code, horizon], largest)
                for experiment in experiments
                for horizon in horizons
            ),
        )
        for industry in INDUSTRIES
        if industry.code in evaluation.inputs.settings.benchmark.codes
    )
    columns = [f"{experiment_label(e, words)} {horizon}d" for e in experiments for horizon in horizons]
    caption = words(
        "tsIC by industry, {method}, common cells, overall; full colour at ±{largest}",
        method=METHOD_NAMES[evaluation.method],
        largest=f"{largest:.2f}",
    )
    return TableView(caption, (words("Industry"), *columns), rows)


def _heat(value: float, largest: float) -> Cell:
    return Cell("–") if math.isnan(value) else Cell(f"{value:+.2f}", value / largest)


def published_tables(words: Words) -> tuple[TableView, ...]:
    """The paper's Table 2, backbone by backbone."""
    rows = table2_rows(published_comparison(), method=PUBLISHED_METHOD)
    return tuple(
        coefficient_table(
            words("As published for {backbone}", backbone=backbone),
            panel,
            [row.texts() for row in panel],
            table2_notes(panel, words),
            words,
        )
        for backbone, panel in by_backbone(rows).items()
    )


def full_matrix(evaluation: Evaluation, words: Words) -> TableView:
    """Every coefficient: a row per run, stage, cells and method; columns metric x horizon."""
    matrix = evaluation.inputs.ic_matrix
    heads = [words("Run"), words("Stage"), words("Cells"), words("Method")]
    if matrix.empty:
        return text_table(words("Coefficients of every run"), heads, [], len(heads))
    horizons = evaluation.inputs.settings.benchmark.horizons
    keys = ["experiment", "stage", "cells", "method"]
    values = matrix.set_index([*keys, "metric", "horizon"])["value"].to_dict()
    rows = []
    for experiment in dict.fromkeys(matrix["experiment"]):
        for stage in STAGES:
            for cells in (ic.COMMON, ic.OWN):
                for method in ic.METHODS:
                    head = (str(experiment), stage, cells, method)
                    numbers = [
                        format_coefficient(values.get((*head, metric, horizon), math.nan))
                        for horizon in horizons
                        for metric in ic.METRICS
                    ]
                    names = [head[0], stage_name(stage, words), cells_name(cells, words), METHOD_NAMES[method]]
                    rows.append([*names, *numbers])
    columns = [*heads, *(f"{m} {h}d" for h in horizons for m in ic.METRICS)]
    return text_table(words("Coefficients of every run"), columns, rows, len(heads))


def coverage_table(evaluation: Evaluation, words: Words) -> TableView:
    """Coverage, and what undefined correlations would change, by run, cells and horizon."""
    matrix = evaluation.inputs.ic_matrix
    part = matrix[(matrix["stage"] == OVERALL) & (matrix["method"] == evaluation.method)]
    rows = []
    for (experiment, cells, horizon), both in part.groupby(["experiment", "cells", "horizon"], sort=False):
        by_metric = {row["metric"]: row for row in both.to_dict("records")}
        first = by_metric[ic.METRICS[0]]
        numbers = [f"{first['pairs']:,}", share(first["coverage"])]
        for row in (by_metric[metric] for metric in ic.METRICS):
            numbers += [
                format_coefficient(row["value"]),
                words("{some} of {all}", some=row["undefined"], all=row["defined"] + row["undefined"]),
                format_coefficient(row["value_undefined_zero"]),
            ]
        rows.append([str(experiment), cells_name(str(cells), words), f"{horizon}", *numbers])
    names = [
        name
        for metric in ic.METRICS
        for name in (metric, words("{metric} undefined", metric=metric), words("{metric} with 0", metric=metric))
    ]
    return text_table(
        words("Coverage and undefined correlations, overall, {method}", method=METHOD_NAMES[evaluation.method]),
        [words("Run"), words("Cells"), words("Horizon"), words("Pairs"), words("Coverage"), *names],
        rows,
        2,
        [
            words(
                "Coverage: cells with a valid score and a known label / cells with a known label. tsIC is one "
                "correlation an industry, csIC one a session; sessions without a known label count as undefined. "
                "With 0: the mean if undefined correlations count as zero."
            ),
        ],
    )


def prediction_table(evaluation: Evaluation, words: Words) -> TableView:
    """What each run produced and was shown."""
    counts = diagnostics.prediction_counts(evaluation.inputs.predictions)
    rows = [
        [
            str(row["experiment"]),
            f"{row['sessions']}",
            f"{row['scores']:,}",
            f"{row['invalid']:,}",
            number(row["mean_absolute_score"], 3),
            number(row["articles"], 1),
            number(row["articles_cut"], 1),
        ]
        for row in counts.to_dict("records")
    ]
    columns = [
        words("Run"),
        words("Sessions"),
        words("Scores"),
        words("Invalid"),
        words("Mean |score|"),
        words("Articles shown"),
        words("Articles cut"),
    ]
    return text_table(words("Predictions; articles are means per industry and session"), columns, rows)


def invalid_table(evaluation: Evaluation, words: Words) -> TableView | None:
    """Invalid scores by run and reason, a column per horizon; None if there are none."""
    counts = diagnostics.invalid_scores(evaluation.inputs.predictions)
    if counts.empty:
        return None
    horizons = evaluation.inputs.settings.benchmark.horizons
    by_horizon = counts.pivot_table(
        index=["experiment", "invalid_reason"],
        columns="horizon",
        values="scores",
        aggfunc="sum",
        fill_value=0,
    ).reindex(columns=list(horizons), fill_value=0)
    rows = [
        [*map(str, key), *(f"{count:,}" for count in row)]
        for key, row in zip(by_horizon.index, by_horizon.to_numpy().tolist(), strict=True)
    ]
    columns = [words("Run"), words("Reason"), *(f"{horizon}d" for horizon in horizons)]
    return text_table(words("Invalid scores by reason and horizon"), columns, rows, 2)


def kind_name(kind: str, words: Words) -> str:
    """What a kind of experience is called; a mechanism's own kinds stay as they are."""
    names = {
        "trajectory": words("trajectory"),
        "reflection": words("reflection"),
        "insight": words("insight"),
        "reasoning_item": words("reasoning item"),
        "fact": words("fact"),
    }
    return names.get(kind, kind.replace("_", " "))


def retrieval_table(inputs: ReportInputs, words: Words) -> TableView | None:
    """What was retrieved, by run and kind; None if no mechanism retrieved anything."""
    found = diagnostics.retrieval_summary(inputs.retrievals)
    order = {experiment.key: place for place, experiment in enumerate(inputs.settings.all_experiments)}
    found = found[found["experiment"].isin(list(order))]
    if found.empty:
        return None
    rows = [
        [
            str(row["experiment"]),
            kind_name(str(row["kind"]), words),
            number(row["memories"], 0),
            number(row["per_prediction"]),
            number(row["age_median"], 0),
            number(row["age_p90"], 0),
            share(row["from_this_session"]),
            share(row["from_previous_session"]),
            share(row["matured_share"]),
            share(row["news_overlap"]),
            number(row["similarity"], 3),
            share(row["in_prompt"]),
        ]
        for row in found.sort_values("experiment", key=lambda keys: keys.map(order), kind="stable").to_dict("records")
    ]
    columns = [
        words("Run"),
        words("Kind"),
        words("Memories"),
        words("Per prediction"),
        words("Median age"),
        words("90 % age"),
        words("From today"),
        words("From yesterday"),
        words("Outcomes known"),
        words("News overlap"),
        words("Similarity"),
        words("In prompts"),
    ]
    return text_table(
        words("Memories retrieved; ages in sessions"),
        columns,
        rows,
        2,
        [
            words(
                "From today: share of memories made on that very session, from outcomes that had just become known; "
                "from yesterday: on the session before. Outcomes known: share of the outcomes of what a memory rests "
                "on that were known. News overlap: Jaccard index of article ids, of what it rests on and of the day. "
                "Similarity: cosine, – where none is compared. In prompts: share of them that prompts had room for "
                "(prompts.experience_tokens); no model saw the others."
            ),
        ],
    )


def retrieval_figures(evaluation: Evaluation, words: Words) -> tuple[FigureView, ...]:
    """Age, matured share and overlap of retrieved memories over time, per backbone that retrieved any."""
    means = diagnostics.retrieval_by_session(evaluation.inputs.retrievals)
    found = []
    for place, backbone in enumerate(dict.fromkeys(e.backbone for e in evaluation.runs)):
        labels = {e.key: experiment_label(e, words) for e in evaluation.experiments_of(backbone)}
        own = means[means["experiment"].isin(list(labels))]
        if not own.empty:
            found.append(_retrieval_figure(evaluation, f"retrieval{place}", backbone, labels, own, words))
    return tuple(found)


def _retrieval_figure(
    evaluation: Evaluation, name: str, backbone: str, labels: Mapping[str, str], means: pd.DataFrame, words: Words
) -> FigureView:
    panels = {
        "age": words("Age of memories, sessions"),
        "matured_share": words("Share of outcomes known"),
        "news_overlap": words("Overlap with the day's news"),
    }
    label = means["experiment"].map(labels)
    series = pd.concat(
        pd.DataFrame({"panel": title, "label": label, "session": means["session"], "value": means[column]})
        for column, title in panels.items()
    )
    title = words("Retrieved memories over time, backbone {backbone}", backbone=backbone)
    shown = (evaluation.inputs.sessions, list(panels.values()), list(labels.values()))
    return FigureView(
        name,
        title,
        words(
            "Means over the memories of all industries. A young prediction that shares today's news is yesterday "
            "rather than experience. What was made from outcomes may be young: its age is the lesson's, not that of "
            "the news."
        ),
        figures.session_lines(name, title, series, *shown, evaluation.marks(words)),
        month_table(
            words("{title}, means of each month", title=title),
            series.groupby(["panel", "label", _month(series["session"])])["value"].mean(),
            *shown[1:],
            words,
            [words("Every session stands in {file}.", file="tables/retrieval_by_session.csv")],
            "{:.2f}",
        ),
        charts.session_lines(series, *shown, evaluation.marks(words), ".2f"),
    )


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
    months = windows.groupby(_month(windows["session"]))["articles"].agg(["count", "min", "mean", "max"])
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
            share(row["articles"] / total),
            f"{row['selected']:,}",
            share(row["selected"] / row["articles"] if row["articles"] else math.nan),
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


def truth_table(evaluation: Evaluation, words: Words) -> TableView | None:
    """Mean csIC within each planted regime, by run and horizon; None for real data."""
    truth = evaluation.inputs.truth
    if truth is None:
        return None
    daily = evaluation.daily.assign(regime=evaluation.daily["session"].map(dict(truth.regimes)))
    means = daily.groupby(["experiment", "regime", "horizon"])["ic"].mean().to_dict()
    horizons = evaluation.inputs.settings.benchmark.horizons
    names = list(dict.fromkeys(truth.regimes.values()))
    rows = [
        [
            experiment.key,
            *(
                format_coefficient(means.get((experiment.key, regime, horizon), math.nan))
                for regime in names
                for horizon in horizons
            ),
        ]
        for experiment in evaluation.runs
    ]
    columns = [
        words("Regime {regime}, {horizon}d", regime=regime, horizon=horizon) for regime in names for horizon in horizons
    ]
    caption = words(
        "Mean csIC by planted regime of the prediction day, {method}, common cells",
        method=METHOD_NAMES[evaluation.method],
    )
    return text_table(caption, [words("Run"), *columns], rows)


def manifest(inputs: ReportInputs) -> tuple[ManifestView, ...]:
    """The manifests and the settings' digest, values as text."""
    views = [ManifestView("settings", (("digest", inputs.settings.digest),))]
    views += [
        ManifestView(str(heading), tuple((str(key), _plain(value)) for key, value in values.items()))
        for heading, values in inputs.manifests.items()
    ]
    return tuple(views)


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def effective_settings(inputs: ReportInputs) -> str:
    """Every effective setting as indented JSON."""
    return json.dumps(inputs.settings.model_dump(mode="json"), ensure_ascii=False, indent=2)


def backbones(comparison: pd.DataFrame) -> tuple[str, ...]:
    """Backbones of the comparison, in order."""
    return tuple(dict.fromkeys(str(backbone) for backbone in comparison["backbone"]))
