"""The command `run`: materialise what is due, through Dagster, with progress; it resumes where it stopped."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import click
import dagster as dg
from rich.progress import Progress, TaskID

from assets.planning import (
    EVALUATION_LAYERS,
    INPUT_LAYERS,
    TRACEBACK,
    Layer,
    Materialiser,
    RunFailed,
    Wanted,
    asked_sessions,
    freshness,
    recorded,
    require_landed,
    want,
)
from assets.publishing import report_is_fresh
from finevolve_pipeline.cli.dagster_home import open_instance
from finevolve_pipeline.cli.ic import print_ic
from finevolve_pipeline.cli.output import Day, Pipeline, emit_json, json_option, messages, progress_bar
from finevolve_pipeline.definitions import build_defs
from finevolve_pipeline.errors import ExperimentLockedError, FinEvolveError, ReplayMismatchError, SettingsError
from finevolve_pipeline.graph import SINGLE
from finevolve_pipeline.replay.journal import ReplayStore
from finevolve_pipeline.replay.runner import verify
from finevolve_pipeline.settings import BUDGET_VARIABLE, CACHE_VARIABLE, CacheSettings, ModelSettings, Settings

_POLL_SECONDS = 0.2
_STOPPING_SECONDS = 10
"""Time for a replaying process to end when asked to; after that it is killed, which costs the day in work."""


@dataclass
class ProgressObserver:
    """Moves the bars of a progress display as partitions are done."""

    progress: Progress
    tasks: dict[str, TaskID]

    def done(self, table: str, partition: str, reused: bool) -> None:
        """One partition of a table is durable."""
        task = self.tasks.get(table)
        if task is not None:
            self.progress.advance(task)


@click.command("run")
@click.option("--from", "first", type=Day(), help="First session (default: the window's first).")
@click.option("--to", "last", type=Day(), help="Last session, or the one before that day (default: the window's last).")
@click.option("--mechanism", "mechanisms", multiple=True, help="Only these mechanisms (repeatable).")
@click.option("--backbone", "backbones", multiple=True, help="Only these backbones (repeatable).")
@click.option("--seed", "seeds", type=click.IntRange(0), multiple=True, help="Only these seeds (repeatable).")
@click.option("--jobs", type=click.IntRange(1, 64), default=None, help="Processes that replay (default: cores).")
@click.option(
    "--cache",
    type=click.Choice(get_args(CacheSettings.model_fields["mode"].annotation)),
    help="What is done with answers given before: use them, refresh them, or ask nobody (replay-only).",
)
@click.option("--budget", type=click.FloatRange(min=0), help="USD that this home may spend in all.")
@json_option
def run_command(
    first: dt.date | None,
    last: dt.date | None,
    mechanisms: tuple[str, ...],
    backbones: tuple[str, ...],
    seeds: tuple[int, ...],
    jobs: int | None,
    cache: str | None,
    budget: float | None,
    as_json: bool,
) -> None:
    """Materialise what is missing or stale, through Dagster: inputs, replay, information coefficients, report.

    An experiment is a chain: its days are replayed in order from the window's first session on, so --from reaches
    back to the first day not yet replayed; stored days are kept. Stop it any time; the same command goes on where
    it stopped. Experiments that ask a model over the network share a process, its limits and its answers.
    """
    # Child processes read the same variables.
    for variable, value in ((CACHE_VARIABLE, cache), (BUDGET_VARIABLE, budget)):
        if value is not None:
            os.environ[variable] = str(value)
    pipeline = Pipeline.in_force()
    chosen = choose_experiments(pipeline.settings, mechanisms, backbones, seeds)
    sessions = asked_sessions(pipeline.graph, first, last)
    start = reaching_back(pipeline, chosen, sessions[0])
    wanted = want(pipeline.graph, pipeline.store, start, sessions[-1], chosen)
    require_landed(pipeline.graph, pipeline.store, wanted)
    _warn_of_missing_keys(pipeline.settings, chosen)
    for doubt in pipeline.settings.evaluation_doubts:
        messages.print(f"note: {doubt}")
    build_everything(pipeline, wanted, jobs or min(os.cpu_count() or 1, len(chosen)))
    if as_json:
        emit_json(summary(pipeline, wanted))
    else:
        print_ic(pipeline)
        messages.print(f"report: {pipeline.store.storage.root / 'report' / 'index.html'}")


def _warn_of_missing_keys(settings: Settings, experiments: Sequence[str]) -> None:
    """Say at the start what would stop the run later. It is no error: all answers may be cached or stored."""
    used = {settings.tagging.backbone, *(settings.experiment(key).backbone for key in experiments)}
    sections = (settings.backbones[name] for name in sorted(used))
    providers = {section.provider for section in sections if isinstance(section, ModelSettings)}
    for name in sorted(providers):
        variable = settings.providers[name].key_variable
        if variable and settings.cache.mode != "replay-only" and not os.environ.get(variable, "").strip():
            messages.print(f"environment variable {variable} is not set: provider {name} cannot be asked")


def choose_experiments(
    settings: Settings, mechanisms: Sequence[str], backbones: Sequence[str], seeds: Sequence[int]
) -> tuple[str, ...]:
    """Keys of the configured experiments with the given mechanisms, backbones and seeds (none given: all)."""
    asked: tuple[tuple[str, Sequence[object], Sequence[object]], ...] = (
        ("mechanism", mechanisms, settings.experiments.mechanisms),
        ("backbone", backbones, settings.experiments.backbones),
        ("seed", seeds, settings.experiments.seeds),
    )
    for name, given, known in asked:
        for value in given:
            if value not in known:
                raise SettingsError(
                    f"{name} {value!r}: not among {', '.join(map(str, known))}; add it under [experiments] in "
                    "finevolve.toml"
                )
    return tuple(
        e.key
        for e in settings.all_experiments
        if (not mechanisms or e.mechanism in mechanisms)
        and (not backbones or e.backbone in backbones)
        and (not seeds or e.seed in seeds)
    )


def reaching_back(pipeline: Pipeline, experiments: Sequence[str], first: dt.date) -> dt.date:
    """`first`, or the first session before it that one of the experiments has not replayed."""
    stored = [set(pipeline.store.replays.sessions(key)) for key in experiments]
    before = (s for s in pipeline.graph.sessions if s < first and not all(s in done for done in stored))
    return next(before, first)


def build_everything(pipeline: Pipeline, wanted: Wanted, jobs: int) -> None:
    """Inputs, then the replay, then evaluation and report; only what is due.

    An experiment that fails costs the others nothing: they are evaluated before its error is raised.

    Raises:
        ExperimentLockedError: another process replays one of the experiments; nothing has been done then.
        RunFailed: an experiment could not be replayed.
    """
    for key in wanted.experiments:
        pipeline.store.replays.require_unlocked(key)
    with open_instance(pipeline.home) as instance, progress_bar() as progress:
        observer = ProgressObserver(progress, {})
        materialiser = Materialiser(build_defs(pipeline.settings, pipeline.home, observer), instance)
        for layer in INPUT_LAYERS:
            _bring_up(pipeline, wanted, layer, materialiser, observer)
        failed = _replay_all(pipeline, wanted, jobs, progress, instance)
        left = wanted.without({key for one in failed for key in one.experiments})
        if left.experiments:
            for layer in EVALUATION_LAYERS:
                _bring_up(pipeline, left, layer, materialiser, observer)
            if not report_is_fresh(pipeline.graph, pipeline.store) or not recorded(instance, "report"):
                task = progress.add_task("report", total=1)
                materialiser.materialise(["report"])
                progress.advance(task)
        if not progress.tasks:
            messages.print("nothing is due: everything is stored and fresh")
    if failed and left.experiments:
        without = ", ".join(key for one in failed for key in one.experiments)
        messages.print(
            f"evaluated: {len(left.experiments)} of {len(wanted.experiments)} experiments, without {without}"
        )
    _raise_all([one.error for one in sorted(failed, key=lambda one: one.error.exit_code, reverse=True)])


def _bring_up(
    pipeline: Pipeline, wanted: Wanted, layer: Layer, materialiser: Materialiser, observer: ProgressObserver
) -> None:
    """Materialise a layer's due partitions: missing, stale, or stored by a run that died before it told Dagster."""
    due: set[str] = set()
    with pipeline.store.looking():
        for name in layer.tables:
            due.update(freshness(pipeline.graph, pipeline.store, wanted, name).due)
            told = recorded(materialiser.instance, name)
            due.update(key for key in wanted.partitions[name] if told.get(key) != pipeline.store.digest(name, key))
    if not due:
        return
    order = {key: position for position, key in enumerate(wanted.partitions[layer.tables[0]])}
    ranges = sorted(layer.split(sorted(due)), key=lambda pair: order.get(pair[0], 0))
    for name in layer.tables:
        covered = sum(
            sum(1 for key in wanted.partitions[name] if first <= key <= last and _same_source(key, first))
            for first, last in ranges
        )
        observer.tasks[name] = observer.progress.add_task(name, total=covered)
    for first, last in ranges:
        if first == SINGLE:
            materialiser.materialise(layer.tables)
        else:
            materialiser.materialise(layer.tables, first, last)


