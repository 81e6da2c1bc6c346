"""Realised excess returns: alpha(i,t,h) = [C_i(t+h)/C_i(t) - 1] - [C_m(t+h)/C_m(t) - 1] (paper section 2).

C_i are closes of an industry index, C_m those of CSI1000, and t+h is counted in sessions of the exchange.
There are two views of the same numbers: by the session an outcome becomes *known*, which the replay reads,
and by the session of the *prediction*, which only the evaluation reads. Both are one formula over the same
closes, so they agree exactly.

The evaluation may let returns start elsewhere (`LabelBase`): news is read until 24:00 of t, when the close of t
cannot be traded any more. Industry and benchmark always start together. With O for opens,

    close_t     C(t+h) / C(t) - 1        the paper's definition, and what agents are told
    open_next   C(t+h) / O(t+1) - 1      of one who trades at the first price after the news
    close_next  C(t+1+h) / C(t+1) - 1    of one who needs the whole next session to trade, and then holds for h sessions

close_next keeps the holding period, so that its returns are as large, and overlap as far, as those of close_t, and
tests on both have the same power. The other reading, C(t+h)/C(t+1) - 1, keeps the end and holds for h-1 sessions; it
only takes the first session's move out of close_t, most of which open_next takes out already.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
import pandas as pd

from finevolve_pipeline import calendar
from finevolve_pipeline.errors import TableError
from finevolve_pipeline.settings import LabelBase
from finevolve_pipeline.universe import BENCHMARK, CODES

BarsOf = Callable[[dt.date], pd.DataFrame]
"""The `Bars` of one session."""


BASES: tuple[LabelBase, ...] = get_args(LabelBase)
"""Every label base, that of the paper first."""


class _Span(NamedTuple):
    """One return: of which prediction, from which session's price, to which session's close."""

    predicted_on: dt.date
    starts_on: dt.date
    matured_on: dt.date
    horizon: int


def outcomes_known_on(
    session: dt.date, horizons: Sequence[int], industry_bars: BarsOf, benchmark_bars: BarsOf
) -> pd.DataFrame:
    """The outcomes that become known at the close of `session`, one row per horizon and industry.

    Only the bars of `session` and of the sessions h before it are read, so the result is causal by
    construction. A close that is missing (NaN, or no row at all) gives a row with NaN alpha.

    Args:
        session: t, the session of maturity.
        horizons: h in sessions.
        industry_bars: `Bars` of the industry indices on a session.
        benchmark_bars: `Bars` of the benchmark on a session.

    Returns:
        `Outcomes` with matured_on = t and predicted_on = t-h: horizons in the given order, then all 31 codes.

    Raises:
        CalendarError: t is no session, or t-h lies beyond the calendar table.
        TableError: a session holds an index twice.
    """
    starts = [(calendar.shift(session, -h), h) for h in horizons]
    spans = [_Span(start, start, session, h) for start, h in starts]
    days = sorted({day for span in spans for day in (span.predicted_on, span.matured_on)})
    return _outcomes(
        spans,
        pd.concat([industry_bars(day) for day in days], ignore_index=True) if days else _NO_BARS,
        pd.concat([benchmark_bars(day) for day in days], ignore_index=True) if days else _NO_BARS,
    )


def excess_returns(
    sessions: Sequence[dt.date],
    horizons: Sequence[int],
    industry: pd.DataFrame,
    benchmark: pd.DataFrame,
    base: LabelBase = "close_t",
) -> pd.DataFrame:
    """The outcomes of predictions made on `sessions`, for the evaluation only.

    Where the horizon ends beyond the given bars, or a price at either end is missing, the row stays, with NaN alpha.
    Where it ends beyond the calendar table, nobody knows which session that is, and the row is left out.

    Args:
        sessions: sessions t of the predictions.
        horizons: h in sessions.
        industry: `Bars` of the industry indices, any number of sessions in any order.
        benchmark: `Bars` of the benchmark.
        base: where returns start (see the module).

    Returns:
        `Outcomes`: sessions in the given order, then horizons, then all 31 codes.

    Raises:
        CalendarError: one of `sessions` is none.
        TableError: a session holds an index twice.
    """
    table = calendar.all_sessions()
    later_start, later_end = _LATER[base]
    places = [
        (session, position + later_start, position + later_end + h, h)
        for session in sessions
        for position in [calendar.session_index(session)]
        for h in horizons
    ]
    spans = [_Span(session, table[start], table[end], h) for session, start, end, h in places if end < len(table)]
    return _outcomes(spans, industry, benchmark, "open" if base == "open_next" else "close")


def label_bases(
    sessions: Sequence[dt.date], horizons: Sequence[int], industry: pd.DataFrame, benchmark: pd.DataFrame
) -> pd.DataFrame:
    """`excess_returns` from every base, as `LabelBases`; arguments and errors as there."""
    return pd.concat(
        [excess_returns(sessions, horizons, industry, benchmark, base).assign(base=base) for base in BASES],
        ignore_index=True,
    )


_LATER: dict[LabelBase, tuple[int, int]] = {"close_t": (0, 0), "open_next": (1, 0), "close_next": (1, 1)}
"""By how many sessions a return starts after t, and ends after t+h."""


_NO_BARS = pd.DataFrame({"session": pd.Series([], dtype="str"), "code": pd.Series([], dtype="str"), "close": []})


def _prices(
    bars: pd.DataFrame, days: Sequence[str], codes: Sequence[str], kind: Literal["open", "close"]
) -> np.ndarray:
    """Opens or closes as a matrix of days x codes, NaN where there is none."""
    rows = pd.Index(list(days), dtype="str").get_indexer(pd.Index(bars["session"]))
    columns = pd.Index(list(codes), dtype="str").get_indexer(pd.Index(bars["code"]))
    known = (rows >= 0) & (columns >= 0)
    rows, columns = rows[known], columns[known]
    cells = rows * len(codes) + columns
    order = np.argsort(cells, kind="stable")
    twice = order[1:][np.diff(cells[order]) == 0]
    if len(twice):
        day, code = days[rows[twice[0]]], codes[columns[twice[0]]]
        raise TableError(
            f"bars {day}: index {code} stands there twice; import the session again with one row per index"
        )
    matrix = np.full((len(days), len(codes)), np.nan)
    matrix[rows, columns] = bars[kind].to_numpy(dtype=float)[known]
    return matrix


def _outcomes(
    spans: Sequence[_Span],
    industry: pd.DataFrame,
    benchmark: pd.DataFrame,
    starting: Literal["open", "close"] = "close",
) -> pd.DataFrame:
    days = sorted({day for span in spans for day in span[:3]})
    at = {day: position for position, day in enumerate(days)}
    names = [day.isoformat() for day in days]
    asked = np.array([at[span.predicted_on] for span in spans], dtype=np.intp)
    first = np.array([at[span.starts_on] for span in spans], dtype=np.intp)
    last = np.array([at[span.matured_on] for span in spans], dtype=np.intp)
    close_from = _prices(industry, names, CODES, starting)[first]
    close_to = _prices(industry, names, CODES, "close")[last]
    market_from = _prices(benchmark, names, (BENCHMARK,), starting)[first]
    market_to = _prices(benchmark, names, (BENCHMARK,), "close")[last]
    industry_return = close_to / close_from - 1
    benchmark_return = np.broadcast_to(market_to / market_from - 1, industry_return.shape)
    each = len(CODES)
    texts = np.array(names, dtype=object)
    return pd.DataFrame(
        {
            "predicted_on": pd.array(np.repeat(texts[asked], each), dtype="str"),
            "matured_on": pd.array(np.repeat(texts[last], each), dtype="str"),
            "code": pd.array(np.tile(np.array(CODES, dtype=object), len(spans)), dtype="str"),
            "horizon": np.repeat(np.array([span.horizon for span in spans], dtype=np.int16), each),
            "close_from": close_from.ravel(),
            "close_to": close_to.ravel(),
            "industry_return": industry_return.ravel(),
            "benchmark_return": benchmark_return.ravel(),
            "alpha": (industry_return - benchmark_return).ravel(),
        }
    )
