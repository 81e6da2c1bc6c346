"""Answers what mechanisms ask in order to learn: from the outcome and the source day's news, in Chinese.

Every text begins with its lessons (see `lessons`), so that later predictions find them; what follows is for people. The
answers have the form that `llm.updates` parses, keep the limits of the request, and depend on nothing but the request.

- *Reflection*: lessons of the newest reflection that has one, moved by 0.3 towards today's mean of their horizon; then
  one line for each outcome, as many as fit.
- *Insight*: one sentence each on lesson, prediction, outcome and what to do.
- *Reasoning items*: after a success how to repeat it, after a failure how to avoid it and what was overlooked.
- *Rules*: one for each horizon and direction. Outcomes that agree with it confirm it. Weaker ones that contradict it
  soften it, stronger ones remove it. A full list loses its weakest rule instead of getting another one.
- *Facts*: the articles that say most, each with its side, and the prediction's view.
- *Memories*: what is known on the same side is left alone, what now stands on the other side is rewritten. A fact that
  turns the very word of a memory around ("未获批" after "获批") deletes it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from finevolve_pipeline.llm.requests import (
    Episode,
    FactsRequest,
    InsightRequest,
    KnownRule,
    MemoryRequest,
    ReasoningRequest,
    ReflectRequest,
    RulesRequest,
    Signal,
    UpdateRequest,
)
from finevolve_pipeline.llm.rules.lessons import (
    CACHED_TEXTS,
    Lesson,
    mark,
    mean_by_horizon,
    read_lessons,
    read_mark,
    reliability,
    side_of,
    write_lessons,
)
from finevolve_pipeline.llm.rules.lexicon import industry_matcher
from finevolve_pipeline.llm.rules.predictor import described, fade, impression, news_score, ranked, weigh

KEPT = 0.7
"""Share of an old lesson that an update leaves."""

_VIEW = "本行业观点"
_VIEW_WORDS = {1: "看好", 0: "中性", -1: "承压"}


def answer_update(request: UpdateRequest) -> str:
    """The answer's JSON text."""
    match request:
        case ReflectRequest():
            answer: dict[str, object] = {"reflection": _reflection(request)}
        case InsightRequest():
            answer = {"insight": _insight(request.episode, request.industry.code)}
        case ReasoningRequest():
            answer = {"items": _items(request)}
        case RulesRequest():
            answer = {"operations": [change.to_json("rule") for change in _rule_changes(request)]}
        case FactsRequest():
            answer = {"facts": _facts(request)}
        case MemoryRequest():
            answer = {"operations": [change.to_json("memory") for change in _memory_changes(request)]}
    return json.dumps(answer, ensure_ascii=False)


@dataclass(frozen=True)
class _Change:
    """One operation on a numbered list; `number` is 0 where none is meant."""

    verb: str
    number: int = 0
    text: str = ""

    def to_json(self, subject: str) -> dict[str, object]:
        """As the answer holds it."""
        return {"operation": self.verb, subject: self.number, "text": self.text}


def _outcome(episode: Episode, signal: Signal) -> float:
    """The realised return that a signal tells, a fraction."""
    return episode.alpha if signal == "percent_excess" else episode.points / episode.close_from


def _learnt(episodes: Iterable[Episode], code: str, signal: Signal) -> dict[int, float]:
    """The mean reliability of the news by horizon; horizons whose news said nothing are left out."""
    found = []
    for episode in episodes:
        news = news_score(weigh(episode.news, code, episode.predicted_on)) * fade(episode.horizon)
        value = reliability(news, _outcome(episode, signal))
        if value is not None:
            found.append(Lesson(episode.horizon, value))
    return mean_by_horizon(found)


def _moved(old: float | None, new: float) -> float:
    """A lesson after new outcomes."""
    return new if old is None else KEPT * old + (1.0 - KEPT) * new


def _advice(value: float) -> str:
    if value > 0:
        return "价格顺着新闻方向走，可以沿用新闻方向"
    if value < 0:
        return "价格与新闻方向相反，利好兑现后应反向看待"
    return "新闻方向没有信息，不宜据此下判断"


