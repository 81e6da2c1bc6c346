"""Eastmoney: 7x24 by the sortEnd cursor, and article pages."""

from __future__ import annotations

import re

from tests.sites.web import Answer, Request, Site, dumps, escape, in_json, listed, number, page, paragraphs
from tests.sites.world import Item, World, clock_text

ARTICLE = re.compile(r"/a/\d{8}3(\d{9})\.html")


class Eastmoney(Site):
    """np-weblist and np-listapi (the same list) and finance.eastmoney.com.

    The cursor is a row's realSort: no two rows share one, so no tie is ever cut.
    """

    def __init__(self, world: World) -> None:
        super().__init__(
            world,
            ("np-weblist.eastmoney.com", "np-listapi.eastmoney.com", "finance.eastmoney.com"),
            {"fast": ("eastmoney", "fast", row)},
        )

    def answer(self, request: Request, clock: int) -> Answer | None:
        """See the class."""
        if request.host == "finance.eastmoney.com":
            found = ARTICLE.fullmatch(request.path)
            return self._article(int(found[1]), clock) if found else None
        return self._list(request, clock) if request.path == "/comm/web/getFastNewsList" else None

    def _list(self, request: Request, clock: int) -> Answer:
        query = request.query
        if "sortEnd" not in query or not query.get("req_trace") or query.get("biz") != "web_724":
            return in_json({"code": "0", "message": "参数错误", "data": None})
        channel = self.channel("eastmoney", "fast")
        size = number(query.get("pageSize"), 20, 200)
        cursor = number(query["sortEnd"], 0)
        if cursor:
            seconds = cursor // 1_000_000
            # Rows of the cursor's own second that sort below it come first, then everything older.
            tied = [
                one
                for one in channel.between(clock, seconds, seconds + 1)
                if sort_key(channel.feed.published[one], one) < cursor
            ]
            shown = [*tied, *channel.before(clock, seconds, size)][:size]
        else:
            shown = list(channel.before(clock, None, size))
        last = str(sort_key(channel.feed.published[shown[-1]], shown[-1])) if shown else ""
        before = (
            f'{{"req_trace":{dumps(query["req_trace"])},"code":"1","message":"success","data":{{"sortEnd":"{last}",'
            f'"index":1,"total":null,"size":{len(shown)},"fastNewsList":['
        )
        return listed(before, self.rows("fast", shown, clock), "]}}")

    def _article(self, key: int, clock: int) -> Answer | None:
        item = self.look_up(self.channel("eastmoney", "fast"), key, clock)
        if item is None:
            return None
        words = item.words(clock)
        time = clock_text(item.published, "%Y年%m月%d日 %H:%M")
        return page(
            f'<div class="topbox"><h1>{escape(words.title)}</h1><div class="infos">{time} 来源：示例社</div></div>'
            '<div id="ContentBody"><p>在东方财富看资讯行情, 选东方财富证券一站式开户交易&gt;&gt;</p>'
            f"{paragraphs(words.text)}<p>（文章来源：示例社）</p><p>责任编辑：示例</p></div>",
            title=escape(words.title),
        )


def sort_key(published: int, place: int) -> int:
    """A row's place in the order of the list, in microseconds."""
    return published * 1_000_000 + place % 1_000_000


def row(item: Item, clock: int) -> str:
    """A row of the list."""
    words = item.words(clock)
    order = sort_key(item.published, item.number)
    text = words.text
    if item.odd(51, 5):
        text = f"\u3000\u3000{text}\r\n"
    elif item.odd(52, 3):
        text = f"{text}\x00"
    return dumps(
        {
            "summary": text,
            "code": int(item.key) if item.odd(54, 4) else item.key,
            "titleColor": item.twist % 4,
            "realSort": order if item.odd(53, 30) else order // 1000 if item.odd(55, 4) else str(order),
            "showTime": clock_text(item.published),
            "title": words.title,
            "share": item.twist % 30,
            "pinglun_Num": item.twist % 40,
            "stockList": ["1.600000", "116.00700"],
            "image": [],
        }
    )