def _same_source(key: str, first: str) -> bool:
    return key.partition("|")[2] == first.partition("|")[2]


@dataclass(frozen=True)
class _Group:
    """Experiments that one process replays, and the first session that is due for any of them."""

    experiments: tuple[str, ...]
    first: dt.date


@dataclass(frozen=True)
class _Failure:
    """Experiments whose process failed, and of what."""

    experiments: tuple[str, ...]
    error: FinEvolveError


@dataclass
class _Child:
    """A process that replays experiments, and where it writes what it has to say."""

    group: _Group
    process: subprocess.Popen[bytes]
    log: Path
    tasks: dict[str, TaskID]


def _replay_all(
    pipeline: Pipeline, wanted: Wanted, jobs: int, progress: Progress, instance: dg.DagsterInstance
) -> list[_Failure]:
    """Every experiment up to the last wanted session, in `jobs` processes at once.

    One process's failure does not stop the others; it is among those returned when all have ended.
    """
    last = wanted.sessions[-1]
    waiting = _groups(pipeline.settings, _due_experiments(pipeline, wanted, recorded(instance, "replay")))
    running: list[_Child] = []
    failures: list[_Failure] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(_start_child(pipeline, waiting.pop(0), last, progress))
            time.sleep(_POLL_SECONDS)
            for child in list(running):
                for key, task in child.tasks.items():
                    progress.update(task, completed=_stored(pipeline.store.replays, key, last))
                code = child.process.poll()
                if code is not None:
                    running.remove(child)
                    failures += _failures(child, code)
    finally:
        for child in running:
            child.process.terminate()
        for child in running:
            try:
                child.process.wait(_STOPPING_SECONDS)
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
    return failures


