"""csindex.com.cn, the publisher of CSI1000: its public JSON of daily performance, asked directly.

Units by the documentation of akshare, which reads the same answer: volume in 10^4 lots, turnover in 10^8 yuan.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from finevolve_pipeline.errors import SourceError
from finevolve_pipeline.market.fetching import Fetched, Layout, RowsReader, Span
from resources.foreign import scrubbed
from resources.market.asking import Asker, Politeness, TryAgainError

URL = "https://www.csindex.com.cn/csindex-home/perf/index-perf"
PIECE_DAYS = 60
"""Calendar days of one request: the site once refused more."""
NAMES = frozenset({"中证1000", "CSI 1000"})
"""What it calls index 000852; a stock of Shenzhen has the same number."""
_COLUMNS = {
    "tradeDate": "date", "indexCode": "code", "open": "open", "high": "high", "low": "low", "close": "close",
    "tradingVol": "volume", "tradingValue": "amount",
}  # fmt: skip
_DAY = dt.timedelta(days=1)


class CsIndex:
    """Bars of CSI1000."""

    name = "csindex"

    def __init__(self, politeness: Politeness, url: str = URL) -> None:
        self._url = url
        self._asker = Asker(self.name, politeness)

    def bars(self, table: str, codes: Sequence[str], span: Span, now: dt.datetime) -> Fetched:
        """See `MarketSource`."""
        if table != "benchmark_bars":
            raise SourceError(f"{self.name}: has no {table}; name another source in [market]")
        reader = RowsReader(Layout(self.name, "1e4-lots", "1e8-yuan"), table, span, now)
        for code in codes:
            for piece in _pieces(span):
                self._add(reader, code, piece)
        return reader.result()

    def _add(self, reader: RowsReader, code: str, piece: Span) -> None:
        # On a day without trading the first row echoes the next one under the asked day. So we ask from a day that
        # we do not want.
        start = piece.first - _DAY
        params = {"indexCode": code, "startDate": f"{start:%Y%m%d}", "endDate": f"{piece.last:%Y%m%d}"}
        rows = [
            row for row in self._asker.get(self._url, params, _rows) if str(row.get("tradeDate")) != f"{start:%Y%m%d}"
        ]
        if not rows:
            reader.tell(f"{code} {piece.first}..{piece.last}: the answer is empty")
        ours = [row for row in rows if row.get("indexNameCn") in (None, "") or row["indexNameCn"] in NAMES]
        if len(ours) < len(rows):
            other = next(row["indexNameCn"] for row in rows if row not in ours)
            reader.fail(code, f"{len(rows) - len(ours):,} rows are of {str(other)[:40]!r}, not of CSI1000: left out")
        reader.add(({_COLUMNS[name]: row[name] for name in _COLUMNS if name in row} for row in ours), code)


def _pieces(span: Span) -> Iterator[Span]:
    first = span.first
    while first <= span.last:
        last = min(span.last, first + (PIECE_DAYS - 2) * _DAY)
        yield Span(first, last)
        first = last + _DAY


def _rows(answer: Any) -> list[Mapping[str, Any]]:
    if not isinstance(answer, dict) or "code" not in answer:
        raise TryAgainError(f"the answer has another shape: {str(answer)[:100]}")
    if str(answer["code"]) != "200":
        raise TryAgainError(f"the answer says code {answer['code']}: {answer.get('msg')}")
    rows = answer.get("data")
    if rows is None:
        return []
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise TryAgainError(f"the answer's data has another shape: {str(rows)[:100]}")
    if rows and "tradeDate" not in rows[0]:
        raise SourceError(
            f"csindex: its rows have no tradeDate but {scrubbed(', '.join(rows[0]), '')}: the format has changed"
        )
    return rows
