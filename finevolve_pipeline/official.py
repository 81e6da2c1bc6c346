"""The official layout: daily `YYYYMMDD.csv` with date, sector, newsList, open, close, volume, ...

A row is one sector on one day. Its newsList holds texts or objects; an article that stands under several
sectors is one item with all their codes. Files of this layout that we export ourselves read back the
same.
"""

from __future__ import annotations

import ast
import datetime as dt
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from finevolve_pipeline import calendar
from finevolve_pipeline.errors import InputError, UniverseError
from finevolve_pipeline.importing import (
    Reject,
    Row,
    RowError,
    RowFile,
    find_columns,
    reject_row,
    require_commas,
    without_half_pairs,
)
from finevolve_pipeline.market import importing as market
from finevolve_pipeline.market.importing import BarReader
from finevolve_pipeline.news import importing as news
from finevolve_pipeline.news.importing import Chunks, NewsItem, NewsReader
from finevolve_pipeline.spreadsheet import unsafe_cell
from finevolve_pipeline.universe import industry

SOURCE = "official"
"""Source id of items that name no source."""

FIELDS: dict[str, tuple[str, ...]] = {
    **market.FIELDS,
    "code": ("sector", "code", "industry", "行业"),
    "news": ("newslist", "news_list", "news", "新闻"),
}

_DAY = "day of the file's name"
_NAME = re.compile(r"(\d{8})\.csv(\.gz)?")


def official_files(path: Path) -> tuple[Path, ...]:
    """The daily files of a folder, oldest first, or the file itself.

    Raises:
        InputError: the folder holds none, or the file is not named like a day.
    """
    if not path.is_dir():
        if not _NAME.fullmatch(path.name):
            raise InputError(f"{path}: the official layout is one file a day named YYYYMMDD.csv; rename it")
        return (path,)
    found = tuple(sorted(child for child in path.iterdir() if _NAME.fullmatch(child.name)))
    if not found:
        raise InputError(f"{path}: holds no file named YYYYMMDD.csv")
    return found


@dataclass(frozen=True)
class OfficialChunk:
    """What a part of a file holds; None where there is none of it."""

    news: pd.DataFrame | None
    bars: pd.DataFrame | None


def read_official(
    rows: RowFile, items: NewsReader, bars: BarReader, reject: Callable[[Reject], None]
) -> Iterator[OfficialChunk]:
    """The file's articles as `RawNews` and its sectors' bars as `Bars`, in parts of bounded size.

    A row whose sector, date or newsList cannot be used is rejected as a whole; a bad article or a bad bar
    of a good row is rejected alone. Bars are taken from rows that hold a number.

    Args:
        rows: the file, named YYYYMMDD.csv.
        items: how articles are read.
        bars: how bars are read.
        reject: is told of each row or article that cannot be used.

    Raises:
        InputError: a column is missing, a unit is not declared, or the name is no day.
    """
    match = _NAME.fullmatch(rows.name)
    day = calendar.parse_day(match[1] if match else rows.name, f"{rows.path}: file name")
    columns = find_columns(rows.columns, FIELDS, {})
    require_commas(rows, columns)
    for name, usual in (("code", "sector"), ("news", "newsList")):
        if name not in columns:
            raise InputError(f"{rows.path}: no column {usual!r} among {', '.join(rows.columns[:20])}")
    bars.options.require_units(columns, str(rows.path))
    day_file = _DayFile(day, columns, items, bars, reject, Chunks(f"file:{rows.name}"), [])
    for row in rows:
        if isinstance(row, Reject):
            reject(row)
            continue
        day_file.read(row)
        if day_file.articles.full:
            yield OfficialChunk(day_file.articles.take(), None)
    frame = bars.frame(day_file.found, rows.name) if day_file.found else None
    yield OfficialChunk(day_file.articles.take(), frame)


@dataclass(frozen=True)
class _DayFile:
    """One daily file while it is read: its day and columns, and what was found so far."""

    day: dt.date
    columns: Mapping[str, str]
    items: NewsReader
    bars: BarReader
    reject: Callable[[Reject], None]
    articles: Chunks
    found: list[market.Bar]

    def read(self, row: Row) -> None:
        """Take the articles and the bar of one row; what cannot be used is rejected, the rest stays."""
        values = {name: unsafe_cell(cell) if isinstance(cell, str) else cell for name, cell in row.values.items()}
        try:
            self._require_day(values)
            code = self.bars.code(values[self.columns["code"]])
            articles = read_news_list(values[self.columns["news"]])
        except RowError as broken:
            self.reject(reject_row(row, str(broken)))
            return
        for position, article in enumerate(articles, 1):
            try:
                self.articles.add(self._item(article, code), row.number)
            except RowError as broken:
                self.reject(Reject(row.number, f"newsList item {position}: {broken}", str(article)))
        try:
            bar = self._bar(row.number, values)
        except RowError as broken:
            self.reject(reject_row(row, f"bar: {broken} (its articles landed)"))
            return
        if bar is not None:
            self.found.append(bar)

    def _require_day(self, values: Mapping[str, Any]) -> None:
        written = values.get(self.columns["date"]) if "date" in self.columns else None
        if written not in (None, "") and market.read_day(written) != self.day:
            raise RowError(f"date {str(written)[:40]!r}: not the day of the file's name")

    def _item(self, article: Any, code: str) -> NewsItem:
        values = {"content": article} if isinstance(article, str) else article
        if not isinstance(values, dict):
            raise RowError(f"a {type(article).__name__}, neither text nor object")
        columns = find_columns(tuple(str(name) for name in values), news.FIELDS, self.items.options.columns)
        return self.items.item(
            values,
            columns,
            day=self.day,
            industries=_industries(values.get("industries"), code),
            default_source=SOURCE,
        )

    def _bar(self, number: int, values: Mapping[str, Any]) -> market.Bar | None:
        """The row's bar, None if it holds no number."""
        cells = [values[self.columns[name]] for name in market.NUMBERS if name in self.columns]
        if all(market.is_missing(cell) for cell in cells):
            return None
        return self.bars.bar(number, {**values, _DAY: self.day}, {**self.columns, "date": _DAY})


def _industries(given: object, code: str) -> tuple[str, ...]:
    """Codes of an article: those it lists itself (none: market-wide), else the sector it stands under."""
    if not isinstance(given, list):
        return (code,)
    try:
        return tuple(sorted({industry(str(name)).code for name in given}))
    except UniverseError:
        return (code,)


def read_news_list(cell: object) -> list[Any]:
    """The articles of a newsList cell: a JSON array, or the same as a Python literal. Empty and NaN are
    no articles.

    Raises:
        RowError: neither of these.
    """
    if isinstance(cell, list):
        return cell
    text = "" if cell is None or cell != cell else str(cell).strip()
    if text.lower() in ("", "nan", "null", "none"):
        return []
    try:
        found = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        try:
            found = ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            raise RowError("newsList: neither a JSON array nor a Python list") from None
    if not isinstance(found, (list, tuple)):
        raise RowError(f"newsList: a {type(found).__name__}, not a list")
    return _whole(list(found))


def _whole(articles: list[Any]) -> list[Any]:
    try:
        whole, _ = without_half_pairs(articles)
    except (TypeError, ValueError):
        raise RowError("newsList: holds values that are no JSON (sets, bytes, ...)") from None
    return list(whole)
