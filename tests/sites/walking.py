"""A plain client that walks every list of the nine sites to its end: what is served, read by the letter of the shapes.

It is the tests' own eye and shares nothing with the crawlers.
"""

from __future__ import annotations

import datetime as dt
import html
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from lxml import html as lxml_html  # type: ignore[import-untyped]

from tests.sites.cls import signature
from tests.sites.process import Running
from tests.sites.world import SHANGHAI

BROWSER = {"User-Agent": "Mozilla/5.0 (compatible; reader)", "Referer": "https://www.example/"}
SCRIPTED = BROWSER | {"X-Requested-With": "XMLHttpRequest"}


@dataclass(frozen=True)
class Read:
    """An item as read: first publication in epoch seconds, title and text without markup, and whether a flag is up."""

    published: int
    title: str
    text: str
    flagged: bool = False


Found = dict[str, Read]


def wall(text: str) -> int:
    """Asia/Shanghai wall time as epoch seconds."""
    return int(dt.datetime.fromisoformat(text).replace(tzinfo=SHANGHAI).timestamp())


def plain(text: str) -> str:
    """Text without tags, entities and NUL."""
    return html.unescape(re.sub(r"<[^>]*>", "", text)).replace("\x00", "")


def lead(text: str) -> str:
    """What stands in 【】 at the start, or nothing."""
    found = re.match(r"\s*【(.*?)】", text)
    return found[1] if found else ""


def unwrapped(text: str) -> Any:
    """The JSON inside a script."""
    return json.JSONDecoder().raw_decode(text, re.search(r"\{(?!cb)|\[", text).start())[0]  # type: ignore[union-attr]


def cls(server: Running, size: int = 20) -> Found:
    """The telegraph list, by cursor with one second of overlap."""
    found: Found = {}
    last, newest = "", True
    while newest:
        query = {"app": "CailianpressWeb", "category": "", "last_time": last, "os": "web", "refresh_type": "1"}
        query |= {"rn": str(size), "sv": "8.4.6"}
        reply = server.ask(
            "www.cls.cn", "/v1/roll/get_roll_list?" + urlencode(query | {"sign": signature(query)}), headers=BROWSER
        )
        rows = reply.json()["data"]["roll_data"]
        newest = any(str(row["id"]) not in found for row in rows)
        for row in rows:
            text = max(plain(row["content"]), plain(row["brief"]), key=lambda one: len(re.sub(r"\s", "", one)))
            ad = row["ad"]
            paid = row["type"] == 20015 or lead(text) in ("盘中宝", "电报解读")
            flagged = bool(row["is_ad"] or ad["id"] or ad["url"] or paid)
            found[str(row["id"])] = Read(int(row["ctime"]), row["title"] or lead(text), text, flagged)
            last = str(int(row["ctime"]) + 1)
    return found


PAID = ("is_paid", "is_priced", "is_in_vip_privilege", "is_trial", "is_need_pay", "is_vip", "product_id")


def wallstreetcn(server: Running) -> Found:
    """Lives, by cursor with one second of overlap."""
    found: Found = {}
    cursor, newest = "", True
    while newest:
        query = urlencode(
            {"channel": "global-channel", "client": "pc", "limit": 20, "cursor": cursor, "accept": "live"}
        )
        data = server.ask("api-one.wallstcn.com", f"/apiv1/content/lives?{query}", headers=BROWSER).json()["data"]
        newest = any(str(row["id"]) not in found for row in data["items"])
        for row in data["items"]:
            uri = row["uri"] or ""
            flagged = any(row.get(name) for name in (*PAID, "membership_uri"))
            flagged = flagged or "/premium/" in uri or "/member/" in uri
            text = plain(row["content"] + row["content_more"])
            found[str(row["id"])] = Read(int(row["display_time"]), row["title"], text, flagged)
        cursor = str(int(data["next_cursor"]) + 1) if data["next_cursor"] else ""
    return found


def sina_live(server: Running) -> Found:
    """7x24, page by page until the list is null."""
    found: Found = {}
    for page in range(1, 10_000):
        target = f"/api/zhibo/feed?page={page}&page_size=20&zhibo_id=152&tag_id=0&dire=f&dpc=1&pagesize=20&type=1"
        reply = server.ask("zhibo.sina.com.cn", f"{target}&callback=cb", headers=BROWSER)
        text = reply.body.decode()
        assert text.startswith("try{cb({")
        assert text.endswith(");}catch(e){};")
        rows = json.JSONDecoder().raw_decode(text, len("try{cb("))[0]["result"]["data"]["feed"]["list"]
        if rows is None:
            break
        for row in rows:
            words = plain(row["rich_text"])
            found[str(row["id"])] = Read(wall(row["create_time"]), lead(words), words, bool(row["is_delete"]))
    return found


