"""ifeng: the column's stream with its articles, and the newest flashes, in the shapes that the site sends."""

from __future__ import annotations

import datetime as dt
import json
import re
from typing import Any

import pytest
from answering import answer, at, machine_in, walked
from scrapy import Request
from scrapy.http import Response

from crawlers.pages import ListPage, PageFailure, PageState, Row
from crawlers.spiders.fenghuang import FlashNews, Stream

NEWEST = Stream().first(at("2024-03-06"))


def milliseconds(text: str) -> int:
    return int(at(text).timestamp() * 1000)


def entry(number: Any = 70000000000000000001, **changed: Any) -> dict[str, Any]:
    return {
        "id": str(number),
        "title": "示例：某交易所发布新规",
        "url": "//finance.ifeng.com/c/8XaMpLe0001",
        "newsTime": "2024-03-05 09:31:40",
        "source": "示例社",
        **changed,
    }


def column(*entries: dict[str, Any]) -> str:
    state = json.dumps({"nav": ["};var x = {"], "newsstream": list(entries)}, ensure_ascii=False)
    return f"<html><script>var allData = {state};\nvar adData = {{}};</script></html>"


def more(entries: Any, *, ends: Any = False, code: Any = 0) -> str:
    data = {"newsstream": entries, "isEnd": ends}
    body = json.dumps({"code": code, "message": "成功", "data": data}, ensure_ascii=False)
    return f"getColumnInfoCallback({body})"


def article(*parts: Any, **changed: Any) -> str:
    document = {"title": "示例：某交易所发布新规", "contentData": {"contentList": list(parts)}, **changed}
    state = json.dumps({"note": 'if (a) { b = "}"; };', "docData": document}, ensure_ascii=False)
    return f"<html><script>var allData = {state};\nvar adData = {{}};</script></html>"


def only(**changed: Any) -> Row:
    return Stream().read(answer(column(entry(**changed))), NEWEST).rows[0]


def test_a_row_of_the_column_is_read():
    assert only() == Row(
        "70000000000000000001",
        at("2024-03-05T09:31:40"),
        "示例：某交易所发布新规",
        "",
        "https://finance.ifeng.com/c/8XaMpLe0001",
    )


def test_behind_the_column_rows_are_asked_for_by_the_last_ones_id_and_the_second_after_its_time():
    page = Stream().read(answer(column(entry(2), entry(1, newsTime="2024-03-05 09:20:00"))), NEWEST)
    assert page.following == f"1 {milliseconds('2024-03-05T09:20:01')}"
    request = Stream().request(page.following)
    assert f"/default/1/{milliseconds('2024-03-05T09:20:01')}/50/1-62-83-/getColumnInfoCallback?" in request.url


def test_a_column_that_is_all_too_new_is_left_for_the_instant_that_is_wanted():
    page = Stream().read(answer(column(entry())), Stream().first(at("2024-01-02T00:00:00.25")))
    assert page.following == f"0 {milliseconds('2024-01-02T00:00:01')}"


def test_rows_behind_the_column_are_read_from_the_callback():
    page = Stream().read(answer(more([entry(1)])), f"9 {milliseconds('2024-03-05T10:00')}")
    assert [row.source_id for row in page.rows] == ["1"]
    assert page.following == f"1 {milliseconds('2024-03-05T09:31:41')}"


def test_a_cursor_never_rises():
    cursor = f"9 {milliseconds('2024-03-05T09:31:40')}"
    assert Stream().read(answer(more([entry(1)])), cursor).following == f"1 {milliseconds('2024-03-05T09:31:40')}"
    assert Stream().beyond(cursor) == f"9 {milliseconds('2024-03-05T09:31:39')}"


@pytest.mark.parametrize("ends", [True, "true", 1])
def test_case_10_the_list_ends_where_the_site_says_so(ends: Any):
    cursor = f"9 {milliseconds('2024-03-05T10:00')}"
    assert Stream().read(answer(more([], ends=ends)), cursor) == ListPage((), None)
    assert Stream().read(answer(more(None, ends=ends)), cursor) == ListPage((), None)
    last = Stream().read(answer(more([entry(1)], ends=ends)), cursor)
    assert (len(last.rows), last.following) == (1, None)


@pytest.mark.parametrize("entries", [[], None])
def test_case_10_no_rows_without_an_end_are_asked_for_again(entries: Any):
    with pytest.raises(PageFailure) as info:
        Stream().read(answer(more(entries)), f"9 {milliseconds('2024-03-05T10:00')}")
    assert (info.value.state, info.value.again) == (PageState.EMPTY, True)


