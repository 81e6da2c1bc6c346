"""What one process shares of the outside world: providers with their limits, the caches, the ledger.

Experiments of one process ask the same providers; limits, the circuit breaker and answers under way are common to them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from finevolve_pipeline.llm.cache import AnswerCache, VectorCache
from finevolve_pipeline.llm.ledger import Ledger
from finevolve_pipeline.llm.requests import Reply
from finevolve_pipeline.settings import Settings
from resources.provider import Provider
from resources.records import answer_cache, open_ledger, vector_cache


@dataclass
class UnderWay:
    """A call that is being made, and how many wait for its answer."""

    task: asyncio.Task[Reply]
    waiting: int = 0


@dataclass
class Outside:
    """The outside world under one set of settings, seen from one home folder.

    Attributes:
        under_way: calls being made, by key: the same question is asked once, however many experiments have it.
        refreshed: keys whose answers were asked anew by this process (cache mode `refresh`).
    """

    settings: Settings
    home: Path
    under_way: dict[bytes, UnderWay] = field(default_factory=dict)
    refreshed: set[bytes] = field(default_factory=set)
    _providers: dict[str, Provider] = field(default_factory=dict)

    _known: ClassVar[dict[tuple[Path, str], Outside]] = {}

    @classmethod
    def of(cls, settings: Settings, home: Path) -> Outside:
        """The one of this process."""
        return cls._known.setdefault((home.absolute(), settings.digest), cls(settings, home))

    def provider(self, name: str) -> Provider:
        """The provider of that name; the settings were checked to have it."""
        if name not in self._providers:
            self._providers[name] = Provider(name, self.settings.providers[name], self.home / "providers")
        return self._providers[name]

    @cached_property
    def answers(self) -> AnswerCache:
        """Answers given before."""
        return answer_cache(self.home)

    @cached_property
    def vectors(self) -> VectorCache:
        """Vectors computed before."""
        return vector_cache(self.home)

    @cached_property
    def ledger(self) -> Ledger:
        """What was spent, and what may be."""
        return open_ledger(self.home, self.settings.budget.usd)
