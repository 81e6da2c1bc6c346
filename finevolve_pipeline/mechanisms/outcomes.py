"""What mechanisms share that learn from outcomes by asking a model: events that name the outcomes they rest on."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, TypeVar

from finevolve_pipeline.mechanisms.base import Event, Evidence, MaturedPrediction, session_of

T = TypeVar("T")


@dataclass(frozen=True)
class OutcomeEvent(Event):
    """What came of one outcome, `memory`.

    The outcome is that of the prediction `source` at one horizon, with its score and its alpha, a fraction, of the
    industry `outcome_of`.
    """

    memory: str
    source: str
    horizon: int
    score: float
    alpha: float
    outcome_of: str

    @property
    def made_on(self) -> dt.date:
        """The session on which the outcome became known."""
        return session_of(self.memory)

    @property
    def predicted_on(self) -> dt.date:
        """The session of the prediction."""
        return session_of(self.source)

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """The one outcome it rests on."""
        return (Evidence(self.predicted_on, self.horizon, self.outcome_of, self.alpha),)

    @property
    def order(self) -> tuple[dt.date, dt.date, int]:
        """Sort key, oldest first: by the session it was made on, then by the prediction's, then the longest horizon."""
        return self.made_on, self.predicted_on, -self.horizon


class Told(NamedTuple):
    """An outcome that the model was told of: of the prediction `source`, as alpha (a fraction) of `outcome_of`."""

    source: str
    horizon: int
    outcome_of: str
    alpha: float

    @classmethod
    def of(cls, one: MaturedPrediction) -> Told:
        """The outcome of a matured prediction."""
        return cls(one.prediction.memory_id, one.horizon, one.outcome.code, one.outcome.alpha)


@dataclass(frozen=True)
class OutcomesEvent(Event):
    """What came of several outcomes at once, `told`, oldest source first."""

    told: tuple[Told, ...]

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The event back from the journal."""
        plain = super().from_json(value)
        return replace(plain, told=tuple(Told(*outcome) for outcome in plain.told))

    @property
    def sources(self) -> tuple[str, ...]:
        """The predictions whose outcomes these are, each once."""
        return tuple(dict.fromkeys(one.source for one in self.told))

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """The outcomes that the model was told of."""
        return tuple(Evidence(session_of(one.source), one.horizon, one.outcome_of, one.alpha) for one in self.told)


async def together(asking: Iterable[Awaitable[T]]) -> list[T]:
    """The results of questions that are asked at the same time, in the order given.

    If one fails, the others are awaited before its error is raised: their answers are paid for and will be kept.
    """
    results: list[T] = []
    for result in await asyncio.gather(*asking, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results
