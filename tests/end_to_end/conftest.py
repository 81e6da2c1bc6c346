"""The small world imported and run once, for the tests of this folder; each test works on a copy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from small_world import Finevolve, Outcome, command_line, copied, import_arguments, write_small_world

FreshHome = Callable[..., Path]


@pytest.fixture(scope="session")
def anywhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finevolve]:
    """The command line without a home and settings in force."""
    with command_line(tmp_path_factory.mktemp("output")) as finevolve:
        yield finevolve


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of the small world with all mechanisms."""
    return write_small_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="session")
def finevolve(anywhere: Finevolve, world: Path) -> Callable[..., Outcome]:
    """The command line with the small world's settings in force."""

    def run(*arguments: object, **how: Any) -> Outcome:
        return anywhere(*arguments, **{"config": world / "finevolve.toml", **how})

    return run


@pytest.fixture(scope="session")
def imported(finevolve: Callable[..., Outcome], world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home into which the small world has been imported. Look, do not touch."""
    home = tmp_path_factory.mktemp("imported") / "home"
    for arguments in import_arguments(world):
        finevolve(*arguments, home=home).expect()
    return home


@pytest.fixture(scope="session")
def first_run(
    finevolve: Callable[..., Outcome], imported: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Outcome]:
    """A home in which everything has been run once, and what `finevolve run --json` said."""
    home = copied(imported, tmp_path_factory.mktemp("complete") / "home")
    return home, finevolve("run", "--json", home=home).expect()


@pytest.fixture(scope="session")
def complete(first_run: tuple[Path, Outcome]) -> Path:
    """A home in which everything has been run once. Look, do not touch."""
    return first_run[0]


@pytest.fixture
def fresh(imported: Path, tmp_path: Path) -> Path:
    """A home of this test's own into which the small world has been imported."""
    return copied(imported, tmp_path / "home")


@pytest.fixture
def ready(complete: Path, tmp_path: Path) -> Path:
    """A home of this test's own in which everything has been run."""
    return copied(complete, tmp_path / "home")
