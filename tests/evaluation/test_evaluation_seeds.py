"""Spread over seeds, sampling error beside it, and the differences between runs of Pipe, against numbers by hand."""

from __future__ import annotations

import ast
import inspect
import itertools
import math
import statistics
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_evaluation_report import world, world_settings

from finevolve_pipeline.evaluation.comparison import compare_with_pipe
from finevolve_pipeline.evaluation.layout import table2_rows
from finevolve_pipeline.evaluation.report import seeds_view, words
from finevolve_pipeline.evaluation.report.seeds_view import seed_tables
from finevolve_pipeline.evaluation.report.views import TableView
from finevolve_pipeline.evaluation.report.words import LANGUAGES, Words
from finevolve_pipeline.evaluation.seeds import differences, noise_floor, samples_of_pipe
from finevolve_pipeline.settings import Experiment, load_settings
from finevolve_pipeline.tables import Inference, empty

PIPES = ("pipe-b", "pipe-b@1", "pipe-b@2")
NO_INFERENCE = empty(Inference)


def coefficients(runs: Mapping[str, tuple[float, ...]], horizons: tuple[int, ...] = (10, 20)) -> pd.DataFrame:
    """csIC by run (`mechanism@seed`) and horizon on common cells, beside own cells that must not count."""
    found = []
    for run, values in runs.items():
        mechanism, _, seed = run.partition("@")
        key = Experiment(mechanism=mechanism, backbone="b", seed=int(seed or 0)).key
        found += [
            {
                "experiment": key,
                "mechanism": mechanism,
                "backbone": "b",
                "cells": cells,
                "stage": "overall",
                "horizon": horizon,
                "metric": "csIC",
                "method": "spearman",
                "value": value + (9 if cells == "own" else 0),
            }
            for horizon, value in zip(horizons, values, strict=True)
            for cells in ("own", "common")
        ]
    return pd.DataFrame(found).astype({"horizon": "int16"})


def inferred(**errors: tuple[float, float]) -> pd.DataFrame:
    """`Inference` at horizon 10: standard errors of a mechanism's level and of its difference from Pipe."""
    rows = [
        {
            "backbone": "b",
            "mechanism": mechanism,
            "stage": "overall",
            "metric": "csIC",
            "method": "spearman",
            "horizon": 10,
            "quantity": quantity,
            "standard_error": error,
        }
        for mechanism, both in errors.items()
        for quantity, error in zip(("level", "difference"), both, strict=True)
    ]
    return pd.DataFrame(rows).astype({"horizon": "int16"})


def row_of(floor: pd.DataFrame, mechanism: str, horizon: int) -> dict[str, float]:
    (row,) = floor[(floor["mechanism"] == mechanism) & (floor["horizon"] == horizon)].to_dict("records")
    return row


# -- means over seeds


def test_a_mechanism_is_compared_by_the_mean_over_its_seeds_with_the_mean_over_pipe_s() -> None:
    runs = {"pipe": (0.02, 0.04), "pipe@1": (0.04, 0.06), "mem0": (0.05, 0.05), "mem0@1": (0.07, 0.01)}
    table = compare_with_pipe(coefficients(runs))
    found = {(row["mechanism"], row["horizon"]): row for row in table.to_dict("records")}
    assert len(found) == len(table) == 6
    assert found["mem0", 10]["value"] == pytest.approx(0.06)
    assert found["mem0", 10]["gain"] == pytest.approx(0.06 - 0.03)
    assert found["mem0", 20]["gain"] == pytest.approx(0.03 - 0.05)
    assert found["mem0", 0]["gain"] == pytest.approx((0.03 - 0.02) / 2)
    assert found["pipe", 10]["gain"] == 0
    assert set(table["seeds"]) == {2}
    assert [row["seeds"] for row in compare_with_pipe(coefficients({**runs, "pipe@2": (0, 0)})).to_dict("records")] == [
        *(3, 3, 3),
        *(2, 2, 2),
    ]


def test_a_mean_over_seeds_needs_all_of_them() -> None:
    table = compare_with_pipe(coefficients({"pipe": (0.02, 0.04), "mem0": (0.05, 0.05), "mem0@1": (math.nan, 0.01)}))
    found = {(row["mechanism"], row["horizon"]): row["value"] for row in table.to_dict("records")}
    assert math.isnan(found["mem0", 10])
    assert found["mem0", 20] == pytest.approx(0.03)
    assert math.isnan(found["mem0", 0])


def test_table_2_has_one_row_a_mechanism_however_many_seeds() -> None:
    setting = world_settings(
        last="2025-02-28", experiments={"mechanisms": ["pipe", "mem0"], "backbones": ["rules"], "seeds": [0, 1, 2]}
    )
    inputs = world(setting)
    assert inputs.ic_matrix["experiment"].nunique() == 6
    assert [row.mechanism for row in table2_rows(inputs.comparison)] == ["pipe", "mem0"]


