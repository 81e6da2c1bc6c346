"""The UI at full size says of every asset's partitions what is so: 299 sessions x 12 experiments, every source's days.

How soon it says so is measured by `benchmarks/ui_pages.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

from asset_pages import CHROMIUM, Health, browser_page, seconds_to_health
from dagster_ui import dagster_dev
from full_size import every_partition, write_full_size

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on the path"),
]

FAILED = {
    "replay": [f"2026-03-{day}|mem0-rules" for day in (27, 30, 31)],
    "raw_news": ["2025-05-01|cls"],
    "matured_alpha": ["2025-01-02"],
}
MISSING = {
    "replay": [f"2026-03-{day}|{key}" for day in (30, 31) for key in ("pipe-rules", "expel-rules-noisy")],
    "raw_news": [f"2025-02-{day:02}|sina" for day in range(1, 29)],
    "articles": ["2024-02-29", "2025-02-28"],
    "ic_by_experiment": ["mem0-rules"],
}


def test_every_page_shows_the_partitions_that_are_materialised_failed_and_missing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    config = write_full_size(home, FAILED, MISSING)
    every = every_partition(home, config)
    assert len(every["replay"]) == 299 * 12
    assert len(every["raw_news"]) == len(every["articles"]) * 9
    with dagster_dev(home, config, tmp_path / "dagster-dev.log") as ui, browser_page() as page:
        for asset, partitions in every.items():
            failed, missing = len(FAILED.get(asset, ())), len(MISSING.get(asset, ()))
            health = Health(len(partitions) - failed - missing, failed, missing) if partitions else None
            assert seconds_to_health(page, ui.url, asset, health) > 0
        found = ui.partitions("replay")
        assert found.failed == set(FAILED["replay"])
        assert found.every - found.materialized - found.failed == set(MISSING["replay"])
