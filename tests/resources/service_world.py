"""Services of bars and news on 127.0.0.1 that answer as the real ones do, also badly.

`serving(service)` runs one in a thread. A service's `plan` may take over single requests by giving a `Reply`.
"""

from __future__ import annotations

import datetime as dt
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from finevolve_pipeline.calendar import SHANGHAI, sessions_between
from finevolve_pipeline.universe import BENCHMARK
from resources.market.asking import Politeness

TOKEN = "f00dfeed1234567890abcdef0badcafe99887766"
NOW = dt.datetime(2025, 1, 20, 18, 0, tzinfo=SHANGHAI)


@dataclass(frozen=True)
class Asked:
    """One request as it came in; `number` counts from 0."""

    number: int
    path: str
    query: Mapping[str, str]
    body: Mapping[str, Any]


@dataclass(frozen=True)
class Reply:
    """One answer. `half`: the connection ends in its middle; `silent`: seconds before anything is sent."""

    body: bytes | str | object
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    half: bool = False
    silent: float = 0.0

    @property
    def data(self) -> bytes:
        if isinstance(self.body, bytes):
            return self.body
        return (self.body if isinstance(self.body, str) else json.dumps(self.body, ensure_ascii=False)).encode()


CAPTCHA = Reply("<!doctype html><html><head><title>请输入验证码</title></head><body>x</body></html>")
HTML = Reply("<!doctype html><html><head><title>维护中</title></head><body>x</body></html>")
NOT_JSON = Reply('{"code": "200", "data": [{"tradeDate": "2025')
ERROR_500 = Reply("<html><title>oops</title></html>", 500)
TOO_MANY = Reply("slow down", 429, {"Retry-After": "0"})
HALF = Reply({"code": "200", "data": []}, half=True)


class Service:
    """Remembers requests; `answer` is what it does when the plan says nothing."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.plan: Callable[[Asked], Reply | None] = lambda asked: None
        self.url = ""
        self._lock = threading.Lock()

    def reply(self, path: str, body: bytes) -> Reply:
        parts = urlsplit(path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        with self._lock:
            asked = Asked(len(self.asked), parts.path, query, json.loads(body) if body else {})
            self.asked.append(asked)
        return self.plan(asked) or self.answer(asked)

    def answer(self, asked: Asked) -> Reply:
        raise NotImplementedError

    def first(self, count: int, reply: Reply) -> None:
        """Answer the first requests so."""
        self.plan = lambda asked: reply if asked.number < count else None


@contextmanager
def serving(service: Service) -> Iterator[str]:
    """Run it; the base URL."""

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            reply = service.reply(self.path, body)
            time.sleep(reply.silent)
            try:
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.data)))
                self.end_headers()
                self.wfile.write(reply.data[: len(reply.data) // 2] if reply.half else reply.data)
            except OSError:
                pass
            self.close_connection = True

        do_GET = do_POST = _serve

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    service.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield service.url
    finally:
        server.shutdown()
        server.server_close()


class FakeTime:
    """A clock that moves only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def politeness(self, attempts: int = 3, per_minute: int = 100_000, deadline: float = 5.0) -> Politeness:
        return Politeness(per_minute, attempts, deadline, 120.0, self.sleep, lambda: self.now)


def close_of(code: str, session: dt.date) -> float:
    """Closes of the world that all services tell of."""
    return round(1000 + int(code[-3:]) + (session - dt.date(2025, 1, 1)).days * 1.5, 2)


def bar_numbers(code: str, session: dt.date) -> dict[str, float]:
    close = close_of(code, session)
    return {"open": close - 1, "high": close + 3, "low": close - 4, "close": close}


def between(first: str, last: str) -> tuple[dt.date, ...]:
    return sessions_between(dt.date.fromisoformat(first), min(dt.date.fromisoformat(last), NOW.date()))


class CsIndexSite(Service):
    """Gives CSI1000 from the session after `startDate`; on a closed `startDate` its first row echoes the next."""

    changes: Callable[[dict[str, Any]], dict[str, Any] | None] = staticmethod(lambda row: row)

    def row(self, stamp: dt.date, values: dt.date) -> dict[str, Any]:
        return {
            "tradeDate": f"{stamp:%Y%m%d}", "indexCode": BENCHMARK, "indexNameCnAll": "中证1000指数",
            "indexNameCn": "中证1000", "indexNameEnAll": "CSI 1000 Index", "indexNameEn": "CSI 1000",
            **bar_numbers(BENCHMARK, values), "change": 1.5, "changePct": 0.1, "tradingVol": 14_500.0,
            "tradingValue": 1_600.0, "consNumber": 1000.0, "peg": 35.1,
        }  # fmt: skip

    def answer(self, asked: Asked) -> Reply:
        first, last = (dt.datetime.strptime(asked.query[name], "%Y%m%d").date() for name in ("startDate", "endDate"))
        days = sessions_between(first, min(last, NOW.date()))
        rows = [self.row(day, day) for day in days]
        if days and days[0] != first:
            rows.insert(0, self.row(first, days[0]))
        changed = [one for row in rows if (one := type(self).changes(row)) is not None]
        return Reply({"code": "200", "msg": "Success", "data": changed})


