"""The conformance kit: does a mechanism keep the benchmark's promises? For tests of any package that offers one.

    from finevolve_pipeline.testing import assert_conforms

    def test_my_mechanism_conforms():
        assert_conforms(MyMechanism, {"last": 5})

The mechanism is run over a small world of its own (`small_world`: synthetic news and closes of four industries, 54
sessions, horizons 10, 20 and 40) with the offline backbone, and then judged by eight checks:

- *determinism*: the same days once more give the same bytes.
- *restore*: the state read back from the journal, through JSON, knows the same and goes on the same.
- *resume*: stopped after every 7th day and started again, the run gives the same bytes and asks nothing twice.
- *causality*: a changed future leaves the bytes of the days before as they are.
- *order*: so do another order of the sectors, and one or all of them at a time.
- *bounded experience*: nothing is retrieved that was not journalled before, is not available yet, or is there twice.
- *own sector*: a sector is shown, and keeps, its own experience only.
- *evidence*: what is learnt rests on outcomes that became known that day, with their true values.

They rest on each other. Two runs that differ by themselves say nothing about resuming, and days are replayed again on
what was read back; so where one fails, those that rest on it are left out. What a method must not give back (None from
`retrieve`, NaN in an event, no coroutine from `mature`), or ask (what `templates` does not declare), ends the run: that
is the one finding then, of the check *interface*. An error of the mechanism's own is raised as it is, with a note that
names method, session and sector.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd

from finevolve_pipeline.digests import digest_frame
from finevolve_pipeline.embedding import HashingEmbedder
from finevolve_pipeline.errors import (
    FinEvolveError,
    LookAheadError,
    MechanismError,
    MissingPartitionError,
    SettingsError,
)
from finevolve_pipeline.graph import LANDING, Graph, TableReader, news_key
from finevolve_pipeline.llm.render import prompt_digest
from finevolve_pipeline.llm.requests import Backbone, Call, Reply
from finevolve_pipeline.llm.rules.backbone import RulesBackbone
from finevolve_pipeline.llm.stand_in import StandIn
from finevolve_pipeline.mechanisms.base import Experience, Mechanism, next_session, sector_of
from finevolve_pipeline.replay.audit import Finding, StoredRun
from finevolve_pipeline.replay.called import Calling
from finevolve_pipeline.replay.clock import INPUTS
from finevolve_pipeline.replay.journal import ReplayStore
from finevolve_pipeline.replay.runner import DayDone, Parts, run
from finevolve_pipeline.settings import Experiment, Settings, load_settings
from finevolve_pipeline.synth.world import SynthSettings, SynthWorld, generate

SECTORS = ("801080", "801170", "801780", "801880")
"""The industries of the small world."""

STOPPED_AFTER = 7
"""Sessions between two stops of the check `resume`."""

REPLAYED = 6
"""Sessions up to a day that the checks `causality` and `order` replay again."""

_WORLD = SynthSettings(
    seed=20, last_session=dt.date(2025, 3, 26), articles_per_day=40, missing=0.02, sources=("cls", "sina")
)
_DIMENSIONS = 64

Knowledge = Mapping[dt.date, Mapping[str, tuple[Experience, ...]]]
"""What each sector has learnt at the end of sessions, by code."""


# -- the small world -----------------------------------------------------------------------------------------


def small_settings(mechanism: str, values: Mapping[str, Any]) -> Settings:
    """The packaged settings for the small world, with one mechanism.

    Args:
        mechanism: its name.
        values: its section `[mechanisms.<name>]`.
    """
    packaged = Path(str(files("finevolve_pipeline") / "finevolve.toml"))
    settings = load_settings(
        packaged,  # and no file of the working directory
        {
            "benchmark": {
                "first_session": _WORLD.first_session,
                "last_session": _WORLD.last_session,
                "industries": list(SECTORS),
            },
            "news": {"sources": list(_WORLD.sources)},
        },
    )
    return settings.model_copy(update={"mechanisms": {mechanism: dict(values)}})


@lru_cache(maxsize=1)
def small_world() -> TableReader:
    """The tables of the small world, in memory: `news_window` and `matured_alpha` by session, and what they rest on.

    Its articles are of `SECTORS` only, four or so in the window of each, sometimes none; two closes in a hundred are
    missing.
    """
    tables = _Tables(small_settings("pipe", {}), _landed(generate(_WORLD)))
    # All at once and before any replay: tagging has an event loop of its own, which cannot run inside another one.
    tables.make("tagged_articles", _WORLD.news_days)
    for table in INPUTS:
        tables.make(table, _WORLD.sessions)
    return tables


class _Tables:
    """Tables that the pipeline's own functions make from what has landed, each partition when it is first read."""

    def __init__(self, settings: Settings, landed: Mapping[tuple[str, str], pd.DataFrame]) -> None:
        self._tables = Graph(settings, settings.news.sources, RulesBackbone()).tables
        self._frames = dict(landed)
        self._digests: dict[tuple[str, str], str] = {}

    def make(self, table: str, days: Sequence[dt.date]) -> None:
        """Make the partitions of these days together."""
        for built in self._tables[table].build_many((day.isoformat() for day in days), self):
            self._frames[table, built.partition] = built.frame

    def read(self, table: str, partition: str) -> pd.DataFrame:
        """A partition. Raises `MissingPartitionError` if the small world has none."""
        if (table, partition) not in self._frames:
            if table not in self._tables or partition not in self._tables[table].partitions:
                raise MissingPartitionError(f"{table} {partition}: not in the small world of the conformance kit")
            self._frames[table, partition] = self._tables[table].build(partition, self)
        return self._frames[table, partition]

    def digest(self, table: str, partition: str) -> str | None:
        """Its digest, None if there is none."""
        if (table, partition) not in self._digests:
            try:
                self._digests[table, partition] = digest_frame(self.read(table, partition))
            except MissingPartitionError:
                return None
        return self._digests[table, partition]


