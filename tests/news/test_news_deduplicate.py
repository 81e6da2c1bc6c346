import datetime as dt
import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finevolve_pipeline.news.deduplicate import ArticleBuild, article_id, build_articles, normalise
from finevolve_pipeline.settings import DeduplicateSettings, load_settings
from finevolve_pipeline.tables import Articles, RawNews, conform

DAY = dt.date(2025, 5, 14)
RULE = DeduplicateSettings(hours=24, min_characters=12)
FLASH = "财联社5月14日电，工信部印发中药工业高质量发展实施方案，支持建设原料基地。"


def raw(*rows: dict[str, object]) -> pd.DataFrame:
    """RawNews from a few fields a row; `at` is a time of day or a day and time in Asia/Shanghai."""
    frame = pd.DataFrame([{"title": "", "content": "", "industries_given": [], **row} for row in rows])
    if frame.empty:
        frame = pd.DataFrame(columns=["source", "source_id", "title", "content", "industries_given", "at"])
    times = [str(at) if len(str(at)) > 8 else f"{DAY} {at}" for at in frame.pop("at")]
    frame["published_at"] = pd.Series(pd.to_datetime(times)).dt.as_unit("us").dt.tz_localize("Asia/Shanghai")
    frame["modified_at"] = frame["crawled_at"] = pd.Series([pd.NaT] * len(frame), dtype=frame["published_at"].dtype)
    origin = frame.get("origin", "file:x")
    frame = frame.assign(url="", origin=origin, importance_given=float("nan"))
    return frame[list(RawNews.to_schema().columns)]


def item(source: str, source_id: str, at: str, content: str = FLASH, title: str = "") -> dict[str, object]:
    return {"source": source, "source_id": source_id, "at": at, "content": content, "title": title}


def build(
    *today: dict[str, object],
    yesterday: Sequence[dict[str, object]] = (),
    rule: DeduplicateSettings = RULE,
) -> ArticleBuild:
    built = build_articles(DAY, raw(*today), raw(*yesterday), rule)
    conform(built.frame, Articles, "test")
    assert built.raw == len(built.frame) + built.empty + built.duplicates
    return built


def ids(built: ArticleBuild) -> list[str]:
    return [f"{s}:{i}" for s, i in zip(built.frame["source"], built.frame["source_id"], strict=True)]


def test_the_earliest_copy_is_kept_and_lists_the_later_ones() -> None:
    built = build(item("sina", "2", "10:05:00"), item("cls", "1", "10:00:00"), item("10jqka", "3", "11:00:00"))
    assert ids(built) == ["cls:1"]
    assert built.frame.loc[0, "duplicates"] == ["sina:2", "10jqka:3"]
    assert built.frame.loc[0, "article_id"] == article_id("cls", "1")
    assert (built.raw, built.empty, built.duplicates) == (3, 0, 2)


@pytest.mark.parametrize(
    ("crawled", "kept", "other"),
    [("09:59:58", ("1611001", "crawl"), "cls:9c1f"), ("10:00:03", ("9c1f", "tushare"), "cls:1611001")],
)
def test_an_item_that_a_crawl_and_tushare_brought_is_one_and_tells_which_came_first(
    crawled: str, kept: tuple[str, str], other: str
) -> None:
    """The crawl has the site's id and a title of its own, tushare a digest as its id and the text alone."""
    built = build(
        {**item("cls", "9c1f", "10:00:00"), "origin": "tushare"},
        {**item("cls", "1611001", crawled, f"【中药新政】{FLASH}", "中药新政"), "origin": "crawl"},
    )
    row = built.frame.iloc[0]
    assert len(built.frame) == 1
    assert (row["source_id"], row["origin"]) == kept
    assert row["duplicates"] == [other]


