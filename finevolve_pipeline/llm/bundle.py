"""Bundles: one file with a cache's answers and vectors, to re-run a table of results without a model or a key.

A bundle is a zip of `manifest.json`, `answers.parquet` and `vectors.parquet`. Members are stored as they are (parquet
is compressed), rows are sorted by key, times are fixed: equal caches and identities give equal bytes, under one version
of the parquet library. The manifest has a SHA-256 of each table; a table has what the cache has, so no article.

A bundle comes from anywhere, so nothing in it is believed: checksums are verified before anything is written, every row
while it is written, in one transaction that a bad row undoes. Rows are read a group at a time, so memory does not grow
with the bundle.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import struct
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Generic, NoReturn, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from finevolve_pipeline.digests import canonical_json
from finevolve_pipeline.errors import CacheError
from finevolve_pipeline.files import writing_atomically
from finevolve_pipeline.llm.cache import (
    KEY_BYTES,
    LONGEST_DOCUMENT,
    MOST_DIMENSIONS,
    About,
    AnswerCache,
    AnswerEntry,
    Tally,
    VectorCache,
    VectorEntry,
    document_of,
    plain,
    reply_of,
)

FORMAT = "finevolve-cache"
VERSION = 1

MANIFEST = "manifest.json"
LONGEST_MANIFEST = 2**20
LARGEST_GROUP = 64 * 2**20
"""Bytes of a row group, unpacked, that are read; ours have 4 MiB and one row."""

MOST_ROWS = 2**16
"""Rows of a group that are read; ours have 4,096."""

_GROUP_ROWS = 4096
_GROUP_BYTES = 4 * 2**20
_LARGEST_NUMBER = 2**53
_PLAIN = {"PLAIN", "RLE", "BIT_PACKED"}
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}|")
_UNREADABLE = (
    zipfile.BadZipFile, struct.error, OSError, EOFError, OverflowError, RuntimeError, ValueError, KeyError, TypeError
)  # fmt: skip
"""What zipfile and json raise at bytes that were made to hurt; a RecursionError is a RuntimeError."""

_EPOCH = (1980, 1, 1, 0, 0, 0)
_LOCAL_HEADER = 30

Entry = TypeVar("Entry", AnswerEntry, VectorEntry)


@dataclass(frozen=True)
class Contents:
    """How many answers a bundle holds of one backbone in one phase."""

    backbone: str
    phase: str
    answers: int


@dataclass(frozen=True)
class Manifest:
    """What a bundle says about itself.

    Attributes:
        answers: number of answers.
        vectors: number of vectors.
        contents: answers by backbone and phase.
        identities: by backbone, its identity where the exporter knew it: who was asked, and how.
        digests: SHA-256 of each table, by the member's name.
    """

    answers: int
    vectors: int
    contents: tuple[Contents, ...]
    identities: Mapping[str, Mapping[str, object]]
    digests: Mapping[str, str]


@dataclass(frozen=True)
class Imported:
    """What became of a bundle's entries."""

    answers: Tally
    vectors: Tally
    manifest: Manifest

    @property
    def new(self) -> int:
        """Entries that were stored."""
        return self.answers.new + self.vectors.new

    @property
    def same(self) -> int:
        """Entries that were there already."""
        return self.answers.same + self.vectors.same

    @property
    def conflicting(self) -> int:
        """Entries that were there with other content: kept, or replaced where that was asked for."""
        return self.answers.conflicting + self.vectors.conflicting


@dataclass(frozen=True)
class _Table(Generic[Entry]):
    """One kind of entries as a parquet file."""

    member: str
    schema: pa.Schema
    values: Callable[[Entry], tuple[object, ...]]
    size: Callable[[Entry], int]
    entry: Callable[[tuple[Any, ...]], Entry]
    """The entry in a row. Raises `ValueError` if it cannot be one."""


def _answer_of(values: tuple[Any, ...]) -> AnswerEntry:
    key, *texts, document = values
    about = About(*texts)
    if any(plain(text) != text for text in texts) or not about.backbone or not _DAY.fullmatch(about.day):
        raise ValueError("says what it is for in characters that are not allowed")
    if len(document) > LONGEST_DOCUMENT:
        raise ValueError(f"has {len(document)} bytes, more than {LONGEST_DOCUMENT}")
    reply = reply_of(document)
    usage, counts = vars(reply.usage) | {"cost": 0}, reply.failures
    if not isinstance(counts, dict) or not all(_is_count(one) for one in (*usage.values(), *counts.values())):
        raise ValueError("counts something by no whole number from 0 up")
    if not isinstance(reply.usage.cost, float) or reply.usage.cost < 0:
        raise ValueError(f"costs {reply.usage.cost!r}")
    if not all(isinstance(text, str) for text in (reply.text, reply.finish, reply.model)):
        raise ValueError("has no text")
    # Also refuses NaN and infinity, keys that stand twice, and blanks: equal replies must stay equal bytes.
    if document_of(reply) != document:
        raise ValueError("is no canonical JSON")
    return AnswerEntry(key, about, document)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_NUMBER


