"""Gains over Pipe and the Table-2 layout."""

from __future__ import annotations

import csv
import io
import math

import numpy as np
import pandas as pd
import pytest

from finevolve_pipeline.evaluation.comparison import (
    by_backbone,
    compare_with_pipe,
    frame_csv,
    ic_matrix,
    table2_csv,
    table2_markdown,
    table2_notes,
    table2_rows,
)
from finevolve_pipeline.evaluation.ic import information_coefficients
from finevolve_pipeline.settings import Experiment, Settings, load_settings
from finevolve_pipeline.tables import Comparison, conform
from finevolve_pipeline.universe import CODES


def coefficients(**values: tuple[float, float]) -> pd.DataFrame:
    """An IC matrix: per mechanism one coefficient at 10 and one at 20 sessions, tsIC twice csIC."""
    return pd.DataFrame(
        {
            "backbone": "rules",
            "mechanism": mechanism,
            "cells": cells,
            "stage": "overall",
            "horizon": horizon,
            "metric": metric,
            "method": "spearman",
            "value": value * (2 if metric == "tsIC" else 1) + (1 if cells == "own" else 0),
        }
        for mechanism, pair in values.items()
        for cells in ("own", "common")
        for metric in ("tsIC", "csIC")
        for horizon, value in zip((10, 20), pair, strict=True)
    )


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


def test_without_pipe_gains_are_nan_and_said_in_words() -> None:
    comparison = compare_with_pipe(coefficients(mem0=(0.03, 0.01)))
    assert comparison["gain"].isna().all()
    assert comparison["value"].notna().all()
    rows = table2_rows(comparison)
    assert rows[0].texts() == ["+ Mem0", "0.0600", "0.0300", "0.0200", "0.0100", "–", "–"]
    assert table2_notes(rows) == ("Backbone rules has no Pipe run, so no gain can be computed for it.",)
    assert "no Pipe run" in table2_markdown(table2_rows(comparison))


def test_a_mean_over_the_horizons_needs_every_horizon() -> None:
    comparison = compare_with_pipe(coefficients(pipe=(0.02, math.nan), mem0=(0.03, 0.01)))
    assert gain(comparison, "mem0", "csIC", 10) == pytest.approx(0.01)
    assert math.isnan(gain(comparison, "mem0", "csIC", 20))
    assert math.isnan(gain(comparison, "mem0", "csIC", 0))
    (note,) = table2_notes(table2_rows(comparison))
    assert "Pipe tsIC at 20 sessions, Pipe csIC at 20 sessions" in note


def test_pipe_stands_first_and_arrows_only_above_it() -> None:
    comparison = compare_with_pipe(coefficients(mem0=(0.03, 0.04), pipe=(0.02, 0.04)))
    pipe, mem0 = table2_rows(comparison)
    assert pipe.texts() == ["Pipe", "0.0400", "0.0200", "0.0800", "0.0400", "–", "–"]
    assert mem0.texts() == ["+ Mem0", "0.0600 ↑", "0.0300 ↑", "0.0800", "0.0400", "+0.0100", "+0.0050"]


def test_backbones_are_panels_of_their_own() -> None:
    one, two = coefficients(pipe=(0.02, 0.04)), coefficients(pipe=(0.1, 0.1), mem0=(0.0, 0.3))
    comparison = compare_with_pipe(pd.concat([one, two.assign(backbone="other")]))
    panels = by_backbone(table2_rows(comparison))
    assert [(backbone, len(rows)) for backbone, rows in panels.items()] == [("rules", 1), ("other", 2)]
    assert panels["other"][1].gain_cs == pytest.approx(0.05)


def test_the_csv_is_exact_and_safe_for_spreadsheets() -> None:
    comparison = compare_with_pipe(coefficients(pipe=(0.1, math.nan), mem0=(1 / 3, -0.25)))
    text = table2_csv(table2_rows(comparison))
    pipe, mem0 = csv.DictReader(io.StringIO(text))
    assert pipe["method"] == "Pipe"
    assert mem0["method"] == "'+ Mem0"
    assert float(mem0["csIC_10"]) == 1 / 3
    assert mem0["csIC_20"] == "-0.25"
    assert (pipe["csIC_20"], pipe["gain_csIC"], mem0["gain_csIC"]) == ("", "", "")
    assert (mem0["csIC_10_above_pipe"], mem0["csIC_20_above_pipe"]) == ("true", "false")
    assert "\r" not in text


def test_any_table_as_csv_guards_text_and_keeps_numbers() -> None:
    frame = pd.DataFrame({"source": ["=1+1", "cls", "@x"], "n": [-1.5, np.nan, 2.0], "k": [1, 2, 3]})
    assert frame_csv(frame) == "source,n,k\n'=1+1,-1.5,1\ncls,,2\n'@x,2.0,3\n"
    assert frame_csv(frame.iloc[:0]) == "source,n,k\n"


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


def test_no_run_gives_empty_tables() -> None:
    settings = settings_of("2025-01-02", "2025-01-10")
    alpha = pd.DataFrame({"predicted_on": [], "code": [], "horizon": [], "alpha": []})
    comparison = compare_with_pipe(ic_matrix({}, alpha, settings.benchmark.sessions, settings.evaluation))
    assert comparison.empty
    assert table2_markdown(table2_rows(comparison)) == "No run to compare.\n"
