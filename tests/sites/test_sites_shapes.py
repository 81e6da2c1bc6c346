"""Each site answers in its own shape, and refuses what it refuses in its own way."""

import hashlib
import json
import re
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.sites.cls import signature
from tests.sites.process import Reply, Running
from tests.sites.walking import BROWSER, SCRIPTED

EM = {"client": "web", "biz": "web_724", "fastColumn": "102", "sortEnd": "", "pageSize": "5", "req_trace": "1"}


def telegraph(server: Running, **changed: str) -> Reply:
    query = {"app": "CailianpressWeb", "category": "", "last_time": "", "os": "web", "refresh_type": "1", "rn": "20"}
    query |= {"sv": "8.4.6"} | changed
    target = "/v1/roll/get_roll_list?" + urlencode({"sign": signature(query), **query} | changed)
    return server.ask("www.cls.cn", target, headers=BROWSER)


@pytest.mark.parametrize(
    ("query", "sign"),
    [
        ("app=CailianpressWeb&os=web&sv=8.7.9", "b02d8f7bc4c45eeb3e86904203597da2"),
        ("app=CailianpressWeb&os=web&rn=50", "e833b86a1feaf6119652b85fd0c52676"),
        ("appName=CailianpressWeb&category=&hasFirstVipArticle=1&os=web&sv=7.7.5", "a238a5f06453a6fe1e3c33e8f835c19e"),
    ],
)
def test_the_cls_signature_is_that_of_the_public_vectors(query: str, sign: str) -> None:
    assert signature(dict(part.split("=") for part in query.split("&"))) == sign


def test_cls_rows_have_the_fields_of_the_site(sites: Running) -> None:
    rows = telegraph(sites).json()["data"]["roll_data"]
    assert len(rows) in (19, 20)
    fields = "id title brief content ctime modified_time sort_score level is_ad type subjects ad author shareurl"
    assert all(set(fields.split()) <= set(row) for row in rows)


def test_cls_refuses_a_wrong_signature_with_200_and_an_error_number(sites: Running) -> None:
    reply = sites.ask("www.cls.cn", "/v1/roll/get_roll_list?app=CailianpressWeb&rn=20&sign=0", headers=BROWSER)
    assert (reply.status, reply.json()) == (200, {"errno": 10012, "msg": "签名错误"})
    assert "roll_data" not in telegraph(sites, sign=hashlib.md5(b"").hexdigest()).json().get("data", {})


def test_cls_rows_are_strictly_older_than_the_cursor(sites: Running) -> None:
    rows = telegraph(sites).json()["data"]["roll_data"]
    cursor = int(rows[5]["ctime"])
    older = telegraph(sites, last_time=str(cursor)).json()["data"]["roll_data"]
    assert all(int(row["ctime"]) < cursor for row in older)


@pytest.mark.parametrize("headers", [{}, BROWSER])
def test_cls_gives_no_rows_above_fifty_nor_without_a_user_agent(sites: Running, headers: dict[str, str]) -> None:
    query = {"app": "CailianpressWeb", "os": "web", "rn": "51" if headers else "20"}
    target = "/v1/roll/get_roll_list?" + urlencode(query | {"sign": signature(query)})
    assert sites.ask("www.cls.cn", target, headers=headers).json()["data"]["roll_data"] == []


def test_a_cls_text_is_cut_in_content_or_outdated_in_brief_at_times(sites: Running) -> None:
    rows: list[dict[str, Any]] = []
    while len(rows) < 800:
        last = str(rows[-1]["ctime"]) if rows else ""
        rows += telegraph(sites, rn="50", last_time=last).json()["data"]["roll_data"]
    cut = [row for row in rows if row["brief"].startswith(row["content"]) and row["brief"] != row["content"]]
    outdated = [row for row in rows if "更正" in row["content"] and "更正" not in row["brief"]]
    assert cut
    assert outdated
    assert all(int(row["modified_time"]) > int(row["ctime"]) for row in outdated)


def test_the_cls_mobile_page_holds_the_newest_rows_in_a_script(sites: Running) -> None:
    text = sites.ask("m.cls.cn", "/telegraph", headers=BROWSER).body.decode()
    state = json.JSONDecoder().raw_decode(text, text.index("__NEXT_DATA__ = ") + 16)[0]
    newest = telegraph(sites).json()["data"]["roll_data"]
    assert [row["id"] for row in state["props"]["initialState"]["roll_data"]][: len(newest)] == [
        row["id"] for row in newest
    ]