@pytest.mark.parametrize(
    ("title", "content"),
    [
        ("工信部支持建设原料基地", FLASH.removeprefix("财联社5月14日电，")),
        ("", f"【工信部支持原料基地】{FLASH}"),
        ("", FLASH.replace("财联社5月14日电，", "《科创板日报》14日讯，")),
        ("", FLASH.replace("，", " , ").replace("。", "")),
        (FLASH, FLASH),
        (FLASH, ""),
        ("", f"<p>{FLASH}（新华社）</p>"),
    ],
)
def test_a_reprint_with_another_title_dateline_credit_or_punctuation_is_a_copy(title: str, content: str) -> None:
    assert ids(build(item("cls", "1", "10:00:00"), item("sina", "2", "10:05:00", content, title))) == ["cls:1"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("标普500指数期货涨1.25%，成交活跃", "标普500指数期货涨12.5%，成交活跃"),
        ("欧元区一月生产者价格同比-0.5%", "欧元区一月生产者价格同比0.5%"),
        ("公司中标项目金额100万元左右", "公司中标项目金额200万元左右"),
    ],
)
def test_texts_that_differ_in_a_number_are_two_articles(one: str, other: str) -> None:
    assert len(build(item("cls", "1", "10:00:00", one), item("cls", "2", "10:01:00", other)).frame) == 2


def test_width_and_case_do_not_count() -> None:
    assert normalise("", "ＣＰＯ概念股１．５倍走强") == normalise("", "cpo概念股1.5倍走强")


def test_a_body_shorter_than_its_title_is_compared_together_with_it() -> None:
    assert normalise("甲公司中标", "详见公告") != normalise("乙公司中标", "详见公告")


def test_a_copy_across_midnight_is_dropped_and_listed_nowhere() -> None:
    before = item("cls", "1", "2025-05-13 23:50:00")
    built = build(
        item("sina", "2", "00:10:00"),
        item("sina", "3", "00:20:00", "另一则完全不同的消息内容"),
        yesterday=[before],
    )
    assert ids(built) == ["sina:3"]
    assert built.frame["duplicates"].to_list() == [[]]


@pytest.mark.parametrize(("at", "kept"), [("09:59:59", 0), ("10:00:00", 0), ("10:00:01", 1)])
def test_the_time_window_ends_after_its_hours(at: str, kept: int) -> None:
    built = build(item("sina", "2", at), yesterday=[item("cls", "1", "2025-05-13 10:00:00")])
    assert len(built.frame) == kept


def test_a_dropped_copy_still_counts_as_an_earlier_one() -> None:
    chain = [item("cls", "1", "2025-05-13 01:00:00"), item("sina", "2", "2025-05-13 20:00:00")]
    assert ids(build(item("10jqka", "3", "19:00:00"), yesterday=chain)) == []


def test_short_texts_are_compared_within_their_source_only() -> None:
    short = "沪指涨1%"
    built = build(
        item("cls", "1", "10:00:00", short),
        item("sina", "2", "10:01:00", short),
        item("cls", "3", "10:02:00", short),
    )
    assert ids(built) == ["cls:1", "sina:2"]
    assert built.frame["duplicates"].to_list() == [["cls:3"], []]


def test_of_an_edited_article_the_first_publication_stays() -> None:
    built = build(item("cls", "1", "12:00:00", FLASH + "补充：名单附后。"), item("cls", "1", "10:00:00"))
    assert built.frame["content"].to_list() == [FLASH]
    assert (built.duplicates, built.frame.loc[0, "duplicates"]) == (1, [])


def test_an_edit_of_yesterdays_article_is_no_new_article() -> None:
    before = item("cls", "1", "2025-05-13 23:00:00", "原来的说法是另一回事，与此无关")
    assert ids(build(item("cls", "1", "08:00:00"), yesterday=[before])) == []


def test_a_copy_of_a_discarded_edit_is_news() -> None:
    correction = "更正：工信部方案的实施日期为六月一日起"
    built = build(
        item("cls", "1", "10:00:00"),
        item("cls", "1", "11:00:00", correction),
        item("sina", "2", "12:00:00", correction),
    )
    assert ids(built) == ["cls:1", "sina:2"]


def test_rows_of_one_instant_are_ordered_by_source_and_id() -> None:
    rows = [item("sina", "1", "10:00:00"), item("cls", "9", "10:00:00"), item("cls", "2", "10:00:00")]
    assert ids(build(*rows)) == ids(build(*reversed(rows))) == ["cls:2"]


def test_an_article_given_once_per_sector_keeps_all_its_sectors() -> None:
    rows = [{**item("official", "1", "10:00:00"), "industries_given": [code]} for code in ("801780", "801170")]
    assert build(*rows).frame["industries_given"].to_list() == [["801170", "801780"]]


