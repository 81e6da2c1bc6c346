"""The landing store: what imports and crawls brought in, before any rule of the benchmark is applied.

Under its root lie `news/<source>/<day>.parquet` (`RawNews`, day in Asia/Shanghai),
`industry_bars/<session>.parquet` and `benchmark_bars/<session>.parquet` (`Bars`). Merging is idempotent:
the same rows again change no byte, and for news that does not contradict itself the order does not matter
either. Each file is replaced as a whole, and an item is written in its new place before it leaves the old
one, so a process may die anywhere and the same command completes its work.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import math
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from finevolve_pipeline import tables
from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.digests import digest_json
from finevolve_pipeline.errors import FinEvolveError, InputError, MissingPartitionError, TableError
from finevolve_pipeline.files import (
    create,
    files_below,
    many_parquet_facts,
    parquet_bytes,
    parquet_facts,
    partials,
    read_many,
    write_atomically,
)
from finevolve_pipeline.locks import FileLocks, Held, Locks, TakenError
from resources.storage import Storage

INDUSTRY_BARS = "industry_bars"
BENCHMARK_BARS = "benchmark_bars"

SOURCES_FILE = "sources.json"
"""List of the source ids that imports brought in, beside the landing store."""

_DIGEST = b"finevolve.digest"
_NEWS_SCHEMA = tables.arrow_schema(tables.RawNews)
_BARS_SCHEMA = tables.arrow_schema(tables.Bars)
_NUMBERS = ("close", "open", "high", "low", "volume", "amount")
_SHANGHAI_OFFSET = 8 * 3600 * 1_000_000
_DAY = 86_400 * 1_000_000
_EPOCH = dt.date(1970, 1, 1).toordinal()

# Rows are merged with times as plain microseconds since 1970 UTC: datetime objects cost more than all else.
_TIMES = ("published_at", "modified_at", "crawled_at")
_PLAIN_SCHEMA = pa.schema([pa.field(f.name, pa.int64() if f.name in _TIMES else f.type) for f in _NEWS_SCHEMA])

_Item = dict[str, Any]
_Key = tuple[str, str]
"""(source, source_id)."""

_Partition = tuple[str, str]
"""(source, day)."""

_WRITERS = 8
_AT_ONCE = 32
"""Files read at a time where all of a source's are."""


class LandingLockedError(FinEvolveError):
    """A second import while another one is writing."""

    exit_code = 3


class Contradiction(NamedTuple):
    """A row that tells another text or link for an item than the copy that was kept.

    Attributes:
        source, source_id: the item.
        row: the row's label in the merged table's index.
        in_file: the kept copy comes from the same import, so the file itself has two texts for one id.
    """

    source: str
    source_id: str
    row: int
    in_file: bool


@dataclass(frozen=True)
class NewsCounts:
    """What a merge of news did, in rows of the merged table: `added + updated + known` is all of them.

    Attributes:
        added: items that were not there.
        updated: items that were there and changed, e.g. because an earlier publication became known.
        known: rows from which nothing was taken, repeated ids within the table included.
        contradictions: rows with another text than the one kept; most are among the known.
    """

    added: int = 0
    updated: int = 0
    known: int = 0
    contradictions: tuple[Contradiction, ...] = ()

    def __add__(self, other: NewsCounts) -> NewsCounts:
        return NewsCounts(
            self.added + other.added,
            self.updated + other.updated,
            self.known + other.known,
            self.contradictions + other.contradictions,
        )


class Revision(NamedTuple):
    """A number of a bar that an import replaced by another."""

    session: str
    code: str
    column: str
    before: float
    after: float

    def __str__(self) -> str:
        return f"{self.code} {self.session} {self.column} {self.before:.12g} -> {self.after:.12g}"


@dataclass(frozen=True)
class BarCounts:
    """What a merge of bars did: rows added, changed, and known already; and the numbers revised."""

    added: int = 0
    updated: int = 0
    known: int = 0
    revisions: tuple[Revision, ...] = ()

    def __add__(self, other: BarCounts) -> BarCounts:
        return BarCounts(
            self.added + other.added,
            self.updated + other.updated,
            self.known + other.known,
            self.revisions + other.revisions,
        )

    @property
    def revised_closes(self) -> tuple[Revision, ...]:
        """Revisions of closes, which change labels."""
        return tuple(revision for revision in self.revisions if revision.column == "close")


