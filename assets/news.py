"""News assets: raw_news, articles, tagged_articles, benchmark_news, news_window. Rules live in the domain."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd

from assets.partitioned import Presentation, table_asset
from assets.plots import text_bars
from finevolve_pipeline.calendar import Clock, shanghai_now
from finevolve_pipeline.graph import Graph
from finevolve_pipeline.news.coverage import SourceCoverage
from finevolve_pipeline.partitions import Partitions
from finevolve_pipeline.settings import CrawlSettings
from resources.news_sites import NewsSites, spiders

GROUP = "news"


def _by_source(frame: pd.DataFrame) -> dict[str, Any]:
    counts = frame["source"].value_counts()
    return {"sources": {str(source): int(count) for source, count in counts.items()}}


def _articles(frame: pd.DataFrame) -> dict[str, Any]:
    return {**_by_source(frame), "later_copies": int(frame["duplicates"].map(len).sum())}


def _tagged(frame: pd.DataFrame) -> dict[str, Any]:
    importance = frame["importance"].value_counts().reindex(range(1, 11), fill_value=0)
    scope = frame["scope"].value_counts()
    return {
        "importance": {str(level): int(count) for level, count in importance.items()},
        "importance_1_to_10": text_bars(importance.to_list()),
        "scope": {str(name): int(count) for name, count in scope.items()},
    }


def _window(frame: pd.DataFrame) -> dict[str, Any]:
    return {
        **_by_source(frame),
        "industries_with_news": len({code for codes in frame["industries"] for code in codes}),
    }


class _Crawling:
    """Asks the sites for what a run of raw_news lacks, and tells what is known of each day."""

    def __init__(self, settings: CrawlSettings, home: Path, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._sites = NewsSites(home, settings)
        self._known: dict[str, SourceCoverage] = {}

    def bring(self, context: dg.AssetExecutionContext, keys: Sequence[str]) -> None:
        """Crawl the asked days, if the settings say so. A source that fails is told, and costs the others nothing."""
        wanted = defaultdict[str, list[dt.date]](list)
        for key in keys:
            day, source = key.split("|", 1)
            wanted[source].append(dt.date.fromisoformat(day))
        if self._settings.enabled:
            first = self._settings.first_day or dt.date.min
            asked = {source: [day for day in days if day >= first] for source, days in wanted.items()}
            crawled = self._sites.bring(
                {source: days for source, days in asked.items() if days and source in spiders()},
                self._clock(),
                advance=lambda source, done, days, articles: context.log.info(
                    f"{source}: {done} of {days} days, {articles} articles"
                ),
            )
            for one in crawled:
                tell = context.log.info if one.went_through else context.log.warning
                tell(f"{one.source}: {one.state} {one.reason} ({one.complete} days complete, {one.partial} partial)")
        self._known = {source: self._sites.coverage.shown(source) for source in wanted}

    def describe(self, key: str) -> dict[str, Any]:
        """What is known of a source's day; nothing if no crawl ever asked for it."""
        day, source = key.split("|", 1)
        known = self._known.get(source)
        if known is None or day not in known.days:
            return {}
        found = known.days[day]
        facts = {"coverage": found.state.value, "asked_at": found.asked_at.isoformat(), "crawls": found.tries}
        return {**facts, "not_complete": found.reason} if found.reason else facts


def news_assets(
    graph: Graph, partitions: Partitions, home: Path, clock: Clock = shanghai_now
) -> list[dg.AssetsDefinition]:
    """All news assets, upstream first. `clock` tells the crawls the present."""
    tables = graph.tables
    crawling = _Crawling(graph.settings.crawl, home, clock)
    return [
        table_asset(
            tables["raw_news"],
            Presentation(
                GROUP,
                "What a source sent on a calendar day, in canonical fields: files brought by `finevolve import`, and, "
                "with [crawl] enabled, what its site publishes. Days that are not known to be complete are asked for.",
                describe=_by_source,
                describe_key=crawling.describe,
            ),
            partitions.days_by_source,
            [],
            before=crawling.bring,
        ),
        table_asset(
            tables["articles"],
            Presentation(
                GROUP,
                "Cleaned news, de-duplicated across sources, earliest copy kept. Reads the day before too, so that "
                "copies across midnight are found (declared as a dependency on the previous partition).",
                describe=_articles,
            ),
            partitions.days,
            [
                dg.AssetDep("raw_news", partition_mapping=partitions.to_date()),
                dg.AssetDep("articles", partition_mapping=partitions.previous_day()),
            ],
        ),
        table_asset(
            tables["tagged_articles"],
            Presentation(GROUP, "Articles with Shenwan industries, scope and importance 1-10.", describe=_tagged),
            partitions.days,
            ["articles"],
        ),
        table_asset(
            tables["benchmark_news"],
            Presentation(
                GROUP,
                f"Tagged articles of importance >= {graph.settings.news.min_importance} with a specific industry.",
                describe=_by_source,
            ),
            partitions.days,
            ["tagged_articles"],
        ),
        table_asset(
            tables["news_window"],
            Presentation(
                GROUP,
                "The articles observable at a session's 24:00 cutoff (Asia/Shanghai), most important and newest "
                "first. After a longer closure the window reaches back to the previous session.",
                describe=_window,
            ),
            partitions.sessions,
            [dg.AssetDep("benchmark_news", partition_mapping=partitions.window_of_days())],
        ),
    ]
