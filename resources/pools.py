"""The HTTP client: several small pools behind one transport, certificates, and its own lines in the log."""

from __future__ import annotations

import logging
import ssl
import urllib.request
from collections.abc import AsyncIterator, Sequence
from functools import lru_cache

import httpx2

POOL = 16
"""Requests that a pool has under way before the next one is used."""
KEEPALIVE_SECONDS = 4.0
"""An idle connection is not used again after that, since common servers close theirs after 5 seconds."""


class _Pool:
    """A small connection pool, and how many requests it has under way."""

    def __init__(self, transport: httpx2.AsyncBaseTransport) -> None:
        self.transport = transport
        self.under_way = 0


class _Body(httpx2.AsyncByteStream):
    """A response's body; the request is under way until it is closed."""

    def __init__(self, inner: httpx2.AsyncByteStream, pool: _Pool) -> None:
        self._inner = inner
        self._pool: _Pool | None = pool

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._inner:
            yield piece

    async def aclose(self) -> None:
        """Close it; doing so again changes nothing."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.under_way -= 1
            await self._inner.aclose()


class Pools(httpx2.AsyncBaseTransport):
    """Small connection pools, the next one used when those before it are busy.

    A pool looks at all its connections for every request: with hundreds of them that costs more than the
    request itself.
    """

    def __init__(self, pools: Sequence[httpx2.AsyncBaseTransport]) -> None:
        self._pools = [_Pool(pool) for pool in pools]

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send it through the first pool with room, else through the one with the fewest requests."""
        pool = next((one for one in self._pools if one.under_way < POOL), None)
        pool = pool or min(self._pools, key=lambda one: one.under_way)
        pool.under_way += 1
        try:
            response = await pool.transport.handle_async_request(request)
        except BaseException:
            pool.under_way -= 1
            raise
        if isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _Body(response.stream, pool)
        else:
            pool.under_way -= 1
        return response

    async def aclose(self) -> None:
        """Close all connections."""
        for pool in self._pools:
            await pool.transport.aclose()


def transport(concurrency: int, trust_env: bool) -> httpx2.AsyncBaseTransport | None:
    """Connections for so many requests at a time; None for the client's own, which goes through a proxy."""
    if concurrency <= POOL or (trust_env and urllib.request.getproxies()):
        return None
    # A pool may grow beyond its share: how many requests there are at a time is the limits' affair.
    limits = pool_limits(concurrency)
    pools = -(-concurrency // POOL)
    return Pools([httpx2.AsyncHTTPTransport(verify=tls(), limits=limits, trust_env=trust_env) for _ in range(pools)])


def pool_limits(connections: int) -> httpx2.Limits:
    """Limits of a pool that may hold so many connections, idle ones too."""
    return httpx2.Limits(
        max_connections=connections, max_keepalive_connections=connections, keepalive_expiry=KEEPALIVE_SECONDS
    )


@lru_cache(maxsize=1)
def tls() -> ssl.SSLContext:
    """Certificates to trust; reading them takes longer than all else when a client is made."""
    return httpx2.create_ssl_context()


def quiet(*others: str) -> None:
    """Keep the client from writing a line with the address, which may be a secret, for every request.

    Args:
        others: further loggers to quiet. A level that somebody has set stays.
    """
    for name in ("httpx2", "httpcore2", *others):
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)
