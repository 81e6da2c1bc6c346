"""Sina: 7x24 by page number over a moving window, rolling news by date, article pages in UTF-8 and GBK."""

from __future__ import annotations

import datetime as dt
import re

from tests.sites.web import (
    Answer,
    Request,
    Site,
    called_back,
    dumps,
    escape,
    in_json,
    listed,
    number,
    page,
    paragraphs,
    sentences,
)
from tests.sites.world import Item, World, clock_text, day_start

WRAPPER = "try{{name}({body});}catch(e){};"
MOST = 100
"""Rows a page at most."""
DOCUMENT = re.compile(r"/stock/\d{4}-\d{2}-\d{2}/doc-inabc(\d{7})\.shtml")


class Sina(Site):
    """zhibo.sina.com.cn, feed.mix.sina.com.cn and finance.sina.com.cn."""

    def __init__(self, world: World) -> None:
        super().__init__(
            world,
            ("zhibo.sina.com.cn", "feed.mix.sina.com.cn", "finance.sina.com.cn"),
            {"live": ("sina", "live", live_row), "roll": ("sina", "roll", roll_row)},
            {"finance.sina.com.cn": Answer(200, b"", "text/plain")},
        )

    def answer(self, request: Request, clock: int) -> Answer | None:
        """See the class."""
        match request.host, request.path:
            case "zhibo.sina.com.cn", "/api/zhibo/feed":
                made = self._live(request, clock)
            case "feed.mix.sina.com.cn", "/api/roll/get":
                made = self._roll(request, clock)
            case "finance.sina.com.cn", path if found := DOCUMENT.fullmatch(path):
                return self._document(int(found[1]), clock)
            case _:
                return None
        name = request.query.get("callback")
        return called_back(made, name, WRAPPER) if name else made

    def _live(self, request: Request, clock: int) -> Answer:
        query = request.query
        if query.get("zhibo_id") != "152":
            return in_json({"result": {"status": {"code": 11, "msg": "zhibo_id error"}, "data": []}})
        channel = self.channel("sina", "live")
        size = max(1, min(number(query.get("page_size") or query.get("pagesize"), 20), MOST))
        place = max(1, number(query.get("page"), 1))
        low, high = channel.bounds(clock)
        shown = channel.page(clock, (place - 1) * size, size)
        last = max(1, -(-(high - low) // size))
        info = {
            "totalPage": last,
            "pageSize": size,
            "prePage": max(1, place - 1),
            "nextPage": min(last, place + 1),
            "firstPage": 1,
            "lastPage": last,
            "totalNum": high - low,
            "pName": "page",
            "page": place,
        }
        first_id = channel.feed.plan.first_id
        ends = {"max_id": first_id + shown[0], "min_id": first_id + shown[-1]} if shown else {"max_id": 0, "min_id": 0}
        start = f'{{"result":{{"status":{{"code":0,"msg":"OK"}},"timestamp":"{stamp(clock)}","data":{{"feed":{{"list":['
        if not shown:
            start, after = start[:-1], f'null,"page_info":{dumps(info)},{dumps(ends)[1:]}}}}}}}'
        else:
            after = f'],"page_info":{dumps(info)},{dumps(ends)[1:]}}}}}}}'
        return listed(start, self.rows("live", shown, clock), after)

    def _roll(self, request: Request, clock: int) -> Answer:
        query = request.query
        lid = query.get("lid", "")
        if lid not in ("2516", "2509", "1686"):
            return in_json({"result": {"status": {"code": 11, "msg": "param lid illegal"}, "data": []}})
        channel = self.channel("sina", "roll")
        ends = [int(query[name]) for name in ("stime", "etime") if query.get(name, "").isdigit()]
        if len(ends) == 2:
            start, end = min(ends), max(ends)
        elif query.get("date"):
            try:
                start = day_start(dt.date.fromisoformat(query["date"]))
            except ValueError:
                return in_json({"result": {"status": {"code": 11, "msg": "param date illegal"}, "data": []}})
            end = start + 86_400
        else:
            start, end = 0, clock + 1
        found = channel.between(clock, start, end)
        size = max(1, number(query.get("num"), 10, 50))
        place = max(1, number(query.get("page"), 1))
        shown = found[(place - 1) * size : place * size]
        before = (
            f'{{"result":{{"status":{{"code":0,"msg":"succ"}},"timestamp":"{stamp(clock)}","total":{len(found)},'
            f'"lid":{lid},"rtime":{clock},"data":['
        )
        return listed(before, self.rows("roll", shown, clock), "]}}")

    def _document(self, key: int, clock: int) -> Answer | None:
        item = self.look_up(self.channel("sina", "roll"), key, clock)
        if item is None:
            return None
        words = item.words(clock)
        time = clock_text(item.published)
        body = (
            f'<h1 class="main-title">{escape(words.title)}</h1><div class="date-source">'
            f'<span class="date">{clock_text(item.published, "%Y年%m月%d日 %H:%M")}</span>'
            f'<a class="source" href="https://finance.sina.com.cn/">示例日报</a></div>'
            '<div class="article" id="artibody"><div id="left_hzh_ad"><p>广告位</p></div>'
            f"{paragraphs(words.text)}<script>var a='<p>x</p>';</script><style>p{{}}</style>"
            '<div class="appendQr_wrap"><p>扫码关注</p></div>'
            '<p class="app-kaihu-qr">开户享福利</p></div>'
        )
        head = f'<meta property="article:published_time" content="{time[:10]}T{time[11:]}+08:00">'
        old = item.published < self.world.clock - self.world.days * 43_200
        return page(body, charset="gbk" if old else "utf-8", title=escape(words.title), head=head)


def stamp(clock: int) -> str:
    """The time of an answer in the site's words."""
    return clock_text(clock, "%a %b %d %H:%M:%S +0800 %Y")


def live_row(item: Item, clock: int) -> str:
    """A row of 7x24."""
    words = item.words(clock)
    text = words.text
    if item.odd(41, 10):
        first, rest = sentences(text)
        text = f"<b>{first}</b>&nbsp;{rest}\u3000"
    elif item.odd(42, 3):
        text = f"{text}\x00"
    changed = item.modified_at(clock)
    drift = item.odd(43, 6)
    ext = dumps({"stocks": [], "docurl": item.url, "docid": f"in{item.key}", "needCMSLink": True}, escaped=True)
    return dumps(
        {
            "id": item.key if drift else int(item.key),
            "zhibo_id": 152,
            "type": 0,
            "rich_text": text,
            "multimedia": "",
            "commentid": f"live:finance-152-{item.key}:0",
            "compere_id": 0,
            "creator": "a@staff.sina.com",
            "mender": "a@staff.sina.com",
            "create_time": clock_text(item.published),
            "update_time": clock_text(changed if changed is not None else item.published),
            "is_need_check": "0",
            "check_status": "1",
            "is_delete": 1 if item.forbidden else 0,
            "top_value": 0,
            "is_focus": 0,
            # A broken ext must not cost the row.
            "ext": ext[:-3] if item.odd(44, 4) else ext,
            "tag": "[{'id': '10', 'name': 'A股'}]" if item.odd(45, 3) else [{"id": "10", "name": "A股"}],
            "like_nums": item.twist % 9,
            "docurl": item.url,
        },
        escaped=True,
    )


def roll_row(item: Item, clock: int) -> str:
    """A row of rolling news."""
    words = item.words(clock)
    changed = item.modified_at(clock)
    made: dict[str, object] = {
        "oid": "",
        "docid": item.key,
        "title": words.title,
        "intro": sentences(words.text)[0],
        "url": item.url,
        "wapurl": item.url.replace("finance.sina.com.cn", "finance.sina.cn").replace(".shtml", ".d.html"),
        "media_name": "示例日报",
        "keywords": "期货,商品",
        "ctime": item.published if item.odd(46, 6) else str(item.published),
        "intime": str(item.published + 90),
        "mtime": str(changed if changed is not None else item.published + 90),
        "images": [],
    }
    return dumps(made, escaped=True)
