"""The cache: answers of models and vectors of embedders, each under a key made of all that can change it.

What belongs here: keys, and two caches that any number of processes and threads share. They are SQLite files below
`<home>/cache`, `answers.sqlite` and `vectors.sqlite`, or tables of a database that hosts share (see `databases`), and
equal entries are equal rows in both. What must not: a prompt or an article. Keys are digests, so a cache can be given
away without the licensed texts that it was made from; an entry tells its backbone, phase, simulated day and subject (an
industry's code, an article's id) and what the model wrote. Nothing here tells the time of day.

Every row carries a checksum. Whoever stores a key first wins: all who ask for it later get the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import marshal
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from finevolve_pipeline.databases import Connection, Database, Schema, database_at, text_of
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
        structure: what is wrong with the database as a whole; empty if it is sound.
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
    """How one kind of cache lies in its database.

    Attributes:
        what: for messages.
        table: name of the only table.
        columns: all of them, in order; `key` first, `checksum` last.
        shown: columns that tell people what a row is about.
    """

    what: str
    table: str
    columns: tuple[str, ...]
    shown: tuple[str, ...]

    @cached_property
    def _into(self) -> str:
        marks = ", ".join("?" * len(self.columns))
        return f"INSERT INTO {self.table} ({', '.join(self.columns)}) VALUES ({marks}) ON CONFLICT (key)"

    @cached_property
    def insert(self) -> str:
        return f"{self._into} DO NOTHING"

    @cached_property
    def replace(self) -> str:
        return f"{self._into} DO UPDATE SET {', '.join(f'{one} = excluded.{one}' for one in self.columns[1:])}"

    @cached_property
    def select(self) -> str:
        return f"SELECT {', '.join(self.columns)} FROM {self.table}"

    @cached_property
    def find(self) -> str:
        return f"{self.select} WHERE key = ?"


_ANSWERS = _Layout(
    what="answer",
    table="answers",
    columns=("key", "backbone", "phase", "day", "subject", "reply", "checksum"),
    shown=("phase", "subject", "day", "backbone"),
)

_VECTORS = _Layout(
    what="vector",
    table="vectors",
    columns=("key", "dimensions", "vector", "checksum"),
    shown=("dimensions",),
)

_IF_OTHER_VERSION = "export it with the program that wrote it, move it away, and import the bundle"
_IF_DAMAGED = "save what can be read (SQLite: `sqlite3 FILE .recover`), or move it away and import a bundle"


class _Cache(Generic[Entry]):
    """One table of a database, for several processes and threads at once.

    Args:
        place: a database, or the path of a SQLite file; it and its folder are made at the first use.

    Every error of the database becomes one `CacheError` that says what to do.
    """

    schema: ClassVar[Schema]
    _layout: ClassVar[_Layout]

    def __init__(self, place: Path | Database) -> None:
        self._database = database_at(place, self.schema)

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        return self._database.name

    @property
    def label(self) -> str:
        """The same in one word, for tables."""
        return self._database.label

    def count(self) -> int:
        """Entries."""
        statement = f"SELECT count(*) FROM {self._layout.table}"
        return int(self._database.run(lambda connection: connection.execute(statement).fetchone()[0]))

    def size(self) -> int:
        """Bytes on disk, the write-ahead log of a file included; 0 where there is nothing yet."""
        return self._database.size()

    def merge(self, entries: Iterable[Entry], *, replace: bool = False) -> Tally:
        """Store entries that are not there, in one transaction; `replace` those that differ, else keep them.

        Raises:
            CacheError: an entry, a row or the database cannot be used; nothing was stored then. Whatever else `entries`
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

    def transaction(self) -> AbstractContextManager[Connection]:
        """All or nothing: what is written inside is kept if the block ends well. One inside another joins it."""
        return self._database.transaction()

    def verify(self) -> Health:
        """Every checksum, and the database's own check of the whole."""
        entries = 0
        damaged: list[Damaged] = []
        try:
            said = self._database.flaws()
            for row in self._rows():
                entries += 1
                if not _is_sound(row):
                    damaged.append(self._damaged(row))
        except CacheError as broken:
            return Health(entries, tuple(damaged), (str(broken),))
        return Health(entries, tuple(damaged), tuple(plain(line) for line in said))

    def is_there(self) -> bool:
        """Whether it has been made. Raises `CacheError` if something else is in its place."""
        return self._database.is_there()

    def set_aside(self) -> str:
        """Rename a cache that cannot be read, so that a new one can be made; where it is now."""
        return self._database.set_aside()

    def delete(self, keys: Iterable[bytes]) -> int:
        """Forget entries, e.g. damaged ones; the number of those that there were."""
        statement = f"DELETE FROM {self._layout.table} WHERE key = ?"
        with self.transaction() as connection:
            return sum(connection.execute(statement, (key,)).rowcount for key in keys)

    def close(self) -> None:
        """Close the database; the next use opens it again."""
        self._database.close()

    def _row(self, entry: Entry) -> tuple[Any, ...]:
        """An entry as it is stored, its checksum last. Raises `CacheError` if it cannot be."""
        raise NotImplementedError

    def _entry(self, row: Sequence[Any]) -> Entry:
        """The entry in a sound row."""
        raise NotImplementedError

    def _require_key(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise CacheError(
                f"cache {self.place}: key {key.hex()[:80]} has {len(key)} bytes, no SHA-256; "
                "make it with answer_key or vector_key"
            )

    def _found(self, connection: Connection, key: bytes) -> tuple[Any, ...] | None:
        """The sound row of a key, None if there is none. Raises `CacheError` if it is damaged."""
        row: tuple[Any, ...] | None = connection.execute(self._layout.find, (key,)).fetchone()
        if row is not None:
            self._require_sound(row)
        return row

    def _rows(self, where: str = "", values: Sequence[object] = ()) -> Iterator[tuple[Any, ...]]:
        """All rows by key as of now, whatever is written meanwhile."""
        return self._database.rows(f"{self._layout.select} {where} ORDER BY key", values)

    def _entries(self, where: str = "", values: Sequence[object] = ()) -> Iterator[Entry]:
        for row in self._rows(where, values):
            self._require_sound(row)
            yield self._entry(row)

    def _require_sound(self, row: Sequence[object]) -> None:
        if not _is_sound(row):
            damaged = self._damaged(row)
            raise CacheError(
                f"cache {self.place}: {self._layout.what} {damaged.key.hex()} ({damaged.about}) is damaged; "
                "`finevolve cache verify --repair` deletes damaged entries, so that they are asked again"
            )

    def _damaged(self, row: Sequence[object]) -> Damaged:
        named = dict(zip(self._layout.columns, row, strict=True))
        key = named["key"] if isinstance(named["key"], bytes) else b""
        return Damaged(key, " ".join(_readable(named[column]) for column in self._layout.shown))


class AnswerCache(_Cache[AnswerEntry]):
    """Answers by key."""

    schema = Schema(
        kind="cache",
        name="answers",
        version=SCHEMA_VERSION,
        tables=("answers",),
        sqlite="""
            CREATE TABLE answers (
                key BLOB PRIMARY KEY NOT NULL,
                backbone TEXT NOT NULL,
                phase TEXT NOT NULL,
                day TEXT NOT NULL,
                subject TEXT NOT NULL,
                reply BLOB NOT NULL, -- zlib of the canonical JSON
                checksum BLOB NOT NULL
            );
        """,
        postgres="""
            CREATE TABLE answers (
                key BYTEA PRIMARY KEY,
                backbone TEXT COLLATE "C" NOT NULL,
                phase TEXT COLLATE "C" NOT NULL,
                day TEXT COLLATE "C" NOT NULL,
                subject TEXT COLLATE "C" NOT NULL,
                reply BYTEA NOT NULL,
                checksum BYTEA NOT NULL
            );
            ALTER TABLE answers ALTER COLUMN reply SET STORAGE EXTERNAL; -- it is packed already
        """,
        if_damaged=_IF_DAMAGED,
        if_other_version=_IF_OTHER_VERSION,
        application=0x46456131,  # FEa1
        page_size=8192,  # several answers fit into one
    )
    _layout = _ANSWERS

    def get(self, key: bytes) -> Reply | None:
        """The answer of a key, None if there is none.

        Raises:
            CacheError: the row or the database is damaged, or cannot be read.
        """
        row = self._database.run(lambda connection: self._found(connection, key))
        return None if row is None else self._reply(key, self._document(row))

    def put(self, key: bytes, reply: Reply, about: About) -> Reply:
        """Store an answer unless there is one; what is stored then, which all processes agree on.

        Raises:
            CacheError: the answer is longer than 4 MiB, or the database is damaged or cannot be written.
        """
        row = self._row(AnswerEntry(key, about, document_of(reply)))
        if self._database.run(lambda connection: connection.execute(_ANSWERS.insert, row).rowcount):
            return reply
        stored = self.get(key)
        # Between both statements a repair may have deleted the row: then this answer is as good as any.
        return reply if stored is None else stored

    def replace(self, key: bytes, reply: Reply, about: About) -> None:
        """Store an answer in place of the one that there may be. Raises as `put`."""
        row = self._row(AnswerEntry(key, about, document_of(reply)))
        self._database.run(lambda connection: connection.execute(_ANSWERS.replace, row))

    def entries(self, backbones: Sequence[str] | None = None) -> Iterator[AnswerEntry]:
        """All entries by key, as of now, or those of some backbones. Raises `CacheError` at a damaged one."""
        if backbones is None:
            return self._entries()
        if not backbones:
            return iter(())
        return self._entries(f"WHERE backbone IN ({', '.join('?' * len(backbones))})", backbones)

    def backbones(self) -> list[str]:
        """Names of the backbones with answers, sorted."""
        statement = "SELECT DISTINCT backbone FROM answers ORDER BY backbone"
        found = self._database.run(lambda connection: connection.execute(statement).fetchall())
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
                f"cache {self.place}: answer to {about} has {len(entry.document)} bytes, more than the "
                f"{LONGEST_DOCUMENT} that are kept; lower max_tokens of {about.backbone}"
            )
        texts = (plain(about.backbone), plain(about.phase), plain(about.day), plain(about.subject))
        parts = (entry.key, *texts, zlib.compress(entry.document, _LEVEL))
        return (*parts, _checksum(parts))

    def _entry(self, row: Sequence[Any]) -> AnswerEntry:
        key, backbone, phase, day, subject, *_ = row
        about = About(text_of(backbone), text_of(phase), text_of(day), text_of(subject))
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
            f"cache {self.place}: answer {key.hex()} was written by another program ({why}); move this file away"
        )


