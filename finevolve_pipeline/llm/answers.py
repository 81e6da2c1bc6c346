"""Reading answers: JSON text of any backbone becomes a typed answer, or an `AnswerError`.

Repair covers what models do around good JSON: code fences, words before and after, reasoning before, trailing commas,
NaN. It never invents a value: a key that stands twice with different values has none. A bad score costs its own horizon
only; a name that is no industry is set aside, not guessed at.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, Literal

from finevolve_pipeline.errors import AnswerError
from finevolve_pipeline.universe import industry_named

SCOPES = ("industry", "market", "none")
LONGEST = 200_000
STARTS_TRIED = 8
LONGEST_NAME = 60
"""Characters of a rejected industry name that are kept."""


@dataclass(frozen=True)
class _Ambiguous:
    """A key that stands in an object twice, with these values."""

    values: tuple[object, ...]

    def __str__(self) -> str:
        return " and ".join(_shown(value) for value in self.values)


def _distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; keys that stand there twice with the same value are one, with different ones ambiguous."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        before = found.get(key, value)
        if before is value or (type(before) is type(value) and before == value):
            found[key] = value
        else:
            earlier = before.values if isinstance(before, _Ambiguous) else (before,)
            found[key] = _Ambiguous((*earlier, value))
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_distinct_keys)
_THOUGHT = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.S | re.I)
_TRAILING_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', re.S)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


@dataclass(frozen=True)
class TagAnswer:
    """An article's tags.

    Attributes:
        industries: sorted Shenwan codes, empty unless `scope` is industry.
        scope: industry, market or none.
        rejected: names given for industries that are none, sorted.
        contradiction: why scope and industries do not fit together; empty if they do. Industries given with scope
            market or none are then left out, and scope industry with unknown names only becomes none: nobody is shown
            news of an industry by a slip.
    """

    industries: tuple[str, ...]
    scope: str
    importance: int
    importance_reason: str
    topics: tuple[str, ...]
    rejected: tuple[str, ...] = ()
    contradiction: str = ""


@dataclass(frozen=True)
class PredictionAnswer:
    """A prediction. Every horizon is in `scores`, NaN where `invalid` says why.

    `confidence` lies in [0, 1], None if it is missing or no such number.
    """

    scores: dict[int, float]
    invalid: dict[int, str]
    confidence: float | None
    key_factor: str
    logic_chain: str


def parse_tag(text: str) -> TagAnswer:
    """The tags in an answer.

    Raises:
        AnswerError: no JSON object, no list of industries, an unknown scope, scope industry without any name, or an
            importance that is no whole number from 1 to 10.
    """
    return _tags(_json_object(text, "industries"))


def tag_flaws(answer: TagAnswer) -> tuple[str, ...]:
    """What is wrong with tags that could be read: names that are no industries, a contradicted scope."""
    unknown = tuple(f"industry {_shown(name)} is none of the 31 codes" for name in answer.rejected)
    return (*unknown, answer.contradiction) if answer.contradiction else unknown


def parse_tag_batch(text: str, ids: tuple[str, ...]) -> dict[str, TagAnswer | str]:
    """The tags of several articles in one answer, by article.

    Args:
        text: the answer; its items are named by number, `1` for the first article.
        ids: the articles, in the order in which they were shown.

    Returns:
        For each of `ids` its tags, or what is wrong with its item.

    Raises:
        AnswerError: no JSON object, or no list of articles.
    """
    items = _json_object(text, "articles").get("articles")
    if not isinstance(items, list):
        raise AnswerError(f"answer: articles {_shown(items)} is no list")
    by_number: dict[str, list[dict[str, Any]]] = {}
    for item in items:
        if isinstance(item, dict):
            by_number.setdefault(_text(item.get("id")), []).append(item)
    return {one: _item(by_number.get(str(number), [])) for number, one in enumerate(ids, 1)}


def _item(found: list[dict[str, Any]]) -> TagAnswer | str:
    if len(found) != 1:
        return f"answer: {len(found)} items for this article"
    try:
        return _tags(found[0])
    except AnswerError as unreadable:
        return str(unreadable)


def _tags(answer: dict[str, Any]) -> TagAnswer:
    named = answer.get("industries")
    if not isinstance(named, list):
        raise AnswerError(f"answer: industries {_shown(named)} is no list")
    codes, rejected = _industries(named)
    scope = answer.get("scope")
    if scope not in SCOPES:
        raise AnswerError(f"answer: scope {_shown(scope)} is none of {', '.join(SCOPES)}")
    if scope == "industry" and not codes and not rejected:
        raise AnswerError("answer: scope 'industry' without any industry")
    contradiction = ""
    if scope == "industry" and not codes:
        contradiction = "scope 'industry' without any industry that is known"
    elif scope != "industry" and codes:
        contradiction = f"scope {scope!r} with {len(codes)} industries contradicts itself"
    return TagAnswer(
        industries=() if contradiction else codes,
        scope="none" if contradiction and scope == "industry" else str(scope),
        importance=_importance(answer.get("importance")),
        importance_reason=_text(answer.get("importance_reason")),
        topics=_topics(answer.get("topics")),
        rejected=rejected,
        contradiction=contradiction,
    )


def _industries(named: list[Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Codes of the industries named, and the names that are none; both sorted."""
    codes: set[str] = set()
    rejected: set[str] = set()
    for one in named:
        name = _text(one)
        found = industry_named(name)
        if found is not None:
            codes.add(found.code)
        elif name:
            rejected.add(name[:LONGEST_NAME])
    return tuple(sorted(codes)), tuple(sorted(rejected))


