"""Tonghuashun 同花顺 (10jqka.com.cn): the flashes, and the lists of articles."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scrapy import Request
from scrapy.http import Response

from crawlers.channel import Channel
from crawlers.pages import ListPage, PageFailure, PageState, Row, Unreadable
from crawlers.parsing import (
    absolute,
    article_text,
    decoded,
    epoch,
    field,
    html_of,
    json_of,
    known,
    later,
    member,
    plain,
    required,
    rows_of,
    site_error,
    text_of,
    title_of,
    wall,
)
from crawlers.spiders.base import NewsSpider

_OK = ("0", "200")
_ADDRESS = re.compile(r"/(\d{4})(\d{2})(\d{2})/c(\d+)\.shtml")
_BODIES = (
    ".article-detail",
    ".article-content",
    ".news-content",
    "#contentApp",
    ".main-text",
    ".txt",
    "article",
    "main",
)


class Push(Channel):
    """The flashes, by page number. The site keeps some weeks of them."""

    name = "push"
    fields = ("id", "seq", "title", "digest", "url", "ctime", "rtime")
    hosts = ("news.10jqka.com.cn",)
    seeks = True

    def first(self, until: dt.datetime) -> str:
        """The newest page."""
        return "1"

    def request(self, cursor: str) -> Request:
        """See `Channel.request`. Without the Referer the site refuses."""
        return Request(
            f"https://news.10jqka.com.cn/tapp/news/push/stock/?page={cursor}&tag=&track=website&pagesize=20",
            headers={"Referer": "https://news.10jqka.com.cn/realtimenews.html"},
        )

    def read(self, response: Response, cursor: str) -> ListPage:
        """See `Channel.read`. An empty list is the end; none at all (`null`) is asked for again."""
        page = json_of(decoded(response))
        if (code := text_of(member(page, "code"))) not in _OK:
            raise site_error(code, member(page, "msg"))
        data = field(page, "data")
        items = None if data is None else field(data, "list")
        if items is None:
            raise PageFailure(PageState.EMPTY, "the site answers no list", again=True)
        rows, unreadable = rows_of(items, _flash, "list")
        return ListPage(rows, str(int(cursor) + 1) if items else None, unreadable=unreadable)


class Lists(Channel):
    """Today's articles as HTML in GBK, by page number; bodies on their own pages."""

    name = "lists"
    hosts = ("news.10jqka.com.cn",)
    seeks = True

    def first(self, until: dt.datetime) -> str:
        """The newest page."""
        return "1"

    def request(self, cursor: str) -> Request:
        """See `Channel.request`. A page behind the last one is not found."""
        address = f"https://news.10jqka.com.cn/today_list/index_{cursor}.shtml"
        return Request(address, meta={"handle_httpstatus_list": [404]} if cursor != "1" else {})

    def read(self, response: Response, cursor: str) -> ListPage:
        """See `Channel.read`."""
        if response.status == 404:
            return ListPage((), None)
        page = html_of(response)
        items = [
            {
                "title": item.css(".arc-title a::text").get(),
                "url": item.css(".arc-title a::attr(href)").get(),
                "time": item.css(".arc-title span::text").get(),
                "digest": "".join(item.css(".arc-cont ::text").getall()),
            }
            for item in page.css(".list-con ul li")
        ]
        if not items and not page.css(".list-con"):
            raise PageFailure(PageState.UNSUPPORTED, "shape changed: the page has no .list-con")
        rows, unreadable = rows_of(items, _article, "list-con")
        return ListPage(rows, str(int(cursor) + 1) if items else None, unreadable=unreadable)

    def detail(self, row: Row) -> Request:
        """See `Channel.detail`."""
        return Request(row.url)

    def read_detail(self, response: Response, row: Row) -> Row:
        """See `Channel.read_detail`. The list shows minutes; the seconds are taken from here."""
        page = html_of(response)
        body = next((selector for selector in _BODIES if page.css(selector)), _BODIES[0])
        content = article_text(page, body)
        shown = known(wall, page.css("#pubtime_baidu::text, #pubtime::text").get())
        if shown is not None and shown.replace(second=0) == row.published_at:
            return replace(row, content=content, published_at=shown)
        return replace(row, content=content)


def _flash(item: Mapping[str, Any]) -> Row:
    published_at = epoch(required(item, "ctime", "rtime"))
    content = plain(text_of(item.get("digest"))) or plain(text_of(item.get("short")))
    url = absolute(item.get("url"), "https://news.10jqka.com.cn/")
    return Row(
        required(item, "seq", "id"),  # the number in its address, by which the lists know it too
        published_at,
        title_of(item.get("title"), content),
        content,
        url or absolute(item.get("shareUrl"), "https://news.10jqka.com.cn/"),
        later(item.get("rtime"), published_at),
    )


def _article(item: Mapping[str, Any]) -> Row | None:
    """A row of a list; None for one that leads to another host, whose pages are another matter."""
    url = absolute(required(item, "url"), "https://news.10jqka.com.cn/")
    if not url.startswith("https://news.10jqka.com.cn/"):
        return None
    address = _ADDRESS.search(url)
    if address is None:
        raise Unreadable(f"{url}: the address has neither day nor number")
    # No year is written. The page may have been made shortly before midnight and published after it.
    made = dt.date(int(address[1]), int(address[2]), int(address[3]))
    digest = plain(text_of(item.get("digest")))
    return Row(
        address[4],
        wall(required(item, "time"), today=made + dt.timedelta(days=1)),
        title_of(item.get("title"), digest),
        digest,
        url,
    )


class TonghuashunSpider(NewsSpider):
    """10jqka.com.cn."""

    name = "10jqka"
    channels = (Push, Lists)
    default_channels = ("push",)
