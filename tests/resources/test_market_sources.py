"""tushare, csindex and akshare against local servers that answer as they do, also badly. Failure case 29."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import requests
from service_world import (
    CAPTCHA,
    ERROR_500,
    NOT_JSON,
    NOW,
    TOKEN,
    Asked,
    CsIndexSite,
    FakeTime,
    Reply,
    ShenwanSite,
    TushareService,
    bar_numbers,
    serving,
)

from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.errors import CalendarError, SourceError
from finevolve_pipeline.market.fetching import Fetched, Span, require_same_sessions
from finevolve_pipeline.settings import TushareSettings, load_settings
from finevolve_pipeline.tables import Bars, conform
from resources.market import build_source
from resources.market.akshare import AkShare
from resources.market.csindex import CsIndex
from resources.market.tushare import CrowdedError, Row, Tushare

WEEK = Span(dt.date(2025, 1, 6), dt.date(2025, 1, 10))
DAYS = ["2025-01-06", "2025-01-07", "2025-01-08", "2025-01-09", "2025-01-10"]


def expected(code: str, volume: float, amount: float, days: list[str] = DAYS) -> pd.DataFrame:
    rows = [
        {"session": d, "code": code, **bar_numbers(code, dt.date.fromisoformat(d)), "volume": volume, "amount": amount}
        for d in days
    ]
    return conform(pd.DataFrame(rows), Bars, "expected")


def settings(url: str) -> TushareSettings:
    return load_settings(overrides={"tushare": {"base_url": url}}).tushare


# tushare


@pytest.fixture
def tushare_service(monkeypatch: pytest.MonkeyPatch) -> Iterator[TushareService]:
    monkeypatch.setenv("TUSHARE_TOKEN", TOKEN)
    service = TushareService()
    with serving(service):
        yield service


def client(service: TushareService, time: FakeTime | None = None, rows: int = 1500) -> Tushare:
    return Tushare(settings(service.url), (time or FakeTime()).politeness(), rows)


def test_tushare_gives_industries_in_shares_and_yuan(tushare_service: TushareService) -> None:
    got = client(tushare_service).bars("industry_bars", ["801010", "801030"], WEEK, NOW)
    want = pd.concat([expected(code, 155_000 * 1e4, 1_200_000 * 1e4) for code in ("801010", "801030")])
    pd.testing.assert_frame_equal(got.frame, want.sort_values(["session", "code"], ignore_index=True))
    assert got.problems == ()
    assert tushare_service.calls("sw_daily")[0] == {
        "ts_code": "801010.SI",
        "start_date": "20250106",
        "end_date": "20250110",
    }


def test_tushare_gives_the_benchmark_from_lots_and_thousands_of_yuan(tushare_service: TushareService) -> None:
    got = client(tushare_service).bars("benchmark_bars", ["000852"], WEEK, NOW)
    pd.testing.assert_frame_equal(got.frame, expected("000852", 145_000_000 * 100.0, 160_000_000 * 1e3))
    assert [call["ts_code"] for call in tushare_service.calls("index_daily")] == ["000852.SH"]


def test_case_29_rows_of_the_stock_000852_are_told_and_left_out(tushare_service: TushareService) -> None:
    bar = {"fields": ["ts_code", "trade_date", "close"]}
    items = [["000852.SZ", "20250106", 7.1], ["000852.SH", "20250107", 1861.0]]
    tushare_service.first(1, Reply({"code": 0, "msg": "", "data": {**bar, "items": items}}))
    got = client(tushare_service).bars("benchmark_bars", ["000852"], WEEK, NOW)
    assert got.frame[["session", "close"]].values.tolist() == [["2025-01-07", 1861.0]]
    assert "1 of 2 rows cannot be used, 000852: index '000852.SZ': not CSI1000" in got.problems[0]


@pytest.mark.parametrize(
    ("code", "message", "told"),
    [
        (40101, f"您的token不对，请确认。{TOKEN}", "check the token in environment variable TUSHARE_TOKEN"),
        (40203, "抱歉，您没有接口(sw_daily)访问权限", "may not use sw_daily"),
        (40203, "抱歉，您每天最多访问该接口5次", "its allowance is used up"),
        (50101, "系统内部错误", "the service refuses the request"),
    ],
)
def test_a_refusal_of_tushare_says_what_to_do(
    tushare_service: TushareService, code: int, message: str, told: str
) -> None:
    tushare_service.first(9, TushareService.refusal(code, message))
    with pytest.raises(SourceError, match=told) as refused:
        client(tushare_service).bars("industry_bars", ["801010"], WEEK, NOW)
    assert TOKEN not in str(refused.value)
    assert TOKEN[:12] not in str(refused.value)
    assert len(tushare_service.asked) == 1


def test_the_allowance_of_a_minute_is_waited_for(tushare_service: TushareService) -> None:
    limit = "抱歉，您每分钟最多访问该接口200次，权限的具体详情访问：https://tushare.pro/document/1?doc_id=108。"
    tushare_service.first(2, TushareService.refusal(40203, limit))
    time = FakeTime()
    got = client(tushare_service, time).bars("benchmark_bars", ["000852"], WEEK, NOW)
    assert len(got.frame) == 5
    assert time.slept == [61.0, 61.0]


@pytest.mark.parametrize(
    "trouble", [ERROR_500, NOT_JSON, Reply({"code": 0, "data": {"fields": ["a"], "items": [[1, 2]]}})]
)
def test_a_broken_answer_of_tushare_is_asked_again(tushare_service: TushareService, trouble: Reply) -> None:
    tushare_service.first(1, trouble)
    assert len(client(tushare_service).bars("benchmark_bars", ["000852"], WEEK, NOW).frame) == 5


@pytest.mark.parametrize(("value", "told"), [("", "is not set"), ("two words", "holds no token")])
def test_no_token_is_told_before_anything_is_asked(
    tushare_service: TushareService, monkeypatch: pytest.MonkeyPatch, value: str, told: str
) -> None:
    monkeypatch.setenv("TUSHARE_TOKEN", value)
    with pytest.raises(SourceError, match=f"environment variable TUSHARE_TOKEN .*{told}"):
        client(tushare_service)
    assert tushare_service.asked == []


def test_a_client_shows_no_token(tushare_service: TushareService) -> None:
    assert TOKEN not in repr(client(tushare_service))


# tushare's news


def at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(f"2025-01-06 {text}").replace(tzinfo=SHANGHAI)


def news_of(service: TushareService, rows: int) -> list[Row]:
    parts = client(service, rows=rows).news("cls", at("00:00:00"), at("23:59:59"))
    return [row for part in parts for row in part]


@pytest.mark.parametrize("inclusive", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("oldest_first", [True, False])
def test_every_row_comes_once_whatever_the_bounds_and_the_order(
    tushare_service: TushareService, inclusive: tuple[bool, bool], oldest_first: bool
) -> None:
    """Rows tied in one second, at midnight and at the edges of every window."""
    times = [
        f"{minute // 60:02}:{minute % 60:02}:{second:02}" for minute in range(0, 1440, 29) for second in (0, 0, 0, 59)
    ]
    times += ["00:00:00", "23:59:59", "23:59:59"]
    rows = [(f"2025-01-06 {time}", "", f"第{n}条") for n, time in enumerate(times)]
    beyond = [("2025-01-05 23:59:59", "", "昨天"), ("2025-01-07 00:00:00", "", "明天")]
    tushare_service.news = {"cls": rows + beyond}
    tushare_service.inclusive, tushare_service.oldest_first = inclusive, oldest_first
    tushare_service.rows_a_call = 7
    got = [row["content"] for row in news_of(tushare_service, 7)]
    assert sorted(got) == sorted(content for _, _, content in rows)


def test_a_full_answer_is_never_taken_for_the_end(tushare_service: TushareService) -> None:
    tushare_service.news = {"cls": [(f"2025-01-06 10:00:{n:02}", "", f"第{n}条") for n in range(5)]}
    tushare_service.rows_a_call = 5
    assert len(news_of(tushare_service, 5)) == 5
    assert len(tushare_service.asked) > 1


def test_a_short_answer_with_more_behind_it_is_not_the_end_either(tushare_service: TushareService) -> None:
    tushare_service.news = {"cls": [(f"2025-01-06 {n:02}:00:00", "", f"第{n}条") for n in range(5)]}

    def plan(asked: Asked) -> Reply | None:
        if asked.number:
            return None
        items = [["2025-01-06 04:00:00", "", "第4条"]]
        data = {"fields": ["datetime", "title", "content"], "items": items, "has_more": True}
        return Reply({"code": 0, "msg": "", "data": data})

    tushare_service.plan = plan
    assert len(news_of(tushare_service, 1500)) == 5


def test_more_rows_in_a_second_than_a_call_gives_are_an_error(tushare_service: TushareService) -> None:
    tushare_service.news = {"cls": [("2025-01-06 10:00:00", "", f"第{n}条") for n in range(9)]}
    tushare_service.rows_a_call = 4
    with pytest.raises(CrowdedError, match=r"cls has 4 rows or more around 2025-01-06 (09:59:59|10:00:00)"):
        news_of(tushare_service, 4)


def test_rows_of_other_seconds_come_beside_those_of_a_crowded_one(tushare_service: TushareService) -> None:
    others = [(f"2025-01-06 {hour:02}:30:00", "", f"{hour}点") for hour in range(24)]
    tushare_service.news = {"cls": others + [("2025-01-06 10:00:00", "", f"第{n}条") for n in range(9)]}
    tushare_service.rows_a_call = 4
    got: list[Row] = []
    parts = client(tushare_service, rows=4).news("cls", at("00:00:00"), at("23:59:59"))
    with pytest.raises(CrowdedError):
        got.extend(row for part in parts for row in part)
    contents = [row["content"] for row in got]
    assert {content for _, _, content in others} <= set(contents)
    assert len(contents) == len(set(contents)) == len(others) + 4


def test_a_service_that_calls_every_answer_full_is_not_asked_for_each_second(tushare_service: TushareService) -> None:
    data = {"fields": ["datetime", "title", "content"], "items": [], "has_more": True}
    tushare_service.first(100_000, Reply({"code": 0, "msg": "", "data": data}))
    with pytest.raises(CrowdedError):
        news_of(tushare_service, 1500)
    assert len(tushare_service.asked) < 100


# csindex


@pytest.fixture
def csindex_site() -> Iterator[CsIndexSite]:
    site = CsIndexSite()
    with serving(site):
        yield site


def csindex(site: CsIndexSite, span: Span = WEEK) -> Fetched:
    return CsIndex(FakeTime().politeness(), site.url).bars("benchmark_bars", ["000852"], span, NOW)


def changed(site: CsIndexSite, change: Any) -> CsIndexSite:
    site.__class__ = type("Changed", (CsIndexSite,), {"changes": staticmethod(change)})
    return site


def test_csindex_gives_the_benchmark_in_shares_and_yuan(csindex_site: CsIndexSite) -> None:
    got = csindex(csindex_site)
    pd.testing.assert_frame_equal(got.frame, expected("000852", 14_500 * 1e6, 1_600 * 1e8))
    assert got.problems == ()


def test_case_29_the_echo_of_the_first_day_is_never_a_bar(csindex_site: CsIndexSite) -> None:
    """On 2025-01-20 the newest session has no data yet; the site echoes one under the asked day."""
    monday = dt.date(2025, 1, 20)
    site = changed(csindex_site, lambda row: None if row["tradeDate"] == "20250120" else row)
    got = csindex(site, Span(monday, monday))
    assert got.frame.empty
    assert "2025-01-20..2025-01-20: the answer is empty" in got.problems[0]
    assert site.asked[0].query["startDate"] == "20250119"


def test_an_echo_on_a_closed_day_leaves_the_other_rows_and_no_complaint(csindex_site: CsIndexSite) -> None:
    got = csindex(csindex_site, Span(dt.date(2025, 1, 2), dt.date(2025, 1, 3)))
    assert got.frame["session"].tolist() == ["2025-01-02", "2025-01-03"]
    assert got.problems == ()


def test_case_29_null_numbers_stay_missing(csindex_site: CsIndexSite) -> None:
    gone = dict.fromkeys(("open", "high", "low", "tradingVol"))
    site = changed(csindex_site, lambda row: {**row, **gone} if row["tradeDate"] == "20250107" else row)
    row = csindex(site).frame.set_index("session").loc["2025-01-07"]
    assert row[["open", "high", "low", "volume"]].isna().all()
    assert row["close"] == bar_numbers("000852", dt.date(2025, 1, 7))["close"]


def test_case_29_numbers_as_texts_are_numbers(csindex_site: CsIndexSite) -> None:
    texts = ("close", "tradingVol", "tradingValue")
    site = changed(csindex_site, lambda row: {**row, **{name: str(row[name]) for name in texts}})
    pd.testing.assert_frame_equal(csindex(site).frame, expected("000852", 14_500 * 1e6, 1_600 * 1e8))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"indexCode": "000905"}, "index '000905': not CSI1000"),
        ({"indexNameCn": "石化机械"}, "1 rows are of '石化机械', not of CSI1000"),
        ({"close": "abc"}, "close 'abc': not a number"),
        ({"close": 99999.0}, "close 99999 lies above high"),
        ({"tradeDate": "2025-13-01"}, "date '2025-13-01'"),
    ],
)
def test_a_wrong_row_is_told_and_the_others_go_on(csindex_site: CsIndexSite, wrong: dict[str, Any], told: str) -> None:
    site = changed(csindex_site, lambda row: {**row, **wrong} if row["tradeDate"] == "20250107" else row)
    got = csindex(site)
    assert got.frame["session"].tolist() == [day for day in DAYS if day != "2025-01-07"]
    assert told in " ".join(got.problems)


def test_a_unit_that_changed_is_told(csindex_site: CsIndexSite) -> None:
    site = changed(csindex_site, lambda row: {**row, "tradingVol": row["tradingVol"] * 1e6})
    assert "csindex volume in 1e4-lots looks wrong" in " ".join(csindex(site).problems)


@pytest.mark.parametrize("empty", [[], None])
def test_case_29_an_empty_answer_is_told(csindex_site: CsIndexSite, empty: object) -> None:
    csindex_site.first(9, Reply({"code": 200, "data": empty}))
    got = csindex(csindex_site)
    assert got.frame.empty
    assert got.problems == ("csindex: 000852 2025-01-06..2025-01-10: the answer is empty",)


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        (Reply(b"\x8f\x01\xfe garbled"), "the answer is no JSON"),
        (Reply({"code": "500", "msg": "系统繁忙"}), "code 500: 系统繁忙"),
        (Reply({"code": "200", "data": [{"日期": "20250106"}]}), "the format has changed"),
        (Reply({"code": "200", "data": "x"}), "another shape"),
        (CAPTCHA, "blocks us"),
    ],
)
def test_case_29_a_broken_site_is_a_clear_error(csindex_site: CsIndexSite, trouble: Reply, told: str) -> None:
    csindex_site.first(99, trouble)
    with pytest.raises(SourceError, match=f"csindex: .*{told}"):
        csindex(csindex_site)


def test_names_of_foreign_columns_are_told_as_one_clean_line(csindex_site: CsIndexSite) -> None:
    csindex_site.first(9, Reply({"code": "200", "data": [{"x\n\x1b[31mred": 1, "y" * 500: 2}]}))
    with pytest.raises(SourceError, match=r"no tradeDate but x \[31mred, y+…: the format has changed") as told:
        csindex(csindex_site)
    assert str(told.value).isprintable()


def test_a_long_span_is_asked_in_pieces_without_a_gap(csindex_site: CsIndexSite) -> None:
    got = csindex(csindex_site, Span(dt.date(2024, 1, 2), dt.date(2025, 1, 17)))
    assert len(got.frame) == 254
    assert got.frame["session"].is_unique
    assert len(csindex_site.asked) == 7


def test_csindex_has_no_industries(csindex_site: CsIndexSite) -> None:
    with pytest.raises(SourceError, match="csindex: has no industry_bars"):
        CsIndex(FakeTime().politeness(), csindex_site.url).bars("industry_bars", ["801010"], WEEK, NOW)


# akshare


@pytest.fixture(scope="module")
def akshare_library() -> Any:
    return pytest.importorskip("akshare")


@pytest.fixture
def sites(akshare_library: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ShenwanSite, CsIndexSite]]:
    """What the library asks for goes to local servers."""
    shenwan, benchmark = ShenwanSite(), CsIndexSite()
    with serving(shenwan) as one, serving(benchmark) as other:
        real = requests.sessions.Session.request

        def local(self: requests.Session, method: str, url: str, **options: Any) -> requests.Response:
            host = {"www.swsresearch.com": one, "www.csindex.com.cn": other}[url.split("/")[2]]
            return real(self, method, host, **options)

        monkeypatch.setattr(requests.sessions.Session, "request", local)
        yield shenwan, benchmark


def akshare(time: FakeTime | None = None, **polite: Any) -> AkShare:
    return AkShare((time or FakeTime()).politeness(**polite))


def test_akshare_gives_industries_in_shares_and_yuan(sites: tuple[ShenwanSite, CsIndexSite]) -> None:
    source = akshare()
    got = source.bars("industry_bars", ["801010", "801030"], WEEK, NOW)
    want = pd.concat([expected(code, 15.5e8, 120.0e8) for code in ("801010", "801030")])
    pd.testing.assert_frame_equal(got.frame, want.sort_values(["session", "code"], ignore_index=True))
    assert got.problems == ()
    source.bars("industry_bars", ["801010", "801030"], Span(dt.date(2024, 3, 1), dt.date(2024, 3, 8)), NOW)
    assert [asked.query["swindexcode"] for asked in sites[0].asked] == ["801010", "801030"]


def test_akshare_gives_the_benchmark_without_the_echo(sites: tuple[ShenwanSite, CsIndexSite]) -> None:
    got = akshare().bars("benchmark_bars", ["000852"], WEEK, NOW)
    pd.testing.assert_frame_equal(got.frame, expected("000852", 14_500 * 1e6, 1_600 * 1e8))
    assert got.problems == ()


def test_an_index_whose_answer_is_broken_stops_no_other(sites: tuple[ShenwanSite, CsIndexSite]) -> None:
    sites[0].broken = frozenset({"801010"})
    got = akshare().bars("industry_bars", ["801010", "801030"], WEEK, NOW)
    assert set(got.frame["code"]) == {"801030"}
    assert "akshare: 801010: failed 3 times, at last: the site's answer is not as expected" in got.problems[0]
    assert got.unusable == {"801010"}


def test_a_site_that_answers_nothing_is_broken(sites: tuple[ShenwanSite, CsIndexSite]) -> None:
    sites[0].first(99, Reply("", 500))
    with pytest.raises(SourceError, match=r"akshare: 801050: failed 3 times.*nor could the 2 before it"):
        akshare().bars("industry_bars", ["801010", "801030", "801050", "801080"], WEEK, NOW)
    assert len(sites[0].asked) == 9


def test_an_empty_answer_of_csindex_is_told_through_akshare_too(sites: tuple[ShenwanSite, CsIndexSite]) -> None:
    """The library fails on it with a length mismatch."""
    sites[1].first(99, Reply({"code": "200", "data": []}))
    with pytest.raises(SourceError, match="Length mismatch"):
        akshare().bars("benchmark_bars", ["000852"], WEEK, NOW)


@pytest.mark.parametrize("trouble", [requests.ConnectionError("no route"), requests.Timeout("slow"), ConnectionError()])
def test_a_site_that_cannot_be_reached_gave_no_unexpected_answer(
    akshare_library: Any, monkeypatch: pytest.MonkeyPatch, trouble: OSError
) -> None:
    def call(*_: str) -> None:
        raise trouble

    monkeypatch.setattr(akshare_library, "stock_zh_index_hist_csindex", call)
    with pytest.raises(SourceError, match=f"the site cannot be reached \\({type(trouble).__name__}: ") as told:
        akshare(attempts=1).bars("benchmark_bars", ["000852"], WEEK, NOW)
    assert "not as expected" not in str(told.value)


class LibraryError(Exception):
    """Of no kind that a site's answer usually leads to."""


