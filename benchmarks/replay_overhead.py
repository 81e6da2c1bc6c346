"""What a prediction costs beside the model: `python benchmarks/replay_overhead.py [--last 2026-03-31]`.

Replays a synthetic world of 31 sectors for each mechanism from parquet tables into a fresh store, and takes the
backbone's own time off. Counted are: reading tables, news blocks, retrieval, prompts, parsing, freezing, commit.
Dagster's events are not in it. Days are compared by processor time, which other programs on the machine disturb
less. Where `inspect_ai` is installed, its mock model is timed in the same run.
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
from statistics import mean, median

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "replay"))

from replay_world import MemoryReader, small_reader, small_settings

from finevolve_pipeline.embedding import HashingEmbedder
from finevolve_pipeline.graph import Table
from finevolve_pipeline.llm.requests import Backbone, Reply, Request
from finevolve_pipeline.llm.rules.backbone import RulesBackbone
from finevolve_pipeline.replay.journal import ReplayStore
from finevolve_pipeline.replay.runner import DayDone, Parts, run
from finevolve_pipeline.settings import Experiment
from finevolve_pipeline.tables import NewsWindow, Outcomes
from finevolve_pipeline.universe import CODES
from resources.table_store import TableStore

HORIZONS = (10, 20, 40)


class TimedBackbone:
    """Another backbone, with the wall and processor seconds it took."""

    def __init__(self, inner: Backbone) -> None:
        self._inner = inner
        self.wall = 0.0
        self.cpu = 0.0

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def identity(self) -> dict[str, object]:
        return self._inner.identity

    async def answer(self, request: Request) -> Reply:
        wall, cpu = time.perf_counter(), time.process_time()
        reply = await self._inner.answer(request)
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

    def lap(self, _: DayDone) -> None:
        now = self._now()
        self.wall.append((now[0] - self._mark[0]) * 1e3 / len(CODES))
        self.cpu.append((now[1] - self._mark[1]) * 1e3 / len(CODES))
        self._mark = now


def stored_tables(reader: MemoryReader, home: Path) -> TableStore:
    """The same tables as parquet files."""
    store = TableStore(home)
    contracts = {"news_window": NewsWindow, "matured_alpha": Outcomes}
    for (name, partition), frame in reader.frames.items():
        table = Table(name, contracts[name], (partition,), lambda *_: (), lambda *_, f=frame: f, "benchmark")
        store.write(table, partition, frame, "benchmark")
    return store


def measured(mechanism: str, parts: Parts, backbone: TimedBackbone, root: Path) -> Stopwatch:
    """Replay the whole window once."""
    watch = Stopwatch(backbone)
    experiment = Experiment(mechanism=mechanism, backbone="rules")
    run(experiment, parts.settings.benchmark.sessions, parts, ReplayStore(root), watch.lap)
    return watch


def row(mechanism: str, watch: Stopwatch) -> str:
    """One line of the table. Single days are medians of eleven, since a day's fsync varies."""
    early, late = median(watch.cpu[24:35]), median(watch.cpu[-11:])
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
    given = arguments.parse_args()
    settings = small_settings(last=given.last, horizons=HORIZONS)
    sessions = settings.benchmark.sessions
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        memory = small_reader(sessions, HORIZONS, given.articles, given.characters)
        tables = stored_tables(memory, home)
        embedder = HashingEmbedder(settings.embedder.dimensions, settings.embedder.ngrams)
        print(f"{len(sessions)} sessions, {given.articles} articles a day of {given.characters} characters")
        print("Milliseconds a prediction beside the model; days by processor time.")
        print("| mechanism | wall | processor | (model) | day 30 | last day | last / day 30 |")
        print("|---|---|---|---|---|---|---|")
        for mechanism in ("pipe", "mem0", "memrl"):
            backbone = TimedBackbone(RulesBackbone())
            parts = Parts(settings, tables, backbone, embedder)
            print(row(mechanism, measured(mechanism, parts, backbone, home / "replay")), flush=True)
        used = sum(path.stat().st_size for path in (home / "replay").rglob("*") if path.is_file())
        print(f"\nReplay store: {used / 1e6:.1f} MB for {3 * len(sessions)} days")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"Peak memory, the generated tables included: {peak:.0f} MB")
    if importlib.util.find_spec("inspect_ai"):
        print(f"inspect_ai with its mock model: {inspect_milliseconds(300):.2f} ms a sample")


if __name__ == "__main__":
    main()
