"""`finevolve ic`: the table, its files, and the verdict beneath, as people and programs read them."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import click
import pandas as pd
import pytest
from click.testing import CliRunner
from rich.cells import cell_len

from finevolve_pipeline.cli import output
from finevolve_pipeline.cli.ic import ic_command
from finevolve_pipeline.evaluation.comparison import compare_with_pipe
from finevolve_pipeline.graph import SINGLE, Table, code_version
from finevolve_pipeline.tables import CONTRACTS, empty
from resources.table_store import TableStore

sys.path.insert(0, str(Path(__file__).parent.parent / "evaluation"))

from coefficients import coefficients
from inferred import Inferred, inference, level

HORIZONS = (10, 20, 40)
RUNS = {
    "pipe": (0.02, 0.04, -0.01),
    "mem0": (0.03, 0.03, -0.02),
    "reasoningbank": (0.05, -0.01, 0.0),
    "reflexion_original": (-0.0123, 0.0456, 0.0789),
}
TESTS = (
    *(level(m, metric, h, 0.02, 0.4, detectable=0.05) for m in RUNS for metric in ("tsIC", "csIC") for h in HORIZONS),
    *(
        Inferred(m, metric, h, 0.01, 0.7, 0.04)
        for m in RUNS
        if m != "pipe"
        for metric in ("tsIC", "csIC")
        for h in (10, 40, 0)
    ),
    Inferred("reasoningbank", "csIC", 20, -0.05, 0.012, 0.03),
)


def put(store: TableStore, name: str, frame: pd.DataFrame) -> None:
    table = Table(name, CONTRACTS[name], (SINGLE,), lambda *_: (), lambda *_: frame, code_version())
    store.write(table, SINGLE, frame, "test")


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TableStore:
    """A home with coefficients and no tests, in force; a terminal of 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FINEVOLVE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FINEVOLVE_CONFIG", raising=False)
    monkeypatch.setattr(output.results, "_width", 80)
    store = TableStore(tmp_path / "home")
    matrix = coefficients(HORIZONS, **RUNS)
    put(store, "comparison", compare_with_pipe(matrix))
    unasked = dict.fromkeys(("defined", "undefined", "pairs"), 0)
    experiments = matrix["mechanism"] + "-rules"
    put(store, "ic_matrix", matrix.assign(experiment=experiments, coverage=1.0, value_undefined_zero=0.0, **unasked))
    return store


@pytest.fixture
def here(old: TableStore) -> TableStore:
    """The same with tests: of all differences ReasoningBank's in csIC at 20 sessions goes beyond noise."""
    put(old, "inference", inference(*TESTS))
    return old


def said(*arguments: str) -> str:
    return CliRunner().invoke(ic_command, list(arguments), catch_exceptions=False).stdout


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_has_arrows_stars_and_a_verdict_beneath(here: TableStore, width: int, monkeypatch) -> None:
    monkeypatch.setattr(output.results, "_width", width)
    told = said()
    assert max(map(cell_len, told.splitlines())) <= width
    table, verdict = told.split("On cells valid in every run.")
    for text in ("0.1000↑", "0.0500↑", "-0.0100*", "+0.0207", "+ Reflexion (original)"):
        assert text in table
    paragraph = " ".join(verdict.split())
    assert (
        "At 10 sessions no mechanism differs from Pipe beyond noise; only differences of about 0.04 tsIC" in paragraph
    )
    assert "At 20 sessions ReasoningBank lies below Pipe in csIC (-0.050, 95 % interval -0.060 to -0.040" in paragraph
    assert "Coverage 100.0% to 100.0%" in paragraph