def test_what_the_site_says_is_wrong_is_told():
    with pytest.raises(PageFailure, match="'500'") as info:
        Stream().read(answer(more([], code=500)), f"9 {milliseconds('2024-03-05T10:00')}")
    assert info.value.state is PageState.FETCH_ERROR


def test_case_20_codes_may_be_text():
    assert Stream().read(answer(more([entry(1)], code="0")), f"9 {milliseconds('2024-03-05T10:00')}").rows


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_case_21_times_and_cursors_are_shanghais_wherever_the_machine_stands(zone: str):
    with machine_in(zone):
        page = Stream().read(answer(column(entry(1, newsTime="2024-03-05 00:00:01"))), NEWEST)
    assert page.rows[0].published_at.isoformat() == "2024-03-05T00:00:01+08:00"
    assert page.following == "1 1709568002000"


def test_case_27_state_is_cut_where_it_ends_not_at_a_brace_inside_a_text():
    title = '示例："};var allData = {"'
    assert only(title=title).title == title
    assert Stream().read_detail(answer(article({"type": "text", "data": "<p>一};二</p>"})), only()).content == "一};二"


@pytest.mark.parametrize(
    "page", ['<html><script>var allData = {"videoData":{}};</script></html>', "<html>图集</html>", article()]
)
def test_case_28_a_page_without_a_text_is_unsupported(page: str):
    with pytest.raises(PageFailure) as info:
        Stream().read_detail(answer(page), only())
    assert info.value.state is PageState.UNSUPPORTED


def test_case_28_a_video_is_left_out_and_a_column_of_nothing_else_is_a_changed_shape():
    video = '<html><script>var allData = {"videoData":{}};</script></html>'
    site = Column(spread(9))

    def some(request: Request) -> Response:
        return answer(video) if request.url.endswith("/c/3") else site(request)

    walk = walked(Stream(), "2024-03-05T01:01", "2024-03-06", some)
    assert (len(walk.ids), walk.pages[0].dropped) == (8, {"no text": 1})

    walk = walked(
        Stream(), "2024-03-05T01:01", "2024-03-06", lambda one: answer(video) if "/c/" in one.url else site(one)
    )
    assert (walk.articles, walk.end.state) == ([], PageState.UNSUPPORTED)


def test_case_28_a_column_without_its_state_is_a_changed_shape():
    with pytest.raises(PageFailure, match="shape changed") as info:
        Stream().read(answer("<html><div id='root'></div></html>"), NEWEST)
    assert info.value.state is PageState.UNSUPPORTED
    with pytest.raises(PageFailure, match="there is no newsstream"):
        Stream().read(answer('<script>var allData = {"stream":[]};</script>'), NEWEST)


@pytest.mark.parametrize("url", ["//finance.ifeng.com/c/8X", "https://finance.ifeng.com/c/8X", "/c/8X"])
def test_case_31_addresses_are_made_absolute(url: str):
    assert only(url=url).url == "https://finance.ifeng.com/c/8X"


def test_a_body_is_its_text_parts():
    parts = (
        {"type": "text", "data": "<p>第一段&nbsp;。</p><p>\u3000第二段。</p>"},
        {"type": "video", "data": {"title": "示例视频"}},
        {"type": "text", "data": "<p>第三段。</p>"},
    )
    assert Stream().read_detail(answer(article(*parts)), only()).content == "第一段 。\n第二段。\n第三段。"


def test_an_older_pages_body_is_its_paragraphs():
    page = "<html><div class='index_text_D02rM x'><p>第一段。</p><p>第二段。</p></div></html>"
    assert Stream().read_detail(answer(page), only()).content == "第一段。\n第二段。"


def test_pages_of_other_hosts_are_not_opened():
    assert Stream().detail(only()) is not None
    assert Stream().detail(only(url="//tech.ifeng.com/c/8X")) is None


