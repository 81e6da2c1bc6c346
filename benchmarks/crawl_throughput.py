"""Crawling at full size: articles a second, and memory over time, against nine sites that answer at once.

    python benchmarks/crawl_throughput.py --days 882 --items 33

A second process serves the nine sites (`tests.sites`, no latency) with the paper's span and number of articles. What is
timed is `NewsSites.bring`: nine child processes that crawl, parse and check, and the landing store and coverage behind
them. Delays are switched off; robots.txt, limits and all other rules are not. Beside it, in the same run, a plain HTTP
client reads the newest lists of the same sites page after page and keeps nothing.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from finevolve_pipeline.calendar import SHANGHAI  # noqa: E402
from finevolve_pipeline.settings import load_settings  # noqa: E402
from resources.news_sites import NewsSites  # noqa: E402
from tests.sites.process import Running, running  # noqa: E402

NOW = dt.datetime(2026, 6, 1, 12, tzinfo=SHANGHAI)
SOURCES = ("yuncaijing", "fenghuang", "sina", "eastmoney", "10jqka", "jinrongjie", "wallstreetcn", "yicai", "cls")
HANDLER = "tests.sites.handler.LocalSites"
MIB = 1 << 20


@dataclass
class Memory:
    """Resident memory of this process and of the crawling ones, second by second, in MiB."""

    own: list[float] = field(default_factory=list)
    largest_child: list[float] = field(default_factory=list)

    def sample(self) -> None:
        """One look."""
        me = psutil.Process()
        children = []
        for child in me.children(recursive=True):
            try:
                if "crawlers.child" in child.cmdline():
                    children.append(child.memory_info().rss / MIB)
            except psutil.Error:  # it has just ended
                continue
        self.own.append(me.memory_info().rss / MIB)
        self.largest_child.append(max(children, default=0.0))


@contextmanager
def watched() -> Iterator[Memory]:
    """Memory while something goes on."""
    memory, ended = Memory(), threading.Event()

    def look() -> None:
        while not ended.wait(1.0):
            memory.sample()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield memory
    finally:
        ended.set()
        thread.join()


def crawl(home: Path, sites: Running, days: int, at_once: int) -> None:
    """Crawl all days of all sources, print what it took."""
    scrapy = {"SITES_AT": sites.at, "DOWNLOAD_HANDLERS": {"http": HANDLER, "https": HANDLER}}
    quick = {"delay_seconds": 0, "autothrottle": False, "requests_at_once": 16, "sources_at_once": at_once}
    settings = load_settings(overrides={"crawl": {**quick, "scrapy": scrapy}}).crawl
    wanted = [NOW.date() - dt.timedelta(days=back) for back in range(days - 1)]
    began = time.perf_counter()
    with watched() as memory:
        told = NewsSites(home, settings).bring(dict.fromkeys(SOURCES, wanted), NOW)
    seconds = time.perf_counter() - began
    for one in told:
        landed = one.counts.added + one.counts.known
        print(
            f"| {one.source} | {one.state} | {one.complete} | {one.partial} | {one.counts.added:,} | {one.seconds:.0f} "
            f"| {landed / max(one.seconds, 0.001):,.0f} |"
        )
    added = sum(one.counts.added for one in told)
    print(f"\n{added:,} articles in {seconds:.0f} s: {added / seconds:,.0f} a second")
    for name, series in (("parent", memory.own), ("largest child", memory.largest_child)):
        if len(series) > 10:
            tenth = max(1, len(series) // 10)
            print(
                f"{name}: {max(series[tenth : 2 * tenth]):.0f} MiB early, {max(series[-2 * tenth : -tenth]):.0f} late"
            )


def read_plainly(sites: Running, pages: int) -> None:
    """What a client does that reads one list after another and keeps nothing: rows a second."""
    import json
    from http.client import HTTPConnection

    connection = HTTPConnection("127.0.0.1", int(sites.at.rpartition(":")[2]))
    rows, cursor, began = 0, "", time.perf_counter()
    for _ in range(pages):
        target = f"/apiv1/content/lives?channel=global-channel&client=pc&limit=50&accept=live&cursor={cursor}"
        connection.request("GET", target, headers={"Host": "api-one.wallstcn.com", "User-Agent": "Mozilla/5.0"})
        data = json.loads(connection.getresponse().read())["data"]
        rows, cursor = rows + len(data["items"]), data["next_cursor"]
    connection.close()
    pace = rows / (time.perf_counter() - began)
    print(f"plain client, one list, one connection, nothing kept: {pace:,.0f} rows a second")


def main() -> None:
    """Serve, crawl, tell."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--days", type=int, default=882)
    arguments.add_argument("--items", type=int, default=33, help="mean articles a weekday and source")
    arguments.add_argument("--at-once", type=int, default=os.cpu_count() or 2, help="sources crawled at once")
    given = arguments.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    serving = (
        "--warm",
        "--days",
        str(given.days),
        "--items",
        str(given.items),
        "--now",
        NOW.isoformat(),
        "--seed",
        "7",
    )
    with running(*serving) as sites, tempfile.TemporaryDirectory() as folder:
        print("| source | state | complete days | partial | articles | seconds | a second |")
        print("|---|---|---:|---:|---:|---:|---:|")
        crawl(Path(folder), sites, given.days, given.at_once)
        read_plainly(sites, 200)


if __name__ == "__main__":
    main()
