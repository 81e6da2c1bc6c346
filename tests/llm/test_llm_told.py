"""A prompt carries its request as far as it shows it, and no further."""

from __future__ import annotations

import dataclasses
import datetime as dt

import pytest

from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.llm.render import render
from finevolve_pipeline.llm.requests import (
    Call,
    Episode,
    FactsRequest,
    InsightRequest,
    KnownRule,
    MemoryRequest,
    PredictRequest,
    Reask,
    ReasoningItem,
    ReflectRequest,
    RulesRequest,
    ShownFact,
    ShownInsight,
    ShownItem,
    ShownMemory,
    ShownReflection,
    ShownRule,
    SingleRequest,
)
from finevolve_pipeline.llm.tokens import estimate_tokens
from finevolve_pipeline.market.context import MarketContext
from finevolve_pipeline.news.block import NewsBlock, NewsItem, block_beginning, build_block
from finevolve_pipeline.settings import PromptSettings
from finevolve_pipeline.universe import industry

DAY = dt.date(2025, 5, 30)
SECTOR = industry("801080")
LONG = "长文。" * 300


def budgets(experience: int = 8000, update_news: int = 6000) -> PromptSettings:
    return PromptSettings(
        language="zh",
        news_tokens=16_000,
        experience_tokens=experience,
        update_news_tokens=update_news,
        article_tokens=6000,
    )


def item(number: int, title: str = "标题", content: str = "正文。" * 20) -> NewsItem:
    at = dt.datetime(2025, 5, 30, 9, 30, tzinfo=SHANGHAI)
    return NewsItem(f"a{number}", "cls", title, content, at, ("801080",), ("电子",), 8, "涨价。", ("供应链",))


def block(articles: int) -> NewsBlock:
    return build_block([item(number) for number in range(articles)], 90_000, estimate_tokens)


def told(request: SingleRequest, prompts: PromptSettings) -> SingleRequest:
    found = Call(request, render(request, prompts, estimate_tokens)).told
    assert isinstance(found, type(request))
    return found


def shown_text(request: SingleRequest, prompts: PromptSettings) -> str:
    return render(request, prompts, estimate_tokens).messages[1].content


# -- articles


def test_an_article_is_told_as_far_as_its_beginning_reaches() -> None:
    one = item(1)
    lines = one.shown.split("\n")
    head, title, content = (len(line) for line in lines[:3])
    assert one.beginning(len(one.shown)) is one
    assert one.beginning(head) is None
    assert one.beginning(head + 1 + len("title: ")) is None
    cut_title = one.beginning(head + 1 + len("title: ") + 1)
    assert cut_title is not None
    assert (cut_title.title, cut_title.content, cut_title.importance_reason) == ("标", "", "")
    cut_content = one.beginning(head + 1 + title + 1 + len("content: ") + 4)
    assert cut_content is not None
    assert (cut_content.title, cut_content.content, cut_content.importance_reason) == ("标题", "正文。正", "")
    cut_reason = one.beginning(head + title + content + 3 + len("importance_reason: ") + 1)
    assert cut_reason is not None
    assert (cut_reason.content, cut_reason.importance_reason) == (one.content, "涨")


def test_an_article_without_a_body_stays_without_one() -> None:
    one = item(1, content="")
    found = one.beginning(one.shown.index("importance_reason"))
    assert found is not None
    assert (found.title, found.content) == ("标题", "")


@pytest.mark.parametrize("characters", [0, 10, 150, 400, 401, 402, 403, 1000])
def test_a_block_is_told_as_far_as_its_beginning_reaches_and_counts_the_rest(characters: int) -> None:
    whole = dataclasses.replace(block(5), cut=2)
    found = block_beginning(whole, characters)
    assert found.cut + len(found.items) == 7
    for kept, own in zip(found.items[:-1], whole.items, strict=False):
        assert kept is own
    if found.items:
        last = len(found.items) - 1
        before = len("\n\n".join(one.shown for one in whole.items[:last])) + (2 if last else 0)
        assert before < characters
        assert whole.shown[before:characters].startswith(found.items[-1].shown.split("\n")[0])


# -- predictions

SHOWN = [
    ShownMemory("2025-05-20/801080", DAY, LONG, {10: 0.1}, "因素", "推理"),
    ShownReflection("r", DAY, text=f"第一行\n{LONG}"),
    ShownInsight("i", DAY, text=LONG, horizon=10, predicted_on=DAY, score=0.1, alpha=0.01),
    ShownItem("m", DAY, item=ReasoningItem("名", "说明", LONG), horizon=10, predicted_on=DAY, success=True),
    ShownFact("f", DAY, text=LONG),
    ShownRule("u", DAY, text=LONG, importance=2),
]


