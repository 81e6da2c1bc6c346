"""How far coefficients, and their differences from Pipe, can be told from chance: the table `inference`.

All on the cells common to a backbone's runs. The default test of csIC is the equal-weighted cosine one on the daily
coefficients; that of tsIC the calibrated joint-date block bootstrap. Newey-West, Hansen-Hodrick and the naive test
stand beside them for comparison with other papers: for csIC on the daily coefficients, for tsIC on each session's
influence on the coefficient (its linearisation), which has no exact counterpart in those papers.

Runs of one mechanism that differ in their seed are averaged: the coefficient is the mean over seeds, and the difference
that of this mean from Pipe's mean over its seeds, session by session.

What lives here: which numbers are tested, against what, in which family. What must not: correlations (`ic`), variances
(`long_run`, `bootstrap`), words.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np
import pandas as pd
from scipy.stats import false_discovery_control

from finevolve_pipeline.evaluation import bootstrap, long_run
from finevolve_pipeline.evaluation.bootstrap import Resample
from finevolve_pipeline.evaluation.comparison import ALL_HORIZONS, PIPE
from finevolve_pipeline.evaluation.ic import (
    METHODS,
    Cells,
    Floats,
    Method,
    Panel,
    common_cells,
    correlate,
    horizons_of,
    make_axes,
    make_panels,
)
from finevolve_pipeline.evaluation.long_run import Series
from finevolve_pipeline.evaluation.stages import STAGES, Stage, split_stages
from finevolve_pipeline.settings import EvaluationSettings, Experiment
from finevolve_pipeline.tables import Inference, conform, empty
from finevolve_pipeline.universe import CODES

LEVEL, DIFFERENCE = "level", "difference"

_FAMILY = ["backbone", "stage", "method", "quantity"]
"""Tests that are adjusted together: both metrics, all mechanisms and horizons."""


@dataclass(frozen=True)
class Scope:
    """What is tested, and how.

    Attributes:
        stages: by name.
        methods: correlations.
        undefined: what an undefined correlation counts in a mean; NaN: it is left out.
    """

    stages: tuple[str, ...] = STAGES
    methods: tuple[Method, ...] = METHODS
    undefined: float = math.nan


@dataclass(frozen=True)
class Coefficient:
    """A coefficient, or a sum or multiple of some, with what its tests need.

    Attributes:
        series: the estimate and each session's share in its error.
        correlations: what it is the mean of: by session (csIC) or industry (tsIC); NaN where undefined.
        resample: tsIC by draws of blocks that fit its horizon; None for csIC.
        joint: the same by draws that all horizons share.
    """

    series: Series
    correlations: Floats
    resample: Resample | None = None
    joint: Resample | None = None

    def __add__(self, other: Coefficient) -> Coefficient:
        return Coefficient(
            self.series + other.series,
            self.correlations + other.correlations,
            self.resample + other.resample if self.resample and other.resample else None,
            self.joint + other.joint if self.joint and other.joint else None,
        )

    def __mul__(self, factor: float) -> Coefficient:
        return Coefficient(
            self.series * factor,
            self.correlations * factor,
            self.resample * factor if self.resample else None,
            self.joint * factor if self.joint else None,
        )

    def __sub__(self, other: Coefficient) -> Coefficient:
        return self + other * -1.0


def _mean(coefficients: Sequence[Coefficient]) -> Coefficient:
    return reduce(add, coefficients) * (1.0 / len(coefficients))


def inference(
    predictions: Mapping[Experiment, pd.DataFrame],
    alpha: pd.DataFrame,
    sessions: Sequence[str | dt.date],
    settings: EvaluationSettings,
    codes: tuple[str, ...] = CODES,
) -> pd.DataFrame:
    """The table `inference` of stored predictions. Arguments as `comparison.ic_matrix`.

    Returns:
        `Inference`; mechanism by mechanism in the order given, levels before differences, the mean over the horizons
        last.
    """
    axes = make_axes(sessions, horizons_of(alpha, *predictions.values()), codes)
    return infer(make_panels(predictions, alpha, axes), settings)


def infer(panels: Mapping[Experiment, Panel], settings: EvaluationSettings, scope: Scope | None = None) -> pd.DataFrame:
    """The table `inference` of panels, or a part of it; those of a backbone share one grid."""
    scope = scope or Scope()
    rows: list[dict[str, object]] = []
    for backbone, cells in common_cells(panels).items():
        runs = _Runs.of({e: panel for e, panel in panels.items() if e.backbone == backbone}, cells)
        for stage in split_stages(cells.axes.sessions, settings):
            if stage.name in scope.stages:
                tested = _Tested(runs, stage, settings, scope)
                rows += [{"backbone": backbone, "stage": stage.name, **row} for row in tested.rows()]
    if not rows:
        return empty(Inference)
    frame = with_adjusted_p(pd.DataFrame(rows))
    position = frame.groupby(["backbone", "mechanism"], sort=False).ngroup()
    return conform(frame.iloc[position.argsort(kind="stable")], Inference, "inference")


@dataclass(frozen=True)
class _Runs:
    """All runs of a backbone on their common cells.

    Attributes:
        positions: of each mechanism's runs, one per seed, on the first axis of `score`.
        horizons: in sessions.
        score: runs x horizons x sessions x industries, NaN outside the common cells.
        alpha: horizons x sessions x industries.
    """

    positions: Mapping[str, tuple[int, ...]]
    horizons: tuple[int, ...]
    score: Floats
    alpha: Floats

    @staticmethod
    def of(panels: Mapping[Experiment, Panel], cells: Cells) -> _Runs:
        """A run without a valid cell is left out where its mechanism has another."""
        by_mechanism: dict[str, list[Panel]] = {}
        for experiment, panel in panels.items():
            by_mechanism.setdefault(experiment.mechanism, []).append(panel.within(cells))
        chosen = {name: [p for p in runs if p.valid.mask.any()] or runs[:1] for name, runs in by_mechanism.items()}
        ends = np.cumsum([len(runs) for runs in chosen.values()]).tolist()
        return _Runs(
            {name: tuple(range(end - len(runs), end)) for (name, runs), end in zip(chosen.items(), ends, strict=True)},
            cells.axes.horizons,
            np.stack([panel.score for runs in chosen.values() for panel in runs]),
            next(iter(panels.values())).alpha,
        )


class _Tested:
    """All coefficients of a backbone within a stage, and their tests."""

    def __init__(self, runs: _Runs, stage: Stage, settings: EvaluationSettings, scope: Scope) -> None:
        self._runs = runs
        self._scope = scope
        self._stage = stage
        self._settings = settings
        self._weights = stage_weights(stage.size, runs.horizons, settings)
        self._of_scores = {
            horizon: [
                _of_scores(score[position, stage.positions], runs.alpha[position, stage.positions])
                for score in runs.score
            ]
            for position, horizon in enumerate(runs.horizons)
        }

    def rows(self) -> Iterator[dict[str, object]]:
        """Rows of the table, without adjusted p-values."""
        for method in self._scope.methods:
            for metric, coefficients in self._coefficients(method):
                for name, positions in self._runs.positions.items():
                    seeds = [coefficients[position] for position in positions]
                    pipes = [coefficients[position] for position in self._runs.positions.get(PIPE, ())]
                    rows = [*self._levels(seeds, positions)]
                    if pipes and name != PIPE:
                        rows += self._differences(seeds, pipes)
                    yield from ({"mechanism": name, "metric": metric, "method": method, **row} for row in rows)

    def _levels(self, seeds: Sequence[Sequence[Coefficient]], positions: Sequence[int]) -> Iterator[dict[str, object]]:
        for horizon, of_seeds in zip(self._runs.horizons, zip(*seeds, strict=True), strict=True):
            of_scores = pd.DataFrame([self._of_scores[horizon][position] for position in positions]).mean()
            yield {
                "horizon": horizon,
                "quantity": LEVEL,
                **self._tests(_mean(of_seeds), horizon),
                **_over_seeds(of_seeds),
                **{str(name): value for name, value in of_scores.items()},
            }

    def _differences(
        self, seeds: Sequence[Sequence[Coefficient]], pipes: Sequence[Sequence[Coefficient]]
    ) -> Iterator[dict[str, object]]:
        differences = []
        by_horizon = zip(self._runs.horizons, zip(*seeds, strict=True), zip(*pipes, strict=True), strict=True)
        for horizon, of_seeds, of_pipes in by_horizon:
            differences.append(_mean(of_seeds) - _mean(of_pipes))
            yield {
                "horizon": horizon,
                "quantity": DIFFERENCE,
                **self._tests(differences[-1], horizon),
                **_over_seeds(of_seeds),
            }
        if differences:
            # Only draws that all horizons share can be averaged over them.
            average = _mean([replace(difference, resample=difference.joint) for difference in differences])
            yield {
                "horizon": ALL_HORIZONS,
                "quantity": DIFFERENCE,
                **self._tests(average, max(self._runs.horizons)),
                **_over_seeds([_mean([replace(at, resample=None) for at in seed]) for seed in seeds]),
            }

    def _coefficients(self, method: Method) -> Iterator[tuple[str, list[list[Coefficient]]]]:
        """tsIC and csIC by run and horizon."""
        runs, at = self._runs, self._stage.positions
        of_horizons = [(runs.score[:, k, at], runs.alpha[k, at]) for k in range(len(runs.horizons))]
        time_series = [
            time_series_coefficients(score, alpha, horizon, self._weights, self._settings, method)
            for (score, alpha), horizon in zip(of_horizons, runs.horizons, strict=True)
        ]
        constant = self._scope.undefined
        filled = [[_industries_filled(found, constant) for found in of_runs] for of_runs in time_series]
        yield "tsIC", [list(run) for run in zip(*filled, strict=True)]
        cross_sections = [
            cross_sectional_coefficients(score, alpha, self._settings, method) for score, alpha in of_horizons
        ]
        filled = [[_days_filled(found, constant) for found in of_runs] for of_runs in cross_sections]
        yield "csIC", [list(run) for run in zip(*filled, strict=True)]

    def _tests(self, of: Coefficient, horizon: int) -> dict[str, object]:
        return tests(of, horizon, self._stage.size, self._settings)


def _days_filled(found: Coefficient, constant: float) -> Coefficient:
    """csIC with undefined days counted as `constant`; NaN: as it is."""
    if math.isnan(constant):
        return found
    values = np.where(np.isfinite(found.correlations), found.correlations, constant)
    return Coefficient(long_run.make_series(values), values)


def _industries_filled(found: Coefficient, constant: float) -> Coefficient:
    """tsIC with undefined industries counted as `constant`, which no draw changes; NaN, or none defined: as it is."""
    defined = np.isfinite(found.correlations)
    if math.isnan(constant) or not defined.any():
        return found
    weighted = found * float(defined.mean())
    estimate = weighted.series.estimate + float((~defined).mean()) * constant
    correlations = np.where(defined, found.correlations, constant)
    return replace(weighted, series=replace(weighted.series, estimate=estimate), correlations=correlations)


def cross_sectional_coefficients(
    scores: Floats, alpha: Floats, settings: EvaluationSettings, method: Method
) -> list[Coefficient]:
    """csIC of every run within a stage at one horizon.

    Args:
        scores: runs x sessions x industries, NaN where missing.
        alpha: sessions x industries.
        settings: minimum pairs.
        method: spearman or pearson.
    """
    by_run = np.broadcast_to(alpha, scores.shape)
    daily = correlate(scores, by_run, axis=2, min_pairs=settings.min_industries, method=method).value
    return [Coefficient(long_run.make_series(values), values) for values in daily]


def time_series_coefficients(
    scores: Floats,
    alpha: Floats,
    horizon: int,
    weights: Mapping[int, Floats],
    settings: EvaluationSettings,
    method: Method,
) -> list[Coefficient]:
    """tsIC of every run within a stage at one horizon, all runs on the cells that they have in common.

    Args:
        scores: runs x sessions x industries, NaN where missing; those that have any are missing in the same cells.
        alpha: sessions x industries.
        horizon: in sessions.
        weights: draws of dates by block length (see `stage_weights`).
        settings: minimum pairs.
        method: spearman or pearson.
    """
    sessions = scores.shape[1]
    valid = np.isfinite(scores).any(axis=0) & np.isfinite(alpha)
    pairs = bootstrap.make_pairs(scores, alpha, valid, settings.min_sessions, method)
    own, longest = bootstrap.block_length(horizon, sessions), max(weights)
    resamples = {block: bootstrap.resample(pairs, weights[block]) for block in {own, longest}}
    has_value = np.asarray(valid.any(axis=1))
    return [
        Coefficient(Series(_mean_defined(by_industry), shares, has_value), by_industry, of_own, of_longest)
        for by_industry, shares, of_own, of_longest in zip(
            pairs.correlation, bootstrap.influence(pairs), resamples[own], resamples[longest], strict=True
        )
    ]


def stage_weights(sessions: int, horizons: Sequence[int], settings: EvaluationSettings) -> dict[int, Floats]:
    """Draws of a stage's dates by block length; none where all of the stage is one block."""
    blocks = {bootstrap.block_length(horizon, sessions) for horizon in horizons}
    draws, seed = settings.bootstrap_draws, settings.bootstrap_seed
    return {
        block: bootstrap.block_weights(sessions, block, draws, seed) if block < sessions else np.zeros((0, sessions))
        for block in blocks
    }