def _landed(world: SynthWorld) -> dict[tuple[str, str], pd.DataFrame]:
    """The news of `SECTORS` and all bars, as if imported. Industries come with the news, so that nothing is tagged."""
    told = world.truth.stories["code"]
    news = world.news.assign(
        industries_given=pd.Series([[code] for code in told], index=told.index, dtype="object"),
        importance_given=[8.0 + number % 3 for number in range(len(told))],
    )[told.isin(SECTORS)]
    days = [
        news_key(published.date(), source)
        for published, source in zip(news["published_at"], news["source"], strict=True)
    ]
    parts = (
        ("news", news, days),
        ("industry_bars", world.industry_bars, world.industry_bars["session"].tolist()),
        ("benchmark_bars", world.benchmark_bars, world.benchmark_bars["session"].tolist()),
    )
    return {
        (f"{LANDING}{name}", str(key)): rows.reset_index(drop=True)
        for name, frame, keys in parts
        for key, rows in frame.groupby(pd.Series(keys, index=frame.index))
    }


class _Waiting(StandIn):
    """Answers some questions later than others, so that those asked together are answered in another order."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__(backbone)
        self.asked: Counter[str] = Counter()

    async def answer(self, call: Call) -> Reply:
        """The answer of the backbone that it stands for, after letting others go first up to three times."""
        digest = prompt_digest(call.prompt.messages)
        self.asked[f"{call.request.phase} of {call.request.day} {call.request.subject} ({digest})"] += 1
        for _ in range(int(digest, 16) % 4):
            await asyncio.sleep(0)
        return await super().answer(call)


# -- a trial -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    """A mechanism and its uninterrupted run over the small world.

    Attributes:
        experiment: the mechanism, under its class's name, on the offline backbone.
        parts: what it was made of.
        store: where it is stored.
        asked: what the model was asked, and how often.
        known: what each sector had learnt at the end of each session.
    """

    experiment: Experiment
    parts: Parts
    store: ReplayStore
    asked: Counter[str]
    known: Knowledge

    @property
    def sessions(self) -> tuple[dt.date, ...]:
        """All sessions of the small world."""
        return self.parts.settings.benchmark.sessions

    @property
    def stored(self) -> StoredRun:
        """The run, as the audit judges it."""
        return StoredRun(self.experiment, self.parts, self.store, lambda line: None)

    def kept(self) -> Iterator[tuple[dt.date, str, Experience]]:
        """Every piece of experience a sector had at the end of a session."""
        for session, by_code in self.known.items():
            for code, kept in by_code.items():
                for one in kept:
                    yield session, code, one


@contextmanager
def trial(kind: type[Mechanism], settings: Mapping[str, Any]) -> Iterator[Trial]:
    """Run a mechanism once over the small world, to be judged by single checks.

    Args:
        kind: its class.
        settings: the values of its section `[mechanisms.<name>]`.

    Raises:
        SettingsError: `kind` is no mechanism, or the settings are not its own.
        LookAheadError: it asked for the future, or recalled a memory before it can be known.
        MechanismError: one of its methods gave back what it must not.
    """
    if not (isinstance(kind, type) and issubclass(kind, Mechanism)):
        raise SettingsError(f"{kind!r}: no mechanism; give a class that is a subclass of mechanisms.base.Mechanism")
    experiment = Experiment(mechanism=kind.__name__, backbone="rules")
    backbone = _Waiting(RulesBackbone())
    parts = Parts(
        settings=small_settings(experiment.mechanism, settings),
        reader=small_world(),
        backbone=backbone,
        embedder=HashingEmbedder(_DIMENSIONS, (2, 3)),
        kind=kind,
    )
    with _scratch() as store:
        known = _known_after(experiment, parts, parts.settings.benchmark.sessions, store)
        yield Trial(experiment, parts, store, Counter(backbone.asked), known)


@contextmanager
def _scratch() -> Iterator[ReplayStore]:
    with tempfile.TemporaryDirectory(prefix="finevolve-conformance-") as folder:
        yield ReplayStore(Path(folder))


def _known_after(experiment: Experiment, parts: Parts, sessions: Sequence[dt.date], store: ReplayStore) -> Knowledge:
    """Replay sessions. What is known at the end of each one from the first that was not stored yet."""
    made: list[Mechanism] = []
    known: dict[dt.date, dict[str, tuple[Experience, ...]]] = {}
    kind = parts.mechanism_kind(experiment)

    def look(day: DayDone) -> None:
        for mechanism in made:
            calling = Calling(experiment.key, kind)
            for code in parts.settings.benchmark.codes:
                with calling.at("experiences", day.session, code).named():
                    kept = mechanism.experiences(code)
                known.setdefault(day.session, {})[code] = calling.at("experiences", day.session, code).kept(kept)

    watched = _watched(kind, made)
    run(experiment, sessions, replace(parts, kind=watched), store, look)
    return known


def _watched(kind: type[Mechanism], made: list[Mechanism]) -> type[Mechanism]:
    """The same class, to all that can be told from it, but its instances are put into `made`."""

    def init(self: Mechanism, *arguments: Any) -> None:
        kind.__init__(self, *arguments)
        made.append(self)

    return type(kind.__name__, (kind,), {"__init__": init, "__module__": kind.__module__})


# -- the checks ----------------------------------------------------------------------------------------------


def determinism(tried: Trial) -> Finding:
    """The same days once more give the same bytes: no wall clock, no randomness but from seeds."""
    return _named("determinism", tried.stored.repeated(tried.sessions))


def restore(tried: Trial) -> Finding:
    """All state lies in the journal's events, as JSON holds them.

    The days up to three quarters of the window are read back, one day is replayed on what they give, and the days after
    it are read back again: that day has the same bytes, and from it on each sector has the same experience.
    """
    day = tried.sessions[3 * len(tried.sessions) // 4]
    key, broken = tried.experiment.key, ""
    known: Knowledge = {}
    with _scratch() as store:
        tried.stored.lend(store, [session for session in tried.sessions if session != day])
        try:
            known = _known_after(tried.experiment, tried.parts, tried.sessions, store)
        except FinEvolveError as error:
            broken = str(error)
        wrong = tried.stored.difference(store, (day,)) if store.has(key, day) else ""
    if wrong or broken:
        return Finding("restore", False, f"{wrong} differs when the days before are read back" if wrong else broken)
    for session, by_code in known.items():
        for code, kept in by_code.items():
            lived = tried.known[session][code]
            if kept != lived:
                return Finding("restore", False, f"{session} {code}: {_first_odd(kept, lived)}")
    return Finding("restore", True, f"{day} the same on what was read back, and the same experience from it on")


def resume(tried: Trial) -> Finding:
    """Stopped after every 7th day and started again, the run gives the same bytes and asks nothing twice."""
    again = _Waiting(tried.parts.backbone)
    parts = replace(tried.parts, backbone=again)
    with _scratch() as store:
        for first in range(0, len(tried.sessions), STOPPED_AFTER):
            run(tried.experiment, tried.sessions[first : first + STOPPED_AFTER], parts, store, lambda day: None)
        different = tried.stored.difference(store, tried.sessions)
    other = next(iter(again.asked - tried.asked), "")
    if again.asked.total() > tried.asked.total():
        wrong = f"{again.asked.total()} questions when it is stopped, {tried.asked.total()} when it is not: {other}"
    elif different:
        wrong = f"{different} differs when the run is stopped after every {STOPPED_AFTER} days"
    else:
        wrong = f"other questions when it is stopped: {other}" if other else ""
    return Finding(
        "resume", not wrong, wrong or f"stopped after every {STOPPED_AFTER} days: same bytes, same questions"
    )


def causality(tried: Trial) -> Finding:
    """With everything after a day changed, the days up to it are the same; and the day after it is not."""
    count = len(tried.sessions)
    cuts = [tried.sessions[at] for at in (count // 3, 2 * count // 3, count - 2)]
    found = [tried.stored.future(tried.sessions, cut, REPLAYED) for cut in cuts]
    bad = next((one for one in found if not one.ok), None)
    listed = ", ".join(map(str, cuts))
    return _named("causality", bad or Finding("", True, f"changed after {listed}, the days before are the same"))


def order(tried: Trial) -> Finding:
    """Other orders of the sectors, one or all at a time, give the same bytes: no sector sees another one's today."""
    return _named("order", tried.stored.order(tried.sessions, tried.sessions[-1], REPLAYED))