class ShenwanSite(Service):
    """The whole history of an index, oldest first; openings are texts."""

    broken: frozenset[str] = frozenset()

    def answer(self, asked: Asked) -> Reply:
        code = asked.query["swindexcode"]
        if code in self.broken:
            return Reply('{"code": "200", "data": [{"swindexcode": "' + code + '", "openindex": ,}')
        rows = []
        for day in between("2024-01-01", "2025-01-20"):
            numbers = bar_numbers(code, day)
            rows.append(
                {"swindexcode": code, "bargaindate": f"{day}", "openindex": str(numbers["open"]),
                 "maxindex": numbers["high"], "minindex": numbers["low"], "closeindex": numbers["close"],
                 "hike": 1.5, "markup": 0.1, "bargainamount": 15.5, "bargainsum": 120.0}
            )  # fmt: skip
        old = {**rows[0], "bargaindate": "1999-12-30"}
        return Reply(json.dumps({"code": "200", "data": [old, *rows]}).replace("120.0}", "NaN}", 1))


class TushareService(Service):
    """`sw_daily`, `index_daily`, `trade_cal`, `news`; newest first, bounds of `news` as `inclusive` says."""

    def __init__(self) -> None:
        super().__init__()
        self.news: dict[str, list[tuple[str, str, str]]] = {}
        self.rows_a_call = 1500
        self.inclusive = (True, True)
        self.oldest_first = False
        self.days: Callable[[list[dt.date]], list[dt.date]] = lambda days: days
        self.revised: dict[tuple[str, str], float] = {}

    def calls(self, api: str) -> list[Mapping[str, str]]:
        """Parameters of the calls of one interface."""
        return [asked.body["params"] for asked in self.asked if asked.body["api_name"] == api]

    def answer(self, asked: Asked) -> Reply:
        body = asked.body
        if body["token"] != TOKEN:
            return self.refusal(40101, f"您的token不对，请确认。{body['token']}")
        fields = body["fields"].split(",")
        rows = getattr(self, f"_{body['api_name']}")(body["params"])
        items = [[row[name] for name in fields] for row in rows]
        return Reply({"request_id": "x", "code": 0, "msg": "", "data": {"fields": fields, "items": items}})

    @staticmethod
    def refusal(code: int, text: str) -> Reply:
        return Reply({"request_id": "x", "code": code, "msg": text, "data": None})

    def _bars(self, params: Mapping[str, str], volume: float, amount: float) -> list[dict[str, Any]]:
        code = params["ts_code"][:6]
        bounds = (dt.datetime.strptime(params[name], "%Y%m%d").date() for name in ("start_date", "end_date"))
        rows = []
        for day in sessions_between(*bounds):
            numbers = bar_numbers(code, day)
            close = self.revised.get((code, day.isoformat()), numbers["close"])
            rows.append(
                {"ts_code": params["ts_code"], "trade_date": f"{day:%Y%m%d}", **numbers, "close": close,
                 "high": max(close, numbers["high"]), "vol": volume, "amount": amount}
            )  # fmt: skip
        return rows[::-1]

    def _sw_daily(self, params: Mapping[str, str]) -> list[dict[str, Any]]:
        return self._bars(params, 155_000.0, 1_200_000.0)

    def _index_daily(self, params: Mapping[str, str]) -> list[dict[str, Any]]:
        return self._bars(params, 145_000_000.0, 160_000_000.0)

    def _trade_cal(self, params: Mapping[str, str]) -> list[dict[str, Any]]:
        bounds = (dt.datetime.strptime(params[name], "%Y%m%d").date() for name in ("start_date", "end_date"))
        return [{"cal_date": f"{day:%Y%m%d}", "is_open": 1} for day in self.days(list(sessions_between(*bounds)))]

    def _news(self, params: Mapping[str, str]) -> list[dict[str, Any]]:
        first, last = params["start_date"], params["end_date"]
        rows = [
            {"datetime": time, "title": title, "content": content}
            for time, title, content in sorted(self.news.get(params["src"], []), reverse=not self.oldest_first)
            if (first <= time if self.inclusive[0] else first < time)
            and (time <= last if self.inclusive[1] else time < last)
        ]
        return rows[: self.rows_a_call]
