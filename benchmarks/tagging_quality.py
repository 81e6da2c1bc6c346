"""How well the rules backbone tags: hand labels of real telegraphs against its answers, as a Markdown table.

    python benchmarks/tagging_quality.py LABELS.csv TELEGRAPHS.jsonl.gz

Labels: id, content_sha256, industries (codes joined by |), scope, importance. Telegraphs: one JSON object a
line with id, title, content, publish_time. Articles are cleaned like in the pipeline before they are tagged.
"""

from __future__ import annotations

import argparse
import csv
import datetime as dt
import gzip
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import kendalltau, spearmanr

from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.llm.answers import TagAnswer, parse_tag
from finevolve_pipeline.llm.requests import TagRequest
from finevolve_pipeline.llm.rules.backbone import RulesBackbone
from finevolve_pipeline.news.clean import clean_article

KEPT = 8


@dataclass(frozen=True)
class Label:
    """What a person said of one telegraph."""

    industries: frozenset[str]
    scope: str
    importance: int


@dataclass(frozen=True)
class Agreement:
    """Micro precision, recall and F1 over (article, industry) pairs of `articles` articles."""

    articles: int
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class Quality:
    """All figures. `kept_*`: shares of articles at importance >= 8, and how often both agree on that."""

    overall: Agreement
    within_industry_scope: Agreement
    scope_accuracy: float
    spearman: float
    kendall: float
    kept_by_label: float
    kept_by_tagger: float
    kept_agreement: float


def read_labels(path: Path) -> dict[str, tuple[str, Label]]:
    """Labels by id, each with the digest of the text it was given for."""
    with path.open(encoding="utf-8-sig", newline="") as source:
        return {
            row["id"]: (
                row["content_sha256"],
                Label(
                    frozenset(code for code in row["industries"].split("|") if code),
                    row["scope"],
                    int(row["importance"]),
                ),
            )
            for row in csv.DictReader(source)
        }


def read_labelled(labels: Path, telegraphs: Path) -> list[tuple[Label, TagRequest]]:
    """Every labelled telegraph with its label, in file order.

    Raises:
        ValueError: a labelled telegraph is absent, or its text is not the one that was labelled.
    """
    wanted = read_labels(labels)
    found: list[tuple[Label, TagRequest]] = []
    with gzip.open(telegraphs, "rt", encoding="utf-8") as source:
        for line in source:
            item = json.loads(line)
            digest, label = wanted.pop(item["id"], ("", None))
            if label is None:
                continue
            if hashlib.sha256(item["content"].encode()).hexdigest() != digest:
                raise ValueError(f"telegraph {item['id']}: its text is not the one that was labelled")
            title, content = clean_article(item["title"], item["content"])
            published = dt.datetime.fromisoformat(item["publish_time"]).replace(tzinfo=SHANGHAI)
            found.append((label, TagRequest(item["id"], "cls", title, content, published)))
    if wanted:
        raise ValueError(f"telegraph {min(wanted)}: labelled but not in {telegraphs.name}")
    return found


def quality(labelled: list[tuple[Label, TagRequest]]) -> Quality:
    """Figures of the rules backbone on labelled articles."""
    backbone = RulesBackbone()
    pairs = [(label, parse_tag(backbone.answer_now(request))) for label, request in labelled]
    given = np.array([label.importance for label, _ in pairs])
    answered = np.array([answer.importance for _, answer in pairs])
    return Quality(
        overall=_agreement(pairs),
        within_industry_scope=_agreement([pair for pair in pairs if pair[0].scope == "industry"]),
        scope_accuracy=float(np.mean([label.scope == answer.scope for label, answer in pairs])),
        spearman=float(spearmanr(given, answered).statistic),
        kendall=float(kendalltau(given, answered).statistic),
        kept_by_label=float(np.mean(given >= KEPT)),
        kept_by_tagger=float(np.mean(answered >= KEPT)),
        kept_agreement=float(np.mean((given >= KEPT) == (answered >= KEPT))),
    )


def _agreement(pairs: list[tuple[Label, TagAnswer]]) -> Agreement:
    both = sum(len(label.industries & set(answer.industries)) for label, answer in pairs)
    answered = sum(len(answer.industries) for _, answer in pairs)
    given = sum(len(label.industries) for label, _ in pairs)
    precision = both / answered if answered else 0.0
    recall = both / given if given else 0.0
    f1 = 2 * precision * recall / (precision + recall) if both else 0.0
    return Agreement(len(pairs), precision, recall, f1)


def markdown(figures: Quality) -> str:
    """The figures as a Markdown table."""
    rows = [
        ("industries, all articles", figures.overall),
        ("industries, articles labelled with scope industry", figures.within_industry_scope),
    ]
    lines = ["| figure | articles | precision | recall | F1 |", "|---|---|---|---|---|"]
    lines += [
        f"| {name} | {one.articles} | {one.precision:.3f} | {one.recall:.3f} | {one.f1:.3f} |" for name, one in rows
    ]
    lines += [
        "",
        "| figure | value |",
        "|---|---|",
        f"| scope accuracy | {figures.scope_accuracy:.3f} |",
        f"| importance, Spearman | {figures.spearman:.3f} |",
        f"| importance, Kendall tau-b | {figures.kendall:.3f} |",
        f"| share >= {KEPT}, labels | {figures.kept_by_label:.3f} |",
        f"| share >= {KEPT}, rules | {figures.kept_by_tagger:.3f} |",
        f"| agreement on >= {KEPT} | {figures.kept_agreement:.3f} |",
    ]
    return "\n".join(lines)


def main() -> None:
    """Print the table for the files named on the command line."""
    parser = argparse.ArgumentParser(description="Quality of the rules backbone's tags against hand labels.")
    parser.add_argument("labels", type=Path, help="CSV of hand labels")
    parser.add_argument("telegraphs", type=Path, help="telegraphs as JSONL.gz")
    asked = parser.parse_args()
    print(markdown(quality(read_labelled(asked.labels, asked.telegraphs))))


if __name__ == "__main__":
    main()
