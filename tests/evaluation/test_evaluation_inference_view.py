"""The tables beside the default tests: every number in its column, horizons in order, nothing invented."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
from inferred import Inferred, inference, level

from finevolve_pipeline.evaluation.report.inference_view import inference_tables
from finevolve_pipeline.evaluation.report.views import TableView
from finevolve_pipeline.evaluation.report.words import Words
from finevolve_pipeline.settings import load_settings

SETTINGS = load_settings().evaluation

FRAME = inference(
    level("pipe", "csIC", 10, 0.0123, p_holm=1.0),
    Inferred("mem0", "csIC", 0, 0.02, p_holm=0.5),
    Inferred("mem0", "csIC", 20, 0.031, p_holm=0.01),
    Inferred("mem0", "csIC", 10, -0.004),
    Inferred("mem0", "csIC", 10, 0.5, p_holm=1.0, stage="cold_start"),
    Inferred("mem0", "csIC", 10, 0.5, p_holm=1.0, backbone="other"),
).assign(
    p_newey_west=0.25,
    p_fixed_b=0.5,
    p_hansen_hodrick=math.nan,
    p_naive=0.0001,
    icir=0.125,
    positive_share=0.58,
    hit_rate=0.515,
    dispersion=0.25,
    coverage=1.0,
    undefined=3,
)


def texts(table: TableView) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


def test_differences_stand_by_horizon_with_their_mean_last_and_every_other_test() -> None:
    differences, _ = inference_tables(FRAME, "rules", SETTINGS, Words())
    assert texts(differences) == [
        ["Mem0", "csIC 10d", "-0.0040", "–", "–", "0.250", "0.500", "–", "<0.001"],
        ["Mem0", "csIC 20d", "+0.0310", "0.0050", "0.001", "0.250", "0.500", "–", "<0.001"],
        ["Mem0", "csIC, mean", "+0.0200", "0.0050", "0.050", "0.250", "0.500", "–", "<0.001"],
    ]


def test_coefficients_are_described() -> None:
    _, levels = inference_tables(FRAME, "rules", SETTINGS, Words())
    (row,) = texts(levels)
    assert row == ["Pipe", "csIC 10d", "0.0123", "0.0050", "29.9", "3", "0.125", "58%", "51.5%", "0.250", "100.0%"]
    assert len(levels.columns) == len(row)


def test_without_rows_there_is_no_table() -> None:
    assert inference_tables(FRAME, "absent", SETTINGS, Words()) == ()


def test_what_is_said_of_the_other_tests_is_what_their_calibration_found() -> None:
    found = pd.read_csv(Path(__file__).parents[2] / "benchmarks" / "calibration.csv")
    nulls = found[(found["planted"] == 0) & (found["sessions"] == 299) & (found["quantity"] == "difference")]
    as_often = nulls.groupby("test")["rejected"].agg(["min", "max"]) / 0.05
    (note,) = inference_tables(FRAME, "rules", SETTINGS, Words())[0].notes
    told = ("fixed_b", "fixed-b {:.1f} to {:.1f}"), ("newey_west", "Newey–West {:.1f} to {:.1f}")
    told += ("hansen_hodrick", "Hansen–Hodrick {:.1f} to {:.1f}"), ("naive", "for independent, {:.0f} to {:.0f}")
    for test, words in told:
        assert words.format(*as_often.loc[test]) in note
