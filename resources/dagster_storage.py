"""Dagster's storage in Postgres with its connections kept open.

The stock storage opens a new connection for every event, and Postgres a new process with it; a benchmark logs thousands
of partitions. This one keeps one connection for each kind of record and process. Tables are the stock ones: either can
read the other's.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from typing import Any

from dagster._serdes import ConfigurableClassData
from dagster_postgres import DagsterPostgresStorage
from dagster_postgres.utils import create_pg_engine, pg_url_from_config
from sqlalchemy import Engine

_KEPT, _MORE = 1, 32
"""Connections that stay open, and those that may be opened beside them while all are in use."""

_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def _forget() -> None:
    """A forked child leaves its parent's connections alone and opens its own."""
    for engine in _engines:
        engine.dispose(close=False)


os.register_at_fork(after_in_child=_forget)


class PooledPostgresStorage(DagsterPostgresStorage):
    """`DagsterPostgresStorage` that reuses its connections. One that the server has closed is opened again.

    Args:
        postgres_url: `postgresql+psycopg2://user:password@host:port/database`.
        should_autocreate_tables: make the tables where there are none.
    """

    def __init__(
        self, postgres_url: str, should_autocreate_tables: bool = True, inst_data: ConfigurableClassData | None = None
    ) -> None:
        super().__init__(postgres_url, should_autocreate_tables, inst_data)
        for storage in (self._run_storage, self._event_log_storage, self._schedule_storage):
            storage._engine = create_pg_engine(
                postgres_url, isolation_level="AUTOCOMMIT", pool_size=_KEPT, max_overflow=_MORE, pool_pre_ping=True
            )
            _engines.add(storage._engine)

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> PooledPostgresStorage:
        """The storage that dagster.yaml asks for (the stock method would make a stock storage)."""
        return cls(pg_url_from_config(config_value), config_value["should_autocreate_tables"], inst_data)
