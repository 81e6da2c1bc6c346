"""The child process of a crawl: reads one job from standard input, writes what it found to standard output.

`python -m crawlers.child` gets a line (`records.encode_job`) and answers lines (`records.encode`); an empty line says
that it is alive: a request went out, was answered or failed. Whatever else is printed goes to standard error. It ends
when its parent does. Exit code: 1 if a list failed, 0 if all ended in order (one that ended early
says so in its record).
"""

from __future__ import annotations

import os
import sys
import threading
from typing import IO, Any

from scrapy import signals
from scrapy.crawler import CrawlerProcess
from scrapy.settings import Settings

from crawlers import settings as project
from crawlers.pages import PageState
from crawlers.records import ChannelEnd, Job, Probe, Record, decode_job, encode
from crawlers.spiders.base import told


def main() -> int:
    """Do the job on standard input."""
    job = decode_job(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="ascii") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing but records reaches the parent
        return crawl(job, answers)


def crawl(job: Job, answers: IO[str]) -> int:
    """Crawl in this process, telling records."""
    settings = Settings()
    settings.setmodule(project, priority="project")
    settings.setdict(dict(job.scrapy), priority="cmdline")
    process = CrawlerProcess(settings)
    failed: list[str] = []

    def say(line: str) -> None:
        answers.write(line + "\n")
        answers.flush()

    def write(record: Record) -> None:
        if isinstance(record, (ChannelEnd, Probe)) and record.state is not PageState.OK:
            failed.append(record.channel)
        say(encode(record))

    def live(**_: Any) -> None:
        say("")

    def fail(**_: Any) -> None:
        failed.append(job.source)

    crawler = process.create_crawler(job.source)
    crawler.signals.connect(write, signal=told, weak=False)
    crawler.signals.connect(live, signal=signals.request_reached_downloader, weak=False)
    crawler.signals.connect(live, signal=signals.request_left_downloader, weak=False)
    crawler.signals.connect(fail, signal=signals.spider_error, weak=False)
    process.crawl(crawler, job=job)
    process.start()
    return 1 if failed or process.bootstrap_failed else 0


def _end_with_parent() -> None:
    """Standard input stays open as long as the parent lives."""
    while sys.stdin.read(1):
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
