"""CLS 财联社: the telegraph."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from scrapy import Request
from scrapy.http import Response

from crawlers.channel import BySecond, Channel
from crawlers.pages import ListPage, PageFailure, PageState, Row
from crawlers.parsing import (
    assigned,
    decoded,
    epoch,
    field,
    flag,
    json_of,
    later,
    lead,
    longer,
    member,
    plain,
    required,
    rows_of,
    site_error,
    text_of,
    title_of,
)
from crawlers.spiders.base import NewsSpider

_VIP_LEADS = ("盘中宝", "电报解读")
# 盘中宝 is 20015. All real rows of 20000 and above are teasers of paid columns that withhold what they are about
# (20013 九点特供, 20021 风口研报, 20022 公告全知道, 20026 电报解读, 20072 风口专家会议); public telegraphs have -1.
_VIP_TYPES = 20_000
_LOADING = 50101
_MOST_ROWS = 50  # the site answers an empty list if asked for more


def signed(parameters: Mapping[str, str]) -> str:
    """A query with the checksum that the site asks for.

    It is made of the other parameters alone, in the order of their names; no secret and no login goes into it.
    """
    query = urlencode(sorted(parameters.items()))
    return f"{query}&sign={hashlib.md5(hashlib.sha1(query.encode()).hexdigest().encode()).hexdigest()}"


class Telegraph(BySecond):
    """All telegraphs, back through the years. The cursor counts seconds of first publication."""

    name = "telegraph"
    fields = ("id", "title", "brief", "content", "ctime", "modified_time", "is_ad", "type")
    hosts = ("www.cls.cn",)

    def request(self, cursor: str) -> Request:
        """See `Channel.request`."""
        query = signed(
            {
                "app": "CailianpressWeb",
                "category": "",
                "last_time": cursor,
                "os": "web",
                "refresh_type": "1",
                "rn": str(_MOST_ROWS),
                "sv": "8.4.6",
            }
        )
        address = f"https://www.cls.cn/v1/roll/get_roll_list?{query}"
        return Request(address, headers={"Referer": "https://www.cls.cn/telegraph"})

    def read(self, response: Response, cursor: str) -> ListPage:
        """See `Channel.read`. An empty list is the end; none at all (`null`) is asked for again."""
        page = json_of(decoded(response))
        if flag(error := member(page, "errno")):
            raise site_error(error, member(page, "msg"), again=text_of(error) == str(_LOADING))
        data = field(page, "data")
        rows, unreadable = _rows(None if data is None else field(data, "roll_data"), "roll_data")
        return ListPage(rows, self.behind(rows, cursor), unreadable=unreadable)


class Newest(Channel):
    """The newest telegraphs as the page for phones shows them: without a checksum, and without older pages."""

    name = "newest"
    fields = ("id", "title", "brief", "content", "ctime", "modified_time")
    hosts = ("m.cls.cn",)
    proves = False

    def first(self, until: Any) -> str:
        """The only page."""
        return ""

    def request(self, cursor: str) -> Request:
        """See `Channel.request`."""
        return Request("https://m.cls.cn/telegraph")

    def read(self, response: Response, cursor: str) -> ListPage:
        """See `Channel.read`."""
        state = assigned(decoded(response), "__NEXT_DATA__")
        rows, unreadable = _rows(field(state, "props", "initialState", "roll_data"), "roll_data")
        return ListPage(rows, None, unreadable=unreadable)


def _rows(items: Any, what: str) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    if items is None:
        raise PageFailure(PageState.EMPTY, f"the site answers no {what}", again=True)
    return rows_of(items, _row, what)


def _row(item: Mapping[str, Any]) -> Row:
    number = required(item, "id")
    published_at = epoch(required(item, "ctime"))
    # The content is cut at times, or an edit has reached only one of the two.
    content = longer(plain(text_of(item.get("content"))), plain(text_of(item.get("brief"))))
    title = title_of(item.get("title"), content)
    return Row(
        number,
        published_at,
        title,
        content,
        f"https://www.cls.cn/detail/{number}",
        later(item.get("modified_time"), published_at),
        _dropped(item, title, content),
    )


def _dropped(item: Mapping[str, Any], title: str, content: str) -> str:
    if flag(item.get("is_ad")) or flag(member(item, "ad", "id")) or flag(member(item, "ad", "url")):
        return "ad"
    kind = text_of(item.get("type"))
    if kind.isdecimal() and int(kind) >= _VIP_TYPES:
        return "vip"
    return "vip" if any(one in _VIP_LEADS for one in (lead(content), lead(title), title)) else ""


class ClsSpider(NewsSpider):
    """cls.cn."""

    name = "cls"
    channels = (Telegraph, Newest)
    default_channels = ("telegraph",)
