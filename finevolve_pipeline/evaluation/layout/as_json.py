"""Table 2 as JSON that explains itself: units, definitions of marks, full precision, null where nothing is known."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

from finevolve_pipeline.evaluation.layout.numbers import format_percent
from finevolve_pipeline.evaluation.layout.rows import Estimate, Table2, Table2Cell, Table2Row

# A document that is pasted into a page must not end its script.
_FOR_PAGES = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}


def table2_json(table: Table2) -> str:
    """`table2_document` as text."""
    text = json.dumps(table2_document(table), ensure_ascii=False, indent=2, allow_nan=False)
    return text.translate(_FOR_PAGES) + "\n"


def table2_document(table: Table2) -> dict[str, Any]:
    """The table as plain values with definitions of all of them; NaN is null."""
    return {
        "title": "Information coefficients and gains over Pipe, laid out as Table 2 of arXiv 2606.06960",
        "confidence": table.confidence,
        "level": table.level,
        "definitions": _definitions(table),
        "rows": [_row(row) for row in table.rows],
    }


def _definitions(table: Table2) -> dict[str, str]:
    return {
        "value": "a correlation or a difference of two, no unit; on cells that are valid in all runs of a backbone",
        "tsIC": "correlation of scores and excess returns over sessions, mean over industries",
        "csIC": "correlation of scores and excess returns over industries, mean over sessions",
        "stage": "by prediction day: cold_start, exploitation, or overall (both)",
        "method": "spearman or pearson: how correlations are computed",
        "horizon": "in trading sessions; 0 in mean_gains: the mean over the horizons",
        "coefficient": "tsIC or csIC; its p is of zero",
        "difference": "from Pipe, paired by session; all null for Pipe itself",
        "above_pipe": "the arrow: the difference is positive; it says nothing about chance; null without a difference",
        "differs_beyond_noise": f"the star: p_holm of the difference is below {table.level:g}; false is no finding of "
        "equality; null if not tested",
        "low, high": f"ends of the {format_percent(table.confidence)} interval, not adjusted for the number of tests",
        "p": "two-sided p-value",
        "p_holm": "Holm's adjusted p over all coefficients, or all differences, of the backbone, stage and method",
        "p_bh": "Benjamini-Hochberg's adjusted p over the same tests",
        "minimum_detectable": "size that a single test at this level finds with power 0.8",
        "published": "the paper's figure (coefficient; in mean_gains its mean gain), other runs; null if it has none",
        "null": "undefined, or not tested",
    }


def _row(row: Table2Row) -> dict[str, Any]:
    return {
        "backbone": row.backbone,
        "mechanism": row.mechanism,
        "name": row.name,
        "stage": row.stage,
        "method": row.method,
        "cells": [{**_place(cell), "coefficient": _estimate(cell.level), **_gain(cell)} for cell in row.cells],
        "mean_gains": [{**_place(cell), **_gain(cell)} for cell in row.gains],
    }


def _place(cell: Table2Cell) -> dict[str, Any]:
    return {"horizon": cell.horizon, "metric": cell.metric}


def _gain(cell: Table2Cell) -> dict[str, Any]:
    difference = _estimate(cell.difference)
    return {
        "difference": difference,
        "above_pipe": None if difference["value"] is None else cell.above_pipe,
        "differs_beyond_noise": cell.differs,
        "published": cell.published,
    }


def _estimate(estimate: Estimate) -> dict[str, float | None]:
    return {name: None if math.isnan(value) else value for name, value in dataclasses.asdict(estimate).items()}
