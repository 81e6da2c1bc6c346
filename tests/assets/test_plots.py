"""Small plots of asset metadata."""

from __future__ import annotations

import warnings

import pandas as pd
import pytest

from assets import plots


@pytest.mark.parametrize(
    ("counts", "line"),
    [([0, 1, 2, 4], " ▂▄█"), ([], ""), ([0, 0], "  "), ([1000, 1], "█▁")],
)
def test_text_bars_are_relative_to_the_largest_count(counts: list[int], line: str) -> None:
    assert plots.text_bars(counts) == line


@pytest.mark.parametrize("value", [0.1, float("nan")])
@pytest.mark.parametrize("runs", [1, 16, 100])
def test_a_legend_of_many_runs_leaves_room_for_the_bars(runs: int, value: float) -> None:
    values = pd.DataFrame({f"reflexion_original-rules-noisy@{run}": [value] * 6 for run in range(runs)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plots.bars(values, "IC")


def test_pictures_are_embedded_and_survive_missing_values() -> None:
    values = pd.DataFrame({"pipe": [0.1, float("nan")], "mem0": [0.2, -0.1]}, index=["tsIC 10d", "csIC 10d"])
    assert plots.bars(values, "IC").md_str.startswith("![IC](data:image/png;base64,")
    assert plots.histogram({"10": pd.Series([0.1, float("nan")])}, "alpha").md_str.startswith("![alpha](data:")
