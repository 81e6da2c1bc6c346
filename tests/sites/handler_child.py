"""A small crawl through the local sites, in a process of its own: `python -m tests.sites.handler_child ADDRESS`.

Prints what came back as JSON: address, status, latency, and what was refused.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response

CAME: list[dict[str, Any]] = []
FAILED: list[str] = []


class Reader(scrapy.Spider):
    """Asks four addresses, of which one is forbidden by robots.txt and one leads off the site."""

    name = "reader"
    allowed_domains = ("www.yicai.com", "www.cls.cn", "news.10jqka.com.cn", "www.yuncaijing.com")

    async def start(self) -> AsyncIterator[Any]:
        """See Scrapy."""
        for address in (
            "https://www.yicai.com/api/ajax/getbrieflist?page=1&pagesize=30",
            "https://www.cls.cn/telegraph",
            "http://news.10jqka.com.cn/today_list/index_1.shtml",
            "https://www.yuncaijing.com/insider/list_2026-05-18.html",
        ):
            yield scrapy.Request(address, errback=self.failed)

    def parse(self, response: Response) -> None:
        """See Scrapy."""
        CAME.append(
            {
                "url": response.url,
                "status": response.status,
                "latency": response.meta["download_latency"],
                "slot": response.meta["download_slot"],
                "text": response.text[:200],
            }
        )

    def failed(self, failure: Any) -> None:
        """See Scrapy."""
        FAILED.append(f"{failure.request.url} {failure.type.__name__}")


def main(address: str) -> None:
    """Crawls and prints."""
    handlers = dict.fromkeys(("http", "https"), "tests.sites.handler.LocalSites")
    process = CrawlerProcess(
        {
            "SITES_AT": address,
            "DOWNLOAD_HANDLERS": handlers,
            "ROBOTSTXT_OBEY": True,
            "RETRY_ENABLED": False,
            "USER_AGENT": "reader/1",
            "TELNETCONSOLE_ENABLED": False,
            "LOG_LEVEL": "ERROR",
        }
    )
    process.crawl(Reader)
    process.start()
    sys.stdout.write(json.dumps({"came": CAME, "failed": FAILED}))


if __name__ == "__main__":
    main(sys.argv[1])
