"""Yuncaijing: the list of a day by page and the page of a day, in the shapes that the site sends."""

from __future__ import annotations

import datetime as dt
from typing import Any
from urllib.parse import parse_qs

import pytest
from answering import answer, at, machine_in, walked
from scrapy import Request
from scrapy.http import Response

from crawlers.pages import ListPage, PageFailure, PageState, Row
from crawlers.spiders.yuncaijing import DayHtml, Listed

FIRST = "2024-03-05/1"


def item(number: Any = "16000001", **changed: Any) -> dict[str, Any]:
    return {
        "id": number,
        "title": "示例：某板块午后拉升",
        "description": "示例：某板块午后拉升，示例股份涨停。",
        "inputtime": "1709619600",
        "thmtags": "示例题材 示例概念",
        "stktags": [{"code": "600000"}],
        **changed,
    }


def listed(items: Any, code: Any = "0", message: str = "") -> dict[str, Any]:
    return {"error_code": code, "error_msg": message, "data": items}


def window(**changed: Any) -> dict[str, Any]:
    news = {
        "id": "16000001",
        "title": "示例：某板块午后拉升",
        "description": "示例：某板块午后拉升，示例股份涨停。",
        "content": "<p>示例：某板块午后拉升，示例股份涨停。</p><p>机构称&nbsp;需求回升。</p>",
        "inputtime": "1709619637",
    }
    return {"data": {"news": {**news, **changed}}}


def only(**changed: Any) -> Row:
    return Listed().read(answer(listed([item(**changed)])), FIRST).rows[0]


def test_a_row_of_the_list_is_read():
    assert only() == Row(
        "16000001",
        at("2024-03-05T14:20"),
        "示例：某板块午后拉升",
        "示例：某板块午后拉升，示例股份涨停。",
        "https://www.yuncaijing.com/news/id_16000001.html",
    )


def test_case_04_a_page_is_posted_for_as_the_sites_own_script_does():
    request = Listed().request("2024-03-05/2")
    assert request.method == "POST"
    assert parse_qs(request.body.decode()) == {"page": ["2"], "date": ["2024-03-05"]}
    assert request.headers["X-Requested-With"] == b"XMLHttpRequest"
    assert request.headers["Origin"] == b"https://www.yuncaijing.com"
    assert request.headers["Referer"] == b"https://www.yuncaijing.com/insider/list_2024-03-05.html"
    assert "Cookie" not in request.headers


def test_a_body_is_asked_for_as_the_sites_own_script_does():
    request = Listed().detail(only())
    assert request is not None
    assert request.url == "https://www.yuncaijing.com/news/modal/16000001"
    assert request.headers["X-Requested-With"] == b"XMLHttpRequest"


def test_case_10_an_error_code_ends_the_day():
    assert Listed().read(answer(listed([], "1", "没有更多数据")), "2024-03-05/4") == ListPage(
        (), "2024-03-04/1", at("2024-03-05")
    )


def test_case_10_a_site_that_is_busy_has_not_ended_the_day():
    with pytest.raises(PageFailure, match="系统繁忙") as info:
        Listed().read(answer(listed([], "500", "系统繁忙，请稍后再试")), "2024-03-05/3")
    assert (info.value.state, info.value.again) == (PageState.FETCH_ERROR, True)


def test_case_10_no_rows_without_an_error_code_are_asked_for_again():
    for items in ([], None):
        with pytest.raises(PageFailure) as info:
            Listed().read(answer(listed(items)), FIRST)
        assert (info.value.state, info.value.again) == (PageState.EMPTY, True)


def test_case_03_an_error_that_is_a_refusal_is_no_end():
    with pytest.raises(PageFailure) as info:
        Listed().read(answer(listed([], "9", "请求过于频繁，请输入验证码")), FIRST)
    assert info.value.state is PageState.BLOCKED


def test_case_03_a_captcha_in_place_of_the_list_ends_the_walk():
    walk = walked(Listed(), "2024-03-05", "2024-03-06", lambda request: answer("<html>请输入验证码</html>"))
    assert walk.end.state is PageState.BLOCKED


def test_case_03_a_captcha_in_place_of_a_body_ends_the_walk():
    def site(request: Request) -> Response:
        return answer(listed([item()]) if request.method == "POST" else "<html>请输入验证码</html>")

    walk = walked(Listed(), "2024-03-05", "2024-03-06", site)
    assert (walk.end.state, walk.articles) == (PageState.BLOCKED, [])


