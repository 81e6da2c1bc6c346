"""The cache: answers of models and vectors of embedders, each under a key made of all that can change it.

What belongs here: keys, and two SQLite files (WAL) that any number of processes and threads share, `answers.sqlite` and
`vectors.sqlite` below `<home>/cache`. What must not: a prompt or an article. Keys are digests, so a cache can be given
away without the licensed texts that it was made from; an entry tells its backbone, phase, simulated day and subject (an
industry's code, an article's id) and what the model wrote. Nothing here tells the time of day.

Every row carries a checksum. Whoever stores a key first wins: all who ask for it later get the same bytes.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import marshal
import os
import sqlite3
import threading
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from finevolve_pipeline.databases import transaction, use_write_ahead_log
from finevolve_pipeline.digests import canonical_json
from finevolve_pipeline.errors import CacheError
from finevolve_pipeline.llm.requests import Call, Reply, Usage

Vector = npt.NDArray[np.float32]

KEY_BYTES = 32
"""Length of a key: a whole SHA-256."""

LONGEST_DOCUMENT = 4 * 2**20
"""Bytes of the longest answer that is kept; far beyond what any context window lets a model write."""

MOST_DIMENSIONS = 2**20
"""Length of the longest vector that is kept."""

SCHEMA_VERSION = 1
"""Of the tables and of what stands in them."""

BUSY_SECONDS = 120.0
"""How long one process waits for another that writes, e.g. for the import of a large bundle."""

ANSWER_KEY = b"finevolve answer 1"
VECTOR_KEY = b"finevolve vector 1"

_LEVEL = 1
"""Of compression: answers of a kilobyte shrink by 1 % less than at level 6, in half the time."""

_TOGETHER = 500
"""Vectors looked up by one statement; SQLite allows 999 parameters everywhere."""


def answers_path(home: Path) -> Path:
    """Where a home keeps answers."""
    return home / "cache" / "answers.sqlite"


def vectors_path(home: Path) -> Path:
    """Where a home keeps vectors."""
    return home / "cache" / "vectors.sqlite"


@lru_cache(maxsize=1024)
def _digest_of(frozen: bytes) -> bytes:
    text = canonical_json(marshal.loads(frozen))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _digest(value: Mapping[str, object]) -> bytes:
    """SHA-256 of a JSON object, remembered by value: equal texts of `marshal` (the quickest) mean equal objects."""
    return _digest_of(marshal.dumps(dict(value), 2))


def _framed(parts: Iterable[bytes]) -> bytes:
    """Parts one after the other, each behind its length: no two sequences of parts give the same bytes."""
    return b"".join(piece for part in parts for piece in (len(part).to_bytes(8, "little"), part))


def answer_key(identity: Mapping[str, object], call: Call, schema: Mapping[str, object]) -> bytes:
    """The key of an answer: SHA-256 over who answers, in what shape, got in which way, to which exact messages.

    Args:
        identity: the backbone's, as plain JSON values.
        call: its variant, its seed and the messages of its prompt count; the request's fields do not.
        schema: JSON schema of the demanded answer.

    Returns:
        32 bytes.
    """
    variant = f"{call.variant} seed {call.seed}" if call.seed else call.variant
    head = [ANSWER_KEY, _digest(identity), _digest(schema), variant.encode("utf-8", "surrogatepass")]
    messages = [text.encode("utf-8", "surrogatepass") for message in call.prompt.messages for text in message]
    return hashlib.sha256(_framed(head + messages)).digest()


def vector_key(identity: Mapping[str, object], text: str) -> bytes:
    """The key of a vector: SHA-256 over the embedder's identity and the text; 32 bytes."""
    return hashlib.sha256(_framed((VECTOR_KEY, _digest(identity), text.encode("utf-8", "surrogatepass")))).digest()


@dataclass(frozen=True)
class About:
    """What an answer is for; not part of its key.

    Attributes:
        backbone: name in the settings.
        phase: what it was asked for, e.g. predict (see `llm.requests`).
        day: simulated day, YYYY-MM-DD.
        subject: an industry's code or articles' ids.
    """

    backbone: str
    phase: str
    day: str
    subject: str

    def __str__(self) -> str:
        return f"{self.phase} {self.subject} of {self.day} by {self.backbone}"


def plain(text: str) -> str:
    """A text of `About` as it is kept: printable, valid UTF-8, at most 200 characters."""
    text = text[:200]
    return text if text.isprintable() else "".join(letter if letter.isprintable() else "?" for letter in text)


