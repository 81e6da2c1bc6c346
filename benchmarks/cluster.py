"""Twelve experiments on a cluster, backfilled from its UI, against a model server with a latency.

    python benchmarks/cluster.py                        four workers
    python benchmarks/cluster.py --workers 1 --workers 4    one after the other, and how much faster
    python benchmarks/cluster.py --keep                 the UI stays up until Ctrl-C

A synthetic world of 60 sessions; six mechanisms on two backbones behind tests/resources/model_server.py. Each number of
workers begins from an empty state: no answer is known before. Processor time is of the workers with all their runs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "end_to_end"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "deploy"))

from cluster import Cluster, running
from dagster_ui import FINISHED, Ui
from model_client import serving, statistics

from finevolve_pipeline.cli.synthetic import import_arguments, write_synthetic
from finevolve_pipeline.synth.world import SynthSettings

REPOSITORY = Path(__file__).resolve().parents[1]
MECHANISMS = ("pipe", "mem0", "memrl", "reflexion", "expel", "reasoningbank")
BACKBONES = ("one", "two")
GREEN_SECONDS = 3600.0
_SAMPLE_SECONDS, _LOOK_SECONDS = 2.0, 5.0

_GREEN = """
{ assetNodeOrError(assetKey: {path: ["replay"]}) { ... on AssetNode { partitionStats { numMaterialized } } } }
"""

_SETTINGS = """
[providers.bench]
base_url = "{base_url}"
deployment = "bench"
concurrency = 256

