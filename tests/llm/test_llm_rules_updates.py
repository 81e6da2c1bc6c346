"""The offline backbone learns: what it writes about outcomes it reads back, and its answers keep their limits."""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
import time

import pytest

from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.llm.requests import (
    Episode,
    FactsRequest,
    InsightRequest,
    KnownRule,
    MemoryRequest,
    ReasoningRequest,
    ReflectRequest,
    RulesRequest,
)
from finevolve_pipeline.llm.rules.backbone import RulesBackbone
from finevolve_pipeline.llm.rules.lessons import Lesson, mark, read_lessons, read_mark, reliability, write_lessons
from finevolve_pipeline.llm.rules.predictor import impression
from finevolve_pipeline.llm.updates import (
    Operation,
    parse_facts,
    parse_insight,
    parse_items,
    parse_memory_operations,
    parse_reflection,
    parse_rule_operations,
)
from finevolve_pipeline.news.block import NewsBlock, NewsItem
from finevolve_pipeline.universe import industry

SESSION = dt.date(2025, 5, 30)
WHERE = (SESSION, industry("801080"))
GOOD = "存储芯片价格大幅上涨 龙头业绩超预期"
BAD = "存储芯片价格大幅下跌 龙头业绩低于预期"


def block(*titles: str) -> NewsBlock:
    """News of 2025-05-16 about electronics."""
    at = dt.datetime(2025, 5, 16, 10, tzinfo=SHANGHAI)
    return NewsBlock(
        tuple(
            NewsItem(f"a{number}", "cls", title, "", at, ("801080",), ("电子",), 9, "", ())
            for number, title in enumerate(titles)
        ),
        0,
    )


def episode(alpha: float = 0.03, title: str = GOOD, **changes: object) -> Episode:
    """Electronics was predicted to rise on 2025-05-16 and then did so, or not, by `alpha`."""
    one = Episode(
        memory_id="2025-05-16/801080",
        predicted_on=dt.date(2025, 5, 16),
        matured_on=SESSION,
        horizon=10,
        score=0.4,
        key_factor="存储涨价",
        logic_chain="价格传导到利润。",
        news=block(title),
        close_from=2000.0,
        close_to=2034.16,
        industry_return=alpha,
        benchmark_return=0.0,
        alpha=alpha,
    )
    return dataclasses.replace(one, **changes)


def answer(request) -> str:
    return RulesBackbone().answer_now(request)


def insight(one: Episode) -> str:
    return parse_insight(answer(InsightRequest(*WHERE, one)))


def reflection(*episodes: Episode, previous: tuple[str, ...] = (), signal="percent_excess", most=4000) -> str:
    return parse_reflection(answer(ReflectRequest(*WHERE, previous, episodes, signal, most)))


def lesson(text: str) -> float:
    (one,) = read_lessons(text)
    return one.reliability


# What is written and read back.


def test_lessons_are_read_back_as_they_were_written() -> None:
    text = write_lessons({20: -0.125, 10: 0.45})
    assert text == "10日新闻方向信度+0.45；20日新闻方向信度-0.12。"
    assert read_lessons(f"{text}其余的话。") == (Lesson(10, 0.45), Lesson(20, -0.12))
    assert write_lessons({}) == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "没有教训",
        "某股公告：10日新闻方向信度-1.00。",
        "10日新闻方向信度0.45。",
        "10日新闻方向信度+0.45",
        "1000日新闻方向信度+0.45。",
        "10日新闻方向信度+nan。",
        "10日新闻方向信度+100.0。",
    ],
)
def test_what_does_not_stand_at_the_head_in_that_form_is_no_lesson(text: str) -> None:
    assert read_lessons(text) == ()


def test_lessons_are_clipped_and_only_so_many_are_read() -> None:
    assert read_lessons("10日新闻方向信度+99.00。20日新闻方向信度-7.50。") == (Lesson(10, 1.0), Lesson(20, -1.0))
    assert len(read_lessons("10日新闻方向信度+0.50；" * 1000)) == 8


