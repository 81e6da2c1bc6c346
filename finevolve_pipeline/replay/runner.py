"""Replaying a range of sessions of one experiment: reuse what is stored, verify it, replay what is missing.

State is never stored. A run that continues folds the journal of the stored days, in order, and then goes
on; it ends with the same bytes as a run that was never interrupted. A stored day that rests on other
inputs, settings, code or another parent than the present ones stops the run with the command that removes
it.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from finevolve_pipeline import calendar
from finevolve_pipeline.digests import digest_json, source_digest
from finevolve_pipeline.embedding import Embedder, NoVectors
from finevolve_pipeline.errors import CalendarError, FinEvolveError, MissingPartitionError, ReplayMismatchError
from finevolve_pipeline.graph import TableReader
from finevolve_pipeline.llm.asking import Model
from finevolve_pipeline.llm.render import prompt_templates_digest
from finevolve_pipeline.llm.requests import Backbone
from finevolve_pipeline.mechanisms.base import Experience, Mechanism, MechanismSettings, Trajectory, World
from finevolve_pipeline.mechanisms.canaries import REFUSED
from finevolve_pipeline.mechanisms.registry import (
    SEED,
    code_digest,
    mechanism_class,
    mechanism_settings,
    recalls,
    sample_seed,
)
from finevolve_pipeline.mechanisms.seeding import combined, seeded
from finevolve_pipeline.recipes import differences
from finevolve_pipeline.replay.called import Calling
from finevolve_pipeline.replay.clock import INPUTS, Gateway, Visible
from finevolve_pipeline.replay.day import Chain, Execution, apply_events, replay_day
from finevolve_pipeline.replay.history import History
from finevolve_pipeline.replay.journal import MATURE, Foundation, Manifest, ReplayStore
from finevolve_pipeline.replay.maturity import matured
from finevolve_pipeline.settings import Experiment, PromptSettings, Settings
from finevolve_pipeline.tables import LEFT_OUT

_REPLAY = "the replay"
_CODE = (
    "finevolve_pipeline.calendar",
    "finevolve_pipeline.llm.answers",
    "finevolve_pipeline.llm.asking",
    "finevolve_pipeline.llm.render",
    "finevolve_pipeline.llm.requests",
    "finevolve_pipeline.llm.tokens",
    "finevolve_pipeline.llm.untrusted",
    "finevolve_pipeline.llm.updates",
    "finevolve_pipeline.market.context",
    "finevolve_pipeline.mechanisms.base",
    "finevolve_pipeline.news.block",
    "finevolve_pipeline.news.window",
    "finevolve_pipeline.replay.called",
    "finevolve_pipeline.replay.clock",
    "finevolve_pipeline.replay.day",
    "finevolve_pipeline.replay.history",
    "finevolve_pipeline.replay.maturity",
    "finevolve_pipeline.universe",
)


@dataclass(frozen=True)
class DayDone:
    """A finished session: just replayed, or found stored and still valid (`reused`)."""

    session: dt.date
    reused: bool
    manifest: Manifest


@dataclass(frozen=True)
class Parts:
    """What an experiment is made of.

    Attributes:
        kind: the mechanism's class; None for the one registered under the experiment's mechanism name.
        execution: how a day is worked through; without effect on results.
    """

    settings: Settings
    reader: TableReader
    backbone: Backbone
    embedder: Embedder
    kind: type[Mechanism] | None = None
    execution: Execution = field(default_factory=Execution)

    def mechanism_kind(self, experiment: Experiment) -> type[Mechanism]:
        """The class of the experiment's mechanism. Raises `SettingsError` if there is none."""
        section = self.settings.mechanisms.get(experiment.mechanism)
        return self.kind or mechanism_class(experiment.mechanism, section)

    def mechanism_settings(self, experiment: Experiment) -> MechanismSettings:
        """The settings of the experiment's mechanism, its own seeds as the experiment's makes them."""
        name = experiment.mechanism
        written = mechanism_settings(name, self.mechanism_kind(experiment), self.settings.mechanisms.get(name, {}))
        return seeded(name, written, experiment.seed)

    def request_seed(self, experiment: Experiment) -> int:
        """Of all samples that the experiment asks a model for (see `Call.seed`)."""
        name = experiment.mechanism
        own = sample_seed(name, self.settings.mechanisms.get(name, {}))
        return combined(f"mechanisms.{name}.{SEED}", own, experiment.seed)


