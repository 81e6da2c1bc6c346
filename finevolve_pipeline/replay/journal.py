"""The replay's store: one folder a session, committed by its manifest.

    <root>/<experiment>/lock                    who is replaying it
    <root>/<experiment>/identity.json           the settings and code that all its days rest on, readable
    <root>/<experiment>/<session>/predictions.parquet, retrievals.parquet, experience.jsonl.gz, manifest.json

The data files are written first, the manifest last and only if none is there: a folder without one is no day, and
of two writers of a day one succeeds even if the first lost its lock unawares. Nothing is deleted on the way: what a
dead writer left is overwritten, so a late one can spoil no day that another has finished. Every manifest names its
parent's digest, so the days form a chain that cannot be spliced. The same content gives the same bytes, and
no file knows when it was written.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import BaseModel, ConfigDict, ValidationError

from finevolve_pipeline.contracts import table_of
from finevolve_pipeline.digests import canonical_json, digest_bytes, digest_json
from finevolve_pipeline.errors import ExperimentLockedError, MissingPartitionError, ReplayMismatchError
from finevolve_pipeline.files import (
    UnreadableError,
    create,
    folders_holding,
    parquet_bytes,
    partials,
    read_many,
    read_parquets,
    remove_folder,
    subfolders,
    write_atomically,
)
from finevolve_pipeline.locks import FileLocks, Held, Locks, TakenError
from finevolve_pipeline.tables import Contract, Predictions, Retrievals, arrow_schema

PREDICTIONS = "predictions.parquet"
RETRIEVALS = "retrievals.parquet"
EXPERIENCE = "experience.jsonl.gz"
MANIFEST = "manifest.json"
IDENTITY = "identity.json"
LOCK = "lock"
DATA_FILES = (PREDICTIONS, RETRIEVALS, EXPERIENCE)

PHASE = "phase"
MATURE, APPEND = "mature", "append"
"""When a journal entry was made: before the day's predictions, from outcomes; or after them."""

Columns = Mapping[str, Sequence[Any]]
"""A table as values by column name."""


class Counts(BaseModel):
    """What happened on a day.

    Attributes:
        predictions: scores asked for, sectors x horizons.
        invalid: of these without a valid score.
        retrievals: memories retrieved, those included that the prompt had no room for.
        matured: predictions (of one horizon) that came due.
        undefined: of these without a known outcome or without a valid score.
        updates: requests to a model about what to learn.
        events: changes of the experience stores.
        update_failures: updates that came to nothing because no answer could be read.
        articles_cut: articles the news budget cut, over all sectors.
        repaired: answers that took a second question and could be read then.
        memories_cut: retrieved memories that the experience budget left out.
        memory_news_cut: shown memories that it shortened.
        update_news_cut: news of past predictions that was shortened for updates.
        keys_cut: news blocks of which the embedder read only the beginning.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    predictions: int
    invalid: int
    retrievals: int
    matured: int
    undefined: int
    updates: int
    events: int
    update_failures: int
    articles_cut: int
    repaired: int
    memories_cut: int
    memory_news_cut: int
    update_news_cut: int
    keys_cut: int


class Spent(BaseModel):
    """What the day's answers took when they were given, cached ones included (see `llm.requests.Usage`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    calls: int
    prompt_tokens: int
    cached_prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    cost: float


