"""Numbers of the tables as text. Undefined ones are a dash everywhere."""

from __future__ import annotations

import math

DASH = "–"


def format_coefficient(value: float) -> str:
    """Four decimals, a dash if undefined."""
    return DASH if math.isnan(value) else f"{value:z.4f}"


def format_gain(value: float) -> str:
    """Four decimals with a sign, a dash if undefined."""
    return DASH if math.isnan(value) else f"{value:+z.4f}"


def format_p(p: float) -> str:
    """Three decimals, `<0.001` below that, a dash if there was no test."""
    if math.isnan(p):
        return DASH
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def format_interval(low: float, high: float) -> str:
    """`-0.0123 to +0.0456`, a dash if either end is undefined."""
    return DASH if math.isnan(low) or math.isnan(high) else f"{low:+z.4f} to {high:+z.4f}"


def format_percent(share: float) -> str:
    """`95 %`, with as many decimals as are needed."""
    return f"{100 * share:.6g} %"


def format_ends(low: float, high: float) -> str:
    """`[-0.0123, +0.0456]`, which reads alike in all languages; a dash if either end is undefined."""
    return DASH if math.isnan(low) or math.isnan(high) else f"[{low:+z.4f}, {high:+z.4f}]"


def format_share(share: float) -> str:
    """A fraction as `12.3%`, a dash if undefined."""
    return format_number(share, ".1%")


def format_count(count: float) -> str:
    """A whole number with separators, a dash if undefined."""
    return format_number(count, ",.0f")


def format_number(value: float, style: str) -> str:
    """In a style of Python's, a dash if undefined."""
    return DASH if math.isnan(value) else format(value, style)
