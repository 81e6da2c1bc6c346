"""Tags an article by lexicon: industries, scope, importance with a reason, topics.

The headline (the first 80 characters of the title, without the agency's dateline) counts double, the opening
of the body once, the rest of the body up to 420 characters a little less; what stands later is not read.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from functools import lru_cache

from finevolve_pipeline.llm.rules.lexicon import EventWord, Kind, events, industry_matcher, name_endings
from finevolve_pipeline.universe import industry

HEADLINE = 80
OPENING = 120
BODY = 420
MAX_INDUSTRIES = 4
SEVERAL = 4
OIL = "801960"
TRANSPORT = "801170"

_DATELINE = re.compile(r"^[^，。：:]{0,14}?\d{1,2}月\d{1,2}日[电讯]，|^《[^》]{2,12}》\d{1,2}日讯，")
_CODE = re.compile(r"[(（]\*?[0-9]{5,6}(?:\.(?:sz|sh|bj|hk))?[)）]")
_DIGIT = re.compile(r"\d")
_PERCENT = re.compile(r"(\d{1,4}(?:\.\d{1,3})?)\s?[%％]")
_AMOUNT = re.compile(r"(\d{1,6}(?:[,，]\d{3})*(?:\.\d{1,4})?)\s?(万亿|亿)")
_RATIO = 0.45
_NEEDED = 4.0
_CRUDE = frozenset({"wti", "布伦特", "布油", "美油", "原油", "原油期货", "国际油价", "油价", "sc原油"})
_PER_PERCENT = {"quote": 0.5, "commodity": 0.6}
_SCALE = ((1.0, 1.0), (3.0, 3.0), (4.2, 4.9), (5.0, 7.5), (6.6, 8.7), (8.4, 10.0))
_SPEAKING = (
    "：",
    ":",
    "研报",
    "认为",
    "表示",
    "指出",
    "预计",
    "发布",
    "称",
    "策略",
    "分析师",
    "将",
    "上调",
    "下调",
)


@dataclass(frozen=True)
class Tag:
    """What the lexicon says of an article. `industries` are sorted, empty unless `scope` is industry."""

    industries: tuple[str, ...]
    scope: str
    importance: int
    reason: str
    topics: tuple[str, ...]
    kind: str


@dataclass(frozen=True)
class _Votes:
    scores: dict[str, float]
    headline: dict[str, float]
    evidence: dict[str, str]
    company: bool
    leader: bool
    analyst: bool


@dataclass(frozen=True)
class _Event:
    kind: Kind
    evidence: str
    modifiers: tuple[int, ...]
    market_headline: int
    market_body: int
    topics: tuple[str, ...]


def split(title: str, content: str) -> tuple[str, str]:
    """Headline and body as read here, lower case."""
    title = _DATELINE.sub("", title)
    content = "" if content == title else _DATELINE.sub("", content)
    head, rest = title[:HEADLINE], title[HEADLINE:]
    return head.lower(), (rest + content)[:BODY].lower()


def tag(title: str, content: str) -> Tag:
    """Industries, scope, importance (1 to 10) with its reason, and topics of one article."""
    head, body = split(title, content)
    text = f"{head}\n{body}"
    listed = _CODE.search(text) is not None
    votes = _industry_votes(text, len(head), _issuer(head) if listed else None)
    event = _event(text, len(head), listed or votes.company, listed and "：" in head, votes.analyst)
    industries = _chosen(head, votes, event)
    scope = _scope(industries, event)
    importance, grounds = _importance(head, event, votes, scope)
    return Tag(
        industries=tuple(sorted(industries)),
        scope=scope,
        importance=importance,
        reason=_reason(event, votes, industries, scope, grounds),
        topics=_topics(event),
        kind=event.kind.name,
    )


def _issuer(head: str) -> str:
    """The company a notice is about: what stands before the colon of its headline, without ST marks."""
    name, colon, _ = head.partition("：")
    return name.lstrip("*st") if colon and len(name) <= 10 else ""


def _industry_votes(text: str, headline: int, issuer: str | None) -> _Votes:
    """Votes of all words. `issuer` is the company that gave notice, None if the article is no notice."""
    scores: dict[str, float] = {}
    in_headline: dict[str, float] = {}
    evidence: dict[str, tuple[float, str]] = {}
    seen: set[tuple[str, bool]] = set()
    company = leader = analyst = False
    for start, word, said in industry_matcher().longest(text):
        if not said.votes:
            continue
        top = start < headline
        if (word, top) in seen:
            continue
        seen.add((word, top))
        factor = 2.0 if top else 1.0 if start < headline + OPENING else 0.6
        if said.broker and issuer is None and text.startswith(_SPEAKING, start + len(word)):
            analyst = analyst or start < 12
            continue
        if said.company:
            company = company or top
            leader = leader or (said.leader and top)
            if not top:
                factor *= 0.5
        for code, weight in said.votes:
            vote = weight * factor
            scores[code] = scores.get(code, 0.0) + vote
            if top:
                in_headline[code] = in_headline.get(code, 0.0) + vote
            if vote > evidence.get(code, (0.0, ""))[0]:
                evidence[code] = (vote, word)
    if issuer and not company:
        ending, code = _by_ending(issuer)
        if code:
            scores[code] = scores.get(code, 0.0) + 4.0
            in_headline[code] = in_headline.get(code, 0.0) + 4.0
            evidence.setdefault(code, (4.0, ending))
    named = {code: word for code, (_, word) in evidence.items()}
    return _Votes(scores, in_headline, named, company, leader, analyst)


def _by_ending(issuer: str) -> tuple[str, str]:
    """The ending of a company's name that suggests an industry, and that industry; empty if none does."""
    name = issuer.removesuffix("股份").removesuffix("科技").removesuffix("集团")
    for length in (3, 2, 1):
        code = name_endings().get(name[-length:])
        if code and len(name) > length:
            return name[-length:], code
    return "", ""


