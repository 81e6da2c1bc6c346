"""The interface of all experience mechanisms: mature, retrieve, (predict), append.

A mechanism keeps one store per sector. Its state changes only in `apply`, event by event, and the events
are what the replay's journal stores: the state after any day is the fold of the journal up to that day,
whether the days were just lived or read back. `mature` and `append` only *say* what should change;
`retrieve` changes nothing.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol, Self

from pydantic import BaseModel, ConfigDict

from finevolve_pipeline.embedding import Vectors
from finevolve_pipeline.errors import ReplayMismatchError
from finevolve_pipeline.llm.asking import Model
from finevolve_pipeline.llm.requests import ShownMemory
from finevolve_pipeline.market.context import MarketContext
from finevolve_pipeline.news.block import NewsBlock
from finevolve_pipeline.universe import Industry


def memory_id(session: dt.date, code: str) -> str:
    """Id of the memory that a sector's prediction of a session leaves, e.g. `2025-05-30/801170`."""
    return f"{session.isoformat()}/{code}"


def session_of(memory: str) -> dt.date:
    """The session in which the memory of that id was made."""
    return dt.date.fromisoformat(memory[:10])


@dataclass(frozen=True, slots=True)
class Outcome:
    """One realised return: an industry from the close of `predicted_on` to the close of `matured_on`.

    Closes in index points, returns and alpha as fractions; NaN where a close is missing.
    """

    predicted_on: dt.date
    matured_on: dt.date
    code: str
    horizon: int
    close_from: float
    close_to: float
    industry_return: float
    benchmark_return: float
    alpha: float


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One sector's frozen prediction. Its news is not held here: `Past.news` gives it.

    Attributes:
        scores: valid scores in [-1, 1] by horizon.
        invalid: why a score is invalid, by horizon.
        confidence: in [0, 1], NaN if the model gave none.
        references: ids of the memories it was shown, first rank first.
    """

    session: dt.date
    code: str
    scores: Mapping[int, float]
    invalid: Mapping[int, str]
    confidence: float
    key_factor: str
    logic_chain: str
    references: tuple[str, ...]

    @property
    def memory_id(self) -> str:
        """Id of the memory this prediction leaves."""
        return memory_id(self.session, self.code)


@dataclass(frozen=True, slots=True)
class MaturedPrediction:
    """A prediction of one horizon and its outcome, known since `outcome.matured_on`."""

    prediction: Trajectory
    outcome: Outcome

    @property
    def horizon(self) -> int:
        """Horizon in sessions."""
        return self.outcome.horizon

    @property
    def score(self) -> float | None:
        """The predicted score, None if it was invalid."""
        return self.prediction.scores.get(self.outcome.horizon)


@dataclass(frozen=True, slots=True)
class Situation:
    """What a sector's prediction of `session` starts from.

    `key` is the vector of its news block, of length 1 or 0; it has no entries where the mechanism compares
    no news.
    """

    session: dt.date
    industry: Industry
    news: NewsBlock
    market: MarketContext
    key: Vectors


@dataclass(frozen=True, slots=True)
class Recalled:
    """One retrieved memory: what the prediction is shown, and what the retrieval log adds.

    Attributes:
        matured_share: share of the memory's horizons whose outcome is known.
        news_overlap: Jaccard index of its article ids and today's.
    """

    shown: ShownMemory
    matured_share: float
    news_overlap: float


@dataclass(frozen=True)
class Evidence:
    """An outcome that an event rests on."""

    predicted_on: dt.date
    horizon: int
    code: str
    alpha: float


@dataclass(frozen=True)
class Event:
    """One change of one sector's store. Subclasses add fields that JSON can hold; tuples for lists."""

    kind: ClassVar[str]

    code: str

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """The outcomes this change rests on; `finevolve audit` checks each."""
        return ()

    def to_json(self) -> dict[str, object]:
        """The event as stored in the journal."""
        return {"event": self.kind, **{item.name: getattr(self, item.name) for item in fields(self)}}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The event back from the journal."""
        given: dict[str, Any] = {name: item for name, item in value.items() if name != "event"}
        given |= {name: tuple(item) for name, item in given.items() if isinstance(item, list)}
        return cls(**given)


@dataclass(frozen=True)
class UpdateFailed(Event):
    """A model call of an update failed for good: the store stays as it was, and the failure is counted."""

    kind: ClassVar[str] = "update_failed"

    reason: str


class Past(Protocol):
    """The chain's own past: predictions frozen before the present moment, and the news they saw."""

    def trajectory(self, memory: str) -> Trajectory:
        """The prediction that left the memory of that id."""

    def news(self, memory: str) -> NewsBlock:
        """The news block it saw."""

    def key(self, memory: str) -> Vectors:
        """The vector of that news block."""

    def matured_share(self, memory: str) -> float:
        """Share of its horizons whose outcome is known."""