def test_a_cls_detail_page_says_whether_it_is_free(sites: Running) -> None:
    truth = sites.truth("cls")
    for name, free in (("public", True), ("forbidden", False)):
        body = sites.ask("www.cls.cn", f"/detail/{truth[name][0]['id']}", headers=BROWSER).body.decode()
        found = re.search(r'<script id="__NEXT_DATA__" type="application/json">(.*?)</script>', body)
        assert found is not None
        assert json.loads(found[1])["props"]["pageProps"]["articleDetail"]["isFree"] is free


def lives(server: Running, **changed: str) -> Any:
    query = {"channel": "global-channel", "client": "pc", "limit": "20", "cursor": "", "accept": "live"} | changed
    return server.ask("api-one.wallstcn.com", f"/apiv1/content/lives?{urlencode(query)}", headers=BROWSER).json()


def test_wallstreetcn_pages_by_the_cursor_it_names(sites: Running) -> None:
    first = lives(sites, first_page="true")
    assert first["code"] == 20000
    data = first["data"]
    assert int(data["next_cursor"]) == int(data["items"][-1]["display_time"])
    older = lives(sites, cursor=data["next_cursor"], first_page="false")["data"]["items"]
    assert all(int(row["display_time"]) < int(data["next_cursor"]) for row in older)
    assert "items" not in lives(sites, accept="vip-live")["data"]


def test_wallstreetcn_rows_lack_author_or_uri_at_times(sites: Running) -> None:
    rows = lives(sites, limit="100")["data"]["items"]
    assert any("author" not in row for row in rows)
    assert any(row.get("author", 0) is None for row in rows)
    assert any(row["uri"] is None for row in rows)
    assert any(row["title"] == "" for row in rows)


def test_a_deleted_wallstreetcn_live_is_said_to_be_deleted(sites: Running) -> None:
    assert sites.ask("api-one.wallstcn.com", "/apiv1/content/lives/1", headers=BROWSER).json()["code"] == 60301


