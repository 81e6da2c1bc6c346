"""Yicai: the brief and the news, in the shapes that the site sends."""

from __future__ import annotations

import asyncio
import datetime as dt
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from answering import answer, at, machine_in, walked
from scrapy import Request
from scrapy.http import Response

from crawlers.pages import ListPage, PageFailure, PageState, Row
from crawlers.records import Job
from crawlers.spiders.yicai import Brief, News, YicaiSpider


def brief(number: Any = 102000001, **changed: Any) -> dict[str, Any]:
    return {
        "id": number,
        "LiveID": number,
        "LiveTitle": "示例：某行业协会发布月度数据",
        "LiveContent": "<b>示例：</b>某行业协会发布2月数据，环比增长。",
        "CreateDate": "2024-03-05T09:31:40",
        "hm": "09:31",
        "indexTitle": "示例：某行业协会发布月度数据",
        "newcontent": "某行业协会发布2月数据，环比增长。",
        "url": f"/brief/{number}.html",
        "istop": False,
        "CountVotes": 4,
        "NewsHot": 2,
        **changed,
    }


def only(**changed: Any) -> Row:
    return Brief().read(answer([brief(**changed)]), "1").rows[0]


def test_a_brief_is_read_whole():
    assert only() == Row(
        "102000001",
        at("2024-03-05T09:31:40"),
        "示例：某行业协会发布月度数据",
        "示例：某行业协会发布2月数据，环比增长。",
        "https://www.yicai.com/brief/102000001.html",
    )


def test_a_page_is_asked_for_by_its_number():
    request = Brief().request("3")
    assert parse_qs(urlsplit(request.url).query)["page"] == ["3"]
    assert request.headers["Referer"] == b"https://www.yicai.com/brief/"


def test_a_brief_without_its_main_fields_is_read_from_the_others():
    row = only(id=None, LiveTitle="", LiveContent=None)
    assert (row.source_id, row.title, row.content) == (
        "102000001",
        "示例：某行业协会发布月度数据",
        "某行业协会发布2月数据，环比增长。",
    )


def test_case_03_a_page_of_html_in_place_of_an_array_is_unsupported():
    with pytest.raises(PageFailure) as info:
        Brief().read(answer("<html>Please Enable JavaScript and Cookie</html>"), "1")
    assert info.value.state is PageState.UNSUPPORTED


def test_case_03_a_walk_names_what_such_a_page_is():
    shell = "<html>Please Enable JavaScript and Cookie</html>"
    walk = walked(Brief(), "2024-03-05", "2024-03-06", lambda request: answer(shell))
    assert walk.end.state is PageState.JAVASCRIPT_REQUIRED


def test_case_10_an_empty_first_page_is_a_failure_and_an_empty_later_one_the_end():
    with pytest.raises(PageFailure) as info:
        Brief().read(answer([]), "1")
    assert (info.value.state, info.value.again) == (PageState.EMPTY, True)
    with pytest.raises(PageFailure) as info:
        Brief().read(answer(None), "51")
    assert (info.value.state, info.value.again) == (PageState.EMPTY, True)
    assert Brief().read(answer([]), "51") == ListPage((), None)


@pytest.mark.parametrize(
    ("url", "dropped"),
    [
        ("/vip/102000001.html", "vip"),
        ("https://www.yicai.com/vip/102000001.html", "vip"),
        ("/video/102000001.html", "video"),
        ("/brief/102000001.html", ""),
        ("/news/vip-102000001.html", ""),
    ],
)
def test_case_15_what_lies_under_vip_or_video_is_dropped(url: str, dropped: str):
    assert only(url=url).dropped == dropped


@pytest.mark.parametrize("number", [102000001, "102000001"])
def test_case_20_ids_may_be_text_or_number(number: Any):
    assert only(number=number).source_id == "102000001"


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@pytest.mark.parametrize("written", ["2024-03-05T00:00:01", "2024-03-05T00:00:01.000", "2024-03-05 00:00:01"])
def test_case_22_a_time_without_offset_is_shanghais_wherever_the_machine_stands(zone: str, written: str):
    with machine_in(zone):
        assert only(CreateDate=written).published_at.isoformat() == "2024-03-05T00:00:01+08:00"


@pytest.mark.parametrize(
    ("url", "absolute"),
    [
        ("/brief/1.html", "https://www.yicai.com/brief/1.html"),
        ("//www.yicai.com/brief/1.html", "https://www.yicai.com/brief/1.html"),
        (None, ""),
    ],
)
def test_case_31_addresses_are_made_absolute(url: Any, absolute: str):
    assert only(url=url).url == absolute


