"""Schemas say what the reader accepts, in keywords that every provider with structured answers understands."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from finevolve_pipeline.errors import AnswerError
from finevolve_pipeline.llm.answers import parse_prediction, parse_tag, parse_tag_batch, prediction_flaws, tag_flaws
from finevolve_pipeline.llm.render import render
from finevolve_pipeline.llm.requests import (
    Episode,
    FactsRequest,
    InsightRequest,
    KnownRule,
    MemoryRequest,
    PredictRequest,
    ReasoningRequest,
    ReflectRequest,
    Request,
    RulesRequest,
    TagBatchRequest,
    TagRequest,
)
from finevolve_pipeline.llm.rules.backbone import RulesBackbone
from finevolve_pipeline.llm.rules.lexicon import events
from finevolve_pipeline.llm.schemas import TOPICS, schema_of
from finevolve_pipeline.llm.tokens import estimate_tokens
from finevolve_pipeline.llm.updates import (
    listed_flaws,
    no_flaws,
    parse_facts,
    parse_insight,
    parse_items,
    parse_memory_operations,
    parse_reflection,
    parse_rule_operations,
)
from finevolve_pipeline.market.context import MarketContext
from finevolve_pipeline.news.block import NewsBlock
from finevolve_pipeline.settings import PromptSettings
from finevolve_pipeline.universe import CODES, industry

HORIZONS = (10, 20, 40)
BUDGETS = {"news_tokens": 16_000, "experience_tokens": 8000, "update_news_tokens": 6000, "article_tokens": 6000}
TAG = TagRequest("a1", "cls", "央行降准", "银行板块大涨。", dt.datetime(2025, 5, 30, 1, tzinfo=dt.UTC))
BATCH = TagBatchRequest((TAG, TAG, TAG))
PREDICTION = PredictRequest(
    dt.date(2025, 5, 30), industry("801170"), HORIZONS, NewsBlock((), 0), MarketContext(1.0, ())
)
EPISODE = Episode(
    memory_id="2025-05-16/801170",
    predicted_on=dt.date(2025, 5, 16),
    matured_on=dt.date(2025, 5, 30),
    horizon=10,
    score=0.8,
    key_factor="抢运",
    logic_chain="运价上涨。",
    news=NewsBlock((), 0),
    close_from=2000.0,
    close_to=2034.16,
    industry_return=0.017,
    benchmark_return=-0.004,
    alpha=0.021,
)
WHERE = (dt.date(2025, 5, 30), industry("801170"))
RULES = (KnownRule(1, "规则甲", 2), KnownRule(2, "规则乙", 3))
UPDATES: dict[str, Request] = {
    "reflection": ReflectRequest(*WHERE, (), (EPISODE,), "index_points", 4000),
    "insight": InsightRequest(*WHERE, EPISODE),
    "reasoning_items": ReasoningRequest(*WHERE, EPISODE, 3),
    "rule_operations": RulesRequest(*WHERE, RULES, (EPISODE,), 4, is_full=False),
    "facts": FactsRequest(*WHERE, NewsBlock((), 0), {10: 0.8}, "抢运", "运价上涨。", 3),
    "memory_operations": MemoryRequest(*WHERE, ("新事实",), ("记忆甲", "记忆乙")),
}
REQUESTS: dict[str, Request] = {"prediction": PREDICTION, "tags": TAG, "tag_batch": BATCH, **UPDATES}
READERS = {
    "reflection": (parse_reflection, no_flaws),
    "insight": (parse_insight, no_flaws),
    "reasoning_items": (lambda text: parse_items(text, 3), listed_flaws),
    "rule_operations": (lambda text: parse_rule_operations(text, 2, 4), listed_flaws),
    "facts": (lambda text: parse_facts(text, 3), listed_flaws),
    "memory_operations": (lambda text: parse_memory_operations(text, 2), listed_flaws),
}
ITEM = {"title": "题", "description": "述", "content": "文"}
AGREE = {"operation": "AGREE", "rule": 1, "text": ""}
UPDATE = {"operation": "UPDATE", "memory": 2, "text": "改"}
ACCEPTED: list[tuple[str, dict[str, object]]] = [
    ("reflection", {"reflection": "一\n二"}),
    ("insight", {"insight": "一"}),
    ("reasoning_items", {"items": [ITEM] * 3}),
    ("reasoning_items", {"items": []}),
    ("rule_operations", {"operations": [AGREE, {"operation": "ADD", "rule": 0, "text": "新"}]}),
    ("facts", {"facts": ["甲", "乙", "丙"]}),
    ("memory_operations", {"operations": [UPDATE, {"operation": "NOOP", "memory": 0, "text": ""}]}),
]
REFUSED: list[tuple[str, dict[str, object]]] = [
    ("reflection", {"reflection": None}),
    ("reflection", {"insight": "一"}),
    ("insight", {"insight": ["一"]}),
    ("reasoning_items", {"items": [ITEM] * 4}),
    ("reasoning_items", {"items": [{"title": "题", "description": "述"}]}),
    ("reasoning_items", {"items": "一"}),
    ("rule_operations", {"operations": [AGREE] * 5}),
    ("rule_operations", {"operations": [{**AGREE, "rule": 3}]}),
    ("rule_operations", {"operations": [{**AGREE, "rule": 1.5}]}),
    ("rule_operations", {"operations": [{**AGREE, "operation": "NOOP"}]}),
    ("facts", {"facts": ["甲", "乙", "丙", "丁"]}),
    ("facts", {"facts": [1]}),
    ("memory_operations", {"operations": [{**UPDATE, "memory": 3}]}),
    ("memory_operations", {"operations": [{**UPDATE, "operation": "REMOVE"}]}),
    ("memory_operations", {"operations": UPDATE}),
]
COMMON = {"type", "properties", "required", "additionalProperties", "items", "enum"}
BOUNDS = {"minimum", "maximum", "minItems", "maxItems"}
TAGS = {"industries": ["801780"], "scope": "industry", "importance": 9, "importance_reason": "降准", "topics": []}
SCORES = {"scores": {"10": 0.1, "20": -1, "40": 1}, "confidence_score": 0.5, "key_factor": "a", "logic_chain": "b"}


def subschemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    for one in (*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])):
        yield from subschemas(one)


def is_valid(schema: dict[str, Any], answer: object) -> bool:
    jsonschema = pytest.importorskip("jsonschema")
    return bool(jsonschema.Draft202012Validator(schema).is_valid(answer))


@pytest.mark.parametrize("name", REQUESTS)
def test_every_object_is_closed_and_only_common_keywords_are_used(name: str) -> None:
    said, schema = schema_of(REQUESTS[name])
    assert said == name
    for one in subschemas(schema):
        assert set(one) <= COMMON | BOUNDS
        if one["type"] == "object":
            assert one["additionalProperties"] is False
            assert one["required"] == list(one["properties"])


def test_a_schema_is_made_once_for_the_same_horizons_and_sizes() -> None:
    assert schema_of(PREDICTION)[1] is schema_of(PREDICTION)[1]
    assert schema_of(BATCH)[1] is schema_of(TagBatchRequest((TAG, TAG, TAG)))[1]
    assert schema_of(BATCH)[1] != schema_of(TagBatchRequest((TAG, TAG)))[1]


@pytest.mark.parametrize(
    "changes",
    [
        {"industries": ["801020"]},
        {"industries": ["801010", "801030", "801040", "801050", "801080"]},
        {"scope": "sector"},
        {"importance": 0},
        {"importance": 11},
        {"importance": 7.5},
    ],
    ids=str,
)
def test_schema_and_reader_refuse_the_same_tags(changes: dict[str, object]) -> None:
    schema = schema_of(TAG)[1]
    assert is_valid(schema, TAGS)
    assert not is_valid(schema, {**TAGS, **changes})
    try:
        flaws = tag_flaws(parse_tag(json.dumps({**TAGS, **changes})))
    except AnswerError as refused:
        flaws = (str(refused),)
    assert flaws


@pytest.mark.parametrize("ten", [1.01, -2, "0.3 points", None, True, [0.1]], ids=str)
def test_schema_and_reader_refuse_the_same_scores(ten: object) -> None:
    schema = schema_of(PREDICTION)[1]
    assert is_valid(schema, SCORES)
    bad = {**SCORES, "scores": {"10": ten, "20": 0, "40": 0}}
    assert not is_valid(schema, bad)
    assert len(prediction_flaws(parse_prediction(json.dumps(bad), HORIZONS, "invalid"))) == 1


def test_a_batch_holds_one_item_for_each_article() -> None:
    schema = schema_of(BATCH)[1]
    items = [{"id": str(number), **TAGS} for number in (1, 2, 3)]
    assert is_valid(schema, {"articles": items})
    assert not is_valid(schema, {"articles": items[:2]})
    assert not is_valid(schema, {"articles": [*items[:2], {"id": "4", **TAGS}]})
    read = parse_tag_batch(json.dumps({"articles": items}), ("a", "b", "c"))
    assert not any(isinstance(one, str) for one in read.values())


def problems(name: str, answer: dict[str, object]) -> tuple[str, ...]:
    """What the reader of an update's answers finds wrong with one."""
    parse, flaws = READERS[name]
    try:
        return flaws(parse(json.dumps(answer)))
    except AnswerError as refused:
        return (str(refused),)


