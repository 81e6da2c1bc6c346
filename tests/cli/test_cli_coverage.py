"""`finevolve coverage`: the numbers of the report, for programs and for people."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from landed_news import landed_news

from assets.publishing import news_coverage
from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.cli import output
from finevolve_pipeline.cli.crawl import coverage_command
from finevolve_pipeline.cli.output import Pipeline
from finevolve_pipeline.errors import SettingsError, TableError
from finevolve_pipeline.evaluation.report.news_coverage import day_rows, source_table
from finevolve_pipeline.evaluation.report.news_coverage import news_coverage as section_of
from finevolve_pipeline.evaluation.report.words import Words
from finevolve_pipeline.news.coverage import DayCoverage, SourceCoverage
from resources.coverage_store import CoverageStore
from resources.landing import Landing

SETTINGS = """\
[news]
sources = ["cls", "yicai"]
[experiments]
mechanisms = ["pipe"]
backbones = ["rules"]
"""
ASKED = dt.datetime(2026, 5, 5, 9, tzinfo=SHANGHAI)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """cls: complete, partial, open from 3 to 5 May; yicai: never asked; 新浪 from files, two days."""
    (tmp_path / "finevolve.toml").write_text(SETTINGS, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FINEVOLVE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FINEVOLVE_CONFIG", raising=False)
    monkeypatch.setattr(output.results, "_width", 140)
    counts = {("cls", "2026-05-03"): 3, ("cls", "2026-05-04"): 1, ("sina", "2026-05-01"): 4, ("sina", "2026-05-04"): 2}
    Landing(tmp_path / "home" / "landing").merge_news(landed_news(counts))
    days = {
        "2026-05-03": DayCoverage({"roll": ""}, ASKED),
        "2026-05-04": DayCoverage({"roll": "page 9: HTTP 403"}, ASKED, tries=4),
        "2026-05-05": DayCoverage({"roll": ""}, ASKED, open=True),
    }
    newest = "2026-05-04T12:00:00+08:00"
    CoverageStore(tmp_path / "home").write(SourceCoverage("cls", days, newest=newest, state="blocked", reason="403"))
    return tmp_path / "home"


def told(*arguments: str) -> str:
    return CliRunner().invoke(coverage_command, list(arguments), catch_exceptions=False).stdout


def document(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(told("--json", *arguments))["sources"]
    return found


@pytest.mark.usefixtures("home")
def test_the_document_and_the_report_have_the_same_numbers() -> None:
    pipeline = Pipeline.in_force()
    table = news_coverage(pipeline.graph, pipeline.store)
    of_command = {
        (source, day): (found["articles"], found["state"])
        for source, one in document().items()
        for day, found in one["days"].items()
        if found["state"] is not None
    }
    of_report = day_rows(table).set_index(["source", "day"])
    assert set(of_command) == set(of_report.index)
    for key, (articles, state) in of_command.items():
        row = of_report.loc[key]
        assert (articles or 0, state) == (row.fillna(0)["articles"], row["state"])
    assert of_command["cls", "2026-05-04"] == (1, "partial")
    assert of_command["cls", "2026-05-05"] == (None, "open")
    assert of_command["sina", "2026-05-01"] == (4, "imported")
    rows = {row[0].text: [cell.text for cell in row[5:]] for row in source_table(table, Words()).rows}
    assert rows == {
        "cls": ["4", "1", "1", "1", "0", "2"],
        "yicai": ["0", "0", "0", "0", "0", "5"],
        "sina": ["6", "0", "0", "0", "2", "3"],
    }


@pytest.mark.usefixtures("home")
def test_people_see_days_by_source_and_marks_by_day() -> None:
    text = told()
    assert "4 days, 2026-05-01 to 2026-05-05" in text
    lines = {line.split()[0]: line.split() for line in text.splitlines() if line.strip()}
    assert lines["cls"] == ["cls", "4", "1", "1", "1", "0", "2026-05-04", "12:00", "blocked"]
    assert lines["sina"][:6] == ["sina", "6", "0", "0", "0", "2"]
    assert lines["2026-05-04"] == ["2026-05-04", "1!", "2i"]
    assert lines["2026-05-05"] == ["2026-05-05", "+"]
    assert "1 source has partial days" in text


@pytest.mark.usefixtures("home")
def test_partial_days_are_listed_with_crawls_and_reason() -> None:
    assert told("--partial") == "2026-05-04 cls (4 crawls): roll: page 9: HTTP 403\n"
    assert told("--partial", "--to", "2026-05-03") == ""


@pytest.mark.usefixtures("home")
def test_a_named_source_and_span_are_all_that_is_told() -> None:
    found = document("--source", "sina", "--from", "2026-05-02")
    assert found == {
        "sina": {
            "earliest": None,
            "newest": None,
            "state": None,
            "reason": "",
            "days": {"2026-05-04": {"articles": 2, "state": "imported", "reason": ""}},
        }
    }


def test_a_file_that_cannot_be_read_is_named(home: Path) -> None:
    path = home / "landing" / "news" / "sina" / "2026-05-01.parquet"
    path.write_bytes(b"half a file")
    with pytest.raises(TableError, match=r"2026-05-01\.parquet: not readable .* delete it and import again"):
        told()


def ended(*arguments: str) -> Result:
    return CliRunner().invoke(coverage_command, list(arguments))


@pytest.mark.usefixtures("home")
def test_a_source_that_nobody_knows_is_wrong_use() -> None:
    found = ended("--source", "nope")
    assert isinstance(found.exception, SettingsError)
    assert str(found.exception) == "source 'nope': not among cls, yicai, sina; add it to [news] sources"
    assert found.stdout == ""
    assert ended("--source", "yicai").exit_code == 0  # in the settings, though nothing is known of it


@pytest.mark.usefixtures("home")
def test_a_span_that_ends_before_it_begins_is_wrong_use() -> None:
    found = ended("--from", "2026-05-04", "--to", "2026-05-03")
    assert found.exit_code == 2
    assert "--from 2026-05-04 lies after --to 2026-05-03" in found.stderr
    assert ended("--from", "2026-05-04", "--to", "2026-05-04").exit_code == 0


@pytest.mark.usefixtures("home")
def test_the_document_of_partial_days_has_no_others() -> None:
    days = {source: one["days"] for source, one in document("--partial").items()}
    day = {"articles": 1, "state": "partial", "reason": "roll: page 9: HTTP 403"}
    assert days == {"cls": {"2026-05-04": day}, "yicai": {}, "sina": {}}


def test_an_unreadable_coverage_file_costs_the_other_sources_nothing(home: Path) -> None:
    before = document()
    (home / "crawl" / "coverage" / "yicai.json").write_text("half a fi")
    found = ended("--json")
    shown = json.loads(found.stdout)["sources"]
    assert found.exit_code == 1
    assert {source: shown[source] for source in ("cls", "sina")} == {
        source: before[source] for source in ("cls", "sina")
    }
    assert shown["yicai"]["state"] == "unreadable"
    assert "delete it, the days will be asked for again" in shown["yicai"]["reason"]
    table = ended()
    assert table.exit_code == 1
    assert "yicai.json: not readable" in table.stderr
    assert ended("--source", "cls").exit_code == 0


def test_the_report_shows_a_source_whose_coverage_is_unreadable(home: Path) -> None:
    (home / "crawl" / "coverage" / "yicai.json").write_text("half a fi")
    pipeline = Pipeline.in_force()
    view = section_of(news_coverage(pipeline.graph, pipeline.store), ["cls", "yicai"], Words())
    assert "What is known of yicai is unreadable: " in view.sentence
    assert view.sources is not None
    rows = {row[0].text: [cell.text for cell in row[1:3]] for row in view.sources.rows}
    assert rows["cls"] == ["blocked", "403"]
    assert rows["yicai"][0] == "unreadable"
    assert "yicai.json: not readable" in rows["yicai"][1]


def test_an_unreadable_source_is_shown_before_any_news(home: Path) -> None:
    store = CoverageStore(home.parent / "other")
    store.write(SourceCoverage("cls"))
    (store.root / "coverage" / "cls.json").write_text("[]")
    view = section_of(store.table(["cls"], {}), ["cls"], Words())
    assert view.sentence.startswith("No news has landed yet. What is known of cls is unreadable: ")
