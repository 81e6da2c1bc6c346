"""A provider of models over HTTP: one client an event loop, and the one way in which requests are sent and sent again.

Every attempt has leave of the provider's limits and an end; what goes wrong is told by kind (`llm.failures`). Attempts
are made again after a pause until the request's patience or the provider's ends; then the run stops with one line.
No message holds the key, whatever the provider sends back.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
import ssl
import threading
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import anyio
import httpx2
import openai
from openai import AsyncOpenAI

from finevolve_pipeline.errors import BackboneError, BudgetError
from finevolve_pipeline.llm import failures
from finevolve_pipeline.llm.metering import Reservation, Unmetered
from finevolve_pipeline.llm.requests import Usage
from finevolve_pipeline.settings import ProviderSettings
from resources.foreign import is_loopback, retry_after, scrubbed
from resources.limits import Limits
from resources.pools import pool_limits, quiet, tls, transport

T = TypeVar("T")

FIRST_PAUSE = 1.0
"""Seconds before the second attempt, at most; each further pause is twice as long."""
BUDGET_PAUSE = 0.05
"""Seconds between two looks whether calls under way have left room in the budget."""
RESUME = "nothing is lost: run the same command again"

_AGAIN = frozenset({408, 409, 425, 429})
_MAY_BE_BILLED = frozenset({408, 502, 504, *range(520, 528)})
"""A gateway lost patience; the model behind it may have answered."""
_TOO_LONG = re.compile(
    r"context[_ ]length|context (window|size)|exceed_context|maximum.{0,40}(context|tokens)|prompt is too long"
    r"|too many tokens|input is too long|reduce the length",
    re.I,
)
_NO_MONEY = re.compile(r"insufficient[_ ](quota|balance)|exceeded your current quota|billing", re.I)
_LOG = logging.getLogger(__name__)


class Declined(Exception):
    """Raised by an attempt whose form of request the provider does not know, while another form may do.

    The provider did answer, and billed nothing; `Provider.send` passes it on.

    Attributes:
        what: it does not know.
        failures: of attempts before, by kind.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.failures: Counter[str] = Counter()


class AttemptError(Exception):
    """Raised by an attempt that got no usable answer, so that another one is made.

    Attributes:
        kind: of `llm.failures`.
        billed: whether the provider may charge for it all the same.
    """

    def __init__(self, kind: str, text: str, billed: bool = True) -> None:
        super().__init__(text)
        self.kind = kind
        self.billed = billed


@dataclass(frozen=True)
class _Trouble:
    """Why an attempt failed.

    Attributes:
        kind: of `llm.failures`.
        text: what happened, scrubbed.
        billed: whether it may be charged.
        wait: seconds that the provider asked for, None if it did not.
        remedy: what to do, where another attempt is of no use; else empty.
        everywhere: such a failure meets every request.
    """

    kind: str
    text: str
    billed: bool = False
    wait: float | None = None
    remedy: str = ""
    everywhere: bool = False


@dataclass(frozen=True)
class _Errand(Generic[T]):
    """What is to be sent, and what it may and did take (see `Provider.send`)."""

    attempt: Callable[[AsyncOpenAI], Awaitable[T]]
    tokens: int
    reserve: Callable[[], Reservation]
    usage: Callable[[T], Usage]


@dataclass
class _Session:
    """What belongs to one event loop.

    Attributes:
        failed: failed attempts in a row.
        begun: attempts so far, by which their order is known.
        seen: attempts that had begun when the last failure was counted.
        stopped: the line with which everything stops; empty while nothing does.
        users: requests that have not ended.
        closing: whether the last of them is to close the client.
    """

    client: AsyncOpenAI
    failed: int = 0
    begun: int = 0
    seen: int = 0
    stopped: str = ""
    users: int = 0
    closing: bool = False

    async def close_when_unused(self) -> None:
        """Close the client, if that is wanted and nobody needs it."""
        if self.closing and not self.users:
            await self.client.close()


