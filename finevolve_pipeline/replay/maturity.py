"""The maturity queue: which predictions get their outcome today.

Nothing has to be queued: the outcomes that become known on t name the sessions they began in, and the chain's
history has the predictions made there.
"""

from __future__ import annotations

from collections.abc import Sequence

from finevolve_pipeline.mechanisms.base import MaturedPrediction, Outcome
from finevolve_pipeline.replay.history import History


def matured(outcomes: Sequence[Outcome], history: History) -> dict[str, tuple[MaturedPrediction, ...]]:
    """The predictions whose outcome became known today, by sector, oldest source session first.

    Args:
        outcomes: the outcomes of today.
        history: the predictions of the past. Outcomes from before the first of them belong to nobody.

    Returns:
        Only sectors with at least one. Predictions with an invalid score and undefined outcomes are included;
        a mechanism learns nothing from them.
    """
    found: dict[str, list[MaturedPrediction]] = {}
    for outcome in sorted(outcomes, key=lambda one: one.predicted_on):
        prediction = history.made(outcome.predicted_on, outcome.code)
        if prediction is not None:
            found.setdefault(outcome.code, []).append(MaturedPrediction(prediction, outcome))
    return {code: tuple(own) for code, own in found.items()}
