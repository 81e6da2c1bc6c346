"""Wallstreetcn 华尔街见闻: the lives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scrapy import Request
from scrapy.http import Response

from crawlers.channel import BySecond
from crawlers.pages import ListPage, PageFailure, PageState, Row
from crawlers.parsing import (
    absolute,
    agreed,
    decoded,
    epoch,
    field,
    flag,
    json_of,
    plain,
    required,
    rows_of,
    text_of,
    title_of,
)
from crawlers.spiders.base import NewsSpider

_PAID = ("is_paid", "is_priced", "is_trial", "is_need_pay", "product_id")
_VIP = ("is_vip", "is_in_vip_privilege", "membership_uri")


class Lives(BySecond):
    """All public lives. The site tells a next cursor, the second of the last row; so the walk makes its own."""

    name = "lives"
    fields = ("id", "title", "content", "content_text", "display_time", "uri")
    hosts = ("api-one.wallstcn.com",)

    def request(self, cursor: str) -> Request:
        """See `Channel.request`. Members' lives have another `accept`, which is never asked for."""
        return Request(
            "https://api-one.wallstcn.com/apiv1/content/lives"
            f"?channel=global-channel&client=pc&limit=100&cursor={cursor}&first_page=false&accept=live",
            headers={"Referer": "https://wallstreetcn.com/live/global"},
        )

    def read(self, response: Response, cursor: str) -> ListPage:
        """See `Channel.read`. An empty list is the end; none at all (`null`) is asked for again."""
        page = json_of(decoded(response))
        agreed(page, "code", "20000", "message")
        data = field(page, "data")
        items = None if data is None else field(data, "items")
        if items is None:
            raise PageFailure(PageState.EMPTY, "the site answers no items", again=True)
        rows, unreadable = rows_of(items, _row, "items")
        return ListPage(rows, self.behind(rows, cursor), unreadable=unreadable)


def _row(item: Mapping[str, Any]) -> Row:
    number = required(item, "id")
    content = "\n".join(filter(None, (plain(text_of(item.get(part))) for part in ("content", "content_more"))))
    content = content or plain(text_of(item.get("content_text")))
    url = absolute(item.get("uri"), "https://wallstreetcn.com/")
    return Row(
        number,
        epoch(required(item, "display_time")),
        title_of(item.get("title"), content),
        content,
        url or f"https://wallstreetcn.com/livenews/{number}",
        dropped=_dropped(item, url),
    )


def _dropped(item: Mapping[str, Any], url: str) -> str:
    """Each sign alone is enough: what must be paid for may come with `is_paid` false."""
    if "/premium/" in url or any(flag(item.get(name)) for name in _PAID):
        return "paid"
    return "vip" if "/member/" in url or any(flag(item.get(name)) for name in _VIP) else ""


class WallstreetcnSpider(NewsSpider):
    """wallstreetcn.com."""

    name = "wallstreetcn"
    channels = (Lives,)
    default_channels = ("lives",)
