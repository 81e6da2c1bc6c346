"""A folder written as one: a reader finds the old folder or the new one, whenever the process dies.

An object store has no folder that could be exchanged, so there a reader may for a moment find files of both: what
others refer to is written first, the page that refers to all last, and what is gone is removed after that.

What lives here: building in a temporary sibling and the swap. What must not: what stands in the folder.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import os
import shutil
import tempfile
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from finevolve_pipeline.errors import FinEvolveError
from finevolve_pipeline.files import PARTIAL, files_below, object_store, write_atomically
from finevolve_pipeline.processes import is_alive

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST)
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM)
_PREVIOUS = ".previous-"
_LAST = ("SHA256SUMS", "index.html")
"""Files that refer to all others, written when those are there."""


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Write the files of `target` into the yielded empty folder; on leaving, it replaces `target`.

    If the block raises, `target` stays as it was. What a killed writer left is removed by the next one. On an object
    store a writer killed while it writes leaves files of both; the next one makes the folder whole.

    Raises:
        FinEvolveError: `target` exists and is no folder, or nothing can be written beside it.
    """
    if object_store(target):
        with tempfile.TemporaryDirectory(prefix="finevolve-folder-") as built:
            yield Path(built)
            _upload(Path(built), target)
        return
    target = target.resolve()
    if target.exists() and not target.is_dir():
        raise FinEvolveError(f"{target}: is a file, not a folder; name another place or remove it")
    temporary = target.with_name(f"{PARTIAL}{os.getpid()}-{uuid.uuid4().hex[:8]}-{target.name}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _clean_up(target)
        temporary.mkdir()
    except OSError as refused:
        raise FinEvolveError(f"{target}: cannot be written, {refused.strerror}; name another place") from refused
    try:
        yield temporary
        _flush(temporary)
        _replace(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def require_own(target: Path, names: Collection[str]) -> None:
    """Refuse to replace a folder that holds anything but files of these names.

    Args:
        target: the folder to be replaced; it need not exist.
        names: of the files that this program writes there.

    Raises:
        FinEvolveError: it holds something else, which would be lost.
    """
    if not target.is_dir():
        return
    foreign = sorted(path.name for path in target.iterdir() if path.name not in names)
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise FinEvolveError(
            f"{target}: holds {foreign[0]}{more}, which would be lost; name a folder that is new, empty or of an "
            "earlier one"
        )


def _upload(built: Path, target: Path) -> None:
    before, names = files_below(target), files_below(built)
    for name in sorted(names, key=lambda name: (name in _LAST, name)):
        write_atomically(target / name, (built / name).read_bytes())
    for name in before:
        if name not in names:
            (target / name).unlink(missing_ok=True)


def _clean_up(target: Path) -> None:
    previous = target.with_name(f"{_PREVIOUS}{target.name}")
    if previous.exists():
        # Killed between the two renames of `_swap_by_renames`: without a target the previous one comes back.
        if target.exists():
            shutil.rmtree(previous)
        else:
            previous.rename(target)
    for leftover in target.parent.glob(f"{PARTIAL}*-{glob.escape(target.name)}"):
        pid, _, rest = leftover.name.removeprefix(PARTIAL).partition("-")
        if rest[8:] == f"-{target.name}" and not is_alive(pid):
            shutil.rmtree(leftover, ignore_errors=True)


def _flush(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _replace(new: Path, target: Path) -> None:
    try:
        # Another writer may have been first just now: whether a folder is there shows when it is to be replaced.
        os.rename(new, target)
    except OSError as taken:
        if taken.errno not in _TAKEN:
            raise
        if not _exchange(new, target):
            _swap_by_renames(new, target)


def _exchange(new: Path, target: Path) -> bool:
    """Swap two folders in one step where the system can (Linux `renameat2`); False where it cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if os.name == "posix" else None
    if rename is None:
        return False
    names = os.fsencode(new), os.fsencode(target)
    if rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code), str(target))


def _swap_by_renames(new: Path, target: Path) -> None:
    previous = target.with_name(f"{_PREVIOUS}{target.name}")
    target.rename(previous)
    new.rename(target)
    shutil.rmtree(previous)
