"""Paired differences from Pipe as a forest plot.

What must not live here: tests (see `Inference`), HTML.
"""

from __future__ import annotations

import math

import pandas as pd

from finevolve_pipeline.evaluation.comparison import ALL_HORIZONS, mechanism_label
from finevolve_pipeline.evaluation.ic import METRICS
from finevolve_pipeline.evaluation.layout.numbers import (
    format_coefficient,
    format_ends,
    format_gain,
    format_p,
    format_percent,
)
from finevolve_pipeline.evaluation.report import charts, figures
from finevolve_pipeline.evaluation.report.findings import Findings
from finevolve_pipeline.evaluation.report.views import Block, FigureView, TableView, text_table
from finevolve_pipeline.evaluation.report.words import Words
from finevolve_pipeline.evaluation.stages import OVERALL


def forest_block(findings: Findings, place: int, backbone: str, words: Words) -> Block:
    """Differences from Pipe over the whole window, a figure per coefficient (arguments as `learning_block`)."""
    rows = findings.forest(OVERALL)
    rows = rows[rows["backbone"] == backbone]
    if rows["estimate"].isna().all():
        return Block((words("No difference from Pipe has been tested yet."),))
    return Block(
        figures=tuple(
            _figure(findings, f"p{place}forest{metric}", rows[rows["metric"] == metric], metric, backbone, words)
            for metric in reversed(METRICS)
        )
    )


def horizon_name(horizon: int, words: Words) -> str:
    """A horizon, or the mean over all."""
    if horizon == ALL_HORIZONS:
        return words("Mean over horizons")
    return words("{count} sessions", count=horizon)


def _figure(findings: Findings, name: str, rows: pd.DataFrame, metric: str, backbone: str, words: Words) -> FigureView:
    horizons = sorted({int(horizon) for horizon in rows["horizon"]}, key=lambda h: h or math.inf)
    drawn = rows.assign(row=rows["mechanism"].map(mechanism_label), value=rows["estimate"])
    layers = {horizon_name(horizon, words): drawn[drawn["horizon"] == horizon] for horizon in horizons}
    names = list(dict.fromkeys(drawn["row"]))
    confidence = format_percent(findings.evaluation.settings.confidence)
    title = words("{metric} less Pipe's, with {share} intervals", metric=metric, share=confidence)
    reading = words(
        "Right of the line: better than Pipe. An interval that crosses it is compatible with no difference. Filled: "
        "found beyond chance after Holm's adjustment over the table."
    )
    described = words("{title}, backbone {backbone}", title=title, backbone=backbone)
    axis = words("Difference from Pipe")
    return FigureView(
        name,
        title,
        reading,
        figures.forest(name, described, names, layers, axis),
        forest_table(rows, words("{title}: numbers", title=title), confidence, words),
        charts.forest(names, layers, axis),
    )


def forest_table(rows: pd.DataFrame, caption: str, confidence: str, words: Words) -> TableView:
    """The forest's numbers: a row per mechanism and horizon."""
    texts = [
        [
            mechanism_label(str(row["mechanism"])),
            horizon_name(int(row["horizon"]), words),
            format_gain(row["estimate"]),
            format_ends(row["low"], row["high"]),
            format_p(row["p"]),
            format_p(row["p_holm"]),
            format_coefficient(row["minimum_detectable"]),
        ]
        for row in rows.to_dict("records")
    ]
    columns = [
        words("Method"),
        words("Horizon"),
        words("Difference"),
        words("{confidence} interval", confidence=confidence),
        words("p"),
        words("p (Holm)"),
        words("Detectable"),
    ]
    notes = [
        words("Detectable: the size that the test would find with a power of 0.8."),
        words("All stages stand in {file}.", file="tables/differences.csv"),
    ]
    return text_table(caption, columns, texts, 2, notes)
