"""One general way to turn a table of the graph into a Dagster asset: partitioned, incremental, crash-exact.

What belongs here: the loop over partitions, reuse of fresh ones, one materialisation event for each partition as
soon as it is durable, provenance tags and common metadata. What must not: any rule about news, markets or replay.

Why assets log their own events: a range runs in one run, and a framework event comes only when the whole range is
done, with one data version for all partitions. A logged event is exact after a crash and carries the partition's
own content digest. `reported` then ends the step without a second event for every partition.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import dagster as dg
import pandas as pd
from dagster._core.definitions.source_asset import SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION

from finevolve_pipeline import tables
from finevolve_pipeline.errors import MissingPartitionError
from finevolve_pipeline.files import looking
from finevolve_pipeline.graph import LANDING, SINGLE, Recipe, Table
from resources.observer import Observer
from resources.table_store import Stored, TableStore

OWNER = "team:finevolve"
_PREVIEW_ROWS = 3
_PREVIEW_CHARACTERS = 48
_NOT_IN_PREVIEW = frozenset(
    {
        "article_id",
        "source_id",
        "url",
        "modified_at",
        "crawled_at",
        "origin",
        "duplicates",
        "industries_given",
        "importance_given",
        "importance_reason",
        "tagger",
        "rejected_industries",
    }
)
"""Columns of news that would squeeze title and content out of sight."""

Metadata = Mapping[str, Any]

Before = Callable[[dg.AssetExecutionContext, Sequence[str]], None]
"""What an asset does before its partitions are made; see `table_asset`."""


@dataclass(frozen=True)
class Presentation:
    """How an asset shows in the UI."""

    group: str
    description: str
    kinds: frozenset[str] = frozenset({"parquet", "pandas"})
    describe: Callable[[pd.DataFrame], Metadata] = field(default=lambda frame: {})
    describe_key: Callable[[str], Metadata] = field(default=lambda key: {})


def column_schema(contract: type[tables.Contract]) -> dg.TableSchema:
    """A contract as Dagster shows it: columns, types as stored, meaning."""
    columns, stored = contract.to_schema().columns, tables.arrow_schema(contract)
    return dg.TableSchema(
        columns=[
            dg.TableColumn(name, str(stored.field(name).type), column.description or "")
            for name, column in columns.items()
        ]
    )


def preview(frame: pd.DataFrame) -> dg.TableMetadataValue:
    """The first rows as text cells; the UI escapes them. Long texts are cut, columns of little use left out."""

    def cell(value: object) -> str:
        listed = isinstance(value, Iterable) and not isinstance(value, str)
        text = ", ".join(str(item) for item in value) if isinstance(value, Iterable) and listed else str(value)
        return text if len(text) <= _PREVIEW_CHARACTERS else text[: _PREVIEW_CHARACTERS - 1] + "…"

    shown = [str(name) for name in frame.columns if name not in _NOT_IN_PREVIEW]
    rows = frame.head(_PREVIEW_ROWS)[shown].to_dict("records")
    return dg.MetadataValue.table(
        [dg.TableRecord({str(name): cell(value) for name, value in row.items()}) for row in rows],
        schema=dg.TableSchema(columns=[dg.TableColumn(name, "string") for name in shown]),
    )


def provenance_tags(instance: dg.DagsterInstance, upstream: Sequence[dg.AssetKey]) -> dict[str, str]:
    """Tags that tell Dagster which state of each upstream asset a materialisation has seen."""
    tags: dict[str, str] = {}
    for key in upstream:
        records = instance.fetch_materializations(key, limit=1).records
        name = key.to_user_string()
        if not records:
            tags[f"dagster/input_data_version/{name}"] = "INITIAL"
            tags[f"dagster/input_event_pointer/{name}"] = "NULL"
            continue
        event = records[0].asset_materialization
        version = (event.tags or {}).get("dagster/data_version", "INITIAL") if event else "INITIAL"
        tags[f"dagster/input_data_version/{name}"] = version
        tags[f"dagster/input_event_pointer/{name}"] = str(records[0].storage_id)
    return tags


def reported(asset: str) -> dg.MaterializeResult[None]:
    """The result of an asset that has logged its own events: downstream goes on, no further event is made.

    The metadata key is Dagster's own switch for assets that report through their context (pinned by a test, because
    it is not public: without it every partition would get a second event with one data version for the range).
    """
    return dg.MaterializeResult(asset_key=asset, metadata={SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION: True})


def version_tags(data_version: str, code_version: str) -> dict[str, str]:
    """Tags with a partition's own data version and the code that made it."""
    return {
        "dagster/data_version": data_version,
        "dagster/data_version_is_user_provided": "true",
        "dagster/code_version": code_version,
    }


