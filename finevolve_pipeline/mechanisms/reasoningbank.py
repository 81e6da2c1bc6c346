"""ReasoningBank (paper, Appendix B.5): strategies drawn from successes and from failures, a bank for each sector and
horizon.

When an outcome becomes known, the prediction was a success if its score has the sign of alpha, else a failure; a score
of 0 predicts no direction and is a failure, an alpha of 0 or none at all teaches nothing. From successes and failures
a few items each are extracted, by different instructions. A prediction is shown, for each of its horizons, the items of
the episodes whose news was most similar to today's (`mode = "similar"`), or of the newest ones (`recent`). Nothing is
ever removed or merged.

Its own publication (Ouyang et al., 2025, arXiv 2509.25140) differs in three ways. A model judges without ground truth
whether a trajectory succeeded; there is one bank, and no horizons; the embedded query is the task's own text. The items
(title, description, content; at most three a trajectory), the two kinds of instructions, retrieval by cosine and the
consolidation by plain addition are the same. There is no separate profile `original`: the first difference makes up for
outcomes that this benchmark has; without it, and with one prediction for all horizons, horizons have to be kept apart;
and what a task's text is to a web task, the news is to a prediction.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import islice
from typing import ClassVar, Literal

from pydantic import Field

from finevolve_pipeline.llm.asking import Model
from finevolve_pipeline.llm.requests import ReasoningItem, ReasoningRequest, ShownItem
from finevolve_pipeline.llm.updates import listed_flaws, parse_items
from finevolve_pipeline.mechanisms.base import (
    Event,
    Experience,
    MaturedPrediction,
    Mechanism,
    MechanismSettings,
    Recalled,
    Situation,
    UpdateFailed,
    World,
    episode,
    memory_id,
    recall,
    with_outcome,
)
from finevolve_pipeline.mechanisms.outcomes import OutcomeEvent, together
from finevolve_pipeline.mechanisms.similarity import SimilarityIndex, most_similar_first
from finevolve_pipeline.universe import industry


class ReasoningBankSettings(MechanismSettings):
    """At most `max_items` items an episode; for each horizon those of `k` episodes are shown."""

    max_items: int = Field(ge=1)
    k: int = Field(ge=1)
    mode: Literal["similar", "recent"]


@dataclass(frozen=True)
class Extracted(OutcomeEvent):
    """Items were drawn from a success or a failure, each as title, description and content; there may be none.

    Their ids are `memory` and their number, from 1.
    """

    kind: ClassVar[str] = "extracted"

    success: bool
    items: tuple[tuple[str, str, str], ...]

    @property
    def made(self) -> tuple[str, ...]:
        """The items."""
        return tuple(f"{self.memory}/{number}" for number in range(1, len(self.items) + 1))


@dataclass(frozen=True)
class Shelf:
    """The episodes of one horizon that left items, oldest first, and the rows of their news in the sector's index."""

    extracted: list[Extracted]
    rows: list[int]


class Bank:
    """The episodes of one sector that left items, by horizon, oldest first, and the vectors of their news.

    A prediction's horizons are as many episodes with one and the same news, whose vector is held once.
    """

    def __init__(self, horizons: Sequence[int], dimensions: int) -> None:
        self.shelves = {horizon: Shelf([], []) for horizon in horizons}
        self.rows: dict[str, int] = {}
        self.index = SimilarityIndex(dimensions)


