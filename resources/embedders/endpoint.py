"""Vectors from an OpenAI-compatible `/embeddings`: sent in batches, checked row by row, metered like answers."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from openai import AsyncOpenAI

from finevolve_pipeline.embedding import Vectors
from finevolve_pipeline.errors import BackboneError
from finevolve_pipeline.llm import failures
from finevolve_pipeline.llm.metering import Meter
from finevolve_pipeline.llm.requests import Usage
from finevolve_pipeline.llm.tokens import estimate_tokens
from finevolve_pipeline.settings import EndpointEmbedderSettings, PriceSettings
from resources.embedders.model import Encoded, encodable, unit_rows
from resources.provider import AttemptError, Provider


@dataclass(frozen=True)
class _Answer:
    vectors: Vectors
    usage: Usage


class EndpointModel:
    """A model behind `/embeddings`.

    Args:
        name: of the embedder in the settings.
        settings: its section.
        provider: who serves it; used by this object alone.
        meter: has leave for every attempt, and hears what it took.
        price: USD for a million tokens, None if unknown.
    """

    def __init__(
        self,
        name: str,
        settings: EndpointEmbedderSettings,
        provider: Provider,
        meter: Meter,
        price: PriceSettings | None,
    ) -> None:
        self._name = name
        self._settings = settings
        self._provider = provider
        self._meter = meter
        self._price = price

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        return self._settings.dimensions

    @property
    def identity(self) -> dict[str, object]:
        """Who serves which model, and what a request says beside its texts."""
        settings = self._settings
        return {
            "kind": settings.kind,
            "served_by": self._provider.settings.served_by,
            "model": settings.model,
            "dimensions": settings.dimensions,
            "send_dimensions": settings.send_dimensions,
            "max_tokens": settings.max_tokens,
        }

    def encode(self, texts: Sequence[str]) -> Iterator[Encoded]:
        """All batches at once, as far as the provider's limits allow. Raises as `TextModel.encode`."""
        size = self._settings.batch
        batches = [range(start, min(start + size, len(texts))) for start in range(0, len(texts), size)]
        # The caller may be inside a running event loop, where no other one can run: so in a thread of its own.
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="embeddings") as thread:
            ended = thread.submit(asyncio.run, self._asked(texts, batches)).result()
        yield from (one for one in ended if isinstance(one, Encoded))
        for one in ended:
            if isinstance(one, BaseException):
                raise one

    async def _asked(self, texts: Sequence[str], batches: Sequence[range]) -> list[Encoded | BaseException]:
        try:
            return await asyncio.gather(*(self._batch(texts, rows) for rows in batches), return_exceptions=True)
        finally:
            await self._provider.close()

    async def _batch(self, texts: Sequence[str], rows: range) -> Encoded:
        given = [encodable(texts[row]) for row in rows]
        sent = [self._beginning(text) for text in given]
        tokens = sum(estimate_tokens(text) for text in sent)
        answer, _ = await self._provider.send(
            lambda client: self._attempt(client, sent, tokens),
            tokens,
            lambda: self._meter.reserve(tokens, 0),
            lambda answered: answered.usage,
        )
        cut = tuple(len(beginning) < len(text) for beginning, text in zip(sent, given, strict=True))
        return Encoded(tuple(rows), answer.vectors, cut)

    def _beginning(self, text: str) -> str:
        """As much of a text as max_tokens allow, by the upper estimate; all of it where that is 0."""
        limit = self._settings.max_tokens
        if not limit or estimate_tokens(text) <= limit:
            return text
        fits, too_long = 0, len(text)
        while too_long - fits > 1:
            middle = (fits + too_long) // 2
            if estimate_tokens(text[:middle]) <= limit:
                fits = middle
            else:
                too_long = middle
        return text[:fits]

    async def _attempt(self, client: AsyncOpenAI, sent: Sequence[str], tokens: int) -> _Answer:
        body: dict[str, Any] = {"dimensions": self.dimensions} if self._settings.send_dimensions else {}
        async with client.embeddings.with_streaming_response.create(
            model=self._settings.model, input=list(sent), encoding_format="float", extra_body=body
        ) as response:
            found = _object(await response.read())
        self._require_model(found.get("model"))
        raw = np.stack([self._numbers(one) for one in _in_order(found.get("data"), len(sent))])
        try:
            return _Answer(unit_rows(raw), self._usage(found.get("usage"), tokens))
        except ValueError as unusable:
            raise AttemptError(failures.MALFORMED, str(unusable)) from None

    def _require_model(self, answered: object) -> None:
        asked = self._settings.model
        if not isinstance(answered, str) or answered.startswith(asked) or answered in ("", *self._settings.served_as):
            return
        raise BackboneError(
            f"embedder {self._name}: {asked!r} was asked and {self._provider.scrub(answered)!r} answered; if that is "
            f"the same model, or the one you want, add the name to served_as of [embedders.{self._name}]"
        )

    def _numbers(self, entry: Mapping[str, Any]) -> npt.NDArray[np.float64]:
        """One vector, as sent: a list of numbers, or base64 of float32 ones."""
        sent = entry.get("embedding")
        try:
            if isinstance(sent, str):
                raw = np.frombuffer(base64.b64decode(sent, validate=True), dtype="<f4").astype(np.float64)
            elif isinstance(sent, list) and all(type(one) in (int, float) for one in sent):
                raw = np.array(sent, dtype=np.float64)
            else:
                raise AttemptError(failures.MALFORMED, "an embedding that is no list of numbers")
        except (binascii.Error, ValueError, OverflowError):
            raise AttemptError(failures.MALFORMED, "an embedding that is neither numbers nor base64 of them") from None
        if len(raw) != self.dimensions:
            raise BackboneError(
                f"embedder {self._name}: dimensions is {self.dimensions}, {self._settings.model!r} gives {len(raw)}; "
                f"set dimensions = {len(raw)} in [embedders.{self._name}], or send_dimensions if the model can shorten"
            )
        return raw

    def _usage(self, said: object, estimated: int) -> Usage:
        """Tokens as the provider counts them, estimated where it does not."""
        counts = said if isinstance(said, Mapping) else {}
        given = (counts.get("prompt_tokens"), counts.get("total_tokens"))
        tokens = next((one for one in given if type(one) is int and one >= 0), estimated)
        cost = self._price.cost(tokens, 0, 0) if self._price else 0.0
        return Usage(calls=1, prompt_tokens=tokens, cost=cost)


