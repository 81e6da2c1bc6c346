"""Locks of several machines: advisory locks of Postgres, each held by a connection of its own.

The server gives a lock back when its connection ends: at once when the holder's process does, after about a minute when
the holder's machine is gone without a word (see `database`). Who holds it is the connection's `application_name`, so
nothing is left behind to be wrong. A pool in front of the server must give each connection a server process of its own
(pgbouncer: `pool_mode = session`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from finevolve_pipeline.locks import Held, LockLostError, TakenError
from resources.database import Database

_LOOK_SECONDS = 0.1
_PREFIX = "finevolve "
_NAME_BYTES = 63
_HOLDERS = """
SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND objsubid = 1 AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (classid::bigint << 32 | objid::bigint) = %s
"""


class PostgresLocks:
    """Locks by advisory locks of a database. See `finevolve_pipeline.locks.Locks`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextmanager
    def holding(self, path: Path, patience: float = 0.0) -> Iterator[Held]:
        """See `Locks.holding`. Raises `DatabaseError` if the server cannot be reached."""
        import psycopg2

        connection = self._database.connect(_owner())
        try:
            end = time.monotonic() + patience
            while not _one(connection, "SELECT pg_try_advisory_lock(%s)", _key(path)):
                if time.monotonic() >= end:
                    raise TakenError(_holder(connection, path) or "another process")
                time.sleep(_LOOK_SECONDS)
            yield _Connected(connection, path)
        finally:
            # A lock is free for others only when the server has said so; one that is gone has freed it itself.
            with contextlib.suppress(psycopg2.Error):
                _one(connection, "SELECT pg_advisory_unlock(%s)", _key(path))
            connection.close()

    def owner(self, path: Path) -> str | None:
        """See `Locks.owner`. Raises `DatabaseError` if the server cannot be reached."""
        with contextlib.closing(self._database.connect(f"{_PREFIX}question")) as connection:
            return _holder(connection, path)


class _Connected:
    """A lock that is held while its connection lives."""

    def __init__(self, connection: Any, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._alone = threading.Lock()

    def require(self) -> None:
        """See `Held.require`."""
        import psycopg2

        try:
            with self._alone:
                if _holder(self._connection, self._path) is not None:
                    return
        except psycopg2.Error:
            pass
        raise LockLostError(
            f"{self._path}: the lock was lost, since the database broke the connection off; nothing was written after "
            "it: start again"
        )


def _holder(connection: Any, path: Path) -> str | None:
    name = _one(connection, _HOLDERS, _key(path))
    return None if name is None else str(name).removeprefix(_PREFIX)


def _one(connection: Any, statement: str, value: int) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement, (value,))
        row = cursor.fetchone()
    return None if row is None else row[0]


def _key(path: Path) -> int:
    """The number by which Postgres knows the lock of a path."""
    return int.from_bytes(hashlib.sha256(str(path).encode()).digest()[:8], "big", signed=True)


def _owner() -> str:
    said = f"{_PREFIX}process {os.getpid()} on {socket.gethostname()}"
    return said.encode()[:_NAME_BYTES].decode("utf-8", "ignore")
