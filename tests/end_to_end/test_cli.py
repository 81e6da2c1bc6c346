"""Every command as a program and a person use it: one JSON document, exit codes, what status, reset and audit say."""

from __future__ import annotations

import csv
import gzip
import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from small_world import (
    SESSIONS,
    Finevolve,
    Outcome,
    contents,
    copied,
    import_arguments,
    leftovers,
    write_small_world,
)

from finevolve_pipeline.replay.journal import MANIFEST, PREDICTIONS, ReplayStore

pytestmark = pytest.mark.slow

Command = Callable[..., Outcome]

EXPERIMENTS = ["pipe-rules", "mem0-rules", "memrl-rules"]
LABELLED_UNTIL = "2025-01-17"


def dagster_runs(home: Path) -> dict[str, int]:
    """Number of Dagster runs by status."""
    with closing(sqlite3.connect(home / "dagster" / "history" / "runs.db")) as runs:
        return dict(runs.execute("select status, count(*) from runs group by status").fetchall())


def unchanged(home: Path) -> dict[str, int]:
    """When each result was written last."""
    return {path: (home / path).stat().st_mtime_ns for path in contents(home)}


def facts(outcome: Outcome, table: str) -> tuple[int, list[str], list[str]]:
    """Fresh, stale and missing partitions of a table as `status --json` tells."""
    told = outcome.document["assets"][table]
    return told["fresh"], told["stale"], told["missing"]


# -- results and exit codes


def test_run_says_what_it_made_and_keeps_progress_out_of_it(first_run: tuple[Path, Outcome]) -> None:
    home, outcome = first_run
    told = outcome.document
    assert (told["sessions"], told["first_session"], told["last_session"]) == (8, "2025-01-02", "2025-01-13")
    assert told["experiments"] == {key: ReplayStore(home / "replay").head_digest(key) for key in EXPERIMENTS}
    assert Path(told["report"]).is_file()
    assert "replay memrl-rules" in outcome.err
    assert leftovers(home) == []


def test_run_again_does_nothing(finevolve: Command, ready: Path) -> None:
    written, runs = unchanged(ready), dagster_runs(ready)
    outcome = finevolve("run", home=ready).expect()
    assert "+ MemRL" in outcome.out
    assert unchanged(ready) == written
    assert dagster_runs(ready) == runs


def test_status_before_and_after(finevolve: Command, imported: Path, complete: Path) -> None:
    before = finevolve("status", "--json", home=imported).expect()
    assert facts(before, "news_window") == (0, [], [session.isoformat() for session in SESSIONS])
    assert {key: told["missing"] for key, told in before.document["experiments"].items()} == dict.fromkeys(
        EXPERIMENTS, 8
    )
    assert sorted(path.name for path in imported.iterdir()) == ["landing"]
    after = finevolve("status", "--json", home=complete).expect().document
    assert {name: told["wanted"] - told["fresh"] for name, told in after["assets"].items()} == dict.fromkeys(
        after["assets"], 0
    )
    for key, told in after["experiments"].items():
        assert told == {
            "done": 8,
            "stale": 0,
            "missing": 0,
            "next": None,
            "head": ReplayStore(complete / "replay").head_digest(key),
            "refused": None,
        }


def test_status_of_a_range(finevolve: Command, complete: Path) -> None:
    told = finevolve("status", "--from", "2025-01-04", "--to", "2025-01-07", "--json", home=complete).expect()
    assert (told.document["first_session"], told.document["sessions"]) == ("2025-01-06", 2)
    assert facts(told, "matured_alpha") == (2, [], [])


LOOKING = {
    "status": ["status"],
    "ic": ["ic"],
    "ic of a stage": ["ic", "--stage", "exploitation", "--method", "pearson"],
    "alpha": ["alpha", "801170", "2025-01-03"],
    "alpha by name": ["alpha", "交通运输", "2025-01-03"],
    "memory": ["memory", "mem0-rules", "--sector", "801170"],
    "case": ["case", "801170", "2025-01-08"],
    "doctor": ["doctor"],
    "usage": ["usage"],
    "estimate": ["estimate"],
    "industries": ["doctor", "--sectors"],
    "audit": ["audit", "mem0-rules", "--cut", "2025-01-08", "--sessions", "2"],
}