def _event(text: str, headline: int, about_company: bool, notice: bool, analyst: bool) -> _Event:
    known = events()
    last = len(known.kinds) - 1
    found: dict[int, str] = {}
    actions: set[int] = set()
    excluded: set[int] = set()
    modifiers: set[int] = set()
    topics: dict[str, int] = {}
    market_headline = market_body = 0
    for start, word, said in known.matcher.every(text):
        top = start < headline
        for rank in (*said.head_kinds, *said.kinds) if top else said.kinds:
            found.setdefault(rank, word)
        actions.update(said.actions)
        if top:
            excluded.update(said.excludes)
            modifiers.update(said.modifiers)
            market_headline += said.market
        else:
            market_body += said.market
        if said.topics:
            _count_topics(said, 2 if top else 1, topics)
    if analyst:
        found.setdefault(_opinion(), "")
    ranks = [
        rank for rank in found if rank not in excluded and _applies(known.kinds[rank], about_company, actions, analyst)
    ]
    if notice:
        ranks = [rank for rank in ranks if known.kinds[rank].company] or ranks
    best = min(ranks, default=last)
    chosen = tuple(topic for topic in known.topics if topics.get(topic, 0) >= 2)
    return _Event(
        known.kinds[best],
        found.get(best, ""),
        tuple(sorted(modifiers)),
        market_headline,
        market_body,
        chosen,
    )


def _applies(kind: Kind, about_company: bool, actions: set[int], analyst: bool) -> bool:
    if kind.paired and kind.rank not in actions:
        return False
    if analyst and kind.rank < _opinion():
        return bool(kind.moves) or kind.name == "评级与目标价"
    return about_company or not kind.company


@lru_cache(maxsize=1)
def _opinion() -> int:
    """Place of the kind that an analyst's words belong to, whatever they speak about."""
    return next(kind.rank for kind in events().kinds if kind.name == "机构观点")


def _count_topics(said: EventWord, times: int, topics: dict[str, int]) -> None:
    for topic in said.topics:
        topics[topic] = topics.get(topic, 0) + times


def _chosen(head: str, votes: _Votes, event: _Event) -> tuple[str, ...]:
    """Codes whose score suffices, at most four, best first; ties by code.

    Silent kinds name no industry. Kinds that concern the whole market by themselves need the industry in the
    headline. A daily move of crude oil of 5 % or more also moves transportation.
    """
    if event.kind.silent:
        return ()
    ranked = sorted(votes.scores.items(), key=lambda cell: (-cell[1], cell[0]))
    top = ranked[0][1] if ranked else 0.0
    best_in_headline = max(votes.headline.values(), default=0.0)
    if top < _NEEDED or (event.kind.scope and best_in_headline < _NEEDED):
        return event.kind.implies
    chosen = []
    for code, score in ranked[:MAX_INDUSTRIES]:
        if score < _NEEDED or score < _RATIO * top:
            break
        if event.kind.conflict and code not in events().conflict_industries:
            continue
        if best_in_headline >= _NEEDED and votes.headline.get(code, 0.0) < 0.3 * best_in_headline:
            continue
        chosen.append(code)
    if chosen == [OIL] and event.kind.moves and votes.evidence[OIL] in _CRUDE and _largest(head) >= 5:
        chosen.append(TRANSPORT)
        votes.evidence.setdefault(TRANSPORT, votes.evidence[OIL])
    return tuple(chosen) or event.kind.implies


