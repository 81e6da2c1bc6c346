"""`scrapy crawl`, with exit code 1 where a list was not read as far as was asked."""

from __future__ import annotations

import argparse
import datetime as dt
from typing import Any

from scrapy import Spider, signals
from scrapy.commands.crawl import Command as ScrapyCrawl
from scrapy.crawler import Crawler

from crawlers.pages import PageState
from crawlers.records import ChannelEnd, PageRead, Record
from crawlers.spiders.base import NewsSpider, told
from finevolve_pipeline.news.coverage import ends_at


class Command(ScrapyCrawl):
    """Scrapy's own command, which ends with 0 whatever a spider met."""

    def _create_crawler(self, spidercls: type[Spider] | str) -> Crawler:
        crawler = super()._create_crawler(spidercls)
        crawler.signals.connect(self._listen, signal=told)
        crawler.signals.connect(self._fail, signal=signals.spider_error)
        self._crawler = crawler
        return crawler

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Crawl; afterwards `exitcode` says whether all was read."""
        self._whole = True
        super().run(args, opts)
        if not self._whole:
            self.exitcode = 1

    def _listen(self, record: Record) -> None:
        if isinstance(record, ChannelEnd):
            stands_still = self._may_stand_still(record)
            self._whole = self._whole and record.state is PageState.OK and not record.ends and not stands_still
        if isinstance(record, PageRead) and (record.missing or record.doubts):
            self._whole = False

    def _may_stand_still(self, end: ChannelEnd) -> bool:
        """Whether the window's last day is over, and the list has not gone on after it."""
        assert isinstance(self._crawler.spider, NewsSpider)
        job = self._crawler.spider.job
        midnight = ends_at(job.windows[end.window].last)
        return midnight <= job.started_at and (not end.newest or dt.datetime.fromisoformat(end.newest) < midnight)

    def _fail(self, **_: Any) -> None:
        self._whole = False
