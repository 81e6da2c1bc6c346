"""Reading the answers to what a mechanism asks in order to learn.

They are read as strictly as predictions (see `answers`): what cannot be read is an `AnswerError`, what can be read in
part is used in part and its flaws are named, so that the one question more can be asked. Nothing is invented.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

from finevolve_pipeline.errors import AnswerError
from finevolve_pipeline.llm.answers import finite, json_object, plain_text, shortened
from finevolve_pipeline.llm.requests import ReasoningItem
from finevolve_pipeline.llm.schemas import MEMORY_VERBS, RULE_VERBS

T = TypeVar("T")


@dataclass(frozen=True)
class Listed(Generic[T]):
    """The usable entries of an answer, in its order, and what is wrong with the others."""

    entries: tuple[T, ...]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Operation:
    """One change of a numbered list.

    Attributes:
        verb: what to do.
        number: of the entry it is done to, from 1; 0 where a new one is added.
        text: the new text; empty where none is needed.
    """

    verb: str
    number: int
    text: str


def no_flaws(_: object) -> tuple[str, ...]:
    """For answers that are either read or not."""
    return ()


def listed_flaws(answer: Listed[Any]) -> tuple[str, ...]:
    """What is wrong with entries that could not be used."""
    return answer.problems


def parse_reflection(text: str) -> str:
    """The reflection in an answer. Raises `AnswerError` if there is none."""
    return _required(json_object(text, "reflection"), "reflection")


def parse_insight(text: str) -> str:
    """The insight in an answer. Raises `AnswerError` if there is none."""
    return _required(json_object(text, "insight"), "insight")


def parse_items(text: str, most: int) -> Listed[ReasoningItem]:
    """The reasoning items in an answer, the first `most` of them; there may be none.

    Raises:
        AnswerError: no JSON object, or no list of items.
    """
    found: list[ReasoningItem] = []
    problems: list[str] = []
    names = [field.name for field in fields(ReasoningItem)]
    for number, entry in enumerate(_list(text, "items"), 1):
        values = {name: plain_text(entry.get(name)) for name in names} if isinstance(entry, dict) else {}
        if not values.get("content"):
            problems.append(f"item {number} {shortened(entry)} has no content")
        else:
            found.append(ReasoningItem(**values))
    return Listed(*_at_most(found, problems, most, "items"))


def parse_facts(text: str, most: int) -> Listed[str]:
    """The facts in an answer, the first `most` of them, each once; there may be none.

    Raises:
        AnswerError: no JSON object, or no list of facts.
    """
    found: list[str] = []
    problems: list[str] = []
    for number, entry in enumerate(_list(text, "facts"), 1):
        fact = plain_text(entry) if isinstance(entry, str) else ""
        if not fact:
            problems.append(f"fact {number} {shortened(entry)} is no text")
        elif fact not in found:
            found.append(fact)
    return Listed(*_at_most(found, problems, most, "facts"))


def parse_rule_operations(text: str, rules: int, most: int) -> Listed[Operation]:
    """The operations on a list of `rules` rules, the first `most` of them; there may be none.

    Raises:
        AnswerError: no JSON object, or no list of operations.
    """
    found, problems = _operations(text, "rule", RULE_VERBS, with_text={"ADD", "EDIT"}, entries=rules)
    return Listed(*_at_most(found, problems, most, "operations"))


def parse_memory_operations(text: str, memories: int) -> Listed[Operation]:
    """The operations on a list of `memories` memories; there may be none.

    Raises:
        AnswerError: no JSON object, or no list of operations.
    """
    found, problems = _operations(text, "memory", MEMORY_VERBS, with_text={"ADD", "UPDATE"}, entries=memories)
    return Listed(tuple(found), tuple(problems))


def _operations(
    text: str, subject: str, verbs: Collection[str], with_text: Collection[str], entries: int
) -> tuple[list[Operation], list[str]]:
    found: list[Operation] = []
    problems: list[str] = []
    for number, entry in enumerate(_list(text, "operations"), 1):
        given = entry if isinstance(entry, dict) else {}
        verb = plain_text(given.get("operation")).upper()
        target = finite(given.get(subject))
        said = plain_text(given.get("text"))
        needs_target = verb not in ("ADD", "NOOP")
        if verb not in verbs:
            problems.append(f"operation {number} {shortened(entry)} is none of {', '.join(verbs)}")
        elif needs_target and target not in range(1, entries + 1):
            problems.append(f"operation {number}: {verb} needs the number of a {subject}, 1 to {entries}")
        elif verb in with_text and not said:
            problems.append(f"operation {number}: {verb} needs a text")
        else:
            place = int(target) if needs_target and target is not None else 0
            found.append(Operation(verb, place, said if verb in with_text else ""))
    return found, problems


def _list(text: str, key: str) -> list[Any]:
    value = json_object(text, key).get(key)
    if not isinstance(value, list):
        raise AnswerError(f"answer: {key} {shortened(value)} is no list")
    return value


def _required(answer: dict[str, Any], key: str) -> str:
    value = answer.get(key)
    said = plain_text(value) if isinstance(value, str) else ""
    if not said:
        raise AnswerError(f"answer: {key} {shortened(value)} is no text")
    return said


def _at_most(found: list[T], problems: list[str], most: int, what: str) -> tuple[tuple[T, ...], tuple[str, ...]]:
    if len(found) > most:
        problems.append(f"{len(found)} {what} are more than the {most} allowed; the first {most} count")
    return tuple(found[:most]), tuple(problems)
