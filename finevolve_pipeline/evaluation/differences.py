"""Paired differences from Pipe as figures need them: with their intervals, and industry by industry.

What lives here: choosing and pairing rows. What must not: tests (see `Inference`), layout.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from finevolve_pipeline.evaluation.comparison import PIPE
from finevolve_pipeline.settings import Experiment

FOREST_COLUMNS = ("backbone", "mechanism", "stage", "metric", "horizon", "estimate", "low", "high", "p", "p_holm")

SIGNIFICANT = 0.05
"""Holm-adjusted p below which a difference counts as found."""


def forest_rows(inference: pd.DataFrame, stage: str, method: str) -> pd.DataFrame:
    """Every paired difference with its interval, in the order of `inference`, mechanisms in order of appearance.

    Args:
        inference: `Inference`.
        stage: cold_start, exploitation or overall.
        method: spearman or pearson.

    Returns:
        `FOREST_COLUMNS`, minimum_detectable, and found: whether the Holm-adjusted p lies below `SIGNIFICANT`.
    """
    chosen = inference[
        (inference["quantity"] == "difference")
        & (inference["stage"] == stage)
        & (inference["method"] == method)
        & (inference["mechanism"] != PIPE)
    ]
    rows = chosen.loc[:, [*FOREST_COLUMNS, "minimum_detectable"]].reset_index(drop=True)
    return rows.assign(found=rows["p_holm"] < SIGNIFICANT)


def industry_differences(industries: pd.DataFrame, runs: Iterable[Experiment]) -> pd.DataFrame:
    """tsIC of each industry minus Pipe's, on common cells.

    Args:
        industries: experiment, code, horizon, ic (see `ic.industry_ic`).
        runs: the experiments; those without a Pipe run of their backbone are left out.

    Returns:
        experiment, code, horizon, ic, pipe, difference (NaN where either is undefined); without Pipe itself.
    """
    listed = list(runs)
    pipe = {run.backbone: run.key for run in listed if run.mechanism == PIPE}
    against = {run.key: pipe[run.backbone] for run in listed if run.mechanism != PIPE and run.backbone in pipe}
    keys = ["experiment", "code", "horizon"]
    known = industries.reindex(columns=[*keys, "ic"])
    values = known.set_index(keys)["ic"].to_dict()
    own = known[known["experiment"].isin(list(against))].reset_index(drop=True)
    places = own[keys].itertuples(index=False, name=None)
    reference = [values.get((against[key], code, horizon), np.nan) for key, code, horizon in places]
    paired = own.assign(pipe=np.array(reference, dtype=float))
    return paired.assign(difference=paired["ic"] - paired["pipe"])
