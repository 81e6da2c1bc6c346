"""JRJ: flash news of the gateway, and the important news of a day, in the shapes that the site sends."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from types import SimpleNamespace
from typing import Any

import pytest
from answering import answer, at, machine_in, walked
from scrapy import Request
from scrapy.http import Response

from crawlers.days import LONGEST_SILENCE
from crawlers.pages import ListPage, PageFailure, PageState, Row
from crawlers.records import Job
from crawlers.spiders.jinrongjie import Flash, JinrongjieSpider, Yaowen

CURSOR = Flash().first(at("2024-03-06"))


def flash(number: Any = 40000001, **changed: Any) -> dict[str, Any]:
    return {
        "iiId": number,
        "title": "",
        "detail": "示例：某部门3月5日公布，前两月示例指标同比增长。",
        "summary": "",
        "makeDate": "2024-03-05 09:31:40",
        "pcInfoUrl": "https://24h.jrj.com.cn/2024/03/05093140000001.shtml",
        "infoUrl": "https://apppage.jrj.com.cn/news/24h/detail.shtml",
        "paperMediaSource": "示例数据",
        "hotValue": "3",
        "readNum": "9",
        **changed,
    }


def gateway(items: Any, code: Any = 20000) -> dict[str, Any]:
    return {"code": code, "message": "success", "data": {"total": 200, "data": items}}


def only(**changed: Any) -> Row:
    return Flash().read(answer(gateway([flash(**changed)])), CURSOR).rows[0]


def test_a_flash_is_read_whole():
    assert only() == Row(
        "40000001",
        at("2024-03-05T09:31:40"),
        "",
        "示例：某部门3月5日公布，前两月示例指标同比增长。",
        "https://24h.jrj.com.cn/2024/03/05093140000001.shtml",
    )


def test_case_04_a_page_is_posted_for_with_the_headers_that_the_gateway_wants():
    request = Flash().request(CURSOR)
    assert (request.method, json.loads(request.body)) == ("POST", {"makeDate": "2024-03-06 00:00:00"})
    assert request.headers["productId"] == b"6000021"
    assert request.headers["Content-Type"] == b"application/json"
    assert request.headers["Referer"] == b"https://24h.jrj.com.cn/"


def test_case_04_a_refusal_with_status_200_says_what_the_gateway_said():
    with pytest.raises(PageFailure, match="productId error") as info:
        Flash().read(answer({"code": 40003, "message": "productId error", "data": None}), CURSOR)
    assert (info.value.state, info.value.again) == (PageState.FETCH_ERROR, False)


@pytest.mark.parametrize("body", [gateway(None), {"code": 20000, "message": "success", "data": None}])
def test_case_10_null_is_a_failure_worth_asking_again(body: Any):
    with pytest.raises(PageFailure) as info:
        Flash().read(answer(body), CURSOR)
    assert (info.value.state, info.value.again) == (PageState.EMPTY, True)


def test_case_10_an_empty_list_is_the_end():
    assert Flash().read(answer(gateway([])), CURSOR) == ListPage((), None)


def test_case_12_a_summary_that_goes_on_behind_the_detail_is_taken():
    assert only(detail="示例：前两月", summary="示例：前两月指标增长。").content == "示例：前两月指标增长。"


@pytest.mark.parametrize("title", ["", None, "nan"])
def test_case_13_a_lead_is_the_title_where_none_is_sent(title: Any):
    row = only(title=title, detail="【示例标题】示例正文。")
    assert (row.title, row.content) == ("示例标题", "【示例标题】示例正文。")


@pytest.mark.parametrize(("number", "code"), [("40000001", "20000"), (40000001, 20000), (40000001.0, 20000)])
def test_case_20_ids_and_codes_may_be_text_or_number(number: Any, code: Any):
    assert Flash().read(answer(gateway([flash(number)], code)), CURSOR).rows[0].source_id == "40000001"


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_case_21_times_and_cursors_are_shanghais_wherever_the_machine_stands(zone: str):
    with machine_in(zone):
        row = only(makeDate="2024-03-05 00:00:01")
        asked = json.loads(Flash().request(Flash().first(at("2024-03-05T00:00:00.5"))).body)
    assert row.published_at.isoformat() == "2024-03-05T00:00:01+08:00"
    assert asked == {"makeDate": "2024-03-05 00:00:01"}  # rows of the second itself are wanted


def test_a_renamed_field_is_a_changed_shape():
    with pytest.raises(PageFailure, match=r"shape changed.*makeDate") as info:
        Flash().read(answer(gateway([flash(makeDate=None)])), CURSOR)
    assert info.value.state is PageState.UNSUPPORTED
    with pytest.raises(PageFailure, match="there is no code"):
        Flash().read(answer({"result": []}), CURSOR)


def site(times: dict[str, str], *, inclusive: bool = False, heeds: bool = True) -> Any:
    """The gateway with these items (id: time of day on 2024-03-05), twenty a page."""
    newest_first = sorted(times.items(), key=lambda one: (one[1], one[0]), reverse=True)

    def serve(request: Request) -> Response:
        until = json.loads(request.body)["makeDate"]
        shown = [
            flash(number, makeDate=f"2024-03-05 {time}")
            for number, time in newest_first
            if not heeds or f"2024-03-05 {time}" < until or (inclusive and f"2024-03-05 {time}" == until)
        ]
        return answer(gateway(shown[:20]))

    return serve


def spread(count: int) -> dict[str, str]:
    """So many items, a minute apart, one a minute from 01:00 on."""
    return {str(40000000 + n): f"{1 + n // 60:02d}:{n % 60:02d}:00" for n in range(count)}


@pytest.mark.parametrize("inclusive", [False, True])
@pytest.mark.parametrize("tied", [1, 15, 19, 20])
def test_case_06_rows_of_one_second_at_a_border_are_neither_lost_nor_doubled(tied: int, inclusive: bool):
    times = spread(70) | {str(41000000 + n): "01:55:30" for n in range(tied)}
    walk = walked(Flash(), "2024-03-05T01:00", "2024-03-06", site(times, inclusive=inclusive))
    assert walk.ids == sorted(times, key=lambda key: (times[key], key), reverse=True)
    assert walk.end.state is PageState.OK


@pytest.mark.parametrize("inclusive", [False, True])
def test_case_06_a_second_with_more_rows_than_a_page_is_passed_and_told(inclusive: bool):
    times = spread(60) | {str(41000000 + n): "01:30:30" for n in range(45)}
    walk = walked(Flash(), "2024-03-05T01:00", "2024-03-06", site(times, inclusive=inclusive), most_pages=40)
    assert set(spread(60)) <= set(walk.ids)
    assert {day for page in walk.pages for day in page.doubts} == {"2024-03-05"}


def test_case_05_a_cursor_that_is_not_heeded_ends_the_walk():
    walk = walked(Flash(), "2024-03-04", "2024-03-06", site(spread(70), heeds=False), most_pages=50)
    assert walk.end.state is PageState.FETCH_ERROR
    assert "does not heed the cursor" in walk.end.reason
    assert len(walk.asked) < 5


def test_the_lists_end_proves_nothing_older():
    walk = walked(Flash(), "2024-03-01", "2024-03-06", site(spread(30)))
    assert (walk.end.state, walk.end.ends, len(walk.ids)) == (PageState.OK, True, 30)
    assert dt.datetime.fromisoformat(walk.end.reached) > at("2024-03-05T01:00")


# --- Important news, a file a day --------------------------------------------------------------------------------


def important(number: Any = "40000001", **changed: Any) -> dict[str, Any]:
    return {
        "iiid": number,
        "title": "示例标题：要闻一则",
        "detail": "示例正文一段。",
        "makedate": "2024-03-05 09:31:40",
        "infourl": "https://finance.jrj.com.cn/2024/03/05093140000001.shtml",
        "infosource": "示例社",
        **changed,
    }


def file(*items: dict[str, Any], form: str = "var x = {};") -> str:
    return form.replace("{}", json.dumps({"newsinfo": list(items)}, ensure_ascii=False))


def test_an_item_of_a_days_file_has_the_id_of_the_flash():
    page = Yaowen().read(answer(file(important())), "2024-03-05/1")
    assert page.rows[0].source_id == only().source_id
    assert page.rows[0] == Row(
        "40000001",
        at("2024-03-05T09:31:40"),
        "示例标题：要闻一则",
        "示例正文一段。",
        "https://finance.jrj.com.cn/2024/03/05093140000001.shtml",
    )
    assert (page.reached, page.following) == (at("2024-03-05"), "2024-03-04/1")


@pytest.mark.parametrize("form", ["var x = {};", "var x={}", "cb({});", "cb({})", "{}", "{}var x="])
def test_case_17_a_days_file_is_read_in_any_wrapper(form: str):
    assert len(Yaowen().read(answer(file(important(), form=form)), "2024-03-05/1").rows) == 1


@pytest.mark.parametrize(("charset", "declared"), [("gb18030", "gbk"), ("gb18030", "utf-8")])
def test_case_18_a_days_file_is_read_in_its_true_charset(charset: str, declared: str):
    page = Yaowen().read(answer(file(important()), charset=charset, declared=declared), "2024-03-05/1")
    assert page.rows[0].title == "示例标题：要闻一则"


@pytest.mark.parametrize(("body", "status"), [("<h1>404 Not Found</h1>", 404), ("<h1>首页</h1>", 200), ("", 404)])
def test_a_missing_days_file_is_a_day_without_news(body: str, status: int):
    page = Yaowen().read(answer(body, status=status), "2024-03-05/1")
    assert page == ListPage((), "2024-03-04/1/1")


def test_case_03_a_captcha_in_place_of_a_days_file_is_no_missing_file():
    with pytest.raises(PageFailure) as info:
        Yaowen().read(answer("<html>请输入验证码</html>"), "2024-03-05/1")
    assert info.value.state is PageState.BLOCKED


def test_case_10_a_file_with_null_is_asked_for_again():
    with pytest.raises(PageFailure) as info:
        Yaowen().read(answer('var x = {"newsinfo": null};'), "2024-03-05/1")
    assert (info.value.state, info.value.again) == (PageState.EMPTY, True)


def files(days: dict[str, int]) -> Any:
    """A site with files of so many items; other days have none."""

    def serve(request: Request) -> Response:
        day = request.url.rpartition("/yw")[2].removesuffix(".js")
        if day not in days:
            return answer("<h1>404</h1>", status=404)
        order = sorted(days).index(day) * 100
        return answer(file(*(important(order + n, makedate=f"{day} 08:00:{n:02d}") for n in range(days[day]))))

    return serve


def test_days_are_walked_back_file_by_file_and_missing_ones_are_passed():
    walk = walked(Yaowen(), "2024-03-02", "2024-03-06", files({"2024-03-05": 3, "2024-03-02": 2, "2024-03-01": 4}))
    assert (len(walk.ids), walk.end.state, walk.end.ends) == (5, PageState.OK, False)
    assert [one.url.rpartition("/yw")[2] for one in walk.asked] == [f"2024-03-0{n}.js" for n in (5, 4, 3, 2)]


def test_a_day_without_file_is_complete_only_once_an_older_day_has_one():
    walk = walked(Yaowen(), "2024-03-05", "2024-03-06", files({"2024-03-04": 2}))
    assert (walk.articles, walk.end.ends, len(walk.asked)) == ([], False, 2)


def test_case_10_a_site_without_any_file_is_empty():
    walk = walked(Yaowen(), "2023-01-01", "2024-03-06", files({}))
    assert (walk.end.state, walk.end.ends) == (PageState.EMPTY, False)
    assert (walk.end.reached, len(walk.asked)) == (at("2024-03-06").isoformat(), LONGEST_SILENCE)


def test_case_01_a_404_is_an_answer_for_a_days_file_alone():
    spider = JinrongjieSpider(Job("jinrongjie", (), at("2024-03-06")))

    async def gone(request: Request) -> Response:
        return answer("<h1>404</h1>", status=404)

    spider.crawler = SimpleNamespace(engine=SimpleNamespace(download_async=gone))  # type: ignore[assignment]
    assert asyncio.run(spider.fetch(Yaowen().request("2024-03-05/1"))).status == 404
    with pytest.raises(PageFailure, match="queryNewsFlash: HTTP 404") as info:
        asyncio.run(spider.fetch(Flash().request(CURSOR)))
    assert info.value.state is PageState.FETCH_ERROR
