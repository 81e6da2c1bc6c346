from __future__ import annotations

import gzip
import hashlib
import json
import math
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from finevolve_pipeline.errors import InputError
from finevolve_pipeline.evaluation.agreement import (
    Label,
    agreement,
    industry_agreement,
    read_labelled,
    read_labels,
    tag_labelled,
    weighted_kappa,
)
from finevolve_pipeline.llm.asking import Model
from finevolve_pipeline.llm.rules.backbone import RulesBackbone
from finevolve_pipeline.settings import load_settings

LABELS = Path(__file__).resolve().parents[1] / "golden" / "telegraph_labels.csv"
HEADER = "id,content_sha256,industries,scope,importance\n"


@pytest.mark.real_data
def test_the_lexicon_agrees_with_the_labelled_telegraphs_as_measured(real_data: Path) -> None:
    """Figures of `benchmarks/README.md`."""
    telegraphs = real_data / "news" / "cls_telegraph_2026-02-05_2026-04-30.jsonl.gz"
    labelled = read_labelled(read_labels(LABELS), telegraphs)
    tagging = tag_labelled(labelled, Model(RulesBackbone(), load_settings().prompts), 1, 64)
    found = agreement(labelled.labels, tagging.frame, 8)
    assert (found.overall.articles, found.within_industry_scope.articles) == (200, 119)
    assert (tagging.asked, tagging.unreadable) == (200, 0)
    figures = {
        "precision": found.overall.precision,
        "recall": found.overall.recall,
        "f1": found.overall.f1,
        "f1 within industry scope": found.within_industry_scope.f1,
        "scope": found.scope_accuracy,
        "spearman": found.spearman,
        "kendall": found.kendall,
        "kept by label": found.kept_by_label,
        "kept by rules": found.kept_by_tagger,
        "kept agreement": found.kept_agreement,
    }
    assert {name: round(value, 3) for name, value in figures.items()} == {
        "precision": 0.711,
        "recall": 0.692,
        "f1": 0.701,
        "f1 within industry scope": 0.742,
        "scope": 0.82,
        "spearman": 0.407,
        "kendall": 0.325,
        "kept by label": 0.045,
        "kept by rules": 0.265,
        "kept agreement": 0.74,
    }


def label(industries: str, scope: str, importance: int) -> Label:
    return Label("x", "", frozenset(industries.split()), scope, importance)


def tags(*rows: tuple[str, str, int]) -> pd.DataFrame:
    """The columns of TaggedArticles that count, from (industries, scope, importance)."""
    frame = pd.DataFrame(rows, columns=["industries", "scope", "importance"])
    return frame.assign(industries=frame["industries"].str.split())


def test_industry_figures_count_pairs_of_article_and_industry() -> None:
    pairs = [
        (frozenset({"801080", "801770"}), frozenset({"801080"})),
        (frozenset[str](), frozenset({"801780"})),
    ]
    found = industry_agreement(pairs)
    assert (found.articles, found.precision, found.recall, found.f1) == (2, 0.5, 0.5, 0.5)
    assert industry_agreement([]).f1 == 0.0


def test_full_agreement_is_one_everywhere() -> None:
    labels = (label("801080", "industry", 9), label("", "market", 3), label("", "none", 1))
    found = agreement(labels, tags(("801080", "industry", 9), ("", "market", 3), ("", "none", 1)), 8)
    assert (found.overall.f1, found.scope_accuracy, found.kept_agreement) == (1.0, 1.0, 1.0)
    assert (found.spearman, found.kendall, found.weighted_kappa) == pytest.approx((1.0, 1.0, 1.0))


def test_a_shifted_scale_keeps_the_ranks_and_costs_kappa() -> None:
    labels = tuple(label("", "none", n) for n in (1, 2, 3, 4))
    found = agreement(labels, tags(*(("", "none", n + 5) for n in (1, 2, 3, 4))), 8)
    assert found.spearman == pytest.approx(1.0)
    assert found.weighted_kappa < 0.2
    assert (found.kept_by_label, found.kept_by_tagger, found.kept_agreement) == (0.0, 0.5, 0.5)