@pytest.mark.parametrize("body", ["<html>首页</html>", {"data": None}, {"error": 1}])
def test_a_body_that_cannot_be_read_is_missing_not_empty(body: Any):
    with pytest.raises(PageFailure) as info:
        Listed().read_detail(answer(body), only())
    assert info.value.state is PageState.FETCH_ERROR


def test_case_12_the_body_of_the_window_is_taken_or_what_the_list_says_where_it_has_none():
    row = only()
    full = Listed().read_detail(answer(window()), row)
    assert full.content == "示例：某板块午后拉升，示例股份涨停。\n机构称 需求回升。"
    assert Listed().read_detail(answer(window(content="")), row).content == row.content
    assert Listed().read_detail(answer(window(content=None, description=None)), row).content == row.content
    assert Listed().read_detail(answer(window(content="<p>示例：某板块</p>")), row).content == row.content


@pytest.mark.parametrize(
    ("number", "time", "code"),
    [("16000001", "1709619600", "0"), (16000001, 1709619600, 0), (16000001, 1709619600.0, "0")],
)
def test_case_20_ids_times_and_codes_may_be_text_or_number(number: Any, time: Any, code: Any):
    row = Listed().read(answer(listed([item(number, inputtime=time)], code)), FIRST).rows[0]
    assert (row.source_id, row.published_at) == ("16000001", at("2024-03-05T14:20"))


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_case_21_days_and_times_are_shanghais_wherever_the_machine_stands(zone: str):
    with machine_in(zone):
        row = only(inputtime=str(int(at("2024-03-05T00:00:01").timestamp())))
        cursor = Listed().first(at("2024-03-05T00:00:01"))
        day = DayHtml().read(answer(html("00:00")), FIRST).rows[0]
    assert row.published_at.isoformat() == "2024-03-05T00:00:01+08:00"
    assert day.published_at.isoformat() == "2024-03-05T00:00:00+08:00"
    assert cursor == FIRST


def test_a_changed_shape_is_told():
    with pytest.raises(PageFailure, match="there is no error_code"):
        Listed().read(answer({"data": []}), FIRST)
    with pytest.raises(PageFailure, match=r"shape changed.*inputtime"):
        Listed().read(answer(listed([item(inputtime=None)])), FIRST)


class Days:
    """The site: items of each day a minute apart (the last at midnight), twenty a page.

    `growth` new ones come to the newest day with each page that is asked for.
    """

    def __init__(self, days: dict[str, int], *, growth: int = 0, heeds: bool = True) -> None:
        self.days, self.growth, self.heeds = days, growth, heeds

    def __call__(self, request: Request) -> Response:
        if request.method == "GET":
            return answer(window(content="<p>全文。</p>"))
        form = parse_qs(request.body.decode())
        day, page = form["date"][0], int(form["page"][0]) if self.heeds else 1
        keys = [f"{day}-{n:04d}" for n in range(self.days.get(day, 0) - 1, -1, -1)]
        if day == max(self.days):
            self.days[day] += self.growth
        shown = keys[(page - 1) * 20 : page * 20]
        start = int(at(day).timestamp())
        items = [item(key, inputtime=str(start + int(key[-4:]) * 60)) for key in shown]
        return answer(listed(items) if items else listed([], "1", "没有更多数据"))


def test_days_are_walked_back_page_by_page_with_bodies():
    site = Days({"2024-03-05": 45, "2024-03-04": 20, "2024-03-03": 7})
    walk = walked(Listed(), "2024-03-04", "2024-03-06", site)
    assert walk.ids == [f"2024-03-05-{n:04d}" for n in range(44, -1, -1)] + [
        f"2024-03-04-{n:04d}" for n in range(19, -1, -1)
    ]
    assert {one.content for one in walk.articles} == {"全文。"}
    assert (walk.end.state, walk.end.reached) == (PageState.OK, at("2024-03-04").isoformat())


@pytest.mark.parametrize("growth", [3, 17])
def test_case_08_a_day_that_grows_while_it_is_read_loses_and_doubles_nothing(growth: int):
    site = Days({"2024-03-05": 100}, growth=growth)
    walk = walked(Listed(), "2024-03-05", "2024-03-05T01:40", site)
    assert walk.ids == [f"2024-03-05-{n:04d}" for n in range(99, -1, -1)]


def test_case_08_a_page_pushed_whole_to_the_next_number_is_passed():
    site = Days({"2024-03-05": 100})

    def growing_once(request: Request) -> Response:
        found = site(request)
        if request.method == "POST" and site.days["2024-03-05"] == 100:
            site.days["2024-03-05"] = 120
        return found

    walk = walked(Listed(), "2024-03-05", "2024-03-05T01:40", growing_once)
    assert walk.ids == [f"2024-03-05-{n:04d}" for n in range(99, -1, -1)]


