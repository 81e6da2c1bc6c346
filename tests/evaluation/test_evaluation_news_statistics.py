"""What the news consists of: each count on a handful of articles, and that no word of an article is kept."""

from __future__ import annotations

import numpy as np
import pandas as pd

from finevolve_pipeline.evaluation.news_statistics import (
    FACT_COLUMNS,
    NewsStatistics,
    all_facts,
    article_facts,
    length_classes,
    length_summary,
    months,
    news_counts,
    news_statistics,
    shown_articles,
)


def tagged() -> pd.DataFrame:
    rows = [
        ("a", "cls", "", ["801010", "801030"], "industry", 9, ["政策监管"]),
        ("b", "cls", "一二三", ["801010"], "industry", 7, ["政策监管", "供应链"]),
        ("c", "sina", "x" * 250, [], "market", 10, []),
        ("d", "sina", "y" * 50, ["801030"], "industry", 8, ["供应链"]),
    ]
    columns = ["article_id", "source", "content", "industries", "scope", "importance", "topics"]
    return pd.DataFrame(rows, columns=columns)


def facts() -> pd.DataFrame:
    day = tagged()
    return all_facts(
        [
            article_facts("2025-05-30", day, day[day["article_id"].isin(["a", "d"])]),
            article_facts("2025-06-01", day.iloc[:1], day.iloc[:0]),
        ]
    )


def test_facts_keep_the_length_of_a_body_and_whether_it_was_selected_but_no_word() -> None:
    found = facts()
    assert tuple(found.columns) == FACT_COLUMNS
    assert found["characters"].tolist() == [0, 3, 250, 50, 0]
    assert found["selected"].tolist() == [True, False, False, True, False]


def test_articles_are_counted_by_day_source_and_importance() -> None:
    counts = news_counts(facts())
    rows = {tuple(row[:3]): tuple(row[3:]) for row in counts.itertuples(index=False)}
    assert rows == {
        ("2025-05-30", "cls", 7): (1, 0),
        ("2025-05-30", "cls", 9): (1, 1),
        ("2025-05-30", "sina", 8): (1, 1),
        ("2025-05-30", "sina", 10): (1, 0),
        ("2025-06-01", "cls", 9): (1, 0),
    }
    by_month = months(counts).set_index(["month", "source"])
    assert by_month.loc[("2025-05", "cls")].tolist() == [2, 1]
    assert by_month.loc[("2025-06", "cls")].tolist() == [1, 0]


def test_an_article_counts_for_each_of_its_industries_and_topics_and_for_one_scope() -> None:
    found = news_statistics(facts())
    assert found.scopes.set_index("scope")["articles"].to_dict() == {"industry": 4, "market": 1}
    by_code = found.industries.set_index("code")
    assert by_code["articles"].to_dict() == {"801010": 3, "801030": 3}
    assert by_code["selected"].to_dict() == {"801010": 1, "801030": 2}
    by_topic = found.topics.set_index("topic")
    assert by_topic["articles"].to_dict() == {"政策监管": 3, "供应链": 2}
    assert by_topic["selected"].to_dict() == {"政策监管": 1, "供应链": 1}


def test_length_classes_hold_their_lower_end_and_every_class_is_there() -> None:
    classes = length_classes(news_statistics(facts()).lengths).set_index("length")
    assert classes["articles"].to_dict() == {
        "title only": 2,
        "1–49": 1,
        "50–99": 1,
        "100–199": 0,
        "200–399": 1,
        "400–799": 0,
        "800–1599": 0,
        "1600–3199": 0,
        "3200+": 0,
    }
    assert classes.loc["50–99", "selected"] == 1


def test_lengths_are_summed_up_over_articles_that_have_a_body() -> None:
    summary = length_summary(news_statistics(facts()).lengths).set_index(["source", "which"])
    whole = summary.loc[("", "articles")]
    assert whole["count"] == 5
    assert whole["title_only"] == 2 / 5
    assert (whole["mean"], whole["median"], whole["p90"], whole["longest"]) == ((3 + 50 + 250) / 3, 50, 250, 250)
    assert summary.loc[("cls", "selected"), "title_only"] == 1
    assert np.isnan(summary.loc[("cls", "selected"), "mean"])
    assert summary.loc[("sina", "selected"), "median"] == 50


def test_of_no_article_there_are_no_counts() -> None:
    nothing = all_facts([])
    assert news_counts(nothing).empty
    assert months(news_counts(nothing)).empty
    assert news_statistics(nothing).topics.empty
    assert length_classes(NewsStatistics().lengths)["articles"].tolist() == [0] * 9
    assert length_summary(NewsStatistics().lengths)["count"].tolist() == [0, 0]


def test_articles_shown_are_counted_once_a_sector_day_however_many_horizons_and_runs_there_are() -> None:
    rows = [
        (experiment, "2025-05-30", code, horizon, shown, cut)
        for experiment in ("pipe-rules", "mem0-rules")
        for code, shown, cut in (("801010", 4, 0), ("801030", 10, 2))
        for horizon in (10, 20)
    ]
    columns = ["experiment", "session", "code", "horizon", "articles", "articles_cut"]
    shown = shown_articles(pd.DataFrame(rows, columns=columns)).set_index("code")
    assert shown["articles"].to_dict() == {"801010": 4, "801030": 10}
    assert shown["articles_cut"].to_dict() == {"801010": 0, "801030": 2}
