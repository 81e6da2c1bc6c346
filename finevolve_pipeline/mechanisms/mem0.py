"""Mem0 (paper, Appendix B): raw trajectories, recalled by similarity of news, never labelled with an outcome.

Scores are shown as they were predicted.
"""

from __future__ import annotations

from pydantic import Field

from finevolve_pipeline.mechanisms.base import MechanismSettings, Recalled, Situation
from finevolve_pipeline.mechanisms.similarity import most_similar_first
from finevolve_pipeline.mechanisms.trajectories import TrajectoryMechanism


class Mem0Settings(MechanismSettings):
    """`top_k` memories at most, each with a cosine of at least `min_similarity`."""

    top_k: int = Field(ge=1)
    min_similarity: float = Field(ge=-1, le=1)


class Mem0(TrajectoryMechanism):
    """The `top_k` most similar memories above the threshold; ties newest first."""

    settings_model = Mem0Settings
    settings: Mem0Settings

    def retrieve(self, situation: Situation) -> tuple[Recalled, ...]:
        """The most similar memories of the sector."""
        store = self.store(situation.industry.code)
        similarities = store.index.similarities(situation.key)
        best = most_similar_first(similarities)[: self.settings.top_k]
        return tuple(
            self.recalled(self.shown(store.memories[at], float(similarities[at])), situation)
            for at in best
            if similarities[at] >= self.settings.min_similarity
        )