@pytest.mark.parametrize("name", LOOKING)
def test_a_command_that_looks_writes_nothing(finevolve: Command, complete: Path, name: str) -> None:
    before = contents(complete)
    person = finevolve(*LOOKING[name], home=complete).expect()
    program = finevolve(*LOOKING[name], "--json", home=complete).expect()
    assert person.out.strip()
    assert isinstance(program.document, (dict, list))
    assert contents(complete) == before
    assert leftovers(complete) == []


def test_ic_prints_table_and_document_of_the_same_numbers(finevolve: Command, complete: Path) -> None:
    document = finevolve("ic", "--json", home=complete).expect().document
    text = finevolve("ic", home=complete).expect().out
    (cell,) = [
        row["value"]
        for row in document["ic"]
        if (row["mechanism"], row["metric"], row["horizon"], row["stage"], row["method"], row["cells"])
        == ("pipe", "tsIC", 2, "overall", "spearman", "common")
    ]
    assert f"{cell:.4f}" in text
    assert len(document["comparison"]) > 0


def test_alpha_is_by_the_closes_of_the_imported_file(finevolve: Command, complete: Path, world: Path) -> None:
    with open(world / "industries.csv", encoding="utf-8") as industries, open(world / "benchmark.csv") as benchmark:
        closes = {row["date"]: float(row["close"]) for row in csv.DictReader(industries) if row["code"] == "801170"}
        market = {row["date"]: float(row["close"]) for row in csv.DictReader(benchmark)}
    told = finevolve("alpha", "801170", "2025-01-08", "--json", home=complete).expect().document
    assert told["sector"] == "801170"
    for row in told["outcomes"]:
        end = row["matured_on"]
        expected = closes[end] / closes["2025-01-08"] - market[end] / market["2025-01-08"]
        assert row["alpha"] == pytest.approx(expected, abs=1e-12)
    assert [row["matured_on"] for row in told["outcomes"]] == ["2025-01-09", "2025-01-10", "2025-01-14"]


def test_alpha_beyond_the_imported_closes_is_missing(finevolve: Command, complete: Path) -> None:
    told = finevolve("alpha", "801170", LABELLED_UNTIL, "--json", home=complete).expect().document
    assert [row["alpha"] for row in told["outcomes"]] == [None, None, None]
    assert "missing" in finevolve("alpha", "801170", LABELLED_UNTIL, home=complete).expect().out


@pytest.mark.parametrize("command", [["report"], ["export", "release"]])
def test_a_folder_is_written_again_to_the_same_bytes(finevolve: Command, ready: Path, command: list[str]) -> None:
    folder = command[-1]
    finevolve(*command, home=ready).expect()
    before = contents(ready, [folder])
    outcome = finevolve(*command, "--json", home=ready).expect()
    assert Path(outcome.document[folder]).exists()
    assert before
    assert contents(ready, [folder]) == before
    assert leftovers(ready) == []


def test_import_as_a_program_uses_it(finevolve: Command, world: Path, tmp_path: Path) -> None:
    news, market = import_arguments(world)
    told = finevolve(*news, "--json", home=tmp_path / "home").expect().document
    assert told["errors"] == []
    assert told["files"][0]["news"]["added"] > 500
    told = finevolve(*market, "--json", home=tmp_path / "home").expect().document
    assert [file["bars"]["added"] for file in told["files"]] == [16 * 31, 16]


def test_synth_prints_commands_that_work(anywhere: Finevolve, tmp_path: Path) -> None:
    arguments = ["synth", tmp_path / "w", "--to", "2025-01-03", "--articles-per-day", "3"]
    person = anywhere(*arguments, home=tmp_path / "home").expect()
    told = anywhere(*arguments, "--json", home=tmp_path / "home").expect().document
    assert told["settings"] == str(tmp_path / "w" / "finevolve.toml")
    for line, command in zip(person.out.splitlines(), told["import"], strict=True):
        program, *words = line.split()
        assert program == "finevolve"
        assert words[:2] == ["--config", told["settings"]]
        assert ["finevolve", *words[2:]] == command.split()
        anywhere(*words, home=tmp_path / "home").expect()
    assert not (tmp_path / "home" / "dagster").exists()
    own = tmp_path / "w" / "finevolve.toml"
    own.write_text(own.read_text() + "\n[budget]\nusd = 5.0\n")
    refused = anywhere(*arguments, home=tmp_path / "home")
    assert refused.code == 2
    assert f"{own}: is there and says something else" in refused.err
    assert "usd = 5.0" in own.read_text()