def test_a_tagger_that_says_one_level_only_has_no_rank_correlation() -> None:
    found = agreement((label("", "none", 1), label("", "none", 9)), tags(("", "none", 5), ("", "none", 5)), 8)
    assert math.isnan(found.spearman)
    assert math.isnan(found.kendall)
    assert found.weighted_kappa == 0.0


def test_weighted_kappa_is_that_of_the_table_of_both_ratings() -> None:
    rng = np.random.default_rng(3)
    one = rng.integers(1, 11, 60)
    other = np.clip(one + rng.integers(-3, 4, 60), 1, 10)
    levels = range(1, 11)
    observed = np.array([[np.mean((one == i) & (other == j)) for j in levels] for i in levels])
    expected = np.outer(observed.sum(axis=1), observed.sum(axis=0))
    weights = np.array([[(i - j) ** 2 / 81 for j in levels] for i in levels])
    assert weighted_kappa(one, other) == pytest.approx(1 - (weights * observed).sum() / (weights * expected).sum())


def written(folder: Path, *rows: str) -> Path:
    path = folder / "labels.csv"
    path.write_text(HEADER + "".join(f"{row}\n" for row in rows), "utf-8")
    return path


def news(folder: Path, *items: tuple[str, str]) -> Path:
    path = folder / "news.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as sink:
        for item, content in items:
            whole = {"id": item, "source": "财联社", "title": "标题", "content": content}
            sink.write(json.dumps(whole | {"publish_time": "2026-03-01T10:00:00"}) + "\n")
    return path


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_labelled_items_are_read_and_cleaned_as_in_the_pipeline(tmp_path: Path) -> None:
    labels = read_labels(written(tmp_path, f"b,{sha('【要闻】乙 &amp; 丙')},801080|801770,industry,7"))
    labelled = read_labelled(labels, news(tmp_path, ("a", "甲"), ("b", "【要闻】乙 &amp; 丙")))
    assert labelled.labels == labels
    assert labels[0].industries == {"801080", "801770"}
    (row,) = labelled.articles.to_dict("records")
    assert (row["source"], row["source_id"], row["content"]) == ("cls", "b", "乙 & 丙")


def test_a_label_for_another_text_or_none_is_refused(tmp_path: Path) -> None:
    path = news(tmp_path, ("a", "甲"))
    with pytest.raises(InputError, match="its text is not the one that was labelled"):
        read_labelled(read_labels(written(tmp_path, f"a,{sha('乙')},,none,2")), path)
    with pytest.raises(InputError, match="'b' is labelled but not in this file"):
        read_labelled(read_labels(written(tmp_path, f"b,{sha('甲')},,none,2")), path)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,00,801999,industry,2", "industry '801999' is none of the 31"),
        ("a,00,,everything,2", "scope 'everything'"),
        *((f"a,00,,none,{bad}", "importance") for bad in ("0", "11", "x", "-1", "")),
        ("a,00,,none", "no importance"),
    ],
)
def test_a_label_that_is_none_is_refused_with_its_row(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        read_labels(written(tmp_path, f"z,{sha('甲')},,none,1", row))
    assert "row 2" in str(refused.value)


def test_labels_must_be_there_once_each(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no label"):
        read_labels(written(tmp_path))
    with pytest.raises(InputError, match="'a' is labelled twice"):
        read_labels(written(tmp_path, *["a,00,,none,1"] * 2))
    with pytest.raises(InputError, match="cannot be read"):
        read_labels(tmp_path / "nowhere.csv")


def test_scopes_of_all_combinations_are_counted() -> None:
    scopes = ("industry", "market", "none")
    both = list(product(scopes, scopes))
    labels = tuple(label("", one, 3) for one, _ in both)
    assert agreement(labels, tags(*(("", other, 3) for _, other in both)), 8).scope_accuracy == pytest.approx(1 / 3)