class Manifest(BaseModel):
    """A committed day: what it rests on, what it holds, and its own digest.

    Attributes:
        parent: digest of the previous session's manifest; empty on the first session.
        identity: digest of settings and code (`identity.json`).
        inputs: digests of the tables of that session, by table.
        files: digests of the data files, by name.
        failures: what went wrong on the way to the day's answers, by kind (see `llm.failures`).
        models: names under which the provider said it answered.
        digest: digest of all the rest.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    session: dt.date
    experiment: str
    parent: str
    identity: str
    inputs: dict[str, str]
    files: dict[str, str]
    counts: Counts
    usage: Spent
    failures: dict[str, int]
    models: tuple[str, ...]
    digest: str = ""

    def sealed(self) -> Manifest:
        """The same with its digest."""
        return self.model_copy(update={"digest": self.content_digest})

    @property
    def content_digest(self) -> str:
        """Digest of everything but `digest`."""
        return digest_json(self.model_dump(mode="json", exclude={"digest"}))


@dataclass(frozen=True)
class DayContent:
    """One replayed day, ready to be committed.

    Attributes:
        predictions: columns of `Predictions`.
        retrievals: columns of `Retrievals`.
        events: journal entries in the order they were applied.
    """

    session: dt.date
    predictions: Columns
    retrievals: Columns
    events: Sequence[Mapping[str, object]]
    counts: Counts
    usage: Spent
    failures: Mapping[str, int]
    models: tuple[str, ...]


@dataclass(frozen=True)
class Foundation:
    """What a day rests on (see `Manifest`)."""

    parent: str
    identity: str
    inputs: Mapping[str, str]


@lru_cache
def _empty_parquet(contract: type[Contract]) -> bytes:
    return parquet_bytes(arrow_schema(contract).empty_table(), {})


def _parquet(columns: Columns, contract: type[Contract], where: str) -> bytes:
    """The table's bytes, with its contract held."""
    if not columns["session"]:
        return _empty_parquet(contract)
    return parquet_bytes(table_of(columns, contract, where), {})


def _journal(events: Sequence[Mapping[str, object]]) -> bytes:
    lines = "".join(f"{canonical_json(dict(event))}\n" for event in events)
    return gzip.compress(lines.encode("utf-8", "surrogatepass"), compresslevel=6, mtime=0)


