"""Comparison of mechanisms with Pipe: the IC matrix, gains as in the paper's Table 2.

What lives here: differences. What must not: correlations (see `ic`), rows of tables and their text (see `layout`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from finevolve_pipeline.evaluation.ic import (
    COMMON,
    common_cells,
    horizons_of,
    make_axes,
    make_panels,
    panel_coefficients,
)
from finevolve_pipeline.settings import EvaluationSettings, Experiment
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
    "mem0_full": "Mem0 (original)",
    "memrl_original": "MemRL (original)",
    "reflexion_original": "Reflexion (original)",
    "expel_original": "ExpeL (original)",
    "pipe_aa": "Pipe A/A",
}


def mechanism_label(mechanism: str) -> str:
    """How people write a mechanism's name: `memrl` is MemRL; unknown names stay as they are."""
    return _LABELS.get(mechanism, mechanism)


def experiment_label(experiment: Experiment, words: Callable[..., str] = str.format) -> str:
    """How people write which run of a backbone it is: `Mem0`, or `Mem0, seed 1`.

    Args:
        experiment: the run.
        words: fills a text's braces from keywords, in the language that is wanted; English by default.
    """
    name = mechanism_label(experiment.mechanism)
    return words("{mechanism}, seed {seed}", mechanism=name, seed=experiment.seed) if experiment.seed else name


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
