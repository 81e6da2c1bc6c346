"""Politeness as the sites see it: robots.txt, delays, back-off, cookies, and what is never asked."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from email.utils import format_datetime
from typing import Any

import pytest
from engine import Engine, Told
from local_crawls import NOW, crawl_settings
from scrapy.downloadermiddlewares import cookies as scrapy_cookies
from scrapy.http import Response
from scripted_site import Asked, Reply, Scripted, in_json, serving

from crawlers.middlewares import Cookies, retry_after
from crawlers.pages import PageState
from finevolve_pipeline.calendar import SHANGHAI

DAY = dt.date(2026, 5, 19)
HOST = "www.cls.cn"
API = "/v1/roll/get_roll_list"
MIDNIGHT = int(dt.datetime.combine(DAY, dt.time(), SHANGHAI).timestamp())
Crawl = Callable[..., tuple[Told, Scripted]]


def row(number: int, second: int) -> dict[str, Any]:
    """A telegraph as the site sends it."""
    return {"id": number, "title": "题", "content": f"第{number}条", "ctime": second, "is_ad": 0, "type": -1}


def listed(asked: Asked, *, rows: int = 6, page: int = 2) -> Reply:
    """Telegraphs of the day, one an hour, a page of them strictly older than the cursor."""
    cursor = int(asked.query["last_time"])
    every = [row(n, MIDNIGHT - 60 + 3600 * n) for n in range(rows, -1, -1)]
    return in_json({"errno": 0, "data": {"roll_data": [one for one in every if one["ctime"] < cursor][:page]}})


def script(robots: Reply | None = None, answer: Callable[[Asked], Reply] = listed) -> Callable[[Asked], Reply]:
    """A site with a robots.txt (none: 404) and a list.

    It keeps no connection after robots.txt: on a kept one that breaks, HTTP itself asks again at once.
    """
    missing = Reply("no such page", 404, {"Connection": "close"})
    return lambda asked: (robots or missing) if asked.path == "/robots.txt" else answer(asked)


def with_bodies(articles: int, robots: str = "") -> Callable[[Asked], Reply]:
    """Yuncaijing: a page of the day, and the articles' bodies on pages of their own that take a while."""
    rows = (
        f'<li data-id="{n}"><time>09:{n:02}</time><a class="title" title="题{n}"></a></li>' for n in range(articles)
    )
    page = f"<html><ul>{''.join(reversed(list(rows)))}</ul></html>"

    def answer(asked: Asked) -> Reply:
        if asked.path == "/robots.txt":
            return Reply(robots)
        if asked.path.startswith("/news/modal/"):
            key = asked.path.rpartition("/")[2]
            return in_json({"data": {"news": {"id": key, "content": f"正文{key}"}}}, seconds=0.03)
        if asked.path == f"/insider/list_{DAY}.html":
            return Reply(page, headers={"Content-Type": "text/html"})
        return Reply("", 404)

    return answer


@pytest.fixture
def crawl(engine: Engine) -> Crawl:
    """Crawls the telegraphs of one day from a scripted site; gives what was told, and the site."""

    def crawl(said: Callable[[Asked], Reply], **settings: Any) -> tuple[Told, Scripted]:
        with serving(said) as site:
            chosen = crawl_settings(
                site, **{"requests_at_once": 1, "attempts": 3, "back_off_seconds": 0.02, **settings}
            )
            told = engine.crawl("cls", chosen, (DAY, DAY), NOW)
        return told, site

    return crawl


# --- robots.txt --------------------------------------------------------------------------------------------------

OPEN = [
    Reply("not here", 404),
    Reply("<!DOCTYPE html><html><script>Disallow: /</script></html>"),
    Reply("\n  <html>Disallow: /</html>"),
    Reply(""),
    Reply("User-agent: *\nDisallow: /admin/\n"),
    Reply("User-agent: SomeoneElse\nDisallow: /\n"),
    Reply("gone", 410),
]


@pytest.mark.parametrize("robots", OPEN)
def test_case_26_no_rules_or_rules_for_others_allow_all(robots: Reply, crawl: Crawl) -> None:
    told, site = crawl(script(robots))
    assert (told.end.state, len(told.articles)) == (PageState.OK, 6)
    assert site.paths().count("/robots.txt") == 1


@pytest.mark.parametrize(
    "robots",
    [
        "User-agent: *\nDisallow: /v1/roll/\n",
        "\ufeffUser-agent: *\r\nDisallow: /v1/roll/\r\n",
        "User-agent: finevolvepipeline\nDisallow: /\n",
        "User-agent: *\nAllow: /\nDisallow: /v1/roll/get_roll_list?*sign=\n",
    ],
)
def test_case_26_what_robots_txt_disallows_is_not_asked(robots: str, crawl: Crawl) -> None:
    told, site = crawl(script(Reply(robots)))
    assert told.end.state is PageState.DISALLOWED
    assert told.end.reason == f"robots.txt of {HOST} disallows {API}"
    assert site.paths() == ["/robots.txt"]


