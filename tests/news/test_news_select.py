import pandas as pd
import pytest

from finevolve_pipeline.news.select import select
from finevolve_pipeline.settings import NewsSettings, load_settings
from finevolve_pipeline.tables import BenchmarkNews, TaggedArticles, conform, empty


def tagged(*rows: tuple[str, str, list[str], int]) -> pd.DataFrame:
    """TaggedArticles from (id, scope, industries, importance)."""
    frame = pd.DataFrame(rows, columns=["article_id", "scope", "industries", "importance"])
    frame["published_at"] = pd.Timestamp("2025-05-14 10:00", tz="Asia/Shanghai").as_unit("us")
    frame["topics"] = [[] for _ in rows]
    frame["rejected_industries"] = [[] for _ in rows]
    text = {"source": "cls", "url": "", "title": "t", "content": "c", "importance_reason": "r", "tagger": "x"}
    return conform(frame.assign(**text), TaggedArticles, "test")


NEWS = tagged(
    ("b", "industry", ["801080", "801770"], 8),
    ("a", "industry", ["801170"], 10),
    ("weak", "industry", ["801170"], 7),
    ("market", "market", [], 9),
    ("market weak", "market", [], 7),
    ("none", "none", [], 10),
    ("no industry", "industry", [], 9),
)


def news_settings(**changes: object) -> NewsSettings:
    return load_settings(overrides={"news": changes}).news


def test_important_news_of_specific_industries_is_shown_in_its_order() -> None:
    chosen = select(NEWS, news_settings())
    assert chosen["article_id"].to_list() == ["b", "a"]
    assert chosen.equals(conform(chosen, BenchmarkNews, "test"))


def test_market_wide_news_is_shown_only_on_request() -> None:
    assert select(NEWS, news_settings(market_wide=True))["article_id"].to_list() == ["b", "a", "market"]


@pytest.mark.parametrize(("threshold", "count"), [(1, 3), (8, 2), (9, 1), (10, 1)])
def test_the_threshold_is_the_lowest_importance_shown(threshold: int, count: int) -> None:
    assert len(select(NEWS, news_settings(min_importance=threshold))) == count


def test_a_day_without_articles_stays_empty() -> None:
    assert select(empty(TaggedArticles), news_settings(market_wide=True)).empty
