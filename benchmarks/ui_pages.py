"""How soon the Dagster UI shows the partition health of every asset, at full size, in a real browser.

    python benchmarks/ui_pages.py --rounds 3

An instance is filled with one event for each partition of every asset (twelve experiments x 299 sessions, all days of
nine sources), `dagster dev` is started on it, and a Chromium opens the page of one asset after another: *Partitions*,
or *Overview* for an asset without partitions. Time runs from the beginning of the navigation to the moment at which
the page shows all counts. The first round meets a server that was just started; of the later ones the median counts.
Processor time is that of everything meanwhile: webserver, code server, daemon and browser.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "end_to_end"))

from asset_pages import Health, browser_page, seconds_to_health
from dagster_ui import dagster_dev
from full_size import every_partition, write_full_size


def processor_seconds() -> float:
    """Processor time that the present descendants of this process have taken so far."""
    taken = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        taken += times.user + times.system
    return taken


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="after the first")
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        config = write_full_size(home, {}, {})
        every = every_partition(home, config)
        taken: dict[str, list[tuple[float, float]]] = {asset: [] for asset in every}
        with dagster_dev(home, config, Path(folder) / "dagster-dev.log") as ui, browser_page() as page:
            for _ in range(1 + rounds):
                for asset, partitions in every.items():
                    health = Health(len(partitions), 0, 0) if partitions else None
                    before = processor_seconds()
                    clock = seconds_to_health(page, ui.url, asset, health)
                    taken[asset].append((clock, processor_seconds() - before))
    print("| asset | partitions | first, s | processor, s | later, s | processor, s |\n|---|---:|---:|---:|---:|---:|")
    for asset, (first, *later) in taken.items():
        medians = [statistics.median(figures) for figures in zip(*later, strict=True)]
        figures = " | ".join(f"{figure:.2f}" for figure in (*first, *medians))
        print(f"| {asset} | {len(every[asset]) or '-'} | {figures} |")
    print(f"load of the machine, last 1, 5, 15 minutes: {', '.join(f'{load:.1f}' for load in os.getloadavg())}")


if __name__ == "__main__":
    main()
