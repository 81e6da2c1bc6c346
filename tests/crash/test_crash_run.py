"""Kill −9 anywhere in the whole pipeline, then the same command: nothing lost, nothing twice, the same bytes.

The processes are those of the command line; `changes.die` of the small world makes them die at a chosen call.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "end_to_end"))

from small_world import (
    FIRST,
    LAST,
    SESSIONS,
    Finevolve,
    Running,
    command_line,
    contents,
    copied,
    import_arguments,
    leftovers,
    write_small_world,
)

from finevolve_pipeline.cli.dagster_home import join_instance
from finevolve_pipeline.replay.journal import ReplayStore
from resources.table_store import TableStore

pytestmark = pytest.mark.slow

KEY = "memrl-rules"
UNFINISHED = {"NOT_STARTED", "STARTING", "STARTED", "CANCELING"}


@dataclass(frozen=True)
class Point:
    """Where a process dies.

    Attributes:
        stage: what is done before: `imported`, `inputs` (all up to the replay) or `replayed`.
        death: arguments of `changes.die`.
        in_a_run: whether a Dagster run is in progress then.
        replaying: whether it is the process that replays, not `finevolve run` itself.
    """

    stage: str
    death: tuple[Any, ...]
    in_a_run: bool = True
    replaying: bool = False


WRITE = "resources.table_store.write_atomically"
TELL = "dagster.AssetExecutionContext.log_event"
FOLDERS = "finevolve_pipeline.evaluation.folders"

POINTS: dict[str, Point] = {
    "Dagster's databases made, not in place": Point("imported", ("dagster.DagsterInstance.get", "after", 1), False),
    "in a layer, between two partitions": Point("imported", (WRITE, "before", 5, "/raw_news/")),
    "in a layer, a partition half written": Point("imported", ("os.replace", "before", 9, "/raw_news/")),
    "a partition stored, Dagster not told": Point("imported", (TELL, "before", 12)),
    "in the second table of a layer": Point("imported", (WRITE, "after", 6, "/tagged_articles/")),
    "in the windows": Point("imported", (WRITE, "before", 4, "/news_window/")),
    "a table without partitions stored, Dagster not told": Point("imported", (WRITE, "after", 1, "/alpha/")),
    "inputs done": Point("imported", ("finevolve_pipeline.cli.run._replay_all", "before", 1), False),
    "in a replayed day": Point(
        "inputs", ("finevolve_pipeline.replay.journal.write_atomically", "before", 2, "/2025-01-03/"), replaying=True
    ),
    "between a day's commit and its event": Point(
        "inputs", ("finevolve_pipeline.replay.journal.ReplayStore.commit", "after", 2), replaying=True
    ),
    "between a day's event and the next day": Point("inputs", (TELL, "after", 4), replaying=True),
    "replay done": Point("inputs", ("finevolve_pipeline.cli.run._replay_all", "after", 1), False),
    "in the evaluation, nothing stored": Point("replayed", (WRITE, "before", 1, "/ic_by_experiment/")),
    "in the evaluation, Dagster not told": Point("replayed", (TELL, "before", 1)),
    "in the evaluation, a table half written": Point("replayed", ("os.replace", "before", 1, "/ic_matrix/")),
    "in the evaluation, between two tables": Point("replayed", (WRITE, "after", 1, "/ic_matrix/")),
    "in the report, some files written": Point("replayed", ("pathlib.Path.write_text", "after", 2, "-report/")),
    "the report built, not in place": Point("replayed", (f"{FOLDERS}._flush", "before", 1)),
    "the report in place, not noted": Point("replayed", (f"{FOLDERS}._replace", "after", 1)),
    "the report noted, Dagster not told": Point("replayed", ("assets.publishing.write_atomically", "after", 1)),
}


QUICK = (
    "in a layer, a partition half written",
    "a partition stored, Dagster not told",
    "inputs done",
    "in a replayed day",
    "between a day's commit and its event",
    "replay done",
    "in the evaluation, Dagster not told",
    "the report built, not in place",
    "the report in place, not noted",
)
"""Points at which one home dies, one after the other; each of the others is tried alone among the slow tests."""


@pytest.fixture(scope="module")
def finevolve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finevolve]:
    with command_line(tmp_path_factory.mktemp("output")) as commands:
        yield commands


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_world(tmp_path_factory.mktemp("world"), mechanisms=["memrl"])


@pytest.fixture(scope="module")
def config(world: Path) -> Path:
    return world / "finevolve.toml"


@pytest.fixture(scope="module")
def imported(finevolve: Finevolve, world: Path, config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("imported") / "home"
    for arguments in import_arguments(world):
        finevolve(*arguments, home=home, config=config).expect()
    return home


@pytest.fixture(scope="module")
def expected(finevolve: Finevolve, imported: Path, config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which nothing ever died."""
    home = copied(imported, tmp_path_factory.mktemp("uninterrupted") / "home")
    finevolve("run", home=home, config=config).expect()
    return home


