"""The file: a gzipped tar whose bytes follow from its members alone.

Members are plain files in the order of their names, all with one mode, time and owner, so that equal members give equal
bytes. A file from elsewhere is unpacked in memory, within limits, and never onto a disk; it must be the very tar that
this module would write of its members, so that nothing can hide beside, between or behind them.
"""

from __future__ import annotations

import glob
import gzip
import hashlib
import io
import re
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from finevolve_pipeline.errors import FinEvolveError
from finevolve_pipeline.files import PARTIAL, write_atomically
from finevolve_pipeline.processes import is_alive

LARGEST_FILE = 256 * 2**20
"""Bytes of a bundle's file."""

LARGEST_TAR = 512 * 2**20
"""Bytes of all members together; twelve runs of the whole window have about a fifth."""

MOST_MEMBERS = 500

_NAME = re.compile(r"[A-Za-z0-9_]+(/[A-Za-z0-9_]+)*(\.[a-z]+)?")
_PIECE = 2**20
_LEVEL = 6


class BundleError(FinEvolveError):
    """A file that cannot be read as a bundle at all; what can be read and is wrong is a failed check instead."""


@dataclass(frozen=True)
class Archive:
    """An unpacked file.

    Attributes:
        members: content by name.
        digest: SHA-256 over the members, whatever the compression; a bundle's identity.
    """

    members: Mapping[str, bytes]
    digest: str


def tar_bytes(members: Mapping[str, bytes]) -> bytes:
    """The one tar of these members."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(members):
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.mtime = len(members[name]), 0o644, 0
            archive.addfile(info, io.BytesIO(members[name]))
    return sink.getvalue()


def write_archive(path: Path, members: Mapping[str, bytes]) -> Archive:
    """Write the members as one file; it appears whole or not at all. What a killed writer left of it is removed."""
    tar = tar_bytes(members)
    for leftover in path.parent.glob(f"{PARTIAL}*-{glob.escape(path.name)}"):
        if not is_alive(leftover.name.removeprefix(PARTIAL).partition("-")[0]):
            leftover.unlink(missing_ok=True)
    write_atomically(path, gzip.compress(tar, compresslevel=_LEVEL, mtime=0))
    return Archive(dict(members), hashlib.sha256(tar).hexdigest())


def require_own_file(path: Path) -> None:
    """Raises `BundleError` where a bundle would replace a file that is none."""
    if not path.exists():
        return
    try:
        read_archive(path)
    except BundleError:
        raise BundleError(f"bundle {path}: a file of another kind is there, and stays; name another one") from None


def read_archive(path: Path) -> Archive:
    """Unpack a file in memory.

    Raises:
        BundleError: it is no gzipped tar as `write_archive` writes it, is broken off, or exceeds a limit.
        OSError: it cannot be read.
    """
    if not path.is_file():
        raise BundleError(f"bundle {path.name}: is no file; name one that `finevolve bundle` wrote")
    if path.stat().st_size > LARGEST_FILE:
        _refuse(path, f"has more than {LARGEST_FILE} bytes")
    tar = _unzipped(path, path.read_bytes())
    members = _members(path, tar)
    if tar_bytes(members) != tar:
        _refuse(path, "holds bytes outside its members, or members out of order or with other modes, owners or times")
    return Archive(members, hashlib.sha256(tar).hexdigest())


def _unzipped(path: Path, data: bytes) -> bytes:
    stream = zlib.decompressobj(wbits=31)
    whole = bytearray()
    try:
        while not stream.eof:
            piece = stream.decompress(data, _PIECE)
            data = stream.unconsumed_tail
            if not piece and not data and not stream.eof:
                _refuse(path, "is broken off; get the file again")
            whole += piece
            if len(whole) > LARGEST_TAR:
                _refuse(path, f"unpacks to more than {LARGEST_TAR} bytes")
    except zlib.error as broken:
        _refuse(path, f"is no gzip file, or a damaged one ({broken})")
    if stream.unused_data:
        _refuse(path, "goes on behind its end")
    return bytes(whole)


def _members(path: Path, tar: bytes) -> dict[str, bytes]:
    members: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(tar), mode="r:") as archive:
            for info in archive:
                _require_plain(path, info, members)
                source = archive.extractfile(info)
                members[info.name] = source.read() if source is not None else b""
    except (tarfile.TarError, ValueError, OverflowError, EOFError) as broken:
        _refuse(path, f"holds no tar, or a damaged one ({str(broken)[:80]!r})")
    return members


def _require_plain(path: Path, info: tarfile.TarInfo, before: Mapping[str, bytes]) -> None:
    shown = repr(info.name[:80])
    if info.type != tarfile.REGTYPE:
        _refuse(path, f"member {shown} is no plain file (type {info.type!r})")
    if not _NAME.fullmatch(info.name):
        _refuse(path, f"member {shown} has a name that no bundle has")
    if info.name in before:
        _refuse(path, f"holds member {shown} twice")
    if len(before) == MOST_MEMBERS:
        _refuse(path, f"holds more than {MOST_MEMBERS} members")


def _refuse(path: Path, why: str) -> NoReturn:
    raise BundleError(f"bundle {path.name}: {why}")
