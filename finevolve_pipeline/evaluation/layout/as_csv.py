"""Table 2 as CSV: one line a coefficient, for spreadsheets and programs."""

from __future__ import annotations

import math

import pandas as pd

from finevolve_pipeline.evaluation.comparison import ALL_HORIZONS
from finevolve_pipeline.evaluation.layout.rows import Estimate, Table2, Table2Cell, Table2Row
from finevolve_pipeline.spreadsheet import frame_csv

_COLUMNS = (
    *("backbone", "mechanism", "name", "stage", "method", "metric", "horizon"),
    *("coefficient", "low", "high", "p", "p_holm", "p_bh", "minimum_detectable"),
    *("above_pipe", "difference", "difference_low", "difference_high", "difference_p", "difference_p_holm"),
    *("difference_p_bh", "difference_minimum_detectable", "differs_beyond_noise"),
    *("published_coefficient", "published_mean_gain"),
)


def table2_csv(table: Table2) -> str:
    """The table as CSV in full precision: a line per backbone, stage, method, mechanism, metric and horizon.

    Horizon 0 is the mean over the horizons: `difference` is then the mean gain. Undefined and untested numbers are
    empty, and so is `above_pipe` without a difference and `differs_beyond_noise` without a test. Text that a
    spreadsheet would run as a formula gets an apostrophe (`spreadsheet.unsafe_cell` takes it away).
    """
    lines = [_line(row, cell) for row in table.rows for cell in (*row.cells, *row.gains)]
    return frame_csv(pd.DataFrame(lines, columns=list(_COLUMNS)))


def _line(row: Table2Row, cell: Table2Cell) -> tuple[object, ...]:
    printed = math.nan if cell.published is None else cell.published
    is_mean = cell.horizon == ALL_HORIZONS
    above = None if math.isnan(cell.difference.value) else cell.above_pipe
    return (
        *(row.backbone, row.mechanism, row.name, row.stage, row.method, cell.metric, cell.horizon),
        *_numbers(cell.level),
        *(_truth(above), *_numbers(cell.difference), _truth(cell.differs)),
        *(math.nan if is_mean else printed, printed if is_mean else math.nan),
    )


def _numbers(estimate: Estimate) -> tuple[float, ...]:
    return (
        *(estimate.value, estimate.low, estimate.high),
        *(estimate.p, estimate.p_holm, estimate.p_bh, estimate.minimum_detectable),
    )


def _truth(known: bool | None) -> str:
    return "" if known is None else str(known).lower()
