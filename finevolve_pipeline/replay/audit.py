"""`finevolve audit`: does a user's own run keep the benchmark's promises? Each check could fail and says on
what day.

- *chain*: every stored day fits its parent, its inputs and its files.
- *news*: no window holds an article from after its cutoff.
- *memories*: every memory retrieved was made before the day it was retrieved, and each once.
- *evidence*: every change that rests on outcomes rests on outcomes known by then, and on their true values.
- *future*: with all news, closes and labels after a day changed, the days up to it come out byte for byte
  the same.
- *order*: other sector order and other concurrency give the same bytes.
- *canary*: a mechanism that reaches for tomorrow is stopped, by name.

Days are replayed again in a temporary store; the user's own store is only read.
"""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from finevolve_pipeline import calendar
from finevolve_pipeline.digests import digest_frame, digest_text
from finevolve_pipeline.embedding import Embedder
from finevolve_pipeline.errors import CalendarError, FinEvolveError, LookAheadError
from finevolve_pipeline.files import borrow
from finevolve_pipeline.graph import TableReader
from finevolve_pipeline.llm.requests import Backbone, Call, Reply
from finevolve_pipeline.llm.rules.backbone import RulesBackbone
from finevolve_pipeline.llm.stand_in import StandIn
from finevolve_pipeline.mechanisms.base import Evidence, Outcome, sector_of
from finevolve_pipeline.mechanisms.canaries import CANARIES
from finevolve_pipeline.replay.clock import INPUTS, NEWS, OUTCOMES, known_outcomes, require_observable
from finevolve_pipeline.replay.day import Execution
from finevolve_pipeline.replay.journal import APPEND, DATA_FILES, MANIFEST, MATURE, ReplayStore
from finevolve_pipeline.replay.runner import DayDone, Parts, not_replayed, run, verify
from finevolve_pipeline.settings import Experiment, Settings
from finevolve_pipeline.universe import INDUSTRIES, Industry

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Finding:
    """The result of one check; `detail` says what was looked at, or the first thing that is wrong."""

    check: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class AuditReport:
    """All findings about one experiment."""

    experiment: str
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return all(finding.ok for finding in self.findings)


class PerturbedFuture:
    """A reader for which everything after a session is different: texts, importance, order and number of
    articles, closes and labels.

    Args:
        reader: the true tables.
        after: the last session that stays as it is.
    """

    def __init__(self, reader: TableReader, after: dt.date) -> None:
        self._reader = reader
        self._after = after.isoformat()

    def read(self, table: str, partition: str) -> pd.DataFrame:
        """A stored partition, changed if it lies after the session."""
        frame = self._reader.read(table, partition)
        if partition <= self._after:
            return frame
        return _other_news(frame) if table == NEWS else _other_outcomes(frame)

    def digest(self, table: str, partition: str) -> str | None:
        """Its digest, another one if it lies after the session."""
        digest = self._reader.digest(table, partition)
        return digest if digest is None or partition <= self._after else digest_text(f"perturbed {digest}")


