"""Standard errors of means of dependent series: published values, other implementations, and their edges."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

sys.path.insert(0, str(Path(__file__).resolve().parent))

import oracle

from finevolve_pipeline.evaluation import long_run
from finevolve_pipeline.evaluation.long_run import make_series

ERRORS = {
    "cosine": lambda series: long_run.cosine_error(series, 4),
    "Newey-West": lambda series: long_run.newey_west_error(series, 3),
    "Hansen-Hodrick": lambda series: long_run.hansen_hodrick_error(series, 1),
    "naive": long_run.naive_error,
}


def dependent(seed: int, sessions: int = 120, missing: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = np.convolve(rng.normal(size=sessions + 9), np.ones(10) / 10, "valid")
    values[rng.random(sessions) < missing] = np.nan
    return values


@pytest.mark.parametrize(
    ("b", "published"),
    # Kiefer & Vogelsang (2005), table 1, Bartlett, 97.5 %: 1.9600 + 2.9694 b + 0.4160 b^2 - 0.5324 b^3.
    [(b, 1.96 + 2.9694 * b + 0.416 * b**2 - 0.5324 * b**3) for b in (0.02, 0.1, 0.25, 0.5, 0.75, 1.0)],
)
def test_fixed_b_critical_values_are_the_published_ones(b: float, published: float) -> None:
    lag = round(b * 400) - 1
    critical = optimize.brentq(lambda statistic: long_run.fixed_b_p_value(statistic, 400, lag) - 0.05, 1, 10)
    # The published polynomial is a fit with an error of about one percent.
    assert critical == pytest.approx(published, rel=0.015)


def test_fixed_b_p_values_are_uniform_for_independent_normal_values() -> None:
    rng = np.random.default_rng(1)
    sessions, lag = 40, 15
    values = rng.normal(size=(4000, sessions))
    kernel = np.maximum(1 - np.abs(np.subtract.outer(np.arange(sessions), np.arange(sessions))) / (lag + 1), 0)
    centred = values - values.mean(axis=1, keepdims=True)
    errors = np.sqrt(np.einsum("rt,ts,rs->r", centred, kernel, centred)) / sessions
    p = [long_run.fixed_b_p_value(t, sessions, lag) for t in values.mean(axis=1) / errors]
    assert stats.kstest(p, "uniform").pvalue > 0.001


@pytest.mark.parametrize(
    ("statistic", "sessions", "lag"), [(0.0, 30, 5), (0.0067, 6, 4), (0.5, 30, 5), (2.5, 99, 80), (7.0, 299, 20)]
)
def test_fixed_b_p_values_equal_adaptive_quadrature(statistic: float, sessions: int, lag: int) -> None:
    mine = long_run.fixed_b_p_value(statistic, sessions, lag)
    assert mine == pytest.approx(oracle.fixed_b_p(statistic, sessions, lag), abs=1e-10)


def test_without_lags_fixed_b_is_the_t_distribution() -> None:
    values = dependent(2, 12)
    series = make_series(values)
    statistic = series.estimate / long_run.newey_west_error(series, 0)
    mine = long_run.fixed_b_p_value(statistic, 12, 0)
    assert mine == pytest.approx(stats.ttest_1samp(values, 0).pvalue, abs=1e-12)


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("lag", [0, 1, 9, 19])
def test_newey_west_is_that_of_statsmodels_with_gaps_kept_open(missing: float, lag: int) -> None:
    values = dependent(3, missing=missing)
    mine = long_run.newey_west_error(make_series(values), lag)
    assert mine == pytest.approx(oracle.hac_error_of_mean(values.tolist(), lag), rel=1e-12)


def test_the_naive_error_is_that_of_a_t_test() -> None:
    values = dependent(4, missing=0.2)
    series = make_series(values)
    there = values[np.isfinite(values)]
    mine = long_run.t_p_value(series.estimate / long_run.naive_error(series), series.count - 1)
    assert mine == pytest.approx(stats.ttest_1samp(there, 0).pvalue, rel=1e-12)


def test_closing_a_gap_would_change_the_error_and_undefined_ends_do_not() -> None:
    values = dependent(5)
    gap = values.copy()
    gap[40:60] = np.nan
    series, closed = make_series(gap), make_series(np.delete(gap, np.s_[40:60]))
    ends = make_series(np.concatenate([np.full(7, np.nan), gap, np.full(30, np.nan)]))
    for name, error in ERRORS.items():
        assert error(ends) == pytest.approx(error(series), rel=1e-12)
        if name != "naive":
            assert error(closed) != pytest.approx(error(series), rel=1e-6)


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize(
    "values",
    [[], [math.nan], [math.nan, 0.3, math.nan], [0.2] * 30, [0.1 + 1e-17 * k for k in range(20)], [math.nan] * 50],
    ids=["empty", "undefined", "one value", "constant", "constant up to rounding", "all undefined"],
)
def test_nothing_that_varies_has_no_error_and_no_p_value(name: str, values: list[float]) -> None:
    series = make_series(np.array(values, dtype=float))
    error = ERRORS[name](series)
    assert math.isnan(error)
    assert math.isnan(long_run.t_p_value(series.estimate / error, 8))
    assert math.isnan(long_run.fixed_b_p_value(series.estimate / error, 40, 3))


def test_a_series_shorter_than_its_terms_or_lags_has_no_error() -> None:
    series = make_series(np.array([0.1, -0.2, 0.4, 0.1]))
    assert math.isnan(long_run.cosine_error(series, 4))
    assert long_run.cosine_error(series, 3) > 0
    assert math.isnan(long_run.newey_west_error(series, 4))
    assert long_run.newey_west_error(series, 3) > 0
    assert math.isnan(long_run.fixed_b_p_value(1.0, 4, 4))


def test_hansen_hodrick_says_so_where_its_variance_is_no_variance() -> None:
    alternating = make_series(np.array([1.0, -1.0] * 20) + np.linspace(0, 0.1, 40))
    assert math.isnan(long_run.hansen_hodrick_error(alternating, 1))
    # With all lags the flat sum is the square of a sum that is zero.
    assert math.isnan(long_run.hansen_hodrick_error(make_series(dependent(6, 12)), 11))


def test_two_values_have_a_naive_error_only() -> None:
    series = make_series(np.array([0.1, math.nan, 0.3]))
    assert long_run.naive_error(series) == pytest.approx(0.1)
    assert math.isnan(long_run.cosine_error(series, 2))


@given(st.integers(0, 1000))
def test_differences_and_means_of_series_are_those_of_their_values(seed: int) -> None:
    x, y = dependent(seed, 60), dependent(seed + 1, 60)
    combined = (make_series(x) + make_series(y) * -1.0) * 0.5
    plain = make_series((x - y) / 2)
    assert combined.estimate == pytest.approx(plain.estimate, abs=1e-14)
    assert long_run.cosine_error(combined, 8) == pytest.approx(long_run.cosine_error(plain, 8), rel=1e-10)


@pytest.mark.parametrize(
    ("sessions", "horizon", "terms"), [(299, 10, 8), (299, 20, 8), (299, 40, 5), (99, 10, 7), (99, 20, 4), (99, 40, 2)]
)
def test_a_short_stage_uses_fewer_cosines(sessions: int, horizon: int, terms: int) -> None:
    assert long_run.cosine_terms(sessions, horizon, 8) == terms


@pytest.mark.parametrize("degrees", [2.0, 5.0, 8.0, 45.0])
def test_what_is_detectable_is_detected_in_four_of_five_samples(degrees: float) -> None:
    ratio = long_run.detectable_ratio(degrees, 0.95)
    rng = np.random.default_rng(7)
    statistic = (ratio + rng.normal(size=200_000)) / np.sqrt(rng.chisquare(degrees, 200_000) / degrees)
    assert (statistic > stats.t.ppf(0.975, degrees)).mean() == pytest.approx(0.8, abs=0.005)
    assert math.isnan(long_run.detectable_ratio(math.nan, 0.95))
