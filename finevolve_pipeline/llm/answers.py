"""Reading answers: JSON text of any backbone becomes a typed answer, or an `AnswerError`.

Repair covers what models do around good JSON: code fences, words before and after, trailing commas, NaN. It
never invents a value. A bad score costs its own horizon only.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, Literal

from finevolve_pipeline.errors import AnswerError, UniverseError
from finevolve_pipeline.universe import industry

SCOPES = ("industry", "market", "none")
LONGEST = 200_000
STARTS_TRIED = 8

_DECODER = json.JSONDecoder()
_TRAILING_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', re.S)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


@dataclass(frozen=True)
class TagAnswer:
    """An article's tags. `industries` are sorted Shenwan codes, empty unless `scope` is industry."""

    industries: tuple[str, ...]
    scope: str
    importance: int
    importance_reason: str
    topics: tuple[str, ...]


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
        AnswerError: no JSON object, an unknown industry or scope, scope and industries that contradict each
            other, or an importance that is no whole number from 1 to 10.
    """
    answer = _json_object(text, "industries")
    codes = answer.get("industries")
    if not isinstance(codes, list):
        raise AnswerError(f"answer: industries {_shown(codes)} is no list")
    industries = tuple(sorted({_code(one) for one in codes}))
    scope = answer.get("scope")
    if scope not in SCOPES:
        raise AnswerError(f"answer: scope {_shown(scope)} is none of {', '.join(SCOPES)}")
    if (scope == "industry") != bool(industries):
        raise AnswerError(f"answer: scope {scope!r} with {len(industries)} industries contradicts itself")
    return TagAnswer(
        industries=industries,
        scope=scope,
        importance=_importance(answer.get("importance")),
        importance_reason=_text(answer.get("importance_reason")),
        topics=_topics(answer.get("topics")),
    )


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


def _code(value: object) -> str:
    if not isinstance(value, str):
        raise AnswerError(f"answer: industry {_shown(value)} is no text")
    try:
        return industry(value).code
    except UniverseError as unknown:
        raise AnswerError(f"answer: {unknown}") from None


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
    return str(value)


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def _json_object(text: str, key: str) -> dict[str, Any]:
    """The answer's object, read as it stands, else without trailing commas. `key` marks the right object."""
    if len(text) > LONGEST:
        raise AnswerError(f"answer: {len(text)} characters are more than the {LONGEST} that are read")
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
