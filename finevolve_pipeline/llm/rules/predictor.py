"""Predicts a sector's three scores by lexicon from news, experience and market context.

Notation: an article's impact s on the industry lies in [-1, 1]; its weight is
w = relevance · (importance/10)² · 2^(-age/3 days), relevance = 1/sqrt(number of industries it names), 0.3 for
market-wide news.

    news        n   = tanh(0.8 · Σ w·s / sqrt(1 + Σ w)),  fading with the horizon: n_h = n · exp(-h/60)
    reversion   r_h = -0.08 · tanh(12 · trailing excess return over h sessions, a fraction)
    unlabelled  u_h = 0.25 · c/(0.5 + c) · (mean score of memories without Q − n_h), c = Σ similarity
    judged      q_h = 0.6 · Σ similarity · tanh(60·Q) · score_h / (1 + Σ similarity · |tanh(60·Q)|)
    score       clip(n_h + r_h + u_h + q_h, -1, 1), 4 decimals

Q is a mean of score · excess return, so 0.01 is already a lot: tanh(60 · 0.01) = 0.54. Q > 0 repeats what
the memory said, Q < 0 opposes it. The denominators grow more slowly than the sums: more news of one kind says
more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from finevolve_pipeline.calendar import cutoff
from finevolve_pipeline.llm.requests import PredictRequest, ShownMemory
from finevolve_pipeline.llm.rules.lexicon import Matcher, load, words
from finevolve_pipeline.llm.rules.tagger import split
from finevolve_pipeline.market.context import MarketContext
from finevolve_pipeline.news.block import NewsItem

DECAY_SESSIONS = 60.0
HALF_LIFE_DAYS = 3.0
MARKET_WIDE = 0.3
Q_SCALE = 60.0
REACH = 3
CACHED_ARTICLES = 8192


@dataclass(frozen=True)
class Impression:
    """What an article says: `polarity` in [-1, 1] for an industry it is about, other `effects` by code."""

    polarity: float
    evidence: str
    effects: dict[str, float]


@dataclass(frozen=True)
class Forecast:
    """The answer's fields; `scores` by horizon in [-1, 1], `confidence` in [0, 1]."""

    scores: dict[int, float]
    confidence: float
    key_factor: str
    logic_chain: str


@dataclass(frozen=True)
class _ToneWord:
    tone: float = 0.0
    negates: bool = False
    degree: float = 1.0
    factors: tuple[int, ...] = ()
    events: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Tones:
    matcher: Matcher[_ToneWord]
    factors: tuple[dict[str, float], ...]
    events: tuple[dict[str, float], ...]


@dataclass(frozen=True)
class _Weighed:
    item: NewsItem
    weight: float
    impact: float
    evidence: str


@lru_cache(maxsize=1)
def _tones() -> _Tones:
    table = load("sentiment.toml")
    tone: dict[str, float] = {}
    for sign, side in ((1.0, "good"), (-1.0, "bad")):
        for strength, listed in table[side].items():
            for word in words(listed):
                tone.setdefault(word, sign * float(strength))
    negates = set(words(table["negation"]["words"]))
    degree = {word: float(times) for times, listed in table["degree"].items() for word in words(listed)}
    marks: dict[str, dict[str, list[int]]] = {}
    for kind in ("factor", "event"):
        for position, entry in enumerate(table[kind]):
            for word in words(entry["words"]):
                marks.setdefault(word, {}).setdefault(kind, []).append(position)
    entries = {
        word: _ToneWord(
            tone=tone.get(word, 0.0),
            negates=word in negates,
            degree=degree.get(word, 1.0),
            factors=tuple(marks.get(word, {}).get("factor", ())),
            events=tuple(marks.get(word, {}).get("event", ())),
        )
        for word in (*tone, *negates, *degree, *marks)
    }
    return _Tones(
        Matcher(entries),
        tuple(dict(entry["effects"]) for entry in table["factor"]),
        tuple(dict(entry["effects"]) for entry in table["event"]),
    )


@lru_cache(maxsize=CACHED_ARTICLES)
def impression(title: str, content: str) -> Impression:
    """Reads one article. Headline words count double; a negation shortly before turns a word around."""
    head, body = split(title, content)
    known = _tones()
    total = 0.0
    strongest, evidence = 0.0, ""
    negated_until = intensified_until = -1
    times = 1.0
    factors: set[int] = set()
    happened: set[int] = set()
    for start, word, said in known.matcher.longest(f"{head}\n{body}"):
        top = start < len(head)
        if said.tone:
            tone = said.tone * (2.0 if top else 1.0)
            if start <= intensified_until:
                tone *= times
            if start <= negated_until:
                tone *= -0.8
            total += tone
            if abs(tone) > abs(strongest):
                strongest, evidence = tone, word
        end = start + len(word)
        if said.negates:
            negated_until = end + REACH - 1
        if said.degree != 1.0:
            intensified_until, times = end + REACH - 1, said.degree
        if top:
            factors.update(said.factors)
            happened.update(said.events)
    polarity = math.tanh(total / 3.0)
    effects: dict[str, float] = {}
    for position in sorted(factors):
        for code, effect in known.factors[position].items():
            effects[code] = effects.get(code, 0.0) + polarity * effect
    for position in sorted(happened):
        for code, effect in known.events[position].items():
            effects[code] = effects.get(code, 0.0) + effect
    bounded = {code: max(-1.0, min(1.0, effect)) for code, effect in effects.items()}
    return Impression(polarity, evidence, bounded)


