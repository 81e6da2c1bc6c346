"""Which processes live. A process is named by its id and the time it started, since ids are used again."""

from __future__ import annotations

import os
from pathlib import Path

_STATE, _STARTED = 0, 19
"""Positions in /proc/<pid>/stat after the command's name."""


def process_mark() -> str:
    """The name of this process, `<pid>` or, where the system tells (Linux), `<pid>:<start>`."""
    facts = _facts(os.getpid())
    return f"{os.getpid()}:{facts[_STARTED]}" if facts else str(os.getpid())


def is_alive(mark: str) -> bool:
    """Whether the process of that name, or of that id alone, runs; one that only waits to be reaped does not."""
    pid, _, started = mark.partition(":")
    if not pid.isdigit() or not _exists(int(pid)):
        return False
    facts = _facts(int(pid))
    return not facts or (facts[_STATE] != "Z" and started in ("", facts[_STARTED]))


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _facts(pid: int) -> list[str]:
    """Fields of /proc/<pid>/stat after the command's name, which may hold blanks; none where there is no such file."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return []
