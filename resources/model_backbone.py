"""A model behind a provider as a backbone: cache first, then the ledger's leave, then the network.

The same question is asked once: of the same process by whoever came first, of several by whose answer was stored first.
"""

from __future__ import annotations

import asyncio
from functools import cached_property

from finevolve_pipeline.errors import CacheMissError
from finevolve_pipeline.llm.cache import About, answer_key
from finevolve_pipeline.llm.ledger import Purpose
from finevolve_pipeline.llm.requests import Call, Reply, TagBatchRequest
from finevolve_pipeline.llm.schemas import schema_of
from finevolve_pipeline.llm.tokens import MESSAGE_TOKENS, TokenCount, token_counter
from finevolve_pipeline.settings import ModelSettings
from resources.endpoint import Endpoint
from resources.outside import Outside, UnderWay


class ModelBackbone:
    """Answers of a model, each asked for once.

    Args:
        name: of the [backbones] section.
        model: that section.
        outside: providers, cache and ledger of this process.
        experiment: on whose account the calls go; empty for the dataset.
    """

    def __init__(self, name: str, model: ModelSettings, outside: Outside, experiment: str) -> None:
        self._name = name
        self._model = model
        self._outside = outside
        self._experiment = experiment

    @property
    def name(self) -> str:
        """Name in the settings."""
        return self._name

    @cached_property
    def identity(self) -> dict[str, object]:
        """What a request says beside its prompt, who answers it, and how tokens are counted."""
        model, provider = self._model, self._outside.settings.providers[self._model.provider]
        return {
            "kind": model.kind,
            "served_by": provider.served_by,
            "model": model.model,
            "context_window": model.context_window,
            "max_tokens": model.max_tokens,
            "structured": model.structured,
            "thinking": model.thinking,
            "thinking_request": model.thinking_request,
            "decoding": model.decoding,
            "tokenizer": self._counter[1],
        }

    @cached_property
    def _counter(self) -> tuple[TokenCount, dict[str, object]]:
        return token_counter(self._model.tokenizer)

    @cached_property
    def _endpoint(self) -> Endpoint:
        return Endpoint(self._name, self._model, self._outside.provider(self._model.provider))

    def count_tokens(self, text: str) -> int:
        """By the tokenizer that the settings name, else the upper estimate."""
        return self._counter[0](text)

    async def answer(self, call: Call) -> Reply:
        """The cached answer, or one from the provider, which is then cached. Raises as `Backbone.answer`."""
        key = self._key(call)
        found = self._cached(key)
        if found is not None:
            return found
        if self._outside.settings.cache.mode == "replay-only":
            raise CacheMissError(
                f"cache: no answer of {self._name} to {call.request.phase} {call.request.subject} of "
                f"{call.request.day} (key {key.hex()[:16]}), and mode replay-only asks nobody; "
                "`finevolve cache import FILE` brings answers, `--cache use` asks the model"
            )
        return await self._shared(key, call)

    def recall(self, call: Call) -> Reply | None:
        """The cached answer, if there is one that may be used."""
        return self._cached(self._key(call))

    def remember(self, call: Call, reply: Reply) -> None:
        """Cache an answer that came as a part of another."""
        self._store(self._key(call), call, reply)

    async def close(self) -> None:
        """Close the provider's connections of this event loop."""
        await self._outside.provider(self._model.provider).close()

    def _key(self, call: Call) -> bytes:
        return answer_key(self.identity, call, schema_of(call.request)[1])

    def _cached(self, key: bytes) -> Reply | None:
        if self._outside.settings.cache.mode == "refresh" and key not in self._outside.refreshed:
            return None
        return self._outside.answers.get(key)

    async def _shared(self, key: bytes, call: Call) -> Reply:
        """The answer of a call under way for this key, made by whoever needs it first; the last to leave ends it."""
        under_way = self._outside.under_way.get(key)
        if under_way is None or under_way.task.get_loop() is not asyncio.get_running_loop():
            under_way = UnderWay(asyncio.ensure_future(self._fetch(key, call)))
            self._outside.under_way[key] = under_way
        under_way.waiting += 1
        try:
            return await asyncio.shield(under_way.task)
        finally:
            under_way.waiting -= 1
            if not under_way.waiting:
                under_way.task.cancel()  # no effect on one that is done
                if self._outside.under_way.get(key) is under_way:
                    del self._outside.under_way[key]

    async def _fetch(self, key: bytes, call: Call) -> Reply:
        messages = call.prompt.messages
        name, schema = schema_of(call.request)
        purpose = Purpose(self._experiment, self._name, call.request.phase, call.request.day)
        reply = await self._endpoint.complete(
            messages,
            name,
            schema,
            prompt_tokens=sum(self.count_tokens(message.content) + MESSAGE_TOKENS for message in messages),
            meter=self._outside.ledger.meter(purpose, self._model.price),
            seed=call.seed,
        )
        return self._store(key, call, reply)

    def _store(self, key: bytes, call: Call, reply: Reply) -> Reply:
        if isinstance(call.request, TagBatchRequest):
            return reply  # its parts are remembered, each as the answer about its own article
        about = About(self._name, call.request.phase, call.request.day, call.request.subject)
        answers = self._outside.answers
        if self._outside.settings.cache.mode == "refresh" and key not in self._outside.refreshed:
            self._outside.refreshed.add(key)
            answers.replace(key, reply, about)
            return reply
        return answers.put(key, reply, about)
