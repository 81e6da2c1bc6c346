"""`finevolve memory` and `finevolve case`, as people and programs read them."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import click
import pandas as pd
import pytest
from click.testing import CliRunner, Result
from landed_news import landed_news
from rich.cells import cell_len

from assets.publishing import publish_report, report_is_fresh
from finevolve_pipeline import calendar
from finevolve_pipeline.cli import output
from finevolve_pipeline.cli.experience import case_command, memory_command
from finevolve_pipeline.cli.maintain import audit_command
from finevolve_pipeline.cli.output import Pipeline, wrapped
from finevolve_pipeline.errors import CalendarError, MissingPartitionError, SettingsError, UniverseError
from finevolve_pipeline.evaluation.comparison import compare_with_pipe, ic_matrix
from finevolve_pipeline.graph import SINGLE, Table, code_version
from finevolve_pipeline.mechanisms.memrl import MemRL
from finevolve_pipeline.news.coverage import DayCoverage, SourceCoverage
from finevolve_pipeline.replay.journal import ReplayStore
from finevolve_pipeline.replay.runner import run
from finevolve_pipeline.settings import load_settings
from finevolve_pipeline.tables import CONTRACTS
from resources.coverage_store import CoverageStore
from resources.table_store import TableStore

sys.path.insert(0, str(Path(__file__).parent.parent / "replay"))

from replay_world import outcome_tables, small_reader

SETTINGS = """\
[benchmark]
first_session = 2025-01-02
last_session = 2025-01-13
horizons = [1, 2, 4]
industries = ["801080", "801170"]
[market]
first_session = 2024-12-20
[experiments]
mechanisms = ["pipe", "mem0", "memrl", "reflexion"]
backbones = ["rules"]
[evaluation]
cases = ["801170 2025-01-09"]
"""
HORIZONS = (1, 2, 4)
MONDAY, THURSDAY, LAST = dt.date(2025, 1, 6), dt.date(2025, 1, 9), dt.date(2025, 1, 13)
HOSTILE = "运价\x1b[2J\x1b]0;owned\x07\x9b31m大涨\u202e [bold]下跌[/bold]"

Command = Callable[..., Result]


def put(store: TableStore, name: str, partition: str, frame: pd.DataFrame) -> None:
    contract = CONTRACTS[name]
    store.write(
        Table(name, contract, (partition,), lambda *_: (), lambda *_: frame, code_version()), partition, frame, "test"
    )


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with settings and a home: eight sessions of two industries, replayed by four experiments.

    Labels end on the last session of the window. One article of the case's day is hostile to terminals.
    """
    folder = tmp_path_factory.mktemp("replayed")
    (folder / "finevolve.toml").write_text(SETTINGS, "utf-8")
    settings = load_settings(folder / "finevolve.toml")
    sessions = settings.benchmark.sessions
    store = TableStore(folder / "home")
    frames = dict(small_reader(sessions, HORIZONS).frames)
    window = frames["news_window", THURSDAY.isoformat()].copy()
    own = window["industries"].map(lambda codes: "801170" in codes)
    window.loc[window.index[own][0], "title"] = HOSTILE
    frames["news_window", THURSDAY.isoformat()] = window
    for (name, partition), frame in frames.items():
        put(store, name, partition, frame)
    put(store, "alpha", SINGLE, alpha_table(sessions))
    for experiment in settings.all_experiments:
        parts = Pipeline(settings, store.home).parts(experiment)
        run(experiment, sessions, parts, store.replays, lambda _: None)
    return folder


def alpha_table(sessions: Sequence[dt.date]) -> pd.DataFrame:
    """`alpha` of the window: known until its last session."""
    after = calendar.shift(sessions[-1], max(HORIZONS))
    tables = outcome_tables(calendar.sessions_between(sessions[0], after), HORIZONS)
    rows = pd.concat(tables.values(), ignore_index=True)
    rows = rows[rows["predicted_on"].isin([s.isoformat() for s in sessions])].copy()
    ahead = rows["matured_on"] > sessions[-1].isoformat()
    rows.loc[ahead, ["close_to", "industry_return", "benchmark_return", "alpha"]] = float("nan")
    return rows


