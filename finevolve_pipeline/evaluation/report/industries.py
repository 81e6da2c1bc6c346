"""Industries as heat maps: tsIC of every run, and where mechanisms differ from Pipe.

What must not live here: differences (see `evaluation.differences`), HTML.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from finevolve_pipeline.evaluation.comparison import PIPE, experiment_label
from finevolve_pipeline.evaluation.layout.numbers import format_number
from finevolve_pipeline.evaluation.report.evaluated import Evaluation
from finevolve_pipeline.evaluation.report.findings import Findings, of_backbone
from finevolve_pipeline.evaluation.report.names import METHOD_NAMES, industry_names
from finevolve_pipeline.evaluation.report.views import Block, Cell, TableView
from finevolve_pipeline.evaluation.report.words import Words
from finevolve_pipeline.universe import INDUSTRIES

Run = tuple[str, int]
"""A mechanism or an experiment, and a horizon."""


def heat_map(evaluation: Evaluation, backbone: str, words: Words) -> TableView:
    """tsIC by industry (rows) and run x horizon (columns), coloured by value."""
    horizons = evaluation.inputs.settings.benchmark.horizons
    labels = {run.key: experiment_label(run, words) for run in evaluation.experiments_of(backbone)}
    own = evaluation.industries[evaluation.industries["experiment"].isin(list(labels))]
    values = own.set_index(["code", "experiment", "horizon"])["ic"].to_dict()
    largest = _largest(values.values())
    caption = words(
        "tsIC by industry, {method}, common cells, overall; full colour at ±{largest}",
        method=METHOD_NAMES[evaluation.method],
        largest=f"{largest:.2f}",
    )
    rows = _rows(evaluation, values, [(run, horizon) for run in labels for horizon in horizons], largest, words)
    columns = [f"{label} {horizon}d" for label in labels.values() for horizon in horizons]
    return TableView(caption, (words("Industry"), *columns), rows)


def industry_block(findings: Findings, backbone: str, words: Words) -> Block:
    """tsIC less Pipe's as a heat map; a sentence where nothing can be compared."""
    own = of_backbone(findings.industry_differences, backbone)
    if own["difference"].isna().all():
        return Block((words("No industry has a difference from Pipe yet."),))
    return Block(tables=(industry_map(findings, backbone, words),))


def industry_map(findings: Findings, backbone: str, words: Words) -> TableView:
    """tsIC less Pipe's by industry (rows) and mechanism x horizon (columns), with the mean of each column."""
    own = of_backbone(findings.industry_differences, backbone)
    horizons = findings.inputs.settings.benchmark.horizons
    labels = {mechanism: label for mechanism, label in findings.mechanisms(backbone).items() if mechanism != PIPE}
    places = [(mechanism, horizon) for mechanism in labels for horizon in horizons]
    values = own.set_index(["code", "mechanism", "horizon"])["difference"].to_dict()
    largest = _largest(values.values())
    means = own.groupby(["mechanism", "horizon"])["difference"].mean().to_dict()
    mean = (Cell(words("Mean")), *(_heat(means.get(place, math.nan), largest) for place in places))
    caption = words(
        "tsIC less Pipe's by industry, {method}, common cells, overall; full colour at ±{largest}",
        method=METHOD_NAMES[findings.evaluation.method],
        largest=f"{largest:.2f}",
    )
    note = words(
        "One industry's difference rests on few spans that do not overlap, and industries move together: look for "
        "rows and columns of one colour, not for single cells."
    )
    rows = (*_rows(findings.evaluation, values, places, largest, words), mean)
    columns = [f"{labels[mechanism]} {horizon}d" for mechanism, horizon in places]
    return TableView(caption, (words("Industry"), *columns), rows, notes=(note,))


def _rows(
    evaluation: Evaluation,
    values: Mapping[Any, float],
    places: Sequence[Run],
    largest: float,
    words: Words,
) -> tuple[tuple[Cell, ...], ...]:
    """A row per industry of the settings, a cell per place; `values` by code and place."""
    return tuple(
        (
            Cell(f"{industry.code} {industry_names(industry, words)}"),
            *(_heat(values.get((industry.code, *place), math.nan), largest) for place in places),
        )
        for industry in INDUSTRIES
        if industry.code in evaluation.inputs.settings.benchmark.codes
    )


def _largest(values: Iterable[float]) -> float:
    """The size that has the full colour."""
    return max((abs(value) for value in values if not math.isnan(value)), default=0.0) or 1.0


def _heat(value: float, largest: float) -> Cell:
    return Cell(format_number(value, "+.2f"), None if math.isnan(value) else value / largest)
