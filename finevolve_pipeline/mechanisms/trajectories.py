"""What Mem0 and MemRL share: every prediction becomes a memory of its sector, keyed by its news block.

A memory is its news block, its scores and reasoning, and the memories it was shown. It is made right after
the prediction and can be recalled from the next session on. The journal only names it: what it holds stands
in the day's predictions, retrievals and news window already, and is never stored twice.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from finevolve_pipeline.llm.asking import Model
from finevolve_pipeline.llm.requests import ShownMemory
from finevolve_pipeline.mechanisms.base import (
    Event,
    Experience,
    Mechanism,
    MechanismSettings,
    Recalled,
    Situation,
    Trajectory,
    World,
    next_session,
    recall,
)
from finevolve_pipeline.mechanisms.similarity import SimilarityIndex


@dataclass(frozen=True)
class Remembered(Event):
    """A prediction was kept. What it predicted and saw stands in the day's predictions and retrievals."""

    kind: ClassVar[str] = "remembered"

    memory: str

    @property
    def made(self) -> tuple[str, ...]:
        """The memory that was kept."""
        return (self.memory,)


class TrajectoryStore:
    """The trajectories of one sector, oldest first, with the vectors of their news."""

    def __init__(self, dimensions: int) -> None:
        self.memories: list[str] = []
        self.index = SimilarityIndex(dimensions)


class TrajectoryMechanism(Mechanism):
    """Keeps every prediction; subclasses say which memories are recalled."""

    compares_news = True
    templates = ()
    events: ClassVar[tuple[type[Event], ...]] = (Remembered,)
    code_modules = ("finevolve_pipeline.mechanisms.similarity",)

    def __init__(self, settings: MechanismSettings, world: World) -> None:
        super().__init__(settings, world)
        self._stores: dict[str, TrajectoryStore] = {}

    def store(self, code: str) -> TrajectoryStore:
        """The store of a sector, empty at first."""
        if code not in self._stores:
            self._stores[code] = TrajectoryStore(self.world.dimensions)
        return self._stores[code]

    async def append(self, trajectory: Trajectory, model: Model) -> Sequence[Event]:
        """Keep the prediction, whatever it was."""
        return (Remembered(trajectory.code, trajectory.memory_id),)

    def apply(self, session: dt.date, event: Event) -> None:
        """Add a memory."""
        if not isinstance(event, Remembered):
            super().apply(session, event)
            return
        store = self.store(event.code)
        store.memories.append(event.memory)
        store.index.add(self.world.past.key(event.memory))

    def experience(self, memory: str) -> Experience:
        """A memory as data."""
        trajectory = self.world.past.trajectory(memory)
        return Experience(
            memory_id=memory,
            kind="trajectory",
            horizons=self.world.horizons,
            made_on=trajectory.session,
            available_from=next_session(trajectory.session),
            sources=(memory,),
            text=f"{trajectory.key_factor}\n{trajectory.logic_chain}",
        )

    def experiences(self, code: str) -> tuple[Experience, ...]:
        """All memories of the sector."""
        return tuple(self.experience(memory) for memory in self.store(code).memories)

    def recalled(self, shown: ShownMemory, situation: Situation) -> Recalled:
        """A memory with what the retrieval log says about it."""
        return recall(shown, self.experience(shown.memory_id), situation, self.world.past)

    def shown(self, memory: str, similarity: float) -> ShownMemory:
        """A memory as a prediction is shown it, without utility."""
        trajectory = self.world.past.trajectory(memory)
        return ShownMemory(
            memory_id=memory,
            made_on=trajectory.session,
            news=self.world.past.news(memory).text,
            scores=dict(trajectory.scores),
            key_factor=trajectory.key_factor,
            logic_chain=trajectory.logic_chain,
            references=trajectory.references,
            similarity=similarity,
            selection_score=similarity,
        )
