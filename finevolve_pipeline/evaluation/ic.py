"""Information coefficients: how well scores order realised excess returns.

    csIC(t, h) = corr over industries i of (s(i,t,h), alpha(i,t,h)); csIC(h) is its mean over sessions
    tsIC(i, h) = corr over sessions t of the same;                   tsIC(h) is its mean over industries

(paper, evaluation protocol). Both as Spearman (average ranks for ties) and Pearson, recomputed within each
stage. A correlation is *undefined* if one side is constant or too few pairs exist; it is left out of the mean
and counted. All works on dense arrays of horizons x sessions x industries; NaN means there is no value.

What lives here: every number computed from predictions and excess returns. What must not: files, figures.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from finevolve_pipeline.errors import TableError
from finevolve_pipeline.evaluation.stages import OVERALL, Stage, split_stages
from finevolve_pipeline.settings import EvaluationSettings, Experiment
from finevolve_pipeline.tables import InformationCoefficients, conform
from finevolve_pipeline.universe import CODES

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Method = Literal["spearman", "pearson"]

METHODS: tuple[Method, ...] = get_args(Method)
METRICS = ("tsIC", "csIC")
OWN, COMMON = "own", "common"

_CONSTANT = 1e-12
"""Values whose spread is below this share of their largest magnitude are constant: the rest is rounding."""


@dataclass(frozen=True)
class Axes:
    """What the array positions mean: ISO sessions, industry codes, horizons in sessions; all ascending."""

    sessions: tuple[str, ...]
    codes: tuple[str, ...]
    horizons: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Horizons x sessions x industries."""
        return len(self.horizons), len(self.sessions), len(self.codes)


@dataclass(frozen=True)
class Cells:
    """A set of cells of the grid: `mask` is horizons x sessions x industries."""

    axes: Axes
    mask: Mask

    def __and__(self, other: Cells) -> Cells:
        if self.axes != other.axes:
            raise ValueError("cells of two different grids cannot be intersected")
        return replace(self, mask=self.mask & other.mask)


@dataclass(frozen=True)
class Panel:
    """Scores of one run beside excess returns, both horizons x sessions x industries, NaN where missing."""

    axes: Axes
    score: Floats
    alpha: Floats

    @property
    def valid(self) -> Cells:
        """Cells with a valid score and a known label."""
        return Cells(self.axes, np.isfinite(self.score) & np.isfinite(self.alpha))

    def within(self, cells: Cells | None) -> Panel:
        """The panel with scores kept in `cells` only; labels stay, coverage is measured on them."""
        if cells is None:
            return self
        if cells.axes != self.axes:
            raise ValueError("cells belong to another grid than the panel")
        return replace(self, score=np.where(cells.mask, self.score, np.nan))


@dataclass(frozen=True)
class Correlations:
    """Correlations along one axis, NaN where undefined, and the pairs each rests on."""

    value: Floats
    pairs: NDArray[np.int64]


def make_axes(sessions: Iterable[str | dt.date], horizons: Iterable[int], codes: tuple[str, ...] = CODES) -> Axes:
    """The grid of `sessions` (days or ISO text) x industries (those that are predicted) x `horizons`."""
    return Axes(tuple(sorted(str(s) for s in sessions)), codes, tuple(sorted({int(h) for h in horizons})))


def horizons_of(*frames: pd.DataFrame) -> tuple[int, ...]:
    """Every horizon that occurs in the column `horizon` of the frames, ascending."""
    return tuple(sorted({int(h) for frame in frames for h in frame["horizon"].unique()}))