def test_case_32_a_404_for_visitors_from_abroad_is_an_error_not_a_day_without_news():
    spider = YicaiSpider(Job("yicai", (), at("2024-03-06")))

    async def gone(request: Request) -> Response:
        return answer("<h1>404</h1>", status=404)

    spider.crawler = SimpleNamespace(engine=SimpleNamespace(download_async=gone))  # type: ignore[assignment]
    with pytest.raises(PageFailure, match=r"getbrieflist: HTTP 404") as info:
        asyncio.run(spider.fetch(Brief().request("1")))
    assert info.value.state is PageState.FETCH_ERROR


def test_a_brief_on_top_says_nothing_of_the_order_of_time():
    assert only(istop=True).pinned


def test_a_changed_shape_is_told():
    with pytest.raises(PageFailure, match=r"shape changed: the answer is dict"):
        Brief().read(answer({"list": []}), "1")
    with pytest.raises(PageFailure, match=r"shape changed.*CreateDate"):
        Brief().read(answer([brief(CreateDate=None)]), "1")


class Pages:
    """The site: briefs a minute apart, thirty a page; `growth` new ones come with each request."""

    def __init__(self, items: int, *, growth: int = 0, heeds: bool = True) -> None:
        self.items, self.growth, self.heeds = items, growth, heeds

    def __call__(self, request: Request) -> Response:
        page = int(parse_qs(urlsplit(request.url).query)["page"][0]) if self.heeds else 1
        shown = list(range(self.items, 0, -1))[(page - 1) * 30 : page * 30]
        self.items += self.growth
        start = dt.datetime(2024, 3, 1)
        return answer([brief(n, CreateDate=(start + dt.timedelta(minutes=n)).isoformat()) for n in shown])


def test_case_08_pages_that_shift_while_they_are_read_lose_and_double_nothing():
    walk = walked(Brief(), "2024-03-01T12:00", "2024-03-02T09:20", Pages(2000, growth=13))
    assert walk.ids == [str(number) for number in range(1999, 719, -1)]
    assert walk.end.state is PageState.OK


def test_case_05_a_page_number_that_is_not_heeded_ends_the_walk():
    for until in ("2024-03-02", "2024-03-05"):
        walk = walked(Brief(), "2024-03-01", until, Pages(5000, heeds=False), most_pages=50)
        assert walk.end.state is PageState.FETCH_ERROR


def test_an_old_day_is_searched_for_not_paged_to():
    walk = walked(Brief(), "2024-03-02", "2024-03-03", Pages(20_000))
    assert walk.ids == [str(number) for number in range(2879, 1439, -1)]
    assert len(walk.asked) < 80


def test_the_lists_end_proves_nothing_older():
    walk = walked(Brief(), "2024-02-01", "2024-03-03", Pages(100))
    assert (walk.end.ends, walk.end.state, len(walk.ids)) == (True, PageState.OK, 100)


# --- News --------------------------------------------------------------------------------------------------------


def news(**changed: Any) -> Row:
    item = {
        "NewsID": 102000002,
        "NewsTitle": "示例：公司公告",
        "NewsNotes": "示例摘要。",
        "CreateDate": "2024-03-05T09:31:40",
        "url": "/news/102000002.html",
        "AppID": 0,
        **changed,
    }
    return News().read(answer([item]), "1").rows[0]


def test_an_article_is_read_with_its_notes():
    assert news() == Row(
        "102000002",
        at("2024-03-05T09:31:40"),
        "示例：公司公告",
        "示例摘要。",
        "https://www.yicai.com/news/102000002.html",
    )


@pytest.mark.parametrize("kind", ["vip", "video"])
def test_case_15_articles_for_members_and_videos_are_dropped(kind: str):
    assert news(url=f"/{kind}/102000002.html").dropped == kind


@pytest.mark.parametrize("mark", ["class='multiText'", "id='multi-text'", "class='txt'", "class='m-txt'"])
def test_a_body_is_found_in_new_and_old_pages(mark: str):
    page = answer(f"<html><body><div {mark}><p>第一段。</p><script>x</script><p>第二段。</p></div></body></html>")
    assert News().read_detail(page, news()).content == "第一段。\n第二段。"


def test_a_page_without_body_is_unsupported_and_the_row_stays():
    def site(request: Request) -> Response:
        if "getlatest" in request.url:
            item = {"NewsID": 1, "NewsTitle": "标题", "NewsNotes": "摘要。", "CreateDate": "2024-03-05T09:31:40"}
            return answer([item | {"url": "/news/1.html"}] if "page=1&" in request.url else [])
        return answer("<html><body>别的</body></html>")

    walk = walked(News(), "2024-03-05", "2024-03-06", site)
    assert [one.content for one in walk.articles] == ["摘要。"]
