"""Tonghuashun: the flashes by page number, and lists of articles in GBK."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.http import Response, TextResponse
from spider_answers import SECOND, at, in_html, in_json, query, real_items, walk, written

from crawlers.pages import ListPage, PageFailure, PageState, Row
from crawlers.spiders.tonghuashun import Lists, Push, TonghuashunSpider

TEXT = "示例科技公告，拟投资建设新产线，总投资约1亿元。"


def item(number: int = 1, second: int = SECOND, **changes: Any) -> dict[str, Any]:
    """A flash as the site sends it: every value a text."""
    return {
        "id": str(2_800_000 + number),
        "seq": str(655_000_000 + number),
        "title": "示例科技：拟投资建设新产线",
        "digest": TEXT,
        "short": "示例科技公告",
        "url": f"https://news.10jqka.com.cn/20240305/c{655_000_000 + number}.shtml",
        "shareUrl": f"https://news.10jqka.com.cn/tapp/news/share/{655_000_000 + number}/",
        "color": "1",
        "import": "0",
        "tags": [{"id": "34843", "name": "公告"}],
        "ctime": str(second),
        "rtime": str(second),
    } | changes


def listed(*items: dict[str, Any], code: object = "200") -> TextResponse:
    """A list as the site sends it."""
    return in_json({"code": code, "msg": "success", "data": {"list": list(items), "filter": [], "total": "12150"}})


def read(response: Response) -> ListPage:
    """A page of flashes."""
    return Push().read(response, "3")


def row(**changes: Any) -> Row:
    """The only row of a page."""
    return read(listed(item(**changes))).rows[0]


def test_a_row_is_a_flash() -> None:
    url = "https://news.10jqka.com.cn/20240305/c655000001.shtml"
    assert row() == Row("655000001", at(SECOND), "示例科技：拟投资建设新产线", TEXT, url)


def test_case_04_a_request_has_the_referer_and_a_refusal_is_a_failure() -> None:
    assert Push().request("1").headers["Referer"] == b"https://news.10jqka.com.cn/realtimenews.html"
    with pytest.raises(PageFailure, match=r"400.*请求参数错误") as failure:
        read(in_json({"code": "400", "msg": "请求参数错误", "data": []}))
    assert failure.value.state is PageState.FETCH_ERROR


def test_case_03_html_in_place_of_the_list_is_named_by_what_it_says() -> None:
    login = in_html("<html>登录后查看</html>")
    assert walk(Push(), lambda _: login, SECOND - 60, SECOND)[2].state is PageState.BLOCKED


def paged(items: list[dict[str, Any]], size: int = 4) -> Any:
    """Answers a page by its number."""

    def answer(request: Request) -> Response:
        page = int(query(request)["page"])
        return listed(*items[(page - 1) * size : page * size])

    return answer


def test_the_page_where_a_day_begins_is_searched_for() -> None:
    items = [item(n, SECOND - 600 * n) for n in range(400)]
    asked = []

    def answer(request: Request) -> Response:
        asked.append(query(request)["page"])
        return paged(items)(request)

    articles, _, end = walk(Push(), answer, SECOND - 600 * 310, SECOND - 600 * 300)
    assert [int(one.source_id) - 655_000_000 for one in articles] == list(range(301, 311))
    assert end.state is PageState.OK
    assert len(asked) < 30


def test_case_05_a_page_number_that_is_ignored_stops_the_walk() -> None:
    newest = listed(*[item(n, SECOND - n) for n in range(4)])
    end = walk(Push(), lambda _: newest, SECOND - 86_400, SECOND + 1)[2]
    assert (end.state, "does not heed the page number" in end.reason) == (PageState.FETCH_ERROR, True)


def test_case_08_flashes_that_shift_to_the_next_page_are_neither_lost_nor_doubled() -> None:
    items = [item(n, SECOND - 60 * n) for n in range(30)]
    asked = 0

    def answer(request: Request) -> Response:
        nonlocal asked
        asked += 1
        items.insert(0, item(100 + asked, SECOND + asked))
        return paged(items)(request)

    articles, _, end = walk(Push(), answer, SECOND - 60 * 20, SECOND + 1)
    assert [int(one.source_id) - 655_000_000 for one in articles] == list(range(21))
    assert end.state is PageState.OK


def test_case_06_rows_of_one_second_over_several_pages_are_all_there() -> None:
    items = [item(n, SECOND - 5) for n in range(11)] + [item(50, SECOND - 900)]
    articles, _, end = walk(Push(), paged(items), SECOND - 600, SECOND)
    assert len({one.source_id for one in articles}) == len(articles) == 11
    assert end.state is PageState.OK


def test_case_10_an_empty_page_is_the_end_and_null_is_asked_again() -> None:
    articles, _, end = walk(Push(), paged([item(1, SECOND - 9)]), SECOND - 86_400, SECOND)
    assert (len(articles), end.state, end.ends) == (1, PageState.OK, True)
    with pytest.raises(PageFailure) as failure:
        read(in_json({"code": "200", "data": {"list": None}}))
    assert (failure.value.state, failure.value.again) == (PageState.EMPTY, True)


def test_case_11_fewer_rows_than_asked_are_no_end() -> None:
    assert read(listed(item())).following == "4"


def test_case_14_a_revision_is_a_modification_and_the_first_time_stays() -> None:
    revised = row(rtime=str(SECOND + 900))
    assert (revised.published_at, revised.modified_at) == (at(SECOND), at(SECOND + 900))


def test_case_20_numbers_come_as_numbers_the_creation_time_may_lack_and_tags_be_null() -> None:
    drifted = item(seq=655000001, ctime=SECOND, tags=None)
    page = read(listed(drifted, code=0))
    assert (page.rows[0].source_id, page.rows[0].published_at) == ("655000001", at(SECOND))
    lacking = item()
    del lacking["ctime"]
    assert read(listed(lacking)).rows[0].published_at == at(SECOND)


def test_case_18_nul_characters_go() -> None:
    assert row(digest=f"{TEXT[:5]}\x00{TEXT[5:]}").content == TEXT


def test_a_row_without_id_time_or_text_is_set_aside() -> None:
    none = item(title="", digest="", short="")
    page = read(listed(item(), item(seq="", id=None), item(ctime="", rtime=""), none))
    assert (len(page.rows), len(page.unreadable)) == (1, 3)


# --- Lists of articles

LINE = (
    '<li><span class="arc-title"><a href="{url}">示例：{number}号标题</a><span>{time}</span></span>'
    '<a class="arc-cont" href="{url}">摘要……</a></li>'
)


def line(number: int = 655000001, time: str = "03月05日 09:31", day: str = "20240305", host: str = "") -> str:
    """A row of a list."""
    return LINE.format(number=number, time=time, url=f"{host}/{day}/c{number}.shtml")


def html_list(*lines: str) -> Response:
    """A list in GBK."""
    return in_html(f'<div class="list-con"><ul>{"".join(lines)}</ul></div>', charset="gbk")


def article(time: str = "2024-03-05 09:31:40") -> Response:
    """An article in GBK, declared as something else."""
    head = f'<h2>题</h2><span id="pubtime_baidu">{time}</span>'
    body = '<div class="main-text"><p>一段。</p><p>二段。</p></div>'
    return in_html(f"<main>{head}{body}</main>", charset="gbk", declared="utf-8")


def test_case_18_and_22_a_list_in_gbk_shows_minutes_without_a_year_and_its_article_the_second() -> None:
    found = Lists().read(html_list(line()), "1").rows[0]
    assert (found.source_id, found.title, found.published_at) == ("655000001", "示例：655000001号标题", at(SECOND - 40))
    complete = Lists().read_detail(article(), found)
    assert (complete.content, complete.published_at) == ("一段。\n二段。", at(SECOND))
    assert Lists().read_detail(article("2024-03-06 10:00:00"), found).published_at == at(SECOND - 40)


@pytest.mark.parametrize(
    ("time", "day", "written_out"),
    [
        ("12月31日 23:59", "20231231", "2023-12-31T23:59"),
        ("01月01日 00:01", "20231231", "2024-01-01T00:01"),
        ("12月31日 23:59", "20240101", "2023-12-31T23:59"),
    ],
)
def test_case_22_the_year_is_that_of_the_address(time: str, day: str, written_out: str) -> None:
    found = Lists().read(html_list(line(time=time, day=day)), "1").rows[0]
    assert found.published_at.isoformat().startswith(written_out)


def test_case_31_addresses_are_made_absolute_and_other_hosts_left_alone() -> None:
    page = Lists().read(
        html_list(line(1), line(2, host="//news.10jqka.com.cn"), line(3, host="https://stock.10jqka.com.cn")), "1"
    )
    assert [one.url for one in page.rows] == [
        "https://news.10jqka.com.cn/20240305/c1.shtml",
        "https://news.10jqka.com.cn/20240305/c2.shtml",
    ]


def test_case_10_a_list_ends_where_a_page_is_not_found_but_the_first_must_be_there() -> None:
    assert Lists().request("1").meta.get("handle_httpstatus_list") is None
    assert Lists().request("2").meta["handle_httpstatus_list"] == [404]
    assert Lists().read(in_html("404", status=404), "2").following is None
    with pytest.raises(PageFailure, match="list-con"):
        Lists().read(in_html("<p>改版</p>"), "1")


def test_case_28_an_article_without_its_text_keeps_the_digest_of_the_list() -> None:
    def answer(request: Request) -> Response:
        if "index_" not in request.url:
            return in_html("<div>视频</div>")
        last = line(5, time="03月05日 08:00")
        return html_list(line(), last) if "index_1." in request.url else in_html("404", status=404)

    articles, _, end = walk(Lists(), answer, SECOND - 600, SECOND)
    assert ([one.content for one in articles], end.state) == (["摘要……"], PageState.OK)


def test_the_spider_goes_by_the_id_of_its_source() -> None:
    assert (TonghuashunSpider.name, TonghuashunSpider.default_channels) == ("10jqka", ("push",))


@pytest.mark.real_data
def test_real_items_lose_neither_id_nor_time_nor_text(real_data: Path) -> None:
    items = real_items(real_data, "10jqka")
    page = read(listed(*map(dict, items)))
    assert page.unreadable == ()
    assert len(page.rows) == len(items) == 500
    for one, found in zip(items, page.rows, strict=True):
        assert (found.source_id, found.published_at, found.url) == (one["seq"], at(int(one["ctime"])), one["url"])
        assert (written(found.title), written(found.content)) == (written(one["title"]), written(one["digest"]))
