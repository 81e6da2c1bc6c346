"""Diagnostics of what the runs were shown: retrieved memories, news, invalid scores.

What lives here: counts and means. What must not: information coefficients (see `ic`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from finevolve_pipeline.tables import LEFT_OUT


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


SHARE_EDGES = tuple(round(step / 20, 2) for step in range(21))
"""Upper ends of the classes in which shares are counted; the first holds exactly zero."""


def retrieval_distribution(retrievals: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """How age, matured share and news overlap of retrieved memories are distributed, by `keys`.

    Returns:
        the keys, quantity (age, matured_share or news_overlap), value, memories, cumulative. `value` is an age
        in sessions, or the upper end of a class of shares (`SHARE_EDGES`; above the one before it, up to and with
        it); `cumulative` is the share of the memories at or below it. Ages that do not occur have no row.
    """
    columns = [*keys, "quantity", "value", "memories", "cumulative"]
    parts = []
    for group, own in retrievals.groupby(list(keys), sort=False):
        named = dict(zip(keys, group, strict=True))
        counted = {
            "age": own["age"].value_counts().sort_index(),
            "matured_share": _by_class(own["matured_share"]),
            "news_overlap": _by_class(own["news_overlap"]),
        }
        for quantity, counts in counted.items():
            parts.append(
                pd.DataFrame(
                    {
                        **named,
                        "quantity": quantity,
                        "value": counts.index.to_numpy(dtype=float),
                        "memories": counts.to_numpy(),
                        "cumulative": counts.cumsum().to_numpy() / len(own),
                    }
                )
            )
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def _by_class(shares: pd.Series[float]) -> pd.Series[int]:
    """How many shares fall into each class of `SHARE_EDGES`, empty classes included."""
    place = np.searchsorted(SHARE_EDGES, shares.to_numpy(dtype=float))
    return pd.Series(np.bincount(place, minlength=len(SHARE_EDGES)), index=list(SHARE_EDGES))


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
