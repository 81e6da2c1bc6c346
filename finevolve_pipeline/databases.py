"""Databases that several processes share: what all kinds have in common, and SQLite files.

A store (see `llm.cache`, `llm.ledger`) writes its statements once, in SQL that every kind understands, with `?` where a
value goes; a `Schema` has the statements that make its tables, in each kind's own words. What is one kind's alone stays
behind `Database`: how a connection is made, what a transaction begins with, who lives, what an error means.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from finevolve_pipeline.errors import CacheError
from finevolve_pipeline.processes import is_alive, process_mark

T = TypeVar("T")

PAUSE_SECONDS = 0.01

BUSY_SECONDS = 120.0
"""How long one process waits for another that writes, e.g. for the import of a large bundle."""


@dataclass(frozen=True)
class Schema:
    """Tables that belong together.

    Attributes:
        kind: of store, for messages: cache or ledger.
        name: of what the tables hold: answers, vectors, attempts.
        version: of the tables and of what stands in them.
        tables: their names.
        sqlite: the statements that make them in a SQLite file.
        postgres: those that make the same in a Postgres database.
        if_damaged: what to do about tables that cannot be read.
        if_other_version: what to do about tables of another version.
        application: marks a SQLite file as ours, in its header.
        page_size: of a SQLite file, bytes.
    """

    kind: str
    name: str
    version: int
    tables: tuple[str, ...]
    sqlite: str
    postgres: str
    if_damaged: str
    if_other_version: str
    application: int = 0
    page_size: int = 4096


class Cursor(Protocol):
    """What a statement gave. Texts of a SQLite file are bytes, see `text_of`."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """An open database. A statement outside of a transaction is one of its own."""

    @property
    def in_transaction(self) -> bool: ...

    def execute(self, statement: str, values: Sequence[Any] = ..., /) -> Cursor: ...

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> Cursor: ...

    def close(self) -> None: ...


_LEFT_BEHIND: list[Connection] = []
"""Connections of a parent process: closing them in its child would disturb the parent's."""


