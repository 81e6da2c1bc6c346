"""Makes the helper modules of this folder importable for its tests, and gives one engine to all of them."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))

from engine import Engine, at_work


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Scrapy at work, in a process of its own that crawls one job after another."""
    with at_work(tmp_path_factory.mktemp("engine") / "log") as working:
        yield working
