import datetime as dt
from collections.abc import Sequence

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from finevolve_pipeline.errors import CalendarError, LookAheadError, TableError
from finevolve_pipeline.llm.tokens import estimate_tokens
from finevolve_pipeline.news.window import (
    blocks,
    build_window,
    items,
    items_by_industry,
    longest_window,
    window_days,
)
from finevolve_pipeline.settings import NewsSettings, WindowSettings, load_settings
from finevolve_pipeline.tables import BenchmarkNews, NewsWindow, conform, empty

SETTINGS = load_settings()
NEWS: NewsSettings = SETTINGS.news
FLAT = WindowSettings(days=5, strict=True)
SESSION = dt.date(2025, 5, 29)


def news(*rows: tuple[str, str, int, Sequence[str]]) -> pd.DataFrame:
    """BenchmarkNews from (id, time in Asia/Shanghai, importance, industries; none is market-wide)."""
    frame = pd.DataFrame(rows, columns=["article_id", "published_at", "importance", "industries"])
    times = pd.to_datetime(frame["published_at"], format="ISO8601").dt.as_unit("us")
    frame["published_at"] = times.dt.tz_localize("Asia/Shanghai")
    frame["scope"] = ["industry" if codes else "market" for codes in frame["industries"]]
    frame["industries"] = [list(codes) for codes in frame["industries"]]
    frame["topics"] = [["政策"] for _ in rows]
    frame["rejected_industries"] = [[] for _ in rows]
    frame["title"] = "标题 " + frame["article_id"]
    text = {"source": "cls", "url": "", "content": "正文", "importance_reason": "重要", "tagger": "x"}
    return conform(frame.assign(**text), BenchmarkNews, "test")


def day(text: str) -> dt.date:
    return dt.date.fromisoformat(text)


@pytest.mark.parametrize(
    ("session", "first", "length"),
    [
        ("2025-05-29", "2025-05-25", 5),  # the paper's case study
        ("2025-05-26", "2025-05-22", 5),  # a Monday
        ("2025-01-02", "2024-12-29", 5),  # the first session, after New Year's Day
        ("2025-02-05", "2025-01-28", 9),  # after Spring Festival 2025: last session 01-27
        ("2025-02-06", "2025-02-02", 5),
        ("2025-05-06", "2025-05-01", 6),  # after Labour Day 2025: last session 04-30
        ("2025-10-09", "2025-10-01", 9),  # after National Day 2025: last session 09-30
        ("2026-02-24", "2026-02-14", 11),  # after Spring Festival 2026: last session 02-13
        ("2026-02-25", "2026-02-21", 5),
    ],
)
def test_a_window_is_five_days_and_reaches_back_over_a_longer_closure(session: str, first: str, length: int) -> None:
    days = window_days(day(session), NEWS.window)
    assert (days[0], days[-1], len(days)) == (day(first), day(session), length)


@pytest.mark.parametrize("session", ["2025-02-05", "2025-10-09", "2026-02-24", "2025-05-29"])
def test_a_strict_window_is_five_days_whatever_closed(session: str) -> None:
    days = window_days(day(session), FLAT)
    assert days == tuple(day(session) - dt.timedelta(days=back) for back in (4, 3, 2, 1, 0))


def test_no_day_of_the_benchmark_is_skipped() -> None:
    sessions = SETTINGS.benchmark.sessions
    assert len(sessions) == 299
    covered = {one for session in sessions for one in window_days(session, NEWS.window)}
    first, last = window_days(sessions[0], NEWS.window)[0], sessions[-1]
    assert covered == {first + dt.timedelta(days=n) for n in range((last - first).days + 1)}
    flat = {one for session in sessions for one in window_days(session, FLAT)}
    assert day("2025-10-04") in covered - flat


def test_the_longest_window_follows_the_longest_closure() -> None:
    assert longest_window(SETTINGS.benchmark.sessions, NEWS.window) == 11
    assert longest_window(SETTINGS.benchmark.sessions, FLAT) == 5


def test_a_day_without_trading_has_no_window() -> None:
    with pytest.raises(CalendarError, match="2025-05-31"):
        window_days(day("2025-05-31"), NEWS.window)
    with pytest.raises(CalendarError, match="2025-05-31"):
        build_window(day("2025-05-31"), empty(BenchmarkNews), NEWS)


def test_news_is_ordered_by_importance_then_newest_then_id() -> None:
    window = build_window(
        SESSION,
        news(
            ("b", "2025-05-29 09:00", 8, ["801170"]),
            ("a", "2025-05-29 09:00", 8, ["801170"]),
            ("new", "2025-05-29 23:59:59.999999", 8, ["801170"]),
            ("old", "2025-05-25 00:00", 10, ["801170"]),
        ),
        NEWS,
    )
    assert window["article_id"].to_list() == ["old", "new", "a", "b"]
    assert window["position"].to_list() == [0, 1, 2, 3]
    assert set(window["session"]) == {"2025-05-29"}
    assert window.equals(conform(window, NewsWindow, "test"))


