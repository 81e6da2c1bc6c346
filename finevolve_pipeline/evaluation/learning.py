"""The learning curve: whether a mechanism's lead over Pipe grows with the experience that has matured.

Matured experience of a session is the number of outcomes that a run has been given when it predicts on it: with labels
complete, N * sum over horizons h of max(0, k - h + 1) for N industries and the window's session number k = 0, 1, ...;
outcomes that become known on the session itself count, since they are given before it is predicted (paper, A.3). A
missing label never matures and is not counted. The number grows with time and with nothing else, so a trend in it may
be learning, or anything else that drifts: the difference from Pipe, which learns nothing, takes out what both share.

What lives here: the curve, its blocks, and the test of its slope. What must not: layout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from finevolve_pipeline.evaluation.comparison import PIPE
from finevolve_pipeline.evaluation.ic import Floats, Method, Panel, cross_sectional_ic
from finevolve_pipeline.evaluation.inference import holm_adjusted
from finevolve_pipeline.evaluation.long_run import t_p_value, t_quantile
from finevolve_pipeline.settings import EvaluationSettings, Experiment

_RUN = ("backbone", "mechanism")

BLOCKS = 10
"""Blocks of consecutive sessions into which the curve is cut."""

CURVE_COLUMNS = (
    "backbone",
    "mechanism",
    "horizon",
    "session",
    "matured",
    "ic",
    "pipe",
    "difference",
    "rolling_ic",
    "rolling_difference",
)


def matured_outcomes(panel: Panel) -> NDArray[np.int64]:
    """Outcomes of all horizons and industries known when each session is predicted, shape (sessions,)."""
    known = np.isfinite(panel.alpha).sum(axis=2)
    given = np.zeros(len(panel.axes.sessions), dtype=np.int64)
    for row, horizon in enumerate(panel.axes.horizons):
        given[horizon:] += known[row, : max(0, len(given) - horizon)]
    return np.cumsum(given)


def learning_curve(
    panels: Mapping[Experiment, Panel], settings: EvaluationSettings, method: Method, window: int
) -> pd.DataFrame:
    """csIC of every mechanism and its difference from its backbone's Pipe beside matured experience.

    Of runs that differ in their seed alone it is the mean, on sessions on which each has a value.

    Args:
        panels: of all runs, scores on common cells.
        settings: minimum pairs.
        method: spearman or pearson.
        window: sessions of the rolling means; a mean exists if at least half of them have a value.

    Returns:
        `CURVE_COLUMNS`, a row a session; `difference` is NaN where either csIC is undefined or there is no Pipe run.
        Pipe's own rows have a difference of zero.
    """
    by_seed: dict[tuple[str, str], list[Floats]] = {}
    for experiment, panel in panels.items():
        daily = cross_sectional_ic(panel, settings, method).value
        by_seed.setdefault((experiment.backbone, experiment.mechanism), []).append(daily)
    means = {names: np.asarray(np.mean(series, axis=0)) for names, series in by_seed.items()}
    parts = []
    for (backbone, mechanism), values in means.items():
        pipe = means.get((backbone, PIPE), np.full_like(values, np.nan))
        frame = _curve_of(next(iter(panels.values())), values, pipe, window)
        parts.append(frame.assign(backbone=backbone, mechanism=mechanism).loc[:, list(CURVE_COLUMNS)])
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(CURVE_COLUMNS))


def _curve_of(panel: Panel, values: Floats, pipe: Floats, window: int) -> pd.DataFrame:
    horizons, sessions, _ = panel.axes.shape
    frame = pd.DataFrame(
        {
            "horizon": np.repeat(np.array(panel.axes.horizons, dtype=np.int16), sessions),
            "session": np.tile(np.array(panel.axes.sessions, dtype=object), horizons),
            "matured": np.tile(matured_outcomes(panel), horizons),
            "ic": values.reshape(-1),
            "pipe": pipe.reshape(-1),
            "difference": (values - pipe).reshape(-1),
        }
    ).astype({"session": str})
    by_horizon = frame.groupby("horizon", sort=False)
    for column in ("ic", "difference"):
        frame[f"rolling_{column}"] = by_horizon[column].transform(
            lambda series: series.rolling(window, min_periods=max(1, window // 2)).mean()
        )
    return frame


def learning_blocks(curve: pd.DataFrame, blocks: int = BLOCKS) -> pd.DataFrame:
    """The curve in blocks of consecutive sessions, as equal as they can be.

    Returns:
        backbone, mechanism, horizon, block (from 1), first, last (sessions), matured (mean number known), sessions
        (with a difference), ic, pipe, difference: means over the sessions of the block that have a value.
    """
    columns = [*_RUN, "horizon", "block", "first", "last", "matured", "sessions", "ic", "pipe", "difference"]
    if curve.empty:
        return pd.DataFrame(columns=columns)
    place = curve["session"].map({session: at for at, session in enumerate(sorted(set(curve["session"])))})
    count = int(place.max()) + 1
    block = place * min(blocks, count) // count + 1
    grouped = curve.assign(block=block).groupby([*_RUN, "horizon", "block"], sort=False)
    means = grouped[["matured", "ic", "pipe", "difference"]].mean()
    spans = grouped["session"].agg(first="min", last="max")
    sessions = grouped["difference"].count().rename("sessions")
    return pd.concat([means, spans, sessions], axis=1).reset_index().loc[:, columns]


@dataclass(frozen=True)
class Slope:
    """A linear trend and how far it can be told from none.

    Attributes:
        estimate: change per unit of x; NaN if it cannot be estimated, as all that follows.
        standard_error: of the estimate.
        degrees: of freedom of its t distribution.
        p: two-sided p-value of no trend.
        sessions: values that entered.
    """

    estimate: float
    standard_error: float
    degrees: int
    p: float
    sessions: int

    def interval(self, confidence: float) -> tuple[float, float]:
        """Both ends of the interval that covers the slope with this probability."""
        reach = t_quantile(self.degrees, confidence) * self.standard_error
        return self.estimate - reach, self.estimate + reach


def slope_test(x: Floats, y: Floats, terms: int) -> Slope:
    """Least-squares slope of y on x, tested with errors that may be correlated over time.

    The long-run variance comes from what is left of the `terms` lowest cosines once a constant and x are taken out of
    them: equal-weighted squared projections of y, each of which is a draw from the low-frequency part of the errors,
    as the slope itself is. Under a flat spectrum there and normal errors, t has exactly `terms` degrees of freedom.

    Args:
        x: the regressor by session, one dimension.
        y: the series. Sessions where it is not finite are left out, and the others keep their distance from each other.
        terms: how many cosines; more give power, fewer hold the size under longer memory.

    Returns:
        NaN where fewer than `terms` + 3 values are left, or x does not vary over them.

    Reference:
        The orthonormal-series long-run variance of Phillips (2005, Econometric Theory 21), with the basis made
        orthogonal to the regressors as Hwang and Sun (2017, Journal of Time Series Econometrics 9) do for trends.
    """
    there = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    x, y = x[there], y[there]
    count = int(y.size)
    if count < terms + 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return Slope(np.nan, np.nan, terms, np.nan, count)
    at = (there - there[0] + 0.5) / (there[-1] - there[0] + 1)
    cosines = np.cos(np.pi * np.outer(at, np.arange(1, terms + 1)))
    scale = float(x.std())
    basis, triangle = np.linalg.qr(np.column_stack([np.ones(count), (x - x.mean()) / scale, cosines]))
    projected = basis.T @ y
    per_unit = 1 / (triangle[1, 1] * scale)
    estimate = float(projected[1] * per_unit)
    error = float(np.sqrt(np.mean(projected[2:] ** 2)) * abs(per_unit))
    return Slope(estimate, error, terms, t_p_value(estimate / error, terms), count)


PER_OUTCOMES = 1000
"""Slopes are given per so many matured outcomes."""


def learning_slopes(curve: pd.DataFrame, settings: EvaluationSettings) -> pd.DataFrame:
    """Whether the difference from Pipe changes with matured experience, by mechanism and horizon.

    Over 800 simulated nulls each (31 industries, 299 sessions, overlapping returns, scores of autocorrelation 0.8 and
    0.95) the test with 8 terms rejects 4.8 to 5.6 % at nominal 5 %, and 7.4 % at 40 sessions and 0.95.

    Args:
        curve: see `learning_curve`, of one backbone; Pipe's own rows have no slope to test.
        settings: terms of the test, confidence of the interval.

    Returns:
        backbone, mechanism, horizon, sessions, slope (change of csIC per `PER_OUTCOMES` outcomes), standard_error, low,
        high, p, p_holm (Holm's adjusted p over all rows that have a p).
    """
    columns = [*_RUN, "horizon", "sessions", "slope", "standard_error", "low", "high", "p", "p_holm"]
    rows = []
    for names, part in curve.groupby([*_RUN, "horizon"], sort=False):
        x = part["matured"].to_numpy(dtype=float) / PER_OUTCOMES
        found = slope_test(x, part["difference"].to_numpy(dtype=float), settings.cosine_terms)
        low, high = found.interval(settings.confidence)
        rows.append([*names, found.sessions, found.estimate, found.standard_error, low, high, found.p])
    return _adjusted(pd.DataFrame(rows, columns=columns[:-1])).loc[:, columns]


def _adjusted(slopes: pd.DataFrame) -> pd.DataFrame:
    adjusted = slopes["p"].astype(float)
    tested = adjusted.notna()
    adjusted[tested] = holm_adjusted(np.asarray(adjusted[tested], dtype=np.float64))
    return slopes.assign(p_holm=adjusted)