def tests(of: Coefficient, horizon: int, sessions: int, settings: EvaluationSettings) -> dict[str, object]:
    """All columns of the table that one coefficient or difference gives by itself.

    Args:
        of: the coefficient.
        horizon: the one that the dependence of days comes from; the longest, for a mean over the horizons.
        sessions: of the stage.
        settings: confidence and number of cosines.
    """
    series = of.series
    error, degrees = default_error(of, horizon, sessions, settings)
    statistic = series.estimate / error
    half = long_run.t_quantile(degrees, settings.confidence) * error
    lags = horizon - 1, 2 * horizon
    newey_west, long = (series.estimate / long_run.newey_west_error(series, lag) for lag in lags)
    hansen_hodrick = series.estimate / long_run.hansen_hodrick_error(series, lags[0])
    naive = series.estimate / long_run.naive_error(series)
    defined = of.correlations[np.isfinite(of.correlations)]
    days = defined.size if of.resample is None else series.count
    return {
        "estimate": series.estimate,
        "standard_error": error,
        "degrees": degrees,
        "low": series.estimate - half,
        "high": series.estimate + half,
        "p": long_run.t_p_value(statistic, degrees),
        "p_newey_west": long_run.t_p_value(newey_west, math.inf),
        "p_fixed_b": long_run.fixed_b_p_value(long, series.span, lags[1]),
        "p_hansen_hodrick": long_run.t_p_value(hansen_hodrick, math.inf),
        "p_naive": long_run.t_p_value(naive, series.count - 1),
        "minimum_detectable": long_run.detectable_ratio(degrees, settings.confidence) * error,
        "sessions": sessions,
        "effective_sample": days / horizon,
        "defined": defined.size,
        "undefined": of.correlations.size - defined.size,
        "icir": _ratio_to_spread(defined),
        "positive_share": float((defined > long_run.ROUNDING).mean()) if defined.size else math.nan,
    }


