"""One polite way to ask a web service for JSON: paced, with an end, a few times, and no word of the secret.

What belongs here: HTTP. What must not: what an answer means; the caller's `read` judges it and may ask for another
attempt.
"""

from __future__ import annotations

import json
import logging
import math
import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2

from finevolve_pipeline.errors import SourceError
from resources.foreign import is_loopback, retry_after, scrubbed
from resources.limits import Rate
from resources.pools import quiet, tls

T = TypeVar("T")

CONNECT_SECONDS = 10.0
FIRST_PAUSE = 1.0
"""Seconds before the second attempt, at most; each further pause is twice as long."""
LARGEST_ANSWER = 64 << 20
"""Bytes."""
AGENT = "finevolve-pipeline (research; daily bars and news history)"
RESUME = "nothing is lost: run the same command again"

_TOO_MANY = 429
_AGAIN = frozenset({403, 408, 425, _TOO_MANY, 456})
"""Answers of services that want to be left alone for a while; 5xx likewise."""
_BLOCKED = re.compile("验证码|访问频繁|请求过于频繁|人机验证|安全验证|access denied|captcha", re.I)
"""On a page in place of an answer: it wants a human being. We never solve such a page, nor ask again at once."""
_LOG = logging.getLogger(__name__)


class TryAgainError(Exception):
    """Raised by a reader of answers: this one is of no use, another attempt may bring one.

    `wait`: seconds that the service wants to be left alone, None if it does not say.
    """

    def __init__(self, text: str, wait: float | None = None) -> None:
        super().__init__(text)
        self.wait = wait


@dataclass(frozen=True)
class Politeness:
    """How a service is asked: see the settings of the same names.

    `sleep` and `clock` (monotonic seconds) are the only contact with time.
    """

    requests_per_minute: int
    attempts: int
    deadline_seconds: float
    longest_wait_seconds: float = 120.0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic


@dataclass
class Pace:
    """Lets calls start no faster than the politeness allows, and repeats them as often as it allows."""

    name: str
    politeness: Politeness
    scrub: Callable[[str], str] = field(default=lambda text: scrubbed(text, ""))
    _theoretical: float = 0.0

    def wait(self) -> None:
        """Wait for leave of one request."""
        polite = self.politeness
        now = polite.clock()
        start, self._theoretical = Rate(polite.requests_per_minute).admit(self._theoretical, now, 1)
        if start > now:
            polite.sleep(start - now)

    def repeat(self, attempt: Callable[[], T]) -> T:
        """What an attempt gives, made again with growing pauses while it raises `TryAgainError`.

        Raises:
            SourceError: it never did, or the service wants too long a pause.
        """
        polite, failed = self.politeness, 0
        while True:
            self.wait()
            try:
                return attempt()
            except TryAgainError as trouble:
                failed += 1
                text = self.scrub(str(trouble))
                if failed >= polite.attempts:
                    times = "once" if failed == 1 else f"{failed} times"
                    raise SourceError(f"{self.name}: failed {times}, at last: {text}; {RESUME}") from None
                if trouble.wait is not None and trouble.wait > polite.longest_wait_seconds:
                    raise SourceError(
                        f"{self.name}: wants a pause of {trouble.wait:.0f} s ({text}), more than "
                        f"{polite.longest_wait_seconds:.0f} s; wait that long, then {RESUME}"
                    ) from None
                growing = FIRST_PAUSE * 2.0 ** min(failed - 1, 30) * random.uniform(0.5, 1.0)
                pause = min(growing, polite.longest_wait_seconds) if trouble.wait is None else trouble.wait
            _LOG.info("%s: %s; again in %.1f s", self.name, text, pause)
            polite.sleep(pause)


