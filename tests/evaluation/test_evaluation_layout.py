"""Table 2: what stands in its rows, and the same as Markdown, CSV, LaTeX and JSON."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from coefficients import coefficients
from hypothesis import given, settings
from hypothesis import strategies as st
from inferred import Inferred, inference, level

from finevolve_pipeline.evaluation.comparison import compare_with_pipe
from finevolve_pipeline.evaluation.layout import (
    Table2,
    Table2Row,
    by_backbone,
    legend,
    table2,
    table2_csv,
    table2_document,
    table2_json,
    table2_latex,
    table2_markdown,
    table2_notes,
    table2_rows,
)
from finevolve_pipeline.evaluation.report.words import Words
from finevolve_pipeline.spreadsheet import frame_csv, unsafe_cell
from finevolve_pipeline.tables import Comparison, conform

PAIR = compare_with_pipe(coefficients(mem0=(0.03, 0.03), pipe=(0.02, 0.04)))
"""Mem0 lies 0.01 above Pipe in csIC at 10 sessions and as much below at 20; in tsIC twice that."""

TESTS = inference(
    Inferred("mem0", "csIC", 10, 0.01, 0.2, 0.03),
    Inferred("mem0", "csIC", 20, -0.01, 0.01, 0.004),
    Inferred("mem0", "csIC", 0, 0.0, 0.9, 0.02),
    Inferred("mem0", "tsIC", 20, -0.02),
    level("pipe", "csIC", 10, 0.02, 0.03, detectable=0.015),
)
"""Of all differences only csIC at 20 sessions goes beyond noise, and that one lies below Pipe."""

HOSTILE = (
    "a|b&c_d%e",
    "<script>alert(1)</script>",
    "=cmd|' /C calc'!A0",
    "*x* [y](javascript:z) `q` \\textbf{w} $1^2$ ~#",
    "[first\nsecond",
    "@sum",
)


def example() -> Table2:
    return table2(PAIR, TESTS)


def renamed(frame: pd.DataFrame, **names: str) -> pd.DataFrame:
    return frame.assign(mechanism=frame["mechanism"].replace(names))


# -- rows


def test_pipe_stands_first_and_arrows_only_above_it() -> None:
    comparison = compare_with_pipe(coefficients(mem0=(0.03, 0.04), pipe=(0.02, 0.04)))
    pipe, mem0 = table2_rows(comparison)
    assert pipe.texts() == ["Pipe", "0.0400", "0.0200", "0.0800", "0.0400", "–", "–"]
    assert mem0.texts() == ["+ Mem0", "0.0600 ↑", "0.0300 ↑", "0.0800", "0.0400", "+0.0100", "+0.0050"]


def test_a_plus_is_for_what_adds_experience_to_pipe() -> None:
    comparison = compare_with_pipe(coefficients(pipe=(0.02, 0.04), pipe_aa=(0.02, 0.03), mem0=(0.03, 0.04)))
    rows = table2_rows(comparison, without_experience=["pipe_aa"])
    assert [row.label for row in rows] == ["Pipe", "Pipe A/A", "+ Mem0"]


def test_a_star_is_by_the_adjusted_p_and_an_arrow_by_the_sign() -> None:
    _, mem0 = example().rows
    assert mem0.texts() == ["+ Mem0", "0.0600 ↑", "0.0300 ↑", "0.0600", "0.0300 *", "+0.0000", "+0.0000"]
    assert [cell.differs for cell in mem0.cells] == [None, False, None, True]


def test_the_level_of_the_star_is_what_the_confidence_leaves() -> None:
    strict = table2(PAIR, TESTS, confidence=0.995)
    assert (strict.level, strict.rows[1].cells[3].differs) == (0.005, False)
    at_the_level = inference(Inferred("mem0", "csIC", 20, -0.01, 0.05))
    assert table2(PAIR, at_the_level).rows[1].cells[3].differs is False


def test_cells_hold_intervals_p_values_and_what_could_have_been_found() -> None:
    pipe, mem0 = example().rows
    found = mem0.cells[3].difference
    assert (found.low, found.high) == (pytest.approx(-0.02), pytest.approx(0.0))
    assert (found.p, found.p_holm, found.p_bh, found.minimum_detectable) == (0.001, 0.01, 0.005, 0.004)
    assert mem0.gains[1].difference.p_holm == 0.9
    assert pipe.cells[1].level.minimum_detectable == 0.015
    assert math.isnan(pipe.cells[1].difference.value)


def test_what_was_not_tested_is_unknown_and_neither_equal_nor_different() -> None:
    for untested in (None, TESTS.iloc[:0], inference(Inferred("mem0", "csIC", 20, -0.01))):
        _, mem0 = table2(PAIR, untested).rows
        assert [cell.differs for cell in (*mem0.cells, *mem0.gains)] == [None] * 6
        assert "*" not in "".join(mem0.texts())
        assert math.isnan(mem0.cells[3].difference.p)


def test_without_pipe_there_are_coefficients_and_no_gains() -> None:
    rows = table2_rows(compare_with_pipe(coefficients(mem0=(0.03, 0.01))), inference=TESTS)
    assert rows[0].texts()[:4] == ["+ Mem0", "0.0600", "0.0300", "0.0200"]
    assert rows[0].texts()[5:] == ["–", "–"]
    assert table2_notes(rows) == ("Backbone rules has no Pipe run, so no gain can be computed for it.",)


def test_undefined_coefficients_are_named() -> None:
    comparison = compare_with_pipe(coefficients(pipe=(0.02, math.nan), mem0=(0.03, 0.01)))
    (note,) = table2_notes(table2_rows(comparison))
    assert "Pipe tsIC at 20 sessions, Pipe csIC at 20 sessions" in note


def test_backbones_are_panels_of_their_own() -> None:
    one, two = coefficients(pipe=(0.02, 0.04)), coefficients(pipe=(0.1, 0.1), mem0=(0.0, 0.3))
    comparison = compare_with_pipe(pd.concat([one, two.assign(backbone="other")]))
    panels = by_backbone(table2_rows(comparison))
    assert [(backbone, len(rows)) for backbone, rows in panels.items()] == [("rules", 1), ("other", 2)]
    assert panels["other"][1].gain_cs == pytest.approx(0.05)


def test_stages_and_correlations_are_panels_overall_first() -> None:
    both = pd.concat([PAIR.assign(stage="cold_start"), PAIR, PAIR.assign(method="pearson")])
    assert [panel.title for panel in table2(both).panels] == [
        "Overall, Spearman",
        "Overall, Pearson",
        "Cold start, Spearman",
    ]
    assert [panel.title for panel in table2(both, methods=("pearson",)).panels] == ["Overall, Pearson"]


@pytest.mark.parametrize("horizons", [(5,), (1, 3), (10, 20, 40), (1, 2, 3, 4, 5)])
def test_any_mechanisms_and_horizons_have_their_columns_in_every_format(horizons: tuple[int, ...]) -> None:
    values = {f"m{number}": tuple(number * h / 1000 for h in horizons) for number in range(11)}
    comparison = compare_with_pipe(coefficients(horizons, pipe=tuple(0.01 for _ in horizons), **values))
    table = table2(comparison, inference(Inferred("m3", "csIC", horizons[0], 0.1, 0.01)))
    assert len(table.rows) == 12
    assert {len(row.texts()) for row in table.rows} == {1 + 2 * len(horizons) + 2}
    grid = [line for line in table2_markdown(table).splitlines() if line.startswith("| rules | +") and " ↑" in line]
    assert {line.count(" | ") for line in grid} == {1 + 2 * len(horizons) + 2}
    assert len(list(csv.DictReader(io.StringIO(table2_csv(table))))) == 12 * 2 * (len(horizons) + 1)
    assert f"{horizons[-1]} sessions" in table2_latex(table)
    assert {cell["horizon"] for row in table2_document(table)["rows"] for cell in row["cells"]} == set(horizons)


# -- the paper's figures beside

ALL_THREE = (0.01, 0.02, 0.03)


def beside(
    backbone: str, mechanism: str, horizons: tuple[int, ...] = (10, 20, 40), stage: str = "overall"
) -> Table2Row:
    matrix = coefficients(horizons, **{mechanism: tuple(0.01 for _ in horizons)})
    comparison = compare_with_pipe(matrix.assign(backbone=backbone, stage=stage))
    (row,) = table2_rows(comparison, stage)
    return row


@pytest.mark.parametrize("backbone", ["qwen3.6-35b-a3b", "Qwen3.6-35B-A3B", "QWEN 3.6 35b_a3b"])
def test_published_figures_stand_beside_names_that_match(backbone: str) -> None:
    row = beside(backbone, "reasoningbank")
    assert [cell.published for cell in row.cells] == [0.0101, 0.0074, 0.0465, 0.0322, 0.1033, 0.0716]
    assert [cell.published for cell in row.gains] == [-0.0034, -0.0075]
    assert row.published_texts()[0] == "+ ReasoningBank, paper"
    assert beside("deepseek-v4-flash", "expel").cells[0].published == 0.0295


@pytest.mark.parametrize(
    ("backbone", "mechanism"),
    [
        ("rules", "mem0"),
        ("qwen3.63-5b-a3b", "mem0"),
        ("qwen3.6-35b-a3b-instruct", "mem0"),
        ("deepseek-v4", "mem0"),
        ("deepseek-v4-flash", "mem0_full"),
        ("deepseek-v4-flash", "momentum"),
    ],
)
def test_other_names_have_no_published_figures(backbone: str, mechanism: str) -> None:
    assert not beside(backbone, mechanism).is_published


def test_published_figures_are_of_the_papers_horizons_and_whole_window_only() -> None:
    row = beside("deepseek-v4-flash", "mem0", (5, 10))
    assert [cell.published for cell in row.cells] == [None, None, 0.0202, 0.0149]
    assert [cell.published for cell in row.gains] == [None, None]
    assert row.published_texts() == ["+ Mem0, paper", "–", "–", "0.0202", "0.0149", "–", "–"]
    assert not beside("deepseek-v4-flash", "mem0", stage="cold_start").is_published


# -- how it is to be read


@pytest.mark.parametrize(
    "table", [table2(PAIR, TESTS), table2(PAIR), table2(PAIR.assign(backbone="DeepSeek-V4-Flash"))]
)
def test_the_legend_tells_the_same_in_chinese(table: Table2) -> None:
    english, translated = (legend(table.panels[0], table.level, Words(language)) for language in ("en", "zh"))
    assert english == legend(table.panels[0], table.level)
    assert len(english) == len(translated)
    for one, other in zip(english, translated, strict=True):
        assert re.search(r"[\u4e00-\u9fff]", other)
        assert re.findall(r"\d+\.\d+|[↑*–]", one) == re.findall(r"\d+\.\d+|[↑*–]", other)


# -- Markdown

MARKDOWN = """\
## Overall, Spearman

