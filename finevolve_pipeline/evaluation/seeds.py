"""Seeds and the noise floor: how much of a coefficient, and of a gain over Pipe, is the luck of one run.

Two runs that differ in their seed alone saw the same news on the same days; how far their coefficients lie apart comes
from the samples of the model alone. So every coefficient stands here with two kinds of uncertainty: over seeds, and
over sessions (the sampling error of `inference`). The differences between runs of Pipe itself are the noise floor: a
gain below it is what Pipe gains over Pipe.

What lives here: these spreads. What must not: sampling errors (see `inference`), texts of the report.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations

import numpy as np
import pandas as pd

from finevolve_pipeline.evaluation.comparison import ALL_HORIZONS, PIPE, compare_with_pipe
from finevolve_pipeline.evaluation.ic import COMMON
from finevolve_pipeline.mechanisms.registry import KIND, SEED, sample_seed
from finevolve_pipeline.mechanisms.seeding import combined
from finevolve_pipeline.settings import Settings

_WHERE = ["backbone", "stage", "metric", "method", "horizon"]
_RUN = ["experiment", "mechanism", "backbone", "stage", "metric", "method"]

DIFFERENCES = [*_WHERE, "first", "second", "difference"]
"""Columns of `differences`."""


def samples_of_pipe(settings: Settings) -> tuple[str, ...]:
    """Keys of the experiments that are Pipe with samples of their own: its seeds, and sections of its kind.

    One that asks for the samples of another (a section without a seed of its own) is that run again and left out.
    """
    found: dict[tuple[str, int], str] = {}
    for experiment in settings.all_experiments:
        name = experiment.mechanism
        section = settings.mechanisms[name]
        if section.get(KIND, name) == PIPE:
            seed = combined(f"mechanisms.{name}.{SEED}", sample_seed(name, section), experiment.seed)
            found.setdefault((experiment.backbone, seed), experiment.key)
    return tuple(found.values())


def differences(coefficients: pd.DataFrame, same: Collection[str]) -> pd.DataFrame:
    """The differences between runs that should say the same, each pair of a backbone once.

    Args:
        coefficients: rows of an IC matrix; only `cells == common` is read.
        same: keys of the runs (see `samples_of_pipe`); those that have not been replayed are left out.

    Returns:
        backbone, stage, metric, method, horizon (0: mean over the horizons), first, second (experiments),
        difference (the second's less the first's, NaN where a coefficient is undefined).
    """
    values = _of_runs(coefficients)
    values = values[values["experiment"].isin(list(same))]
    rows = [
        (*where, first, second, other - value)
        for where, part in values.groupby(_WHERE, sort=False)
        for (first, value), (second, other) in combinations(zip(part["experiment"], part["value"], strict=True), 2)
    ]
    return pd.DataFrame(rows, columns=DIFFERENCES).astype({"horizon": "int16", "difference": float})


def noise_floor(coefficients: pd.DataFrame, inference: pd.DataFrame, same: Collection[str]) -> pd.DataFrame:
    """Spread over seeds and sampling error of every mechanism's coefficients, and its gain beside the noise floor.

    With K seeds, s their standard deviation (divisor K - 1) and e the standard error of their mean over sessions, one
    run's variance is s^2 + (e^2 - s^2 / K): the mean has already lost all but a K-th of the seeds' part.

    Args:
        coefficients: rows of an IC matrix; only `cells == common` is read.
        inference: `Inference` of the same runs, for its standard errors; without a row they are NaN.
        same: keys of the runs that should say the same (see `samples_of_pipe`).

    Returns:
        A row per row of `comparison`, with its columns (means over seeds; horizon 0: mean over the horizons) and

        - seed_sd: s; NaN with one seed.
        - standard_error: e; NaN for means over the horizons.
        - seed_share: s^2 / (s^2 + e^2 - s^2 / K), the share of one run's variance that is due to its seed, at most 1.
        - gain_standard_error: of the gain over Pipe, over sessions.
        - floor: root mean square of `differences`; NaN without a pair.
        - pairs: differences that entered it.
        - exceeds: 1 if the gain, whatever its sign, is larger than the floor, 0 if not; NaN without a floor, for Pipe
            itself, and where all runs of Pipe are alike. The floor is that of single runs: means over seeds are held
            to more than they need.
    """
    of_mechanism = ["mechanism", *_WHERE]
    found = compare_with_pipe(coefficients)
    spread = _of_runs(coefficients).groupby(of_mechanism, sort=False)["value"].std(skipna=False)
    found = found.merge(spread.rename("seed_sd").reset_index(), on=of_mechanism, how="left", validate="one_to_one")
    for quantity, column in (("level", "standard_error"), ("difference", "gain_standard_error")):
        errors = inference.loc[inference["quantity"] == quantity, [*of_mechanism, "standard_error"]]
        errors = errors.rename(columns={"standard_error": column})
        found = found.merge(errors, on=of_mechanism, how="left", validate="one_to_one")
    found = found.merge(_floor(differences(coefficients, same)), on=_WHERE, how="left", validate="many_to_one")
    return found.assign(
        pairs=found["pairs"].fillna(0).astype("int32"), seed_share=_seed_share(found), exceeds=_exceeds(found)
    )


def _of_runs(coefficients: pd.DataFrame) -> pd.DataFrame:
    """The coefficient of every run on common cells, by horizon and as their mean where all are defined."""
    rows = coefficients.loc[coefficients["cells"] == COMMON, [*_RUN, "horizon", "value"]]
    means = rows.groupby(_RUN, sort=False)["value"].mean(skipna=False).reset_index().assign(horizon=ALL_HORIZONS)
    return pd.concat([rows, means], ignore_index=True).astype({"horizon": "int16"})


def _floor(pairs: pd.DataFrame) -> pd.DataFrame:
    """Root mean square of the differences, and how many there are, by where they were taken."""
    squares = pairs.assign(square=pairs["difference"] ** 2).groupby(_WHERE, sort=False)["square"]
    return pd.DataFrame({"floor": np.sqrt(squares.mean()), "pairs": squares.count()}).reset_index()


def _seed_share(found: pd.DataFrame) -> pd.Series[float]:
    of_seeds, of_mean = found["seed_sd"] ** 2, found["standard_error"] ** 2
    of_run = of_seeds + (of_mean - of_seeds / found["seeds"])
    return (of_seeds / of_run.where(of_run > 0)).clip(upper=1.0)


def _exceeds(found: pd.DataFrame) -> pd.Series[float]:
    tells = (found["floor"] > 0) & found["gain"].notna() & (found["mechanism"] != PIPE)
    return (found["gain"].abs() > found["floor"]).astype(float).where(tells)
