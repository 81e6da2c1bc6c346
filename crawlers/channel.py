"""A channel: one list of a site, newest first, that can be paged back in time.

A cursor is a text that names a page: a second, a page number, a day and a page. The walk over the pages (`walk.py`)
knows nothing of their meaning; a channel says where a walk begins, how a page is asked for and read, and what follows.
"""

from __future__ import annotations

import datetime as dt
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from scrapy import Request
from scrapy.http import Response

from crawlers.pages import ListPage, Row, last_in_order


class Channel(ABC):
    """One list of a site.

    Class attributes:
        name: as in `[crawl.sources.<source>] channels`.
        hosts: hosts that it asks, its detail pages included; nothing else is ever asked.
        seeks: cursors are page numbers from "1" on, so the walk may search for the page where a day begins.
        shifts: cursors name pages by number, of a day say, so new items push known rows to later pages.
        slack: rows may stand out of order by this much.
        fields: the site's own names that a page of the list has always had; one that is gone means that it has changed,
            even where another can stand in for it.
        ties_hide: a second with more rows than a page holds hides the rest: its cursor cannot point into a second.
        proves: paging it back shows that a day is complete (False: only the newest rows can be had).
    """

    name: ClassVar[str]
    hosts: ClassVar[tuple[str, ...]]
    seeks: ClassVar[bool] = False
    shifts: ClassVar[bool] = False
    slack: ClassVar[dt.timedelta] = dt.timedelta(minutes=2)
    fields: ClassVar[tuple[str, ...]] = ()
    ties_hide: ClassVar[bool] = False
    proves: ClassVar[bool] = True

    @abstractmethod
    def first(self, until: dt.datetime) -> str:
        """Cursor of the page where rows before `until` begin, or of the newest page if the site has no such way."""

    @abstractmethod
    def request(self, cursor: str) -> Request:
        """The request for a page."""

    @abstractmethod
    def read(self, response: Response, cursor: str) -> ListPage:
        """The page.

        Raises:
            PageFailure: it is not a page of this list.
        """

    def beyond(self, cursor: str) -> str | None:
        """A cursor strictly behind a page that brought nothing new, where many rows share one second; None: none."""
        return None

    def detail(self, row: Row) -> Request | None:
        """The request for the page that holds a row's body, None if the list has it all."""
        return None

    def read_detail(self, response: Response, row: Row) -> Row:
        """The row with what its own page says.

        Raises:
            PageFailure: the page could not be read.
        """
        raise NotImplementedError(f"{self.name}: has no detail pages")


class BySecond(Channel):
    """A list whose cursor is a second since 1970: it serves the rows that are strictly older.

    Rows of the second at a page's border may stand on both sides of it, so the next page is asked for one second
    later: what it repeats is known by its id.
    """

    ties_hide = True

    def first(self, until: dt.datetime) -> str:
        """The first second that is not before `until`."""
        return str(math.ceil(until.timestamp()))

    def behind(self, rows: Sequence[Row], cursor: str) -> str | None:
        """Cursor of the page behind that of `cursor`, which has these rows; None if it has none: nothing is older."""
        last = last_in_order(rows)
        if last is None:
            return None
        following = math.floor(last.published_at.timestamp()) + 1
        if rows[0].published_at == rows[-1].published_at:  # a site may repeat the cursor's own second: step past it
            following = min(following, int(cursor))
        return str(following)

    def beyond(self, cursor: str) -> str | None:
        """The second itself, of which more rows than a page holds may have been published."""
        return str(int(cursor) - 1)
