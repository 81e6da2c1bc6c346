"""Wallstreetcn: lives by cursor, and one live by id."""

from __future__ import annotations

from tests.sites.web import Answer, Request, Site, dumps, in_json, listed, number, paragraphs, sentences
from tests.sites.world import Item, World

CHANNELS = frozenset(
    f"{name}-channel" for name in ("global", "a-stock", "us-stock", "hk-stock", "forex", "commodity", "financing")
)
FLAGS = ("is_paid", "is_priced", "is_in_vip_privilege", "is_trial", "is_need_pay", "is_vip")
LIVES = "/apiv1/content/lives"


class Wallstreetcn(Site):
    """The API host and its two doubles. Every channel shows every item; `vip-live` is refused."""

    def __init__(self, world: World) -> None:
        super().__init__(
            world,
            ("api-one.wallstcn.com", "api-one-wscn.awtmt.com", "api-ddc-wscn.awtmt.com", "wallstreetcn.com"),
            {"list": ("wallstreetcn", "lives", row)},
        )

    def answer(self, request: Request, clock: int) -> Answer | None:
        """See the class."""
        if request.host == "wallstreetcn.com":
            return None
        if request.path == LIVES:
            return self._list(request, clock)
        if request.path.startswith(LIVES + "/"):
            return self._one(request.path.removeprefix(LIVES + "/"), clock)
        return None

    def _list(self, request: Request, clock: int) -> Answer:
        query = request.query
        if query.get("channel") not in CHANNELS or query.get("accept") != "live":
            return in_json({"code": 40000, "message": "参数错误", "data": {}})
        channel = self.channel("wallstreetcn", "lives")
        cursor = query.get("cursor", "")
        shown = channel.before(clock, number(cursor, 0) if cursor else None, number(query.get("limit"), 20, 100))
        last = str(channel.feed.published[shown[-1]]) if shown else ""
        rows = self.rows("list", shown, clock)
        return listed('{"code":20000,"message":"OK","data":{"items":[', rows, f'],"next_cursor":"{last}"}}}}')

    def _one(self, key: str, clock: int) -> Answer:
        item = self.look_up(self.channel("wallstreetcn", "lives"), number(key, 0), clock)
        if item is None:
            return in_json({"code": 60301, "message": "内容不存在或已被删除", "data": {}})
        return Answer(body=f'{{"code":20000,"message":"OK","data":{row(item, clock)}}}'.encode())


def row(item: Item, clock: int) -> str:
    """A row of the list."""
    words = item.words(clock)
    first, rest = sentences(words.text)
    split = bool(rest) and item.odd(31, 30)
    shown = first if split else words.text
    kind = item.forbidden
    drift = item.odd(32, 6)
    made: dict[str, object] = {
        "id": item.key if drift else int(item.key),
        "title": f"\u3000{words.title}" if item.titled and item.odd(33, 5) else words.title if item.titled else "",
        "content": paragraphs(shown),
        "content_text": shown[:5] + "\x00" + shown[5:] if item.odd(34, 3) else shown,
        "content_more": f"<p>{rest}</p>" if split else "",
        "content_short": "",
        "display_time": str(item.published) if drift else item.published,
        "score": 2 if item.twist % 5 == 0 else 1,
        "is_priced": False,
        "uri": None if item.odd(35, 5) and not kind.endswith("_uri") else item.url,
        "channels": ["global-channel", "a-stock-channel"],
        "images": [],
        "symbols": [],
        "tags": [],
        "highlight_title": "",
        "reference_title": "",
        "global_more_uri": "",
    }
    if item.odd(36, 20):
        made["author"] = None
    elif not item.odd(37, 10):
        made["author"] = {"display_name": "示例编辑"}
    if kind in FLAGS:
        made[kind] = True
    elif kind == "premium_uri":
        made["is_paid"] = False
    elif kind == "product_id":
        made["product_id"] = 77
    elif kind == "membership_uri":
        made["membership_uri"] = "https://wallstreetcn.com/member/promo/1"
    return dumps(made)
