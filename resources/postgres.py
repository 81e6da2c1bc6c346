"""Tables of ours in a Postgres database that hosts share: what is Postgres' own about `finevolve_pipeline.databases`.

They lie in a schema of their own, beside whatever else the database holds. A server that goes away is waited for, and
what was being done is done again. A process is alive for the others while its connection holds an advisory lock on the
number that it goes by, so that they notice too when its host is gone.
"""

from __future__ import annotations

import hashlib
import itertools
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from typing import Any, TypeVar

import psycopg2
import psycopg2.extensions
import psycopg2.extras

from finevolve_pipeline import databases
from finevolve_pipeline.databases import Connection, Database, Schema
from finevolve_pipeline.errors import CacheError
from resources.database import Database as Server
from resources.database import DatabaseError

T = TypeVar("T")

SPACE = "finevolve"
"""The schema that our tables lie in."""

_PAUSE_SECONDS = 0.1
_FETCHED = 200
"""Rows fetched at once of a query that goes through a whole table."""

_LOST = ("08", "57P")
"""SQLSTATE classes of a connection that ended, and of a server that stops or starts."""

_EXPLANATIONS = {
    "55P03": "locked by another process for {busy:.0f} s; wait for it or end it",
    "42501": "may not be used ({said}); grant its user the right to create and use tables in schema " + SPACE,
    "25006": "cannot be written ({said}); name the server that takes writes in FINEVOLVE_DATABASE",
    "53100": "the disk is full ({said}); free some space and start again, nothing stored is lost",
    "42P01": "a table is missing ({said}); {if_damaged}",
    "XX001": "a table is damaged ({said}); {if_damaged}",
    "XX002": "an index is damaged ({said}); rebuild it with REINDEX, or {if_damaged}",
}

