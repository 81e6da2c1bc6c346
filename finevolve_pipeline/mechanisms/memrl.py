"""MemRL (paper, Appendix B): trajectories with a learned utility Q, recalled by similarity first and by Q
second.

When an outcome becomes known, the reward r = score * alpha moves the Q of the prediction's own memory and
then of the memories it had been shown, in rank order: Q <- Q + learning_rate * (r - Q). One Q serves all
horizons (`q_scope = "shared"`), or each horizon has its own (`per_horizon`); then their mean ranks a
memory, because one prediction is shown one list. An invalid score or an undefined alpha changes nothing.

A memory that no outcome has touched has exactly the initial Q and no visits, and every update counts as a
visit, also one whose reward happens to equal Q and leaves the number as it was.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

from pydantic import Field

from finevolve_pipeline.llm.asking import Model
from finevolve_pipeline.mechanisms.base import (
    Event,
    Evidence,
    Experience,
    MaturedPrediction,
    MechanismSettings,
    Recalled,
    Situation,
    World,
    session_of,
    with_outcome,
)
from finevolve_pipeline.mechanisms.similarity import most_similar_first
from finevolve_pipeline.mechanisms.trajectories import Remembered, TrajectoryMechanism


class UtilitySettings(MechanismSettings):
    """`candidates` by similarity, of these `top_k` by what they are worth."""

    candidates: int = Field(ge=1)
    top_k: int = Field(ge=1)
    learning_rate: float = Field(gt=0, le=1)
    initial_q: float = Field(ge=-1, le=1)


class MemRLSettings(UtilitySettings):
    """Ranked by Q. `q_scope`: one Q for all horizons, or one for each."""

    q_scope: Literal["shared", "per_horizon"]


@dataclass(frozen=True)
class Rewarded(Event):
    """The prediction `source` was rewarded at one horizon, and `memories` learn from it, in this order.

    `alpha` is a fraction; the reward is score * alpha. `outcome_of` is the industry whose alpha it is, where that is
    not `code`.
    """

    kind: ClassVar[str] = "rewarded"

    source: str
    horizon: int
    score: float
    alpha: float
    memories: tuple[str, ...]
    outcome_of: str = ""

    @classmethod
    def of(cls, one: MaturedPrediction, memories: tuple[str, ...]) -> Self:
        """The reward of a matured prediction with a valid score and a known outcome."""
        return cls(
            code=one.prediction.code,
            source=one.prediction.memory_id,
            horizon=one.horizon,
            score=one.prediction.scores[one.horizon],
            alpha=one.outcome.alpha,
            memories=memories,
            outcome_of="" if one.outcome.code == one.prediction.code else one.outcome.code,
        )

    @property
    def reward(self) -> float:
        """r = s * alpha."""
        return self.score * self.alpha

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """The one outcome it rests on."""
        return (Evidence(session_of(self.source), self.horizon, self.outcome_of or self.code, self.alpha),)


@dataclass(slots=True)
class Utility:
    """What is known of a memory's use. `values` holds one Q, or one a horizon."""

    values: list[float]
    visits: int = 0

    @property
    def mean(self) -> float:
        """The Q that ranks: the one, or the mean over the horizons."""
        return self.values[0] if len(self.values) == 1 else math.fsum(self.values) / len(self.values)


class UtilityMechanism(TrajectoryMechanism):
    """Keeps every prediction with its Q; subclasses say who is rewarded and which memories are recalled."""

    settings: UtilitySettings

    def __init__(self, settings: MechanismSettings, world: World) -> None:
        super().__init__(settings, world)
        self._utilities: dict[str, Utility] = {}

    @property
    def _per_horizon(self) -> bool:
        """Whether each horizon has a Q of its own."""
        return False

    def utility(self, memory: str) -> Utility:
        """Q and visits of a memory."""
        return self._utilities[memory]

    def apply(self, session: dt.date, event: Event) -> None:
        """Add a memory with the initial Q, or move the Q of the rewarded ones."""
        if not isinstance(event, Rewarded):
            super().apply(session, event)
            if isinstance(event, Remembered):
                count = len(self.world.horizons) if self._per_horizon else 1
                self._utilities[event.memory] = Utility([self.settings.initial_q] * count)
            return
        at = self.world.horizons.index(event.horizon) if self._per_horizon else 0
        for memory in event.memories:
            utility = self._utilities[memory]
            utility.values[at] += self.settings.learning_rate * (event.reward - utility.values[at])
            utility.visits += 1

    def experience(self, memory: str) -> Experience:
        """A memory as data, with its utility."""
        utility = self.utility(memory)
        return replace(super().experience(memory), q=self._shown_q(utility), visits=utility.visits)

    def _shown_q(self, utility: Utility) -> float | dict[int, float]:
        """The one Q, or one a horizon."""
        if not self._per_horizon:
            return utility.mean
        return dict(zip(self.world.horizons, utility.values, strict=True))

    def _recalled(self, memory: str, similarity: float, selection_score: float, situation: Situation) -> Recalled:
        utility = self.utility(memory)
        shown = replace(
            self.shown(memory, similarity),
            q=self._shown_q(utility),
            visits=utility.visits,
            selection_score=selection_score,
        )
        return self.recalled(shown, situation)


class MemRL(UtilityMechanism):
    """`candidates` most similar memories, then the `top_k` of highest Q; ties by similarity, newest, id."""

    settings_model = MemRLSettings
    settings: MemRLSettings
    events: ClassVar[tuple[type[Event], ...]] = (Remembered, Rewarded)

    @property
    def _per_horizon(self) -> bool:
        return self.settings.q_scope == "per_horizon"

    async def mature(
        self, session: dt.date, code: str, matured: Sequence[MaturedPrediction], model: Model
    ) -> Sequence[Event]:
        """One reward a matured prediction with a valid score and a defined alpha, oldest source first."""
        return [
            Rewarded.of(one, memories=(one.prediction.memory_id, *one.prediction.references))
            for one in with_outcome(matured)
        ]

    def retrieve(self, situation: Situation) -> tuple[Recalled, ...]:
        """The most useful of the most similar memories of the sector."""
        store = self.store(situation.industry.code)
        similarities = store.index.similarities(situation.key)
        # Candidates come by similarity, then newest; the stable sort keeps that order among equal Q.
        candidates = most_similar_first(similarities)[: self.settings.candidates]
        best = sorted(candidates, key=lambda at: -self.utility(store.memories[at]).mean)[: self.settings.top_k]
        return tuple(
            self._recalled(
                memory=store.memories[at],
                similarity=float(similarities[at]),
                selection_score=self.utility(store.memories[at]).mean,
                situation=situation,
            )
            for at in best
        )
