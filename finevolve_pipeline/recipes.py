"""What a stored partition was made of, told part by part, and from that: why it is stale.

A recipe's digest decides whether a partition is fresh (see `graph`); the parts beside it only explain. So digests in
them are short.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

from finevolve_pipeline.digests import canonical_json, digest_json

SHORT = 8
"""Hexadecimal digits of a digest that is kept to tell causes."""


@dataclass(frozen=True)
class Version:
    """The code and settings that can change a table.

    Attributes:
        code: digests by module, or by what else counts as code (prompt templates).
        settings: values as JSON, by their path in finevolve.toml.
    """

    code: Mapping[str, str]
    settings: Mapping[str, object]

    @cached_property
    def digest(self) -> str:
        """Digest of all of it."""
        return digest_json({"code": dict(self.code), "settings": dict(self.settings)})

    @cached_property
    def told(self) -> tuple[Mapping[str, str], Mapping[str, object]]:
        """Short digests of the code, and the settings as they come back from JSON."""
        return {name: one[:SHORT] for name, one in self.code.items()}, json.loads(canonical_json(self.settings))


@dataclass(frozen=True)
class Parts:
    """What a recipe is made of.

    Attributes:
        code: as in `Version`, digests cut to `SHORT`.
        settings: as in `Version`.
        columns: short digest of the columns and their types.
        inputs: short digest of each partition that is read, by table and partition; None for one that is lacking.
    """

    code: Mapping[str, str]
    settings: Mapping[str, object]
    columns: str
    inputs: Mapping[str, Mapping[str, str | None]]

    @staticmethod
    def of(version: Version, columns: str, inputs: Mapping[str, Mapping[str, str | None]]) -> Parts:
        """The parts with their digests cut."""
        return Parts(
            *version.told,
            columns[:SHORT],
            {table: {key: digest and digest[:SHORT] for key, digest in own.items()} for table, own in inputs.items()},
        )

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @staticmethod
    def from_document(document: Mapping[str, Any]) -> Parts:
        """What `document` gave."""
        return Parts(**document)


Kind = Literal["input", "upstream", "code", "setting", "columns", "unknown"]


@dataclass(frozen=True)
class Cause:
    """One thing that makes a partition stale.

    Attributes:
        kind: `input`, a partition that it reads is another one; `upstream`, one that it reads is itself stale or
            missing, so that nobody knows yet; `code`; `setting`; `columns`, the table has others now; `unknown`.
        name: of the table, of the module, or the path of the setting.
        change: what became of it, in words.
        inputs: partitions of the table `name` that it is about.
    """

    kind: Kind
    name: str
    change: str
    inputs: tuple[str, ...] = ()


UNTOLD = Cause("unknown", "", "made before causes were kept")
UNEXPLAINED = Cause("unknown", "", "its recipe is another one, its parts tell no difference")


def causes(was: Parts | None, now: Parts) -> tuple[Cause, ...]:
    """Why a partition that was made of `was` (None: nobody noted it) is not what `now` would make."""
    if was is None:
        return (UNTOLD,)
    found: list[Cause] = []
    if was.columns != now.columns:
        found.append(Cause("columns", "", "made by another version, with other columns"))
    found += [Cause("code", one.path, _became(one.before, one.now)) for one in _by_name(was.code, now.code)]
    found += [
        Cause("setting", one.path, f"was {one.before!r} and is {one.now!r}")
        for one in differences(was.settings, now.settings)
    ]
    for table in sorted({*was.inputs, *now.inputs}):
        changed: dict[str, list[str]] = {}
        for one in _by_name(was.inputs.get(table, {}), now.inputs.get(table, {})):
            changed.setdefault(_became(one.before, one.now), []).append(one.path)
        found += [Cause("input", table, change, tuple(keys)) for change, keys in changed.items()]
    return tuple(found) or (UNEXPLAINED,)


def _became(before: object, now: object) -> str:
    if before is None:
        return "is new"
    return "is gone" if now is None else "changed"


@dataclass(frozen=True)
class Difference:
    """A place where two JSON values differ; None stands for what is absent."""

    path: str
    before: object
    now: object

    def __str__(self) -> str:
        return f"{self.path} was {self.before!r} and is {self.now!r}"


def _by_name(before: Mapping[str, object], now: Mapping[str, object]) -> Iterator[Difference]:
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            yield Difference(name, before.get(name), now.get(name))


def differences(before: object, now: object, path: str = "") -> Iterator[Difference]:
    """Where two JSON values differ, in the order of their paths."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in sorted({*before, *now}):
            yield from differences(before.get(key), now.get(key), f"{path}.{key}" if path else str(key))
    elif before != now:
        yield Difference(path, before, now)


@dataclass(frozen=True)
class Reason:
    """A cause and all partitions of a table that are stale by it.

    Attributes:
        cause: the cause, without its inputs.
        partitions: what is stale by it, in order.
        inputs: the inputs of all of them, in order.
    """

    cause: Cause
    partitions: tuple[str, ...]
    inputs: tuple[str, ...]

    @property
    def words(self) -> str:
        """The cause in one line: `raw_news 2025-01-07|cls changed`, `settings.news.min_importance was 8 and is 7`."""
        kind, name, change = self.cause.kind, self.cause.name, self.cause.change
        if kind == "input":
            return f"{name} {span(self.inputs)} {change}"
        if kind == "upstream":
            return f"rests on {name} {span(self.inputs)}, which {change}"
        if kind == "setting":
            return f"settings.{name} {change}"
        return f"code {name} {change}" if kind == "code" else change

    def document(self) -> dict[str, object]:
        """As JSON."""
        return {
            "cause": self.cause.kind,
            "name": self.cause.name,
            "change": self.cause.change,
            "count": len(self.partitions),
            "first": self.partitions[0],
            "last": self.partitions[-1],
            "partitions": self.partitions,
            "inputs": self.inputs,
            "words": self.words,
        }


def reasons(stale: Mapping[str, Sequence[Cause]]) -> tuple[Reason, ...]:
    """The causes of stale partitions put together: one reason for all partitions that share a cause."""
    partitions: dict[Cause, list[str]] = {}
    inputs: dict[Cause, dict[str, None]] = {}
    for partition, own in stale.items():
        for one in own:
            cause = Cause(one.kind, one.name, one.change)
            partitions.setdefault(cause, []).append(partition)
            inputs.setdefault(cause, {}).update(dict.fromkeys(one.inputs))
    return tuple(Reason(cause, tuple(keys), tuple(sorted(inputs[cause]))) for cause, keys in partitions.items())


def span(keys: Sequence[str]) -> str:
    """Keys in few words: the one key, or the first and the last and how many there are."""
    return keys[0] if len(keys) == 1 else f"{keys[0]} to {keys[-1]} ({len(keys)})"
