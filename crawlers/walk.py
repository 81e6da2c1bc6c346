"""The walk back over a channel's pages: what it may conclude, and when it must stop.

It knows pages and cursors, no site. Rules: an item counts once; a page that brings nothing new is either a run of
items of one second, which is passed, or a list that does not go on, which stops the walk; the end of a list proves
nothing about the days before it. A day is proved by reaching its start, by a row of the list from after its end, and
by nothing on its pages having been hidden or not to be had; the walk tells all three.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from zoneinfo import ZoneInfo

from scrapy import Request
from scrapy.http import Response, TextResponse

from crawlers.channel import Channel
from crawlers.items import Article
from crawlers.pages import ListPage, PageFailure, PageState, Row, Unreadable, last_in_order, what_it_is
from crawlers.records import ChannelEnd, PageRead, Probe

SHANGHAI = ZoneInfo("Asia/Shanghai")

Fetch = Callable[[Request], Awaitable[Response]]
"""Asks for one page, politely. Raises `PageFailure` if nothing usable comes."""

_REMEMBERED = 20_000
"""Ids kept to recognise a row: many pages' worth, so that memory stays flat."""

_ASK_AGAIN = 2
"""How often a page is asked for once more where the site may answer rightly the next time."""

_USUAL_SHARE = 0.9
"""Fewer rows with a body (or title) and an address than this: the site's shape has drifted."""

_NO_TEXT = "no text"
_ENOUGH = 5
"""Pages of articles of which at least one should be readable; a list's page may name fewer."""

_MOST_FAILED = 10
"""Pages of articles in a row that may fail; a site that answers none of them is not asked for all the others."""

_MOST_SILENT = 20
"""Pages without a row up to now that are passed in search of the newest one."""

_MOST_SHIFTED = 3
"""Pages in a row that may bring nothing new while a list by page number shifts."""


@dataclass(frozen=True)
class Span:
    """From `since` to before `until`, both aware, and where it stands among a job's windows."""

    since: dt.datetime
    until: dt.datetime
    position: int = 0


def in_words(defect: Exception) -> str:
    """A defect for people; the log has its traceback."""
    return f"a defect of the crawler: {type(defect).__name__}: {str(defect)[:200]}"


def _day(moment: dt.datetime) -> str:
    """The ISO day in Asia/Shanghai."""
    return moment.astimezone(SHANGHAI).date().isoformat()


def instant(moment: dt.datetime) -> str:
    """ISO 8601 with the offset of Asia/Shanghai."""
    return moment.astimezone(SHANGHAI).isoformat()


