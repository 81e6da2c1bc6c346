"""Crawls against the local nine sites: settings, days, and comparison with what the sites hold."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.news.coverage import DayState
from finevolve_pipeline.settings import CrawlSettings, load_settings
from resources.landing import Landing
from resources.news_sites import Crawled, NewsSites
from tests.sites.process import Running
from tests.sites.world import same

NOW = dt.datetime(2026, 5, 20, 15, tzinfo=SHANGHAI)
SOURCES = ("yuncaijing", "fenghuang", "sina", "eastmoney", "10jqka", "jinrongjie", "wallstreetcn", "yicai", "cls")
HANDLER = "tests.sites.handler.LocalSites"
FIRST, LAST = dt.date(2026, 4, 22), NOW.date()
"""The first day of the world after its very first: what lies before the world cannot be proved to be nothing."""


def crawl_settings(sites: Running, **more: Any) -> CrawlSettings:
    """Settings of a crawl that asks the local sites without waiting."""
    scrapy = {"SITES_AT": sites.at, "DOWNLOAD_HANDLERS": {"http": HANDLER, "https": HANDLER}, **more.pop("scrapy", {})}
    quick = {
        "delay_seconds": 0,
        "autothrottle": False,
        "requests_at_once": 8,
        "back_off_seconds": 0.05,
        "timeout_seconds": 5,
        "longest_wait_seconds": 5,
        "silence_seconds": 60,
        "scrapy": scrapy,
    }
    return load_settings(overrides={"crawl": quick | more}).crawl


def days(first: dt.date = FIRST, last: dt.date = LAST) -> tuple[dt.date, ...]:
    """Calendar days, both ends included."""
    return tuple(first + dt.timedelta(days=passed) for passed in range((last - first).days + 1))


def crawl(
    home: Path, sites: Running, sources: Iterable[str] = SOURCES, *, now: dt.datetime = NOW, **more: Any
) -> Mapping[str, Crawled]:
    """Crawl all days of the world (or `wanted`) of some sources into a home."""
    wanted = more.pop("wanted", None) or days()
    again = more.pop("again", False)
    told = NewsSites(home, crawl_settings(sites, **more)).bring(dict.fromkeys(sources, wanted), now, again=again)
    return {one.source: one for one in told}


def landed(home: Path, source: str) -> pd.DataFrame:
    """All that landed of a source, oldest first."""
    store = Landing(home / "landing")
    return pd.concat([store.read_news(source, day) for source_, day in store.news_partitions() if source_ == source])


def content(home: Path) -> dict[str, bytes]:
    """What landed, byte by byte."""
    root = home / "landing" / "news"
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*.parquet"))}


def differences(frame: pd.DataFrame, truth: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """How what landed differs from what the site holds: missing, forbidden, doubled, other times or words."""
    public = {item["id"]: item for item in truth["public"]}
    forbidden = {item["id"] for item in truth["forbidden"]}
    # A site may have two ids for one item, e.g. one in its lists and one in addresses.
    known = {other: item["id"] for items in truth.values() for item in items for other in (item["id"], *item["also"])}
    ids = [known.get(key, key) for key in frame["source_id"]]
    found = [f"missing {key}" for key in public.keys() - set(ids)]
    found += [f"{'forbidden' if key in forbidden else 'invented'} {key}" for key in set(ids) - public.keys()]
    found += [f"doubled {key}" for key in {key for key in ids if ids.count(key) > 1}]
    for key, row in zip(ids, frame.to_dict("records"), strict=True):
        item = public.get(key)
        if item is None:
            continue
        if row["published_at"].isoformat() != item["published_at"]:
            found.append(f"{row['source_id']} at {row['published_at']}, not {item['published_at']}")
        if not same(row["content"], item["content"]):
            found.append(f"{row['source_id']} says {row['content']!r}, not {item['content']!r}")
        if not same(row["title"], item["title"]):
            found.append(f"{row['source_id']} is titled {row['title']!r}, not {item['title']!r}")
    return sorted(found)


def states(home: Path, settings: CrawlSettings, source: str) -> dict[DayState, list[str]]:
    """Days of a source by what is known of them."""
    known = NewsSites(home, settings).coverage.read(source).days
    return {state: [day for day, one in known.items() if one.state is state] for state in DayState}
