"""Bars from services: which sessions to ask for, how their rows become `Bars`, and what two sources say of each other.

Pure rules; who asks is `resources.market`. Nothing is guessed: a row that cannot be read, that answers for another
index or lies on a day without trading is a problem that is told, and the good rows go on.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from finevolve_pipeline import calendar, tables
from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.errors import CalendarError, SourceError
from finevolve_pipeline.importing import RowError, find_columns
from finevolve_pipeline.market.importing import FIELDS, Bar, BarOptions, BarReader, is_missing, read_day
from finevolve_pipeline.universe import BENCHMARK, CODES

SETTLED = dt.time(15, 30)
"""Asia/Shanghai. A session's bar is final half an hour after its close; before, a source would give a passing one."""
NEAR = 20
"""Sessions to ask for that lie no further apart than this are asked for together."""
_SHOWN = 3


def codes_of(table: str) -> tuple[str, ...]:
    """The indices that a table of bars holds: `industry_bars` the 31 industries, `benchmark_bars` CSI1000."""
    return (BENCHMARK,) if table == "benchmark_bars" else CODES


@dataclass(frozen=True)
class Fetched:
    """What a source answered.

    Attributes:
        frame: `Bars`, by session and code, in shares and yuan.
        problems: what was wrong with the rest, for people; empty where nothing was.
        unusable: codes for which an answer, or rows of one, could not be had or used.
    """

    frame: pd.DataFrame
    problems: tuple[str, ...] = ()
    unusable: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Layout:
    """How a source's rows are to be read: the units of its volume and amount (keys of `market.bars`)."""

    source: str
    volume_unit: str
    amount_unit: str

    def options(self, benchmark: bool, now: dt.datetime) -> BarOptions:
        """For a `BarReader`."""
        names = (f"{self.source} volume in", f"{self.source} amount in")
        return BarOptions(benchmark, now.astimezone(SHANGHAI).date(), self.volume_unit, self.amount_unit, names)


class Span(NamedTuple):
    """Sessions from `first` to `last` that are asked for in one request."""

    first: dt.date
    last: dt.date


def settled_sessions(sessions: Iterable[dt.date], now: dt.datetime) -> tuple[dt.date, ...]:
    """Those whose bars are final at `now` (aware)."""
    local = now.astimezone(SHANGHAI)
    last = local.date() if local.time() >= SETTLED else local.date() - dt.timedelta(days=1)
    return tuple(session for session in sessions if session <= last)


def sessions_to_ask(
    sessions: Sequence[dt.date], complete: Collection[dt.date], newest: Collection[dt.date], again: bool
) -> tuple[dt.date, ...]:
    """Sessions that have no bars yet, and the newest ones again.

    Args:
        sessions: settled ones, oldest first.
        complete: those whose closes are all there.
        newest: those that sources may still revise.
        again: ask for all.
    """
    return tuple(one for one in sessions if again or one not in complete or one in newest)


def spans(sessions: Sequence[dt.date]) -> tuple[Span, ...]:
    """The sessions as few ranges: such that lie no more than `NEAR` sessions apart are asked for together."""
    if not sessions:
        return ()
    cuts = [
        position
        for position, (one, after) in enumerate(pairwise(sessions), 1)
        if calendar.session_index(after) - calendar.session_index(one) > NEAR
    ]
    bounds = [0, *cuts, len(sessions)]
    return tuple(Span(sessions[start], sessions[end - 1]) for start, end in pairwise(bounds))


class RowsReader:
    """Collects the rows of a source's answers for one request, and tells what was wrong with them.

    Args:
        layout: the source's units.
        table: `industry_bars` or `benchmark_bars`.
        span: rows of other days are left out.
        now: no bar may lie after it (aware).
    """

    def __init__(self, layout: Layout, table: str, span: Span, now: dt.datetime) -> None:
        self._layout = layout
        self._span = span
        self._reader = BarReader(layout.options(table == "benchmark_bars", now))
        self._bars: list[Bar] = []
        self._bad: Counter[str] = Counter()
        self._problems: list[str] = []
        self._unusable: set[str] = set()
        self._rows = 0
        self._columns = lru_cache(maxsize=100)(lambda present: find_columns(present, FIELDS, {}))

    def tell(self, problem: str) -> None:
        """Something is wrong with a whole answer."""
        self._problems.append(f"{self._layout.source}: {problem}")

    def fail(self, code: str, problem: str) -> None:
        """An answer about an index, or a part of it, could not be had or used."""
        self._unusable.add(code)
        self.tell(f"{code}: {problem}")

    def add(self, rows: Iterable[Mapping[str, Any]], code: str) -> None:
        """The rows of an answer about one index. Rows beyond the span are left out whatever they hold."""
        for row in rows:
            columns = self._columns(tuple(row))
            plain = {name: None if is_missing(value) else value for name, value in row.items()}
            try:
                if "date" in columns and not self._span.first <= read_day(plain[columns["date"]]) <= self._span.last:
                    continue
                self._rows += 1
                if "close" not in columns:  # an empty close is a gap, none at all is another format
                    raise RowError(f"no close among its columns {', '.join(map(str, row))}"[:200])
                bar = self._reader.bar(self._rows, plain, columns)
                if bar is None:
                    continue
                if bar.code != code:
                    raise RowError(f"answers for index {bar.code}")
            except RowError as wrong:
                self._bad[f"{code}: {wrong}"] += 1
                self._unusable.add(code)
                continue
            self._bars.append(bar)

    def result(self) -> Fetched:
        """All good rows as `Bars`, and the problems in a few lines."""
        frame = self._reader.frame(self._bars, self._layout.source) if self._bars else tables.empty(tables.Bars)
        frame = frame.sort_values(["session", "code"], ignore_index=True)
        bad = self._bad.total()
        told = list(self._problems)
        if bad:
            first = "; ".join(list(self._bad)[:_SHOWN])
            told.append(f"{self._layout.source}: {bad:,} of {self._rows:,} rows cannot be used, {first}")
        return Fetched(frame, (*told, *self._reader.notes()), frozenset(self._unusable))


