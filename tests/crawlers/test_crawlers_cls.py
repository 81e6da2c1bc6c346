"""CLS: the telegraph, back through the years, and the newest page without a checksum."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.http import Response, TextResponse
from spider_answers import SECOND, at, in_html, in_json, query, real_items, walk, written

from crawlers.pages import ListPage, PageFailure, PageState, Row
from crawlers.spiders.cls import ClsSpider, Newest, Telegraph, signed

TEXT = "【某市发布产业扶持新政】财联社3月5日电，某市今日印发若干措施，涉及税收与用地。"


def item(number: int = 1611001, second: int = SECOND, **changes: Any) -> dict[str, Any]:
    """A row as the site sends it."""
    return {
        "id": number,
        "title": "某市发布产业扶持新政",
        "brief": TEXT,
        "content": TEXT,
        "ctime": second,
        "modified_time": second + 41,
        "sort_score": second,
        "level": "B",
        "type": -1,
        "is_ad": 0,
        "ad": {"id": 0, "url": ""},
        "subjects": [{"subject_id": 1103, "subject_name": "A股盘面直播"}],
        "stock_list": [],
        "shareurl": f"https://api3.cls.cn/share/article/{number}?os=web",
        "reading_num": 10,
    } | changes


def listed(*items: dict[str, Any]) -> TextResponse:
    """A list as the site sends it."""
    return in_json({"errno": 0, "msg": "", "data": {"roll_data": list(items)}})


def read(response: Response) -> ListPage:
    """A page of the telegraph."""
    return Telegraph().read(response, str(SECOND + 10))


def row(**changes: Any) -> Row:
    """The only row of a page."""
    return read(listed(item(**changes))).rows[0]


class Site:
    """Serves rows strictly older than `last_time`, newest first."""

    def __init__(self, items: Sequence[dict[str, Any]], size: int = 4) -> None:
        self.items, self.size = sorted(items, key=lambda one: -one["ctime"]), size
        self.asked: list[int] = []

    def __call__(self, request: Request) -> Response:
        cursor = int(query(request)["last_time"])
        self.asked.append(cursor)
        return listed(*[one for one in self.items if one["ctime"] < cursor][: self.size])


def test_a_row_is_a_telegraph_with_first_publication_and_modification() -> None:
    assert row() == Row(
        "1611001",
        at(SECOND),
        "某市发布产业扶持新政",
        TEXT,
        "https://www.cls.cn/detail/1611001",
        at(SECOND + 41),
    )
    assert row().published_at.isoformat() == "2024-03-05T09:31:40+08:00"


@pytest.mark.parametrize(
    ("query_of", "sign"),
    [
        ({"app": "CailianpressWeb", "os": "web", "sv": "8.7.9"}, "b02d8f7bc4c45eeb3e86904203597da2"),
        ({"rn": "50", "os": "web", "app": "CailianpressWeb"}, "e833b86a1feaf6119652b85fd0c52676"),
        (
            {"appName": "CailianpressWeb", "category": "", "hasFirstVipArticle": "1", "os": "web", "sv": "7.7.5"},
            "a238a5f06453a6fe1e3c33e8f835c19e",
        ),
    ],
)
def test_case_02_the_checksum_is_that_of_public_vectors(query_of: dict[str, str], sign: str) -> None:
    assert signed(query_of).endswith(f"&sign={sign}")


def test_case_04_a_request_has_referer_all_parameters_and_a_checksum_over_them() -> None:
    request = Telegraph().request("1704067200")
    assert request.headers["Referer"] == b"https://www.cls.cn/telegraph"
    asked = dict(query(request))
    assert asked["last_time"] == "1704067200"
    assert int(asked["rn"]) <= 50
    sign = asked.pop("sign")
    text = "&".join(f"{name}={asked[name]}" for name in sorted(asked))
    assert sign == hashlib.md5(hashlib.sha1(text.encode()).hexdigest().encode()).hexdigest()


def test_case_02_a_wrong_checksum_is_a_failure_and_loading_is_asked_again() -> None:
    with pytest.raises(PageFailure, match=r"10012.*签名错误") as refused:
        read(in_json({"errno": 10012, "msg": "签名错误"}))
    assert (refused.value.state, refused.value.again) == (PageState.FETCH_ERROR, False)
    with pytest.raises(PageFailure, match="小财正在加载中") as loading:
        read(in_json({"errno": "50101", "msg": "小财正在加载中..."}))
    assert loading.value.again


def test_case_02_loading_answers_are_waited_out() -> None:
    site, told = Site([item(1, SECOND - 9), item(2, SECOND - 900)]), []

    def answer(request: Request) -> Response:
        told.append(request)
        return in_json({"errno": 50101, "msg": "小财正在加载中..."}) if len(told) in (1, 2) else site(request)

    articles, _, end = walk(Telegraph(), answer, SECOND - 600, SECOND)
    assert ([article.source_id for article in articles], end.state) == (["1"], PageState.OK)


def test_case_03_an_app_shell_in_place_of_the_list_needs_javascript() -> None:
    shell = in_html("<html><body>Please Enable JavaScript and Cookie</body></html>")
    assert walk(Telegraph(), lambda _: shell, SECOND - 600, SECOND)[2].state is PageState.JAVASCRIPT_REQUIRED


def test_case_03_a_shield_in_place_of_the_list_ends_the_source() -> None:
    shield = in_html("<html><title>安全验证</title></html>")
    assert walk(Telegraph(), lambda _: shield, SECOND - 600, SECOND)[2].state is PageState.BLOCKED


def test_case_05_a_cursor_that_is_ignored_stops_the_walk() -> None:
    newest = listed(*[item(number, SECOND - number) for number in range(4)])
    articles, _, end = walk(Telegraph(), lambda _: newest, SECOND - 86_400, SECOND + 1)
    assert (end.state, len(articles)) == (PageState.FETCH_ERROR, 4)
    assert "does not heed the cursor" in end.reason


def test_case_06_rows_of_one_second_at_a_page_border_are_neither_lost_nor_doubled() -> None:
    seconds = [SECOND - 1, SECOND - 2, SECOND - 3, SECOND - 3, SECOND - 3, SECOND - 4, SECOND - 300]
    articles, _, end = walk(
        Telegraph(), Site([item(n, second) for n, second in enumerate(seconds)]), SECOND - 100, SECOND
    )
    assert sorted(int(article.source_id) for article in articles) == [0, 1, 2, 3, 4, 5]
    assert end.state is PageState.OK


def test_case_06_a_page_full_of_one_second_is_passed_and_told() -> None:
    items = [item(n, SECOND - 5) for n in range(6)] + [item(9, SECOND - 7), item(10, SECOND - 900)]
    articles, pages, end = walk(Telegraph(), Site(items), SECOND - 600, SECOND)
    assert "9" in {article.source_id for article in articles}
    assert end.state is PageState.OK
    assert {day for page in pages for day in page.doubts} == {articles[0].published_at[:10]}


def test_case_06_a_site_that_repeats_the_cursors_own_second_does_not_hold_up_the_walk() -> None:
    items = [item(n, SECOND - 5) for n in range(4)] + [item(9, SECOND - 7), item(10, SECOND - 900)]

    def inclusive(request: Request) -> Response:
        cursor = int(query(request)["last_time"])
        return listed(*[one for one in items if one["ctime"] <= cursor][:4])

    articles, _, end = walk(Telegraph(), inclusive, SECOND - 600, SECOND)
    assert ({article.source_id for article in articles}, end.state) == ({"0", "1", "2", "3", "9"}, PageState.OK)


def test_case_07_the_cursor_follows_first_publication_not_modification() -> None:
    items = [item(n, SECOND - 60 * n, modified_time=SECOND + 5000) for n in range(1, 9)]
    site = Site(items)
    articles, _, _ = walk(Telegraph(), site, SECOND - 60 * 7, SECOND)
    assert {article.source_id for article in articles} == {str(n) for n in range(1, 8)}
    assert site.asked[:2] == [SECOND, SECOND - 60 * 4 + 1]


def test_case_10_no_list_is_asked_again_and_an_empty_one_is_the_end() -> None:
    for data in (None, {"roll_data": None}):
        with pytest.raises(PageFailure) as failure:
            read(in_json({"errno": 0, "data": data}))
        assert (failure.value.state, failure.value.again) == (PageState.EMPTY, True)
    with pytest.raises(PageFailure, match=r"shape changed: there is no roll_data"):
        read(in_json({"errno": 0, "data": {}}))
    assert read(listed()).following is None
    articles, _, end = walk(Telegraph(), Site([item(1, SECOND - 5)]), SECOND - 86_400, SECOND)
    assert (len(articles), end.state, end.ends) == (1, PageState.OK, True)


def test_case_11_fewer_rows_than_asked_are_no_end() -> None:
    assert read(listed(item(1, SECOND - 7))).following == str(SECOND - 6)


def test_case_12_content_shorter_than_brief() -> None:
    assert row(content=TEXT[:20]).content == TEXT
    assert row(content="").content == TEXT
    assert row(content=f"{TEXT}（央视新闻）").content == f"{TEXT}（央视新闻）"


def test_case_13_an_empty_title_is_the_lead_or_stays_empty() -> None:
    assert row(title="").title == "某市发布产业扶持新政"
    flash = "财联社3月5日电，示例期货主力合约日内涨超2%。"
    assert row(title=None, content=flash, brief=flash).title == ""


def test_case_14_an_edit_that_reached_the_content_alone_is_taken_and_the_first_time_stays() -> None:
    edited = row(content="财联社电，板块走强", brief="财联社电，板块集体走强", modified_time=SECOND + 900)
    assert (edited.content, edited.published_at, edited.modified_at) == (
        "财联社电，板块走强",
        at(SECOND),
        at(SECOND + 900),
    )
    assert row(modified_time=SECOND).modified_at is None


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"is_ad": 1}, "ad"),
        ({"ad": {"id": 9, "url": ""}}, "ad"),
        ({"ad": {"id": 0, "url": "https://promo.example/"}}, "ad"),
        ({"type": 20015}, "vip"),
        ({"type": "20015"}, "vip"),
        ({"type": 20021, "title": "【风口研报】这家公司"}, "vip"),
        ({"content": "【盘中宝】机构说", "brief": ""}, "vip"),
        ({"content": "【电报解读】机构说", "brief": ""}, "vip"),
        ({"title": "【盘中宝】机构说"}, "vip"),
        ({"type": None, "subjects": None, "ad": None}, ""),
    ],
)
def test_case_15_each_sign_of_an_advertisement_or_of_paid_rows_is_enough(changes: dict[str, Any], kind: str) -> None:
    assert row(**changes).dropped == kind


def test_case_19_paragraphs_are_lines_and_markup_goes() -> None:
    text = "\u3000\u3000第一段&nbsp;。\n<b>第二段</b>。\x00"
    assert row(content=text, brief="").content == "第一段 。\n第二段。"


def test_case_20_numbers_come_as_texts_and_the_error_number_under_another_name() -> None:
    page = read(in_json({"error": None, "data": {"roll_data": [item(id="7", ctime=str(SECOND), stock_list=None)]}}))
    assert (page.rows[0].source_id, page.rows[0].published_at) == ("7", at(SECOND))


def test_a_row_without_id_time_or_text_is_set_aside_and_all_of_them_are_a_changed_shape() -> None:
    broken = [item(id=None), item(ctime=0), item(title="", content="", brief="")]
    page = read(listed(item(5), *broken))
    assert [one.source_id for one in page.rows] == ["5"]
    assert len(page.unreadable) == 3
    with pytest.raises(PageFailure, match="shape changed"):
        read(listed(*broken))


def test_case_27_the_newest_rows_stand_in_the_state_of_the_page_for_phones() -> None:
    rows = in_json([item(1, content="含};的正文", brief="含};的正文"), item(2, SECOND - 9)]).text
    state = f'<script>__NEXT_DATA__ = {{"props":{{"initialState":{{"roll_data":{rows}}}}}}};module={{}}</script>'
    channel = Newest()
    page = channel.read(in_html(state), channel.first(at(SECOND)))
    assert [(one.source_id, one.content) for one in page.rows] == [("1", "含};的正文"), ("2", TEXT)]
    assert (page.following, Newest.proves) == (None, False)
    assert "sign" not in query(channel.request(""))


def test_case_28_a_page_for_phones_without_its_state_is_a_changed_shape() -> None:
    with pytest.raises(PageFailure, match="__NEXT_DATA__"):
        Newest().read(in_html("<div id=app></div>"), "")
    with pytest.raises(PageFailure, match=r"props\.initialState"):
        Newest().read(in_html('<script>__NEXT_DATA__ = {"props":{}}</script>'), "")


def test_the_telegraph_is_the_default_and_the_unsigned_page_can_be_chosen() -> None:
    assert ClsSpider.default_channels == ("telegraph",)
    assert [channel.name for channel in ClsSpider.channels] == ["telegraph", "newest"]


@pytest.mark.real_data
def test_real_items_lose_neither_id_nor_time_nor_text(real_data: Path) -> None:
    items = real_items(real_data, "cls")
    page = read(listed(*map(dict, items)))
    assert page.unreadable == ()
    assert len(page.rows) == len(items) == 500
    for one, found in zip(items, page.rows, strict=True):
        assert (found.source_id, found.published_at) == (str(one["id"]), at(one["ctime"]))
        assert found.title == " ".join(one["title"].split())
        assert written(found.content) in (written(one["content"]), written(one["brief"]))
        assert len(written(found.content)) >= len(written(one["content"]))
        assert found.dropped == ("vip" if one["title"].startswith("【") else "")
