"""CLS: the signed telegraph list by cursor, the unsigned newest page, detail pages."""

from __future__ import annotations

import hashlib

from tests.sites.web import HTML, Answer, Request, Site, dumps, escape, in_json, listed, number, page, paragraphs
from tests.sites.world import Item, World

SHELL = "<div id='app'></div><script src='/static/app.js'></script>"


def signature(query: dict[str, str]) -> str:
    """The list's checksum over its other parameters."""
    text = "&".join(f"{key}={value}" for key, value in sorted(query.items()))
    return hashlib.md5(hashlib.sha1(text.encode()).hexdigest().encode()).hexdigest()


class Cls(Site):
    """www.cls.cn and m.cls.cn."""

    def __init__(self, world: World) -> None:
        super().__init__(
            world,
            ("www.cls.cn", "m.cls.cn"),
            {"list": ("cls", "telegraph", row)},
            {"www.cls.cn": page(SHELL, title="财联社")},
        )

    def answer(self, request: Request, clock: int) -> Answer | None:
        """See the class."""
        if request.host == "m.cls.cn":
            return self._newest(clock) if request.path == "/telegraph" else None
        if request.path == "/v1/roll/get_roll_list":
            return self._list(request, clock)
        if request.path.startswith("/detail/"):
            return self._detail(request.path.removeprefix("/detail/"), clock)
        return page(SHELL, title="财联社") if request.path in ("/telegraph", "/sitemap.xml") else None

    def _list(self, request: Request, clock: int) -> Answer:
        query = dict(request.query)
        sign = query.pop("sign", "")
        if sign != signature(query):
            return in_json({"errno": 10012, "msg": "签名错误"})
        size = number(query.get("rn"), 20)
        if not request.headers.get("user-agent") or size > 50:
            return listed('{"errno":0,"msg":"","data":{"roll_data":[', (), "]}}")
        channel = self.channel("cls", "telegraph")
        last = query.get("last_time", "")
        shown = channel.before(clock, number(last, 0) if last else None, size)
        published = channel.feed.published
        if len(shown) > 1 and shown[-1] % 7 == 3 and published[shown[0]] != published[shown[-2]]:
            # One row fewer than asked, as the site does at times, is no end of the list.
            shown = shown[:-1]
        start = (
            '{"error":null,"data":{"roll_data":['
            if shown and shown[0] % 11 == 5
            else ('{"errno":0,"msg":"","data":{"roll_data":[')
        )
        return listed(start, self.rows("list", shown, clock), "]}}")

    def _newest(self, clock: int) -> Answer:
        channel = self.channel("cls", "telegraph")
        rows = self.rows("list", channel.before(clock, None, 20), clock)
        state = '{"props":{"initialState":{"roll_data":[' + b",".join(rows).decode() + ']}},"page":"/telegraph"}'
        return page(f"<div id='__next'></div><script>__NEXT_DATA__ = {state};module={{}}</script>", title="电报")

    def _detail(self, key: str, clock: int) -> Answer | None:
        item = self.look_up(self.channel("cls", "telegraph"), number(key, 0), clock)
        if item is None:
            return None
        words = item.words(clock)
        state = {
            "props": {
                "pageProps": {
                    "articleDetail": {
                        "id": int(item.key),
                        "title": words.title if item.titled else "",
                        "brief": words.text,
                        "content": paragraphs(words.text),
                        "ctime": item.published,
                        "author": {"name": "示例记者"},
                        "images": [],
                        "isFree": not item.forbidden,
                        "column": None,
                    }
                }
            },
            "page": "/detail",
        }
        script = f'<script id="__NEXT_DATA__" type="application/json">{dumps(state)}</script>'
        return Answer(200, page(script, title=escape(words.title)).body, HTML)


def row(item: Item, clock: int) -> str:
    """A row of the list."""
    words = item.words(clock)
    text = brief = words.text
    content = text
    if item.modified_at(clock) is not None and item.odd(27, 50):
        # The brief keeps the words of the first version.
        brief = item.first.text
    elif item.odd(21, 4):
        content = text[: len(text) * 2 // 3]
    elif item.odd(22, 5):
        content = f"\u3000\u3000{text}\u3000"
    elif item.odd(23, 3):
        content = text[:12] + "\x00" + text[12:]
    kind = item.forbidden
    changed = item.modified_at(clock)
    drift = item.odd(24, 6)
    made: dict[str, object] = {
        "id": item.key if drift else int(item.key),
        "title": words.title if item.titled else "",
        "brief": brief,
        "content": content,
        "ctime": str(item.published) if drift else item.published,
        "modified_time": changed if changed is not None else item.published,
        "sort_score": item.published,
        "level": "ABC"[item.twist % 3],
        "bold": 0,
        "recommend": 0,
        "type": 20015 if kind == "vip_type" else -1,
        "is_ad": 1 if kind == "is_ad" else 0,
        "ad": {
            "id": 9001 if kind == "ad_id" else 0,
            "url": "https://promo.example/1" if kind == "ad_url" else "",
        },
        "author": "",
        "images": [],
        "subjects": None if item.odd(25, 30) else [{"subject_id": 1103, "subject_name": "A股盘面直播"}],
        "shareurl": f"https://api3.cls.cn/share/article/{item.key}?os=web&sv=8.4.6&app=CailianpressWeb",
        "reading_num": item.twist % 90_000,
        "comment_num": item.twist % 7,
        "share_num": item.twist % 50,
    }
    if not item.odd(26, 5):
        made["stock_list"] = [{"StockID": "sh600000", "name": "示例股份", "RiseRange": 1.2}]
    return dumps(made)
