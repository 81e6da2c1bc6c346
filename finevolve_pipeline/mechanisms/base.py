"""The interface of all experience mechanisms: mature, retrieve, (predict), append.

A mechanism keeps one store per sector. Its state changes only in `apply`, event by event, and the events
are what the replay's journal stores: the state after any day is the fold of the journal up to that day,
whether the days were just lived or read back. `mature` and `append` only *say* what should change;
`retrieve` changes nothing.
"""

from __future__ import annotations

import datetime as dt
import math
from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict

from finevolve_pipeline import calendar
from finevolve_pipeline.embedding import Vectors
from finevolve_pipeline.errors import ReplayMismatchError
from finevolve_pipeline.llm.answers import PredictionAnswer
from finevolve_pipeline.llm.asking import Model
from finevolve_pipeline.llm.requests import Episode, Shown
from finevolve_pipeline.market.context import MarketContext
from finevolve_pipeline.news.block import NewsBlock
from finevolve_pipeline.universe import CODES, Industry

Kind = Literal["trajectory", "reflection", "insight", "reasoning_item", "fact", "rule"]
"""What a piece of experience is."""


def memory_id(session: dt.date, code: str) -> str:
    """Id of the memory that a sector's prediction of a session leaves, e.g. `2025-05-30/801170`."""
    return f"{session.isoformat()}/{code}"


def session_of(memory: str) -> dt.date:
    """The session in which the memory of that id was made."""
    return dt.date.fromisoformat(memory[:10])


def sector_of(memory: str) -> str:
    """The code of the sector whose memory that is."""
    return memory[11:17]


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
        references: ids of the memories it was shown, first rank first; those that did not fit into its prompt were not.
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
class Experience:
    """One piece of a sector's experience as data.

    Attributes:
        memory_id: begins with `made_on/code`.
        horizons: for predictions of which horizons it is, in sessions.
        made_on: the session it was made; of one that was changed since, when it was made first.
        available_from: the first session on which a prediction may see it: `made_on` itself if it was made from
            outcomes, before that day's prediction; the session after if it was made of the prediction.
        sources: ids of the predictions that it rests on.
        q: utility, by horizon where each has its own; None where the mechanism has none.
        visits: how often it was updated; None where it cannot be.
    """

    memory_id: str
    kind: Kind
    horizons: tuple[int, ...]
    made_on: dt.date
    available_from: dt.date
    sources: tuple[str, ...]
    text: str
    q: float | dict[int, float] | None = None
    visits: int | None = None

    @property
    def code(self) -> str:
        """The sector whose experience it is."""
        return sector_of(self.memory_id)


@dataclass(frozen=True, slots=True)
class Recalled:
    """One retrieved memory: what the prediction is shown, and what the retrieval log adds.

    Attributes:
        matured_share: share of its sources' horizons whose outcome is known.
        news_overlap: Jaccard index of its sources' article ids and today's.
        kind: what it is.
        horizons: for predictions of which horizons it is; none named: of all.
        sources: ids of the predictions that it rests on.
        from_outcomes: whether it was made from outcomes, so that it is available on the very session it was made.
    """

    shown: Shown
    matured_share: float
    news_overlap: float
    kind: Kind = "trajectory"
    horizons: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()
    from_outcomes: bool = False

    @property
    def available_from(self) -> dt.date:
        """The first session on which it may be shown."""
        return self.shown.made_on if self.from_outcomes else next_session(self.shown.made_on)


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

    @property
    def made(self) -> tuple[str, ...]:
        """Ids of the memories that come into being by it; `finevolve audit` checks that each is made once, and
        that none was retrieved before."""
        return ()

    def to_json(self) -> dict[str, object]:
        """The event as stored in the journal."""
        return {"event": self.kind, **{item.name: getattr(self, item.name) for item in fields(self)}}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The event back from the journal."""
        return cls(**{item.name: _tuples(value[item.name]) for item in fields(cls)})


def _tuples(value: Any) -> Any:
    """JSON lists as tuples, at every level."""
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


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

    def embed(self, text: str) -> Vectors:
        """The vector of a text of the mechanism's own, shape (dimensions,), of length 1 or 0."""


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

    # Strict: a text or a truth value is no number. TOML tells them apart.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


