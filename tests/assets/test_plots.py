"""Small plots of asset metadata."""

from __future__ import annotations

import pandas as pd
import pytest

from assets import plots


@pytest.mark.parametrize(
    ("counts", "line"),
    [([0, 1, 2, 4], " ▂▄█"), ([], ""), ([0, 0], "  "), ([1000, 1], "█▁")],
)
def test_text_bars_are_relative_to_the_largest_count(counts: list[int], line: str) -> None:
    assert plots.text_bars(counts) == line


def test_pictures_are_embedded_and_survive_missing_values() -> None:
    values = pd.DataFrame({"pipe": [0.1, float("nan")], "mem0": [0.2, -0.1]}, index=["tsIC 10d", "csIC 10d"])
    assert plots.bars(values, "IC").md_str.startswith("![IC](data:image/png;base64,")
    assert plots.histogram({"10": pd.Series([0.1, float("nan")])}, "alpha").md_str.startswith("![alpha](data:")