def test_a_forecast_without_a_model_is_no_addition_to_pipe(
    old: TableStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text('[experiments]\nmechanisms = ["pipe", "pipe_aa", "random", "placebo_random"]\n')
    monkeypatch.setenv("FINEVOLVE_CONFIG", str(settings))
    runs = dict.fromkeys(("pipe", "pipe_aa", "random", "placebo_random"), (0.02, 0.04, -0.01))
    put(old, "comparison", compare_with_pipe(coefficients(HORIZONS, **runs)))
    lines = [line.strip() for line in said().splitlines()]
    labels = [line.rsplit(maxsplit=4)[0] for line in lines if line.count("0.0400") == 1]
    assert labels == ["Pipe", "Pipe A/A", "random", "+ placebo_random"] * 2


@pytest.mark.parametrize("width", [80, 86, 92, 120])
def test_each_mechanism_keeps_one_line_a_table(here: TableStore, width: int, monkeypatch) -> None:
    monkeypatch.setattr(output.results, "_width", width)
    rows = [line for line in said().splitlines() if line.strip().startswith("+ Reflexion (original)")]
    assert [len(row.split()) - 3 for row in rows] == ([4, 4] if width < 90 else [8])


def test_intervals_and_adjusted_p_fit_eighty_columns(here: TableStore) -> None:
    told = said("--intervals")
    assert max(map(cell_len, told.splitlines())) <= 80
    assert "Backbone rules, overall, spearman, csIC: differences from Pipe, 95 %" in told
    assert "Backbone rules, overall, spearman, tsIC: coefficients against zero, 95" in told
    (row,) = (line.split() for line in told.splitlines() if "-0.0600" in line)
    assert row == ["+", "ReasoningBank", "20d", "-0.0500", "-0.0600", "-0.0400", "0.012", "0.006", "0.0300"]
    assert "At 20 sessions ReasoningBank lies below Pipe in csIC" in told


def test_where_nothing_was_tested_it_says_what_tests(old: TableStore) -> None:
    told = " ".join(said().split())
    assert "No difference has been tested: there is no table `inference` yet; `finevolve run` makes it." in told
    assert "*" not in told.split("On cells")[0]
    assert "0.0500↑" in told
    assert json.loads(said("--json"))["inference"] == []


@pytest.mark.parametrize("arguments", [(), ("--intervals",)])
def test_where_nothing_ran_no_number_is_made_up(old: TableStore, arguments: tuple[str, ...]) -> None:
    for name in ("comparison", "ic_matrix", "inference"):
        put(old, name, empty(CONTRACTS[name]))
    told = " ".join(said(*arguments).split())
    assert "nan" not in told
    assert told.endswith("Nothing here has a label, so there is nothing to cover.")


def test_the_document_has_everything(here: TableStore) -> None:
    document = json.loads(said("--json"))
    assert set(document) == {"settings_digest", "ic", "comparison", "inference", "table2", "verdict"}
    assert len(document["inference"]) == len(TESTS)
    (backbone,) = document["verdict"]["backbones"]
    found = [one for horizon in backbone["differences"] for outcome in horizon["outcomes"] for one in outcome["found"]]
    assert [(one["mechanism"], one["metric"], one["horizon"]) for one in found] == [("reasoningbank", "csIC", 20)]
    assert any("ReasoningBank lies below Pipe" in sentence for sentence in document["verdict"]["sentences"])
    assert {row["mechanism"] for row in document["table2"]["rows"]} == set(RUNS)


def test_each_format_is_the_table_and_nothing_else(here: TableStore) -> None:
    assert said("--format", "markdown").startswith("## Overall, Spearman\n")
    assert said("--format", "latex").startswith("% Needs")
    lines = list(csv.DictReader(io.StringIO(said("--format", "csv"))))
    assert {line["differs_beyond_noise"] for line in lines} == {"", "false", "true"}
    assert len(json.loads(said("--format", "json"))["rows"]) == len(RUNS)


def test_two_kinds_of_document_at_once_are_refused(here: TableStore) -> None:
    with pytest.raises(click.UsageError, match="choose one"):
        ic_command.main(["--json", "--format", "csv"], standalone_mode=False)


def noted() -> str:
    """What stands beside the results, in one line."""
    return " ".join(CliRunner().invoke(ic_command, [], catch_exceptions=False).stderr.split())


def test_tables_that_are_out_of_date_say_so_beside_the_results(here: TableStore) -> None:
    """`here` holds tables whose recipe is none that the graph knows, as after a reset or another setting."""
    assert "note: ic_matrix was made from other predictions, labels, settings or code" in noted()


def test_tables_that_are_up_to_date_say_nothing(here: TableStore) -> None:
    graph = output.Pipeline.in_force().graph
    for name in ("ic_matrix", "comparison", "inference"):
        table = graph.tables[name]
        here.write(table, SINGLE, here.read(name, SINGLE), table.recipe(SINGLE, here).digest)
    assert "was made from other" not in noted()
