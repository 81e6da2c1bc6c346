"""Reading answers: JSON text of any backbone becomes a typed answer, or an `AnswerError`.

Repair covers what models do around good JSON: code fences, words before and after, reasoning before, trailing commas,
a plus sign, NaN. It never invents a value and never chooses between two: a key that stands twice with different values
has none, and of two different answers in one text neither counts (one of them may be what an article said). A bad score
costs its own horizon only; a name that is no industry is set aside, not guessed at. Reading takes time in proportion to
the text's length, whatever the text.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, Literal

from finevolve_pipeline.errors import AnswerError
from finevolve_pipeline.llm.schemas import MAX_INDUSTRIES, SCOPES
from finevolve_pipeline.universe import industry_named

LONGEST = 200_000
STARTS_TRIED = 8
DEEPEST = 32
"""Levels of objects and lists in an answer that are read."""
LONGEST_INTEGER = 400
"""Digits; whole numbers with more are beyond any float."""
LONGEST_NAME = 60
"""Characters of a rejected industry name that are kept."""


@dataclass(frozen=True)
class _Ambiguous:
    """A key that stands in an object twice or more; the first two values that differ."""

    values: tuple[object, ...]

    def __str__(self) -> str:
        return " and ".join(shortened(value) for value in self.values)


def _distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; keys that stand there twice with the same value are one, with different ones ambiguous."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        before = found.get(key, value)
        if isinstance(before, _Ambiguous):
            continue
        found[key] = value if before is value or _same(before, value) else _Ambiguous((before, value))
    return found


def _same(one: object, other: object) -> bool:
    numbers = [isinstance(value, int | float) and not isinstance(value, bool) for value in (one, other)]
    return one == other and (all(numbers) or type(one) is type(other))


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= LONGEST_INTEGER else float(digits)


_DECODER = json.JSONDecoder(object_pairs_hook=_distinct_keys, parse_int=_integer, strict=False)
_THOUGHT_BEGINS = re.compile(r"<think(?:ing)?>|\[THINK\]", re.I)
_THOUGHT_ENDS = re.compile(r"</think(?:ing)?>|\[/THINK\]", re.I)
# A text in quotes, which stays, or a comma that nothing follows, or a plus sign before a number. A text without its
# closing quote reaches to the end, so that its quotes are not tried one by one.
_REPAIRED = re.compile(r'("(?:[^"\\]|\\.)*+(?:"|\\?\Z))|,(?=\s*[}\]])|(?<=[\s:,\[])\+(?=[\d.])', re.S)
_NUMBER = re.compile(r"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?")


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

    @property
    def too_many(self) -> int:
        """Industries beyond the allowed number. They stay: which of them to leave out is not told."""
        return max(0, len(self.industries) - MAX_INDUSTRIES)


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
    return _tags(json_object(text, "industries"))


def tag_flaws(answer: TagAnswer) -> tuple[str, ...]:
    """What is wrong with tags that could be read: names that are no industries, a contradicted scope, too many."""
    found = [f"industry {shortened(name)} is none of the 31 codes" for name in answer.rejected]
    if answer.contradiction:
        found.append(answer.contradiction)
    if answer.too_many:
        found.append(f"{len(answer.industries)} industries are more than the {MAX_INDUSTRIES} allowed")
    return tuple(found)


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
    items = json_object(text, "articles").get("articles")
    if not isinstance(items, list):
        raise AnswerError(f"answer: articles {shortened(items)} is no list")
    by_number: dict[str, list[dict[str, Any]]] = {}
    for item in items:
        if isinstance(item, dict):
            by_number.setdefault(plain_text(item.get("id")).lstrip("#0"), []).append(item)
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
        raise AnswerError(f"answer: industries {shortened(named)} is no list")
    codes, rejected = _industries(named)
    scope = plain_text(answer.get("scope")).lower()
    if scope not in SCOPES:
        raise AnswerError(f"answer: scope {shortened(answer.get('scope'))} is none of {', '.join(SCOPES)}")
    if scope == "industry" and not codes and not rejected:
        raise AnswerError("answer: scope 'industry' without any industry")
    contradiction = ""
    if scope == "industry" and not codes:
        contradiction = "scope 'industry' without any industry that is known"
    elif scope != "industry" and codes:
        contradiction = f"scope {scope!r} with {len(codes)} industries contradicts itself"
    return TagAnswer(
        industries=() if contradiction else codes,
        scope="none" if contradiction and scope == "industry" else scope,
        importance=_importance(answer.get("importance")),
        importance_reason=plain_text(answer.get("importance_reason")),
        topics=_topics(answer.get("topics")),
        rejected=rejected,
        contradiction=contradiction,
    )


def _industries(named: list[Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Codes of the industries named, and the names that are none; both sorted."""
    codes: set[str] = set()
    rejected: set[str] = set()
    for one in named:
        name = plain_text(one)
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
    answer = json_object(text, "scores")
    given = answer.get("scores")
    scores: dict[int, float] = {}
    invalid: dict[int, str] = {}
    for horizon in horizons:
        if not isinstance(given, dict):
            score, problem = math.nan, f"scores {shortened(given)} is no object"
        elif str(horizon) not in given:
            score, problem = math.nan, "score is missing"
        elif isinstance(given[str(horizon)], _Ambiguous):
            score, problem = math.nan, f"score stands there twice, {given[str(horizon)]}"
        else:
            score, problem = _score(given[str(horizon)], out_of_range)
        scores[horizon] = score
        if problem:
            invalid[horizon] = problem
    confidence = finite(answer.get("confidence_score"))
    return PredictionAnswer(
        scores=scores,
        invalid=invalid,
        confidence=confidence if confidence is not None and 0 <= confidence <= 1 else None,
        key_factor=plain_text(answer.get("key_factor")),
        logic_chain=plain_text(answer.get("logic_chain")),
    )


