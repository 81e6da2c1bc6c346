"""The whole window from the UI: a real daemon backfills three experiments x 299 sessions, and survives deaths.

Everything below `replay` is asked through GraphQL, as the UI does it.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import dagster as dg
import psutil
import pytest
import yaml
from dagster_ui import Ui, dagster_dev
from small_world import import_arguments

from assets.partitioned import make_partitions
from assets.planning import Materialiser, want
from finevolve_pipeline.cli import cli
from finevolve_pipeline.cli.dagster_home import dagster_home
from finevolve_pipeline.definitions import build_defs, build_graph
from finevolve_pipeline.graph import Graph
from finevolve_pipeline.replay.journal import LOCK, MANIFEST, ReplayStore
from finevolve_pipeline.replay.runner import Parts, run
from finevolve_pipeline.settings import Settings, load_settings
from finevolve_pipeline.synth.files import write_world
from finevolve_pipeline.synth.world import SynthSettings, generate
from resources.backbones import build_backbone
from resources.embedders import build_embedder
from resources.table_store import TableStore

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SOURCES = ("cls", "sina")
EXPERIMENTS = ("mem0-rules", "memrl-rules", "pipe-rules")
BEFORE_THE_WINDOW = ("raw_news", "articles", "tagged_articles", "benchmark_news", "industry_bars", "benchmark_bars")
WORLD = SynthSettings(
    first_session=date(2025, 1, 2), last_session=date(2026, 3, 31), articles_per_day=20, sources=SOURCES
)

DAYS = tuple(session.isoformat() for session in WORLD.sessions)

SETTINGS = """\
[experiments]
mechanisms = ["pipe", "mem0", "memrl"]

[benchmark]
first_session = {first}
last_session = {last}

[market]
first_session = {first_bar}
last_session = {last_bar}

