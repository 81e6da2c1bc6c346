"""Golden values: the ten mean gains that the paper's Table 2 prints (arXiv 2606.06960v4, section 4.2)."""

from __future__ import annotations

import csv
import io

import pytest

from finevolve_pipeline.evaluation.layout import (
    table2,
    table2_csv,
    table2_document,
    table2_latex,
    table2_markdown,
    table2_rows,
)
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


PUBLISHED = table2(published_comparison(), methods=(PUBLISHED_METHOD,))


@pytest.mark.parametrize("row", GAINS, ids=lambda row: f"{row.mechanism}-{row.backbone}")
def test_every_format_has_the_average_gains(row: PublishedRow) -> None:
    gains = [f"{row.gain_ts:+.4f}", f"{row.gain_cs:+.4f}"]
    (mine,) = (one for one in PUBLISHED.rows if (one.backbone, one.mechanism) == (row.backbone, row.mechanism))
    assert mine.texts()[-2:] == gains
    signed = [gain.replace("-", "$-$") for gain in gains]
    assert any(
        line.startswith(f"+ {mine.name} & {row.ts[0]:.4f}") and line.endswith(f"{signed[0]} & {signed[1]} \\\\")
        for line in table2_latex(PUBLISHED).splitlines()
    )
    lines = csv.DictReader(io.StringIO(table2_csv(PUBLISHED)))
    from_csv = {
        line["metric"]: float(line["difference"])
        for line in lines
        if (line["backbone"], line["mechanism"], line["horizon"]) == (row.backbone, row.mechanism, "0")
    }
    assert [f"{from_csv[metric]:+.4f}" for metric in ("tsIC", "csIC")] == gains
    (told,) = (
        one
        for one in table2_document(PUBLISHED)["rows"]
        if (one["backbone"], one["mechanism"]) == (row.backbone, row.mechanism)
    )
    assert [f"{gain['difference']['value']:+.4f}" for gain in told["mean_gains"]] == gains


def test_latex_has_the_papers_row() -> None:
    assert (
        "+ ReasoningBank & 0.0101 & 0.0074 & 0.0465 & 0.0322 & 0.1033$\\uparrow$ & 0.0716$\\uparrow$ & $-$0.0034 & "
        "$-$0.0075 \\\\"
    ) in table2_latex(PUBLISHED).splitlines()


def test_a_run_with_the_papers_coefficients_has_the_papers_figures_beside_it() -> None:
    comparison = published_comparison().assign(method="spearman")
    comparison["backbone"] = comparison["backbone"].str.lower()
    rows = table2(comparison).rows
    assert len(rows) == 12
    for row in rows:
        assert [cell.published for cell in row.cells] == [cell.value for cell in row.cells]
        assert row.published_texts()[-2:] == [text.removesuffix(" *") for text in row.texts()[-2:]]


def test_published_figures_stand_beside_no_published_row() -> None:
    assert not any(row.is_published for row in PUBLISHED.rows)
