"""Comparison of mechanisms with Pipe: the IC matrix, gains as in the paper's Table 2, and its layout as text.

What lives here: differences and rows of tables. What must not: correlations (see `ic`), HTML (see `report`).
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from finevolve_pipeline.evaluation.ic import (
    COMMON,
    METRICS,
    common_cells,
    horizons_of,
    make_axes,
    make_panels,
    panel_coefficients,
)
from finevolve_pipeline.evaluation.stages import OVERALL
from finevolve_pipeline.settings import EvaluationSettings, Experiment
from finevolve_pipeline.spreadsheet import safe_cell
from finevolve_pipeline.tables import Comparison, InformationCoefficients, conform, empty
from finevolve_pipeline.universe import CODES

PIPE = "pipe"
"""The mechanism without experience; every gain is over it."""

ALL_HORIZONS = 0
"""Value of the column `horizon` for the mean over the horizons."""

_LABELS = {
    "pipe": "Pipe",
    "mem0": "Mem0",
    "memrl": "MemRL",
    "reflexion": "Reflexion",
    "expel": "ExpeL",
    "reasoningbank": "ReasoningBank",
    "mem0_full": "Mem0, original",
    "memrl_original": "MemRL, original",
    "reflexion_original": "Reflexion, original",
    "expel_original": "ExpeL, original",
    "pipe_aa": "Pipe, again",
}


def mechanism_label(mechanism: str) -> str:
    """How people write a mechanism's name: `memrl` is MemRL; unknown names stay as they are."""
    return _LABELS.get(mechanism, mechanism)


def experiment_label(experiment: Experiment) -> str:
    """How people write which run of a backbone it is: `Mem0`, or `Mem0, seed 1`."""
    name = mechanism_label(experiment.mechanism)
    return f"{name}, seed {experiment.seed}" if experiment.seed else name


def ic_matrix(
    predictions: Mapping[Experiment, pd.DataFrame],
    alpha: pd.DataFrame,
    sessions: Sequence[str | dt.date],
    settings: EvaluationSettings,
    codes: tuple[str, ...] = CODES,
) -> pd.DataFrame:
    """Coefficients of all runs, each on its own cells and on the cells common to its backbone's runs.

    Args:
        predictions: per experiment session, code, horizon, score.
        alpha: `Outcomes` by prediction day.
        sessions: the prediction window, days or ISO text.
        settings: stage split and minimum pairs.
        codes: the industries that were to be predicted.

    Returns:
        `InformationCoefficients`; experiment by experiment in the order given, own cells before common ones.
    """
    axes = make_axes(sessions, horizons_of(alpha, *predictions.values()), codes)
    panels = make_panels(predictions, alpha, axes)
    common = common_cells(panels)
    parts = [
        panel_coefficients(experiment, panel, settings, cells)
        for experiment, panel in panels.items()
        for cells in (None, common[experiment.backbone])
    ]
    if not parts:
        return empty(InformationCoefficients)
    return conform(pd.concat(parts, ignore_index=True), InformationCoefficients, "ic_matrix")


def compare_with_pipe(coefficients: pd.DataFrame) -> pd.DataFrame:
    """Gain of every mechanism over its backbone's Pipe on common cells, per horizon and as their mean.

    A mechanism with several seeds, Pipe included, counts with the mean over its runs. A mean over seeds or horizons
    exists only if each of them has a value: a mean of fewer would compare unlike things.
    Without a Pipe run `pipe` and `gain` are NaN. Pipe's own gain is zero.

    Args:
        coefficients: rows of an IC matrix; only `cells == common` is read.

    Returns:
        `Comparison`.
    """
    where = ["backbone", "stage", "metric", "method", "horizon"]
    rows = _over_seeds(coefficients[coefficients["cells"] == COMMON], ["mechanism", *where])
    pipe = rows.loc[rows["mechanism"] == PIPE, [*where, "value"]].rename(columns={"value": "pipe"})
    by_horizon = rows.merge(pipe, on=where, how="left", validate="many_to_one")
    by_horizon["gain"] = by_horizon["value"] - by_horizon["pipe"]
    keys = ["backbone", "mechanism", "stage", "metric", "method"]
    numbers = ["value", "pipe", "gain"]
    by_keys = by_horizon.groupby(keys, sort=False)
    means = by_keys[numbers].mean(skipna=False).assign(seeds=by_keys["seeds"].min()).reset_index()
    both = pd.concat([by_horizon, means.assign(horizon=ALL_HORIZONS)], ignore_index=True)
    return conform(_in_order(both, keys), Comparison, "comparison")


