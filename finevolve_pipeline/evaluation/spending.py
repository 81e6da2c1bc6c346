"""What runs took of models, beside what they gained over Pipe.

What lives here: sums and their join with gains. What must not: reading manifests, prices, layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from finevolve_pipeline.evaluation.comparison import ALL_HORIZONS
from finevolve_pipeline.evaluation.ic import METRICS
from finevolve_pipeline.evaluation.stages import OVERALL
from finevolve_pipeline.settings import Experiment

TAKEN = ("calls", "prompt_tokens", "cached_prompt_tokens", "completion_tokens", "reasoning_tokens", "cost")
"""What a day took: see `replay.journal.Spent`. `cost` in USD."""

USAGE_COLUMNS = ("experiment", "session", *TAKEN)


def no_usage() -> pd.DataFrame:
    """The usage of no run."""
    return pd.DataFrame(columns=list(USAGE_COLUMNS))


def usage_table(days: Iterable[Mapping[str, object]]) -> pd.DataFrame:
    """Days of runs, each with the keys `USAGE_COLUMNS`, as a table."""
    return pd.DataFrame([dict(day) for day in days], columns=list(USAGE_COLUMNS))


def spending(usage: pd.DataFrame, inference: pd.DataFrame, runs: Iterable[Experiment], method: str) -> pd.DataFrame:
    """Per run what it took in all, and its mechanism's mean gain over Pipe with its interval.

    Args:
        usage: `USAGE_COLUMNS`.
        inference: `Inference`, may be empty.
        runs: the runs to list, in order; one without usage is left out.
        method: spearman or pearson.

    Returns:
        experiment, mechanism, backbone, sessions, `TAKEN`, and for tsIC and csIC gain_*, low_*, high_*: the
        mechanism's mean over the horizons of the whole window, and over its seeds. Numbers of Pipe's own gain are NaN.
    """
    sums = usage.groupby("experiment")[list(TAKEN)].sum()
    days = usage.groupby("experiment")["session"].nunique()
    listed = [run for run in runs if run.key in sums.index]
    gains = _mean_gains(inference, method)
    rows = [
        {
            "experiment": run.key,
            "mechanism": run.mechanism,
            "backbone": run.backbone,
            "sessions": int(days[run.key]),
            **sums.loc[run.key].to_dict(),
            **gains.get((run.backbone, run.mechanism), {}),
        }
        for run in listed
    ]
    names = [f"{name}_{metric}" for metric in METRICS for name in ("gain", "low", "high")]
    columns = ["experiment", "mechanism", "backbone", "sessions", *TAKEN, *names]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(names, float))


def _mean_gains(inference: pd.DataFrame, method: str) -> dict[tuple[str, str], dict[str, float]]:
    """By backbone and mechanism the columns `gain_*`, `low_*`, `high_*`."""
    chosen = inference[
        (inference["quantity"] == "difference")
        & (inference["horizon"] == ALL_HORIZONS)
        & (inference["stage"] == OVERALL)
        & (inference["method"] == method)
    ]
    found: dict[tuple[str, str], dict[str, float]] = {}
    for row in chosen.to_dict("records"):
        numbers = found.setdefault((row["backbone"], row["mechanism"]), {})
        numbers[f"gain_{row['metric']}"] = row["estimate"]
        numbers[f"low_{row['metric']}"], numbers[f"high_{row['metric']}"] = row["low"], row["high"]
    return found
