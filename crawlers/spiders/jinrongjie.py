"""JRJ: flash news of its gateway, back in time by second, and the important news, one file a day. Ids are shared."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from scrapy import Request
from scrapy.http import JsonRequest, Response

from crawlers.channel import BySecond, Channel
from crawlers.days import DayPage
from crawlers.pages import ListPage, PageFailure, PageState, Row, what_it_is
from crawlers.parsing import (
    absolute,
    agreed,
    beginning,
    decoded,
    epoch,
    field,
    json_of,
    longer,
    plain,
    required,
    rows_of,
    text_of,
    title_of,
    wall,
)
from crawlers.spiders.base import NewsSpider


class Flash(BySecond):
    """Flash news, of rows before a second (`makeDate`, the site's wall time)."""

    name = "flash"
    fields = ("iiId", "title", "detail", "makeDate", "pcInfoUrl")
    hosts = ("gateway.jrj.com",)

    def request(self, cursor: str) -> Request:
        """Rows before a second."""
        return JsonRequest(
            "https://gateway.jrj.com/jrj-news/news/queryNewsFlash",
            data={"makeDate": f"{epoch(cursor):%Y-%m-%d %H:%M:%S}"},
            headers={"productId": "6000021", "Referer": "https://24h.jrj.com.cn/"},
        )

    def read(self, response: Response, cursor: str) -> ListPage:
        """The page. An empty list is the end, none at all a failure."""
        answer = json_of(decoded(response))
        agreed(answer, "code", "20000", "message")
        data = field(answer, "data")
        items = None if data is None else field(data, "data")
        if items is None:
            raise PageFailure(PageState.EMPTY, f"no list before {epoch(cursor)}", again=True)
        rows, unreadable = rows_of(items, _flash, "data.data")
        return ListPage(rows, self.behind(rows, cursor), None, unreadable)


class Yaowen(Channel):
    """Important news: a file for each day, whole. Days without a file have none."""

    name = "yaowen"
    fields = ("iiid", "title", "detail", "makedate", "infourl")
    hosts = ("stockjs.jrj.com.cn",)

    def first(self, until: dt.datetime) -> str:
        """The last day."""
        return str(DayPage.before(until))

    def request(self, cursor: str) -> Request:
        """A day's file."""
        return Request(
            f"https://stockjs.jrj.com.cn/share/news/yaowen/yw{DayPage.of(cursor).day}.js",
            headers={"Referer": "https://www.jrj.com.cn/"},
            meta={"handle_httpstatus_list": [404]},
        )

    def read(self, response: Response, cursor: str) -> ListPage:
        """The day's news. No file (404, or a page in its place) is a day without."""
        page = DayPage.of(cursor)
        text = decoded(response)
        if response.status == 404 or text.lstrip()[:1] == "<":
            found = what_it_is(PageFailure(PageState.UNSUPPORTED, f"no file: {beginning(text)}"), text)
            if found.state is not PageState.UNSUPPORTED:  # a captcha or a shield
                raise found
            return page.listed((), (), pages=False)
        items = field(json_of(text), "newsinfo")
        if items is None:
            raise PageFailure(PageState.EMPTY, f"the file of {page.day} has no list", again=True)
        rows, unreadable = rows_of(items, _important, "newsinfo")
        return page.listed(rows, unreadable, pages=False)


def _flash(item: Mapping[str, Any]) -> Row:
    content = longer(plain(text_of(item.get("detail"))), plain(text_of(item.get("summary"))))
    return Row(
        required(item, "iiId"),
        wall(required(item, "makeDate")),
        title_of(item.get("title"), content),
        content,
        absolute(item.get("pcInfoUrl"), "https://24h.jrj.com.cn/"),
    )


def _important(item: Mapping[str, Any]) -> Row:
    content = plain(text_of(item.get("detail")))
    return Row(
        required(item, "iiid"),
        wall(required(item, "makedate")),
        title_of(item.get("title"), content),
        content,
        absolute(item.get("infourl"), "https://finance.jrj.com.cn/"),
    )


class JinrongjieSpider(NewsSpider):
    """JRJ."""

    name = "jinrongjie"
    channels = (Flash, Yaowen)
    default_channels = ("flash", "yaowen")
