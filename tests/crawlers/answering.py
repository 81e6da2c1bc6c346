"""Sites of days and texts: answers in any charset, times as one writes them, walks that remember what was asked."""

from __future__ import annotations

import datetime as dt
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from scrapy import Request
from scrapy.http import Response, TextResponse
from spider_answers import SHANGHAI, in_html, walk

from crawlers.channel import Channel
from crawlers.items import Article
from crawlers.records import ChannelEnd, PageRead


def at(text: str) -> dt.datetime:
    """A time of Asia/Shanghai."""
    return dt.datetime.fromisoformat(text).replace(tzinfo=SHANGHAI)


def answer(body: Any, *, status: int = 200, charset: str = "utf-8", declared: str = "") -> TextResponse:
    """An answer: text as it is (a page, if it begins like one), everything else as JSON."""
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    if text.lstrip().startswith("<"):
        return in_html(text, charset=charset, declared=declared or None, status=status)
    headers = {"Content-Type": f"application/json; charset={declared or charset}"}
    return TextResponse("https://site.example/", status=status, headers=headers, body=text.encode(charset))


@dataclass
class Walked:
    """What a walk brought."""

    articles: list[Article]
    pages: list[PageRead]
    end: ChannelEnd
    asked: list[Request]

    @property
    def ids(self) -> list[str]:
        """Ids in the order they were told."""
        return [article.source_id for article in self.articles]


def walked(
    channel: Channel, since: str, until: str, site: Callable[[Request], Response], *, most_pages: int = 10_000
) -> Walked:
    """A walk from `until` back to `since` over a site."""
    asked: list[Request] = []

    def remembered(request: Request) -> Response:
        asked.append(request)
        return site(request)

    borders = (int(at(since).timestamp()), int(at(until).timestamp()))
    return Walked(*walk(channel, remembered, *borders, most_pages), asked)


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
