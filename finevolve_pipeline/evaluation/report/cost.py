"""What runs took of models beside what they gained over Pipe, as views.

What must not live here: sums (see `evaluation.spending`), HTML.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from finevolve_pipeline.evaluation.comparison import mechanism_label
from finevolve_pipeline.evaluation.ic import METRICS
from finevolve_pipeline.evaluation.layout.numbers import format_count, format_ends, format_gain, format_percent
from finevolve_pipeline.evaluation.report import charts, figures
from finevolve_pipeline.evaluation.report.findings import Findings
from finevolve_pipeline.evaluation.report.views import Block, FigureView, TableView, text_table
from finevolve_pipeline.evaluation.report.words import Words
from finevolve_pipeline.llm.ledger import usd


def cost_block(findings: Findings, words: Words) -> Block:
    """Tokens and USD of every run beside its mean gain."""
    rows = findings.spending
    if rows.empty:
        return Block((words("No run has been replayed yet, so nothing was asked of a model."),))
    table = cost_table(rows, findings.evaluation.settings.confidence, words)
    tokens = rows["prompt_tokens"].sum() + rows["completion_tokens"].sum()
    if not tokens:
        return Block((words("No model was paid: the runs' backbone needs none."),), tables=(table,))
    sentences = () if rows["cost"].any() else (words("No model was paid: their price is zero."),)
    gained = rows.dropna(subset=[f"gain_{metric}" for metric in METRICS], how="all")
    if gained.empty:
        return Block(
            (*sentences, words("No gain over Pipe has been tested yet, so the table stands alone.")), (), (table,)
        )
    return Block(sentences, tuple(_figure(gained, metric, words) for metric in reversed(METRICS)), (table,))


def _figure(rows: pd.DataFrame, metric: str, words: Words) -> FigureView:
    """Gain by USD, or by tokens where none were paid; a point is a mechanism, the mean over its seeds."""
    paid = bool(rows["cost"].any())
    taken = rows["cost"] if paid else (rows["prompt_tokens"] + rows["completion_tokens"]) / 1e6
    names = {f"gain_{metric}": "y", f"low_{metric}": "low", f"high_{metric}": "high"}
    points = rows.assign(x=taken.astype(float)).groupby(["backbone", "mechanism"], sort=False)[["x", *names]].mean()
    points = points.rename(columns=names).reset_index()
    points = points.assign(name=points["mechanism"].map(mechanism_label))
    layers = {str(backbone): part for backbone, part in points.groupby("backbone", sort=False)}
    title = words("Mean gain in {metric} by what it cost", metric=metric)
    axis = words("USD for the whole run") if paid else words("Million tokens of the whole run")
    gain = words("Mean {metric} less Pipe's", metric=metric)
    name = f"cost{metric}"
    texts = [
        [row["name"], row["backbone"], f"{row['x']:,.2f}", format_gain(row["y"]), format_ends(row["low"], row["high"])]
        for row in points.to_dict("records")
    ]
    columns = [words("Method"), words("Backbone"), axis, gain, words("Interval")]
    return FigureView(
        name,
        title,
        words("Mean over the horizons, with its interval. Up and to the left is better."),
        figures.scatter(name, title, layers, axis, gain),
        text_table(words("{title}: numbers", title=title), columns, texts, 2),
        charts.scatter(layers, axis, gain, ",.2f", "+.4f"),
    )


def cost_table(rows: pd.DataFrame, confidence: float, words: Words) -> TableView:
    """What each run took, and its mean gains."""
    texts = [_row(row) for row in rows.to_dict("records")]
    interval = words("{confidence} interval", confidence=format_percent(confidence))
    gains = [text for metric in reversed(METRICS) for text in (words("Mean Δ{metric}", metric=metric), interval)]
    columns = [
        words("Run"),
        words("Sessions"),
        words("Calls"),
        words("Prompt tokens"),
        words("of these cached"),
        words("Answer tokens"),
        words("of these thought"),
        words("USD"),
        *gains,
    ]
    note = words(
        "What answers took when they were given; those that came from the cache of answers are counted as often as "
        "they were used. Gains are means over the horizons, on common cells, overall."
    )
    return text_table(words("What runs took of models, and gained"), columns, texts, notes=[note])


def _row(row: Mapping[Any, Any]) -> list[str]:
    gains = [
        text
        for metric in reversed(METRICS)
        for text in (format_gain(row[f"gain_{metric}"]), format_ends(row[f"low_{metric}"], row[f"high_{metric}"]))
    ]
    return [
        str(row["experiment"]),
        format_count(row["sessions"]),
        format_count(row["calls"]),
        format_count(row["prompt_tokens"]),
        format_count(row["cached_prompt_tokens"]),
        format_count(row["completion_tokens"]),
        format_count(row["reasoning_tokens"]),
        usd(float(row["cost"])),
        *gains,
    ]
