"""Placebos: they give a prediction as much context as a mechanism does, but not the experience that is in it.

If a mechanism is no better than its placebo, more context helped and not experience:

| placebo           | stands for | what is taken away                                                   |
|-------------------|------------|----------------------------------------------------------------------|
| `RandomRetrieval` | Mem0       | the choice: memories are drawn at random                             |
| `ShuffledOutcomes`| MemRL      | the feedback: utility is learnt from another sector's outcomes       |
| `StaleMemories`   | Mem0       | the recency: only memories of a certain age can be recalled          |

All that is random follows from hashes of the seed and of what it is drawn for.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from pydantic import Field

from finevolve_pipeline import calendar
from finevolve_pipeline.digests import digest_text
from finevolve_pipeline.errors import SettingsError
from finevolve_pipeline.llm.asking import Model
from finevolve_pipeline.mechanisms.base import (
    Event,
    MaturedPrediction,
    MechanismSettings,
    Recalled,
    Situation,
    session_of,
)
from finevolve_pipeline.mechanisms.mem0 import Mem0Settings
from finevolve_pipeline.mechanisms.memrl import MemRL, MemRLSettings
from finevolve_pipeline.mechanisms.similarity import most_similar_first
from finevolve_pipeline.mechanisms.trajectories import TrajectoryMechanism


def uniform(*drawn_for: object) -> float:
    """A number in [0, 1), drawn for these things: the same for the same ones, on every machine."""
    return int(digest_text("/".join(map(str, drawn_for)))[:13], 16) / 2**52  # 13 digits of 4 bits, exact as a float


class RandomRetrievalSettings(MechanismSettings):
    """`top_k` memories at most; another `shuffle_seed` draws others."""

    top_k: int = Field(ge=1)
    shuffle_seed: int = Field(ge=0)


class RandomRetrieval(TrajectoryMechanism):
    """Mem0 that draws `top_k` of the sector's memories, each with the same chance, anew for every prediction.

    The similarity is shown and logged as Mem0 does it; the selection score is the draw that ranked the memory.
    """

    settings_model = RandomRetrievalSettings
    settings: RandomRetrievalSettings

    def retrieve(self, situation: Situation) -> tuple[Recalled, ...]:
        """The memories of the highest draws."""
        code = situation.industry.code
        store = self.store(code)
        similarities = store.index.similarities(situation.key)
        draws = {
            at: uniform(self.settings.shuffle_seed, situation.session, code, memory)
            for at, memory in enumerate(store.memories)
        }
        drawn = sorted(draws, key=lambda at: -draws[at])[: self.settings.top_k]
        return tuple(
            self.recalled(
                replace(self.shown(store.memories[at], float(similarities[at])), selection_score=draws[at]), situation
            )
            for at in drawn
        )


class StaleMemoriesSettings(Mem0Settings):
    """As Mem0's, and memories must be at least `min_age` sessions old."""

    min_age: int = Field(ge=1)


class StaleMemories(TrajectoryMechanism):
    """Mem0 among the memories that were made `min_age` sessions ago or earlier."""

    settings_model = StaleMemoriesSettings
    settings: StaleMemoriesSettings

    def retrieve(self, situation: Situation) -> tuple[Recalled, ...]:
        """The most similar of the sector's old memories."""
        store = self.store(situation.industry.code)
        latest = calendar.session_index(situation.session) - self.settings.min_age
        old = bisect_right(store.memories, latest, key=lambda memory: calendar.session_index(session_of(memory)))
        similarities = store.index.similarities(situation.key)[:old]
        best = most_similar_first(similarities)[: self.settings.top_k]
        return tuple(
            self.recalled(self.shown(store.memories[at], float(similarities[at])), situation)
            for at in best
            if similarities[at] >= self.settings.min_similarity
        )


class ShuffledOutcomesSettings(MemRLSettings):
    """As MemRL's; another `shuffle_seed` gives the sectors other outcomes."""

    shuffle_seed: int = Field(ge=0)


class ShuffledOutcomes(MemRL):
    """MemRL that is rewarded by another sector's outcome over the same sessions.

    For each session and horizon the sectors stand in a ring, drawn anew, and each gets the outcome of the next one: no
    sector its own, none twice. Where that outcome is undefined nothing is learnt.
    """

    settings_model: ClassVar[type[MemRLSettings]] = ShuffledOutcomesSettings
    settings: ShuffledOutcomesSettings

    async def mature(
        self, session: dt.date, code: str, matured: Sequence[MaturedPrediction], model: Model
    ) -> Sequence[Event]:
        """The rewards of MemRL, by the outcomes of the sectors that stand next."""
        outcomes = {(one.code, one.horizon): one for one in self.world.observations.outcomes(session)}
        shuffled = [
            replace(one, outcome=outcomes[self.next_sector(session, code, one.horizon), one.horizon]) for one in matured
        ]
        return await super().mature(session, code, shuffled, model)

    def retrieve(self, situation: Situation) -> tuple[Recalled, ...]:
        """As MemRL. Refused from the first session on, before any model is asked, if there is no other sector."""
        if len(self.world.codes) < 2:
            raise SettingsError(
                f"mechanism ShuffledOutcomes: {situation.industry.code} is the only industry, so that no other one's "
                "outcomes can be taken; name two or more in benchmark.industries"
            )
        return super().retrieve(situation)

    def next_sector(self, session: dt.date, code: str, horizon: int) -> str:
        """The sector whose outcome of that horizon `code` gets on that session."""
        seed = self.settings.shuffle_seed
        ring = sorted(self.world.codes, key=lambda one: uniform(seed, session, horizon, one))
        return ring[(ring.index(code) + 1) % len(ring)]
