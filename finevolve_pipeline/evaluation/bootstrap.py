"""Joint-date block bootstrap of tsIC, and the calibration of its standard error.

A draw takes blocks of consecutive sessions (circular block bootstrap: Politis & Romano 1992) with all industries and
all compared runs of a session together, and computes every industry's correlation anew. Outcomes of h sessions overlap,
so a stage holds few blocks and the bootstrap alone is too narrow: its 95 % intervals cover 83 to 90 % in 299 sessions
(`benchmarks/calibration.py`). It is therefore measured on pairs that are known to be unrelated: the same scores beside
outcomes shifted around the stage by s sessions. Over all shifts the spread of the coefficient itself is known; over
some of them the bootstrap is run, and the ratio of the two variances corrects the bootstrap's variance:

    se^2 = Var*(tsIC) x mean over s of tsIC(s)^2 / mean over s of Var*(tsIC(s))

The t distribution has the equivalent degrees of freedom of a variance from blocks of length L: 3 T / (2 L).

Spearman: ranks are those of the stage and stay as they are in a draw. Ranking anew in every draw makes the plain
standard error 1 to 4 % larger and takes 60 times as long; the calibration measures the same bootstrap, so it makes up
for that.

What lives here: resampling of one stage. What must not: stages, tables, tests of daily series (see `long_run`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from finevolve_pipeline.evaluation.ic import Floats, Mask, Method, correlate, ranks

CALIBRATION_SHIFTS = 15
"""Into so many parts the shifts on which the bootstrap is run divide the stage."""

CALIBRATION_DRAWS = 100
"""Draws of each; the first ones of all draws."""

_FLAT = 1e-12
"""A draw in which a standardised side has no more variance than this (rounding) has no correlation."""


_NO_SPREAD = 1e-20
"""Coefficients whose variance is not above this are equal: the rest is rounding."""


@dataclass(frozen=True)
class Pairs:
    """Scores of runs and their outcomes within a stage, in units of each industry's standard deviation.

    Attributes:
        score: deviations from the industry's mean (of ranks, for Spearman), runs x sessions x industries; 0 where
            missing.
        outcome: the same, sessions x industries.
        valid: where both sides exist, in every run that has any.
        correlation: runs x industries, NaN where undefined.
    """

    score: Floats
    outcome: Floats
    valid: Mask
    correlation: Floats

    @property
    def defined(self) -> Mask:
        """Industries with a correlation, by run."""
        return np.isfinite(self.correlation)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Pairs by industry; 1 where there is none."""
        return np.asarray(np.maximum(self.valid.sum(axis=0), 1))


@dataclass(frozen=True)
class Resample:
    """tsIC under resampled dates. Differences and means of runs are differences and means of these.

    Attributes:
        draws: the coefficient by draw.
        shifted: the coefficient by shift of the outcomes, all shifts but none.
        shifted_draws: some shifts x some draws.
    """

    draws: Floats
    shifted: Floats
    shifted_draws: Floats

    def __add__(self, other: Resample) -> Resample:
        return Resample(
            self.draws + other.draws, self.shifted + other.shifted, self.shifted_draws + other.shifted_draws
        )

    def __mul__(self, factor: float) -> Resample:
        return Resample(self.draws * factor, self.shifted * factor, self.shifted_draws * factor)

    @property
    def plain_error(self) -> float:
        """Standard deviation over draws: the block bootstrap as it is, too small in short stages."""
        defined = self.draws[np.isfinite(self.draws)]
        return float(defined.std(ddof=1)) if defined.size > 1 else math.nan

    @property
    def error(self) -> float:
        """The calibrated standard error; NaN where nothing varies."""
        if not self.shifted_draws.size or not np.isfinite(self.shifted_draws).all():
            return math.nan
        bootstrap = float(self.shifted_draws.var(axis=1, ddof=1).mean())
        true = float((self.shifted**2).mean())
        # NaN compares as false, so an undefined spread ends here too.
        if not min(bootstrap, true, self.plain_error**2) > _NO_SPREAD:
            return math.nan
        return self.plain_error * math.sqrt(true / bootstrap)


def make_pairs(scores: Floats, alpha: Floats, valid: Mask, min_sessions: int, method: Method) -> Pairs:
    """Standardised pairs of runs within a stage, at one horizon.

    Args:
        scores: runs x sessions x industries, NaN where missing.
        alpha: sessions x industries.
        valid: the cells that count, sessions x industries; a run has a score in all of them or in none.
        min_sessions: with fewer pairs an industry's correlation is undefined.
        method: spearman (average ranks within the stage) or pearson.
    """
    outcomes = np.where(valid, alpha, np.nan)
    by_run = np.broadcast_to(outcomes, scores.shape)
    correlation = correlate(scores, by_run, axis=1, min_pairs=min_sessions, method=method).value
    score = np.array([_standardised(run, valid & np.isfinite(run), method) for run in scores]).reshape(scores.shape)
    return Pairs(score, _standardised(outcomes, valid, method), valid, correlation)


def _standardised(values: Floats, valid: Mask, method: Method) -> Floats:
    if method == "spearman" and values.size:
        values = ranks(values.T, valid.T).T
    count = np.maximum(valid.sum(axis=0), 1)
    deviation = np.where(valid, values - np.where(valid, values, 0.0).sum(axis=0) / count, 0.0)
    # Scaling first keeps squares of very small scores from underflow.
    largest = np.abs(deviation).max(axis=0, initial=0.0)
    deviation = deviation / np.where(largest > 0, largest, 1.0)
    spread = np.sqrt((deviation**2).sum(axis=0) / count)
    return np.asarray(deviation / np.where(spread > 0, spread, 1.0))