@dataclass(frozen=True)
class _Settled:
    """Items with several copies, decided: what to write, where copies lie, which were in the store, which
    rows contradict."""

    items: list[_Item]
    left: dict[_Key, tuple[str, ...]]
    changed: set[_Key]
    contradictions: list[Contradiction]


class _Versions:
    """A name for the present state of each source's news, kept beside them: every writer gives it another, before it
    writes. So one who comes back knows whether the items still lie where they lay."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._names: dict[str, str] = json.loads(path.read_bytes())
        except (FileNotFoundError, ValueError):  # a writer died while it wrote here
            self._names = {}

    def of(self, source: str) -> str:
        """The present name, one that nobody knows if there is none."""
        return self._names.get(source) or self.renew(source)

    def renew(self, source: str) -> str:
        """Another name."""
        self._names[source] = uuid.uuid4().hex
        self._path.write_bytes(json.dumps(self._names).encode())
        return self._names[source]


class _Places(NamedTuple):
    """Where the items of a source lie: source_id -> days, as of a version of its news."""

    version: str
    days: dict[str, tuple[str, ...]]


class Landing:
    """The landing store below one folder.

    Args:
        root: the folder.
        patience: seconds to wait while another process is writing. People who import are told at once; what runs
            by itself waits, since merges are short.
        locks: who may write into it.
    """

    def __init__(self, root: Path, patience: float = 0.0, locks: Locks | None = None) -> None:
        self.root = root
        self._patience = patience
        self._locks = FileLocks() if locks is None else locks
        self._held: Held | None = None
        self._places: dict[str, _Places] = {}  # by source; only under the lock

    @classmethod
    def of(cls, home: Path, patience: float = 0.0, *, name: str = "landing") -> Landing:
        """The landing store of a home folder, or another one of that name, wherever its state lies."""
        storage = Storage.of(home)
        return cls(storage.root / name, patience, storage.locks)

    @contextmanager
    def importing(self) -> Iterator[None]:
        """Hold the store for writing; leftovers of a process that died are removed. Nested use is fine.

        Raises:
            LandingLockedError: another process is importing, and did not end in the time that this store waits.
            InputError: the folder cannot be written.
        """
        if self._held is not None:
            yield
            return
        with ExitStack() as holding:
            try:
                self._held = holding.enter_context(self._locks.holding(self.root / ".lock", self._patience))
            except TakenError:
                raise LandingLockedError(
                    f"{self.root}: another import is writing here; wait until it has ended"
                ) from None
            except OSError as broken:
                raise InputError(f"{self.root}: cannot be written ({broken.strerror}); set FINEVOLVE_HOME") from None
            try:
                for leftover in partials(self.root):
                    leftover.unlink(missing_ok=True)
                self._versions = _Versions(self.root / ".versions")
                yield
            except BaseException:
                self._places.clear()
                raise
            finally:
                self._held = None

    def _require(self) -> None:
        """See, before anything is written, that the store is still held."""
        if self._held is None:
            raise AssertionError(f"{self.root}: written without being held")
        self._held.require()

    # News

    def news_partitions(self) -> list[tuple[str, str]]:
        """All (source, day) that hold news, sorted."""
        places = [PurePosixPath(name) for name in files_below(self.root / "news")]
        return sorted((place.parent.name, place.stem) for place in places if place.suffix == ".parquet")

    def news_counts(self) -> dict[tuple[str, str], int]:
        """Items by (source, day) of all days that exist, those without items included.

        Raises:
            TableError: a file cannot be read.
        """
        partitions = self.news_partitions()
        facts = many_parquet_facts([self._news_path(*partition) for partition in partitions])
        counts: dict[tuple[str, str], int] = {}
        for partition in partitions:
            with _readable(self._news_path(*partition)):
                counts[partition] = next(facts).rows
        return counts

    def news_digest(self, source: str, day: str) -> str | None:
        """Content digest of one source's day, None if nothing landed for it."""
        return _stored_digest(self._news_path(source, day))

    def read_news(self, source: str, day: str) -> pd.DataFrame:
        """One source's day as `RawNews`, oldest first.

        Raises `MissingPartitionError` if nothing landed for it.
        """
        table = _read(self._news_path(source, day), _NEWS_SCHEMA)
        if table is None:
            raise MissingPartitionError(f"landing_news {day}|{source}: nothing landed; `finevolve import news` does it")
        frame: pd.DataFrame = table.to_pandas()
        return frame

    def news_times(self, source: str, day: str) -> list[dt.datetime]:
        """First publications of one source's day in Asia/Shanghai, oldest first; none if nothing landed for it."""
        try:
            table = _parquet(self._news_path(source, day)).read(columns=["published_at"])
        except FileNotFoundError:
            return []
        return [time.astimezone(SHANGHAI) for time in table["published_at"].to_pylist()]

    def news_count(self, source: str, day: str) -> int | None:
        """Items of one source's day, None if nothing landed for it and nobody asked."""
        try:
            return parquet_facts(self._news_path(source, day)).rows
        except FileNotFoundError:
            return None

    def merge_news(self, frame: pd.DataFrame, *, replace: bool = False, own: set[_Key] | None = None) -> NewsCounts:
        """Merge `RawNews` rows of any sources and days.

        Of the copies of one (source, source_id) the one published first stays, among equals the one
        modified first, then the one that landed first (in the table: the first row). It takes over all
        industries, and the highest importance, of the copies of that very version and text, and nothing
        of others.

        Args:
            frame: the rows; its index labels them in what is returned.
            replace: an incoming copy beats the stored one of equal publication time.
            own: items whose kept copy comes from this import. Pass one set with all tables of an import:
                it is filled here, so that two texts for one id are noticed, and the first stays, however
                the import is cut into tables.
        """
        own = set() if own is None else own
        with self.importing():
            labels = frame.index.tolist()
            given = frame["industries_given"].map(lambda codes: [] if codes is None else sorted(set(codes)))
            frame = frame.assign(industries_given=given)
            table = pa.Table.from_pandas(frame, schema=_NEWS_SCHEMA, preserve_index=False)
            table = table.replace_schema_metadata(None).cast(_PLAIN_SCHEMA)
            keys = list(zip(table["source"].to_pylist(), table["source_id"].to_pylist(), strict=True))
            places: dict[_Key, list[int]] = defaultdict(list)
            for position, key in enumerate(keys):
                places[key].append(position)
            stored = {key: days for key in places if (days := self._days_of(key[0]).get(key[1]))}
            alone = [rows[0] for key, rows in places.items() if len(rows) == 1 and key not in stored]
            again = [row for key, rows in places.items() if len(rows) > 1 or key in stored for row in rows]
            incoming = zip((labels[row] for row in again), _take(table, again).to_pylist(), strict=True)
            settled = self._settled(incoming, stored, replace, own)
            self._write_news(_take(table, alone), settled)
            own.update(keys[row] for row in alone)
            added, updated = len(places) - len(stored), len(settled.changed)
            return NewsCounts(added, updated, len(keys) - added - updated, tuple(settled.contradictions))

    def _settled(
        self,
        incoming: Iterable[tuple[int, _Item]],
        stored: Mapping[_Key, tuple[str, ...]],
        replace: bool,
        own: set[_Key],
    ) -> _Settled:
        """Decide between several copies of an item, those in the store included."""
        copies: dict[_Key, list[tuple[int, _Item]]] = defaultdict(list)
        for label, item in incoming:
            copies[item["source"], item["source_id"]].append((label, item))
        before: dict[_Key, list[_Item]] = defaultdict(list)
        for (source, day), ids in _by_partition(stored).items():
            table = self._read_plain(source, day)
            for item in table.filter(pc.is_in(table["source_id"], value_set=pa.array(ids, pa.string()))).to_pylist():
                before[source, item["source_id"]].append(item)
        settled = _Settled([], {}, set(), [])
        for key, labelled in copies.items():
            found, was_own = [item for _, item in labelled], key in own
            if found == before[key]:
                own.add(key)
                continue
            winner = _kept(found, before[key], replace and not was_own)
            told = any(_same_copy(item, winner) for item in found)
            if told:
                own.add(key)
            settled.contradictions.extend(_contradictions(key, labelled, winner, key in own))
            if was_own and told and not any(_text(item) == _text(winner) for item in before[key]):
                # An earlier table of this import told another text, which had its row counted as added.
                overtaking = next(label for label, item in labelled if _same_copy(item, winner))
                settled.contradictions.append(Contradiction(*key, overtaking, True))
            if before[key] == [winner]:
                continue
            settled.items.append(winner)
            settled.left[key] = stored.get(key, ())
            if key in stored:
                settled.changed.add(key)
        return settled

    def _write_news(self, fresh: pa.Table, settled: _Settled) -> None:
        """Write every touched day of every source.

        An item only ever moves to an earlier day. Days that lose nothing are written first, side by side,
        since the disk takes longer than we do; then the others, oldest first. So at no time is an item
        missing from the store.
        """
        rows = pa.concat_tables([fresh, pa.Table.from_pylist(settled.items, _PLAIN_SCHEMA)]).combine_chunks()
        leaving: dict[_Partition, list[str]] = defaultdict(list)
        for (source, source_id), days in settled.left.items():
            for day in days:
                leaving[source, day].append(source_id)
        entering: dict[_Partition, list[int]] = defaultdict(list)
        sources, times = rows["source"].to_pylist(), rows["published_at"].to_pylist()
        for position, (source, published_at) in enumerate(zip(sources, times, strict=True)):
            entering[source, _day_of(published_at)].append(position)

        def write(partition: _Partition) -> None:
            self._write_day(*partition, _take(rows, entering[partition]), leaving.get(partition, []))

        self._require()
        for source in {source for source, _ in entering}:
            self._places[source] = _Places(self._versions.renew(source), self._days_of(source))
        with ThreadPoolExecutor(_WRITERS) as writers:
            list(writers.map(write, sorted(entering.keys() - leaving.keys())))
        for partition in sorted(leaving):
            self._require()
            write(partition)
        for source, source_id, published_at in zip(sources, rows["source_id"].to_pylist(), times, strict=True):
            self._days_of(source)[source_id] = (_day_of(published_at),)

    def _write_day(self, source: str, day: str, entering: pa.Table, leaving: Sequence[str]) -> None:
        path, before = self._news_path(source, day), self._read_plain(source, day)
        if before.num_rows:
            stays = pc.invert(pc.is_in(before["source_id"], value_set=pa.array(leaving, pa.string())))
            entering = pa.concat_tables([before.filter(stays), entering]).combine_chunks()
        if entering.num_rows:
            order = [("published_at", "ascending"), ("source_id", "ascending")]
            _write(path, entering.take(pc.sort_indices(entering, order)), _NEWS_SCHEMA)
        else:
            path.unlink(missing_ok=True)

    def _days_of(self, source: str) -> dict[str, tuple[str, ...]]:
        """Days on which each id of a source lies (two only where a process died between two writes)."""
        known, version = self._places.get(source), self._versions.of(source)
        if known is None or known.version != version:
            days: dict[str, tuple[str, ...]] = {}
            paths = [self._news_path(source, day) for day in self._days(self.root / "news" / source)]
            for start in range(0, len(paths), _AT_ONCE):
                group = paths[start : start + _AT_ONCE]
                for path, data in zip(group, read_many(group), strict=True):
                    for source_id in _parquet(path, data).read(columns=["source_id"])["source_id"].to_pylist():
                        days[source_id] = (*days.get(source_id, ()), path.stem)
            known = self._places[source] = _Places(version, days)
        return known.days

    def note_day(self, source: str, day: str) -> None:
        """Make a source's day exist, without items if none landed: it was asked for."""
        with self.importing():
            create(self._news_path(source, day), _parquet_of(_NEWS_SCHEMA.empty_table(), _NEWS_SCHEMA))

    def _news_path(self, source: str, day: str) -> Path:
        return self.root / "news" / source / f"{day}.parquet"

    def _read_plain(self, source: str, day: str) -> pa.Table:
        table = _read(self._news_path(source, day), _NEWS_SCHEMA)
        return _PLAIN_SCHEMA.empty_table() if table is None else table.cast(_PLAIN_SCHEMA)

    # Bars

    def bars_digest(self, table: str, session: str) -> str | None:
        """Content digest of one session of a table of bars, None if nothing landed for it."""
        return _stored_digest(self._bars_path(table, session))

    def bars_sessions(self, table: str) -> list[str]:
        """All sessions that hold bars, sorted."""
        return self._days(self.root / table)

    def _days(self, folder: Path) -> list[str]:
        return [name.removesuffix(".parquet") for name in files_below(folder) if name.endswith(".parquet")]

    def read_bars(self, table: str, session: str) -> pd.DataFrame:
        """One session as `Bars`, by code. Raises `MissingPartitionError` if nothing landed for it."""
        found = _read(self._bars_path(table, session), _BARS_SCHEMA)
        if found is None:
            raise MissingPartitionError(
                f"landing_{table} {session}: nothing landed; `finevolve import market` does it, or `fetch market`"
            )
        frame: pd.DataFrame = found.to_pandas()
        return frame

    def merge_bars(
        self, table: str, frame: pd.DataFrame, tell: Callable[[Sequence[Revision]], None] = lambda _: None
    ) -> BarCounts:
        """Merge `Bars` rows of any sessions. Per (session, code) the newest number wins and is a revision
        if it differs; a missing number never erases one that is there.

        Args:
            table: `industry_bars` or `benchmark_bars`.
            frame: the rows.
            tell: called with the revisions of a session just before they are written.
        """
        with self.importing():
            total = BarCounts()
            for session, rows in sorted(_by_session(frame).items()):
                total += self._merge_session(table, session, rows, tell)
            return total

    def _merge_session(
        self, table: str, session: str, incoming: Sequence[_Item], tell: Callable[[Sequence[Revision]], None]
    ) -> BarCounts:
        path = self._bars_path(table, session)
        before = _read(path, _BARS_SCHEMA)
        bars: dict[str, _Item] = {row["code"]: row for row in before.to_pylist()} if before is not None else {}
        added = updated = 0
        revisions: list[Revision] = []
        for row in incoming:
            old = bars.get(row["code"])
            if old is None:
                bars[row["code"]] = row
                added += 1
                continue
            new = {name: old[name] if row[name] is None else row[name] for name in row}
            if new == old:
                continue
            bars[row["code"]] = new
            updated += 1
            revisions += [
                Revision(session, row["code"], name, old[name], new[name])
                for name in _NUMBERS
                if old[name] is not None and new[name] != old[name]
            ]
        if added or updated:
            self._require()
            tell(revisions)
            rows = [bars[code] for code in sorted(bars)]
            _write(path, pa.Table.from_pylist(rows, _BARS_SCHEMA), _BARS_SCHEMA)
        return BarCounts(added, updated, len(incoming) - added - updated, tuple(revisions))

    def _bars_path(self, table: str, session: str) -> Path:
        return self.root / table / f"{session}.parquet"


