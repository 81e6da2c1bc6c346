"""Mem0 as published (arXiv 2504.19413): facts are drawn from each prediction, and a sector's memory is kept up to date
by adding, updating and deleting.

Right after a prediction the model is asked which facts of its news and its reasoning are worth keeping. Each fact finds
the `similar` most similar memories of the sector. The facts and all that they found then go to the model, whose
operations change the memory: ADD, UPDATE, DELETE, NOOP. An updated memory keeps its id and its day and has a new text.
A prediction is shown the `top_k` memories most similar to its news. No outcome ever enters.

Deviations from the publication:

- One sector-day takes the place of a pair of messages. There is no running summary and no window of earlier messages:
  a news block overlaps those of the days before anyway.
- All facts of a day are compared in one call, as in the project's code at that time; the paper asks once a fact.
- Memories below `min_similarity` are not shown. The publication has no threshold, FinEvolveBench's Mem0 has one (B.2).
- An answer that does two things to one memory is taken at its first.
- The publication's graph memory, a system of its own, is left out.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field

from finevolve_pipeline.embedding import Vectors
from finevolve_pipeline.llm.asking import Model
from finevolve_pipeline.llm.requests import FactsRequest, MemoryRequest, ShownFact
from finevolve_pipeline.llm.updates import Operation, listed_flaws, parse_facts, parse_memory_operations
from finevolve_pipeline.mechanisms.base import (
    Event,
    Experience,
    Mechanism,
    MechanismSettings,
    Recalled,
    Situation,
    Trajectory,
    UpdateFailed,
    World,
    next_session,
    recall,
    session_of,
)
from finevolve_pipeline.mechanisms.similarity import SimilarityIndex, most_similar_first
from finevolve_pipeline.universe import industry


class Mem0FullSettings(MechanismSettings):
    """What is kept of a prediction, and what of it is shown.

    Attributes:
        max_facts: facts drawn from one prediction at most.
        similar: memories that each fact is compared with at most.
        top_k: memories shown at most.
        min_similarity: least cosine of a shown one.
    """

    max_facts: int = Field(ge=1)
    similar: int = Field(ge=1)
    top_k: int = Field(ge=1)
    min_similarity: float = Field(ge=-1, le=1)


@dataclass(frozen=True)
class FactAdded(Event):
    """A new memory, from the prediction `source`."""

    kind: ClassVar[str] = "fact_added"

    memory: str
    text: str
    source: str

    @property
    def made(self) -> tuple[str, ...]:
        """The new memory."""
        return (self.memory,)


@dataclass(frozen=True)
class FactUpdated(Event):
    """A memory has a new text, which rests on the prediction `source` too."""

    kind: ClassVar[str] = "fact_updated"

    memory: str
    text: str
    source: str


@dataclass(frozen=True)
class FactDeleted(Event):
    """A memory is no longer kept."""

    kind: ClassVar[str] = "fact_deleted"

    memory: str


@dataclass(frozen=True)
class Fact:
    """A kept memory: its text as it stands, and the predictions that it was drawn from."""

    memory_id: str
    text: str
    sources: tuple[str, ...]


class FactStore:
    """The memories of one sector with the vectors of their texts, oldest first by the day they were added."""

    def __init__(self, dimensions: int) -> None:
        self.facts: dict[str, Fact] = {}
        # The index only grows: a changed memory gets a new row, and rows that nothing points to are skipped. There are
        # never more rows than additions and updates.
        self._index = SimilarityIndex(dimensions)
        self._rows: dict[str, int] = {}

    def put(self, fact: Fact, vector: Vectors) -> None:
        """Add a memory, or change the one of that id, which keeps its place in the order."""
        self.facts[fact.memory_id] = fact
        self._rows[fact.memory_id] = self._index.add(vector)

    def remove(self, memory: str) -> None:
        """Forget a memory."""
        del self.facts[memory], self._rows[memory]

    def nearest(self, vector: Vectors, most: int) -> list[tuple[Fact, float]]:
        """At most `most` memories with their cosine to `vector`, most similar first; ties newest first."""
        facts = list(self.facts.values())
        similarities = self._index.similarities(vector)[list(self._rows.values())]
        return [(facts[at], float(similarities[at])) for at in most_similar_first(similarities)[:most]]


class Mem0Full(Mechanism):
    """Facts that are added, updated and deleted; the `top_k` most similar above a threshold, ties newest first."""

    settings_model = Mem0FullSettings
    templates = ("facts", "memory")
    settings: Mem0FullSettings
    compares_news = True
    events: ClassVar[tuple[type[Event], ...]] = (FactAdded, FactUpdated, FactDeleted)
    code_modules = ("finevolve_pipeline.mechanisms.similarity",)

    def __init__(self, settings: MechanismSettings, world: World) -> None:
        super().__init__(settings, world)
        self._stores: dict[str, FactStore] = {}

    def store(self, code: str) -> FactStore:
        """The store of a sector, empty at first."""
        if code not in self._stores:
            self._stores[code] = FactStore(self.world.dimensions)
        return self._stores[code]

    async def append(self, trajectory: Trajectory, model: Model) -> Sequence[Event]:
        """Draw facts from the prediction, and change the sector's memory by them."""
        told = industry(trajectory.code)
        drawn = await model.ask(
            FactsRequest(
                session=trajectory.session,
                industry=told,
                news=self.world.past.news(trajectory.memory_id),
                scores=dict(trajectory.scores),
                key_factor=trajectory.key_factor,
                logic_chain=trajectory.logic_chain,
                max_facts=self.settings.max_facts,
            ),
            lambda text: parse_facts(text, self.settings.max_facts),
            listed_flaws,
        )
        if drawn.answer is None:
            return (UpdateFailed(trajectory.code, drawn.problem),)
        facts = drawn.answer.entries
        if not facts:
            return ()
        known = self._similar(trajectory.code, facts)
        decided = await model.ask(
            MemoryRequest(
                session=trajectory.session,
                industry=told,
                facts=facts,
                memories=tuple(fact.text for fact in known),
            ),
            lambda text: parse_memory_operations(text, len(known)),
            listed_flaws,
        )
        if decided.answer is None:
            return (UpdateFailed(trajectory.code, decided.problem),)
        return tuple(_changes(trajectory, decided.answer.entries, known))

    def _similar(self, code: str, facts: Sequence[str]) -> list[Fact]:
        """What the facts are compared with: the memories nearest to any of them first, ties newest first."""
        store = self.store(code)
        nearness: dict[str, float] = {}
        for text in facts:
            for fact, similarity in store.nearest(self.world.past.embed(text), self.settings.similar):
                nearness[fact.memory_id] = max(similarity, nearness.get(fact.memory_id, similarity))
        newest_first = (fact for fact in reversed(store.facts.values()) if fact.memory_id in nearness)
        return sorted(newest_first, key=lambda fact: -nearness[fact.memory_id])

    def apply(self, session: dt.date, event: Event) -> None:
        """Add, change or forget a memory."""
        store = self.store(event.code)
        match event:
            case FactAdded():
                store.put(Fact(event.memory, event.text, (event.source,)), self.world.past.embed(event.text))
            case FactUpdated():
                sources = (*store.facts[event.memory].sources, event.source)
                store.put(Fact(event.memory, event.text, sources), self.world.past.embed(event.text))
            case FactDeleted():
                store.remove(event.memory)
            case _:
                super().apply(session, event)

    def retrieve(self, situation: Situation) -> tuple[Recalled, ...]:
        """The memories of the sector most similar to the news."""
        nearest = self.store(situation.industry.code).nearest(situation.key, self.settings.top_k)
        return tuple(
            recall(
                ShownFact(
                    memory_id=fact.memory_id,
                    made_on=session_of(fact.memory_id),
                    text=fact.text,
                    similarity=similarity,
                    selection_score=similarity,
                ),
                self._experience(fact),
                situation,
                self.world.past,
            )
            for fact, similarity in nearest
            if similarity >= self.settings.min_similarity
        )

    def experiences(self, code: str) -> tuple[Experience, ...]:
        """All memories of the sector as they stand now."""
        return tuple(self._experience(fact) for fact in self.store(code).facts.values())

    def _experience(self, fact: Fact) -> Experience:
        made_on = session_of(fact.memory_id)
        return Experience(
            memory_id=fact.memory_id,
            kind="fact",
            horizons=self.world.horizons,
            made_on=made_on,
            available_from=next_session(made_on),
            sources=fact.sources,
            text=fact.text,
        )


def _changes(trajectory: Trajectory, operations: Sequence[Operation], known: Sequence[Fact]) -> Iterator[Event]:
    """The operations as events, in their order; the first one on a memory counts."""
    source = trajectory.memory_id
    added = 0
    touched: set[int] = set()
    for operation in operations:
        if operation.number in touched:
            continue
        match operation.verb:
            case "ADD":
                added += 1
                yield FactAdded(trajectory.code, f"{source}/fact/{added}", operation.text, source)
            case "UPDATE":
                touched.add(operation.number)
                yield FactUpdated(trajectory.code, known[operation.number - 1].memory_id, operation.text, source)
            case "DELETE":
                touched.add(operation.number)
                yield FactDeleted(trajectory.code, known[operation.number - 1].memory_id)