def default_error(of: Coefficient, horizon: int, sessions: int, settings: EvaluationSettings) -> tuple[float, float]:
    """Standard error and degrees of freedom of the default test; NaN where all days overlap or nothing varies."""
    if of.series.span <= horizon or not of.series.varies:
        return math.nan, math.nan
    if of.resample is None:
        terms = long_run.cosine_terms(of.series.span, horizon, settings.cosine_terms)
        return long_run.cosine_error(of.series, terms), float(terms)
    return of.resample.error, bootstrap.equivalent_degrees(sessions, bootstrap.block_length(horizon, sessions))


def _mean_defined(values: Floats) -> float:
    defined = values[np.isfinite(values)]
    return float(defined.mean()) if defined.size else math.nan


def _ratio_to_spread(values: Floats) -> float:
    """Mean over standard deviation; NaN for fewer than two values or equal ones."""
    if values.size < 2 or np.ptp(values) <= long_run.ROUNDING:
        return math.nan
    return float(values.mean() / values.std(ddof=1))


def _over_seeds(seeds: Sequence[Coefficient]) -> dict[str, object]:
    """Number of seeds, and the standard deviation of the mechanism's coefficient over them."""
    values = [seed.series.estimate for seed in seeds]
    return {"seeds": len(values), "seed_sd": float(np.std(values, ddof=1)) if len(values) > 1 else math.nan}