def days(first: dt.date, last: dt.date) -> Iterator[dt.date]:
    """Both ends included."""
    for offset in range((last - first).days + 1):
        yield first + dt.timedelta(days=offset)


FIRST, LAST = dt.date(2026, 4, 21), dt.date(2026, 5, 20)


def sina_roll(server: Running) -> Found:
    """Rolling news day by day, each with its page."""
    found: Found = {}
    for day in days(FIRST, LAST):
        for page in range(1, 100):
            query = {"pageid": 153, "lid": 2516, "k": "", "num": 50, "page": page, "date": day.isoformat()}
            reply = server.ask("feed.mix.sina.com.cn", f"/api/roll/get?{urlencode(query)}", headers=BROWSER)
            rows = reply.json()["result"]["data"]
            if not rows:
                break
            for row in rows:
                if row["docid"] in found:
                    continue
                path = row["url"].removeprefix("https://finance.sina.com.cn")
                reply = server.ask("finance.sina.com.cn", path, headers=BROWSER)
                charset = "gb18030" if "gbk" in reply.headers["content-type"] else "utf-8"
                tree = lxml_html.fromstring(reply.body.decode(charset))
                time = tree.xpath("//meta[@property='article:published_time']/@content")[0]
                assert int(dt.datetime.fromisoformat(time).timestamp()) == int(row["ctime"])
                parts = tree.xpath("//*[@id='artibody']/p[not(contains(@class, 'app-kaihu-qr'))]")
                text = "".join(part.text_content() for part in parts)
                found[row["docid"]] = Read(int(row["ctime"]), row["title"], plain(text))
    return found


def eastmoney(server: Running) -> Found:
    """7x24, by sortEnd."""
    found: Found = {}
    cursor = ""
    while True:
        query = {"client": "web", "biz": "web_724", "fastColumn": 102, "sortEnd": cursor, "pageSize": 50}
        target = "/comm/web/getFastNewsList?" + urlencode(query | {"req_trace": "1709602300000"})
        data = server.ask("np-weblist.eastmoney.com", target, headers=BROWSER).json()["data"]
        for row in data["fastNewsList"]:
            found[str(row["code"])] = Read(wall(row["showTime"]), row["title"], plain(row["summary"]))
        if not data["sortEnd"]:
            return found
        cursor = data["sortEnd"]


def tonghuashun_push(server: Running) -> Found:
    """The push list, page by page until one is empty."""
    found: Found = {}
    for page in range(1, 10_000):
        target = f"/tapp/news/push/stock/?page={page}&tag=&track=website&pagesize=20"
        rows = server.ask("news.10jqka.com.cn", target, headers=BROWSER).json()["data"]["list"]
        if not rows:
            break
        for row in rows:
            time = int(row["ctime"] if "ctime" in row else row["rtime"])
            found[str(row["id"])] = Read(time, row["title"], plain(row["digest"]))
    return found


def tonghuashun_lists(server: Running) -> Found:
    """The HTML lists and article pages in GBK; ids are the push list's."""
    found: Found = {}
    for page in range(1, 10_000):
        reply = server.ask("news.10jqka.com.cn", f"/today_list/index_{page}.shtml", headers=BROWSER)
        if reply.status == 404:
            break
        tree = lxml_html.fromstring(reply.body.decode("gb18030"))
        for link in tree.cssselect(".list-con ul li .arc-title a"):
            path = link.get("href").removeprefix("https://news.10jqka.com.cn")
            body = server.ask("news.10jqka.com.cn", path, headers=BROWSER).body.decode("gb18030")
            article = lxml_html.fromstring(body)
            time = article.cssselect("#pubtime_baidu")[0].text
            text = article.cssselect(".article-content")[0].text_content()
            key = int(re.search(r"/c(\d+)\.", path)[1]) - 652_200_000  # type: ignore[index]
            found[str(key)] = Read(wall(time), link.text, plain(text))
    return found


def jinrongjie_flash(server: Running) -> Found:
    """Flash news, by makeDate with one second of overlap."""
    found: Found = {}
    asked: dict[str, str] = {}
    newest = True
    while newest:
        reply = server.ask(
            "gateway.jrj.com",
            "/jrj-news/news/queryNewsFlash",
            body=json.dumps(asked).encode(),
            headers=BROWSER | {"Content-Type": "application/json", "productId": "6000021"},
        )
        rows = reply.json()["data"]["data"]
        newest = any(str(row["iiId"]) not in found for row in rows)
        for row in rows:
            text = plain(row["detail"])
            found[str(row["iiId"])] = Read(wall(row["makeDate"]), row["title"] or lead(text), text)
            later = dt.datetime.fromisoformat(row["makeDate"]) + dt.timedelta(seconds=1)
            asked = {"makeDate": later.isoformat(sep=" ")}
    return found


