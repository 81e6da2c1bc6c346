"""`finevolve plan` and `finevolve checks`, as a CI job meets them."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "end_to_end"))

from small_world import BAR_SESSIONS, SESSIONS, import_arguments, spoil_a_bar, write_small_world

from assets.planning import Materialiser
from finevolve_pipeline.cli import main
from finevolve_pipeline.cli.dagster_home import open_instance
from finevolve_pipeline.cli.output import Pipeline
from finevolve_pipeline.definitions import build_defs

Output = tuple[int, str, str]

BARS = ("industry_bars", "benchmark_bars")


class World:
    """A home with a small world's news and closes, and the command line on it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys

    def __call__(self, *arguments: str) -> Output:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        shown = self._capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, shown.out, shown.err

    def materialise_bars(self) -> None:
        pipeline = Pipeline.in_force()
        with open_instance(pipeline.home) as instance:
            materialiser = Materialiser(build_defs(pipeline.settings, pipeline.home), instance)
            materialiser.materialise(BARS, str(BAR_SESSIONS[0]), str(BAR_SESSIONS[-1]))

    def spoil_a_bar(self) -> None:
        """Ten times one industry's prices of one session, imported over the true ones."""
        spoil_a_bar(self.folder)
        assert self(*import_arguments(self.folder)[1])[0] == 0


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> World:
    folder = write_small_world(tmp_path / "world", ("pipe", "mem0"))
    monkeypatch.setenv("FINEVOLVE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FINEVOLVE_CONFIG", str(folder / "finevolve.toml"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home" / "dagster"))
    world = World(folder, capsys)
    for arguments in import_arguments(folder):
        assert world(*arguments)[0] == 0
    return world


def test_the_replay_is_planned_as_a_run_for_each_experiment_with_it_at_both_ends(world: World) -> None:
    code, out, _ = world("plan", "replay", "--to", str(SESSIONS[3]))
    assert code == 0
    assert out.splitlines() == [
        f"replay\t{SESSIONS[0]}|{key}...{SESSIONS[3]}|{key}" for key in ("pipe-rules", "mem0-rules")
    ]


def test_a_plan_reaches_back_to_the_first_session_that_is_not_replayed(world: World) -> None:
    _, out, _ = world("plan", "replay", "--from", str(SESSIONS[5]))
    assert [line.split("\t")[1][:10] for line in out.splitlines()] == [str(SESSIONS[0])] * 2


def test_inputs_are_planned_upstream_first_and_tables_without_partitions_have_no_range(world: World) -> None:
    _, out, _ = world("plan", "inputs", "--json")
    runs = json.loads(out)
    assert [run["assets"][0] for run in runs] == [
        "raw_news",
        "articles",
        "industry_bars",
        "news_window",
        "alpha",
    ]
    assert runs[-1] == {"assets": ["alpha", "label_bases"], "first": None, "last": None}
    assert (runs[0]["first"], runs[0]["last"]) == ("2024-12-28|cls", "2025-01-13|sina")
    assert world("plan", "inputs")[1].splitlines()[-1] == "alpha,label_bases\t"


def test_a_plan_without_any_news_is_refused(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FINEVOLVE_HOME", str(tmp_path / "empty"))
    code, out, err = world("plan", "inputs")
    assert (code, out) == (1, "")
    assert "nothing has been imported" in err


def test_checks_of_good_bars_pass_and_those_never_evaluated_are_told(world: World) -> None:
    world.materialise_bars()
    code, out, _ = world("checks", "--json")
    assert code == 0
    verdicts = {(one["asset"], one["check"]): one["verdict"] for one in json.loads(out)}
    assert verdicts["industry_bars", "plausible_moves"] == "passed"
    assert verdicts["news_window", "has_news"] == "never"


def test_a_failed_check_gives_exit_code_1_until_it_is_evaluated_anew(world: World) -> None:
    world.materialise_bars()
    true = (world.folder / "industries.csv").read_bytes()
    world.spoil_a_bar()
    world.materialise_bars()
    code, out, _ = world("checks", *BARS, "--json")
    assert code == 1
    (found,) = [one for one in json.loads(out) if one["check"] == "plausible_moves"]
    assert found["verdict"] == "warned"
    assert "sessions look wrong" in found["evaluations"][0]["description"]
    assert world("checks", "benchmark_bars")[0] == 0
    assert world("checks", "--fail-on", "error")[0] == 0

    (world.folder / "industries.csv").write_bytes(true)
    assert world(*import_arguments(world.folder)[1])[0] == 0
    world.materialise_bars()
    (found,) = [one for one in json.loads(world("checks", "--json")[1]) if one["check"] == "plausible_moves"]
    assert found["verdict"] == "passed"


def test_an_asset_that_is_not_in_the_graph_is_refused(world: World) -> None:
    code, _, err = world("checks", "industry_bar")
    assert code == 2
    assert "asset 'industry_bar': not among" in err


@pytest.mark.parametrize("command", [("checks",), ("run", "--mechanism", "pipe")])
def test_damaged_records_of_dagster_are_told_in_one_line_with_a_remedy_that_works(
    world: World, tmp_path: Path, command: tuple[str, ...]
) -> None:
    world.materialise_bars()
    records = tmp_path / "home" / "dagster"
    for runs in records.rglob("runs.db*"):
        runs.write_bytes(b"no database, however it is looked at")
    code, _, err = world(*command)
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith(f"error: {records}: Dagster's records cannot be used (")
    assert "remove that folder: results stay" in err
    shutil.rmtree(records)
    world.materialise_bars()