def to_grid(frame: pd.DataFrame, axes: Axes, day: str, value: str) -> Floats:
    """A long table as horizons x sessions x industries; rows of other sessions, industries or horizons are left out.

    Args:
        frame: columns `day` (ISO session), code, horizon and `value`.
        axes: the grid.
        day: name of the session column.
        value: name of the number column; anything not finite becomes NaN.

    Raises:
        TableError: an industry is outside the universe, or a cell occurs twice.
    """
    grid = np.full(axes.shape, np.nan)
    if frame.empty:
        return grid
    codes = pd.Index(frame["code"])
    unknown = ~codes.isin(CODES)
    if unknown.any():
        raise TableError(f"{value}: code {codes[int(np.argmax(unknown))]!r} is none of the 31 industries")
    n = pd.Index(axes.codes).get_indexer(codes)
    t = pd.Index(axes.sessions).get_indexer(pd.Index(frame[day]))
    h = pd.Index(axes.horizons).get_indexer(pd.Index(frame["horizon"]))
    inside = (t >= 0) & (h >= 0) & (n >= 0)
    flat = np.ravel_multi_index((h[inside], t[inside], n[inside]), axes.shape)
    counts = np.bincount(flat, minlength=1)
    if counts.max() > 1:
        at = np.flatnonzero(inside)[np.argmax(counts[flat] > 1)]
        row = frame.iloc[int(at)]
        raise TableError(f"{value}: {row[day]} {row['code']} horizon {row['horizon']} occurs twice")
    numbers = frame[value].to_numpy(dtype=np.float64, na_value=np.nan)[inside]
    grid.reshape(-1)[flat] = np.where(np.isfinite(numbers), numbers, np.nan)
    return grid


def make_panel(predictions: pd.DataFrame, alpha: pd.DataFrame, axes: Axes) -> Panel:
    """Predictions (session, code, horizon, score) beside outcomes (predicted_on, code, horizon, alpha)."""
    return Panel(
        axes,
        to_grid(predictions, axes, "session", "score"),
        to_grid(alpha, axes, "predicted_on", "alpha"),
    )


def make_panels(
    predictions: Mapping[Experiment, pd.DataFrame], alpha: pd.DataFrame, axes: Axes
) -> dict[Experiment, Panel]:
    """One panel per experiment, all on the same grid; the labels are read once."""
    labels = to_grid(alpha, axes, "predicted_on", "alpha")
    return {e: Panel(axes, to_grid(frame, axes, "session", "score"), labels) for e, frame in predictions.items()}


def common_cells(panels: Mapping[Experiment, Panel]) -> dict[str, Cells]:
    """Per backbone the cells valid in every compared run, horizon by horizon.

    A run without a single valid cell (not replayed yet) is not compared: it would leave nothing to any other.
    """
    common: dict[str, Cells] = {}
    for experiment, panel in panels.items():
        cells = panel.valid
        before = common.get(experiment.backbone)
        if before is None or not before.mask.any():
            common[experiment.backbone] = cells
        elif cells.mask.any():
            common[experiment.backbone] = before & cells
    return common


def ranks(values: Floats, valid: Mask) -> Floats:
    """Average ranks along the last axis among the valid values; what invalid ones get means nothing."""
    # Missing values rank behind every valid one, so the valid ones get the ranks 1..n among themselves.
    return np.asarray(rankdata(np.where(valid, values, np.inf), axis=-1), dtype=np.float64)


def _is_constant(values: Floats, valid: Mask) -> Mask:
    low = np.where(valid, values, np.inf).min(axis=-1, initial=np.inf)
    high = np.where(valid, values, -np.inf).max(axis=-1, initial=-np.inf)
    some = valid.any(axis=-1)
    low, high = np.where(some, low, 0.0), np.where(some, high, 0.0)
    return np.asarray(high - low <= _CONSTANT * np.maximum(np.abs(low), np.abs(high)))


def _deviations(values: Floats, valid: Mask, count: NDArray[np.int64]) -> Floats:
    mean = np.where(valid, values, 0.0).sum(axis=-1) / np.maximum(count, 1)
    deviation = np.where(valid, values - mean[..., None], 0.0)
    largest = np.abs(deviation).max(axis=-1, initial=0.0)
    # Scaling keeps squares of very small deviations from underflow; the correlation does not feel it.
    return np.asarray(deviation / np.where(largest > 0, largest, 1.0)[..., None])


