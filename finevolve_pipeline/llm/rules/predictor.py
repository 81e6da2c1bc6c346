"""Predicts a sector's three scores by lexicon from news, experience and market context.

Notation: an article's impact s on the industry lies in [-1, 1]; its weight is
w = relevance · (importance/10)² · 2^(-age/3 days), relevance = 1/sqrt(number of industries it names), 0.3 for
market-wide news.

    news        n   = tanh(0.8 · Σ w·s / sqrt(1 + Σ w)),  fading with the horizon: n_h = n · exp(-h/60)
    reversion   r_h = -0.08 · tanh(12 · trailing excess return over h sessions, a fraction)
    unlabelled  u_h = 0.25 · c/(0.5 + c) · (mean score of memories without Q − n_h), c = Σ similarity
    judged      q_h = 0.6 · Σ similarity · tanh(60·Q) · score_h / (1 + Σ similarity · |tanh(60·Q)|)
    learnt      l_h = 2 · n_h · Σ r / (k + 0.5), over the k lessons r for horizon h in the texts shown (see `lessons`)
    score       clip(n_h + r_h + u_h + q_h + l_h, -1, 1), 4 decimals

Q is a mean of score · excess return, so 0.01 is already a lot: tanh(60 · 0.01) = 0.54. Q > 0 repeats what
the memory said, Q < 0 opposes it. The denominators grow more slowly than the sums: more news of one kind says
more. A fact counts as an unlabelled memory whose score is the impact s of its text, fading like n. Lessons double or
triple the news score where news could be trusted, and turn it around where prices went against it: one full lesson
against it makes −n_h/3, ten make −0.9 · n_h.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from finevolve_pipeline.calendar import cutoff
from finevolve_pipeline.llm.requests import (
    Language,
    PredictRequest,
    Shown,
    ShownFact,
    ShownInsight,
    ShownItem,
    ShownMemory,
    ShownReflection,
    ShownRule,
)
from finevolve_pipeline.llm.rules.lessons import Lesson, mark, read_lessons, read_mark, side_word
from finevolve_pipeline.llm.rules.lexicon import Matcher, load, words
from finevolve_pipeline.llm.rules.tagger import split
from finevolve_pipeline.market.context import MarketContext
from finevolve_pipeline.news.block import NewsBlock, NewsItem

DECAY_SESSIONS = 60.0
HALF_LIFE_DAYS = 3.0
MARKET_WIDE = 0.3
Q_SCALE = 60.0
LEARNT = 2.0
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
class Weighed:
    """An article as it counts for an industry: weight w, impact s, and the word that says most."""

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


def predict(request: PredictRequest, language: Language = "zh") -> Forecast:
    """Scores for every horizon of the request, with the reasons in a language."""
    weighed = weigh(request.news, request.industry.code, request.session)
    news = news_score(weighed)
    lessons = _lessons(request.memories)
    opinions = _opinions(request)
    shares = [_experience(opinions, lessons, horizon, news * fade(horizon)) for horizon in request.horizons]
    scores = {}
    for horizon, experience in zip(request.horizons, shares, strict=True):
        raw = news * fade(horizon) + _reversion(request.market, horizon) + experience
        scores[horizon] = as_score(raw)
    return Forecast(
        scores=scores,
        confidence=_confidence(weighed),
        key_factor=_key_factor(weighed, language),
        logic_chain=_logic_chain(request, weighed, shares, language),
    )


def as_score(raw: float) -> float:
    """A number as a score: within [-1, 1], 4 decimals, no negative zero."""
    return round(max(-1.0, min(1.0, raw)), 4) + 0.0


def fade(horizon: int) -> float:
    """How much of the news score is left for a horizon."""
    return math.exp(-horizon / DECAY_SESSIONS)


def weigh(news: NewsBlock, code: str, session: dt.date) -> list[Weighed]:
    """The articles as they count for an industry at the cutoff of `session`, in their order."""
    end = cutoff(session)
    weighed = []
    for item in news.items:
        said = impression(item.title, item.content)
        impact = said.effects.get(code, said.polarity)
        relevance = 1.0 / math.sqrt(len(item.industries)) if item.industries else MARKET_WIDE
        age = max(0.0, (end - item.published_at).total_seconds() / 86_400)
        weight = relevance * (item.importance / 10) ** 2 * 0.5 ** (age / HALF_LIFE_DAYS)
        weighed.append(Weighed(item, weight, impact, said.evidence))
    return weighed


def news_score(weighed: Sequence[Weighed]) -> float:
    """n of the articles, in [-1, 1], before it fades."""
    mass = sum(one.weight for one in weighed)
    return math.tanh(0.8 * sum(one.weight * one.impact for one in weighed) / math.sqrt(1.0 + mass))


def ranked(weighed: Sequence[Weighed]) -> list[Weighed]:
    """The articles that say most first; ties by id."""
    return sorted(weighed, key=lambda one: (-abs(one.weight * one.impact), one.item.article_id))


def described(one: Weighed, language: Language = "zh") -> str:
    """An article as one phrase: the beginning of its title with its side and the word that decided it."""
    return mark((one.item.title or one.item.content)[:40], one.impact, one.evidence, language)


def _reversion(market: MarketContext, horizon: int) -> float:
    excess = [(abs(back.sessions - horizon), back.excess) for back in market.trailing if not math.isnan(back.excess)]
    return -0.08 * math.tanh(12 * min(excess)[1]) if excess else 0.0


def _lessons(memories: Sequence[Shown]) -> list[Lesson]:
    """What the texts among the memories teach."""
    return [lesson for memory in memories for lesson in read_lessons(_text_of(memory))]


def _text_of(memory: Shown) -> str:
    """The text that an update wrote; empty for memories that are not of that kind."""
    match memory:
        case ShownReflection() | ShownInsight() | ShownRule():
            return memory.text
        case ShownItem():
            return memory.item.content
        case _:
            return ""


@dataclass(frozen=True)
class _Opinion:
    """What a memory said, by horizon in [-1, 1], how near it is, and what it turned out to be worth."""

    scores: dict[int, float]
    similarity: float | None
    q: float | dict[int, float] | None

    def utility(self, horizon: int) -> float | None:
        q = self.q.get(horizon) if isinstance(self.q, dict) else self.q
        return None if q is None or math.isnan(q) else q


def _opinions(request: PredictRequest) -> list[_Opinion]:
    """Earlier predictions as they stand, facts by what their text says of the industry."""
    found = []
    for memory in request.memories:
        if isinstance(memory, ShownMemory):
            found.append(_Opinion(memory.scores, memory.similarity, memory.q))
        elif isinstance(memory, ShownFact):
            said = impression(read_mark(memory.text).text, "")
            lean = said.effects.get(request.industry.code, said.polarity)
            scores = {horizon: lean * fade(horizon) for horizon in request.horizons}
            found.append(_Opinion(scores, memory.similarity, memory.q))
    return found


def _experience(opinions: Sequence[_Opinion], lessons: Sequence[Lesson], horizon: int, news: float) -> float:
    """What experience adds to a horizon's score, given what the news says."""
    closeness = total = judged = judged_weight = 0.0
    for opinion in opinions:
        score = opinion.scores.get(horizon, math.nan)
        if math.isnan(score):
            continue
        similarity = 0.5 if opinion.similarity is None else max(0.0, opinion.similarity)
        q = opinion.utility(horizon)
        if q is None:
            closeness += similarity
            total += similarity * score
        else:
            weight = similarity * math.tanh(Q_SCALE * q)
            judged += weight * score
            judged_weight += abs(weight)
    pull = 0.25 * closeness / (0.5 + closeness) * (total / closeness - news) if closeness else 0.0
    return pull + 0.6 * judged / (1.0 + judged_weight) + _learnt(lessons, horizon, news)


