"""The rules backbone agrees with a careful reader on telegraphs nobody fitted it to."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tagging_quality() -> ModuleType:
    """`benchmarks/tagging_quality.py` as a module."""
    spec = importlib.util.spec_from_file_location("tagging_quality", REPOSITORY / "benchmarks" / "tagging_quality.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.real_data
def test_tags_agree_with_the_hand_labels(tagging_quality: ModuleType, real_data: Path) -> None:
    labelled = tagging_quality.read_labelled(
        REPOSITORY / "tests" / "golden" / "telegraph_labels.csv",
        real_data / "news" / "cls_telegraph_2026-02-05_2026-04-30.jsonl.gz",
    )
    figures = tagging_quality.quality(labelled)
    assert len(labelled) == 200
    assert figures.within_industry_scope.f1 >= 0.65
    assert figures.overall.f1 >= 0.6
    assert figures.scope_accuracy >= 0.7
    assert figures.spearman >= 0.3
    assert "| importance, Spearman |" in tagging_quality.markdown(figures)


def test_micro_figures_count_pairs(tagging_quality: ModuleType) -> None:
    label, answer = tagging_quality.Label, tagging_quality.TagAnswer
    pairs = [
        (label(frozenset({"801080", "801770"}), "industry", 6), answer(("801080",), "industry", 7, "", ())),
        (label(frozenset(), "market", 3), answer(("801780",), "industry", 4, "", ())),
    ]
    figures = tagging_quality._agreement(pairs)
    assert (figures.articles, figures.precision, figures.recall, figures.f1) == (2, 0.5, 0.5, 0.5)
    assert tagging_quality._agreement([]).f1 == 0.0


def test_a_label_for_another_text_is_refused(tagging_quality: ModuleType, tmp_path: Path) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text("id,content_sha256,industries,scope,importance\na,00,,none,2\n", "utf-8")
    news = tmp_path / "news.jsonl.gz"
    item = {"id": "a", "title": "标题", "content": "正文", "publish_time": "2026-03-01T10:00:00"}
    with gzip.open(news, "wt", encoding="utf-8") as sink:
        sink.write(json.dumps(item) + "\n")
    with pytest.raises(ValueError, match="its text is not the one that was labelled"):
        tagging_quality.read_labelled(labels, news)
    labels.write_text("id,content_sha256,industries,scope,importance\nb,00,,none,2\n", "utf-8")
    with pytest.raises(ValueError, match="labelled but not in"):
        tagging_quality.read_labelled(labels, news)
