"""The whole pipeline with its state on an object store and its locks in Postgres: the same bytes as on a disk."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from small_world import COMPARED, Outcome, contents, import_arguments

from finevolve_pipeline.files import files_below, read_many
from resources.storage import DATABASE, STORAGE, Storage

pytestmark = pytest.mark.slow


def stored(home: Path) -> dict[str, str]:
    """As `small_world.contents`, of a home whose state lies on the object store."""
    root = Storage.of(home).root
    names = [name for name in files_below(root) if name.split("/")[0] in COMPARED]
    data = read_many([root / name for name in names])
    return {name: hashlib.sha256(one).hexdigest() for name, one in zip(names, data, strict=True)}


def test_import_run_and_export_leave_the_same_bytes_and_nothing_else_in_the_home(
    complete: Path, finevolve: Callable[..., Outcome], world: Path, shared: str, home: Path
) -> None:
    variables = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    variables |= {STORAGE: os.environ[STORAGE], DATABASE: os.environ[DATABASE]}

    def command(*arguments: object) -> Outcome:
        return finevolve(*arguments, home=home, environment=variables).expect()

    for arguments in import_arguments(world):
        command(*arguments)
    told = command("run", "--json").document
    assert told["report"] == f"{shared}/report/index.html"
    assert stored(home) == contents(complete)
    assert not any((home / name).exists() for name in (*COMPARED, "crawl", "market", "fetched"))
    status = command("status", "--json").document["assets"]
    assert not any(asset["stale"] or asset["missing"] for name, asset in status.items() if name == "replay")
    command("export", "release")
    assert "benchmark.parquet" in files_below(Storage.of(home).root / "release")
    # Where things are is in nothing that is kept: manifests, metadata and logs may be shown to others.
    secret = shared.removeprefix("s3://").encode()
    kept = [path for path in home.rglob("*") if path.is_file() and path.name != "answers.sqlite"]
    assert [path for path in kept if secret in path.read_bytes()] == []
