"""The dataset in a few numbers, as the paper's Table 1 gives its own.

What lives here: counting. What must not: layout, reading files.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import numpy as np
import pandas as pd

from finevolve_pipeline.settings import Settings


@dataclass(frozen=True)
class DatasetFacts:
    """What a benchmark is made of.

    Attributes:
        industries: predicted.
        horizons: in sessions.
        window: first and last session that is predicted.
        sessions: in the window.
        news_span: first and last calendar day of news, ISO.
        label_end: last session whose close a label uses, ISO; empty if no label is known.
        sources: with at least one article.
        articles: tagged, before selection.
        selected: of these shown to agents.
        active_days: calendar days with at least one selected article.
        per_day: selected articles by calendar day of the news span; NaN if the span has no day.
        important: share of the articles whose importance reaches the threshold; NaN without articles.
        largest_source: who brought most articles, and what share; empty and NaN without articles.
        labels: known excess returns of the window.
        cells: labels there would be if none were missing: sessions x industries x horizons.
        runs: with at least one prediction.
        predictions: scores asked for, over all runs.
        invalid: of these without a valid score.
    """

    industries: int
    horizons: tuple[int, ...]
    window: tuple[str, str]
    sessions: int
    news_span: tuple[str, str]
    label_end: str
    sources: int
    articles: int
    selected: int
    active_days: int
    per_day: float
    important: float
    largest_source: tuple[str, float]
    labels: int
    cells: int
    runs: int
    predictions: int
    invalid: int


def dataset_facts(
    settings: Settings, counts: pd.DataFrame, predictions: pd.DataFrame, alpha: pd.DataFrame
) -> DatasetFacts:
    """The facts of a dataset.

    Args:
        settings: window, industries, horizons, news span.
        counts: day, source, importance, articles, selected (see `news_statistics.news_counts`).
        predictions: of all runs: experiment, score.
        alpha: `Outcomes` by prediction day; at least alpha.
    """
    benchmark, news = settings.benchmark, settings.news
    sessions = [session.isoformat() for session in benchmark.sessions]
    by_source = counts.groupby("source")["articles"].sum().sort_values(ascending=False, kind="stable")
    articles, selected = int(counts["articles"].sum()), int(counts["selected"].sum())
    by_day = counts.groupby("day")["selected"].sum()
    days = (news.last_day - news.first_day) // dt.timedelta(days=1) + 1
    important = int(counts.loc[counts["importance"] >= news.min_importance, "articles"].sum())
    known = alpha[alpha["alpha"].notna()]
    return DatasetFacts(
        industries=len(benchmark.codes),
        horizons=benchmark.horizons,
        window=(sessions[0], sessions[-1]),
        sessions=len(sessions),
        news_span=(news.first_day.isoformat(), news.last_day.isoformat()),
        label_end=str(known["matured_on"].max()) if len(known) and "matured_on" in known else "",
        sources=int((by_source > 0).sum()),
        articles=articles,
        selected=selected,
        active_days=int((by_day > 0).sum()),
        per_day=selected / days if days > 0 else np.nan,
        important=important / articles if articles else np.nan,
        largest_source=(str(by_source.index[0]), by_source.iloc[0] / articles) if articles else ("", np.nan),
        labels=len(known),
        cells=len(sessions) * len(benchmark.codes) * len(benchmark.horizons),
        runs=predictions["experiment"].nunique(),
        predictions=len(predictions),
        invalid=int(predictions["score"].isna().sum()),
    )
