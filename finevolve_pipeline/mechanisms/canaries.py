"""Mechanisms that reach for the future. Each must be stopped by the clock, by name: if one is not, the replay leaks.

`finevolve audit` runs the three of `CANARIES` beside every experiment. `OracleCanary` can be run as an experiment.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from finevolve_pipeline import calendar
from finevolve_pipeline.llm.answers import PredictionAnswer
from finevolve_pipeline.mechanisms.base import Mechanism, Recalled, Situation


class NewsCanary(Mechanism):
    """Reads tomorrow's news before it predicts."""

    def retrieve(self, situation: Situation) -> tuple[Recalled, ...]:
        """Ask for what cannot be known."""
        self.world.observations.news(calendar.shift(situation.session, 1))
        return ()


class OutcomeCanary(Mechanism):
    """Reads tomorrow's outcomes before it predicts."""

    def retrieve(self, situation: Situation) -> tuple[Recalled, ...]:
        """Ask for what cannot be known."""
        self.world.observations.outcomes(calendar.shift(situation.session, 1))
        return ()


class MarketCanary(Mechanism):
    """Reads tomorrow's close before it predicts."""

    def retrieve(self, situation: Situation) -> tuple[Recalled, ...]:
        """Ask for what cannot be known."""
        self.world.observations.market(calendar.shift(situation.session, 1), situation.industry.code)
        return ()


class OracleCanary(Mechanism):
    """Predicts what it is going to be asked about: the realised sign of its own sector's excess returns.

    With a clock that let it, its information coefficients would show that no mechanism can be trusted.
    """

    def forecast(self, situation: Situation) -> PredictionAnswer:
        """The outcomes of this very prediction, the last one first."""
        scores = {
            horizon: math.copysign(1.0, outcome.alpha)
            for horizon in reversed(self.world.horizons)
            for outcome in self.world.observations.outcomes(calendar.shift(situation.session, horizon))
            if (outcome.code, outcome.horizon) == (situation.industry.code, horizon)
        }
        return PredictionAnswer(scores, {}, 1.0, "已实现的结果", "读取未来的超额收益")


CANARIES: Mapping[str, type[Mechanism]] = {
    "canary_news": NewsCanary,
    "canary_outcomes": OutcomeCanary,
    "canary_market": MarketCanary,
}

REFUSED: tuple[type[Mechanism], ...] = (*CANARIES.values(), OracleCanary)
"""Mechanisms that the clock stops on their first session, so that no day of them is ever stored."""