# Rules of the merge


def _kept(found: Sequence[_Item], before: Sequence[_Item], replace: bool) -> _Item:
    """The copy of an item that stays, of those in the store and those that come in, each in their order."""
    first = min((*before, *found), key=_moments)  # of equals the one that landed first
    if replace:
        new = min(found, key=_moments)
        if new["published_at"] <= first["published_at"]:
            first = new
    # What came with a later publication or edit, or another text, was not known of this one.
    same = [item for item in (*before, *found) if _same_copy(item, first) and _moments(item) == _moments(first)]
    industries = sorted({code for item in same for code in item["industries_given"] or ()})
    importances = [item["importance_given"] for item in same if item["importance_given"] is not None]
    kept = min(same, key=_origin)
    return {**kept, "industries_given": industries, "importance_given": max(importances, default=None)}


def _contradictions(key: _Key, labelled: Sequence[tuple[int, _Item]], winner: _Item, own: bool) -> list[Contradiction]:
    """Incoming rows with another text than the copy kept: at the same time, or at any in the same file."""
    return [
        Contradiction(*key, label, own)
        for label, item in labelled
        if _text(item) != _text(winner) and (own or item["published_at"] == winner["published_at"])
    ]


def _moments(item: _Item) -> tuple[int, int]:
    """When an item was published, and when this version of it was."""
    published, modified = item["published_at"], item["modified_at"]
    return published, published if modified is None else modified


