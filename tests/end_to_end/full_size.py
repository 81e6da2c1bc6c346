"""A home whose Dagster instance knows of everything at full size, and whose tables were never made.

Twelve experiments x 299 sessions, every day of every source, and all other assets: one materialisation event for each
partition, as the assets log them (metadata, tags, runs over ranges), written to the event log in bulk.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import dagster as dg
from dagster._core.events import AssetMaterializationPlannedData, StepMaterializationData
from dagster._core.storage.event_log import SqliteEventLogStorage

from assets.partitioned import version_tags
from assets.planning import RANGE_END, RANGE_START
from finevolve_pipeline.cli.dagster_home import join_instance
from finevolve_pipeline.definitions import build_defs
from finevolve_pipeline.settings import load_settings

SETTINGS = """\
[experiments]
backbones = ["rules", "rules-noisy"]
"""

_JOB = "__ASSET_JOB"
_PREVIEWED = ("source", "title", "content", "published_at")


def write_full_size(home: Path, failed: Mapping[str, Collection[str]], missing: Mapping[str, Collection[str]]) -> Path:
    """Fill the instance of a home; its settings file.

    `failed` and `missing` are partitions of assets that a run tried in vain, and that none tried; all others are
    materialised.
    """
    config = home / "finevolve.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(SETTINGS)
    graph = build_defs(load_settings(config), home).resolve_asset_graph()
    with join_instance(home) as instance:
        for key in graph.get_all_asset_keys():
            node, name = graph.get(key), key.to_user_string()
            every = node.partitions_def.get_partition_keys() if node.partitions_def else [None]
            bad, absent = failed.get(name, ()), missing.get(name, ())
            parents = [parent.to_user_string() for parent in node.parent_keys]
            good = [partition for partition in every if partition not in bad and partition not in absent]
            for partitions in _by_second_dimension(good):
                run = _run(instance, name, partitions, dg.DagsterRunStatus.SUCCESS)
                _store(instance, [_materialised(run, name, partition, parents) for partition in partitions])
            if bad:
                run = _run(instance, name, sorted(bad), dg.DagsterRunStatus.FAILURE)
                _store(instance, [_planned(run, name, partition) for partition in sorted(bad)])
    return config


def every_partition(home: Path, config: Path) -> dict[str, Sequence[str]]:
    """Partitions of all assets under a settings file, by asset; none for an asset without partitions."""
    graph = build_defs(load_settings(config), home).resolve_asset_graph()
    return {
        key.to_user_string(): definition.get_partition_keys() if (definition := graph.get(key).partitions_def) else ()
        for key in sorted(graph.get_all_asset_keys())
    }


def _by_second_dimension(partitions: Sequence[str | None]) -> list[list[str | None]]:
    """Partitions by source or experiment: the ranges that runs take."""
    groups: dict[str, list[str | None]] = {}
    for partition in partitions:
        groups.setdefault((partition or "").partition("|")[2], []).append(partition)
    return list(groups.values())


def _run(
    instance: dg.DagsterInstance, asset: str, partitions: Sequence[str | None], status: dg.DagsterRunStatus
) -> dg.DagsterRun:
    first, last = partitions[0], partitions[-1]
    tags = {RANGE_START: first, RANGE_END: last} if first is not None and last is not None else {}
    run = dg.DagsterRun(
        job_name=_JOB,
        run_id=str(uuid.uuid4()),
        status=status,
        tags=tags,
        asset_selection=frozenset({dg.AssetKey(asset)}),
    )
    return instance.run_storage.add_run(run)


def _materialised(run: dg.DagsterRun, asset: str, partition: str | None, parents: Sequence[str]) -> dg.EventLogEntry:
    digest = hashlib.sha256(f"{asset} {partition}".encode()).hexdigest()
    rows = [dg.TableRecord({name: f"{name} {row} of {partition}" for name in _PREVIEWED}) for row in range(3)]
    schema = dg.TableSchema(columns=[dg.TableColumn(name, "string") for name in _PREVIEWED])
    seen = {
        tag: value
        for parent in parents
        for tag, value in (
            (f"dagster/input_data_version/{parent}", digest[:16]),
            (f"dagster/input_event_pointer/{parent}", "1"),
        )
    }
    materialisation = dg.AssetMaterialization(
        asset_key=asset,
        partition=_partition(asset, partition),
        metadata={
            "dagster/row_count": 31,
            "bytes": 20_000,
            "digest": digest,
            "reused": False,
            "preview": dg.MetadataValue.table(rows, schema=schema),
            "sources": {"cls": 20, "sina": 11},
        },
        tags={**seen, **version_tags(digest[:16], "1")},
    )
    return _entry(run, asset, "ASSET_MATERIALIZATION", StepMaterializationData(materialisation))


def _planned(run: dg.DagsterRun, asset: str, partition: str) -> dg.EventLogEntry:
    planned = AssetMaterializationPlannedData(dg.AssetKey(asset), partition=str(_partition(asset, partition)))
    return _entry(run, asset, "ASSET_MATERIALIZATION_PLANNED", planned)


def _partition(asset: str, partition: str | None) -> str | None:
    if partition is None or "|" not in partition:
        return partition
    second = {"raw_news": "source", "replay": "experiment"}[asset]
    date, _, other = partition.partition("|")
    return dg.MultiPartitionKey({"date": date, second: other})


def _entry(
    run: dg.DagsterRun, asset: str, kind: str, data: StepMaterializationData | AssetMaterializationPlannedData
) -> dg.EventLogEntry:
    event = dg.DagsterEvent(event_type_value=kind, job_name=_JOB, step_key=asset, event_specific_data=data)
    return dg.EventLogEntry(
        error_info=None,
        level="debug",
        user_message="",
        run_id=run.run_id,
        timestamp=time.time(),
        step_key=asset,
        job_name=_JOB,
        dagster_event=event,
    )


def _store(instance: dg.DagsterInstance, entries: Sequence[dg.EventLogEntry]) -> None:
    """What the storage does for each event, in one transaction for all. The asset's own row tells the last one."""
    storage = instance.event_log_storage
    assert isinstance(storage, SqliteEventLogStorage)
    *before, last = entries
    statements = [storage.prepare_insert_event(entry) for entry in before]
    with storage.run_connection(last.run_id) as shard:
        for statement in statements:
            shard.execute(statement)
    with storage.index_transaction() as index:
        numbers = [index.execute(statement).inserted_primary_key[0] for statement in statements]
        storage._store_asset_event_tags(index, before, numbers)
    storage.store_event(last)