def _vector_of(values: tuple[Any, ...]) -> VectorEntry:
    key, dimensions, data = values
    if not 1 <= dimensions <= MOST_DIMENSIONS or len(data) != 4 * dimensions:
        raise ValueError(f"has {dimensions} dimensions in {len(data)} bytes")
    if not np.isfinite(np.frombuffer(data, dtype="<f4")).all():
        raise ValueError("has NaN or infinity in it")
    return VectorEntry(key, dimensions, data)


_ANSWERS = _Table[AnswerEntry](
    member="answers.parquet",
    schema=pa.schema(
        [
            pa.field("key", pa.binary(KEY_BYTES), nullable=False),
            pa.field("backbone", pa.string(), nullable=False),
            pa.field("phase", pa.string(), nullable=False),
            pa.field("day", pa.string(), nullable=False),
            pa.field("subject", pa.string(), nullable=False),
            pa.field("reply", pa.binary(), nullable=False),
        ]
    ),
    values=lambda one: (
        one.key, one.about.backbone, one.about.phase, one.about.day, one.about.subject, one.document
    ),
    size=lambda one: len(one.document) + 100,
    entry=_answer_of,
)  # fmt: skip

_VECTORS = _Table[VectorEntry](
    member="vectors.parquet",
    schema=pa.schema(
        [
            pa.field("key", pa.binary(KEY_BYTES), nullable=False),
            pa.field("dimensions", pa.int32(), nullable=False),
            pa.field("vector", pa.binary(), nullable=False),
        ]
    ),
    values=lambda one: (one.key, one.dimensions, one.data),
    size=lambda one: len(one.data) + 40,
    entry=_vector_of,
)

_MEMBERS = (_ANSWERS.member, _VECTORS.member)


def export_bundle(
    path: Path,
    answers: AnswerCache,
    vectors: VectorCache,
    identities: Mapping[str, Mapping[str, object]],
    only: Sequence[str] | None = None,
) -> Manifest:
    """Write a bundle to `path`, all of it or nothing.

    Args:
        path: of the file; one that is there is replaced.
        answers: all of them are written, or those of the backbones `only`.
        vectors: all of them are written.
        identities: by backbone; those of the backbones written are told.
        only: names of backbones.

    Raises:
        CacheError: a damaged entry, or a backbone without any answer.
        OSError: the file cannot be written.
    """
    contents: Counter[tuple[str, str]] = Counter()
    with writing_atomically(path) as sink, zipfile.ZipFile(sink, "w") as archive:
        written = {
            _ANSWERS.member: _write(archive, _ANSWERS, _counted(answers.entries(only), contents)),
            _VECTORS.member: _write(archive, _VECTORS, vectors.entries()),
        }
        backbones = {backbone for backbone, _ in contents}
        for name in only or ():
            if name not in backbones:
                raise CacheError(
                    f"cache {answers.place}: no answer of backbone {name!r}; `finevolve cache stats` lists them"
                )
        manifest = Manifest(
            answers=written[_ANSWERS.member][0],
            vectors=written[_VECTORS.member][0],
            contents=_contents(contents),
            identities={name: identities[name] for name in sorted(backbones & identities.keys())},
            digests={member: digest for member, (_, digest) in written.items()},
        )
        archive.writestr(_member(MANIFEST), _manifest_text(manifest))
    return manifest


def import_bundle(path: Path, answers: AnswerCache, vectors: VectorCache, *, replace: bool = False) -> Imported:
    """Merge a bundle into the caches. What is there with other content is kept and counted, or replaced.

    Raises:
        CacheError: the file is no sound bundle of this version (nothing was stored then), or a cache cannot be used.
        OSError: the file cannot be read.
    """
    with _opened(path) as bundle:
        manifest = bundle.manifest
        bundle.require_digests()
        contents: Counter[tuple[str, str]] = Counter()
        entries = _counted(bundle.entries(_ANSWERS, manifest.answers), contents)
        # Both caches or none; only a crash between the two commits leaves half, and importing again completes it.
        with vectors.transaction(), answers.transaction():
            imported = Imported(
                answers.merge(entries, replace=replace),
                vectors.merge(bundle.entries(_VECTORS, manifest.vectors), replace=replace),
                manifest,
            )
            if _contents(contents) != manifest.contents:
                _refuse(path, f"{MANIFEST} counts other answers than {_ANSWERS.member} holds")
    return imported


