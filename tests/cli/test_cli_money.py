"""`finevolve usage` and `finevolve estimate`, as people and programs read them."""

from __future__ import annotations

import datetime as dt
import json
import socket
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from finevolve_pipeline.cli import output
from finevolve_pipeline.cli.money import estimate_command, tokens, usage_command
from finevolve_pipeline.errors import MissingPartitionError, SettingsError
from finevolve_pipeline.llm import failures
from finevolve_pipeline.llm.ledger import Ledger, Purpose, ledger_path
from finevolve_pipeline.llm.requests import Usage
from finevolve_pipeline.settings import BUDGET_VARIABLE, PriceSettings
from finevolve_pipeline.synth.world import SynthSettings, generate
from resources.table_store import TableStore

FIRST, LAST = dt.date(2025, 1, 2), dt.date(2025, 1, 8)
PRICE = PriceSettings(input=0.14, cached_input=0.0028, output=0.28)
WIDTH = 100

SETTINGS = """\
[benchmark]
first_session = 2025-01-02
last_session = 2025-01-08
horizons = [1, 2, 4]
industries = ["801080", "801170"]
[news]
first_day = 2024-12-24
last_day = 2025-01-31
sources = ["cls", "sina"]
[market]
first_session = 2024-12-20
last_session = 2025-01-31
[tagging]
backbone = "deepseek-v4-flash"
[experiments]
mechanisms = ["pipe", "mem0", "memrl"]
backbones = ["deepseek-v4-flash", "qwen3.6-35b-a3b", "rules"]
"""

Command = Callable[..., Result]