def statuses(home: Path) -> list[str]:
    """Statuses of all Dagster runs, oldest first."""
    database = home / "dagster" / "history" / "runs.db"
    if not database.exists():
        return []
    with closing(sqlite3.connect(database)) as runs:
        return [status for (status,) in runs.execute("select status from runs order by id")]


def die(finevolve: Finevolve, home: Path, config: Path, point: Point) -> None:
    """Run the command until it dies at the point."""
    arguments = (KEY, KEY, str(FIRST), str(LAST)) if point.replaying else ("run",)
    dead = finevolve(*arguments, home=home, config=config, death=point.death, replay=point.replaying)
    assert dead.code == -signal.SIGKILL, f"{point}: ended with {dead.code}\n{dead.err}"


def assert_whole(home: Path, expected: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The home equals one in which nothing died, and Dagster knows everything in it."""
    assert contents(home) == contents(expected)
    assert leftovers(home) == []
    assert UNFINISHED.isdisjoint(statuses(home))
    monkeypatch.setenv("DAGSTER_HOME", "")
    store = TableStore(home)
    with join_instance(home) as instance:
        for name in ("raw_news", "articles", "tagged_articles", "benchmark_news", "news_window", "matured_alpha"):
            assert set(instance.get_materialized_partitions(dg.AssetKey(name))) == set(store.partitions(name)), name
        days = {f"{session}|{KEY}" for session in SESSIONS}
        assert set(instance.get_materialized_partitions(dg.AssetKey("replay"))) == days
        for name in ("alpha", "ic_matrix", "comparison", "inference", "report"):
            assert instance.get_latest_materialization_event(dg.AssetKey(name)) is not None, name


@pytest.fixture(scope="module")
def died_often(
    finevolve: Finevolve, imported: Path, config: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Path], dict[str, list[str]]]:
    """One home that died at the quick points, each time going on from the last death.

    Returns:
        The home; copies of it from the beginning of each stage; the statuses of its runs after each death.
    """
    folder = tmp_path_factory.mktemp("killed")
    home = copied(imported, folder / "home")
    stages: dict[str, Path] = {}
    seen: dict[str, list[str]] = {}
    for name in QUICK:
        point = POINTS[name]
        if point.stage not in stages:
            stages[point.stage] = copied(home, folder / point.stage)
        die(finevolve, home, config, point)
        seen[name] = statuses(home)
    return home, stages, seen


def test_a_home_that_died_often_ends_as_one_that_never_died(
    finevolve: Finevolve,
    config: Path,
    died_often: tuple[Path, dict[str, Path], dict[str, list[str]]],
    expected: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = copied(died_often[0], tmp_path / "home")
    finevolve("run", home=home, config=config).expect()
    assert_whole(home, expected, monkeypatch)
    assert statuses(home).count("FAILURE") == sum(POINTS[name].in_a_run for name in QUICK)


@pytest.mark.parametrize("name", QUICK)
def test_a_run_that_died_is_unfinished_until_the_next_command_calls_it_failed(
    died_often: tuple[Path, dict[str, Path], dict[str, list[str]]], name: str
) -> None:
    unfinished = [status in UNFINISHED for status in died_often[2][name]]
    assert (bool(unfinished) and unfinished[-1]) == POINTS[name].in_a_run
    # The process that replays leaves the tidying to `finevolve run`.
    if not POINTS[name].replaying:
        assert not any(unfinished[:-1])


@pytest.mark.parametrize("name", [name for name in POINTS if name not in QUICK])
def test_a_single_death_leaves_no_trace(
    finevolve: Finevolve,
    config: Path,
    died_often: tuple[Path, dict[str, Path], dict[str, list[str]]],
    expected: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    point = POINTS[name]
    home = copied(died_often[1][point.stage], tmp_path / "home")
    die(finevolve, home, config, point)
    finevolve("run", home=home, config=config).expect()
    assert_whole(home, expected, monkeypatch)


# -- imports and single commands


IMPORT_DEATHS: dict[str, tuple[int, tuple[Any, ...]]] = {
    "between two files of news": (0, ("resources.landing.write_atomically", "before", 10)),
    "in a file of news": (0, ("os.replace", "before", 7, "/news/")),
    "in a file of closes": (1, ("os.replace", "before", 12, "/industry_bars/")),
    "between two files of closes": (1, ("resources.landing.write_atomically", "after", 20)),
}


@pytest.mark.parametrize("name", IMPORT_DEATHS)
def test_an_import_that_died_lands_the_same_bytes(
    finevolve: Finevolve, world: Path, config: Path, imported: Path, tmp_path: Path, name: str
) -> None:
    which, death = IMPORT_DEATHS[name]
    home = tmp_path / "home"
    commands = import_arguments(world)
    for arguments in commands[:which]:
        finevolve(*arguments, home=home, config=config).expect()
    assert finevolve(*commands[which], home=home, config=config, death=death).code == -signal.SIGKILL
    assert contents(home) != contents(imported)
    for arguments in commands:
        finevolve(*arguments, home=home, config=config).expect()
    assert contents(home) == contents(imported)
    assert leftovers(home) == []


FOLDER_DEATHS: dict[str, tuple[Any, ...]] = {
    "some files written": ("pathlib.Path.write_text", "after", 2, "-report/"),
    "just before the swap": (f"{FOLDERS}._replace", "before", 1),
    "just after the swap": (f"{FOLDERS}._replace", "after", 1),
}


def test_a_report_that_replaces_another_is_whole_whenever_its_writer_dies(
    finevolve: Finevolve, config: Path, expected: Path, tmp_path: Path
) -> None:
    home = copied(expected, tmp_path / "home")
    for name, death in FOLDER_DEATHS.items():
        assert finevolve("report", home=home, config=config, death=death).code == -signal.SIGKILL, name
        assert contents(home) == contents(expected), name
        assert leftovers(home) != [], name
    finevolve("report", home=home, config=config).expect()
    assert contents(home) == contents(expected)
    assert leftovers(home) == []


# -- interrupts


def wait_for(what: Callable[[], bool], running: Running) -> None:
    """Wait until something has happened in a running command."""
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline, "it never happened"
        assert psutil.pid_exists(running.pid)
        time.sleep(0.01)


def test_an_interrupt_ends_a_run_at_once_and_the_same_command_goes_on(
    finevolve: Finevolve, config: Path, imported: Path, expected: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = copied(imported, tmp_path / "home")
    moments: list[tuple[signal.Signals, Callable[[], bool]]] = [
        (signal.SIGINT, lambda: len(list((home / "tables" / "raw_news").glob("*/*.parquet"))) > 4),
        (signal.SIGTERM, lambda: len(list((home / "tables" / "tagged_articles").glob("*.parquet"))) > 4),
        (signal.SIGINT, lambda: (home / "replay" / KEY).exists()),
    ]
    for sent, moment in moments:
        running = finevolve.start("run", home=home, config=config)
        wait_for(moment, running)
        os.killpg(running.pid, sent)
        outcome = running.wait().expect(130)
        assert outcome.err.splitlines()[-1] == "stopped"
        assert UNFINISHED.isdisjoint(statuses(home)), statuses(home)
    finevolve("run", home=home, config=config).expect()
    assert_whole(home, expected, monkeypatch)


# -- random moments


@pytest.mark.parametrize("group", [True, False], ids=["with its children", "alone"])
def test_killed_at_random_moments(
    finevolve: Finevolve,
    imported: Path,
    expected: Path,
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    group: bool,
) -> None:
    home = copied(imported, tmp_path / "home")
    chance = random.Random(7 + group)
    killed = 0
    for _ in range(8):
        running = finevolve.start("run", home=home, config=config)
        time.sleep(chance.uniform(0.5, 8))
        children = psutil.Process(running.pid).children(recursive=True)
        killed += running.kill(group).code == -signal.SIGKILL
        _, alive = psutil.wait_procs(children, timeout=10)
        assert alive == [], "a process outlives the run that started it"
        with ReplayStore(home / "replay").lock(KEY):
            pass
    assert killed >= 2
    finevolve("run", home=home, config=config).expect()
    assert_whole(home, expected, monkeypatch)
