"""How numbers are written in tables of the report; they read alike in all languages.

What must not live here: sentences.
"""

from __future__ import annotations

import math

SMALLEST_P = 0.001
"""A p-value below this is said to be below it: its digits depend on the tail of a distribution that is assumed."""


def signed(value: float, digits: int = 4) -> str:
    """A difference with its sign, a dash if undefined."""
    return "–" if math.isnan(value) else f"{value:+.{digits}f}"


def interval(low: float, high: float, digits: int = 4) -> str:
    """Both ends of an interval, a dash if undefined."""
    return "–" if math.isnan(low) or math.isnan(high) else f"[{low:+.{digits}f}, {high:+.{digits}f}]"


def p_value(value: float) -> str:
    """A p-value with three decimals, a dash if undefined."""
    if math.isnan(value):
        return "–"
    return f"{value:.3f}" if value >= SMALLEST_P else f"<{SMALLEST_P}"


def count(value: float) -> str:
    """A whole number with separators, a dash if undefined."""
    return "–" if math.isnan(value) else f"{value:,.0f}"