def table_asset(
    table: Table,
    presentation: Presentation,
    partitions_def: dg.PartitionsDefinition[Any] | None,
    deps: Sequence[dg.AssetDep | str],
    before: Before | None = None,
) -> dg.AssetsDefinition:
    """The asset of a table. A partition whose recipe is unchanged is reused, and reported as such.

    Args:
        table: the table.
        presentation: how the asset shows.
        partitions_def: its partitions; None: one table, whose only key is `SINGLE`.
        deps: what it depends on.
        before: called once a run with the keys that the run asks for, before any of them is looked at: the place to
            bring in from outside what they lack. What it raises ends the run.
    """
    spec = dg.AssetSpec(
        table.name,
        deps=deps,
        description=presentation.description,
        group_name=presentation.group,
        kinds=set(presentation.kinds),
        owners=[OWNER],
        code_version=table.code_version,
        partitions_def=partitions_def,
        metadata={"dagster/column_schema": column_schema(table.contract)},
    )
    upstream = [dep.asset_key for dep in spec.deps if dep.asset_key != spec.key]
    itself = [dep.asset_key for dep in spec.deps if dep.asset_key == spec.key]

    @dg.multi_asset(
        specs=[spec],
        name=table.name,
        backfill_policy=dg.BackfillPolicy.single_run() if partitions_def else None,
    )
    def materialise(
        context: dg.AssetExecutionContext,
        store: dg.ResourceParam[TableStore],
        observer: dg.ResourceParam[Observer],
    ) -> Iterator[Any]:
        seen = provenance_tags(context.instance, upstream)
        keys = [str(key) for key in context.partition_keys] if partitions_def else [SINGLE]
        if before is not None:
            before(context, keys)
        done = 0
        # An input that changes meanwhile is in no recipe made here, so that its partitions are found to be stale.
        with looking(), closing(make_partitions(table, keys, store, presentation.describe)) as partitions:
            for made in partitions:
                done += 1
                context.log_event(
                    dg.AssetMaterialization(
                        asset_key=table.name,
                        partition=made.key if partitions_def else None,
                        metadata={**made.metadata, **presentation.describe_key(made.key)},
                        # A partition that follows the one before it has seen that one's event, a moment ago.
                        tags={
                            **seen,
                            **provenance_tags(context.instance, itself),
                            **version_tags(made.stored.digest, table.code_version),
                        },
                    )
                )
                observer.done(table.name, made.key, bool(made.metadata["reused"]))
                if done % 100 == 0:
                    context.log.info(f"{table.name}: {done} partitions, of at most {len(keys)}")
        if not done:
            raise MissingPartitionError(
                f"{table.name} {keys[0]}…{keys[-1]}: nothing has landed for it; `finevolve import` brings it"
            )
        yield reported(table.name)

    return materialise


@dataclass(frozen=True)
class Made:
    """A partition that is stored and fresh, with what the UI tells about it."""

    key: str
    stored: Stored
    metadata: Metadata


@dataclass(frozen=True)
class _Look:
    """What was found of a partition when its turn came; what must be built is not looked at again."""

    key: str
    recipe: Recipe
    stored: Stored | None

    @property
    def has_landed(self) -> bool:
        """Whether an import has brought something for it, where it needs that."""
        absent = self.recipe.absent
        return not absent or not all(item.table.startswith(LANDING) for item in absent)

    @property
    def is_due(self) -> bool:
        """Whether it has to be built."""
        return self.has_landed and (self.stored is None or self.stored.recipe != self.recipe.digest)


def make_partitions(
    table: Table, keys: Iterable[str], store: TableStore, describe: Callable[[pd.DataFrame], Metadata]
) -> Generator[Made, None, None]:
    """Build partitions unless their recipes are unchanged. Those for which an import has brought nothing are left out.

    Each one comes out, in order, as soon as it is durable. A table may be building later ones meanwhile.

    Raises:
        MissingPartitionError: a required input does not exist; all partitions before came out.
        TableError: a result breaks the table's contract; the old partition stays.
    """
    looks = (_look(table, key, store) for key in keys)
    for look in looks:
        if look.is_due:
            yield from _from_the_first_due(table, chain((look,), looks), store, describe)
        else:
            yield from _reused(table, look)


def _from_the_first_due(
    table: Table, looks: Iterator[_Look], store: TableStore, describe: Callable[[pd.DataFrame], Metadata]
) -> Generator[Made, None, None]:
    waiting: deque[_Look] = deque()

    def due() -> Iterator[str]:
        """Keys of what must be built, up to the first one that cannot be."""
        for look in looks:
            waiting.append(look)
            if look.is_due and look.recipe.absent:
                return
            if look.is_due:
                yield look.key

    with closing(table.build_many(due(), store)) as building:
        for built in building:
            while (look := waiting.popleft()).key != built.partition:
                yield from _reused(table, look)
            stored = store.write(table, look.key, built.frame, look.recipe.digest, look.recipe.parts)
            metadata = {"preview": preview(built.frame), **describe(built.frame), **built.facts}
            yield _made(look.key, stored, False, metadata)
    for look in waiting:
        yield from _reused(table, look)


def _look(table: Table, key: str, store: TableStore) -> _Look:
    return _Look(key, table.recipe(key, store), store.stored(table.name, key))


def _reused(table: Table, look: _Look) -> Iterator[Made]:
    """A fresh partition; nothing for one that has not landed. Raises for one that cannot be built."""
    if look.is_due:
        table.require_inputs(look.key, look.recipe)
    elif look.has_landed and look.stored is not None:
        yield _made(look.key, look.stored, True, {})


def _made(key: str, stored: Stored, reused: bool, more: Metadata) -> Made:
    facts = {"dagster/row_count": stored.rows, "bytes": stored.bytes, "digest": stored.digest}
    return Made(key, stored, {**facts, "reused": reused, **more})
