"""Starts the sites in a process of their own, for tests, and talks to their control address."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Reply:
    """An answer as a plain client sees it; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Running:
    """A server at work."""

    port: int

    @property
    def at(self) -> str:
        """Its address, for `SITES_AT`."""
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self,
        host: str,
        target: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout: float = 10.0,
    ) -> Reply:
        """One request to a site (POST where there is a body)."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        named = {"Host": host, **(headers or {})}
        try:
            connection.request("GET" if body is None else "POST", target, body=body, headers=named)
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        return Reply(response.status, {name.lower(): value for name, value in response.getheaders()}, text)

    def told(self) -> dict[str, Any]:
        """What the server was asked, its faults, and its simulated time."""
        return dict(self.ask("control", "/__control__").json())

    def order(self, **orders: Any) -> dict[str, Any]:
        """Arms faults (`faults=[…]`), clears them (`clear=True`), forgets what was asked (`forget=True`), moves
        simulated time (`now="…"`), lets news come in (`arrivals={"items": 1, "every": 2}`).

        Raises:
            ValueError: the server refuses the order.
        """
        reply = self.ask("control", "/__control__", body=json.dumps(orders).encode())
        if reply.status != 200:
            raise ValueError(f"order {orders}: {reply.json()['error']}")
        return dict(reply.json())

    def truth(self, source: str, **chosen: str) -> dict[str, list[dict[str, Any]]]:
        """What a crawl must bring at the server's simulated time; `channel`, `start` and `end` narrow it."""
        return dict(self.ask("control", "/__truth__?" + urlencode({"source": source, **chosen})).json())


@contextmanager
def running(*arguments: str) -> Iterator[Running]:
    """A server with these command line arguments, ended on leaving."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.sites", *arguments], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        line = child.stdout.readline()
        if not line:
            raise RuntimeError(f"tests.sites {' '.join(arguments)}: ended with {child.wait()} before it served")
        yield Running(json.loads(line)["port"])
    finally:
        child.kill()  # it keeps nothing, and a signal that can be ignored may be
        child.wait()
        if child.stdout is not None:
            child.stdout.close()