def test_sina_7x24_tells_its_pages_and_writes_escapes(sites: Running) -> None:
    target = "/api/zhibo/feed?page=2&page_size=20&zhibo_id=152&tag_id=0&dire=f&dpc=1&pagesize=20&type=1"
    reply = sites.ask("zhibo.sina.com.cn", target, headers=BROWSER)
    assert reply.body.isascii()
    feed = reply.json()["result"]["data"]["feed"]
    info = feed["page_info"]
    assert (info["page"], info["pageSize"], info["prePage"], info["nextPage"]) == (2, 20, 1, 3)
    assert info["totalPage"] == -(-info["totalNum"] // 20)
    assert feed["max_id"] == int(feed["list"][0]["id"]) > feed["min_id"]


def test_sina_ext_is_json_in_json_and_broken_in_some_rows(sites: Running) -> None:
    good = broken = 0
    for page in range(1, 5):
        target = f"/api/zhibo/feed?page={page}&page_size=100&zhibo_id=152"
        for row in sites.ask("zhibo.sina.com.cn", target, headers=BROWSER).json()["result"]["data"]["feed"]["list"]:
            try:
                good += json.loads(row["ext"])["docurl"] == row["docurl"]
            except ValueError:
                broken += 1
    assert good > broken > 0


def test_sina_refuses_an_unknown_list(sites: Running) -> None:
    reply = sites.ask("feed.mix.sina.com.cn", "/api/roll/get?pageid=153&lid=7&num=50&page=1", headers=BROWSER)
    assert reply.json()["result"]["status"]["msg"] == "param lid illegal"


def test_sina_roll_by_bounds_is_sina_roll_by_date(sites: Running) -> None:
    base = "/api/roll/get?pageid=153&lid=2516&k=&num=50&page=1"
    by_date = sites.ask("feed.mix.sina.com.cn", f"{base}&date=2026-05-18", headers=BROWSER).json()
    bounds = f"{base}&date=2026-05-18&etime=1779033600&stime=1779120000&ctime=1779120000"
    assert sites.ask("feed.mix.sina.com.cn", bounds, headers=BROWSER).json() == by_date
    assert len(by_date["result"]["data"]) == by_date["result"]["total"] > 5


def test_sina_pages_are_utf8_now_and_gbk_of_old(sites: Running) -> None:
    rows = sites.truth("sina", channel="roll")["public"]
    for row, charset in ((rows[0], "gbk"), (rows[-1], "utf-8")):
        reply = sites.ask(
            "finance.sina.com.cn", row["url"].removeprefix("https://finance.sina.com.cn"), headers=BROWSER
        )
        assert reply.headers["content-type"] == f"text/html; charset={charset}"
        assert row["title"] in reply.body.decode("gb18030" if charset == "gbk" else charset)


@pytest.mark.parametrize("gone", ["sortEnd", "req_trace"])
def test_eastmoney_refuses_a_request_without_its_parameters_with_200(sites: Running, gone: str) -> None:
    query = {name: value for name, value in EM.items() if name != gone}
    reply = sites.ask("np-weblist.eastmoney.com", f"/comm/web/getFastNewsList?{urlencode(query)}", headers=BROWSER)
    assert (reply.status, reply.json()["code"], reply.json()["data"]) == (200, "0", None)


def test_eastmoney_repeats_a_code_within_a_list_and_drifts_in_types(sites: Running) -> None:
    target = f"/comm/web/getFastNewsList?{urlencode(EM | {'pageSize': '200'})}"
    rows = sites.ask("np-listapi.eastmoney.com", target, headers=BROWSER).json()["data"]["fastNewsList"]
    codes = [str(row["code"]) for row in rows]
    assert len(set(codes)) < len(codes)
    assert {len(str(row["realSort"])) for row in rows} == {13, 16}
    assert {type(row["realSort"]) for row in rows} == {int, str}


def push(server: Running, headers: dict[str, str], page: int = 1, size: int = 20) -> Reply:
    target = f"/tapp/news/push/stock/?page={page}&tag=&track=website&pagesize={size}"
    return server.ask("news.10jqka.com.cn", target, headers=headers)


def test_tonghuashun_wants_a_referer_and_a_user_agent(sites: Running) -> None:
    reply = push(sites, {"User-Agent": "x"})
    assert (reply.status, reply.json()["msg"]) == (400, "请求参数错误")
    assert push(sites, {}).status == 403


def test_tonghuashun_pages_are_always_twenty_rows(sites: Running) -> None:
    assert len(push(sites, BROWSER, 1, 400).json()["data"]["list"]) == 20
    beyond = push(sites, BROWSER, 999).json()
    assert beyond["code"] in ("200", 0)
    assert beyond["data"]["list"] == []


def test_tonghuashun_rows_lack_ctime_at_times_but_never_rtime(sites: Running) -> None:
    rows = [row for page in range(1, 20) for row in push(sites, BROWSER, page).json()["data"]["list"]]
    assert any("ctime" not in row for row in rows)
    assert all("rtime" in row for row in rows)


def test_tonghuashun_lists_and_pages_are_gbk_without_year_or_seconds(sites: Running) -> None:
    reply = sites.ask("news.10jqka.com.cn", "/today_list/", headers=BROWSER)
    assert reply.headers["content-type"] == "text/html; charset=gbk"
    with pytest.raises(UnicodeDecodeError):
        reply.body.decode("utf-8")
    assert re.search(r"<span>\d{2}月\d{2}日 \d{2}:\d{2}</span>", reply.body.decode("gb18030"))


def test_jrj_wants_its_product_id(sites: Running) -> None:
    target = "/jrj-news/news/queryNewsFlash"
    assert sites.ask("gateway.jrj.com", target, body=b"{}", headers=BROWSER).json()["data"] is None
    reply = sites.ask("gateway.jrj.com", target, body=b"{}", headers=BROWSER | {"productId": "6000021"}).json()
    assert reply["code"] == 20000
    assert len(reply["data"]["data"]) == 20


def test_jrj_day_files_are_scripts_in_several_wrappers_and_charsets(sites: Running) -> None:
    starts, charsets = set(), set()
    for day in range(1, 21):
        reply = sites.ask("stockjs.jrj.com.cn", f"/share/news/yaowen/yw2026-05-{day:02d}.js?_=1", headers=BROWSER)
        starts.add(reply.body[:9])
        charsets.add(reply.headers["content-type"].partition("charset=")[2])
    assert {b"var yaowe", b'yaowen({"'} <= starts
    assert charsets == {"utf-8", "GBK"}
    assert sites.ask("stockjs.jrj.com.cn", "/share/news/yaowen/yw2026-01-01.js", headers=BROWSER).status == 404


def test_yicai_answers_a_bare_array_with_relative_addresses(sites: Running) -> None:
    rows = sites.ask("www.yicai.com", "/api/ajax/getbrieflist?page=1&pagesize=30&type=0&id=0", headers=BROWSER).json()
    assert len(rows) == 30
    assert all(row["url"].startswith(("/brief/", "/vip/")) for row in rows)
    assert sites.ask("www.yicai.com", "/api/ajax/getbrieflist?page=900&pagesize=30", headers=BROWSER).json() == []


def test_ifeng_tells_the_end_of_its_stream(sites: Running) -> None:
    def more(ident: str, time: int) -> Any:
        target = f"/shanklist/_/getColumnInfo/_/default/{ident}/{time}/20/1-62-83-/getColumnInfoCallback"
        body = sites.ask("shankapi.ifeng.com", f"{target}?callback=back", headers=BROWSER).body.decode()
        return json.loads(body.removeprefix("back(").removesuffix(")"))["data"]

    assert more("000", 1779260400000)["isEnd"] is False
    assert more("000", 1776787200000)["isEnd"] is False
    last = more("000", 1776700900000)
    assert last["isEnd"] is True
    assert last["newsstream"]


def test_ifeng_copies_the_newest_of_cls_with_two_names_and_two_times(sites: Running) -> None:
    rows = sites.ask("shankapi.ifeng.com", "/api/finance/studio/24h/latest/getClsData", headers=BROWSER).json()["data"]
    assert {name for row in rows for name in row} == {"id", "ucmsid", "brief", "ctime"}
    assert len({row["ctime"].isdigit() for row in rows}) == 2
    briefs = {row["brief"] for row in telegraph(sites).json()["data"]["roll_data"]}
    assert len({row["brief"] for row in rows} & briefs) >= 17


def test_yuncaijing_ends_a_day_with_an_error_code_and_wants_a_script_to_ask(sites: Running) -> None:
    target = "/news/get_realtime_news/yapi/ajax.html"
    end = sites.ask("www.yuncaijing.com", target, body=b"page=9&date=2026-05-18", headers=SCRIPTED)
    assert (end.status, end.json()["error_code"]) == (200, "1")
    assert sites.ask("www.yuncaijing.com", target, body=b"page=1&date=2026-05-18", headers=BROWSER).status == 403
    first = sites.ask("www.yuncaijing.com", target, body=b"page=1&date=2026-05-18", headers=SCRIPTED)
    assert "ycj_wafsid" in first.headers["set-cookie"] or "YUNSESSID" in first.headers["set-cookie"]
    times = [int(row["inputtime"]) for row in first.json()["data"]]
    assert times == sorted(times, reverse=True)


def test_yuncaijing_day_pages_have_minutes_only(sites: Running) -> None:
    text = sites.ask("www.yuncaijing.com", "/insider/list_2026-05-18.html", headers=BROWSER).body.decode()
    assert set(re.findall(r"<time>(.*?)</time>", text)) <= {f"{h:02d}:{m:02d}" for h in range(24) for m in range(60)}
    assert 'data-id="16000' in text


@pytest.mark.parametrize(
    ("host", "status", "part"),
    [
        ("wallstreetcn.com", 404, b""),
        ("finance.ifeng.com", 200, b"Allow: /"),
        ("basic.10jqka.com.cn", 200, b"Disallow: /admin/"),
        ("www.cls.cn", 200, b"<!DOCTYPE html>"),
        ("finance.sina.com.cn", 200, b""),
        ("gateway.jrj.com", 404, b""),
    ],
)
def test_robots_files_are_those_that_were_seen(sites: Running, host: str, status: int, part: bytes) -> None:
    reply = sites.ask(host, "/robots.txt")
    assert reply.status == status
    assert part in reply.body


def test_addresses_and_hosts_that_do_not_exist_are_404_pages(sites: Running) -> None:
    for host, target in (("www.cls.cn", "/nodeapi/telegraphList"), ("www.nobody.cn", "/")):
        reply = sites.ask(host, target, headers=BROWSER)
        assert (reply.status, reply.headers["content-type"]) == (404, "text/html; charset=utf-8")
