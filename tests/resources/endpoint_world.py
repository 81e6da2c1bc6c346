"""A model behind a scripted server, and a meter that remembers, for the tests of provider and endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from model_server import ModelServer

from finevolve_pipeline.errors import BudgetError
from finevolve_pipeline.llm.requests import Message, Reply, Usage
from finevolve_pipeline.llm.schemas import _prediction as prediction_schema
from finevolve_pipeline.settings import ModelSettings, ProviderSettings
from resources.endpoint import Endpoint
from resources.provider import Provider

T = TypeVar("T")
KEY = "sk-proj-Zq8vLw2RtY6uHs9K"
VARIABLE = "TEST_PROVIDER_KEY"
PROMPT = (Message("system", '只输出 JSON：{"scores": {"10": x, "20": x, "40": x}}'), Message("user", "新闻：需求回暖"))
SCHEMA = prediction_schema((10, 20, 40))


@dataclass
class Reserved:
    """One reservation of `Recorder`."""

    recorder: Recorder
    bound: tuple[int, int]
    closed: list[tuple[str, object]] = field(default_factory=list)

    def settle(self, usage: Usage) -> None:
        """Keep it."""
        self.closed.append(("settle", usage))

    def release(self, failure: str) -> None:
        """Keep it."""
        self.closed.append(("release", failure))

    def doubt(self, failure: str) -> None:
        """Keep it."""
        self.closed.append(("doubt", failure))


@dataclass
class Recorder:
    """A meter that keeps every reservation, and grants so many."""

    grants: int = 10_000
    reserved: list[Reserved] = field(default_factory=list)

    def reserve(self, prompt_tokens: int, completion_tokens: int) -> Reserved:
        """Grant, if any are left."""
        if len(self.reserved) >= self.grants:
            raise BudgetError("budget: spent")
        self.reserved.append(Reserved(self, (prompt_tokens, completion_tokens)))
        return self.reserved[-1]

    @property
    def ends(self) -> list[str]:
        """How each reservation was closed; each must have been, once."""
        assert all(len(one.closed) == 1 for one in self.reserved), [one.closed for one in self.reserved]
        return [one.closed[0][0] for one in self.reserved]

    @property
    def settled(self) -> Usage:
        """All that was settled."""
        return sum((one.closed[0][1] for one in self.reserved if one.closed[0][0] == "settle"), Usage())  # type: ignore


@dataclass
class World:
    """A server, and an endpoint to it with settings of the test's choice."""

    folder: Path
    server: ModelServer
    meter: Recorder = field(default_factory=Recorder)
    provider_settings: dict[str, Any] = field(default_factory=dict)
    model_settings: dict[str, Any] = field(default_factory=dict)

    def provider(self) -> Provider:
        """A new provider, as another process would have."""
        settings = {"base_url": self.server.base_url, "key_variable": VARIABLE} | self.provider_settings
        return Provider("p", ProviderSettings(**settings), self.folder)

    def endpoint(self, provider: Provider) -> Endpoint:
        """The model behind it."""
        settings = {"model": "m", "context_window": 32768, "max_tokens": 500} | self.model_settings
        return Endpoint("b", ModelSettings(kind="openai", provider="p", **settings), provider)

    def run(self, work: Callable[[Endpoint, Provider], Coroutine[Any, Any, T]]) -> T:
        """Do something with an endpoint in a loop of its own, and close it; what succeeds leaves no slot held."""

        async def whole() -> T:
            provider = self.provider()
            try:
                result = await asyncio.wait_for(work(self.endpoint(provider), provider), 20)
                assert (provider.limits.held, provider.limits.waiting) == (0, 0)
                return result
            finally:
                await provider.close()

        return asyncio.run(whole())

    def complete(self, **settings: Any) -> Reply:
        """One question; settings of the model."""
        self.model_settings |= settings
        return self.run(lambda endpoint, _: self.ask(endpoint))

    async def ask(self, endpoint: Endpoint, text: str = PROMPT[1].content) -> Reply:
        """One question to an endpoint."""
        messages = (PROMPT[0], Message("user", text))
        return await endpoint.complete(messages, "prediction", SCHEMA, 50, self.meter)
