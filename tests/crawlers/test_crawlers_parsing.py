"""What sites send is read once, for all spiders: JSON and wrappers, inline state, encodings, texts, times."""

from __future__ import annotations

import datetime as dt
import time

import pytest
from parsel import Selector
from scrapy.http import Response
from spider_answers import SECOND, SHANGHAI, in_html

from crawlers.pages import PageFailure, PageState, Row, Unreadable
from crawlers.parsing import (
    absolute,
    article_text,
    assigned,
    decoded,
    epoch,
    flag,
    json_of,
    later,
    lead,
    longer,
    member,
    plain,
    required,
    rows_of,
    site_error,
    text_of,
    title_of,
    wall,
    whole,
)

MOMENT = dt.datetime(2024, 3, 5, 9, 31, 40, tzinfo=SHANGHAI)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "x;});}"}',
        '\ufeff {"a": "x;});}"}\n',
        'cb({"a": "x;});}"})',
        'jQuery35_17({"a": "x;});}"});',
        '/**/cb({"a": "x;});}"});',
        'try{cb({"a": "x;});}"});}catch(e){};',
        'var ajaxResult={"a": "x;});}"}',
        'var ajaxResult = {"a": "x;});}"};\n',
        '{"a": "x;});}"}var ajaxResult=',
    ],
)
def test_case_17_json_is_found_in_every_wrapper(text: str) -> None:
    assert json_of(text) == {"a": "x;});}"}


def test_case_17_letters_of_the_callback_are_not_eaten_from_the_value() -> None:
    assert json_of('jQuery("Query");'.replace('"Query"', '["Query(", "y)"]')) == ["Query(", "y)"]


@pytest.mark.parametrize(
    "text", ["", "<html>{}</html>", '{"a": 1', 'cb({"a": {"b": 1}, BAD})', '{"a": 1}{"b": 2}', "null", "[" * 200_000]
)
def test_what_is_no_json_is_refused_with_its_beginning(text: str) -> None:
    with pytest.raises(PageFailure, match="it begins") as failure:
        json_of(text)
    assert failure.value.state is PageState.UNSUPPORTED
    assert text[:20] in failure.value.reason


def test_case_29_bare_nan_is_none_and_raw_line_breaks_in_strings_are_kept() -> None:
    assert json_of('{"a": NaN, "b": -Infinity, "c": "x\ny"}') == {"a": None, "b": None, "c": "x\ny"}


def test_case_27_an_inline_object_ends_at_its_own_brace() -> None:
    page = 'if (x.allData == 1) {} var allData = {"a": "};</scr", "b": {"c": 1}};\nvar adData = {"d": 2};'
    assert assigned(page, "allData") == {"a": "};</scr", "b": {"c": 1}}
    assert assigned(page, "adData") == {"d": 2}


@pytest.mark.parametrize("page", ["<p>nothing</p>", "var allData = {a: 1};", 'var notallData = {"a": 1};'])
def test_case_28_an_inline_object_that_is_not_there_is_a_changed_shape(page: str) -> None:
    with pytest.raises(PageFailure, match="allData"):
        assigned(page, "allData")


@pytest.mark.parametrize(
    ("charset", "declared"),
    [("utf-8", "utf-8"), ("utf-8", "gbk"), ("gb18030", "gbk"), ("gb18030", "utf-8"), ("gbk", "iso-8859-1")],
)
def test_case_18_a_wrong_declared_charset_is_found_out(charset: str, declared: str) -> None:
    assert decoded(in_html("联通：沪指午后走强", charset=charset, declared=declared)) == "联通：沪指午后走强"


def test_case_18_nul_characters_go_and_one_broken_byte_does_not_change_the_charset() -> None:
    text = "沪指午后走强，成交额放大。" * 20
    assert decoded(Response("https://site.example/", body=text.encode() + b"\x00\xe6")) == text + "\ufffd"
    assert decoded(Response("https://site.example/", body=text.encode("gb18030") + b"\x00\xff")).startswith(text)


def test_a_charset_named_in_the_page_alone_counts() -> None:
    body = '<meta charset="big5"><p>臺灣股市</p>'.encode("big5")
    assert "臺灣股市" in decoded(Response("https://site.example/", body=body))


def test_case_19_text_has_paragraphs_as_lines_and_no_markup() -> None:
    html = (
        "<p>\u3000\u3000<em>第一</em>段&nbsp;</p>\n<script>var a='<p>';</script><p>第二\n段，市盈率&lt;10<br/>末行</p>"
    )
    assert plain(html) == "第一段\n第二 段，市盈率<10\n末行"
    assert plain("一行\r\n\u3000二行，市盈率<10\x00") == "一行\n二行，市盈率<10"
    assert plain("") == ""


def test_case_13_an_empty_title_is_the_lead_or_empty() -> None:
    assert title_of("", "【示例公司：回购】公告") == "示例公司：回购"
    assert title_of(None, "公告【回购】") == ""
    assert title_of("nan", "正文") == ""
    assert title_of(" <em>题</em>目 ", "【别的】正文") == "题目"
    assert lead("【】空") == ""


def test_case_20_ids_and_texts_drift_between_numbers_and_strings() -> None:
    assert [text_of(value) for value in (17, "17", 17.0, " 17 ")] == ["17"] * 4
    assert [text_of(value) for value in (None, float("nan"), "None", "null")] == [""] * 4
    assert (whole("20000"), whole(20000)) == (20000, 20000)
    assert text_of("a\ud800b") == "ab"
    with pytest.raises(Unreadable):
        text_of(["17"])
    with pytest.raises(Unreadable):
        whole("17a")


