"""All nine sites behind one port of 127.0.0.1: the Host header tells which of them is asked.

The wire is spoken here and nowhere else: HTTP/1.1 with kept connections, on asyncio. `GET /__control__` tells what was
asked and when; `POST /__control__` arms faults, moves simulated time, and forgets; `GET /__truth__` tells what a
correct crawl must bring. Both answer under any Host.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.sites.cls import Cls
from tests.sites.eastmoney import Eastmoney
from tests.sites.faults import CAPTCHA, CAPTCHA_PAGE, KINDS, ROBOTS, Armed, Fault
from tests.sites.fenghuang import Fenghuang
from tests.sites.jinrongjie import Jinrongjie
from tests.sites.sina import Sina
from tests.sites.tonghuashun import Tonghuashun
from tests.sites.wallstreetcn import Wallstreetcn
from tests.sites.web import HTML, REASONS, Answer, Request, Site, dumps, in_json, page
from tests.sites.world import CHANNELS, SHANGHAI, Item, World, clock_text
from tests.sites.yicai import Yicai
from tests.sites.yuncaijing import Yuncaijing

SITES: Mapping[str, Callable[[World], Site]] = {
    "cls": Cls,
    "wallstreetcn": Wallstreetcn,
    "sina": Sina,
    "eastmoney": Eastmoney,
    "10jqka": Tonghuashun,
    "jinrongjie": Jinrongjie,
    "yicai": Yicai,
    "fenghuang": Fenghuang,
    "yuncaijing": Yuncaijing,
}
CONTROL = "/__control__"
TRUTH = "/__truth__"
NOT_FOUND = page("<h1>404 Not Found</h1>", status=404, title="404")
PIECE = b" " * 65_536


@dataclass(frozen=True)
class Arrivals:
    """News that comes in while lists are read: `items` of the asked source after every `every` requests."""

    items: int
    every: int

    def __post_init__(self) -> None:
        if self.items < 1 or self.every < 1:
            raise ValueError(f"arrivals {self.items}:{self.every}: both must be 1 or more")


@dataclass(frozen=True)
class Seen:
    """A request that came in: when (epoch seconds of the machine's clock), from whom, and what was said."""

    at: float
    host: str
    method: str
    target: str
    status: int
    agent: str


class Sites:
    """The nine sites, their faults, simulated time, and what they were asked."""

    def __init__(self, world: World, *, arrivals: Arrivals | None = None, faults: Sequence[Fault] = ()) -> None:
        self.world = world
        self.clock = world.clock
        self.arrivals = arrivals
        self.faults = [Armed(fault) for fault in faults]
        self.seen: list[Seen] = []
        self._hosts: dict[str, tuple[str, Site]] = {}
        self._asked = 0
        for source, build in SITES.items():
            made = build(world)
            self._hosts.update(dict.fromkeys(made.hosts, (source, made)))

    def warm(self) -> None:
        """Writes all rows of all lists at once: a slower start for requests that cost the same from the first on."""
        for site in {id(site): site for _, site in self._hosts.values()}.values():
            site.warm(self.clock)

    def answer(self, request: Request) -> Answer:
        """Answers one request and remembers it; control requests are not remembered."""
        if request.path == CONTROL:
            return self._control(request)
        if request.path == TRUTH:
            return self._truth(request)
        made = self._spoilt(request)
        status = 0 if made.reset else made.status
        agent = request.headers.get("user-agent", "")
        self.seen.append(Seen(time.time(), request.host, request.method, request.target, status, agent))
        return made

    def _spoilt(self, request: Request) -> Answer:
        self._move(request)
        for armed in self.faults:
            if armed.strikes(request):
                return KINDS[armed.fault.kind](armed, request, lambda back: self._served(request, back))
        return self._served(request, 0)

    def _served(self, request: Request, back: float) -> Answer:
        _, site = self._hosts.get(request.host, ("", None))
        if request.path == CAPTCHA:
            return CAPTCHA_PAGE
        if site is None:
            return page("<p>another site</p>") if request.host.endswith(".example") else NOT_FOUND
        if request.path == ROBOTS:
            return site.robots.get(request.host, NOT_FOUND)
        return site.answer(request, self.clock - int(back)) or NOT_FOUND

    def _move(self, request: Request) -> None:
        source, _ = self._hosts.get(request.host, ("", None))
        if self.arrivals is None or not source or request.path == ROBOTS:
            return
        self._asked += 1
        if self._asked % self.arrivals.every == 0:
            first = next(iter(CHANNELS[source]))
            self.clock = self.world.channels[source, first].next_arrival(self.clock, self.arrivals.items)

    def _control(self, request: Request) -> Answer:
        if request.method == "POST":
            try:
                self._order(json.loads(request.body))
            except (ValueError, TypeError, AttributeError, KeyError) as error:
                return Answer(400, dumps({"error": str(error)}).encode())
        counts: dict[str, Counter[str]] = {}
        for one in self.seen:
            counts.setdefault(one.host, Counter())[one.target.partition("?")[0]] += 1
        return in_json(
            {
                "now": clock_text(self.clock, "%Y-%m-%dT%H:%M:%S+08:00"),
                "counts": counts,
                "requests": [[o.at, o.host, o.method, o.target, o.status, o.agent] for o in self.seen],
                "faults": [armed.told() for armed in self.faults],
            }
        )

    def _order(self, given: dict[str, Any]) -> None:
        """Obeys a control request: nothing is changed where any part of it is wrong."""
        orders: dict[str, Any] = {"faults": [given]} if "kind" in given else given
        if unknown := set(orders) - {"faults", "clear", "forget", "now", "arrivals"}:
            raise ValueError(f"{sorted(unknown)}: no such order (choose of faults, clear, forget, now, arrivals)")
        armed = [Armed(Fault.read(one)) for one in orders.get("faults", ())]
        now = dt.datetime.fromisoformat(orders["now"]) if "now" in orders else None
        arrivals = Arrivals(**orders["arrivals"]) if orders.get("arrivals") else None
        if orders.get("clear"):
            self.faults = []
        if orders.get("forget"):
            self.seen = []
        if now is not None:
            self.clock = int((now if now.tzinfo else now.replace(tzinfo=SHANGHAI)).timestamp())
        if "arrivals" in orders:
            self.arrivals = arrivals
        self.faults += armed

    def _truth(self, request: Request) -> Answer:
        query = request.query
        try:
            truth = self.world.truth(
                query["source"],
                query.get("channel"),
                start=dt.date.fromisoformat(query["start"]) if "start" in query else None,
                end=dt.date.fromisoformat(query["end"]) if "end" in query else None,
                clock=self.clock,
            )
        except (KeyError, ValueError) as error:
            return Answer(400, dumps({"error": f"{error}: give source, and channel, start, end as needed"}).encode())
        return in_json(
            {
                "public": [told(item, self.clock) for item in truth.public.values()],
                "forbidden": [told(item, self.clock) for item in truth.forbidden.values()],
            }
        )


def told(item: Item, clock: int) -> dict[str, Any]:
    """An item of the truth as JSON; times in Asia/Shanghai."""
    words = item.words(clock)
    changed = item.modified_at(clock)
    form = "%Y-%m-%dT%H:%M:%S+08:00"
    return {
        "source": item.source,
        "id": item.key,
        "also": item.also,
        "published_at": clock_text(item.published, form),
        "modified_at": None if changed is None else clock_text(changed, form),
        "title": words.title,
        "content": words.text,
        "url": item.url,
        "forbidden": item.forbidden,
    }


class Wire(asyncio.Protocol):
    """One connection. Requests are answered one after another, in order."""

    def __init__(self, sites: Sites) -> None:
        self._sites = sites
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._busy = False
        self._flood = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self._transport = None
        self._flood = 0

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        self._buffer += data
        self._work()

    def _work(self) -> None:
        while not self._busy and self._transport is not None:
            try:
                request, self._buffer = parsed(self._buffer)
            except ValueError:
                self._send(Answer(400, b"not a request", HTML, cut=13))
                return
            if request is None:
                return
            try:
                made = self._sites.answer(request)
            except ValueError as error:
                # A fault aimed at a page it cannot spoil must show, not pass for a good answer.
                made = Answer(500, f"{type(error).__name__}: {error}".encode(), HTML)
            if made.stall:
                self._busy = True
                asyncio.get_running_loop().call_later(made.stall, self._resume, made)
            else:
                self._send(made)

    def _resume(self, made: Answer) -> None:
        self._busy = False
        self._send(replace(made, stall=0.0))
        self._work()

    def _send(self, made: Answer) -> None:
        transport = self._transport
        if transport is None:
            return
        if made.reset:
            transport.abort()
            self._transport = None
            return
        head = [f"HTTP/1.1 {made.status} {REASONS[made.status]}", f"Content-Type: {made.kind}"]
        head += [f"{name}: {value}" for name, value in made.headers]
        head.append("Connection: close" if made.flood else f"Content-Length: {len(made.body)}")
        start = "\r\n".join((*head, "\r\n")).encode()
        transport.write(start + (made.body if made.cut is None else made.body[: made.cut]))
        if made.cut is not None:
            transport.close()
        elif made.flood:
            self._busy = True
            self._flood = made.flood
            transport.set_write_buffer_limits(4 * len(PIECE))
            self._pour()

    def _pour(self) -> None:
        """Sends the flood piece by piece, no faster than it is read."""
        transport = self._transport
        if transport is None:
            return
        if self._flood <= 0:
            transport.close()
            return
        if transport.get_write_buffer_size() < 4 * len(PIECE):
            piece = PIECE[: self._flood]
            self._flood -= len(piece)
            transport.write(piece)
            asyncio.get_running_loop().call_soon(self._pour)
        else:
            asyncio.get_running_loop().call_later(0.002, self._pour)


def parsed(buffer: bytes) -> tuple[Request | None, bytes]:
    """The first whole request of a buffer and what follows it; None while it is not all there."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        return None, buffer
    lines = buffer[:end].decode("latin-1").split("\r\n")
    method, target, _ = lines[0].split(" ", 2)
    headers = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    size = int(headers.get("content-length", "0"))
    start = end + 4
    if len(buffer) < start + size:
        return None, buffer
    return Request(method, target, headers, buffer[start : start + size]), buffer[start + size :]


async def serve(sites: Sites, port: int = 0) -> asyncio.Server:
    """Starts listening on 127.0.0.1; port 0 takes a free one."""
    return await asyncio.get_running_loop().create_server(lambda: Wire(sites), "127.0.0.1", port, backlog=256)
