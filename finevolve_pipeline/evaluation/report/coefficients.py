"""Every coefficient of every run as a table, and its means within planted regimes.

What must not live here: HTML, and any statistic (see `evaluation`).
"""

from __future__ import annotations

import math

from finevolve_pipeline.evaluation import ic
from finevolve_pipeline.evaluation.layout.numbers import format_coefficient
from finevolve_pipeline.evaluation.report.evaluated import Evaluation
from finevolve_pipeline.evaluation.report.names import METHOD_NAMES, cells_name, stage_name
from finevolve_pipeline.evaluation.report.views import TableView, text_table
from finevolve_pipeline.evaluation.report.words import Words
from finevolve_pipeline.evaluation.stages import STAGES


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
