"""Typed requests: everything that is ever asked of a model, with the fields a prompt is written from.

A backbone gets the request itself. Models on the network get its `messages`; the offline backbone `rules` reads
the fields. Both answer JSON text, which `answers` parses the same way.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Protocol

from finevolve_pipeline.market.context import MarketContext
from finevolve_pipeline.news.block import NewsBlock
from finevolve_pipeline.universe import Industry


@dataclass(frozen=True)
class TagRequest:
    """Which industries does an article concern, how important is it (1-10), and why?"""

    article_id: str
    source: str
    title: str
    content: str
    published_at: dt.datetime


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


Request = TagRequest | PredictRequest


@dataclass(frozen=True)
class Usage:
    """Tokens of one call. All zero for `rules`."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
        )


@dataclass(frozen=True)
class Reply:
    """A backbone's answer: JSON text and what it cost."""

    text: str
    usage: Usage


class Backbone(Protocol):
    """A model that answers typed requests."""

    @property
    def name(self) -> str:
        """Name in the settings, e.g. `rules`."""

    @property
    def identity(self) -> dict[str, object]:
        """Everything that can change an answer, as JSON; never a secret."""

    async def answer(self, request: Request) -> Reply:
        """The answer to one request."""
