"""News that sites no longer serve, from services that keep them: so far tushare's `news`.

Asked day by day and source by source; a finished day is remembered in `<root>/fetched/tushare_news/<source>.json` and
not asked for again. Rows land through `Landing.merge_news` with origin `tushare`, under the digest of their text since
they carry no id.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd

from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.errors import SourceError, TableError
from finevolve_pipeline.files import write_atomically
from finevolve_pipeline.importing import RowError
from finevolve_pipeline.news.importing import NewsItem, NewsOptions, NewsReader, to_frame
from resources.landing import Landing, NewsCounts
from resources.market.bringing import PATIENCE
from resources.market.tushare import CrowdedError, Row, Tushare
from resources.storage import Storage

ORIGIN = "tushare"
LATE = dt.timedelta(hours=2)
"""A day is finished that long after its end: the service has its rows a little later than the sites."""
SILENT_DAYS = 4
"""So many days in a row without a row are told: a longer silence than any weekend or holiday of these sources."""
_FIELDS = {"published_at": "datetime", "title": "title", "content": "content"}
_AT_ONCE = 5000  # rows; merging reads all ids of a source, so it is done for several days together
_DAY = dt.timedelta(days=1)
_SHOWN = 3

Progress = Callable[[str, int, int], None]
"""Told of (source, days done, days to ask)."""


@dataclass
class SourceReport:
    """What became of one source.

    Attributes:
        source: its id.
        asked: days asked for.
        finished: days that were finished before and not asked for.
        rows: rows received.
        news: what they did in the landing store.
        rejected: rows that cannot be used.
        unfinished: days (ISO) that were answered and are not finished, since rows of them cannot be had or used.
        problems: what people should know.
        error: why the source was given up; empty if it was not.
    """

    source: str
    asked: int = 0
    finished: int = 0
    rows: int = 0
    news: NewsCounts = field(default_factory=NewsCounts)
    rejected: int = 0
    unfinished: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    error: str = ""

    @property
    def failures(self) -> tuple[str, ...]:
        """What did not succeed, for people: the source was given up, or days of it lack rows."""
        told = [self.error] if self.error else []
        if self.unfinished:
            days = f"{len(self.unfinished):,} day{'' if len(self.unfinished) == 1 else 's'}"
            told.append(
                f"{self.source}: rows of {days} cannot be had or used, first {self.unfinished[0]}; such days stay "
                "unfinished: the same command asks for them again"
            )
        return tuple(told)

    @property
    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "source": self.source,
            "days_asked": self.asked,
            "days_finished_before": self.finished,
            "rows": self.rows,
            "added": self.news.added,
            "updated": self.news.updated,
            "known": self.news.known,
            "rejected": self.rejected,
            "days_unfinished": self.unfinished,
            "problems": self.problems,
            "error": self.error or None,
        }


class FinishedDays:
    """Days of one source that need not be asked for again, with the rows they had."""

    def __init__(self, home: Path, source: str) -> None:
        self._path = Storage.of(home).root / "fetched" / "tushare_news" / f"{source}.json"
        try:
            self.rows = self._rows(json.loads(self._path.read_text("utf-8")))
        except FileNotFoundError:
            self.rows = {}
        except (ValueError, RecursionError) as broken:
            raise TableError(f"{self._path}: cannot be read ({broken}); delete it, then all days are asked") from None

    @staticmethod
    def _rows(document: Any) -> dict[str, int]:
        if not isinstance(document, dict) or not all(type(rows) is int for rows in document.values()):
            raise ValueError(f"{str(document)[:100]!r} is no numbers of rows by day")
        return document

    def add(self, rows: Mapping[str, int]) -> None:
        """More of them; durable when it returns."""
        if rows:
            self.rows |= rows
            write_atomically(self._path, json.dumps(dict(sorted(self.rows.items())), indent=0).encode())


@dataclass
class _Gathered:
    """Days that were received and have not landed yet."""

    items: list[NewsItem] = field(default_factory=list)
    finished: dict[str, int] = field(default_factory=dict)


def fetch_news(
    client: Tushare,
    home: Path,
    sources: Sequence[str],
    days: Sequence[dt.date],
    now: Callable[[], dt.datetime],
    *,
    again: bool = False,
    progress: Progress = lambda source, done, wanted: None,
) -> list[SourceReport]:
    """Bring the news of sources and days into the landing store. A source that fails does not stop the others.

    Args:
        client: the service.
        home: folder of all state.
        sources: of `NEWS_SOURCES`.
        days: calendar days (Asia/Shanghai), oldest first; those after today are left out.
        now: the present (aware), asked for again and again.
        again: ask for finished days too.
        progress: is told how far it is.

    Raises:
        LandingLockedError: another process is importing.
    """
    reports = []
    for source in sources:
        report = SourceReport(source)
        reports.append(report)
        _Source(client, home, report, now).fetch(days, again, progress)
    return reports


class _Source:
    """One source being fetched."""

    def __init__(self, client: Tushare, home: Path, report: SourceReport, now: Callable[[], dt.datetime]) -> None:
        self._client = client
        self._landing = Landing.of(home, PATIENCE)
        self._finished = FinishedDays(home, report.source)
        self._report = report
        self._now = now
        self._bad: list[str] = []
        self._counts: dict[str, int] = {}

    def fetch(self, days: Sequence[dt.date], again: bool, progress: Progress) -> None:
        report, gathered = self._report, _Gathered()
        days = [day for day in days if day <= self._now().astimezone(SHANGHAI).date()]
        wanted = [day for day in days if again or day.isoformat() not in self._finished.rows]
        report.finished = len(days) - len(wanted)
        try:
            for done, day in enumerate(wanted):
                progress(report.source, done, len(wanted))
                self._ask(day, gathered)
                if len(gathered.items) >= _AT_ONCE:
                    self._land(gathered)
        except SourceError as broken:
            report.error = str(broken)
        finally:
            # What came before an error, or before the user stopped it, is kept.
            self._land(gathered)
        progress(report.source, report.asked, len(wanted))
        if report.rejected:
            report.problems.append(f"{report.rejected:,} rows cannot be used, {'; '.join(self._bad)}")
        if not report.error:
            report.problems += silences(days, {**self._finished.rows, **self._counts}, report.source)

    def _ask(self, day: dt.date, gathered: _Gathered) -> None:
        start = dt.datetime.combine(day, dt.time(), tzinfo=SHANGHAI)
        asked_at, rows, whole = self._now(), [], True
        try:
            for part in self._client.news(self._report.source, start, start + _DAY - dt.timedelta(seconds=1)):
                rows += part
        except CrowdedError as crowded:
            self._report.problems.append(f"{day}: {crowded}")
            whole = False
        self._report.asked += 1
        self._report.rows += len(rows)
        self._counts[day.isoformat()] = len(rows)
        items = self._items(rows, asked_at)
        gathered.items += items
        # A day of which a row cannot be used may be whole once the service is mended, or we are.
        if not whole or len(items) < len(rows):
            self._report.unfinished.append(day.isoformat())
            return
        # A day without a row may be one that the service has lost, so it stays open.
        if rows and asked_at >= start + _DAY + LATE:
            gathered.finished[day.isoformat()] = len(rows)

    def _items(self, rows: Sequence[Row], now: dt.datetime) -> list[NewsItem]:
        reader = NewsReader(NewsOptions(now, source=self._report.source))
        items = []
        for row in rows:
            try:
                items.append(reader.item(row, _FIELDS))
            except RowError as wrong:
                self._report.rejected += 1
                if len(self._bad) < _SHOWN:
                    self._bad.append(str(wrong))
        return items

    def _land(self, gathered: _Gathered) -> None:
        """Land what was gathered, then mark its days: a process may die in between."""
        if gathered.items:
            frame = to_frame(gathered.items, range(len(gathered.items)), ORIGIN)
            crawled_at = pd.Timestamp(self._now()).tz_convert(SHANGHAI).as_unit("us")
            self._report.news += self._landing.merge_news(frame.assign(crawled_at=crawled_at))
        self._finished.add(gathered.finished)
        gathered.items, gathered.finished = [], {}


def silences(days: Sequence[dt.date], rows: Mapping[str, int], source: str) -> list[str]:
    """What to tell of a source whose feed was silent for long; a silence up to the last day first of all."""
    found: list[str] = []
    for silent, group in groupby(days, lambda day: rows.get(day.isoformat(), 0) == 0):
        gap = list(group)
        if not silent or len(gap) < SILENT_DAYS:
            continue
        text = f"{source}: nothing from {gap[0]} to {gap[-1]} ({len(gap):,} days)"
        if gap[-1] == days[-1]:
            found.insert(0, f"{text}: the feed has stopped, or the service is behind")
        else:
            found.append(f"{text}: a hole in the service's history")
    return found
