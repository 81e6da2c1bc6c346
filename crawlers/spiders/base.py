"""What all spiders share: arguments, the way a page is fetched, and the order of channels."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar

import scrapy
from scrapy import Request
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from twisted.python.failure import Failure

from crawlers.channel import Channel
from crawlers.items import Article
from crawlers.middlewares import NETWORK_FAILURES, Blocked, Disallowed, in_words
from crawlers.pages import PageFailure, PageState, what_it_is
from crawlers.records import ChannelEnd, Job, PageRead, Probe, Record, Window
from crawlers.walk import SHANGHAI, Span, Walk, body_of, probe

_GONE = (404, 410)
"""The pages that sites show with these are full of scripts; what they mention says nothing."""

told = object()
"""Signal: a `Record` was made. Handlers get it as `record`, pages before their articles are yielded."""


class NewsSpider(scrapy.Spider):
    """A source. Arguments: `from` and `to` (days in Asia/Shanghai, both included), `channels` (comma-separated).

    Class attributes:
        channels: the site's lists by name; the defaults first.
        default_channels: those read when none is named.
    """

    channels: ClassVar[tuple[type[Channel], ...]]
    default_channels: ClassVar[tuple[str, ...]]

    def __init__(self, job: Job | None = None, **arguments: Any) -> None:
        super().__init__()
        self.job = job if job is not None else self._job(arguments)
        self.allowed_domains = sorted({host for channel in self.channels for host in channel.hosts})

    @classmethod
    def _job(cls, arguments: Mapping[str, str]) -> Job:
        """A job from the arguments of a command line.

        Raises:
            ValueError: an argument is missing or wrong.
        """
        now = dt.datetime.now(SHANGHAI)
        days = []
        for name in ("from", "to"):
            text = arguments.get(name) or (arguments.get("from") if name == "to" else None)
            if text is None:
                raise ValueError(f"{cls.name}: say which days: -a from=YYYY-MM-DD [-a to=YYYY-MM-DD]")
            try:
                days.append(dt.date.fromisoformat(text))
            except ValueError:
                raise ValueError(f"{cls.name}: {name}={text!r}: not a calendar day (use YYYY-MM-DD)") from None
        if days[1] < days[0]:
            raise ValueError(f"{cls.name}: from={days[0]} lies after to={days[1]}")
        names = tuple(filter(None, arguments.get("channels", "").split(","))) or cls.default_channels
        for name in names:
            cls.channel(name)
        return Job(cls.name, (Window(days[0], days[1], names),), now)

    async def start(self) -> AsyncIterator[Article]:
        """Walk every channel of every window, newest days first; a refusal ends the source."""
        newest: dict[str, dt.datetime | None] = {}
        for position, window in enumerate(self.job.windows):
            if self.job.probe:
                self._tell(await probe(self.channel(window.channels[0]), self.job.started_at, self.fetch))
                continue
            for name in window.channels:
                walk = self._walk(self.channel(name), window, position)
                walk.newest = newest.get(name)
                async for record in walk.pages():
                    newest[name] = walk.newest
                    self._tell(record)
                    if isinstance(record, PageRead):
                        for article in record.articles:
                            yield article
                    elif record.state is PageState.BLOCKED:
                        return

    @classmethod
    def channel(cls, name: str) -> Channel:
        """A channel by name. Raises `ValueError` if the source has none of that name."""
        for channel in cls.channels:
            if channel.name == name:
                return channel()
        known = ", ".join(channel.name for channel in cls.channels)
        raise ValueError(f"{cls.name}: no channel {name!r}; there are {known}")

    def _walk(self, channel: Channel, window: Window, position: int) -> Walk:
        since = dt.datetime.combine(window.first, dt.time(), SHANGHAI)
        end = dt.datetime.combine(window.last + dt.timedelta(days=1), dt.time(), SHANGHAI)
        span = Span(since, min(end, self.job.started_at), position)
        most_pages = self.settings.getint("MOST_PAGES")
        at_once = self.settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN")
        return Walk(self.name, channel, span, self.fetch, self.job.started_at, most_pages, at_once)

    async def fetch(self, request: Request) -> Response:
        """A page, by way of all middleware: robots, delays, retries, limits.

        Other statuses than 200 are answers too where the request's meta has them in `handle_httpstatus_list`.

        Raises:
            PageFailure: nothing usable came.
        """
        where = request.url.partition("?")[0]
        try:
            response = await self.crawler.engine.download_async(request)
        except Disallowed as refused:
            raise PageFailure(PageState.DISALLOWED, str(refused)) from refused
        except Blocked as refused:
            raise PageFailure(PageState.BLOCKED, str(refused)) from refused
        except IgnoreRequest as refused:
            raise PageFailure(PageState.FETCH_ERROR, f"{where}: not followed: {refused}") from refused
        except NETWORK_FAILURES as failed:
            raise PageFailure(PageState.FETCH_ERROR, f"{where}: {in_words(failed)}") from failed
        if response.status in (200, *request.meta.get("handle_httpstatus_list", ())):
            return response
        failure = PageFailure(PageState.UNSUPPORTED, f"{where}: HTTP {response.status}")
        if response.status not in _GONE and what_it_is(failure, body_of(response)).state is PageState.BLOCKED:
            raise what_it_is(failure, body_of(response))
        raise PageFailure(PageState.FETCH_ERROR, failure.reason)

    def _tell(self, record: Record) -> None:
        for _, outcome in self.crawler.signals.send_catch_log(told, record=record):
            if isinstance(outcome, Failure):  # a record that nobody could take must not pass for one that was
                outcome.raiseException()
        if isinstance(record, ChannelEnd) and record.state is not PageState.OK:
            self.logger.error("%s: %s", record.channel, record.reason)
        elif isinstance(record, ChannelEnd):
            self.logger.info("%s: complete from %s on", record.channel, record.reached)
        elif isinstance(record, Probe):
            self.logger.info("%s: %s %s", record.channel, record.state, record.reason)
        for line in (*record.unreadable, *record.notes) if isinstance(record, PageRead) else ():
            self.logger.warning("%s: %s", record.channel, line)
