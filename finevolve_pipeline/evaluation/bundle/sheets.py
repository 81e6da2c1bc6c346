"""Tables of a bundle as CSV that exists in one form only.

A value is written in one way, rows stand in one order, no field is quoted: whoever reads a sheet writes it again and
gets the same bytes, or refuses it. Numbers are written with as many digits as tell them apart, missing ones are empty.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from finevolve_pipeline.tables import Contract


@dataclass(frozen=True)
class Column:
    """One column: how a value is written, and read back.

    `read` raises `ValueError` for a text that is no value of the column.
    """

    name: str
    write: Callable[[Any], str]
    read: Callable[[str], Any]
    dtype: str


def text_column(name: str, pattern: str) -> Column:
    """Texts of one shape; no shape admits a comma, a quote or a line break."""
    wanted = re.compile(pattern)

    def read(text: str) -> str:
        if not wanted.fullmatch(text):
            raise ValueError(f"is not of the form {pattern}")
        return text

    return Column(name, lambda value: read(str(value)), read, "str")


def words_column(name: str, pattern: str) -> Column:
    """Lists of texts of one shape, with blanks between them."""
    wanted = re.compile(pattern)

    def read(text: str) -> list[str]:
        found = text.split(" ") if text else []
        if not all(wanted.fullmatch(word) for word in found):
            raise ValueError(f"has a part that is not of the form {pattern}")
        return found

    return Column(name, lambda value: " ".join(value), read, "object")


def number_column(name: str, low: float = -math.inf, high: float = math.inf, required: bool = False) -> Column:
    """Finite numbers from `low` to `high`; missing ones are empty, unless they are required."""

    def read(text: str) -> float:
        if not text and not required:
            return math.nan
        value = float(text)
        if not math.isfinite(value) or not low <= value <= high:
            raise ValueError(f"is no number from {low:g} to {high:g}")
        return value

    return Column(name, lambda value: "" if math.isnan(value) else repr(float(value)), read, "float64")


def count_column(name: str, low: int = 0) -> Column:
    """Whole numbers from `low` up to what 32 bits hold."""

    def read(text: str) -> int:
        value = int(text)
        if not low <= value < 2**31:
            raise ValueError(f"is no whole number from {low} up")
        return value

    return Column(name, lambda value: str(int(value)), read, "int64")


class SheetError(ValueError):
    """A text that is not the sheet it should be; the message names row and column."""


@dataclass(frozen=True)
class Sheet:
    """A table's columns, and those that its rows are sorted by and that no two rows share; none: any order."""

    columns: tuple[Column, ...]
    keys: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """The columns' names."""
        return [column.name for column in self.columns]

    def frame(self, rows: Sequence[Sequence[Any]]) -> pd.DataFrame:
        """Rows of values as a table with the columns' types."""
        values = zip(*rows, strict=True) if rows else [()] * len(self.columns)
        return pd.DataFrame(
            {
                column.name: pd.Series(list(own), dtype=column.dtype)
                for column, own in zip(self.columns, values, strict=True)
            }
        )

    def lines(self, frame: pd.DataFrame) -> list[str]:
        """The rows as they are written. Raises `SheetError` for a value that has no place in the sheet."""
        written = []
        for column in self.columns:
            try:
                cells = [column.write(value) for value in frame[column.name].tolist()]
                for cell in dict.fromkeys(cells):
                    column.read(cell)
            except ValueError as wrong:
                raise SheetError(f"column {column.name}: a value {wrong}") from None
            written.append(cells)
        return [",".join(cells) for cells in zip(*written, strict=True)]

    def write(self, frame: pd.DataFrame) -> bytes:
        """The table in its one form; the rows keep their order, which must be that of the keys."""
        return "".join(f"{line}\n" for line in [",".join(self.names), *self.lines(frame)]).encode()

    def read(self, data: bytes) -> pd.DataFrame:
        """The table in a text.

        Raises:
            SheetError: the text is not the one form of any table of this sheet.
        """
        try:
            lines = data.decode("utf-8").split("\n")
        except UnicodeDecodeError:
            raise SheetError("is no plain text") from None
        if lines[0] != ",".join(self.names):
            raise SheetError(f"has other columns than {','.join(self.names)}")
        if lines[-1]:
            raise SheetError("is broken off in its last row")
        rows = [self._row(number, line) for number, line in enumerate(lines[1:-1], start=1)]
        self._require_order(rows)
        return self.frame(rows)

    def _row(self, number: int, line: str) -> list[Any]:
        cells = line.split(",")
        if len(cells) != len(self.columns):
            raise SheetError(f"row {number}: has {len(cells)} fields, not {len(self.columns)}")
        values = []
        for column, cell in zip(self.columns, cells, strict=True):
            try:
                value = column.read(cell)
            except (ValueError, OverflowError):
                raise SheetError(f"row {number}: {column.name} {cell[:60]!r} is no value of that column") from None
            if column.write(value) != cell:
                one = column.write(value)[:60]
                raise SheetError(f"row {number}: {column.name} {cell[:60]!r} is not written as it must be, {one!r}")
            values.append(value)
        return values

    def _require_order(self, rows: Sequence[Sequence[Any]]) -> None:
        if not self.keys:
            return
        at = [self.names.index(key) for key in self.keys]
        before: tuple[Any, ...] | None = None
        for number, row in enumerate(rows, start=1):
            key = tuple(row[position] for position in at)
            if before is not None and key <= before:
                what = "stands there twice" if key == before else "is out of order"
                raise SheetError(f"row {number}: {' '.join(map(str, key))} {what}")
            before = key


DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
CODE = r"[0-9]{6}"
MEMORY = rf"{DAY}/{CODE}(/[A-Za-z0-9_.-]{{1,24}}){{0,3}}"
DIGEST = r"[0-9a-f]{32}"
NAME = r"[\w.@-]{1,120}"


def _figure_column(name: str) -> Column:
    """Numbers of any size; undefined ones are empty."""

    def read(text: str) -> float:
        value = float(text or "nan")
        if text and math.isnan(value):
            raise ValueError("is written as nan")
        return value

    return Column(name, lambda value: "" if math.isnan(value) else repr(float(value)), read, "float64")


def figure_sheet(contract: type[Contract]) -> Sheet:
    """A sheet with a contract's columns, its rows in the order of whoever computed them."""
    columns = []
    for name, column in contract.to_schema().columns.items():
        kind = str(column.dtype)
        if kind.startswith("float"):
            columns.append(_figure_column(name))
        elif kind.startswith("int"):
            columns.append(count_column(name))
        else:
            columns.append(text_column(name, NAME))
    return Sheet(tuple(columns), ())
