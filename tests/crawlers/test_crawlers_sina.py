"""Sina: 7x24 and rolling news, in the shapes that the site sends."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from answering import answer, at, machine_in, walked
from scrapy import Request
from scrapy.http import Response

from crawlers.pages import ListPage, PageFailure, PageState, Row
from crawlers.spiders.sina import Feed, Roll


def flash(number: int = 3510002, **changed: Any) -> dict[str, Any]:
    return {
        "id": number,
        "zhibo_id": 152,
        "rich_text": "【示例公司：拟回购不超1亿元股份】示例公司公告，拟以集中竞价方式回购。",
        "create_time": "2024-03-05 09:31:40",
        "update_time": "2024-03-05 09:33:10",
        "is_delete": 0,
        "top_value": 0,
        "ext": json.dumps({"docurl": "https://finance.sina.cn/7x24/2024-03-05/of-ext.d.html"}),
        "tag": [{"id": "10", "name": "A股"}],
        "like_nums": 7,
        "docurl": "https://finance.sina.cn/7x24/2024-03-05/detail-example.d.html",
        **changed,
    }


def feed(items: Any, *, page: int = 1, pages: int = 90) -> dict[str, Any]:
    info = {"totalPage": pages, "pageSize": 10, "totalNum": pages * 10, "page": page}
    data = {"feed": {"list": items, "page_info": info, "max_id": 1, "min_id": 1}}
    return {"result": {"status": {"code": 0, "msg": "OK"}, "data": data}}


def read(items: Any, cursor: str = "1", **info: int) -> ListPage:
    return Feed().read(answer(feed(items, **info)), cursor)


def only(item: dict[str, Any]) -> Row:
    return read([item]).rows[0]


def test_a_flash_is_read_whole():
    assert only(flash()) == Row(
        "3510002",
        at("2024-03-05T09:31:40"),
        "示例公司：拟回购不超1亿元股份",
        "【示例公司：拟回购不超1亿元股份】示例公司公告，拟以集中竞价方式回购。",
        "https://finance.sina.cn/7x24/2024-03-05/detail-example.d.html",
        at("2024-03-05T09:33:10"),
    )


def test_a_page_asks_for_all_topics_by_its_number():
    request = Feed().request("7")
    query = parse_qs(urlsplit(request.url).query)
    assert (query["page"], query["zhibo_id"], query["tag_id"]) == (["7"], ["152"], ["0"])
    assert request.headers["Referer"] == b"https://finance.sina.com.cn/7x24/"


def test_case_03_a_page_of_html_in_place_of_json_is_unsupported():
    with pytest.raises(PageFailure, match="no JSON") as info:
        Feed().read(answer("<html><body>安全验证</body></html>"), "1")
    assert info.value.state is PageState.UNSUPPORTED


def test_what_the_site_says_is_wrong_is_told():
    refused = {"result": {"status": {"code": 11, "msg": "param lid illegal"}, "data": []}}
    for channel, cursor in ((Feed(), "1"), (Roll(), "2024-03-05/1")):
        with pytest.raises(PageFailure, match="param lid illegal") as info:
            channel.read(answer(refused), cursor)
        assert info.value.state is PageState.FETCH_ERROR


@pytest.mark.parametrize("items", [None, []])
def test_case_10_no_rows_before_the_last_page_is_a_failure_worth_asking_again(items: Any):
    with pytest.raises(PageFailure) as info:
        read(items, "3", page=3)
    assert (info.value.state, info.value.again) == (PageState.EMPTY, True)


@pytest.mark.parametrize("items", [None, []])
def test_case_10_no_rows_behind_the_last_page_is_the_end(items: Any):
    assert read(items, "91", page=91) == ListPage((), None)


def test_case_10_a_site_that_answers_its_last_page_for_ever_has_ended():
    assert read([flash()], "91", page=90) == ListPage((), None)


def test_case_10_null_in_place_of_all_data_is_asked_for_again():
    with pytest.raises(PageFailure) as info:
        Feed().read(answer({"result": {"status": {"code": 0}, "data": None}}), "1")
    assert (info.value.state, info.value.again) == (PageState.EMPTY, True)


def test_case_13_a_flash_without_a_lead_has_no_title():
    assert only(flash(rich_text="示例指数涨1%。")).title == ""


def test_case_14_an_edit_keeps_the_time_of_first_publication():
    row = only(flash(update_time="2024-03-07 10:00:00"))
    assert (row.published_at, row.modified_at) == (at("2024-03-05T09:31:40"), at("2024-03-07T10:00"))


@pytest.mark.parametrize("never", [None, "", "0000-00-00 00:00:00", "2024-03-05 09:31:40"])
def test_case_14_a_flash_that_never_changed_has_no_time_of_change(never: Any):
    assert only(flash(update_time=never)).modified_at is None


@pytest.mark.parametrize(("sign", "dropped"), [(1, "deleted"), ("1", "deleted"), (0, ""), ("0", ""), (None, "")])
def test_case_15_deleted_flashes_are_dropped(sign: Any, dropped: str):
    assert only(flash(is_delete=sign)).dropped == dropped


def test_a_deleted_flash_without_text_still_counts_for_the_order_of_time():
    assert only(flash(is_delete=1, rich_text="")).dropped == "deleted"


@pytest.mark.parametrize("form", ["cb({});", "cb({})", "try{{cb({});}}catch(e){{}};", "{}"])
def test_case_17_answers_in_a_callback_are_read(form: str):
    page = Feed().read(answer(form.format(json.dumps(feed([flash()])))), "1")
    assert page.rows[0].source_id == "3510002"


def test_case_19_markup_blanks_and_nul_are_gone():
    row = only(flash(rich_text="<b>示例&nbsp;公司</b>\u3000公告，\x00市盈率<10&amp;上升。<br>次段。"))
    assert row.content == "示例 公司 公告，市盈率<10&上升。\n次段。"


def test_case_20_ids_and_codes_may_be_text_or_number():
    drifted = feed([flash(id="3510002", is_delete="0", top_value="0")])
    drifted["result"]["status"]["code"] = "0"
    assert Feed().read(answer(drifted), "1") == read([flash()])


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_case_21_times_are_shanghais_wherever_the_machine_stands(zone: str):
    with machine_in(zone):
        row = only(flash(create_time="2024-03-05 00:00:01"))
        roll = Roll().request("2024-03-05/1").url
    assert row.published_at.isoformat() == "2024-03-05T00:00:01+08:00"
    assert f"etime={int(at('2024-03-05').timestamp())}" in roll


def test_case_23_an_address_in_the_json_inside_json_is_found():
    assert only(flash(docurl=None)).url == "https://finance.sina.cn/7x24/2024-03-05/of-ext.d.html"


@pytest.mark.parametrize("ext", ['{"docurl":"https://fin', "", None, "[]", 5])
def test_case_23_a_broken_ext_does_not_lose_the_row(ext: Any):
    row = only(flash(docurl="", ext=ext))
    assert (row.source_id, row.url) == ("3510002", "")


def test_a_row_that_lacks_what_it_needs_is_set_aside():
    page = read([flash(), flash(create_time=None), flash(rich_text=""), flash(id="")])
    assert len(page.rows) == 1
    assert len(page.unreadable) == 3


def test_a_renamed_field_is_a_changed_shape():
    items = [{("created" if name == "create_time" else name): value for name, value in flash().items()}] * 2
    with pytest.raises(PageFailure, match=r"shape changed.*create_time") as info:
        read(items)
    assert info.value.state is PageState.UNSUPPORTED
    with pytest.raises(PageFailure, match="there is no list"):
        Feed().read(answer({"result": {"status": {"code": 0}, "data": {"feed": {"rows": []}}}}), "1")


def test_a_flash_on_top_says_nothing_of_the_order_of_time():
    assert only(flash(top_value=1)).pinned


class Window:
    """The 7x24 site: items a minute apart, ten a page; `growth` new ones come with each request."""

    def __init__(self, items: int, *, growth: int = 0, heeds: bool = True, most: int | None = None) -> None:
        self.items, self.growth, self.heeds, self.most = items, growth, heeds, most

    def __call__(self, request: Request) -> Response:
        place = int(parse_qs(urlsplit(request.url).query)["page"][0]) if self.heeds else 1
        newest_first = list(range(self.items, 0, -1))[: self.most]
        shown = newest_first[(place - 1) * 10 : place * 10]
        self.items += self.growth
        pages = -(-len(newest_first) // 10)
        return answer(feed([flash(n, create_time=str(self.time(n))) for n in shown] or None, page=place, pages=pages))

    @staticmethod
    def time(number: int) -> dt.datetime:
        return dt.datetime(2024, 3, 1) + dt.timedelta(minutes=number)


def test_case_08_a_window_that_moves_while_it_is_read_loses_and_doubles_nothing():
    site = Window(2000, growth=7)
    walk = walked(Feed(), "2024-03-01T12:00", "2024-03-02T09:20", site)
    assert (walk.end.state, walk.end.ends) == (PageState.OK, False)
    assert walk.ids == [str(number) for number in range(1999, 719, -1)]


def test_an_old_day_is_searched_for_not_paged_to():
    walk = walked(Feed(), "2024-03-02", "2024-03-03", Window(50_000))
    assert walk.ids == [str(number) for number in range(2879, 1439, -1)]
    assert len(walk.asked) < 200


@pytest.mark.parametrize("until", ["2024-03-02", "2024-03-05"])
def test_case_05_a_page_number_that_is_not_heeded_ends_the_walk(until: str):
    """Both where the walk begins with the newest page and where it searches for an older one."""
    walk = walked(Feed(), "2024-03-01", until, Window(5000, heeds=False), most_pages=50)
    assert walk.end.state is PageState.FETCH_ERROR
    assert "does not heed the page number" in walk.end.reason


def test_a_window_that_is_capped_ends_and_proves_nothing_older():
    walk = walked(Feed(), "2024-03-01", "2024-03-04", Window(4000, most=900))
    assert (walk.end.state, walk.end.ends) == (PageState.OK, True)
    assert at("2024-03-03") < dt.datetime.fromisoformat(walk.end.reached) < at("2024-03-04")


def test_a_day_older_than_a_capped_window_is_not_taken_for_complete():
    walk = walked(Feed(), "2024-03-01", "2024-03-02", Window(4000, most=900))
    assert (walk.articles, walk.end.ends, walk.end.reached) == ([], True, at("2024-03-02").isoformat())


# --- Rolling news ------------------------------------------------------------------------------------------------


def story(number: int = 1, **changed: Any) -> dict[str, Any]:
    return {
        "oid": "",
        "docid": f"comos:example{number:04d}",
        "title": "示例：国内商品期货收盘多数上涨",
        "intro": "示例摘要，主要品种涨跌互现。",
        "url": "https://finance.sina.com.cn/futuremarket/2024-03-05/doc-example0001.shtml",
        "ctime": "1709619600",
        "intime": "1709619751",
        "mtime": "1709619900",
        **changed,
    }


def rolled(items: Any) -> dict[str, Any]:
    return {"result": {"status": {"code": 0, "msg": "succ"}, "total": 312, "lid": 2516, "data": items}}


def roll_row(**changed: Any) -> Row:
    return Roll().read(answer(rolled([story(**changed)])), "2024-03-05/1").rows[0]


def article(body: str, head: str = "") -> str:
    return f"<html><head>{head}</head><body><div id='artibody'>{body}</div></body></html>"


def test_a_story_is_read_with_its_summary():
    assert roll_row() == Row(
        "comos:example0001",
        at("2024-03-05T14:20"),
        "示例：国内商品期货收盘多数上涨",
        "示例摘要，主要品种涨跌互现。",
        "https://finance.sina.com.cn/futuremarket/2024-03-05/doc-example0001.shtml",
        at("2024-03-05T14:25"),
    )


def test_a_story_without_ctime_has_the_time_it_came_in():
    assert roll_row(ctime=None).published_at == at("2024-03-05T14:22:31")


def test_a_day_is_asked_for_by_its_borders_and_name():
    query = parse_qs(urlsplit(Roll().request("2024-03-05/2").url).query)
    start, end = str(int(at("2024-03-05").timestamp())), str(int(at("2024-03-06").timestamp()))
    assert (query["etime"], query["stime"], query["date"], query["page"]) == ([start], [end], ["2024-03-05"], ["2"])


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("https://finance.sina.com.cn/a/2024-03-05/doc-x.shtml", True),
        ("https://news.sina.com.cn/c/2024-03-05/doc-x.shtml", True),
        ("https://video.sina.com.cn/p/finance/2024-03-05/detail-x.d.html", False),
        ("https://slide.finance.sina.com.cn/x.html", False),
        ("https://k.sina.com.cn/article_x.html", False),
    ],
)
def test_videos_slides_and_blogs_are_not_opened(url: str, asked: bool):
    assert (Roll().detail(roll_row(url=url)) is not None) == asked


def test_case_19_a_body_is_its_paragraphs_without_advertisements_and_ending():
    body = (
        "<div id='left_hzh_ad'><p>广告</p></div><p>\u3000\u3000第一段，涨&nbsp;1%。</p><p>第二段。</p>"
        "<script>var a = '<p>x</p>';</script><div class='appendQr_wrap'><p>扫码</p></div>"
        "<p>海量资讯、精准解读，尽在新浪财经APP</p><p>责任编辑：示例</p><p class='app-kaihu-qr'>开户</p>"
    )
    assert Roll().read_detail(answer(article(body)), roll_row()).content == "第一段，涨 1%。\n第二段。"


@pytest.mark.parametrize(("charset", "declared"), [("gb18030", "gbk"), ("gb18030", "utf-8"), ("utf-8", "gbk")])
def test_case_18_a_body_is_read_in_its_true_charset(charset: str, declared: str):
    page = answer(article("<p>第一段：国内商品期货收盘。</p>"), charset=charset, declared=declared)
    assert Roll().read_detail(page, roll_row()).content == "第一段：国内商品期货收盘。"


@pytest.mark.parametrize(
    ("head", "published"),
    [
        ('<meta property="article:published_time" content="2024-03-05T14:10:05+08:00">', "2024-03-05T14:10:05"),
        ('<span class="date">2024年03月05日 14:20</span>', "2024-03-05T14:20:30"),  # the same minute
        ('<span class="date">2024年03月06日 00:10</span>', "2024-03-05T14:20:30"),  # another day
        ("", "2024-03-05T14:20:30"),
    ],
)
def test_the_page_confirms_the_time_of_the_list(head: str, published: str):
    row = roll_row(ctime="1709619630")
    assert Roll().read_detail(answer(article("<p>一段。</p>", head)), row).published_at == at(published)


@pytest.mark.parametrize("page", ["<html><body><video></video></body></html>", "{}", ""])
def test_case_28_a_page_without_text_is_unsupported(page: str):
    with pytest.raises(PageFailure) as info:
        Roll().read_detail(answer(page), roll_row())
    assert info.value.state is PageState.UNSUPPORTED


def rolling(days: dict[str, int], *, heeds_day: bool = True) -> Any:
    """A site with so many stories a day, fifty a page."""

    def site(request: Request) -> Response:
        if request.url.startswith("https://finance.sina.com.cn/"):
            return answer(article("<p>全文。</p>"))
        query = parse_qs(urlsplit(request.url).query)
        day, page = query["date"][0] if heeds_day else max(days), int(query["page"][0])
        start = int(at(day).timestamp())
        place = sorted(days).index(day) * 1000 if day in days else 0
        stories = [story(place + n, ctime=str(start + n * 60)) for n in range(days.get(day, 0), 0, -1)]
        return answer(rolled(stories[(page - 1) * 50 : page * 50]))

    return site


def test_days_are_walked_back_page_by_page_with_bodies():
    walk = walked(Roll(), "2024-03-04", "2024-03-06", rolling({"2024-03-04": 50, "2024-03-05": 120, "2024-03-03": 9}))
    assert (walk.end.state, walk.end.reached) == (PageState.OK, at("2024-03-04").isoformat())
    assert len(set(walk.ids)) == len(walk.ids) == 170
    assert {one.content for one in walk.articles} == {"全文。"}


def test_case_10_a_day_without_stories_is_complete_only_once_an_older_day_brings_some():
    seen = walked(Roll(), "2024-03-05", "2024-03-06", rolling({"2024-03-03": 30}))
    assert (seen.end.ends, seen.end.state) == (False, PageState.OK)
    none = walked(Roll(), "2024-03-05", "2024-03-06", rolling({}))
    assert (none.end.state, none.end.reached) == (PageState.EMPTY, at("2024-03-06").isoformat())


def test_case_05_a_day_that_is_not_heeded_ends_the_walk():
    walk = walked(Roll(), "2024-03-01", "2024-03-03", rolling({"2024-03-05": 120}, heeds_day=False))
    assert walk.end.state is PageState.FETCH_ERROR
    assert "does not heed the day" in walk.end.reason