@dataclass
class Walk:
    """One channel of a source, walked back from `span.until` to `span.since`.

    Attributes:
        source: source id.
        channel: its list.
        span: what is wanted.
        fetch: asks for a page.
        crawled_at: put into each article.
        most_pages: the walk gives up after that many list pages.
        newest: publication of the newest row that the list is known to have, None if nothing is known.
        at_once: pages of articles that are under way at a time. The others wait here, not in Scrapy's queues, so that
            none of them goes out after a refusal.
    """

    source: str
    channel: Channel
    span: Span
    fetch: Fetch
    crawled_at: dt.datetime
    most_pages: int
    at_once: int = 1
    newest: dt.datetime | None = None
    _told: OrderedDict[str, None] = field(default_factory=OrderedDict)
    _idle: int = 0
    _failed: int = 0
    _textless: int = 0
    _reached: dt.datetime = field(init=False)

    def __post_init__(self) -> None:
        self._reached = self.span.until

    async def pages(self) -> AsyncIterator[PageRead | ChannelEnd]:
        """Every page, then how the walk ended. It ends in order whatever the site does.

        An exception that nobody expected is told as the end, too, and raised.
        """
        try:
            async for page in self._pages():
                yield page
        except PageFailure as failure:
            yield self._end(failure.state, failure.reason)
        except Exception as defect:
            yield self._end(PageState.DEFECT, in_words(defect))
            raise

    async def _pages(self) -> AsyncIterator[PageRead | ChannelEnd]:
        await self._look_at_the_newest()
        cursor = await self._beginning()
        for _ in range(self.most_pages):
            page = await self._page(cursor)
            fresh = [row for row in page.rows if row.source_id not in self._told]
            following, doubts = self._following(page, cursor, bool(fresh))
            yield await self._read(page, fresh, doubts)
            if self._reached <= self.span.since:
                yield self._end(PageState.OK, "")
                return
            if following is None and not self._told:
                yield self._end(PageState.EMPTY, f"the list has no rows before {instant(self.span.until)}")
                return
            if following is None:
                reason = f"the list ends at {instant(self._reached)}: the site serves nothing older"
                yield self._end(PageState.OK, reason, ends=True)
                return
            cursor = following
        yield self._end(PageState.FETCH_ERROR, f"gave up after {self.most_pages} pages, at {instant(self._reached)}")

    async def _look_at_the_newest(self) -> None:
        """Learn of the list's newest row, if none after the span is known: a list that stands still looks complete."""
        channel = self.channel
        if not channel.proves or channel.seeks or self.newest is not None:
            return
        cursor: str | None = channel.first(self.crawled_at)
        if cursor == channel.first(self.span.until):  # the walk itself begins there
            return
        for _ in range(_MOST_SILENT):
            if cursor is None:
                raise PageFailure(PageState.EMPTY, "the list has no rows")
            cursor = (await self._page(cursor)).following
            if self.newest is not None:
                return

    def _following(self, page: ListPage, cursor: str, brought_new: bool) -> tuple[str | None, dict[str, str]]:
        """Cursor of the next page; days that the step may have lost something of, with the reason."""
        self._idle = 0 if brought_new or not page.rows else self._idle + 1
        if page.following is None or not page.rows:
            return page.following, {}
        if self.channel.seeks or self.channel.shifts:  # new items push known ones to the next page
            if self._idle > _MOST_SHIFTED:
                raise PageFailure(
                    PageState.FETCH_ERROR, f"the site does not heed the page number: {cursor} is as before"
                )
            return page.following, {}
        one_second = len({row.published_at for row in page.rows}) == 1
        if self._idle and not one_second:
            raise PageFailure(PageState.FETCH_ERROR, f"the site does not heed the cursor {cursor}: the same rows again")
        if page.following != cursor:
            return page.following, {}
        beyond = self.channel.beyond(cursor)
        if beyond is None:
            raise PageFailure(PageState.FETCH_ERROR, f"the list does not go on: {cursor} follows itself")
        if not self.channel.ties_hide or len(page.rows) + len(page.unreadable) == 1:
            return beyond, {}
        second = page.rows[0].published_at
        return beyond, {
            _day(second): f"a whole page of items of {instant(second)}: if there are more, they were not seen"
        }

    async def _beginning(self) -> str:
        """Cursor to begin at. Where that is a page number, the page is searched for: its rows reach `until`."""
        channel, until = self.channel, self.span.until
        if not channel.seeks:
            return channel.first(until)

        async def is_later(number: int) -> bool:
            """Whether the whole page lies after `until`, so that the walk may begin there or behind."""
            last = last_in_order((await self._page(str(number))).rows)
            return last is not None and last.published_at >= until + channel.slack

        below, above = 1, 2
        if not await is_later(below):
            return str(below)
        while await is_later(above):
            below, above = above, above * 2
            if below > self.most_pages:  # its list would have ended: every page is the same
                raise PageFailure(
                    PageState.FETCH_ERROR, f"the site does not heed the page number: {below} is as before"
                )
        while above - below > 1:
            middle = (below + above) // 2
            below, above = (middle, above) if await is_later(middle) else (below, middle)
        return str(below)

    async def _page(self, cursor: str) -> ListPage:
        """A page of the list, asked for again where the site may answer rightly the next time."""
        for _ in range(_ASK_AGAIN):
            try:
                return await self._asked(cursor)
            except PageFailure as failure:
                if not failure.again:
                    raise
        return await self._asked(cursor)

    async def _asked(self, cursor: str) -> ListPage:
        page = _listed(self.channel, await self.fetch(self.channel.request(cursor)), cursor)
        # A row of the future (a wrong year, an announcement) does not show that the list goes on.
        times = [row.published_at for row in page.rows if not row.pinned and row.published_at <= self.crawled_at]
        if times:
            self.newest = max(times) if self.newest is None else max(self.newest, *times)
        return page

    async def _read(self, page: ListPage, fresh: Sequence[Row], doubts: Mapping[str, str]) -> PageRead:
        """What is told of a page: its rows of the span, with their bodies."""
        notes: tuple[str, ...] = ()
        dropped: Counter[str] = Counter()
        missing: Counter[str] = Counter()
        wanted = []
        for row in fresh:
            if row.source_id in self._told:  # twice on this page
                continue
            self._remember(row)
            if not self.span.since <= row.published_at < self.span.until:
                continue
            if row.dropped:
                dropped[row.dropped] += 1
            else:
                wanted.append(row)
        complete = await self._all_completed(wanted)
        if complete:
            textless = all(found.dropped == _NO_TEXT for found, _ in complete)
            self._textless = self._textless + len(complete) if textless else 0
        if self._textless >= _ENOUGH:
            reason = f"none of {self._textless} articles' pages could be read: their shape changed"
            raise PageFailure(PageState.UNSUPPORTED, reason)
        articles = []
        for row, (found, failure) in zip(wanted, complete, strict=True):
            if failure is not None:
                missing[_day(row.published_at)] += 1
                notes = (*notes, f"{row.url or row.source_id}: {failure.reason}")
            elif found.dropped == _NO_TEXT and row.content:  # the list's digest is all there is to read
                articles.append(self._article(row))
            elif found.dropped:
                dropped[found.dropped] += 1
            else:
                articles.append(self._article(found))
        self._reached = min(self._reached, self._proved(page))
        return PageRead(
            self.channel.name,
            self.span.position,
            tuple(articles),
            instant(self._reached),
            dict(dropped),
            page.unreadable,
            dict(missing),
            doubts,
            "" if self.newest is None else instant(self.newest),
            notes,
        )

    async def _all_completed(self, rows: Sequence[Row]) -> list[tuple[Row, PageFailure | None]]:
        """`_completed` for each row. Once one may not be asked, or too many fail, no further one is."""
        found: dict[int, tuple[Row, PageFailure | None]] = {}
        stopped: list[BaseException] = []
        waiting = iter(enumerate(rows))

        async def work() -> None:
            for place, row in waiting:
                try:
                    found[place] = await self._completed(row)
                except PageFailure as refusal:
                    stopped.append(refusal)
                    return
                except BaseException as defect:  # nobody asks on after it
                    stopped.append(defect)
                    raise
                failure = found[place][1]
                self._failed = self._failed + 1 if failure is not None else 0
                if failure is not None and self._failed >= _MOST_FAILED:
                    reason = f"{self._failed} articles in a row could not be fetched, the last one: {failure.reason}"
                    stopped.append(PageFailure(failure.state, reason))
                if stopped:
                    return

        await asyncio.gather(*(work() for _ in range(self.at_once)))
        if stopped:
            raise stopped[0]
        return [found[place] for place in range(len(rows))]

    async def _completed(self, row: Row) -> tuple[Row, PageFailure | None]:
        """The row with its body, or why that could not be fetched. A refusal stops the walk."""
        request = self.channel.detail(row)
        if request is None:
            return row, None
        try:
            response = await self.fetch(request)
            try:
                return self.channel.read_detail(response, row), None
            except Unreadable as lack:
                raise PageFailure(PageState.FETCH_ERROR, f"its page cannot be read: {lack}") from lack
            except PageFailure as failure:
                raise what_it_is(failure, body_of(response)) from failure
        except PageFailure as failure:
            if failure.state in (PageState.BLOCKED, PageState.DISALLOWED):
                raise
            if failure.state is PageState.UNSUPPORTED:  # a video, slides: there is no text to read
                return replace(row, dropped=_NO_TEXT), None
            return row, failure

    def _proved(self, page: ListPage) -> dt.datetime:
        """From where on everything has been seen, by this page alone."""
        if page.reached is not None:
            return page.reached
        last = last_in_order(page.rows)
        if last is None:
            return self._reached
        # Rows of the last one's second may stand on the next page, and rows may be a little out of order.
        return last.published_at + max(self.channel.slack, dt.timedelta(seconds=1))

    def _remember(self, row: Row) -> None:
        self._told[row.source_id] = None
        if len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)

    def _article(self, row: Row) -> Article:
        return Article(
            self.source,
            row.source_id,
            row.url,
            row.title,
            row.content,
            instant(row.published_at),
            "" if row.modified_at is None else instant(row.modified_at),
            instant(self.crawled_at),
        )

    def _end(self, state: PageState, reason: str, *, ends: bool = False) -> ChannelEnd:
        newest = "" if self.newest is None else instant(self.newest)
        return ChannelEnd(self.channel.name, self.span.position, state, reason, instant(self._reached), ends, newest)


