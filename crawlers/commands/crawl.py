"""`scrapy crawl`, with exit code 1 where a list was not read as far as was asked."""

from __future__ import annotations

import argparse
from typing import Any

from scrapy import Spider, signals
from scrapy.commands.crawl import Command as ScrapyCrawl
from scrapy.crawler import Crawler

from crawlers.pages import PageState
from crawlers.records import ChannelEnd, PageRead, Record
from crawlers.spiders.base import told


class Command(ScrapyCrawl):
    """Scrapy's own command, which ends with 0 whatever a spider met."""

    def _create_crawler(self, spidercls: type[Spider] | str) -> Crawler:
        crawler = super()._create_crawler(spidercls)
        crawler.signals.connect(self._listen, signal=told)
        crawler.signals.connect(self._fail, signal=signals.spider_error)
        return crawler

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Crawl; afterwards `exitcode` says whether all was read."""
        self._whole = True
        super().run(args, opts)
        if not self._whole:
            self.exitcode = 1

    def _listen(self, record: Record) -> None:
        if isinstance(record, ChannelEnd) and (record.state is not PageState.OK or record.ends):
            self._whole = False
        if isinstance(record, PageRead) and (record.missing or record.doubts):
            self._whole = False

    def _fail(self, **_: Any) -> None:
        self._whole = False
