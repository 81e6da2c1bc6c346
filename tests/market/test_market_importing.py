"""Reading bars: codes, days, numbers and units as sources write them."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from finevolve_pipeline.errors import InputError
from finevolve_pipeline.importing import Reject, RowError, RowFile
from finevolve_pipeline.market.importing import BarOptions, BarReader, read_bars, read_day

TODAY = dt.date(2026, 6, 1)


def options(benchmark: bool = False, volume: str | None = "shares", amount: str | None = "yuan") -> BarOptions:
    return BarOptions(benchmark, TODAY, volume, amount, ("--volume-unit", "--amount-unit"))


def read(path: Path, text: str, given: BarOptions) -> tuple[pd.DataFrame, list[Reject], BarReader]:
    path.write_text(text, "utf-8")
    reader, rejects = BarReader(given), []  # type: ignore[var-annotated]
    frames = list(read_bars(RowFile(path), reader, rejects.append))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(), rejects, reader


def test_units_become_shares_and_yuan_and_missing_numbers_stay_missing(tmp_path: Path) -> None:
    text = (
        "code,name,date,open,high,low,close,volume,amount\n"
        "801010,农林牧渔,2025-01-02,1,2,0.5,1.5,15.5,121.25\n801030,基础化工,2025-01-02,,nan,--,3,,\n"
    )
    frame, rejects, _ = read(tmp_path / "a.csv", text, options(volume="1e8-shares", amount="1e8-yuan"))
    assert rejects == []
    assert frame.loc[0].tolist() == ["2025-01-02", "801010", 1.0, 2.0, 0.5, 1.5, 15.5e8, 121.25e8]
    assert np.isnan(frame.loc[1, ["open", "high", "low", "volume", "amount"]].astype(float)).all()
    assert frame.loc[1, "close"] == 3.0


@pytest.mark.parametrize("sector", ["801170", "801170.SI", "交通运输", "Transportation", " transportation "])
def test_a_sector_may_be_code_or_name(tmp_path: Path, sector: str) -> None:
    frame, _, _ = read(tmp_path / "a.csv", f"sector,trade_date,close\n{sector},20250102,5\n", options())
    assert frame["code"].tolist() == ["801170"]


@pytest.mark.parametrize("index", ["000852", "000852.SH", "sh000852", "852", "中证1000", "CSI1000", ""])
def test_the_benchmark_may_be_named_in_many_ways_or_not_at_all(tmp_path: Path, index: str) -> None:
    frame, rejects, _ = read(tmp_path / "a.csv", f"code,date,close\n{index},2025-01-02,5\n", options(True))
    assert rejects == []
    assert frame["code"].tolist() == ["000852"]


def test_the_shenzhen_stock_of_the_same_number_is_not_the_benchmark(tmp_path: Path) -> None:
    _, rejects, _ = read(tmp_path / "a.csv", "code,date,close\n000852.SZ,2025-01-02,5\n", options(True))
    assert [reject.reason for reject in rejects] == ["index '000852.SZ': not CSI1000 (000852)"]


@pytest.mark.parametrize(
    "written",
    ["2025-05-30", "2025/5/30", "20250530", 20250530, 20250530.0, "2025-05-30 00:00:00",
     "2025-05-30T00:00:00+08:00", dt.date(2025, 5, 30), dt.datetime(2025, 5, 30, 15)],
)  # fmt: skip
def test_a_day_is_understood(written: object) -> None:
    assert read_day(written) == dt.date(2025, 5, 30)


@pytest.mark.parametrize("written", ["", None, "30.05.2025", "2025-02-30", "2025-05-30 09:31", "2025530", "2025-05/30"])
def test_what_is_no_day_is_refused(written: object) -> None:
    with pytest.raises(RowError, match="date"):
        read_day(written)


def test_undeclared_units_are_asked_for_by_name_and_only_where_needed(tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        read(
            tmp_path / "a.csv",
            "code,date,close,volume\n801010,2025-01-02,1,2\n",
            options(volume=None, amount=None),
        )
    assert str(refused.value) == (
        f"{tmp_path / 'a.csv'}: units must be declared: add --volume-unit shares|lots|1e4-shares|1e4-lots|1e8-shares"
    )
    frame, _, _ = read(tmp_path / "b.csv", "code,date,close\n801010,2025-01-02,1\n", options(volume=None, amount=None))
    assert len(frame) == 1
    with pytest.raises(InputError, match="units must be declared"):
        read(
            tmp_path / "c.jsonl",
            '{"code":"801010","date":"2025-01-02","close":1,"vol":2}\n',
            options(volume=None),
        )


def test_days_beyond_the_calendar_are_skipped_and_repeats_counted(tmp_path: Path) -> None:
    text = "code,date,close\n801010,2023-12-01,1\n801010,2025-01-02,2\n801010,2025-01-02,2\n801010,2027-01-04,1\n"
    frame, rejects, reader = read(tmp_path / "a.csv", text, options())
    assert (len(frame), rejects, reader.beyond, reader.repeated) == (1, [], 2, 1)


def test_two_numbers_for_one_bar_in_one_file_are_a_conflict(tmp_path: Path) -> None:
    text = "code,date,close\n801010,2025-01-02,2\n801010,2025-01-02,3\n"
    frame, rejects, _ = read(tmp_path / "a.csv", text, options())
    assert frame["close"].tolist() == [2.0]
    assert [tuple(reject) for reject in rejects] == [
        (3, "801010 2025-01-02: row 2 has other numbers for it", "801010,2025-01-02,3")
    ]


def test_a_session_after_today_is_refused(tmp_path: Path) -> None:
    text = "code,date,close\n801010,2026-06-01,2\n801010,2026-06-02,3\n"
    frame, rejects, _ = read(tmp_path / "a.csv", text, options())
    assert frame["session"].tolist() == ["2026-06-01"]
    assert [reject.reason for reject in rejects] == ["session 2026-06-02: lies in the future"]


@pytest.mark.parametrize(
    ("prices", "reason"),
    [
        ("10,9,11,10", "high 9 lies below low 11"),
        ("10,11,9,11.01", "close 11.01 lies above high 11"),
        ("8.9,11,9,10", "open 8.9 lies below low 9"),
        (",,9,8", "close 8 lies below low 9"),
        ("10,11,9,11.000001", None),
        (",,,8", None),
    ],
)
def test_prices_that_contradict_each_other_are_refused(tmp_path: Path, prices: str, reason: str | None) -> None:
    text = f"code,date,open,high,low,close\n801010,2025-01-02,{prices}\n"
    frame, rejects, _ = read(tmp_path / "a.csv", text, options())
    assert [reject.reason for reject in rejects] == ([] if reason is None else [reason])
    assert len(frame) == (reason is None)


def test_a_name_of_another_industry_than_the_code_is_refused(tmp_path: Path) -> None:
    text = (
        "code,name,date,close\n801010,农林牧渔,2025-01-02,1\n801030,农林牧渔,2025-01-02,1\n"
        "801040,any other name,2025-01-02,1\n801050,,2025-01-02,1\n"
    )
    frame, rejects, _ = read(tmp_path / "a.csv", text, options())
    assert frame["code"].tolist() == ["801010", "801040", "801050"]
    assert [reject.reason for reject in rejects] == ["code 801030 is not '农林牧渔', which is 801010"]


def test_units_that_look_wrong_are_told(tmp_path: Path) -> None:
    text = "code,date,close,volume,amount\n801010,2025-01-02,1,15.5,121\n801030,2025-01-02,1,0,\n"
    right, wrong = options(volume="1e8-shares", amount="1e8-yuan"), options()
    assert read(tmp_path / "a.csv", text, right)[2].notes() == []
    frame, _, reader = read(tmp_path / "a.csv", text, wrong)
    assert len(frame) == 2
    assert reader.notes() == [
        "--volume-unit shares looks wrong: the median volume of a day is 15.5 shares, "
        "for one industry 1e+06 to 1e+12 is plausible",
        "--amount-unit yuan looks wrong: the median amount of a day is 121 yuan, "
        "for one industry 1e+07 to 2e+12 is plausible",
    ]
    assert read(tmp_path / "b.csv", "date,close,amount\n2025-01-02,1,2e11\n", options(True))[2].notes() == []
    assert len(read(tmp_path / "b.csv", "date,close,amount\n2025-01-02,1,2e8\n", options(True))[2].notes()) == 1


@pytest.mark.real_data
@pytest.mark.parametrize("benchmark", [False, True])
def test_real_bars_have_right_units_and_no_contradiction(real_data: Path, benchmark: bool) -> None:
    path = real_data / "market" / ("csi1000_daily.csv" if benchmark else "shenwan_l1_daily.csv")
    hundred_millions = options(benchmark, "1e8-shares", "1e8-yuan")
    for given, told in ((options(benchmark), 0 if benchmark else 2), (hundred_millions, 2 if benchmark else 0)):
        reader = BarReader(replace(given, today=dt.date(2026, 12, 1)))
        rejects: list[Reject] = []
        assert sum(len(frame) for frame in read_bars(RowFile(path), reader, rejects.append)) > 500
        assert rejects == []
        assert len(reader.notes()) == told
