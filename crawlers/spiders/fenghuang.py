"""ifeng Finance: the column's stream (bodies on the articles' pages), and the newest flash news."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from scrapy import Request
from scrapy.http import Response

from crawlers.channel import Channel
from crawlers.pages import ListPage, PageFailure, PageState, Row, Unreadable
from crawlers.parsing import (
    absolute,
    agreed,
    article_text,
    assigned,
    decoded,
    epoch,
    field,
    flag,
    html_of,
    json_of,
    lead,
    member,
    plain,
    required,
    rows_of,
    text_of,
    title_of,
    wall,
)
from crawlers.spiders.base import NewsSpider

_COLUMN = "1-62-83-"
_COLUMN_PAGE = f"https://finance.ifeng.com/shanklist/{_COLUMN}/"
_BEHIND = "https://shankapi.ifeng.com/shanklist/_/getColumnInfo/_/default"
_CALLBACK = "getColumnInfoCallback"
_ROWS = 50


class Stream(Channel):
    """The column's page, then what is behind it.

    Cursors: `@<ms>` is the page, for rows before an instant; `<id> <ms>` are the rows behind a row of that time. Where
    all of the page is too new the walk goes on from the instant, behind no row (id 0).
    """

    name = "stream"
    fields = ("id", "title", "url", "newsTime")
    hosts = ("finance.ifeng.com", "shankapi.ifeng.com")

    def first(self, until: dt.datetime) -> str:
        """The column's page; the second at or after `until` is remembered."""
        return f"@{-int(-until.timestamp() // 1) * 1000}"

    def request(self, cursor: str) -> Request:
        """The column's page, or the rows behind one."""
        if cursor.startswith("@"):
            return Request(_COLUMN_PAGE)
        row, moment = cursor.split()
        return Request(
            f"{_BEHIND}/{row}/{moment}/{_ROWS}/{_COLUMN}/{_CALLBACK}?callback={_CALLBACK}&_={moment}",
            headers={"Referer": _COLUMN_PAGE},
        )

    def read(self, response: Response, cursor: str) -> ListPage:
        """The page. The list ends where the site says so; a page without rows before that is a failure."""
        text = decoded(response)
        if cursor.startswith("@"):
            rows, unreadable = _stream(assigned(text, "allData"))
            until = epoch(cursor[1:])
            if rows[-1].published_at > until:
                return ListPage(rows, f"0 {_milliseconds(until)}", None, unreadable)
            return ListPage(rows, _behind(rows[-1]), None, unreadable)
        answer = json_of(text)
        agreed(answer, "code", "0", "message")
        data = field(answer, "data")
        if flag(member(data, "isEnd")):
            rows, unreadable = _stream(data) if member(data, "newsstream") else ((), ())
            return ListPage(rows, None, None, unreadable)
        rows, unreadable = _stream(data)
        following = _behind(rows[-1])
        # The cursor never rises, whether or not the site serves rows of its very instant.
        if int(following.split()[1]) > int(cursor.split()[1]):
            following = f"{following.split()[0]} {cursor.split()[1]}"
        return ListPage(rows, following, None, unreadable)

    def beyond(self, cursor: str) -> str | None:
        """Behind the row at its own second."""
        row, _, moment = cursor.partition(" ")
        return f"{row} {int(moment) - 1000}" if moment else None

    def detail(self, row: Row) -> Request | None:
        """The article's page, if it is one of the column's host."""
        return Request(row.url) if urlsplit(row.url).hostname == "finance.ifeng.com" else None

    def read_detail(self, response: Response, row: Row) -> Row:
        """The row with its body: the text parts of the page's state, or else its paragraphs."""
        text = decoded(response)
        try:
            document = field(assigned(text, "allData"), "docData")
        except PageFailure:  # an older page, or a video
            return replace(row, content=article_text(html_of(response), "div[class*=index_text_]", "script, style"))
        parts = member(document, "contentData", "contentList")
        content = "\n".join(filter(None, (plain(_words(part)) for part in (parts if isinstance(parts, list) else ()))))
        if not content:
            raise PageFailure(PageState.UNSUPPORTED, "the page holds no text (a video, slides)")
        return replace(row, content=content, title=row.title or title_of(member(document, "title"), content))


class FlashNews(Channel):
    """The newest flash news, by its name a copy of CLS. There is nothing behind it."""

    name = "flash"
    fields = ("brief", "ctime")
    hosts = ("shankapi.ifeng.com",)
    proves = False

    def first(self, until: dt.datetime) -> str:
        """The one page."""
        return "newest"

    def request(self, cursor: str) -> Request:
        """The one page."""
        return Request(
            "https://shankapi.ifeng.com/api/finance/studio/24h/latest/getClsData",
            headers={"Referer": "https://finance.ifeng.com/"},
        )

    def read(self, response: Response, cursor: str) -> ListPage:
        """The page."""
        items = field(json_of(decoded(response)), "data")
        if not items:
            raise PageFailure(PageState.EMPTY, "the list has no rows", again=True)
        rows, unreadable = rows_of(items, self._row, "data")
        return ListPage(rows, None, None, unreadable)

    @staticmethod
    def _row(item: Mapping[str, Any]) -> Row:
        content = plain(text_of(item.get("brief")))
        written = required(item, "ctime")
        try:
            moment = epoch(written)
        except Unreadable:
            moment = wall(written)
        return Row(required(item, "id", "ucmsid"), moment, lead(content), content)


def _stream(data: Any) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """Rows of a `newsstream`, at least one. Raises `PageFailure` where there is none."""
    items = field(data, "newsstream")
    if not items:
        raise PageFailure(PageState.EMPTY, "newsstream has no rows, and is not said to end", again=True)
    return rows_of(items, _row, "newsstream")


def _row(item: Mapping[str, Any]) -> Row:
    return Row(
        required(item, "id"),
        wall(required(item, "newsTime")),
        plain(text_of(item.get("title"))),
        "",
        absolute(item.get("url"), _COLUMN_PAGE),
    )


def _behind(row: Row) -> str:
    """The cursor behind a row. Others of its second may be on the next page, so it is asked from the second after."""
    return f"{row.source_id} {_milliseconds(row.published_at) + 1000}"


def _words(part: Any) -> str:
    words = member(part, "data") if member(part, "type") == "text" else None
    return words if isinstance(words, str) else ""


def _milliseconds(moment: dt.datetime) -> int:
    return int(moment.timestamp() * 1000)


class FenghuangSpider(NewsSpider):
    """ifeng Finance."""

    name = "fenghuang"
    channels = (Stream, FlashNews)
    default_channels = ("stream",)
