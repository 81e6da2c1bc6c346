"""Every known failure of the sites has a named test, and the table in README.md says where."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

CASES = range(1, 33)
HERE = Path(__file__).parent


@cache
def named() -> Mapping[int, set[str]]:
    """Case -> files that have a test named after it."""
    found: dict[int, set[str]] = {}
    for path in sorted(HERE.parent.rglob("test_*.py")):
        for number in re.findall(r"^(?:async )?def test_case_(\d\d)_\w+", path.read_text("utf-8"), re.M):
            found.setdefault(int(number), set()).add(os.path.relpath(path, HERE))
    return found


@cache
def table() -> Mapping[int, set[str]]:
    """Case -> files that README.md names."""
    text = (HERE / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+) \|.*\| ([^|]*) \|$", text, re.M)
    return {int(number): set(re.findall(r"`([^`]+)`", files)) for number, files in rows}


@pytest.mark.parametrize("case", CASES)
def test_a_known_failure_has_a_test_where_the_table_says(case: int) -> None:
    assert table()[case], f"case {case}: README.md names no file"
    assert table()[case] <= named().get(case, set())


def test_no_test_is_named_after_a_case_that_does_not_exist() -> None:
    assert set(named()) == set(CASES) == set(table())
