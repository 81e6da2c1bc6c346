"""The leaderboard: who stands in which table and where, what the page says of noise, and what names cannot do to it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from report_page import HOSTILE, Page

from finevolve_pipeline.errors import FinEvolveError
from finevolve_pipeline.evaluation.bundle.leaderboard import build_leaderboard
from finevolve_pipeline.evaluation.bundle.standings import Board, Entry, Row, Value, refused, standings
from finevolve_pipeline.evaluation.bundle.verify import REPEATED, SELF_CONSISTENT

BOARD = Board(
    first_session="2025-01-02",
    last_session="2026-03-31",
    sessions=299,
    horizons=(10,),
    industries=31,
    method="spearman",
    confidence=0.95,
    digest="a" * 32,
)


def row(mechanism: str, ts: float | None, cs: float | None, p: float | None = 0.5) -> Row:
    """A run with these gains over Pipe."""
    values = [
        Value(metric=metric, horizon=horizon, quantity=quantity, value=gain, low=-0.1, high=0.1, p=p)
        for metric, gain in (("tsIC", ts), ("csIC", cs))
        for horizon in (10, 0)
        for quantity in ("level", "difference")
    ]
    return Row(
        mechanism=mechanism,
        backbone="rules",
        seeds=1,
        models=(),
        values=tuple(values),
        coverage=1.0,
        invalid=0,
        calls=100,
        cost=0.0,
    )


def entry(
    file: str,
    *rows: Row,
    board: Board = BOARD,
    runs: str = "",
    submitter: str = "",
    level: str = SELF_CONSISTENT,
) -> Entry:
    return Entry(
        file=file,
        digest=file,
        runs=runs or file,
        level=level,
        problem="",
        submitter=submitter,
        board=board,
        rows=rows,
    )


HOW = "95 %, Holm's p over all differences of a bundle; none over bundles"

PIPE = row("pipe", 0.0, 0.0, None)


def ranks(entries: list[Entry], board: Board = BOARD) -> list[tuple[int | None, str, str]]:
    return [(one.rank, one.row.mechanism, one.entry.file) for one in standings(entries)[board]]


def test_runs_stand_by_their_mean_gain_and_pipe_has_no_rank() -> None:
    entries = [
        entry("b", row("mem0", 0.01, 0.03), PIPE),
        entry("a", row("expel", 0.05, -0.05), row("memrl", 0.03, 0.03)),
    ]
    assert ranks(entries) == [(1, "memrl", "a"), (2, "mem0", "b"), (3, "expel", "a"), (None, "pipe", "b")]


def test_equal_gains_stand_by_name_whatever_the_order_of_files() -> None:
    entries = [entry("z", row("mem0", 0.02, 0.02)), entry("y", row("mem0", 0.02, 0.02))]
    assert ranks(entries) == ranks(entries[::-1]) == [(1, "mem0", "y"), (2, "mem0", "z")]


def test_an_undefined_gain_has_no_rank() -> None:
    assert ranks([entry("a", row("mem0", None, 0.9), row("memrl", -0.1, -0.1))]) == [
        (1, "memrl", "a"),
        (None, "mem0", "a"),
    ]


def test_runs_that_cannot_be_compared_stand_in_tables_of_their_own() -> None:
    other = BOARD.model_copy(update={"digest": "b" * 32})
    found = standings([entry("a", row("mem0", 0.1, 0.1), board=other), entry("b", PIPE, row("memrl", 0, 0))])
    assert [(board.digest[0], len(rows)) for board, rows in found.items()] == [("a", 2), ("b", 1)]


def test_runs_that_are_sent_twice_count_once_whoever_sends_them() -> None:
    entries = [
        entry("copy", row("mem0", 0.1, 0.1), runs="one", submitter="somebody else"),
        entry("again", row("mem0", 0.1, 0.1), runs="one"),
    ]
    assert ranks(entries) == [(1, "mem0", "again")]


def test_of_files_with_the_same_runs_the_one_that_was_checked_furthest_counts_and_the_others_are_named(
    tmp_path: Path,
) -> None:
    entries = [
        entry("a copy", row("mem0", 0.1, 0.1), runs="one", submitter="Eve"),
        entry("the run", row("mem0", 0.1, 0.1), runs="one", submitter="Ada", level=REPEATED),
    ]
    assert ranks(entries) == [(1, "mem0", "the run")]
    build_leaderboard(tmp_path / "board", entries)
    assert "a copy (Eve)" in Page((tmp_path / "board" / "index.html").read_text("utf-8")).text
    document = json.loads((tmp_path / "board" / "leaderboard.json").read_text("utf-8"))
    assert [run["same_runs"] for run in document["boards"][0]["runs"]] == [["a copy"]]


def test_tables_that_differ_in_a_setting_name_it(tmp_path: Path) -> None:
    boards = [
        BOARD.model_copy(update={"digest": digest * 32, "conditions": (("news", "n"), ("min_sessions", number))})
        for digest, number in (("a", "20"), ("b", "30"))
    ]
    build_leaderboard(tmp_path / "two", [entry(board.digest, PIPE, board=board) for board in boards])
    text = Page((tmp_path / "two" / "index.html").read_text("utf-8")).text
    assert "What differs between the tables of this page is here: min_sessions 20." in text
    assert "What differs between the tables of this page is here: min_sessions 30." in text
    build_leaderboard(tmp_path / "one", [entry("a", PIPE, board=boards[0])])
    assert "What differs" not in Page((tmp_path / "one" / "index.html").read_text("utf-8")).text


@pytest.mark.parametrize(
    ("p", "sentence"),
    [
        (0.2, f"None of 2 mean differences from Pipe is told from noise ({HOW})."),
        (0.01, f"2 of 2 mean differences from Pipe are told from noise ({HOW})."),
        (None, "No difference from Pipe could be tested."),
    ],
)
def test_the_page_says_what_is_noise(tmp_path: Path, p: float | None, sentence: str) -> None:
    build_leaderboard(tmp_path / "board", [entry("a", PIPE, row("mem0", 0.1, 0.1, p))])
    assert sentence in Page((tmp_path / "board" / "index.html").read_text("utf-8")).text


def test_names_are_text_whatever_they_hold(tmp_path: Path) -> None:
    entries = [entry(f"{n} {name}", PIPE, row("mem0", 0.1, 0.1), submitter=name) for n, name in enumerate(HOSTILE)]
    entries += [refused(name, f"reason {name}") for name in HOSTILE]
    build_leaderboard(tmp_path / "board", entries)
    page = Page((tmp_path / "board" / "index.html").read_text("utf-8"))
    assert [tag for tag in ("script", "img", "svg", "b", "iframe", "a") if len(page.all(tag)) > (tag == "a")] == []
    for name in HOSTILE:
        assert page.text.count(" ".join(f"reason {name}".split())) == 1


def test_files_hold_every_value_and_every_refusal(tmp_path: Path) -> None:
    names = build_leaderboard(
        tmp_path / "board", [entry("a", PIPE, row("mem0", 0.1, None), submitter="=1+1"), refused("x", "is broken off")]
    )
    assert names == ("index.html", "leaderboard.csv", "leaderboard.json")
    document = json.loads((tmp_path / "board" / "leaderboard.json").read_text("utf-8"))
    assert document["refused"] == [{"file": "x", "reason": "is broken off"}]
    assert [run["rank"] for run in document["boards"][0]["runs"]] == [None, None]
    with open(tmp_path / "board" / "leaderboard.csv", encoding="utf-8", newline="") as source:
        rows = list(csv.DictReader(source))
    assert len(rows) == 16
    assert {one["submitter"] for one in rows} == {"'=1+1"}
    assert {one["value"] for one in rows if one["mechanism"] == "mem0" and one["metric"] == "csIC"} == {""}


def test_the_same_bundles_give_the_same_bytes_in_any_order(tmp_path: Path) -> None:
    entries = [entry(name, PIPE, row("mem0", 0.1, 0.2)) for name in "abc"] + [refused(name, "bad") for name in "xyz"]
    for folder, listed in (("one", entries), ("two", entries[::-1])):
        build_leaderboard(tmp_path / folder, listed)
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / f).iterdir()} for f in ("one", "two"))
    assert one == two


def test_no_bundle_gives_a_page_that_says_so(tmp_path: Path) -> None:
    build_leaderboard(tmp_path / "board", [])
    assert "No bundle has been verified." in Page((tmp_path / "board" / "index.html").read_text("utf-8")).text


def test_a_folder_that_holds_other_files_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("mine")
    with pytest.raises(FinEvolveError, match=r"holds notes\.md, which would be lost; name a folder that is new"):
        build_leaderboard(tmp_path, [])
    assert (tmp_path / "notes.md").read_text() == "mine"


def test_an_earlier_leaderboard_is_replaced(tmp_path: Path) -> None:
    assert build_leaderboard(tmp_path / "board", []) == build_leaderboard(tmp_path / "board", [])
