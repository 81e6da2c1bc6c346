"""Reflexion as published (arXiv 2303.11366): only failures are reflected on, and the last few reflections are shown.

A failure is a prediction whose direction was not the realised one; a score of 0 has no direction and is a failure, an
outcome of exactly 0 makes neither. A session without failures leaves the reflections as they are. The model sees the
reflections kept (three, by the packaged settings) when it writes the next, and predictions see the same ones.

Deviations from the publication:

- There is no second trial of the same task: the next prediction of the sector takes its place, on other news.
- Failures that become known on one session are reflected on together, whatever their horizons.
- A reflection is cut at `max_characters`, as in FinEvolveBench (B.2).
"""

from __future__ import annotations

from collections.abc import Sequence

from finevolve_pipeline.mechanisms.base import MaturedPrediction, episode
from finevolve_pipeline.mechanisms.reflexion import Reflexion


class ReflexionOriginal(Reflexion):
    """Reflects on failures only."""

    def worth_reflecting(self, matured: Sequence[MaturedPrediction]) -> Sequence[MaturedPrediction]:
        """The failures among them."""
        return [one for one in matured if one.outcome.alpha != 0 and not episode(one, self.world.past).success]