SHORT_DEMO = [("shorten_demo", ["2025-01-08"])]


def test_the_demo_runs_everything_and_prints_one_document(anywhere: Finevolve, tmp_path: Path) -> None:
    home = tmp_path / "demo"
    told = anywhere("demo", "--json", home=home, changes=SHORT_DEMO).expect()
    assert told.document["sessions"] == 5
    assert list(told.document["experiments"]) == [*EXPERIMENTS, "reflexion-rules", "expel-rules", "reasoningbank-rules"]
    assert "items landed" in told.err
    page = (home / "report" / "index.html").read_text("utf-8")
    assert "801" in page
    assert leftovers(home) == []
    again = anywhere("demo", home=home, changes=SHORT_DEMO).expect()
    assert "items landed" not in again.out
    assert "Pipe" in again.out
    other = anywhere("demo", "--seed", "2", home=home, changes=SHORT_DEMO).expect(2)
    assert other.errors == [
        f"error: seed 2: {home} holds the demo of seed 1; name another folder with --home or FINEVOLVE_HOME"
    ]


def test_the_demo_keeps_out_of_a_home_with_data(finevolve: Command, ready: Path) -> None:
    before = contents(ready)
    outcome = finevolve("demo", home=ready).expect(2)
    assert outcome.errors == [f"error: home {ready}: holds imported data; name another folder for the demo with --home"]
    assert contents(ready) == before
    assert not (ready / "world").exists()


def test_home_and_config_are_options_too(anywhere: Finevolve, complete: Path, world: Path, tmp_path: Path) -> None:
    told = anywhere(
        "--home", complete, "--config", world / "finevolve.toml", "status", "--json", home=tmp_path / "other"
    ).expect()
    assert told.document["experiments"]["pipe-rules"]["done"] == 8
    assert not (tmp_path / "other").exists()


def test_doctor_has_an_exit_code(finevolve: Command, complete: Path, tmp_path: Path) -> None:
    good = {check["check"]: check["ok"] for check in finevolve("doctor", "--json", home=complete).expect().document}
    assert all(good.values())
    outcome = finevolve("doctor", "--json", home=tmp_path / "deep" / "er" / "home").expect(1)
    assert [check["check"] for check in outcome.document if not check["ok"]] == ["news", "closes"]


# -- ranges and experiments


def test_a_range_reaches_back_to_where_the_chain_begins(finevolve: Command, fresh: Path, complete: Path) -> None:
    arguments = ["--mechanism", "memrl", "--from", "2025-01-07", "--to", "2025-01-08", "--json"]
    told = finevolve("run", *arguments, home=fresh).expect().document
    assert list(told["experiments"]) == ["memrl-rules"]
    made = contents(fresh, ["replay"])
    assert {path.split("/")[2] for path in made} - {"identity.json"} == {s.isoformat() for s in SESSIONS[:5]}
    assert made.items() <= contents(complete, ["replay"]).items()


# -- what changes when an input changes


def with_one_article_changed(world: Path, folder: Path, day: str) -> Path:
    """News of the world in which the first article of a day, an important one, says something else."""
    with gzip.open(world / "news.jsonl.gz", "rt", encoding="utf-8") as lines:
        articles = [json.loads(line) for line in lines]
    changed = min(
        (a for a in articles if a["published_at"].startswith(day)), key=lambda article: article["published_at"]
    )
    changed["published_at"] = f"{day}T00:00:01+08:00"
    changed["title"] = "国务院发布银行业重大利好政策"
    changed["content"] = "国务院发布重大政策，大幅下调银行存款准备金率，银行股涨停，银行业净利润预计大增。"
    path = folder / "changed.jsonl"
    path.write_text("".join(json.dumps(article, ensure_ascii=False) + "\n" for article in [changed]), "utf-8")
    return path