_HELD = """
SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1 AND granted
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


class PostgresDatabase(Database):
    """The tables of one schema in a Postgres database, over one connection a process.

    Args:
        server: the database.
        schema: of the tables.
    """

    _errors = (psycopg2.Error,)

    def __init__(self, server: Server, schema: Schema) -> None:
        super().__init__(schema)
        self._server = server
        self._mark = ""

    @property
    def name(self) -> str:
        """Host, port and database."""
        return f"{self.schema.name} of postgresql://{self._server.place}"

    @property
    def label(self) -> str:
        """What the tables hold."""
        return self.schema.name

    def rows(self, query: str, values: Sequence[object] = ()) -> Iterator[tuple[Any, ...]]:
        """As `Database.rows`."""
        self.run(lambda connection: None)  # makes the tables where there are none yet
        try:
            with closing(self._connected()) as session:
                yield from session.portions(query, values)
        except psycopg2.Error as error:
            raise self._refused(error) from error

    def is_there(self) -> bool:
        """As `Database.is_there`."""
        with self._alone():
            if self._connection is not None:
                return True  # opening it made them
            with closing(self._connected()) as session:
                return self._version(session) is not None

    def size(self) -> int:
        """Bytes of the tables and their indexes."""
        query = "SELECT COALESCE(CAST(SUM(pg_total_relation_size(CAST(name AS regclass))) AS BIGINT), 0)"
        tables = [f"{SPACE}.{table}" for table in self.schema.tables]
        if not self.is_there():
            return 0
        return int(
            self.run(lambda connection: connection.execute(f"{query} FROM unnest(?) name", (tables,)).fetchone()[0])
        )

    def flaws(self) -> list[str]:
        """None: Postgres has no check of the whole for everybody; whoever reads all rows meets what it finds."""
        return []

    def set_aside(self) -> str:
        """Rename the tables."""
        self.close()
        with self._alone(), closing(self._connected()) as session:
            self._begin(session)
            with self._ending(session):
                first, *_ = self.schema.tables
                number = next(n for n in itertools.count(1) if not _is_table(session, f"{first}_damaged_{n}"))
                for table in self.schema.tables:
                    session.execute(f"ALTER TABLE {table} RENAME TO {table}_damaged_{number}")
                session.execute("DELETE FROM versions WHERE name = ?", (self.schema.name,))
        return f"table {SPACE}.{first}_damaged_{number}"

    def mark(self, connection: Connection) -> str:
        """A number that the connection holds an advisory lock on."""
        if not self._mark:
            number = 1 + secrets.randbelow(2**63 - 1)
            connection.execute("SELECT pg_advisory_lock(?)", (number,))
            self._mark = str(number)
        return self._mark

    def gone(self, connection: Connection, marks: Iterable[str]) -> list[str]:
        """Those that no connection holds a lock on."""
        asked = list(marks)
        held = {str(number) for (number,) in connection.execute(_HELD)} if asked else set()
        return [mark for mark in asked if mark not in held]

    def _done(self, work: Callable[[Connection], T]) -> T:
        if self._connection is not None and self._connection.in_transaction:
            return work(self._connection)
        end: float | None = None
        while True:
            try:
                return super()._done(work)
            except psycopg2.Error as error:
                if not self._is_lost(error):
                    raise
                self._connection = None
                now = time.monotonic()
                end = now + self._server.patience if end is None else end
                if now >= end:
                    raise
            time.sleep(_PAUSE_SECONDS)

    def _is_lost(self, error: psycopg2.Error) -> bool:
        """Whether the connection is no more, so that the error says nothing about what was asked."""
        if isinstance(self._connection, _Session):
            return self._connection.is_closed or (error.pgcode or "").startswith(_LOST)
        return isinstance(error, psycopg2.OperationalError)

    def _connected(self) -> _Session:
        try:
            raw = self._server.connect(f"finevolve {self.schema.name}")
        except DatabaseError as refused:
            raise CacheError(f"{self.schema.kind} of {self.schema.name}: {refused}") from None
        psycopg2.extensions.register_type(_BYTES, raw)
        session = _Session(raw)
        session.execute(
            f"SET search_path TO {SPACE}; SET client_min_messages TO warning; "
            f"SET lock_timeout TO {round(databases.BUSY_SECONDS * 1000)}"
        )
        return session

    def _open(self) -> Connection:
        session = self._connected()
        self._mark = ""  # the one before was the one of another connection
        try:
            version = self._version(session)
            if version is None:
                version = self._create(session)
            self._require_version(version)
        except BaseException:
            session.close()
            raise
        return session

    def _version(self, session: _Session) -> int | None:
        """Of the tables that there are."""
        if not _is_table(session, "versions"):
            return None
        found = session.execute("SELECT version FROM versions WHERE name = ?", (self.schema.name,)).fetchone()
        return None if found is None else int(found[0])

    def _create(self, session: _Session) -> int:
        """Make the tables; of several processes that try at once, one does. Their version."""
        _begin(session, _number(""))
        with self._ending(session):
            (is_absent,) = session.execute(f"SELECT to_regnamespace('{SPACE}') IS NULL").fetchone()
            if is_absent:
                session.execute(f"CREATE SCHEMA {SPACE}")
            session.execute("CREATE TABLE IF NOT EXISTS versions (name TEXT PRIMARY KEY, version BIGINT NOT NULL)")
            version = self._version(session)
            if version is None:
                version = self.schema.version
                session.execute(self.schema.postgres)
                session.execute("INSERT INTO versions VALUES (?, ?)", (self.schema.name, version))
        return version

    def _begin(self, connection: Connection) -> None:
        _begin(connection, _number(self.schema.name))

    def _explanation(self, error: Exception) -> str:
        if not isinstance(error, psycopg2.Error):
            raise error
        said = error.diag.message_primary or str(error).strip().partition("\n")[0]
        known = _EXPLANATIONS.get(error.pgcode or "", "Postgres refuses ({said}); see its log")
        if self._is_lost(error):
            known = "the connection broke off ({said}); see that Postgres runs and start again: what was stored stays"
        return known.format(said=said, busy=databases.BUSY_SECONDS, if_damaged=self.schema.if_damaged)


class _Session:
    """A connection of psycopg2 as a `databases.Connection`."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    @property
    def is_closed(self) -> bool:
        return bool(self._raw.closed)

    @property
    def in_transaction(self) -> bool:
        return self._raw.info.transaction_status in (
            psycopg2.extensions.TRANSACTION_STATUS_INTRANS,
            psycopg2.extensions.TRANSACTION_STATUS_INERROR,
        )

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Any:
        cursor = self._raw.cursor()
        cursor.execute(_translated(statement), values or None)
        return cursor

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> Any:
        cursor = self._raw.cursor()
        psycopg2.extras.execute_batch(cursor, _translated(statement), rows)
        return cursor

    def portions(self, query: str, values: Sequence[object]) -> Iterator[tuple[Any, ...]]:
        """The rows of a query as of now, a portion in memory at a time."""
        self._raw.set_session(readonly=True, autocommit=False)
        with self._raw.cursor("portions") as cursor:
            cursor.itersize = _FETCHED
            cursor.execute(_translated(query), values or None)
            yield from cursor

    def close(self) -> None:
        self._raw.close()


def _begin(connection: Connection, number: int) -> None:
    """Begin a transaction that excludes others of that number."""
    try:
        connection.execute(f"BEGIN; SELECT pg_advisory_xact_lock({number})")
    except psycopg2.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _number(name: str) -> int:
    """The number of the advisory lock under which these tables are written."""
    return int.from_bytes(hashlib.sha256(f"finevolve tables {name}".encode()).digest()[:8], "big", signed=True)


def _is_table(session: _Session, name: str) -> bool:
    return bool(session.execute(f"SELECT to_regclass('{SPACE}.{name}') IS NOT NULL").fetchone()[0])


@lru_cache(maxsize=256)
def _translated(statement: str) -> str:
    return statement.replace("?", "%s")


def _bytes(text: str | None, cursor: object) -> bytes | None:
    return None if text is None else bytes.fromhex(text[2:])


_BYTES = psycopg2.extensions.new_type(psycopg2.BINARY.values, "BYTES", _bytes)
