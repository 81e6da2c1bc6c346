"""What a prediction costs beside the model: `python benchmarks/replay_overhead.py [--last 2026-03-31]`.

Replays a synthetic world of 31 sectors for each mechanism from parquet tables into a fresh store, and takes the
backbone's own time off. Counted are: reading tables, news blocks, retrieval, prompts, parsing, freezing, commit.
Dagster's events are not in it without `--home`. Days are compared by processor time, which other programs on the
machine disturb less. Where `inspect_ai` is installed, its mock model is timed in the same run.

With `--home FOLDER` (a home on which `finevolve run` has run, and FINEVOLVE_CONFIG as then) the stored tables of that
home are replayed as Dagster runs in a throw-away instance: the figures then hold the events too.
"""

from __future__ import annotations

import argparse
import importlib.util
import resource
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "replay"))

from replay_world import MemoryReader, small_reader, small_settings

import assets.replay
from assets.planning import Materialiser
from finevolve_pipeline.cli.dagster_home import open_instance
from finevolve_pipeline.definitions import build_defs
from finevolve_pipeline.embedding import HashingEmbedder
from finevolve_pipeline.graph import Table, code_version
from finevolve_pipeline.llm.requests import Backbone, Call, Reply
from finevolve_pipeline.llm.rules.backbone import RulesBackbone
from finevolve_pipeline.llm.stand_in import StandIn
from finevolve_pipeline.replay.journal import ReplayStore
from finevolve_pipeline.replay.runner import DayDone, Parts, run
from finevolve_pipeline.settings import Experiment, load_settings
from finevolve_pipeline.tables import NewsWindow, Outcomes
from finevolve_pipeline.universe import CODES
from resources.table_store import TableStore

HORIZONS = (10, 20, 40)
HEAD = """Milliseconds a prediction beside the model; days by processor time.

| mechanism | wall | processor | (model) | day 30 | last day | last / day 30 |
|---|---:|---:|---:|---:|---:|---:|"""


class TimedBackbone(StandIn):
    """Another backbone, with the wall and processor seconds it took."""

    def __init__(self, inner: Backbone) -> None:
        super().__init__(inner)
        self.wall = 0.0
        self.cpu = 0.0

    async def answer(self, call: Call) -> Reply:
        wall, cpu = time.perf_counter(), time.process_time()
        reply = await super().answer(call)
        self.wall += time.perf_counter() - wall
        self.cpu += time.process_time() - cpu
        return reply


@dataclass
class Stopwatch:
    """Milliseconds a prediction of each day beside the backbone, by wall clock and by processor."""

    backbone: TimedBackbone
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._mark = self._now()

    def _now(self) -> tuple[float, float]:
        return time.perf_counter() - self.backbone.wall, time.process_time() - self.backbone.cpu

    def done(self, table: str, partition: str, reused: bool) -> None:
        """Hears of a finished day as Dagster's observer."""
        self.lap()

    def lap(self, _: DayDone | None = None) -> None:
        now = self._now()
        self.wall.append((now[0] - self._mark[0]) * 1e3 / len(CODES))
        self.cpu.append((now[1] - self._mark[1]) * 1e3 / len(CODES))
        self._mark = now


def stored_tables(reader: MemoryReader, home: Path) -> TableStore:
    """The same tables as parquet files."""
    store = TableStore(home)
    contracts = {"news_window": NewsWindow, "matured_alpha": Outcomes}
    for (name, partition), frame in reader.frames.items():
        table = Table(name, contracts[name], (partition,), lambda *_: (), lambda *_, f=frame: f, code_version())
        store.write(table, partition, frame, "benchmark")
    return store


def measured(mechanism: str, parts: Parts, backbone: TimedBackbone, root: Path) -> Stopwatch:
    """Replay the whole window once."""
    watch = Stopwatch(backbone)
    experiment = Experiment(mechanism=mechanism, backbone="rules")
    run(experiment, parts.settings.benchmark.sessions, parts, ReplayStore(root), watch.lap)
    return watch


