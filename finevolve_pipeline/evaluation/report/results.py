"""The results as views: a run's facts; for each backbone tables in the layout of the paper's Table 2, tests, figures.

What must not live here: HTML, and any statistic (see `evaluation`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

from finevolve_pipeline.evaluation import ic
from finevolve_pipeline.evaluation.comparison import ALL_HORIZONS, experiment_label, mechanism_label
from finevolve_pipeline.evaluation.layout import (
    Estimate,
    Panel,
    Table2Row,
    by_backbone,
    legend,
    table2_notes,
    table2_rows,
)
from finevolve_pipeline.evaluation.layout.numbers import format_coefficient, format_ends, format_gain, format_percent
from finevolve_pipeline.evaluation.layout.statistics import differences, estimate_texts, levels
from finevolve_pipeline.evaluation.published import PUBLISHED_METHOD, published_comparison
from finevolve_pipeline.evaluation.report import charts, figures
from finevolve_pipeline.evaluation.report.evaluated import ROLLING, Evaluation
from finevolve_pipeline.evaluation.report.industries import heat_map
from finevolve_pipeline.evaluation.report.inference_view import inference_tables
from finevolve_pipeline.evaluation.report.months import month_of, month_table
from finevolve_pipeline.evaluation.report.names import METHOD_NAMES, horizon_name, stage_name
from finevolve_pipeline.evaluation.report.sensitivity_page import LABEL_BASES
from finevolve_pipeline.evaluation.report.views import FigureView, TableView, text_table
from finevolve_pipeline.evaluation.report.words import Words
from finevolve_pipeline.evaluation.significance import significance_level
from finevolve_pipeline.evaluation.stages import COLD_START, EXPLOITATION, OVERALL
from finevolve_pipeline.mechanisms.registry import without_experience


@dataclass(frozen=True)
class PanelView:
    """What is shown per backbone."""

    backbone: str
    headline: TableView
    tested: tuple[TableView, ...]
    stages: tuple[TableView, ...]
    figures: tuple[FigureView, ...]
    heat_map: TableView


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
                [row.label, horizon_name(cell.horizon, words), cell.metric, *_estimate(estimate, style)]
                for row, cell, estimate in found
            ],
            3,
        )
        for what, quantity, style, found in told
        if found
    )


def _estimate(estimate: Estimate, style: Callable[[float], str]) -> list[str]:
    """Value, interval, p, Holm's and Benjamini-Hochberg's adjusted p, least detectable value."""
    value, _, *rest = estimate_texts(estimate, style)
    return [value, format_ends(estimate.low, estimate.high), *rest]


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
            series.groupby(["panel", "label", month_of(series["session"])])["value"].last(),
            panels,
            labels,
            words,
            [words("Every session stands in {file}.", file="tables/daily_csic.csv")],
        ),
        charts.session_lines(series, sessions, panels, labels, marks),
    )


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