@pytest.mark.parametrize(("name", "answer"), ACCEPTED, ids=str)
def test_schema_and_reader_accept_the_same_updates(name: str, answer: dict[str, object]) -> None:
    assert is_valid(schema_of(REQUESTS[name])[1], answer)
    assert problems(name, answer) == ()


@pytest.mark.parametrize(("name", "answer"), REFUSED, ids=str)
def test_schema_and_reader_refuse_the_same_updates(name: str, answer: dict[str, object]) -> None:
    assert not is_valid(schema_of(REQUESTS[name])[1], answer)
    assert problems(name, answer)


def test_all_that_an_object_of_an_update_holds_must_be_given() -> None:
    for name, key in (
        ("rule_operations", "operations"),
        ("memory_operations", "operations"),
        ("reasoning_items", "items"),
    ):
        entry = {"rule_operations": AGREE, "memory_operations": UPDATE, "reasoning_items": ITEM}[name]
        for missing in entry:
            part = {field: value for field, value in entry.items() if field != missing}
            assert not is_valid(schema_of(REQUESTS[name])[1], {key: [part]})


def test_limits_of_operations_follow_the_lists_they_change() -> None:
    nothing_yet = schema_of(RulesRequest(*WHERE, (), (EPISODE,), 2, is_full=False))[1]
    add = {"operation": "ADD", "rule": 0, "text": "新"}
    assert is_valid(nothing_yet, {"operations": [add, add]})
    assert not is_valid(nothing_yet, {"operations": [{**add, "rule": 1}]})
    assert not is_valid(nothing_yet, {"operations": [add] * 3})
    memories = schema_of(REQUESTS["memory_operations"])[1]
    assert is_valid(memories, {"operations": [UPDATE] * 3})  # one new fact and two memories
    assert not is_valid(memories, {"operations": [UPDATE] * 4})