NOT_TO_BE_HAD = [
    (Reply("", 401), "answers HTTP 401", 1),
    (Reply("", 403), "answers HTTP 403", 1),
    (Reply("", 429, {"Retry-After": "0"}), "answers HTTP 429", 3),
    (Reply("", 456), "answers HTTP 456", 3),
    (Reply("", 500), "answers HTTP 500", 3),
    (Reply("", 503), "answers HTTP 503", 3),
    (Reply(raw=b""), "could not be read: the connection broke", 3),
    (Reply("", 302, {"Location": "https://elsewhere.example/robots.txt"}), "could not be read: .*elsewhere", 1),
    (Reply("", 302, {"Location": "/waf_auth/check_code_page.html"}), "could not be read: .*check page", 1),
]


@pytest.mark.parametrize(("robots", "why", "requests"), NOT_TO_BE_HAD)
def test_case_26_a_robots_txt_that_cannot_be_had_is_a_no_or_a_yes_as_is_set(
    robots: Reply, why: str, requests: int, crawl: Crawl
) -> None:
    told, site = crawl(script(robots))
    assert told.end.state is PageState.DISALLOWED
    assert re.search(f"robots.txt of {HOST} {why}", told.end.reason)
    assert site.paths() == ["/robots.txt"] * requests

    told, site = crawl(script(robots), robots_unavailable="allow")
    assert (told.end.state, len(told.articles)) == (PageState.OK, 6)
    assert {one.host for one in site.asked} == {HOST}


def test_case_26_each_host_is_asked_for_its_rules_once(engine: Engine) -> None:
    def answer(asked: Asked) -> Reply:
        if asked.path == "/robots.txt":
            return Reply("User-agent: *\nDisallow: /\n" if asked.host == "gateway.jrj.com" else "")
        return Reply("", 404)

    with serving(answer) as site:
        told = engine.crawl("jinrongjie", crawl_settings(site), (DAY, DAY), NOW)
    assert told.ends["flash"].state is PageState.DISALLOWED
    assert told.ends["yaowen"].state is PageState.EMPTY
    assert sum(1 for one in site.asked if one.path == "/robots.txt") == 2
    assert {one.host for one in site.asked if one.path != "/robots.txt"} == {"stockjs.jrj.com.cn"}


@pytest.mark.parametrize("autothrottle", [False, True])
def test_case_26_a_crawl_delay_longer_than_ours_is_kept(autothrottle: bool, engine: Engine) -> None:
    with serving(with_bodies(5, robots="User-agent: *\nCrawl-delay: 0.15\n")) as site:
        settings = crawl_settings(site, autothrottle=autothrottle, requests_at_once=3)
        told = engine.crawl("yuncaijing", settings, (DAY, DAY), NOW, ("html",))
    assert len(told.articles) == 5
    assert min(site.gaps("www.yuncaijing.com")) >= 0.15


def test_case_26_a_crawl_delay_shorter_than_ours_changes_nothing(crawl: Crawl) -> None:
    _, site = crawl(script(Reply("User-agent: *\nCrawl-delay: 0.01\n")), delay_seconds=0.1)
    assert min(site.gaps(HOST)) >= 0.1


def test_case_26_a_host_that_wants_longer_delays_than_we_wait_is_left_alone(crawl: Crawl) -> None:
    told, site = crawl(script(Reply("User-agent: *\nCrawl-delay: 86400\n")))
    assert told.end.state is PageState.DISALLOWED
    assert "wants 86400 s between requests (at most 5 are waited)" in told.end.reason
    assert site.paths() == ["/robots.txt"]


# --- Delays, one at a time, and who we are -----------------------------------------------------------------------


def test_no_two_requests_to_a_host_are_closer_than_the_delay(crawl: Crawl) -> None:
    told, site = crawl(script(answer=lambda asked: listed(asked, rows=8)), delay_seconds=0.2)
    assert len(told.articles) == 8
    assert len(site.gaps(HOST)) >= 5
    assert min(site.gaps(HOST)) >= 0.2


@pytest.mark.parametrize(("at_once", "seen"), [(1, 1), (3, 3)])
def test_no_more_requests_are_under_way_than_is_set(at_once: int, seen: int, engine: Engine) -> None:
    with serving(with_bodies(12)) as site:
        settings = crawl_settings(site, requests_at_once=at_once)
        told = engine.crawl("yuncaijing", settings, (DAY, DAY), NOW, ("html",))
    assert len(told.articles) == 12
    assert site.most_at_once == seen