class Asker:
    """Asks one service.

    Args:
        name: of the service, for messages.
        politeness: how it is asked.
        secret: no message holds it, whatever the service sends back.
    """

    def __init__(self, name: str, politeness: Politeness, secret: str = "") -> None:
        self.name = name
        self._secret = secret
        self._pace = Pace(name, politeness, self.scrub)

    def scrub(self, text: str) -> str:
        """Foreign text for a message."""
        return scrubbed(text, self._secret)

    def get(self, url: str, params: Mapping[str, str], read: Callable[[Any], T]) -> T:
        """What `read` makes of the JSON that a GET brings. Raises `SourceError`; `read` may raise `TryAgainError`."""
        return self._pace.repeat(lambda: read(self._json("GET", url, params=dict(params))))

    def post(self, url: str, body: Mapping[str, Any], read: Callable[[Any], T]) -> T:
        """Likewise for a POST of a JSON body."""
        return self._pace.repeat(lambda: read(self._json("POST", url, json=dict(body))))

    def _json(self, method: str, url: str, **request: Any) -> Any:
        data = self._answer(method, url, **request)
        try:
            return json.loads(data, parse_constant=_not_a_number)
        except (ValueError, RecursionError) as broken:
            self._require_no_block(data)
            text = self.scrub(_page(data)) or "it is empty"
            raise TryAgainError(f"the answer is no JSON ({broken}): {text}") from None

    def _require_no_block(self, data: bytes) -> None:
        page = _page(data)
        if _BLOCKED.search(page):
            raise SourceError(
                f"{self.name}: blocks us ({self.scrub(page)}); stopped: wait, and ask less often"
            ) from None

    def _answer(self, method: str, url: str, **request: Any) -> bytes:
        """The body of a good answer, bounded in size.

        It is given up after a silence of `deadline_seconds`, and at the first piece of its body that comes later than
        that after the start; only a server that trickles its headers can make it last longer.
        """
        polite = self._pace.politeness
        quiet()
        end = polite.clock() + polite.deadline_seconds
        timeout = httpx2.Timeout(polite.deadline_seconds, connect=min(CONNECT_SECONDS, polite.deadline_seconds))
        outside = not is_loopback(urlsplit(url).hostname or "")
        try:
            with (
                httpx2.Client(
                    timeout=timeout, verify=tls(), trust_env=outside, follow_redirects=False,
                    headers={"User-Agent": AGENT, "Accept": "application/json"},
                ) as client,
                client.stream(method, url, **request) as response,
            ):  # fmt: skip
                data = bytearray()
                for piece in response.iter_bytes():
                    data += piece
                    if len(data) > LARGEST_ANSWER:
                        raise SourceError(f"{self.name}: an answer is larger than {LARGEST_ANSWER >> 20} MB; refused")
                    if polite.clock() > end:
                        raise TryAgainError(f"an answer took longer than {polite.deadline_seconds:g} s")
                self._require_success(response, bytes(data))
                return bytes(data)
        except httpx2.TimeoutException:
            raise TryAgainError(f"no answer within {polite.deadline_seconds:g} s") from None
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, OSError) as broken:
            what = str(broken) or type(broken).__name__
            raise TryAgainError(f"the connection failed ({what})") from None

    def _require_success(self, response: httpx2.Response, data: bytes) -> None:
        status = response.status_code
        if status == 200:
            return
        # Status 429 says by itself that waiting helps, whatever words its page has for it.
        if status != _TOO_MANY:
            self._require_no_block(data)
        text = f"status {status}: {self.scrub(_page(data))}"
        if status in _AGAIN or status >= 500:
            raise TryAgainError(text, retry_after(response.headers))
        if 300 <= status < 400:
            raise SourceError(f"{self.name}: {text}; redirects are not followed: the service has moved or blocks us")
        raise SourceError(f"{self.name}: {text}; the service no longer answers there as it did")


def _page(data: bytes) -> str:
    """An answer as text: enough of it for its title and what it wants."""
    return data[:20_000].decode("utf-8", "replace")


def _not_a_number(_: str) -> float:
    """`NaN` and `Infinity` are no JSON, but services send them for a missing number."""
    return math.nan
