"""JRJ: flash by the makeDate cursor, and one script file of news a day."""

from __future__ import annotations

import datetime as dt
import json
import re

from tests.sites.web import SCRIPT, Answer, Request, Site, dumps, in_json, listed, page
from tests.sites.world import SHANGHAI, Item, World, clock_text, day_start

DAY = re.compile(r"/share/news/yaowen/yw(\d{4}-\d{2}-\d{2})\.js")
SIZE = 20
WRAPPERS = ("var yaowen = {body};", "yaowen({body});", "var yaowen={body}", "yaowen({body})")


class Jinrongjie(Site):
    """gateway.jrj.com and stockjs.jrj.com.cn. Days without news have no file; the older half is in GBK."""

    def __init__(self, world: World) -> None:
        super().__init__(
            world,
            ("gateway.jrj.com", "stockjs.jrj.com.cn"),
            {"flash": ("jinrongjie", "flash", row), "yaowen": ("jinrongjie", "yaowen", day_row)},
        )

    def answer(self, request: Request, clock: int) -> Answer | None:
        """See the class."""
        if request.host == "gateway.jrj.com":
            return self._flash(request, clock) if request.path == "/jrj-news/news/queryNewsFlash" else None
        found = DAY.fullmatch(request.path)
        return self._day(found[1], clock) if found else None

    def _flash(self, request: Request, clock: int) -> Answer:
        if request.method != "POST":
            return page("<h1>405</h1>", status=405)
        if request.headers.get("productid") != "6000021":
            return in_json({"code": 40003, "message": "productId error", "data": None})
        try:
            asked = json.loads(request.body)
            date = asked.get("makeDate") or ""
            limit = int(dt.datetime.fromisoformat(date).replace(tzinfo=SHANGHAI).timestamp()) if date else None
        except (ValueError, AttributeError, TypeError):
            return in_json({"code": 40001, "message": "参数错误", "data": None})
        channel = self.channel("jinrongjie", "flash")
        shown = channel.before(clock, limit, SIZE)
        rows = self.rows("flash", shown, clock)
        return listed('{"code":20000,"message":"success","data":{"total":200,"data":[', rows, "]}}")

    def _day(self, text: str, clock: int) -> Answer | None:
        try:
            start = day_start(dt.date.fromisoformat(text))
        except ValueError:
            return None
        channel = self.channel("jinrongjie", "yaowen")
        shown = channel.between(clock, start, start + 86_400)
        if not shown:
            return None
        rows = b",".join(self.rows("yaowen", shown, clock)).decode()
        wrapper = WRAPPERS[start // 86_400 % len(WRAPPERS)]
        body = wrapper.replace("{body}", f'{{"newsinfo":[{rows}]}}')
        if start < self.world.clock - self.world.days * 43_200:
            return Answer(200, body.encode("gb18030"), "application/javascript; charset=GBK")
        return Answer(200, body.encode(), SCRIPT)


def row(item: Item, clock: int) -> str:
    """A row of the flash list."""
    words = item.words(clock)
    path = item.url.removeprefix("https://24h.jrj.com.cn/")
    return dumps(
        {
            "iiId": item.key if item.odd(71, 6) else int(item.key),
            "title": words.title if item.titled else "",
            "detail": sent(item, words.text),
            "summary": "",
            "makeDate": clock_text(item.published),
            "pcInfoUrl": item.url,
            "infoUrl": "https://apppage.jrj.com.cn/news/24h/detail.shtml",
            "minfoUrl": f"https://m.jrj.com.cn/madapter/24h/{path}",
            "channelNum": "003",
            "infoCls": "001001",
            "imgUrl": "",
            "picThumb": "",
            "imageUrls": [],
            "paperMediaSource": "东方财富" if item.copy else "示例数据",
            "isRed": item.twist % 2,
            "hotValue": str(item.twist % 100),
            "readNum": str(item.twist % 1000),
            "stockList": None if item.odd(72, 20) else [{"stockId": "1600000", "stockCode": "600000"}],
        }
    )


def day_row(item: Item, clock: int) -> str:
    """A row of a day's file; its names are in lower case."""
    words = item.words(clock)
    return dumps(
        {
            "iiid": item.key,
            "title": words.title if item.titled else "",
            "detail": sent(item, words.text),
            "makedate": clock_text(item.published),
            "infourl": item.url,
            "mInfoUrl": "",
            "appInfoUrl": "",
            "infosource": "东方财富" if item.copy else "示例社",
        }
    )


def sent(item: Item, text: str) -> str:
    """A text with the marks the site leaves in it."""
    if item.odd(73, 8):
        return f"\u3000\u3000{text}&nbsp;<br/>"
    return f"{text}\x00" if item.odd(74, 3) else text
