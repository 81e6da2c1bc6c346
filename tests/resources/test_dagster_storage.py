"""Dagster's storage in Postgres: few connections, and none that a restart or a fork has spoiled."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.instance.ref import InstanceRef

from resources.postgres import Server


@pytest.fixture
def instance(database: str, tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """An instance as deploy/dagster.yaml has it."""
    storage = {"module": "resources.dagster_storage", "class": "PooledPostgresStorage"}
    config = {"postgres_url": {"env": "FINEVOLVE_DATABASE"}}
    overrides = {"storage": {"custom": {**storage, "config": config}}}
    with dg.DagsterInstance.from_ref(InstanceRef.from_dir(str(tmp_path), overrides=overrides)) as found:
        yield found


def told(instance: dg.DagsterInstance, partition: str) -> None:
    instance.report_runless_asset_event(dg.AssetMaterialization("a", partition=partition))


def partitions(instance: dg.DagsterInstance) -> set[str]:
    return set(instance.get_materialized_partitions(dg.AssetKey("a")))


def connections(database: str) -> int:
    """Connections that the server has had since the database was made."""
    with contextlib.closing(Server(database).connect("tests")) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute("SELECT sessions FROM pg_stat_database WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


def test_many_events_need_no_connection_each(instance: dg.DagsterInstance, database: str) -> None:
    told(instance, "0")
    before = connections(database)
    for number in range(20):
        told(instance, str(number))
    time.sleep(1.2)  # the server's counters follow after a second
    assert connections(database) - before <= 4
    assert partitions(instance) == {str(number) for number in range(20)}


def test_after_a_restart_of_the_server_it_goes_on(instance: dg.DagsterInstance, postgres) -> None:
    told(instance, "before")
    postgres.restart()
    told(instance, "after")
    assert partitions(instance) == {"before", "after"}


def test_a_fork_leaves_its_parents_connections_alone(instance: dg.DagsterInstance) -> None:
    told(instance, "parent")
    child = os.fork()
    if child == 0:
        told(instance, "child")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    told(instance, "again")
    assert partitions(instance) == {"parent", "child", "again"}