| Backbone | Method | 10d tsIC | 10d csIC | 20d tsIC | 20d csIC | ΔtsIC | ΔcsIC |
|---|---|---:|---:|---:|---:|---:|---:|
| rules | Pipe | 0.0400 | 0.0200 | 0.0800 | 0.0400 | – | – |
| rules | + Mem0 | 0.0600 ↑ | 0.0300 ↑ | 0.0600 | 0.0300 \\* | +0.0000 | +0.0000 |

↑ lies above Pipe; it says nothing about chance. – undefined, or not tested.

\\* differs from Pipe beyond noise: Holm's adjusted p is below 0.05 (over all differences of this backbone, stage and \
correlation). No star does not mean equal to Pipe: a difference below the least detectable one is easily missed.

### Differences from Pipe, Overall, Spearman

| Backbone | Method | Horizon | Metric | Difference | 95 % interval | p | Holm p | BH p | Least detectable |
|---|---|---:|---:|---:|---:|---:|---:|---:|---:|
| rules | + Mem0 | 10d | tsIC | +0.0200 | – | – | – | – | – |
| rules | + Mem0 | 10d | csIC | +0.0100 | +0.0000 to +0.0200 | 0.020 | 0.200 | 0.100 | 0.0300 |
| rules | + Mem0 | 20d | tsIC | -0.0200 | – | – | – | – | – |
| rules | + Mem0 | 20d | csIC | -0.0100 | -0.0200 to +0.0000 | 0.001 | 0.010 | 0.005 | 0.0040 |
| rules | + Mem0 | mean | tsIC | +0.0000 | – | – | – | – | – |
| rules | + Mem0 | mean | csIC | +0.0000 | -0.0100 to +0.0100 | 0.090 | 0.900 | 0.450 | 0.0200 |

