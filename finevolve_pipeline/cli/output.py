"""What commands share: the pipeline in force, JSON or table output, progress on standard error."""

from __future__ import annotations

import datetime as dt
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from finevolve_pipeline.calendar import parse_day
from finevolve_pipeline.definitions import build_graph
from finevolve_pipeline.errors import SettingsError
from finevolve_pipeline.graph import Graph
from finevolve_pipeline.mechanisms.registry import (
    BUILT_IN,
    KIND,
    SEED,
    mechanism_class,
    mechanism_settings,
    sample_seed,
)
from finevolve_pipeline.mechanisms.seeding import combined, seeded
from finevolve_pipeline.replay.runner import Parts
from finevolve_pipeline.settings import Experiment, Settings, finevolve_home, load_settings
from resources.backbones import build_backbone
from resources.embedders import build_embedder
from resources.table_store import TableStore

# Texts hold names of settings and foreign words: what stands in brackets is to be read, it is no style.
messages = Console(stderr=True, highlight=False, markup=False)
"""Progress and messages."""

results = Console(highlight=False, markup=False)
"""Results, for people."""

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")


class Day(click.ParamType[dt.date]):
    """A calendar day, YYYY-MM-DD."""

    name = "day"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The day as a date; raises `CalendarError` for anything else."""
        return parse_day(value, param.opts[0] if param else "day") if isinstance(value, str) else value


def existing_part(folder: Path) -> Path:
    """The longest part of a path that exists."""
    return next(part for part in (folder, *folder.parents) if part.exists())


def require_folder(home: Path) -> None:
    """Raises `SettingsError` if a file stands where the home folder is or would be."""
    existing = existing_part(home)
    if not existing.is_dir():
        raise SettingsError(f"home {home}: {existing} is a file; name a folder with --home or FINEVOLVE_HOME")


@dataclass(frozen=True)
class Pipeline:
    """Settings, home, graph and store in force."""

    settings: Settings
    home: Path

    @staticmethod
    def in_force() -> Pipeline:
        """By FINEVOLVE_HOME and FINEVOLVE_CONFIG.

        Raises:
            SettingsError: the settings, or those of a mechanism, cannot be used, or the home is no folder.
        """
        settings = load_settings()
        for name, section in settings.mechanisms.items():
            kind, is_run = section.get(KIND, name), name in settings.experiments.mechanisms
            if is_run or (isinstance(kind, str) and kind in BUILT_IN):
                seed = max(settings.experiments.seeds) if is_run else 0
                seeded(name, mechanism_settings(name, mechanism_class(name, section), section), seed)
                combined(f"mechanisms.{name}.{SEED}", sample_seed(name, section), seed)
        home = finevolve_home()
        require_folder(home)
        return Pipeline(settings, home)

    @cached_property
    def graph(self) -> Graph:
        """The dataset's graph."""
        return build_graph(self.settings, self.home)

    def parts(self, experiment: Experiment) -> Parts:
        """What an experiment's replay is made of."""
        backbone = build_backbone(experiment.backbone, self.settings, self.home, experiment.key)
        return Parts(self.settings, self.store, backbone, build_embedder(self.settings, self.home))

    @cached_property
    def store(self) -> TableStore:
        """Stored tables."""
        return TableStore(self.home)


def emit_json(document: object) -> None:
    """Print one JSON document; NaN becomes null."""
    sys.stdout.write(json.dumps(_plain(document), ensure_ascii=False, indent=2, allow_nan=False) + "\n")


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and value != value:
        return None
    if hasattr(value, "item"):
        return _plain(value.item())
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


_PIECES = re.compile(r"\s+|[^\s\u2e80-\U0003ffff]+|.")
"""Blanks, words, and the single characters of scripts without blanks."""

_NARROWEST = 16
"""Columns that a column of texts is left at least, where its words are longer."""


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int = 1) -> None:
    """A table of plain texts for people; the first `text_columns` columns are left-aligned, the others are numbers.

    Nothing is ever cut. Where the terminal is too narrow, cells are broken between words (texts anywhere, if need be;
    numbers never). Where that does not suffice, several tables stand below each other, each with all texts and some of
    the numbers; where not even two numbers fit beside the texts, every row is told in lines of its own.
    """
    table = _table(title, columns, rows, text_columns)
    if Measurement.get(results, results.options.update(max_width=1000), table).maximum <= results.width:
        results.print(table)
        return
    parts = _parts(_least_widths(columns, rows, text_columns), text_columns)
    if parts is None:
        _print_records(title, columns, rows)
        return
    for number, part in enumerate(parts):
        chosen = [[row[at] for at in part] for row in (columns, *rows)]
        _print_narrow(f"{title}, continued" if number else title, chosen, text_columns)