class Database(ABC):
    """The tables of one schema, for several processes and threads at once.

    It is opened, and its tables are made, at its first use, by one connection that all threads of a process share.
    Every error of the database becomes one `CacheError` that says what to do.
    """

    _errors: ClassVar[tuple[type[Exception], ...]]

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._connection: Connection | None = None
        self._lock = threading.RLock()
        self._process = os.getpid()

    @property
    @abstractmethod
    def name(self) -> str:
        """Where it is, for messages; it tells no secret."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The same in one word, for tables."""

    def run(self, work: Callable[[Connection], T]) -> T:
        """What work on the connection gives. Each of its statements is kept at once, and it may be done again from its
        start where the connection broke: it must be harmless to repeat."""
        with self._alone():
            return self._done(work)

    def atomically(self, work: Callable[[Connection], T]) -> T:
        """As `run`, but all of what the work writes is kept or nothing, and no other such work is done meanwhile."""
        return self.run(partial(self._as_one, work))

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """As `atomically` for a block, which cannot be repeated. One inside another joins it."""
        with self._alone():
            if self._connection is not None and self._connection.in_transaction:
                yield self._connection
                return
            connection = self._done(self._begun)
            with self._ending(connection):
                yield connection

    @abstractmethod
    def rows(self, query: str, values: Sequence[object] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a query as of now, whatever is written meanwhile; over a connection of its own."""

    @abstractmethod
    def is_there(self) -> bool:
        """Whether the tables have been made. Asking makes none."""

    @abstractmethod
    def size(self) -> int:
        """Bytes on disk; 0 where there are no tables."""

    @abstractmethod
    def flaws(self) -> list[str]:
        """What is wrong with the database as a whole, by its own check if it has one."""

    @abstractmethod
    def set_aside(self) -> str:
        """Rename what cannot be read, so that new tables can be made; where it is now."""

    @abstractmethod
    def mark(self, connection: Connection) -> str:
        """How this process is called for as long as it lives and its connection lasts."""

    @abstractmethod
    def gone(self, connection: Connection, marks: Iterable[str]) -> list[str]:
        """Of marks of processes, those whose process or connection has ended."""

    def close(self) -> None:
        """Close the connection; the next use opens another."""
        with self._alone():
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @abstractmethod
    def _open(self) -> Connection:
        """A new connection, to tables that are there and ours."""

    @abstractmethod
    def _begin(self, connection: Connection) -> None:
        """Begin a transaction that excludes others of this schema."""

    @abstractmethod
    def _explanation(self, error: Exception) -> str:
        """What happened and what to do, in one line."""

    def _done(self, work: Callable[[Connection], T]) -> T:
        return work(self._opened())

    def _opened(self) -> Connection:
        if self._connection is None:
            self._connection = self._open()
        return self._connection

    def _begun(self, connection: Connection) -> Connection:
        self._begin(connection)
        return connection

    def _as_one(self, work: Callable[[Connection], T], connection: Connection) -> T:
        if connection.in_transaction:
            return work(connection)
        with self._ending(self._begun(connection)):
            return work(connection)

    @contextmanager
    def _ending(self, connection: Connection) -> Iterator[None]:
        """Commit a transaction at the end of a block, or undo it where the block breaks off."""
        try:
            yield
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:  # the database has ended it itself where the disk is full
                connection.execute("ROLLBACK")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """For this thread alone, and never with a parent's connection."""
        if self._process != os.getpid():
            self._leave_to_parent()
        with self._lock:
            try:
                yield
            except self._errors as error:
                raise self._refused(error) from error

    def _refused(self, error: Exception) -> CacheError:
        return CacheError(f"{self.schema.kind} {self.name}: {self._explanation(error)}")

    def _leave_to_parent(self) -> None:
        """After a fork: the parent's connection must not be touched, nor its lock, which another thread may hold.

        A transaction that was open at the fork stays open for the child's SQLite; writing then ends as `CacheError`.
        """
        if self._connection is not None:
            _LEFT_BEHIND.append(self._connection)
        self._connection = None
        self._lock = threading.RLock()
        self._process = os.getpid()

    def _require_version(self, version: int) -> None:
        if version != self.schema.version:
            raise CacheError(
                f"{self.schema.kind} {self.name}: of version {version}, this program reads {self.schema.version}; "
                f"{self.schema.if_other_version}"
            )


def database_at(place: Path | Database, schema: Schema) -> Database:
    """The database of a place: itself, or the SQLite file of that path."""
    return place if isinstance(place, Database) else SqliteFile(place, schema)


def text_of(value: str | bytes) -> str:
    """A column with a text. Raises `UnicodeDecodeError` if it is damaged."""
    return value.decode() if isinstance(value, bytes) else value


_DAMAGED = "the file is damaged ({said}); {if_damaged}"
_EXPLANATIONS = {
    sqlite3.SQLITE_BUSY: f"locked by another process for {BUSY_SECONDS:.0f} s; wait for it or end it",
    sqlite3.SQLITE_LOCKED: "locked by another connection of this process; close it",
    sqlite3.SQLITE_READONLY: "cannot be written ({said}); copy it to a writable folder, or change its permissions",
    sqlite3.SQLITE_PERM: "cannot be opened ({said}); change its permissions",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened ({said}); change the permissions of file and folder",
    sqlite3.SQLITE_FULL: "the disk is full ({said}); free some space and start again, nothing stored is lost",
    sqlite3.SQLITE_IOERR: "the disk is full or fails ({said}); free some space and start again",
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
}


class SqliteFile(Database):
    """One SQLite file of this host, with a write-ahead log.

    Args:
        path: of the file; it and its folder are made at the first use.
        schema: of its tables.
    """

    _errors = (sqlite3.Error,)

    def __init__(self, path: Path, schema: Schema) -> None:
        super().__init__(schema)
        self._path = path
        self._mark = (0, "")

    @property
    def name(self) -> str:
        """The path."""
        return str(self._path)

    @property
    def label(self) -> str:
        """The file's name."""
        return self._path.name

    def rows(self, query: str, values: Sequence[object] = ()) -> Iterator[tuple[Any, ...]]:
        """As `Database.rows`."""
        with self._alone():
            self._opened()  # makes the file where there is none yet
        try:
            with closing(self._connected()) as connection:
                yield from connection.execute(query, values)
        except sqlite3.Error as error:
            raise self._refused(error) from error

    def is_there(self) -> bool:
        """Whether the file has been made.

        Raises:
            CacheError: something else is in its place, or in its folder's.
        """
        if self._path.is_file():
            return True
        for folder in self._path.parents:
            if folder.exists() and not folder.is_dir():
                raise CacheError(f"{self.schema.kind} {self._path}: {folder} is a file, not a folder; move it away")
        if self._path.is_dir():
            raise CacheError(f"{self.schema.kind} {self._path}: a folder is in its place; move it away")
        return self._path.exists()

    def size(self) -> int:
        """Bytes on disk, the write-ahead log included; 0 where there is no file."""
        files = (self._path.with_name(self._path.name + suffix) for suffix in ("", "-wal", "-shm"))
        return sum(file.stat().st_size for file in files if file.exists())

    def flaws(self) -> list[str]:
        """What SQLite's own check finds, at most ten lines."""
        said = self.run(lambda connection: connection.execute("PRAGMA integrity_check(10)").fetchall())
        lines = [line.decode("utf-8", "replace") for (line,) in said]
        return [line for line in lines if line != "ok"]

    def set_aside(self) -> str:
        """Rename the file, with what SQLite keeps beside it."""
        self.close()
        number = next(n for n in itertools.count(1) if not self._aside(n).exists())
        for suffix in ("-wal", "-shm", ""):
            part = Path(f"{self._path}{suffix}")
            if part.exists():
                part.rename(f"{self._aside(number)}{suffix}")
        return str(self._aside(number))

    def mark(self, connection: Connection) -> str:
        """The process's name on this host."""
        if self._mark[0] != os.getpid():
            self._mark = os.getpid(), process_mark()
        return self._mark[1]

    def gone(self, connection: Connection, marks: Iterable[str]) -> list[str]:
        """Those whose process has ended."""
        mine = self.mark(connection)
        return [mark for mark in marks if mark != mine and not is_alive(mark)]

    def _aside(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.stem}.damaged-{number}{self._path.suffix}")

    def _connected(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        # Texts as bytes: a damaged one must not fail before its checksum does.
        connection.text_factory = bytes
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA cache_size = -8192")
        connection.execute("PRAGMA journal_size_limit = 67108864")
        return connection

    def _open(self) -> Connection:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as refused:
            raise CacheError(
                f"{self.schema.kind} {self._path}: its folder cannot be made ({refused.strerror}); "
                "name another home with --home"
            ) from None
        connection = self._connected()
        try:
            if self._is_new(connection):
                self._create(connection)
            self._require_ours(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _create(self, connection: sqlite3.Connection) -> None:
        """Make the tables; of several processes that try at once, one does."""
        connection.execute(f"PRAGMA page_size = {self.schema.page_size}")
        use_write_ahead_log(connection, BUSY_SECONDS)
        self._begin(connection)
        with self._ending(connection):
            if self._is_new(connection):
                for statement in _statements(self.schema.sqlite):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {self.schema.application}")
                connection.execute(f"PRAGMA user_version = {self.schema.version}")

    def _is_new(self, connection: sqlite3.Connection) -> bool:
        (objects,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return not objects and not _pragma(connection, "application_id") and not _pragma(connection, "user_version")

    def _require_ours(self, connection: sqlite3.Connection) -> None:
        if _pragma(connection, "application_id") != self.schema.application:
            raise CacheError(
                f"{self.schema.kind} {self._path}: not a {self.schema.kind} of {self.schema.name}; move this file away"
            )
        self._require_version(_pragma(connection, "user_version"))

    def _begin(self, connection: Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")

    def _explanation(self, error: Exception) -> str:
        code = getattr(error, "sqlite_errorcode", None)
        known = _EXPLANATIONS.get(code & 0xFF) if isinstance(code, int) else None
        if known is None and "no such" in str(error):
            known = _DAMAGED
        return (known or "SQLite refuses ({said}); see whether another program uses the file").format(
            said=error, if_damaged=self.schema.if_damaged
        )


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


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)


def _statements(script: str) -> Iterator[str]:
    """The statements of a script, to be executed inside a transaction (`executescript` would end it)."""
    statement = ""
    for line in script.strip().splitlines():
        statement += f"{line}\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
