"""Files: atomic writes (a reader sees the old file or the new one, never a part) and compact parquet bytes."""

from __future__ import annotations

import io
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from finevolve_pipeline.errors import FinEvolveError
from finevolve_pipeline.processes import is_alive

PARTIAL = ".partial-"
"""Prefix of temporary names; a leftover is garbage and may be deleted when no writer runs."""


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` to `path` through a temporary name in the same folder, flushed to disk, then renamed."""
    with writing_atomically(path) as sink:
        sink.write(data)


@contextmanager
def writing_atomically(path: Path) -> Iterator[BinaryIO]:
    """The same for what is too large for memory; a block that ends by an exception leaves `path` as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{PARTIAL}{os.getpid()}-{uuid.uuid4().hex[:8]}-{path.name}")
    try:
        with open(temporary, "wb") as sink:
            yield sink
            sink.flush()
            os.fsync(sink.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


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
    for leftover in folder.rglob(f"{PARTIAL}*"):
        pid = leftover.name.removeprefix(PARTIAL).partition("-")[0]
        if is_alive(pid):
            continue
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


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