class Column:
    """The site: entries, the column's page with the newest ten, ten a page behind it.

    `by_place` is whether the row before the page is found by its id; else by its time alone.
    """

    def __init__(self, times: dict[int, str], *, by_place: bool = True, heeds: bool = True) -> None:
        self.newest_first = sorted(times, key=lambda key: (times[key], key), reverse=True)
        self.times, self.by_place, self.heeds = times, by_place, heeds

    def __call__(self, request: Request) -> Response:
        if "/c/" in request.url:
            return answer(article({"type": "text", "data": "<p>全文。</p>"}))
        found = re.search(r"/default/(\d+)/(\d+)/", request.url)
        if found is None or not self.heeds:
            shown = [self.entry(key) for key in self.newest_first[:10]]
            return answer(column(*shown) if found is None else more(shown))
        key, moment = int(found[1]), int(found[2])
        rest = [
            other
            for other in self.newest_first
            if (time := milliseconds(self.times[other])) < moment or (self.by_place and time == moment and other < key)
        ]
        return answer(more([self.entry(key) for key in rest[:10]], ends=len(rest) <= 10))

    def entry(self, key: int) -> dict[str, Any]:
        return entry(key, newsTime=self.times[key].replace("T", " "), url=f"//finance.ifeng.com/c/{key}")


def spread(count: int) -> dict[int, str]:
    """So many entries, a minute apart, from 01:00 on."""
    start = dt.datetime(2024, 3, 5, 1)
    return {n: (start + dt.timedelta(minutes=n)).isoformat() for n in range(1, count + 1)}


@pytest.mark.parametrize("by_place", [True, False])
@pytest.mark.parametrize("tied", [1, 5, 9, 10])
def test_case_06_rows_of_one_second_at_a_border_are_neither_lost_nor_doubled(tied: int, by_place: bool):
    times = spread(60) | {1000 + n: "2024-03-05T01:40:30" for n in range(tied)}
    site = Column(times, by_place=by_place)
    walk = walked(Stream(), "2024-03-05T01:01", "2024-03-06", site)
    assert walk.ids == [str(key) for key in site.newest_first]
    assert {one.content for one in walk.articles} == {"全文。"}


def test_case_06_more_rows_of_one_second_than_a_page_are_all_had_where_the_site_heeds_the_id():
    site = Column(spread(60) | {1000 + n: "2024-03-05T01:40:30" for n in range(47)})
    walk = walked(Stream(), "2024-03-05T01:01", "2024-03-06", site, most_pages=60)
    assert sorted(walk.ids) == sorted(map(str, site.newest_first))


def test_case_05_a_cursor_that_is_not_heeded_ends_the_walk():
    walk = walked(Stream(), "2024-03-05", "2024-03-06", Column(spread(60), heeds=False), most_pages=50)
    assert walk.end.state is PageState.FETCH_ERROR
    assert "does not heed the cursor" in walk.end.reason


def test_an_old_day_is_jumped_to():
    days = {n: (dt.datetime(2024, 1, 1) + dt.timedelta(hours=n)).isoformat() for n in range(1, 1500)}
    walk = walked(Stream(), "2024-01-02", "2024-01-03", Column(days))
    assert walk.ids == [str(n) for n in range(47, 23, -1)]
    assert sum("/c/" not in one.url for one in walk.asked) <= 5


def test_the_lists_end_proves_nothing_older():
    walk = walked(Stream(), "2024-01-01", "2024-03-06", Column(spread(25)))
    assert (walk.end.ends, walk.end.state, len(walk.ids)) == (True, PageState.OK, 25)


# --- Flash news --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["id", "ucmsid"])
@pytest.mark.parametrize("ctime", ["2024-03-05 09:31:40", "1709602300", 1709602300, 1709602300000])
def test_case_20_a_flash_is_read_whatever_the_form_of_its_id_and_time(name: str, ctime: Any):
    item = {name: "cls1611001", "brief": "【示例】财联社3月5日电，<em>示例</em>。", "ctime": ctime}
    page = FlashNews().read(answer({"data": [item]}), "newest")
    assert page.rows == (Row("cls1611001", at("2024-03-05T09:31:40"), "示例", "【示例】财联社3月5日电，示例。"),)
    assert page.following is None


def test_case_17_flashes_are_read_from_a_callback_too():
    body = json.dumps({"data": [{"id": "1", "brief": "一。", "ctime": "1709602300"}]})
    assert len(FlashNews().read(answer(f"try{{cb({body});}}catch(e){{}};"), "newest").rows) == 1


def test_flashes_are_the_newest_only_and_prove_nothing():
    assert not FlashNews.proves
    with pytest.raises(PageFailure) as info:
        FlashNews().read(answer({"data": []}), "newest")
    assert (info.value.state, info.value.again) == (PageState.EMPTY, True)
