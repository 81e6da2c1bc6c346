"""Selection: which tagged articles the benchmark shows to agents (paper section 3.1)."""

from __future__ import annotations

import pandas as pd

from finevolve_pipeline.settings import NewsSettings


def select(tagged: pd.DataFrame, settings: NewsSettings) -> pd.DataFrame:
    """The important articles that concern specific industries, in their order.

    Args:
        tagged: `TaggedArticles` rows.
        settings: `min_importance` is the lowest importance shown; with `market_wide`, market-wide articles of
            that importance are selected too.

    Returns:
        `BenchmarkNews` rows.
    """
    specific = (tagged["scope"] == "industry") & (tagged["industries"].map(len) > 0)
    wanted = specific | (tagged["scope"] == "market") if settings.market_wide else specific
    return tagged.loc[wanted & (tagged["importance"] >= settings.min_importance)].reset_index(drop=True)