def test_news_at_the_cutoff_is_refused_by_name() -> None:
    with pytest.raises(LookAheadError, match=r"2025-05-29: article late of 2025-05-30 00:00:00\+08:00"):
        build_window(SESSION, news(("late", "2025-05-30 00:00", 8, ["801170"])), NEWS)


def test_news_before_the_window_is_refused_by_name() -> None:
    with pytest.raises(TableError, match=r"2025-05-29: article early .* before its first day 2025-05-25"):
        build_window(SESSION, news(("early", "2025-05-24 23:59:59", 8, ["801170"])), NEWS)


def test_an_article_published_again_is_shown_once_as_first_published() -> None:
    again = pd.concat([news(("a", "2025-05-28 09:00", 9, ["801170"])), news(("a", "2025-05-26 09:00", 8, ["801080"]))])
    window = build_window(SESSION, again, NEWS)
    assert window["importance"].to_list() == [8]
    assert window["published_at"].dt.date.to_list() == [day("2025-05-26")]


def test_a_window_without_news_is_empty() -> None:
    window = build_window(SESSION, empty(BenchmarkNews), NEWS)
    assert conform(window, NewsWindow, "test").empty
    assert items(window) == ()
    assert items_by_industry(window, ["801170"], market_wide=True) == {"801170": ()}


WINDOW = build_window(
    SESSION,
    news(
        ("both", "2025-05-29 09:00", 8, ["801080", "801170"]),
        ("market", "2025-05-28 10:30", 9, []),
        ("one", "2025-05-27 09:00", 10, ["801170"]),
    ),
    NEWS,
)


def test_items_carry_shanghai_times_and_chinese_names() -> None:
    first = items(WINDOW)[0]
    assert first.text == (
        "[2025-05-27 09:00:00+08:00] id=one src=cls importance=10 topic=政策 industries=交通运输\n"
        "title: 标题 one\ncontent: 正文\nimportance_reason: 重要"
    )
    assert type(first.published_at) is dt.datetime
    assert (first.industries, first.topics, type(first.importance)) == (("801170",), ("政策",), int)


def test_each_industry_sees_its_own_news_in_window_order() -> None:
    seen = items_by_industry(WINDOW, ["801170", "801080", "801010"], market_wide=False)
    assert {code: [item.article_id for item in found] for code, found in seen.items()} == {
        "801170": ["one", "both"],
        "801080": ["both"],
        "801010": [],
    }


def test_market_wide_news_goes_to_every_industry_on_request_in_its_place() -> None:
    seen = items_by_industry(WINDOW, ["801170", "801010"], market_wide=True)
    assert [item.article_id for item in seen["801170"]] == ["one", "market", "both"]
    assert [item.article_id for item in seen["801010"]] == ["market"]


def test_blocks_hold_what_the_budget_allows() -> None:
    one = items(WINDOW)[0]
    tight = blocks(
        WINDOW, ["801170", "801010"], market_wide=False, budget=estimate_tokens(one.text) + 1, count=estimate_tokens
    )
    assert (tight["801170"].article_ids, tight["801170"].cut) == ({"one"}, 1)
    assert (tight["801010"].items, tight["801010"].cut, tight["801010"].text) == ((), 0, "")


def test_a_window_read_back_from_parquet_gives_the_same_items(tmp_path) -> None:  # type: ignore[no-untyped-def]
    WINDOW.to_parquet(tmp_path / "window.parquet")
    assert items(pd.read_parquet(tmp_path / "window.parquet")) == items(WINDOW)


ROWS = st.lists(
    st.tuples(st.integers(0, 5 * 24 * 60 - 1), st.integers(8, 10), st.sampled_from([["801170"], ["801080"], []])),
    min_size=1,
    max_size=15,
)


@hypothesis_settings(max_examples=50, deadline=None)
@given(ROWS, st.randoms(use_true_random=False))
def test_a_window_holds_every_article_whatever_order_it_came_in(
    rows: list[tuple[int, int, list[str]]], random: object
) -> None:
    start = dt.datetime(2025, 5, 25)
    given_rows = [
        (f"{n:02d}", str(start + dt.timedelta(minutes=minute)), importance, codes)
        for n, (minute, importance, codes) in enumerate(rows)
    ]
    window = build_window(SESSION, news(*given_rows), NEWS)
    assert sorted(window["article_id"]) == [row[0] for row in given_rows]
    random.shuffle(given_rows)  # type: ignore[attr-defined]
    assert build_window(SESSION, news(*given_rows), NEWS).equals(window)
