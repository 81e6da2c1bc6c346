"""What can go wrong at a site, as named kinds that spoil single answers.

A fault is a JSON object; the fields are those of `Fault`. A fault without a path leaves /robots.txt alone: to spoil
it, name the path or use one of the kinds called robots-….
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from tests.sites.web import HTML, Answer, Request, dumps, in_json, page, redirect
from tests.sites.world import mixed

ROBOTS = "/robots.txt"
CAPTCHA = "/waf_auth/check_code_page.html"
AWAY = "https://www.elsewhere.example/landing"
LISTS = frozenset(("roll_data", "items", "list", "fastNewsList", "data", "newsinfo", "newsstream", "lives"))
"""Names under which the sites keep their rows."""
SECONDS = {"429": 30.0, "slow": 30.0, "stale": 259_200.0, "robots-delay": 5.0}
"""Seconds of the kinds that have any, where none are given."""


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        kind: one of `KINDS`.
        host: the host it strikes; empty for all.
        path: the beginning of the paths it strikes; empty for all but /robots.txt.
        after: matching requests that are served well before it begins.
        times: how often it strikes; None for ever.
        probability: how likely a matching request is struck; drawn from `seed` and the request's count.
        seed: of the draw.
        seconds: Retry-After, stall, age of a stale feed, or Crawl-delay; None for the kind's own `SECONDS`.
        size: bytes of an oversized body.
        name: the field that `drift` renames, or the path that `robots-disallow` forbids.
    """

    kind: str
    host: str = ""
    path: str = ""
    after: int = 0
    times: int | None = None
    probability: float = 1.0
    seed: int = 0
    seconds: float | None = None
    size: int = 50_000_000
    name: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"fault {self.kind!r}: no such kind (choose of {', '.join(sorted(KINDS))})")
        if self.kind in ("drift", "robots-disallow") and not self.name:
            raise ValueError(f"fault {self.kind}: has no name (name the field, or the path)")
        if self.seconds is not None and self.kind not in SECONDS:
            raise ValueError(f"fault {self.kind}: has no use for seconds (leave them out)")

    @property
    def wait(self) -> float:
        """The seconds in force."""
        return SECONDS[self.kind] if self.seconds is None else self.seconds

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Fault:
        """A fault from JSON.

        Raises:
            ValueError: unknown field or kind, or no kind.
        """
        if unknown := set(given) - {one.name for one in fields(cls)}:
            raise ValueError(
                f"fault {sorted(unknown)}: no such field (choose of {', '.join(o.name for o in fields(cls))})"
            )
        if "kind" not in given:
            raise ValueError("fault: has no kind")
        return cls(**given)

    def touches(self, request: Request) -> bool:
        """Whether host and path are its own."""
        if self.host and request.host != self.host:
            return False
        if self.kind.startswith("robots-"):
            return request.path == ROBOTS
        if not self.path:
            return request.path != ROBOTS
        return request.path.startswith(self.path)


@dataclass
class Armed:
    """A fault at work: how often it was met and how often it struck."""

    fault: Fault
    met: int = 0
    struck: int = 0
    kept: list[Answer] = field(default_factory=list)

    def strikes(self, request: Request) -> bool:
        """Counts a request and tells whether it is spoilt."""
        fault = self.fault
        if not fault.touches(request):
            return False
        self.met += 1
        if self.met <= fault.after or (fault.times is not None and self.struck >= fault.times):
            return False
        if fault.probability < 1 and mixed(fault.seed, self.met) % 1_000_000 >= fault.probability * 1_000_000:
            return False
        self.struck += 1
        return True

    def told(self) -> dict[str, Any]:
        """For the control API."""
        return {**asdict(self.fault), "met": self.met, "struck": self.struck}


Serve = Callable[[float], Answer]
"""The site's own answer at a simulated time some seconds before now."""
Spoil = Callable[[Armed, Request, Serve], Answer]


def error(status: int, text: str) -> Spoil:
    """An HTML error page."""

    def spoil(armed: Armed, request: Request, serve: Serve) -> Answer:
        return page(f"<h1>{status} {text}</h1>", status=status, title=text)

    return spoil


def instead(made: Answer) -> Spoil:
    """Always the same answer."""

    def spoil(armed: Armed, request: Request, serve: Serve) -> Answer:
        return made

    return spoil


def _too_many(armed: Armed, request: Request, serve: Serve) -> Answer:
    wait = (("Retry-After", f"{armed.fault.wait:g}"),)
    return replace(page("<h1>429 Too Many Requests</h1>", status=429), headers=wait)


def _reset(armed: Armed, request: Request, serve: Serve) -> Answer:
    return Answer(reset=True)


def _slow(armed: Armed, request: Request, serve: Serve) -> Answer:
    return replace(serve(0), stall=armed.fault.wait)