def measured_in_dagster(mechanism: str, home: Path, scratch: Path) -> Stopwatch:
    """Replay the stored tables of a home as one Dagster run, into a fresh store and a fresh instance."""
    settings = load_settings()
    backbone = TimedBackbone(RulesBackbone())
    watch = Stopwatch(backbone)
    definitions = build_defs(settings, home, watch)
    definitions.resources["store"].replays = ReplayStore(scratch / "replay")
    assets.replay.build_backbone = lambda name, settings, home, experiment: backbone
    key = Experiment(mechanism=mechanism, backbone="rules").key
    sessions = settings.benchmark.sessions
    with open_instance(scratch) as instance:
        watch.lap()
        watch.wall.clear()
        watch.cpu.clear()
        Materialiser(definitions, instance).materialise(["replay"], f"{sessions[0]}|{key}", f"{sessions[-1]}|{key}")
    return watch


def row(mechanism: str, watch: Stopwatch) -> str:
    """One line of the table. Days are the cheapest of the twenty-one around them: other load only adds."""
    early, late = min(watch.cpu[19:40]), min(watch.cpu[-21:])
    model = watch.backbone.wall * 1e3 / len(watch.wall) / len(CODES)
    return (
        f"| {mechanism} | {mean(watch.wall):.2f} | {mean(watch.cpu):.2f} | {model:.2f} "
        f"| {early:.2f} | {late:.2f} | {late / early:.2f} |"
    )


def inspect_milliseconds(samples: int) -> float:
    """Milliseconds a sample of `inspect_ai` with its mock model takes, the second run of two."""
    from inspect_ai import Task, eval
    from inspect_ai.dataset import Sample
    from inspect_ai.model import get_model
    from inspect_ai.scorer import match
    from inspect_ai.solver import generate

    seconds = 0.0
    with tempfile.TemporaryDirectory() as logs:
        for _ in range(2):
            task = Task([Sample(input=f"{n}", target="x") for n in range(samples)], solver=generate(), scorer=match())
            started = time.perf_counter()
            eval(task, model=get_model("mockllm/model"), log_dir=logs, display="none")
            seconds = time.perf_counter() - started
    return seconds / samples * 1e3


def main() -> None:
    """Measure and print a Markdown table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--last", default="2026-03-31", help="last session; the first is 2025-01-02")
    arguments.add_argument("--articles", type=int, default=60, help="articles a calendar day")
    arguments.add_argument("--characters", type=int, default=120, help="characters of an article")
    arguments.add_argument("--home", type=Path, help="replay this home's stored tables through Dagster instead")
    arguments.add_argument("--mechanisms", nargs="+", default=load_settings().experiments.mechanisms)
    given = arguments.parse_args()
    if given.home:
        with tempfile.TemporaryDirectory() as folder:
            print(HEAD)
            for mechanism in given.mechanisms:
                print(row(mechanism, measured_in_dagster(mechanism, given.home.absolute(), Path(folder))), flush=True)
        print_inspect()
        return
    settings = small_settings(last=given.last, horizons=HORIZONS)
    sessions = settings.benchmark.sessions
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        memory = small_reader(sessions, HORIZONS, given.articles, given.characters)
        tables = stored_tables(memory, home)
        embedder = HashingEmbedder(settings.embedder.dimensions, settings.embedder.ngrams)
        print(f"{len(sessions)} sessions, {given.articles} articles a day of {given.characters} characters")
        print(HEAD)
        for mechanism in given.mechanisms:
            backbone = TimedBackbone(RulesBackbone())
            parts = Parts(settings, tables, backbone, embedder)
            print(row(mechanism, measured(mechanism, parts, backbone, home / "replay")), flush=True)
        used = sum(path.stat().st_size for path in (home / "replay").rglob("*") if path.is_file())
        print(f"\nReplay store: {used / 1e6:.1f} MB for {len(given.mechanisms) * len(sessions)} days")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"Peak memory, the generated tables included: {peak:.0f} MB")
    print_inspect()


def print_inspect() -> None:
    """The comparison, where it is installed."""
    if importlib.util.find_spec("inspect_ai"):
        print(f"inspect_ai with its mock model: {inspect_milliseconds(300):.2f} ms a sample")


if __name__ == "__main__":
    main()
