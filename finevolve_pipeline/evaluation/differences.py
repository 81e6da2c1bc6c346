"""Paired differences from Pipe as figures need them: with their intervals, and industry by industry.

What lives here: choosing and pairing rows. What must not: tests (see `Inference`), layout.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from finevolve_pipeline.evaluation.comparison import PIPE
from finevolve_pipeline.evaluation.significance import beyond_noise
from finevolve_pipeline.settings import Experiment

FOREST_COLUMNS = ("backbone", "mechanism", "stage", "metric", "horizon", "estimate", "low", "high", "p", "p_holm")


def forest_rows(inference: pd.DataFrame, stage: str, method: str, confidence: float) -> pd.DataFrame:
    """Every paired difference with its interval, in the order of `inference`, mechanisms in order of appearance.

    Args:
        inference: `Inference`.
        stage: cold_start, exploitation or overall.
        method: spearman or pearson.
        confidence: of the intervals; what lies beyond noise is found (see `significance`).

    Returns:
        `FOREST_COLUMNS`, minimum_detectable, and found: whether the Holm-adjusted p lies below the level.
    """
    chosen = inference[
        (inference["quantity"] == "difference")
        & (inference["stage"] == stage)
        & (inference["method"] == method)
        & (inference["mechanism"] != PIPE)
    ]
    rows = chosen.loc[:, [*FOREST_COLUMNS, "minimum_detectable"]].reset_index(drop=True)
    return rows.assign(found=[beyond_noise(p, confidence) is True for p in rows["p_holm"]])


def industry_differences(industries: pd.DataFrame, runs: Iterable[Experiment]) -> pd.DataFrame:
    """tsIC of each industry minus Pipe's, on common cells; means over runs that differ in their seed alone.

    Args:
        industries: experiment, code, horizon, ic (see `ic.industry_ic`).
        runs: the experiments; those without a Pipe run of their backbone are left out.

    Returns:
        backbone, mechanism, code, horizon, ic, pipe, difference (NaN where either is undefined, for any seed);
        without Pipe itself.
    """
    named = {run.key: (run.backbone, run.mechanism) for run in runs}
    keys = ["backbone", "mechanism", "code", "horizon"]
    known = industries.reindex(columns=["experiment", "code", "horizon", "ic"])
    known = known[known["experiment"].isin(list(named))]
    names = pd.DataFrame(known["experiment"].map(named).tolist(), columns=keys[:2], index=known.index)
    means = pd.concat([names, known], axis=1).groupby(keys, sort=False)["ic"].mean(skipna=False)
    values = means.to_dict()
    own = means.reset_index()
    own = own[
        (own["mechanism"] != PIPE) & own["backbone"].isin([name for name, kind in named.values() if kind == PIPE])
    ]
    places = own[["backbone", "code", "horizon"]].itertuples(index=False, name=None)
    pipe = [values.get((backbone, PIPE, code, horizon), np.nan) for backbone, code, horizon in places]
    paired = own.reset_index(drop=True).assign(pipe=np.array(pipe, dtype=float))
    return paired.assign(difference=paired["ic"] - paired["pipe"])
