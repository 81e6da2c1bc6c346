"""The log of revised bars: every number of a bar that was replaced by another, by whom and when.

One JSON object a line in `<root>/market/revisions.jsonl`: table, session, code, column, before, after, source, seen_at.
An entry is written before the bar is, so that a process may die in between; said again, it is not written twice.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.errors import TableError
from finevolve_pipeline.files import write_atomically
from finevolve_pipeline.locks import TakenError
from resources.landing import LandingLockedError, Revision
from resources.storage import Storage

_PATIENCE = 60.0
"""Seconds to wait for another process that is adding to the log."""


@dataclass(frozen=True)
class Entry:
    """One revision. Numbers in points, shares or yuan; `seen_at` with its offset."""

    table: str
    session: str
    code: str
    column: str
    before: float
    after: float
    source: str
    seen_at: str

    @property
    def place(self) -> tuple[str, str, str, str]:
        """Which number it is."""
        return self.table, self.session, self.code, self.column

    def __str__(self) -> str:
        return f"{self.code} {self.session} {self.column} {self.before:.12g} -> {self.after:.12g} ({self.source})"


class Revisions:
    """The log of one home."""

    def __init__(self, home: Path) -> None:
        self._storage = Storage.of(home)
        self.path = self._storage.root / "market" / "revisions.jsonl"

    def entries(self) -> list[Entry]:
        """All entries, oldest first. A last line that a dying process left unfinished is not one yet."""
        try:
            lines = self.path.read_text("utf-8").splitlines(keepends=True)
            return [Entry(**json.loads(line)) for line in lines if line.endswith("\n")]
        except FileNotFoundError:
            return []
        except (ValueError, TypeError) as broken:
            raise TableError(f"{self.path}: cannot be read ({broken}); move it away, it is a log only") from None

    def closes(self, table: str) -> list[Entry]:
        """Revised closes of a table, which change labels."""
        return [entry for entry in self.entries() if entry.table == table and entry.column == "close"]

    def teller(self, table: str, source: str, now: dt.datetime) -> Callable[[Sequence[Revision]], None]:
        """What `Landing.merge_bars` tells of revisions, bound to who brought them and when (aware)."""
        seen_at = now.astimezone(SHANGHAI).isoformat(timespec="seconds")

        def tell(revisions: Sequence[Revision]) -> None:
            self._add([Entry(table, *revision, source, seen_at) for revision in revisions])

        return tell

    def _add(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        try:
            with self._storage.locks.holding(self.path.with_name(".revisions.lock"), _PATIENCE):
                known = self.path.read_bytes() if self.path.exists() else b""
                latest = {entry.place: entry for entry in self.entries()}
                new = [one for one in entries if not _same(latest.get(one.place), one)]
                lines = b"".join(json.dumps(asdict(one), ensure_ascii=False).encode() + b"\n" for one in new)
                write_atomically(self.path, known[: known.rfind(b"\n") + 1] + lines)
        except TakenError as taken:
            raise LandingLockedError(
                f"{self.path}: {taken.owner} is adding to it; start again when it has ended"
            ) from None


def _same(known: Entry | None, one: Entry) -> bool:
    return known is not None and (known.before, known.after) == (one.before, one.after)