def test_whatever_the_library_raises_its_reason_is_told_and_nothing_is_printed(
    akshare_library: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def call(*_: str) -> None:
        raise LibraryError("no script engine")

    monkeypatch.setattr(akshare_library, "tool_trade_date_hist_sina", call)
    with pytest.raises(SourceError, match=r"not as expected \(LibraryError: no script engine\)"):
        akshare(attempts=1).trading_days(*WEEK)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("days", [["2025-01-06", "soon"], [object(), object()]])
def test_days_of_the_library_that_are_none_are_told(
    akshare_library: Any, monkeypatch: pytest.MonkeyPatch, days: list[object]
) -> None:
    bars = pd.DataFrame({"日期": days, "指数代码": "000852", "收盘": 1.0})
    monkeypatch.setattr(akshare_library, "stock_zh_index_hist_csindex", lambda *_: bars)
    with pytest.raises(SourceError, match="000852: failed once, at last: 日期 holds something else than days"):
        akshare(attempts=1).bars("benchmark_bars", ["000852"], WEEK, NOW)
    monkeypatch.setattr(akshare_library, "tool_trade_date_hist_sina", lambda: pd.DataFrame({"trade_date": days}))
    with pytest.raises(SourceError, match="trade_date holds something else than days"):
        akshare(attempts=1).trading_days(*WEEK)


def test_a_call_of_the_library_that_hangs_is_given_up(sites: tuple[ShenwanSite, CsIndexSite]) -> None:
    sites[1].first(99, Reply("late", silent=1.0))
    with pytest.raises(SourceError, match=r"no answer within 0\.2 s"):
        akshare(attempts=1, deadline=0.2).bars("benchmark_bars", ["000852"], WEEK, NOW)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "akshare", None)
    with pytest.raises(SourceError, match=r"finevolve-pipeline\[akshare\]"):
        build_source("akshare", load_settings())


