"""Crawls by Scrapy's engine and all middleware, without a process of their own: what is told, record by record."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crawlers.items import Article
from crawlers.records import ChannelEnd, Job, PageRead, Probe, Record, Window, decode, encode_job
from finevolve_pipeline.settings import CrawlSettings
from resources.news_sites import channels_of, scrapy_settings

CHILD = Path(__file__).parent / "engine_child.py"


@dataclass(frozen=True)
class Told:
    """What a crawl told."""

    records: Sequence[Record]

    @property
    def end(self) -> ChannelEnd:
        """How its only list ended."""
        (end,) = self.ends.values()
        return end

    @property
    def ends(self) -> dict[str, ChannelEnd]:
        """How its lists ended."""
        return {one.channel: one for one in self.records if isinstance(one, ChannelEnd)}

    @property
    def pages(self) -> list[PageRead]:
        """The pages that were read."""
        return [one for one in self.records if isinstance(one, PageRead)]

    @property
    def articles(self) -> list[Article]:
        """All articles."""
        return [article for page in self.pages for article in page.articles]

    @property
    def probe(self) -> Probe:
        """What the newest page is like."""
        return next(one for one in self.records if isinstance(one, Probe))


class Engine:
    """Scrapy at work in a process that crawls one job after another."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def crawl(
        self,
        source: str,
        settings: CrawlSettings,
        days: tuple[dt.date, dt.date],
        now: dt.datetime,
        channels: tuple[str, ...] = (),
        *,
        probe: bool = False,
    ) -> Told:
        """Crawl some days (both included) of a source."""
        window = Window(*days, channels or channels_of(source, settings))
        job = Job(source, (window,), now, probe, scrapy_settings(settings))
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(encode_job(job) + "\n")
        self._process.stdin.flush()
        return Told([decode(line) for line in json.loads(self._process.stdout.readline())])


@contextmanager
def at_work(log: Path) -> Iterator[Engine]:
    """An engine, ended on leaving."""
    environment: dict[str, Any] = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with open(log, "w", encoding="utf-8") as messages:
        process = subprocess.Popen(
            [sys.executable, str(CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=messages,
            text=True,
            env=environment,
        )
    try:
        yield Engine(process)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.wait(20)
        process.stdout.close()
