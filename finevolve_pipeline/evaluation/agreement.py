"""Agreement of a tagger with labels that careful readers gave to the same texts.

Labels name an item by its id and by a digest of the text that was read, so that another text under the same id is
noticed. The items are read, cleaned and tagged as in the pipeline.
"""

from __future__ import annotations

import csv
import datetime as dt
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import kendalltau, spearmanr

from finevolve_pipeline.errors import InputError
from finevolve_pipeline.importing import RowFile
from finevolve_pipeline.llm.asking import Model
from finevolve_pipeline.llm.schemas import SCOPES
from finevolve_pipeline.news.clean import clean_article
from finevolve_pipeline.news.deduplicate import article_id
from finevolve_pipeline.news.importing import NewsOptions, NewsReader, read_news
from finevolve_pipeline.news.tag import Tagging, tag_days
from finevolve_pipeline.tables import Articles, conform
from finevolve_pipeline.universe import CODES

COLUMNS = ("id", "content_sha256", "industries", "scope", "importance")
LEVELS = 10
"""Importance goes from 1 to this."""

_NEVER = dt.datetime(9999, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Label:
    """What a reader said of one item.

    Attributes:
        item: the item's id, as its source gave it.
        text_sha256: digest of the content that was read, in hexadecimal.
        industries: Shenwan codes.
        scope: industry, market or none.
        importance: 1 to 10.
    """

    item: str
    text_sha256: str
    industries: frozenset[str]
    scope: str
    importance: int


@dataclass(frozen=True)
class Labelled:
    """Labels, and the `Articles` rows they were given to, in one order."""

    labels: tuple[Label, ...]
    articles: pd.DataFrame


@dataclass(frozen=True)
class IndustryAgreement:
    """Micro precision, recall and F1 over (article, industry) pairs of `articles` articles."""

    articles: int
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class Agreement:
    """Tags against labels.

    Attributes:
        overall: industries of all articles.
        within_industry_scope: industries of the articles whose label has scope industry.
        scope_accuracy: share of articles with the label's scope.
        spearman: rank correlation of importance; NaN where either side gives one level only.
        kendall: tau-b of importance; NaN likewise.
        weighted_kappa: Cohen's kappa of importance with quadratic weights, which also counts a shifted scale; NaN
            where both sides give one and the same level only.
        threshold: importance from which articles are shown to agents.
        kept_by_label: share of articles that the labels put at `threshold` or above.
        kept_by_tagger: the same of the tagger.
        kept_agreement: share of articles of which both say the same about `threshold`.
    """

    overall: IndustryAgreement
    within_industry_scope: IndustryAgreement
    scope_accuracy: float
    spearman: float
    kendall: float
    weighted_kappa: float
    threshold: int
    kept_by_label: float
    kept_by_tagger: float
    kept_agreement: float


def read_labels(path: Path) -> tuple[Label, ...]:
    """Labels from a CSV file with the columns `COLUMNS`; industries are codes joined by `|`.

    Raises:
        InputError: the file cannot be read as such, names an item twice, or holds no label.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as source:
            rows = list(csv.DictReader(source))
    except OSError as refused:
        raise InputError(f"{path}: cannot be read ({refused.strerror})") from None
    except (UnicodeDecodeError, csv.Error) as broken:
        raise InputError(f"{path}: no CSV file in UTF-8 ({broken})") from None
    labels = tuple(_label(row, f"{path} row {number}") for number, row in enumerate(rows, 1))
    if not labels:
        raise InputError(f"{path}: holds no label; give a CSV file with the columns {', '.join(COLUMNS)}")
    items = [label.item for label in labels]
    twice = next((item for item in items if items.count(item) > 1), None)
    if twice is not None:
        raise InputError(f"{path}: item {twice!r} is labelled twice; keep one of its rows")
    return labels


def _label(row: dict[str, str | None], where: str) -> Label:
    absent = next((name for name in COLUMNS if row.get(name) is None), None)
    if absent is not None:
        raise InputError(f"{where}: no {absent}; the columns are {', '.join(COLUMNS)}")
    item, digest, codes, scope, importance = (str(row[name]).strip() for name in COLUMNS)
    industries = frozenset(code for code in codes.split("|") if code)
    unknown = next((code for code in sorted(industries) if code not in CODES), None)
    if unknown is not None:
        raise InputError(f"{where}: industry {unknown!r} is none of the 31 codes (`finevolve doctor --sectors`)")
    if scope not in SCOPES:
        raise InputError(f"{where}: scope {scope!r} is none of {', '.join(SCOPES)}")
    if not importance.isdecimal() or not 1 <= int(importance) <= LEVELS:
        raise InputError(f"{where}: importance {importance!r} is no whole number from 1 to {LEVELS}")
    return Label(item, digest.lower(), industries, scope, int(importance))


def read_labelled(labels: Sequence[Label], path: Path) -> Labelled:
    """The labelled items of a news file of any layout that can be imported, in the file's order.

    Raises:
        InputError: the file cannot be read, an item is not in it, or its text is not the one that was labelled.
    """
    wanted = {label.item: label for label in labels}
    found: dict[str, pd.Series[Any]] = {}
    other_text: set[str] = set()
    reader = NewsReader(NewsOptions(now=_NEVER))
    for frame in read_news(RowFile(path), reader, lambda reject: None):
        for _, row in frame[frame["source_id"].isin(wanted.keys())].iterrows():
            label = wanted[row["source_id"]]
            if hashlib.sha256(row["content"].encode("utf-8", "surrogatepass")).hexdigest() == label.text_sha256:
                found.setdefault(label.item, row)
            else:
                other_text.add(label.item)
    for label in labels:
        if label.item in other_text and label.item not in found:
            raise InputError(f"{path}: item {label.item!r}: its text is not the one that was labelled")
        if label.item not in found:
            raise InputError(f"{path}: item {label.item!r} is labelled but not in this file; name its file instead")
    return Labelled(tuple(wanted[item] for item in found), _articles(found.values(), str(path)))


def _articles(rows: Iterable[pd.Series[Any]], where: str) -> pd.DataFrame:
    frame = pd.DataFrame(list(rows)).reset_index(drop=True)
    clean = [clean_article(*texts) for texts in zip(frame["title"], frame["content"], strict=True)]
    ids = [article_id(*of) for of in zip(frame["source"], frame["source_id"], strict=True)]
    nothing: pd.Series[Any] = pd.Series([[] for _ in clean], dtype="object")
    return conform(
        frame.assign(
            article_id=ids,
            title=[one.title for one in clean],
            content=[one.content for one in clean],
            duplicates=nothing,
            # What came with the data would otherwise stand in for the tagger's answer.
            industries_given=nothing,
            importance_given=np.nan,
        ),
        Articles,
        where,
    )


def tag_labelled(labelled: Labelled, model: Model, batch: int, in_flight: int) -> Tagging:
    """The tagger's answers about labelled articles, in their order. Arguments and errors as `tag.tag_days`."""
    ((_, tagging),) = tag_days(iter([("labelled", labelled.articles)]), model, batch, in_flight)
    return tagging


def agreement(labels: Sequence[Label], tags: pd.DataFrame, threshold: int) -> Agreement:
    """Tags against labels.

    Args:
        labels: one or more.
        tags: `TaggedArticles` rows in the labels' order.
        threshold: importance from which articles are shown to agents.
    """
    industries = [frozenset(codes) for codes in tags["industries"]]
    pairs = list(zip((label.industries for label in labels), industries, strict=True))
    scopes = tags["scope"].to_list()
    given = np.array([label.importance for label in labels])
    answered = tags["importance"].to_numpy(dtype=np.int64)
    return Agreement(
        overall=industry_agreement(pairs),
        within_industry_scope=industry_agreement(
            [pair for label, pair in zip(labels, pairs, strict=True) if label.scope == "industry"]
        ),
        scope_accuracy=float(np.mean([label.scope == scope for label, scope in zip(labels, scopes, strict=True)])),
        spearman=_correlation(spearmanr, given, answered),
        kendall=_correlation(kendalltau, given, answered),
        weighted_kappa=weighted_kappa(given, answered),
        threshold=threshold,
        kept_by_label=float(np.mean(given >= threshold)),
        kept_by_tagger=float(np.mean(answered >= threshold)),
        kept_agreement=float(np.mean((given >= threshold) == (answered >= threshold))),
    )


def industry_agreement(pairs: Sequence[tuple[frozenset[str], frozenset[str]]]) -> IndustryAgreement:
    """Micro figures of (labelled, answered) industries of articles; 0 where nothing was labelled or answered."""
    both = sum(len(given & answered) for given, answered in pairs)
    precision = both / max(1, sum(len(answered) for _, answered in pairs))
    recall = both / max(1, sum(len(given) for given, _ in pairs))
    f1 = 2 * precision * recall / (precision + recall) if both else 0.0
    return IndustryAgreement(len(pairs), precision, recall, f1)


def weighted_kappa(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    """Cohen's kappa with quadratic weights of two raters on levels 1..`LEVELS`: 1 - observed / expected disagreement.

    NaN if both give one and the same level only.
    """
    # The expected squared distance of independent ratings with the observed shares of levels.
    expected = np.var(one) + np.var(other) + (np.mean(one) - np.mean(other)) ** 2
    return float(1 - np.mean((one - other) ** 2) / expected) if expected else float("nan")


def _correlation(of: Any, one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    if len(set(one.tolist())) < 2 or len(set(other.tolist())) < 2:
        return float("nan")
    return float(of(one, other).statistic)
