"""The learning curve: what counts as matured experience, its blocks, and when a slope is called one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.api import OLS, add_constant

from finevolve_pipeline.evaluation.ic import Axes, Panel
from finevolve_pipeline.evaluation.learning import (
    PER_OUTCOMES,
    learning_blocks,
    learning_curve,
    learning_slopes,
    matured_outcomes,
    slope_test,
)
from finevolve_pipeline.settings import Experiment, load_settings
from finevolve_pipeline.universe import CODES

SETTINGS = load_settings().evaluation
PIPE, MEM0 = Experiment(mechanism="pipe", backbone="rules"), Experiment(mechanism="mem0", backbone="rules")


def panel(sessions: int, horizons: tuple[int, ...], seed: int = 0, codes: tuple[str, ...] = CODES) -> Panel:
    rng = np.random.default_rng(seed)
    days = tuple(day.date().isoformat() for day in pd.bdate_range("2025-01-02", periods=sessions))
    axes = Axes(days, codes, horizons)
    return Panel(axes, rng.normal(size=axes.shape), np.random.default_rng(7).normal(size=axes.shape))


def test_matured_experience_is_the_closed_form_when_every_label_is_there() -> None:
    found = matured_outcomes(panel(299, (10, 20, 40)))
    expected = [31 * sum(max(0, k - h + 1) for h in (10, 20, 40)) for k in range(299)]
    assert found.tolist() == expected
    assert found[-1] == 31 * (289 + 279 + 259)


def test_an_outcome_counts_from_the_session_it_becomes_known_on_and_a_missing_label_never() -> None:
    small = panel(5, (2,), codes=CODES[:3])
    small.alpha[0, 1, 0] = np.nan
    assert matured_outcomes(small).tolist() == [0, 0, 3, 5, 8]


def test_a_horizon_beyond_the_window_gives_no_experience() -> None:
    assert matured_outcomes(panel(4, (9,))).tolist() == [0, 0, 0, 0]


def test_the_curve_pairs_each_session_with_pipes_and_pipe_lies_zero_from_itself() -> None:
    pipe, mem0 = panel(40, (10,)), panel(40, (10,), seed=1)
    mem0.score[0, 3] = np.nan
    curve = learning_curve({PIPE: pipe, MEM0: mem0}, SETTINGS, "spearman", 20)
    of_pipe, of_mem0 = (curve[curve["mechanism"] == e.mechanism].reset_index(drop=True) for e in (PIPE, MEM0))
    assert (of_pipe["difference"] == 0).all()
    assert np.isnan(of_mem0.loc[3, "difference"])
    assert of_mem0.loc[5, "difference"] == of_mem0.loc[5, "ic"] - of_pipe.loc[5, "ic"]
    assert of_mem0.loc[30, "rolling_difference"] == pytest.approx(of_mem0.loc[11:30, "difference"].mean())
    assert of_mem0["rolling_difference"].isna().sum() == 10


def test_without_a_pipe_run_there_is_no_difference() -> None:
    curve = learning_curve({MEM0: panel(12, (10,))}, SETTINGS, "spearman", 20)
    assert curve["difference"].isna().all()
    assert curve["ic"].notna().all()
    assert learning_slopes(curve, SETTINGS)["p"].isna().all()


def test_runs_that_differ_in_their_seed_alone_are_one_mechanism_with_their_mean() -> None:
    again = Experiment(mechanism="mem0", backbone="rules", seed=1)
    pipe, first, second = panel(15, (2,)), panel(15, (2,), seed=1), panel(15, (2,), seed=2)
    alone = [learning_curve({PIPE: pipe, MEM0: one}, SETTINGS, "spearman", 20) for one in (first, second)]
    both = learning_curve({PIPE: pipe, MEM0: first, again: second}, SETTINGS, "spearman", 20)
    assert both["mechanism"].value_counts().to_dict() == {"pipe": 15, "mem0": 15}
    expected = (alone[0]["difference"] + alone[1]["difference"]) / 2
    assert both["difference"].tolist() == pytest.approx(expected.tolist())


def test_blocks_are_consecutive_sessions_with_the_mean_of_what_they_hold() -> None:
    curve = learning_curve({PIPE: panel(25, (2,)), MEM0: panel(25, (2,), seed=1)}, SETTINGS, "spearman", 20)
    blocks = learning_blocks(curve, 4)
    own = blocks[blocks["mechanism"] == MEM0.mechanism]
    assert own["block"].tolist() == [1, 2, 3, 4]
    assert own["sessions"].tolist() == [7, 6, 6, 6]
    rows = curve[(curve["mechanism"] == MEM0.mechanism)].iloc[7:13]
    second = own.iloc[1]
    assert (second["first"], second["last"]) == (rows["session"].iloc[0], rows["session"].iloc[-1])
    assert second["difference"] == pytest.approx(rows["difference"].mean())
    assert second["matured"] == pytest.approx(31 * np.mean([k - 1 for k in range(7, 13)]))


def test_no_run_has_an_empty_curve_empty_blocks_and_no_slope() -> None:
    curve = learning_curve({}, SETTINGS, "spearman", 20)
    assert curve.empty
    assert learning_blocks(curve).empty
    assert learning_slopes(curve, SETTINGS).empty


def test_the_slope_is_the_least_squares_one() -> None:
    rng = np.random.default_rng(3)
    x, y = np.arange(60.0) ** 2, rng.normal(size=60)
    y[7] = np.nan
    there = np.isfinite(y)
    expected = OLS(y[there], add_constant(x[there])).fit().params[1]
    found = slope_test(x, y, 8)
    assert found.estimate == pytest.approx(expected, rel=1e-10)
    assert found.sessions == 59
    low, high = found.interval(0.95)
    assert low < found.estimate < high


def test_the_slopes_error_is_the_mean_square_of_what_successive_regressions_leave() -> None:
    rng = np.random.default_rng(4)
    x, y, terms = np.sort(rng.normal(size=50)), rng.normal(size=50), 5
    at = (np.arange(50) + 0.5) / 50
    explained, squares = add_constant(x), []
    for term in range(1, terms + 1):
        cosine = np.cos(np.pi * term * at)
        left = OLS(cosine, explained).fit().resid
        squares.append((left @ y) ** 2 / (left @ left))
        explained = np.column_stack([explained, cosine])
    expected = np.sqrt(np.mean(squares) / ((x - x.mean()) ** 2).sum())
    found = slope_test(x, y, terms)
    assert found.standard_error == pytest.approx(expected, rel=1e-10)
    assert found.p == pytest.approx(2 * stats.t.sf(abs(found.estimate) / expected, terms), rel=1e-9)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (np.arange(10.0), np.arange(10.0) % 3),  # too few for 8 terms
        (np.ones(40), np.arange(40.0) % 3),  # nothing to regress on
        (np.arange(40.0), np.zeros(40)),  # no difference ever
        (np.arange(40.0), np.full(40, np.nan)),
    ],
)
def test_a_slope_that_cannot_be_tested_is_undefined(x: np.ndarray, y: np.ndarray) -> None:
    found = slope_test(x, y, 8)
    assert np.isnan(found.p)
    assert np.isnan(found.estimate)


def test_noise_with_a_long_memory_is_seldom_called_learning_and_learning_is() -> None:
    rng = np.random.default_rng(11)
    x = np.array([float(sum(max(0, k - h + 1) for h in (10, 20, 40))) for k in range(299)])
    shocks = rng.normal(size=(400, 308))
    overlapping = np.stack([shocks[:, k : k + 10].mean(axis=1) for k in range(299)], axis=1)
    rejected = np.mean([slope_test(x, noise, 8).p < 0.05 for noise in overlapping])
    assert 0.02 < rejected < 0.09
    trend = x / x.max()
    assert np.mean([slope_test(x, noise + 2 * trend, 8).p < 0.05 for noise in overlapping]) > 0.9


def test_slopes_are_per_thousand_outcomes_and_adjusted_over_the_table() -> None:
    curve = learning_curve({PIPE: panel(60, (2, 5)), MEM0: panel(60, (2, 5), seed=1)}, SETTINGS, "spearman", 20)
    slopes = learning_slopes(curve, SETTINGS)
    of_pipe, of_mem0 = (slopes[slopes["mechanism"] == e.mechanism] for e in (PIPE, MEM0))
    assert of_pipe["p"].isna().all()
    assert of_pipe["p_holm"].isna().all()
    row = of_mem0.iloc[0]
    own = curve[(curve["mechanism"] == MEM0.mechanism) & (curve["horizon"] == 2)]
    raw = np.polyfit(own["matured"], own["difference"], 1)[0]
    assert row["slope"] == pytest.approx(raw * PER_OUTCOMES)
    smallest = of_mem0["p"].min()
    assert of_mem0["p_holm"].min() == pytest.approx(min(1.0, 2 * smallest))
