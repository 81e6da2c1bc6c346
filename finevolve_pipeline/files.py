"""Atomic writes: a reader sees the old file or the new one, never a part, whenever the process dies."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

PARTIAL = ".partial-"
"""Prefix of temporary names; a leftover is garbage and may be deleted when no writer runs."""


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` to `path` through a temporary name in the same folder, flushed to disk, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{PARTIAL}{os.getpid()}-{uuid.uuid4().hex[:8]}-{path.name}")
    try:
        with open(temporary, "wb") as sink:
            sink.write(data)
            sink.flush()
            os.fsync(sink.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