def _print_narrow(title: str, lines: Sequence[Sequence[str]], text_columns: int) -> None:
    """A table, its heads first, with cells broken so that it fits; it must be possible."""
    widths = _widths(lines, text_columns)
    heads, *rows = [
        ["\n".join(wrapped(cell, width)) for cell, width in zip(line, widths, strict=True)] for line in lines
    ]
    table = _table(title, heads, rows, text_columns)
    table.padding = (0, 0, 0, 0)
    results.print(table)


def fits(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the terminal is wide enough for a table in which no cell is broken."""
    widths = [max(map(_longest_line, cells)) for cells in zip(columns, *rows, strict=True)]
    return sum(widths) + len(widths) - 1 <= results.width


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int) -> Table:
    table = Table(
        title=Text(title, style="bold"),
        title_justify="left",
        box=SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1),
    )
    for position, column in enumerate(columns):
        is_text = position < text_columns
        table.add_column(
            Text(column),
            justify="left" if is_text else "right",
            no_wrap=position == 0 or not is_text,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _least_widths(columns: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int) -> list[int]:
    """How wide each column must be at least: no number is broken, and no word of a text that is short enough."""
    words = [max(map(_longest_word, cells)) for cells in zip(columns, *rows, strict=True)]
    return [min(width, _NARROWEST) if at < text_columns else width for at, width in enumerate(words)]


def _parts(least: Sequence[int], text_columns: int) -> list[list[int]] | None:
    """Positions of the columns of each table that fits the terminal: all texts, and as many numbers as there is room
    for. None if that is not to be had without cutting, or would be a table for each number."""
    texts = list(range(text_columns))
    parts = [texts]
    for at in range(text_columns, len(least)):
        wider = [*parts[-1], at]
        if _joined(least, wider) > results.width and len(parts[-1]) > text_columns:
            parts.append([*texts, at])
        else:
            parts[-1] = wider
    is_scattered = len(parts) > 1 and min(map(len, parts[:-1])) < text_columns + 2
    return None if is_scattered or any(_joined(least, part) > results.width for part in parts) else parts


def _joined(widths: Sequence[int], columns: Sequence[int]) -> int:
    """Width of these columns side by side, with one blank between two."""
    return sum(widths[at] for at in columns) + len(columns) - 1


def _widths(lines: Sequence[Sequence[str]], text_columns: int) -> list[int]:
    """How wide each column of a table may be, so that all fit the terminal."""
    heads, *rows = lines
    least = _least_widths(heads, rows, text_columns)
    widths = [max(map(_longest_line, cells)) for cells in zip(*lines, strict=True)]
    room = results.width - (len(widths) - 1)  # one blank between two columns
    while sum(widths) > room:
        widest = max((at for at, width in enumerate(widths) if width > least[at]), key=lambda at: widths[at])
        widths[widest] -= 1
    return widths


def _longest_line(cell: str) -> int:
    return max(map(cell_len, cell.split("\n")))


def _longest_word(cell: str) -> int:
    return max(map(cell_len, _PIECES.findall(cell)), default=0)


def _print_records(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Every row with the names of its columns, for terminals that are too narrow for a table."""
    print_lines(title, style="bold")
    for name, *values in rows:
        print_lines(f"{columns[0]}: {name}" if columns[0] else name)
        for column, value in zip(columns[1:], values, strict=True):
            if value:
                print_lines(f"{column}: {value}" if column else value, 2)


def print_lines(text: str, indent: int = 0, style: str = "") -> None:
    """A paragraph, its lines broken between words."""
    for line in wrapped(text, max(1, results.width - indent)):
        results.print(Text(" " * indent + line, style=style), soft_wrap=True)


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` columns; Chinese may be broken anywhere, other words are kept whole if they
    fit a line."""
    lines = []
    for paragraph in text.expandtabs(4).split("\n"):
        line = ""
        for piece in _PIECES.findall(paragraph):
            if cell_len(line) + cell_len(piece) > width:
                lines += [line.rstrip()] if line else []
                line, piece = "", piece.lstrip()
                while cell_len(piece) > width:
                    head, piece = piece[:width], piece[width:]
                    lines.append(head)
            line += piece
        lines.append(line.rstrip())
    return lines


def progress_bar() -> Progress:
    """A progress display with counts and an estimate, on standard error."""
    return Progress(
        TextColumn("{task.description:<28}"),
        BarColumn(bar_width=36),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=messages,
    )
