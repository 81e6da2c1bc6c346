"""Word lists of the rules backbone, read once from TOML and compiled for matching many words in one pass."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Generic, TypeVar

import ahocorasick

from finevolve_pipeline.errors import SettingsError
from finevolve_pipeline.universe import CODES

T = TypeVar("T")

_WEIGHTS = {
    "leaders": 3.0,
    "companies": 3.0,
    "brokers": 3.0,
    "strong": 3.0,
    "medium": 2.0,
    "foreign": 1.5,
    "weak": 1.0,
}
_COMPANIES = frozenset({"leaders", "companies", "brokers", "foreign"})
_LATIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")


def words(listed: str) -> tuple[str, ...]:
    """The words of a list as written in TOML: blank-separated, `_` for a blank, lower case, each once."""
    return tuple(dict.fromkeys(word.replace("_", " ").lower() for word in listed.split()))


def load(name: str) -> dict[str, Any]:
    """One packaged TOML file of this folder."""
    return tomllib.loads((files("finevolve_pipeline.llm.rules") / name).read_text("utf-8"))


class Matcher(Generic[T]):
    """All words of a dictionary found in a text in one pass (Aho-Corasick)."""

    def __init__(self, entries: dict[str, T]) -> None:
        self._size = len(entries)
        self._automaton = ahocorasick.Automaton()
        for word, value in entries.items():
            self._automaton.add_word(word, (len(word), word[0] in _LATIN, word[-1] in _LATIN, word, value))
        if entries:
            self._automaton.make_automaton()

    def longest(self, text: str) -> Iterator[tuple[int, str, T]]:
        """Non-overlapping words from left to right, at each place the longest: (start, word, value)."""
        return self._standing_alone(self._automaton.iter_long(text), text) if self._size else iter(())

    def every(self, text: str) -> Iterator[tuple[int, str, T]]:
        """All words, overlapping ones included: (start, word, value)."""
        return self._standing_alone(self._automaton.iter(text), text) if self._size else iter(())

    @staticmethod
    def _standing_alone(found: Iterable[tuple[int, Any]], text: str) -> Iterator[tuple[int, str, T]]:
        """Matches whose Latin ends are not inside a longer Latin word."""
        last = len(text) - 1
        for end, (length, latin_start, latin_end, word, value) in found:
            start = end - length + 1
            if latin_end and end < last and text[end + 1] in _LATIN:
                continue
            if latin_start and start > 0 and text[start - 1] in _LATIN:
                continue
            yield start, word, value


@dataclass(frozen=True)
class IndustryWord:
    """What one word says: (industry code, weight) pairs. `leader`: a firm that moves its industry.

    `broker`: a firm that mostly appears as a speaker about others. `company`: a firm's name.
    """

    votes: tuple[tuple[str, float], ...]
    company: bool
    leader: bool
    broker: bool


@lru_cache(maxsize=1)
def industry_words() -> dict[str, IndustryWord]:
    """Every word of `industries.toml` with what it says; words to ignore have no votes."""
    table = load("industries.toml")
    del table["endings"]
    votes: dict[str, dict[str, float]] = {word: {} for word in words(table.pop("ignore")["words"])}
    kinds: dict[str, set[str]] = {}
    for code, lists in table.items():
        if code not in CODES:
            raise SettingsError(f"lexicon industries.toml: [{code}] is no industry; use one of the 31 codes")
        for kind, listed in lists.items():
            for word in words(listed):
                cell = votes.setdefault(word, {})
                cell[code] = max(cell.get(code, 0.0), _WEIGHTS[kind])
                kinds.setdefault(word, set()).add(kind)
    return {
        word: IndustryWord(
            votes=tuple(sorted(cell.items())),
            company=bool(kinds.get(word, set()) & _COMPANIES),
            leader="leaders" in kinds.get(word, ()),
            broker="brokers" in kinds.get(word, ()),
        )
        for word, cell in votes.items()
    }


@lru_cache(maxsize=1)
def industry_matcher() -> Matcher[IndustryWord]:
    """Matcher over `industry_words`."""
    return Matcher(industry_words())


@lru_cache(maxsize=1)
def name_endings() -> dict[str, str]:
    """Endings of company names, each with the industry code it suggests."""
    return {ending: code for code, listed in load("industries.toml")["endings"].items() for ending in words(listed)}


@dataclass(frozen=True)
class Kind:
    """A kind of event; `rank` is its place in `events.toml` (lower wins).

    `paired`: needs a second word, an action. `conflict`: can mean only the industries under [conflict].
    `silent`: names no industry. `implies`: industries meant even if no word names them.
    """

    rank: int
    name: str
    base: float
    topic: str
    moves: str
    company: bool
    scope: str
    paired: bool
    conflict: bool
    silent: bool
    implies: tuple[str, ...]


@dataclass(frozen=True)
class Modifier:
    """What raises or lowers importance, whatever the kind."""

    name: str
    add: float


@dataclass(frozen=True)
class EventWord:
    """What one word says about kind, modifiers, scope and topics."""

    head_kinds: tuple[int, ...] = ()
    kinds: tuple[int, ...] = ()
    actions: tuple[int, ...] = ()
    excludes: tuple[int, ...] = ()
    modifiers: tuple[int, ...] = ()
    market: bool = False
    topics: tuple[str, ...] = ()


@dataclass(frozen=True)
class Events:
    """`events.toml`, compiled."""

    kinds: tuple[Kind, ...]
    modifiers: tuple[Modifier, ...]
    topics: tuple[str, ...]
    conflict_industries: frozenset[str]
    matcher: Matcher[EventWord]


@lru_cache(maxsize=1)
def events() -> Events:
    """Kinds of events, modifiers, scope words and topic words."""
    table = load("events.toml")
    kinds = tuple(
        Kind(
            rank=rank,
            name=entry["name"],
            base=entry["base"],
            topic=entry["topic"],
            moves=entry.get("moves", ""),
            company=entry.get("company", False),
            scope=entry.get("scope", ""),
            paired="also" in entry,
            conflict=entry.get("conflict", False),
            silent=entry.get("silent", False),
            implies=words(entry.get("implies", "")),
        )
        for rank, entry in enumerate(table["event"])
    )
    modifiers = tuple(Modifier(entry["name"], entry["add"]) for entry in table["modifier"])
    says: dict[str, dict[str, Any]] = {}

    def note(listed: str, field: str, value: object) -> None:
        for word in words(listed):
            says.setdefault(word, {}).setdefault(field, []).append(value)

    for rank, entry in enumerate(table["event"]):
        note(entry.get("head", ""), "head_kinds", rank)
        note(entry.get("words", ""), "kinds", rank)
        note(entry.get("also", ""), "actions", rank)
        note(entry.get("unless", ""), "excludes", rank)
    for position, entry in enumerate(table["modifier"]):
        note(entry["words"], "modifiers", position)
    note(table["scope"]["market"], "market", True)
    for topic, listed in table["topics"].items():
        note(listed, "topics", topic)
    entries = {
        word: EventWord(
            head_kinds=tuple(said.get("head_kinds", ())),
            kinds=tuple(said.get("kinds", ())),
            actions=tuple(said.get("actions", ())),
            excludes=tuple(said.get("excludes", ())),
            modifiers=tuple(said.get("modifiers", ())),
            market="market" in said,
            topics=tuple(said.get("topics", ())),
        )
        for word, said in says.items()
    }
    return Events(
        kinds,
        modifiers,
        tuple(table["topics"]),
        frozenset(words(table["conflict"]["industries"])),
        Matcher(entries),
    )