class Provider:
    """A provider from the settings. Nothing is opened, and no key needed, before the first attempt.

    Args:
        name: of the [providers] section.
        settings: that section.
        folder: where all processes of the home keep limits.
    """

    def __init__(self, name: str, settings: ProviderSettings, folder: Path) -> None:
        self.name = name
        self.settings = settings
        self.limits = Limits(
            folder, name, settings.concurrency, settings.requests_per_minute, settings.tokens_per_minute
        )
        self._sessions: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Session] = weakref.WeakKeyDictionary()
        self._opening = threading.Lock()
        self._key = ""
        self._chance = random.Random()

    async def send(
        self,
        attempt: Callable[[AsyncOpenAI], Awaitable[T]],
        tokens: int,
        reserve: Callable[[], Reservation] = lambda: Unmetered().reserve(0, 0),
        usage: Callable[[T], Usage] = lambda _: Usage(calls=1),
    ) -> tuple[T, Counter[str]]:
        """What an attempt gives, made as often as needed; and what went wrong on the way, by kind.

        Args:
            attempt: sends the request once and reads the answer. May raise `AttemptError` (it is made again),
                `Declined`, or what `openai` and its HTTP client raise.
            tokens: what it may take, prompt and completion together.
            reserve: puts aside what one attempt may cost; called before each, closed after it in any case.
            usage: what the answer took.

        Raises:
            BackboneError: the provider refuses, asks for too long a pause, or does not answer.
            BudgetError: from `reserve`.
            Declined: from `attempt`.
        """
        session = self._session()
        session.users += 1
        try:
            return await self._send(session, _Errand(attempt, tokens, reserve, usage))
        finally:
            session.users -= 1
            await session.close_when_unused()

    async def close(self) -> None:
        """Close this event loop's connections once no request is under way.

        The next request opens new ones, and failures count anew.
        """
        with self._opening:
            session = self._sessions.pop(asyncio.get_running_loop(), None)
        if session is not None:
            session.closing = True
            await session.close_when_unused()

    def scrub(self, text: str) -> str:
        """Foreign text for a message: one short line without markup and without any trace of the key."""
        return scrubbed(text, self._key)

    def __repr__(self) -> str:
        return f"Provider({self.name!r})"

    async def _send(self, session: _Session, errand: _Errand[T]) -> tuple[T, Counter[str]]:
        counted: Counter[str] = Counter()
        while True:
            if session.stopped:
                raise BackboneError(session.stopped)
            try:
                outcome = await self._attempt(session, errand)
            except Declined as declined:
                declined.failures = counted
                raise
            if not isinstance(outcome, _Trouble):
                return outcome[0], counted
            counted[outcome.kind] += 1
            pause = self._pause(outcome, counted.total())
            self._judge(session, outcome, counted.total(), pause)
            _LOG.info("provider %s: %s; again in %.1f s", self.name, outcome.text, pause)
            await self.limits.sleep(pause)

    async def _attempt(self, session: _Session, errand: _Errand[T]) -> tuple[T] | _Trouble:
        """One attempt: what it gave, or why it gave nothing."""
        async with self.limits.slot(errand.tokens) as slot:
            if session.stopped:
                raise BackboneError(session.stopped)
            session.begun += 1
            number = session.begun
            reservation = await self._reserved(session, errand.reserve)
            try:
                async with asyncio.timeout(self.settings.deadline_seconds):
                    value = await errand.attempt(session.client)
            except Declined:
                reservation.release(failures.UNSTRUCTURED)
                slot.used(0)
                session.failed = 0
                raise
            except (openai.OpenAIError, httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL) as error:
                trouble = self._trouble(error)
            except (AttemptError, TimeoutError, OSError, ssl.SSLError, anyio.EndOfStream) as error:
                trouble = self._trouble(error)
            except BaseException:
                # Cancelled, or an answer that stops the run: it may have been billed.
                reservation.doubt(failures.DROPPED)
                raise
            else:
                took = errand.usage(value)
                reservation.settle(took)
                slot.used(took.prompt_tokens + took.completion_tokens)
                session.failed = 0
                return (value,)
            if trouble.billed:
                reservation.doubt(trouble.kind)
            else:
                reservation.release(trouble.kind)
                slot.used(0)
            self._count(session, number)
            return trouble

    async def _reserved(self, session: _Session, reserve: Callable[[], Reservation]) -> Reservation:
        """Leave to spend; waits while only what others have under way stands against it."""
        while True:
            try:
                return reserve()
            except BudgetError as full:
                if not full.may_wait:
                    raise
            await self.limits.sleep(BUDGET_PAUSE)
            if session.stopped:
                raise BackboneError(session.stopped)

    def _count(self, session: _Session, number: int) -> None:
        """Count a failure. Attempts that were under way together when one failed tell the same news once."""
        if number > session.seen:
            session.failed += 1
            session.seen = session.begun

    def _pause(self, trouble: _Trouble, failed: int) -> float:
        """Seconds before the next attempt: as long as the provider asked, else twice as long each time."""
        if trouble.wait:
            # A little more, so that those who were told the same do not come back at the same instant.
            return trouble.wait + self._chance.uniform(0, min(1.0, trouble.wait / 10))
        longest = min(self.settings.longest_wait_seconds, FIRST_PAUSE * 2.0 ** min(failed - 1, 30))
        return longest * self._chance.uniform(0.5, 1.0)

    def _judge(self, session: _Session, trouble: _Trouble, failed: int, pause: float) -> None:
        """Go on, or stop this request, or all."""
        if trouble.remedy:
            line = f"provider {self.name}: {trouble.text}; {trouble.remedy}"
            if trouble.everywhere:
                self._stop(session, line)
            raise BackboneError(line)
        if session.stopped:
            raise BackboneError(session.stopped)
        if trouble.wait is not None and trouble.wait > self.settings.longest_wait_seconds:
            line = (
                f"provider {self.name}: asks for a pause of {trouble.wait:.0f} s ({trouble.text}), more than "
                f"longest_wait_seconds {self.settings.longest_wait_seconds:g} of [providers.{self.name}]; raise that, "
                f"or wait; {RESUME}"
            )
            self._stop(session, line)
            raise BackboneError(line)
        if trouble.wait:
            self.limits.pause(trouble.wait)
        if session.failed >= self.settings.failures_in_a_row:
            row = f"{session.failed} attempts in a row failed"
            line = f"provider {self.name}: {row}, the last one: {trouble.text}; {RESUME}"
            self._stop(session, line)
            raise BackboneError(line)
        if failed >= self.settings.attempts:
            times = "once" if failed == 1 else f"{failed} times"
            raise BackboneError(f"provider {self.name}: a request failed {times}, at last: {trouble.text}; {RESUME}")

    def _stop(self, session: _Session, line: str) -> None:
        """End everything that waits, with the same line."""
        if not session.stopped:
            session.stopped = line
            _LOG.error("%s", line)
            self.limits.stop(lambda: BackboneError(line))

    def _session(self) -> _Session:
        loop = asyncio.get_running_loop()
        session = self._sessions.get(loop)
        if session is None:
            with self._opening:
                for other in [one for one in self._sessions if one.is_closed()]:
                    del self._sessions[other]
                session = self._sessions[loop] = _Session(self._client())
        return session

    def _client(self) -> AsyncOpenAI:
        settings = self.settings
        self._key = self._read_key()
        quiet("httpx", "httpcore", "openai")
        host = urlsplit(settings.base_url).hostname or ""
        client = AsyncOpenAI(
            api_key=self._key or "none",
            base_url=settings.base_url,
            max_retries=0,
            http_client=httpx2.AsyncClient(
                transport=transport(settings.concurrency, trust_env=not is_loopback(host)),
                timeout=httpx2.Timeout(
                    connect=settings.connect_seconds,
                    read=settings.idle_seconds,
                    write=settings.idle_seconds,
                    pool=settings.deadline_seconds,
                ),
                limits=pool_limits(settings.concurrency),
                verify=tls(),
                follow_redirects=False,
                trust_env=not is_loopback(host),
            ),
        )
        if host != "api.openai.com":
            # The SDK takes these from the environment, and they are nobody else's business.
            client.organization = client.project = None
        return client

    def _read_key(self) -> str:
        variable = self.settings.key_variable
        if not variable:
            return ""
        key = os.environ.get(variable, "").strip()
        if not key:
            raise BackboneError(
                f"provider {self.name}: environment variable {variable} with its key is not set; "
                f"`export {variable}=...` before the run"
            )
        if not key.isascii() or not key.isprintable() or " " in key:
            raise BackboneError(
                f"provider {self.name}: environment variable {variable} holds no key (blanks, line breaks or "
                "non-ASCII characters are in it); set it to the key alone"
            )
        return key

    def _trouble(self, error: Exception) -> _Trouble:
        """What an exception of an attempt means."""
        match error:
            case AttemptError():
                return _Trouble(error.kind, self.scrub(str(error)), error.billed)
            case openai.APIStatusError():
                return self._refusal(error)
            case openai.APITimeoutError():
                unsent = isinstance(error.__cause__, httpx2.ConnectTimeout | httpx2.PoolTimeout)
                if unsent:
                    return self._unconnected(f"not within {self.settings.connect_seconds:g} s")
                return self._silence()
            case openai.APIConnectionError():
                cause = error.__cause__ or error
                if isinstance(cause, httpx2.ConnectError | httpx2.ProxyError | httpx2.UnsupportedProtocol):
                    return self._unconnected(str(cause))
                return _Trouble(failures.CONNECTION, self.scrub(f"the connection broke ({_named(cause)})"), True)
            case httpx2.TimeoutException():
                return self._silence()
            case TimeoutError():
                limit = f"deadline_seconds {self.settings.deadline_seconds:g} of [providers.{self.name}]"
                return _Trouble(failures.TIMEOUT, f"an answer took longer than {limit}", True)
            case _:
                return _Trouble(failures.DROPPED, self.scrub(f"an answer broke off ({_named(error)})"), True)

    def _unconnected(self, why: str) -> _Trouble:
        return _Trouble(failures.CONNECTION, self.scrub(f"no connection to {self.settings.base_url} ({why})"))

    def _silence(self) -> _Trouble:
        limit = f"idle_seconds {self.settings.idle_seconds:g} of [providers.{self.name}]"
        return _Trouble(failures.TIMEOUT, f"a silence longer than {limit}", True)

    def _refusal(self, error: openai.APIStatusError) -> _Trouble:
        status = error.status_code
        words = error_text(error)
        text = f"status {status}: {self.scrub(words)}" if words else f"status {status}"
        if status == 429 and _NO_MONEY.search(words):
            return _Trouble(failures.RATE_LIMITED, text, remedy=f"check the balance; then {RESUME}", everywhere=True)
        if status in _AGAIN or status >= 500:
            kind = failures.RATE_LIMITED if status == 429 else failures.SERVER_ERROR
            return _Trouble(kind, text, status in _MAY_BE_BILLED, retry_after(error.response.headers))
        remedy, everywhere = self._remedy(status, words)
        return _Trouble(failures.REFUSED, text, remedy=remedy, everywhere=everywhere)

    def _remedy(self, status: int, words: str) -> tuple[str, bool]:
        """What to do about a request that is refused for good, and whether all others would be as well."""
        section = f"[providers.{self.name}]"
        variable = self.settings.key_variable
        match status:
            case 401 | 403:
                if not variable:
                    return f"it wants a key: name its environment variable as key_variable of {section}", True
                return f"check the key in environment variable {variable} and what it may use", True
            case 402:
                return f"check the balance; then {RESUME}", True
            case 404:
                return f"check the model's name, and base_url {self.settings.base_url} of {section}", True
            case _ if 300 <= status < 400:
                return f"redirects are not followed; set base_url of {section} to where the service is", True
            case _ if status == 413 or _TOO_LONG.search(words):
                return "lower prompts.news_tokens, or correct the model's context_window, so that prompts fit", False
            case _:
                return "check what the model's section sends (decoding, thinking, structured, max_tokens_field)", False


def error_text(error: openai.APIStatusError) -> str:
    """A provider's own words about what it refuses, code and parameter included. May hold anything: scrub it."""
    body = error.body
    if isinstance(body, Mapping):
        found = _words(body)
        if found:
            return found
    return error.response.text[:20_000]


def _words(body: Mapping[str, Any]) -> str:
    inner = body.get("error", body)
    if isinstance(inner, str):
        return inner
    if not isinstance(inner, Mapping):
        return ""
    parts = [inner.get("message") or inner.get("detail") or inner.get("msg") or ""]
    parts += [inner.get(name) for name in ("code", "type", "param")]
    named = [part if isinstance(part, str) else repr(part) for part in parts[:1]]
    named += [part for part in parts[1:] if isinstance(part, str) and not part.isdigit() and part not in named[0]]
    return " ".join(part for part in named if part)


def _named(error: BaseException) -> str:
    return str(error) or type(error).__name__
