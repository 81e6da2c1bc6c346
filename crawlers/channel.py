"""A channel: one list of a site, newest first, that can be paged back in time.

A cursor is a text that names a page: a second, a page number, a day and a page. The walk over the pages (`walk.py`)
knows nothing of their meaning; a channel says where a walk begins, how a page is asked for and read, and what follows.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from typing import ClassVar

from scrapy import Request
from scrapy.http import Response

from crawlers.pages import ListPage, Row


class Channel(ABC):
    """One list of a site.

    Class attributes:
        name: as in `[crawl.sources.<source>] channels`.
        hosts: hosts that it asks, its detail pages included; nothing else is ever asked.
        seeks: cursors are page numbers from "1" on, so the walk may search for the page where a day begins.
        slack: rows may stand out of order by this much.
        proves: paging it back shows that a day is complete (False: only the newest rows can be had).
    """

    name: ClassVar[str]
    hosts: ClassVar[tuple[str, ...]]
    seeks: ClassVar[bool] = False
    slack: ClassVar[dt.timedelta] = dt.timedelta(minutes=2)
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
