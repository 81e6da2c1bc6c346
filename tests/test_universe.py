"""The 31 industries and how people may name them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from finevolve_pipeline.errors import UniverseError
from finevolve_pipeline.universe import BENCHMARK, CODES, INDUSTRIES, industry


def test_there_are_31_industries_each_named_once() -> None:
    for names in zip(*INDUSTRIES, strict=True):
        assert len(set(names)) == 31


def test_codes_ascend_and_leave_out_the_benchmark() -> None:
    assert list(CODES) == sorted(CODES)
    assert BENCHMARK not in CODES


@pytest.mark.parametrize("text", ["801170", "801170.SI", "801170.si", " 801170 ", "交通运输", "Transportation"])
def test_every_way_to_name_an_industry(text: str) -> None:
    assert industry(text).code == "801170"


@pytest.mark.parametrize("text", ["801020", "000852", "采掘", "", "80117"])
def test_what_is_no_industry_of_the_2021_scheme_is_refused(text: str) -> None:
    with pytest.raises(UniverseError, match="not one of the 31"):
        industry(text)


@pytest.mark.real_data
def test_codes_and_names_are_those_of_the_real_closes(real_data: Path) -> None:
    rows = pd.read_csv(real_data / "market" / "shenwan_l1_daily.csv", dtype=str, usecols=["code", "name"])
    real = dict(rows.drop_duplicates().itertuples(index=False))
    assert real == {i.code: i.name_zh for i in INDUSTRIES}