@dataclass(frozen=True)
class AnswerEntry:
    """A cached answer: the reply as canonical JSON (see `document_of`). What it was for makes no entry another one."""

    key: bytes
    about: About = field(compare=False)
    document: bytes


@dataclass(frozen=True)
class VectorEntry:
    """A cached vector: float32, little-endian."""

    key: bytes
    dimensions: int
    data: bytes


Entry = TypeVar("Entry", AnswerEntry, VectorEntry)


@dataclass(frozen=True)
class Tally:
    """What became of entries that were merged into a cache.

    Attributes:
        new: stored.
        same: were there already.
        conflicting: were there with other content, which was kept, or replaced where that was asked for.
    """

    new: int = 0
    same: int = 0
    conflicting: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.new + other.new, self.same + other.same, self.conflicting + other.conflicting)


@dataclass(frozen=True)
class Total:
    """Answers of one backbone in one phase."""

    backbone: str
    phase: str
    entries: int
    usage: Usage


@dataclass(frozen=True)
class Damaged:
    """A row whose content is not what its checksum says. `about` may be damaged itself."""

    key: bytes
    about: str


@dataclass(frozen=True)
class Health:
    """What `verify` found.

    Attributes:
        entries: rows that were read.
        damaged: rows that fail their checksum.
        structure: what SQLite says about the file as a whole; empty if it is sound.
    """

    entries: int
    damaged: tuple[Damaged, ...] = ()
    structure: tuple[str, ...] = ()


def document_of(reply: Reply) -> bytes:
    """A reply as canonical JSON in UTF-8. Lone surrogates, which a model may write, keep their three bytes.

    Raises:
        ValueError: a cost that is no finite number.
    """
    value = {
        "text": reply.text,
        "usage": vars(reply.usage) | {"cost": float(reply.usage.cost)},
        "finish": reply.finish,
        "failures": dict(reply.failures),
        "model": reply.model,
    }
    return canonical_json(value).encode("utf-8", "surrogatepass")


def reply_of(document: bytes) -> Reply:
    """The reply in a document.

    Raises:
        ValueError: it is no document of the present version.
    """
    try:
        value = json.loads(document.decode("utf-8", "surrogatepass"))
        usage = Usage(**value["usage"])
        return Reply(value["text"], usage, value["finish"], value["failures"], value["model"])
    except (KeyError, TypeError, RecursionError) as other:
        raise ValueError(f"no reply: {type(other).__name__}") from None


def _checksum(parts: Iterable[object]) -> bytes | None:
    """16 bytes over a row's other columns, its key included; None if one is of a type that none ever had."""
    kept: list[bytes] = []
    for part in parts:
        if isinstance(part, int):
            part = part.to_bytes(8, "little", signed=True)
        elif isinstance(part, str):
            part = part.encode()
        if not isinstance(part, bytes):
            return None
        kept.append(part)
    return hashlib.blake2b(_framed(kept), digest_size=16).digest()


def _is_sound(row: Sequence[object]) -> bool:
    """Whether a row, checksum last, is what was written."""
    return _checksum(row[:-1]) == row[-1]


def _readable(part: object) -> str:
    """A column for messages, whatever damage did to it."""
    text = part.decode("utf-8", "replace") if isinstance(part, bytes) else str(part)
    return plain(text)


@dataclass(frozen=True)
class _Layout:
    """How one kind of cache lies in its file.

    Attributes:
        what: for messages.
        application: marks the file as ours, in its header.
        table: name of the only table.
        columns: all of them, in order; `key` first, `checksum` last.
        shown: columns that tell people what a row is about.
        page_size: bytes. Several answers fit into a page of 8 kB; vectors of 1,024 or 4,096 numbers, which are a
            little longer than pages of any size, waste least with small ones.
        create: the statement that makes the table.
    """

    what: str
    application: int
    table: str
    columns: tuple[str, ...]
    shown: tuple[str, ...]
    page_size: int
    create: str

    @property
    def insert(self) -> str:
        marks = ", ".join("?" * len(self.columns))
        return f"INSERT INTO {self.table} ({', '.join(self.columns)}) VALUES ({marks}) ON CONFLICT (key) DO NOTHING"

    @property
    def replace(self) -> str:
        marks = ", ".join("?" * len(self.columns))
        return f"INSERT OR REPLACE INTO {self.table} ({', '.join(self.columns)}) VALUES ({marks})"

    @property
    def select(self) -> str:
        return f"SELECT {', '.join(self.columns)} FROM {self.table}"


