"""Crawls one job after another in one process: a line of a job on standard input, a line of its records back.

Everything is as in `crawlers.child`, but Scrapy is started once, so that a test need not wait for it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from scrapy.crawler import CrawlerRunner
from scrapy.settings import Settings
from scrapy.utils.reactor import install_reactor
from twisted.internet.defer import Deferred

from crawlers import settings as project
from crawlers.records import Record, decode_job, encode
from crawlers.spiders.base import told


async def serve(reactor: Any) -> None:
    """Until standard input ends."""
    from twisted.internet.threads import deferToThread  # importing it makes a reactor, so not before ours

    while line := await deferToThread(sys.stdin.readline):
        job = decode_job(line)
        settings = Settings()
        settings.setmodule(project, priority="project")
        settings.setdict(dict(job.scrapy), priority="cmdline")
        crawler = CrawlerRunner(settings).create_crawler(job.source)
        records: list[str] = []

        def hear(record: Record, records: list[str] = records) -> None:
            records.append(encode(record))

        crawler.signals.connect(hear, signal=told, weak=False)
        await crawler.crawl(job=job)
        sys.stdout.write(json.dumps(records) + "\n")
        sys.stdout.flush()
    reactor.stop()


def main() -> None:
    """Crawl until standard input ends."""
    install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor")
    from twisted.internet import reactor

    running: Any = reactor
    running.callWhenRunning(lambda: Deferred.fromCoroutine(serve(running)))
    running.run()


if __name__ == "__main__":
    main()
