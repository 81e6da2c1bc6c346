"""What a spider does with the answers of the engine: statuses, and telling what it found."""

from __future__ import annotations

import asyncio
import datetime as dt
from types import SimpleNamespace

import pytest
from scrapy import Request
from scrapy.http import Response
from scrapy.utils.test import get_crawler
from spider_answers import SHANGHAI, at

from crawlers.pages import PageFailure, PageState
from crawlers.records import ChannelEnd, Job, Record, Window
from crawlers.spiders.base import told
from crawlers.spiders.cls import ClsSpider, Telegraph

DAY = dt.date(2024, 3, 5)
JOB = Job("cls", (Window(DAY, DAY, ("telegraph",)),), dt.datetime(2024, 3, 6, tzinfo=SHANGHAI))


def answering(status: int) -> ClsSpider:
    """A spider whose engine answers everything with a status."""

    async def download(request: Request) -> Response:
        return Response(request.url, status=status)

    spider = ClsSpider(job=JOB)
    spider.crawler = SimpleNamespace(engine=SimpleNamespace(download_async=download))  # type: ignore[assignment]
    return spider


@pytest.mark.parametrize("status", [404, 400, 503])
def test_case_01_an_endpoint_that_is_gone_is_an_error_and_not_a_day_without_news(status: int) -> None:
    with pytest.raises(PageFailure, match=f"roll_list: HTTP {status}") as failure:
        asyncio.run(answering(status).fetch(Telegraph().request("1")))
    assert failure.value.state is PageState.FETCH_ERROR
    assert "sign=" not in failure.value.reason


def test_a_status_that_a_list_knows_is_an_answer() -> None:
    request = Request("https://www.cls.cn/", meta={"handle_httpstatus_list": [404]})
    assert asyncio.run(answering(404).fetch(request)).status == 404


def test_records_reach_those_who_listen_to_the_crawler() -> None:
    crawler = get_crawler(ClsSpider)
    heard: list[Record] = []

    def hear(record: Record) -> None:
        heard.append(record)

    crawler.signals.connect(hear, signal=told, weak=False)
    spider = ClsSpider(job=JOB)
    spider.crawler = crawler
    end = ChannelEnd("telegraph", 0, PageState.OK, "", at(1709568000).isoformat())
    spider._tell(end)
    assert heard == [end]


def test_a_record_that_its_listener_cannot_take_stops_the_spider() -> None:
    crawler = get_crawler(ClsSpider)

    def fail(record: Record) -> None:
        raise BrokenPipeError

    crawler.signals.connect(fail, signal=told, weak=False)
    spider = ClsSpider(job=JOB)
    spider.crawler = crawler
    with pytest.raises(BrokenPipeError):
        spider._tell(ChannelEnd("telegraph", 0, PageState.OK, "", at(1709568000).isoformat()))
