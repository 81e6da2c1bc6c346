"""Each fault spoils what it is aimed at, as often as it is told to, and nothing else."""

import json
import time
from collections.abc import Callable
from http.client import IncompleteRead

import pytest

from tests.sites.faults import KINDS
from tests.sites.process import Reply, Running, running
from tests.sites.walking import BROWSER
from tests.sites.world import World

HOST = "www.yicai.com"
PATH = "/api/ajax/getbrieflist"


def briefs(server: Running, page: int = 1) -> Reply:
    return server.ask(HOST, f"{PATH}?page={page}&pagesize=30", headers=BROWSER)


def text(reply: Reply) -> str:
    return reply.body.decode()


STATUS: dict[str, int] = {"404": 404, "403": 403, "429": 429, "456": 456, "500": 500, "502": 502, "503": 503}
PAGES: dict[str, str] = {
    "shield": "access denied",
    "captcha": "请输入验证码",
    "app-shell": "Please Enable JavaScript and Cookie",
    "login": "登录后查看",
}
ANSWERS: dict[str, dict[str, object]] = {
    "signature": {"errno": 10012, "msg": "签名错误"},
    "loading": {"errno": 50101, "msg": "小财正在加载中..."},
    "refused": {"code": "0", "message": "", "data": None},
}


@pytest.mark.parametrize(("kind", "status"), STATUS.items())
def test_an_error_status_comes_with_an_html_page(sites: Running, kind: str, status: int) -> None:
    sites.order(faults=[{"kind": kind, "host": HOST}])
    reply = briefs(sites)
    assert (reply.status, reply.headers["content-type"]) == (status, "text/html; charset=utf-8")


def test_too_many_requests_says_how_long_to_wait(sites: Running) -> None:
    sites.order(faults=[{"kind": "429", "host": HOST, "seconds": 7}])
    assert briefs(sites).headers["retry-after"] == "7"