@pytest.fixture
def here(replayed: Path, monkeypatch: pytest.MonkeyPatch) -> TableStore:
    """The store, with its settings in force and a terminal of 100 columns."""
    monkeypatch.chdir(replayed)
    monkeypatch.setenv("FINEVOLVE_HOME", str(replayed / "home"))
    monkeypatch.delenv("FINEVOLVE_CONFIG", raising=False)
    monkeypatch.setattr(output.results, "_width", 100)
    return TableStore(replayed / "home")


def told(command: click.Command, *arguments: str) -> str:
    """What a command that must succeed says to people; no line is wider than the terminal."""
    said = CliRunner().invoke(command, list(arguments), catch_exceptions=False).stdout
    assert max(map(cell_len, said.splitlines())) <= output.results.width
    return said


def document(command: click.Command, *arguments: str) -> dict[str, object]:
    """Its one JSON document."""
    result = CliRunner().invoke(command, [*arguments, "--json"], catch_exceptions=False)
    found: dict[str, object] = json.loads(result.stdout)
    return found


# -- memory


def test_memory_is_what_was_kept_of_the_days_before_newest_first(here: TableStore) -> None:
    found = document(memory_command, "mem0-rules", "--sector", "801170", "--as-of", "2025-01-08")
    assert (found["session"], found["keeps_experience"]) == ("2025-01-08", True)
    days = [one["made_on"] for one in found["experience"]]
    assert days == ["2025-01-07", "2025-01-06", "2025-01-03", "2025-01-02"]
    assert all(one["available_from"] > one["made_on"] for one in found["experience"])
    first = found["experience"][0]
    assert first["memory_id"] == "2025-01-07/801170"
    assert (first["kind"], first["horizons"], first["sources"]) == ("trajectory", [1, 2, 4], ["2025-01-07/801170"])
    stored = here.replays.read_predictions("mem0-rules", [dt.date(2025, 1, 7)])
    stored = stored[stored["code"] == "801170"].iloc[0]
    assert first["text"] == f"{stored['key_factor']}\n{stored['logic_chain']}"


def test_memory_tells_the_rank_at_which_it_was_shown(here: TableStore) -> None:
    found = document(memory_command, "memrl-rules", "--sector", "801170")
    log = here.replays.read_retrievals("memrl-rules", [LAST])
    log = log[log["code"] == "801170"].set_index("memory_id")["rank"].to_dict()
    assert {one["memory_id"]: one["rank"] for one in found["experience"] if one["rank"] is not None} == log
    assert len(log) == 5
    said = told(memory_command, "memrl-rules", "--sector", "801170")
    assert said.startswith(
        "memrl-rules on 801170.SI 交通运输 Transportation, 2025-01-13: 7 pieces of experience, 5 of them"
    )
    assert said.count("shown as rank") == 5


def test_memory_tells_q_and_visits_where_there_are_any(here: TableStore) -> None:
    pieces = document(memory_command, "memrl-rules", "--sector", "801170")["experience"]
    assert all(isinstance(one["q"], float) and isinstance(one["visits"], int) for one in pieces)
    assert max(one["visits"] for one in pieces) > 0
    most = max(pieces, key=lambda one: one["visits"])
    said = told(memory_command, "memrl-rules", "--sector", "801170")
    assert f"Q {most['q']:+.4f}, {most['visits']} visits, made on {most['made_on']}" in said
    assert "Q " not in told(memory_command, "mem0-rules", "--sector", "801170")