def _groups(settings: Settings, due: Sequence[tuple[str, dt.date]]) -> list[_Group]:
    """Due experiments by process. Those that wait for a network stand together, as far as they are neighbours in the
    settings' order (a Dagster run takes a range); those that compute have a process each."""
    order = [experiment.key for experiment in settings.all_experiments]
    groups: list[_Group] = []
    for key, first in due:
        before = groups[-1] if groups else None
        follows = before is not None and order.index(before.experiments[-1]) + 1 == order.index(key)
        if before is not None and follows and all(_waits(settings, one) for one in (key, before.experiments[-1])):
            groups[-1] = _Group((*before.experiments, key), min(before.first, first))
        else:
            groups.append(_Group((key,), first))
    return groups


def _waits(settings: Settings, key: str) -> bool:
    return isinstance(settings.backbones[settings.experiment(key).backbone], ModelSettings)


def _due_experiments(pipeline: Pipeline, wanted: Wanted, told: Mapping[str, str]) -> list[tuple[str, dt.date]]:
    """The experiments with something to do, and where each begins.

    Raises:
        ReplayMismatchError: stored days do not fit; every such experiment is named before.
    """
    due: list[tuple[str, dt.date]] = []
    refused: list[FinEvolveError] = []
    for key in wanted.experiments:
        try:
            first = _first_due(pipeline, key, wanted.sessions[-1], told)
        except ReplayMismatchError as mismatch:
            refused.append(mismatch)
            continue
        if first is not None:
            due.append((key, first))
    _raise_all(refused)
    return due