def identity(experiment: Experiment, parts: Parts) -> dict[str, object]:
    """All that can change a stored byte of the experiment, beside the input tables, as readable JSON."""
    settings, kind = parts.settings, parts.mechanism_kind(experiment)
    return {
        "experiment": experiment.key,
        "first_session": settings.benchmark.sessions[0].isoformat(),
        "horizons": list(settings.benchmark.horizons),
        "industries": list(settings.benchmark.codes),
        "mechanism": {
            "name": experiment.mechanism,
            "settings": parts.mechanism_settings(experiment).model_dump(mode="json"),
            "seed": parts.request_seed(experiment),
            "code": code_digest(kind),
        },
        "backbone": parts.backbone.identity,
        "embedder": parts.embedder.identity if kind.compares_news else None,
        "prompts": _prompts(kind, settings.prompts),
        "scores": settings.scores.model_dump(mode="json"),
        "market_wide": settings.news.market_wide,
        "code": source_digest(*_CODE),
    }


def _prompts(kind: type[Mechanism], prompts: PromptSettings) -> dict[str, object]:
    """What of the prompts can change a mechanism's result. Only one that asks in order to learn has past news in its
    prompts, and only one that does so or retrieves has experience in them."""
    said: dict[str, object] = {
        "language": prompts.language,
        "news_tokens": prompts.news_tokens,
        "templates": prompt_templates_digest(prompts.language, ("common", "predict", *kind.templates)),
    }
    learns = bool(kind.templates)
    if learns:
        said["update_news_tokens"] = prompts.update_news_tokens
    if learns or recalls(kind):
        said["experience_tokens"] = prompts.experience_tokens
    return said


@dataclass(frozen=True)
class Range:
    """Consecutive sessions of one experiment that are to be in the store.

    All sessions of the window before them must be stored: the chain begins with the window.
    """

    experiment: Experiment
    sessions: Sequence[dt.date]
    parts: Parts


def replay(ranges: Sequence[Range], store: ReplayStore, on_day: Callable[[DayDone], None]) -> None:
    """Bring the sessions of several experiments into the store, each experiment in order, each day committed on
    its own. While one waits for its model the others go on.

    Args:
        ranges: what is to be replayed; one range an experiment.
        store: where the days go.
        on_day: called for every asked session, stored ones included, as soon as it is durable.

    Raises:
        CalendarError: sessions are not consecutive sessions of the window.
        MissingPartitionError: an earlier session of a chain, or an input, is not stored.
        ReplayMismatchError: a stored day does not fit the present inputs, settings or code, or is damaged.
        ExperimentLockedError: another process is replaying one of the experiments.
        BackboneError, BudgetError, CacheMissError: a model cannot be asked.

        One experiment's failure does not stop the others; then the gravest error is raised, the others are its
        notes.
    """
    runs = [
        (_Run(one.experiment, one.parts, store), _consecutive(one.sessions, one.parts.settings.benchmark.sessions))
        for one in ranges
    ]
    runs = [(run, wanted) for run, wanted in runs if wanted]
    with contextlib.ExitStack() as locks:
        for run, _ in runs:
            locks.enter_context(store.lock(run.key))
        asyncio.run(_together(runs, on_day))


