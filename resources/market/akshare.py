"""The library akshare (extra `akshare`): Shenwan's own index history, CSI1000 from csindex, Sina's trading days.

Units: Shenwan gives 10^8 shares and 10^8 yuan (inferred from akshare's documentation of 801193 and equal to the
published files), csindex 10^4 lots and 10^8 yuan (akshare's documentation).

The library sets no time limit and does not check the certificate of swsresearch.com, whose chain is incomplete; so
each call is given up after a while, and a second source, where there is one, is worth the comparison.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pandas as pd

from finevolve_pipeline.errors import SourceError
from finevolve_pipeline.market.fetching import Fetched, Layout, RowsReader, Span
from resources.market.asking import Pace, Politeness, TryAgainError

_INDUSTRIES = Layout("akshare", "1e8-shares", "1e8-yuan")
_BENCHMARK = Layout("akshare", "1e4-lots", "1e8-yuan")
GIVE_UP = 3
"""Indices in a row, from the first on, that cannot be had before the site counts as broken."""
_DAY = dt.timedelta(days=1)


@dataclass(frozen=True)
class _Answer:
    """A table of the library, and the day of each of its rows (NaT where there is none)."""

    rows: pd.DataFrame
    days: pd.Series


class AkShare:
    """Bars and trading days by the library. Raises `SourceError` naming the extra if it is not installed."""

    name = "akshare"

    def __init__(self, politeness: Politeness) -> None:
        try:
            self._library: Any = import_module("akshare")
        except ImportError as absent:
            raise SourceError(
                f"akshare: the library cannot be loaded ({absent}); install the extra: "
                "pip install 'finevolve-pipeline[akshare]'"
            ) from None
        # It asks by this library, whose errors come through. Only these two kinds say that there was no answer.
        errors: Any = import_module("requests").exceptions
        self._unreached = (ConnectionError, TimeoutError, errors.ConnectionError, errors.Timeout)
        self._pace = Pace(self.name, politeness)
        self._histories: dict[str, _Answer] = {}

    def bars(self, table: str, codes: Sequence[str], span: Span, now: dt.datetime) -> Fetched:
        """See `MarketSource`. An index that cannot be had is told, and the others go on."""
        benchmark = table == "benchmark_bars"
        reader = RowsReader(_BENCHMARK if benchmark else _INDUSTRIES, table, span, now)
        failed = 0
        for position, code in enumerate(codes):
            try:
                answer = self._benchmark(code, span) if benchmark else self._industry(code)
            except SourceError as broken:
                failed += 1
                told = str(broken).removeprefix(f"{self.name}: ")
                if failed == position + 1 and failed in (GIVE_UP, len(codes)):
                    others = f"; nor could the {failed - 1} before it be had" if failed > 1 else ""
                    raise SourceError(f"{self.name}: {code}: {told}{others}") from None
                reader.fail(code, told)
                continue
            days = answer.days
            wanted = answer.rows[(days >= span.first) & (days <= span.last) | days.isna()]
            if wanted.empty:
                reader.tell(f"{code} {span.first}..{span.last}: the answer is empty")
            reader.add(({str(name): cell for name, cell in row.items()} for row in wanted.to_dict("records")), code)
        return reader.result()

    def trading_days(self, first: dt.date, last: dt.date) -> frozenset[dt.date]:
        """Sina's trading days, all years it lists."""
        return frozenset(self._call(self._library.tool_trade_date_hist_sina, ("trade_date",)).days.dropna())

    def _industry(self, code: str) -> _Answer:
        """The whole history of an index: the site gives no less, so it is asked once."""
        if code not in self._histories:
            columns = ("日期", "代码", "收盘")
            self._histories[code] = self._call(lambda: self._library.index_hist_sw(code, "day"), columns)
        return self._histories[code]

    def _benchmark(self, code: str, span: Span) -> _Answer:
        # From the day before, since the site's first row may echo the next one under the asked day.
        first, last = f"{span.first - _DAY:%Y%m%d}", f"{span.last:%Y%m%d}"
        columns = ("日期", "指数代码", "收盘")
        return self._call(lambda: self._library.stock_zh_index_hist_csindex(code, first, last), columns)

    def _call(self, function: Callable[[], Any], columns: Sequence[str]) -> _Answer:
        """What the library gives; the first of the columns that it must have holds the days."""

        def attempt() -> _Answer:
            frame = self._asked(function)
            if not isinstance(frame, pd.DataFrame) or not set(columns) <= set(frame.columns):
                raise TryAgainError(f"a table without the columns {', '.join(columns)}")
            try:
                return _Answer(frame, pd.to_datetime(frame[columns[0]]).dt.date)
            except (ValueError, TypeError, AttributeError) as broken:
                raise TryAgainError(f"{columns[0]} holds something else than days ({_reason(broken)})") from None

        return self._pace.repeat(attempt)

    def _asked(self, function: Callable[[], Any]) -> Any:
        value, broken = _within(self._pace.politeness.deadline_seconds, function)
        if broken is None:
            return value
        if isinstance(broken, self._unreached):
            raise TryAgainError(f"the site cannot be reached ({_reason(broken)})")
        raise TryAgainError(f"the site's answer is not as expected ({_reason(broken)})")


def _reason(broken: Exception) -> str:
    return f"{type(broken).__name__}: {broken}"


def _within(seconds: float, function: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """What a call gives, or raises, at most so many seconds long; a longer one is left behind."""
    outcome: list[tuple[Any, Exception | None]] = []

    def call() -> None:
        try:
            outcome.append((function(), None))
        # The library promises nothing about what it raises when a site answers otherwise than it expects; what a
        # thread lets through would be printed and its reason lost.
        except Exception as broken:  # noqa: BLE001
            outcome.append((None, broken))

    thread = threading.Thread(target=call, name="akshare", daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise TryAgainError(f"no answer within {seconds:g} s" if thread.is_alive() else "it ended without an answer")
    return outcome[0]
