"""Figures over time in few numbers: their tables by month.

What must not live here: sentences of a figure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from finevolve_pipeline.evaluation.layout.numbers import format_number
from finevolve_pipeline.evaluation.report.views import TableView, text_table
from finevolve_pipeline.evaluation.report.words import Words


def month_of(days: pd.Series) -> pd.Series:
    """Months (YYYY-MM) of ISO days."""
    return days.str.slice(0, 7).rename("month")


def month_table(
    caption: str,
    values: pd.Series,
    panels: Sequence[str],
    labels: Sequence[str],
    words: Words,
    notes: Sequence[str] = (),
    style: str = ".4f",
) -> TableView:
    """A figure over time in few numbers: a row per panel and month that has any, a column per label.

    Args:
        caption: what the numbers are.
        values: indexed by panel, label, month (YYYY-MM).
        panels: titles of the figure's panels.
        labels: names of its lines; those without values are left out.
        words: the language.
        notes: what stands below.
        style: how numbers are written (a format of Python's).
    """
    known = values.to_dict()
    drawn = set(values.index.get_level_values("label"))
    columns = [label for label in labels if label in drawn]
    months = sorted(set(values.index.get_level_values("month")))
    numbers = {
        (panel, month): [known.get((panel, label, month), math.nan) for label in columns]
        for panel in panels
        for month in months
    }
    rows = [
        [*place, *(format_number(value, style) for value in found)]
        for place, found in numbers.items()
        if not all(map(math.isnan, found))
    ]
    return text_table(caption, [words("Panel"), words("Month"), *columns], rows, 2, notes)