[news]
first_day = 2024-12-21
last_day = {last}
sources = ["cls", "sina"]
"""


@dataclass(frozen=True)
class Home:
    """A home folder with all inputs of the replay."""

    path: Path

    @property
    def config(self) -> Path:
        """Its settings file."""
        return self.path / "world" / "finevolve.toml"

    @property
    def settings(self) -> Settings:
        """Its settings."""
        return load_settings(self.config)

    @property
    def graph(self) -> Graph:
        """Its graph."""
        return build_graph(self.settings, self.path)

    @property
    def replays(self) -> ReplayStore:
        """Its replays."""
        return ReplayStore(self.path / "replay")

    def copy(self, to: Path) -> Home:
        """An independent copy."""
        shutil.copytree(self.path, to)
        return Home(to)

    def days(self, experiment: str) -> dict[str, int]:
        """Committed days and when their manifests were written, in nanoseconds."""
        store = self.replays
        return {
            session.isoformat(): (store.folder(experiment, session) / MANIFEST).stat().st_mtime_ns
            for session in store.sessions(experiment)
        }

    def contents(self, experiment: str) -> dict[str, bytes]:
        """Bytes of all files of an experiment, by path. The lock says who holds it and is no result."""
        folder = self.replays.folder(experiment)
        return {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name != LOCK
        }

    @contextmanager
    def instance(self) -> Iterator[dg.DagsterInstance]:
        """Its Dagster instance."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DAGSTER_HOME", str(dagster_home(self.path)))
            with dg.DagsterInstance.get() as instance:
                yield instance

    def materializations(self) -> list[dg.AssetMaterialization]:
        """All materialisation events of `replay`, newest first."""
        with self.instance() as instance:
            records = instance.fetch_materializations(dg.AssetKey("replay"), limit=10_000).records
        found = [record.asset_materialization for record in records]
        return [event for event in found if event is not None]

    def reported(self) -> Counter[str]:
        """How many materialisation events each partition of `replay` has."""
        return Counter(str(event.partition) for event in self.materializations())


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home of 299 sessions whose replay has not begun."""
    home = Home(tmp_path_factory.mktemp("inputs") / "home")
    folder = home.config.parent
    write_world(generate(WORLD), folder)
    bars = WORLD.bar_sessions
    home.config.write_text(
        SETTINGS.format(first=WORLD.first_session, last=WORLD.last_session, first_bar=bars[0], last_bar=bars[-1])
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FINEVOLVE_HOME", str(home.path))
        patch.setenv("FINEVOLVE_CONFIG", str(home.config))
        for arguments in import_arguments(folder):
            cli.main(arguments, standalone_mode=False)
    graph, store = home.graph, TableStore(home.path)
    wanted = want(graph, store)
    for name in BEFORE_THE_WINDOW:
        for _ in make_partitions(graph.tables[name], wanted.partitions[name], store, lambda frame: {}):
            pass
    with home.instance() as instance:
        materialiser = Materialiser(build_defs(home.settings, home.path), instance)
        materialiser.materialise(["news_window", "matured_alpha"], DAYS[0], DAYS[-1])
    return home


@pytest.fixture(scope="module")
def uninterrupted(inputs: Home, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """The same home, replayed without Dagster and without a death."""
    home = inputs.copy(tmp_path_factory.mktemp("uninterrupted") / "home")
    settings = home.settings
    for experiment in settings.all_experiments:
        backbone = build_backbone(experiment.backbone, settings, home.path, experiment.key)
        parts = Parts(settings, TableStore(home.path), backbone, build_embedder(settings, home.path))
        run(experiment, settings.benchmark.sessions, parts, home.replays, lambda day: None)
    return home


@pytest.fixture(scope="class")
def packaged(inputs: Home, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, Ui]]:
    """A home with a running UI, under the packaged instance settings."""
    folder = tmp_path_factory.mktemp("packaged")
    home = inputs.copy(folder / "home")
    with dagster_dev(home.path, home.config, folder / "dagster-dev.log") as ui:
        yield home, ui


@pytest.fixture
def without_retries(inputs: Home, tmp_path: Path) -> Iterator[tuple[Home, Ui]]:
    """A home with a running UI in which a dead run stays dead."""
    home = inputs.copy(tmp_path / "home")
    target = dagster_home(home.path) / "dagster.yaml"
    settings = yaml.safe_load(target.read_text())
    target.write_text(yaml.safe_dump({**settings, "run_retries": {"enabled": False}}))
    with dagster_dev(home.path, home.config, tmp_path / "dagster-dev.log") as ui:
        yield home, ui


def keys_of(experiment: str, days: Sequence[str] = DAYS) -> list[str]:
    return [f"{day}|{experiment}" for day in days]


ALL = sorted(key for experiment in EXPERIMENTS for key in keys_of(experiment))


def ranges(ui: Ui, backfill: str) -> list[tuple[str, str, str]]:
    return [(run.first, run.last, run.status) for run in ui.runs(backfill)]


def over(experiment: str, first: str, status: str) -> tuple[str, str, str]:
    """A run from `first` to the window's end."""
    return f"{first}|{experiment}", f"{DAYS[-1]}|{experiment}", status


def test_the_window_has_299_sessions_and_three_experiments(inputs: Home) -> None:
    assert len(DAYS) == 299
    assert sorted(experiment.key for experiment in inputs.settings.all_experiments) == list(EXPERIMENTS)


def worker_of(home: Home, experiment: str) -> psutil.Process:
    """The process that replays an experiment: it has written its id into the lock."""
    return psutil.Process(int((home.replays.folder(experiment) / LOCK).read_text()))


