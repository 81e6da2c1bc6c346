"""A small world, built once with all its tables, and a copy of it for every test that changes something."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "end_to_end"))
sys.path.insert(0, str(Path(__file__).parent.parent / "resources"))

from asset_world import AssetWorld
from small_world import import_arguments, write_small_world

from finevolve_pipeline.cli import cli


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AssetWorld]:
    """The small world with every table materialised once. Look, do not touch."""
    files = write_small_world(tmp_path_factory.mktemp("world"))
    home, config = tmp_path_factory.mktemp("built") / "home", files / "finevolve.toml"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FINEVOLVE_HOME", str(home))
        patch.setenv("FINEVOLVE_CONFIG", str(config))
        for arguments in import_arguments(files):
            cli.main(arguments, standalone_mode=False)
    with AssetWorld.at(home, config) as world:
        world.build()
        yield world


@pytest.fixture
def world(built: AssetWorld, tmp_path: Path) -> Iterator[AssetWorld]:
    """A copy of the built world, of this test's own."""
    shutil.copytree(built.home, tmp_path / "home")
    with AssetWorld.at(tmp_path / "home", built.config) as found:
        yield found