@dataclass(frozen=True)
class World:
    """All that a mechanism may reach. `dimensions` is the length of the embedder's vectors, `codes` are the sectors."""

    past: Past
    observations: Observations
    horizons: tuple[int, ...]
    dimensions: int
    codes: tuple[str, ...] = CODES


class Mechanism(ABC):  # noqa: B024  (every method has a meaning of its own: Pipe overrides none)
    """Base of all mechanisms; by itself it keeps nothing.

    Class attributes:
        settings_model: its typed settings.
        events: the event types its journal may hold.
        compares_news: whether it needs vectors of news blocks.
        templates: kinds of prompt templates that its update requests use (`llm/prompts`); all where it does not say. A
            request of another kind is refused.
        code_modules: modules whose code decides its behaviour, beside those of its classes.
    """

    settings_model: ClassVar[type[MechanismSettings]] = MechanismSettings
    events: ClassVar[tuple[type[Event], ...]] = ()
    compares_news: ClassVar[bool] = False
    templates: ClassVar[tuple[str, ...]] = ("reflect", "insight", "reasoning", "rules", "facts", "memory")
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
        """The memories for a prediction, first rank first, each once, all available by `situation.session`.

        The prompt shows as many of them, from the first on, as its budget for experience holds.
        """
        return ()

    def forecast(self, situation: Situation) -> PredictionAnswer | None:
        """The prediction of a mechanism that needs no model; None: the model is asked."""
        return None

    async def append(self, trajectory: Trajectory, model: Model) -> Sequence[Event]:
        """What a sector keeps of the prediction it has just made; retrievable from the next session on."""
        return ()

    def apply(self, session: dt.date, event: Event) -> None:
        """Change the state by one event of `session`. The only place where state changes."""
        raise ReplayMismatchError(f"{type(self).__name__}: cannot apply an event {event.kind!r}; it has no such one")

    def experiences(self, code: str) -> tuple[Experience, ...]:
        """All that a sector has learnt and kept by now, oldest first."""
        return ()

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


def recall(shown: Shown, known: Experience, situation: Situation, past: Past) -> Recalled:
    """A memory with what the retrieval log says about it."""
    then = frozenset[str]().union(*(past.news(source).article_ids for source in known.sources))
    now = situation.news.article_ids
    together = len(then | now)
    shares = [past.matured_share(source) for source in known.sources]
    return Recalled(
        shown=shown,
        matured_share=math.fsum(shares) / len(shares) if shares else 0.0,
        news_overlap=len(then & now) / together if together else 0.0,
        kind=known.kind,
        horizons=known.horizons,
        sources=known.sources,
        from_outcomes=known.available_from == known.made_on,
    )


def next_session(session: dt.date) -> dt.date:
    """From when on a memory of that session's prediction is available."""
    return calendar.shift(session, 1)


def episode(one: MaturedPrediction, past: Past) -> Episode:
    """A matured prediction with a valid score and a known outcome, as updates are told of it."""
    prediction, outcome = one.prediction, one.outcome
    return Episode(
        memory_id=prediction.memory_id,
        predicted_on=prediction.session,
        matured_on=outcome.matured_on,
        horizon=outcome.horizon,
        score=prediction.scores[outcome.horizon],
        key_factor=prediction.key_factor,
        logic_chain=prediction.logic_chain,
        news=past.news(prediction.memory_id),
        close_from=outcome.close_from,
        close_to=outcome.close_to,
        industry_return=outcome.industry_return,
        benchmark_return=outcome.benchmark_return,
        alpha=outcome.alpha,
    )


def with_outcome(matured: Sequence[MaturedPrediction]) -> list[MaturedPrediction]:
    """Those one can learn from: a valid score, and an outcome that has a number."""
    return [one for one in matured if one.score is not None and not math.isnan(one.outcome.alpha)]
