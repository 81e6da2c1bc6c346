"""ExpeL (paper, Appendix B.4): every prediction of a horizon, once its outcome is known, leaves one insight.

Insights are kept for good, with where they come from: horizon, day and score of the prediction, and its alpha. The
latest ones are shown whatever the news (`k_scope = "all"`), or the latest ones of each horizon (`per_horizon`): those
made last first, of one session those of the latest prediction, then those of the shortest horizon.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from finevolve_pipeline.llm.asking import Model
from finevolve_pipeline.llm.requests import InsightRequest, ShownInsight
from finevolve_pipeline.llm.updates import no_flaws, parse_insight
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
from finevolve_pipeline.universe import industry


class ExpeLSettings(MechanismSettings):
    """The latest `insights` are shown: of all horizons together, or of each."""

    insights: int = Field(ge=1)
    k_scope: Literal["all", "per_horizon"]


@dataclass(frozen=True)
class Learnt(OutcomeEvent):
    """An insight was drawn from an outcome."""

    kind: ClassVar[str] = "learnt"

    text: str

    @property
    def made(self) -> tuple[str, ...]:
        """The insight."""
        return (self.memory,)


class ExpeL(Mechanism):
    """One insight an outcome; the latest are shown."""

    settings_model = ExpeLSettings
    templates = ("insight",)
    settings: ExpeLSettings
    events: ClassVar[tuple[type[Event], ...]] = (Learnt,)

    def __init__(self, settings: MechanismSettings, world: World) -> None:
        super().__init__(settings, world)
        self._insights: dict[str, dict[int, list[Learnt]]] = {}

    async def mature(
        self, session: dt.date, code: str, matured: Sequence[MaturedPrediction], model: Model
    ) -> Sequence[Event]:
        """One insight a matured prediction with a valid score and a known outcome, oldest source first."""
        return await together(self._learn(session, code, one, model) for one in with_outcome(matured))

    async def _learn(self, session: dt.date, code: str, one: MaturedPrediction, model: Model) -> Event:
        request = InsightRequest(session, industry(code), episode(one, self.world.past))
        asked = await model.ask(request, parse_insight, no_flaws)
        if asked.answer is None:
            return UpdateFailed(code, reason=asked.problem)
        return Learnt(
            code=code,
            memory=f"{memory_id(session, code)}/{one.horizon}d",
            source=one.prediction.memory_id,
            horizon=one.horizon,
            score=request.episode.score,
            alpha=one.outcome.alpha,
            outcome_of=one.outcome.code,
            text=asked.answer,
        )

    def apply(self, session: dt.date, event: Event) -> None:
        """Add an insight."""
        if not isinstance(event, Learnt):
            super().apply(session, event)
            return
        own = self._insights.setdefault(event.code, {horizon: [] for horizon in self.world.horizons})
        own[event.horizon].append(event)

    def retrieve(self, situation: Situation) -> tuple[Recalled, ...]:
        """The latest insights of the sector."""
        most = self.settings.insights
        of_each = [one for own in self._by_horizon(situation.industry.code) for one in own[-most:]]
        latest = sorted(of_each, key=lambda one: one.order, reverse=True)
        chosen = latest if self.settings.k_scope == "per_horizon" else latest[:most]
        return tuple(recall(_shown(one), _experience(one), situation, self.world.past) for one in chosen)

    def experiences(self, code: str) -> tuple[Experience, ...]:
        """All insights of the sector."""
        insights = [one for own in self._by_horizon(code) for one in own]
        return tuple(_experience(one) for one in sorted(insights, key=lambda one: one.order))

    def _by_horizon(self, code: str) -> Iterable[list[Learnt]]:
        """The sector's insights of each horizon, oldest first."""
        return self._insights.get(code, {}).values()


def _shown(one: Learnt) -> ShownInsight:
    return ShownInsight(
        memory_id=one.memory,
        made_on=one.made_on,
        text=one.text,
        horizon=one.horizon,
        predicted_on=one.predicted_on,
        score=one.score,
        alpha=one.alpha,
    )


def _experience(one: Learnt) -> Experience:
    return Experience(
        memory_id=one.memory,
        kind="insight",
        horizons=(one.horizon,),
        made_on=one.made_on,
        available_from=one.made_on,
        sources=(one.source,),
        text=one.text,
    )
