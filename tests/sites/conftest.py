"""Makes the repository's root importable, so that `tests.sites` is found, and gives one shared server."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.sites.process import Running, running


@pytest.fixture(scope="session")
def _server() -> Iterator[Running]:
    with running("--days", "30", "--seed", "7") as server:
        yield server


@pytest.fixture
def sites(_server: Running) -> Running:
    """The nine sites of seed 7 over 30 days, without faults, with nothing asked yet and time at its start."""
    _server.order(clear=True, forget=True, now="2026-05-20T15:00:00+08:00", arrivals=None)
    return _server
