"""What the news consists of: scopes, industries, topics and lengths, before and after selection, and what was shown.

What lives here: counts over articles, none of which needs an article's text. What must not: reading files, layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pandas as pd

FACT_COLUMNS = ("day", "source", "importance", "scope", "industries", "topics", "characters", "selected")
"""What is kept of an article: everything but its words."""

TAGGED_COLUMNS = ("article_id", "source", "content", "industries", "scope", "importance", "topics")
"""Columns of `TaggedArticles` that `article_facts` needs."""

COUNTED = ("articles", "selected")

TITLE_ONLY = "title only"

LENGTH_EDGES = (1, 50, 100, 200, 400, 800, 1600, 3200)
"""Lower ends of length classes in characters; what is shorter than the first has no body."""


def article_facts(day: str, tagged: pd.DataFrame, selected: pd.DataFrame) -> pd.DataFrame:
    """A day's articles without their words.

    Args:
        day: the calendar day, ISO.
        tagged: `TaggedArticles` of the day, at least `TAGGED_COLUMNS`.
        selected: `BenchmarkNews` of the day, at least article_id.

    Returns:
        `FACT_COLUMNS`, a row an article: `characters` of its body (0 where it has a title only), `selected`
        whether it is shown to agents.
    """
    return pd.DataFrame(
        {
            "day": day,
            "source": tagged["source"].to_numpy(),
            "importance": tagged["importance"].to_numpy(),
            "scope": tagged["scope"].to_numpy(),
            "industries": tagged["industries"].to_numpy(),
            "topics": tagged["topics"].to_numpy(),
            "characters": tagged["content"].str.len().to_numpy(dtype=np.int32),
            "selected": tagged["article_id"].isin(selected["article_id"]).to_numpy(),
        }
    )


def all_facts(days: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """`article_facts` of many days as one table; of none, an empty one."""
    filled = [day for day in days if len(day)]
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=list(FACT_COLUMNS))


@dataclass(frozen=True)
class NewsStatistics:
    """Counts over all articles; `articles` before, `selected` after the selection that agents see.

    Attributes:
        scopes: scope, articles, selected.
        industries: code, articles, selected; an article counts for each of its industries.
        topics: topic, articles, selected; likewise for each of its topics.
        lengths: source, characters (of the body), articles, selected; exact, so that any quantile can be formed.
    """

    scopes: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=["scope", *COUNTED]))
    industries: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=["code", *COUNTED]))
    topics: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=["topic", *COUNTED]))
    lengths: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=["source", "characters", *COUNTED]))


def news_statistics(facts: pd.DataFrame) -> NewsStatistics:
    """Counts over `facts` (see `article_facts`), rows sorted by their names."""
    return NewsStatistics(
        scopes=_counted(facts, ["scope"]),
        industries=_counted(_one_each(facts, "industries", "code"), ["code"]),
        topics=_counted(_one_each(facts, "topics", "topic"), ["topic"]),
        lengths=_counted(facts, ["source", "characters"]),
    )


def news_counts(facts: pd.DataFrame) -> pd.DataFrame:
    """Articles by day, source and importance: day, source, importance, articles, selected (both int32)."""
    return _counted(facts, ["day", "source", "importance"])


def _one_each(facts: pd.DataFrame, column: str, name: str) -> pd.DataFrame:
    """A row for every entry of a list column; articles whose list is empty are left out."""
    return facts[[column, "selected"]].rename(columns={column: name}).explode(name).dropna(subset=[name])


def _counted(facts: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    grouped = facts.assign(selected=facts["selected"].astype(np.int32)).groupby(list(keys), sort=True)["selected"]
    counts = pd.DataFrame({"articles": grouped.size(), "selected": grouped.sum()}).astype(np.int32)
    return counts.reset_index()


def months(counts: pd.DataFrame) -> pd.DataFrame:
    """Articles by month and source from `news_counts`: month (YYYY-MM), source, articles, selected."""
    by_month = counts.assign(month=counts["day"].str[:7]).groupby(["month", "source"], sort=True)
    return by_month[list(COUNTED)].sum().reset_index()


def length_classes(lengths: pd.DataFrame) -> pd.DataFrame:
    """Articles by length class: length (in words, e.g. `100–199`), articles, selected; every class, shortest first."""
    names = [TITLE_ONLY, *(f"{low}–{high - 1}" for low, high in pairwise(LENGTH_EDGES)), f"{LENGTH_EDGES[-1]}+"]
    edges = [0, *LENGTH_EDGES, np.inf]
    classes = pd.cut(lengths["characters"].astype(float), edges, right=False, labels=names).rename("length")
    return lengths.groupby(classes, observed=False)[list(COUNTED)].sum().reset_index().astype({"length": str})


def length_summary(lengths: pd.DataFrame) -> pd.DataFrame:
    """Lengths of bodies in characters by source and of all together (source empty), before and after selection.

    Returns:
        source, which (articles or selected), count, title_only (share without a body); mean, median, p90, longest
        of those with one (NaN if there is none). Quantiles are the smallest length that so many do not exceed.
    """
    rows = []
    parts = [("", lengths), *((str(source), part) for source, part in lengths.groupby("source", sort=True))]
    for source, part in parts:
        for which in COUNTED:
            counts = part.groupby("characters", sort=True)[which].sum()
            rows.append({"source": source, "which": which, **_length_row(counts[counts > 0])})
    return pd.DataFrame(rows)


def _length_row(counts: pd.Series[int]) -> dict[str, float]:
    bodies = counts[counts.index > 0]
    total, with_body = int(counts.sum()), int(bodies.sum())
    row = {"count": total, "title_only": 1 - with_body / total if total else np.nan}
    if not with_body:
        return {**row, "mean": np.nan, "median": np.nan, "p90": np.nan, "longest": np.nan}
    sizes, reached = bodies.index.to_numpy(dtype=float), bodies.cumsum().to_numpy() / with_body
    quantiles = {name: float(sizes[np.searchsorted(reached, share)]) for name, share in (("median", 0.5), ("p90", 0.9))}
    return {**row, "mean": float((sizes * bodies.to_numpy()).sum() / with_body), **quantiles, "longest": sizes[-1]}


def shown_articles(predictions: pd.DataFrame) -> pd.DataFrame:
    """Articles shown to an agent by session and industry: session, code, articles, articles_cut.

    The news budget is the same for every mechanism, so runs show the same; where they do not (another backbone counts
    tokens differently), this is their mean.
    """
    once = predictions.drop_duplicates(["experiment", "session", "code"])
    means = once.groupby(["session", "code"], sort=True)[["articles", "articles_cut"]].mean()
    return means.reset_index()