# -- the noise floor


def test_numbers_by_hand() -> None:
    runs = {"pipe": (0.01, 0.0), "pipe@1": (0.03, 0.0), "pipe@2": (0.08, 0.0), "mem0": (0.10, 0.0), "mem0@1": (0.12, 0)}
    floor = noise_floor(coefficients(runs), inferred(pipe=(0.05, math.nan), mem0=(0.02, 0.03)), PIPES)
    pipe, mem0 = row_of(floor, "pipe", 10), row_of(floor, "mem0", 10)
    # Differences 0.02, 0.05, 0.07.
    assert pipe["floor"] == mem0["floor"] == pytest.approx(math.sqrt((0.0004 + 0.0025 + 0.0049) / 3))
    assert pipe["pairs"] == 3
    assert pipe["value"] == pytest.approx(0.04)
    assert pipe["seed_sd"] == pytest.approx(math.sqrt((0.0009 + 0.0001 + 0.0016) / 2))
    assert pipe["standard_error"] == 0.05
    # 0.0013 of 0.0013 + (0.0025 - 0.0013 / 3).
    assert pipe["seed_share"] == pytest.approx(0.0013 / (0.0013 + 0.0025 - 0.0013 / 3))
    assert math.isnan(pipe["exceeds"])
    assert mem0["seed_sd"] == pytest.approx(math.sqrt(0.0002))
    assert mem0["seed_share"] == pytest.approx(0.0002 / (0.0002 + 0.0004 - 0.0001))
    assert mem0["gain"] == pytest.approx(0.07)
    assert mem0["gain_standard_error"] == 0.03
    assert mem0["exceeds"] == 1
    mean = row_of(floor, "mem0", 0)
    assert mean["floor"] == pytest.approx(mem0["floor"] / 2)
    assert math.isnan(mean["standard_error"])
    assert math.isnan(mean["seed_share"])


def test_a_gain_below_the_floor_does_not_exceed_it_and_a_loss_beyond_it_does() -> None:
    pipes = {"pipe": (0.02, 0.0), "pipe@1": (0.04, 0.0)}
    floor = noise_floor(coefficients({**pipes, "mem0": (0.04, 0.0), "memrl": (-0.01, 0.0)}), NO_INFERENCE, PIPES)
    assert row_of(floor, "mem0", 10)["gain"] == pytest.approx(0.01)
    assert row_of(floor, "mem0", 10)["exceeds"] == 0
    assert row_of(floor, "memrl", 10)["exceeds"] == 1


def test_one_run_of_pipe_has_no_floor_and_runs_alike_have_none_that_tells() -> None:
    one = noise_floor(coefficients({"pipe": (0.02, 0.0), "mem0": (0.04, 0.0)}), NO_INFERENCE, PIPES)
    assert set(one["pairs"]) == {0}
    assert one[["floor", "exceeds", "seed_sd", "seed_share"]].isna().all(axis=None)
    same = {"pipe": (0.02, 0.0), "pipe@1": (0.02, 0.0), "mem0": (0.04, 0.0)}
    alike = noise_floor(coefficients(same), NO_INFERENCE, PIPES)
    assert set(alike["floor"]) == {0.0}
    assert alike["exceeds"].isna().all()


def test_differences_are_of_every_pair_once_and_of_the_named_runs_alone() -> None:
    runs = {"pipe": (0.01, 0.1), "pipe@1": (0.03, 0.1), "pipe@2": (0.08, 0.4), "mem0": (0.9, 0.9)}
    found = differences(coefficients(runs), PIPES)
    at_10 = found[found["horizon"] == 10]
    assert list(zip(at_10["first"], at_10["second"], strict=True)) == list(itertools.combinations(PIPES, 2))
    assert at_10["difference"].tolist() == pytest.approx([0.02, 0.07, 0.05])
    assert found[found["horizon"] == 0]["difference"].tolist() == pytest.approx([0.01, 0.185, 0.175])


VALUES = st.floats(-1, 1).map(lambda value: round(value, 6))


