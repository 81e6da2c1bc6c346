"""Answers of sites made by hand, and walks over channels that get them without a network."""

from __future__ import annotations

import asyncio
import datetime as dt
import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from zoneinfo import ZoneInfo

from scrapy import Request
from scrapy.http import HtmlResponse, Response, TextResponse

from crawlers.channel import Channel
from crawlers.items import Article
from crawlers.records import ChannelEnd, PageRead
from crawlers.walk import Span, Walk

SHANGHAI = ZoneInfo("Asia/Shanghai")
SECOND = 1709602300
"""2024-03-05 09:31:40 in Asia/Shanghai."""


def at(second: int) -> dt.datetime:
    """An instant."""
    return dt.datetime.fromtimestamp(second, SHANGHAI)


def in_json(value: Any) -> TextResponse:
    """A JSON answer."""
    return TextResponse("https://site.example/", body=json.dumps(value, ensure_ascii=False).encode())


def in_html(text: str, *, charset: str = "utf-8", declared: str | None = None, status: int = 200) -> HtmlResponse:
    """An HTML page in a charset, which its header may misname."""
    headers = {"Content-Type": f"text/html; charset={declared or charset}"}
    return HtmlResponse("https://site.example/", status=status, headers=headers, body=text.encode(charset))


def query(request: Request) -> Mapping[str, str]:
    """The parameters of a request."""
    return dict(parse_qsl(urlsplit(request.url).query, keep_blank_values=True))


def walk(
    channel: Channel, answer: Callable[[Request], Response], since: int, until: int, most_pages: int = 200
) -> tuple[list[Article], list[PageRead], ChannelEnd]:
    """A walk from `until` back to `since` (seconds): the articles, the pages and how it ended."""

    async def fetch(request: Request) -> Response:
        return answer(request)

    async def collect() -> list[PageRead | ChannelEnd]:
        steps = Walk("site", channel, Span(at(since), at(until)), fetch, at(until), most_pages)
        return [record async for record in steps.pages()]

    *pages, end = asyncio.run(collect())
    assert isinstance(end, ChannelEnd)
    read = [page for page in pages if isinstance(page, PageRead)]
    return [article for page in read for article in page.articles], read, end


def real_items(real_data: Path, source: str) -> Sequence[Mapping[str, Any]]:
    """The items of a source as its site sent them."""
    with gzip.open(real_data / "raw_api" / f"{source}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def written(text: str) -> str:
    """A text without its white space."""
    return "".join(text.split())
