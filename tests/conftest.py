"""Fixtures for all tests: where real data lies, and a home of its own for every test that needs one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of real news and closes; the test is skipped where there is none."""
    folder = Path(os.environ.get("FINEVOLVE_REAL_DATA") or REPOSITORY.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip("no real data here (set FINEVOLVE_REAL_DATA)")
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh FINEVOLVE_HOME, with packaged settings in force."""
    monkeypatch.setenv("FINEVOLVE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FINEVOLVE_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"
