"""Wall time, peak memory and disk of the two real runs, from an empty folder to the information coefficients.

Run A: the telegraphs of 2026-02-05..2026-04-30 with real closes, all sessions of that span.
Run B: the hot titles with real closes, the whole window of 299 sessions.
Both with three mechanisms on the `rules` backbone.

    python benchmarks/real_runs.py --data ../shared/data --run A --run B
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

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
RUNS = {
    "A": (CONFIG_A, "news/cls_telegraph_2026-02-05_2026-04-30.jsonl.gz"),
    "B": (CONFIG_B, "news/hot_titles_2024-03-24_2026-08-22.jsonl.gz"),
}


def memory(process: psutil.Process) -> int:
    """Resident bytes of a process and all its descendants; those that have just ended count nothing."""
    total = 0
    for each in (process, *process.children(recursive=True)):
        try:
            total += each.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def measure(arguments: list[str], environment: dict[str, str]) -> tuple[float, int]:
    """Seconds and peak bytes of one `finevolve` command. Exits if the command fails."""
    start = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-m", "finevolve_pipeline.cli", *arguments], env=environment)
    watched, peak = psutil.Process(child.pid), 0
    while child.poll() is None:
        try:
            peak = max(peak, memory(watched))
        except psutil.NoSuchProcess:
            break
        time.sleep(0.1)
    if child.wait():
        sys.exit(f"finevolve {' '.join(arguments)}: exit code {child.returncode}")
    return time.perf_counter() - start, peak


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
    print(f"\n### Run {name}\n\n| step | seconds | peak memory, MiB |\n|---|---:|---:|")
    for title, arguments in steps.items():
        seconds, peak = measure(arguments, environment)
        print(f"| {title} | {seconds:.1f} | {peak / 2**20:.0f} |", flush=True)
    print("\n| folder | MiB |\n|---|---:|")
    for folder in ("landing", "tables", "replay", "report", "dagster"):
        print(f"| {folder} | {folder_bytes(home / folder) / 2**20:.1f} |")


def main() -> None:
    """Parse arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with news/ and market/")
    parser.add_argument("--run", action="append", choices=sorted(RUNS), help="default: both")
    parser.add_argument("--keep", type=Path, help="keep the homes below this folder")
    options = parser.parse_args()
    root = options.keep or Path(tempfile.mkdtemp(prefix="finevolve-bench-"))
    for name in options.run or sorted(RUNS):
        one_run(name, options.data.absolute(), root / f"run-{name}")
    if not options.keep:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