async def _together(runs: Sequence[tuple[_Run, tuple[dt.date, ...]]], on_day: Callable[[DayDone], None]) -> None:
    try:
        ended = await asyncio.gather(*(run.through(wanted, on_day) for run, wanted in runs), return_exceptions=True)
    finally:
        for run, _ in runs:
            await run.close()
    failed = [one for one in ended if one is not None]
    if not failed:
        return
    gravest = max(failed, key=lambda error: (not isinstance(error, FinEvolveError), getattr(error, "exit_code", 0)))
    for other in failed:
        if other is not gravest and str(other) != str(gravest):
            gravest.add_note(str(other))
    raise gravest


def run(
    experiment: Experiment,
    sessions_to_run: Sequence[dt.date],
    parts: Parts,
    store: ReplayStore,
    on_day: Callable[[DayDone], None],
) -> None:
    """`replay` of one experiment."""
    replay([Range(experiment, sessions_to_run, parts)], store, on_day)


def verify(experiment: Experiment, parts: Parts, store: ReplayStore) -> Iterator[Manifest]:
    """The stored days of the chain from its beginning, each checked as a run that continues would check it.

    Raises:
        ReplayMismatchError: a day does not fit its parent or the present inputs, settings or code, or is
            damaged.
        MissingPartitionError: a table that a day was made from is not stored any more.
    """
    check = _Run(experiment, parts, store)
    parent = ""
    for session in parts.settings.benchmark.sessions:
        if not store.has(experiment.key, session):
            return
        manifest = check.verified(session, parent)
        yield manifest
        parent = manifest.digest


def not_replayed(experiment: Experiment, parts: Parts) -> MissingPartitionError:
    """The error for an experiment of which nothing is stored: what makes it, or why there will never be anything."""
    if issubclass(parts.mechanism_kind(experiment), REFUSED):
        return MissingPartitionError(
            f"experiment {experiment.key}: nothing is stored, as it must be: the mechanism asks for the future and is "
            "caught on its first session, so that `finevolve run` refuses it; there is nothing to look into"
        )
    return MissingPartitionError(f"replay {experiment.key}: nothing is stored; `finevolve run` makes it")


def experience_at(
    experiment: Experiment, parts: Parts, store: ReplayStore, session: dt.date, code: str
) -> tuple[Experience, ...]:
    """What a sector's agent knew when it predicted on a stored session, oldest first: all that was kept of the days
    before, and what that day's outcomes taught. Nothing is compared here, so no text is embedded.

    Raises:
        MissingPartitionError: a day up to the session is not stored, or its inputs are not.
        ReplayMismatchError: a stored day is damaged, or another mechanism's.
    """
    blind = replace(parts, embedder=NoVectors(parts.embedder.dimensions))
    return _Run(experiment, blind, store).known(session, code)


def _consecutive(wanted: Sequence[dt.date], window: Sequence[dt.date]) -> tuple[dt.date, ...]:
    if not wanted:
        return ()
    for session in wanted:
        if session not in window:
            raise CalendarError(
                f"session {session}: not in the benchmark's window {window[0]} to {window[-1]}; "
                f"correct the range or [benchmark] in finevolve.toml"
            )
    expected = calendar.sessions_between(wanted[0], wanted[-1])
    if tuple(wanted) != expected:
        odd = next((a for a, b in zip(wanted, expected, strict=False) if a != b), wanted[-1])
        raise CalendarError(f"session {odd}: sessions must be consecutive and each given once; give a range from - to")
    return expected


