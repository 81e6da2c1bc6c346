"""Golden values: the ten mean gains that the paper's Table 2 prints (arXiv 2606.06960v4, section 4.2)."""

from __future__ import annotations

import pytest

from finevolve_pipeline.evaluation.layout import table2, table2_markdown, table2_rows
from finevolve_pipeline.evaluation.published import (
    PUBLISHED_METHOD,
    PUBLISHED_TABLE2,
    PublishedRow,
    published_coefficients,
    published_comparison,
)

GAINS = [row for row in PUBLISHED_TABLE2 if row.gain_ts is not None]


def test_the_table_has_two_panels_of_six() -> None:
    assert len(PUBLISHED_TABLE2) == 12
    assert len(GAINS) == 10
    assert len(published_coefficients()) == 12 * 3 * 2


@pytest.mark.parametrize("row", GAINS, ids=lambda row: f"{row.mechanism}-{row.backbone}")
def test_average_gain_comes_out_to_four_decimals(row: PublishedRow) -> None:
    comparison = published_comparison()
    mine = comparison[
        (comparison["backbone"] == row.backbone)
        & (comparison["mechanism"] == row.mechanism)
        & (comparison["horizon"] == 0)
    ].set_index("metric")["gain"]
    assert f"{mine['tsIC']:.4f}" == f"{row.gain_ts:.4f}"
    assert f"{mine['csIC']:.4f}" == f"{row.gain_cs:.4f}"


def test_arrows_stand_where_the_paper_has_them() -> None:
    arrows = {
        (row.backbone[:4], row.mechanism, f"{cell.metric}{cell.horizon}")
        for row in table2_rows(published_comparison(), method=PUBLISHED_METHOD)
        for cell in row.cells
        if cell.above_pipe
    }
    assert arrows == {
        ("Deep", "mem0", "csIC40"),
        ("Deep", "reflexion", "csIC10"),
        ("Deep", "reflexion", "tsIC20"),
        ("Deep", "reflexion", "csIC20"),
        ("Deep", "reflexion", "tsIC40"),
        ("Deep", "expel", "tsIC10"),
        ("Deep", "expel", "csIC10"),
        ("Deep", "reasoningbank", "tsIC40"),
        ("Deep", "reasoningbank", "csIC40"),
        ("Qwen", "reflexion", "csIC10"),
        ("Qwen", "expel", "csIC10"),
        ("Qwen", "expel", "csIC20"),
        ("Qwen", "reasoningbank", "tsIC40"),
        ("Qwen", "reasoningbank", "csIC40"),
    }


def test_the_markdown_reads_like_the_paper() -> None:
    lines = table2_markdown(table2(published_comparison(), methods=(PUBLISHED_METHOD,))).splitlines()
    assert (
        "| DeepSeek-V4-Flash | + Mem0 | 0.0202 | 0.0149 | 0.0325 | 0.0240 | 0.0288 | 0.0416 ↑ | -0.0180 | -0.0034 |"
    ) in lines
