"""How sites are asked: robots.txt, waiting when told to, and stopping when refused. Scrapy does the rest.

Nothing here gets round anything: a captcha is not solved, a cookie or token is not made, a refusal ends the source.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import email.utils
import logging
import time
from collections import defaultdict
from typing import Protocol

from protego import Protego
from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares import cookies
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadCancelledError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    IgnoreRequest,
    ResponseDataLossError,
)
from scrapy.http import Response
from scrapy.utils.httpobj import urlparse_cached
from tldextract import TLDExtract
from twisted.internet.error import ConnectError, ConnectionClosed
from twisted.web.client import RequestGenerationFailed, RequestTransmissionFailed

logger = logging.getLogger(__name__)


NETWORK_FAILURES = (
    OSError,
    CannotResolveHostError,
    DownloadCancelledError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    ResponseDataLossError,
    # Scrapy leaves some of Twisted's as they are.
    ConnectError,
    ConnectionClosed,
    RequestGenerationFailed,
    RequestTransmissionFailed,
)
"""What a request can fail with before there is an answer (an answer too large is cancelled)."""

_IN_WORDS: tuple[tuple[type[Exception], str], ...] = (
    (CannotResolveHostError, "its name is not known"),
    (DownloadConnectionRefusedError, "it refuses the connection"),
    (DownloadCancelledError, "the answer is too large"),
    (DownloadTimeoutError, "no whole answer in time"),
    (ResponseDataLossError, "the answer breaks off"),
)


def in_words(failure: Exception) -> str:
    """One of `NETWORK_FAILURES` for people: without the address, whose query may be long."""
    words = next((text for kind, text in _IN_WORDS if isinstance(failure, kind)), "the connection broke")
    return f"{words} ({type(failure).__name__})"


class Disallowed(IgnoreRequest):
    """robots.txt does not allow the path, or could not be read where that is taken for a no."""


class Blocked(IgnoreRequest):
    """The site refuses: a captcha, a ban, a longer pause than we wait for."""


class _Rules(Protocol):
    def can_fetch(self, url: str, user_agent: str) -> bool: ...
    def crawl_delay(self, user_agent: str) -> float | None: ...


class Robots:
    """Obeys each host's robots.txt, read once.

    No file (404 and its like) or a page of HTML allows all. One that cannot be had (401, 403, 429, 456, a server error,
    no answer, a redirect to another host) follows `ROBOTS_UNAVAILABLE`: `refuse`, the default, or `allow`. A
    Crawl-delay that is longer than our own is kept; a host that asks for more than `BACK_OFF_LONGEST_SECONDS` is left
    alone.
    """

    def __init__(self, crawler: Crawler) -> None:
        settings = crawler.settings
        self._crawler = crawler
        self._agent: str = settings["USER_AGENT"]
        self._refuse = settings["ROBOTS_UNAVAILABLE"] != "allow"
        self._delay = settings.getfloat("DOWNLOAD_DELAY")
        self._longest = settings.getfloat("BACK_OFF_LONGEST_SECONDS")
        self._rules: dict[str, asyncio.Task[_Rules | str]] = {}

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Robots:
        """As Scrapy makes it."""
        return cls(crawler)

    async def process_request(self, request: Request) -> None:
        """Let a request pass, or raise `Disallowed`."""
        if request.meta.get("robots"):
            return
        url = urlparse_cached(request)
        if url.netloc not in self._rules:
            reading = self._read(f"{url.scheme}://{url.netloc}/robots.txt")
            self._rules[url.netloc] = asyncio.create_task(reading)
        rules = await self._rules[url.netloc]
        if isinstance(rules, str):
            raise Disallowed(f"robots.txt of {url.netloc} {rules}; nothing was asked")
        if not rules.can_fetch(request.url, self._agent):
            raise Disallowed(f"robots.txt of {url.netloc} disallows {url.path}")
        delay = rules.crawl_delay(self._agent) or 0.0
        if delay > self._longest:
            raise Disallowed(
                f"robots.txt of {url.netloc} wants {delay:g} s between requests (at most {self._longest:g} are waited)"
            )
        if delay > self._delay:
            self._slow_down(request, delay)

    def _slow_down(self, request: Request, delay: float) -> None:
        """Keep a Crawl-delay where Scrapy keeps its own: in the host's slot, and in those made for it later."""
        engine = self._crawler.engine
        assert engine is not None
        downloader = engine.downloader
        key = downloader.get_slot_key(request)
        downloader.per_slot_settings[key] = {**downloader.per_slot_settings.get(key, {}), "delay": delay}
        if key in downloader.slots:
            downloader.slots[key].delay = max(downloader.slots[key].delay, delay)
        request.meta["autothrottle_dont_adjust_delay"] = True  # it would lower the delay to our own

    async def _read(self, address: str) -> _Rules | str:
        """The rules, or why they could not be read."""
        engine = self._crawler.engine
        assert engine is not None
        try:
            response = await engine.download_async(Request(address, meta={"robots": True}))
        except NETWORK_FAILURES as failed:
            return self._unavailable(f"could not be read: {in_words(failed)}")
        except IgnoreRequest as refused:
            return self._unavailable(f"could not be read: {refused}")
        if response.status in (401, 403, 429, 456) or response.status >= 500:
            return self._unavailable(f"answers HTTP {response.status}")
        body = response.body.removeprefix(b"\xef\xbb\xbf") if response.status < 300 else b""
        return _parsed(b"" if body.lstrip()[:1] == b"<" else body)

    def _unavailable(self, reason: str) -> _Rules | str:
        return reason if self._refuse else _parsed(b"")


