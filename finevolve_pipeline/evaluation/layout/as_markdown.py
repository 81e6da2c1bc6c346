"""Table 2 as Markdown: for each stage and kind of correlation the coefficients, how to read them, and the tests."""

from __future__ import annotations

import re
from collections.abc import Sequence

from finevolve_pipeline.evaluation.layout.rows import Panel, Table2, legend
from finevolve_pipeline.evaluation.layout.statistics import statistics

_MARKS = re.compile(r"([\\`*_{}\[\]|~$#!])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def table2_markdown(table: Table2) -> str:
    """The table as Markdown (GitHub's tables). Names are shown as they are: none becomes markup or a new cell."""
    if not table.panels:
        return "No run to compare.\n"
    return "\n".join(_panel(panel, table) for panel in table.panels)


def _panel(panel: Panel, table: Table2) -> str:
    columns = [f"{cell.horizon}d {cell.metric}" for cell in panel.rows[0].cells]
    lines = [["Backbone", "Method", *columns, "ΔtsIC", "ΔcsIC"]]
    for row in panel.rows:
        lines.append([row.backbone, *row.texts()])
        if row.is_published:
            lines.append([row.backbone, *row.published_texts()])
    parts = [f"## {panel.title}", _grid(lines, 2), *map(escaped, legend(panel, table.level))]
    for told in statistics(panel, table.confidence):
        parts += [f"### {told.title}", _grid([told.columns, *told.rows], told.text_columns)]
    return "\n\n".join(parts) + "\n"


def _grid(lines: Sequence[Sequence[str]], text_columns: int) -> str:
    head, *rows = (f"| {' | '.join(map(escaped, line))} |" for line in lines)
    rule = "|" + "---|" * text_columns + "---:|" * (len(lines[0]) - text_columns)
    return "\n".join([head, rule, *rows])


def escaped(text: str) -> str:
    """The text so that Markdown shows it as it is, on one line."""
    marked = _MARKS.sub(r"\\\1", " ".join(text.split()))
    return "".join(_ENTITIES.get(letter, letter) for letter in marked)