def correlate(x: Floats, y: Floats, *, axis: int, min_pairs: int, method: Method) -> Correlations:
    """Correlations of `x` and `y` along `axis`, over the pairs where both are finite.

    Args:
        x: scores, any number of dimensions.
        y: excess returns of the same shape.
        axis: the axis that vanishes.
        min_pairs: with fewer pairs a correlation is undefined.
        method: spearman (average ranks among the pairs) or pearson.

    Returns:
        Values in [-1, 1], NaN where undefined: too few pairs, or one side constant up to rounding.
    """
    x, y = np.moveaxis(x, axis, -1), np.moveaxis(y, axis, -1)
    valid = np.isfinite(x) & np.isfinite(y)
    count = valid.sum(axis=-1)
    undefined = (count < max(min_pairs, 2)) | _is_constant(x, valid) | _is_constant(y, valid)
    if x.shape[-1] and method == "spearman":
        x, y = ranks(x, valid), ranks(y, valid)
    dx, dy = _deviations(x, valid, count), _deviations(y, valid, count)
    norm = np.sqrt((dx**2).sum(axis=-1) * (dy**2).sum(axis=-1))
    value = (dx * dy).sum(axis=-1) / np.where(norm > 0, norm, 1.0)
    return Correlations(np.where(undefined, np.nan, np.clip(value, -1.0, 1.0)), count)


def cross_sectional_ic(panel: Panel, settings: EvaluationSettings, method: Method) -> Correlations:
    """csIC(t, h): one correlation over industries per horizon and session (horizons x sessions)."""
    return correlate(panel.score, panel.alpha, axis=2, min_pairs=settings.min_industries, method=method)


def time_series_ic(panel: Panel, settings: EvaluationSettings, method: Method, stage: Stage) -> Correlations:
    """tsIC(i, h): one correlation over the stage's sessions (horizons x industries)."""
    at = stage.positions
    return correlate(panel.score[:, at], panel.alpha[:, at], axis=1, min_pairs=settings.min_sessions, method=method)


def _coefficient(values: Floats, valid: int, labels: int) -> dict[str, float | int]:
    defined = values[np.isfinite(values)]
    return {
        "value": float(defined.mean()) if defined.size else np.nan,
        "defined": int(defined.size),
        "undefined": int(values.size - defined.size),
        "value_undefined_zero": float(defined.sum() / values.size) if values.size else np.nan,
        "pairs": valid,
        "coverage": valid / labels if labels else np.nan,
    }


def _rows_of(panel: Panel, settings: EvaluationSettings) -> Iterable[dict[str, object]]:
    valid, labels = panel.valid.mask, np.isfinite(panel.alpha)
    by_session = {method: cross_sectional_ic(panel, settings, method).value for method in METHODS}
    for stage in split_stages(panel.axes.sessions, settings):
        by_industry = {method: time_series_ic(panel, settings, method, stage).value for method in METHODS}
        for position, horizon in enumerate(panel.axes.horizons):
            pairs = int(valid[position, stage.positions].sum())
            known = int(labels[position, stage.positions].sum())
            for metric in METRICS:
                for method in METHODS:
                    values = (
                        by_industry[method][position]
                        if metric == "tsIC"
                        else by_session[method][position, stage.positions]
                    )
                    yield {
                        "stage": stage.name,
                        "horizon": horizon,
                        "metric": metric,
                        "method": method,
                        **_coefficient(values, pairs, known),
                    }


