"""Tables in terminals of any width: nothing is cut, numbers are never broken."""

from __future__ import annotations

import re

import pytest
from rich.cells import cell_len

from finevolve_pipeline.cli import output
from finevolve_pipeline.cli.output import print_table

COLUMNS = ["Run", "10d", "20d", "40d", "Retrieved"]
ROWS = [
    ["Realised excess return", "-2.37%", "-6.58%", "not known yet", ""],
    ["ReasoningBank on rules-noisy", "+0.000 no direction", "-0.1234 wrong", "+0.456 ok", "16 of 1,234, 3 cut"],
    ["Pipe", "invalid", "+0.000 no direction", "-0.456", "0 of 0"],
]


def printed(width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *table: object) -> str:
    monkeypatch.setattr(output.results, "_width", width)
    print_table(*(table or ("Scores", COLUMNS, ROWS)))
    said = capsys.readouterr().out
    assert max(map(cell_len, said.splitlines())) <= width
    return said


@pytest.mark.parametrize("width", [200, 100, 80, 60, 50, 40, 24])
def test_every_word_of_a_table_is_there_whatever_the_width(width, monkeypatch, capsys) -> None:
    words = re.findall(r"[^\s─]+", printed(width, monkeypatch, capsys))
    for text in (*COLUMNS, *(cell for row in ROWS for cell in row)):
        for word in text.split():
            assert word in words or word.rstrip(":") in [one.rstrip(":") for one in words], (width, word)


def test_a_table_that_fits_has_a_line_a_row(monkeypatch, capsys) -> None:
    lines = printed(120, monkeypatch, capsys).splitlines()
    assert len([line for line in lines if line.strip()]) == 2 + 1 + len(ROWS)
    assert lines[-1].split() == ["Pipe", "invalid", "+0.000", "no", "direction", "-0.456", "0", "of", "0"]


def test_numbers_that_do_not_fit_beside_each_other_stand_in_several_tables(monkeypatch, capsys) -> None:
    columns = ["Run", *(f"{h} sessions" for h in range(1, 8))]
    rows = [[name, *(f"{sign}0.12{h}4" for h in range(1, 8))] for name, sign in (("Pipe", "+"), ("Mem0", "-"))]
    lines = printed(38, monkeypatch, capsys, "Scores", columns, rows).splitlines()
    assert [line.split() for line in lines if line.startswith("Mem0")] == [
        ["Mem0", "-0.1214", "-0.1224", "-0.1234"],
        ["Mem0", "-0.1244", "-0.1254", "-0.1264"],
        ["Mem0", "-0.1274"],
    ]
    assert " ".join(" ".join(lines).split()).count("Scores, continued") == 2


def test_where_not_even_words_fit_each_row_is_told_in_lines(monkeypatch, capsys) -> None:
    said = printed(24, monkeypatch, capsys)
    assert "  Retrieved: 16 of\n  1,234, 3 cut\n" in said
    assert "Run: Pipe\n  10d: invalid\n" in said


def test_long_texts_are_broken_and_short_columns_stay(monkeypatch, capsys) -> None:
    path = "/data/" + "x" * 90
    said = printed(60, monkeypatch, capsys, "doctor", ["check", "", "detail"], [["home", "ok", path]], 3)
    assert re.sub(r"\s", "", "".join(said.splitlines()[-2:])) == f"homeok{path}"


def test_nothing_in_a_cell_is_taken_for_markup(monkeypatch, capsys) -> None:
    assert "[bold]x[/bold]" in printed(80, monkeypatch, capsys, "[red]title", ["name"], [["[bold]x[/bold]"]])