def _of_scores(score: Floats, alpha: Floats) -> dict[str, float]:
    """Hit rate, dispersion and coverage of one run's scores within a stage (sessions x industries)."""
    labels = np.isfinite(alpha)
    valid = np.isfinite(score) & labels
    # A score or an outcome of 0 points nowhere, so it neither hits nor misses.
    signs = np.sign(score[valid]) * np.sign(alpha[valid])
    spread = pd.DataFrame(np.where(valid, score, np.nan)).std(axis=1, ddof=1)
    return {
        "hit_rate": float((signs > 0).sum() / (signs != 0).sum()) if (signs != 0).any() else math.nan,
        "dispersion": float(spread.mean()),
        "coverage": float(valid.sum() / labels.sum()) if labels.any() else math.nan,
    }


def holm_adjusted(p: Floats) -> Floats:
    """Holm's step-down p-values (Scandinavian Journal of Statistics 6, 1979).

    As statsmodels' `multipletests(p, method="holm")`, which collects garbage at every call: seconds for a table.
    """
    order = np.argsort(p)
    stepped = np.maximum.accumulate((p.size - np.arange(p.size)) * p[order])
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


def with_adjusted_p(frame: pd.DataFrame) -> pd.DataFrame:
    """`p_holm` and `p_bh` over each family; undefined tests are no part of it."""
    frame = frame.assign(p_holm=np.nan, p_bh=np.nan)
    for _, part in frame[frame["p"].notna()].groupby(_FAMILY, sort=False):
        p = part["p"].to_numpy()
        frame.loc[part.index, "p_holm"] = holm_adjusted(p)
        frame.loc[part.index, "p_bh"] = false_discovery_control(p, method="bh")
    return frame
