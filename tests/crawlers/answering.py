"""What tests of spiders share: answers made by hand, sites that are functions, walks over them."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from scrapy import Request
from scrapy.http import HtmlResponse, Response, TextResponse

from crawlers.channel import Channel
from crawlers.items import Article
from crawlers.records import ChannelEnd, PageRead
from crawlers.walk import Span, Walk

SHANGHAI = ZoneInfo("Asia/Shanghai")


def at(text: str) -> dt.datetime:
    """A time of Asia/Shanghai."""
    return dt.datetime.fromisoformat(text).replace(tzinfo=SHANGHAI)


def answer(body: Any, *, status: int = 200, charset: str = "utf-8", declared: str = "") -> TextResponse:
    """An answer: text as it is (a page, if it begins like one), everything else as JSON."""
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    page = text.lstrip().startswith("<")
    kind = "text/html" if page else "application/json"
    return (HtmlResponse if page else TextResponse)(
        "https://example.com/",
        status=status,
        headers={"Content-Type": f"{kind}; charset={declared or charset}"},
        body=text.encode(charset),
    )


@dataclass
class Walked:
    """What a walk brought."""

    articles: list[Article]
    end: ChannelEnd
    asked: list[Request]
    pages: list[PageRead]

    @property
    def ids(self) -> list[str]:
        """Ids in the order they were told."""
        return [article.source_id for article in self.articles]


def walked(
    channel: Channel, since: str, until: str, site: Callable[[Request], Response], *, most_pages: int = 10_000
) -> Walked:
    """A walk from `until` back to `since` over a site."""
    asked: list[Request] = []

    async def fetch(request: Request) -> Response:
        asked.append(request)
        return site(request)

    async def told() -> list[PageRead | ChannelEnd]:
        walk = Walk("source", channel, Span(at(since), at(until)), fetch, at(until), most_pages)
        return [record async for record in walk.pages()]

    *pages, end = asyncio.run(told())
    assert isinstance(end, ChannelEnd)
    read = [page for page in pages if isinstance(page, PageRead)]
    return Walked([article for page in read for article in page.articles], end, asked, read)


@contextmanager
def machine_in(zone: str) -> Iterator[None]:
    """The machine's clock in another time zone."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = zone
    time.tzset()
    try:
        yield
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()
