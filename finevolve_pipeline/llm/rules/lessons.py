"""What the offline backbone writes into texts so that it can read it back: lessons, and the side of a fact.

A lesson says how far the direction of an industry's news could be trusted over one horizon, and stands at the head of
a text, where no cut reaches it:

    10日新闻方向信度+0.45；20日新闻方向信度-0.12。
    News reliability at 10d +0.45; News reliability at 20d -0.12.

in the language of the prompts. Both are read, whatever the language.

It comes from outcomes that an update request tells: r = tanh(150 · n · x), where n is the news score of the source day
for the horizon (see `predictor`) and x the realised return as a fraction. r > 0: prices went the news' way; r < 0: they
went against it. It judges the news and not the prediction made of it, since a prediction may already have turned its
news around. A news score of 0.3 and 3 % make 0.87: one clear outcome nearly fills the scale.

A fact ends with its side and the word that decided it: 某公司：订单大增（利好，“大增”）, in English (positive, “大增”).
Nothing else is looked for in texts: an article whose title quotes a lesson teaches nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from finevolve_pipeline.llm.requests import Language

RELIABILITY_SCALE = 150.0
MOST = 8
"""Lessons that are read from one text."""
CACHED_TEXTS = 8192

_LESSON = {"zh": "{horizon}日新闻方向信度{value:+.2f}", "en": "News reliability at {horizon}d {value:+.2f}"}
_NUMBER = r"([+-][0-9]{1,2}\.[0-9]{2})"
"""Both decimals, as they are written: of a lesson that a cut ends within its number, nothing is known."""
_SENTENCE = re.compile(
    rf"([0-9]{{1,3}})日新闻方向信度{_NUMBER}[；。]|News reliability at ([0-9]{{1,3}})d {_NUMBER}(?:; ?|\. ?)"
)
_MARK = re.compile(
    r"（(利好|利空|中性)(?:，“([^“”（）]{0,40})”)?）\Z| \((positive|negative|neutral)(?:, “([^“”()]{0,40})”)?\)\Z"
)
_SIDE_WORDS: Mapping[Language, Mapping[int, str]] = {
    "zh": {1: "利好", -1: "利空", 0: "中性"},
    "en": {1: "positive", -1: "negative", 0: "neutral"},
}
_SIDES = {word: side for words in _SIDE_WORDS.values() for side, word in words.items()}


@dataclass(frozen=True)
class Lesson:
    """`reliability` of the news' direction over `horizon` sessions, in [-1, 1]."""

    horizon: int
    reliability: float


@dataclass(frozen=True)
class Marked:
    """A text without its mark, what side the mark names (1 good, -1 bad, 0 neither; None without a mark), and why."""

    text: str
    side: int | None
    word: str


def reliability(news: float, outcome: float) -> float | None:
    """r of one outcome; None where the news said nothing or the outcome is unknown.

    Args:
        news: news score of the source day for the horizon, in [-1, 1].
        outcome: realised return, a fraction.
    """
    if news == 0 or not math.isfinite(outcome):
        return None
    return math.tanh(RELIABILITY_SCALE * news * outcome)


def mean_by_horizon(lessons: Iterable[Lesson]) -> dict[int, float]:
    """The mean reliability of each horizon that occurs, horizons ascending."""
    found: dict[int, list[float]] = {}
    for lesson in lessons:
        found.setdefault(lesson.horizon, []).append(lesson.reliability)
    return {horizon: math.fsum(found[horizon]) / len(found[horizon]) for horizon in sorted(found)}


def write_lessons(reliabilities: Mapping[int, float], language: Language = "zh") -> str:
    """The lessons by horizon as a sentence, empty if there are none."""
    between, end = ("；", "。") if language == "zh" else ("; ", ".")
    form = _LESSON[language]
    said = between.join(form.format(horizon=horizon, value=value) for horizon, value in sorted(reliabilities.items()))
    return f"{said}{end}" if said else ""


@lru_cache(maxsize=CACHED_TEXTS)
def read_lessons(text: str) -> tuple[Lesson, ...]:
    """The lessons at the head of a text, `MOST` at most, each within [-1, 1]."""
    found: list[Lesson] = []
    at = 0
    while len(found) < MOST and (sentence := _SENTENCE.match(text, at)):
        horizon, value = (group for group in sentence.groups() if group is not None)
        found.append(Lesson(int(horizon), max(-1.0, min(1.0, float(value)))))
        at = sentence.end()
    return tuple(found)


def side_of(value: float) -> int:
    """1 for a positive value, -1 for a negative one, else 0."""
    return (value > 0) - (value < 0)


def side_word(side: float, language: Language = "zh") -> str:
    """What a side is called in texts."""
    return _SIDE_WORDS[language][side_of(side)]


def mark(text: str, side: float, word: str, language: Language = "zh") -> str:
    """The text with its side, and the word that decided it where there is one."""
    said = side_word(side, language)
    if language == "zh":
        return f"{text}（{said}" + (f"，“{word}”）" if word else "）")
    return f"{text} ({said}" + (f", “{word}”)" if word else ")")


@lru_cache(maxsize=CACHED_TEXTS)
def read_mark(text: str) -> Marked:
    """A text taken apart as `mark` put it together."""
    # Only a bounded end is searched: a long text costs no more than a short one.
    tail = max(0, len(text) - 64)
    found = _MARK.search(text, tail)
    if found is None:
        return Marked(text, None, "")
    return Marked(text[: found.start()], _SIDES[found[1] or found[3]], found[2] or found[4] or "")
