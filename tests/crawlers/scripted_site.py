"""A server whose answers a test writes, request by request, and which remembers what it was asked and by whom."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Asked:
    """A request: when it came (monotonic seconds), and what it said. Header names are in lower case."""

    at: float
    host: str
    target: str
    headers: Mapping[str, str]

    @property
    def path(self) -> str:
        """Without the query."""
        return urlsplit(self.target).path

    @property
    def query(self) -> Mapping[str, str]:
        """The query's parameters."""
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))


@dataclass(frozen=True)
class Reply:
    """An answer; `raw` bytes stand in place of all of it, after which the connection ends."""

    body: str = ""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    seconds: float = 0.0


def in_json(value: Any, **more: Any) -> Reply:
    """A JSON answer."""
    return Reply(json.dumps(value), **more)


Script = Callable[[Asked], Reply]


@dataclass
class Scripted:
    """A server at work."""

    port: int
    script: Script
    asked: list[Asked] = field(default_factory=list)
    most_at_once: int = 0

    @property
    def at(self) -> str:
        """Its address, for `SITES_AT`."""
        return f"http://127.0.0.1:{self.port}"

    def gaps(self, host: str) -> list[float]:
        """Seconds between the requests to a host."""
        times = [one.at for one in self.asked if one.host == host]
        return [later - earlier for earlier, later in pairwise(times)]

    def paths(self) -> list[str]:
        """What was asked, in order."""
        return [one.path for one in self.asked]


@contextmanager
def serving(script: Script) -> Iterator[Scripted]:
    """A server that answers by a script, ended on leaving."""
    lock = threading.Lock()
    under_way = 0

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one piece: two would wait for each other

        def do_GET(self) -> None:
            nonlocal under_way
            with lock:
                under_way += 1
                site.most_at_once = max(site.most_at_once, under_way)
                headers = {name.lower(): value for name, value in self.headers.items()}
                asked = Asked(time.monotonic(), headers["host"], self.path, headers)
                site.asked.append(asked)
            reply = site.script(asked)
            time.sleep(reply.seconds)
            with lock:
                under_way -= 1
            if reply.raw is not None:
                self.wfile.write(reply.raw)
                self.close_connection = True
                return
            body = reply.body.encode()
            self.send_response(reply.status)
            for name, value in {"Content-Length": str(len(body)), **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *values: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    site = Scripted(server.server_address[1], script)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