class Observations(Protocol):
    """A mechanism's own view of the data, up to the simulated clock; beyond it `LookAheadError`."""

    def news(self, session: dt.date) -> Mapping[str, NewsBlock]:
        """The news blocks of a session by industry code."""

    def outcomes(self, session: dt.date) -> Sequence[Outcome]:
        """The outcomes that became known on a session."""

    def market(self, session: dt.date, code: str) -> MarketContext:
        """The market context of an industry at the close of a session."""


class MechanismSettings(BaseModel):
    """Base of the typed settings of a mechanism; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class World:
    """All that a mechanism may reach. `dimensions` is the length of the embedder's vectors."""

    past: Past
    observations: Observations
    horizons: tuple[int, ...]
    dimensions: int


class Mechanism(ABC):  # noqa: B024  (every method has a meaning of its own: Pipe overrides none)
    """Base of all mechanisms; by itself it keeps nothing.

    Class attributes:
        settings_model: its typed settings.
        events: the event types its journal may hold.
        compares_news: whether it needs vectors of news blocks.
        code_modules: modules whose code decides its behaviour, beside those of its classes.
    """

    settings_model: ClassVar[type[MechanismSettings]] = MechanismSettings
    events: ClassVar[tuple[type[Event], ...]] = ()
    compares_news: ClassVar[bool] = False
    code_modules: ClassVar[tuple[str, ...]] = ()

    def __init__(self, settings: MechanismSettings, world: World) -> None:
        self.settings = settings
        self.world = world

    async def mature(
        self, session: dt.date, code: str, matured: Sequence[MaturedPrediction], model: Model
    ) -> Sequence[Event]:
        """What a sector learns from the outcomes that became known on `session`, before it predicts.

        Args:
            session: the present session.
            code: the sector.
            matured: its matured predictions, oldest source first.
            model: for mechanisms whose updates are written by the model.
        """
        return ()

    def retrieve(self, situation: Situation) -> tuple[Recalled, ...]:
        """The memories shown to a prediction, first rank first, all made before `situation.session`."""
        return ()

    async def append(self, trajectory: Trajectory, model: Model) -> Sequence[Event]:
        """What a sector keeps of the prediction it has just made; retrievable from the next session on."""
        return ()

    def apply(self, session: dt.date, event: Event) -> None:
        """Change the state by one event of `session`. The only place where state changes."""
        raise ReplayMismatchError(f"{type(self).__name__}: cannot apply an event {event.kind!r}; it has no such one")

    @classmethod
    def decode(cls, value: Mapping[str, Any]) -> Event:
        """A journal entry as an event of this mechanism.

        Raises:
            ReplayMismatchError: the entry is none of its events.
        """
        known: tuple[type[Event], ...] = (*cls.events, UpdateFailed)
        for event in known:
            if event.kind == value.get("event"):
                return event.from_json(value)
        raise ReplayMismatchError(
            f"{cls.__name__}: the journal holds an event {value.get('event')!r}; it has no such one"
        )


def recall(shown: ShownMemory, situation: Situation, past: Past) -> Recalled:
    """A trajectory memory with what the retrieval log says about it."""
    then, now = past.news(shown.memory_id).article_ids, situation.news.article_ids
    together = len(then | now)
    return Recalled(
        shown=shown,
        matured_share=past.matured_share(shown.memory_id),
        news_overlap=len(then & now) / together if together else 0.0,
    )
