"""The 31 industries and how people may name them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from finevolve_pipeline.errors import UniverseError
from finevolve_pipeline.universe import (
    _ALIASES,
    _ALIASES_EN,
    BENCHMARK,
    CODES,
    INDUSTRIES,
    Industry,
    _plain,
    industry,
    industry_named,
)


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


@pytest.mark.parametrize("one", INDUSTRIES)
def test_an_industry_is_known_by_its_code_and_names_however_a_model_writes_them(one: Industry) -> None:
    for text in (
        *one,
        f"{one.code}.SI",
        f"{one.code} {one.name_zh} {one.name_en}",
        f"{one.name_zh}（{one.code}）",
        f"申万一级行业：{one.name_zh}",
        f"{one.name_zh}行业",
        f"{one.name_zh}板块",
        f"{one.name_en.upper()} sector",
    ):
        assert industry_named(text) == one, text


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("化工", "801030"),
        ("黑色金属", "801040"),
        ("纺织服装", "801130"),
        ("商业贸易", "801200"),
        ("休闲服务", "801210"),
        ("餐饮旅游", "801210"),
        ("电气设备", "801730"),
        ("半导体", "801080"),
        ("白酒Ⅱ", "801120"),
        ("证券Ⅱ", "801790"),
        ("银行业", "801780"),
        ("Real estate", "801180"),
        ("Food and Beverage", "801120"),
        ("semiconductors", "801080"),
        ("８０１０８０", "801080"),
    ],
)
def test_older_finer_and_usual_names_are_mapped(name: str, code: str) -> None:
    named = industry_named(name)
    assert named is not None
    assert named.code == code


@pytest.mark.parametrize(
    "name",
    [
        "采掘",
        "新能源",
        "金融",
        "信息服务",
        "All Sectors",
        "全行业",
        "801020",
        "801081",
        "000852",
        "801080 and 801150",
        "801080 银行",
        "电子、银行",
        "业",
        "行业",
        "",
        "业" * 200_000,
    ],
    ids=lambda name: name[:20],
)
def test_what_means_several_industries_or_none_is_not_guessed_at(name: str) -> None:
    assert industry_named(name) is None


def test_no_further_name_means_two_industries() -> None:
    listed = [name for names in _ALIASES.values() for name in names.split()]
    english = [name for names in _ALIASES_EN.values() for name in names]
    own = [name for one in INDUSTRIES for name in one[1:]]
    assert len({_plain(name) for name in (*listed, *english, *own)}) == len(listed) + len(english) + len(own)
    assert tuple(sorted(_ALIASES)) == tuple(sorted(_ALIASES_EN)) == CODES


@pytest.mark.real_data
def test_codes_and_names_are_those_of_the_real_closes(real_data: Path) -> None:
    rows = pd.read_csv(real_data / "market" / "shenwan_l1_daily.csv", dtype=str, usecols=["code", "name"])
    real = dict(rows.drop_duplicates().itertuples(index=False))
    assert real == {i.code: i.name_zh for i in INDUSTRIES}