def predict(request: PredictRequest) -> Forecast:
    """Scores for every horizon of the request, with the reasons in Chinese."""
    weighed = _weigh(request)
    news = _news_score(weighed)
    shares = [_experience(request.memories, horizon, news * _fade(horizon)) for horizon in request.horizons]
    scores = {}
    for horizon, experience in zip(request.horizons, shares, strict=True):
        raw = news * _fade(horizon) + _reversion(request.market, horizon) + experience
        scores[horizon] = round(max(-1.0, min(1.0, raw)), 4) + 0.0
    return Forecast(
        scores=scores,
        confidence=_confidence(weighed),
        key_factor=_key_factor(weighed),
        logic_chain=_logic_chain(request, weighed, shares),
    )


def _fade(horizon: int) -> float:
    return math.exp(-horizon / DECAY_SESSIONS)


def _weigh(request: PredictRequest) -> list[_Weighed]:
    code = request.industry.code
    end = cutoff(request.session)
    weighed = []
    for item in request.news.items:
        said = impression(item.title, item.content)
        impact = said.effects.get(code, said.polarity)
        relevance = 1.0 / math.sqrt(len(item.industries)) if item.industries else MARKET_WIDE
        age = max(0.0, (end - item.published_at).total_seconds() / 86_400)
        weight = relevance * (item.importance / 10) ** 2 * 0.5 ** (age / HALF_LIFE_DAYS)
        weighed.append(_Weighed(item, weight, impact, said.evidence))
    return weighed


def _news_score(weighed: list[_Weighed]) -> float:
    mass = sum(one.weight for one in weighed)
    return math.tanh(0.8 * sum(one.weight * one.impact for one in weighed) / math.sqrt(1.0 + mass))


def _reversion(market: MarketContext, horizon: int) -> float:
    excess = [(abs(back.sessions - horizon), back.excess) for back in market.trailing if not math.isnan(back.excess)]
    return -0.08 * math.tanh(12 * min(excess)[1]) if excess else 0.0


def _utility(memory: ShownMemory, horizon: int) -> float | None:
    q = memory.q.get(horizon) if isinstance(memory.q, dict) else memory.q
    return None if q is None or math.isnan(q) else q


def _experience(memories: tuple[ShownMemory, ...], horizon: int, news: float) -> float:
    """What the memories add to a horizon's score, given what the news says."""
    closeness = total = judged = judged_weight = 0.0
    for memory in memories:
        score = memory.scores.get(horizon, math.nan)
        if math.isnan(score):
            continue
        similarity = 0.5 if memory.similarity is None else max(0.0, memory.similarity)
        q = _utility(memory, horizon)
        if q is None:
            closeness += similarity
            total += similarity * score
        else:
            weight = similarity * math.tanh(Q_SCALE * q)
            judged += weight * score
            judged_weight += abs(weight)
    pull = 0.25 * closeness / (0.5 + closeness) * (total / closeness - news) if closeness else 0.0
    return pull + 0.6 * judged / (1.0 + judged_weight)


def _confidence(weighed: list[_Weighed]) -> float:
    """More news that agrees means more confidence: 0.3 without any, at most 0.9."""
    mass = sum(one.weight for one in weighed)
    told = sum(one.weight * abs(one.impact) for one in weighed)
    agreement = abs(sum(one.weight * one.impact for one in weighed)) / told if told else 0.0
    return round(0.3 + 0.6 * (1.0 - math.exp(-mass)) * agreement, 2)


def _ranked(weighed: list[_Weighed]) -> list[_Weighed]:
    return sorted(weighed, key=lambda one: (-abs(one.weight * one.impact), one.item.article_id))


def _side(value: float) -> str:
    return "利好" if value > 0 else "利空" if value < 0 else "中性"


def _key_factor(weighed: list[_Weighed]) -> str:
    if not weighed:
        return "没有足够重要的新闻"
    first = _ranked(weighed)[0]
    word = f"，“{first.evidence}”" if first.evidence else ""
    return f"{(first.item.title or first.item.content)[:40]}（{_side(first.impact)}{word}）"


def _logic_chain(request: PredictRequest, weighed: list[_Weighed], shares: list[float]) -> str:
    parts = []
    if weighed:
        good = sum(one.impact > 0 for one in weighed)
        bad = sum(one.impact < 0 for one in weighed)
        named = "、".join(f"{one.item.article_id[:40]}{_side(one.impact)}" for one in _ranked(weighed)[:3])
        parts.append(
            f"{request.industry.name_zh}共{len(weighed)}篇新闻，利好{good}篇、利空{bad}篇，权重最大的是{named}"
        )
    else:
        parts.append(f"{request.industry.name_zh}没有足够重要的新闻，新闻信号为零")
    if request.memories:
        effects = "、".join(f"{h}日{share:+.3f}" for h, share in zip(request.horizons, shares, strict=True))
        named = "、".join(memory.memory_id[:30] for memory in request.memories[:3])
        parts.append(f"参考{len(request.memories)}条经验（{named}），对得分的影响为{effects}")
    known = [back for back in request.market.trailing if not math.isnan(back.excess)]
    if known:
        last = max(known, key=lambda back: back.sessions)
        parts.append(f"近{last.sessions}个交易日超额收益{last.excess:+.2%}，计入轻微的均值回复")
    parts.append("新闻影响随期限衰减")
    return "；".join(parts) + "。"
