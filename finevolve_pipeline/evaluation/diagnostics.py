"""Diagnostics of what the runs were shown: retrieved memories, news, invalid scores.

What lives here: counts and means. What must not: information coefficients (see `ic`).
"""

from __future__ import annotations

import pandas as pd

from finevolve_pipeline.tables import LEFT_OUT

NEWS_COLUMNS = ("day", "source", "importance", "articles", "selected")


def count_news(day: str, tagged: pd.DataFrame, selected: pd.DataFrame) -> pd.DataFrame:
    """A day's articles by source and importance.

    Args:
        day: the calendar day, ISO.
        tagged: `TaggedArticles` of the day.
        selected: `BenchmarkNews` of the day.

    Returns:
        day, source, importance, articles (tagged), selected (shown to agents); one row per occurring pair.
    """
    keys = ["source", "importance"]
    counts = pd.DataFrame({"articles": tagged.groupby(keys).size(), "selected": selected.groupby(keys).size()}).fillna(
        0
    )
    frame = counts.astype({"articles": "int32", "selected": "int32"}).reset_index()
    return frame.assign(day=day).loc[:, list(NEWS_COLUMNS)]


def retrieval_by_session(retrievals: pd.DataFrame) -> pd.DataFrame:
    """Means over the memories retrieved per experiment and session.

    Returns:
        experiment, session, memories, age (sessions), matured_share, news_overlap.
    """
    grouped = retrievals.groupby(["experiment", "session"], sort=True)
    means = grouped[["age", "matured_share", "news_overlap"]].mean()
    return means.assign(memories=grouped.size()).reset_index()


def retrieval_summary(retrievals: pd.DataFrame) -> pd.DataFrame:
    """Per experiment and kind of experience what its retrieval shows, over all memories retrieved.

    Returns:
        experiment, kind; memories (total); per_prediction (mean over industry-sessions that got any); age_median
        and age_p90 (sessions); from_this_session, from_previous_session, matured_share, news_overlap (shares);
        similarity (mean cosine, NaN where none was compared); in_prompt (share for which the prompt had room).
    """
    rows = []
    for (experiment, kind), part in retrievals.groupby(["experiment", "kind"], sort=True):
        rows.append(
            {
                "experiment": experiment,
                "kind": kind,
                "memories": len(part),
                "per_prediction": len(part) / max(1, len(part[["session", "code"]].drop_duplicates())),
                "age_median": part["age"].median(),
                "age_p90": part["age"].quantile(0.9),
                "from_this_session": (part["age"] == 0).mean(),
                "from_previous_session": (part["age"] == 1).mean(),
                "matured_share": part["matured_share"].mean(),
                "news_overlap": part["news_overlap"].mean(),
                "similarity": part["similarity"].mean(),
                "in_prompt": (part["in_prompt"] != LEFT_OUT).mean(),
            }
        )
    columns = ["experiment", "kind", "memories", "per_prediction", "age_median", "age_p90", "from_this_session"]
    return pd.DataFrame(
        rows, columns=[*columns, "from_previous_session", "matured_share", "news_overlap", "similarity", "in_prompt"]
    )


def invalid_scores(predictions: pd.DataFrame) -> pd.DataFrame:
    """Invalid scores by experiment, horizon and reason: experiment, horizon, invalid_reason, scores."""
    bad = predictions[predictions["score"].isna()]
    keys = ["experiment", "horizon", "invalid_reason"]
    return bad.groupby(keys, sort=True).size().rename("scores").reset_index()


def prediction_counts(predictions: pd.DataFrame) -> pd.DataFrame:
    """Per experiment: sessions, scores, invalid ones, mean |score|, mean articles shown and cut."""
    rows = []
    for experiment, part in predictions.groupby("experiment", sort=False):
        once = part.drop_duplicates(["session", "code"])
        rows.append(
            {
                "experiment": experiment,
                "sessions": part["session"].nunique(),
                "scores": len(part),
                "invalid": int(part["score"].isna().sum()),
                "mean_absolute_score": part["score"].abs().mean(),
                "articles": once["articles"].mean(),
                "articles_cut": once["articles_cut"].mean(),
            }
        )
    columns = [
        "experiment",
        "sessions",
        "scores",
        "invalid",
        "mean_absolute_score",
        "articles",
        "articles_cut",
    ]
    return pd.DataFrame(rows, columns=columns)
