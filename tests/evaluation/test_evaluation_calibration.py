"""The tests of the table reject true nulls as often as they say: the checked-in figures, and a small sample now."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import pytest
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import calibration

CELLS = {(ar, horizon) for ar in (0.8, 0.95) for horizon in (10, 20, 40)}


@pytest.fixture(scope="module")
def figures() -> pd.DataFrame:
    return pd.read_csv(calibration.TABLE)


def part(figures: pd.DataFrame, metric: str, test: str = "default", sessions: int = 299) -> pd.DataFrame:
    chosen = (figures["metric"] == metric) & (figures["test"] == test) & (figures["sessions"] == sessions)
    return figures[chosen & (figures["planted"] == 0)]


def test_the_default_test_of_csic_rejects_4_to_7_percent_of_2000_true_nulls_in_every_cell(
    figures: pd.DataFrame,
) -> None:
    for quantity in ("level", "difference"):
        rows = part(figures, "csIC")
        rows = rows[rows["quantity"] == quantity]
        assert set(zip(rows["ar"], rows["horizon"], strict=True)) == CELLS
        assert rows["samples"].min() >= 2000
        assert rows["rejected"].between(0.04, 0.07).all()


def test_intervals_of_tsic_cover_93_to_97_percent_in_every_cell(figures: pd.DataFrame) -> None:
    rows = part(figures, "tsIC")
    assert set(zip(rows["ar"], rows["horizon"], rows["quantity"], strict=True)) == {
        (*cell, quantity) for cell in CELLS for quantity in ("level", "difference")
    }
    assert rows["samples"].min() >= 2000
    # An interval misses zero where its test rejects it.
    assert rows["rejected"].between(0.03, 0.07).all()


@pytest.mark.parametrize("metric", ["csIC", "tsIC"])
def test_the_naive_test_rejects_a_third_of_true_nulls_or_more_and_newey_west_stands_between(
    figures: pd.DataFrame, metric: str
) -> None:
    assert part(figures, metric, "naive")["rejected"].min() > 0.33
    assert part(figures, metric, "newey_west")["rejected"].between(0.08, 0.25).all()


def test_power_grows_with_what_was_planted(figures: pd.DataFrame) -> None:
    default = figures[(figures["test"] == "default") & (figures["sessions"] == 299)]
    power = default.pivot_table("rejected", ["metric", "quantity", "ar", "horizon"], "planted")
    assert list(power.columns) == [0.0, 0.03, 0.05, 0.08]
    assert (power[0.08] > power[0.0] + 0.05).all()
    assert (power[0.08] > power[0.03]).all()


def test_a_small_sample_of_nulls_is_rejected_about_as_often_as_it_should_be() -> None:
    cell, samples = calibration.Cell(150, 0.8, 10), 200
    found = calibration.count(cell, 10**6, samples, draws=150)
    # Once in ten thousand runs by chance, were the true rate at the edge of 2 to 8 %.
    low, high = stats.binom.ppf(1e-4, samples, 0.02), stats.binom.ppf(1 - 1e-4, samples, 0.08)
    for metric in ("csIC", "tsIC"):
        for quantity in ("level", "difference"):
            assert low <= found[metric, quantity, "default"] <= high
            assert found[metric, quantity, "naive"] > found[metric, quantity, "default"] + samples * 0.1


def test_a_sample_depends_on_its_number_alone() -> None:
    cell = calibration.Cell(60, 0.8, 10)
    together = calibration.count(cell, 0, 4, 100)
    assert together == calibration.count(cell, 0, 1, 100) + calibration.count(cell, 1, 3, 100)
