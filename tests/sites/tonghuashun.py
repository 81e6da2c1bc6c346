"""Tonghuashun: the push list by page number, HTML lists and article pages in GBK."""

from __future__ import annotations

import re

from tests.sites.web import Answer, Request, Site, dumps, escape, listed, number, page, paragraphs, sentences
from tests.sites.world import Item, World, clock_text

LISTS = re.compile(r"/(?:today|cjzx|cjkx|guojicj|jrsc|fssgsxw)_list/(?:index_(\d+)\.shtml)?")
ARTICLE = re.compile(r"/\d{8}/c(\d+)\.shtml")
SIZE = 20
"""Rows a page, whatever is asked."""


class Tonghuashun(Site):
    """news.10jqka.com.cn. Beyond the last page the push list is empty and in order, the HTML lists are 404."""

    def __init__(self, world: World) -> None:
        rules = Answer(200, b"User-agent: *\nDisallow: /admin/\n", "text/plain")
        lists = {"push": ("10jqka", "push", row), "lists": ("10jqka", "lists", list_row)}
        super().__init__(world, ("news.10jqka.com.cn", "basic.10jqka.com.cn"), lists, {"basic.10jqka.com.cn": rules})

    def answer(self, request: Request, clock: int) -> Answer | None:
        """See the class."""
        if request.host != "news.10jqka.com.cn":
            return None
        if request.path == "/tapp/news/push/stock/":
            return self._push(request, clock)
        if found := LISTS.fullmatch(request.path):
            return self._list(max(1, number(found[1], 1)), clock)
        if found := ARTICLE.fullmatch(request.path):
            return self._article(int(found[1]) - 652_200_000, clock)
        return None

    def _push(self, request: Request, clock: int) -> Answer:
        if not request.headers.get("user-agent"):
            return page("<h1>403 Forbidden</h1>", status=403)
        if not request.headers.get("referer"):
            return Answer(400, dumps({"code": "400", "msg": "请求参数错误", "data": []}).encode())
        channel = self.channel("10jqka", "push")
        low, high = channel.bounds(clock)
        place = max(1, number(request.query.get("page"), 1))
        shown = channel.page(clock, (place - 1) * SIZE, SIZE)
        code = "0" if place % 5 == 4 else '"200"'
        after = f'],"filter":[{{"id":"-21101","name":"重要"}}],"total":"{high - low}"}}}}'
        before = f'{{"code":{code},"msg":"success","time":"{clock}","data":{{"list":['
        return listed(before, self.rows("push", shown, clock), after)

    def _list(self, place: int, clock: int) -> Answer | None:
        channel = self.channel("10jqka", "lists")
        shown = channel.page(clock, (place - 1) * SIZE, SIZE)
        if not shown:
            return None
        rows = b"".join(self.rows("lists", shown, clock)).decode()
        return page(f'<div class="list-con"><ul>{rows}</ul></div>', charset="gbk", title="同花顺财经")

    def _article(self, key: int, clock: int) -> Answer | None:
        item = self.look_up(self.channel("10jqka", "lists"), key, clock)
        if item is None:
            return None
        words = item.words(clock)
        return page(
            f'<h2 class="main-title">{escape(words.title)}</h2><div class="info">'
            f'<span id="pubtime_baidu">{clock_text(item.published)}</span><span id="source_baidu">来源：示例社</span>'
            f'</div><div class="main-text article-content" id="contentApp">{paragraphs(words.text)}</div>',
            charset="gbk",
            title=escape(words.title),
        )


def row(item: Item, clock: int) -> str:
    """A row of the push list."""
    words = item.words(clock)
    seq = item.also[0]
    changed = item.modified_at(clock)
    drift = item.odd(61, 5)
    made: dict[str, object] = {
        "id": int(item.key) if drift else item.key,
        "seq": seq,
        "title": words.title,
        "digest": words.text[:9] + "\x00" + words.text[9:] if item.odd(62, 3) else words.text,
        "short": sentences(words.text)[0],
        "url": item.url,
        "appUrl": f"https://news.10jqka.com.cn/m{seq}/",
        "shareUrl": f"https://news.10jqka.com.cn/tapp/news/share/{seq}/",
        "color": "1",
        "import": "3" if item.twist % 9 == 0 else "0",
        "tag": "公告,A股",
        "tags": None if item.odd(63, 5) else [{"id": "34843", "name": "公告"}, {"id": "21103", "name": "A股"}],
        "ctime": item.published if drift else str(item.published),
        "rtime": str(changed if changed is not None else item.published),
        "source": "",
        "picUrl": "",
        "nature": "0",
        "stock": [{"name": "示例科技", "stockCode": "600000", "stockMarket": "17"}],
        "field": [],
        "tagInfo": [{"id": "50000001", "name": "示例标签", "score": "0.71", "type": "0"}],
    }
    if item.edited is None and item.odd(64, 4):
        del made["ctime"]
    return dumps(made)


def list_row(item: Item, clock: int) -> str:
    """A row of the HTML lists; its time has neither year nor seconds."""
    words = item.words(clock)
    return (
        f'<li><span class="arc-title"><a href="{item.url}" title="{escape(words.title)}">{escape(words.title)}</a>'
        f"<span>{clock_text(item.published, '%m月%d日 %H:%M')}</span></span>"
        f'<a class="arc-cont" href="{item.url}">{escape(sentences(words.text)[0])}</a></li>'
    )