def _other_news(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(
        title=frame["title"].str[::-1] + "!",
        content=frame["content"].str[::-1] + "!",
        importance=(11 - frame["importance"]).astype("int8"),
    ).iloc[:0:-1]


def _other_outcomes(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(
        close_from=frame["close_from"] * 1.5,
        close_to=frame["close_to"] * 0.7,
        industry_return=-frame["industry_return"] + 0.01,
        benchmark_return=-frame["benchmark_return"] - 0.01,
        alpha=-frame["alpha"] + 0.02,
    )


def audit(
    experiment: Experiment,
    settings: Settings,
    reader: TableReader,
    store: ReplayStore,
    backbone: Backbone,
    embedder: Embedder,
    progress: Progress,
    cuts: Sequence[dt.date] = (),
    replayed: int = 20,
) -> AuditReport:
    """Audit one experiment.

    Args:
        experiment: which one.
        settings: the settings it was run with.
        reader: the tables it was made from.
        store: where it is stored; only read.
        backbone: answers the re-replayed predictions; must answer as it did.
        embedder: as in the run.
        progress: called with a line before each step.
        cuts: sessions t after which the future is changed; by default one and two thirds through, and the
            last.
        replayed: at most this many sessions up to each cut are replayed again.

    Raises:
        MissingPartitionError: nothing of the experiment is stored.
        CalendarError: a cut is no stored session.
    """
    parts = Parts(settings, reader, backbone, embedder)
    auditor = _Auditor(experiment, parts, store, progress)
    return auditor.report(tuple(cuts), replayed)


class StoredRun:
    """A stored run, and what can be checked of it by reading it and by replaying days of it again.

    Args:
        experiment: which one.
        parts: what it was made of.
        store: where it is stored; only read.
        progress: called with a line before each step.
    """

    def __init__(self, experiment: Experiment, parts: Parts, store: ReplayStore, progress: Progress) -> None:
        self._experiment = experiment
        self._parts = parts
        self._store = store
        self._progress = progress

    def memories(self, sessions: Sequence[dt.date]) -> Finding:
        """Every memory retrieved was journalled before, was available, and is of its own sector; none was made or
        retrieved twice."""
        self._progress("memories retrieved")
        key = self._experiment.key
        columns = ["session", "code", "memory_id", "made_on", "available_from"]
        frame = self._store.read_retrievals(key, sessions, columns)
        shown: dict[str, list[tuple[str, ...]]] = {}
        for session, *rest in zip(*(frame[column].tolist() for column in columns), strict=True):
            shown.setdefault(session, []).append(tuple(rest))
        known: set[str] = set()
        for day in sessions:
            twice = _added(known, self._made(day, MATURE))
            if twice:
                return Finding("memories", False, f"{day}: memory {twice} is made twice (mature)")
            retrieved: set[str] = set()
            for code, memory, made_on, available_from in shown.get(day.isoformat(), ()):
                if memory in retrieved:
                    return Finding("memories", False, f"{day} {code}: memory {memory} is retrieved twice")
                retrieved.add(memory)
                if memory not in known or available_from > day.isoformat():
                    return Finding("memories", False, f"{day} {code}: memory {memory} was not there yet")
                if memory[:10] != made_on or sector_of(memory) != code:
                    return Finding("memories", False, f"{day} {code}: memory {memory} is no one's of {made_on}")
            twice = _added(known, self._made(day, APPEND))
            if twice:
                return Finding("memories", False, f"{day}: memory {twice} is made twice (append)")
        return Finding("memories", True, f"{len(frame)} memories retrieved, each of its own sector and made before")

    def evidence(self, sessions: Sequence[dt.date]) -> Finding:
        """Every update rests on outcomes that became known that very day, and on their true values."""
        self._progress("outcomes behind every update")
        kind = self._parts.mechanism_kind(self._experiment)
        checked = 0
        for session in sessions:
            entries = self._store.events(self._experiment.key, session)
            evidence = [item for entry in entries for item in kind.decode(entry).evidence]
            if not evidence:
                continue
            table = self._parts.reader.read(OUTCOMES, session.isoformat())
            known = known_outcomes(table, session, self._parts.settings.benchmark.horizons)
            true = {(o.code, o.predicted_on, o.horizon): o for own in known.values() for o in own}
            for item in evidence:
                wrong = _refuted(item, true)
                if wrong:
                    return Finding("evidence", False, f"{session}: {wrong}")
            checked += len(evidence)
        return Finding("evidence", True, f"{checked} updates, each on an outcome that became known that very day")

    def repeated(self, sessions: tuple[dt.date, ...]) -> Finding:
        """Replayed once more, the sessions come out the same, byte for byte."""
        self._progress(f"{len(sessions)} sessions again")
        with self._replayed(sessions, sessions, self._parts) as scratch:
            wrong = self.difference(scratch, sessions)
        if wrong:
            return Finding("repeated", False, f"{wrong} differs when the same days are replayed again")
        return Finding("repeated", True, f"{sessions[0]} to {sessions[-1]} the same twice, byte for byte")

    def future(self, sessions: tuple[dt.date, ...], cut: dt.date, replayed: int) -> Finding:
        """With everything after `cut` changed, the last `replayed` sessions up to it come out the same, byte for byte;
        and the session after it does not see what it saw."""
        again = _up_to(sessions, cut, replayed)
        after = sessions[sessions.index(cut) + 1 :][:1]
        self._progress(f"changed future after {cut}: {len(again)} sessions again")
        parts = replace(self._parts, reader=PerturbedFuture(self._parts.reader, cut))
        with self._replayed(sessions, (*again, *after), parts) as scratch:
            wrong = self.difference(scratch, again)
            if wrong:
                return Finding("future", False, f"cut {cut}: {wrong} depends on the future")
            if after and self._seen(scratch, parts, after[0]) == self._seen(self._store, self._parts, after[0]):
                return Finding("future", False, f"cut {cut}: the changed tables of {after[0]} changed no prompt")
        return Finding("future", True, f"cut {cut}: {again[0]} to {again[-1]} the same, byte for byte")

    def order(self, sessions: tuple[dt.date, ...], cut: dt.date, replayed: int) -> Finding:
        """The last `replayed` sessions up to `cut` come out the same with other sector order and concurrency."""
        again = _up_to(sessions, cut, replayed)
        for execution in (Execution(1, INDUSTRIES[::-1]), Execution(len(INDUSTRIES), _interleaved())):
            self._progress(f"{execution.workers} at once, other order, up to {cut}: {len(again)} sessions again")
            with self._replayed(sessions, again, replace(self._parts, execution=execution)) as scratch:
                wrong = self.difference(scratch, again)
            if wrong:
                return Finding("order", False, f"up to {cut}, {execution.workers} at once: {wrong} differs")
        return Finding(
            "order", True, f"{again[0]} to {again[-1]} the same with 1 and {len(INDUSTRIES)} sectors at once"
        )

    def difference(self, scratch: ReplayStore, sessions: Sequence[dt.date]) -> str:
        """The first file of these sessions that is another one in another store; empty if there is none."""
        key = self._experiment.key
        for session in sessions:
            for name in (*DATA_FILES, MANIFEST):
                mine, theirs = (store.folder(key, session) / name for store in (self._store, scratch))
                if mine.read_bytes() != theirs.read_bytes():
                    return f"{session} {name}"
        return ""

    def lend(self, other: ReplayStore, sessions: Sequence[dt.date]) -> None:
        """Let a store on this machine that has nothing of the run show these days. They are only read there."""
        key = self._experiment.key
        other.folder(key).mkdir(parents=True)
        for session in sessions:
            borrow(self._store.folder(key, session), other.folder(key, session))

    @contextmanager
    def _replayed(self, sessions: Sequence[dt.date], again: Sequence[dt.date], parts: Parts) -> Iterator[ReplayStore]:
        """A temporary store with the days before `again` as they are stored, and the days `again` replayed anew."""
        with tempfile.TemporaryDirectory(prefix="finevolve-audit-") as folder:
            scratch = ReplayStore(Path(folder))
            self.lend(scratch, [session for session in sessions if session < again[0]])
            run(self._experiment, again, parts, scratch, _unheard)
            yield scratch

    def _made(self, session: dt.date, phase: str) -> Iterator[str]:
        """Ids of the memories that came into being on a day, before or after its predictions."""
        kind = self._parts.mechanism_kind(self._experiment)
        for entry in self._store.events(self._experiment.key, session, phase):
            yield from kind.decode(entry).made

    def _seen(self, store: ReplayStore, parts: Parts, session: dt.date) -> list[str]:
        """What predictions were made from: their prompts; if no model was asked, the tables."""
        prompts = store.read_predictions(self._experiment.key, [session], ["prompt_digest"])["prompt_digest"]
        if prompts.any():
            return [str(prompt) for prompt in prompts]
        return [digest_frame(parts.reader.read(table, session.isoformat())) for table in INPUTS]


def _added(known: set[str], made: Iterable[str]) -> str:
    """Put ids to the known ones, up to one that is there already, which is given back; empty if none is."""
    for memory in made:
        if memory in known:
            return memory
        known.add(memory)
    return ""


class _Auditor(StoredRun):
    def report(self, cuts: tuple[dt.date, ...], replayed: int) -> AuditReport:
        key = self._experiment.key
        stored = self._store.sessions(key)
        if not stored:
            raise not_replayed(self._experiment, self._parts)
        for cut in cuts:
            if cut not in stored:
                raise CalendarError(f"cut {cut}: not a stored session of {key} ({stored[0]} to {stored[-1]})")
        self._progress(f"{key}: {len(stored)} stored sessions")
        chain, sound = self._chain()
        findings = [chain]
        if chain.ok:
            findings += [self._news(sound), self.memories(sound), self.evidence(sound)]
            for cut in sorted(set(cuts or _spread(sound))):
                findings += [self.future(sound, cut, replayed), self.order(sound, cut, replayed)]
        findings += list(self._canaries())
        return AuditReport(key, tuple(findings))

    def _chain(self) -> tuple[Finding, tuple[dt.date, ...]]:
        sound: list[dt.date] = []
        stored = self._store.sessions(self._experiment.key)
        try:
            for manifest in verify(self._experiment, self._parts, self._store):
                sound.append(manifest.session)
        except FinEvolveError as broken:
            return Finding("chain", False, str(broken)), tuple(sound)
        if tuple(sound) != stored:
            hole = calendar.shift(sound[-1], 1) if sound else self._parts.settings.benchmark.sessions[0]
            return Finding("chain", False, f"session {hole} is not stored, but later ones are"), tuple(sound)
        return Finding("chain", True, f"{len(sound)} days from {sound[0]} to {sound[-1]}"), tuple(sound)

    def _news(self, sessions: Sequence[dt.date]) -> Finding:
        self._progress("news windows against their cutoffs")
        articles = 0
        for session in sessions:
            window = self._parts.reader.read(NEWS, session.isoformat())
            articles += len(window)
            try:
                require_observable(window, session)
            except FinEvolveError as late:
                return Finding("news", False, str(late))
        return Finding("news", True, f"{articles} articles in {len(sessions)} windows, each from before its cutoff")

    def _canaries(self) -> Iterator[Finding]:
        first = self._parts.settings.benchmark.sessions[0]
        for name, kind in CANARIES.items():
            self._progress(f"{name} on {first}")
            experiment = Experiment(mechanism=name, backbone=self._experiment.backbone)
            with tempfile.TemporaryDirectory(prefix="finevolve-audit-") as folder:
                try:
                    run(
                        experiment,
                        (first,),
                        replace(self._parts, kind=kind),
                        ReplayStore(Path(folder)),
                        _unheard,
                    )
                except LookAheadError as caught:
                    yield Finding("canary", name in str(caught), str(caught))
                else:
                    yield Finding("canary", False, f"{name} read the data of the session after {first}")


class Recalling(StandIn):
    """A backbone that answers from what it answered before and asks nobody.

    A question it was never asked gets the answer of `rules`: a day that asks another question than it did comes out
    different, which is what an audit wants to know, and costs nothing. An offline backbone remembers nothing and costs
    nothing, so it answers for itself.
    """

    def __init__(self, backbone: Backbone) -> None:
        super().__init__(backbone)
        self._offline = backbone if isinstance(backbone, RulesBackbone) else RulesBackbone()

    async def answer(self, call: Call) -> Reply:
        """The answer given before, or the offline one."""
        return self.recall(call) or await self._offline.answer(call)


def _unheard(_: DayDone) -> None:
    """The audit needs no report of each day."""


def _spread(sessions: Sequence[dt.date]) -> tuple[dt.date, ...]:
    last = len(sessions) - 1
    return tuple(sessions[at] for at in (last // 3, 2 * last // 3, last))


def _up_to(sessions: tuple[dt.date, ...], cut: dt.date, count: int) -> tuple[dt.date, ...]:
    end = sessions.index(cut) + 1
    return sessions[max(0, end - count) : end]


def _interleaved() -> tuple[Industry, ...]:
    return (*INDUSTRIES[::2], *INDUSTRIES[1::2])


def _refuted(item: Evidence, true: Mapping[tuple[str, dt.date, int], Outcome]) -> str:
    """What is wrong with an update's evidence, empty if nothing is."""
    outcome = true.get((item.code, item.predicted_on, item.horizon))
    what = f"an update of {item.code} rests on the outcome from {item.predicted_on} over {item.horizon} sessions"
    if outcome is None:
        return f"{what}, which did not become known that day"
    if outcome.alpha != item.alpha:
        return f"{what}, alpha {item.alpha}, but it was {outcome.alpha}"
    return ""