def _verdict(episode: Episode, outcome: float) -> str:
    if episode.score == 0:
        return "没有给出方向"
    return "方向正确" if episode.score * outcome > 0 else "方向错误"


def _told(episode: Episode, signal: Signal) -> str:
    """A prediction and its outcome in one line, the outcome with sign and unit."""
    outcome = _outcome(episode, signal)
    realised = f"实际{episode.points:+.2f}点" if signal == "index_points" else f"实际超额收益{outcome:+.2%}"
    return (
        f"{episode.predicted_on}起{episode.horizon}日：预测{episode.score:+.2f}，{realised}，"
        f"{_verdict(episode, outcome)}；关键因素：{episode.key_factor or '无'}"
    )


def _reflection(request: ReflectRequest) -> str:
    lessons: dict[int, float] = {}
    for text in request.previous:
        lessons.update((lesson.horizon, lesson.reliability) for lesson in read_lessons(text))
    for horizon, new in _learnt(request.episodes, request.industry.code, request.signal).items():
        lessons[horizon] = _moved(lessons.get(horizon), new)
    lines = [f"{_told(episode, request.signal)}。" for episode in request.episodes]
    return _fitting([line for line in (write_lessons(lessons), *lines) if line], request.max_characters)


def _fitting(lines: Sequence[str], most: int) -> str:
    """As many whole lines as fit, at least the beginning of the first."""
    text = lines[0][:most] if lines else ""
    for line in lines[1:]:
        if len(text) + 1 + len(line) > most:
            break
        text += f"\n{line}"
    return text


def _insight(episode: Episode, code: str) -> str:
    learnt = _learnt([episode], code, "percent_excess")
    advice = _advice(learnt.get(episode.horizon, 0.0))
    return f"{write_lessons(learnt)}{_told(episode, 'percent_excess')}。教训：{episode.horizon}日期限上{advice}。"


def _items(request: ReasoningRequest) -> list[dict[str, str]]:
    episode = request.episode
    learnt = _learnt([episode], request.industry.code, "percent_excess")
    advice = _advice(learnt.get(episode.horizon, 0.0))
    told = _told(episode, "percent_excess")
    lesson = write_lessons(learnt)
    factor = episode.key_factor or "无"
    if episode.success:
        items = [
            _item(
                f"{episode.horizon}日判断的可用依据",
                "方向判断被验证时，沿用同样的依据",
                f"{lesson}{told}。做法：{advice}，以同类关键因素为主要依据。",
            )
        ]
    else:
        items = [
            _item(
                f"{episode.horizon}日判断的反例",
                "方向判断落空时，先检查新闻方向是否可信",
                f"{lesson}{told}。避免：{advice}，不要只凭一条新闻定方向。",
            ),
            _item(
                f"被高估的因素：{factor[:40]}",
                "同类因素再次出现时降低它的权重",
                f"“{factor}”没有带来预期的{episode.horizon}日超额收益，需要其他证据印证。",
            ),
        ]
    return items[: request.max_items]


def _item(title: str, description: str, content: str) -> dict[str, str]:
    return {"title": title, "description": description, "content": content}


def _rule_text(horizon: int, value: float) -> str:
    return f"{write_lessons({horizon: value})}{horizon}日期限上{_advice(value)}。"


@dataclass(frozen=True)
class _RuleLesson:
    """A rule with the lesson at its head."""

    rule: KnownRule
    horizon: int
    reliability: float


def _rule_changes(request: RulesRequest) -> list[_Change]:
    known = _known_rules(request.rules)
    learnt = _learnt(request.episodes, request.industry.code, "percent_excess")
    changes: list[_Change] = []
    # What is clearest comes first, so that a limit leaves out the doubtful.
    for horizon, new in sorted(learnt.items(), key=lambda one: (-abs(one[1]), one[0])):
        if round(new, 2) == 0:
            continue
        same, other = (known.get((horizon, side)) for side in (side_of(new), -side_of(new)))
        if other is not None:
            changes.append(_contradicted(other, new))
            if changes[-1].verb == "EDIT":
                continue
        if same is not None:
            changes.append(_Change("AGREE", same.rule.number))
        elif not request.is_full:
            changes.append(_Change("ADD", text=_rule_text(horizon, new)))
    touched = {change.number for change in changes}
    spare = [rule for rule in request.rules if rule.number not in touched]
    if request.is_full and spare:
        weakest = min(spare, key=lambda rule: (rule.importance, rule.number))
        changes.insert(0, _Change("REMOVE", weakest.number))
    return changes[: request.max_operations]