def test_what_the_days_outcomes_taught_is_known_that_day(here: TableStore) -> None:
    (only,) = document(memory_command, "reflexion-rules", "--sector", "801170", "--as-of", "2025-01-09")["experience"]
    assert only["memory_id"] == "2025-01-09/801170/reflection"
    assert only["made_on"] == only["available_from"] == "2025-01-09"
    assert only["sources"] == ["2025-01-03/801170", "2025-01-07/801170", "2025-01-08/801170"]
    said = told(memory_command, "reflexion-rules", "--sector", "801170", "--as-of", "2025-01-09")
    assert "1 piece of experience, 1 of them shown" in " ".join(said.split())
    assert "from 2025-01-03/801170, 2025-01-07/801170, 2025-01-08/801170" in said


@pytest.mark.parametrize("sector", ["801170", "801170.SI", "交通运输", "transportation"])
def test_a_sector_is_a_code_or_a_name(here: TableStore, sector: str) -> None:
    assert document(memory_command, "mem0-rules", "--sector", sector)["sector"] == "801170"


def test_a_day_without_trading_stands_for_the_session_before_it(here: TableStore) -> None:
    sunday = document(memory_command, "mem0-rules", "--sector", "801170", "--as-of", "2025-01-05")
    assert sunday["session"] == "2025-01-03"
    assert [one["made_on"] for one in sunday["experience"]] == ["2025-01-02"]


def test_on_the_first_session_nothing_is_known(here: TableStore) -> None:
    said = told(memory_command, "mem0-rules", "--sector", "801170", "--as-of", "2025-01-02")
    assert "2025-01-02: 0 pieces of experience, 0 of them shown" in said


def test_a_limit_says_how_many_more_there_are_and_json_has_all(here: TableStore) -> None:
    said = told(memory_command, "mem0-rules", "--sector", "801170", "--limit", "2")
    assert "2025-01-10/801170  trajectory" in said
    assert "2025-01-09/801170  trajectory" in said
    assert "2025-01-08/801170  trajectory" not in said
    assert "5 older ones not shown; --limit shows more of them, --json all" in said
    assert len(document(memory_command, "mem0-rules", "--sector", "801170", "--limit", "2")["experience"]) == 7
    assert "not shown" not in told(memory_command, "mem0-rules", "--sector", "801170", "--limit", "7")