def panel_coefficients(
    experiment: Experiment, panel: Panel, settings: EvaluationSettings, common: Cells | None = None
) -> pd.DataFrame:
    """Every coefficient of one panel: own cells, or `common` ones if given.

    The rows of `InformationCoefficients`, not yet held to the contract: that costs as much as computing them.
    """
    return pd.DataFrame(
        _rows_of(panel.within(common), settings),
        columns=[
            "stage",
            "horizon",
            "metric",
            "method",
            "value",
            "defined",
            "undefined",
            "value_undefined_zero",
            "pairs",
            "coverage",
        ],
    ).assign(
        experiment=experiment.key,
        mechanism=experiment.mechanism,
        backbone=experiment.backbone,
        cells=OWN if common is None else COMMON,
    )


def information_coefficients(
    experiment: Experiment,
    predictions: pd.DataFrame,
    alpha: pd.DataFrame,
    sessions: Sequence[str | dt.date],
    settings: EvaluationSettings,
    common: Cells | None = None,
    codes: tuple[str, ...] = CODES,
) -> pd.DataFrame:
    """Every information coefficient of one run, in long form.

    Args:
        experiment: whose predictions these are.
        predictions: session, code, horizon, score (`Predictions`); NaN scores are invalid cells.
        alpha: `Outcomes` by prediction day: predicted_on, code, horizon, alpha.
        sessions: the prediction window, days or ISO text; predictions of other days are left out.
        settings: stage split and minimum pairs.
        common: None for the run's own cells; else the only cells that count.
        codes: the industries that were to be predicted.

    Returns:
        `InformationCoefficients`, one row per stage, horizon, metric and method. `defined + undefined` is the
        number of industries (tsIC) or of the stage's sessions (csIC), those without labels included.

    Raises:
        TableError: an unknown industry, or a cell that occurs twice.
    """
    axes = make_axes(sessions, horizons_of(alpha, predictions), codes) if common is None else common.axes
    frame = panel_coefficients(experiment, make_panel(predictions, alpha, axes), settings, common)
    return conform(frame, InformationCoefficients, f"information coefficients of {experiment.key}")


def daily_ic(panel: Panel, settings: EvaluationSettings, method: Method) -> pd.DataFrame:
    """csIC session by session: session, horizon, ic (NaN where undefined), pairs."""
    found = cross_sectional_ic(panel, settings, method)
    horizons, sessions, _ = panel.axes.shape
    return pd.DataFrame(
        {
            "session": np.tile(np.array(panel.axes.sessions, dtype=object), horizons),
            "horizon": np.repeat(np.array(panel.axes.horizons, dtype=np.int16), sessions),
            "ic": found.value.reshape(-1),
            "pairs": found.pairs.reshape(-1).astype(np.int32),
        }
    ).astype({"session": str})


def industry_ic(panel: Panel, settings: EvaluationSettings, method: Method, stage: str = OVERALL) -> pd.DataFrame:
    """tsIC industry by industry within a stage: code, horizon, ic (NaN where undefined), pairs."""
    part = next(s for s in split_stages(panel.axes.sessions, settings) if s.name == stage)
    found = time_series_ic(panel, settings, method, part)
    horizons, _, codes = panel.axes.shape
    return pd.DataFrame(
        {
            "code": np.tile(np.array(panel.axes.codes, dtype=object), horizons),
            "horizon": np.repeat(np.array(panel.axes.horizons, dtype=np.int16), codes),
            "ic": found.value.reshape(-1),
            "pairs": found.pairs.reshape(-1).astype(np.int32),
        }
    ).astype({"code": str})


def with_running_means(daily: pd.DataFrame, window: int = 20) -> pd.DataFrame:
    """`daily_ic` with `rolling` (mean of the last `window` sessions, half defined) and `cumulative` sum.

    Undefined sessions enter neither; the cumulative sum stays where it was.
    """
    by_horizon = daily.groupby("horizon", sort=False)["ic"]
    rolling = by_horizon.transform(lambda ic: ic.rolling(window, min_periods=max(1, window // 2)).mean())
    return daily.assign(rolling=rolling, cumulative=by_horizon.transform(lambda ic: ic.fillna(0.0).cumsum()))
