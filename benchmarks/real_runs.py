"""Wall time, calls, peak memory and disk of the real runs, from an empty folder to the information coefficients.

Run A: the telegraphs of 2026-02-05..2026-04-30 with real closes, all sessions of that span.
Run B: the hot titles with real closes, the whole window of 299 sessions.
Both with three mechanisms on the `rules` backbone.
Run C: as B, with the paper's six mechanisms on `rules` and its noisy variant; then its twelve experiments once more, as
one backfill from the Dagster UI.

    python benchmarks/real_runs.py --data ../shared/data --run A --run B --run C
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "end_to_end"))

from dagster_ui import dagster_dev

from finevolve_pipeline.replay.journal import ReplayStore

THREE = """\
[experiments]
mechanisms = ["pipe", "mem0", "memrl"]
"""
TWELVE = """\
[experiments]
backbones = ["rules", "rules-noisy"]
"""
CONFIG_A = """\
[benchmark]
first_session = 2026-02-05
last_session = 2026-04-30
[news]
sources = ["cls"]
"""
CONFIG_B = """\
[news]
sources = ["toutiao-hot-finance", "eastmoney-hot-topic", "xueqiu-hot-topic"]
"""
TITLES = "news/hot_titles_2024-03-24_2026-08-22.jsonl.gz"
RUNS = {
    "A": (CONFIG_A + THREE, "news/cls_telegraph_2026-02-05_2026-04-30.jsonl.gz"),
    "B": (CONFIG_B + THREE, TITLES),
    "C": (CONFIG_B + TWELVE, TITLES),
}


def resident(process: psutil.Process) -> Iterator[int]:
    """Resident bytes of a process and of each of its descendants; those that have just ended count nothing."""
    try:
        found = (process, *process.children(recursive=True))
    except psutil.NoSuchProcess:
        return
    for each in found:
        try:
            yield each.memory_info().rss
        except psutil.NoSuchProcess:
            continue


class Peaks:
    """The most memory that all processes together, and that one of them, took."""

    def __init__(self) -> None:
        self.together = 0
        self.one = 0

    def look(self, process: psutil.Process) -> None:
        """Look at a process and its descendants."""
        sizes = list(resident(process))
        self.together = max(self.together, sum(sizes))
        self.one = max(self.one, *sizes, 0)

    def __str__(self) -> str:
        return f"{self.together / 2**20:.0f} | {self.one / 2**20:.0f}"


@contextmanager
def watched(process: psutil.Process) -> Iterator[Peaks]:
    """The peaks of a process and its descendants during a block."""
    peaks, ended = Peaks(), threading.Event()

    def look() -> None:
        while not ended.wait(0.1):
            peaks.look(process)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield peaks
    finally:
        ended.set()
        looking.join()


def measure(arguments: list[str], environment: dict[str, str]) -> tuple[float, Peaks]:
    """Seconds and peaks of one `finevolve` command. Exits if the command fails."""
    start = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-m", "finevolve_pipeline.cli", *arguments], env=environment)
    with watched(psutil.Process(child.pid)) as peaks:
        code = child.wait()
    if code:
        sys.exit(f"finevolve {' '.join(arguments)}: exit code {code}")
    return time.perf_counter() - start, peaks


def heads(home: Path) -> dict[str, str | None]:
    """The last digest of every experiment."""
    store = ReplayStore(home / "replay")
    return {key: store.head_digest(key) for key in store.experiments()}


def calls(home: Path) -> int:
    """Requests that the backbones answered, over all experiments."""
    store = ReplayStore(home / "replay")
    return sum(store.manifest(key, day).usage.calls for key in store.experiments() for day in store.sessions(key))


def from_the_ui(home: Path, settings: Path) -> None:
    """Forget all days, and have the Dagster UI make them again; print a row and compare the bytes."""
    before = heads(home)
    store = ReplayStore(home / "replay")
    for key in before:
        store.reset(key, store.sessions(key)[0])
    with dagster_dev(home, settings, home / "ui.log") as ui, watched(psutil.Process(os.getpid())) as peaks:
        ready = time.perf_counter()
        status = ui.finished(ui.backfill("replay", sorted(ui.partitions("replay").every)), 7200)
    seconds = time.perf_counter() - ready
    same = "the same bytes" if heads(home) == before else "OTHER BYTES"
    print(f"| backfill from the UI ({status}, {same}) | {seconds:.1f} | {peaks} |", flush=True)


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def one_run(name: str, data: Path, home: Path) -> None:
    """Import and run; print one Markdown table."""
    config, news = RUNS[name]
    home.mkdir(parents=True, exist_ok=True)
    settings = home / "finevolve.toml"
    settings.write_text(config, "utf-8")
    environment = {**os.environ, "FINEVOLVE_HOME": str(home), "FINEVOLVE_CONFIG": str(settings)}
    market = data / "market"
    steps = {
        "import news": ["import", "news", str(data / news)],
        "import market": [
            "import",
            "market",
            *("--industries", str(market / "shenwan_l1_daily.csv")),
            *("--industry-volume-unit", "1e8-shares", "--industry-amount-unit", "1e8-yuan"),
            *("--benchmark", str(market / "csi1000_daily.csv")),
            *("--benchmark-volume-unit", "shares", "--benchmark-amount-unit", "yuan"),
        ],
        "run (empty to IC table and report)": ["run"],
        "run again (nothing to do)": ["run"],
    }
    print(f"\n### Run {name}\n\n| step | seconds | peak memory, MiB | of one process |\n|---|---:|---:|---:|")
    for title, arguments in steps.items():
        seconds, peaks = measure(arguments, environment)
        print(f"| {title} | {seconds:.1f} | {peaks} |", flush=True)
    if name == "C":
        from_the_ui(home, settings)
    print(f"\n{len(heads(home))} experiments, {calls(home):,} calls of a backbone")
    print("\n| folder | MiB |\n|---|---:|")
    for folder in ("landing", "tables", "replay", "report", "dagster"):
        print(f"| {folder} | {folder_bytes(home / folder) / 2**20:.1f} |")


def main() -> None:
    """Parse arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with news/ and market/")
    parser.add_argument("--run", action="append", choices=sorted(RUNS), help="default: all")
    parser.add_argument("--keep", type=Path, help="keep the homes below this folder")
    options = parser.parse_args()
    root = options.keep or Path(tempfile.mkdtemp(prefix="finevolve-bench-"))
    for name in options.run or sorted(RUNS):
        one_run(name, options.data.absolute(), root / f"run-{name}")
    if not options.keep:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
