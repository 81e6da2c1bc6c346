"""Answers what mechanisms ask in order to learn: from the outcome and the source day's news, in the
language of the prompts.

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
    Language,
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


@dataclass(frozen=True)
class _Wording:
    """How a language says it; in braces what is filled in. `gap` stands between two sentences."""

    gap: str
    view: str
    view_words: Mapping[int, str]
    view_score: str
    view_between: str
    view_told: str
    none: str
    advice: Mapping[int, str]
    no_direction: str
    right: str
    wrong: str
    points: str
    excess: str
    told: str
    insight: str
    rule: str
    success: tuple[str, str, str]
    failure: tuple[str, str, str]
    overrated: tuple[str, str, str]


_WORDINGS: Mapping[Language, _Wording] = {
    "zh": _Wording(
        gap="",
        view="本行业观点：",
        view_words={1: "看好", 0: "中性", -1: "承压"},
        view_score="{horizon}日{score:+.2f}",
        view_between="、",
        view_told="{view}{word}，{scores}",
        none="无",
        advice={
            1: "价格顺着新闻方向走，可以沿用新闻方向",
            -1: "价格与新闻方向相反，利好兑现后应反向看待",
            0: "新闻方向没有信息，不宜据此下判断",
        },
        no_direction="没有给出方向",
        right="方向正确",
        wrong="方向错误",
        points="实际{points:+.2f}点",
        excess="实际超额收益{outcome:+.2%}",
        told="{day}起{horizon}日：预测{score:+.2f}，{realised}，{verdict}；关键因素：{factor}。",
        insight="教训：{horizon}日期限上{advice}。",
        rule="{horizon}日期限上{advice}。",
        success=(
            "{horizon}日判断的可用依据",
            "方向判断被验证时，沿用同样的依据",
            "做法：{advice}，以同类关键因素为主要依据。",
        ),
        failure=(
            "{horizon}日判断的反例",
            "方向判断落空时，先检查新闻方向是否可信",
            "避免：{advice}，不要只凭一条新闻定方向。",
        ),
        overrated=(
            "被高估的因素：{factor}",
            "同类因素再次出现时降低它的权重",
            "“{factor}”没有带来预期的{horizon}日超额收益，需要其他证据印证。",
        ),
    ),
    "en": _Wording(
        gap=" ",
        view="View of this industry: ",
        # The lexicon, which reads it again, is Chinese.
        view_words={1: "positive (看好)", 0: "neutral (中性)", -1: "negative (承压)"},
        view_score="{horizon}d {score:+.2f}",
        view_between=", ",
        view_told="{view}{word}, {scores}",
        none="none",
        advice={
            1: "prices went the way of the news, so that its direction can be followed",
            -1: "prices went against the news, so that good news should be read as spent",
            0: "the direction of the news said nothing, so that nothing should be based on it",
        },
        no_direction="no direction given",
        right="right direction",
        wrong="wrong direction",
        points="realised {points:+.2f} points",
        excess="realised excess return {outcome:+.2%}",
        told="From {day} over {horizon} sessions: predicted {score:+.2f}, {realised}, {verdict}; key factor: {factor}.",
        insight="Lesson: over {horizon} sessions {advice}.",
        rule="Over {horizon} sessions {advice}.",
        success=(
            "What a judgement over {horizon} sessions can rest on",
            "Where the direction proved right, rest on the same again",
            "What to do: {advice}; key factors of this kind come first.",
        ),
        failure=(
            "A counterexample over {horizon} sessions",
            "Where the direction proved wrong, ask first whether the news could be trusted",
            "What to avoid: {advice}; one piece of news alone decides no direction.",
        ),
        overrated=(
            "An overrated factor: {factor}",
            "Give such a factor less weight when it comes again",
            "“{factor}” did not bring the expected excess return over {horizon} sessions and needs other evidence.",
        ),
    ),
}


def answer_update(request: UpdateRequest, language: Language = "zh") -> str:
    """The answer's JSON text, what it says in a language."""
    match request:
        case ReflectRequest():
            answer: dict[str, object] = {"reflection": _reflection(request, language)}
        case InsightRequest():
            answer = {"insight": _insight(request.episode, request.industry.code, language)}
        case ReasoningRequest():
            answer = {"items": _items(request, language)}
        case RulesRequest():
            answer = {"operations": [change.to_json("rule") for change in _rule_changes(request, language)]}
        case FactsRequest():
            answer = {"facts": _facts(request, language)}
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


def _verdict(episode: Episode, outcome: float, say: _Wording) -> str:
    if episode.score == 0:
        return say.no_direction
    return say.right if episode.score * outcome > 0 else say.wrong


def _told(episode: Episode, signal: Signal, say: _Wording) -> str:
    """A prediction and its outcome in one sentence, the outcome with sign and unit."""
    outcome = _outcome(episode, signal)
    return say.told.format(
        day=episode.predicted_on,
        horizon=episode.horizon,
        score=episode.score,
        realised=(say.points if signal == "index_points" else say.excess).format(
            points=episode.points, outcome=outcome
        ),
        verdict=_verdict(episode, outcome, say),
        factor=episode.key_factor or say.none,
    )


def _joined(say: _Wording, *sentences: str) -> str:
    return say.gap.join(sentence for sentence in sentences if sentence)