@settings(max_examples=40, deadline=None)
@given(pipes=st.lists(VALUES, min_size=2, max_size=6), other=st.lists(VALUES, min_size=1, max_size=4))
def test_the_floor_is_the_spread_of_two_runs_and_everything_follows_from_plain_formulas(
    pipes: list[float], other: list[float]
) -> None:
    runs = {f"pipe@{seed}": (value,) for seed, value in enumerate(pipes)}
    runs |= {f"mem0@{seed}": (value,) for seed, value in enumerate(other)}
    same = [Experiment(mechanism="pipe", backbone="b", seed=seed).key for seed in range(len(pipes))]
    floor = noise_floor(coefficients(runs, (10,)), inferred(mem0=(0.1, 0.2)), same)
    pipe, mem0 = row_of(floor, "pipe", 10), row_of(floor, "mem0", 10)
    # The mean square of all pairwise differences is twice the variance.
    assert pipe["floor"] == pytest.approx(math.sqrt(2) * statistics.stdev(pipes), abs=1e-12)
    assert pipe["pairs"] == len(pipes) * (len(pipes) - 1) / 2
    gain = statistics.fmean(other) - statistics.fmean(pipes)
    assert mem0["gain"] == pytest.approx(gain, abs=1e-12)
    if abs(abs(gain) - pipe["floor"]) > 1e-9 and pipe["floor"] > 1e-9:
        assert mem0["exceeds"] == (abs(gain) > pipe["floor"])
    if len(other) == 1:
        assert math.isnan(mem0["seed_sd"])
        return
    variance = statistics.variance(other)
    share = variance / (variance + 0.01 - variance / len(other)) if variance else 0
    assert mem0["seed_sd"] == pytest.approx(math.sqrt(variance), abs=1e-12)
    assert mem0["seed_share"] == pytest.approx(min(1.0, share), abs=1e-9)


# -- which runs are Pipe's samples


def test_samples_of_pipe_are_its_seeds_and_sections_of_its_kind_each_sample_once() -> None:
    chosen = {"mechanisms": ["pipe", "pipe_aa", "pipe_copy", "mem0"], "backbones": ["rules-noisy"], "seeds": [0, 1]}
    setting = load_settings(overrides={"mechanisms": {"pipe_copy": {"kind": "pipe"}}, "experiments": chosen})
    keys = ["pipe-rules-noisy", "pipe-rules-noisy@1", "pipe_aa-rules-noisy", "pipe_aa-rules-noisy@1"]
    assert list(samples_of_pipe(setting)) == keys


# -- in the report


def tables(language: str, **experiments: object) -> tuple[TableView, ...]:
    chosen = {"mechanisms": ["pipe", "mem0"], "backbones": ["rules-noisy"], **experiments}
    inputs = world(world_settings(last="2025-02-28", experiments=chosen))
    return seed_tables(inputs, NO_INFERENCE, Words(language))  # type: ignore[arg-type]


def test_the_report_shows_the_spread_and_every_pair_of_pipe() -> None:
    floor, pairs = tables("en", seeds=[0, 1, 2])
    assert floor.caption == "Seeds and noise floor, backbone rules-noisy"
    assert len(floor.rows) == 2 * 2 * 4
    assert {row[2].text for row in floor.rows} == {"3"}
    assert [row[0].text for row in pairs.rows] == [
        "Pipe, seed 1 − Pipe, seed 0",
        "Pipe, seed 2 − Pipe, seed 0",
        "Pipe, seed 2 − Pipe, seed 1",
    ]
    assert all(len(row) == len(table.columns) for table in (floor, pairs) for row in table.rows)
    assert "between 3 pairs of single runs of Pipe" in floor.notes[1]
    above = [row[-1].text for row in floor.rows if row[0].text == "Mem0"]
    assert set(above) <= {"yes", "no"}
    assert {row[-1].text for row in floor.rows if row[0].text == "Pipe"} == {"–"}


def test_without_a_second_run_of_pipe_the_report_says_what_is_missing() -> None:
    (floor,) = tables("en")
    assert "the noise floor is not known" in floor.notes[1]


def test_seeds_of_a_backbone_without_samples_are_told() -> None:
    floor, *_ = tables("en", backbones=["rules"], seeds=[0, 1])
    assert "Backbone rules answers alike for every seed" in floor.notes[-1]


@pytest.mark.parametrize("experiments", [{"seeds": [0, 1]}, {"backbones": ["rules"], "seeds": [0, 1]}, {}])
def test_every_word_of_it_is_there_in_chinese(experiments: dict[str, object]) -> None:
    assert LANGUAGES == ("en", "zh")
    english, both = tables("en", **experiments), tables("zh", **experiments)
    for one, other in zip(english, both, strict=True):
        assert [[cell.text for cell in row[2:-1]] for row in one.rows] == [
            [cell.text for cell in row[2:-1]] for row in other.rows
        ]
        assert not set(other.columns) & set(one.columns) - {name for name in one.columns if "IC" in name}
        assert other.caption != one.caption
        assert not set(other.notes) & set(one.notes)


def test_the_chinese_of_seeds_has_nothing_that_the_view_does_not_say() -> None:
    catalogue = tomllib.loads((Path(words.__file__).parent / "zh" / "seeds.toml").read_text("utf-8"))
    said = {node.value for node in ast.walk(ast.parse(inspect.getsource(seeds_view))) if isinstance(node, ast.Constant)}
    assert catalogue.keys() <= said