### Coefficients against zero, Overall, Spearman

| Backbone | Method | Horizon | Metric | Coefficient | 95 % interval | p | Holm p | BH p | Least detectable |
|---|---|---:|---:|---:|---:|---:|---:|---:|---:|
| rules | Pipe | 10d | tsIC | 0.0400 | – | – | – | – | – |
| rules | Pipe | 10d | csIC | 0.0200 | +0.0100 to +0.0300 | 0.003 | 0.030 | 0.015 | 0.0150 |
| rules | Pipe | 20d | tsIC | 0.0800 | – | – | – | – | – |
| rules | Pipe | 20d | csIC | 0.0400 | – | – | – | – | – |
| rules | + Mem0 | 10d | tsIC | 0.0600 | – | – | – | – | – |
| rules | + Mem0 | 10d | csIC | 0.0300 | – | – | – | – | – |
| rules | + Mem0 | 20d | tsIC | 0.0600 | – | – | – | – | – |
| rules | + Mem0 | 20d | csIC | 0.0300 | – | – | – | – | – |
"""


def test_markdown_is_as_written_by_hand() -> None:
    assert table2_markdown(example()) == MARKDOWN


def test_markdown_of_an_untested_table_says_so_and_has_no_second_table() -> None:
    text = table2_markdown(table2(PAIR))
    assert "Nothing here has been tested: differences may be chance." in text
    assert "###" not in text
    assert "\\*" not in text
    assert table2_markdown(table2(PAIR.iloc[:0])) == "No run to compare.\n"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_text_in_markdown(name: str) -> None:
    text = table2_markdown(table2(renamed(PAIR, mem0=name), renamed(TESTS, mem0=name)))
    (line,) = (line for line in text.splitlines() if line.startswith("| rules |") and " ↑" in line)
    cells = re.split(r"(?<!\\)\|", line.strip("|"))
    assert len(cells) == 8
    shown = cells[1].strip()
    assert not re.search(r"(?<!\\)[`*_\[\]$~#]|[<>]|&(?!(amp|lt|gt);)", shown)
    for entity, letter in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
        shown = shown.replace(entity, letter)
    assert re.sub(r"\\(.)", r"\1", shown) == "+ " + " ".join(name.split())


# -- CSV

HEAD = (
    "backbone,mechanism,name,stage,method,metric,horizon,coefficient,low,high,p,p_holm,p_bh,minimum_detectable,"
    "above_pipe,difference,difference_low,difference_high,difference_p,difference_p_holm,difference_p_bh,"
    "difference_minimum_detectable,differs_beyond_noise,published_coefficient,published_mean_gain"
)


def test_csv_is_as_written_by_hand() -> None:
    halves = compare_with_pipe(coefficients((10,), pipe=(0.25,), mem0=(0.5,)))
    tests = inference(
        Inferred("mem0", "csIC", 10, 0.25, 0.01, 0.125, half=0.5),
        Inferred("mem0", "csIC", 0, 0.25, 0.5, 0.125, half=0.25),
        level("pipe", "tsIC", 10, 0.5, 1.0, detectable=1.5, half=0.25),
    )
    table = table2(halves.assign(backbone="DeepSeek-V4-Flash"), tests.assign(backbone="DeepSeek-V4-Flash"))
    assert table2_csv(table).splitlines() == [
        HEAD,
        "DeepSeek-V4-Flash,pipe,Pipe,overall,spearman,tsIC,10,0.5,0.25,0.75,0.1,1.0,0.5,1.5,,,,,,,,,,0.0243,",
        "DeepSeek-V4-Flash,pipe,Pipe,overall,spearman,csIC,10,0.25,,,,,,,,,,,,,,,,0.0177,",
        "DeepSeek-V4-Flash,pipe,Pipe,overall,spearman,tsIC,0,0.5,,,,,,,,,,,,,,,,,",
        "DeepSeek-V4-Flash,pipe,Pipe,overall,spearman,csIC,0,0.25,,,,,,,,,,,,,,,,,",
        "DeepSeek-V4-Flash,mem0,Mem0,overall,spearman,tsIC,10,1.0,,,,,,,true,0.5,,,,,,,,0.0202,",
        "DeepSeek-V4-Flash,mem0,Mem0,overall,spearman,csIC,10,0.5,,,,,,,true,0.25,-0.25,0.75,0.001,0.01,0.005,0.125,"
        "true,0.0149,",
        "DeepSeek-V4-Flash,mem0,Mem0,overall,spearman,tsIC,0,1.0,,,,,,,true,0.5,,,,,,,,,",
        "DeepSeek-V4-Flash,mem0,Mem0,overall,spearman,csIC,0,0.5,,,,,,,true,0.25,0.0,0.5,0.05,0.5,0.25,0.125,false,,",
    ]


def test_any_table_as_csv_guards_text_and_keeps_numbers() -> None:
    frame = pd.DataFrame({"source": ["=1+1", "cls", "@x"], "n": [-1.5, np.nan, 2.0], "k": [1, 2, 3]})
    assert frame_csv(frame) == "source,n,k\n'=1+1,-1.5,1\ncls,,2\n'@x,2.0,3\n"
    assert frame_csv(frame.iloc[:0]) == "source,n,k\n"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_no_formula_and_comes_back_from_csv(name: str) -> None:
    text = table2_csv(table2(renamed(PAIR, mem0=name)))
    lines = list(csv.DictReader(io.StringIO(text, newline="")))
    assert {unsafe_cell(line["mechanism"]) for line in lines} == {"pipe", name}
    assert not [cell for line in lines for cell in (line["mechanism"], line["name"]) if cell[:1] in tuple("=+-@")]


# -- LaTeX

LATEX = r"""% Needs \usepackage{booktabs,longtable}
\begin{table}
\centering
\caption{Overall, Spearman}
\small
\begin{tabular}{lrrrrrr}
\toprule
 & \multicolumn{2}{c}{10 sessions} & \multicolumn{2}{c}{20 sessions} & \multicolumn{2}{c}{Avg. gain} \\
