"""Yicai: briefs by page number, a bare array."""

from __future__ import annotations

from tests.sites.web import Answer, Request, Site, dumps, listed, number, sentences
from tests.sites.world import Item, World, clock_text


class Yicai(Site):
    """www.yicai.com. At most 100 rows a page; beyond the last page the array is empty."""

    def __init__(self, world: World) -> None:
        super().__init__(world, ("www.yicai.com",), {"brief": ("yicai", "brief", row)})

    def answer(self, request: Request, clock: int) -> Answer | None:
        """See the class."""
        if request.path != "/api/ajax/getbrieflist":
            return None
        channel = self.channel("yicai", "brief")
        size = max(1, number(request.query.get("pagesize"), 30, 100))
        place = max(1, number(request.query.get("page"), 1))
        shown = channel.page(clock, (place - 1) * size, size)
        return listed("[", self.rows("brief", shown, clock), "]")


def row(item: Item, clock: int) -> str:
    """A row of the list."""
    words = item.words(clock)
    first, rest = sentences(words.text)
    text = f"<b>{first}</b>{rest}" if item.odd(81, 40) else words.text
    if item.odd(82, 5):
        text = f"<p>&nbsp;{text}</p>"
    time = clock_text(item.published)
    key = int(item.key)
    return dumps(
        {
            "id": item.key if item.odd(83, 6) else key,
            "LiveID": key,
            "LiveTitle": words.title,
            "LiveContent": text,
            "CreateDate": f"{time[:10]}T{time[11:]}",
            "datekey": time[:10].replace("-", "."),
            "hm": time[11:16],
            "indexTitle": words.title,
            "newcontent": words.text,
            "url": item.url.removeprefix("https://www.yicai.com"),
            "ShareUrl": f"https://m.yicai.com/brief/{key}.html",
            "LiveImages": "",
            "VideoID": 0,
            "VideoThumb": "",
            "topics": "行业,数据",
            "Stocks": None,
            "IsImportant": False,
            "important": False,
            "istop": False,
            "CountVotes": item.twist % 5,
            "NewsHot": item.twist % 100,
            "LiveWeight": 0,
        }
    )
