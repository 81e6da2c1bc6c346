"""When a number is called beyond noise: one definition for marks in tables, verdicts and figures.

What must not live here: tests (they fill the table `inference`), words.
"""

from __future__ import annotations

import math


def significance_level(confidence: float) -> float:
    """The level that belongs to intervals of that confidence: 0.05 for 0.95."""
    return round(1 - confidence, 12)


def beyond_noise(adjusted_p: float, confidence: float) -> bool | None:
    """Whether Holm's adjusted p lies below the level; None if nothing was tested.

    False is no finding of equality: a difference may be there and be too small for the sessions at hand.

    Args:
        adjusted_p: NaN if there was no test.
        confidence: of the intervals (setting `evaluation.confidence`).
    """
    return None if math.isnan(adjusted_p) else adjusted_p < significance_level(confidence)
