"""News for tests of commands, as an import would land them."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from finevolve_pipeline import tables


def landed_news(counts: Mapping[tuple[str, str], int]) -> pd.DataFrame:
    """`RawNews` with so many items for each (source, ISO day), one a minute from noon on."""
    rows = [
        {
            "source": source,
            "source_id": f"{day}-{number}",
            "url": "",
            "title": f"标题 {number}",
            "content": "",
            "published_at": pd.Timestamp(f"{day} 12:00", tz="Asia/Shanghai") + pd.Timedelta(minutes=number),
            "modified_at": pd.NaT,
            "crawled_at": pd.NaT,
            "origin": "file:news.jsonl",
            "industries_given": [],
            "importance_given": float("nan"),
        }
        for (source, day), count in counts.items()
        for number in range(count)
    ]
    return tables.conform(pd.DataFrame(rows), tables.RawNews, "test")
