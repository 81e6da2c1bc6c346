"""Processes of crawls that die, hang, or write rubbish; crawls at the same time; what is left and how it is made up."""

from __future__ import annotations

import datetime as dt
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from local_crawls import NOW, content, crawl, crawl_settings, days, landed, states

from crawlers.items import Article
from crawlers.pages import PageState
from crawlers.records import ChannelEnd, PageRead, encode
from finevolve_pipeline.news.coverage import DayState
from resources.landing import Landing
from resources.news_sites import Crawled, NewsSites
from tests.sites.process import Running, running

DAYS = days(dt.date(2026, 5, 18), dt.date(2026, 5, 19))
START, END = "2026-05-18T00:00:00+08:00", "2026-05-20T00:00:00+08:00"
NOWHERE = Running(9)
"""No site is asked at all."""


# --- Children that are no crawls ---------------------------------------------------------------------------------


def article(source: str, number: int, time_: str = "2026-05-19T09:00:00+08:00") -> Article:
    """An article of a source."""
    return Article(source, str(number), "https://site.example/1", "题", f"第{number}条", time_, "", NOW.isoformat())


def told(source: str, channel: str, reached: str = START) -> list[str]:
    """What a good child tells: a page with two articles, and that the window was read down to `reached`."""
    articles = (article(source, 1), article(source, 2, "2026-05-18T09:00:00+08:00"))
    end = ChannelEnd(channel, 0, PageState.OK, "", reached)
    return [encode(PageRead(channel, 0, articles, reached, newest=NOW.isoformat())), encode(end)]


Pretend = Callable[[str], None]


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pretend:
    """Puts a script of the shell in place of the interpreter that crawls CLS; Wallstreetcn's child is a good one."""
    for source, channel in (("cls", "telegraph"), ("wallstreetcn", "lives")):
        lines = told(source, channel)
        (tmp_path / source).write_text("".join(f"{line}\n" for line in lines), "utf-8")
        (tmp_path / f"{source}.page").write_text(
            f"{encode(PageRead(channel, 0, (article(source, 1),), END))}\n", "utf-8"
        )

    def pretend(script: str) -> None:
        path = tmp_path / "interpreter"
        path.write_text(
            f"""#!/bin/sh
cd {tmp_path}
read job
case "$job" in
*wallstreetcn*) cat wallstreetcn; exit 0;;
esac
{script}
""",
            "utf-8",
        )
        path.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(path))

    return pretend


def crawled(home: Path, **settings: Any) -> Mapping[str, Crawled]:
    """A crawl of two days of CLS and Wallstreetcn."""
    return crawl(home, NOWHERE, ("cls", "wallstreetcn"), wanted=DAYS, **settings)