def test_case_05_a_page_number_that_is_not_heeded_ends_the_walk():
    walk = walked(Listed(), "2024-03-04", "2024-03-06", Days({"2024-03-05": 45}, heeds=False), most_pages=50)
    assert walk.end.state is PageState.FETCH_ERROR
    assert "does not heed the page number" in walk.end.reason


def test_case_10_a_day_without_news_is_complete_once_an_older_day_brings_some():
    walk = walked(Listed(), "2024-03-05", "2024-03-06", Days({"2024-03-04": 5}))
    assert (walk.articles, walk.end.state, walk.end.ends) == ([], PageState.OK, False)


def test_a_site_that_lists_nothing_older_has_ended():
    walk = walked(Listed(), "2023-01-01", "2024-03-06", Days({"2024-03-05": 5}))
    assert (walk.end.ends, walk.end.reached) == (True, at("2024-03-05").isoformat())
    assert len(walk.asked) < 30


# --- The page of a day -------------------------------------------------------------------------------------------


def html(*times: str) -> str:
    rows = "".join(
        f'<li data-id="{16000001 + place}"><time>{time}</time><a class="title" href="/news/id_{16000001 + place}.html" '
        f'title="示例：某板块&amp;午后拉升">示例…</a><span class="des">示例：<em>某板块</em>午后拉升。</span></li>'
        for place, time in enumerate(times)
    )
    return f"<html><body><ul>{rows}</ul></body></html>"


def test_case_22_times_of_a_days_page_have_minutes_only_and_its_address_has_the_day():
    page = DayHtml().read(answer(html("14:20", "09:05")), FIRST)
    assert page.rows[0] == Row(
        "16000001",
        at("2024-03-05T14:20"),
        "示例：某板块&午后拉升",
        "示例：某板块午后拉升。",
        "https://www.yuncaijing.com/news/id_16000001.html",
    )
    assert (page.rows[1].published_at, page.reached) == (at("2024-03-05T09:05"), at("2024-03-05"))


@pytest.mark.parametrize(
    ("inputtime", "published"),
    [("1709619637", "2024-03-05T14:20:37"), ("1709619700", "2024-03-05T14:20"), (None, "2024-03-05T14:20")],
)
def test_case_22_the_window_gives_the_seconds_of_the_same_minute(inputtime: Any, published: str):
    row = DayHtml().read(answer(html("14:20")), FIRST).rows[0]
    full = DayHtml().read_detail(answer(window(inputtime=inputtime)), row)
    assert full.published_at == at(published)


def test_a_day_without_a_page_or_without_rows_has_no_news():
    silent = ListPage((), "2024-03-04/1/1")
    assert DayHtml().read(answer("<h1>404</h1>", status=404), FIRST) == silent
    assert DayHtml().read(answer(html()), FIRST) == silent


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ("<html>首页</html>", "no list in the page"),
        ('{"code": "0", "data": null}', "no list in the page"),
        (html("14:20").replace("data-id", "data-key"), "shape changed"),
    ],
)
def test_case_03_a_page_of_another_shape_is_no_day_without_news(page: str, reason: str):
    with pytest.raises(PageFailure, match=reason) as info:
        DayHtml().read(answer(page), FIRST)
    assert info.value.state is PageState.UNSUPPORTED


def test_a_page_that_is_cut_short_does_not_stand_for_its_day():
    whole = html("14:20", "09:05")
    with pytest.raises(PageFailure, match="cut short") as info:
        DayHtml().read(answer(whole[: len(whole) // 2]), FIRST)
    assert info.value.again


def test_a_page_that_shows_another_day_than_it_was_asked_for_dates_nothing():
    row = DayHtml().read(answer(html("14:20")), "2024-01-02/1").rows[0]
    with pytest.raises(PageFailure, match="listed on 2024-01-02, but of 2024-03-05") as info:
        DayHtml().read_detail(answer(window()), row)
    assert info.value.state is PageState.FETCH_ERROR


def test_days_pages_are_walked_back():
    def site(request: Request) -> Response:
        if "/modal/" in request.url:
            return answer(window(inputtime=None))
        day = dt.date.fromisoformat(request.url.rpartition("list_")[2].removesuffix(".html"))
        return answer(html("14:20", "09:05").replace("160000", f"{day:%m%d}00"))

    walk = walked(DayHtml(), "2024-03-04", "2024-03-06", site)
    assert (len(walk.ids), walk.end.state, walk.end.reached) == (4, PageState.OK, at("2024-03-04").isoformat())
