"""Scrapy meets the local sites under their own names."""

import json
import subprocess
import sys
from typing import Any

import pytest
from scrapy.exceptions import NotConfigured
from scrapy.utils.test import get_crawler

from tests.sites.handler import LocalSites
from tests.sites.process import REPOSITORY, Running


def crawled(server: Running) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.sites.handler_child", server.at],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return dict(json.loads(done.stdout))


def test_rules_on_hosts_robots_and_redirects_see_the_true_addresses(sites: Running) -> None:
    sites.order(
        faults=[
            {"kind": "robots-disallow", "host": "www.yuncaijing.com", "name": "/insider/"},
            {"kind": "redirect-away", "host": "www.cls.cn", "path": "/telegraph"},
        ]
    )
    got = crawled(sites)
    came = {one["url"]: one for one in got["came"]}
    assert set(came) == {
        "https://www.yicai.com/api/ajax/getbrieflist?page=1&pagesize=30",
        "http://news.10jqka.com.cn/today_list/index_1.shtml",
    }
    assert {one["slot"] for one in got["came"]} == {"www.yicai.com", "news.10jqka.com.cn"}
    assert all(one["status"] == 200 and one["latency"] > 0 for one in got["came"])
    assert "同花顺财经" in came["http://news.10jqka.com.cn/today_list/index_1.shtml"]["text"]
    counts = sites.told()["counts"]
    assert counts["www.yuncaijing.com"] == {"/robots.txt": 1}
    assert counts["www.cls.cn"] == {"/robots.txt": 1, "/telegraph": 1}
    assert "www.elsewhere.example" not in counts
    assert {agent for *_, agent in sites.told()["requests"]} == {"reader/1"}


def test_without_an_address_the_handler_says_what_is_missing() -> None:
    with pytest.raises(NotConfigured, match="SITES_AT"):
        LocalSites(get_crawler())
