"""JSON schemas of answers, for providers that can hold a model to one.

Only keywords that strict structured outputs, guided decoding and GBNF grammars all understand: every object lists
all its properties as required and allows no other, bounds stand on numbers and lists only, closed sets are enums.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from finevolve_pipeline.llm.requests import PredictRequest, Request, TagBatchRequest
from finevolve_pipeline.universe import CODES

Schema = dict[str, object]
"""A JSON schema. The memoised ones are shared: do not change them."""

SCOPES = ("industry", "market", "none")
MAX_INDUSTRIES = 4
"""Industries that one article may name."""


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
    """Name and JSON schema of the answer to a request: `prediction`, `tags` or `tag_batch`."""
    if isinstance(request, PredictRequest):
        return "prediction", _prediction(request.horizons)
    if isinstance(request, TagBatchRequest):
        return "tag_batch", _tag_batch(len(request.articles))
    return "tags", _tags()


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
            "key_factor": {"type": "string"},
            "logic_chain": {"type": "string"},
        }
    )


def _tag_fields() -> Schema:
    return {
        "industries": _list_of(_one_of(CODES), 0, MAX_INDUSTRIES),
        "scope": _one_of(SCOPES),
        "importance": {"type": "integer", "minimum": 1, "maximum": 10},
        "importance_reason": {"type": "string"},
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
