"""The backbone `rules`: answers tag and prediction requests by lexicon, as JSON text like a model's."""

from __future__ import annotations

import json
from functools import lru_cache

from finevolve_pipeline.digests import source_digest
from finevolve_pipeline.llm.requests import Call, PredictRequest, Reply, Request, TagBatchRequest, TagRequest, Usage
from finevolve_pipeline.llm.rules.predictor import predict
from finevolve_pipeline.llm.rules.tagger import tag
from finevolve_pipeline.llm.tokens import estimate_tokens


@lru_cache(maxsize=1)
def _version() -> str:
    return source_digest("finevolve_pipeline.llm.rules")


class RulesBackbone:
    """A lexicon behind the interface of a model: no settings, no network, no key, no randomness."""

    @property
    def name(self) -> str:
        """`rules`."""
        return "rules"

    @property
    def identity(self) -> dict[str, object]:
        """Kind and digest of code and word lists: a changed word is another backbone."""
        return {"kind": "rules", "version": _version()}

    def count_tokens(self, text: str) -> int:
        """The upper estimate: a lexicon has no tokens of its own."""
        return estimate_tokens(text)

    async def answer(self, call: Call) -> Reply:
        """The answer to one call; no tokens, no cost."""
        return Reply(self.answer_now(call.request), Usage(calls=1))

    def answer_now(self, request: Request) -> str:
        """The answer's JSON text, without an event loop (there is nothing to wait for)."""
        if isinstance(request, PredictRequest):
            return _predicted(request)
        if isinstance(request, TagBatchRequest):
            parts = [{"id": str(number), **json.loads(_tagged(one))} for number, one in enumerate(request.articles, 1)]
            return json.dumps({"articles": parts}, ensure_ascii=False)
        return _tagged(request)

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


def _predicted(request: PredictRequest) -> str:
    forecast = predict(request)
    return json.dumps(
        {
            "scores": {str(horizon): score for horizon, score in forecast.scores.items()},
            "confidence_score": forecast.confidence,
            "key_factor": forecast.key_factor,
            "logic_chain": forecast.logic_chain,
        },
        ensure_ascii=False,
    )
