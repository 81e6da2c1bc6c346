"""Yuncaijing: posted lists by day and page, HTML lists by day, bodies by id, and the captcha page of its guard."""

from __future__ import annotations

import datetime as dt
import re

from tests.sites.web import Answer, Request, Site, dumps, escape, in_json, listed, number, page, paragraphs, sentences
from tests.sites.world import Item, World, clock_text, day_start

DAY = re.compile(r"/insider/list_(\d{4}-\d{2}-\d{2})\.html")
MODAL = re.compile(r"/news/modal/(\d+)")
ARTICLE = re.compile(r"/news/id_(\d+)\.html")
SIZE = 20
COOKIES = tuple(("Set-Cookie", f"{name}=local; Path=/") for name in ("ycj_wafsid", "PHPSESSID", "YUNSESSID"))


class Yuncaijing(Site):
    """www.yuncaijing.com. Requests of scripts must say that they are; bodies are longer than the list's text."""

    def __init__(self, world: World) -> None:
        super().__init__(
            world,
            ("www.yuncaijing.com",),
            {"list": ("yuncaijing", "list", row), "day": ("yuncaijing", "list", day_row)},
        )

    def answer(self, request: Request, clock: int) -> Answer | None:
        """See the class."""
        if request.path == "/news/get_realtime_news/yapi/ajax.html":
            return self._list(request, clock)
        if found := DAY.fullmatch(request.path):
            return self._day(found[1], clock)
        if found := MODAL.fullmatch(request.path):
            return self._modal(request, int(found[1]), clock)
        if found := ARTICLE.fullmatch(request.path):
            return self._article(int(found[1]), clock)
        if request.path == "/news/get_push_detail/yapi/api_v5.html":
            return self._push(request, clock)
        return None

    def _list(self, request: Request, clock: int) -> Answer:
        if request.method != "POST":
            return page("<h1>405</h1>", status=405)
        if not scripted(request):
            return page("<h1>403 Forbidden</h1>", status=403)
        day = parsed(request.form.get("date", ""))
        place = number(request.form.get("page"), 0)
        if day is None or place < 1:
            return in_json({"error_code": "2", "error_msg": "参数错误", "data": []})
        channel = self.channel("yuncaijing", "list")
        shown = channel.between(clock, day, day + 86_400)[(place - 1) * SIZE : place * SIZE]
        if not shown:
            return in_json({"error_code": "1", "error_msg": "没有更多数据", "data": []})
        code = "0" if place % 3 == 2 else '"0"'
        rows = self.rows("list", shown, clock)
        made = listed(f'{{"error_code":{code},"error_msg":"","data":[', rows, "]}")
        return Answer(200, made.body, made.kind, COOKIES)

    def _day(self, text: str, clock: int) -> Answer | None:
        day = parsed(text)
        if day is None:
            return None
        channel = self.channel("yuncaijing", "list")
        shown = channel.between(clock, day, day + 86_400)
        rows = b"".join(self.rows("day", shown, clock)).decode()
        return page(f"<ul>{rows}</ul>", title="云财经")

    def _modal(self, request: Request, key: int, clock: int) -> Answer | None:
        if not scripted(request):
            return page("<h1>403 Forbidden</h1>", status=403)
        item = self.look_up(self.channel("yuncaijing", "list"), key, clock)
        if item is None:
            return None
        words = item.words(clock)
        news = {
            "id": item.key,
            "title": words.title,
            "description": sentences(words.text)[0],
            "content": paragraphs(words.text),
            "inputtime": str(item.published),
        }
        return in_json({"data": {"news": news}})

    def _article(self, key: int, clock: int) -> Answer | None:
        item = self.look_up(self.channel("yuncaijing", "list"), key, clock)
        if item is None:
            return None
        words = item.words(clock)
        return page(
            f"<h1>{escape(words.title)}</h1><time>{clock_text(item.published)}</time>{paragraphs(words.text)}",
            title=escape(words.title),
        )

    def _push(self, request: Request, clock: int) -> Answer:
        item = self.look_up(self.channel("yuncaijing", "list"), number(request.form.get("id"), 0), clock)
        if item is None:
            return in_json({"error_code": "1", "error_msg": "没有数据", "data": []})
        words = item.words(clock)
        data = {
            "id": item.key,
            "title": words.title,
            "description": words.text,
            "time": str(item.published),
            "push_live": "0",
        }
        return in_json({"error_code": "0", "error_msg": "", "data": data})


def scripted(request: Request) -> bool:
    """Whether a request says that a script sends it."""
    return request.headers.get("x-requested-with", "") == "XMLHttpRequest"


def parsed(text: str) -> int | None:
    """The first second of a day written YYYY-MM-DD."""
    try:
        return day_start(dt.date.fromisoformat(text))
    except ValueError:
        return None


def row(item: Item, clock: int) -> str:
    """A row of the posted list."""
    words = item.words(clock)
    return dumps(
        {
            "id": int(item.key) if item.odd(95, 6) else item.key,
            "title": words.title,
            "description": sentences(words.text)[0],
            "inputtime": item.published if item.odd(96, 6) else str(item.published),
            "thmtags": "示例题材 示例概念",
            "stktags": None if item.odd(97, 10) else [{"code": "600000"}],
            "thm_related": [{"stock": [{"code": "600000"}]}],
        }
    )


def day_row(item: Item, clock: int) -> str:
    """A row of a day's page; its time has minutes only."""
    words = item.words(clock)
    title = escape(words.title)
    return (
        f'<li data-id="{item.key}"><time>{clock_text(item.published, "%H:%M")}</time>'
        f'<a class="title" href="/news/id_{item.key}.html" title="{title}">{title}</a>'
        f'<span class="des">{escape(sentences(words.text)[0])}</span></li>'
    )
