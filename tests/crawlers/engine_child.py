"""Crawls one job after another in one process: a line of a job on standard input, a line of its records back.

Everything is as in `crawlers.child`, but Scrapy is started once, so that a test need not wait for it.
"""

from __future__ import annotations

import json
import sys

from scrapy.settings import Settings
from scrapy.utils.reactor import install_reactor

install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor")

from scrapy.crawler import CrawlerRunner
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from crawlers import settings as project
from crawlers.records import Record, decode_job, encode
from crawlers.spiders.base import told


async def serve() -> None:
    """Until standard input ends."""
    while line := await deferToThread(sys.stdin.readline):
        job = decode_job(line)
        settings = Settings()
        settings.setmodule(project, priority="project")
        settings.setdict(dict(job.scrapy), priority="cmdline")
        runner = CrawlerRunner(settings)
        crawler = runner.create_crawler(job.source)
        records: list[str] = []

        def hear(record: Record, records: list[str] = records) -> None:
            records.append(encode(record))

        crawler.signals.connect(hear, signal=told, weak=False)
        await runner.crawl(crawler, job=job)
        sys.stdout.write(json.dumps(records) + "\n")
        sys.stdout.flush()
    reactor.stop()  # type: ignore[attr-defined]


if __name__ == "__main__":
    reactor.callWhenRunning(lambda: Deferred.fromCoroutine(serve()))  # type: ignore[attr-defined]
    reactor.run()  # type: ignore[attr-defined]
