"""Eastmoney 东方财富: the 7x24 flashes, and the articles of its news column."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scrapy import Request
from scrapy.http import Response

from crawlers.channel import Channel
from crawlers.pages import ListPage, PageFailure, PageState, Row
from crawlers.parsing import (
    absolute,
    agreed,
    article_text,
    decoded,
    epoch,
    field,
    html_of,
    json_of,
    member,
    plain,
    required,
    rows_of,
    text_of,
    title_of,
    wall,
)
from crawlers.spiders.base import NewsSpider

_PROMOTION = "在东方财富看资讯行情"
_ENDINGS = ("文章来源", "（文章来源", "(文章来源", "责任编辑", "郑重声明", "网友评论")


class Fast(Channel):
    """The flashes of all columns. The cursor is the site's own, in microseconds.

    Whether the site heeds a cursor that it did not give is unknown, so a walk begins with the newest page.
    """

    name = "fast"
    fields = ("code", "title", "summary", "showTime", "realSort")
    hosts = ("np-weblist.eastmoney.com",)

    def first(self, until: dt.datetime) -> str:
        """The newest page."""
        return ""

    def request(self, cursor: str) -> Request:
        """See `Channel.request`. Without `sortEnd` or `req_trace`, of any value, the site refuses."""
        return Request(
            "https://np-weblist.eastmoney.com/comm/web/getFastNewsList"
            f"?client=web&biz=web_724&fastColumn=102&sortEnd={cursor}&pageSize=200&req_trace=1",
            headers={"Referer": "https://kuaixun.eastmoney.com/"},
        )

    def read(self, response: Response, cursor: str) -> ListPage:
        """See `Channel.read`. The list ends where the site names no next cursor."""
        data = _data(response)
        items = field(data, "fastNewsList")
        following = text_of(member(data, "sortEnd")) or None
        if items is None or (not items and following is not None):
            raise PageFailure(PageState.EMPTY, "the site answers no fastNewsList", again=True)
        rows, unreadable = rows_of(items, _flash, "fastNewsList")
        return ListPage(rows, following, unreadable=unreadable)


class Columns(Channel):
    """Articles of the column of the day's main financial news (350), by page number; bodies on their own pages."""

    name = "columns"
    fields = ("code", "title", "summary", "showTime", "url")
    hosts = ("np-listapi.eastmoney.com", "finance.eastmoney.com")
    seeks = True

    def first(self, until: dt.datetime) -> str:
        """The newest page."""
        return "1"

    def request(self, cursor: str) -> Request:
        """See `Channel.request`."""
        return Request(
            "https://np-listapi.eastmoney.com/comm/web/getNewsByColumns?client=web&biz=web_news_col&column=350&order=1"
            f"&needInteractData=0&page_index={cursor}&page_size=20&req_trace=1"
            "&fields=code,showTime,title,mediaName,summary,image,url,uniqueUrl,Np_dst",
            headers={"Referer": "https://finance.eastmoney.com/"},
        )

    def read(self, response: Response, cursor: str) -> ListPage:
        """See `Channel.read`. An empty list is the end; none at all (`null`) is asked for again."""
        items = field(_data(response), "list")
        if items is None:
            raise PageFailure(PageState.EMPTY, "the site answers no list", again=True)
        rows, unreadable = rows_of(items, _article, "list")
        return ListPage(rows, str(int(cursor) + 1) if items else None, unreadable=unreadable)

    def detail(self, row: Row) -> Request:
        """See `Channel.detail`."""
        return Request(f"https://finance.eastmoney.com/a/{row.source_id}.html")

    def read_detail(self, response: Response, row: Row) -> Row:
        """See `Channel.read_detail`. The time stays the list's: the page has minutes only."""
        paragraphs = article_text(html_of(response), "#ContentBody, div.contentbox").split("\n")
        if paragraphs[0].startswith(_PROMOTION):
            del paragraphs[0]
        end = next((place for place, text in enumerate(paragraphs) if text.startswith(_ENDINGS)), len(paragraphs))
        return replace(row, content="\n".join(paragraphs[:end]) or row.content)


def _data(response: Response) -> Any:
    """What the site answers, or what it says is wrong."""
    page = json_of(decoded(response))
    agreed(page, "code", "1", "message")
    if (data := field(page, "data")) is None:
        raise PageFailure(PageState.EMPTY, "the site answers no data", again=True)
    return data


def _flash(item: Mapping[str, Any]) -> Row:
    code = required(item, "code")
    content = plain(text_of(item.get("summary")))
    return Row(code, _time(item), title_of(item.get("title"), content), content, _address(code))


def _article(item: Mapping[str, Any]) -> Row:
    code = required(item, "code")
    summary = plain(text_of(item.get("summary")))
    url = absolute(item.get("uniqueUrl") or item.get("url"), "https://finance.eastmoney.com/")
    return Row(code, _time(item), title_of(item.get("title"), summary), summary, url or _address(code))


def _time(item: Mapping[str, Any]) -> dt.datetime:
    """First publication. Where it is not shown, the place in the list says it: micro- or milliseconds."""
    return wall(item["showTime"]) if text_of(item.get("showTime")) else epoch(required(item, "realSort"))


def _address(code: str) -> str:
    return f"https://finance.eastmoney.com/a/{code}.html"


class EastmoneySpider(NewsSpider):
    """eastmoney.com."""

    name = "eastmoney"
    channels = (Fast, Columns)
    default_channels = ("fast",)