@pytest.mark.real_data
def test_a_real_history_in_the_library_s_shape_becomes_the_same_bars(
    akshare_library: Any, monkeypatch: pytest.MonkeyPatch, real_data: Path
) -> None:
    """Closes, volumes of 10^8 shares and turnovers of 10^8 yuan of three indices, gaps included."""
    real = pd.read_csv(real_data / "market" / "shenwan_l1_daily.csv", dtype={"code": str})
    names = {"date": "日期", "code": "代码", "open": "开盘", "high": "最高", "low": "最低", "close": "收盘"}
    columns = {**names, "volume": "成交量", "amount": "成交额"}

    def history(code: str, period: str) -> pd.DataFrame:
        frame = real[real["code"] == code].rename(columns=columns)[list(columns.values())]
        return frame.assign(日期=pd.to_datetime(frame["日期"]).dt.date, 开盘=frame["开盘"].astype(str))

    monkeypatch.setattr(akshare_library, "index_hist_sw", history)
    codes, span = ["801010", "801170", "801780"], Span(dt.date(2024, 1, 2), dt.date(2026, 6, 2))
    got = akshare().bars("industry_bars", codes, span, dt.datetime(2026, 6, 3, 12, tzinfo=SHANGHAI))
    want = real[real["code"].isin(codes) & (real["date"] >= "2024-01-02")].rename(columns={"date": "session"})
    want = want.assign(volume=want["volume"] * 1e8, amount=want["amount"] * 1e8)
    want = conform(want.sort_values(["session", "code"]), Bars, "real")
    pd.testing.assert_frame_equal(got.frame, want)
    assert want["volume"].isna().any()
    assert got.problems == ()


