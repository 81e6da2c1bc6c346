"""The backbone `rules`: answers every request by lexicon, as JSON text like a model's.

With `noise` above 0 it is another backbone that errs at random: each score s becomes s + noise · g, clipped to [-1, 1],
4 decimals. g is standard normal and follows from the seeds, the prompt and the horizon alone, so that the same question
gets the same answer on every machine and in every order. Only predictions are noisy, so only they need their prompt.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import lru_cache
from statistics import NormalDist

from finevolve_pipeline.digests import source_digest
from finevolve_pipeline.llm.render import prompt_digest
from finevolve_pipeline.llm.requests import (
    Call,
    Language,
    PredictRequest,
    Reply,
    Request,
    TagBatchRequest,
    TagRequest,
    Usage,
)
from finevolve_pipeline.llm.rules.predictor import Forecast, as_score, predict
from finevolve_pipeline.llm.rules.tagger import tag
from finevolve_pipeline.llm.rules.updates import answer_update
from finevolve_pipeline.llm.tokens import estimate_tokens

_NORMAL = NormalDist()
_BITS = 52
"""Random bits of a draw: as many as leave (k + 1/2) / 2**bits exact, strictly between 0 and 1."""


@lru_cache(maxsize=1)
def _version() -> str:
    return source_digest("finevolve_pipeline.llm.rules")


class RulesBackbone:
    """A lexicon behind the interface of a model: no network, no key.

    Args:
        name: in the settings.
        noise: standard deviation of what is added to a score; 0: nothing.
        seed: of the noise.
    """

    def __init__(self, name: str = "rules", noise: float = 0.0, seed: int = 0) -> None:
        self._name = name
        self._noise = noise
        self._seed = seed

    @property
    def name(self) -> str:
        """Name in the settings, e.g. `rules`."""
        return self._name

    @property
    def identity(self) -> dict[str, object]:
        """Kind and digest of code and word lists: a changed word is another backbone. And the noise, if any."""
        plain: dict[str, object] = {"kind": "rules", "version": _version()}
        return {**plain, "noise": self._noise, "seed": self._seed} if self._noise else plain

    def count_tokens(self, text: str) -> int:
        """The upper estimate: a lexicon has no tokens of its own."""
        return estimate_tokens(text)

    async def answer(self, call: Call) -> Reply:
        """The answer to one call; no tokens, no cost."""
        # A model reads no more than the messages show; here only an article to tag is read whole (see `Call.told`).
        request = call.told
        if self._noise and isinstance(request, PredictRequest):
            return Reply(_said(self._with_noise(predict(request, call.prompt.language), call)), Usage(calls=1))
        return Reply(self.answer_now(request, call.prompt.language), Usage(calls=1))

    def answer_now(self, request: Request, language: Language = "zh") -> str:
        """The answer's JSON text, before any noise, without an event loop (there is nothing to wait for).

        Reasons and lessons are written in `language`; what is quoted of articles, and their tags, stay Chinese.
        """
        match request:
            case PredictRequest():
                return _said(predict(request, language))
            case TagRequest():
                return _tagged(request)
            case TagBatchRequest():
                tagged = [{"id": str(at), **json.loads(_tagged(one))} for at, one in enumerate(request.articles, 1)]
                return json.dumps({"articles": tagged}, ensure_ascii=False)
            case _:
                return answer_update(request, language)

    def _with_noise(self, forecast: Forecast, call: Call) -> Forecast:
        digest = prompt_digest(call.prompt.messages)
        return replace(
            forecast,
            scores={
                horizon: as_score(score + self._noise * _normal(f"{self._seed}/{call.seed}/{digest}/{horizon}"))
                for horizon, score in forecast.scores.items()
            },
        )

    def recall(self, call: Call) -> Reply | None:
        """None: answering is as quick as remembering."""
        return None

    def remember(self, call: Call, reply: Reply) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """There is no connection."""


def _tagged(request: TagRequest) -> str:
    found = tag(request.title, request.content)
    return json.dumps(
        {
            "industries": found.industries,
            "scope": found.scope,
            "importance": found.importance,
            "importance_reason": found.reason,
            "topics": found.topics,
        },
        ensure_ascii=False,
    )


def _said(forecast: Forecast) -> str:
    return json.dumps(
        {
            "scores": {str(horizon): score for horizon, score in forecast.scores.items()},
            "confidence_score": forecast.confidence,
            "key_factor": forecast.key_factor,
            "logic_chain": forecast.logic_chain,
        },
        ensure_ascii=False,
    )


def _normal(key: str) -> float:
    """A standard normal number that follows from a text."""
    drawn = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) >> (64 - _BITS)
    return _NORMAL.inv_cdf((drawn + 0.5) / 2**_BITS)