def bounded_experience(tried: Trial) -> Finding:
    """Nothing is retrieved that was not journalled before, is not available yet or is there twice; nothing kept is of a
    later day, or kept twice."""
    for session, by_code in tried.known.items():
        for code, kept in by_code.items():
            counted = Counter(one.memory_id for one in kept)
            twice = next((memory for memory, times in counted.items() if times > 1), "")
            if twice:
                return Finding("bounded experience", False, f"{session} {code}: {twice} is kept twice")
    for session, code, one in tried.kept():
        if not one.made_on <= session or not one.made_on <= one.available_from <= next_session(session):
            what = f"made on {one.made_on}, available from {one.available_from}"
            return Finding("bounded experience", False, f"{session} {code}: {one.memory_id} is kept, {what}")
    return _named("bounded experience", tried.stored.memories(tried.sessions))


def own_sector(tried: Trial) -> Finding:
    """What a sector is shown, and what it keeps, is its own and rests on its own predictions."""
    columns = ["session", "code", "memory_id", "sources"]
    frame = tried.store.read_retrievals(tried.experiment.key, tried.sessions, columns)
    shown = zip(*(frame[column].tolist() for column in columns), strict=True)
    own = [(session, code, (memory, *sources)) for session, code, memory, sources in shown]
    own += [(session.isoformat(), code, (one.memory_id, *one.sources)) for session, code, one in tried.kept()]
    for session, code, memories in own:
        for memory in memories:
            if sector_of(memory) != code:
                return Finding("own sector", False, f"{session} {code}: {memory} is another sector's")
    return Finding("own sector", True, f"{len(frame)} memories retrieved, each of its own sector")