QUICK = {"timeout_seconds": 0.1, "longest_wait_seconds": 0.1, "silence_seconds": 0.4}
BROKEN = {
    "killed": ("kill -9 $$", "the crawl broke off (it was killed by SIGKILL)"),
    "killed by memory": ("cat cls.page; kill -9 $$", "the crawl broke off (it was killed by SIGKILL)"),
    "ends at once": ("exit 3", "the crawl broke off (exit code 3)"),
    "ends well without a word": ("exit 0", "the crawl broke off (exit code 0)"),
    "a line cut off": ('cat cls.page; printf \'{"kind": "page", "chan\'', "the crawl broke off (exit code 0)"),
    "hangs": ("exec sleep 60", "it did nothing for 0.4 s and was stopped"),
    "hangs later": ("cat cls.page; exec sleep 60", "it did nothing for 0.4 s and was stopped"),
    "hangs without output": ("exec >&-; exec sleep 60", "it did nothing for 0.4 s and was stopped"),
    "prints": ("echo 'Segmentation fault'; exec sleep 60", "it told what is no record: 'Segmentation fault\\n'"),
    "other JSON": ('echo \'{"kind": "what"}\'; exec sleep 60', "it told what is no record"),
    "a bare number": ("echo 7; exec sleep 60", "it told what is no record"),
    "a record that lacks a field": ('echo \'{"kind": "end"}\'; exec sleep 60', "it told what is no record"),
    "bytes": ("printf '\\377\\376\\n'; exec sleep 60", "it told what is no record"),
    "rubbish without end": ("cat cls.page; exec yes no", "it told what is no record: 'no\\n'"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_child_that_breaks_off_is_told_with_its_reason_and_others_go_on(
    what: str, tmp_path: Path, child: Pretend
) -> None:
    script, reason = BROKEN[what]
    child(script)
    began = time.monotonic()
    found = crawled(tmp_path / "home", **(QUICK if "hangs" in what else {}))
    assert time.monotonic() - began < 10
    cls = found["cls"]
    assert (cls.state, cls.went_through, cls.partial, cls.asked) == ("fetch_error", False, 2, 2)
    assert reason in cls.reason
    assert "cls.log says why" in cls.reason
    assert cls.counts.added == (1 if "cls.page" in script else 0)  # what was told whole has landed
    assert found["wallstreetcn"].went_through
    known = NewsSites(tmp_path / "home", crawl_settings(NOWHERE)).coverage.read("cls")
    assert all(reason in known.days[day.isoformat()].reason for day in DAYS)
    assert reason in known.reason


def test_a_child_that_cannot_be_started_is_told_and_the_days_are_partial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    found = crawled(tmp_path)
    for source in ("cls", "wallstreetcn"):
        assert (found[source].state, found[source].partial) == ("fetch_error", 2)
        assert "the crawl could not be started" in found[source].reason
        assert "nothing" in found[source].reason
    probes = NewsSites(tmp_path, crawl_settings(NOWHERE)).probe(["cls"], NOW)
    assert "the crawl could not be started" in probes["cls"].reason


def test_days_that_a_dead_child_left_are_made_up_by_the_next_crawl(tmp_path: Path, child: Pretend) -> None:
    child("cat cls.page; kill -9 $$")
    crawled(tmp_path / "broken")
    child("cat cls")
    assert crawled(tmp_path / "broken")["cls"].went_through
    crawled(tmp_path / "whole")
    assert content(tmp_path / "broken") == content(tmp_path / "whole")


def test_a_list_of_newest_rows_alone_proves_no_day_however_far_it_reaches(tmp_path: Path, child: Pretend) -> None:
    (tmp_path / "newest").write_text("".join(f"{line}\n" for line in told("cls", "newest")), "utf-8")
    child("cat newest")
    settings = crawl_settings(NOWHERE, sources={"cls": {"channels": ["newest"]}})
    (found,) = NewsSites(tmp_path / "home", settings).bring({"cls": DAYS}, NOW)
    assert (found.counts.added, found.complete, found.partial) == (2, 0, 2)


def test_a_folder_that_cannot_be_written_is_told_and_costs_no_other_source(tmp_path: Path, child: Pretend) -> None:
    child("cat cls")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "crawl").write_text("", "utf-8")
    found = crawled(tmp_path / "home")
    assert all("cannot be written" in one.reason and not one.went_through for one in found.values())


def test_a_child_that_says_it_is_alive_is_not_silent(tmp_path: Path, child: Pretend) -> None:
    child("for turn in 1 2 3 4 5 6; do echo; sleep 0.2; done; cat cls")
    assert crawled(tmp_path / "home", **QUICK)["cls"].went_through


def test_an_import_is_waited_for_and_the_child_is_not_taken_for_silent(tmp_path: Path, child: Pretend) -> None:
    for channel in ("flash", "yaowen"):
        (tmp_path / channel).write_text("".join(f"{line}\n" for line in told("jinrongjie", channel)), "utf-8")
    child("cat flash; sleep 1; cat yaowen; touch ended")
    home = tmp_path / "home"
    with ThreadPoolExecutor(1) as threads:
        with Landing(home / "landing").importing():
            waiting = threads.submit(crawl, home, NOWHERE, ("jinrongjie",), wanted=DAYS, **QUICK)
            deadline = time.monotonic() + 20
            while not (tmp_path / "ended").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            assert not waiting.done()
        found = waiting.result(20)
    assert found["jinrongjie"].went_through
    assert len(landed(home, "jinrongjie")) == 2


def test_a_second_crawl_at_the_same_time_is_told_so_and_nothing_is_lost(tmp_path: Path, child: Pretend) -> None:
    child("cat cls.page; while [ ! -e go ]; do sleep 0.05; done; cat cls")
    home = tmp_path / "home"
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(crawl, home, NOWHERE, ("cls",), wanted=DAYS)
        deadline = time.monotonic() + 20
        while not list(home.glob("crawl/coverage/cls.json")) and time.monotonic() < deadline:
            time.sleep(0.02)
        second = crawled(home)
        (tmp_path / "go").touch()
        found = first.result(20)
    assert (second["cls"].state, second["cls"].went_through) == ("locked", False)
    assert "another crawl of it is under way" in second["cls"].reason
    assert second["wallstreetcn"].went_through
    assert found["cls"].went_through
    assert len(landed(home, "cls")) == 2
    assert crawled(home)["cls"].asked == 0  # both days are complete


# --- Real children -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running("--days", "30", "--seed", "7", "--now", NOW.isoformat()) as sites:
        yield sites


@pytest.fixture
def sites(server: Running, monkeypatch: pytest.MonkeyPatch) -> Running:
    server.order(clear=True, forget=True, now=NOW.isoformat(), arrivals=None)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))
    return server


FAULTS = [
    {"kind": "captcha", "host": "api-one.wallstcn.com", "after": 2},
    {"kind": "robots-disallow", "host": "gateway.jrj.com", "name": "/jrj-news/"},
    {"kind": "500", "host": "www.yuncaijing.com", "path": "/news/modal", "after": 20, "times": 4},
]
SOURCES = ("wallstreetcn", "jinrongjie", "yuncaijing")
WEEKS = days(dt.date(2026, 5, 12), dt.date(2026, 5, 19))


