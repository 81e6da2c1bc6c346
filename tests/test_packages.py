"""The packages run from the checkout, never from an installed copy."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

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