def _contradicted(known: _RuleLesson, new: float) -> _Change:
    """A rule after an outcome that speaks against it: softened by a weaker one, removed by a stronger one."""
    softer = round(_moved(known.reliability, new), 2)
    if softer == 0 or abs(new) >= abs(known.reliability):
        return _Change("REMOVE", known.rule.number)
    return _Change("EDIT", known.rule.number, _rule_text(known.horizon, softer))


def _known_rules(rules: Sequence[KnownRule]) -> Mapping[tuple[int, int], _RuleLesson]:
    """The rules by horizon and direction of the lesson at their head; of several the first."""
    found: dict[tuple[int, int], _RuleLesson] = {}
    for rule in rules:
        for lesson in read_lessons(rule.text)[:1]:
            key = lesson.horizon, side_of(lesson.reliability)
            found.setdefault(key, _RuleLesson(rule, lesson.horizon, lesson.reliability))
    return found


def _facts(request: FactsRequest) -> list[str]:
    articles = ranked(weigh(request.news, request.industry.code, request.session))
    facts = [described(one) for one in articles if one.impact]
    view = [_view(request.scores)] if request.scores else []
    room = max(0, request.max_facts - len(view))
    return list(dict.fromkeys([*facts[:room], *view]))[: request.max_facts]


def _view(scores: Mapping[int, float]) -> str:
    side = side_of(math.fsum(scores.values()))
    said = "、".join(f"{horizon}日{score:+.2f}" for horizon, score in sorted(scores.items()))
    return mark(f"{_VIEW}：{_VIEW_WORDS[side]}，{said}", side, "")


@dataclass(frozen=True)
class _Claim:
    """What a fact says: of what, on which side, by which word."""

    subject: str
    side: int
    word: str

    def revokes(self, other: _Claim) -> bool:
        """The same word on the other side: here it is negated."""
        return bool(self.word) and self.word == other.word and self.side * other.side < 0


@lru_cache(maxsize=CACHED_TEXTS)
def _claim(text: str) -> _Claim:
    marked = read_mark(text)
    said = impression(marked.text, "")
    return _Claim(
        subject=_subject(marked.text),
        side=side_of(said.polarity) if marked.side is None else marked.side,
        word=marked.word or said.evidence,
    )


def _subject(text: str) -> str:
    """Who speaks (before the colon) and the industry words, as far as there are any; else the text itself."""
    speaker, colon, _ = text.partition("：")
    named = sorted({word for _, word, said in industry_matcher().longest(text.lower()) if said.votes})
    return "、".join([*([speaker.strip()] if colon else []), *named]) or text.strip()


def _memory_changes(request: MemoryRequest) -> list[_Change]:
    claims = {number: _claim(memory) for number, memory in enumerate(request.memories, 1)}
    known = {claim.subject: number for number, claim in reversed(claims.items())}  # of equal subjects the first
    changes: list[_Change] = []
    done: set[str] = set()
    for fact in request.facts:
        claim = _claim(fact)
        if claim.subject in done:
            continue  # of several facts about one subject the first counts
        done.add(claim.subject)
        number = known.get(claim.subject)
        changes.append(
            _Change("ADD", text=fact) if number is None else _memory_change(number, claims[number], claim, fact)
        )
    return changes


def _memory_change(number: int, old: _Claim, new: _Claim, fact: str) -> _Change:
    if old.side == new.side:
        return _Change("NOOP", number)
    return _Change("DELETE", number) if new.revokes(old) else _Change("UPDATE", number, fact)
