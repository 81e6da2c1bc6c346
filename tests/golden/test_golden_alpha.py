"""The paper's realised figures for Transportation (801170) on 2025-05-30, from the exchange's own closes.

Section 4.3 gives the excess returns in per cent, appendix C.3.1 the changes in index points. The closes are
facts of 2025: Shenwan's of 801170, China Securities Index's of 000852.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from finevolve_pipeline import calendar
from finevolve_pipeline.market.alpha import BASES, excess_returns, outcomes_known_on
from finevolve_pipeline.tables import Bars, conform
from finevolve_pipeline.universe import BENCHMARK

SECTOR = "801170"
TODAY = dt.date(2025, 5, 30)
EXCESS_PER_CENT = {10: -2.37, 20: -6.58, 40: -10.75}
POINTS = {10: 34.16, 20: 101.42, 40: 91.20}

SECTOR_CLOSES = {
    "2025-03-31": 2147.58,
    "2025-04-29": 2137.36,
    "2025-05-16": 2204.62,
    "2025-05-30": 2238.78,
    "2025-06-16": 2230.58,
    "2025-06-30": 2213.82,
    "2025-07-28": 2259.31,
}
BENCHMARK_CLOSES = {
    "2025-05-30": 6026.5603,
    "2025-06-16": 6147.46,
    "2025-06-30": 6356.1813,
    "2025-07-28": 6729.979,
}

Closes = tuple[pd.DataFrame, pd.DataFrame]


def _bars(closes: pd.DataFrame) -> pd.DataFrame:
    return conform(closes.assign(open=np.nan, high=np.nan, low=np.nan, volume=np.nan, amount=np.nan), Bars, "bars")


def _written_closes() -> Closes:
    industry, benchmark = (
        pd.DataFrame({"session": closes.keys(), "code": code, "close": closes.values()})
        for code, closes in ((SECTOR, SECTOR_CLOSES), (BENCHMARK, BENCHMARK_CLOSES))
    )
    return _bars(industry), _bars(benchmark)


def _real_closes(folder: Path) -> Closes:
    industry = pd.read_csv(folder / "market" / "shenwan_l1_daily.csv", dtype={"code": str})
    benchmark = pd.read_csv(folder / "market" / "csi1000_daily.csv").assign(code=BENCHMARK)
    return _bars(industry.rename(columns={"date": "session"})), _bars(benchmark.rename(columns={"date": "session"}))


@pytest.fixture(params=["written here", pytest.param("real files", marks=pytest.mark.real_data)])
def closes(request: pytest.FixtureRequest) -> Closes:
    """Bars of industry and benchmark, from the closes above or from the whole real files."""
    if request.param == "written here":
        return _written_closes()
    return _real_closes(request.getfixturevalue("real_data"))


def test_excess_returns_are_those_of_the_paper(closes: Closes) -> None:
    outcomes = excess_returns([TODAY], list(EXCESS_PER_CENT), *closes)
    alpha = outcomes[outcomes["code"] == SECTOR].set_index("horizon")["alpha"]
    assert {h: round(100 * value, 2) for h, value in alpha.items()} == EXCESS_PER_CENT


def test_the_same_figures_become_known_at_each_horizons_end(closes: Closes) -> None:
    def of(bars: pd.DataFrame, day: dt.date) -> pd.DataFrame:
        return bars[bars["session"] == day.isoformat()]

    for horizon, per_cent in EXCESS_PER_CENT.items():
        known = outcomes_known_on(
            calendar.shift(TODAY, horizon),
            [horizon],
            lambda day: of(closes[0], day),
            lambda day: of(closes[1], day),
        )
        row = known.set_index("code").loc[SECTOR]
        assert row["predicted_on"] == TODAY.isoformat()
        assert round(100 * row["alpha"], 2) == per_cent


def test_index_points_that_mature_on_the_day_are_those_of_the_paper(closes: Closes) -> None:
    industry, benchmark = closes
    known = outcomes_known_on(
        TODAY,
        list(POINTS),
        lambda day: industry[industry["session"] == day.isoformat()],
        lambda day: benchmark[benchmark["session"] == day.isoformat()],
    )
    rows = known[known["code"] == SECTOR].set_index("horizon")
    points = rows["close_to"] - rows["close_from"]
    assert {h: round(value, 2) for h, value in points.items()} == POINTS
    assert rows["predicted_on"].to_dict() == {10: "2025-05-16", 20: "2025-04-29", 40: "2025-03-31"}


@pytest.mark.real_data
def test_the_real_opens_end_ten_sessions_before_the_window_does(real_data: Path) -> None:
    """After 2026-03-18 the industry file has closes only: nothing is put in the place of an open that is not there."""
    industry = pd.read_csv(real_data / "market" / "shenwan_l1_daily.csv", dtype={"code": str})
    benchmark = pd.read_csv(real_data / "market" / "csi1000_daily.csv").assign(code=BENCHMARK)
    bars = [frame.rename(columns={"date": "session"}) for frame in (industry, benchmark)]
    window = calendar.sessions_between(dt.date(2025, 1, 2), dt.date(2026, 3, 31))
    missing = {}
    for base in BASES:
        labels = excess_returns(window, [10], *bars, base)
        missing[base] = sorted(set(labels.loc[labels["alpha"].isna(), "predicted_on"]))
    assert missing == {
        "close_t": [],
        "open_next": [session.isoformat() for session in window[-10:]],
        "close_next": [],
    }