def influence(pairs: Pairs) -> Floats:
    """Each session's share in the error of tsIC (runs x sessions; adds up to zero): the coefficient's linearisation.

    mean over industries of [z w - r (z^2 + w^2) / 2] / n,  z and w standardised, r the correlation of n pairs
    """
    z, w, r = pairs.score, pairs.outcome, np.where(pairs.defined, pairs.correlation, 0.0)[:, None, :]
    share = (z * w - r * (z**2 + w**2) / 2.0) / pairs.counts
    return _mean_over_industries(share, pairs.defined[:, None, :])


def _mean_over_industries(values: Floats, defined: Mask) -> Floats:
    """Mean over the last axis of what is defined, NaN if nothing is."""
    defined = np.broadcast_to(defined, values.shape)
    count = defined.sum(axis=-1)
    total = np.where(defined, values, 0.0).sum(axis=-1)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))


def block_length(horizon: int, sessions: int) -> int:
    """Sessions of a block: the horizon, and not less than the cube root of the stage."""
    return max(horizon, math.ceil(math.cbrt(sessions)))


def equivalent_degrees(sessions: int, block: int) -> float:
    """Degrees of freedom of a variance estimated from overlapping blocks."""
    return 1.5 * sessions / block


def block_weights(sessions: int, block: int, draws: int, seed: int) -> Floats:
    """How often each draw takes each session (draws x sessions); every row adds up to `sessions`.

    Blocks go round from the last session to the first; the last block of a draw is cut to fit. The numbers depend on
    the arguments alone, so every run, horizon and method of a stage can be given the same dates.

    Raises:
        ValueError: a block is not shorter than the stage.
    """
    if not 1 <= block < sessions:
        raise ValueError(f"block of {block} sessions: must be at least 1 and shorter than the stage of {sessions}")
    blocks = math.ceil(sessions / block)
    starts = np.random.default_rng([seed, sessions, block]).integers(0, sessions, (draws, blocks))
    taken = (starts[:, :, None] + np.arange(block)).reshape(draws, -1)[:, :sessions] % sessions
    flat = taken + sessions * np.arange(draws)[:, None]
    return np.bincount(flat.ravel(), minlength=draws * sessions).reshape(draws, sessions).astype(np.float64)


def _correlations(n: Floats, x: Floats, y: Floats, xx: Floats, yy: Floats, xy: Floats) -> Floats:
    """Correlations from weighted sums of standardised sides; NaN where a side is flat."""
    x, y = x / n, y / n
    of_x, of_y = xx / n - x * x, yy / n - y * y
    flat = (of_x <= _FLAT) | (of_y <= _FLAT)
    return np.asarray(np.where(flat, np.nan, (xy / n - x * y) / np.sqrt(np.where(flat, 1.0, of_x * of_y))))


def _draws(weights: Floats, pairs: Pairs) -> Iterator[Floats]:
    """tsIC by draw, run by run."""
    w = pairs.outcome
    n = np.maximum(weights @ pairs.valid.astype(np.float64), 1.0)
    of_outcome, of_its_square = weights @ w, weights @ (w * w)
    for z, defined in zip(pairs.score, pairs.defined, strict=True):
        sums = weights @ np.hstack([z, z * z, z * w])
        x, xx, xy = np.split(sums, 3, axis=1)
        found = _correlations(n, x, of_outcome, xx, of_its_square, xy)
        yield _mean_over_industries(found, defined & np.isfinite(found))


def _shifted(pairs: Pairs) -> Floats:
    """tsIC by shift of the outcomes around the stage, runs x shifts from 1 to sessions - 1."""
    spectrum = np.conj(np.fft.rfft(pairs.score, axis=1)) * np.fft.rfft(pairs.outcome, axis=0)
    crossed = np.fft.irfft(spectrum, pairs.score.shape[1], axis=1)[:, 1:]
    return _mean_over_industries(crossed / pairs.counts, pairs.defined[:, None, :])


def _shifted_draws(weights: Floats, pairs: Pairs) -> Iterator[Floats]:
    """tsIC by shift and draw, run by run.

    Missing cells are zero deviations here: they lower the coefficient's spread and the bootstrap's alike.
    """
    sessions = pairs.score.shape[1]
    evenly = np.arange(1, CALIBRATION_SHIFTS) * sessions // CALIBRATION_SHIFTS
    shifts = np.unique(evenly[evenly > 0])
    moved = pairs.outcome[(np.arange(sessions)[:, None] + shifts) % sessions]

    def summed(values: Floats) -> Floats:
        """Weighted sums over the sessions (first axis): the other axes, with the draws before the industries."""
        return np.asarray(np.tensordot(weights, values, axes=1).swapaxes(0, -2))

    of_outcome, of_its_square = summed(moved), summed(moved * moved)
    for z, defined in zip(pairs.score, pairs.defined, strict=True):
        found = _correlations(
            pairs.counts.astype(np.float64),
            summed(z),
            of_outcome,
            summed(z * z),
            of_its_square,
            summed(z[:, None, :] * moved),
        )
        yield _mean_over_industries(found, defined & np.isfinite(found))


def resample(pairs: Pairs, weights: Floats) -> list[Resample]:
    """tsIC of every run under every draw of `weights` (see `block_weights`), and under shifted outcomes."""
    if not len(weights):
        return [Resample(np.zeros(0), np.zeros(0), np.zeros((0, 0))) for _ in pairs.score]
    some = weights[:CALIBRATION_DRAWS]
    each = zip(_draws(weights, pairs), _shifted(pairs), _shifted_draws(some, pairs), strict=True)
    return [Resample(*of_run) for of_run in each]
