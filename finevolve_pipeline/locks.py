"""Who may write: one holder at a time for each thing that has a path, freed by the system however the holder ends.

What lives here: what a lock promises, and the locks of one machine. What must not: which things are locked, and what a
second writer is told of them.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from finevolve_pipeline.errors import FinEvolveError
from finevolve_pipeline.processes import is_alive

LOOK_SECONDS = 0.02
"""How often one that waits for a lock looks whether it is free."""


class TakenError(Exception):
    """Another one holds the lock. Each store tells of it in its own words.

    Attributes:
        owner: who, in words: `process 123`, or `another process` where it is not known.
    """

    def __init__(self, owner: str) -> None:
        super().__init__(owner)
        self.owner = owner


class LockLostError(FinEvolveError):
    """A lock that was held and is not any more: nothing may be written on its strength."""

    exit_code = 3


class Held(Protocol):
    """A lock that is being held."""

    def require(self) -> None:
        """See that it is still held. Raises `LockLostError` if it is not."""


class Locks(Protocol):
    """Locks by the path of what they guard."""

    def holding(self, path: Path, patience: float = 0.0) -> AbstractContextManager[Held]:
        """Hold the lock of `path`. It is free again when the block ends or the process does, however that happens. It
        is not reentrant: the same process is refused as any other.

        Args:
            path: the lock file, or its name where locks are no files.
            patience: seconds to wait while another one holds it.

        Raises:
            TakenError: another one holds it, and did not give it back in that time.
            OSError: the lock file cannot be made.
        """

    def owner(self, path: Path) -> str | None:
        """Who holds the lock of `path`, in words; None if nobody does. Without taking it."""


class _Kept:
    """A lock of the kernel: nobody can take it from a process that lives."""

    def require(self) -> None:
        """Nothing to see to."""


class FileLocks:
    """Locks of the processes of one machine: `flock` on the path, which the kernel gives back. The file says who."""

    @contextmanager
    def holding(self, path: Path, patience: float = 0.0) -> Iterator[Held]:
        """See `Locks.holding`."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a+", encoding="ascii") as file:
            end = time.monotonic() + patience
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= end:
                        file.seek(0)
                        raise TakenError(_process(file.read().strip())) from None
                time.sleep(LOOK_SECONDS)
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            try:
                yield _Kept()
            finally:
                file.truncate(0)

    def owner(self, path: Path) -> str | None:
        """See `Locks.owner`."""
        try:
            pid = path.read_text("ascii").strip()
        except FileNotFoundError:
            return None
        return _process(pid) if pid and is_alive(pid) else None


def _process(pid: str) -> str:
    return f"process {pid}" if pid else "another process"
