"""The packages run from the checkout, never from an installed copy, on every Python that the project promises."""

from __future__ import annotations

import importlib
import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("package", ["finevolve_pipeline", "assets", "resources", "crawlers"])
def test_package_lies_in_the_repository(package: str) -> None:
    found = importlib.import_module(package).__file__
    assert found is not None
    assert Path(found).resolve().is_relative_to(REPOSITORY)


@pytest.mark.parametrize("package", ["finevolve_pipeline", "assets", "resources", "crawlers"])
def test_every_module_opens_with_a_docstring(package: str) -> None:
    folder = REPOSITORY / package
    without = [
        str(path.relative_to(REPOSITORY))
        for path in folder.rglob("*.py")
        if not path.read_text("utf-8").lstrip().startswith(('"""', 'r"""'))
    ]
    assert without == []


def test_what_is_pinned_installs_on_the_oldest_python_that_is_promised() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    (oldest,) = re.findall(r"^>=(\d+\.\d+)$", project["requires-python"])
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    pinned = {line.partition("==")[0].lower() for line in lines if "==" in line}
    refusing = [
        f"{one.name} {one.version}: {asked}"
        for one in metadata.distributions()
        if one.name.lower() in pinned and (asked := one.metadata["Requires-Python"])
        if not SpecifierSet(asked).contains(f"{oldest}.0")
    ]
    assert refusing == []
