"""What goes wrong at the sites, at all nine of them: no list passes for read that was not, and little is asked."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from engine import Engine, Told
from local_crawls import NOW, SOURCES, crawl_settings

from crawlers.pages import PageState
from tests.sites.process import Running, running

DAYS = (dt.date(2026, 5, 18), dt.date(2026, 5, 19))
MONTH = (dt.date(2026, 4, 22), DAYS[1])
MIDNIGHT = "2026-05-20T00:00:00+08:00"
LISTS = {
    "yuncaijing": "/news/get_realtime_news",
    "fenghuang": "/shanklist",
    "sina": "/api/zhibo",
    "eastmoney": "/comm/web",
    "10jqka": "/tapp/",
    "jinrongjie": "/jrj-news",
    "wallstreetcn": "/apiv1",
    "yicai": "/api/ajax",
    "cls": "/v1/roll",
}
"""The list that is read first at each source."""

Crawl = Callable[..., Told]


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running("--days", "30", "--seed", "7", "--now", NOW.isoformat()) as sites:
        yield sites


@pytest.fixture
def sites(server: Running) -> Running:
    server.order(clear=True, forget=True, now=NOW.isoformat(), arrivals=None)
    return server


@pytest.fixture
def crawl(engine: Engine, sites: Running) -> Crawl:
    """Crawls two days of a source while one thing goes wrong."""

    def crawl(source: str, kind: str = "", *, days: tuple[dt.date, dt.date] = DAYS, **fault: Any) -> Told:
        settings = fault.pop("settings", {})
        channels = fault.pop("channels", ())
        sites.order(clear=True, forget=True, faults=[{"kind": kind, **fault}] if kind else [])
        quick = {"requests_at_once": 1, "attempts": 2, "back_off_seconds": 0.01, "most_pages": 300, **settings}
        return engine.crawl(source, crawl_settings(sites, **quick), days, NOW, channels)

    return crawl


def asked(sites: Running, path: str = "/") -> list[str]:
    """Addresses that were asked for, robots.txt left out."""
    targets = [target for _, _, _, target, *_ in sites.told()["requests"]]
    return [target for target in targets if target.startswith(path) and target != "/robots.txt"]


EVERYWHERE = {
    "404": (PageState.FETCH_ERROR, "HTTP 404"),
    "403": (PageState.BLOCKED, "refuses: HTTP 403"),
    "429": (PageState.BLOCKED, "refuses: HTTP 429"),
    "456": (PageState.BLOCKED, "refuses: HTTP 456"),
    "500": (PageState.FETCH_ERROR, "HTTP 500"),
    "reset": (PageState.FETCH_ERROR, "the connection broke"),
    "truncated": (PageState.FETCH_ERROR, "the answer breaks off"),
    "oversized": (PageState.FETCH_ERROR, "the answer is too large"),
    "broken-json": (PageState.UNSUPPORTED, "no JSON"),
    "captcha": (PageState.BLOCKED, "a page of refusal"),
    "captcha-redirect": (PageState.BLOCKED, "sends to a check page"),
    "login": (PageState.BLOCKED, "a page of refusal"),
    "shield": (PageState.BLOCKED, "a page of refusal"),
    "app-shell": (PageState.JAVASCRIPT_REQUIRED, "needs JavaScript"),
    "redirect-away": (PageState.FETCH_ERROR, "not followed"),
}
"""What goes wrong, and what is told of it."""


@pytest.mark.parametrize("source", SOURCES)
def test_case_03_whatever_a_site_answers_the_list_is_left_with_its_state_and_a_reason(
    source: str, crawl: Crawl, sites: Running
) -> None:
    wrong = []
    for kind, (state, reason) in EVERYWHERE.items():
        more = {"size": 300_000} if kind == "oversized" else {"seconds": 0} if kind == "429" else {}
        told = crawl(source, kind, settings={"most_bytes": 200_000}, **more)
        end = next(iter(told.ends.values()))
        fine = (end.state, end.reached, end.ends) == (state, MIDNIGHT, False) and reason.lower() in end.reason.lower()
        if not (fine or (source == "fenghuang" and kind == "broken-json" and "is no JSON" in end.reason)):
            wrong.append(f"{kind}: {end}")
        if told.articles and source != "jinrongjie":
            wrong.append(f"{kind}: {len(told.articles)} articles")
        if state is PageState.BLOCKED and len(set(asked(sites))) != 1:
            wrong.append(f"{kind}: asked on after a refusal: {asked(sites)}")
        if len(asked(sites)) > (16 if source == "jinrongjie" else 4):
            wrong.append(f"{kind}: {len(asked(sites))} requests")
        if hosts := {host for _, host, *_ in sites.told()["requests"]} - set(sites_of(source)):
            wrong.append(f"{kind}: asked {hosts}")
    assert wrong == []


def sites_of(source: str) -> set[str]:
    """Hosts that a source may be asked at."""
    from resources.news_sites import spiders

    return {host for channel in spiders()[source].channels for host in channel.hosts}


SHAPES = {
    "yuncaijing": "inputtime",
    "fenghuang": "newsTime",
    "sina": "create_time",
    "eastmoney": "code",
    "10jqka": "list",
    "jinrongjie": "makeDate",
    "wallstreetcn": "display_time",
    "yicai": "CreateDate",
    "cls": "ctime",
}
"""A field that each site cannot be read without."""


@pytest.mark.parametrize("source", SOURCES)
def test_case_20_a_field_that_is_renamed_is_a_changed_shape_and_named(source: str, crawl: Crawl) -> None:
    end = next(iter(crawl(source, "drift", path=LISTS[source], name=SHAPES[source]).ends.values()))
    assert end.state is PageState.UNSUPPORTED
    assert "shape changed" in end.reason
    assert SHAPES[source] in end.reason
    assert end.reached == MIDNIGHT


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("kind", ["null-list", "empty-list"])
def test_case_10_a_list_without_rows_never_makes_a_day_complete(kind: str, source: str, crawl: Crawl) -> None:
    end = next(iter(crawl(source, kind, path=LISTS[source]).ends.values()))
    assert end.reached == MIDNIGHT
    assert end.reason
    if kind == "null-list":
        assert end.state in (PageState.EMPTY, PageState.UNSUPPORTED)
    else:
        assert end.state is PageState.EMPTY or end.ends


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("kind", ["stuck-cursor", "swinging-cursor"])
def test_case_05_a_cursor_that_is_ignored_or_does_not_fall_stops_the_walk(
    kind: str, source: str, crawl: Crawl, sites: Running
) -> None:
    end = next(iter(crawl(source, kind, path=LISTS[source], days=MONTH).ends.values()))
    assert end.state is (
        PageState.UNSUPPORTED if source == "fenghuang" else PageState.FETCH_ERROR  # its first page has another shape
    )
    assert end.reached > f"{MONTH[0]}T00:00:00+08:00"
    assert len(asked(sites, LISTS[source])) <= 15


def test_case_02_a_wrong_signature_is_told_and_loading_is_asked_again_a_few_times(crawl: Crawl, sites: Running) -> None:
    end = crawl("cls", "signature").end
    assert (end.state, len(asked(sites))) == (PageState.FETCH_ERROR, 1)
    assert "10012" in end.reason
    assert "签名错误" in end.reason
    end = crawl("cls", "loading").end
    assert (end.state, len(asked(sites))) == (PageState.FETCH_ERROR, 3)
    assert "50101" in end.reason
    assert crawl("cls", "loading", times=2).end.state is PageState.OK


@pytest.mark.parametrize("kind", ["broken-json", "null-list", "500", "reset", "truncated", "429", "456"])
def test_case_25_one_bad_answer_among_good_ones_costs_no_article(kind: str, crawl: Crawl) -> None:
    whole = crawl("cls").articles
    told = crawl("cls", kind, after=1, times=1, **({"seconds": 0} if kind == "429" else {}))
    assert told.end.state is PageState.OK
    assert told.articles == whole
    assert len(whole) > 40


def test_case_18_a_charset_that_is_misnamed_changes_no_text(crawl: Crawl) -> None:
    for source in ("cls", "fenghuang", "yuncaijing"):
        whole = crawl(source).articles
        assert crawl(source, "wrong-charset").articles == whole


def test_a_slow_site_is_not_waited_for_longer_than_is_set(crawl: Crawl, sites: Running) -> None:
    end = crawl("wallstreetcn", "slow", seconds=2, settings={"timeout_seconds": 0.2}).end
    assert end.state is PageState.FETCH_ERROR
    assert "no whole answer in time" in end.reason
    assert len(asked(sites)) == 2


@pytest.mark.parametrize(("at_once", "most"), [(1, 4), (8, 11)])
@pytest.mark.parametrize("kind", ["captcha", "captcha-redirect"])
def test_case_03_after_a_captcha_in_place_of_a_body_nothing_more_is_asked(
    kind: str, at_once: int, most: int, crawl: Crawl, sites: Running
) -> None:
    settings = {"requests_at_once": at_once}
    end = crawl("yuncaijing", kind, path="/news/modal", after=3, settings=settings).end
    assert end.state is PageState.BLOCKED
    assert len(asked(sites, "/news/modal")) <= most
    assert len(asked(sites, LISTS["yuncaijing"])) == 2  # the newest page, and the page of these articles


def test_case_25_a_site_that_serves_lists_but_no_bodies_is_not_asked_for_all_of_them(
    crawl: Crawl, sites: Running
) -> None:
    end = crawl("yuncaijing", "500", path="/news/modal").end
    assert end.state is PageState.FETCH_ERROR
    assert "10 articles in a row could not be fetched" in end.reason
    assert len(asked(sites, "/news/modal")) == 20  # two attempts each


def test_bodies_that_cannot_be_fetched_are_counted_by_day_and_the_others_come(crawl: Crawl) -> None:
    whole = {article.source_id for article in crawl("yuncaijing").articles}
    told = crawl("yuncaijing", "500", path="/news/modal", after=4, times=6)
    missing: Counter[str] = Counter()
    for page in told.pages:
        missing.update(page.missing)
    assert dict(missing) == {"2026-05-19": 3}
    assert len(whole) - len(told.articles) == 3
    assert told.end.state is PageState.OK


def test_case_32_a_place_from_which_nothing_can_be_seen_is_an_error_and_not_a_day_without_news(crawl: Crawl) -> None:
    for source in SOURCES:
        told = crawl(source, "404")
        assert next(iter(told.ends.values())).state is PageState.FETCH_ERROR, source
        assert all(end.reached == MIDNIGHT for end in told.ends.values()), source


@pytest.mark.parametrize("source", SOURCES)
def test_case_09_of_a_stale_feed_the_newest_item_is_told(source: str, crawl: Crawl) -> None:
    end = next(iter(crawl(source, "stale", path=LISTS[source], seconds=2 * 86_400).ends.values()))
    assert end.state is PageState.OK
    assert "2026-05-17T15:00" < end.newest <= "2026-05-18T15:00:00+08:00"


def test_case_09_a_probe_tells_how_old_the_newest_item_is(engine: Engine, sites: Running) -> None:
    sites.order(faults=[{"kind": "stale", "seconds": 3 * 86_400}])
    told = engine.crawl("cls", crawl_settings(sites), (DAYS[1], DAYS[1]), NOW, probe=True)
    assert told.probe.state is PageState.OK
    assert dt.datetime.fromisoformat(told.probe.newest) <= NOW - dt.timedelta(days=3)
    assert len(asked(sites)) == 1


def test_case_26_a_path_that_robots_txt_disallows_stops_that_list_only(crawl: Crawl, sites: Running) -> None:
    told = crawl("yuncaijing", "robots-disallow", name="/news/get_realtime_news", channels=("list", "html"))
    assert told.ends["list"].state is PageState.DISALLOWED
    reason = "robots.txt of www.yuncaijing.com disallows /news/get_realtime_news/yapi/ajax.html"
    assert told.ends["list"].reason == reason
    assert told.ends["html"].state is PageState.OK
    assert {page.channel for page in told.pages if page.articles} == {"html"}
    assert asked(sites, "/news/get_realtime_news") == []
    assert len([one for one in sites.told()["requests"] if one[3] == "/robots.txt"]) == 1


def test_case_26_bodies_that_robots_txt_disallows_stop_their_list(crawl: Crawl, sites: Running) -> None:
    end = crawl("yuncaijing", "robots-disallow", name="/news/modal").end
    assert end.state is PageState.DISALLOWED
    assert "disallows /news/modal/" in end.reason
    assert asked(sites, "/news/modal") == []