{backbones}
[experiments]
mechanisms = {mechanisms}
backbones = {names}
"""

_BACKBONE = """\
[backbones.{name}]
kind = "openai"
provider = "bench"
model = "{name}"
context_window = 40000
max_tokens = 4000
structured = "json_schema"
price = {{ input = 1.0, cached_input = 0.1, output = 2.0 }}
"""


@dataclass(frozen=True)
class Figures:
    """A backfill.

    Attributes:
        workers: how many.
        seconds: from the launch until the last partition was green.
        replaying: from the first run's start until the last one's end.
        processor: seconds of processor time that the workers took, each busy second of a core once.
        answers: requests that the model server saw.
    """

    workers: int
    seconds: float
    replaying: float
    processor: float
    answers: int


def write_world(folder: Path, base_url: str, sessions: int, mechanisms: Sequence[str]) -> list[list[str]]:
    """News, closes and settings of the experiments; the arguments of the import commands."""
    packaged = SynthSettings()
    world = SynthSettings(first_session=packaged.first_session, last_session=packaged.sessions[sessions - 1])
    files = write_synthetic(world, folder)
    with open(folder / "finevolve.toml", "a", encoding="utf-8") as settings:
        backbones = "".join(_BACKBONE.format(name=name) for name in BACKBONES)
        lists = {"mechanisms": list(mechanisms), "names": list(BACKBONES)}
        settings.write(_SETTINGS.format(base_url=base_url, backbones=backbones, **lists))
    return import_arguments(files)


def bring_inputs(cluster: Cluster, imports: Sequence[Sequence[str]]) -> None:
    """Everything that the replay reads, by the command line on the cluster."""
    environment = {**os.environ, **cluster.variables(), "PYTHONPATH": str(REPOSITORY)}
    for arguments in imports:
        command = [sys.executable, "-m", "finevolve_pipeline.cli", "import", *arguments]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    subprocess.run([sys.executable, __file__, "--inputs"], env=environment, check=True)


def materialise_inputs() -> None:
    """All layers before the replay, under the environment in force."""
    import dagster as dg

    from assets.planning import INPUT_LAYERS, Materialiser, freshness, want
    from finevolve_pipeline.cli.output import Pipeline
    from finevolve_pipeline.definitions import build_defs
    from finevolve_pipeline.graph import SINGLE

    pipeline = Pipeline.in_force()
    wanted = want(pipeline.graph, pipeline.store)
    with dg.DagsterInstance.get() as instance:
        materialiser = Materialiser(build_defs(pipeline.settings, pipeline.home), instance)
        for layer in INPUT_LAYERS:
            due = {key for name in layer.tables for key in freshness(pipeline.graph, pipeline.store, wanted, name).due}
            for first, last in layer.split(sorted(due)) if due else ():
                bounds = () if first == SINGLE else (first, last)
                materialiser.materialise(layer.tables, *bounds)


class Processor:
    """Processor time of processes and all that they start, sampled until the block ends."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._roots = [psutil.Process(pid) for pid in pids]
        self._spent: dict[tuple[int, float], float] = {}
        self._before: dict[tuple[int, float], float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Processor:
        self._look()
        self._before = dict(self._spent)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def seconds(self) -> float:
        """Since the block began."""
        return sum(spent - self._before.get(who, 0.0) for who, spent in self._spent.items())

    def _sample(self) -> None:
        while not self._over.wait(_SAMPLE_SECONDS):
            self._look()

    def _look(self) -> None:
        for root in self._roots:
            with contextlib.suppress(psutil.NoSuchProcess):
                for process in (root, *root.children(recursive=True)):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        times = process.cpu_times()
                        self._spent[process.pid, process.create_time()] = times.user + times.system


def backfill(cluster: Cluster, base_url: str) -> Figures:
    """Launch all partitions of `replay` in the UI and wait until all are green."""
    ui = Ui(cluster.url, cluster.folder / "logs" / "daemon.log")
    asked = statistics(base_url)["requests"]
    every = sorted(ui.partitions("replay").every)
    began = time.time()
    with Processor([worker.process.pid for worker in cluster.workers.values()]) as processor:
        launched = ui.backfill("replay", every)
        while (status := ui.status(launched)) not in FINISHED and time.time() < began + GREEN_SECONDS:
            green = ui.ask(_GREEN)["assetNodeOrError"]["partitionStats"]["numMaterialized"]
            print(f"\r{green} of {len(every)} partitions green", end="", file=sys.stderr, flush=True)
            time.sleep(_LOOK_SECONDS)
    print(file=sys.stderr)
    if status != "COMPLETED_SUCCESS" or ui.partitions("replay").due:
        raise SystemExit(f"backfill {launched}: {status}; see {cluster.folder / 'logs'}")
    runs = ui.runs(launched)
    first, last = min(run.started for run in runs), max(run.ended for run in runs)
    answers = int(statistics(base_url)["requests"] - asked)
    return Figures(len(cluster.workers), last - began, last - first, processor.seconds, answers)


def report(found: Sequence[Figures], latency: float) -> None:
    """A Markdown table; ratios are to the first row."""
    print(f"Model server of {latency:g} s latency\n")
    names = ("workers", "launch to green, s", "first to last run, s", "faster", "processor, s", "cores", "answers")
    print("| " + " | ".join(names) + " |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for one in found:
        faster = found[0].replaying / one.replaying
        print(
            f"| {one.workers} | {one.seconds:.0f} | {one.replaying:.0f} | {faster:.2f} | {one.processor:.0f} "
            f"| {one.processor / one.replaying:.2f} | {one.answers} |",
            flush=True,
        )


@contextlib.contextmanager
def cluster_of(home: Path, config: Path, workers: int) -> Iterator[Cluster]:
    """A cluster with the settings of the world."""
    with running(Cluster(home, config, workers)) as cluster:
        print(f"{workers} workers: {cluster.url}", file=sys.stderr, flush=True)
        yield cluster


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, action="append", help="repeatable (default: 4)")
    parser.add_argument("--sessions", type=int, default=60)
    parser.add_argument("--mechanism", action="append", choices=MECHANISMS, help="repeatable (default: all six)")
    parser.add_argument("--latency", type=float, default=0.2, help="of the model server, in seconds")
    parser.add_argument("--keep", action="store_true", help="leave the UI up until Ctrl-C")
    parser.add_argument("--inputs", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inputs:
        materialise_inputs()
        return
    found: list[Figures] = []
    for how in (signal.SIGINT, signal.SIGTERM):
        signal.signal(how, signal.default_int_handler)
    home = Path(os.environ.get("FINEVOLVE_HOME") or Path(".finevolve") / "cluster-demo").absolute()
    with serving("--latency", str(given.latency)) as base_url:
        imports = write_world(home / "world", base_url, given.sessions, given.mechanism or MECHANISMS)
        for workers in given.workers or [4]:
            with cluster_of(home, home / "world" / "finevolve.toml", workers) as cluster:
                bring_inputs(cluster, imports)
                found.append(backfill(cluster, base_url))
                if given.keep:
                    print(f"all green: {cluster.url}", flush=True)
                    with contextlib.suppress(KeyboardInterrupt):
                        threading.Event().wait()
    report(found, given.latency)


if __name__ == "__main__":
    main()
