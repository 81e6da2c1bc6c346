"""Eastmoney: the 7x24 flashes by the site's own cursor, and the articles of a column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.http import Response, TextResponse
from spider_answers import SECOND, SHANGHAI, at, in_html, in_json, query, real_items, walk, written

from crawlers.pages import ListPage, PageFailure, PageState, Row
from crawlers.spiders.eastmoney import Columns, EastmoneySpider, Fast

TEXT = "【示例银行：董事会通过分红预案】示例银行公告，拟每10股派1元。"


def shown(second: int) -> str:
    """A time as the site writes it."""
    return at(second).strftime("%Y-%m-%d %H:%M:%S")


def item(number: int = 3002034002, second: int = SECOND, **changes: Any) -> dict[str, Any]:
    """A flash as the site sends it."""
    return {
        "summary": TEXT,
        "code": f"20240305{number:010d}",
        "titleColor": 0,
        "realSort": str(second * 1_000_000 + 34_002),
        "showTime": shown(second),
        "title": "示例银行：董事会通过分红预案",
        "share": 3,
        "pinglun_Num": 2,
        "stockList": ["1.600000"],
        "image": [],
    } | changes


def listed(*items: dict[str, Any], end: str | None = None) -> TextResponse:
    """A list as the site sends it."""
    last = end if end is not None else str(items[-1]["realSort"]) if items else ""
    data = {"sortEnd": last, "index": 1, "total": None, "size": len(items), "fastNewsList": list(items)}
    return in_json({"req_trace": "1", "code": "1", "message": "success", "data": data})


def read(response: Response) -> ListPage:
    """A page of flashes."""
    return Fast().read(response, "")


def row(**changes: Any) -> Row:
    """The only row of a page."""
    return read(listed(item(**changes))).rows[0]


def test_a_row_is_a_flash_with_its_lead() -> None:
    url = "https://finance.eastmoney.com/a/202403053002034002.html"
    assert row() == Row("202403053002034002", at(SECOND), "示例银行：董事会通过分红预案", TEXT, url)
    assert row().published_at.tzinfo is SHANGHAI


def test_case_04_a_request_has_every_parameter_the_site_insists_on() -> None:
    asked = query(Fast().request(""))
    assert asked["sortEnd"] == ""
    assert asked["req_trace"]
    assert int(asked["pageSize"]) <= 200


def test_case_04_a_refusal_with_status_200_is_a_failure() -> None:
    with pytest.raises(PageFailure, match="'0'") as failure:
        read(in_json({"code": "0", "message": None, "data": None}))
    assert (failure.value.state, failure.value.again) == (PageState.FETCH_ERROR, False)


def test_case_03_html_in_place_of_the_list_is_named_by_what_it_says() -> None:
    slider = in_html("<html>安全验证</html>")
    assert walk(Fast(), lambda _: slider, SECOND - 60, SECOND)[2].state is PageState.BLOCKED


def test_the_walk_begins_with_the_newest_and_follows_the_cursors_of_the_site() -> None:
    items = [item(n, SECOND - 60 * n) for n in range(8)]
    asked = []

    def answer(request: Request) -> Response:
        cursor = query(request)["sortEnd"]
        asked.append(cursor)
        return listed(*[one for one in items if not cursor or one["realSort"] < cursor][:3])

    articles, _, end = walk(Fast(), answer, SECOND - 60 * 6, SECOND - 60)
    assert [int(article.source_id[8:]) for article in articles] == [2, 3, 4, 5, 6]
    assert asked == ["", items[2]["realSort"], items[5]["realSort"], items[7]["realSort"]]
    assert (end.state, end.ends) == (PageState.OK, True)


def test_case_05_a_cursor_that_is_ignored_stops_the_walk() -> None:
    newest = listed(*[item(n, SECOND - n) for n in range(3)])
    articles, _, end = walk(Fast(), lambda _: newest, SECOND - 86_400, SECOND + 1)
    assert (len(articles), end.state) == (3, PageState.FETCH_ERROR)
    assert "does not heed the cursor" in end.reason


def test_case_06_rows_of_one_second_have_cursors_of_their_own() -> None:
    items = [item(n, SECOND - 5, realSort=str((SECOND - 5) * 1_000_000 + 90 - n)) for n in range(7)]

    def answer(request: Request) -> Response:
        cursor = query(request)["sortEnd"]
        return listed(*[one for one in items if not cursor or one["realSort"] < cursor][:3])

    articles, _, end = walk(Fast(), answer, SECOND - 60, SECOND)
    assert [int(article.source_id[8:]) for article in articles] == list(range(7))
    assert end.state is PageState.OK


def test_case_10_no_list_is_asked_again_and_only_one_without_a_next_cursor_is_the_end() -> None:
    missing = [in_json({"code": "1", "data": data}) for data in (None, {"fastNewsList": None})]
    for answer in (listed(end=str(SECOND * 1_000_000)), *missing):
        with pytest.raises(PageFailure) as failure:
            read(answer)
        assert (failure.value.state, failure.value.again) == (PageState.EMPTY, True)
    assert read(listed()).following is None
    assert read(listed(item(), end="")).following is None


def test_case_11_fewer_rows_than_asked_are_no_end() -> None:
    assert read(listed(item())).following == item()["realSort"]


def test_case_13_an_empty_title_is_the_lead_or_stays_empty() -> None:
    assert row(title="").title == "示例银行：董事会通过分红预案"
    assert row(title=None, summary="示例指数涨逾1%。").title == ""


def test_case_20_codes_and_cursors_drift_between_numbers_and_texts() -> None:
    assert row(code=202403053002034002).source_id == "202403053002034002"
    assert read(in_json({"code": 1, "data": {"sortEnd": 1709602300034002, "fastNewsList": [item()]}})).following == (
        "1709602300034002"
    )


@pytest.mark.parametrize("order", [SECOND * 1_000_000, str(SECOND * 1_000_000), SECOND * 1000, str(SECOND * 1000)])
def test_case_20_where_no_time_is_shown_the_place_in_the_list_tells_it(order: object) -> None:
    assert row(showTime=None, realSort=order).published_at == at(SECOND)
    assert row(showTime=shown(SECOND), realSort="0").published_at == at(SECOND)


def test_case_24_the_same_code_twice_in_one_list_is_one_article() -> None:
    answer = listed(item(1), item(1), item(2, SECOND - 900), end="")
    articles, _, _ = walk(Fast(), lambda _: answer, SECOND - 600, SECOND + 1)
    assert [article.source_id for article in articles] == ["202403050000000001"]


def test_a_row_without_code_time_or_text_is_set_aside() -> None:
    page = read(listed(item(1), item(code=""), item(showTime="", realSort=None), item(title="", summary="")))
    assert (len(page.rows), len(page.unreadable)) == (1, 3)


# --- Articles of a column


def article(number: int = 1, second: int = SECOND, **changes: Any) -> dict[str, Any]:
    """A row of a column as the site sends it."""
    code = f"20240305{number:010d}"
    return {
        "code": code,
        "showTime": shown(second),
        "title": f"示例标题{number}",
        "mediaName": "示例社",
        "summary": "摘要。",
        "url": "",
        "uniqueUrl": f"http://finance.eastmoney.com/a/{code}.html",
    } | changes


def column(*items: dict[str, Any]) -> TextResponse:
    """A page of a column."""
    return in_json({"code": "1", "message": "success", "data": {"list": list(items), "page_index": 1}})


BODY = (
    '<div class="topbox">2024年03月05日 09:31 来源：示例社</div><div id="ContentBody">'
    "<p>在东方财富看资讯行情, 选东方财富证券一站式开户交易&gt;&gt;</p><p>\u3000\u3000第一段。</p><p>第二段。</p>"
    "<p>（文章来源：示例社）</p><p>责任编辑：示例</p></div>"
)


def test_case_19_promotion_and_ending_are_no_part_of_an_article() -> None:
    found = Columns().read(column(article()), "1").rows[0]
    assert found.content == "摘要。"
    complete = Columns().read_detail(in_html(BODY), found)
    assert (complete.content, complete.published_at) == ("第一段。\n第二段。", at(SECOND))


def test_case_28_an_article_without_a_body_keeps_what_the_list_says() -> None:
    def answer(request: Request) -> Response:
        if "/a/" in request.url:
            return in_html("<div>视频</div>")
        return column(article(), article(2, SECOND - 900)) if query(request)["page_index"] == "1" else column()

    articles, _, end = walk(Columns(), answer, SECOND - 600, SECOND + 1)
    assert [(one.title, one.content) for one in articles] == [("示例标题1", "摘要。")]
    assert end.state is PageState.OK


def test_case_08_articles_that_shift_to_the_next_page_count_once() -> None:
    items = [article(n, SECOND - 60 * n) for n in range(20)]
    asked = 0

    def answer(request: Request) -> Response:
        nonlocal asked
        if "/a/" in request.url:
            return in_html(BODY)
        asked += 1
        if asked > 2:  # after the search for the first page something new comes in with every request
            items.insert(0, article(100 + asked, SECOND + asked))
        page = int(query(request)["page_index"])
        return column(*items[(page - 1) * 5 : page * 5])

    articles, _, end = walk(Columns(), answer, SECOND - 60 * 15, SECOND + 1)
    assert [int(one.source_id[8:]) for one in articles] == list(range(16))
    assert end.state is PageState.OK


def test_case_10_a_column_ends_with_an_empty_list_and_null_is_asked_again() -> None:
    assert Columns().read(column(), "7").following is None
    with pytest.raises(PageFailure) as failure:
        Columns().read(in_json({"code": "1", "data": {"list": None}}), "7")
    assert failure.value.again


def test_the_flashes_are_the_default() -> None:
    assert EastmoneySpider.default_channels == ("fast",)


@pytest.mark.real_data
def test_real_items_lose_neither_id_nor_time_nor_text(real_data: Path) -> None:
    items = real_items(real_data, "eastmoney")
    page = read(listed(*map(dict, items)))
    assert page.unreadable == ()
    assert len(page.rows) == len(items) == 500
    for one, found in zip(items, page.rows, strict=True):
        assert (found.source_id, found.published_at) == (one["code"], at(int(one["realSort"]) // 1_000_000))
        assert (written(found.title), written(found.content)) == (written(one["title"]), written(one["summary"]))
        assert not found.dropped
