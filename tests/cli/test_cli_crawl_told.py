"""What `finevolve crawl` tells of sources that it could not ask, and of days outside the news span."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.cli import output
from finevolve_pipeline.cli.crawl import crawl_command
from finevolve_pipeline.news.coverage import DayCoverage, SourceCoverage
from resources.coverage_store import CoverageStore

DAYS = ["--from", "2023-12-30", "--to", "2024-01-01"]
LATER = dt.datetime(2024, 1, 2, 9, tzinfo=SHANGHAI)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CoverageStore:
    """cls: two of three days complete, one partial."""
    (tmp_path / "finevolve.toml").write_text(
        '[news]\nsources = ["cls"]\n[experiments]\nmechanisms = ["pipe"]\n', "utf-8"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FINEVOLVE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FINEVOLVE_CONFIG", raising=False)
    store = CoverageStore(tmp_path / "home")
    reasons = {"2023-12-30": "", "2023-12-31": "", "2024-01-01": "HTTP 403"}
    days = {day: DayCoverage({"telegraph": reason}, LATER) for day, reason in reasons.items()}
    store.write(SourceCoverage("cls", days))
    return store


def crawl(*arguments: str) -> Result:
    return CliRunner().invoke(crawl_command, [*DAYS, *arguments])


def only_source(result: Result) -> dict[str, Any]:
    (found,) = json.loads(result.stdout)["sources"]
    assert isinstance(found, dict)
    return found


def test_a_locked_source_is_shown_with_what_is_known_of_its_days(kept: CoverageStore) -> None:
    with kept.crawling("cls"):
        found = only_source(crawl("--json"))
    assert (found["state"], found["asked"]) == ("locked", 0)
    assert (found["complete"], found["partial"], found["open"]) == (2, 1, 0)
    assert found["reason"] == "another crawl of it is under way; wait until it has ended"


def test_a_locked_source_is_told_once(kept: CoverageStore) -> None:
    with kept.crawling("cls"):
        told = crawl()
    assert f"{told.output}{told.exception}".count("under way") == 1
    assert str(told.exception) == "cls: another crawl of it is under way; wait until it has ended"


def test_of_a_source_with_an_unreadable_file_no_number_of_days_is_told(kept: CoverageStore) -> None:
    (kept.root / "coverage" / "cls.json").write_text("half a fi")
    result = crawl("--json")
    found = only_source(result)
    assert result.exit_code == 1
    assert (found["complete"], found["partial"], found["open"]) == (None, None, None)
    assert "cls.json: not readable" in found["reason"]


def test_the_section_to_change_is_named_in_the_warning(kept: CoverageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output.messages, "_width", 300)
    with kept.crawling("cls"):
        told = crawl()
    assert "2 of 3 days lie outside the news span" in told.stderr
    assert "set [news] first_day and last_day in finevolve.toml" in told.stderr