def test_case_20_flags_come_as_numbers_texts_and_null() -> None:
    assert not any(flag(value) for value in (0, "0", "", None, False, "false", []))
    assert all(flag(value) for value in (1, "1", True, 77, "https://pay.example/"))


def test_case_12_the_brief_stands_in_for_a_content_that_was_cut() -> None:
    assert longer("某市今日印发", "某市今日印发若干措施") == "某市今日印发若干措施"
    assert longer("某市今日印发若干措施。（央视）", "某市今日印发") == "某市今日印发若干措施。（央视）"
    assert longer("走强", "集体走强") == "走强"


def test_case_31_addresses_become_absolute_and_what_is_none_is_empty() -> None:
    base = "https://www.site.example/list/1.html"
    assert absolute("//finance.site.example/c/1", base) == "https://finance.site.example/c/1"
    assert absolute("/brief/1.html", base) == "https://www.site.example/brief/1.html"
    assert [
        absolute(url, base) for url in ("", None, "javascript:void(0)", "http://[", {}, "https://a.cn:99999/x")
    ] == [""] * 6


@pytest.mark.parametrize(
    "value", [SECOND, str(SECOND), SECOND * 1000, f"{SECOND}000000", SECOND * 1_000_000, 1709602300.0]
)
def test_case_20_counted_times_are_seconds_milliseconds_or_microseconds(value: object) -> None:
    assert epoch(value) == MOMENT


@pytest.mark.parametrize("value", [0, "", None, "-1", True, "170960230", 1709602300 * 10**9, "2024-03-05", []])
def test_what_is_no_counted_time_is_unreadable(value: object) -> None:
    with pytest.raises(Unreadable):
        epoch(value)


@pytest.mark.parametrize(
    "text",
    [
        "2024-03-05 09:31:40",
        "2024-03-05T09:31:40",
        "2024-03-05T09:31:40.000+08:00",
        "2024-03-05T01:31:40Z",
        "2024/3/5 9:31:40",
        "2024年03月05日 09:31:40 来源：示例社",
    ],
)
def test_case_22_written_times_are_of_shanghai_unless_they_say_otherwise(text: str) -> None:
    assert wall(text) == MOMENT


def test_case_22_the_day_or_the_year_may_have_to_be_given() -> None:
    assert wall("09:31", day=dt.date(2024, 3, 5)) == MOMENT.replace(second=0)
    assert wall("03月05日 09:31", today=dt.date(2024, 3, 5)) == MOMENT.replace(second=0)
    assert wall("12月31日 23:59", today=dt.date(2024, 1, 1)).date() == dt.date(2023, 12, 31)
    assert wall("02月29日 09:31", today=dt.date(2027, 1, 1)).year == 2024


@pytest.mark.parametrize(
    "text",
    ["", "09:31", "03月05日 09:31", "2024-03-05", "2024-02-30 09:31", "2024-03-05 25:00", "2024-03-05 09:31 GMT"],
)
def test_case_22_a_time_that_cannot_be_known_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable):
        wall(text)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_case_21_times_do_not_depend_on_the_zone_of_the_machine(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert epoch(SECOND).isoformat() == wall("2024-03-05 09:31:40").isoformat() == "2024-03-05T09:31:40+08:00"
        assert wall("2024-03-05 00:00:00").isoformat() == "2024-03-05T00:00:00+08:00"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_modification_is_later_than_the_publication_or_none() -> None:
    assert later(SECOND + 60, MOMENT) == MOMENT + dt.timedelta(minutes=1)
    assert [later(value, MOMENT) for value in (SECOND, SECOND - 5, 0, "", None)] == [None] * 5


def test_members_are_reached_through_objects_only() -> None:
    assert member({"a": {"b": 1}}, "a", "b") == 1
    assert member({"a": [1]}, "a", "b") is None
    assert member(None, "a") is None


def test_rows_that_lack_something_are_set_aside_and_only_all_of_them_fail() -> None:
    def read(item: object) -> Row | None:
        number = required(item, "id")  # type: ignore[arg-type]
        return None if number == "0" else Row(number, MOMENT, "" if number == "9" else "题")

    rows, unreadable = rows_of([{"id": 1}, {"id": 0}, {}, 5, {"id": 9}], read, "list")
    assert [row.source_id for row in rows] == ["1"]
    assert len(unreadable) == 3
    with pytest.raises(PageFailure, match="shape changed"):
        rows_of([{}, {}], read, "list")
    with pytest.raises(PageFailure, match="shape changed: list is dict"):
        rows_of({"id": 1}, read, "list")
    assert rows_of([], read, "list") == ((), ())


def test_an_error_of_a_site_is_told_in_its_words() -> None:
    failure = site_error(10012, "<b>签名错误</b>")
    assert (failure.state, failure.again) == (PageState.FETCH_ERROR, False)
    assert "10012" in failure.reason
    assert "签名错误" in failure.reason


def test_an_article_page_without_its_text_is_unsupported() -> None:
    page = Selector("<div class=a><p>一</p><script>x</script><p>二</p></div>")
    assert article_text(page, ".a") == "一\n二"
    with pytest.raises(PageFailure, match=r"no text at \.b"):
        article_text(page, ".b")
