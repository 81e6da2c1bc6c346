"""Yuncaijing: the list of a day by page, or the page of a day; bodies come one by one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scrapy import FormRequest, Request
from scrapy.http import Response

from crawlers.channel import Channel
from crawlers.days import DayPage
from crawlers.pages import ListPage, PageFailure, PageState, Row, what_it_is
from crawlers.parsing import (
    absolute,
    beginning,
    decoded,
    epoch,
    field,
    html_of,
    json_of,
    known,
    longer,
    member,
    plain,
    required,
    rows_of,
    text_of,
    title_of,
    wall,
)
from crawlers.spiders.base import NewsSpider

_SITE = "https://www.yuncaijing.com/"
_SCRIPT = {"X-Requested-With": "XMLHttpRequest", "Origin": _SITE.rstrip("/")}


class _Daily(Channel):
    """A list by day. Bodies come from the window that the site opens over its lists."""

    hosts = ("www.yuncaijing.com",)

    def first(self, until: dt.datetime) -> str:
        """The last day, from its first page on."""
        return str(DayPage.before(until))

    def detail(self, row: Row) -> Request | None:
        """The window with the body."""
        return Request(f"{_SITE}news/modal/{row.source_id}", headers={**_SCRIPT, "Referer": row.url or _SITE})

    def read_detail(self, response: Response, row: Row) -> Row:
        """The row with its body."""
        return _completed(row, _opened(response))


_BUSY = ("稍后", "重试", "繁忙", "系统", "超时")
"""Words of a site that could not answer, where other messages with an error code say that a day has no more pages."""


class Listed(_Daily):
    """The list that the site's own pages ask for."""

    name = "list"
    fields = ("id", "title", "description", "inputtime")
    shifts = True

    def request(self, cursor: str) -> Request:
        """A page of a day."""
        page = DayPage.of(cursor)
        return FormRequest(
            f"{_SITE}news/get_realtime_news/yapi/ajax.html",
            formdata={"page": str(page.page), "date": str(page.day)},
            headers={**_SCRIPT, "Referer": _day_page(page.day)},
        )

    def read(self, response: Response, cursor: str) -> ListPage:
        """The page. An error code is how the site says that a day has no more pages."""
        page = DayPage.of(cursor)
        answer = json_of(decoded(response))
        code, message = field(answer, "error_code"), str(member(answer, "error_msg"))
        if str(code) != "0":
            said = what_it_is(PageFailure(PageState.UNSUPPORTED, message), message)
            if said.state is not PageState.UNSUPPORTED:
                raise said
            if any(word in message for word in _BUSY):
                raise PageFailure(PageState.FETCH_ERROR, f"the site says {code}: {message}", again=True)
            return page.listed((), (), pages=True)
        items = field(answer, "data")
        if not items:
            raise PageFailure(
                PageState.EMPTY, f"{page.day}, page {page.page}: no rows, and no word of an end", again=True
            )
        rows, unreadable = rows_of(items, self._row, "data")
        return page.listed(rows, unreadable, pages=True)

    @staticmethod
    def _row(item: Mapping[str, Any]) -> Row:
        key = required(item, "id")
        content = plain(text_of(item.get("description")))
        return Row(
            key,
            epoch(required(item, "inputtime")),
            title_of(item.get("title"), content),
            content,
            f"{_SITE}news/id_{key}.html",
        )


class DayHtml(_Daily):
    """The page of a day, with all its news, timed by the minute."""

    name = "html"

    def request(self, cursor: str) -> Request:
        """A day's page."""
        return Request(_day_page(DayPage.of(cursor).day), meta={"handle_httpstatus_list": [404]})

    def read(self, response: Response, cursor: str) -> ListPage:
        """The page. A day without one has no news."""
        page = DayPage.of(cursor)
        if response.status == 404:
            return page.listed((), (), pages=False)
        html = html_of(response)
        if not html.css("ul"):
            raise PageFailure(PageState.UNSUPPORTED, f"no list in the page: it begins {beginning(decoded(response))}")
        if b"</html" not in response.body.lower():
            raise PageFailure(PageState.FETCH_ERROR, f"the page of {page.day} is cut short", again=True)
        items = [
            {
                "id": item.attrib["data-id"],
                "time": item.css("time::text").get(),
                "title": item.css("a.title::attr(title), a.title::text").get(),
                "url": item.css("a.title::attr(href)").get(),
                "text": item.css(".des").get(),
            }
            for item in html.css("li[data-id]")
        ]
        if not items and html.css("li"):
            raise PageFailure(PageState.UNSUPPORTED, "shape changed: there is no li[data-id]")

        def row(item: Mapping[str, Any]) -> Row:
            content = plain(text_of(item["text"]))
            return Row(
                required(item, "id"),
                wall(required(item, "time"), page.day),
                title_of(item["title"], content),
                content,
                absolute(item["url"], _SITE),
            )

        rows, unreadable = rows_of(items, row, "li[data-id]")
        return page.listed(rows, unreadable, pages=False)

    def read_detail(self, response: Response, row: Row) -> Row:
        """The row with its body and the seconds of its minute.

        A page that shows another day than its address says must not date its items, so each is held against its own
        time.
        """
        news = _opened(response)
        moment = known(epoch, member(news, "inputtime"))
        if moment is not None and moment.date() != row.published_at.date():
            reason = f"listed on {row.published_at.date()}, but of {moment.date()}"
            raise PageFailure(PageState.FETCH_ERROR, reason)
        if moment is not None and moment.replace(second=0) == row.published_at:
            row = replace(row, published_at=moment)
        return _completed(row, news)


def _opened(response: Response) -> Any:
    """What the window holds. Every item has a body, so an answer of another shape is a failure, not an empty body."""
    text = decoded(response)
    try:
        return field(json_of(text), "data", "news")
    except PageFailure as failure:
        named = what_it_is(failure, text)
        if named.state is PageState.UNSUPPORTED:
            named = PageFailure(PageState.FETCH_ERROR, f"no body: {failure}")
        raise named from failure


def _completed(row: Row, news: Any) -> Row:
    content, brief = (plain(text_of(member(news, name))) for name in ("content", "description"))
    content = longer(content, brief) or row.content
    return replace(row, title=row.title or title_of(member(news, "title"), content), content=content)


def _day_page(day: dt.date) -> str:
    return f"{_SITE}insider/list_{day}.html"


class YuncaijingSpider(NewsSpider):
    """Yuncaijing."""

    name = "yuncaijing"
    channels = (Listed, DayHtml)
    default_channels = ("list",)