def _over_seeds(coefficients: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """The mean over runs that differ in their seed alone, and how many there are."""
    values = coefficients.groupby(list(keys), sort=False)["value"]
    return values.mean(skipna=False).to_frame().assign(seeds=values.size()).reset_index()


def _in_order(frame: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    # Rows of one experiment, stage, metric and method together; horizons ascending, their mean last.
    position = frame.groupby(list(keys), sort=False).ngroup()
    last = frame["horizon"].replace(ALL_HORIZONS, np.iinfo(np.int16).max)
    return frame.assign(_position=position, _last=last).sort_values(["_position", "_last"], kind="stable")


@dataclass(frozen=True)
class Table2Cell:
    """One coefficient of the table; `above_pipe` is what the arrow says."""

    horizon: int
    metric: str
    value: float
    above_pipe: bool

    @property
    def text(self) -> str:
        """Four decimals, with an arrow where it lies above Pipe's."""
        return format_coefficient(self.value) + (" ↑" if self.above_pipe else "")


@dataclass(frozen=True)
class Table2Row:
    """One mechanism of the table: coefficients by horizon, tsIC before csIC, and mean gains over Pipe."""

    backbone: str
    mechanism: str
    cells: tuple[Table2Cell, ...]
    gain_ts: float
    gain_cs: float

    @property
    def label(self) -> str:
        """The row's name: Pipe, or `+ Mem0` for what is added to it."""
        name = mechanism_label(self.mechanism)
        return name if self.is_pipe else f"+ {name}"

    @property
    def is_pipe(self) -> bool:
        """Whether this is the reference row."""
        return self.mechanism == PIPE

    def texts(self) -> list[str]:
        """The row as text: label, coefficients, mean gains (a dash for Pipe itself)."""
        gains = ["–", "–"] if self.is_pipe else [format_gain(self.gain_ts), format_gain(self.gain_cs)]
        return [self.label, *(cell.text for cell in self.cells), *gains]


def table2_rows(comparison: pd.DataFrame, stage: str = OVERALL, method: str = "spearman") -> tuple[Table2Row, ...]:
    """The rows of the paper's Table 2 from a `Comparison`, backbone by backbone, Pipe first.

    Args:
        comparison: `Comparison`.
        stage: cold_start, exploitation or overall.
        method: spearman or pearson.
    """
    rows = comparison[(comparison["stage"] == stage) & (comparison["method"] == method)]
    found = [
        _table2_row(str(backbone), str(mechanism), part)
        for (backbone, mechanism), part in rows.groupby(["backbone", "mechanism"], sort=False)
    ]
    backbones = list(dict.fromkeys(row.backbone for row in found))
    return tuple(sorted(found, key=lambda row: (backbones.index(row.backbone), not row.is_pipe)))


def by_backbone(rows: Sequence[Table2Row]) -> dict[str, tuple[Table2Row, ...]]:
    """The panels of the table: its rows by backbone, in order."""
    backbones = dict.fromkeys(row.backbone for row in rows)
    return {backbone: tuple(row for row in rows if row.backbone == backbone) for backbone in backbones}


def _table2_row(backbone: str, mechanism: str, part: pd.DataFrame) -> Table2Row:
    numbers = part.set_index(["horizon", "metric"])[["value", "gain"]].astype(float)
    value, gain = numbers["value"].to_dict(), numbers["gain"].to_dict()
    horizons = sorted({int(h) for h in part["horizon"]} - {ALL_HORIZONS})
    return Table2Row(
        backbone=backbone,
        mechanism=mechanism,
        cells=tuple(
            Table2Cell(h, metric, value[h, metric], gain[h, metric] > 0) for h in horizons for metric in METRICS
        ),
        gain_ts=gain[ALL_HORIZONS, "tsIC"],
        gain_cs=gain[ALL_HORIZONS, "csIC"],
    )


def table2_notes(rows: Sequence[Table2Row]) -> tuple[str, ...]:
    """In words, what the table cannot show: backbones without a Pipe run, coefficients that are undefined."""
    return tuple(note for backbone, panel in by_backbone(rows).items() for note in _panel_notes(backbone, panel))


def _panel_notes(backbone: str, rows: Sequence[Table2Row]) -> list[str]:
    notes = []
    if not any(row.is_pipe for row in rows):
        notes.append(f"Backbone {backbone} has no Pipe run, so no gain can be computed for it.")
    undefined = [
        f"{mechanism_label(row.mechanism)} {cell.metric} at {cell.horizon} sessions"
        for row in rows
        for cell in row.cells
        if math.isnan(cell.value)
    ]
    if undefined:
        more = f" and {len(undefined) - 4} more" if len(undefined) > 4 else ""
        notes.append(
            f"Backbone {backbone}: undefined on the common cells: {', '.join(undefined[:4])}{more}. "
            "A mean over the horizons needs all of them."
        )
    return notes


def format_coefficient(value: float) -> str:
    """Four decimals, a dash if undefined."""
    return "–" if math.isnan(value) else f"{value:.4f}"


def format_gain(value: float) -> str:
    """Four decimals with a sign, a dash if undefined."""
    return "–" if math.isnan(value) else f"{value:+.4f}"


def table2_markdown(rows: Sequence[Table2Row]) -> str:
    """The table as Markdown, arrows where a coefficient lies above Pipe's, notes below."""
    if not rows:
        return "No run to compare.\n"
    columns = [f"{cell.horizon}d {cell.metric}" for cell in rows[0].cells]
    head = ["Backbone", "Method", *columns, "ΔtsIC", "ΔcsIC"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * 2 + "---:|" * (len(head) - 2)]
    lines += ["| " + " | ".join([row.backbone, *row.texts()]) + " |" for row in rows]
    notes = [f"\n{note}" for note in table2_notes(rows)]
    return "\n".join([*lines, *notes]) + "\n"


def table2_csv(rows: Sequence[Table2Row]) -> str:
    """The table as CSV in full precision, with one true/false column per coefficient for the arrow.

    Undefined numbers are empty; text that a spreadsheet would run as a formula gets an apostrophe.
    """
    frame = pd.DataFrame(
        {
            "backbone": row.backbone,
            "method": row.label,
            **{f"{cell.metric}_{cell.horizon}": cell.value for cell in row.cells},
            "gain_tsIC": math.nan if row.is_pipe else row.gain_ts,
            "gain_csIC": math.nan if row.is_pipe else row.gain_cs,
            **{f"{cell.metric}_{cell.horizon}_above_pipe": str(cell.above_pipe).lower() for cell in row.cells},
        }
        for row in rows
    )
    return frame_csv(frame)


def frame_csv(frame: pd.DataFrame) -> str:
    """Any table as CSV: text cells safe for spreadsheets, undefined numbers empty, line feeds."""
    texts = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
    safe = frame.assign(**{name: frame[name].map(lambda cell: safe_cell(str(cell))) for name in texts})
    return safe.to_csv(index=False, lineterminator="\n")