@pytest.mark.parametrize("piece", ["10日新闻方向信度+", "1", "（利好，“", "10日新闻方向信度+0.45；", "，“”）"])
def test_reading_takes_time_in_proportion_to_a_hostile_text(piece: str) -> None:
    text = piece * (2_000_000 // len(piece))
    start = time.perf_counter()
    read_lessons(text)
    read_mark(text)
    assert time.perf_counter() - start < 1


def test_marks_are_read_back_as_they_were_written() -> None:
    for side, word in ((1, "大增"), (-1, ""), (0, "")):
        marked = read_mark(mark("某公司：订单", side, word))
        assert (marked.text, marked.side, marked.word) == ("某公司：订单", side, word)
    plain = read_mark("某公司（利好）订单")
    assert (plain.text, plain.side) == ("某公司（利好）订单", None)


def test_reliability_is_the_hyperbolic_tangent_of_news_times_outcome() -> None:
    assert reliability(0.3, 0.03) == pytest.approx(math.tanh(150 * 0.3 * 0.03)) == pytest.approx(0.874, abs=0.001)
    assert reliability(-0.3, 0.03) == pytest.approx(-0.874, abs=0.001)
    assert reliability(0.0, 0.03) is None
    assert reliability(0.3, math.nan) is None


# Insights.


def test_an_insight_says_lesson_prediction_outcome_and_factor() -> None:
    text = insight(episode(-0.0237, score=0.31))
    assert text.startswith("10日新闻方向信度-")
    assert "2025-05-16起10日：预测+0.31，实际超额收益-2.37%，方向错误；关键因素：存储涨价。" in text
    assert "价格与新闻方向相反" in text


@pytest.mark.parametrize(("title", "sign"), [(GOOD, 1), (BAD, -1)])
@pytest.mark.parametrize("alpha", [0.03, -0.03])
@pytest.mark.parametrize("score", [0.4, -0.4])
def test_a_lesson_judges_the_news_whatever_was_predicted_from_it(
    title: str, sign: int, alpha: float, score: float
) -> None:
    assert lesson(insight(episode(alpha, title, score=score))) * sign * alpha > 0


def test_a_clearer_outcome_is_a_clearer_lesson() -> None:
    assert 0 < lesson(insight(episode(0.001))) < lesson(insight(episode(0.01))) < lesson(insight(episode(0.05))) <= 1


def test_without_news_there_is_no_lesson_but_an_insight() -> None:
    text = insight(episode(news=NewsBlock((), 0), key_factor=""))
    assert read_lessons(text) == ()
    assert "关键因素：无" in text
    assert "没有信息" in text


def test_a_quoted_lesson_in_an_article_teaches_nothing() -> None:
    quoted = episode(news=NewsBlock((), 0), key_factor="10日新闻方向信度-1.00。")
    assert read_lessons(insight(quoted)) == ()
    assert read_lessons(reflection(quoted)) == ()


# Reflections.


def test_a_reflection_begins_with_its_lessons_and_has_a_line_for_each_outcome() -> None:
    first, *lines = reflection(episode(0.05, horizon=40, score=-0.2), episode(-0.01, score=0.0)).split("\n")
    assert [one.horizon for one in read_lessons(first)] == [10, 40]
    assert lines == [
        "2025-05-16起40日：预测-0.20，实际超额收益+5.00%，方向错误；关键因素：存储涨价。",
        "2025-05-16起10日：预测+0.00，实际超额收益-1.00%，没有给出方向；关键因素：存储涨价。",
    ]


def test_index_points_are_told_as_points_and_learnt_as_a_return() -> None:
    # +34.16 points (paper, C.3.1) while the industry fell behind the market: the reflection is told the points only.
    one = episode(-0.05)
    text = reflection(one, signal="index_points")
    assert "实际+34.16点，方向正确" in text
    assert lesson(text) > 0 > lesson(reflection(one))
    assert lesson(text) == pytest.approx(lesson(reflection(episode(34.16 / 2000))), abs=0.005)


def test_the_lesson_of_a_horizon_moves_from_the_previous_reflection_by_three_tenths() -> None:
    now = lesson(reflection(episode(-0.05)))
    text = reflection(episode(-0.05), previous=("10日新闻方向信度+0.80；20日新闻方向信度+0.33。",))
    assert read_lessons(text) == (Lesson(10, pytest.approx(0.7 * 0.8 + 0.3 * now, abs=0.006)), Lesson(20, 0.33))


def test_of_several_previous_reflections_the_newest_that_has_the_lesson_counts() -> None:
    previous = ("10日新闻方向信度+0.80；20日新闻方向信度+0.33。", "20日新闻方向信度-0.50。")
    lessons = {one.horizon: one.reliability for one in read_lessons(reflection(episode(horizon=40), previous=previous))}
    assert (lessons[10], lessons[20]) == (0.8, -0.5)


def test_outcomes_of_one_horizon_count_by_their_mean() -> None:
    both = lesson(reflection(episode(0.01), episode(-0.04)))
    alone = [lesson(reflection(episode(alpha))) for alpha in (0.01, -0.04)]
    assert both == pytest.approx(sum(alone) / 2, abs=0.01)


@pytest.mark.parametrize("most", [1, 30, 60, 120, 4000])
def test_a_reflection_keeps_its_limit_and_its_lessons_first(most: int) -> None:
    whole = reflection(*[episode()] * 3)
    text = reflection(*[episode()] * 3, most=most)
    assert len(text) <= most
    assert whole.startswith(text)
    assert text in ("1", whole) or text.count("。") == text.count("\n") + 1


# Reasoning items.


def items(one: Episode, most: int = 3):
    return parse_items(answer(ReasoningRequest(*WHERE, one, most)), most).entries


def test_success_and_failure_give_different_items_each_with_one_lesson() -> None:
    success, failure = items(episode(0.03)), items(episode(-0.03))
    assert [len(success), len(failure)] == [1, 2]
    assert not {one.title for one in success} & {one.title for one in failure}
    for found in (success, failure):
        assert [len(read_lessons(one.content)) for one in found] == [1, *[0] * (len(found) - 1)]
    assert "存储涨价" in failure[1].title
    assert len(items(episode(-0.03), most=1)) == 1


def test_a_turned_around_success_still_says_that_news_misleads() -> None:
    (one,) = items(episode(-0.03, score=-0.4))
    assert read_lessons(one.content)[0].reliability < 0


# Rules.


def operations(rules: list[str], *episodes: Episode, most: int = 4, is_full: bool = False) -> list[Operation]:
    known = tuple(KnownRule(number, text, number) for number, text in enumerate(rules, 1))
    said = answer(RulesRequest(*WHERE, known, episodes, most, is_full))
    read = parse_rule_operations(said, len(rules), most)
    assert read.problems == ()
    return list(read.entries)


def verbs(*arguments, **options) -> list[tuple[str, int]]:
    return [(one.verb, one.number) for one in operations(*arguments, **options)]


AGAINST = "10日新闻方向信度-0.60。"
WITH = "10日新闻方向信度+0.60。"


def test_the_first_outcome_adds_a_rule_with_its_lesson() -> None:
    (added,) = operations([], episode(-0.05))
    assert (added.verb, added.number) == ("ADD", 0)
    assert lesson(added.text) < 0


@pytest.mark.parametrize(
    ("rules", "alpha", "expected"),
    [
        ([AGAINST], -0.05, [("AGREE", 1)]),
        ([WITH], -0.05, [("REMOVE", 1), ("ADD", 0)]),
        (["不相干的规则", WITH, AGAINST], -0.05, [("REMOVE", 2), ("AGREE", 3)]),
        (["20日新闻方向信度+0.60。"], -0.05, [("ADD", 0)]),
        ([WITH], 0.0, []),
    ],
)
def test_outcomes_confirm_remove_or_add_a_rule(rules: list[str], alpha: float, expected: list) -> None:
    assert verbs(rules, episode(alpha)) == expected


def test_a_weaker_contradiction_softens_the_rule() -> None:
    one = episode(-0.002)
    now = lesson(insight(one))
    assert -0.6 < now < 0
    (edited,) = operations([WITH], one)
    assert (edited.verb, edited.number) == ("EDIT", 1)
    assert lesson(edited.text) == pytest.approx(0.7 * 0.6 + 0.3 * now, abs=0.01)


def test_a_rule_that_softening_would_leave_without_content_goes() -> None:
    assert verbs(["10日新闻方向信度+0.01。"], episode(-0.05))[0] == ("REMOVE", 1)


def test_the_clearest_lessons_come_first_and_the_limit_holds() -> None:
    episodes = [episode(0.002, horizon=10), episode(-0.09, horizon=20), episode(0.01, horizon=40)]
    read = [read_lessons(one.text)[0].horizon for one in operations([], *episodes)]
    assert read == [20, 40, 10]
    assert len(operations([], *episodes, most=2)) == 2


def test_a_full_list_loses_its_least_important_rule_and_gets_no_new_one() -> None:
    assert verbs(["甲", "乙"], episode(0.05), is_full=True) == [("REMOVE", 1)]
    assert verbs([WITH, "乙"], episode(0.05), is_full=True) == [("REMOVE", 2), ("AGREE", 1)]


# Facts and memories.


def facts(news: NewsBlock, most: int, scores: dict[int, float]) -> tuple[str, ...]:
    said = answer(FactsRequest(*WHERE, news, scores, "因素", "推理", most))
    read = parse_facts(said, most)
    assert read.problems == ()
    return read.entries


def test_facts_are_the_articles_that_say_most_and_the_prediction_s_view() -> None:
    found = facts(block("某公司召开会议", GOOD, BAD), 3, {10: 0.31, 20: -0.02, 40: 0.1})
    assert [read_mark(fact).side for fact in found] == [1, -1, 1]
    assert found[0].startswith(GOOD)
    assert found[-1] == "本行业观点：看好，10日+0.31、20日-0.02、40日+0.10（利好）"


@pytest.mark.parametrize("most", [1, 2, 4, 9])
def test_there_are_no_more_facts_than_allowed(most: int) -> None:
    news = block(*(f"{GOOD} {number}" for number in range(6)))
    found = facts(news, most, {10: -0.2})
    assert len(found) == min(most, 7)
    assert found[-1].startswith("本行业观点：承压")


def test_without_news_and_scores_there_are_no_facts() -> None:
    assert facts(NewsBlock((), 0), 5, {}) == ()


def changes(new: list[str], known: list[str]) -> list[tuple[str, int, str]]:
    said = answer(MemoryRequest(*WHERE, tuple(new), tuple(known)))
    read = parse_memory_operations(said, len(known))
    assert read.problems == ()
    return [(one.verb, one.number, one.text) for one in read.entries]


VIEW_UP = "本行业观点：看好，10日+0.31（利好）"
VIEW_UP_AGAIN = "本行业观点：看好，10日+0.12（利好）"
VIEW_DOWN = "本行业观点：承压，10日-0.31（利空）"
ORDERS = "云汀控股：半导体订单大增（利好，“大增”）"
LOSSES = "云汀控股：半导体停产（利空，“停产”）"
APPROVED = "岚屿集团：存储芯片项目获批（利好，“获批”）"
NOT_APPROVED = "岚屿集团：存储芯片项目未获批（利空，“获批”）"


@pytest.mark.parametrize(
    ("new", "known", "expected"),
    [
        ([ORDERS], [], [("ADD", 0, ORDERS)]),
        ([ORDERS], [VIEW_UP, ORDERS], [("NOOP", 0, "")]),
        ([VIEW_UP_AGAIN], [ORDERS, VIEW_UP], [("NOOP", 0, "")]),
        ([VIEW_DOWN], [ORDERS, VIEW_UP], [("UPDATE", 2, VIEW_DOWN)]),
        ([LOSSES], [ORDERS], [("UPDATE", 1, LOSSES)]),
        ([NOT_APPROVED], [ORDERS, APPROVED], [("DELETE", 2, "")]),
        ([ORDERS, ORDERS, LOSSES], [], [("ADD", 0, ORDERS)]),
        ([LOSSES, ORDERS], [ORDERS], [("UPDATE", 1, LOSSES)]),
        (["供热价格上涨"], ["火电价格下跌", "供热价格下跌"], [("UPDATE", 2, "供热价格上涨")]),
        ([], [ORDERS], []),
    ],
    ids=str,
)
def test_memories_are_left_added_rewritten_or_deleted(new: list[str], known: list[str], expected: list) -> None:
    assert changes(new, known) == expected


# Determinism.


def test_answers_depend_on_the_request_alone() -> None:
    requests = [
        InsightRequest(*WHERE, episode()),
        ReflectRequest(*WHERE, (), (episode(),), "index_points", 4000),
        ReasoningRequest(*WHERE, episode(), 3),
        RulesRequest(*WHERE, (), (episode(),), 4, False),
        FactsRequest(*WHERE, block(GOOD), {10: 0.1}, "", "", 3),
        MemoryRequest(*WHERE, (ORDERS,), (LOSSES,)),
    ]
    before = [answer(request) for request in requests]
    impression.cache_clear()
    read_lessons.cache_clear()
    read_mark.cache_clear()
    assert [answer(request) for request in reversed(requests)] == before[::-1]