class ReplayStore:
    """All replays below one folder.

    Args:
        root: `<home>/replay`.
        locks: who may write into it.
    """

    def __init__(self, root: Path, locks: Locks | None = None) -> None:
        self.root = root
        self._locks = FileLocks() if locks is None else locks
        self._held: dict[str, Held] = {}

    def folder(self, experiment: str, session: dt.date | None = None) -> Path:
        """Folder of an experiment, or of one of its days."""
        folder = self.root / experiment
        return folder if session is None else folder / session.isoformat()

    # -- reading ---------------------------------------------------------------------------------------------

    def experiments(self) -> tuple[str, ...]:
        """Experiments with at least one committed day."""
        return tuple(name for name in subfolders(self.root) if self.sessions(name))

    def sessions(self, experiment: str) -> tuple[dt.date, ...]:
        """Committed sessions, oldest first."""
        return _days(folders_holding(self.folder(experiment), MANIFEST))

    def has(self, experiment: str, session: dt.date) -> bool:
        """Whether the day is committed."""
        return (self.folder(experiment, session) / MANIFEST).is_file()

    def manifest(self, experiment: str, session: dt.date) -> Manifest:
        """The manifest of a committed day.

        Raises:
            MissingPartitionError: the day is not committed.
            ReplayMismatchError: the manifest is damaged.
        """
        path = self.folder(experiment, session) / MANIFEST
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise MissingPartitionError(
                f"replay {experiment} {session}: not stored; `finevolve run --to {session}` makes it"
            ) from None
        try:
            manifest = Manifest.model_validate_json(data)
        except ValidationError as broken:
            why = broken.errors()[0]["msg"]
            raise damaged(experiment, session, f"{MANIFEST} cannot be read ({why})") from None
        if manifest.digest != manifest.content_digest:
            raise damaged(experiment, session, f"{MANIFEST} does not have its own digest")
        return manifest

    def head_digest(self, experiment: str) -> str | None:
        """Digest of the last committed day, None if there is none."""
        sessions = self.sessions(experiment)
        return self.manifest(experiment, sessions[-1]).digest if sessions else None

    def identity(self, experiment: str) -> dict[str, Any] | None:
        """The readable identity of the stored days, None if there is none."""
        try:
            value = json.loads((self.folder(experiment) / IDENTITY).read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as broken:
            raise ReplayMismatchError(
                f"replay {experiment}: {IDENTITY} cannot be read ({broken}); start again with "
                f"`finevolve reset {experiment} --from {next(iter(self.sessions(experiment)), 'DAY')}`"
            ) from None
        return dict(value)

    def verify_files(self, manifest: Manifest) -> None:
        """Compare the day's data files with their digests.

        Raises:
            ReplayMismatchError: a file is missing or damaged; the text names it.
        """
        paths = [self.folder(manifest.experiment, manifest.session) / name for name in manifest.files]
        try:
            contents = read_many(paths)
        except FileNotFoundError:
            name = next((path.name for path in paths if not path.is_file()), "a file")
            raise damaged(manifest.experiment, manifest.session, f"{name} is missing") from None
        for (name, expected), content in zip(manifest.files.items(), contents, strict=True):
            found = digest_bytes(content)
            if found != expected:
                raise damaged(
                    manifest.experiment,
                    manifest.session,
                    f"{name} is damaged (digest {found}, not {expected})",
                )

    def read_predictions(
        self,
        experiment: str,
        sessions: Sequence[dt.date] | None = None,
        columns: Sequence[str] | None = None,
    ) -> pd.DataFrame:
        """`Predictions` of the given (default: all) sessions, in their order.

        Raises:
            MissingPartitionError: a session is not committed.
            ReplayMismatchError: a file is damaged.
        """
        return self._read(experiment, PREDICTIONS, Predictions, sessions, columns)

    def read_retrievals(
        self,
        experiment: str,
        sessions: Sequence[dt.date] | None = None,
        columns: Sequence[str] | None = None,
    ) -> pd.DataFrame:
        """`Retrievals` of the given (default: all) sessions, in their order. Raises as `read_predictions`."""
        return self._read(experiment, RETRIEVALS, Retrievals, sessions, columns)

    def events(self, experiment: str, session: dt.date, phase: str | None = None) -> tuple[dict[str, Any], ...]:
        """The journal of a committed day, in the order it was applied; or of one of its phases.

        Raises:
            ReplayMismatchError: the journal is missing or damaged.
        """
        try:
            data = gzip.decompress((self.folder(experiment, session) / EXPERIENCE).read_bytes())
            entries = [json.loads(line) for line in data.decode("utf-8", "surrogatepass").splitlines()]
        except (OSError, EOFError, ValueError, zlib.error) as broken:
            raise damaged(experiment, session, f"{EXPERIENCE} cannot be read ({broken})") from broken
        phases = [entry.pop(PHASE) for entry in entries]
        return tuple(entry for entry, own in zip(entries, phases, strict=True) if phase in (None, own))

    def _read(
        self,
        experiment: str,
        name: str,
        contract: type[Contract],
        sessions: Sequence[dt.date] | None,
        columns: Sequence[str] | None,
    ) -> pd.DataFrame:
        schema = arrow_schema(contract)
        wanted = self.sessions(experiment) if sessions is None else tuple(sessions)
        for session in () if sessions is None else wanted:
            if not self.has(experiment, session):
                raise MissingPartitionError(
                    f"replay {experiment} {session}: not stored; `finevolve run --to {session}` makes it"
                )
        try:
            table = read_parquets([self.folder(experiment, session) / name for session in wanted], schema, columns)
        except UnreadableError as broken:
            raise damaged(experiment, wanted[broken.number], f"{name} cannot be read ({broken})") from broken
        return pd.DataFrame(table.to_pandas())

    # -- writing ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def lock(self, experiment: str) -> Iterator[None]:
        """Hold the experiment for writing. It is free again when the process dies, however it dies.

        Raises:
            ExperimentLockedError: another process holds it.
        """
        folder = self.folder(experiment)
        with contextlib.ExitStack() as holding:
            try:
                held = holding.enter_context(self._locks.holding(folder / LOCK))
            except TakenError as taken:
                raise _locked(experiment, taken.owner) from None
            for leftover in partials(folder):
                leftover.unlink()
            self._held[experiment] = held
            try:
                yield
            finally:
                del self._held[experiment]

    def require_unlocked(self, experiment: str) -> None:
        """Ask, without taking the lock, whether a process holds it.

        Raises:
            ExperimentLockedError: one does.
        """
        owner = self._locks.owner(self.folder(experiment) / LOCK)
        if owner is not None:
            raise _locked(experiment, owner)

    def write_identity(self, experiment: str, identity: Mapping[str, object]) -> None:
        """Say, readably, what the days to come rest on. Only while no day is committed."""
        text = json.dumps(identity, ensure_ascii=False, indent=1, sort_keys=True, allow_nan=False)
        write_atomically(self.folder(experiment) / IDENTITY, f"{text}\n".encode())

    def commit(self, experiment: str, day: DayContent, foundation: Foundation) -> Manifest:
        """Store a day, while the experiment's lock is held. It exists from the moment its manifest does, and never in
        part.

        Raises:
            TableError: a table breaks its contract; nothing is committed then.
            LockLostError: the lock is not held any more; nothing is committed then.
            ExperimentLockedError: another process has committed the day; that one stays.
        """
        where = f"{experiment} {day.session}"
        data = {
            PREDICTIONS: _parquet(day.predictions, Predictions, f"predictions {where}"),
            RETRIEVALS: _parquet(day.retrievals, Retrievals, f"retrievals {where}"),
            EXPERIENCE: _journal(day.events),
        }
        manifest = Manifest(
            session=day.session,
            experiment=experiment,
            parent=foundation.parent,
            identity=foundation.identity,
            inputs=dict(foundation.inputs),
            files={name: digest_bytes(content) for name, content in data.items()},
            counts=day.counts,
            usage=day.usage,
            failures=dict(sorted(day.failures.items())),
            models=day.models,
        ).sealed()
        folder, held = self.folder(experiment, day.session), self._held[experiment]
        held.require()
        for name, content in data.items():
            write_atomically(folder / name, content)
        held.require()
        if not create(folder / MANIFEST, manifest.model_dump_json(indent=None).encode()):
            raise ExperimentLockedError(
                f"experiment {experiment}: another process has committed {day.session} meanwhile, and its day stays; "
                "start again"
            )
        return manifest

    def reset(self, experiment: str, from_session: dt.date) -> tuple[dt.date, ...]:
        """Remove the days from `from_session` on, the newest first, so that what is left is always a chain.

        Returns:
            The removed committed sessions, oldest first.

        Raises:
            ExperimentLockedError: a process is replaying the experiment.
            LockLostError: the lock is not held any more; the days not yet removed stay.
        """
        if not self.folder(experiment).is_dir():
            return ()
        with self.lock(experiment):
            removed = []
            for session in reversed(_days(subfolders(self.folder(experiment)))):
                if session < from_session:
                    break
                self._held[experiment].require()
                folder = self.folder(experiment, session)
                if self.has(experiment, session):
                    (folder / MANIFEST).unlink()
                    removed.append(session)
                remove_folder(folder)
            if not self.sessions(experiment):
                (self.folder(experiment) / IDENTITY).unlink(missing_ok=True)
        return tuple(reversed(removed))


def _locked(experiment: str, owner: str) -> ExperimentLockedError:
    return ExperimentLockedError(f"experiment {experiment}: {owner} is replaying it; wait, or stop that process")


def _days(names: Sequence[str]) -> tuple[dt.date, ...]:
    """Those of the names that are sessions, oldest first."""
    found = []
    for name in names:
        with contextlib.suppress(ValueError):
            found.append(dt.date.fromisoformat(name))
    return tuple(sorted(found))


def damaged(experiment: str, session: dt.date, what: str) -> ReplayMismatchError:
    """The error for a stored day that cannot be trusted."""
    return ReplayMismatchError(
        f"replay {experiment} {session}: {what}; remove it with `finevolve reset {experiment} --from {session}`"
    )