def test_an_experiment_that_keeps_nothing_says_so_in_one_line(here: TableStore) -> None:
    assert told(memory_command, "pipe-rules", "--sector", "801170") == (
        "pipe-rules: the mechanism pipe keeps no experience\n"
    )
    found = document(memory_command, "pipe-rules", "--sector", "801170")
    assert (found["keeps_experience"], found["experience"]) == (False, [])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("mem9-rules", "--sector", "801170"), SettingsError, "experiment 'mem9-rules': not among pipe-rules"),
        (("mem0-rules", "--sector", "801171"), UniverseError, "sector '801171'"),
        (("mem0-rules", "--sector", "801010"), SettingsError, "sector 801010: not predicted here"),
        (("mem0-rules", "--sector", "801170", "--as-of", "2024-12-31"), CalendarError, "lies before the window"),
        (
            ("mem0-rules", "--sector", "801170", "--as-of", "2025-01-14"),
            CalendarError,
            "outside the prediction window 2025-01-02 to 2025-01-13",
        ),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_line(
    here: TableStore, arguments: tuple[str, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as refused:
        told(memory_command, *arguments)
    assert "\n" not in str(refused.value)


def test_without_any_replay_the_command_that_makes_one_is_named(
    here: TableStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FINEVOLVE_HOME", str(tmp_path / "fresh"))
    with pytest.raises(MissingPartitionError, match="nothing is stored; `finevolve run` makes it"):
        told(memory_command, "mem0-rules", "--sector", "801170")


def cut_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is retrieved, the second is logged as shortened, the fourth and fifth as left out."""
    true = ReplayStore.read_retrievals

    def read(store: ReplayStore, *arguments: object) -> pd.DataFrame:
        found = true(store, *arguments)
        stood = {2: "shortened", 4: "left out", 5: "left out"}
        return found.assign(in_prompt=[stood.get(rank, "whole") for rank in found["rank"]])

    monkeypatch.setattr(ReplayStore, "read_retrievals", read)


def test_what_the_prompt_had_no_room_for_is_not_said_to_be_shown(
    here: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_in_the_log(monkeypatch)
    pieces = document(memory_command, "memrl-rules", "--sector", "801170")["experience"]
    stood = {one["rank"]: one["in_prompt"] for one in pieces}
    assert stood == {None: None, 1: "whole", 2: "shortened", 3: "whole", 4: "left out", 5: "left out"}
    said = told(memory_command, "memrl-rules", "--sector", "801170")
    assert "7 pieces of experience, 3 of them shown, 2 more retrieved but cut for length" in " ".join(said.split())
    assert said.count("shown as rank") == 3
    assert "shown as rank 2, shortened" in said
    assert "retrieved as rank 4, cut: not in the prompt" in said


def test_a_case_tells_cut_experience_as_it_tells_cut_articles(
    here: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_in_the_log(monkeypatch)
    said = told(case_command, *CASE, "--experiments", "memrl-rules")
    assert "5 of 5, 2 cut" in said
    assert "3 shown, 1 of them shortened; 2 more retrieved, but cut for length, of 5 that the agent had" in said
    assert said.count(", cut: not in the prompt") == 2
    found = document(case_command, *CASE)["experiments"]["memrl-rules"]["retrieved"]
    assert [one["in_prompt"] for one in found] == ["whole", "shortened", "whole", "left out", "left out"]


def test_an_experiment_that_is_always_caught_is_said_to_be(
    here: TableStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "settings.toml"
    config.write_text(SETTINGS.replace('"reflexion"]', '"oracle_canary"]'), "utf-8")
    monkeypatch.setenv("FINEVOLVE_CONFIG", str(config))
    for command, arguments in (
        (memory_command, ("oracle_canary-rules", "--sector", "801170")),
        (audit_command, ("oracle_canary-rules",)),
        (case_command, (*CASE, "--experiments", "oracle_canary-rules")),
    ):
        with pytest.raises(MissingPartitionError, match="asks for the future and is caught on its first session"):
            told(command, *arguments)


# -- case

CASE = ("801170", "2025-01-09")


def test_a_case_sets_all_runs_beside_what_happened(here: TableStore) -> None:
    lines = [line.split() for line in told(case_command, *CASE).splitlines()]
    alpha = here.read("alpha", SINGLE)
    own = alpha[(alpha["code"] == "801170") & (alpha["predicted_on"] == "2025-01-09")].set_index("horizon")["alpha"]
    realised = [f"{own[1]:+.2%}", f"{own[2]:+.2%}", "not", "known", "yet"]
    assert ["Realised", "excess", "return", *realised] in lines
    for key, label in (("pipe-rules", "Pipe"), ("mem0-rules", "Mem0"), ("reflexion-rules", "Reflexion")):
        scores = here.replays.read_predictions(key, [THURSDAY])
        scores = scores[scores["code"] == "801170"].set_index("horizon")["score"]
        words = [word for h in (1, 2) for word in (f"{scores[h]:+.3f}", "ok" if scores[h] * own[h] > 0 else "wrong")]
        (row,) = [line for line in lines if line[:1] == [label] and len(line) > 5]
        assert row[1:6] == [*words, f"{scores[4]:+.3f}"]


def test_a_case_shows_news_experience_and_reasoning(here: TableStore) -> None:
    said = told(case_command, *CASE, "--experiments", "mem0-rules")
    window = here.read("news_window", "2025-01-09")
    own = window[window["industries"].map(lambda codes: "801170" in codes)]
    assert f"{len(own)} articles in the window; the same for all." in said
    assert said.count("  importance ") == len(own)
    log = here.replays.read_retrievals("mem0-rules", [THURSDAY])
    for row in log[log["code"] == "801170"].to_dict("records"):
        assert f"{row['rank']}. trajectory, made {row['made_on']}" in said
        assert f"Similarity {row['similarity']:.4f}" in said
    answer = here.replays.read_predictions("mem0-rules", [THURSDAY])
    reasoning = answer[answer["code"] == "801170"].iloc[0]["logic_chain"]
    assert reasoning in "".join(line.strip() for line in said.splitlines())


def test_the_document_of_a_case_has_everything(here: TableStore) -> None:
    found = document(case_command, *CASE)
    assert list(found["experiments"]) == ["pipe-rules", "mem0-rules", "memrl-rules", "reflexion-rules"]
    assert [found["outcomes"][h]["standing"] for h in ("1", "2", "4")] == ["known", "known", "not known yet"]
    assert found["outcomes"]["4"]["alpha"] is None
    assert found["outcomes"]["4"]["known_on"] == "2025-01-15"
    memrl = found["experiments"]["memrl-rules"]
    assert set(memrl["scores"]) == {"1", "2", "4"}
    assert memrl["known"] == 5
    assert [one["rank"] for one in memrl["retrieved"]] == [1, 2, 3, 4, 5]
    for one in memrl["retrieved"]:
        assert one["text"]
        assert list(one["sources"]) == [one["memory_id"]]
    assert {item["importance"] for item in found["news"]} <= set(range(8, 11))
    assert found["market"]["close"] > 0
    assert found["not_replayed"] == []


@pytest.mark.parametrize(
    "named",
    [["--experiments", "mem0-rules,pipe-rules"], ["--experiments", "mem0-rules", "--experiments", "pipe-rules"]],
)
def test_experiments_are_named_with_commas_or_one_by_one(here: TableStore, named: list[str]) -> None:
    assert list(document(case_command, *CASE, *named)["experiments"]) == ["mem0-rules", "pipe-rules"]


@pytest.mark.parametrize("width", [80, 100, 140])
def test_a_case_fits_the_terminal(here: TableStore, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr(output.results, "_width", width)
    said = told(case_command, *CASE)  # which compares each line with the width
    assert "wrong" in said
    assert said.split("News")[0].split().count("of") >= 4  # every count of what was retrieved, none of them cut


def test_no_text_of_others_moves_the_cursor_or_turns_the_writing(here: TableStore) -> None:
    said = told(case_command, *CASE, "--experiments", "pipe-rules")
    assert "运价[2J]0;owned31m大涨 [bold]下跌[/bold]" in said
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(said)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("801170", "2025-01-11"), CalendarError, "the exchange was closed; nearest sessions are 2025-01-10"),
        (("801170", "2025-01-14"), CalendarError, "outside the prediction window 2025-01-02 to 2025-01-13"),
        (("nowhere", "2025-01-09"), UniverseError, "sector 'nowhere'"),
        (("801010", "2025-01-09"), SettingsError, "sector 801010: not predicted here"),
        ((*CASE, "--experiments", "mem9-rules"), SettingsError, "experiment 'mem9-rules': not among"),
    ],
)
def test_a_case_that_there_is_not_is_refused_in_one_line(
    here: TableStore, arguments: tuple[str, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as refused:
        told(case_command, *arguments)
    assert "\n" not in str(refused.value)


# -- lines


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", [""]),
        ("one two three", ["one two", "three"]),
        ("运价大涨进口下降", ["运价大涨", "进口下降"]),
        ("a运价大涨", ["a运价大", "涨"]),
        ("one\n\ntwo", ["one", "", "two"]),
        ("abcdefghijklmnopqrs", ["abcdefgh", "ijklmnop", "qrs"]),
        ("on abcdefghijk", ["on", "abcdefgh", "ijk"]),
        ("12345678 12345678", ["12345678", "12345678"]),
    ],
)
def test_lines_are_broken_between_words_and_anywhere_in_chinese(text: str, lines: list[str]) -> None:
    assert wrapped(text, 8) == lines


# -- the report's page


def publish(store: TableStore, settings_file: Path) -> Path:
    """The report of the replays, with coefficients as the graph would make them."""
    pipeline = Pipeline(load_settings(settings_file), store.home)
    settings = pipeline.settings
    predictions = {e: store.replays.read_predictions(e.key) for e in settings.all_experiments}
    alpha = store.read("alpha", SINGLE)
    matrix = ic_matrix(predictions, alpha, settings.benchmark.sessions, settings.evaluation, settings.benchmark.codes)
    put(store, "ic_matrix", SINGLE, matrix)
    put(store, "comparison", SINGLE, compare_with_pipe(matrix))
    publish_report(pipeline.graph, store)
    return store.home / "report"


def test_the_report_has_the_named_case_as_the_command_tells_it(here: TableStore) -> None:
    page = (publish(here, Path("finevolve.toml")) / "cases" / "801170-2025-01-09.html").read_text("utf-8")
    for run_ in document(case_command, *CASE)["experiments"].values():
        for one in run_["retrieved"]:
            assert one["memory_id"] in page
        for scored in run_["scores"].values():
            assert f"{scored['score']:+.3f} {scored['verdict']}".rstrip() in page


def test_the_report_is_stale_when_anything_a_case_is_made_of_changes(
    here: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(here, Path("finevolve.toml"))
    graph = Pipeline.in_force().graph
    assert report_is_fresh(graph, here)
    before = here.read("matured_alpha", "2025-01-09")
    put(here, "matured_alpha", "2025-01-09", before.assign(close_to=before["close_to"] + 1))
    assert not report_is_fresh(graph, here)
    put(here, "matured_alpha", "2025-01-09", before)
    assert report_is_fresh(graph, here)
    monkeypatch.setattr(MemRL, "code_modules", ("finevolve_pipeline.calendar",))
    assert not report_is_fresh(graph, here)


def test_the_report_is_stale_when_news_coverage_changes_and_only_then(
    here: TableStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TableStore(shutil.copytree(here.home, tmp_path / "home"))
    monkeypatch.setenv("FINEVOLVE_HOME", str(store.home))
    graph, coverage = Pipeline.in_force().graph, CoverageStore(store.home)
    asked = dt.datetime(2025, 1, 9, 12, tzinfo=calendar.SHANGHAI)
    day = DayCoverage({"roll": "page 3: timed out"}, asked)
    coverage.write(SourceCoverage("cls", {"2025-01-09": day}))
    publish(store, Path("finevolve.toml"))
    before = folder_bytes(store.home / "report")
    assert "roll: page 3: timed out" in (store.home / "report" / "index.html").read_text("utf-8")
    # Asked once more, with the same outcome: nothing that the report shows has changed.
    coverage.write(SourceCoverage("cls", {"2025-01-09": replace(day, asked_at=asked + dt.timedelta(hours=1), tries=2)}))
    assert report_is_fresh(graph, store)
    publish_report(graph, store)
    assert folder_bytes(store.home / "report") == before
    for changed in (
        SourceCoverage("cls", {"2025-01-09": replace(day, channels={"roll": ""})}),
        SourceCoverage("cls", {"2025-01-09": replace(day, channels={"roll": "HTTP 403"})}),
        SourceCoverage("cls", {"2025-01-09": day}, state="blocked"),
    ):
        coverage.write(changed)
        assert not report_is_fresh(graph, store)
    coverage.write(SourceCoverage("cls", {"2025-01-09": day}))
    assert report_is_fresh(graph, store)
    store.landing.merge_news(landed_news({("sina", "2025-01-09"): 1}))
    assert not report_is_fresh(graph, store)
    publish_report(graph, store)
    assert report_is_fresh(graph, store)
    assert "1 article, 2025-01-09 to 2025-01-09" in (store.home / "report" / "index.html").read_text("utf-8")


def folder_bytes(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