def _learnt(lessons: Sequence[Lesson], horizon: int, news: float) -> float:
    found = [lesson.reliability for lesson in lessons if lesson.horizon == horizon]
    return LEARNT * news * math.fsum(found) / (len(found) + 0.5)


def _confidence(weighed: Sequence[Weighed]) -> float:
    """More news that agrees means more confidence: 0.3 without any, at most 0.9."""
    mass = sum(one.weight for one in weighed)
    told = sum(one.weight * abs(one.impact) for one in weighed)
    agreement = abs(sum(one.weight * one.impact for one in weighed)) / told if told else 0.0
    return round(0.3 + 0.6 * (1.0 - math.exp(-mass)) * agreement, 2)


def _key_factor(weighed: Sequence[Weighed], language: Language) -> str:
    if weighed:
        return described(ranked(weighed)[0], language)
    return "没有足够重要的新闻" if language == "zh" else "no news of sufficient importance"


@dataclass(frozen=True)
class _Wording:
    """How a language says a logic chain; in braces what is filled in.

    `comma` stands between what is listed, `between` between clauses.
    """

    comma: str
    between: str
    end: str
    article: str
    news: str
    no_news: str
    effect: str
    experience: str
    reversion: str
    fading: str


_WORDINGS: Mapping[Language, _Wording] = {
    "zh": _Wording(
        comma="、",
        between="；",
        end="。",
        article="{article}{side}",
        news="{industry.name_zh}共{count}篇新闻，利好{good}篇、利空{bad}篇，权重最大的是{named}",
        no_news="{industry.name_zh}没有足够重要的新闻，新闻信号为零",
        effect="{horizon}日{share:+.3f}",
        experience="参考{count}条经验（{named}），对得分的影响为{effects}",
        reversion="近{sessions}个交易日超额收益{excess:+.2%}，计入轻微的均值回复",
        fading="新闻影响随期限衰减",
    ),
    "en": _Wording(
        comma=", ",
        between="; ",
        end=".",
        article="{article} {side}",
        news="{count} articles on {industry.name_en}, {good} positive and {bad} negative, of most weight {named}",
        no_news="no news of sufficient importance on {industry.name_en}, so that news says nothing",
        effect="{horizon}d {share:+.3f}",
        experience="{count} pieces of experience ({named}) change the scores by {effects}",
        reversion="the excess return over {sessions} sessions, {excess:+.2%}, reverts mildly",
        fading="the effect of news fades with the horizon",
    ),
}


