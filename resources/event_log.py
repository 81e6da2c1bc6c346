"""Dagster's SQLite event log with its database handles kept open.

The stock storage makes a new SQLAlchemy engine for every event, about 10 ms each; a benchmark logs thousands of
partitions. This one keeps the last few engines. Schema and files are the stock ones: either can open the other's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dagster._core.storage.event_log import SqliteEventLogStorage
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from dagster._serdes import ConfigurableClassData
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.pool import StaticPool

_KEPT = 8
"""Open shards: the index and the runs in progress."""


class PooledSqliteEventLogStorage(SqliteEventLogStorage):
    """`SqliteEventLogStorage` that reuses its engines."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        self._engines: OrderedDict[str, Engine] = OrderedDict()
        # `base_dir` is DAGSTER_HOME; the stock storage keeps its shards in this folder of it.
        super().__init__(str(Path(base_dir) / "history" / "runs"), inst_data)

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> PooledSqliteEventLogStorage:
        """The storage that dagster.yaml asks for (the stock method would make a stock storage)."""
        return cls(inst_data=inst_data, base_dir=config_value["base_dir"])

    @contextmanager
    def _connect(self, shard: str) -> Iterator[Connection]:
        with self._db_lock:
            engine = self._engine(shard)
            if shard not in self._initialized_dbs:
                self._initdb(engine)
                self._initialized_dbs.add(shard)
            with engine.connect() as conn, conn.begin():
                yield conn

    def _engine(self, shard: str) -> Engine:
        engine = self._engines.pop(shard, None) or create_engine(
            self.conn_string_for_shard(shard),
            poolclass=StaticPool,
            connect_args={"timeout": SQLITE_BUSY_TIMEOUT_SECONDS, "check_same_thread": False},
        )
        self._engines[shard] = engine
        while len(self._engines) > _KEPT:
            self._engines.popitem(last=False)[1].dispose()
        return engine

    def dispose(self) -> None:
        """Close all handles."""
        while self._engines:
            self._engines.popitem()[1].dispose()
        super().dispose()
