"""The walk over pages whose articles stand on pages of their own: what it asks when some of them cannot be had."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from scrapy import Request
from scrapy.http import Response, TextResponse
from spider_answers import SECOND, at

from crawlers.channel import BySecond, Channel
from crawlers.pages import ListPage, PageFailure, PageState, Row
from crawlers.records import ChannelEnd, PageRead
from crawlers.walk import Span, Walk

SITE = "https://site.example"


class Numbered(Channel):
    """A list of one page: articles a minute apart, newest first, each with a page of its own."""

    name = "numbered"
    hosts = ("site.example",)
    slack = dt.timedelta()

    def __init__(self, articles: int) -> None:
        self.articles = articles

    def first(self, until: dt.datetime) -> str:
        return "1"

    def request(self, cursor: str) -> Request:
        return Request(f"{SITE}/list/{cursor}")

    def read(self, response: Response, cursor: str) -> ListPage:
        rows = tuple(Row(str(n), at(SECOND - 60 * n), f"题{n}") for n in range(1, self.articles + 1))
        return ListPage(rows, None, at(SECOND - 86_400))

    def detail(self, row: Row) -> Request:
        return Request(f"{SITE}/article/{row.source_id}")

    def read_detail(self, response: Response, row: Row) -> Row:
        assert isinstance(response, TextResponse)
        if response.text == "slides":
            raise PageFailure(PageState.UNSUPPORTED, "no text")
        if response.text == "安全验证":
            raise PageFailure(PageState.UNSUPPORTED, "shape changed")
        return replace(row, content=response.text)


Answer = Callable[[int], str | PageFailure]


def walked(
    articles: int, answer: Answer, at_once: int = 1, since: int = SECOND - 3600
) -> tuple[Sequence[int], list[PageRead], ChannelEnd]:
    """The articles that were asked for, the pages, and how the walk ended."""
    asked: list[int] = []

    async def fetch(request: Request) -> Response:
        if "/list/" in request.url:
            return TextResponse(request.url)
        number = int(request.url.rpartition("/")[2])
        asked.append(number)
        await asyncio.sleep(0)
        said = answer(number)
        if isinstance(said, PageFailure):
            raise said
        return TextResponse(request.url, body=said.encode())

    async def collect() -> list[PageRead | ChannelEnd]:
        span = Span(at(since), at(SECOND))
        steps = Walk("site", Numbered(articles), span, fetch, at(SECOND), 10, at_once)
        return [record async for record in steps.pages()]

    *pages, end = asyncio.run(collect())
    assert isinstance(end, ChannelEnd)
    return asked, [page for page in pages if isinstance(page, PageRead)], end


def refused(state: PageState = PageState.BLOCKED) -> PageFailure:
    """A page that may not be had."""
    return PageFailure(state, "no")


@pytest.mark.parametrize("at_once", [1, 4, 50])
def test_bodies_stand_with_their_own_rows_however_many_are_asked_at_once(at_once: int) -> None:
    asked, (page,), end = walked(20, lambda number: f"正文{number}", at_once)
    assert sorted(asked) == list(range(1, 21))
    assert [(one.source_id, one.content) for one in page.articles] == [(str(n), f"正文{n}") for n in range(1, 21)]
    assert end.state is PageState.OK


@pytest.mark.parametrize("state", [PageState.BLOCKED, PageState.DISALLOWED])
@pytest.mark.parametrize(("at_once", "most"), [(1, 3), (4, 6)])
def test_after_a_refusal_no_further_article_is_asked(state: PageState, at_once: int, most: int) -> None:
    asked, pages, end = walked(50, lambda number: refused(state) if number == 3 else "正文", at_once)
    assert len(asked) <= most
    assert (pages, end.state, end.reason) == ([], state, "no")


def test_case_03_a_captcha_in_place_of_an_article_ends_the_walk() -> None:
    asked, pages, end = walked(50, lambda number: "安全验证" if number == 2 else "正文")
    assert (asked, pages, end.state) == ([1, 2], [], PageState.BLOCKED)


def test_an_article_that_cannot_be_fetched_leaves_its_day_partial_and_the_others_come() -> None:
    asked, (page,), end = walked(20, lambda number: refused(PageState.FETCH_ERROR) if number % 2 else "正文")
    assert len(asked) == 20
    assert len(page.articles) == 10
    assert page.missing == {"2024-03-05": 10}
    assert end.state is PageState.OK


def test_case_32_where_no_article_can_be_fetched_the_others_are_not_asked_for() -> None:
    gone = PageFailure(PageState.FETCH_ERROR, "https://site.example/article: HTTP 404")
    asked, pages, end = walked(50, lambda number: gone if number > 5 else "正文")
    assert asked == list(range(1, 16))
    assert (pages, end.state) == ([], PageState.FETCH_ERROR)
    assert (
        end.reason == "10 articles in a row could not be fetched, the last one: https://site.example/article: HTTP 404"
    )


def test_pages_without_text_are_left_out_unless_all_are_so() -> None:
    _, (page,), end = walked(20, lambda number: "slides" if number < 15 else "正文")
    assert (len(page.articles), page.dropped, end.state) == (6, {"no text": 14}, PageState.OK)
    _, pages, end = walked(20, lambda number: "slides")
    assert (pages, end.state) == ([], PageState.UNSUPPORTED)
    assert "their shape changed" in end.reason


def test_a_defect_is_told_as_the_end_of_the_list_and_raised() -> None:
    told: list[PageRead | ChannelEnd] = []

    class Broken(Numbered):
        def read(self, response: Response, cursor: str) -> ListPage:
            raise KeyError("newsstream")

    async def fetch(request: Request) -> Response:
        return TextResponse(request.url)

    async def collect() -> None:
        steps = Walk("site", Broken(1), Span(at(SECOND - 60), at(SECOND)), fetch, at(SECOND), 10)
        async for record in steps.pages():
            told.append(record)

    with pytest.raises(KeyError):
        asyncio.run(collect())
    (end,) = told
    assert isinstance(end, ChannelEnd)
    assert (end.state, end.reason) == (PageState.DEFECT, "a defect of the crawler: KeyError: 'newsstream'")


# Proof


class Timed(BySecond):
    """Flash news at given seconds, four rows a page, whole in the list."""

    name = "timed"
    hosts = ("site.example",)

    def __init__(self, seconds: Sequence[int]) -> None:
        self.seconds = sorted(seconds, reverse=True)

    def request(self, cursor: str) -> Request:
        return Request(f"{SITE}/list/{cursor}")

    def read(self, response: Response, cursor: str) -> ListPage:
        older = [second for second in self.seconds if second < int(cursor)][:4]
        rows = tuple(Row(str(second), at(second), content="文") for second in older)
        return ListPage(rows, self.behind(rows, cursor))


def paged(channel: Channel, since: int, until: int, now: int) -> tuple[list[str], list[PageRead], ChannelEnd]:
    """Addresses that were asked for, the pages, and how the walk ended."""
    asked: list[str] = []

    async def fetch(request: Request) -> Response:
        asked.append(request.url.rpartition("/")[2])
        return TextResponse(request.url)

    async def collect() -> list[PageRead | ChannelEnd]:
        steps = Walk("site", channel, Span(at(since), at(until)), fetch, at(now), 50)
        return [record async for record in steps.pages()]

    *pages, end = asyncio.run(collect())
    assert isinstance(end, ChannelEnd)
    return asked, [page for page in pages if isinstance(page, PageRead)], end


YEAR = 365 * 86_400


def test_one_row_of_another_age_at_the_end_of_a_page_proves_nothing() -> None:
    class Relisted(Timed):
        def read(self, response: Response, cursor: str) -> ListPage:
            page = super().read(response, cursor)
            rows = (*page.rows[:3], Row(f"old{cursor}", at(SECOND - 5 * YEAR), content="文"))
            return ListPage(rows, self.behind(rows, cursor))

    seconds = [SECOND - 600 * n for n in range(1, 60)]
    _, pages, end = paged(Relisted(seconds), SECOND - 20_000, SECOND, SECOND)
    told = {article.source_id for page in pages for article in page.articles}
    assert {str(second) for second in seconds if second >= SECOND - 20_000} <= told
    assert end.state is PageState.OK


def test_a_row_of_the_future_does_not_show_that_a_list_goes_on() -> None:
    seconds = [SECOND + YEAR, *(SECOND - 4000 - 600 * n for n in range(30))]
    _, _, end = paged(Timed(seconds), SECOND - 9000, SECOND, SECOND + 60)
    assert end.newest == at(SECOND - 4000).isoformat()


def test_the_newest_page_is_looked_at_once_and_only_where_the_past_is_read() -> None:
    seconds = [SECOND - 600 * n for n in range(30)]
    asked, pages, end = paged(Timed(seconds), SECOND - 9000, SECOND - 3000, SECOND + 60)
    assert asked[:2] == [str(SECOND + 60), str(SECOND - 3000)]
    assert asked.count(str(SECOND + 60)) == 1
    assert {page.newest for page in pages} == {end.newest} == {at(SECOND).isoformat()}
    asked, _, _ = paged(Timed(seconds), SECOND - 9000, SECOND + 60, SECOND + 60)
    assert len(asked) == len(set(asked))


def test_after_a_defect_no_further_article_is_asked() -> None:
    def answer(number: int) -> str:
        if number == 4:
            raise ValueError("a defect")
        return "正文"

    asked: list[int] = []

    def counted(number: int) -> str:
        asked.append(number)
        return answer(number)

    with pytest.raises(ValueError, match="a defect"):
        walked(60, counted, at_once=4)
    assert len(asked) <= 8


def test_a_page_of_one_second_with_rows_that_cannot_be_read_leaves_its_day_in_doubt() -> None:
    class Odd(Timed):
        def read(self, response: Response, cursor: str) -> ListPage:
            page = super().read(response, cursor)
            first = bool(page.rows) and page.rows[0].published_at == at(SECOND - 5)
            unreadable = ("row 2: no id", "row 3: no id") if first else ()
            rows = page.rows[:1] if first else page.rows
            return ListPage(rows, self.behind(rows, cursor), unreadable=unreadable)

    _, pages, _ = paged(Odd([SECOND - 5, *(SECOND - 60 * n for n in range(1, 40))]), SECOND - 900, SECOND, SECOND)
    assert [day for page in pages for day in page.doubts] == [at(SECOND).date().isoformat()]
