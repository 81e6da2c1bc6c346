"""SQLite files that several processes share: the write-ahead log, and transactions that nobody else writes into."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager

PAUSE_SECONDS = 0.01


def use_write_ahead_log(connection: sqlite3.Connection, patience_seconds: float) -> None:
    """Switch a file to the write-ahead log, so that readers and a writer do not stop each other.

    SQLite refuses at once, without its usual wait, whoever comes while another process switches; so this tries again.

    Raises:
        sqlite3.OperationalError: the file is refused for another reason, or busy for longer than the patience lasts.
    """
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as busy:
            if busy.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_SECONDS)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing, and nobody else writes meanwhile."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:  # SQLite has ended it itself where the disk is full
            connection.execute("ROLLBACK")