@pytest.fixture
def here(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with settings, a terminal of 100 columns, no key and no network."""

    def refused(*_: object) -> None:
        raise AssertionError("a connection was opened")

    Path("finevolve.toml").write_text(SETTINGS, "utf-8")
    monkeypatch.setattr(output.results, "_width", WIDTH)
    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    monkeypatch.delenv(BUDGET_VARIABLE, raising=False)
    return home


@pytest.fixture
def imported(here: Path) -> Path:
    """The same with news and closes."""
    world = generate(
        SynthSettings(seed=3, first_session=FIRST, last_session=LAST, articles_per_day=20, sources=("cls", "sina"))
    )
    landing = TableStore(here).landing
    landing.merge_news(world.news)
    landing.merge_bars("industry_bars", world.industry_bars)
    landing.merge_bars("benchmark_bars", world.benchmark_bars)
    return here


def told(command: click.Command, *arguments: str) -> Result:
    """A command that must succeed."""
    return CliRunner().invoke(command, list(arguments), catch_exceptions=False)


def document(command: click.Command, *arguments: str) -> dict[str, object]:
    """Its one JSON document."""
    found: dict[str, object] = json.loads(told(command, *arguments, "--json").stdout)
    return found


def rows(result: Result) -> list[list[str]]:
    """Lines of standard output as words; none is wider than the terminal."""
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= WIDTH
    return [line.split() for line in lines]


def results_in(home: Path) -> list[Path]:
    """All files; looking tags up may open an empty cache."""
    return sorted(path for path in home.rglob("*") if path.is_file() and path.parent.name != "cache")


def spend(home: Path, experiment: str, phase: str, day: str, calls: int) -> None:
    ledger = Ledger(ledger_path(home), None)
    meter = ledger.meter(Purpose(experiment, "deepseek-v4-flash", phase, day), PRICE)
    for _ in range(calls):
        cost = PRICE.cost(25_000, 700, 1_500)
        meter.reserve(25_000, 6_000).settle(Usage(1, 25_000, 700, 1_500, 1_100, cost))
    meter.reserve(25_000, 6_000).release(failures.RATE_LIMITED)
    meter.reserve(25_000, 6_000).doubt(failures.TIMEOUT)
    ledger.close()


# -- usage


def test_a_home_that_asked_nobody_says_so(here: Path) -> None:
    assert "nothing has been asked" in told(usage_command).stdout
    found = document(usage_command)
    assert (found["groups"], found["failures"], found["spent"], found["left"]) == ([], {}, 0.0, None)
    assert not here.exists()


def test_usage_is_a_table_by_experiment_and_phase_with_a_total(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BUDGET_VARIABLE, "20")
    spend(here, "memrl-deepseek-v4-flash", "predict", "2025-01-02", 40)
    spend(here, "", "tag", "2025-01-01", 3)
    found = rows(told(usage_command))
    # 40 answers of 0.00382396 USD, and one of 0.00518 in doubt
    assert found[4][:4] == ["memrl-deepseek-v4-flash", "predict", "40", "2"]
    assert found[4][4:] == ["1.0", "M", "28", "k", "60", "k", "44", "k", "0.1581", "0.0052"]
    assert found[3] == ["(dataset)", "tag", "3", "2", "75", "k", "2,100", "4,500", "3,300", "0.0167", "0.0052"]
    assert found[5][:3] == ["total", "43", "4"]
    assert found[5][-2:] == ["0.1748", "0.0104"]
    assert ["failed", "attempts:", "rate_limited", "2,", "timeout", "2"] in found
    assert "budget 20.00 USD: 0.1748 spent, 19.8252 left" in told(usage_command).stdout


def test_usage_by_other_groups(here: Path) -> None:
    for day in ("2025-01-02", "2025-01-03"):
        spend(here, "pipe-deepseek-v4-flash", "predict", day, 1)
    found = rows(told(usage_command, "--by", "day"))
    assert [line[:2] for line in found[3:6]] == [["2025-01-02", "1"], ["2025-01-03", "1"], ["total", "2"]]
    everything = document(usage_command, "--by", "backbone", "--by", "day")
    assert [group["group"] for group in everything["groups"]] == [  # type: ignore[attr-defined]
        {"backbone": "deepseek-v4-flash", "day": day} for day in ("2025-01-02", "2025-01-03")
    ]


def test_usage_with_every_group_keeps_names_whole_and_leaves_tokens_out(here: Path) -> None:
    spend(here, "memrl-deepseek-v4-flash", "predict", "2025-01-02", 5)
    arguments = [part for group in ("experiment", "backbone", "phase", "day") for part in ("--by", group)]
    found = rows(told(usage_command, *arguments))
    names = ["memrl-deepseek-v4-flash", "deepseek-v4-flash", "predict", "2025-01-02"]
    assert found[3] == [*names, "5", "2", "0.0243", "0.0052"]


# -- estimate


def test_an_estimate_is_a_table_with_a_total_and_needs_no_key(imported: Path) -> None:
    before = results_in(imported)
    result = told(estimate_command)
    found = rows(result)
    assert found[0] == ["still", "to", "be", "asked:", "45", "days", "of", "9", "experiments"]
    tag, pipe = found[3], next(line for line in found if line and line[0] == "pipe-deepseek-v4-flash")
    assert tag[:2] == ["(dataset)", "tag"]
    assert pipe[:3] == ["pipe-deepseek-v4-flash", "predict", "10"]  # 5 sessions x 2 industries
    assert "assumed" in pipe
    assert ["pipe-rules", "predict", "0", "0", "0", "0.0000", "0.0000"] in found
    assert sum(line[0].startswith(("pipe-", "mem0-", "memrl-")) for line in found if line) == 9
    assert "budget" not in result.stdout
    assert results_in(imported) == before


def test_an_estimate_as_a_document(imported: Path) -> None:
    found = document(estimate_command, "--mechanism", "mem0", "--backbone", "deepseek-v4-flash", "--to", "2025-01-03")
    assert found["sessions"] == {"mem0-deepseek-v4-flash": 2}
    tag, predict = found["lines"]  # type: ignore[misc]
    assert (tag["phase"], predict["phase"], predict["calls"]) == ("tag", "predict", 4)
    assert predict["completion_tokens"] == 4 * 1500
    assert predict["cost"] == pytest.approx(PRICE.cost(predict["prompt_tokens"], 0, 6000))
    assert found["total"]["cost"] == pytest.approx(tag["cost"] + predict["cost"])  # type: ignore[index]
    assert (found["budget"], found["suffices"]) == (None, None)


def test_whether_the_budget_suffices(imported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cost = document(estimate_command)["total"]["cost"]  # type: ignore[index]
    spend(imported, "pipe-deepseek-v4-flash", "predict", "2025-01-02", 10)
    spent = Ledger(ledger_path(imported), None).spent()
    for budget, suffices in ((cost + spent + 1e-6, True), (cost + spent - 1e-6, False)):
        monkeypatch.setenv(BUDGET_VARIABLE, repr(budget))
        found = document(estimate_command)
        assert found["suffices"] is suffices
        assert found["left"] == pytest.approx(budget - spent)
    assert "It does not suffice for this estimate at full price." in told(estimate_command).stdout


def test_measured_answers_take_the_place_of_assumed_ones(imported: Path) -> None:
    spend(imported, "pipe-deepseek-v4-flash", "predict", "2025-01-02", 30)
    lines = rows(told(estimate_command, "--mechanism", "pipe"))
    by_name = {(line[0], line[1]): line for line in lines if len(line) > 3}
    assert "of 30" in " ".join(by_name["pipe-deepseek-v4-flash", "predict"])
    assert "assumed" in by_name["(dataset)", "tag"]


def test_what_was_never_imported_and_names_that_are_none(here: Path) -> None:
    with pytest.raises(MissingPartitionError, match="finevolve import news"):
        told(estimate_command)
    with pytest.raises(SettingsError, match="mechanism 'nobody'"):
        told(estimate_command, "--mechanism", "nobody")


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0"),
        (9_999, "9,999"),
        (10_000, "10 k"),
        (999_499, "999 k"),
        (1_234_567, "1.2 M"),
        (34_700_000_000, "34,700.0 M"),
    ],
)
def test_numbers_of_tokens(count: int, shown: str) -> None:
    assert tokens(count) == shown
