"""Requests and answers as the sites see them, and the small pieces that several sites share."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit

from tests.sites.world import Channel, Item, World

REASONS = {
    200: "OK",
    302: "Found",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    429: "Too Many Requests",
    456: "Unrecoverable Error",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
}
JSON = "application/json; charset=utf-8"
SCRIPT = "application/javascript; charset=utf-8"
HTML = "text/html; charset=utf-8"
CALLBACK = re.compile(r"[A-Za-z_$][\w$.]*")


@dataclass(frozen=True)
class Request:
    """One request. Header names are in lower case; `target` is path and query as sent."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""

    @cached_property
    def host(self) -> str:
        """The site asked, without a port."""
        return self.headers.get("host", "").partition(":")[0].lower()

    @cached_property
    def path(self) -> str:
        """The path, decoded."""
        return unquote(urlsplit(self.target).path)

    @cached_property
    def query(self) -> Mapping[str, str]:
        """The query's parameters; of several of one name the last."""
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))

    @cached_property
    def form(self) -> Mapping[str, str]:
        """The fields of a posted form."""
        return {key: values[-1] for key, values in parse_qs(self.body.decode(), keep_blank_values=True).items()}


@dataclass(frozen=True)
class Answer:
    """One answer, and how it is spoilt on its way.

    Attributes:
        stall: seconds of silence before it is sent.
        reset: the connection is broken in place of it.
        cut: so many bytes of the body are sent, then the connection ends, whatever the length header says.
        flood: so many bytes of spaces follow the body, without a length.
    """

    status: int = 200
    body: bytes = b""
    kind: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    stall: float = 0.0
    reset: bool = False
    cut: int | None = None
    flood: int = 0


def dumps(value: Any, *, escaped: bool = False) -> str:
    """Compact JSON; `escaped` writes all but ASCII as \\u escapes."""
    return json.dumps(value, ensure_ascii=escaped, separators=(",", ":"))


def in_json(value: Any, *, escaped: bool = False) -> Answer:
    """A JSON answer."""
    return Answer(body=dumps(value, escaped=escaped).encode())


def page(body: str, *, status: int = 200, charset: str = "utf-8", title: str = "", head: str = "") -> Answer:
    """An HTML page that declares its charset in header and body alike."""
    text = (
        f'<!DOCTYPE html><html><head><meta charset="{charset}"><title>{title}</title>{head}</head>'
        f"<body>{body}</body></html>"
    )
    return Answer(status, text.encode("gb18030" if charset == "gbk" else charset), f"text/html; charset={charset}")


def redirect(to: str) -> Answer:
    """A 302."""
    return Answer(302, b"", HTML, (("Location", to),))


def called_back(answer: Answer, name: str, form: str = "{name}({body})") -> Answer:
    """An answer wrapped for a script, where a callback is asked for; a name that is none is refused."""
    if not CALLBACK.fullmatch(name):
        return Answer(400, b"bad callback", HTML)
    before, _, after = form.replace("{name}", name).partition("{body}")
    return replace(answer, body=before.encode() + answer.body + after.encode(), kind=SCRIPT)


def number(text: str | None, default: int, most: int | None = None) -> int:
    """A parameter as a whole number from 0 on; the default where it is absent or no number."""
    value = int(text) if text and text.strip().isdigit() else default
    return value if most is None else min(value, most)


def escape(text: str) -> str:
    """Text for HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def sentences(text: str) -> tuple[str, str]:
    """The first sentence and the rest."""
    head, mark, rest = text.partition("。")
    return head + mark, rest


def paragraphs(text: str) -> str:
    """Text as HTML paragraphs, with the indents that editors leave."""
    first, rest = sentences(text)
    return f"<p>\u3000\u3000{escape(first)}</p>" + (f"<p>&nbsp;&nbsp;{escape(rest)}</p>" if rest else "")


Writer = Callable[[Item, int], str]
"""Writes an item as a row, as it stands at a simulated time."""


@dataclass
class Site:
    """What all sites have in common: the world, hosts, and rows that are written once and then kept.

    A subclass names its hosts and answers requests. `lists` tells, by a name of its own, the source and channel of
    each of its lists and how a row of it is written; `clock` is simulated time in epoch seconds.
    """

    world: World
    hosts: tuple[str, ...]
    lists: Mapping[str, tuple[str, str, Writer]]
    robots: Mapping[str, Answer] = field(default_factory=dict)
    _rows: dict[tuple[str, int, int], bytes] = field(default_factory=dict)

    def answer(self, request: Request, clock: int) -> Answer | None:
        """The site's answer; None where the address does not exist."""
        raise NotImplementedError

    def channel(self, source: str, name: str) -> Channel:
        """One list of the world."""
        return self.world.channels[source, name]

    def rows(self, name: str, numbers: Sequence[int], clock: int) -> list[bytes]:
        """The rows of some items as the list called `name` shows them."""
        source, channel, write = self.lists[name]
        feed = self.world.channels[source, channel].feed
        found = []
        for one in numbers:
            key = (name, one, feed.version(one, clock))
            row = self._rows.get(key)
            if row is None:
                row = write(self.world.item(feed.name, one), clock).encode()
                self._rows[key] = row
            found.append(row)
        return found

    def warm(self, clock: int) -> None:
        """Writes every row that shows at a simulated time, so that no request has to."""
        for name, (source, channel, _) in self.lists.items():
            lane = self.world.channels[source, channel]
            low, high = lane.bounds(clock)
            self.rows(name, lane.numbers[low:high], clock)

    def look_up(self, channel: Channel, key: int, clock: int) -> Item | None:
        """The item whose id is the feed's first id plus its number, if it is published."""
        place = key - channel.feed.plan.first_id
        if 0 <= place < len(channel.feed.published) and channel.feed.published[place] <= clock:
            return self.world.item(channel.feed.name, place)
        return None


def listed(before: str, rows: Iterable[bytes], after: str) -> Answer:
    """A JSON answer around finished rows."""
    return Answer(body=before.encode() + b",".join(rows) + after.encode())