@pytest.mark.slow
def test_sources_fail_each_for_itself_and_a_later_crawl_makes_up_for_all(sites: Running, tmp_path: Path) -> None:
    broken, whole = tmp_path / "broken", tmp_path / "whole"
    sites.order(faults=FAULTS)
    quick = {"wanted": WEEKS, "attempts": 2, "back_off_seconds": 0.01, "requests_at_once": 1}
    found = crawl(broken, sites, SOURCES, **quick)
    requests = sites.told()["requests"]
    assert {source: one.state for source, one in found.items()} == {
        "wallstreetcn": "blocked",
        "jinrongjie": "disallowed",
        "yuncaijing": "ok",
    }
    assert not any(one.went_through for one in found.values())
    # After the captcha nothing was asked; what came before it stays.
    lives = [target for _, host, _, target, *_ in requests if host == "api-one.wallstcn.com"]
    assert len(lives) == 4  # robots.txt, the newest page, a page, the captcha
    assert found["wallstreetcn"].counts.added > 0
    # One list of JRJ is forbidden; it was not asked, and the other one was read.
    jrj = {target.partition("?")[0] for _, host, _, target, *_ in requests if host == "gateway.jrj.com"}
    assert jrj == {"/robots.txt"}
    assert found["jinrongjie"].counts.added > 0
    settings = crawl_settings(sites)
    for day in NewsSites(broken, settings).coverage.read("jinrongjie").days.values():
        assert day.channels["flash"] == "robots.txt of gateway.jrj.com disallows /jrj-news/news/queryNewsFlash"
        assert day.channels["yaowen"] == ""
    partial = states(broken, settings, "yuncaijing")[DayState.PARTIAL]
    assert partial == ["2026-05-19"]
    reason = NewsSites(broken, settings).coverage.read("yuncaijing").days["2026-05-19"].reason
    assert reason == "list: 2 articles whose body could not be fetched"

    sites.order(clear=True)
    found = crawl(broken, sites, SOURCES, **quick)
    assert all(one.went_through for one in found.values())
    assert found["yuncaijing"].asked == 1
    crawl(whole, sites, SOURCES, **quick)
    assert content(broken) == content(whole)


def test_a_defect_of_a_spider_is_named_and_leaves_its_days_partial(sites: Running, tmp_path: Path) -> None:
    settings = {"scrapy": {"SPIDER_MODULES": ["broken_spiders"]}}
    found = crawl(tmp_path, sites, ("cls",), wanted=WEEKS, **settings)["cls"]
    assert (found.state, found.went_through) == ("defect", False)
    assert found.reason == "telegraph: a defect of the crawler: ZeroDivisionError: division by zero"
    assert found.counts.added > 0
    assert found.complete > 0
    assert found.partial > 0
    log = NewsSites(tmp_path, crawl_settings(sites)).coverage.log("cls").read_text("utf-8")
    assert "Traceback" in log
    assert "in read" in log


PARENT = """
import sys
from pathlib import Path
from local_crawls import crawl
from tests.sites.process import Running
crawl(Path(sys.argv[1]), Running(int(sys.argv[2])), ("cls",), timeout_seconds=60, silence_seconds=600)
"""


def test_a_child_ends_when_its_parent_is_killed(sites: Running, tmp_path: Path) -> None:
    sites.order(faults=[{"kind": "slow", "seconds": 50, "host": "www.cls.cn"}])
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path), str(sites.port)], start_new_session=True)
    try:
        children = []
        deadline = time.monotonic() + 60
        while not any(host == "www.cls.cn" for _, host, *_ in sites.told()["requests"]):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        children = psutil.Process(parent.pid).children(recursive=True)
        assert any("crawlers.child" in child.cmdline() for child in children)
        parent.send_signal(signal.SIGKILL)
        _, alive = psutil.wait_procs(children, timeout=10)
        assert alive == []
    finally:
        parent.kill()
        parent.wait()


@pytest.mark.slow
def test_a_long_walk_takes_no_more_memory_than_a_short_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    sizes: list[tuple[float, int]] = []
    ended = threading.Event()

    def measure() -> None:
        while not ended.wait(0.1):
            for child in psutil.Process().children(recursive=True):
                try:
                    if "crawlers.child" in child.cmdline():
                        asked = len(list((tmp_path / "landing").rglob("*.parquet")))
                        sizes.append((child.memory_info().rss / 2**20, asked))
                except psutil.Error:
                    continue

    with running("--days", "900", "--items", "80", "--seed", "5", "--now", NOW.isoformat()) as sites:
        first = NOW.date() - dt.timedelta(days=898)
        watching = threading.Thread(target=measure)
        watching.start()
        try:
            found = crawl(tmp_path, sites, ("wallstreetcn",), wanted=days(first, NOW.date()))["wallstreetcn"]
        finally:
            ended.set()
            watching.join()
    assert found.went_through
    assert found.counts.added >= 50_000
    started = [size for size, landed_days in sizes if landed_days > 30]
    assert max(started) - started[0] <= 30