@pytest.mark.parametrize(("kind", "words"), PAGES.items())
def test_a_page_with_200_stands_in_place_of_json(sites: Running, kind: str, words: str) -> None:
    sites.order(faults=[{"kind": kind, "host": HOST}])
    reply = briefs(sites)
    assert (reply.status, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert words in text(reply)


@pytest.mark.parametrize(("kind", "answer"), ANSWERS.items())
def test_an_answer_of_the_site_says_no_with_200(sites: Running, kind: str, answer: dict[str, object]) -> None:
    sites.order(faults=[{"kind": kind, "host": HOST}])
    assert (briefs(sites).status, briefs(sites).json()) == (200, answer)


def test_a_reset_breaks_the_connection(sites: Running) -> None:
    sites.order(faults=[{"kind": "reset", "host": HOST, "times": 1}])
    with pytest.raises(ConnectionError):
        briefs(sites)
    assert briefs(sites).status == 200


def test_a_stall_holds_one_answer_and_no_other_site(sites: Running) -> None:
    sites.order(faults=[{"kind": "slow", "host": HOST, "seconds": 1.0}])
    start = time.perf_counter()
    with pytest.raises(TimeoutError):
        sites.ask(HOST, PATH, timeout=0.1)
    assert sites.ask("www.cls.cn", "/telegraph").status == 200
    assert time.perf_counter() - start < 1.0
    assert len(briefs(sites).json()) == 30


def test_a_truncated_body_is_shorter_than_its_length_says(sites: Running) -> None:
    sites.order(faults=[{"kind": "truncated", "host": HOST}])
    with pytest.raises(IncompleteRead):
        briefs(sites)


def test_broken_json_has_the_length_it_says(sites: Running) -> None:
    sites.order(faults=[{"kind": "broken-json", "host": HOST}])
    reply = briefs(sites)
    assert int(reply.headers["content-length"]) == len(reply.body)
    with pytest.raises(ValueError, match=r"delimiter|Unterminated|unexpected end|Expecting"):
        reply.json()


def test_an_oversized_body_is_the_answer_and_then_spaces(sites: Running) -> None:
    sites.order(faults=[{"kind": "oversized", "host": HOST, "size": 3_000_000}])
    reply = briefs(sites)
    assert "content-length" not in reply.headers
    assert len(reply.body) > 3_000_000
    assert len(reply.json()) == 30


@pytest.mark.parametrize(
    ("host", "target", "says", "is_in"),
    [
        (HOST, f"{PATH}?page=1", "gbk", "utf-8"),
        ("news.10jqka.com.cn", "/today_list/", "utf-8", "gb18030"),
    ],
)
def test_a_wrong_charset_is_declared_and_the_bytes_stay(
    sites: Running, host: str, target: str, says: str, is_in: str
) -> None:
    right = sites.ask(host, target, headers=BROWSER)
    sites.order(faults=[{"kind": "wrong-charset", "host": host}])
    wrong = sites.ask(host, target, headers=BROWSER)
    assert wrong.headers["content-type"].endswith(f"charset={says}")
    assert wrong.body == right.body
    assert wrong.body.decode(is_in)


def test_a_captcha_redirect_leads_to_the_captcha_page_of_the_same_host(sites: Running) -> None:
    sites.order(faults=[{"kind": "captcha-redirect", "host": "www.yuncaijing.com", "path": "/insider"}])
    reply = sites.ask("www.yuncaijing.com", "/insider/list_2026-05-18.html")
    assert (reply.status, reply.headers["location"]) == (
        302,
        "https://www.yuncaijing.com/waf_auth/check_code_page.html",
    )
    assert "请输入验证码" in text(sites.ask("www.yuncaijing.com", "/waf_auth/check_code_page.html"))


def test_a_redirect_away_leads_to_a_host_that_is_no_news_site(sites: Running) -> None:
    sites.order(faults=[{"kind": "redirect-away", "host": HOST}])
    assert briefs(sites).headers["location"] == "https://www.elsewhere.example/landing"
    assert sites.ask("www.elsewhere.example", "/landing").status == 200


def test_a_stuck_cursor_gives_the_first_page_for_ever(sites: Running) -> None:
    sites.order(faults=[{"kind": "stuck-cursor", "host": HOST, "after": 1}])
    first, second, third, fourth = (briefs(sites, page).body for page in (1, 2, 3, 4))
    assert first != second == third == fourth


def test_a_swinging_cursor_comes_back_to_newer_rows(sites: Running) -> None:
    sites.order(faults=[{"kind": "swinging-cursor", "host": HOST}])
    newest = [briefs(sites, page).json()[0]["CreateDate"] for page in range(1, 7)]
    assert newest[0] > newest[1]
    assert newest[2] > newest[3] or newest[3] > newest[4]
    assert set(newest) == {newest[0], newest[1]}


def test_a_stale_feed_knows_nothing_newer_than_its_age(sites: Running) -> None:
    sites.order(faults=[{"kind": "stale", "host": HOST, "seconds": 86_400}])
    assert max(row["CreateDate"] for row in briefs(sites).json()) <= "2026-05-19T15:00:00"


LISTS: dict[str, tuple[str, str, Callable[[str], object]]] = {
    "array": (HOST, f"{PATH}?page=1", json.loads),
    "json": (
        "np-weblist.eastmoney.com",
        "/comm/web/getFastNewsList?biz=web_724&sortEnd=&req_trace=1&pageSize=5",
        lambda body: json.loads(body)["data"]["fastNewsList"],
    ),
    "jsonp": (
        "zhibo.sina.com.cn",
        "/api/zhibo/feed?page=1&zhibo_id=152&callback=cb",
        lambda body: json.loads(body[len("try{cb(") : -len(");}catch(e){};")])["result"]["data"]["feed"]["list"],
    ),
    "script": (
        "stockjs.jrj.com.cn",
        "/share/news/yaowen/yw2026-05-18.js",
        lambda body: json.loads(body[body.index("{") : body.rindex("}") + 1])["newsinfo"],
    ),
    "page": (
        "finance.ifeng.com",
        "/shanklist/1-62-83-/",
        lambda body: json.JSONDecoder().raw_decode(body, body.index("allData = ") + 10)[0]["newsstream"],
    ),
    "mobile": (
        "m.cls.cn",
        "/telegraph",
        lambda body: json.JSONDecoder().raw_decode(body, body.index("DATA__ = ") + 9)[0]["props"]["initialState"][
            "roll_data"
        ],
    ),
}


@pytest.mark.parametrize("form", LISTS)
@pytest.mark.parametrize(("kind", "left"), [("null-list", None), ("empty-list", [])])
def test_a_list_is_null_or_empty_whatever_is_around_it(sites: Running, form: str, kind: str, left: object) -> None:
    host, target, rows = LISTS[form]
    assert rows(text(sites.ask(host, target, headers=BROWSER)))
    sites.order(faults=[{"kind": kind, "host": host}])
    assert rows(text(sites.ask(host, target, headers=BROWSER))) == left


def test_a_fault_that_cannot_spoil_its_page_says_so(sites: Running) -> None:
    sites.order(faults=[{"kind": "null-list", "host": "www.yuncaijing.com"}])
    reply = sites.ask("www.yuncaijing.com", "/insider/list_2026-05-18.html")
    assert reply.status == 500
    assert "holds no list of rows" in text(reply)


def test_drift_renames_a_field_in_every_row(sites: Running) -> None:
    sites.order(faults=[{"kind": "drift", "host": HOST, "name": "CreateDate"}])
    rows = briefs(sites).json()
    assert all("CreateDate" not in row and "CreateDate_v2" in row for row in rows)
    sites.order(clear=True, faults=[{"kind": "drift", "host": "finance.ifeng.com", "name": "docData"}])
    page = sites.truth("fenghuang")["public"][0]["url"].removeprefix("https://finance.ifeng.com")
    assert '"docData":' not in text(sites.ask("finance.ifeng.com", page))


ROBOTS: dict[str, tuple[dict[str, object], int, str]] = {
    "robots-404": ({}, 404, ""),
    "robots-403": ({}, 403, ""),
    "robots-500": ({}, 500, ""),
    "robots-html": ({}, 200, "<!DOCTYPE html>"),
    "robots-disallow": ({"name": "/api/"}, 200, "Disallow: /api/"),
    "robots-delay": ({"seconds": 3}, 200, "Crawl-delay: 3"),
}


@pytest.mark.parametrize("kind", ROBOTS)
def test_robots_files_go_wrong_without_touching_the_news(sites: Running, kind: str) -> None:
    more, status, words = ROBOTS[kind]
    sites.order(faults=[{"kind": kind, "host": HOST, **more}])
    reply = sites.ask(HOST, "/robots.txt")
    assert reply.status == status
    assert words in text(reply)
    assert len(briefs(sites).json()) == 30


def test_every_kind_is_shown_here_to_work() -> None:
    shown = {*STATUS, *PAGES, *ANSWERS, *ROBOTS, "reset", "slow", "truncated", "broken-json", "oversized"}
    shown |= {"wrong-charset", "captcha-redirect", "redirect-away", "stuck-cursor", "swinging-cursor", "stale"}
    assert shown | {"null-list", "empty-list", "drift"} == set(KINDS)


def test_a_fault_without_a_path_leaves_robots_alone(sites: Running) -> None:
    sites.order(faults=[{"kind": "503", "host": "finance.ifeng.com"}])
    assert sites.ask("finance.ifeng.com", "/robots.txt").status == 200
    sites.order(clear=True, faults=[{"kind": "503", "host": "finance.ifeng.com", "path": "/robots.txt"}])
    assert sites.ask("finance.ifeng.com", "/robots.txt").status == 503


def test_a_fault_strikes_its_host_and_path_only(sites: Running) -> None:
    sites.order(faults=[{"kind": "403", "host": "finance.sina.com.cn", "path": "/stock/"}])
    assert briefs(sites).status == 200
    assert sites.ask("feed.mix.sina.com.cn", "/api/roll/get?lid=2516&date=2026-05-18").status == 200
    page = sites.truth("sina", channel="roll")["public"][0]["url"].removeprefix("https://finance.sina.com.cn")
    assert sites.ask("finance.sina.com.cn", page).status == 403


def test_a_fault_begins_after_some_requests_and_ends_after_some_strikes(sites: Running) -> None:
    sites.order(faults=[{"kind": "503", "host": HOST, "after": 2, "times": 3}])
    assert [briefs(sites).status for _ in range(7)] == [200, 200, 503, 503, 503, 200, 200]
    assert sites.told()["faults"][0]["struck"] == 3


def test_a_probable_fault_strikes_about_as_often_and_the_same_under_one_seed(sites: Running) -> None:
    runs = []
    for seed in (1, 1, 2):
        sites.order(clear=True, faults=[{"kind": "503", "host": HOST, "probability": 0.3, "seed": seed}])
        runs.append([briefs(sites).status for _ in range(60)])
    assert runs[0] == runs[1] != runs[2]
    assert 8 <= runs[0].count(503) <= 30


def test_one_fault_may_be_posted_bare(sites: Running) -> None:
    body = json.dumps({"kind": "456", "host": HOST, "times": 1}).encode()
    assert sites.ask("any.host", "/__control__", body=body).status == 200
    assert [briefs(sites).status, briefs(sites).status] == [456, 200]


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "earthquake"},
        {"host": HOST},
        {"kind": "404", "colour": "red"},
        {"kind": "drift", "host": HOST},
        {"kind": "404", "seconds": 3},
    ],
)
def test_a_fault_that_means_nothing_is_refused(sites: Running, wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="fault"):
        sites.order(faults=[wrong])
    assert sites.told()["faults"] == []


def test_the_control_page_tells_who_was_asked_when(sites: Running) -> None:
    start = time.time()
    sites.ask("m.cls.cn", "/telegraph?a=1", headers={"User-Agent": "reader/1"})
    sites.ask("m.cls.cn", "/telegraph?a=2")
    sites.ask(HOST, "/robots.txt")
    told = sites.told()
    assert told["counts"] == {"m.cls.cn": {"/telegraph": 2}, HOST: {"/robots.txt": 1}}
    times = [at for at, *_ in told["requests"]]
    assert start - 1 <= times[0] <= times[1] <= times[2] <= time.time() + 1
    assert told["requests"][0][1:] == ["m.cls.cn", "GET", "/telegraph?a=1", 200, "reader/1"]


def test_faults_can_be_given_at_the_start(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "faults.json"
    file.write_text(json.dumps([{"kind": "502", "host": HOST}]), "utf-8")
    with running("--days", "2", "--faults", str(file)) as server:
        assert briefs(server).status == 502
        assert server.told()["now"] == "2026-05-20T15:00:00+08:00"
        assert World(days=2).truth("yicai").public.keys() == {row["id"] for row in server.truth("yicai")["public"]}
