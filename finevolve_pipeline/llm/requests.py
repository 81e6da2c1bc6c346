"""Typed requests: everything that is ever asked of a model, with the fields a prompt is written from.

A backbone gets a `Call`: the request and its prompt. Models on the network read the messages, the offline backbone
`rules` reads the fields. Both answer JSON text, which `answers` parses the same way.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.market.context import MarketContext
from finevolve_pipeline.news.block import NewsBlock
from finevolve_pipeline.universe import Industry


@dataclass(frozen=True)
class Reask:
    """What was wrong with the first answer, for the one time that a request is made again."""

    answer: str
    problem: str


@dataclass(frozen=True)
class TagRequest:
    """Which industries does an article concern, how important is it (1-10), and why?"""

    article_id: str
    source: str
    title: str
    content: str
    published_at: dt.datetime
    reask: Reask | None = None


@dataclass(frozen=True)
class TagBatchRequest:
    """The same of several articles at once."""

    articles: tuple[TagRequest, ...]


@dataclass(frozen=True)
class ShownMemory:
    """One piece of experience as a prediction sees it. Numbers a mechanism does not have are None."""

    memory_id: str
    made_on: dt.date
    news: str
    scores: dict[int, float]
    key_factor: str
    logic_chain: str
    references: tuple[str, ...] = ()
    similarity: float | None = None
    q: float | dict[int, float] | None = None
    visits: int | None = None
    selection_score: float | None = None


@dataclass(frozen=True)
class PredictRequest:
    """How will this industry do against CSI1000 over the next h sessions, for each h?"""

    session: dt.date
    industry: Industry
    horizons: tuple[int, ...]
    news: NewsBlock
    market: MarketContext
    memories: tuple[ShownMemory, ...] = field(default=())
    reask: Reask | None = None


Request = TagRequest | TagBatchRequest | PredictRequest


def phase_of(request: Request) -> str:
    """What a request is for, as the ledger names it: tag or predict."""
    return "predict" if isinstance(request, PredictRequest) else "tag"


def day_of(request: Request) -> str:
    """The simulated day a request belongs to: the session, or the (first) article's day of publication."""
    if isinstance(request, PredictRequest):
        return request.session.isoformat()
    first = request.articles[0] if isinstance(request, TagBatchRequest) else request
    return first.published_at.astimezone(SHANGHAI).date().isoformat()


def subject_of(request: Request) -> str:
    """What a request is about, for messages: an industry's code or articles' ids."""
    if isinstance(request, PredictRequest):
        return request.industry.code
    if isinstance(request, TagBatchRequest):
        return f"{request.articles[0].article_id} and {len(request.articles) - 1} more"
    return request.article_id


class Message(NamedTuple):
    """One message of a prompt. `role` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True)
class Cuts:
    """What the budgets left out of a prompt.

    Attributes:
        memories: memories that were not shown at all.
        memory_news: shown memories whose news was shortened.
        articles: articles to tag that were shortened.
    """

    memories: int = 0
    memory_news: int = 0
    articles: int = 0

    def __add__(self, other: Cuts) -> Cuts:
        return Cuts(
            self.memories + other.memories, self.memory_news + other.memory_news, self.articles + other.articles
        )


@dataclass(frozen=True)
class Prompt:
    """The messages of a request, and what was cut to make them fit."""

    messages: tuple[Message, ...]
    cuts: Cuts = Cuts()


@dataclass(frozen=True)
class Call:
    """One question to a backbone.

    Attributes:
        request: what is asked.
        prompt: how it is written.
        variant: tells apart answers to the same prompt that were got in another way (`batch of 8`).
    """

    request: Request
    prompt: Prompt
    variant: str = ""


@dataclass(frozen=True)
class Usage:
    """Tokens of calls and their cost. All zero for `rules`.

    Attributes:
        calls: requests that were answered.
        prompt_tokens: cached ones included.
        cached_prompt_tokens: of these, how many the provider had cached.
        completion_tokens: reasoning included.
        reasoning_tokens: of these, how many were reasoning.
        cost: USD by the price at the time of the call; 0 where no price is known.
    """

    calls: int = 0
    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return total_usage((self, other))


def total_usage(usages: Iterable[Usage]) -> Usage:
    """The sum; costs are added exactly, so that the order does not matter."""
    listed = list(usages)
    return Usage(
        calls=sum(one.calls for one in listed),
        prompt_tokens=sum(one.prompt_tokens for one in listed),
        cached_prompt_tokens=sum(one.cached_prompt_tokens for one in listed),
        completion_tokens=sum(one.completion_tokens for one in listed),
        reasoning_tokens=sum(one.reasoning_tokens for one in listed),
        cost=math.fsum(one.cost for one in listed),
    )


def total_failures(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sum of failure counts, by kind, sorted."""
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return dict(sorted(total.items()))


@dataclass(frozen=True)
class Reply:
    """A backbone's answer.

    Attributes:
        text: JSON text, as the model wrote it, reasoning apart.
        usage: what it cost, whenever it was given; an answer from the cache keeps its cost.
        finish: why it ended: stop, length (cut off), content_filter.
        failures: what went wrong on the way, by kind (see `failures`).
        model: how the provider named the model that answered; empty if it did not.
    """

    text: str
    usage: Usage
    finish: str = "stop"
    failures: Mapping[str, int] = field(default_factory=dict)
    model: str = ""


class Backbone(Protocol):
    """A model that answers typed requests."""

    @property
    def name(self) -> str:
        """Name in the settings, e.g. `rules`."""

    @property
    def identity(self) -> dict[str, object]:
        """Everything that can change an answer, as JSON; never a secret."""

    def count_tokens(self, text: str) -> int:
        """Tokens of a text: the model's own count where its tokenizer is present, else an upper estimate."""

    async def answer(self, call: Call) -> Reply:
        """The answer to one call.

        Raises:
            BackboneError: the provider refuses or does not answer; the run must stop.
            BudgetError: the call could exceed the budget.
            CacheMissError: only cached answers may be used, and this is none.
        """

    def recall(self, call: Call) -> Reply | None:
        """An answer given before, without asking; None if there is none (always for `rules`)."""

    def remember(self, call: Call, reply: Reply) -> None:
        """Keep an answer that was got by another way, e.g. as a part of a batch."""

    async def close(self) -> None:
        """Give back connections; the next call opens them again."""