def _object(data: bytes) -> Mapping[str, Any]:
    """The body. Raises `AttemptError` if it is an error, or none of embeddings."""
    text = data.decode("utf-8", "replace")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise AttemptError(failures.MALFORMED, f"a body that holds no embeddings: {text[:200]}")
    error = found.get("error")
    if error and "data" not in found:
        words = error.get("message") if isinstance(error, Mapping) else error
        raise AttemptError(failures.SERVER_ERROR, f"an error inside an answer: {words}")
    return found


def _in_order(entries: object, expected: int) -> list[Mapping[str, Any]]:
    """The entries in the order of the texts: by index, or as they come where none has one."""
    if not isinstance(entries, list) or not all(isinstance(one, Mapping) for one in entries):
        raise AttemptError(failures.MALFORMED, "a body that holds no embeddings")
    if len(entries) != expected:
        raise AttemptError(failures.MALFORMED, f"{len(entries)} embeddings for {expected} texts")
    places = [one.get("index") for one in entries]
    if all(place is None for place in places):
        return list(entries)
    if any(type(place) is not int for place in places) or sorted(places) != list(range(expected)):
        raise AttemptError(failures.MALFORMED, "embeddings whose indices are not those of the texts")
    return [entry for _, entry in sorted(zip(places, entries, strict=True), key=lambda pair: pair[0])]