def missing_closes(
    frame: pd.DataFrame, sessions: Iterable[dt.date], codes: Sequence[str]
) -> dict[dt.date, tuple[str, ...]]:
    """For each of the sessions that lacks closes, the codes without one."""
    there = frame[frame["close"].notna()]
    found = set(zip(there["session"], there["code"], strict=True))
    absent = {day: tuple(c for c in codes if (day.isoformat(), c) not in found) for day in sessions}
    return {day: lacking for day, lacking in absent.items() if lacking}


def told_missing(absent: Mapping[dt.date, Sequence[str]], codes: Sequence[str]) -> str:
    """The same for people: `3 closes missing, first 2025-01-02 801010`; empty where none is."""
    if not absent:
        return ""
    day, lacking = next(iter(sorted(absent.items())))
    count = sum(map(len, absent.values()))
    what = "all indices" if len(lacking) == len(codes) > 1 else lacking[0]
    return f"{count:,} closes missing in {len(absent):,} sessions, first {day} {what}"


@dataclass(frozen=True)
class Agreement:
    """How two sources agree on closes.

    Attributes:
        compared: closes that both have.
        largest: largest relative difference, NaN where nothing was compared.
        where: `code session` of that one, empty where there is none.
        beyond: closes that differ by more than the tolerance, as `code session`.
        only_first, only_second: how many closes one has and the other lacks.
    """

    compared: int
    largest: float
    where: str
    beyond: tuple[str, ...]
    only_first: int
    only_second: int


def agreement(first: pd.DataFrame, second: pd.DataFrame, tolerance: float) -> Agreement:
    """Compare the closes of two `Bars` tables, relative to the first."""
    index = ["session", "code"]
    closes = [frame.dropna(subset=["close"]).set_index(index)["close"] for frame in (first, second)]
    both = closes[0].index.intersection(closes[1].index)
    left, right = (side.loc[both].to_numpy(dtype="float64") for side in closes)
    relative = np.abs(right / left - 1)
    names = [f"{code} {session}" for session, code in both]
    worst = int(relative.argmax()) if len(both) else -1
    return Agreement(
        len(both),
        float(relative[worst]) if len(both) else float("nan"),
        names[worst] if len(both) and relative[worst] > 0 else "",
        tuple(name for name, one in zip(names, relative, strict=True) if one > tolerance),
        len(closes[0]) - len(both),
        len(closes[1]) - len(both),
    )


def require_same_sessions(days: Collection[dt.date], first: dt.date, last: dt.date, source: str) -> None:
    """Hold a source's trading days against the project's own table; it is never adopted.

    Only days that the source's list reaches are compared: lists end with the year that is announced.

    Raises:
        CalendarError: they differ between `first` and `last`; the text names the days.
        SourceError: the source's list is empty, so it is the source that is broken.
    """
    if not days:
        raise SourceError(f"{source}: its calendar of trading days is empty; ask again, or leave the source out")
    end = min(last, max(days))
    ours, theirs = set(calendar.sessions_between(first, last)), {day for day in days if first <= day <= last}
    ours = {day for day in ours if day <= end}
    if ours == theirs:
        return
    parts = [
        f"{whose} {', '.join(map(str, sorted(odd)[:10]))}{' …' if len(odd) > 10 else ''}"
        for whose, odd in ((f"only {source} has", theirs - ours), ("only ours has", ours - theirs))
        if odd
    ]
    raise CalendarError(
        f"trading days {first}..{end}: {source} differs from data/xshg_sessions.csv ({'; '.join(parts)}); "
        "nothing was taken over: check the exchange's announcement and correct the table, or leave the source out"
    )
