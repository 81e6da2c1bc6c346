"""The second table: every coefficient and every difference from Pipe with its interval and its p-values, as text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from finevolve_pipeline.evaluation.comparison import ALL_HORIZONS
from finevolve_pipeline.evaluation.layout.numbers import (
    format_coefficient,
    format_gain,
    format_interval,
    format_p,
    format_percent,
)
from finevolve_pipeline.evaluation.layout.rows import Estimate, Panel, Table2Cell, Table2Row


@dataclass(frozen=True)
class Statistics:
    """A table of text; the first `text_columns` columns are names."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text_columns: int = 2


def statistics(panel: Panel, confidence: float) -> tuple[Statistics, ...]:
    """Differences from Pipe, then the coefficients themselves against zero; nothing where nothing was tested."""
    told = (
        ("Differences from Pipe", format_gain, differences(panel.rows)),
        ("Coefficients against zero", format_coefficient, levels(panel.rows)),
    )
    tables = (
        Statistics(
            f"{title}, {panel.title}",
            (
                "Backbone",
                "Method",
                "Horizon",
                "Metric",
                title.split()[0].removesuffix("s"),
                f"{format_percent(confidence)} interval",
                "p",
                "Holm p",
                "BH p",
                "Least detectable",
            ),
            tuple(
                (row.backbone, row.label, horizon_text(cell.horizon), cell.metric, *estimate_texts(estimate, style))
                for row, cell, estimate in found
            ),
        )
        for title, style, found in told
    )
    return tuple(table for table in tables if table.rows)


def differences(rows: Sequence[Table2Row]) -> tuple[tuple[Table2Row, Table2Cell, Estimate], ...]:
    """Differences from Pipe, mean gains last in each row; nothing if none was tested."""
    found = [(row, c, c.difference) for row in rows if not row.is_pipe for c in (*row.cells, *row.gains)]
    return tuple(found) if _any_tested(estimate for _, _, estimate in found) else ()


def levels(rows: Sequence[Table2Row]) -> tuple[tuple[Table2Row, Table2Cell, Estimate], ...]:
    """The coefficients; nothing if none was tested."""
    found = [(row, cell, cell.level) for row in rows for cell in row.cells]
    return tuple(found) if _any_tested(estimate for _, _, estimate in found) else ()


def _any_tested(estimates: Iterable[Estimate]) -> bool:
    return any(not math.isnan(estimate.p) for estimate in estimates)


def horizon_text(horizon: int) -> str:
    """The horizon in sessions, or `mean`."""
    return "mean" if horizon == ALL_HORIZONS else f"{horizon}d"


def estimate_texts(estimate: Estimate, style: Callable[[float], str]) -> tuple[str, ...]:
    """Value, interval, p, Holm's and Benjamini-Hochberg's adjusted p, minimum detectable."""
    return (
        style(estimate.value),
        format_interval(estimate.low, estimate.high),
        format_p(estimate.p),
        format_p(estimate.p_holm),
        format_p(estimate.p_bh),
        format_coefficient(estimate.minimum_detectable),
    )