def jinrongjie_yaowen(server: Running) -> Found:
    """The files of all days; a day without a file has no news."""
    found: Found = {}
    for day in days(FIRST, LAST):
        reply = server.ask("stockjs.jrj.com.cn", f"/share/news/yaowen/yw{day}.js?_=1", headers=BROWSER)
        if reply.status == 404:
            continue
        text = reply.body.decode("gb18030" if "GBK" in reply.headers["content-type"] else "utf-8")
        for row in unwrapped(text)["newsinfo"]:
            words = plain(row["detail"])
            found[row["iiid"]] = Read(wall(row["makedate"]), row["title"] or lead(words), words)
    return found


def yicai(server: Running) -> Found:
    """Briefs, page by page until one is empty."""
    found: Found = {}
    for page in range(1, 10_000):
        rows = server.ask("www.yicai.com", f"/api/ajax/getbrieflist?page={page}&pagesize=30&type=0&id=0").json()
        if not rows:
            break
        for row in rows:
            flagged = row["url"].startswith("/vip")
            found[str(row["id"])] = Read(wall(row["CreateDate"]), row["LiveTitle"], plain(row["LiveContent"]), flagged)
    return found


def fenghuang(server: Running) -> Found:
    """The column page, its older rows by JSONP, and every page of an article."""
    found: Found = {}
    page = server.ask("finance.ifeng.com", "/shanklist/1-62-83-/", headers=BROWSER).body.decode()
    rows = json.JSONDecoder().raw_decode(page, page.index("allData = ") + 10)[0]["newsstream"]
    end = False
    while rows:
        for row in rows:
            if row["id"] not in found:
                found[row["id"]] = _ifeng_article(server, row)
        if end:
            break
        last = rows[-1]
        target = (
            f"/shanklist/_/getColumnInfo/_/default/{last['id']}/{wall(last['newsTime']) * 1000}/50/1-62-83-/"
            "getColumnInfoCallback?callback=getColumnInfoCallback&_=1"
        )
        body = server.ask("shankapi.ifeng.com", target, headers=BROWSER).body.decode()
        assert body.startswith("getColumnInfoCallback({")
        data = unwrapped(body)["data"]
        rows, end = data["newsstream"], data["isEnd"]
    return found


def _ifeng_article(server: Running, row: Mapping[str, Any]) -> Read:
    assert row["url"].startswith("//finance.ifeng.com/c/")
    page = server.ask(
        "finance.ifeng.com", row["url"].removeprefix("//finance.ifeng.com"), headers=BROWSER
    ).body.decode()
    time = wall(row["newsTime"])
    if "allData = " not in page:
        parts = lxml_html.fromstring(page).xpath("//div[contains(@class, 'index_text_')]//p")
        return Read(time, row["title"], plain("".join(part.text_content() for part in parts)))
    state = json.JSONDecoder().raw_decode(page, page.index("allData = ") + 10)[0]
    if "docData" not in state:
        return Read(time, row["title"], "", flagged=True)
    assert wall(state["docData"]["newsTime"]) == time
    parts = [part["data"] for part in state["docData"]["contentData"]["contentList"] if part["type"] == "text"]
    return Read(time, state["docData"]["title"], plain("".join(parts)))


def yuncaijing(server: Running) -> Found:
    """The posted list of each day until its end, and each body."""
    found: Found = {}
    for day in days(FIRST, LAST):
        for page in range(1, 100):
            body = urlencode({"page": page, "date": day.isoformat()}).encode()
            reply = server.ask(
                "www.yuncaijing.com", "/news/get_realtime_news/yapi/ajax.html", body=body, headers=SCRIPTED
            )
            answer = reply.json()
            if str(answer["error_code"]) != "0":
                break
            for row in answer["data"]:
                key = str(row["id"])
                if key not in found:
                    reply = server.ask("www.yuncaijing.com", f"/news/modal/{key}", headers=SCRIPTED)
                    news = reply.json()["data"]["news"]
                    found[key] = Read(int(row["inputtime"]), row["title"], plain(news["content"]))
    return found


WALKS: Mapping[tuple[str, str], Callable[[Running], Found]] = {
    ("cls", "telegraph"): cls,
    ("wallstreetcn", "lives"): wallstreetcn,
    ("sina", "live"): sina_live,
    ("sina", "roll"): sina_roll,
    ("eastmoney", "fast"): eastmoney,
    ("10jqka", "push"): tonghuashun_push,
    ("10jqka", "lists"): tonghuashun_lists,
    ("jinrongjie", "flash"): jinrongjie_flash,
    ("jinrongjie", "yaowen"): jinrongjie_yaowen,
    ("yicai", "brief"): yicai,
    ("fenghuang", "stream"): fenghuang,
    ("yuncaijing", "list"): yuncaijing,
}
"""How each channel is walked."""
