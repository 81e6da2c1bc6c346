"""Wallstreetcn: the public lives."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import Request
from scrapy.http import Response, TextResponse
from spider_answers import SECOND, at, in_html, in_json, query, walk

from crawlers.pages import ListPage, PageFailure, PageState, Row
from crawlers.spiders.wallstreetcn import Lives


def item(number: int = 2690001, second: int = SECOND, **changes: Any) -> dict[str, Any]:
    """A row as the site sends it."""
    return {
        "id": number,
        "title": "",
        "content": "<p>示例央行维持基准利率不变。</p>",
        "content_text": "示例央行维持基准利率不变。",
        "content_more": "",
        "display_time": second,
        "score": 1,
        "is_priced": False,
        "uri": f"https://wallstreetcn.com/livenews/{number}",
        "channels": ["global-channel"],
        "author": {"display_name": "示例编辑"},
    } | changes


def listed(*items: dict[str, Any]) -> TextResponse:
    """A list as the site sends it."""
    cursor = str(items[-1]["display_time"]) if items else ""
    return in_json({"code": 20000, "message": "OK", "data": {"items": list(items), "next_cursor": cursor}})


def read(response: Response) -> ListPage:
    """A page of the lives."""
    return Lives().read(response, str(SECOND + 10))


def row(**changes: Any) -> Row:
    """The only row of a page."""
    return read(listed(item(**changes))).rows[0]


def site(items: list[dict[str, Any]], size: int = 3) -> Any:
    """Answers rows strictly older than the cursor."""

    def answer(request: Request) -> Response:
        cursor = int(query(request)["cursor"])
        return listed(*[one for one in items if one["display_time"] < cursor][:size])

    return answer


def test_a_row_is_a_live() -> None:
    text = "示例央行维持基准利率不变。"
    assert row() == Row("2690001", at(SECOND), "", text, "https://wallstreetcn.com/livenews/2690001")


def test_the_rest_of_a_text_is_a_paragraph_of_it() -> None:
    more = row(title="示例公司发布业绩预告", content="<p>预计净利增长。</p>", content_more="<p>来自海外。</p>")
    assert (more.title, more.content) == ("示例公司发布业绩预告", "预计净利增长。\n来自海外。")
    assert row(content="").content == "示例央行维持基准利率不变。"


def test_members_lives_are_never_asked_for() -> None:
    asked = query(Lives().request("1704067200"))
    assert (asked["accept"], asked["channel"], asked["cursor"]) == ("live", "global-channel", "1704067200")
    assert int(asked["limit"]) <= 100


def test_case_04_a_refusal_with_status_200_is_a_failure() -> None:
    with pytest.raises(PageFailure, match=r"40000.*参数错误") as failure:
        read(in_json({"code": 40000, "message": "参数错误", "data": {}}))
    assert failure.value.state is PageState.FETCH_ERROR


def test_case_03_html_in_place_of_the_list_is_named_by_what_it_says() -> None:
    captcha = in_html("<html>请输入验证码</html>")
    assert walk(Lives(), lambda _: captcha, SECOND - 60, SECOND)[2].state is PageState.BLOCKED
    other = in_html("<html>改版公告</html>")
    assert walk(Lives(), lambda _: other, SECOND - 60, SECOND)[2].state is PageState.UNSUPPORTED


def test_case_05_a_cursor_that_is_ignored_stops_the_walk() -> None:
    newest = listed(item(1, SECOND - 1), item(2, SECOND - 2))
    end = walk(Lives(), lambda _: newest, SECOND - 86_400, SECOND)[2]
    assert (end.state, "does not heed the cursor" in end.reason) == (PageState.FETCH_ERROR, True)


def test_case_05_a_walk_goes_on_from_the_newest_where_a_made_cursor_is_ignored_at_first() -> None:
    items = [item(n, SECOND - 10 * n) for n in range(12)]
    first = site(items)

    def answer(request: Request) -> Response:
        return listed(*items[:3]) if query(request)["cursor"] == str(SECOND - 60) else first(request)

    articles, _, end = walk(Lives(), answer, SECOND - 100, SECOND - 60)
    assert ({article.source_id for article in articles}, end.ends) == ({"7", "8", "9", "10"}, True)


def test_case_06_rows_of_one_second_at_a_page_border_are_neither_lost_nor_doubled() -> None:
    seconds = [SECOND - 1, SECOND - 2, SECOND - 2, SECOND - 2, SECOND - 3, SECOND - 400]
    articles, _, end = walk(Lives(), site([item(n, s) for n, s in enumerate(seconds)], 4), SECOND - 60, SECOND)
    assert [article.source_id for article in articles] == ["0", "1", "2", "3", "4"]
    assert end.state is PageState.OK
    articles, _, _ = walk(Lives(), site([item(n, s) for n, s in enumerate(seconds)], 3), SECOND - 60, SECOND)
    assert {article.source_id for article in articles} >= {"0", "1", "2", "4"}


def test_case_10_no_list_is_asked_again_and_an_empty_one_is_the_end() -> None:
    with pytest.raises(PageFailure) as failure:
        read(in_json({"code": 20000, "data": {"items": None}}))
    assert (failure.value.state, failure.value.again) == (PageState.EMPTY, True)
    assert read(listed()).following is None


def test_case_11_fewer_rows_than_asked_and_no_next_cursor_are_no_end() -> None:
    page = read(in_json({"code": 20000, "data": {"items": [item()], "next_cursor": ""}}))
    assert page.following == str(SECOND + 1)


def test_case_13_an_empty_title_is_the_lead_or_stays_empty() -> None:
    assert row(title=None).title == ""
    assert row(content="<p>【示例：降准】央行宣布。</p>").title == "示例：降准"


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"is_paid": True}, "paid"),
        ({"is_priced": True}, "paid"),
        ({"is_trial": 1}, "paid"),
        ({"is_need_pay": "1"}, "paid"),
        ({"product_id": 77}, "paid"),
        ({"uri": "https://wallstreetcn.com/premium/articles/1", "is_paid": False}, "paid"),
        ({"is_vip": True}, "vip"),
        ({"is_in_vip_privilege": True}, "vip"),
        ({"membership_uri": "https://wallstreetcn.com/m/1"}, "vip"),
        ({"uri": "/member/articles/1"}, "vip"),
        ({"product_id": 0, "membership_uri": "", "is_vip": None}, ""),
    ],
)
def test_case_15_each_sign_of_a_paid_row_is_enough(changes: dict[str, Any], kind: str) -> None:
    assert row(**changes).dropped == kind


def test_case_15_dropped_rows_count_for_the_order_of_time() -> None:
    items = [item(1, SECOND - 5), item(2, SECOND - 6, is_vip=True), item(3, SECOND - 900, is_paid=True)]
    articles, pages, end = walk(Lives(), site(items), SECOND - 600, SECOND)
    assert [article.source_id for article in articles] == ["1"]
    assert pages[0].dropped == {"vip": 1}
    assert (end.state, end.ends) == (PageState.OK, False)


def test_case_16_author_and_address_may_be_missing_and_a_deleted_item_is_told() -> None:
    bare = item(author=None, uri=None)
    del bare["channels"]
    assert read(listed(bare)).rows[0].url == "https://wallstreetcn.com/livenews/2690001"
    with pytest.raises(PageFailure, match=r"60301.*已被删除"):
        read(in_json({"code": 60301, "message": "内容不存在或已被删除", "data": {}}))


def test_case_19_tags_entities_and_indents_go() -> None:
    html = "<p>\u3000\u3000示例&amp;公司<em>大涨</em></p><p>&nbsp;市盈率&lt;10</p>"
    assert row(content=html).content == "示例&公司大涨\n市盈率<10"


def test_case_20_numbers_come_as_texts() -> None:
    drifted = row(number="2690001", second=str(SECOND))
    assert (drifted.source_id, drifted.published_at) == ("2690001", at(SECOND))
    assert read(in_json({"code": "20000", "data": {"items": [item()]}})).rows


def test_case_16_a_picture_without_text_is_set_aside() -> None:
    page = read(listed(item(1), item(2, content="<img src=x>", content_text="")))
    assert ([one.source_id for one in page.rows], len(page.unreadable)) == (["1"], 1)
