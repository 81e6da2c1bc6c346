"""Excess returns by hand-made closes: the formula, what is missing, and the agreement of the two views."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from finevolve_pipeline import calendar
from finevolve_pipeline.errors import CalendarError, TableError
from finevolve_pipeline.graph import Graph
from finevolve_pipeline.llm.rules.backbone import RulesBackbone
from finevolve_pipeline.market.alpha import BASES, excess_returns, label_bases, outcomes_known_on
from finevolve_pipeline.settings import LabelBase, load_settings
from finevolve_pipeline.tables import Bars, LabelBases, Outcomes, conform
from finevolve_pipeline.universe import BENCHMARK, CODES

HORIZONS = (10, 20, 40)
SESSIONS = calendar.sessions_between(dt.date(2025, 1, 2), dt.date(2025, 12, 31))
KEY = ["predicted_on", "horizon", "code"]


def _bars(rows: list[tuple[dt.date, str, float]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["session", "code", "close"])
    frame["session"] = [day.isoformat() for day in frame["session"]]
    return conform(frame.assign(open=np.nan, high=np.nan, low=np.nan, volume=np.nan, amount=np.nan), Bars, "bars")


def _by_session(bars: pd.DataFrame, asked: list[dt.date] | None = None) -> Callable[[dt.date], pd.DataFrame]:
    def bars_of(day: dt.date) -> pd.DataFrame:
        if asked is not None:
            asked.append(day)
        return bars[bars["session"] == day.isoformat()]

    return bars_of


@pytest.fixture(scope="module")
def walk() -> tuple[pd.DataFrame, pd.DataFrame]:
    """A year of random closes; one of 50 industry closes is missing, one of 100 has no row."""
    rng = np.random.default_rng(5)
    closes = 1000 * np.exp(np.cumsum(0.01 * rng.standard_normal((len(SESSIONS), 32)), axis=0))
    closes[:, :31][rng.random((len(SESSIONS), 31)) < 0.02] = np.nan
    industry = _bars([(s, c, closes[i, j]) for i, s in enumerate(SESSIONS) for j, c in enumerate(CODES)])
    benchmark = _bars([(s, BENCHMARK, closes[i, 31]) for i, s in enumerate(SESSIONS)])
    return industry[rng.random(len(industry)) < 0.99], benchmark


def test_alpha_is_industry_return_less_benchmark_return() -> None:
    start, end = dt.date(2025, 5, 30), dt.date(2025, 6, 16)
    industry = _bars([(start, "801170", 200.0), (end, "801170", 220.0)])
    benchmark = _bars([(start, BENCHMARK, 1000.0), (end, BENCHMARK, 1040.0)])
    row = excess_returns([start], [10], industry, benchmark).set_index("code").loc["801170"]
    assert (row["predicted_on"], row["matured_on"]) == ("2025-05-30", "2025-06-16")
    assert (row["close_from"], row["close_to"]) == (200.0, 220.0)
    assert row["industry_return"] == pytest.approx(0.10)
    assert row["benchmark_return"] == pytest.approx(0.04)
    assert row["alpha"] == pytest.approx(0.06)


def test_outcomes_read_only_today_and_the_sessions_they_were_predicted_on(
    walk: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    today = SESSIONS[60]
    asked: list[dt.date] = []
    outcomes_known_on(today, HORIZONS, _by_session(walk[0], asked), _by_session(walk[1], asked))
    assert sorted(set(asked)) == [SESSIONS[20], SESSIONS[40], SESSIONS[50], today]


def test_every_industry_has_its_row_in_a_fixed_order(walk: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    known = outcomes_known_on(SESSIONS[60], (40, 10), _by_session(walk[0].iloc[::-1]), _by_session(walk[1]))
    assert known["code"].tolist() == [*CODES, *CODES]
    assert known["horizon"].tolist() == [40] * 31 + [10] * 31
    assert set(known["matured_on"]) == {SESSIONS[60].isoformat()}
    pd.testing.assert_frame_equal(conform(known, Outcomes, "matured_alpha"), known)


@pytest.mark.parametrize("lost", ["close is NaN", "row is missing"])
@pytest.mark.parametrize("end", ["predicted_on", "matured_on"])
def test_a_missing_close_makes_a_missing_alpha_of_that_industry_only(lost: str, end: str) -> None:
    start, today = SESSIONS[0], SESSIONS[10]
    gap = start if end == "predicted_on" else today
    rows = [(day, code, 100.0) for day in (start, today) for code in CODES]
    rows = [
        (day, code, np.nan if (day, code) == (gap, "801170") else close)
        for day, code, close in rows
        if lost == "close is NaN" or (day, code) != (gap, "801170")
    ]
    benchmark = _bars([(start, BENCHMARK, 1.0), (today, BENCHMARK, 2.0)])
    alpha = outcomes_known_on(today, [10], _by_session(_bars(rows)), _by_session(benchmark)).set_index("code")["alpha"]
    assert alpha.index[alpha.isna()].tolist() == ["801170"]
    assert set(alpha.drop("801170")) == {-1.0}


def test_a_missing_benchmark_close_makes_every_alpha_missing_but_keeps_industry_returns() -> None:
    start, today = SESSIONS[0], SESSIONS[10]
    industry = _bars([(day, code, 100.0) for day in (start, today) for code in CODES])
    known = outcomes_known_on(today, [10], _by_session(industry), _by_session(_bars([(start, BENCHMARK, 1.0)])))
    assert known["alpha"].isna().all()
    assert set(known["industry_return"]) == {0.0}


def test_both_views_agree_to_the_last_bit(walk: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    by_prediction = excess_returns(SESSIONS, HORIZONS, *walk)
    by_maturity = pd.concat(
        outcomes_known_on(today, HORIZONS, _by_session(walk[0]), _by_session(walk[1])) for today in SESSIONS[40::7]
    )
    same = by_maturity[KEY].merge(by_prediction, on=KEY, how="left")
    assert by_maturity["alpha"].isna().any()
    assert by_maturity["alpha"].notna().any()
    pd.testing.assert_frame_equal(same[by_maturity.columns], by_maturity.reset_index(drop=True), check_exact=True)


def test_beyond_the_bars_the_row_stays_without_a_number(walk: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    late = excess_returns([SESSIONS[-5]], HORIZONS, *walk)
    assert late["alpha"].isna().all()
    assert late.groupby("horizon")["matured_on"].first().tolist() == [
        calendar.shift(SESSIONS[-5], h).isoformat() for h in HORIZONS
    ]


def test_beyond_the_calendar_the_row_is_left_out(walk: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    near_the_end = calendar.all_sessions()[-15]
    assert set(excess_returns([near_the_end], HORIZONS, *walk)["horizon"]) == {10}
    nothing = excess_returns([calendar.all_sessions()[-1]], HORIZONS, *walk)
    assert len(conform(nothing, Outcomes, "alpha")) == 0


def test_what_is_no_session_is_refused(walk: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    saturday = dt.date(2025, 5, 31)
    with pytest.raises(CalendarError, match="exchange was closed"):
        excess_returns([saturday], HORIZONS, *walk)
    with pytest.raises(CalendarError, match="exchange was closed"):
        outcomes_known_on(saturday, HORIZONS, _by_session(walk[0]), _by_session(walk[1]))


def _known(entries: dict[dt.date, tuple[float, float]], code: str) -> pd.DataFrame:
    """Bars of one index by hand: open and close of each session."""
    closes = _bars([(day, code, close) for day, (_, close) in entries.items()])
    return closes.assign(open=[opened for opened, _ in entries.values()])


INDUSTRY_PRICES = {0: (190.0, 200.0), 1: (210.0, 220.0), 10: (260.0, 264.0), 11: (250.0, 242.0)}
"""Session after 2025-01-02: open and close."""
BENCHMARK_PRICES = {0: (980.0, 1000.0), 1: (1000.0, 1100.0), 10: (1150.0, 1200.0), 11: (1200.0, 1210.0)}


def _alpha_from(base: LabelBase, industry: dict[int, tuple[float, float]] | None = None) -> pd.Series:
    by_day = {SESSIONS[at]: prices for at, prices in (industry or INDUSTRY_PRICES).items()}
    market = _known({SESSIONS[at]: prices for at, prices in BENCHMARK_PRICES.items()}, BENCHMARK)
    found = excess_returns([SESSIONS[0]], [10], _known(by_day, "801170"), market, base)
    return found.set_index("code").loc["801170"]


@pytest.mark.parametrize(
    ("base", "industry", "benchmark", "known_on"),
    [
        ("close_t", 264 / 200 - 1, 1200 / 1000 - 1, 10),
        ("open_next", 264 / 210 - 1, 1200 / 1000 - 1, 10),
        ("close_next", 242 / 220 - 1, 1210 / 1100 - 1, 11),
    ],
)
def test_both_legs_start_where_the_label_base_says(
    base: LabelBase, industry: float, benchmark: float, known_on: int
) -> None:
    row = _alpha_from(base)
    assert row["industry_return"] == pytest.approx(industry, abs=1e-15)
    assert row["benchmark_return"] == pytest.approx(benchmark, abs=1e-15)
    assert row["alpha"] == pytest.approx(industry - benchmark, abs=1e-15)
    assert (row["predicted_on"], row["matured_on"]) == (SESSIONS[0].isoformat(), SESSIONS[known_on].isoformat())


def test_a_missing_open_takes_only_the_label_that_starts_there() -> None:
    no_open = {**INDUSTRY_PRICES, 1: (np.nan, 220.0)}
    assert math.isnan(_alpha_from("open_next", no_open)["alpha"])
    for base in ("close_t", "close_next"):
        assert _alpha_from(base, no_open)["alpha"] == _alpha_from(base)["alpha"]


def test_all_bases_stand_below_each_other_as_the_contract_says(walk: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    every = label_bases(SESSIONS[:3], HORIZONS, *walk)
    pd.testing.assert_frame_equal(conform(every, LabelBases, "label_bases"), every)
    of_the_paper = every[every["base"] == "close_t"].drop(columns="base")
    pd.testing.assert_frame_equal(of_the_paper, excess_returns(SESSIONS[:3], HORIZONS, *walk))
    later = excess_returns(SESSIONS[1:4], HORIZONS, *walk)["alpha"]
    from_next_close = every.loc[every["base"] == "close_next", "alpha"].reset_index(drop=True)
    pd.testing.assert_series_equal(from_next_close, later)


class _Stored:
    """Tables of one partition each."""

    def __init__(self, **by_name: pd.DataFrame) -> None:
        self._by_name = by_name

    def read(self, table: str, partition: str) -> pd.DataFrame:
        return self._by_name[table]

    def digest(self, table: str, partition: str) -> str | None:
        return "stored" if table in self._by_name else None


@pytest.mark.parametrize("base", BASES)
def test_what_agents_are_told_starts_at_the_close_of_t_whatever_the_label_base(
    base: LabelBase, walk: tuple[pd.DataFrame, pd.DataFrame]
) -> None:
    settings = load_settings(overrides={"evaluation": {"label_base": base}})
    graph = Graph(settings, settings.news.sources, RulesBackbone())
    told, labels = (excess_returns(SESSIONS[:3], HORIZONS, *walk, start) for start in ("close_t", base))
    stored = _Stored(alpha=labels, label_bases=label_bases(SESSIONS[:3], HORIZONS, *walk))
    pd.testing.assert_frame_equal(graph.told_outcomes(stored), told)


def test_an_index_that_stands_twice_is_named() -> None:
    day = SESSIONS[10]
    twice = _bars([(day, "801170", 1.0), (day, "801170", 2.0)])
    with pytest.raises(TableError, match=rf"bars {day}: index 801170 stands there twice"):
        excess_returns([day], [10], twice, _bars([(day, BENCHMARK, 1.0)]))
