"""Lets Scrapy meet the local sites under their own names.

Settings: `SITES_AT` is the server's address; `DOWNLOAD_HANDLERS` names `tests.sites.handler.LocalSites` for both
http and https.
Only the connection is turned aside: rules on robots, hosts and delays see the true addresses.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from scrapy import Request
from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured
from scrapy.http import Response


class LocalSites(HTTP11DownloadHandler):
    """Sends every request to the server of `SITES_AT`, the true host in its Host header."""

    def __init__(self, crawler: Crawler) -> None:
        address = crawler.settings.get("SITES_AT")
        if not address:
            raise NotConfigured("SITES_AT: not set (give the local sites' address, http://127.0.0.1:PORT)")
        super().__init__(crawler)
        self._at = urlsplit(address).netloc
        # All sites share one address, so the pool must hold what the hosts together may use.
        self._pool.maxPersistentPerHost = crawler.settings.getint("CONCURRENT_REQUESTS")

    async def download_request(self, request: Request) -> Response:
        """See Scrapy; the response carries the address that was asked for."""
        true = urlsplit(request.url)
        turned = request.replace(url=true._replace(scheme="http", netloc=self._at).geturl())
        turned.headers["Host"] = true.netloc
        response = await super().download_request(turned)
        # The throttle reads the latency from the request it knows.
        request.meta.update({key: turned.meta[key] for key in ("download_latency",) if key in turned.meta})
        return response.replace(url=request.url)