class _Run:
    """One run of one experiment, which holds its lock."""

    def __init__(self, experiment: Experiment, parts: Parts, store: ReplayStore) -> None:
        self._experiment = experiment
        self._parts = parts
        self._store = store
        self._identity = identity(experiment, parts)
        self._identity_digest = digest_json(self._identity)
        self._window = parts.settings.benchmark.sessions

    @property
    def key(self) -> str:
        """The experiment's key."""
        return self._experiment.key

    async def close(self) -> None:
        """Give back the backbone's connections."""
        await self._parts.backbone.close()

    async def through(self, wanted: tuple[dt.date, ...], on_day: Callable[[DayDone], None]) -> None:
        key = self._experiment.key
        stored = frozenset(self._store.sessions(key))
        path = self._window[: self._window.index(wanted[-1]) + 1]
        missing = [session for session in path if session not in stored]
        self._require_prefix(missing, wanted)
        parent = ""
        chain: Chain | None = None
        for session in path:
            reused = session in stored
            if reused:
                manifest = self.verified(session, parent)
                if chain is not None:
                    self._fold(chain, (session,))
            else:
                if chain is None:
                    chain = self._chain()
                    self._fold(chain, path[: path.index(session)])
                manifest = await self._replayed(session, chain, parent)
            parent = manifest.digest
            if session >= wanted[0]:
                on_day(DayDone(session, reused, manifest))

    def _require_prefix(self, missing: Sequence[dt.date], wanted: tuple[dt.date, ...]) -> None:
        if missing and missing[0] < wanted[0]:
            raise MissingPartitionError(
                f"replay {self._experiment.key} {missing[0]}: not stored, and {wanted[0]} rests on it; first "
                f"`finevolve run --from {missing[0]} --to {wanted[-1]} {self._experiment.options}`"
            )

    def verified(self, session: dt.date, parent: str) -> Manifest:
        """The manifest of a stored day that fits its parent and the present inputs, settings and code."""
        manifest = self._store.manifest(self._experiment.key, session)
        if manifest.identity != self._identity_digest:
            stored = self._store.identity(self._experiment.key) or {}
            first = next(differences(stored, self._identity), None)
            what = str(first or "identity.json is not the one it was made with")
            raise self._mismatch(session, f"made with other settings or code: {what}", self._window[0])
        if manifest.parent != parent:
            raise self._mismatch(
                session, f"follows another day before it (parent {manifest.parent}, now {parent})", session
            )
        present = self._inputs(session)
        for table in INPUTS:
            if manifest.inputs.get(table) != present[table]:
                raise self._mismatch(
                    session,
                    f"made from another {table} (digest {manifest.inputs.get(table)}, now {present[table]})",
                    session,
                )
        self._store.verify_files(manifest)
        return manifest

    def known(self, session: dt.date, code: str) -> tuple[Experience, ...]:
        key = self._experiment.key
        path = self._window[: self._window.index(session) + 1] if session in self._window else (session,)
        for day in path:
            self._store.manifest(key, day)
        chain = self._chain((code,))
        for day, frozen in self._stored_trajectories(path, (code,)):
            chain.gateway.advance(day)
            phase = MATURE if day == session else None
            entries = [entry for entry in self._store.events(key, day, phase) if entry["code"] == code]
            chain.history.record(frozen if day != session else [])
            _apply_stored(day, entries, chain)
        call = chain.calling.at("experiences", session, code)
        with call.named():
            listed = chain.mechanism.experiences(code)
        return call.kept(listed)

    def _mismatch(self, session: dt.date, what: str, start: dt.date) -> ReplayMismatchError:
        key = self._experiment.key
        return ReplayMismatchError(
            f"replay {key} {session}: {what}; remove it with `finevolve reset {key} --from {start}` and run again"
        )

    def _inputs(self, session: dt.date) -> dict[str, str]:
        found: dict[str, str] = {}
        for table in INPUTS:
            digest = self._parts.reader.digest(table, session.isoformat())
            if digest is None:
                raise MissingPartitionError(
                    f"{table} {session}: not stored; `finevolve run --to {session}` makes what is missing"
                )
            found[table] = digest
        return found

    async def _replayed(self, session: dt.date, chain: Chain, parent: str) -> Manifest:
        key = self._experiment.key
        inputs = self._inputs(session)
        content = await replay_day(session, chain)
        if session == self._window[0]:
            self._store.write_identity(key, self._identity)
        return self._store.commit(key, content, Foundation(parent, self._identity_digest, inputs))

    def _chain(self, codes: tuple[str, ...] | None = None) -> Chain:
        settings = self._parts.settings
        kind = self._parts.mechanism_kind(self._experiment)
        asker = f"mechanism {self._experiment.mechanism!r}"
        horizons = settings.benchmark.horizons
        gateway = Gateway(self._parts.reader, Visible.of(settings, self._parts.backbone.count_tokens))
        codes = codes or settings.benchmark.codes
        history = History(gateway, self._parts.embedder, horizons, codes, asker)
        world = World(history, gateway.view(asker), horizons, self._parts.embedder.dimensions, settings.benchmark.codes)
        values = self._parts.mechanism_settings(self._experiment)
        with Calling(self._experiment.key, kind).at("__init__").named():
            mechanism = kind(values, world)
        return Chain(
            experiment=self._experiment.key,
            horizons=horizons,
            codes=codes,
            out_of_range=settings.scores.out_of_range,
            gateway=gateway,
            history=history,
            mechanism=mechanism,
            model=Model(self._parts.backbone, settings.prompts, self._parts.request_seed(self._experiment)),
            execution=self._parts.execution,
        )

    def _fold(self, chain: Chain, sessions: Sequence[dt.date]) -> None:
        """Bring the chain's state to the end of stored sessions by applying their journals."""
        if not sessions:
            return
        for session, frozen in self._stored_trajectories(sessions, chain.codes):
            chain.gateway.advance(session)
            due = matured(chain.gateway.outcomes(session, _REPLAY), chain.history)
            chain.history.settle([one for code in chain.codes for one in due.get(code, ())])
            chain.history.record(frozen)
            _apply_stored(session, self._store.events(self._experiment.key, session), chain)

    def _stored_trajectories(
        self, sessions: Sequence[dt.date], codes: Sequence[str]
    ) -> Iterator[tuple[dt.date, list[Trajectory]]]:
        key = self._experiment.key
        predictions = self._store.read_predictions(key, sessions)
        predictions = predictions[predictions["code"].isin(codes)]
        retrievals = self._store.read_retrievals(key, sessions, ["session", "code", "rank", "memory_id", "in_prompt"])
        shown = retrievals["in_prompt"] != LEFT_OUT
        retrievals = retrievals.loc[retrievals["code"].isin(codes) & shown, ["session", "code", "rank", "memory_id"]]
        references: dict[tuple[str, str], list[str]] = {}
        for session, code, _rank, memory in sorted(zip(*_columns(retrievals), strict=True)):
            references.setdefault((session, code), []).append(memory)
        rows: dict[str, dict[str, list[Mapping[Any, Any]]]] = {}
        for row in predictions.to_dict("records"):
            rows.setdefault(row["session"], {}).setdefault(row["code"], []).append(row)
        for day in sessions:
            text = day.isoformat()
            yield (
                day,
                [
                    _trajectory(day, code, own, tuple(references.get((text, code), ())))
                    for code, own in rows.get(text, {}).items()
                ],
            )


def _apply_stored(session: dt.date, entries: Sequence[Mapping[str, Any]], chain: Chain) -> None:
    """Change the mechanism's state by entries of its journal."""
    events = []
    for entry in entries:
        with chain.calling.at("decode", session, entry["code"]).named():
            events.append(chain.mechanism.decode(entry))
    apply_events(session, events, chain.mechanism, chain.calling)


def _columns(frame: Any) -> list[list[Any]]:
    return [frame[column].tolist() for column in frame.columns]


def _trajectory(
    session: dt.date, code: str, rows: Sequence[Mapping[Any, Any]], references: tuple[str, ...]
) -> Trajectory:
    return Trajectory(
        session=session,
        code=code,
        scores={row["horizon"]: row["score"] for row in rows if not math.isnan(row["score"])},
        invalid={row["horizon"]: row["invalid_reason"] for row in rows if math.isnan(row["score"])},
        confidence=rows[0]["confidence"],
        key_factor=rows[0]["key_factor"],
        logic_chain=rows[0]["logic_chain"],
        references=references,
    )
