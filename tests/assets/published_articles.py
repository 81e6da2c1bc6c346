"""News that landed, for tests that need no more of it than when it was published."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

from finevolve_pipeline.news.importing import NewsItem, to_frame
from resources.table_store import TableStore


def publish(home: Path, source: str, times: Sequence[dt.datetime]) -> None:
    """Let an article of a source land for each of these times."""
    items = [
        NewsItem(
            source, f"{time:%Y%m%d%H%M%S}", "", f"{time:%c}", "text", int(time.timestamp()) * 1_000_000, None, (), 0
        )
        for time in times
    ]
    TableStore(home).landing.merge_news(to_frame(items, range(len(items)), "crawl"))