_ANSWERS = _Layout(
    what="answer",
    application=0x46456131,  # FEa1
    table="answers",
    columns=("key", "backbone", "phase", "day", "subject", "reply", "checksum"),
    shown=("phase", "subject", "day", "backbone"),
    page_size=8192,
    create="""
        CREATE TABLE answers (
            key BLOB PRIMARY KEY NOT NULL,
            backbone TEXT NOT NULL,
            phase TEXT NOT NULL,
            day TEXT NOT NULL,
            subject TEXT NOT NULL,
            reply BLOB NOT NULL, -- zlib of the canonical JSON
            checksum BLOB NOT NULL
        )
    """,
)

_VECTORS = _Layout(
    what="vector",
    application=0x46457631,  # FEv1
    table="vectors",
    columns=("key", "dimensions", "vector", "checksum"),
    shown=("dimensions",),
    page_size=4096,
    create="""
        CREATE TABLE vectors (
            key BLOB PRIMARY KEY NOT NULL,
            dimensions INTEGER NOT NULL,
            vector BLOB NOT NULL, -- float32, little-endian
            checksum BLOB NOT NULL
        )
    """,
)

_LEFT_BEHIND: list[sqlite3.Connection] = []
"""Connections of a parent process: closing them in its child would disturb the parent's."""


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)


_DAMAGED_FILE = (
    "the file is damaged ({said}); save what `sqlite3 FILE .recover` can read, or move it away and import a bundle"
)
_EXPLANATIONS = {
    sqlite3.SQLITE_BUSY: f"locked by another process for {BUSY_SECONDS:.0f} s; wait for it or end it",
    sqlite3.SQLITE_LOCKED: "locked by another connection of this process; close it",
    sqlite3.SQLITE_READONLY: "cannot be written ({said}); copy it to a writable folder, or change its permissions",
    sqlite3.SQLITE_PERM: "cannot be opened ({said}); change its permissions",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened ({said}); change the permissions of file and folder",
    sqlite3.SQLITE_FULL: "the disk is full ({said}); free some space and start again, nothing stored is lost",
    sqlite3.SQLITE_IOERR: "the disk is full or fails ({said}); free some space and start again",
    sqlite3.SQLITE_NOTADB: _DAMAGED_FILE,
    sqlite3.SQLITE_CORRUPT: _DAMAGED_FILE,
}


def _explanation(error: sqlite3.Error) -> str:
    """What happened and what to do, in one line."""
    code = getattr(error, "sqlite_errorcode", None)
    known = _EXPLANATIONS.get(code & 0xFF) if isinstance(code, int) else None
    return (known or "SQLite refuses ({said}); see whether another program uses the file").format(said=error)


