"""Yicai: the brief (flash news, whole) and the news (bodies on pages of their own), both by page number."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode, urlsplit

from scrapy import Request
from scrapy.http import Response

from crawlers.channel import Channel
from crawlers.pages import ListPage, PageFailure, PageState, Row
from crawlers.parsing import (
    absolute,
    article_text,
    decoded,
    flag,
    html_of,
    json_of,
    plain,
    required,
    rows_of,
    text_of,
    wall,
)
from crawlers.spiders.base import NewsSpider

_SITE = "https://www.yicai.com/"


class _Numbered(Channel):
    """A list of the site: the answer is an array and nothing else."""

    hosts = ("www.yicai.com",)
    seeks = True

    def first(self, until: dt.datetime) -> str:
        """Page 1."""
        return "1"

    def read(self, response: Response, cursor: str) -> ListPage:
        """The page. The list ends with a page without rows, unless it is the first."""
        text = decoded(response)
        if text.strip() == "null":
            raise PageFailure(PageState.EMPTY, f"page {cursor} is null", again=True)
        rows, unreadable = rows_of(json_of(text), self._row, "the answer")
        if not rows and not unreadable:
            if cursor == "1":
                raise PageFailure(PageState.EMPTY, "page 1 has no rows", again=True)
            return ListPage((), None)
        return ListPage(rows, str(int(cursor) + 1), None, unreadable)

    def _row(self, item: Mapping[str, Any]) -> Row:
        raise NotImplementedError


class Brief(_Numbered):
    """Flash news."""

    name = "brief"
    fields = ("id", "LiveTitle", "LiveContent", "CreateDate", "url")

    def request(self, cursor: str) -> Request:
        """A page by its number."""
        query = urlencode({"page": cursor, "pagesize": 30, "type": 0, "id": 0})
        return Request(f"{_SITE}api/ajax/getbrieflist?{query}", headers={"Referer": f"{_SITE}brief/"})

    def _row(self, item: Mapping[str, Any]) -> Row:
        address = absolute(item.get("url"), _SITE)
        return Row(
            required(item, "id", "LiveID"),
            wall(required(item, "CreateDate")),
            plain(text_of(item.get("LiveTitle")) or text_of(item.get("indexTitle"))),
            plain(text_of(item.get("LiveContent")) or text_of(item.get("newcontent"))),
            address,
            dropped=_kind(address),
            pinned=flag(item.get("istop")),
        )


class News(_Numbered):
    """Articles. The list has notes of them."""

    name = "news"
    fields = ("NewsID", "NewsTitle", "NewsNotes", "CreateDate", "url")

    def request(self, cursor: str) -> Request:
        """A page by its number."""
        query = urlencode({"page": cursor, "pagesize": 25})
        return Request(f"{_SITE}api/ajax/getlatest?{query}", headers={"Referer": f"{_SITE}news/"})

    def _row(self, item: Mapping[str, Any]) -> Row:
        address = absolute(item.get("url"), _SITE)
        return Row(
            required(item, "NewsID"),
            wall(required(item, "CreateDate")),
            plain(text_of(item.get("NewsTitle"))),
            plain(text_of(item.get("NewsNotes"))),
            address,
            dropped=_kind(address),
        )

    def detail(self, row: Row) -> Request | None:
        """The article's page, if it is one of the site."""
        return Request(row.url) if urlsplit(row.url).hostname in self.hosts else None

    def read_detail(self, response: Response, row: Row) -> Row:
        """The row with its body."""
        page = html_of(response)
        return replace(row, content=article_text(page, ".multiText, #multi-text, .txt, .m-txt", "script, style"))


def _kind(address: str) -> str:
    """Why an address is not one of public text."""
    part = urlsplit(address).path.strip("/").partition("/")[0]
    return part if part in ("vip", "video") else ""


class YicaiSpider(NewsSpider):
    """Yicai."""

    name = "yicai"
    channels = (Brief, News)
    default_channels = ("brief",)