def _raise_all(failures: Sequence[FinEvolveError]) -> None:
    for failure in failures[:-1]:
        click.echo(f"error: {failure}", err=True)
    if failures:
        raise failures[-1]


def _first_due(pipeline: Pipeline, key: str, last: dt.date, told: Mapping[str, str]) -> dt.date | None:
    """The first session that is not stored, or that a run stored but died before it told Dagster.

    Raises:
        ReplayMismatchError: a stored day does not fit the present inputs, settings or code.
    """
    experiment = pipeline.settings.experiment(key)
    verified = verify(experiment, pipeline.parts(experiment), pipeline.store.replays)
    stored = {manifest.session: manifest.digest for manifest in verified}
    for session in pipeline.graph.sessions:
        if session > last:
            return None
        if session not in stored or told.get(f"{session}|{key}") != stored[session]:
            return session
    return None


def _start_child(pipeline: Pipeline, group: _Group, last: dt.date, progress: Progress) -> _Child:
    keys = group.experiments
    log = pipeline.home / "logs" / f"replay-{keys[0]}-{os.getpid()}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    arguments = [keys[0], keys[-1], group.first.isoformat(), last.isoformat(), str(os.getpid())]
    with open(log, "wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "finevolve_pipeline.cli.replay_child", *arguments],
            stdout=sink,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "FINEVOLVE_HOME": str(pipeline.home)},
        )
    total = sum(session <= last for session in pipeline.graph.sessions)
    tasks = {
        key: progress.add_task(f"replay {key}", total=total, completed=_stored(pipeline.store.replays, key, last))
        for key in keys
    }
    return _Child(group, process, log, tasks)


def _stored(store: ReplayStore, experiment: str, last: dt.date) -> int:
    return sum(session <= last for session in store.sessions(experiment))


def _failures(child: _Child, code: int) -> list[_Failure]:
    """What a process that has ended failed of, nothing if it succeeded; its log is kept for the former only."""
    if code == 0:
        child.log.unlink(missing_ok=True)
        return []
    lines = child.log.read_text("utf-8", "replace").strip().splitlines()
    said = next((line.removeprefix("error: ") for line in reversed(lines) if line.startswith("error: ")), None)
    experiments = child.group.experiments
    if code == ExperimentLockedError.exit_code and said:
        return [_Failure(experiments, ExperimentLockedError(said))]
    told = said or f"replay of {', '.join(experiments)} ended with code {code}; see {child.log}"
    if said and TRACEBACK in lines:
        told = f"{said}; its traceback is in {child.log}"
    return [_Failure(experiments, RunFailed(told))]


def summary(pipeline: Pipeline, wanted: Wanted) -> dict[str, object]:
    """What a program wants to know of a finished run."""
    return {
        "sessions": len(wanted.sessions),
        "first_session": wanted.sessions[0],
        "last_session": wanted.sessions[-1],
        "experiments": {key: pipeline.store.replays.head_digest(key) for key in wanted.experiments},
        "ic_matrix": pipeline.store.digest("ic_matrix", SINGLE),
        "report": str(pipeline.store.storage.root / "report" / "index.html"),
        "settings_digest": pipeline.settings.digest,
    }
