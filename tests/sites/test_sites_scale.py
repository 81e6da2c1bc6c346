"""The sites at the size of the history benchmark: 882 days of nine sources."""

import time
from http.client import HTTPConnection
from statistics import median

import psutil
import pytest

from tests.sites.process import running
from tests.sites.server import Sites
from tests.sites.web import Request
from tests.sites.world import CHANNELS, World

EM = "/comm/web/getFastNewsList?client=web&biz=web_724&fastColumn=102&sortEnd={}&pageSize=50&req_trace=1"


def test_pages_of_fifty_rows_are_cheap_the_second_time() -> None:
    sites = Sites(World(days=40))
    request = Request("GET", EM.format(""), {"host": "np-weblist.eastmoney.com"})
    assert sites.answer(request).body.count(b'"showTime"') == 50
    spent = []
    for _ in range(200):
        start = time.process_time()
        sites.answer(request)
        spent.append(time.process_time() - start)
    assert median(spent) < 0.0005


def test_a_warm_server_answers_what_a_cold_one_answers() -> None:
    cold, warm = Sites(World(days=3)), Sites(World(days=3))
    warm.warm()
    for host, target in (
        ("np-weblist.eastmoney.com", EM.format("")),
        ("www.yicai.com", "/api/ajax/getbrieflist?page=2&pagesize=30"),
        ("m.cls.cn", "/telegraph"),
    ):
        request = Request("GET", target, {"host": host})
        assert cold.answer(request) == warm.answer(request)


@pytest.mark.slow
def test_two_hundred_thousand_items_start_fast_and_stay_small() -> None:
    start = time.perf_counter()
    with running("--days", "882", "--items", "33", "--warm") as server:
        assert time.perf_counter() - start < 60
        world = World(days=882, items=33)
        first_feeds = [next(iter(channels.values())) for channels in CHANNELS.values()]
        assert sum(len(world.feeds[name].published) for name in first_feeds) > 222_025
        connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
        rows, cursor = 0, ""
        while True:
            connection.request("GET", EM.format(cursor), headers={"Host": "np-weblist.eastmoney.com"})
            body = connection.getresponse().read()
            if not (found := body.count(b'"showTime"')):
                break
            rows += found
            cursor = body[body.index(b'"sortEnd":"') + 11 :].partition(b'"')[0].decode()
        connection.close()
        assert rows > 20_000
        largest = max(
            child.memory_info().rss for child in psutil.Process().children() if "tests.sites" in child.cmdline()
        )
        assert largest < 1_500_000_000