class VectorCache(_Cache[VectorEntry]):
    """Vectors by key."""

    schema = Schema(
        kind="cache",
        name="vectors",
        version=SCHEMA_VERSION,
        tables=("vectors",),
        sqlite="""
            CREATE TABLE vectors (
                key BLOB PRIMARY KEY NOT NULL,
                dimensions INTEGER NOT NULL,
                vector BLOB NOT NULL, -- float32, little-endian
                checksum BLOB NOT NULL
            );
        """,
        postgres="""
            CREATE TABLE vectors (
                key BYTEA PRIMARY KEY,
                dimensions BIGINT NOT NULL,
                vector BYTEA NOT NULL,
                checksum BYTEA NOT NULL
            );
            ALTER TABLE vectors ALTER COLUMN vector SET STORAGE EXTERNAL; -- random bits do not shrink
        """,
        if_damaged=_IF_DAMAGED,
        if_other_version=_IF_OTHER_VERSION,
        application=0x46457631,  # FEv1
        page_size=4096,  # vectors of 1,024 or 4,096 numbers, a little longer than pages of any size, waste least here
    )
    _layout = _VECTORS

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, Vector]:
        """The vectors of those keys that are there, float32, exactly as they were stored.

        Raises:
            CacheError: a row or the database is damaged, or cannot be read.
        """
        found: dict[bytes, Vector] = {}
        for start in range(0, len(keys), _TOGETHER):
            some = keys[start : start + _TOGETHER]
            for row in self._database.run(partial(_rows_of, some)):
                self._require_sound(row)
                found[row[0]] = np.frombuffer(row[2], dtype="<f4").astype(np.float32)
        return found

    def put_many(self, vectors: Mapping[bytes, npt.NDArray[Any]]) -> dict[bytes, Vector]:
        """Store vectors whose keys are not there, in one transaction; what is stored then, which all agree on.

        Raises:
            CacheError: a vector that is not one row of finite numbers, or a database that is damaged or cannot be
                written; nothing was stored then.
        """
        self._write(_VECTORS.insert, vectors)
        return self.get_many(list(vectors))

    def replace_many(self, vectors: Mapping[bytes, npt.NDArray[Any]]) -> None:
        """Store vectors in place of those that there may be, in one transaction. Raises as `put_many`."""
        self._write(_VECTORS.replace, vectors)

    def _write(self, statement: str, vectors: Mapping[bytes, npt.NDArray[Any]]) -> None:
        rows = [self._row(self._entry_of(*one)) for one in vectors.items()]
        self._database.atomically(lambda connection: connection.executemany(statement, rows))

    def _entry_of(self, key: bytes, vector: npt.NDArray[Any]) -> VectorEntry:
        numbers = np.ascontiguousarray(vector, dtype="<f4")
        if numbers.ndim != 1:
            raise CacheError(f"cache {self.place}: vector {key.hex()} of shape {vector.shape} is not one row")
        return VectorEntry(key, numbers.size, numbers.tobytes())

    def entries(self) -> Iterator[VectorEntry]:
        """All entries by key, as of now. Raises `CacheError` at a damaged one."""
        return self._entries()

    def by_dimensions(self) -> dict[int, int]:
        """Number of vectors of each length, shortest first."""
        statement = "SELECT dimensions, count(*) FROM vectors GROUP BY dimensions ORDER BY 1"
        return dict(self._database.run(lambda connection: connection.execute(statement).fetchall()))

    def _row(self, entry: VectorEntry) -> tuple[Any, ...]:
        self._require_key(entry.key)
        if not 1 <= entry.dimensions <= MOST_DIMENSIONS or len(entry.data) != 4 * entry.dimensions:
            raise CacheError(
                f"cache {self.place}: vector {entry.key.hex()} has {entry.dimensions} dimensions in {len(entry.data)} "
                f"bytes; 1 to {MOST_DIMENSIONS} of 4 bytes each are kept"
            )
        if not np.isfinite(np.frombuffer(entry.data, dtype="<f4")).all():
            raise CacheError(
                f"cache {self.place}: vector {entry.key.hex()} has NaN or infinity in it; see the embedder"
            )
        parts = (entry.key, entry.dimensions, entry.data)
        return (*parts, _checksum(parts))

    def _entry(self, row: Sequence[Any]) -> VectorEntry:
        return VectorEntry(*row[:-1])


def _rows_of(keys: Sequence[bytes], connection: Connection) -> list[Any]:
    marks = ", ".join("?" * len(keys))
    return connection.execute(f"{_VECTORS.select} WHERE key IN ({marks})", keys).fetchall()
