"""Gains over Pipe."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from coefficients import coefficients

from finevolve_pipeline.evaluation.comparison import compare_with_pipe, ic_matrix
from finevolve_pipeline.evaluation.ic import information_coefficients
from finevolve_pipeline.settings import Experiment, Settings, load_settings
from finevolve_pipeline.tables import Comparison, conform
from finevolve_pipeline.universe import CODES


def gain(comparison: pd.DataFrame, mechanism: str, metric: str, horizon: int) -> float:
    row = comparison[
        (comparison["mechanism"] == mechanism) & (comparison["metric"] == metric) & (comparison["horizon"] == horizon)
    ]
    assert len(row) == 1
    return float(row["gain"].iloc[0])


def test_gains_are_taken_on_common_cells_per_horizon_and_on_average() -> None:
    comparison = compare_with_pipe(coefficients(pipe=(0.02, 0.04), mem0=(0.03, 0.01)))
    assert gain(comparison, "mem0", "csIC", 10) == pytest.approx(0.01)
    assert gain(comparison, "mem0", "csIC", 20) == pytest.approx(-0.03)
    assert gain(comparison, "mem0", "csIC", 0) == pytest.approx(-0.01)
    assert gain(comparison, "mem0", "tsIC", 0) == pytest.approx(-0.02)
    assert gain(comparison, "pipe", "tsIC", 0) == 0.0
    assert comparison["horizon"].tolist()[:3] == [10, 20, 0]
    pd.testing.assert_frame_equal(conform(comparison, Comparison, "comparison"), comparison)


def test_without_pipe_gains_are_nan() -> None:
    comparison = compare_with_pipe(coefficients(mem0=(0.03, 0.01)))
    assert comparison["gain"].isna().all()
    assert comparison["value"].notna().all()


def test_a_mean_over_the_horizons_needs_every_horizon() -> None:
    comparison = compare_with_pipe(coefficients(pipe=(0.02, math.nan), mem0=(0.03, 0.01)))
    assert gain(comparison, "mem0", "csIC", 10) == pytest.approx(0.01)
    assert math.isnan(gain(comparison, "mem0", "csIC", 20))
    assert math.isnan(gain(comparison, "mem0", "csIC", 0))


def settings_of(first: str, last: str) -> Settings:
    return load_settings(overrides={"benchmark": {"first_session": first, "last_session": last}})


def test_a_run_compared_with_itself_gains_nothing() -> None:
    settings = settings_of("2025-01-02", "2025-03-31")
    rng = np.random.default_rng(1)
    sessions = [s.isoformat() for s in settings.benchmark.sessions]
    index = pd.MultiIndex.from_product([sessions, CODES, (10, 20, 40)], names=["session", "code", "horizon"])
    predictions = index.to_frame(index=False).assign(score=rng.uniform(-1, 1, len(index)))
    alpha = predictions.rename(columns={"session": "predicted_on"}).assign(alpha=rng.normal(size=len(index)))
    pipe, twin = (
        Experiment(mechanism="pipe", backbone="rules"),
        Experiment(mechanism="twin", backbone="rules"),
    )
    matrix = ic_matrix({pipe: predictions, twin: predictions}, alpha, sessions, settings.evaluation)
    comparison = compare_with_pipe(matrix)
    assert (comparison.loc[comparison["value"].notna(), "gain"] == 0).all()
    assert comparison.loc[comparison["stage"] == "overall", "gain"].notna().all()
    own = matrix[(matrix["experiment"] == twin.key) & (matrix["cells"] == "own")].reset_index(drop=True)
    pd.testing.assert_frame_equal(
        own, information_coefficients(twin, predictions, alpha, sessions, settings.evaluation)
    )


def test_no_run_gives_an_empty_table() -> None:
    settings = settings_of("2025-01-02", "2025-01-10")
    alpha = pd.DataFrame({"predicted_on": [], "code": [], "horizon": [], "alpha": []})
    comparison = compare_with_pipe(ic_matrix({}, alpha, settings.benchmark.sessions, settings.evaluation))
    assert comparison.empty