def test_the_user_agent_says_who_we_are_and_where_to_complain(crawl: Crawl) -> None:
    told, site = crawl(script(), contact="keeper@finevolve.example")
    assert told.articles
    agents = {one.headers["user-agent"] for one in site.asked}
    assert agents == {"Mozilla/5.0 (compatible; FinEvolvePipeline/0.1; +keeper@finevolve.example)"}


def test_cookies_that_a_site_sets_are_sent_back_and_none_is_made(crawl: Crawl) -> None:
    told, site = crawl(script(answer=lambda asked: Reply(listed(asked).body, headers={"Set-Cookie": "waf=7; Path=/"})))
    assert told.end.state is PageState.OK
    sent = [one.headers.get("cookie") for one in site.asked]
    assert sent[:2] == [None, None]  # robots.txt and the first page
    assert set(sent[2:]) == {"waf=7"}


# --- Redirects ---------------------------------------------------------------------------------------------------


def redirected(to: str, *, first: Reply | None = None) -> Callable[[Asked], Reply]:
    """A site whose list leads elsewhere, after another answer at first."""
    answers = [first] if first is not None else []
    return script(answer=lambda _: answers.pop() if answers else Reply("", 302, {"Location": to}))


@pytest.mark.parametrize("first", [None, Reply("", 503)], ids=["at once", "after a retry"])
def test_case_03_a_redirect_to_another_host_is_not_followed(first: Reply | None, crawl: Crawl) -> None:
    told, site = crawl(redirected("https://www.elsewhere.example/", first=first))
    assert told.end.state is PageState.FETCH_ERROR
    assert "not followed" in told.end.reason
    assert "www.elsewhere.example" in told.end.reason
    assert {one.host for one in site.asked} == {HOST}


@pytest.mark.parametrize("to", ["/waf_auth/check_code_page.html", "/login?back=1", "https://passport.cls.cn/"])
def test_case_03_a_redirect_to_a_captcha_or_a_login_is_a_refusal(to: str, crawl: Crawl) -> None:
    told, site = crawl(redirected(to))
    assert (told.end.state, site.paths()) == (PageState.BLOCKED, ["/robots.txt", API])
    assert "check page" in told.end.reason


def test_a_redirect_on_the_host_is_followed_and_one_without_end_is_not(crawl: Crawl) -> None:
    def moved(asked: Asked) -> Reply:
        return listed(asked) if asked.path == "/v2" else Reply("", 301, {"Location": asked.target.replace(API, "/v2")})

    assert crawl(script(answer=moved))[0].end.state is PageState.OK
    told, site = crawl(redirected("/round"))
    assert (told.end.state, "max redirections" in told.end.reason) == (PageState.FETCH_ERROR, True)
    assert len(site.asked) < 10


def test_case_03_a_page_that_sends_on_by_itself_is_not_followed(crawl: Crawl) -> None:
    page = '<html><head><meta http-equiv="refresh" content="0;url=/captcha.html"></head></html>'
    told, site = crawl(script(answer=lambda _: Reply(page, headers={"Content-Type": "text/html"})))
    assert (told.end.state, site.paths()) == (PageState.BLOCKED, ["/robots.txt", API])


# --- Back-off ----------------------------------------------------------------------------------------------------


def failing(*answers: Reply) -> Callable[[Asked], Reply]:
    """A site that answers these first, and well after them; the last of them for ever if it is the only one."""
    left = list(answers)
    return script(answer=lambda asked: left.pop(0) if left else listed(asked))


def always(reply: Reply) -> Callable[[Asked], Reply]:
    """A site that has one answer."""
    return script(answer=lambda _: reply)