def test_rows_without_text_are_left_out_and_counted() -> None:
    built = build(item("cls", "1", "10:00:00", "<p>\u3000</p>"), item("cls", "2", "11:00:00"))
    assert (ids(built), built.raw, built.empty, built.duplicates) == (["cls:2"], 2, 1, 0)


def test_only_rows_published_on_the_day_belong_to_it() -> None:
    built = build(
        item("cls", "0", "2025-05-13 23:59:59", "前一日的消息，与其他消息无关"),
        item("cls", "1", "00:00:00"),
        item("cls", "2", "2025-05-15 00:00:00", "后一日的消息，与其他消息无关"),
    )
    assert (ids(built), built.raw) == (["cls:1"], 1)


def test_a_day_without_news_has_no_articles() -> None:
    assert build().frame.empty
    assert build(yesterday=[item("cls", "1", "2025-05-13 10:00:00")]).raw == 0


NEWS = st.lists(
    st.builds(
        item,
        st.sampled_from(["cls", "sina", "10jqka"]),
        st.sampled_from(["1", "2", "3", "4", "5"]),
        st.integers(0, 2 * 24 * 60 - 1).map(
            lambda minute: str(dt.datetime(2025, 5, 13) + dt.timedelta(minutes=minute))
        ),
        st.sampled_from([FLASH, "沪指涨1%", "深成指涨1%", "工信部支持建设高标准的原料基地", ""]),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(NEWS, st.integers(0, 24 * 60), NEWS, st.sampled_from([0, 1, 24]))
def test_what_follows_an_article_never_changes_it(
    rows: list[dict[str, object]], minute: int, other: list[dict[str, object]], hours: int
) -> None:
    clock = str(dt.datetime.combine(DAY, dt.time()) + dt.timedelta(minutes=minute))
    rule = DeduplicateSettings(hours=hours, min_characters=12)
    past = [row for row in rows if str(row["at"]) < clock]
    future = [row for row in other if str(row["at"]) >= clock]
    alone, followed = (build_articles(DAY, raw(*sent), raw(), rule).frame for sent in (past, [*past, *future]))
    seen = followed[followed["published_at"] < pd.Timestamp(clock, tz="Asia/Shanghai")].reset_index(drop=True)
    assert seen.drop(columns="duplicates").equals(alone.drop(columns="duplicates"))
    for before, after in zip(alone["duplicates"], seen["duplicates"], strict=True):
        assert after[: len(before)] == before


@settings(max_examples=40, deadline=None)
@given(NEWS, st.randoms(use_true_random=False))
def test_the_order_of_raw_rows_does_not_matter(rows: list[dict[str, object]], random: object) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = (build_articles(DAY, raw(*sent), raw(), RULE) for sent in (rows, shuffled))
    assert one[1:] == other[1:]
    assert one.frame.equals(other.frame)


@settings(max_examples=40, deadline=None)
@given(NEWS)
def test_no_text_is_kept_twice_within_the_hours(rows: list[dict[str, object]]) -> None:
    frame = build_articles(DAY, raw(*rows), raw(), RULE).frame
    keys = [normalise(*text) for text in zip(frame["title"], frame["content"], strict=True)]
    long = [key for key in keys if len(key) >= RULE.min_characters]
    assert len(long) == len(set(long))


@pytest.mark.real_data
def test_repetitions_in_the_real_telegraphs(real_data: Path) -> None:
    path = real_data / "news" / "cls_telegraph_2026-02-05_2026-04-30.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        sent = pd.DataFrame([json.loads(line) for line in lines])
    rows = [
        {"source": "cls", "source_id": i, "title": t, "content": c, "at": at.replace("T", " ")}
        for i, t, c, at in zip(sent["id"], sent["title"], sent["content"], sent["publish_time"], strict=True)
    ]
    frame = raw(*rows)
    days = dict(tuple(frame.groupby(frame["published_at"].dt.date)))
    rule = load_settings().news.deduplicate
    builds = [
        build_articles(day, today, days.get(day - dt.timedelta(days=1), frame.iloc[:0]), rule)
        for day, today in days.items()
    ]
    assert sum(built.raw for built in builds) == 33_390
    assert sum(built.empty for built in builds) == 0
    assert sum(built.duplicates for built in builds) == 38
    assert pd.concat([built.frame for built in builds])["article_id"].is_unique
