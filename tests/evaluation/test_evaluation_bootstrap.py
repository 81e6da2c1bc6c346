"""The joint-date block bootstrap: its dates, its seed, and what the calibration is for."""

from __future__ import annotations

import numpy as np
import pytest

from finevolve_pipeline.evaluation import bootstrap
from finevolve_pipeline.evaluation.ic import correlate


def related(seed: int, runs: int = 2, sessions: int = 120, industries: int = 6) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    alpha = np.apply_along_axis(np.convolve, 0, rng.normal(size=(sessions + 9, industries)), np.ones(10), "valid")
    return rng.normal(size=(runs, sessions, industries)) + 0.2 * alpha, alpha


def pairs_of(scores: np.ndarray, alpha: np.ndarray, method: str = "pearson") -> bootstrap.Pairs:
    valid = np.isfinite(scores).all(axis=0) & np.isfinite(alpha)
    return bootstrap.make_pairs(np.where(valid, scores, np.nan), alpha, valid, 20, method)


def test_a_draw_takes_whole_blocks_of_consecutive_sessions_and_as_many_sessions_as_there_are() -> None:
    weights = bootstrap.block_weights(50, 10, 200, seed=1)
    assert (weights.sum(axis=1) == 50).all()
    # Neighbours share their blocks, but for the block that starts or ends between them.
    changes = np.abs(np.diff(np.hstack([weights, weights[:, :1]]), axis=1)).sum(axis=1)
    assert changes.max() <= 2 * 5
    assert weights.mean(axis=0) == pytest.approx(1.0, abs=0.35)


def test_the_last_block_of_a_draw_is_cut_to_fit() -> None:
    assert (bootstrap.block_weights(53, 10, 100, seed=1).sum(axis=1) == 53).all()


@pytest.mark.parametrize("block", [0, 20, 21])
def test_a_block_as_long_as_the_stage_is_refused(block: int) -> None:
    with pytest.raises(
        ValueError, match=f"block of {block} sessions: must be at least 1 and shorter than the stage of 20"
    ):
        bootstrap.block_weights(20, block, 10, seed=1)


def test_dates_depend_on_the_seed_and_on_nothing_else() -> None:
    first, again, other = (bootstrap.block_weights(60, 10, 50, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize("method", ["pearson", "spearman"])
def test_a_draw_is_the_correlation_of_the_sessions_it_takes(method: str) -> None:
    scores, alpha = related(1)
    pairs = pairs_of(scores, alpha, method)
    weights = bootstrap.block_weights(120, 10, 100, seed=1)
    for run, found in enumerate(bootstrap.resample(pairs, weights)):
        for draw in (0, 57):
            taken = np.repeat(np.arange(120), weights[draw].astype(int))
            right = correlate(
                pairs.score[run][taken], pairs.outcome[taken], axis=0, min_pairs=2, method="pearson"
            ).value.mean()
            assert found.draws[draw] == pytest.approx(right, abs=1e-12)


def test_all_runs_are_given_the_same_dates_so_a_twin_never_differs() -> None:
    scores, alpha = related(2, runs=1)
    first, second = bootstrap.resample(
        pairs_of(np.concatenate([scores, scores]), alpha), bootstrap.block_weights(120, 10, 200, seed=1)
    )
    difference = first + second * -1.0
    assert (difference.draws == 0).all()
    assert np.isnan(difference.error)


def test_the_influence_is_the_slope_of_the_coefficient_in_the_weights_of_days() -> None:
    scores, alpha = related(3, runs=1)
    pairs = pairs_of(scores, alpha)
    shares = bootstrap.influence(pairs)[0]
    assert shares.sum() == pytest.approx(0.0, abs=1e-12)
    step = 1e-5
    for day in (0, 60):
        weights = np.ones((2, 120))
        weights[:, day] += [step, -step]
        up, down = bootstrap.resample(pairs, weights)[0].draws
        assert (up - down) / (2 * step) == pytest.approx(shares[day], abs=1e-8)


def test_holes_in_the_data_leave_the_coefficient_where_it_is() -> None:
    scores, alpha = related(4)
    alpha[10:14, 2] = np.nan
    scores[:, 40, 3] = np.nan
    pairs = pairs_of(scores, alpha)
    once = np.ones((1, 120))
    for run, found in enumerate(bootstrap.resample(pairs, once)):
        assert found.draws[0] == pytest.approx(pairs.correlation[run].mean(), abs=1e-12)
    assert np.isfinite(
        [found.error for found in bootstrap.resample(pairs, bootstrap.block_weights(120, 10, 100, 1))]
    ).all()


def test_an_industry_without_a_correlation_is_left_out_and_none_at_all_has_no_error() -> None:
    scores, alpha = related(5, runs=2)
    scores[0, :, 1] = 0.3
    scores[1] = 0.3
    pairs = pairs_of(scores, alpha)
    some, nothing = bootstrap.resample(pairs, bootstrap.block_weights(120, 10, 100, seed=1))
    assert np.isfinite(some.error)
    assert np.isnan(nothing.error)
    assert np.isnan(bootstrap.influence(pairs)[1]).all()


def test_persistent_scores_and_overlapping_outcomes_make_the_plain_bootstrap_too_narrow() -> None:
    rng = np.random.default_rng(6)
    days = np.arange(150)
    plain, calibrated, true = [], [], []
    weights = bootstrap.block_weights(150, 20, 200, seed=1)
    for _ in range(60):
        slow = 0.95 ** np.abs(np.subtract.outer(days, days))
        scores = np.linalg.cholesky(slow) @ rng.normal(size=(150, 6))
        steps = np.vstack([np.zeros(6), rng.normal(size=(170, 6)).cumsum(axis=0)])
        pairs = pairs_of(scores[None], steps[20:170] - steps[:150])
        found = bootstrap.resample(pairs, weights)[0]
        plain.append(found.plain_error**2)
        calibrated.append(found.error**2)
        true.append(pairs.correlation.mean() ** 2)
    assert np.mean(plain) < 0.75 * np.mean(true)
    assert np.mean(calibrated) == pytest.approx(np.mean(true), rel=0.45)
    assert np.mean(calibrated) > 1.3 * np.mean(plain)
