"""A hand-made past for mechanism tests: memories of one sector with known vectors, scores and references."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import math
from collections.abc import Sequence

import numpy as np
import pytest

from finevolve_pipeline import calendar
from finevolve_pipeline.llm.asking import Model
from finevolve_pipeline.llm.requests import Call, Prompt, Reply, SingleRequest, Usage
from finevolve_pipeline.market.context import MarketContext
from finevolve_pipeline.mechanisms.base import (
    Event,
    MaturedPrediction,
    Mechanism,
    Outcome,
    Situation,
    Trajectory,
    World,
    memory_id,
)
from finevolve_pipeline.news.block import NewsBlock, NewsItem
from finevolve_pipeline.replay.called import Calling
from finevolve_pipeline.replay.day import apply_events
from finevolve_pipeline.settings import load_settings
from finevolve_pipeline.universe import industry

CODE = "801170"
DAYS = calendar.sessions_between(dt.date(2025, 1, 2), dt.date(2025, 6, 30))
HORIZONS = (10, 20, 40)
PROMPTS = load_settings().prompts


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


class ScriptedBackbone:
    """Gives the answers it was told to, in the order of the questions; an error among them is raised.

    The sooner something was asked, the longer its answer takes, so that answers to what is asked together come in the
    wrong order.

    Attributes:
        answers: those told so far.
        requests: all that was asked.
        answered: how many of them got an answer, or an error.
        most_at_once: questions that waited for an answer at the same time.
    """

    name = "scripted"

    def __init__(self) -> None:
        self.answers: list[str | Exception] = []
        self.requests: list[SingleRequest] = []
        self.answered = 0
        self.most_at_once = 0

    async def answer(self, call: Call) -> Reply:
        given = self.answers[len(self.requests)]
        self.requests.append(call.request)
        self.most_at_once = max(self.most_at_once, len(self.requests) - self.answered)
        for _ in range(10 * (len(self.answers) - len(self.requests))):
            await asyncio.sleep(0)
        self.answered += 1
        if isinstance(given, Exception):
            raise given
        return Reply(given, Usage())


class UnwrittenModel(Model):
    """Asks as any model is asked, without writing a prompt: a test reads the request itself."""

    def call(self, request: SingleRequest, variant: str = "") -> Call:
        return Call(request, Prompt(()), variant, self.seed)


class Bench:
    """One mechanism, its hand-made past and its scripted backbone. Days are counted from 0."""

    def __init__(self, kind: type[Mechanism], *, horizons: tuple[int, ...] = HORIZONS, **settings: object) -> None:
        self.past = HandMadePast()
        self.horizons = horizons
        self.mechanism = kind(kind.settings_model(**settings), World(self.past, None, horizons, 2))
        self.backbone = ScriptedBackbone()
        self.model = UnwrittenModel(self.backbone, PROMPTS)

    @property
    def asked(self) -> list[SingleRequest]:
        """All that the model was asked so far."""
        return self.backbone.requests

    def script(self, *answers: dict | str | Exception) -> None:
        """What the model answers next, in this order: objects as JSON, texts as they stand."""
        self.backbone.answers += [json.dumps(one) if isinstance(one, dict) else one for one in answers]

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
            scores=dict.fromkeys(self.horizons, 0.5) if scores is None else scores,
            invalid={},
            confidence=math.nan,
            key_factor=f"因素{day}",
            logic_chain="链",
            references=tuple(self.id(reference) for reference in references),
        )
        self.past.trajectories[trajectory.memory_id] = trajectory
        self.past.vectors[trajectory.memory_id] = vector(angle)
        self._apply(DAYS[day], asyncio.run(self.mechanism.append(trajectory, self.model)))
        return trajectory.memory_id

    def mature(self, day: int, *outcomes: tuple[float, ...]) -> list[Event]:
        """Outcomes (source day, horizon, alpha) that become known on `day`, in that order; the events.

        An outcome may go on with its closes, from and to, in index points.
        """
        matured = [
            MaturedPrediction(
                self.past.trajectories[self.id(source)],
                Outcome(DAYS[source], DAYS[day], CODE, horizon, *(closes or (1.0, 1.0)), alpha, 0.0, alpha),
            )
            for source, horizon, alpha, *closes in outcomes
        ]
        events = asyncio.run(self.mechanism.mature(DAYS[day], CODE, matured, self.model))
        self._apply(DAYS[day], events)
        return list(events)

    def recalled(self, day: int, angle: float | None = 0.0) -> list[int]:
        """Days of the memories recalled on `day`, in rank order."""
        return [DAYS.index(one.shown.made_on) for one in self.retrieve(day, angle)]

    def retrieve(self, day: int, angle: float | None = 0.0):
        situation = Situation(DAYS[day], industry(CODE), NewsBlock((), 0), MarketContext(1.0, ()), vector(angle))
        return self.mechanism.retrieve(situation)

    def read_back(self, event: Event) -> Event:
        """The event as the journal gives it back."""
        return self.mechanism.decode(json.loads(json.dumps(event.to_json())))

    @staticmethod
    def id(day: int) -> str:
        return memory_id(DAYS[day], CODE)

    def _apply(self, session: dt.date, events: Sequence[Event]) -> None:
        calling = Calling("by-hand", type(self.mechanism))
        apply_events(session, [self.read_back(event) for event in events], self.mechanism, calling)


def vector(angle: float | None) -> np.ndarray:
    """A unit vector at an angle in degrees, or the zero vector."""
    if angle is None:
        return np.zeros(2, dtype=np.float32)
    return np.array([math.cos(math.radians(angle)), math.sin(math.radians(angle))], dtype=np.float32)


@pytest.fixture
def bench() -> type[Bench]:
    """Makes a bench for a mechanism: `bench(Mem0, top_k=2, min_similarity=0.1)`."""
    return Bench
