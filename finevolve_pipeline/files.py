"""Files: atomic writes (a reader sees the old file or the new one, never a part) and compact parquet bytes.

A path is one of this machine (`pathlib.Path`) or one on an object store (a `UPath`, handed in as a `Path`: it answers
alike to `/`, `name`, `stem`, `parent`, `read_bytes`, `read_text`, `exists`, `is_file`, `is_dir`, `unlink`). What they
do differently is here and nowhere else: an object store has no folders, no rename and no temporary names, one write is
atomic by itself, and every question is a request, so many files are listed and read at once.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from finevolve_pipeline.errors import FinEvolveError
from finevolve_pipeline.processes import is_alive

PARTIAL = ".partial-"
"""Prefix of temporary names; a leftover is garbage and may be deleted when no writer runs."""

_NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)
_FOOTER_BYTES = 1 << 16
"""So much of a file's end holds the footer of any table written here (see `parquet_bytes`)."""
_AT_ONCE = 512
"""So many footers are held at once."""


def object_store(path: Path) -> Any:
    """The object store on which a path lies, as an fsspec file system; None for a path of this machine."""
    return getattr(path, "fs", None)


def _name(path: Path) -> str:
    """The name of a path on its object store."""
    return str(getattr(path, "path"))  # noqa: B009 - a `UPath`, of which the type checker knows nothing


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` to `path`: through a temporary name in the same folder, flushed to disk, then renamed; or in one
    request."""
    with writing_atomically(path) as sink:
        sink.write(data)


@contextmanager
def writing_atomically(path: Path) -> Iterator[BinaryIO]:
    """The same for what comes in pieces; a block that ends by an exception leaves `path` as it was."""
    if remote := object_store(path):
        pieces = io.BytesIO()
        yield pieces
        remote.pipe_file(_name(path), pieces.getvalue())
    else:
        with _written_beside(path) as temporary:
            with open(temporary, "wb") as sink:
                yield sink
                sink.flush()
                os.fsync(sink.fileno())
            os.replace(temporary, path)
    if look := _look.get():
        look.forget(path)


@contextmanager
def _written_beside(path: Path) -> Iterator[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{PARTIAL}{os.getpid()}-{uuid.uuid4().hex[:8]}-{path.name}")
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def create(path: Path, data: bytes) -> bool:
    """Write `data` to `path`, atomically, only if nothing is there; of several that try, one succeeds.

    Where a disk has no hard links only a lock (see `locks`) decides between two that try at the same moment.

    Returns:
        Whether it was written.
    """
    if remote := object_store(path):
        try:
            remote.pipe_file(_name(path), data, mode="create")
        except FileExistsError:
            return False
        return True
    with _written_beside(path) as temporary:
        with open(temporary, "wb") as sink:
            sink.write(data)
            sink.flush()
            os.fsync(sink.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError as refused:
            if refused.errno not in _NO_HARD_LINKS:
                raise
            if path.exists():
                return False
            os.replace(temporary, path)
    return True


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is below it; nothing if there is none."""
    if remote := object_store(folder):
        remote.rm(_name(folder), recursive=True)
    elif folder.exists():
        shutil.rmtree(folder)


def borrow(folder: Path, shown_at: Path) -> None:
    """Let a folder be read at `shown_at`, which lies on this machine: by a link, or by copies from an object store."""
    if not object_store(folder):
        shown_at.symlink_to(folder.absolute())
        return
    names = files_below(folder)
    for name, data in zip(names, read_many([folder / name for name in names]), strict=True):
        write_atomically(shown_at / name, data)


def read_many(paths: Sequence[Path]) -> list[bytes]:
    """The content of several files, in their order; from an object store all at once.

    Raises:
        FileNotFoundError: one does not exist.
    """
    remote = object_store(paths[0]) if paths else None
    if remote is None:
        return [path.read_bytes() for path in paths]
    found = remote.cat([_name(path) for path in paths])
    return [found[_name(path)] for path in paths]


def subfolders(folder: Path) -> list[str]:
    """Names of the folders directly in a folder, sorted; none if it does not exist."""
    if remote := object_store(folder):
        try:
            entries = remote.ls(_name(folder), detail=True)
        except FileNotFoundError:
            return []
        return sorted(entry["name"].rpartition("/")[2] for entry in entries if entry["type"] == "directory")
    if not folder.is_dir():
        return []
    return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())


def folders_holding(folder: Path, name: str) -> list[str]:
    """Names of the folders directly in a folder that hold a file of that name, sorted."""
    if object_store(folder):
        places = (place.split("/") for place in files_below(folder))
        return sorted(parts[0] for parts in places if len(parts) == 2 and parts[1] == name)
    return [one for one in subfolders(folder) if (folder / one / name).is_file()]


def files_below(folder: Path) -> list[str]:
    """Files anywhere below a folder, as `part/part/name` relative to it, sorted; those whose own name begins with a dot
    left out. None if there is no such folder."""
    if remote := object_store(folder):
        start = len(_name(folder)) + 1
        places = [name[start:] for name in remote.find(_name(folder))]
    else:
        start = len(str(folder)) + 1
        places = [os.path.join(where, name)[start:] for where, _, names in os.walk(folder) for name in names]
    return sorted(place for place in places if not place.rpartition("/")[2].startswith("."))


def require_writable(path: Path) -> None:
    """Find out before long work whether a file or folder `path` can be made; nothing is left behind.

    Raises:
        FinEvolveError: nothing can be made in the nearest folder above it that exists.
    """
    try:
        above = next(folder for folder in path.absolute().parents if folder.exists())
        probe = above / f"{PARTIAL}{os.getpid()}-{uuid.uuid4().hex[:8]}-{path.name}"
        probe.touch()
        probe.unlink()
    except OSError as refused:
        raise FinEvolveError(f"{path}: cannot be written, {refused.strerror}; name another place") from refused


def sweep(folder: Path) -> None:
    """Remove what processes that have died left half-written anywhere below `folder`."""
    for leftover in partials(folder):
        pid = leftover.name.removeprefix(PARTIAL).partition("-")[0]
        if is_alive(pid):
            continue
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def partials(folder: Path) -> list[Path]:
    """What was left half-written anywhere below `folder`: nothing on an object store, which keeps no parts."""
    return [] if object_store(folder) else list(folder.rglob(f"{PARTIAL}*"))


def parquet_bytes(table: pa.Table, metadata: Mapping[str, str]) -> bytes:
    """A table as parquet with a small footer: no statistics, no Arrow schema, only the given metadata.

    Equal tables and metadata give equal bytes. Times lose their zone's name: readers cast to the contract.
    """
    sink = io.BytesIO()
    plain = table.replace_schema_metadata(None)
    with pq.ParquetWriter(sink, plain.schema, compression="zstd", write_statistics=False, store_schema=False) as writer:
        writer.write_table(plain)
        writer.add_key_value_metadata(dict(metadata))
    return sink.getvalue()


@dataclass(frozen=True)
class ParquetFacts:
    """What a parquet file says of itself.

    Attributes:
        metadata: what `parquet_bytes` was given.
        rows: how many it holds.
        bytes: its size.
    """

    metadata: Mapping[bytes, bytes]
    rows: int
    bytes: int


@dataclass(frozen=True)
class _Look:
    """What was seen of parquet files since a look began; `listed` are all below `folders` of an object store."""

    folders: tuple[str, ...]
    listed: set[str]
    facts: dict[str, ParquetFacts]

    def is_absent(self, name: str) -> bool:
        return name not in self.listed and name.startswith(self.folders)

    def forget(self, path: Path) -> None:
        name = _name(path) if object_store(path) else str(path)
        self.listed.add(name)
        self.facts.pop(name, None)


_look: ContextVar[_Look | None] = ContextVar("look", default=None)


@contextmanager
def looking(*folders: Path) -> Iterator[None]:
    """For a block that looks at many partitions: `parquet_facts` of a file is what it was when it was first asked for,
    or when this block last wrote it by `write_atomically`; what others write meanwhile is not seen.

    From an object store all files below `folders` are asked for at once, before the block. Others, and those of a disk,
    are asked for when they are wanted. Of blocks in each other the outer one counts.
    """
    if _look.get() is not None:
        yield
        return
    there = [folder for folder in folders if object_store(folder)]
    paths = [folder / name for folder in there for name in files_below(folder) if name.endswith(".parquet")]
    facts: dict[str, ParquetFacts] = {}
    for start in range(0, len(paths), _AT_ONCE):
        some = paths[start : start + _AT_ONCE]
        endings = object_store(some[0]).endings([_name(path) for path in some], _FOOTER_BYTES)
        for path, ending in zip(some, endings, strict=True):
            with suppress(pa.ArrowException):  # told when it is wanted
                facts[_name(path)] = _facts_of_end(path, *ending)
    token = _look.set(_Look(tuple(f"{_name(folder)}/" for folder in there), set(map(_name, paths)), facts))
    try:
        yield
    finally:
        _look.reset(token)


def parquet_facts(path: Path) -> ParquetFacts:
    """What a parquet file says of itself, without its rows.

    Raises:
        FileNotFoundError: there is none.
        pa.ArrowException, OSError: it cannot be read.
    """
    look = _look.get()
    if look is None:
        return _asked_facts(path)
    name = _name(path) if object_store(path) else str(path)
    if look.is_absent(name):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    if name not in look.facts:
        look.facts[name] = _asked_facts(path)
    return look.facts[name]


def _asked_facts(path: Path) -> ParquetFacts:
    if remote := object_store(path):
        return _facts_of_end(path, *remote.ending(_name(path), _FOOTER_BYTES))
    return _facts(pq.read_metadata(path), path.stat().st_size)


def many_parquet_facts(paths: Sequence[Path]) -> Iterator[ParquetFacts]:
    """`parquet_facts` of several files, in their order; from an object store all at once. Raises as it does."""
    remote = object_store(paths[0]) if paths else None
    if remote is None:
        yield from map(parquet_facts, paths)
    else:
        endings = remote.endings([_name(path) for path in paths], _FOOTER_BYTES)
        yield from (_facts_of_end(path, *ending) for path, ending in zip(paths, endings, strict=True))


def _facts_of_end(path: Path, end: bytes, size: int) -> ParquetFacts:
    try:
        return _facts(pq.read_metadata(pa.BufferReader(end)), size)
    except pa.ArrowException:
        return _facts(pq.read_metadata(pa.BufferReader(path.read_bytes())), size)


def _facts(found: pq.FileMetaData, size: int) -> ParquetFacts:
    return ParquetFacts(found.metadata or {}, int(found.num_rows), size)


def read_parquets(paths: Sequence[Path], schema: pa.Schema, columns: Sequence[str] | None) -> pa.Table:
    """The rows of several parquet files as one table, in their order.

    Raises:
        UnreadableError: one does not exist, or cannot be read.
    """
    chosen = None if columns is None else list(columns)
    if not paths:
        return schema.empty_table() if chosen is None else schema.empty_table().select(chosen)
    number = 0
    try:
        if not object_store(paths[0]):
            return pads.dataset([str(path) for path in paths], schema=schema, format="parquet").to_table(columns=chosen)
        parts = []
        for number, data in enumerate(read_many(paths)):  # noqa: B007 - told if it cannot be read
            part = pads.ParquetFileFormat().make_fragment(pa.BufferReader(data))
            parts.append(part.to_table(schema=schema, columns=chosen))
        return pa.concat_tables(parts)
    except (pa.ArrowException, OSError) as broken:
        named = next((place for place, path in enumerate(paths) if str(path) in str(broken)), number)
        raise UnreadableError(named, str(broken).splitlines()[0]) from broken


class UnreadableError(Exception):
    """One of several files cannot be read.

    Attributes:
        number: which of them, from 0.
    """

    def __init__(self, number: int, why: str) -> None:
        super().__init__(why)
        self.number = number