def _scope(industries: tuple[str, ...], event: _Event) -> str:
    if industries:
        return "industry"
    if event.kind.scope:
        return event.kind.scope
    return "market" if event.market_headline or event.market_body >= 2 else "none"


def _importance(head: str, event: _Event, votes: _Votes, scope: str) -> tuple[int, list[str]]:
    """The grade and what moved it from the kind's base."""
    kind = event.kind
    grade = kind.base
    grounds = []
    for position in event.modifiers:
        modifier = events().modifiers[position]
        grade += modifier.add
        grounds.append(modifier.name)
    step, ground = _size(head, kind)
    grade += step
    if ground:
        grounds.append(ground)
    if votes.leader and kind.company:
        grade += 1.1
        grounds.append("龙头公司")
    if scope == "none":
        grade = min(grade - 0.6, 4.5)
    elif scope == "industry" and kind.scope == "none":
        grade += 0.8
    elif scope == "market" and kind.paired:
        grade -= 0.7
    return round(_calibrated(grade)), grounds


def _calibrated(grade: float) -> float:
    """The grade on the scale of the annotations: 8 is where news clearly concerns an industry or more.

    Order is kept; the middle is stretched, so that about a third of the telegraphs reach 8 (the paper keeps
    56.6 % of its corpus).
    """
    for (low, at_low), (high, at_high) in itertools.pairwise(_SCALE):
        if grade <= high:
            return max(1.0, at_low + (grade - low) * (at_high - at_low) / (high - low))
    return _SCALE[-1][1]


def _largest(head: str) -> float:
    """The largest percentage in a headline, 0 if there is none."""
    return max((float(number) for number in _PERCENT.findall(head)), default=0.0)


def _size(head: str, kind: Kind) -> tuple[float, str]:
    """What the numbers of a headline add: price moves in percent, profit changes, amounts of money."""
    largest = _largest(head)
    if kind.moves in _PER_PERCENT:
        if kind.moves == "commodity" and "停" in head and ("涨停" in head or "跌停" in head):
            return 2.4, "期货涨跌停"
        if _DIGIT.search(head) is None:
            return 1.4, "行情分析"
        if not 1 <= largest <= 60:
            return 0.0, ""
        several = 0.5 if len(_PERCENT.findall(head)) >= SEVERAL else 1.0
        return min(3.6, several * _PER_PERCENT[kind.moves] * largest), f"幅度{largest:g}%"
    if kind.moves or kind.scope:
        return 0.0, ""
    if kind.name == "业绩" and largest >= 50:
        return (1.0 if largest >= 100 else 0.5), f"变动{largest:g}%"
    if kind.name == "业绩":
        return 0.0, ""
    amount = max(
        (
            float(n.replace(",", "").replace("，", "")) * (10_000 if unit == "万亿" else 1)
            for n, unit in _AMOUNT.findall(head)
        ),
        default=0.0,
    )
    if amount >= 1000:
        return 1.2, f"金额{amount:g}亿"
    if amount >= 100:
        return 0.8, f"金额{amount:g}亿"
    if amount >= 20:
        return 0.4, f"金额{amount:g}亿"
    return 0.0, ""


def _topics(event: _Event) -> tuple[str, ...]:
    return tuple(sorted({event.kind.topic, *event.topics[:2]}))


def _reason(event: _Event, votes: _Votes, industries: tuple[str, ...], scope: str, grounds: list[str]) -> str:
    """The importance in words: kind of event, scope, each with its word, and what raised or lowered it."""
    parts = [f"事件类型：{event.kind.name}" + (f"（“{event.evidence}”）" if event.evidence else "")]
    if scope == "industry":
        named = "、".join(
            f"{industry(code).name_zh}（“{votes.evidence.get(code, event.evidence)}”）" for code in industries
        )
        parts.append(f"影响范围：{named}")
    else:
        parts.append("影响范围：" + ("全市场" if scope == "market" else "与市场关系不明显"))
    if grounds:
        parts.append("依据：" + "、".join(grounds))
    return "；".join(parts) + "。"
