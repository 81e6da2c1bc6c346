"""The dataset as a graph of tables: what each partition is built from, by which pure function.

The Dagster assets, `finevolve status` and `finevolve audit` all read this one description. A stored partition
carries a *recipe*: the digests of its inputs and of the code and settings that made it. It is fresh while the
recipe equals the present one.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pandas as pd

from finevolve_pipeline import calendar
from finevolve_pipeline.digests import digest_json, source_digest
from finevolve_pipeline.settings import Settings
from finevolve_pipeline.tables import Contract


class TableReader(Protocol):
    """Read access to stored tables. Partitions are named by their keys, e.g. `2025-05-30`."""

    def read(self, table: str, partition: str) -> pd.DataFrame:
        """A stored partition. Raises `MissingPartitionError` if it does not exist."""

    def digest(self, table: str, partition: str) -> str | None:
        """Content digest of a stored partition, None if it does not exist."""


@dataclass(frozen=True)
class Input:
    """One partition that another is built from. An optional one may be absent (a source without news that day)."""

    table: str
    partition: str
    optional: bool = False


Build = Callable[[str, TableReader], pd.DataFrame]


@dataclass(frozen=True)
class Table:
    """One table of the graph.

    Attributes:
        name: the asset's name.
        contract: columns, types and units.
        partitions: all partition keys, oldest first.
        inputs: what a partition is built from.
        build: makes a partition; reads its inputs from the given reader and nothing else.
        code_version: digest of the code and settings that can change the result.
    """

    name: str
    contract: type[Contract]
    partitions: tuple[str, ...]
    inputs: Callable[[str], tuple[Input, ...]]
    build: Build
    code_version: str

    def recipe(self, partition: str, reader: TableReader) -> Recipe:
        """The present recipe of a partition, and which required inputs are absent."""
        digests: dict[str, str | None] = {}
        absent: list[Input] = []
        for item in self.inputs(partition):
            digest = reader.digest(item.table, item.partition)
            if digest is None and not item.optional:
                absent.append(item)
            digests[f"{item.table}/{item.partition}"] = digest
        return Recipe(digest_json({"code": self.code_version, "inputs": digests}), tuple(absent))


@dataclass(frozen=True)
class Recipe:
    """What a partition would be made of now."""

    digest: str
    absent: tuple[Input, ...]


SINGLE = "all"
"""Partition key of an unpartitioned table."""


def _keys(days: Sequence[dt.date]) -> tuple[str, ...]:
    return tuple(day.isoformat() for day in days)


def code_version(*modules: str, settings: Mapping[str, object] | None = None) -> str:
    """Digest of modules (see `digests.source_digest`) and of the settings they read."""
    return digest_json({"code": source_digest(*modules), "settings": dict(settings or {})})
