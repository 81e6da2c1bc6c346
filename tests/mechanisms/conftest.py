"""A hand-made past for mechanism tests: memories of one sector with known vectors, scores and references."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence

import numpy as np
import pytest

from finevolve_pipeline import calendar
from finevolve_pipeline.market.context import MarketContext
from finevolve_pipeline.mechanisms.base import (
    MaturedPrediction,
    Mechanism,
    Outcome,
    Situation,
    Trajectory,
    World,
    memory_id,
)
from finevolve_pipeline.news.block import NewsBlock, NewsItem
from finevolve_pipeline.universe import industry

CODE = "801170"
DAYS = calendar.sessions_between(dt.date(2025, 1, 2), dt.date(2025, 6, 30))
HORIZONS = (10, 20, 40)


class HandMadePast:
    """The chain's past, filled by hand. Vectors have two dimensions, so similarities are plain to see."""

    def __init__(self) -> None:
        self.trajectories: dict[str, Trajectory] = {}
        self.vectors: dict[str, np.ndarray] = {}

    def trajectory(self, memory: str) -> Trajectory:
        return self.trajectories[memory]

    def news(self, memory: str) -> NewsBlock:
        at = dt.datetime.combine(dt.date.fromisoformat(memory[:10]), dt.time(9), tzinfo=calendar.SHANGHAI)
        item = NewsItem(memory, "cls", "标题", "正文", at, (CODE,), ("交通运输",), 8, "理由", ())
        return NewsBlock((item,), 0)

    def key(self, memory: str) -> np.ndarray:
        return self.vectors[memory]

    def matured_share(self, memory: str) -> float:
        return 0.0


class Bench:
    """One mechanism and its hand-made past. Days are counted from 0."""

    def __init__(self, kind: type[Mechanism], **settings: object) -> None:
        self.past = HandMadePast()
        self.mechanism = kind(kind.settings_model(**settings), World(self.past, None, HORIZONS, 2))

    def remember(
        self,
        day: int,
        angle: float | None = 0.0,
        scores: dict[int, float] | None = None,
        references: Sequence[int] = (),
    ) -> str:
        """A prediction of that day, kept as memory. `angle` in degrees; None for a day without news."""
        trajectory = Trajectory(
            session=DAYS[day],
            code=CODE,
            scores=dict.fromkeys(HORIZONS, 0.5) if scores is None else scores,
            invalid={},
            confidence=math.nan,
            key_factor=f"因素{day}",
            logic_chain="链",
            references=tuple(self.id(reference) for reference in references),
        )
        self.past.trajectories[trajectory.memory_id] = trajectory
        self.past.vectors[trajectory.memory_id] = vector(angle)
        self._apply(DAYS[day], _finished(self.mechanism.append(trajectory, None)))
        return trajectory.memory_id

    def mature(self, day: int, *outcomes: tuple[int, int, float]) -> list:
        """Outcomes (source day, horizon, alpha) that become known on `day`, in that order; the events."""
        matured = [
            MaturedPrediction(
                self.past.trajectories[self.id(source)],
                Outcome(DAYS[source], DAYS[day], CODE, horizon, 1.0, 1.0, alpha, 0.0, alpha),
            )
            for source, horizon, alpha in outcomes
        ]
        events = _finished(self.mechanism.mature(DAYS[day], CODE, matured, None))
        self._apply(DAYS[day], events)
        return list(events)

    def recalled(self, day: int, angle: float | None = 0.0) -> list[int]:
        """Days of the memories recalled on `day`, in rank order."""
        return [DAYS.index(one.shown.made_on) for one in self.retrieve(day, angle)]

    def retrieve(self, day: int, angle: float | None = 0.0):
        situation = Situation(DAYS[day], industry(CODE), NewsBlock((), 0), MarketContext(1.0, ()), vector(angle))
        return self.mechanism.retrieve(situation)

    @staticmethod
    def id(day: int) -> str:
        return memory_id(DAYS[day], CODE)

    def _apply(self, session: dt.date, events) -> None:
        for event in events:
            self.mechanism.apply(session, self.mechanism.decode(event.to_json()))


def vector(angle: float | None) -> np.ndarray:
    """A unit vector at an angle in degrees, or the zero vector."""
    if angle is None:
        return np.zeros(2, dtype=np.float32)
    return np.array([math.cos(math.radians(angle)), math.sin(math.radians(angle))], dtype=np.float32)


def _finished(coroutine):
    """The result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("the mechanism waits for something")


@pytest.fixture
def bench() -> type[Bench]:
    """Makes a bench for a mechanism: `bench(Mem0, top_k=2, min_similarity=0.1)`."""
    return Bench