\cmidrule(lr){2-3} \cmidrule(lr){4-5} \cmidrule(lr){6-7}
Method & tsIC & csIC & tsIC & csIC & $\Delta$ tsIC & $\Delta$ csIC \\
\midrule
\multicolumn{7}{l}{\textit{rules}} \\
\midrule
Pipe & 0.0400 & 0.0200 & 0.0800 & 0.0400 & -- & -- \\
+ Mem0 & 0.0600$\uparrow$ & 0.0300$\uparrow$ & 0.0600 & 0.0300$^{*}$ & +0.0000 & +0.0000 \\
\bottomrule
\end{tabular}
\end{table}

\begin{itemize}
\item $\uparrow$ lies above Pipe; it says nothing about chance. -- undefined, or not tested.
\item {*} differs from Pipe beyond noise: Holm's adjusted p is below 0.05 (over all differences of this backbone, \
stage and correlation). No star does not mean equal to Pipe: a difference below the least detectable \
one is easily missed.
\end{itemize}

\begin{longtable}{llrrrrrrrr}
\caption{Differences from Pipe, Overall, Spearman} \\
\toprule
Backbone & Method & Horizon & Metric & Difference & 95 \% interval & p & Holm p & BH p & Least detectable \\
\midrule
\endhead
rules & + Mem0 & 10d & tsIC & +0.0200 & -- & -- & -- & -- & -- \\
rules & + Mem0 & 10d & csIC & +0.0100 & +0.0000 to +0.0200 & 0.020 & 0.200 & 0.100 & 0.0300 \\
rules & + Mem0 & 20d & tsIC & $-$0.0200 & -- & -- & -- & -- & -- \\
rules & + Mem0 & 20d & csIC & $-$0.0100 & $-$0.0200 to +0.0000 & 0.001 & 0.010 & 0.005 & 0.0040 \\
rules & + Mem0 & mean & tsIC & +0.0000 & -- & -- & -- & -- & -- \\
rules & + Mem0 & mean & csIC & +0.0000 & $-$0.0100 to +0.0100 & 0.090 & 0.900 & 0.450 & 0.0200 \\
\bottomrule
\end{longtable}
"""


def test_latex_is_as_written_by_hand() -> None:
    written = LATEX.replace(" \\\nstage", " stage").replace(" \\\none", " one")  # one line, too long for this file
    assert table2_latex(table2(PAIR, TESTS[TESTS["quantity"] == "difference"])) == written


def latex_problems(text: str) -> list[str]:
    """What an engine would stumble over: braces, environments, numbers of columns, letters with a meaning."""
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    bare = re.sub(r"\\[{}$&#%_]", "", body)
    problems = []
    depth = 0
    for letter in bare:
        depth += (letter == "{") - (letter == "}")
        problems += ["a brace too many"] if depth < 0 else []
    problems += ["braces are open"] if depth else []
    problems += ["an odd dollar"] if bare.count("$") % 2 else []
    problems += [f"bare {letter}" for letter in "#%~<>|↑–Δ" if letter in bare]
    problems += ["bare _"] if "_" in bare else []
    problems += ["bare ^"] if "^" in bare.replace("$^{*}$", "") else []
    if re.findall(r"\\begin\{(\w+)\}", bare) != in_order_of_ends(bare):
        problems.append("environments do not close")
    for columns, rows in re.findall(r"\\begin\{(?:tabular|longtable)\}\{([lr]+)\}(.*?)\\end\{", bare, flags=re.S):
        for row in rows.split("\\\\")[:-1]:
            spans = [int(width) - 1 for width in re.findall(r"\\multicolumn\{(\d+)\}", row)]
            if "\\caption" not in row and row.count("&") + 1 + sum(spans) != len(columns):
                problems.append(f"columns of {row!r}")
            if re.match(r"\s*[\[*]", row):
                problems.append(f"option of a row's end: {row!r}")
    return problems


def in_order_of_ends(text: str) -> list[str]:
    """Environments in the order of their beginnings, as their ends tell it; unlike the beginnings if any is amiss."""
    opened: list[str] = []
    order: list[str] = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if kind == "begin":
            opened.append(name)
            order.append(name)
        elif not opened or opened.pop() != name:
            return []
    return order if not opened else []


@pytest.mark.parametrize("name", ["mem0", *HOSTILE, "\\end{tabular}", "100% & more", "{", "}", "--x"])
def test_latex_of_any_name_is_well_formed(name: str) -> None:
    both = pd.concat([PAIR, PAIR.assign(backbone=name)])
    table = table2(renamed(both, mem0=name), renamed(TESTS, mem0=name))
    assert latex_problems(table2_latex(table)) == []
    assert latex_problems(table2_latex(table2(PAIR.iloc[:0]))) == []


def test_the_check_of_latex_finds_what_is_wrong() -> None:
    good = table2_latex(example())
    for wrong in ("a_b", "50%x & y \\\\", "{", "a & b"):
        assert latex_problems(good.replace("+ Mem0", wrong))


# -- JSON


def test_json_is_as_written_by_hand() -> None:
    (pipe, mem0) = json.loads(table2_json(example()))["rows"]
    assert {key: value for key, value in mem0.items() if key not in ("cells", "mean_gains")} == {
        "backbone": "rules",
        "mechanism": "mem0",
        "name": "Mem0",
        "stage": "overall",
        "method": "spearman",
    }
    numbers = ("value", "low", "high", "p", "p_holm", "p_bh", "minimum_detectable")
    gain = PAIR[(PAIR["mechanism"] == "mem0") & (PAIR["metric"] == "csIC") & (PAIR["horizon"] == 20)]["gain"].item()
    assert mem0["cells"][3] == {
        "horizon": 20,
        "metric": "csIC",
        "coefficient": {**dict.fromkeys(numbers), "value": 0.03},
        "difference": dict(zip(numbers, (gain, -0.02, 0.0, 0.001, 0.01, 0.005, 0.004), strict=True)),
        "above_pipe": False,
        "differs_beyond_noise": True,
        "published": None,
    }
    assert (pipe["cells"][1]["above_pipe"], pipe["cells"][1]["differs_beyond_noise"]) == (None, None)
    assert [gain["horizon"] for gain in mem0["mean_gains"]] == [0, 0]


def test_json_explains_every_key_that_it_uses() -> None:
    document = table2_document(example())
    defined = {word for key in document["definitions"] for word in key.split(", ")}
    keys = set()
    for row in document["rows"]:
        for cell in (*row["cells"], *row["mean_gains"]):
            keys |= set(cell) | set(cell["difference"])
    assert keys - {"metric"} <= defined
    assert (document["confidence"], document["level"]) == (0.95, 0.05)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_in_json_ends_no_script_and_comes_back(name: str) -> None:
    text = table2_json(table2(renamed(PAIR, mem0=name)))
    assert not set("<>&") & set(text)
    assert json.loads(text)["rows"][1]["mechanism"] == name


# -- there and back

NUMBERS = st.floats(-1, 1) | st.just(math.nan)
SHARES = st.floats(0, 1) | st.just(math.nan)
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\r"), min_size=1, max_size=12)


@st.composite
def tables(draw: st.DrawFn) -> Table2:
    """A table of one mechanism with any name and any numbers, at one or two horizons."""
    horizons = draw(st.sampled_from([(10,), (1, 40)]))
    name = draw(NAMES)
    rows = [
        ("b", name, "overall", metric, "spearman", horizon, draw(NUMBERS), math.nan, draw(NUMBERS))
        for horizon in (*horizons, 0)
        for metric in ("tsIC", "csIC")
    ]
    columns = ["backbone", "mechanism", "stage", "metric", "method", "horizon", "value", "pipe", "gain"]
    comparison = conform(pd.DataFrame(rows, columns=columns).assign(seeds=1), Comparison, "test")
    tests = inference(
        *(
            replace(Inferred(name, metric, horizon, draw(NUMBERS), draw(SHARES), draw(SHARES)), backbone="b")
            for horizon in (*horizons, 0)
            for metric in ("tsIC", "csIC")
        )
    )
    return table2(comparison, tests)


def same(left: float | None, right: float) -> bool:
    return math.isnan(right) if left is None else left == right


@settings(max_examples=60, deadline=None)
@given(tables())
def test_csv_and_json_hold_every_number_exactly(table: Table2) -> None:
    lines = list(csv.DictReader(io.StringIO(table2_csv(table), newline="")))
    (row,) = table.rows
    (told,) = json.loads(table2_json(table))["rows"]
    assert told["mechanism"] == row.mechanism
    assert [unsafe_cell(line["mechanism"]) for line in lines] == [row.mechanism] * len(lines)
    cells = (*row.cells, *row.gains)
    for cell, line, from_json in zip(cells, lines, (*told["cells"], *told["mean_gains"]), strict=True):
        for name in ("low", "high", "p", "p_holm", "p_bh", "minimum_detectable"):
            number = getattr(cell.difference, name)
            text = line[f"difference_{name}"]
            assert same(float(text) if text else None, number)
            assert same(from_json["difference"][name], number)
        assert same(float(line["difference"]) if line["difference"] else None, cell.difference.value)
        assert same(from_json["difference"]["value"], cell.difference.value)
        assert same(float(line["coefficient"]) if line["coefficient"] else None, cell.value)
        assert {"": None, "true": True, "false": False}[line["differs_beyond_noise"]] is cell.differs
        assert from_json["differs_beyond_noise"] is cell.differs
