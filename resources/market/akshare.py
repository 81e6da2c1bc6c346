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
_BROKEN = (OSError, ValueError, LookupError, TypeError, AttributeError)
"""What the library raises when a site answers otherwise than it expects (its HTTP errors are OSErrors)."""


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
        self._histories: dict[str, pd.DataFrame] = {}

    def bars(self, table: str, codes: Sequence[str], span: Span, now: dt.datetime) -> Fetched:
        """See `MarketSource`. An index that cannot be had is told, and the others go on."""
        benchmark = table == "benchmark_bars"
        reader = RowsReader(_BENCHMARK if benchmark else _INDUSTRIES, table, span, now)
        failed = 0
        for position, code in enumerate(codes):
            try:
                rows = self._benchmark(code, span) if benchmark else self._industry(code)
            except SourceError as broken:
                failed += 1
                told = str(broken).removeprefix(f"{self.name}: ")
                if failed == position + 1 and failed in (GIVE_UP, len(codes)):
                    others = f"; nor could the {failed - 1} before it be had" if failed > 1 else ""
                    raise SourceError(f"{self.name}: {code}: {told}{others}") from None
                reader.fail(code, told)
                continue
            days = pd.to_datetime(rows["日期"]).dt.date
            wanted = rows[(days >= span.first) & (days <= span.last) | days.isna()]
            if wanted.empty:
                reader.tell(f"{code} {span.first}..{span.last}: the answer is empty")
            reader.add(({str(name): cell for name, cell in row.items()} for row in wanted.to_dict("records")), code)
        return reader.result()

    def trading_days(self, first: dt.date, last: dt.date) -> frozenset[dt.date]:
        """Sina's trading days, all years it lists."""
        frame = self._call(self._library.tool_trade_date_hist_sina, ("trade_date",))
        return frozenset(pd.to_datetime(frame["trade_date"]).dt.date)

    def _industry(self, code: str) -> pd.DataFrame:
        """The whole history of an index: the site gives no less, so it is asked once."""
        if code not in self._histories:
            columns = ("日期", "代码", "收盘")
            self._histories[code] = self._call(lambda: self._library.index_hist_sw(code, "day"), columns)
        return self._histories[code]

    def _benchmark(self, code: str, span: Span) -> pd.DataFrame:
        # From the day before, since the site's first row may echo the next one under the asked day.
        first, last = f"{span.first - _DAY:%Y%m%d}", f"{span.last:%Y%m%d}"
        columns = ("日期", "指数代码", "收盘")
        return self._call(lambda: self._library.stock_zh_index_hist_csindex(code, first, last), columns)

    def _call(self, function: Callable[[], Any], columns: Sequence[str]) -> pd.DataFrame:
        def attempt() -> pd.DataFrame:
            try:
                frame = _within(self._pace.politeness.deadline_seconds, function)
            except self._unreached as broken:
                raise TryAgainError(f"the site cannot be reached ({type(broken).__name__}: {broken})") from None
            except _BROKEN as broken:
                raise TryAgainError(
                    f"the site's answer is not as expected ({type(broken).__name__}: {broken})"
                ) from None
            if not isinstance(frame, pd.DataFrame) or not set(columns) <= set(frame.columns):
                raise TryAgainError(f"a table without the columns {', '.join(columns)}")
            return frame

        return self._pace.repeat(attempt)


def _within(seconds: float, function: Callable[[], Any]) -> Any:
    """What a call gives, at most so many seconds long; a longer one is left behind. Raises what it raised."""
    outcome: list[tuple[Any, BaseException | None]] = []

    def call() -> None:
        try:
            outcome.append((function(), None))
        except _BROKEN as broken:
            outcome.append((None, broken))

    thread = threading.Thread(target=call, name="akshare", daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        what = f"no answer within {seconds:g} s" if thread.is_alive() else "it failed in an unknown way"
        raise TryAgainError(what)
    value, broken = outcome[0]
    if broken is not None:
        raise broken
    return value
