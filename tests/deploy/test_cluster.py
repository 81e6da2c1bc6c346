"""A cluster on this machine: two workers with homes of their own, one object store, one Postgres, one Redis.

What it computes is compared, byte for byte, with a replay in this process on a local folder.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx
import psutil
import pytest
import yaml
from cluster import PROFILE, Cluster, Program
from cluster import running as running_cluster
from dagster_ui import FINISHED, Ui
from model_server import ModelServer
from model_server import running as running_server
from services import AbsentError, ServiceError, program
from small_world import SESSIONS, import_arguments, write_small_world

import finevolve_pipeline.files as files
from assets.partitioned import make_partitions
from assets.planning import want
from finevolve_pipeline.cli import cli
from finevolve_pipeline.definitions import build_graph
from finevolve_pipeline.replay.journal import LOCK
from finevolve_pipeline.replay.runner import Parts, run
from finevolve_pipeline.settings import load_settings
from resources.backbones import build_backbone
from resources.embedders import build_embedder
from resources.storage import DATABASE, STORAGE, Storage
from resources.table_store import TableStore

T = TypeVar("T")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

QUIET = ("pipe-served", "mem0-served")
TROUBLED = ("memrl-served", "reflexion-served")
INPUTS = (
    *("raw_news", "articles", "tagged_articles", "benchmark_news", "industry_bars", "benchmark_bars"),
    *("news_window", "matured_alpha"),
)
SECTIONS = """
[providers.loopback]
base_url = "{base_url}"
deployment = "loopback"
concurrency = 128