@pytest.fixture
def one_article_changed(finevolve: Command, ready: Path, world: Path, tmp_path: Path) -> tuple[Path, str]:
    """The complete home after an import that changes one article of 2025-01-07; and the article's source."""
    path = with_one_article_changed(world, tmp_path, "2025-01-07")
    outcome = finevolve("import", "news", path, "--json", home=ready).expect()
    (file,) = outcome.document["files"]
    assert (file["news"]["added"], file["news"]["updated"]) == (0, 1)
    return ready, next(iter(file["news"]["sources"]))


def test_only_what_rests_on_a_changed_article_is_stale(
    finevolve: Command, one_article_changed: tuple[Path, str]
) -> None:
    home, source = one_article_changed
    status = finevolve("status", "--json", home=home).expect()
    days, windows = ["2025-01-07", "2025-01-08"], [str(session) for session in SESSIONS[3:7]]
    assert facts(status, "raw_news")[1:] == ([f"2025-01-07|{source}"], [])
    for name in ("articles", "tagged_articles", "benchmark_news"):
        assert facts(status, name)[1:] == (days, []), name
    # The windows of five days that hold the 7th or the 8th; whether the 8th differs is not known before it is made.
    assert facts(status, "news_window")[1:] == (windows, [])
    for name in ("industry_bars", "benchmark_bars", "matured_alpha", "alpha", "label_bases"):
        assert facts(status, name)[1:] == ([], []), name
    # So may be the days of the replay from the 7th on, and what is made of them.
    assert facts(status, "ic_by_experiment")[1:] == (EXPERIMENTS, [])
    assert facts(status, "ic_matrix")[1:] == (["all"], [])
    written = unchanged(home)
    outcome = finevolve("run", home=home).expect(1)
    touched = {path for path, when in unchanged(home).items() if written[path] != when}
    assert touched == {
        f"tables/raw_news/2025-01-07/{source}.parquet",
        *(f"tables/articles/{day}.parquet" for day in days),
        "tables/tagged_articles/2025-01-07.parquet",
        "tables/benchmark_news/2025-01-07.parquet",
        *(f"tables/news_window/{session}.parquet" for session in windows),
    }
    assert len(outcome.errors) == 3


def test_a_replay_that_no_longer_fits_is_refused_and_the_named_command_works(
    finevolve: Command, one_article_changed: tuple[Path, str], complete: Path
) -> None:
    home, _ = one_article_changed
    refused = finevolve("run", home=home).expect(1)
    assert refused.out == ""
    assert len(refused.errors) == 3
    told = finevolve("status", "--json", home=home).expect().document["experiments"]
    for key, line in zip(EXPERIMENTS, refused.errors, strict=True):
        assert line.startswith(f"error: replay {key} 2025-01-07: made from another news_window (digest ")
        assert line == f"error: {told[key]['refused']}"
        assert (told[key]["done"], told[key]["stale"], told[key]["missing"]) == (3, 5, 0)
        (command,) = re.findall(r"`finevolve (reset [^`]*)`", line)
        assert command == f"reset {key} --from 2025-01-07"
        finevolve(*command.split(), "--yes", home=home).expect()
    finevolve("run", home=home).expect()
    before, after = contents(complete, ["replay"]), contents(home, ["replay"])
    assert before.keys() == after.keys()
    differ = {path for path in before if before[path] != after[path]}
    assert {path.split("/")[2] for path in differ} == {str(s) for s in SESSIONS if str(s) >= "2025-01-07"}
    assert finevolve("audit", "pipe-rules", "--cut", "2025-01-08", "--sessions", "2", home=home).code == 0


def test_other_settings_are_refused_by_name(finevolve: Command, ready: Path, world: Path, tmp_path: Path) -> None:
    config = tmp_path / "finevolve.toml"
    config.write_text((world / "finevolve.toml").read_text() + "\n[mechanisms.mem0]\ntop_k = 3\n")
    refused = finevolve("run", home=ready, config=config).expect(1)
    (line,) = refused.errors
    assert line.startswith("error: replay mem0-rules 2025-01-02: made with other settings or code: mechanism")
    assert "`finevolve reset mem0-rules --from 2025-01-02`" in line


