"""Cursors of lists that a site addresses by day, and what a page of such a list proves.

A day on which the site lists nothing says little by itself: nothing may have been published, or the site may keep no
more. So such a day counts as read only once an earlier day brings rows, and after `LONGEST_SILENCE` of them in a row
the list has ended.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from crawlers.pages import ListPage, PageFailure, PageState, Row
from crawlers.parsing import SHANGHAI

LONGEST_SILENCE = 10
"""Days in a row without a row, after which a site serves nothing older. Closures of the markets are shorter."""


@dataclass(frozen=True)
class DayPage:
    """A page of a day's list.

    Attributes:
        day: calendar day in Asia/Shanghai.
        page: from 1 on.
        silent: days directly after this one that brought nothing.
    """

    day: dt.date
    page: int = 1
    silent: int = 0

    @classmethod
    def before(cls, until: dt.datetime) -> DayPage:
        """The page where rows before `until` begin, which may be midnight."""
        return cls((until.astimezone(SHANGHAI) - dt.timedelta(microseconds=1)).date())

    @classmethod
    def of(cls, cursor: str) -> DayPage:
        """The page that a cursor (`str` of a page) names."""
        day, page, *silent = cursor.split("/")
        return cls(dt.date.fromisoformat(day), int(page), int(silent[0]) if silent else 0)

    def __str__(self) -> str:
        return f"{self.day}/{self.page}" + (f"/{self.silent}" if self.silent else "")

    @property
    def start(self) -> dt.datetime:
        """The day's first instant."""
        return dt.datetime.combine(self.day, dt.time(), SHANGHAI)

    @property
    def end(self) -> dt.datetime:
        """The first instant of the day after."""
        return self.start + dt.timedelta(days=1)

    def listed(self, rows: Sequence[Row], unreadable: Sequence[str], *, pages: bool) -> ListPage:
        """What this page is.

        Args:
            rows: its rows.
            unreadable: its rows that were set aside.
            pages: the day may have more pages, until one without rows; else the page holds all of the day.

        Raises:
            PageFailure: all rows are of other days: the site does not heed the day.
        """
        dates = [row.published_at.astimezone(SHANGHAI).date() for row in rows]
        if dates and self.day not in dates:
            raise PageFailure(
                PageState.FETCH_ERROR,
                f"the site does not heed the day: rows of {max(dates)} where {self.day} was asked",
            )
        found = bool(rows or unreadable)
        if found and pages:
            return ListPage(tuple(rows), str(DayPage(self.day, self.page + 1)), None, tuple(unreadable))
        before = self.day - dt.timedelta(days=1)
        if found or self.page > 1:
            return ListPage(tuple(rows), str(DayPage(before)), self.start, tuple(unreadable))
        silent = self.silent + 1
        return ListPage((), str(DayPage(before, 1, silent)) if silent < LONGEST_SILENCE else None)