def _counted(entries: Iterable[AnswerEntry], into: Counter[tuple[str, str]]) -> Iterator[AnswerEntry]:
    """The same entries; each is counted by backbone and phase."""
    for entry in entries:
        into[entry.about.backbone, entry.about.phase] += 1
        yield entry


def _contents(counts: Counter[tuple[str, str]]) -> tuple[Contents, ...]:
    return tuple(Contents(*group, counts[group]) for group in sorted(counts))


def _member(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, date_time=_EPOCH)
    info.create_system = 3
    info.external_attr = 0o644 << 16
    return info


class _Hashed(io.RawIOBase):
    """A sink that hashes and counts what goes through it."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self._hash = hashlib.sha256()
        self._written = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._written

    def write(self, data: Any) -> int:
        self._hash.update(data)
        self._sink.write(data)
        self._written += len(data)
        return len(data)

    @property
    def digest(self) -> str:
        """SHA-256 in hexadecimal."""
        return self._hash.hexdigest()


def _write(archive: zipfile.ZipFile, table: _Table[Entry], entries: Iterable[Entry]) -> tuple[int, str]:
    """Write entries as a member; their number and the member's SHA-256."""
    rows = 0
    with archive.open(_member(table.member), "w", force_zip64=True) as raw:
        sink = _Hashed(raw)
        # No dictionaries: a reader can then tell from a group's size what it unpacks to.
        with pq.ParquetWriter(
            sink, table.schema, compression="zstd", use_dictionary=False, write_statistics=False, store_schema=False
        ) as writer:
            for group in _groups(table, entries):
                rows += len(group)
                columns = zip(*map(table.values, group), strict=True)
                arrays = [pa.array(column, field.type) for column, field in zip(columns, table.schema, strict=True)]
                writer.write_table(pa.Table.from_arrays(arrays, schema=table.schema), row_group_size=_GROUP_ROWS)
    return rows, sink.digest


