"""News assets: raw_news, articles, tagged_articles, benchmark_news, news_window. Rules live in the domain."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pandas as pd

from assets.partitioned import Presentation, table_asset
from assets.plots import text_bars
from finevolve_pipeline.graph import Graph
from finevolve_pipeline.partitions import Partitions

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


def news_assets(graph: Graph, partitions: Partitions) -> list[dg.AssetsDefinition]:
    """All news assets, upstream first."""
    tables = graph.tables
    return [
        table_asset(
            tables["raw_news"],
            Presentation(
                GROUP,
                "What a source sent on a calendar day, in canonical fields. Files brought by `finevolve import` "
                "land here.",
                describe=_by_source,
            ),
            partitions.days_by_source,
            [],
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