def _parsed(body: bytes) -> _Rules:
    rules: _Rules = Protego.parse(body.decode("utf-8", "ignore"))
    return rules


class Pauses:
    """An extension: the delay counts from a host's answer, not from our request.

    So what reaches the host is never closer than the delay, however long the way there takes.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        crawler.signals.connect(self._answered, signal=signals.response_downloaded)
        crawler.signals.connect(self._answered, signal=signals.request_left_downloader)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Pauses:
        """As Scrapy makes it."""
        return cls(crawler)

    def _answered(self, request: Request) -> None:
        engine = self._crawler.engine
        assert engine is not None
        slot = engine.downloader.slots.get(engine.downloader.get_slot_key(request))
        if slot is not None:
            slot.lastseen = time.monotonic()


_CAPTCHA = ("captcha", "check_code", "waf_auth", "verify", "/login", "passport.")


class Cookies(CookiesMiddleware):
    """Scrapy's, which judges domains by a public list: by the copy that comes with the package, so that nobody is asked
    for a newer one."""

    def __init__(self, debug: bool = False) -> None:
        super().__init__(debug)
        cookies._split_domain = TLDExtract(suffix_list_urls=(), include_psl_private_domains=True)


class Refusals:
    """A redirect to a captcha, a check or a login is a refusal, and is not followed."""

    def process_response(self, request: Request, response: Response) -> Response:
        """The response, or `Blocked`."""
        if 300 <= response.status < 400:
            target = (response.headers.get("Location") or b"").decode("latin-1").lower()
            if any(marker in target for marker in _CAPTCHA):
                raise Blocked(f"{urlparse_cached(request).netloc} sends to a check page ({target[:120]})")
        return response


class BackOff:
    """Waits and asks again: after refusals for the pace (403, 429, 456), server errors and network failures.

    A host that says how long (Retry-After) is given that time, others twice as long each time, at most
    `BACK_OFF_LONGEST_SECONDS`; one that asks for more is left alone. All requests to the host wait. After
    `BACK_OFF_ATTEMPTS` answers the last one stands; a refusal then means the source is blocked.
    """

    pace = frozenset({403, 429, 456})
    transient = frozenset({408, 500, 502, 503, 504, 522, 524})

    def __init__(self, crawler: Crawler) -> None:
        settings = crawler.settings
        self._attempts = settings.getint("BACK_OFF_ATTEMPTS")
        self._seconds = settings.getfloat("BACK_OFF_SECONDS")
        self._longest = settings.getfloat("BACK_OFF_LONGEST_SECONDS")
        self._not_before: dict[str, float] = defaultdict(float)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> BackOff:
        """As Scrapy makes it."""
        return cls(crawler)

    async def process_request(self, request: Request) -> None:
        """Wait until the host may be asked again."""
        host = urlparse_cached(request).netloc
        while (left := self._not_before[host] - time.monotonic()) > 0:
            await asyncio.sleep(left)

    def process_response(self, request: Request, response: Response) -> Request | Response:
        """The response, or the request once more."""
        if response.status not in self.pace | self.transient:
            return response
        if request.meta.get("robots") and response.status == 403:  # an answer, of a kind
            return response
        asked = retry_after(response, dt.datetime.now(dt.UTC))
        if (again := self._again(request, f"HTTP {response.status}", asked)) is not None:
            return again
        if response.status in self.pace and not request.meta.get("robots"):
            raise Blocked(f"{urlparse_cached(request).netloc} refuses: HTTP {response.status}, asked again in vain")
        return response

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        """The request once more after a network failure."""
        if isinstance(exception, NETWORK_FAILURES) and not isinstance(exception, DownloadCancelledError):
            return self._again(request, in_words(exception), None)
        return None

    def _again(self, request: Request, why: str, asked: float | None) -> Request | None:
        done = int(request.meta.get("attempts", 1))
        host = urlparse_cached(request).netloc
        wait = min(self._seconds * 2 ** (done - 1), self._longest) if asked is None else asked
        if wait > self._longest:
            raise Blocked(f"{host}: {why}, asks for a pause of {wait:.0f} s (at most {self._longest:.0f} are waited)")
        if done >= self._attempts:
            return None
        logger.warning("%s: %s, asking again in %.0f s (%d of %d)", host, why, wait, done + 1, self._attempts)
        self._not_before[host] = max(self._not_before[host], time.monotonic() + wait)
        return request.replace(meta={**request.meta, "attempts": done + 1})


def retry_after(response: Response, now: dt.datetime) -> float | None:
    """Seconds that the site asks to wait, from a number or a date; None if it says nothing that can be read.

    Args:
        response: its answer. A date is counted from the answer's own, as its clock need not be ours.
        now: aware; counted from where the answer has no date.
    """
    text = (response.headers.get("Retry-After") or b"").decode("latin-1").strip()
    if text.isdecimal():
        return float(text)
    until = _moment(text)
    if until is None:
        return None
    since = _moment((response.headers.get("Date") or b"").decode("latin-1")) or now
    return max(0.0, (until - since).total_seconds())


def _moment(text: str) -> dt.datetime | None:
    """The instant of a date of HTTP, None if it is none."""
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
