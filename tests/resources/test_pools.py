"""Small pools behind one transport: filled one after the other, and every request counted out again."""

import asyncio
import logging

import httpx2
import pytest

from resources.pools import POOL, Pools, quiet, transport


class Pool(httpx2.AsyncBaseTransport):
    """Answers with an open body, or fails when it is told to."""

    def __init__(self):
        self.requests = 0
        self.closed = False
        self.fails = False

    async def handle_async_request(self, request):
        self.requests += 1
        if self.fails:
            raise httpx2.ConnectError("refused")
        return httpx2.Response(200, stream=Stream(), request=request)

    async def aclose(self):
        self.closed = True


class Stream(httpx2.AsyncByteStream):
    async def __aiter__(self):
        yield b"one "
        yield b"two"


def started(pools, count):
    async def send():
        requests = [httpx2.Request("GET", "http://127.0.0.1/") for _ in range(count)]
        return [await pools.handle_async_request(request) for request in requests]

    return asyncio.run(send())


def closed(responses):
    async def close():
        for response in responses:
            await response.aclose()
            await response.aclose()

    asyncio.run(close())


def test_the_next_pool_is_used_when_those_before_it_are_busy():
    inner = [Pool(), Pool(), Pool()]
    started(Pools(inner), POOL + 3)
    assert [pool.requests for pool in inner] == [POOL, 3, 0]


def test_a_closed_response_makes_room_once():
    inner = [Pool(), Pool()]
    pools = Pools(inner)
    closed(started(pools, POOL))
    started(pools, POOL + 1)
    assert [pool.requests for pool in inner] == [2 * POOL, 1]


def test_beyond_all_shares_the_one_with_the_fewest_takes_it():
    inner = [Pool(), Pool()]
    pools = Pools(inner)
    started(pools, 2 * POOL + 2)
    assert [pool.requests for pool in inner] == [POOL + 1, POOL + 1]


def test_a_request_that_fails_leaves_no_trace():
    inner = [Pool(), Pool()]
    pools = Pools(inner)
    inner[0].fails = True
    for _ in range(POOL + 5):
        with pytest.raises(httpx2.ConnectError):
            started(pools, 1)
    assert [pool.requests for pool in inner] == [POOL + 5, 0]


def test_bodies_come_through_whole_and_closing_closes_all_pools():
    inner = [Pool(), Pool()]
    pools = Pools(inner)

    async def read():
        async with httpx2.AsyncClient(transport=pools) as client:
            return (await client.get("http://127.0.0.1/")).text

    assert asyncio.run(read()) == "one two"
    assert [pool.closed for pool in inner] == [True, True]


def test_few_connections_and_a_proxy_keep_the_clients_own_pool(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert transport(POOL, trust_env=False) is None
    assert isinstance(transport(POOL + 1, trust_env=True), Pools)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    assert transport(POOL + 1, trust_env=True) is None
    assert isinstance(transport(POOL + 1, trust_env=False), Pools)


def test_the_client_is_quiet_unless_somebody_has_set_its_level(monkeypatch):
    for name, level in (("httpx2", logging.NOTSET), ("httpcore2", logging.DEBUG), ("another", logging.NOTSET)):
        monkeypatch.setattr(logging.getLogger(name), "level", level)
    quiet("another")
    assert [logging.getLogger(name).level for name in ("httpx2", "httpcore2", "another")] == [30, 10, 30]