def _reflection(request: ReflectRequest, language: Language) -> str:
    say = _WORDINGS[language]
    lessons: dict[int, float] = {}
    for text in request.previous:
        lessons.update((lesson.horizon, lesson.reliability) for lesson in read_lessons(text))
    for horizon, new in _learnt(request.episodes, request.industry.code, request.signal).items():
        lessons[horizon] = _moved(lessons.get(horizon), new)
    lines = [_told(episode, request.signal, say) for episode in request.episodes]
    return _fitting([line for line in (write_lessons(lessons, language), *lines) if line], request.max_characters)


def _fitting(lines: Sequence[str], most: int) -> str:
    """As many whole lines as fit, at least the beginning of the first."""
    text = lines[0][:most] if lines else ""
    for line in lines[1:]:
        if len(text) + 1 + len(line) > most:
            break
        text += f"\n{line}"
    return text


def _insight(episode: Episode, code: str, language: Language) -> str:
    say = _WORDINGS[language]
    learnt = _learnt([episode], code, "percent_excess")
    advice = say.advice[side_of(learnt.get(episode.horizon, 0.0))]
    lesson = say.insight.format(horizon=episode.horizon, advice=advice)
    return _joined(say, write_lessons(learnt, language), _told(episode, "percent_excess", say), lesson)


def _items(request: ReasoningRequest, language: Language) -> list[dict[str, str]]:
    say = _WORDINGS[language]
    episode = request.episode
    learnt = _learnt([episode], request.industry.code, "percent_excess")
    factor = episode.key_factor or say.none
    known = {"horizon": episode.horizon, "advice": say.advice[side_of(learnt.get(episode.horizon, 0.0))]}
    title, description, content = (text.format(**known) for text in (say.success if episode.success else say.failure))
    told = _joined(say, write_lessons(learnt, language), _told(episode, "percent_excess", say), content)
    items = [_item(title, description, told)]
    if not episode.success:
        title, description, content = say.overrated
        title, content = title.format(factor=factor[:40]), content.format(factor=factor, horizon=episode.horizon)
        items.append(_item(title, description, content))
    return items[: request.max_items]


def _item(title: str, description: str, content: str) -> dict[str, str]:
    return {"title": title, "description": description, "content": content}


def _rule_text(horizon: int, value: float, language: Language) -> str:
    say = _WORDINGS[language]
    rule = say.rule.format(horizon=horizon, advice=say.advice[side_of(value)])
    return _joined(say, write_lessons({horizon: value}, language), rule)


@dataclass(frozen=True)
class _RuleLesson:
    """A rule with the lesson at its head."""

    rule: KnownRule
    horizon: int
    reliability: float


def _rule_changes(request: RulesRequest, language: Language) -> list[_Change]:
    known = _known_rules(request.rules)
    learnt = _learnt(request.episodes, request.industry.code, "percent_excess")
    changes: list[_Change] = []
    # What is clearest comes first, so that a limit leaves out the doubtful.
    for horizon, new in sorted(learnt.items(), key=lambda one: (-abs(one[1]), one[0])):
        if round(new, 2) == 0:
            continue
        same, other = (known.get((horizon, side)) for side in (side_of(new), -side_of(new)))
        if other is not None:
            changes.append(_contradicted(other, new, language))
            if changes[-1].verb == "EDIT":
                continue
        if same is not None:
            changes.append(_Change("AGREE", same.rule.number))
        elif not request.is_full:
            changes.append(_Change("ADD", text=_rule_text(horizon, new, language)))
    touched = {change.number for change in changes}
    spare = [rule for rule in request.rules if rule.number not in touched]
    if request.is_full and spare:
        weakest = min(spare, key=lambda rule: (rule.importance, rule.number))
        changes.insert(0, _Change("REMOVE", weakest.number))
    return changes[: request.max_operations]


def _contradicted(known: _RuleLesson, new: float, language: Language) -> _Change:
    """A rule after an outcome that speaks against it: softened by a weaker one, removed by a stronger one."""
    softer = round(_moved(known.reliability, new), 2)
    if softer == 0 or abs(new) >= abs(known.reliability):
        return _Change("REMOVE", known.rule.number)
    return _Change("EDIT", known.rule.number, _rule_text(known.horizon, softer, language))


def _known_rules(rules: Sequence[KnownRule]) -> Mapping[tuple[int, int], _RuleLesson]:
    """The rules by horizon and direction of the lesson at their head; of several the first."""
    found: dict[tuple[int, int], _RuleLesson] = {}
    for rule in rules:
        for lesson in read_lessons(rule.text)[:1]:
            key = lesson.horizon, side_of(lesson.reliability)
            found.setdefault(key, _RuleLesson(rule, lesson.horizon, lesson.reliability))
    return found


def _facts(request: FactsRequest, language: Language) -> list[str]:
    articles = ranked(weigh(request.news, request.industry.code, request.session))
    facts = [described(one, language) for one in articles if one.impact]
    view = [_view(request.scores, language)] if request.scores else []
    room = max(0, request.max_facts - len(view))
    return list(dict.fromkeys([*facts[:room], *view]))[: request.max_facts]


def _view(scores: Mapping[int, float], language: Language) -> str:
    say = _WORDINGS[language]
    side = side_of(math.fsum(scores.values()))
    told = [say.view_score.format(horizon=horizon, score=score) for horizon, score in sorted(scores.items())]
    text = say.view_told.format(view=say.view, word=say.view_words[side], scores=say.view_between.join(told))
    return mark(text, side, "", language)


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
    view = _WORDINGS["en"].view
    speaker, colon, _ = (view, ":", "") if text.startswith(view) else text.partition("：")
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
