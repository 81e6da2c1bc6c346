"""The command `sensitivity`: its verdict, its table and its JSON, from a stored table."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
import pytest

from finevolve_pipeline.cli import main, output
from finevolve_pipeline.graph import SINGLE, Table, code_version
from finevolve_pipeline.tables import Sensitivity, conform
from resources.table_store import TableStore


def stored(home: Path, **changed: str) -> None:
    """Mem0 lies above Pipe, but not by Pearson; with `changed` columns in all rows."""
    row = {
        "stage": "overall",
        "backbone": "rules",
        "mechanism": "mem0",
        "metric": "csIC",
        "method": "spearman",
        "horizon": 10,
        "quantity": "difference",
        "cells": "common",
        "label_base": "close_t",
        "sessions": 299,
        **dict.fromkeys(("standard_error", "degrees", "low", "high", "p", "p_holm"), math.nan),
    }
    rows = [
        {**row, "variant": "headline", "estimate": 0.05, "finding": "above", "change": "same"},
        {**row, "variant": "pearson", "estimate": 0.01, "finding": "noise", "change": "weaker"},
        {**row, "variant": "own_cells", "estimate": 0.06, "finding": "above", "change": "same"},
    ]
    frame = conform(pd.DataFrame(rows).assign(**changed), Sensitivity, "sensitivity")
    table = Table("sensitivity", Sensitivity, (SINGLE,), lambda *_: (), lambda *_: frame, code_version())
    TableStore(home).write(table, SINGLE, frame, "test")


def said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_the_verdict_comes_first_then_what_changes(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output.results, "_width", 150)
    stored(home)
    lines = said(["sensitivity"], capsys).splitlines()
    assert lines[0] == "The conclusion changes under: Pearson. It survives 1 of 2 changes."
    assert "  Pearson: Mem0 csIC 10d, within noise." in lines
    row = next(line for line in lines if line.split()[:3] == ["Mem0", "csIC", "10d"])
    assert row.split()[3:] == ["+0.0500", "▲", "+0.0100", "≠", "+0.0600", "▲"]


def test_a_backbone_without_pipe_has_no_table_and_one_sentence_says_why(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(home, quantity="level")
    said_lines = said(["sensitivity"], capsys).splitlines()
    assert said_lines[said_lines.index("Backbone rules") + 1 :] == [
        "There is nothing to compare: no mechanism has been run beside Pipe.",
        "rules is a lexicon and no model, so it knew no outcomes.",
    ]


def test_json_holds_verdict_survival_and_every_row(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored(home)
    document = json.loads(said(["sensitivity", "--json"], capsys))
    assert document["verdict"][0] == "The conclusion changes under: Pearson."
    outcomes = {one["variant"]: one["outcome"] for one in document["survival"]}
    assert outcomes == {"pearson": "weaker", "own_cells": "same"}
    assert [row["variant"] for row in document["rows"]] == ["headline", "pearson", "own_cells"]
    assert document["rows"][0]["p_holm"] is None
