"""The paper's case study through the real command line: closes imported, excess returns printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from finevolve_pipeline.cli import main

PAPER = {10: -0.0237, 20: -0.0658, 40: -0.1075}
"""Section 4.3: realised excess return of 801170 for predictions of 2025-05-30."""

POINTS = {("2025-05-16", 10): 34.16, ("2025-04-29", 20): 101.42, ("2025-03-31", 40): 91.20}
"""Appendix C.3.1: realised changes in index points, all known on 2025-05-30."""

pytestmark = pytest.mark.real_data


def run(*arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert ended.value.code == 0


def alpha_on(day: str, capsys: pytest.CaptureFixture[str]) -> dict[int, dict[str, float]]:
    capsys.readouterr()
    run("alpha", "801170", day, "--json")
    return {row["horizon"]: row for row in json.loads(capsys.readouterr().out)["outcomes"]}


def test_the_case_study_comes_out_of_the_real_closes(
    home: Path, real_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    market = real_data / "market"
    run(
        *("import", "market"),
        *("--industries", str(market / "shenwan_l1_daily.csv")),
        *("--industry-volume-unit", "1e8-shares", "--industry-amount-unit", "1e8-yuan"),
        *("--benchmark", str(market / "csi1000_daily.csv")),
        *("--benchmark-volume-unit", "shares", "--benchmark-amount-unit", "yuan"),
    )
    found = alpha_on("2025-05-30", capsys)
    assert {h: round(row["alpha"], 4) for h, row in found.items()} == PAPER
    for (day, horizon), points in POINTS.items():
        row = alpha_on(day, capsys)[horizon]
        assert row["matured_on"] == "2025-05-30"
        assert round(row["close_to"] - row["close_from"], 2) == points
