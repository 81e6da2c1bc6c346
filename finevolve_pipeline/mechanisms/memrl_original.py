"""MemRL as published (arXiv 2601.03192): similarity and Q decide together, and only what was used is rewarded.

Of the memories at least `min_similarity` alike (the paper's delta) the `candidates` most similar are compared by
(1 - mix) * z(similarity) + mix * z(Q), each z over these candidates, and the `top_k` best are shown. When an outcome
becomes known, the memories that the prediction had been shown learn from it: Q <- Q + learning_rate * (r - Q), with
r = 1 where the predicted direction was right and r = -1 where it was not.

Deviations from the publication:

- A memory is the prediction with its news, as in MemRL, not a summary of it: there is one call a sector-day.
- Every predicted horizon is rewarded by itself when it matures. A score of 0 has no direction and fails; an outcome of
  exactly 0 has none either and rewards nobody.
- The choice is never random. The published code takes an arbitrary one now and then.
- Similarities are standardised over the candidates too, as in the paper's formula. The published code takes a mean and
  a deviation that were measured on the whole task beforehand, which a replay cannot know.

A memory that no outcome has touched has exactly the initial Q and no visits, as in MemRL.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field

from finevolve_pipeline.llm.asking import Model
from finevolve_pipeline.mechanisms.base import Event, MaturedPrediction, Recalled, Situation, with_outcome
from finevolve_pipeline.mechanisms.memrl import Rewarded, UtilityMechanism, UtilitySettings
from finevolve_pipeline.mechanisms.similarity import most_similar_first
from finevolve_pipeline.mechanisms.trajectories import Remembered

_FLAT = 1e-9
"""Values that spread no wider are alike, as in the published code: rounding must not become a preference."""
_DECIMALS = 9
"""Of a selection score: beyond them there is only rounding, which must not decide between equals."""


class MemRLOriginalSettings(UtilitySettings):
    """`mix`: weight of Q (the paper's lambda). `z_clip`: how many deviations from the mean count at most."""

    min_similarity: float = Field(ge=-1, le=1)
    mix: float = Field(ge=0, le=1)
    z_clip: float = Field(gt=0)


@dataclass(frozen=True)
class Judged(Rewarded):
    """As `Rewarded`, but the reward only says whether the direction was right."""

    kind: ClassVar[str] = "judged"

    @property
    def reward(self) -> float:
        """1 where score and alpha have the same sign, -1 elsewhere."""
        return 1.0 if self.score * self.alpha > 0 else -1.0


class MemRLOriginal(UtilityMechanism):
    """The `top_k` candidates of the highest mixed score; ties by similarity, then newest."""

    settings_model = MemRLOriginalSettings
    settings: MemRLOriginalSettings
    events: ClassVar[tuple[type[Event], ...]] = (Remembered, Judged)

    async def mature(
        self, session: dt.date, code: str, matured: Sequence[MaturedPrediction], model: Model
    ) -> Sequence[Event]:
        """One reward a matured prediction that had been shown memories, oldest source first."""
        return [
            Judged.of(one, memories=one.prediction.references)
            for one in with_outcome(matured)
            if one.outcome.alpha != 0 and one.prediction.references
        ]

    def retrieve(self, situation: Situation) -> tuple[Recalled, ...]:
        """The candidates of the sector that are best by similarity and Q together."""
        settings = self.settings
        store = self.store(situation.industry.code)
        similarities = store.index.similarities(situation.key)
        near = [at for at in most_similar_first(similarities) if similarities[at] >= settings.min_similarity]
        # Candidates come by similarity, then newest; the stable sort keeps that order among equal scores.
        candidates = near[: settings.candidates]
        by_similarity = standardised([float(similarities[at]) for at in candidates], settings.z_clip)
        by_q = standardised([self.utility(store.memories[at]).mean for at in candidates], settings.z_clip)
        scores = [
            round((1 - settings.mix) * similar + settings.mix * useful, _DECIMALS)
            for similar, useful in zip(by_similarity, by_q, strict=True)
        ]
        best = sorted(zip(scores, candidates, strict=True), key=lambda scored: -scored[0])[: settings.top_k]
        return tuple(
            self._recalled(
                memory=store.memories[at],
                similarity=float(similarities[at]),
                selection_score=score,
                situation=situation,
            )
            for score, at in best
        )


def standardised(values: Sequence[float], clip: float) -> list[float]:
    """Deviations from the mean of `values` in units of their standard deviation, within [-clip, clip].

    The standard deviation is the population's (the root of the mean square); where it is 0, so are all deviations.
    """
    if not values:
        return []
    mean = math.fsum(values) / len(values)
    away = [value - mean for value in values]
    deviation = math.sqrt(math.fsum(one * one for one in away) / len(away))
    if deviation <= _FLAT:
        return [0.0] * len(away)
    return [min(max(one / deviation, -clip), clip) for one in away]
