import gzip
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finevolve_pipeline.news.clean import TITLE_LENGTH, CleanText, clean_article, clean_text, headline

TAGS = ["<", ">", "/", "<br>", "<p>", "</p>", "<b", "<script>", "</script>", "<style>", "<!--", "-->"]
ENTITIES = ["&", ";", "&amp;", "&lt;", "&gt;", "&nbsp;", "&#60;", "&#x3c;", "&#0;", "lt;", "amp;", "#60;"]
BLANKS = ["\u3000", "\xa0", "\u200b", "\ufeff", "\0", "\r\n", "\t", "\ud800", "【", "】", "。"]
PIECES = st.one_of(st.text(max_size=8), st.characters(), st.sampled_from(TAGS + ENTITIES + BLANKS))
MARKUP = st.lists(PIECES, max_size=30).map("".join)


@pytest.mark.parametrize(
    ("sent", "clean"),
    [
        ("<p>首段</p><p>次段</p>", "首段 次段"),
        ("上证指数<br/>收涨", "上证指数 收涨"),
        ('<a href="https://x.cn?a=1&b=2">宁德时代</a>涨超<strong>5%</strong>', "宁德时代涨超5%"),
        ("前<script>alert('1 < 2')</script>后", "前 后"),
        ("<style>p{}</style>正文<!-- 编辑注 -->", "正文"),
        ("外壳&amp;基板", "外壳&基板"),
        ("&amp;lt;b&amp;gt;加粗&amp;lt;/b&amp;gt;", "加粗"),
        ("油-&gt;PPI-&gt;企业盈利", "油->PPI->企业盈利"),
        ("市盈率<10且PB<1", "市盈率<10且PB<1"),
        ("修改&lt;证券法&gt;的意见", "修改<证券法>的意见"),
        ("S&P500、AT&T、R&D;", "S&P500、AT&T、R&D;"),
        ("\u3000\u3000两市\xa0低开\u3000\u3000沪指跌\t1%\r\n", "两市 低开 沪指跌 1%"),
        ("零\u200b宽\ufeff字\u2060符", "零宽字符"),
        ("空\0字\x08符", "空字符"),
        ("半个\ud83d代理", "半个代理"),
        ("", ""),
    ],
)
def test_text_loses_markup_and_invisible_characters_but_no_words(sent: str, clean: str) -> None:
    assert clean_text(sent) == clean


@given(MARKUP)
def test_cleaning_twice_is_cleaning_once(sent: str) -> None:
    once = clean_text(sent)
    assert clean_text(once) == once


@given(MARKUP)
def test_a_clean_text_is_one_line_that_any_file_can_hold(sent: str) -> None:
    clean = clean_text(sent)
    assert clean == clean.strip()
    assert not re.search(r"\s\s|[^\S ]|[\0-\x1f\u200b\ufeff]|</?(?:p|br|b|script)\b[^<>]*>", clean)
    clean.encode("utf-8")


@pytest.mark.parametrize("unit", ["<b", "<<b>b>", "<script>", "<!--", "&amp;", "&", "<b>", "【", "<b &lt;b"])
def test_endless_markup_is_cleaned_in_linear_steps_and_stays_clean(unit: str) -> None:
    clean = clean_text(unit * 50_000)
    assert clean_text(clean) == clean


BODY = "财联社2月7日电，土耳其航空宣布恢复航线；巴西航司同日宣布。"


@pytest.mark.parametrize(
    ("title", "content", "expected"),
    [
        ("", f"【多国航司恢复航线】{BODY}", ("多国航司恢复航线", BODY)),
        (f"【多国航司恢复航线】{BODY}", f"【多国航司恢复航线】{BODY}", ("多国航司恢复航线", BODY)),
        (f"【多国航司恢复航线】{BODY[:20]}", f"【多国航司恢复航线】{BODY}", ("多国航司恢复航线", BODY)),
        ("多国航司恢复航线", f"【多国航司恢复航线】{BODY}", ("多国航司恢复航线", BODY)),
        (f"【多国航司恢复航线】{BODY}", "", ("多国航司恢复航线", BODY)),
        ("【多国航司恢复航线】", BODY, ("多国航司恢复航线", BODY)),
        (BODY, BODY, ("土耳其航空宣布恢复航线", BODY)),
        (BODY[:25], BODY, ("土耳其航空宣布恢复航线", BODY)),
        (BODY, "", ("土耳其航空宣布恢复航线", BODY)),
        ("", BODY, ("土耳其航空宣布恢复航线", BODY)),
        ("航司恢复航线", BODY, ("航司恢复航线", BODY)),
        ("A股反弹能否持续", "", ("A股反弹能否持续", "")),
        ("【有奖】芯片还能上车吗？", "", ("【有奖】芯片还能上车吗？", "")),
        ("【电报解读】CPO提速", "英伟达CPO量产。", ("【电报解读】CPO提速", "英伟达CPO量产。")),
        ("【三大指数低开】", "【三大指数低开】", ("三大指数低开", "")),
        ("", " \u3000<p></p>", ("", "")),
    ],
)
def test_the_lead_in_brackets_becomes_the_title(title: str, content: str, expected: tuple[str, str]) -> None:
    assert clean_article(title, content) == CleanText(*expected)


@given(MARKUP, MARKUP)
def test_an_article_with_any_text_has_a_title(title: str, content: str) -> None:
    clean = clean_article(title, content)
    assert bool(clean.title) == bool(clean_text(title) or clean_text(content))


def test_a_title_made_from_a_long_body_is_cut() -> None:
    made = headline("新华社北京5月18日电 " + "长" * 200)
    assert made == "长" * (TITLE_LENGTH - 1) + "…"


def test_a_short_exclamation_is_no_title_of_its_own() -> None:
    assert headline("突发！某公司重大资产重组。详情如下。") == "突发！某公司重大资产重组"


@pytest.mark.real_data
def test_real_telegraphs_are_clean_and_every_lead_became_the_title(real_data: Path) -> None:
    path = real_data / "news" / "cls_telegraph_2026-02-05_2026-04-30.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        sent = [json.loads(line) for line in lines]
    leads = 0
    for row in sent:
        clean = clean_article(row["title"], row["content"])
        assert clean.title
        assert not re.search(r"</?(?:p|br|a|b|div|span|strong|em|img)\b[^<>]*>|&\w+;|[\0\u3000\n]", "".join(clean))
        if lead := re.match(r"\s*【(.+?)】", row["content"]):
            leads += 1
            assert clean.title == clean_text(lead[1])
            assert not clean.content.startswith("【")
        else:
            assert len(clean.title) <= TITLE_LENGTH or clean.title == clean_text(row["title"])
    assert (len(sent), leads) == (33_390, 23_116)