def test_a_run_after_a_changed_setting_touches_what_rests_on_it_and_nothing_else(
    finevolve: Command, ready: Path, world: Path, tmp_path: Path
) -> None:
    config = tmp_path / "finevolve.toml"
    config.write_text(
        (world / "finevolve.toml").read_text()
        + '\n[backbones.rules]\nkind = "rules"\nknowledge_cutoff = 2025-01-07\n'
        + '[tagging]\nbackbone = "other"\n[backbones.other]\nkind = "rules"\n'
    )
    status = finevolve("status", home=ready, config=config).expect().out
    for table in ("tagged_articles 2024-12-29 to 2025-01-13 (16)", "report all"):
        assert f"{table}: settings.tagging.backbone was 'rules' and is 'other'" in status
    assert "sensitivity all: settings.backbones.rules was None and is {'knowledge_cutoff': '2025-01-07'}" in status
    written = unchanged(ready)
    finevolve("run", home=ready, config=config).expect()
    touched = {Path(path).parts[:2] for path, when in unchanged(ready).items() if written.get(path) != when}
    # The tagger's name is in the first two; the windows come out the same, so that no day is replayed.
    made = ("tagged_articles", "benchmark_news", "news_window", "sensitivity")
    assert {parts for parts in touched if parts[0] != "report"} == {("tables", name) for name in made}
    assert facts(finevolve("status", "--json", home=ready, config=config).expect(), "sensitivity") == (1, [], [])


def test_reset_and_run_give_the_same_bytes(finevolve: Command, ready: Path, complete: Path) -> None:
    told = finevolve("reset", "memrl-rules", "--from", "2025-01-08", "--yes", "--json", home=ready).expect()
    assert told.document == {"removed": {"memrl-rules": [str(session) for session in SESSIONS[4:]]}}
    status = finevolve("status", "--json", home=ready).expect()
    assert status.document["experiments"]["memrl-rules"]["next"] == "2025-01-08"
    assert status.document["experiments"]["pipe-rules"]["missing"] == 0
    assert facts(status, "ic_by_experiment") == (2, ["memrl-rules"], [])
    finevolve("run", home=ready).expect()
    assert contents(ready) == contents(complete)


def test_reset_asks_and_takes_silence_as_no(finevolve: Command, ready: Path) -> None:
    before = contents(ready)
    outcome = finevolve("reset", "pipe-rules", "--from", "2025-01-08", home=ready).expect(130)
    assert "Forget these days: 4 of pipe-rules" in outcome.err
    assert contents(ready) == before


# -- audit