class ReasoningBank(Mechanism):
    """Items of the most similar, or newest, episodes of each horizon."""

    settings_model = ReasoningBankSettings
    templates = ("reasoning",)
    settings: ReasoningBankSettings
    events: ClassVar[tuple[type[Event], ...]] = (Extracted,)
    compares_news = True
    code_modules = ("finevolve_pipeline.mechanisms.similarity",)

    def __init__(self, settings: MechanismSettings, world: World) -> None:
        super().__init__(settings, world)
        self._banks: dict[str, Bank] = {}

    async def mature(
        self, session: dt.date, code: str, matured: Sequence[MaturedPrediction], model: Model
    ) -> Sequence[Event]:
        """One extraction a matured prediction with a valid score and an alpha other than 0, oldest source first."""
        return await together(
            self._extract(session, code, one, model) for one in with_outcome(matured) if one.outcome.alpha != 0
        )

    async def _extract(self, session: dt.date, code: str, one: MaturedPrediction, model: Model) -> Event:
        most = self.settings.max_items
        request = ReasoningRequest(session, industry(code), episode(one, self.world.past), most)
        asked = await model.ask(request, lambda text: parse_items(text, most), listed_flaws)
        if asked.answer is None:
            return UpdateFailed(code, reason=asked.problem)
        return Extracted(
            code=code,
            memory=f"{memory_id(session, code)}/{one.horizon}d",
            source=one.prediction.memory_id,
            horizon=one.horizon,
            score=request.episode.score,
            alpha=one.outcome.alpha,
            outcome_of=one.outcome.code,
            success=request.episode.success,
            items=tuple(astuple(item) for item in asked.answer.entries),
        )

    def apply(self, session: dt.date, event: Event) -> None:
        """Add the items, if there are any."""
        if not isinstance(event, Extracted):
            super().apply(session, event)
            return
        if not event.items:
            return
        if event.code not in self._banks:
            self._banks[event.code] = Bank(self.world.horizons, self.world.dimensions)
        bank = self._banks[event.code]
        if event.source not in bank.rows:
            bank.rows[event.source] = bank.index.add(self.world.past.key(event.source))
        shelf = bank.shelves[event.horizon]
        shelf.extracted.append(event)
        shelf.rows.append(bank.rows[event.source])

    def retrieve(self, situation: Situation) -> tuple[Recalled, ...]:
        """The items of the best episodes, horizon after horizon, the shortest first."""
        bank = self._banks.get(situation.industry.code)
        if bank is None:
            return ()
        chosen = self._newest(bank) if self.settings.mode == "recent" else self._most_similar(bank, situation)
        return tuple(
            recall(
                ShownItem(
                    memory_id=known.memory_id,
                    made_on=known.made_on,
                    item=ReasoningItem(*item),
                    horizon=extracted.horizon,
                    predicted_on=extracted.predicted_on,
                    success=extracted.success,
                    similarity=similarity,
                    selection_score=similarity,
                ),
                known,
                situation,
                self.world.past,
            )
            for extracted, similarity in chosen
            for known, item in zip(_experiences(extracted), extracted.items, strict=True)
        )

    def _newest(self, bank: Bank) -> Iterator[tuple[Extracted, float | None]]:
        for horizon in sorted(bank.shelves):
            for extracted in islice(reversed(bank.shelves[horizon].extracted), self.settings.k):
                yield extracted, None

    def _most_similar(self, bank: Bank, situation: Situation) -> Iterator[tuple[Extracted, float | None]]:
        """Ties newest first."""
        similarities = bank.index.similarities(situation.key)
        for horizon in sorted(bank.shelves):
            shelf = bank.shelves[horizon]
            own = similarities[shelf.rows]
            for at in most_similar_first(own)[: self.settings.k]:
                yield shelf.extracted[at], float(own[at])

    def experiences(self, code: str) -> tuple[Experience, ...]:
        """All items of the sector."""
        bank = self._banks.get(code)
        kept = [one for shelf in bank.shelves.values() for one in shelf.extracted] if bank else []
        return tuple(known for one in sorted(kept, key=lambda one: one.order) for known in _experiences(one))


def _experiences(of: Extracted) -> Iterator[Experience]:
    """The items of an episode as data."""
    for memory, item in zip(of.made, of.items, strict=True):
        yield Experience(
            memory_id=memory,
            kind="reasoning_item",
            horizons=(of.horizon,),
            made_on=of.made_on,
            available_from=of.made_on,
            sources=(of.source,),
            text="\n".join(part for part in item if part),
        )