def _groups(table: _Table[Entry], entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    group: list[Entry] = []
    size = 0
    for entry in entries:
        group.append(entry)
        size += table.size(entry)
        if len(group) == _GROUP_ROWS or size >= _GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _manifest_text(manifest: Manifest) -> str:
    value = {
        "format": FORMAT,
        "version": VERSION,
        "answers": manifest.answers,
        "vectors": manifest.vectors,
        "contents": [vars(one) for one in manifest.contents],
        "identities": {name: dict(identity) for name, identity in manifest.identities.items()},
        "sha256": dict(manifest.digests),
    }
    return json.dumps(json.loads(canonical_json(value)), ensure_ascii=False, indent=2) + "\n"


@contextmanager
def _opened(path: Path) -> Iterator[_Bundle]:
    """A bundle whose outside is in order: the right members, each in one piece, and a manifest.

    Raises:
        CacheError: it is not.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                members = {info.filename: info for info in archive.infolist()}
                _require_members(path, archive.infolist())
                manifest = _manifest(archive.read(members[MANIFEST]))
        except _UNREADABLE as broken:
            _refuse(path, f"no bundle of version {VERSION} ({_quoted(broken)})")
        windows = {name: _Window(file, members[name]) for name in _MEMBERS}
        yield _Bundle(path, manifest, windows)


def _refuse(path: Path, why: str) -> NoReturn:
    raise CacheError(f"bundle {path}: {why}; nothing was imported, get the file again") from None


def _quoted(text: object) -> str:
    """A hostile text or an error about one, harmless in a message."""
    return plain(str(text))[:120]


def _require_members(path: Path, infos: Sequence[zipfile.ZipInfo]) -> None:
    names = [info.filename for info in infos]
    for name in (MANIFEST, *_MEMBERS):
        if names.count(name) != 1:
            _refuse(path, f"holds {name} {names.count(name)} times")
    for info in infos:
        if info.filename not in (MANIFEST, *_MEMBERS):
            _refuse(path, f"holds {_quoted(info.filename)!r}, which is no part of a bundle")
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size or info.flag_bits & 1:
            _refuse(path, f"{info.filename} is packed or encrypted, in a bundle it never is")
    if next(info.file_size for info in infos if info.filename == MANIFEST) > LONGEST_MANIFEST:
        _refuse(path, f"{MANIFEST} has more than {LONGEST_MANIFEST} bytes")


def _manifest(data: bytes) -> Manifest:
    """Read a manifest. Raises ValueError, KeyError, TypeError or RecursionError if it is none."""
    value = json.loads(data.decode("utf-8"))
    canonical_json(value)  # refuses NaN and infinity
    if value["format"] != FORMAT or value["version"] != VERSION:
        raise ValueError(f"format {value['format']!r}, version {value['version']!r}")
    contents = tuple(Contents(**one) for one in value["contents"])
    manifest = Manifest(value["answers"], value["vectors"], contents, value["identities"], value["sha256"])
    if not all(_is_count(one) for one in (manifest.answers, manifest.vectors, *(one.answers for one in contents))):
        raise ValueError("counts something by no whole number from 0 up")
    if not all(isinstance(one, dict) for one in (manifest.identities, *manifest.identities.values(), manifest.digests)):
        raise ValueError("identities or digests are no objects")
    return manifest


class _Window(io.RawIOBase):
    """A member of a zip as a file of its own; it is stored, so it is a piece of the whole."""

    def __init__(self, file: BinaryIO, info: zipfile.ZipInfo) -> None:
        self._file = file
        self._size = info.file_size
        file.seek(info.header_offset + 26)
        name, extra = struct.unpack("<HH", file.read(4).ljust(4, b"\0"))
        self._start = info.header_offset + _LOCAL_HEADER + name + extra
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._size - self._at)
        self._file.seek(self._start + self._at)
        data = self._file.read(left if size is None or size < 0 else min(size, left))
        self._at += len(data)
        return data

    def digest(self) -> str:
        """SHA-256 of all of it, in hexadecimal."""
        whole = hashlib.sha256()
        self.seek(0)
        while piece := self.read(2**20):
            whole.update(piece)
        return whole.hexdigest()


@dataclass(frozen=True)
class _Bundle:
    """An open bundle."""

    path: Path
    manifest: Manifest
    windows: Mapping[str, _Window]

    def require_digests(self) -> None:
        """Raises `CacheError` if a table is not the one that the manifest names."""
        for name, window in self.windows.items():
            if window.digest() != self.manifest.digests.get(name):
                _refuse(self.path, f"{name} fails its checksum")

    def entries(self, table: _Table[Entry], rows: int) -> Iterator[Entry]:
        """All entries of a table, `rows` of them, each checked. Raises `CacheError` at the first bad one."""
        before = b""
        for values in self._rows(table, rows):
            key = values[0]
            if key <= before:
                _refuse(self.path, f"{table.member}: key {key.hex()} is out of order")
            before = key
            try:
                yield table.entry(values)
            except ValueError as bad:
                _refuse(self.path, f"{table.member}: entry {key.hex()} {_quoted(bad)}")

    def _rows(self, table: _Table[Entry], rows: int) -> Iterator[tuple[Any, ...]]:
        try:
            with pq.ParquetFile(self.windows[table.member]) as file:
                self._require_table(table, file, rows)
                for position in range(file.metadata.num_row_groups):
                    group = file.read_row_group(position, use_threads=False)
                    yield from zip(*(column.to_pylist() for column in group.columns), strict=True)
        except (pa.ArrowException, OSError, ValueError) as broken:
            _refuse(self.path, f"{table.member} is no table ({_quoted(broken)})")

    def _require_table(self, table: _Table[Entry], file: pq.ParquetFile, rows: int) -> None:
        """Before a byte is unpacked: right columns, as many rows as were announced, in groups that fit into memory."""
        if not file.schema_arrow.equals(table.schema):
            _refuse(self.path, f"{table.member} has other columns: {_quoted(file.schema_arrow.to_string())}")
        if file.metadata.num_rows != rows:
            _refuse(self.path, f"{table.member} has {file.metadata.num_rows} rows, not {rows}")
        for position in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(position)
            columns = [group.column(place) for place in range(group.num_columns)]
            size = sum(column.total_uncompressed_size for column in columns)
            if group.num_rows > MOST_ROWS or size > LARGEST_GROUP:
                _refuse(self.path, f"{table.member}: group {position} unpacks to {group.num_rows} rows, {size} bytes")
            if any(column.has_dictionary_page or not set(column.encodings) <= _PLAIN for column in columns):
                _refuse(self.path, f"{table.member}: group {position} is encoded in a way that can grow without bound")