def parse_prediction(
    text: str, horizons: tuple[int, ...], out_of_range: Literal["invalid", "clip"]
) -> PredictionAnswer:
    """The scores and reasons in an answer.

    A score that is missing, no number, or outside [-1, 1] invalidates its own horizon; with `clip` a finite
    one outside is moved to the nearer end instead.

    Raises:
        AnswerError: the text holds no JSON object.
    """
    answer = _json_object(text, "scores")
    given = answer.get("scores")
    scores: dict[int, float] = {}
    invalid: dict[int, str] = {}
    for horizon in horizons:
        if not isinstance(given, dict):
            score, problem = math.nan, f"scores {_shown(given)} is no object"
        elif str(horizon) not in given:
            score, problem = math.nan, "score is missing"
        elif isinstance(given[str(horizon)], _Ambiguous):
            score, problem = math.nan, f"score stands there twice, {given[str(horizon)]}"
        else:
            score, problem = _score(given[str(horizon)], out_of_range)
        scores[horizon] = score
        if problem:
            invalid[horizon] = problem
    confidence = _finite(answer.get("confidence_score"))
    return PredictionAnswer(
        scores=scores,
        invalid=invalid,
        confidence=confidence if confidence is not None and 0 <= confidence <= 1 else None,
        key_factor=_text(answer.get("key_factor")),
        logic_chain=_text(answer.get("logic_chain")),
    )


def _score(value: object, out_of_range: str) -> tuple[float, str]:
    score = _finite(value)
    if score is None:
        return math.nan, f"score {_shown(value)} is no number"
    if -1 <= score <= 1:
        return score + 0.0, ""
    if out_of_range == "clip":
        return math.copysign(1.0, score), ""
    return math.nan, f"score {_shown(value)} is outside [-1, 1]"


def _finite(value: object) -> float | None:
    """A finite number, also one written as text; None for anything else, booleans included."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value.strip()):
            return None
        value = value.strip()
    elif not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _importance(value: object) -> int:
    number = _finite(value)
    if number is None or number != int(number) or not 1 <= number <= 10:
        raise AnswerError(f"answer: importance {_shown(value)} is no whole number from 1 to 10")
    return int(number)


def _topics(value: object) -> tuple[str, ...]:
    listed = value if isinstance(value, list) else []
    return tuple(sorted({one.strip() for one in listed if isinstance(one, str) and one.strip()}))


def _text(value: object) -> str:
    """Text as it stands; lists and numbers that stand in its place as text, nothing as empty."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list):
        return "；".join(_text(one) for one in value)
    return str(value)  # numbers, objects, and what stands there twice


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def _json_object(text: str, key: str) -> dict[str, Any]:
    """The answer's object, read as it stands, else without trailing commas. `key` marks the right object."""
    if len(text) > LONGEST:
        raise AnswerError(f"answer: {len(text)} characters are more than the {LONGEST} that are read")
    text = _THOUGHT.sub("", text.lstrip("\ufeff"), count=1)
    found = _first_object(text, key)
    if found is None:
        found = _first_object(_TRAILING_COMMA.sub(lambda comma: comma.group(1) or "", text), key)
    if found is None:
        raise AnswerError(f"answer: no JSON object in {_shown(text)}")
    return found


def _first_object(text: str, key: str) -> dict[str, Any] | None:
    """The object at the first brace, or at one of the next few if it has the key.

    Without the key a later brace may open a part of an answer that was cut off.
    """
    first = start = text.find("{")
    for _ in range(STARTS_TRIED):
        if start < 0:
            return None
        try:
            found, _end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict) and (start == first or key in found):
            return found
        start = text.find("{", start + 1)
    return None


def prediction_flaws(answer: PredictionAnswer) -> tuple[str, ...]:
    """What is wrong with a prediction, one text per invalid horizon."""
    return tuple(f"horizon {horizon}: {problem}" for horizon, problem in answer.invalid.items())