def test_audit_finds_a_day_that_was_tampered_with(finevolve: Command, ready: Path) -> None:
    arguments = ["audit", "pipe-rules", "--cut", "2025-01-08", "--sessions", "2", "--json"]
    (good,) = finevolve(*arguments, home=ready).expect().document
    assert good["ok"]
    day = ready / "replay" / "pipe-rules" / "2025-01-06"
    data = bytearray((day / PREDICTIONS).read_bytes())
    data[len(data) // 3] ^= 1
    (day / PREDICTIONS).write_bytes(data)
    (bad,) = finevolve(*arguments, home=ready).expect(1).document
    (chain,) = [finding for finding in bad["findings"] if finding["check"] == "chain"]
    assert not chain["ok"]
    assert "2025-01-06: predictions.parquet is damaged" in chain["detail"]
    text = finevolve("audit", "pipe-rules", home=ready).expect(1).out
    assert "FAILED" in text
    assert "2025-01-06" in text


def test_audit_finds_a_score_forged_with_its_digests(finevolve: Command, ready: Path, complete: Path) -> None:
    """Somebody who also writes fitting manifests is found out by replaying, not by digests."""
    key, last = "pipe-rules", SESSIONS[-1]
    store = ReplayStore(ready / "replay")
    forged = {name: (store.folder(key, last) / name) for name in (PREDICTIONS, MANIFEST)}
    predictions = store.read_predictions(key, [last])
    predictions["score"] = -predictions["score"]
    rewrite_predictions(store, key, predictions)
    assert forged[PREDICTIONS].read_bytes() != (complete / "replay" / key / str(last) / PREDICTIONS).read_bytes()
    (bad,) = finevolve("audit", key, "--sessions", "2", "--json", home=ready).expect(1).document
    wrong = {finding["check"]: finding["detail"] for finding in bad["findings"] if not finding["ok"]}
    assert "chain" not in wrong
    assert f"{last} predictions.parquet" in wrong["future"]


def rewrite_predictions(store: ReplayStore, key: str, predictions: Any) -> None:
    """Store other predictions for the last day, with a manifest that agrees with them."""
    from finevolve_pipeline.contracts import table_of
    from finevolve_pipeline.digests import digest_bytes
    from finevolve_pipeline.files import parquet_bytes
    from finevolve_pipeline.tables import Predictions

    last = SESSIONS[-1]
    columns = {str(name): predictions[name] for name in predictions.columns}
    data = parquet_bytes(table_of(columns, Predictions, "forged"), {})
    manifest = store.manifest(key, last)
    files = {**manifest.files, PREDICTIONS: digest_bytes(data)}
    sealed = manifest.model_copy(update={"files": files}).sealed()
    (store.folder(key, last) / PREDICTIONS).write_bytes(data)
    (store.folder(key, last) / MANIFEST).write_bytes(sealed.model_dump_json(indent=None).encode())


# -- two processes


def test_a_second_process_for_one_experiment_is_refused(finevolve: Command, ready: Path, complete: Path) -> None:
    finevolve("reset", "memrl-rules", "--from", "2025-01-10", "--yes", home=ready).expect()
    with ReplayStore(ready / "replay").lock("memrl-rules"):
        for command in (["run"], ["reset", "memrl-rules", "--from", "2025-01-07", "--yes"]):
            refused = finevolve(*command, home=ready).expect(3)
            (line,) = refused.errors
            assert re.fullmatch(
                r"error: experiment memrl-rules: process \d+ is replaying it; wait, or stop that process", line
            )
        finevolve("run", "--mechanism", "pipe", home=ready).expect()
    finevolve("run", home=ready).expect()
    assert contents(ready) == contents(complete)
    assert dagster_runs(ready).keys() == {"SUCCESS"}


def test_two_runs_at_once_on_a_new_home_corrupt_nothing(
    anywhere: Finevolve, fresh: Path, world: Path, complete: Path
) -> None:
    config = world / "finevolve.toml"
    outcomes = [process.wait() for process in [anywhere.start("run", home=fresh, config=config) for _ in range(2)]]
    for outcome in outcomes:
        assert outcome.code in (0, 3), outcome.err
        assert "Traceback" not in outcome.err
        if outcome.code == 3:
            assert re.search(
                r"^error: experiment \S+: .* is replaying it; wait, or stop that process$", outcome.err, re.M
            )
    # Refused or not, whatever one of the two began, it has finished.
    replays = ReplayStore(fresh / "replay")
    assert {key: replays.sessions(key) for key in EXPERIMENTS} == dict.fromkeys(EXPERIMENTS, SESSIONS)
    anywhere("run", home=fresh, config=config).expect()
    assert contents(fresh) == contents(complete)
    assert leftovers(fresh) == []


def test_homes_never_touch_each_other(finevolve: Command, complete: Path, tmp_path: Path) -> None:
    moved = copied(complete, tmp_path / "elsewhere")
    other = write_small_world(tmp_path / "other", mechanisms=["pipe"], seed=6)
    before = contents(complete)
    told = finevolve("run", "--json", home=moved).expect().document
    assert told["report"] == str(moved / "report" / "index.html")
    for arguments in import_arguments(other):
        finevolve(*arguments, home=tmp_path / "new", config=other / "finevolve.toml").expect()
    assert contents(complete) == before


def test_an_experiment_that_cheats_is_named_and_costs_the_others_nothing(finevolve: Command, tmp_path: Path) -> None:
    world = write_small_world(tmp_path / "world", mechanisms=["pipe", "oracle_canary", "zero"])
    home, config = tmp_path / "home", world / "finevolve.toml"
    for arguments in import_arguments(world):
        finevolve(*arguments, home=home, config=config).expect()
    said = finevolve("run", home=home, config=config).expect(1)
    assert "mechanism 'oracle_canary' asked for outcomes of" in said.err
    assert "evaluated: 2 of 3 experiments, without oracle_canary-rules" in said.err
    told = finevolve("ic", "--json", home=home, config=config).expect().document
    assert {row["experiment"] for row in told["ic"]} == {"pipe-rules", "zero-rules"}
    assert finevolve("audit", "zero-rules", home=home, config=config).expect().out
    alone = finevolve("run", "--mechanism", "pipe", home=home, config=config).expect()
    assert "nothing is due" in alone.err