def _score(value: object, out_of_range: str) -> tuple[float, str]:
    score = finite(value)
    if score is None:
        return math.nan, f"score {shortened(value)} is no number"
    if -1 <= score <= 1:
        return score + 0.0, ""
    if out_of_range == "clip":
        return math.copysign(1.0, score), ""
    return math.nan, f"score {shortened(value)} is outside [-1, 1]"


def finite(value: object) -> float | None:
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
    number = finite(value)
    if number is None or number != int(number) or not 1 <= number <= 10:
        raise AnswerError(f"answer: importance {shortened(value)} is no whole number from 1 to 10")
    return int(number)


def _topics(value: object) -> tuple[str, ...]:
    listed = value if isinstance(value, list) else []
    return tuple(sorted({plain_text(one) for one in listed if isinstance(one, str)} - {""}))


def plain_text(value: object) -> str:
    """Text as it stands, in what UTF-8 can hold; lists and numbers in its place as text, nothing as empty."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value.strip().encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return "；".join(plain_text(one) for one in value)
    return str(value)  # numbers, objects, and what stands there twice


def shortened(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def json_object(text: str, key: str) -> dict[str, Any]:
    """The answer's object, read as it stands, else repaired. `key` marks the right object.

    Raises:
        AnswerError: there is none, or there are several that differ.
    """
    if len(text) > LONGEST:
        raise AnswerError(f"answer: {len(text)} characters are more than the {LONGEST} that are read")
    said = _after_thought(text.lstrip("\ufeff \t\r\n"))
    found = _objects(said, key) or _objects(_REPAIRED.sub(lambda piece: piece.group(1) or "", said), key)
    if not found:
        raise AnswerError(f"answer: no JSON object in {shortened(said)}")
    if any(one != found[0] for one in found):
        raise AnswerError(f"answer: {len(found)} JSON objects that differ; one is wanted")
    return found[0]


def _after_thought(text: str) -> str:
    """What follows a model's reasoning, where its marks are left in the text.

    Raises:
        AnswerError: the text ends within the reasoning. An answer that was only thought of is none.
    """
    if text.startswith("{"):
        return text  # marks inside the answer's own texts end nothing
    ends = list(_THOUGHT_ENDS.finditer(text))
    said = text[ends[-1].end() :] if ends else text
    begun = _THOUGHT_BEGINS.search(said)
    if begun is not None and begun.start() < max(said.find("{"), 0):
        raise AnswerError("answer: it ends within the reasoning")
    return said


def _objects(text: str, key: str) -> list[dict[str, Any]]:
    """The objects that have the key, side by side; if there are none, the one at the first brace.

    Without the key a later brace may open a part of an answer that was cut off.
    """
    with_key: list[dict[str, Any]] = []
    at_first_brace: list[dict[str, Any]] = []
    first = start = text.find("{")
    for _ in range(STARTS_TRIED):
        if start < 0:
            break
        try:
            found, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            start = text.find("{", start + 1)
            continue
        if _depth(found) > DEEPEST:
            raise AnswerError(f"answer: nested more than {DEEPEST} deep")
        if key in found:
            with_key.append(found)
        elif start == first:
            at_first_brace.append(found)
        start = text.find("{", end)
    return with_key or at_first_brace


def _depth(value: object) -> int:
    """Levels of objects and lists; more than `DEEPEST` are not counted to the end."""
    level, depth = [value], 0
    while level and depth <= DEEPEST:
        inner: list[object] = []
        for one in level:
            if isinstance(one, dict | list):
                inner.extend(one.values() if isinstance(one, dict) else one)
            elif isinstance(one, _Ambiguous):
                inner.extend(one.values)
        depth += bool(inner)
        level = inner
    return depth


def prediction_flaws(answer: PredictionAnswer) -> tuple[str, ...]:
    """What is wrong with a prediction, one text per invalid horizon."""
    return tuple(f"horizon {horizon}: {problem}" for horizon, problem in answer.invalid.items())