TROUBLE = [Reply("", status) for status in (403, 408, 429, 456, 500, 502, 503, 504)]
TROUBLE += [
    Reply(raw=b""),
    Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n{"),
    Reply(raw=b"rubbish\r\n\r\n"),
]


@pytest.mark.parametrize("trouble", TROUBLE)
def test_case_25_trouble_that_passes_costs_nothing_but_time(trouble: Reply, crawl: Crawl) -> None:
    told, site = crawl(failing(trouble, trouble))
    assert (told.end.state, len(told.articles)) == (PageState.OK, 6)
    assert site.gaps(HOST)[1] >= 0.02  # back_off_seconds, then doubled
    assert site.gaps(HOST)[2] >= 0.04


@pytest.mark.parametrize("status", [403, 429, 456])
def test_case_25_a_refusal_that_stays_ends_the_source_after_bounded_attempts(status: int, crawl: Crawl) -> None:
    told, site = crawl(always(Reply("", status)))
    assert told.end.state is PageState.BLOCKED
    assert f"refuses: HTTP {status}" in told.end.reason
    assert site.paths() == ["/robots.txt", *[API] * 3]


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (Reply("", 503), "HTTP 503"),
        (Reply(raw=b""), "the connection broke"),
        (Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n{"), "the answer breaks off"),
        (Reply(raw=b"rubbish\r\n\r\n"), "the connection broke"),
        (Reply("{}", seconds=0.5), "no whole answer in time"),
    ],
)
def test_case_25_a_failure_that_stays_is_an_error_after_bounded_attempts(reply: Reply, why: str, crawl: Crawl) -> None:
    told, site = crawl(always(reply), timeout_seconds=0.2)
    assert told.end.state is PageState.FETCH_ERROR
    assert f"https://{HOST}{API}: {why}" in told.end.reason
    assert "sign=" not in told.end.reason
    assert site.paths() == ["/robots.txt", *[API] * 3]


@pytest.mark.parametrize(
    ("address", "why"),
    [("http://127.0.0.1:9", "it refuses the connection"), ("http://255.255.255.255:9", "the connection broke")],
)
def test_case_25_a_site_that_cannot_be_reached_is_an_error(address: str, why: str, engine: Engine) -> None:
    settings = crawl_settings(
        Scripted(9, script()), attempts=2, robots_unavailable="allow", scrapy={"SITES_AT": address}
    )
    told = engine.crawl("cls", settings, (DAY, DAY), NOW)
    assert told.end.state is PageState.FETCH_ERROR
    assert why in told.end.reason


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_case_25_the_pause_that_a_site_asks_for_is_kept(form: str, crawl: Crawl) -> None:
    now = dt.datetime.now(dt.UTC).replace(microsecond=0)
    date = {"Date": format_datetime(now, usegmt=True)}
    asked_for = "1" if form == "seconds" else format_datetime(now + dt.timedelta(seconds=1), usegmt=True)
    told, site = crawl(failing(Reply("", 429, {"Retry-After": asked_for, **date})))
    assert told.end.state is PageState.OK
    assert 0.99 <= site.gaps(HOST)[1] < 3


@pytest.mark.parametrize("status", [429, 503])
def test_case_25_a_site_that_asks_for_a_longer_pause_than_we_wait_is_left_alone(status: int, crawl: Crawl) -> None:
    told, site = crawl(always(Reply("", status, {"Retry-After": "3600"})))
    assert told.end.state is PageState.BLOCKED
    assert "asks for a pause of 3600 s (at most 5 are waited)" in told.end.reason
    assert site.paths() == ["/robots.txt", API]


def test_case_25_our_own_pauses_grow_no_longer_than_the_longest(crawl: Crawl) -> None:
    told, site = crawl(always(Reply("", 503)), attempts=6, longest_wait_seconds=0.06, timeout_seconds=5)
    assert told.end.state is PageState.FETCH_ERROR
    assert len(site.asked) == 7
    assert max(site.gaps(HOST)) < 0.5


MOMENT = dt.datetime(2026, 5, 20, 7, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "120"}, 120.0),
        ({"Retry-After": " 0 "}, 0.0),
        ({"Retry-After": "Wed, 20 May 2026 07:02:00 GMT"}, 120.0),
        ({"Retry-After": "Wed, 20 May 2026 15:02:00 +0800"}, 120.0),
        ({"Retry-After": "Wed, 20 May 2026 06:00:00 GMT"}, 0.0),
        ({"Retry-After": "Wed, 20 May 2026 09:01:00 GMT", "Date": "Wed, 20 May 2026 09:00:00 GMT"}, 60.0),
        ({"Retry-After": "Fri, 20 May 99999 07:02:00 GMT"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-5"}, None),
        ({}, None),
    ],
)
def test_case_25_a_pause_is_read_from_a_number_or_a_date(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(Response("https://site.example/", headers=headers), MOMENT) == seconds


# --- Sizes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("announced", [True, False])
def test_an_answer_too_large_is_cut_and_not_asked_again(announced: bool, crawl: Crawl) -> None:
    length = b"Content-Length: 300000\r\n" if announced else b""
    large = Reply(raw=b"HTTP/1.1 200 OK\r\n" + length + b"\r\n" + b" " * 300_000)
    told, site = crawl(always(large), most_bytes=100_000)
    assert told.end.state is PageState.FETCH_ERROR
    assert "the answer is too large" in told.end.reason
    assert site.paths() == ["/robots.txt", API]


def test_case_03_a_captcha_under_another_status_is_a_refusal_but_a_page_not_found_is_none(crawl: Crawl) -> None:
    page = "<html><script src=/captcha.js></script></html>"
    assert crawl(always(Reply(page, 405)))[0].end.state is PageState.BLOCKED
    assert crawl(always(Reply(page, 404)))[0].end.state is PageState.FETCH_ERROR


def test_domains_of_cookies_are_judged_without_asking_anybody() -> None:
    Cookies()
    assert scrapy_cookies._split_domain.suffix_list_urls == ()
    assert scrapy_cookies._is_public_domain("com.cn")
    assert not scrapy_cookies._is_public_domain("yuncaijing.com")
