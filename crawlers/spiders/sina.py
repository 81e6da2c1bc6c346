"""Sina Finance: the 7x24 feed by page number, and the rolling news by day, with bodies on pages of their own."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode, urlsplit

from scrapy import Request
from scrapy.http import Response

from crawlers.channel import Channel
from crawlers.days import DayPage
from crawlers.pages import ListPage, PageFailure, PageState, Row, Unreadable
from crawlers.parsing import (
    absolute,
    agreed,
    article_text,
    decoded,
    epoch,
    field,
    flag,
    html_of,
    json_of,
    known,
    later,
    member,
    plain,
    required,
    rows_of,
    text_of,
    title_of,
    wall,
    whole,
)
from crawlers.spiders.base import NewsSpider


class Feed(Channel):
    """Flash news, 7x24, on a window of pages that moves while it is read."""

    name = "feed"
    fields = ("id", "rich_text", "create_time", "update_time", "is_delete", "ext")
    hosts = ("zhibo.sina.com.cn",)
    seeks = True

    def first(self, until: dt.datetime) -> str:
        """Page 1."""
        return "1"

    def request(self, cursor: str) -> Request:
        """A page by its number."""
        query = {
            "page": cursor,
            "page_size": 50,
            "zhibo_id": 152,
            "tag_id": 0,
            "dire": "f",
            "dpc": 1,
            "pagesize": 50,
            "type": 1,
        }
        return Request(
            f"https://zhibo.sina.com.cn/api/zhibo/feed?{urlencode(query)}",
            headers={"Referer": "https://finance.sina.com.cn/7x24/"},
        )

    def read(self, response: Response, cursor: str) -> ListPage:
        """The page. Behind the last page that the site counts is the list's end; no rows before it are a failure."""
        feed = field(_data(response), "feed")
        items = field(feed, "list")
        pages, served = (_count(member(feed, "page_info", name)) for name in ("totalPage", "page"))
        beyond = pages is not None and int(cursor) > pages
        if beyond and (not items or served not in (None, int(cursor))):  # some answer their last page for ever
            return ListPage((), None)
        if not items:
            raise PageFailure(PageState.EMPTY, f"page {cursor} has no rows", again=True)
        rows, unreadable = rows_of(items, self._row, "result.data.feed.list")
        return ListPage(rows, str(int(cursor) + 1), None, unreadable)

    @staticmethod
    def _row(item: Mapping[str, Any]) -> Row:
        content = plain(text_of(item.get("rich_text")))
        published_at = wall(required(item, "create_time"))
        return Row(
            required(item, "id"),
            published_at,
            title_of("", content),
            content,
            _address(item),
            later(item.get("update_time"), published_at, wall),
            "deleted" if flag(item.get("is_delete")) else "",
            flag(item.get("top_value")),
        )


class Roll(Channel):
    """Rolling news of finance, by day. It gives summaries; the bodies are on the articles' pages."""

    name = "roll"
    fields = ("docid", "title", "intro", "url", "ctime", "intime", "mtime")
    hosts = ("feed.mix.sina.com.cn", "finance.sina.com.cn", "news.sina.com.cn")
    shifts = True
    # Rows are not known to stand in the order of the time they give.
    slack = dt.timedelta(hours=1)

    def first(self, until: dt.datetime) -> str:
        """Page 1 of the last day."""
        return str(DayPage.before(until))

    def request(self, cursor: str) -> Request:
        """A page of a day."""
        page = DayPage.of(cursor)
        start, end = int(page.start.timestamp()), int(page.end.timestamp())
        query = {
            "pageid": 153,
            "lid": 2516,
            "k": "",
            "num": 50,
            "page": page.page,
            "etime": start,  # the site's names: from `etime` to `stime`
            "stime": end,
            "ctime": end,
            "date": page.day,
        }
        return Request(
            f"https://feed.mix.sina.com.cn/api/roll/get?{urlencode(query)}",
            headers={"Referer": "https://news.sina.com.cn/"},
        )

    def read(self, response: Response, cursor: str) -> ListPage:
        """The page; one without rows ends its day."""
        rows, unreadable = rows_of(_data(response), self._row, "result.data")
        return DayPage.of(cursor).listed(rows, unreadable, pages=True)

    @staticmethod
    def _row(item: Mapping[str, Any]) -> Row:
        published_at = epoch(required(item, "ctime", "intime"))
        return Row(
            required(item, "docid"),
            published_at,
            plain(text_of(item.get("title"))),
            plain(text_of(item.get("intro"))),
            absolute(item.get("url"), "https://finance.sina.com.cn/"),
            later(item.get("mtime"), published_at),
        )

    def detail(self, row: Row) -> Request | None:
        """The article's page; videos, slides and blogs have other hosts and no text to read."""
        return Request(row.url) if urlsplit(row.url).hostname in self.hosts else None

    def read_detail(self, response: Response, row: Row) -> Row:
        """The row with its body, and its time as the page states it, if that is another one of the same day."""
        page = html_of(response)
        content = _without_ending(article_text(page, "#artibody, #article", _BESIDE))
        stated = known(wall, page.css(_TIME).get())
        if stated is None or stated.date() != row.published_at.date():
            return replace(row, content=content)
        differs = abs(stated - row.published_at) >= dt.timedelta(minutes=1)  # some pages state minutes only
        return replace(row, content=content, published_at=stated if differs else row.published_at)


_BESIDE = "#left_hzh_ad, .appendQr_wrap, .app-kaihu-qr, script, style"
_TIME = 'meta[property="article:published_time"]::attr(content), .date::text, #pub_date::text'
_ENDING = re.compile(r"[（(【]?责任编辑|海量资讯、精准解读|炒股就看|.{0,20}新浪财经APP[】）)]?$", re.I)


def _without_ending(text: str) -> str:
    """The text without what the site puts behind an article: the editor, advertisements of its app."""
    lines = text.split("\n")
    while len(lines) > 1 and _ENDING.match(lines[-1]):
        lines.pop()
    return "\n".join(lines)


def _data(response: Response) -> Any:
    """`result.data` of an answer. Raises `PageFailure` where the site says that it failed."""
    answer = json_of(decoded(response))
    agreed(field(answer, "result", "status"), "code", "0", "msg")
    data = field(answer, "result", "data")
    if data is None:
        raise PageFailure(PageState.EMPTY, "result.data is null", again=True)
    return data


def _count(value: Any) -> int | None:
    try:
        return whole(value)
    except Unreadable:
        return None


def _address(item: Mapping[str, Any]) -> str:
    """The item's page: its own field, or one of `ext`, which is JSON inside JSON and may be broken."""
    base = "https://finance.sina.cn/"
    if address := absolute(item.get("docurl"), base):
        return address
    try:
        return absolute(member(json.loads(text_of(item.get("ext"))), "docurl"), base)
    except ValueError:
        return ""


class SinaSpider(NewsSpider):
    """Sina Finance."""

    name = "sina"
    channels = (Feed, Roll)
    default_channels = ("feed",)