def predict(*memories: object) -> PredictRequest:
    return PredictRequest(DAY, SECTOR, (10, 20, 40), block(1), MarketContext(1.0, ()), tuple(memories))  # type: ignore[arg-type]


@pytest.mark.parametrize("memory", SHOWN, ids=[type(one).__name__ for one in SHOWN])
def test_experience_is_told_with_as_much_of_its_text_as_is_shown(memory: object) -> None:
    request, prompts = predict(memory), budgets(500)
    (found,) = told(request, prompts).memories  # type: ignore[attr-defined]
    text = {"ShownMemory": "news", "ShownItem": "item"}.get(type(memory).__name__, "text")
    own, part = getattr(memory, text), getattr(found, text)
    if isinstance(own, ReasoningItem):
        assert (part.title, part.description) == (own.title, own.description)
        own, part = own.content, part.content
    assert own.startswith(part)
    assert 0 < len(part) < len(own)
    assert part.replace("\n", "\n  ") + "……（后文略）" in shown_text(request, prompts)
    assert dataclasses.replace(found, **{text: getattr(memory, text)}) == memory


def test_experience_for_which_there_is_no_room_is_not_told() -> None:
    request = predict(*SHOWN)
    assert told(request, budgets(0)).memories == ()  # type: ignore[attr-defined]
    some = told(request, budgets(300)).memories  # type: ignore[attr-defined]
    assert [one.memory_id for one in some] == [one.memory_id for one in SHOWN[: len(some)]]
    assert 0 < len(some) < len(SHOWN)
    assert told(request, budgets(60_000)) is request


def test_a_second_question_tells_the_same_and_what_was_wrong() -> None:
    request = dataclasses.replace(predict(*SHOWN), reask=Reask("{", "no JSON"))
    found = told(request, budgets(300))
    assert isinstance(found, PredictRequest)
    assert found.reask == request.reask
    assert found == dataclasses.replace(told(predict(*SHOWN), budgets(300)), reask=request.reask)


# -- updates


def episode(**changes: object) -> Episode:
    one = Episode(
        memory_id="2025-05-15/801080",
        predicted_on=dt.date(2025, 5, 15),
        matured_on=DAY,
        horizon=10,
        score=0.3,
        key_factor="因素",
        logic_chain="推理",
        news=block(6),
        close_from=100.0,
        close_to=101.0,
        industry_return=0.01,
        benchmark_return=0.0,
        alpha=0.01,
    )
    return dataclasses.replace(one, **changes)


def test_past_news_is_told_as_far_as_it_is_shown() -> None:
    for request in (
        InsightRequest(DAY, SECTOR, episode()),
        ReflectRequest(DAY, SECTOR, (), (episode(),), "percent_excess", 400),
        RulesRequest(DAY, SECTOR, (), (episode(),), 4, False),
        FactsRequest(DAY, SECTOR, block(6), {10: 0.1}, "因素", "推理", 5),
    ):
        found = told(request, budgets(update_news=300))
        whole, part = (
            one.news if isinstance(one, FactsRequest) else (getattr(one, "episode", None) or one.episodes[0]).news
            for one in (request, found)
        )
        assert 0 < len(part.items) < len(whole.items) == 6
        assert part.cut == 6 - len(part.items)
        assert told(request, budgets()) is request


def test_reasons_and_earlier_texts_are_told_as_far_as_they_are_shown() -> None:
    reasons = told(InsightRequest(DAY, SECTOR, episode(logic_chain=LONG)), budgets(100)).episode  # type: ignore[attr-defined]
    assert reasons.key_factor == "因素"
    assert LONG.startswith(reasons.logic_chain)
    assert 0 < len(reasons.logic_chain) < len(LONG)
    before = f"一\n二{LONG}"
    reflect = ReflectRequest(DAY, SECTOR, (before,), (episode(),), "percent_excess", 400)
    (previous,) = told(reflect, budgets(200)).previous  # type: ignore[attr-defined]
    assert before.startswith(previous)
    assert 3 < len(previous) < len(before)
    rules = RulesRequest(DAY, SECTOR, (KnownRule(1, "短", 2), KnownRule(2, LONG, 2)), (episode(),), 4, False)
    short, long = told(rules, budgets(200)).rules  # type: ignore[attr-defined]
    assert (short.text, short.number, long.number) == ("短", 1, 2)
    assert LONG.startswith(long.text)
    memory = told(MemoryRequest(DAY, SECTOR, facts=("事实",), memories=(LONG,)), budgets(200))
    assert memory.facts == ("事实",)  # type: ignore[attr-defined]
    assert LONG.startswith(memory.memories[0])  # type: ignore[attr-defined]
    assert 0 < len(memory.memories[0]) < len(LONG)  # type: ignore[attr-defined]
