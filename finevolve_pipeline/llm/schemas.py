"""JSON schemas of answers, for providers that can hold a model to one.

Only keywords that strict structured outputs, guided decoding and GBNF grammars all understand: every object lists
all its properties as required and allows no other, bounds stand on numbers and lists only, closed sets are enums.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from finevolve_pipeline.llm.requests import (
    FactsRequest,
    InsightRequest,
    MemoryRequest,
    PredictRequest,
    ReasoningRequest,
    ReflectRequest,
    Request,
    RulesRequest,
    TagBatchRequest,
    TagRequest,
)
from finevolve_pipeline.universe import CODES

Schema = dict[str, object]
"""A JSON schema. The memoised ones are shared: do not change them."""

_TEXT: Schema = {"type": "string"}

SCOPES = ("industry", "market", "none")
MAX_INDUSTRIES = 4
"""Industries that one article may name."""

RULE_VERBS = ("ADD", "EDIT", "AGREE", "REMOVE")
MEMORY_VERBS = ("ADD", "UPDATE", "DELETE", "NOOP")


class Topic(NamedTuple):
    """A market theme of the paper's list (section 3.3, figure 5, and the case study)."""

    name_zh: str
    name_en: str


TOPICS = (
    Topic("市场情绪", "market sentiment"),
    Topic("地缘政治", "geopolitics"),
    Topic("政策监管", "policy and regulation"),
    Topic("供应链", "supply chain"),
    Topic("宏观经济", "macroeconomics"),
    Topic("气候与事件", "climate and events"),
    Topic("长期主题", "long-term themes"),
    Topic("跨市场联动", "cross-market linkage"),
)


def schema_of(request: Request) -> tuple[str, Schema]:
    """Name and JSON schema of the answer to a request."""
    match request:
        case PredictRequest():
            return "prediction", _prediction(request.horizons)
        case TagRequest():
            return "tags", _tags()
        case TagBatchRequest():
            return "tag_batch", _tag_batch(len(request.articles))
        case ReflectRequest():
            return "reflection", _text("reflection")
        case InsightRequest():
            return "insight", _text("insight")
        case ReasoningRequest():
            return "reasoning_items", _reasoning_items(request.max_items)
        case RulesRequest():
            return "rule_operations", _operations("rule", RULE_VERBS, len(request.rules), request.max_operations)
        case FactsRequest():
            return "facts", _facts(request.max_facts)
        case MemoryRequest():
            # One a new fact, and one a memory that it changes.
            most = len(request.facts) + len(request.memories)
            return "memory_operations", _operations("memory", MEMORY_VERBS, len(request.memories), most)


def _object(properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list_of(item: Schema, least: int, most: int) -> Schema:
    return {"type": "array", "items": item, "minItems": least, "maxItems": most}


def _one_of(values: Sequence[str]) -> Schema:
    return {"type": "string", "enum": list(values)}


@lru_cache(maxsize=32)
def _prediction(horizons: tuple[int, ...]) -> Schema:
    score: Schema = {"type": "number", "minimum": -1, "maximum": 1}
    return _object(
        {
            "scores": _object({str(horizon): score for horizon in horizons}),
            "confidence_score": {"type": "number", "minimum": 0, "maximum": 1},
            "key_factor": _TEXT,
            "logic_chain": _TEXT,
        }
    )


def _tag_fields() -> Schema:
    return {
        "industries": _list_of(_one_of(CODES), 0, MAX_INDUSTRIES),
        "scope": _one_of(SCOPES),
        "importance": {"type": "integer", "minimum": 1, "maximum": 10},
        "importance_reason": _TEXT,
        "topics": _list_of(_one_of([topic.name_zh for topic in TOPICS]), 0, len(TOPICS)),
    }


@lru_cache(maxsize=1)
def _tags() -> Schema:
    return _object(_tag_fields())


@lru_cache(maxsize=64)
def _tag_batch(articles: int) -> Schema:
    numbers = [str(number) for number in range(1, articles + 1)]
    one = _object({"id": _one_of(numbers), **_tag_fields()})
    return _object({"articles": _list_of(one, articles, articles)})


@lru_cache(maxsize=2)
def _text(name: str) -> Schema:
    return _object({name: _TEXT})


@lru_cache(maxsize=8)
def _reasoning_items(most: int) -> Schema:
    return _object({"items": _list_of(_object({"title": _TEXT, "description": _TEXT, "content": _TEXT}), 0, most)})


@lru_cache(maxsize=8)
def _facts(most: int) -> Schema:
    return _object({"facts": _list_of(_TEXT, 0, most)})


@lru_cache(maxsize=256)
def _operations(subject: str, verbs: tuple[str, ...], entries: int, most: int) -> Schema:
    """Operations on a numbered list. All properties are required: an unused number is 0, an unused text is empty."""
    number: Schema = {"type": "integer", "minimum": 0, "maximum": entries}
    one = _object({"operation": _one_of(verbs), subject: number, "text": _TEXT})
    return _object({"operations": _list_of(one, 0, most)})
