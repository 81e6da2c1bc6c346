"""Whatever a site sends in place of what is known, a walk ends in order and says why."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from answering import answer, walked
from scrapy import Request
from scrapy.http import Response

from crawlers.channel import Channel
from crawlers.pages import PageState
from crawlers.spiders.cls import Telegraph
from crawlers.spiders.eastmoney import Columns, Fast
from crawlers.spiders.fenghuang import FlashNews, Stream
from crawlers.spiders.jinrongjie import Flash, Yaowen
from crawlers.spiders.sina import Feed, Roll
from crawlers.spiders.tonghuashun import Push
from crawlers.spiders.wallstreetcn import Lives
from crawlers.spiders.yicai import Brief, News
from crawlers.spiders.yuncaijing import Listed

WALL, SECOND = "2024-03-05 09:31:40", 1709602300
STREAM = {"id": "1", "title": "标题", "url": "//finance.ifeng.com/c/8X", "newsTime": WALL}
DOCUMENT = {"title": "标题", "contentData": {"contentList": [{"type": "text", "data": "<p>文。</p>"}]}}
DETAILS: dict[type[Channel], Any] = {
    Listed: {"data": {"news": {"id": "1", "title": "题", "content": "<p>文。</p>", "inputtime": SECOND}}},
    Stream: {"docData": DOCUMENT},
}
"""Pages of articles that are JSON, or have it inside."""
LISTS: dict[type[Channel], Any] = {
    Feed: {
        "result": {
            "status": {"code": 0, "msg": "OK"},
            "data": {
                "feed": {
                    "list": [{"id": 1, "rich_text": "文。", "create_time": WALL, "update_time": WALL, "ext": "{}"}],
                    "page_info": {"totalPage": 1, "page": 1},
                }
            },
        }
    },
    Roll: {
        "result": {
            "status": {"code": 0, "msg": "succ"},
            "data": [
                {"docid": "1", "title": "题", "intro": "文。", "url": "/x.shtml", "ctime": str(SECOND), "mtime": "0"}
            ],
        }
    },
    Flash: {"code": 20000, "message": "ok", "data": {"data": [{"iiId": 1, "detail": "文。", "makeDate": WALL}]}},
    Yaowen: {"newsinfo": [{"iiid": "1", "title": "题", "detail": "文。", "makedate": WALL, "infourl": "/x"}]},
    Brief: [{"id": 1, "LiveTitle": "题", "LiveContent": "文。", "CreateDate": WALL, "url": "/brief/1.html"}],
    News: [{"NewsID": 1, "NewsTitle": "题", "NewsNotes": "文。", "CreateDate": WALL, "url": "/news/1.html"}],
    Stream: {"newsstream": [STREAM]},
    FlashNews: {"data": [{"id": "1", "brief": "文。", "ctime": SECOND}]},
    Listed: {"error_code": "0", "error_msg": "", "data": [{"id": "1", "title": "题", "inputtime": str(SECOND)}]},
    Telegraph: {"errno": 0, "data": {"roll_data": [{"id": 1, "content": "文。", "ctime": SECOND, "ad": {"id": 0}}]}},
    Lives: {"code": 20000, "data": {"items": [{"id": 1, "content": "文。", "display_time": SECOND, "uri": None}]}},
    Fast: {
        "code": "1",
        "data": {"sortEnd": "", "fastNewsList": [{"code": "1", "summary": "文。", "showTime": WALL, "realSort": "1"}]},
    },
    Columns: {"code": "1", "data": {"list": [{"code": "1", "title": "题", "summary": "文。", "showTime": WALL}]}},
    Push: {"code": "200", "data": {"list": [{"id": "1", "title": "题", "digest": "文。", "ctime": str(SECOND)}]}},
}
ODD = (
    None,
    [],
    {},
    "",
    "x",
    "https://site.example:99999/",
    -1,
    0,
    1.5,
    True,
    [None],
    {"a": []},
    "1e9",
    "\ud800",
    "9" * 25,
    10**30,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all values inside a value."""
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in inside:
        yield from places(part, (*path, name))


def changed(value: Any, path: tuple[Any, ...], put: Any) -> Any:
    """A copy of a value with another value at a path."""
    if not path:
        return put
    made = copy.deepcopy(value)
    inner = made
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = put
    return made


def sent(channel: type[Channel], value: Any, *, detail: bool) -> Response:
    text = json.dumps(value)
    if channel is Stream:
        return answer(f"<html><script>var allData = {text};</script></html>")
    return answer(text if detail or channel is not Yaowen else f"var x = {text};")


def site(channel: type[Channel], listed: Any, opened: Any) -> Callable[[Request], Response]:
    """A site with one page of a list and one of an article."""

    def serve(request: Request) -> Response:
        detail = any(part in request.url for part in ("/c/", "/modal/", "/a/", "/news/1.", "/x"))
        return sent(channel, opened if detail else listed, detail=detail)

    return serve


@pytest.mark.parametrize(
    ("channel", "in_detail"), [*((one, False) for one in LISTS), *((one, True) for one in DETAILS)]
)
def test_case_20_a_walk_ends_in_order_whatever_stands_in_any_field(channel: type[Channel], in_detail: bool):
    whole = DETAILS[channel] if in_detail else LISTS[channel]
    for path in places(whole):
        for put in ODD:
            broken = changed(whole, path, put)

            given = (LISTS[channel], broken) if in_detail else (broken, DETAILS.get(channel, {}))
            walk = walked(channel(), "2024-03-05T09:00", "2024-03-05T10:00", site(channel, *given), most_pages=8)
            assert walk.end.state is not PageState.DEFECT
            for one in walk.articles:
                assert one.source_id
                assert one.title or one.content
                json.dumps(one.__dict__, ensure_ascii=False).encode()


@pytest.mark.parametrize("channel", LISTS)
def test_case_03_a_walk_ends_in_order_whatever_page_comes(channel: type[Channel]):
    chance = random.Random(7)
    whole = json.dumps(LISTS[channel]).encode()
    pages = [b"", b"null", b"0", b'"x"', b"[]", b"{}", b"<", b"<html>", b"\xff\xfe", b"\0" * 9, b"[" * 5000]
    pages += [whole[: chance.randrange(len(whole))] for _ in range(10)]
    for page in pages:
        walk = walked(channel(), "2024-03-05T09:00", "2024-03-05T10:00", lambda _, page=page: raw(page), most_pages=12)
        assert walk.articles == []
        assert walk.end.state is not PageState.OK or walk.end.ends or channel is Yaowen


def raw(body: bytes) -> Response:
    return answer("").replace(body=body)


@pytest.mark.parametrize("channel", LISTS)
def test_the_pages_here_are_right_to_begin_with(channel: type[Channel]):
    right = site(channel, LISTS[channel], DETAILS.get(channel, {}))
    assert walked(channel(), "2024-03-05T09:00", "2024-03-05T10:00", right, most_pages=8).ids == ["1"]
