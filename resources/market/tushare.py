"""tushare.pro: bars of the industries and of CSI1000, trading days, and the history of the nine news sources.

Units by its documentation: `sw_daily` (doc_id 327) gives volume in 10^4 shares and turnover in 10^4 yuan, `index_daily`
(doc_id 95) lots and 10^3 yuan. `news` (doc_id 143) gives at most 1,500 rows a call.

The account's token comes from the environment alone and stands in no message.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.errors import CredentialError, SourceError
from finevolve_pipeline.market.fetching import Fetched, Layout, RowsReader, Span
from finevolve_pipeline.settings import TushareSettings
from resources.market.asking import RESUME, Asker, Politeness, TryAgainError

NEWS_ROWS = 1500
"""Most rows that one call of `news` gives."""
NEWS_SOURCES = (
    "yuncaijing", "fenghuang", "sina", "eastmoney", "10jqka", "jinrongjie", "wallstreetcn", "yicai", "cls",
)  # fmt: skip
"""What `src` may be."""
CROWDED = 30
"""Windows of one second that are full, after which the rest is not asked for: a crowded second fills those beside it
too, and a service that calls every answer full would be asked for each second of a day."""
MINUTE = 61.0
"""Seconds after which its allowance of a minute is there again."""

_LAYOUTS = {
    "industry_bars": ("sw_daily", ".SI", Layout("tushare", "1e4-shares", "1e4-yuan")),
    "benchmark_bars": ("index_daily", ".SH", Layout("tushare", "lots", "1e3-yuan")),
}
_BAR_FIELDS = "ts_code,trade_date,open,high,low,close,vol,amount"
_PER_MINUTE = re.compile(r"每分钟最多访问|请求过于频繁|访问过于频繁")
_PER_DAY = re.compile(r"每(?:小时|天|日)最多访问")
_TOKEN = re.compile(r"token", re.I)
_RIGHTS = re.compile(r"权限|积分")
_SECOND = dt.timedelta(seconds=1)

Row = dict[str, Any]


class CrowdedError(SourceError):
    """More rows around one second than one call gives."""


class Tushare:
    """Client of the service. Raises `CredentialError` if the token's variable is not set.

    Args:
        settings: the [tushare] section.
        politeness: pace, attempts and clock; by default those of the settings.
        news_rows: rows at which an answer of `news` is full.
    """

    name = "tushare"

    def __init__(
        self, settings: TushareSettings, politeness: Politeness | None = None, news_rows: int = NEWS_ROWS
    ) -> None:
        self._settings = settings
        self._token = read_token(settings.token_variable)
        self._news_rows = news_rows
        polite = politeness or Politeness(
            settings.requests_per_minute, settings.attempts, settings.deadline_seconds, settings.longest_wait_seconds
        )
        self._asker = Asker(self.name, polite, self._token)

    def __repr__(self) -> str:
        return "Tushare()"

    def query(self, api: str, params: Mapping[str, str], fields: str) -> tuple[list[Row], bool]:
        """Rows of one call, and whether the service says that there are more.

        Raises:
            SourceError: it refuses, or does not answer; the text says what to do.
        """
        body = {"api_name": api, "token": self._token, "params": dict(params), "fields": fields}
        return self._asker.post(self._settings.base_url, body, lambda answer: self._rows(api, answer))

    def bars(self, table: str, codes: Sequence[str], span: Span, now: dt.datetime) -> Fetched:
        """See `MarketSource`."""
        api, suffix, layout = _LAYOUTS[table]
        reader = RowsReader(layout, table, span, now)
        for code in codes:
            asked = {
                "ts_code": f"{code}{suffix}",
                "start_date": f"{span.first:%Y%m%d}",
                "end_date": f"{span.last:%Y%m%d}",
            }
            rows, more = self.query(api, asked, _BAR_FIELDS)
            if more:
                reader.fail(code, f"says that there are more rows than it gave for {span.first}..{span.last}")
            if not rows:
                reader.tell(f"{code} {span.first}..{span.last}: the answer is empty")
            reader.add(rows, code)
        return reader.result()

    def trading_days(self, first: dt.date, last: dt.date) -> frozenset[dt.date]:
        """Its trading days of the Shanghai exchange."""
        asked = {"exchange": "SSE", "start_date": f"{first:%Y%m%d}", "end_date": f"{last:%Y%m%d}", "is_open": "1"}
        rows, _ = self.query("trade_cal", asked, "cal_date,is_open")
        try:
            return frozenset(
                dt.datetime.strptime(str(row["cal_date"]), "%Y%m%d").replace(tzinfo=SHANGHAI).date()
                for row in rows
                if str(row["is_open"]) in ("1", "1.0")
            )
        except (KeyError, ValueError) as broken:
            raise SourceError(f"{self.name}: trade_cal has another shape ({broken})") from None

    def news(self, source: str, first: dt.datetime, last: dt.datetime) -> Iterator[list[Row]]:
        """All rows that a source published from `first` to `last`, both inclusive (aware, whole seconds).

        A full answer may hold any part of its window, so it is thrown away and the window is halved. Windows are
        asked with a second to spare at both ends, and rows beyond them left out: nothing rests on whether the
        service counts its bounds in. Rows that share a second stay together.

        Raises:
            CrowdedError: one second and those beside it hold more rows than one call gives. Raised after the other rows
                were given, and what came of such seconds; if there are many of them, before the end.
            SourceError: as `query`.
        """
        crowded: list[CrowdedError] = []
        yield from self._news(source, first, last, crowded)
        if crowded:
            raise crowded[0]

    def _news(
        self, source: str, first: dt.datetime, last: dt.datetime, crowded: list[CrowdedError]
    ) -> Iterator[list[Row]]:
        times = {
            "start_date": _written(first - _SECOND), "end_date": _written(last + _SECOND),
        }  # fmt: skip
        rows, more = self.query("news", {"src": source, **times}, "datetime,title,content")
        full = more or len(rows) >= self._news_rows
        if full and last <= first:
            crowded.append(
                CrowdedError(
                    f"{self.name}: {source} has {len(rows):,} rows or more around {_written(first)}, the most that one "
                    "call gives, so some cannot be had; import that day from a file"
                )
            )
        if not full or last <= first:
            yield [row for row in rows if _within(row, first, last)]
            if len(crowded) >= CROWDED:
                raise crowded[0]
            return
        middle = first + ((last - first) // 2 // _SECOND) * _SECOND
        yield from self._news(source, first, middle, crowded)
        yield from self._news(source, middle + _SECOND, last, crowded)

    def _rows(self, api: str, answer: Any) -> tuple[list[Row], bool]:
        if not isinstance(answer, dict) or "code" not in answer:
            raise TryAgainError(f"{api}: the answer has another shape: {str(answer)[:100]}")
        if str(answer["code"]) != "0":
            self._refused(api, str(answer["code"]), str(answer.get("msg") or ""))
        data = answer.get("data")
        if data is None:
            return [], False
        try:
            fields, items = data["fields"], data["items"] or []
            return [dict(zip(fields, item, strict=True)) for item in items], data.get("has_more") is True
        except (KeyError, TypeError, ValueError):
            raise TryAgainError(f"{api}: the answer's data has another shape: {str(data)[:100]}") from None

    def _refused(self, api: str, code: str, message: str) -> None:
        text = f"{api}: code {code}: {message}"
        if _PER_MINUTE.search(message):
            raise TryAgainError(text, MINUTE)
        variable = self._settings.token_variable
        text = f"{self.name}: {self._asker.scrub(text)}"
        if _PER_DAY.search(message):
            raise SourceError(f"{text}; its allowance is used up: wait, then {RESUME}")
        if _TOKEN.search(message):
            raise SourceError(f"{text}; check the token in environment variable {variable}")
        if _RIGHTS.search(message):
            raise SourceError(f"{text}; the account may not use {api}: ask tushare.pro for it, or use another source")
        raise SourceError(f"{text}; the service refuses the request")


def read_token(variable: str) -> str:
    """The account's token. Raises `CredentialError` if the variable does not hold one."""
    token = os.environ.get(variable, "").strip()
    if not token:
        raise CredentialError(
            f"tushare: environment variable {variable} with the account's token is not set; `export {variable}=...`"
        )
    if not token.isascii() or not token.isprintable() or " " in token:
        raise CredentialError(f"tushare: environment variable {variable} holds no token; set it to the token alone")
    return token


def _written(moment: dt.datetime) -> str:
    return f"{moment.astimezone(SHANGHAI):%Y-%m-%d %H:%M:%S}"


def _within(row: Row, first: dt.datetime, last: dt.datetime) -> bool:
    """Whether a row lies in the window; one whose time cannot be read stays, to be told of."""
    try:
        moment = dt.datetime.fromisoformat(str(row.get("datetime")))
    except ValueError:
        return True
    moment = moment.replace(tzinfo=SHANGHAI) if moment.tzinfo is None else moment
    return first <= moment < last + _SECOND