def _text(item: _Item) -> tuple[str, str, str]:
    return item["url"], item["title"], item["content"]


def _same_copy(item: _Item, other: _Item) -> bool:
    return bool(item["published_at"] == other["published_at"] and _text(item) == _text(other))


def _origin(item: _Item) -> tuple[float, str]:
    crawled = item["crawled_at"]
    return math.inf if crawled is None else crawled, item["origin"]


def _by_partition(days: Mapping[_Key, Iterable[str]]) -> dict[_Partition, list[str]]:
    found: dict[_Partition, list[str]] = defaultdict(list)
    for (source, source_id), where in days.items():
        for day in where:
            found[source, day].append(source_id)
    return found


def _by_session(frame: pd.DataFrame) -> dict[str, list[_Item]]:
    found: dict[str, list[_Item]] = defaultdict(list)
    for row in pa.Table.from_pandas(frame, schema=_BARS_SCHEMA, preserve_index=False).to_pylist():
        found[row["session"]].append(row)
    return found


def _day_of(microseconds: int) -> str:
    return dt.date.fromordinal((microseconds + _SHANGHAI_OFFSET) // _DAY + _EPOCH).isoformat()


# Files


def _take(table: pa.Table, rows: Sequence[int]) -> pa.Table:
    return table.take(pa.array(rows, pa.int64()))


def _parquet(path: Path, data: bytes | None = None) -> pq.ParquetFile:
    with _readable(path):
        return pq.ParquetFile(io.BytesIO(path.read_bytes() if data is None else data))


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as broken:
        raise TableError(f"{path}: not readable ({broken}); delete it and import again") from broken


def _read(path: Path, schema: pa.Schema) -> pa.Table | None:
    try:
        return _parquet(path).read().cast(schema)
    except FileNotFoundError:
        return None


def _write(path: Path, table: pa.Table, schema: pa.Schema) -> None:
    write_atomically(path, _parquet_of(table, schema))


def _parquet_of(table: pa.Table, schema: pa.Schema) -> bytes:
    """A table with its content digest; the same content makes the same bytes."""
    digest = digest_json({name: table[name].to_pylist() for name in table.column_names})
    return parquet_bytes(table.cast(schema).combine_chunks(), {_DIGEST.decode(): digest})


def _stored_digest(path: Path) -> str | None:
    try:
        with _readable(path):
            found = parquet_facts(path).metadata
    except FileNotFoundError:
        return None
    if _DIGEST not in found:
        raise TableError(f"{path}: carries no digest, so no import wrote it; delete it and import again")
    return found[_DIGEST].decode()


# Sources

_REGISTERING_PATIENCE = 60.0


def registered_sources(home: Path) -> tuple[str, ...]:
    """Source ids that imports brought in beside those of the settings, sorted.

    Raises:
        InputError: the list is damaged.
    """
    path = Storage.of(home).root / SOURCES_FILE
    try:
        listed = json.loads(path.read_text("utf-8"))["sources"]
    except FileNotFoundError:
        return ()
    except (ValueError, KeyError, TypeError) as broken:
        raise InputError(f"{path}: damaged ({broken}); delete it and import again") from None
    return tuple(sorted(listed))


def register_sources(home: Path, sources: Collection[str]) -> None:
    """Add source ids to the registered ones, for all future runs under this home.

    Raises:
        LandingLockedError: another process is doing so, and did not end within a minute.
    """
    if set(sources) <= set(registered_sources(home)):
        return
    storage = Storage.of(home)
    path = storage.root / SOURCES_FILE
    try:
        with storage.locks.holding(path.with_name(f".{SOURCES_FILE}.lock"), _REGISTERING_PATIENCE):
            after = sorted({*registered_sources(home), *sources})
            write_atomically(path, f"{json.dumps({'sources': after})}\n".encode())
    except TakenError as taken:
        raise LandingLockedError(f"{path}: {taken.owner} is adding sources; start again when it has ended") from None
