"""How old retrieved memories were, how much of their outcomes was known, and how much of their news was today's.

What must not live here: counting (see `evaluation.diagnostics`), HTML.
"""

from __future__ import annotations

import pandas as pd

from finevolve_pipeline.evaluation.layout.numbers import format_share
from finevolve_pipeline.evaluation.report import charts, figures
from finevolve_pipeline.evaluation.report.findings import Findings, of_backbone
from finevolve_pipeline.evaluation.report.views import Block, FigureView, TableView, text_table
from finevolve_pipeline.evaluation.report.words import Words

AGES = (0, 1, 5, 10, 20, 40, 80, 160)
"""Ages in sessions at which the table gives the share of memories that are no older."""

FILE = "tables/retrieval_distribution.csv"


def retrieval_block(findings: Findings, place: int, backbone: str, words: Words) -> Block:
    """Distributions of one backbone's retrieved memories, a figure per kind of experience.

    Args:
        findings: what was computed.
        place: makes ids unique.
        backbone: whose runs.
        words: the language.
    """
    own = of_backbone(findings.retrieval_spread, backbone)
    if own.empty:
        return Block((words("No run on {backbone} retrieved a memory.", backbone=backbone),))
    labels = findings.mechanisms(backbone)
    return Block(
        figures=tuple(
            _figure(f"p{place}spread{number}", str(kind), part, labels, words)
            for number, (kind, part) in enumerate(own.groupby("kind", sort=True))
        )
    )


def memories_name(kind: str, words: Words) -> str:
    """What memories of a kind are called; a mechanism's own kinds stay as they are."""
    names = {
        "trajectory": words("trajectories"),
        "reflection": words("reflections"),
        "insight": words("insights"),
        "reasoning_item": words("reasoning items"),
        "fact": words("facts"),
        "rule": words("rules"),
    }
    return names.get(kind, kind.replace("_", " "))


def _figure(name: str, kind: str, spread: pd.DataFrame, labels: dict[str, str], words: Words) -> FigureView:
    panels = {
        "age": words("Age, sessions"),
        "matured_share": words("Share of outcomes known"),
        "news_overlap": words("Overlap with the day's news"),
    }
    series = pd.concat(
        pd.DataFrame({"panel": panels[str(quantity)], "label": labels[str(mechanism)], **_steps(part)})
        for (mechanism, quantity), part in spread.groupby(["mechanism", "quantity"], sort=False)
    )
    title = words("Retrieved {kind}: age, outcomes known, overlap", kind=memories_name(kind, words))
    reading = words(
        "Share of memories at or below each value. A line that climbs at once: mostly young memories, few known "
        "outcomes, little of the day's news."
    )
    names, titles = list(labels.values()), list(panels.values())
    return FigureView(
        name,
        title,
        reading,
        figures.number_lines(name, title, series, titles, names, "", columns=len(titles)),
        age_table(kind, spread, labels, words),
        charts.number_lines(series, titles, names, "", columns=len(titles), hover=".1%"),
    )


def _steps(spread: pd.DataFrame) -> dict[str, list[float]]:
    """A distribution function as stairs, from zero at the left."""
    values, reached = spread["value"].tolist(), spread["cumulative"].tolist()
    before = [0.0, *reached[:-1]]
    return {
        "x": [value for value in values for _ in range(2)],
        "y": [height for pair in zip(before, reached, strict=True) for height in pair],
    }


def age_table(kind: str, spread: pd.DataFrame, labels: dict[str, str], words: Words) -> TableView:
    """Share of memories no older than `AGES`; share without a known outcome; share without news of the day."""
    rows = []
    for mechanism, part in spread.groupby("mechanism", sort=False):
        by_quantity = {str(quantity): own for quantity, own in part.groupby("quantity", sort=False)}
        ages = by_quantity["age"]
        rows.append(
            [
                labels[str(mechanism)],
                f"{int(ages['memories'].sum()):,}",
                *(format_share(_reached(ages, age)) for age in AGES),
                format_share(_reached(by_quantity["matured_share"], 0)),
                format_share(_reached(by_quantity["news_overlap"], 0)),
            ]
        )
    columns = [
        words("Method"),
        words("Memories"),
        *(words("≤ {age} sessions", age=age) for age in AGES),
        words("No outcome known"),
        words("No news of the day"),
    ]
    caption = words("Retrieved {kind}, share by age", kind=memories_name(kind, words))
    return text_table(caption, columns, rows, notes=[words("Every value stands in {file}.", file=FILE)])


def _reached(spread: pd.DataFrame, value: float) -> float:
    """Share of memories at or below a value."""
    below = spread.loc[spread["value"] <= value, "cumulative"]
    return float(below.iloc[-1]) if len(below) else 0.0
