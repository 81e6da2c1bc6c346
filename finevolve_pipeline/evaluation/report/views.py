"""What pages are made of: tables of text and figures, as plain data. Templates only lay them out.

What must not live here: HTML. Text is escaped by the template, whatever it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from finevolve_pipeline.evaluation.report.charts import Chart


@dataclass(frozen=True)
class Cell:
    """One cell: its text, for heat maps a strength in [-1, 1], and the page that it leads to."""

    text: str
    strength: float | None = None
    href: str = ""


@dataclass(frozen=True)
class TableView:
    """A table of text. The first column heads its row; columns from `numeric_from` on are numbers."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    numeric_from: int = 1
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class FigureView:
    """A figure; every figure has its table.

    Attributes:
        name: prefix of ids, unique on the page; also that of its drawing.
        title: what it shows.
        reading: a sentence on how to read it.
        svg: its drawing (`<svg>` of our own making), for paper and where no script runs.
        table: its numbers, folded below it; or the words that say which table of the page holds them.
        chart: what is drawn in its place on a screen, None if the drawing says everything.
    """

    name: str
    title: str
    reading: str
    svg: str
    table: TableView | str
    chart: Chart | None = None


@dataclass(frozen=True)
class Block:
    """What belongs together on a page, in this order; any part may be empty."""

    sentences: tuple[str, ...] = ()
    figures: tuple[FigureView, ...] = ()
    tables: tuple[TableView, ...] = ()


def text_table(
    caption: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    numeric_from: int = 1,
    notes: Sequence[str] = (),
) -> TableView:
    """A table without strengths."""
    cells = tuple(tuple(Cell(text) for text in row) for row in rows)
    return TableView(caption, tuple(columns), cells, numeric_from, tuple(notes))