class _Cache(Generic[Entry]):
    """One SQLite file with one table, for several processes and threads at once.

    It is opened at its first use, by one connection that all threads of a process share. Every error of SQLite becomes
    one `CacheError` that says what to do.

    Args:
        path: of the file; it and its folder are made at the first use.
    """

    _layout: ClassVar[_Layout]

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.RLock()
        self._process = os.getpid()

    def count(self) -> int:
        """Entries."""
        with self._use() as connection:
            found: int = connection.execute(f"SELECT count(*) FROM {self._layout.table}").fetchone()[0]
            return found

    def size(self) -> int:
        """Bytes on disk, the write-ahead log included; 0 where there is no file."""
        files = (self.path.with_name(self.path.name + suffix) for suffix in ("", "-wal", "-shm"))
        return sum(file.stat().st_size for file in files if file.exists())

    def merge(self, entries: Iterable[Entry], *, replace: bool = False) -> Tally:
        """Store entries that are not there, in one transaction; `replace` those that differ, else keep them.

        Raises:
            CacheError: an entry, a row or the file cannot be used; nothing was stored then. Whatever else `entries`
                raises stops it likewise.
        """
        tally: Counter[str] = Counter()
        with self.transaction() as connection:
            for entry in entries:
                row = self._row(entry)
                if connection.execute(self._layout.insert, row).rowcount:
                    tally["new"] += 1
                    continue
                stored = self._found(connection, row[0])
                if stored is not None and self._entry(stored) == entry:
                    tally["same"] += 1
                    continue
                tally["conflicting"] += 1
                if replace:
                    connection.execute(self._layout.replace, row)
        return Tally(**tally)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing: what is written inside is kept if the block ends well. One inside another joins it."""
        with self._use() as connection:
            if connection.in_transaction:
                yield connection
                return
            with transaction(connection):
                yield connection

    def verify(self) -> Health:
        """Every checksum, and SQLite's own check of the file."""
        entries = 0
        damaged: list[Damaged] = []
        try:
            with self._use() as connection:
                said = [_readable(line) for (line,) in connection.execute("PRAGMA integrity_check(10)")]
            for row in self._rows():
                entries += 1
                if not _is_sound(row):
                    damaged.append(self._damaged(row))
        except CacheError as broken:
            return Health(entries, tuple(damaged), (str(broken),))
        return Health(entries, tuple(damaged), tuple(line for line in said if line != "ok"))

    def is_there(self) -> bool:
        """Whether the file has been made.

        Raises:
            CacheError: something else is in its place, or in its folder's.
        """
        for folder in self.path.parents:
            if folder.exists() and not folder.is_dir():
                raise CacheError(f"cache {self.path}: {folder} is a file, not a folder; move it away")
        if self.path.is_dir():
            raise CacheError(f"cache {self.path}: a folder is in its place; move it away")
        return self.path.exists()

    def set_aside(self) -> Path:
        """Rename a file that cannot be read, with what SQLite keeps beside it, so that a new one can be made.

        Returns:
            Where it lies now.
        """
        self.close()
        number = next(n for n in itertools.count(1) if not self._aside(n).exists())
        for suffix in ("-wal", "-shm", ""):
            part = Path(f"{self.path}{suffix}")
            if part.exists():
                part.rename(f"{self._aside(number)}{suffix}")
        return self._aside(number)

    def _aside(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.stem}.damaged-{number}{self.path.suffix}")

    def delete(self, keys: Iterable[bytes]) -> int:
        """Forget entries, e.g. damaged ones; the number of those that there were."""
        with self.transaction() as connection:
            statement = f"DELETE FROM {self._layout.table} WHERE key = ?"
            return sum(connection.execute(statement, (key,)).rowcount for key in keys)

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        if self._process != os.getpid():
            self._leave_to_parent()
        with self._lock, self._explained():
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _row(self, entry: Entry) -> tuple[Any, ...]:
        """An entry as it is stored, its checksum last. Raises `CacheError` if it cannot be."""
        raise NotImplementedError

    def _entry(self, row: Sequence[Any]) -> Entry:
        """The entry in a sound row."""
        raise NotImplementedError

    def _require_key(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise CacheError(
                f"cache {self.path}: key {key.hex()[:80]} has {len(key)} bytes, no SHA-256; "
                "make it with answer_key or vector_key"
            )

    @contextmanager
    def _use(self) -> Iterator[sqlite3.Connection]:
        """The connection, for this thread alone."""
        if self._process != os.getpid():
            self._leave_to_parent()
        with self._lock, self._explained():
            if self._connection is None:
                self._connection = self._opened()
            yield self._connection

    def _found(self, connection: sqlite3.Connection, key: bytes) -> tuple[Any, ...] | None:
        """The sound row of a key, None if there is none. Raises `CacheError` if it is damaged."""
        row: tuple[Any, ...] | None = connection.execute(f"{self._layout.select} WHERE key = ?", (key,)).fetchone()
        if row is not None:
            self._require_sound(row)
        return row

    def _rows(self, where: str = "", values: Sequence[object] = ()) -> Iterator[tuple[Any, ...]]:
        """All rows by key as of now, whatever is written meanwhile; over a connection of its own."""
        with self._use():
            pass  # makes the file where there is none yet
        with self._explained(), closing(self._connected()) as connection:
            yield from connection.execute(f"{self._layout.select} {where} ORDER BY key", values)

    def _entries(self, where: str = "", values: Sequence[object] = ()) -> Iterator[Entry]:
        for row in self._rows(where, values):
            self._require_sound(row)
            yield self._entry(row)

    def _require_sound(self, row: Sequence[object]) -> None:
        if not _is_sound(row):
            damaged = self._damaged(row)
            raise CacheError(
                f"cache {self.path}: {self._layout.what} {damaged.key.hex()} ({damaged.about}) is damaged; "
                "`finevolve cache verify --repair` deletes damaged entries, so that they are asked again"
            )

    def _damaged(self, row: Sequence[object]) -> Damaged:
        named = dict(zip(self._layout.columns, row, strict=True))
        key = named["key"] if isinstance(named["key"], bytes) else b""
        return Damaged(key, " ".join(_readable(named[column]) for column in self._layout.shown))

    def _leave_to_parent(self) -> None:
        """After a fork: the parent's connection must not be touched, nor its lock, which another thread may hold.

        A transaction that was open at the fork stays open for the child's SQLite; writing then ends as `CacheError`.
        """
        if self._connection is not None:
            _LEFT_BEHIND.append(self._connection)
        self._connection = None
        self._lock = threading.RLock()
        self._process = os.getpid()

    def _connected(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        # Texts as bytes: a damaged one must not fail before its checksum does.
        connection.text_factory = bytes
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA cache_size = -8192")
        connection.execute("PRAGMA journal_size_limit = 67108864")
        return connection

    def _opened(self) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as refused:
            raise CacheError(
                f"cache {self.path}: its folder cannot be made ({refused.strerror}); name another home with --home"
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
        """Make the table; of several processes that try at once, one does."""
        connection.execute(f"PRAGMA page_size = {self._layout.page_size}")
        use_write_ahead_log(connection, BUSY_SECONDS)
        with transaction(connection):
            if self._is_new(connection):
                connection.execute(self._layout.create)
                connection.execute(f"PRAGMA application_id = {self._layout.application}")
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _is_new(self, connection: sqlite3.Connection) -> bool:
        (objects,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return bool(objects == 0 and _pragma(connection, "application_id") == 0)

    def _require_ours(self, connection: sqlite3.Connection) -> None:
        if _pragma(connection, "application_id") != self._layout.application:
            raise CacheError(f"cache {self.path}: not a cache of {self._layout.what}s; move this file away")
        version = _pragma(connection, "user_version")
        if version != SCHEMA_VERSION:
            raise CacheError(
                f"cache {self.path}: of version {version}, this program reads {SCHEMA_VERSION}; "
                "export it with the program that wrote it, move it away, and import the bundle"
            )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise CacheError(f"cache {self.path}: {_explanation(error)}") from error


class AnswerCache(_Cache[AnswerEntry]):
    """Answers by key."""

    _layout = _ANSWERS

    def get(self, key: bytes) -> Reply | None:
        """The answer of a key, None if there is none.

        Raises:
            CacheError: the row or the file is damaged, or the file cannot be read.
        """
        with self._use() as connection:
            row = self._found(connection, key)
        return None if row is None else self._reply(key, self._document(row))

    def put(self, key: bytes, reply: Reply, about: About) -> Reply:
        """Store an answer unless there is one; what is stored then, which all processes agree on.

        Raises:
            CacheError: the answer is longer than 4 MiB, or the file is damaged or cannot be written.
        """
        row = self._row(AnswerEntry(key, about, document_of(reply)))
        with self._use() as connection:
            if connection.execute(_ANSWERS.insert, row).rowcount:
                return reply
        stored = self.get(key)
        # Between both statements a repair may have deleted the row: then this answer is as good as any.
        return reply if stored is None else stored

    def replace(self, key: bytes, reply: Reply, about: About) -> None:
        """Store an answer in place of the one that there may be. Raises as `put`."""
        row = self._row(AnswerEntry(key, about, document_of(reply)))
        with self._use() as connection:
            connection.execute(_ANSWERS.replace, row)

    def entries(self, backbones: Sequence[str] | None = None) -> Iterator[AnswerEntry]:
        """All entries by key, as of now, or those of some backbones. Raises `CacheError` at a damaged one."""
        if backbones is None:
            return self._entries()
        return self._entries(f"WHERE backbone IN ({', '.join('?' * len(backbones))})", backbones)

    def backbones(self) -> list[str]:
        """Names of the backbones with answers, sorted."""
        with self._use() as connection:
            found = connection.execute("SELECT DISTINCT backbone FROM answers ORDER BY backbone")
            return [_readable(name) for (name,) in found]

    def totals(self) -> list[Total]:
        """Entries, tokens and cost by backbone and phase, sorted. Raises `CacheError` at a damaged entry."""
        counts: Counter[tuple[str, str]] = Counter()
        usages: dict[tuple[str, str], Usage] = {}
        for entry in self.entries():
            group = (entry.about.backbone, entry.about.phase)
            counts[group] += 1
            usages[group] = usages.get(group, Usage()) + self._reply(entry.key, entry.document).usage
        return [Total(*group, counts[group], usages[group]) for group in sorted(counts)]

    def _row(self, entry: AnswerEntry) -> tuple[Any, ...]:
        about = entry.about
        self._require_key(entry.key)
        if len(entry.document) > LONGEST_DOCUMENT:
            raise CacheError(
                f"cache {self.path}: answer to {about} has {len(entry.document)} bytes, more than the "
                f"{LONGEST_DOCUMENT} that are kept; lower max_tokens of {about.backbone}"
            )
        texts = (plain(about.backbone), plain(about.phase), plain(about.day), plain(about.subject))
        parts = (entry.key, *texts, zlib.compress(entry.document, _LEVEL))
        return (*parts, _checksum(parts))

    def _entry(self, row: Sequence[Any]) -> AnswerEntry:
        key, backbone, phase, day, subject, *_ = row
        about = About(backbone.decode(), phase.decode(), day.decode(), subject.decode())
        return AnswerEntry(key, about, self._document(row))

    def _document(self, row: Sequence[Any]) -> bytes:
        try:
            return zlib.decompress(row[-2])
        except zlib.error as other:
            raise self._foreign(row[0], other) from None

    def _reply(self, key: bytes, document: bytes) -> Reply:
        try:
            return reply_of(document)
        except ValueError as other:
            raise self._foreign(key, other) from None

    def _foreign(self, key: bytes, why: Exception) -> CacheError:
        return CacheError(
            f"cache {self.path}: answer {key.hex()} was written by another program ({why}); move this file away"
        )


class VectorCache(_Cache[VectorEntry]):
    """Vectors by key."""

    _layout = _VECTORS

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, Vector]:
        """The vectors of those keys that are there, float32, exactly as they were stored.

        Raises:
            CacheError: a row or the file is damaged, or the file cannot be read.
        """
        found: dict[bytes, Vector] = {}
        for start in range(0, len(keys), _TOGETHER):
            some = keys[start : start + _TOGETHER]
            marks = ", ".join("?" * len(some))
            with self._use() as connection:
                rows = connection.execute(f"{_VECTORS.select} WHERE key IN ({marks})", some).fetchall()
            for row in rows:
                self._require_sound(row)
                found[row[0]] = np.frombuffer(row[2], dtype="<f4").astype(np.float32)
        return found

    def put_many(self, vectors: Mapping[bytes, npt.NDArray[Any]]) -> dict[bytes, Vector]:
        """Store vectors whose keys are not there, in one transaction; what is stored then, which all agree on.

        Raises:
            CacheError: a vector that is not one row of finite numbers, or a file that is damaged or cannot be written.
        """
        with self.transaction() as connection:
            for key, vector in vectors.items():
                numbers = np.ascontiguousarray(vector, dtype="<f4")
                if numbers.ndim != 1:
                    raise CacheError(f"cache {self.path}: vector {key.hex()} of shape {vector.shape} is not one row")
                entry = VectorEntry(key, numbers.size, numbers.tobytes())
                connection.execute(_VECTORS.insert, self._row(entry))
        return self.get_many(list(vectors))

    def entries(self) -> Iterator[VectorEntry]:
        """All entries by key, as of now. Raises `CacheError` at a damaged one."""
        return self._entries()

    def by_dimensions(self) -> dict[int, int]:
        """Number of vectors of each length, shortest first."""
        with self._use() as connection:
            found = connection.execute("SELECT dimensions, count(*) FROM vectors GROUP BY dimensions ORDER BY 1")
            return dict(found.fetchall())

    def _row(self, entry: VectorEntry) -> tuple[Any, ...]:
        self._require_key(entry.key)
        if not 1 <= entry.dimensions <= MOST_DIMENSIONS or len(entry.data) != 4 * entry.dimensions:
            raise CacheError(
                f"cache {self.path}: vector {entry.key.hex()} has {entry.dimensions} dimensions in {len(entry.data)} "
                f"bytes; 1 to {MOST_DIMENSIONS} of 4 bytes each are kept"
            )
        if not np.isfinite(np.frombuffer(entry.data, dtype="<f4")).all():
            raise CacheError(f"cache {self.path}: vector {entry.key.hex()} has NaN or infinity in it; see the embedder")
        parts = (entry.key, entry.dimensions, entry.data)
        return (*parts, _checksum(parts))

    def _entry(self, row: Sequence[Any]) -> VectorEntry:
        return VectorEntry(*row[:-1])
