"""Standard errors and tests of a mean over days that are not independent, because returns over h sessions overlap.

Four estimates of the long-run variance and the tests that go with them:

- equal-weighted cosine: mean of squared cosine projections; t with as many degrees as cosines
  (Lazarus, Lewis, Stock & Watson 2018, "HAR inference: recommendations for practice", JBES 36, 541-559);
- Newey & West (1987), Bartlett weights, through statsmodels; with normal critical values, or
- with fixed-b ones, which know that the variance is estimated (Kiefer & Vogelsang 2005, "A new asymptotic theory for
  heteroskedasticity-autocorrelation robust tests", Econometric Theory 21, 1130-1164);
- Hansen & Hodrick (1980), flat weights, through statsmodels; its variance may come out negative.

Undefined days keep their place: the mean is the regression of d(t) y(t) on d(t), where d is 1 on defined days and 0 on
others, so residuals are 0 on undefined days and two days lie as far apart as they did on the calendar (amplitude
modulation: Parzen 1963; Datta & Du 2012). Gaps are never closed. Undefined days before the first and after the last
defined one are no part of the series.

What lives here: statistics of one series. What must not: correlations, panels, tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats
from statsmodels.stats import sandwich_covariance

Floats = NDArray[np.float64]

POWER = 0.8
"""Power of the minimum detectable size."""

ROUNDING = 1e-12
"""Series are of correlations, so they are constant where they vary by less than this."""

_STEP = 0.2
_LOGARITHMS = np.arange(-36.0, 36.0, _STEP)
"""Where `fixed_b_p_value` takes its integrand: a trapezoidal sum with an error of about 1e-14."""


@dataclass(frozen=True)
class Series:
    """A number estimated from a series of sessions, and each session's share in its error.

    For a mean of n values the share is (value - mean) / n. Sums and multiples of series over the same sessions are
    those of the numbers, so a paired difference, or a mean over seeds or horizons, needs no rule of its own.

    Attributes:
        estimate: the number; NaN if there is none.
        influence: by session; adds up to zero; 0 on undefined days.
        defined: which sessions have a value.
    """

    estimate: float
    influence: Floats
    defined: NDArray[np.bool_]

    def __add__(self, other: Series) -> Series:
        return Series(self.estimate + other.estimate, self.influence + other.influence, self.defined | other.defined)

    def __mul__(self, factor: float) -> Series:
        return Series(self.estimate * factor, self.influence * factor, self.defined)

    @property
    def count(self) -> int:
        """Defined days."""
        return int(self.defined.sum())

    @cached_property
    def within(self) -> Floats:
        """`influence` from the first to the last defined day."""
        at = np.flatnonzero(self.defined)
        return self.influence[at[0] : at[-1] + 1] if at.size else np.zeros(0)

    @property
    def span(self) -> int:
        """Sessions from the first to the last defined day."""
        return int(self.within.size)

    @property
    def varies(self) -> bool:
        """Whether there are two values that differ by more than rounding."""
        if self.count < 2 or not math.isfinite(self.estimate):
            return False
        largest = self.count * float(np.abs(self.within).max())
        return largest > ROUNDING * max(1.0, abs(self.estimate))


def make_series(values: Floats) -> Series:
    """The mean of `values` by session (one dimension, NaN where undefined)."""
    values = np.asarray(values, dtype=np.float64)
    defined = np.isfinite(values)
    if not defined.any():
        return Series(math.nan, np.zeros(values.size), defined)
    mean = float(values[defined].mean())
    return Series(mean, np.where(defined, values - mean, 0.0) / defined.sum(), defined)


_NOTHING = 1e-6
"""A variance below this share of the one of independent values is rounding, or a cancellation that means nothing."""


def _root(variance: float, series: Series) -> float:
    independent = float((series.within**2).sum())
    return math.sqrt(variance) if series.varies and variance > _NOTHING * independent else math.nan


def cosine_terms(sessions: int, horizon: int, most: int) -> int:
    """How many cosines to use: at least 2, at most `most`, and 2/3 of the spans of h sessions that do not overlap.

    A term j has a half-wave of T / j sessions; one much shorter than the horizon sees less variance than the mean has.
    With 8 terms a true null at h = 40 and persistent scores is rejected in 7 % (T = 299) or 20 % (T = 99) of samples.
    """
    return min(most, max(2, math.ceil(2 * sessions / (3 * horizon))))


def cosine_error(series: Series, terms: int) -> float:
    """Standard error by the equal-weighted cosine estimate; its t has `terms` degrees of freedom.

        X(j) = sqrt(2) sum over t = 1 .. T of cos(pi j (t - 1/2) / T) u(t),  se^2 = mean of X(j)^2 over j = 1 .. terms

    with u the influence. NaN for a constant series, or if `terms` is below 1 or not below the number of defined days.
    """
    if not 1 <= terms < series.count:
        return math.nan
    angles = math.pi * np.outer(np.arange(1, terms + 1), (np.arange(series.span) + 0.5) / series.span)
    projections = math.sqrt(2.0) * np.cos(angles) @ series.within
    return _root(float((projections**2).mean()), series)


def newey_west_error(series: Series, lag: int) -> float:
    """Standard error with Bartlett weights 1 - k / (lag + 1), without a correction for small samples.

    NaN for a constant series, or one not longer than `lag`.
    """
    return _kernel_error(series, lag, sandwich_covariance.weights_bartlett)


def hansen_hodrick_error(series: Series, lag: int) -> float:
    """Standard error with weight 1 up to `lag`; NaN where that variance is not clearly positive.

    NaN also for a constant series, or one not longer than `lag`.
    """
    return _kernel_error(series, lag, sandwich_covariance.weights_uniform)


def _kernel_error(series: Series, lag: int, weights: Callable[[int], Floats]) -> float:
    if series.span <= lag or not series.varies:
        return math.nan
    variance = sandwich_covariance.S_hac_simple(series.within[:, None], nlags=lag, weights_func=weights)
    return _root(float(variance[0, 0]), series)


def naive_error(series: Series) -> float:
    """Standard error if values were independent: s / sqrt(n). NaN for a constant series."""
    if not series.varies:
        return math.nan
    return _root(float((series.within**2).sum()) * series.count / (series.count - 1), series)


def t_p_value(statistic: float, degrees: float) -> float:
    """Two-sided p-value of a t statistic; infinite degrees are the normal distribution. NaN stays NaN."""
    return float(2.0 * (stats.norm.sf(abs(statistic)) if math.isinf(degrees) else stats.t.sf(abs(statistic), degrees)))


def t_quantile(degrees: float, confidence: float) -> float:
    """How many standard errors lie between the estimate and either end of its interval; NaN for NaN degrees."""
    return float(stats.t.ppf(0.5 + confidence / 2.0, degrees))


@lru_cache(maxsize=256)
def _bartlett_roots(sessions: int, lag: int) -> Floats:
    """Eigenvalues of the Newey-West variance of a mean of `sessions` independent values, as a quadratic form."""
    distance = np.abs(np.subtract.outer(np.arange(sessions), np.arange(sessions)))
    weights = np.maximum(1.0 - distance / (lag + 1.0), 0.0)
    centred = weights - weights.mean(axis=0)
    centred -= centred.mean(axis=1)[:, None]
    roots = np.linalg.eigvalsh(centred / sessions)
    return np.asarray(roots[roots > 1e-12])


def fixed_b_p_value(statistic: float, sessions: int, lag: int) -> float:
    """Two-sided p-value of a mean over its Newey-West error, under fixed-b asymptotics with b = (lag + 1) / sessions.

    The limit of the statistic is Z / sqrt(Q): Z normal, Q = sum of l(j) chi2(j), independent. Craig's form of the
    normal tail, averaged over Q and with the angle replaced by the logarithm of its cotangent, gives

        P(|Z| > x sqrt(Q)) = 1/pi x integral over all s of prod of (1 + x^2 l(j) (1 + exp(2 s)))^(-1/2) / cosh(s)

    The l(j) are taken for `sessions` values instead of the limit, so that short series are exact for independent normal
    values.

    Returns:
        NaN for a statistic that is NaN, or `sessions` not above `lag`.
    """
    if math.isnan(statistic) or sessions <= lag:
        return math.nan
    growth = statistic**2 * np.outer(_bartlett_roots(sessions, lag), 1.0 + np.exp(2.0 * _LOGARITHMS))
    tail = np.exp(-0.5 * np.log1p(growth).sum(axis=0)) / np.cosh(_LOGARITHMS)
    return float(min(1.0, _STEP / math.pi * tail.sum()))


@lru_cache(maxsize=256)
def detectable_ratio(degrees: float, confidence: float, power: float = POWER) -> float:
    """Size over standard error that a two-sided t test at level 1 - confidence finds, on the right side, with `power`.

    From the noncentral t distribution; the chance to find it on the wrong side is left out. NaN for NaN degrees.
    """
    if math.isnan(degrees):
        return math.nan
    critical = t_quantile(degrees, confidence)

    def lacking(ratio: float) -> float:
        # The noncentral distribution of SciPy fails far from its middle, where the power is 1.
        found = float(stats.nct.sf(critical, degrees, ratio))
        return (1.0 if math.isnan(found) else found) - power

    return float(optimize.brentq(lacking, 0.0, 10.0 * critical))