@pytest.mark.parametrize("language", ["zh", "en"])
@pytest.mark.parametrize("name", UPDATES)
def test_instructions_of_an_update_name_every_property_and_verb(name: str, language: str) -> None:
    system = render(UPDATES[name], PromptSettings(language=language, **BUDGETS), estimate_tokens).messages[0].content
    form = next(line for line in system.splitlines() if line.startswith("{"))
    for one in subschemas(schema_of(UPDATES[name])[1]):
        assert all(f'"{key}": ' in form for key in one.get("properties", {}))
        for verb in one.get("enum", ()):
            assert f'"{verb}"' in form
            assert re.search(rf"^- {verb}[：:]", system, re.M)


def test_prompts_name_what_the_schema_allows() -> None:
    allowed = schema_of(TAG)[1]["properties"]
    assert isinstance(allowed, dict)
    assert tuple(allowed["industries"]["items"]["enum"]) == CODES
    for language in ("zh", "en"):
        settings = PromptSettings(language=language, **BUDGETS)
        for request in (TAG, BATCH):
            system = render(request, settings, estimate_tokens).messages[0].content
            assert all(code in system for code in CODES)
            assert all(topic.name_zh in system and (language == "zh" or topic.name_en in system) for topic in TOPICS)


def test_the_lexicon_has_its_own_topic_for_companies_and_none_for_linkage() -> None:
    """The paper's list has cross-market linkage; the lexicon cannot tell it, and marks news of a company instead."""
    assert set(events().topics) ^ {topic.name_zh for topic in TOPICS} == {"公司", "跨市场联动"}


@pytest.mark.parametrize("name", REQUESTS)
def test_the_rules_answer_in_the_demanded_form(name: str) -> None:
    schema = json.loads(json.dumps(schema_of(REQUESTS[name])[1]).replace('"跨市场联动"', '"公司"'))
    if name == "prediction":
        schema["properties"]["confidence_score"]["type"] = ["number", "null"]
    for one in subschemas(schema):
        if "enum" in one and "市场情绪" in one["enum"]:
            one["enum"] = list(events().topics)
    assert is_valid(schema, json.loads(RulesBackbone().answer_now(REQUESTS[name])))