# Trading days


def test_the_same_trading_days_are_no_news(tushare_service: TushareService) -> None:
    days = client(tushare_service).trading_days(WEEK.first, WEEK.last)
    require_same_sessions(days, *WEEK, "tushare")
    assert sorted(map(str, days)) == DAYS


def test_other_trading_days_are_an_error_that_names_them() -> None:
    days = {dt.date(2025, 1, 6), dt.date(2025, 1, 7), dt.date(2025, 1, 11)}
    with pytest.raises(CalendarError) as told:
        require_same_sessions(days, dt.date(2025, 1, 6), dt.date(2025, 1, 12), "tushare")
    assert "only tushare has 2025-01-11; only ours has 2025-01-08, 2025-01-09, 2025-01-10" in str(told.value)
    assert "nothing was taken over" in str(told.value)


def test_days_beyond_the_end_of_a_list_are_not_compared() -> None:
    require_same_sessions({dt.date(2025, 1, 6), dt.date(2025, 1, 7)}, *WEEK, "akshare")


def test_sina_s_days_come_through_the_library(akshare_library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    days = [dt.date(2025, 1, 6), dt.date(2025, 1, 7)]
    monkeypatch.setattr(akshare_library, "tool_trade_date_hist_sina", lambda: pd.DataFrame({"trade_date": days}))
    assert akshare().trading_days(*WEEK) == set(days)


def test_an_unknown_source_is_told() -> None:
    with pytest.raises(SourceError, match="market source 'yahoo': unknown; there are akshare, csindex, tushare"):
        build_source("yahoo", load_settings())
