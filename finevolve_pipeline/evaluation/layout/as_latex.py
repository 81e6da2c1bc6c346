"""Table 2 as LaTeX with booktabs rules; the tests as longtables, which may run over pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from finevolve_pipeline.evaluation.ic import METRICS
from finevolve_pipeline.evaluation.layout.rows import Panel, Table2, Table2Cell, by_backbone, legend
from finevolve_pipeline.evaluation.layout.statistics import statistics

_LETTERS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    # After the end of a row these two would be read as its option.
    "[": "{[}",
    "*": "{*}",
    "–": "--",
    "↑": r"$\uparrow$",
    "Δ": r"$\Delta$",
}

_MINUS = re.compile(r"(?<![\w-])-(?=\d)")


def table2_latex(table: Table2) -> str:
    r"""The table as LaTeX, to be read by `\input`; it needs booktabs and longtable.

    Names are shown as they are. Names in other scripts need an engine that has their letters (XeLaTeX, LuaLaTeX).
    """
    head = "% Needs \\usepackage{booktabs,longtable}\n"
    if not table.panels:
        return head + "No run to compare.\n"
    return head + "\n".join(_panel(panel, table) for panel in table.panels)


def _panel(panel: Panel, table: Table2) -> str:
    parts = [_coefficients(panel), _notes(legend(panel, table.level))]
    for told in statistics(panel, table.confidence):
        head, *rows = (_line(map(escaped, line)) for line in (told.columns, *told.rows))
        columns = "l" * told.text_columns + "r" * (len(told.columns) - told.text_columns)
        parts += [
            rf"\begin{{longtable}}{{{columns}}}",
            rf"\caption{{{escaped(told.title)}}} \\",
            *(r"\toprule", head, r"\midrule", r"\endhead"),
            *rows,
            *(r"\bottomrule", r"\end{longtable}"),
        ]
    return "\n".join(parts) + "\n"


def _coefficients(panel: Panel) -> str:
    horizons, width = panel.horizons, len(METRICS)
    spans = [(f"{horizon} sessions", 2 + width * at) for at, horizon in enumerate(horizons)]
    spans.append(("Avg. gain", 2 + width * len(horizons)))
    over = _line(["", *(rf"\multicolumn{{{width}}}{{c}}{{{title}}}" for title, _ in spans)])
    rules = " ".join(rf"\cmidrule(lr){{{first}-{first + width - 1}}}" for _, first in spans)
    below = _line(["Method", *METRICS * len(horizons), *(rf"$\Delta$ {metric}" for metric in METRICS)])
    lines = []
    for backbone, rows in by_backbone(panel.rows).items():
        total = 1 + width * len(spans)
        lines += [r"\midrule", rf"\multicolumn{{{total}}}{{l}}{{\textit{{{escaped(backbone)}}}}} \\", r"\midrule"]
        for row in rows:
            lines.append(_line([escaped(row.label), *map(_cell, (*row.cells, *row.gains))]))
            if row.is_published:
                lines.append(_line(rf"\textit{{{escaped(text)}}}" for text in row.published_texts()))
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escaped(panel.title)}}}",
            r"\small",
            rf"\begin{{tabular}}{{l{'r' * width * len(spans)}}}",
            *(r"\toprule", over, rules, below),
            *lines,
            *(r"\bottomrule", r"\end{tabular}", r"\end{table}"),
        ]
    )


def _cell(cell: Table2Cell) -> str:
    number, *signs = cell.text.split()
    return escaped(number) + "".join(signs).replace("↑", r"$\uparrow$").replace("*", "$^{*}$")


def _notes(notes: Sequence[str]) -> str:
    return "\n".join(["", r"\begin{itemize}", *(rf"\item {escaped(note)}" for note in notes), r"\end{itemize}", ""])


def _line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def escaped(text: str) -> str:
    """The text so that LaTeX sets it as it is, on one line; minus signs of numbers are set as such."""
    shown = "".join(_LETTERS.get(letter, letter) for letter in " ".join(text.split()))
    return _MINUS.sub("$-$", shown)