def evidence(tried: Trial) -> Finding:
    """What is learnt from outcomes names outcomes that became known that day, with their true values."""
    return tried.stored.evidence(tried.sessions)


def _named(check: str, finding: Finding) -> Finding:
    return replace(finding, check=check)


def _first_odd(restored: Sequence[Experience], lived: Sequence[Experience]) -> str:
    """The first memory that differs, in words."""
    for mine, theirs in zip(restored, lived, strict=False):
        if mine != theirs:
            return f"{theirs.memory_id} is another one when the days before are read back"
    return f"{len(restored)} memories when the days before are read back, {len(lived)} before"


Check = Callable[[Trial], Finding]


def conformance(kind: type[Mechanism], settings: Mapping[str, Any]) -> tuple[Finding, ...]:
    """What each check finds about a mechanism, those left out that nothing can be said by (see the module).

    Args:
        kind: its class.
        settings: the values of its section `[mechanisms.<name>]`.

    Raises:
        SettingsError: `kind` is no mechanism, or the settings are not its own.
    """
    try:
        with trial(kind, settings) as tried:
            return (*_reruns(tried), *(_judged(check, tried) for check in (bounded_experience, own_sector, evidence)))
    except LookAheadError as caught:
        return (Finding("causality", False, str(caught)),)
    except MechanismError as wrong:
        return (Finding("interface", False, str(wrong)),)


def _reruns(tried: Trial) -> Iterator[Finding]:
    """What the checks find that replay days; those that rest on a failed one are left out."""
    read_back = [_judged(restore, tried), _judged(resume, tried)]
    if all(one.ok for one in read_back):
        yield Finding("determinism", True, "the same bytes from the run that was stopped and resumed")
    else:
        repeated = _judged(determinism, tried)
        yield repeated
        if not repeated.ok:
            return
    yield from read_back
    if all(one.ok for one in read_back):
        yield _judged(causality, tried)
        yield _judged(order, tried)


def _judged(check: Check, tried: Trial) -> Finding:
    """What a check finds; what the replay itself refuses is found by the check that met it."""
    try:
        return check(tried)
    except FinEvolveError as refused:
        return Finding(check.__name__.replace("_", " "), False, str(refused))


def assert_conforms(kind: type[Mechanism], settings: Mapping[str, Any]) -> None:
    """Raises `AssertionError` that lists every check that a mechanism fails; arguments as `conformance`."""
    failed = [f"- {one.check}: {one.detail}" for one in conformance(kind, settings) if not one.ok]
    if failed:
        raise AssertionError("\n".join([f"{kind.__name__} does not conform:", *failed]))
