"""ifeng: column pages with an inline state object, the column's older rows by JSONP, article pages, a copy of CLS."""

from __future__ import annotations

import re

from tests.sites.web import Answer, Request, Site, called_back, dumps, escape, listed, number, page, paragraphs
from tests.sites.world import Item, World, clock_text

COLUMN = re.compile(r"/shanklist/(1-62-83-|1-66-|1-62-305749-|1-69-35250-)/")
MORE = re.compile(
    r"/shanklist/_/getColumnInfo/_/default/([^/]+)/(\d+)/(\d+)/"
    r"(1-62-83-|1-66-|1-62-305749-|1-69-35250-)/getColumnInfoCallback"
)
ARTICLE = re.compile(r"/c/8X(\d{7})aMp")
LATEST = "/api/finance/studio/24h/latest/getClsData"


class Fenghuang(Site):
    """finance.ifeng.com and shankapi.ifeng.com. All columns show the same stream."""

    def __init__(self, world: World) -> None:
        rules = Answer(200, b"User-agent: *\nAllow: /\n", "text/plain")
        lists = {"stream": ("fenghuang", "stream", row), "latest": ("cls", "telegraph", latest_row)}
        super().__init__(world, ("finance.ifeng.com", "shankapi.ifeng.com"), lists, {"finance.ifeng.com": rules})

    def answer(self, request: Request, clock: int) -> Answer | None:
        """See the class."""
        if request.host == "finance.ifeng.com":
            if request.path == "/" or COLUMN.fullmatch(request.path):
                return self._column(clock)
            found = ARTICLE.fullmatch(request.path)
            return self._article(int(found[1]), clock) if found else None
        if request.path == LATEST:
            return self._latest(request, clock)
        found = MORE.fullmatch(request.path)
        return self._more(request, found, clock) if found else None

    def _column(self, clock: int) -> Answer:
        channel = self.channel("fenghuang", "stream")
        rows = b",".join(self.rows("stream", channel.before(clock, None, 20), clock)).decode()
        state = f'{{"nav":[{{"tip":"var x = {{\\"a\\":1}};"}}],"newsstream":[{rows}],"cooperation":[]}}'
        return page(
            f"<div id='root'></div><script>var allData = {state};\nvar adData = {{}};</script>", title="凤凰网财经"
        )

    def _more(self, request: Request, found: re.Match[str], clock: int) -> Answer:
        channel = self.channel("fenghuang", "stream")
        size = max(1, min(int(found[3]), 100))
        seconds = int(found[2]) // 1000
        last = number(found[1], 0) % 10**18 - channel.feed.plan.first_id
        tied = [one for one in channel.between(clock, seconds, seconds + 1) if one < last]
        shown = [*tied, *channel.before(clock, seconds, size)][:size]
        low, _ = channel.bounds(clock)
        end = not shown or shown[-1] <= channel.numbers[low]
        rows = self.rows("stream", shown, clock)
        made = listed(
            '{"code":0,"message":"成功","data":{"newsstream":[', rows, f'],"isEnd":{"true" if end else "false"}}}}}'
        )
        return called_back(made, request.query.get("callback", "getColumnInfoCallback"))

    def _latest(self, request: Request, clock: int) -> Answer:
        channel = self.channel("cls", "telegraph")
        shown = channel.before(clock, None, 20)
        made = listed('{"data":[', self.rows("latest", shown, clock), "]}")
        name = request.query.get("callback")
        return called_back(made, name) if name else made

    def _article(self, key: int, clock: int) -> Answer | None:
        item = self.look_up(self.channel("fenghuang", "stream"), key, clock)
        if item is None:
            return None
        words = item.words(clock)
        time = clock_text(item.published)
        head = f'<meta name="og:time " content="{time}"><meta property="og:title" content="{escape(words.title)}">'
        if item.forbidden:
            return page("<div id='root'></div><script>var allData = {\"videoData\":{}};</script>", head=head)
        text = paragraphs(words.text) + "<p><img data-lazyload='//d.ifengimg.com/x.jpg'></p>"
        if item.odd(91, 8):
            shell = f'<span class="index_timeBref_a1B2c">{time}</span><div class="index_text_D02rM x">{text}</div>'
            return page(f"<h1>{escape(words.title)}</h1>{shell}", title=escape(words.title), head=head)
        parts: list[object] = [{"type": "text", "data": text}]
        if item.odd(92, 20):
            parts.append({"type": "video", "data": {"title": "示例视频；</p>"}})
        state = dumps(
            {
                "note": 'if (a) { b = "}"; };',
                "docData": {
                    "title": words.title,
                    "source": "财联社" if item.copy else "示例社",
                    "newsTime": time,
                    "editorName": "示例",
                    "contentData": {"contentList": parts},
                },
                "keywords": "交易所,新规",
            }
        )
        return page(
            f"<script>var allData = {state};\nvar adData = {{}};</script>", title=escape(words.title), head=head
        )


def row(item: Item, clock: int) -> str:
    """A row of the stream; page addresses have no scheme."""
    words = item.words(clock)
    return dumps(
        {
            "id": item.key,
            "title": words.title,
            "url": item.url.removeprefix("https:"),
            "newsTime": clock_text(item.published),
            "source": "财联社" if item.copy else "示例社",
            "thumbnails": {"image": [{"url": "//d.ifengimg.com/x.jpg", "width": "220", "height": "124"}]},
        }
    )


def latest_row(item: Item, clock: int) -> str:
    """A row of the copy of CLS: id and time come in two forms each."""
    words = item.words(clock)
    name = "ucmsid" if item.odd(93, 50) else "id"
    time = str(item.published) if item.odd(94, 50) else clock_text(item.published)
    return dumps({name: f"cls{item.key}", "brief": words.text, "ctime": time})
