"""Whole crawls of all nine sources, by child processes, over HTTP, against sites whose truth is known."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_crawls import FIRST, NOW, SOURCES, content, crawl, crawl_settings, differences, landed, states

from finevolve_pipeline.news.coverage import DayState
from resources.news_sites import NewsSites
from tests.sites.process import Running, running

MAIN_LISTS = {"sina": "live"}
"""Truth of a source whose default lists are not all that it has."""


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running("--days", "30", "--seed", "7", "--now", NOW.isoformat()) as sites:
        yield sites


@pytest.fixture
def sites(server: Running, monkeypatch: pytest.MonkeyPatch) -> Running:
    server.order(clear=True, forget=True, now=NOW.isoformat(), arrivals=None)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    return server


def truth(sites: Running, source: str) -> dict[str, list[dict[str, object]]]:
    """What a crawl of a source's default lists must bring of all days but the first."""
    chosen = {"channel": MAIN_LISTS[source]} if source in MAIN_LISTS else {}
    return sites.truth(source, start=FIRST.isoformat(), end=NOW.date().isoformat(), **chosen)


@pytest.fixture(scope="module")
def crawled(server: Running, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home into which all nine sources were crawled, with nothing going wrong."""
    home = tmp_path_factory.mktemp("crawled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        server.order(clear=True, forget=True, now=NOW.isoformat(), arrivals=None)
        told = crawl(home, server)
    assert {source: one.state for source, one in told.items()} == dict.fromkeys(SOURCES, "ok")
    return home


@pytest.mark.parametrize("source", SOURCES)
def test_a_crawl_brings_exactly_what_the_site_holds_for_the_public(source: str, crawled: Path, server: Running) -> None:
    held = truth(server, source)
    assert len(held["public"]) > 400
    assert differences(landed(crawled, source), held) == []


def test_the_newest_page_of_every_source_is_as_it_should_be(sites: Running, tmp_path: Path) -> None:
    found = NewsSites(tmp_path, crawl_settings(sites)).probe(SOURCES, NOW)
    assert {source: (one.state, one.reason) for source, one in found.items()} == dict.fromkeys(SOURCES, ("ok", ""))


@pytest.mark.parametrize("source", SOURCES)
def test_every_past_day_is_complete_and_today_stays_open(source: str, crawled: Path, server: Running) -> None:
    found = states(crawled, crawl_settings(server), source)
    assert found[DayState.PARTIAL] == []
    assert found[DayState.OPEN] == [NOW.date().isoformat()]
    assert len(found[DayState.COMPLETE]) == 28


def test_a_second_crawl_asks_for_today_only_and_changes_nothing(crawled: Path, sites: Running) -> None:
    before = content(crawled)
    told = crawl(crawled, sites)
    assert {one.asked for one in told.values()} == {1}
    assert sum(one.counts.added for one in told.values()) == 0
    assert content(crawled) == before


@pytest.mark.slow
def test_asking_again_for_complete_days_changes_nothing(crawled: Path, sites: Running) -> None:
    before = content(crawled)
    told = crawl(crawled, sites, again=True)
    assert {one.asked for one in told.values()} == {29}
    assert content(crawled) == before


@pytest.mark.slow
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_times_are_right_whatever_the_machines_zone(
    zone: str, crawled: Path, sites: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    crawl(tmp_path, sites)
    assert content(tmp_path) == content(crawled)


@pytest.mark.slow
def test_news_that_comes_in_while_lists_are_read_is_left_to_the_next_crawl(
    crawled: Path, sites: Running, tmp_path: Path
) -> None:
    sites.order(arrivals={"items": 1, "every": 2})
    told = crawl(tmp_path, sites)
    assert {source: one.state for source, one in told.items()} == dict.fromkeys(SOURCES, "ok")
    for source in SOURCES:
        shown, whole = landed(tmp_path, source), landed(crawled, source)
        assert shown["source_id"].tolist() == whole["source_id"].tolist(), source


KILLED = """
import sys
from pathlib import Path
from local_crawls import crawl
from tests.sites.process import Running
crawl(Path(sys.argv[1]), Running(int(sys.argv[2])))
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_crawl_killed_anywhere_goes_on_to_the_same_bytes(
    seed: int, crawled: Path, sites: Running, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(sites.port)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    for _ in range(2):
        victim = subprocess.Popen(command, env=environment, start_new_session=True)
        deadline = time.monotonic() + 60
        while not list((tmp_path / "crawl").glob("coverage/*.json")) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(chance.uniform(0, 5))
        victim.send_signal(signal.SIGKILL)  # the children end by themselves
        victim.wait()
    told = crawl(tmp_path, sites)
    assert all(one.went_through for one in told.values())
    assert content(tmp_path) == content(crawled)