def _truncated(armed: Armed, request: Request, serve: Serve) -> Answer:
    made = serve(0)
    return replace(made, cut=len(made.body) // 2)


def _broken(armed: Armed, request: Request, serve: Serve) -> Answer:
    made = serve(0)
    return replace(made, body=made.body[: len(made.body) * 2 // 3])


def _oversized(armed: Armed, request: Request, serve: Serve) -> Answer:
    return replace(serve(0), flood=armed.fault.size)


def _charset(armed: Armed, request: Request, serve: Serve) -> Answer:
    made = serve(0)
    return replace(
        made, kind=f"{made.kind.partition(';')[0]}; charset={'utf-8' if 'gbk' in made.kind.lower() else 'gbk'}"
    )


def _captcha_redirect(armed: Armed, request: Request, serve: Serve) -> Answer:
    return redirect(f"https://{request.host}{CAPTCHA}")


def _stuck(armed: Armed, request: Request, serve: Serve) -> Answer:
    if not armed.kept:
        armed.kept.append(serve(0))
    return armed.kept[0]


def _swinging(armed: Armed, request: Request, serve: Serve) -> Answer:
    if len(armed.kept) < 2:
        armed.kept.append(serve(0))
        return armed.kept[-1]
    return armed.kept[armed.struck % 2]


def _stale(armed: Armed, request: Request, serve: Serve) -> Answer:
    return serve(armed.fault.wait)


def _with_rows(change: Callable[[Any], Any]) -> Spoil:
    def spoil(armed: Armed, request: Request, serve: Serve) -> Answer:
        made = serve(0)
        return replace(made, body=_changed(made.body, change))

    return spoil


def _changed(body: bytes, change: Callable[[Any], Any]) -> bytes:
    """A body with its list of rows exchanged; script and page around the JSON stay."""
    text = body.decode("utf-8")
    start = re.search(r"(?<=allData = )\{|(?<=__NEXT_DATA__ = )\{|^[^<]*?[\[{]", text)
    if start is None:
        raise ValueError("fault: this page holds no list of rows (aim it at a JSON list)")
    at = start.end() - 1
    if text.startswith("try{"):
        at = text.index("{", 4)
    value, end = json.JSONDecoder().raw_decode(text, at)
    return (text[:at] + dumps(_exchanged(value, change)) + text[end:]).encode()


def _exchanged(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, list):
        return change(value)
    if isinstance(value, dict):
        made = dict(value)
        for key, inner in value.items():
            if key in LISTS and (inner is None or isinstance(inner, list)):
                return {**made, key: change(inner)}
            if isinstance(inner, dict) and key not in ("status", "page_info"):
                made[key] = _exchanged(inner, change)
        return made
    return value


def _drift(armed: Armed, request: Request, serve: Serve) -> Answer:
    made = serve(0)
    name = armed.fault.name
    return replace(made, body=made.body.replace(f'"{name}":'.encode(), f'"{name}_v2":'.encode()))


def _robots_disallow(armed: Armed, request: Request, serve: Serve) -> Answer:
    return Answer(200, f"User-agent: *\nDisallow: {armed.fault.name}\n".encode(), "text/plain")


def _robots_delay(armed: Armed, request: Request, serve: Serve) -> Answer:
    return Answer(200, f"User-agent: *\nCrawl-delay: {armed.fault.wait:g}\nDisallow:\n".encode(), "text/plain")


SHIELD = page("<h1>访问被拦截</h1><p>您的请求疑似攻击行为，access denied</p>", title="安全防护")
CAPTCHA_PAGE = page("<form><p>人机验证：请输入验证码</p><img src='/code.png'></form>", title="安全验证")
APP_SHELL = page("<div id='app'>Please Enable JavaScript and Cookie</div>", title="")
LOGIN = page("<p>登录后查看全文</p>", title="登录")

KINDS: Mapping[str, Spoil] = {
    "404": error(404, "Not Found"),
    "403": error(403, "Forbidden"),
    "429": _too_many,
    "456": error(456, "IP limited"),
    "500": error(500, "Internal Server Error"),
    "502": error(502, "Bad Gateway"),
    "503": error(503, "Service Unavailable"),
    "reset": _reset,
    "slow": _slow,
    "truncated": _truncated,
    "shield": instead(SHIELD),
    "captcha": instead(CAPTCHA_PAGE),
    "captcha-redirect": _captcha_redirect,
    "app-shell": instead(APP_SHELL),
    "login": instead(LOGIN),
    "redirect-away": instead(redirect(AWAY)),
    "signature": instead(in_json({"errno": 10012, "msg": "签名错误"})),
    "loading": instead(in_json({"errno": 50101, "msg": "小财正在加载中..."})),
    "refused": instead(in_json({"code": "0", "message": "", "data": None})),
    "stuck-cursor": _stuck,
    "swinging-cursor": _swinging,
    "stale": _stale,
    "null-list": _with_rows(lambda rows: None),
    "empty-list": _with_rows(lambda rows: []),
    "oversized": _oversized,
    "wrong-charset": _charset,
    "broken-json": _broken,
    "drift": _drift,
    "robots-404": error(404, "Not Found"),
    "robots-403": error(403, "Forbidden"),
    "robots-500": error(500, "Internal Server Error"),
    "robots-html": instead(Answer(200, b"<!DOCTYPE html><html><body><div id='app'></div></body></html>", HTML)),
    "robots-disallow": _robots_disallow,
    "robots-delay": _robots_delay,
}
"""Everything that can go wrong, by name."""