class TestUnderThePackagedInstanceSettings:
    """One `dagster dev` serves both tests, in this order."""

    def test_a_backfill_is_one_run_for_each_experiment_and_all_days_turn_green(
        self, packaged: tuple[Home, Ui], uninterrupted: Home
    ) -> None:
        home, ui = packaged
        before = ui.partitions("replay")
        assert before.due == sorted(before.every) == ALL
        backfill = ui.backfill("replay", before.due)
        assert ui.finished(backfill, 600) == "COMPLETED_SUCCESS"
        assert ranges(ui, backfill) == [over(experiment, DAYS[0], "SUCCESS") for experiment in EXPERIMENTS]
        after = ui.partitions("replay")
        assert after.materialized == after.every
        assert not after.failed
        assert not after.materializing

        events = home.materializations()
        assert sorted(str(event.partition) for event in events) == ALL
        digests = {
            f"{session}|{experiment}": home.replays.manifest(experiment, session).digest
            for experiment in EXPERIMENTS
            for session in home.replays.sessions(experiment)
        }
        assert {str(event.partition): (event.tags or {})["dagster/data_version"] for event in events} == digests
        for experiment in EXPERIMENTS:
            assert home.contents(experiment) == uninterrupted.contents(experiment)

    def test_a_killed_worker_is_replaced_and_nobody_has_to_act(
        self, packaged: tuple[Home, Ui], uninterrupted: Home
    ) -> None:
        home, ui = packaged
        home.replays.reset("memrl-rules", date.fromisoformat(DAYS[40]))
        kept = home.days("memrl-rules")
        backfill = ui.backfill("replay", keys_of("memrl-rules"))
        ui.wait("more days of memrl-rules", 300, lambda: len(home.days("memrl-rules")) >= len(kept) + 30)
        worker_of(home, "memrl-rules").send_signal(signal.SIGKILL)
        assert ui.finished(backfill, 600) == "COMPLETED_SUCCESS"
        assert sorted(ranges(ui, backfill)) == [over("memrl-rules", DAYS[0], end) for end in ("FAILURE", "SUCCESS")]
        assert set(keys_of("memrl-rules")) <= ui.partitions("replay").materialized
        written = home.days("memrl-rules")
        assert {day: written[day] for day in kept} == kept
        assert home.contents("memrl-rules") == uninterrupted.contents("memrl-rules")


def stop_between_days(home: Home, ui: Ui, experiment: str, at_least: int) -> psutil.Process:
    """The process that replays an experiment, stopped when that many days are committed and all are reported."""

    def committed() -> int:
        return len(home.replays.sessions(experiment))

    ui.wait(f"{at_least} days of {experiment}", 300, lambda: committed() >= at_least)
    worker = worker_of(home, experiment)
    for _ in range(200):
        worker.send_signal(signal.SIGSTOP)
        reported = sum(key.endswith(f"|{experiment}") for key in home.reported())
        if reported == committed():
            return worker
        worker.send_signal(signal.SIGCONT)
        time.sleep(0.05)
    pytest.fail(f"{experiment}: never between two days; {committed()} committed")


def test_after_deaths_exactly_the_finished_days_are_green_and_the_rest_resumes(
    without_retries: tuple[Home, Ui], uninterrupted: Home
) -> None:
    """One worker is killed by the machine; the other two find an input missing on a day."""
    home, ui = without_retries
    window = TableStore(home.path).path("news_window", DAYS[150])
    away = window.rename(window.with_suffix(".away"))
    backfill = ui.backfill("replay", ALL)
    stop_between_days(home, ui, "memrl-rules", 60).send_signal(signal.SIGKILL)
    assert ui.finished(backfill, 600) == "COMPLETED_FAILED"
    assert ranges(ui, backfill) == [over(experiment, DAYS[0], "FAILURE") for experiment in EXPERIMENTS]

    finished = {experiment: home.days(experiment) for experiment in EXPERIMENTS}
    lengths = {experiment: len(days) for experiment, days in finished.items()}
    assert lengths == {"mem0-rules": 150, "memrl-rules": lengths["memrl-rules"], "pipe-rules": 150}
    assert 60 <= lengths["memrl-rules"] < 150
    assert all(tuple(days) == DAYS[: len(days)] for days in finished.values())
    after = ui.partitions("replay")
    assert sorted(after.materialized) == sorted(key for e, days in finished.items() for key in keys_of(e, list(days)))
    assert sorted(after.failed) == after.due == sorted(after.every - after.materialized)
    assert not after.materializing

    away.rename(window)
    again = ui.backfill("replay", after.due)
    assert ui.finished(again, 600) == "COMPLETED_SUCCESS"
    assert ranges(ui, again) == [over(e, DAYS[lengths[e]], "SUCCESS") for e in EXPERIMENTS]
    assert ui.partitions("replay").materialized == frozenset(ALL)
    assert sorted(home.reported().elements()) == ALL
    for experiment in EXPERIMENTS:
        written = home.days(experiment)
        assert {day: written[day] for day in finished[experiment]} == finished[experiment]
        assert home.contents(experiment) == uninterrupted.contents(experiment)