[backbones.served]
kind = "openai"
provider = "loopback"
model = "m"
context_window = 40000
max_tokens = 2000
price = {{ input = 1.0, cached_input = 0.1, output = 2.0 }}
"""


@pytest.fixture(scope="module")
def ground() -> Iterator[Path]:
    """A folder that Postgres' user may enter."""
    try:
        for name in ("initdb", "redis-server"):
            program(name)
    except AbsentError as absent:
        pytest.skip(str(absent))
    with tempfile.TemporaryDirectory(prefix="finevolve-cluster-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(scope="module")
def local(ground: Path) -> Iterator[Path]:
    """A home of the local profile with all four experiments replayed; settings in its folder `world`."""
    with running_server(ModelServer(latency=0.25)) as server, pytest.MonkeyPatch.context() as patch:
        home = ground / "local"
        world = write_small_world(home / "world", tuple(key.partition("-")[0] for key in (*QUIET, *TROUBLED)))
        config = world / "finevolve.toml"
        text = config.read_text() + 'backbones = ["served"]\n' + SECTIONS.format(base_url=server.base_url)
        config.write_text(text)
        for name in (STORAGE, DATABASE):
            patch.delenv(name, raising=False)
        patch.setenv("FINEVOLVE_HOME", str(home))
        patch.setenv("FINEVOLVE_CONFIG", str(config))
        for arguments in import_arguments(world):
            cli.main(arguments, standalone_mode=False)
        settings = load_settings(config)
        graph, store = build_graph(settings, home), TableStore(home)
        wanted = want(graph, store)
        for name in INPUTS:
            for _ in make_partitions(graph.tables[name], wanted.partitions[name], store, lambda frame: {}):
                pass
        for experiment in settings.all_experiments:
            backbone = build_backbone(experiment.backbone, settings, home, experiment.key)
            parts = Parts(settings, store, backbone, build_embedder(settings, home))
            run(experiment, settings.benchmark.sessions, parts, store.replays, lambda day: None)
        yield home


def contents(root: Path, experiment: str) -> dict[str, bytes]:
    """All files of an experiment by name, but the lock, which says who holds it."""
    folder = root / "replay" / experiment
    names = [name for name in files.files_below(folder) if name != LOCK]
    return dict(zip(names, files.read_many([folder / name for name in names]), strict=True))


@dataclass(frozen=True)
class Stage:
    """A running cluster and its UI."""

    cluster: Cluster
    ui: Ui
    root: Path

    def days(self, experiment: str) -> int:
        """Committed days."""
        return len(TableStore(self.cluster.home(1)).replays.sessions(experiment))


@pytest.fixture(scope="module")
def stage(local: Path, ground: Path) -> Iterator[Stage]:
    """Two workers on two machines; all inputs of the replay lie on the object store, no answer is known."""
    with pytest.MonkeyPatch.context() as patch:
        profile = ground / PROFILE.name
        settings = yaml.safe_load(PROFILE.read_text())
        settings["run_launcher"]["config"]["lost_after_seconds"] = 8
        settings["run_monitoring"]["poll_interval_seconds"] = 3
        profile.write_text(yaml.safe_dump(settings))
        patch.setattr("cluster.PROFILE", profile)
        patch.delenv(STORAGE, raising=False)
        config = local / "world" / "finevolve.toml"
        with running_cluster(Cluster(ground / "home", config, workers=2, machines=2)) as cluster:
            for name, value in cluster.variables().items():
                patch.setenv(name, value)
            root = Storage.of(cluster.home(1)).root
            for name in files.files_below(local):
                if name.startswith(("tables/", "landing/")) or name == "sources.json":
                    files.write_atomically(root / name, (local / name).read_bytes())
            yield Stage(cluster, Ui(cluster.url, cluster.folder / "logs" / "daemon.log"), root)


def keys_of(*experiments: str) -> list[str]:
    return [f"{session}|{experiment}" for experiment in experiments for session in SESSIONS]


def test_a_backfill_from_the_ui_leaves_the_bytes_of_the_local_profile(stage: Stage, local: Path) -> None:
    ui = stage.ui
    backfill = ui.backfill("replay", keys_of(*QUIET))
    assert ui.finished(backfill, 300) == "COMPLETED_SUCCESS"
    runs = ui.runs(backfill)
    assert [(one.first, one.last, one.status) for one in runs] == [
        (f"{SESSIONS[0]}|{key}", f"{SESSIONS[-1]}|{key}", "SUCCESS") for key in sorted(QUIET)
    ]
    assert set(keys_of(*QUIET)) == ui.partitions("replay").materialized
    assert max(one.started for one in runs) < min(one.ended for one in runs), "one waited for the other"
    for key in QUIET:
        assert contents(stage.root, key) == contents(local, key)
    for machine in (1, 2):
        found = {path.name for path in stage.cluster.home(machine).iterdir()}
        assert not found & {"replay", "tables", "landing"}, "state on a machine that may be lost"


def status(ui: Ui, backfill: str) -> str:
    """Status of a backfill, unknown while the UI has no answer."""
    return answered(lambda: ui.status(backfill)) or "unknown"


def statuses(ui: Ui, backfill: str) -> set[str]:
    """Statuses of a backfill's runs."""
    return {one.status for one in answered(lambda: ui.runs(backfill)) or ()}


def materialized(ui: Ui) -> frozenset[str]:
    """Partitions of the replay that are green."""
    found = answered(lambda: ui.partitions("replay"))
    return frozenset() if found is None else found.materialized


def answered(ask: Callable[[], T]) -> T | None:
    """What the UI answers; nothing while its database is away, and once more for each connection that it had to it."""
    try:
        return ask()
    except httpx.HTTPStatusError:
        return None


@contextmanager
def stopped(worker: Program) -> Iterator[None]:
    """A worker whose processes all stand still, and then are no more."""
    os.killpg(worker.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        worker.kill()


def test_a_lost_machine_and_restarts_of_redis_and_postgres_change_no_byte(stage: Stage, local: Path) -> None:
    cluster, ui = stage.cluster, stage.ui
    backfill = ui.backfill("replay", keys_of(*TROUBLED))
    ui.wait("two days of each", 300, lambda: all(stage.days(key) >= 2 for key in TROUBLED))
    with stopped(cluster.workers[2]):
        before = {key: contents(stage.root, key) for key in TROUBLED}
        lost = [key for key in TROUBLED if stage.days(key) < len(SESSIONS)]
        shutil.rmtree(cluster.home(2))
    assert lost, "both had ended: nothing was lost"
    cluster.redis.restart()
    cluster.postgres.restart()
    cluster.guard(cluster.redis.pid)
    cluster.guard(cluster.postgres.pid)
    cluster.start_worker(2)
    ui.wait(f"backfill {backfill} to end", 400, lambda: status(ui, backfill) in FINISHED)
    ui.wait("success", 60, lambda: status(ui, backfill) == "COMPLETED_SUCCESS")
    ui.wait("a run that was lost", 60, lambda: "FAILURE" in statuses(ui, backfill))
    ui.wait("all green", 60, lambda: set(keys_of(*TROUBLED)) <= materialized(ui))
    for key in TROUBLED:
        after = contents(stage.root, key)
        assert {name: after[name] for name in before[key]} == before[key]
        assert after == contents(local, key)


KEEPER = """
import sys
from pathlib import Path
from cluster import Cluster
cluster = Cluster(Path(sys.argv[1]), workers=1)
cluster.start_services()
print(*(one.pid for one in cluster.services), flush=True)
sys.stdin.read()
"""


def test_nothing_outlives_a_cluster_that_was_killed(ground: Path) -> None:
    deploy = Path(PROFILE).parent
    command = [sys.executable, "-c", KEEPER, str(ground / "killed")]
    environment = {**os.environ, "PYTHONPATH": f"{deploy}{os.pathsep}{deploy.parent}"}
    environment.pop(STORAGE, None)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as keeper:
        assert keeper.stdout is not None
        family = [psutil.Process(int(pid)) for pid in keeper.stdout.readline().split()]
        family += [child for one in family for child in one.children(recursive=True)]
        assert len(family) > 3
        assert all(one.is_running() for one in family)
        with pytest.raises(ServiceError, match="a cluster runs there; stop it"):
            Cluster(ground / "killed").start_services()
        keeper.kill()
        _, left = psutil.wait_procs(family, timeout=20)
        assert [one for one in left if one.status() != psutil.STATUS_ZOMBIE] == []