async def probe(channel: Channel, now: dt.datetime, fetch: Fetch) -> Probe:
    """What the newest page of a list is like, by one request."""
    cursor = "1" if channel.seeks else channel.first(now)
    try:
        response = await fetch(channel.request(cursor))
        page = _listed(channel, response, cursor)
    except PageFailure as failure:
        return Probe(channel.name, failure.state, failure.reason)
    if not page.rows:
        return Probe(channel.name, PageState.EMPTY, "the newest page has no rows", unreadable=page.unreadable)
    rows = [row for row in page.rows if not row.dropped]
    shares = {
        name: sum(1 for row in rows if getattr(row, name)) / max(len(rows), 1)
        for name in ("title", "content", "url", "modified_at")
    }
    has_bodies = bool(rows) and channel.detail(rows[0]) is None
    drift = [
        f"{shares[name]:.0%} of the rows have {name}"
        for name in ("content" if has_bodies else "title", "url")
        if shares[name] < _USUAL_SHARE
    ]
    text = body_of(response)
    gone = [name for name in channel.fields if f'"{name}"' not in text]
    if gone:
        drift.append(f"no row has {', '.join(gone)} any more")
    if page.unreadable:
        drift.append(f"{len(page.unreadable)} of {len(page.rows) + len(page.unreadable)} rows cannot be read")
    return Probe(
        channel.name,
        PageState.OK,
        f"its shape has drifted: {'; '.join(drift)}" if drift else "",
        len(page.rows),
        instant(max(row.published_at for row in page.rows)),
        shares,
        page.unreadable,
        len(page.rows) - len(rows),
    )


def _listed(channel: Channel, response: Response, cursor: str) -> ListPage:
    """The page of a list in a response. Raises `PageFailure`, named by what the page is, where it is none."""
    try:
        return channel.read(response, cursor)
    except Unreadable as lack:
        raise PageFailure(PageState.UNSUPPORTED, f"shape changed: {lack}") from lack
    except PageFailure as failure:
        raise what_it_is(failure, body_of(response)) from failure


def body_of(response: Response) -> str:
    """What a page says, as far as it can be told without knowing the site."""
    return response.text if isinstance(response, TextResponse) else response.body.decode("utf-8", "replace")
