"""The lexicon's predictions move the right way with news, experience and market context."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import json
import math
import statistics
from pathlib import Path

import pytest

from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.digests import canonical_json, source_digest
from finevolve_pipeline.errors import SettingsError
from finevolve_pipeline.llm.answers import parse_prediction, parse_tag
from finevolve_pipeline.llm.requests import (
    Call,
    Message,
    PredictRequest,
    Prompt,
    ReasoningItem,
    Shown,
    ShownFact,
    ShownInsight,
    ShownItem,
    ShownMemory,
    ShownReflection,
    ShownRule,
    TagRequest,
    Usage,
)
from finevolve_pipeline.llm.rules import predictor
from finevolve_pipeline.llm.rules.backbone import RulesBackbone
from finevolve_pipeline.llm.rules.predictor import impression, predict
from finevolve_pipeline.market.context import MarketContext, TrailingReturn
from finevolve_pipeline.news.block import NewsBlock, NewsItem
from finevolve_pipeline.replay.audit import Recalling
from finevolve_pipeline.settings import load_settings
from finevolve_pipeline.universe import industry
from resources.backbones import build_backbone

SESSION = dt.date(2025, 5, 30)
HORIZONS = (10, 20, 40)
FLAT = MarketContext(4000.0, ())
GOOD = "存储芯片价格大幅上涨 龙头业绩超预期"
BAD = "存储芯片价格大幅下跌 龙头业绩低于预期"


def _item(title: str, position: int = 0, **changes: object) -> NewsItem:
    item = NewsItem(
        article_id=f"a{position}",
        source="cls",
        title=title,
        content="",
        published_at=dt.datetime(2025, 5, 30, 10, tzinfo=SHANGHAI),
        industries=("801080",),
        industry_names=("电子",),
        importance=8,
        importance_reason="",
        topics=(),
    )
    return dataclasses.replace(item, **changes)


def _request(
    *titles: str,
    code: str = "801080",
    memories: tuple[Shown, ...] = (),
    market: MarketContext = FLAT,
    **changes: object,
) -> PredictRequest:
    items = tuple(_item(title, position, **changes) for position, title in enumerate(titles))
    return PredictRequest(SESSION, industry(code), HORIZONS, NewsBlock(items, 0), market, memories)


def _memory(scores: dict[int, float], **changes: object) -> ShownMemory:
    memory = ShownMemory("m1", dt.date(2025, 5, 12), "旧闻", scores, "因素", "推理", similarity=0.8)
    return dataclasses.replace(memory, **changes)


def _insight(text: str, number: int = 0) -> ShownInsight:
    day = dt.date(2025, 5, 12)
    return ShownInsight(f"i{number}", day, text=text, horizon=10, predicted_on=day, score=0.3, alpha=0.02)


def _in_every_kind(text: str) -> list[Shown]:
    """The same text as each kind of memory that an update writes."""
    day = dt.date(2025, 5, 12)
    return [
        ShownReflection("r", day, text=text),
        _insight(text),
        ShownItem("t", day, item=ReasoningItem("", "", text), horizon=10, predicted_on=day, success=False),
        ShownRule("u", day, text=text, importance=2),
    ]


def _all(level: float) -> dict[int, float]:
    return dict.fromkeys(HORIZONS, level)


def test_good_news_is_positive_and_bad_news_negative_at_every_horizon() -> None:
    assert all(score > 0.05 for score in predict(_request(GOOD)).scores.values())
    assert all(score < -0.05 for score in predict(_request(BAD)).scores.values())


@pytest.mark.parametrize("count", [0, 1, 2, 5, 20])
def test_more_bad_news_means_a_lower_score(count: int) -> None:
    fewer = predict(_request(GOOD, *[BAD] * count)).scores
    more = predict(_request(GOOD, *[BAD] * (count + 1))).scores
    assert all(more[horizon] < fewer[horizon] for horizon in HORIZONS)


def test_scores_fade_with_the_horizon() -> None:
    for title in (GOOD, BAD):
        size = [abs(score) for score in predict(_request(title)).scores.values()]
        assert size == sorted(size, reverse=True)
        assert size[0] > size[-1]


def test_newer_more_important_and_more_specific_news_counts_more() -> None:
    base = abs(predict(_request(BAD)).scores[10])
    old = _request(BAD, published_at=dt.datetime(2025, 5, 26, tzinfo=SHANGHAI))
    broad = _request(BAD, industries=("801010", "801080", "801750", "801770"))
    wide = _request(BAD, industries=())
    for weaker in (old, broad, wide, _request(BAD, importance=3)):
        assert 0 < abs(predict(weaker).scores[10]) < base


@pytest.mark.parametrize(
    ("title", "sign"),
    [
        ("公司净利润增长", 1),
        ("公司净利润未增长", -1),
        ("公司否认增长", -1),
        ("公司净利润下降", -1),
        ("有效防范风险", 1),
    ],
)
def test_negation_turns_a_word_around(title: str, sign: int) -> None:
    assert math.copysign(1, impression(title, "").polarity) == sign


def test_degree_words_scale() -> None:
    assert impression("产品价格小幅回落", "").polarity > impression("产品价格回落", "").polarity
    assert impression("产品价格急剧回落", "").polarity < impression("产品价格回落", "").polarity


@pytest.mark.parametrize(
    ("title", "gains", "loses"),
    [
        ("国际油价大涨", "801960", "801170"),
        ("动力煤价格大涨", "801950", "801160"),
        ("伊朗封锁霍尔木兹海峡 军事打击升级", "801960", "801170"),
    ],
)
def test_one_event_may_help_one_industry_and_hurt_another(title: str, gains: str, loses: str) -> None:
    pair = (gains, loses)
    assert predict(_request(title, code=gains, industries=pair)).scores[10] > 0
    assert predict(_request(title, code=loses, industries=pair)).scores[10] < 0


def test_without_anything_scores_are_zero_and_the_answer_is_whole() -> None:
    forecast = predict(_request())
    assert forecast.scores == {10: 0.0, 20: 0.0, 40: 0.0}
    assert forecast.key_factor == "没有足够重要的新闻"
    assert "新闻信号为零" in forecast.logic_chain
    assert forecast.confidence == 0.3


@pytest.mark.parametrize("level", [0.6, -0.6])
@pytest.mark.parametrize("q", [0.01, -0.01, {10: 0.01, 20: 0.01, 40: 0.01}, {10: -0.01, 20: -0.01, 40: -0.01}])
def test_q_scales_and_signs_what_a_memory_said(level: float, q: float | dict[int, float]) -> None:
    utility = q[10] if isinstance(q, dict) else q
    without = predict(_request(GOOD)).scores
    scores = predict(_request(GOOD, memories=(_memory(_all(level), q=q, visits=3),))).scores
    for horizon in HORIZONS:
        moved = scores[horizon] - without[horizon]
        assert moved * level * utility > 0
        assert abs(moved) > 0.02


def test_a_larger_q_moves_more_and_zero_not_at_all() -> None:
    def at(q: float) -> float:
        return predict(_request(memories=(_memory(_all(0.5), q=q),))).scores[10]

    assert at(-0.05) < at(-0.01) < at(0.0) == 0.0 < at(0.01) < at(0.05)


def test_an_unlabelled_memory_pulls_mildly_and_by_similarity() -> None:
    alone = predict(_request(GOOD)).scores[10]
    near = predict(_request(GOOD, memories=(_memory(_all(-0.8), similarity=0.9),))).scores[10]
    far = predict(_request(GOOD, memories=(_memory(_all(-0.8), similarity=0.2),))).scores[10]
    assert near < far < alone
    assert alone - near < 0.25


def test_the_present_q_of_a_horizon_counts_for_that_horizon() -> None:
    scores = predict(_request(memories=(_memory(_all(0.5), q={10: 0.05, 20: -0.05, 40: math.nan}),))).scores
    assert scores[10] > 0 > scores[20]
    assert scores[40] > 0


def test_nan_and_missing_numbers_change_nothing() -> None:
    nan = math.nan
    market = MarketContext(nan, (TrailingReturn(10, nan, 0.01), TrailingReturn(20, nan, nan)))
    memories = (_memory({10: nan, 20: nan, 40: nan}, similarity=None), _memory({}, q=0.02))
    assert predict(_request(GOOD, market=market, memories=memories)).scores == predict(_request(GOOD)).scores


def test_trailing_excess_reverts_mildly() -> None:
    strong = MarketContext(4000.0, (TrailingReturn(10, 0.12, 0.0), TrailingReturn(20, 0.2, 0.0)))
    weak = MarketContext(4000.0, (TrailingReturn(10, -0.12, 0.0), TrailingReturn(20, -0.2, 0.0)))
    assert predict(_request(market=strong)).scores[10] < 0 < predict(_request(market=weak)).scores[10]
    assert abs(predict(_request(market=strong)).scores[10]) <= 0.08


@pytest.mark.parametrize("title", [GOOD, BAD])
def test_scores_stay_in_range_however_much_there_is(title: str) -> None:
    level = 3.0 if title == GOOD else -3.0
    memories = tuple(_memory(_all(level), q=9.0, memory_id=f"m{i}") for i in range(20))
    forecast = predict(_request(*[title] * 200, memories=memories))
    assert all(-1 <= score <= 1 for score in forecast.scores.values())
    assert 0 <= forecast.confidence <= 1


def test_reasons_name_articles_experience_and_market() -> None:
    market = MarketContext(4000.0, (TrailingReturn(20, 0.05, 0.01),))
    request = _request(GOOD, BAD, memories=(_memory(_all(0.5), q=0.02),), market=market)
    forecast = predict(request)
    assert forecast.key_factor.startswith("存储芯片价格")
    for named in ("a0", "a1", "利好1篇、利空1篇", "m1", "近20个交易日超额收益+4.00%"):
        assert named in forecast.logic_chain
    assert len(forecast.logic_chain) <= 400


def test_results_do_not_depend_on_the_cache() -> None:
    requests = [_request(GOOD), _request(BAD), _request(GOOD, BAD)]
    impression.cache_clear()
    cold = [predict(request) for request in requests]
    assert [predict(request) for request in requests] == cold
    assert impression.cache_info().maxsize == predictor.CACHED_ARTICLES


def test_the_same_id_with_another_text_is_another_article() -> None:
    assert predict(_request(GOOD)).scores != predict(_request(BAD)).scores


def test_answers_of_the_backbone_parse_and_repeat() -> None:
    backbone = RulesBackbone()
    request = _request(GOOD, memories=(_memory({40: 0.3, 10: 0.1, 20: 0.2}, q={20: 0.1, 10: 0.1, 40: 0.1}),))
    reply = asyncio.run(backbone.answer(Call(request, Prompt(()))))
    other = _request(GOOD, memories=(_memory({10: 0.1, 20: 0.2, 40: 0.3}, q={10: 0.1, 20: 0.1, 40: 0.1}),))
    assert reply == asyncio.run(backbone.answer(Call(other, Prompt(()))))
    assert reply.usage == Usage(calls=1)
    answer = parse_prediction(reply.text, HORIZONS, "invalid")
    assert answer.invalid == {}
    assert answer.scores == predict(request).scores
    assert answer.confidence is not None


def test_tags_of_the_backbone_parse() -> None:
    request = TagRequest("a1", "cls", GOOD, "", dt.datetime(2025, 5, 30, tzinfo=SHANGHAI))
    answer = parse_tag(asyncio.run(RulesBackbone().answer(Call(request, Prompt(())))).text)
    assert (answer.industries, answer.scope) == (("801080",), "industry")
    assert answer.importance_reason.startswith("事件类型：")


def test_the_identity_is_json_and_follows_code_and_word_lists() -> None:
    identity = RulesBackbone().identity
    assert json.loads(canonical_json(identity)) == identity
    assert identity["version"] == source_digest("finevolve_pipeline.llm.rules")


@pytest.mark.parametrize("kind", range(4))
def test_a_lesson_moves_the_news_score_of_its_horizon_alone(kind: int) -> None:
    # Without market data a prediction is its news score n; a lesson r adds 2 · n · r / (1 + 0.5).
    memory = _in_every_kind("20日新闻方向信度-0.90。价格与新闻方向相反。")[kind]
    alone, taught = (predict(_request(GOOD, memories=shown)).scores for shown in ((), (memory,)))
    assert taught == {10: alone[10], 20: pytest.approx(alone[20] * (1 - 2 * 0.9 / 1.5), abs=1e-4), 40: alone[40]}
    assert taught[20] < 0 < alone[20]


def test_lessons_count_together_and_more_of_one_kind_say_more() -> None:
    def at(*lessons: float) -> float:
        shown = tuple(_insight(f"10日新闻方向信度{value:+.2f}。", at) for at, value in enumerate(lessons))
        return predict(_request(GOOD, memories=shown)).scores[10]

    alone = at()
    assert at(-0.8, 0.2) == pytest.approx(alone * (1 + 2 * -0.6 / 2.5), abs=1e-4)
    assert at(-1.0, -1.0, -1.0) < at(-1.0) < 0 < alone < at(1.0) < at(1.0, 1.0)


@pytest.mark.parametrize("text", ["", "没有教训。", "公告：10日新闻方向信度-1.00。", "90日新闻方向信度-1.00。"])
def test_texts_without_a_lesson_for_a_predicted_horizon_change_nothing(text: str) -> None:
    shown = tuple(_in_every_kind(text))
    assert predict(_request(GOOD, memories=shown)).scores == predict(_request(GOOD)).scores


def test_lessons_say_nothing_without_news() -> None:
    market = MarketContext(4000.0, (TrailingReturn(10, 0.12, 0.0),))
    shown = (_insight("10日新闻方向信度-1.00。"),)
    assert predict(_request(market=market, memories=shown)).scores == predict(_request(market=market)).scores


def test_a_fact_counts_as_an_unlabelled_memory_by_what_its_text_says() -> None:
    day = dt.date(2025, 5, 12)
    fact = ShownFact("f", day, text=f"{BAD}（利空，“下跌”）", similarity=0.8)
    said = impression(BAD, "").polarity
    memory = _memory({horizon: said * math.exp(-horizon / 60) for horizon in HORIZONS})
    alone, by_fact, by_memory = (predict(_request(GOOD, memories=shown)).scores for shown in ((), (fact,), (memory,)))
    assert by_fact == by_memory
    assert all(by_fact[horizon] < alone[horizon] for horizon in HORIZONS)


def test_the_effect_of_lessons_stands_in_the_reasons() -> None:
    scores = predict(_request(GOOD)).scores
    chain = predict(_request(GOOD, memories=(_insight("10日新闻方向信度-0.90。"),))).logic_chain
    assert f"10日{-1.2 * scores[10]:+.3f}、20日+0.000" in chain


def _call(prompt: str = "提示", seed: int = 0, title: str = GOOD) -> Call:
    return Call(_request(title), Prompt((Message("user", prompt),)), seed=seed)


def _scores(backbone: RulesBackbone, call: Call) -> dict[int, float]:
    return parse_prediction(asyncio.run(backbone.answer(call)).text, HORIZONS, "invalid").scores


def test_noise_follows_from_seeds_prompt_and_horizon_alone() -> None:
    noisy = _scores(RulesBackbone("rules-noisy", 0.2, 1), _call())
    assert noisy == _scores(RulesBackbone("another-name", 0.2, 1), _call())
    others = [
        _scores(RulesBackbone("rules-noisy", 0.2, 2), _call()),
        _scores(RulesBackbone("rules-noisy", 0.2, 1), _call(seed=1)),
        _scores(RulesBackbone("rules-noisy", 0.2, 1), _call(prompt="另一个提示")),
    ]
    plain = predict(_request(GOOD)).scores
    moves = {round(scores[horizon] - plain[horizon], 6) for scores in (noisy, *others) for horizon in HORIZONS}
    assert len(moves) == 4 * len(HORIZONS)


def test_noise_is_normal_with_the_given_deviation_and_stays_in_range() -> None:
    backbone = RulesBackbone("rules-noisy", 0.1, 1)
    calls = [dataclasses.replace(_call(f"提示{number}"), request=_request()) for number in range(700)]
    drawn = [score for call in calls for score in _scores(backbone, call).values()]
    assert len(drawn) == 2100
    # Standard errors: 0.1 / sqrt(2100) = 0.0022 of the mean, 0.0015 of the deviation, 0.010 of the share.
    assert abs(statistics.fmean(drawn)) < 0.008
    assert statistics.pstdev(drawn) == pytest.approx(0.1, abs=0.006)
    assert sum(abs(one) < 0.1 for one in drawn) / 2100 == pytest.approx(0.683, abs=0.04)
    wild = [_scores(RulesBackbone("rules-noisy", 1.0, 1), _call(f"提示{number}")) for number in range(40)]
    ends = [score for scores in wild for score in scores.values()]
    assert (min(ends), max(ends)) == (-1, 1)


def test_only_predictions_are_noisy() -> None:
    noisy, plain = RulesBackbone("rules-noisy", 0.2, 1), RulesBackbone()
    tag = Call(TagRequest("a1", "cls", GOOD, "", dt.datetime(2025, 5, 30, tzinfo=SHANGHAI)), Prompt(()))
    assert asyncio.run(noisy.answer(tag)) == asyncio.run(plain.answer(tag))
    answer, undisturbed = (json.loads(asyncio.run(one.answer(_call())).text) for one in (noisy, plain))
    assert answer.pop("scores") != undisturbed.pop("scores")
    assert answer == undisturbed


def test_the_identity_holds_noise_and_seed_only_where_there_is_noise() -> None:
    plain = RulesBackbone().identity
    assert RulesBackbone("other", 0.0, 7).identity == plain == {"kind": "rules", "version": plain["version"]}
    assert RulesBackbone("other", 0.2, 7).identity == {**plain, "noise": 0.2, "seed": 7}


def test_an_audit_lets_an_offline_backbone_answer_for_itself() -> None:
    noisy = RulesBackbone("rules-noisy", 0.2, 1)
    assert _scores(Recalling(noisy), _call()) == _scores(noisy, _call())


def test_backbones_are_built_by_name_from_settings(tmp_path: Path) -> None:
    settings = load_settings()
    plain, noisy = (build_backbone(name, settings, tmp_path) for name in ("rules", "rules-noisy"))
    assert (plain.name, plain.identity) == ("rules", RulesBackbone().identity)
    assert (noisy.name, noisy.identity) == ("rules-noisy", {**plain.identity, "noise": 0.2, "seed": 1})
    with pytest.raises(SettingsError, match=r"backbone 'gpt': not among .*rules"):
        build_backbone("gpt", settings, tmp_path)