def _logic_chain(
    request: PredictRequest, weighed: Sequence[Weighed], shares: Sequence[float], language: Language
) -> str:
    say = _WORDINGS[language]
    clauses = [_news_told(request, weighed, language)]
    if request.memories:
        effects = [say.effect.format(horizon=h, share=x) for h, x in zip(request.horizons, shares, strict=True)]
        clauses.append(
            say.experience.format(
                count=len(request.memories),
                named=say.comma.join(memory.memory_id[:30] for memory in request.memories[:3]),
                effects=say.comma.join(effects),
            )
        )
    known = [back for back in request.market.trailing if not math.isnan(back.excess)]
    if known:
        last = max(known, key=lambda back: back.sessions)
        clauses.append(say.reversion.format(sessions=last.sessions, excess=last.excess))
    clauses.append(say.fading)
    return say.between.join(clauses) + say.end


def _news_told(request: PredictRequest, weighed: Sequence[Weighed], language: Language) -> str:
    say = _WORDINGS[language]
    if not weighed:
        return say.no_news.format(industry=request.industry)
    named = [
        say.article.format(article=one.item.article_id[:40], side=side_word(one.impact, language))
        for one in ranked(weighed)[:3]
    ]
    return say.news.format(
        industry=request.industry,
        count=len(weighed),
        good=sum(one.impact > 0 for one in weighed),
        bad=sum(one.impact < 0 for one in weighed),
        named=say.comma.join(named),
    )
