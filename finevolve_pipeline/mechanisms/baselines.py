"""Forecasts that cost nothing: what a mechanism with a model must beat before its experience is worth a thought.

No model is asked and nothing is kept. Scores have 6 decimals, so that they are the same on every machine.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar

from pydantic import Field

from finevolve_pipeline.llm.answers import PredictionAnswer
from finevolve_pipeline.mechanisms.base import Mechanism, MechanismSettings, Situation
from finevolve_pipeline.mechanisms.placebos import uniform

DECIMALS = 6


class Baseline(Mechanism):
    """A score by formula for every horizon.

    Class attributes:
        key_factor: what the score is, in a few words.
        logic_chain: how it is computed.
    """

    templates = ()
    key_factor: ClassVar[str]
    logic_chain: ClassVar[str]

    @abstractmethod
    def score(self, situation: Situation, horizon: int) -> float:
        """The score in [-1, 1]; NaN where the return it needs is missing."""

    def forecast(self, situation: Situation) -> PredictionAnswer:
        """The scores; a horizon without one is invalid. The confidence is not given."""
        scores = {
            horizon: round(self.score(situation, horizon), DECIMALS) + 0.0  # makes -0.0 an ordinary zero
            for horizon in self.world.horizons
        }
        invalid = {
            horizon: f"no excess return over the last {horizon} sessions: a close is missing"
            for horizon, score in scores.items()
            if math.isnan(score)
        }
        return PredictionAnswer(scores, invalid, None, self.key_factor, self.logic_chain)


class Zero(Baseline):
    """Always 0: no opinion, so no correlation is defined."""

    key_factor = "零基准"
    logic_chain = "不看新闻也不看行情，得分恒为0。"

    def score(self, situation: Situation, horizon: int) -> float:
        """0."""
        return 0.0


class RandomSettings(MechanismSettings):
    """`random_seed`: another one draws other scores."""

    random_seed: int = Field(ge=0)


class Random(Baseline):
    """Uniform in [-1, 1], drawn anew for every session, sector and horizon."""

    settings_model = RandomSettings
    settings: RandomSettings
    code_modules = ("finevolve_pipeline.mechanisms.placebos",)
    key_factor = "随机基准"
    logic_chain = "不看新闻也不看行情，得分在[-1, 1]内均匀随机。"

    def score(self, situation: Situation, horizon: int) -> float:
        """The draw of this session, sector and horizon."""
        return 2 * uniform(self.settings.random_seed, situation.session, situation.industry.code, horizon) - 1


class TrendSettings(MechanismSettings):
    """`scale`: score for one unit of excess return while it is small; 10 makes 5 % a score of 0.46."""

    scale: float = Field(gt=0, allow_inf_nan=False)


class Momentum(Baseline):
    """tanh(scale * excess return over the last h sessions): what went up goes on."""

    settings_model = TrendSettings
    settings: TrendSettings
    key_factor = "动量基准"
    logic_chain = "近h个交易日的超额收益延续，与新闻无关。"

    def score(self, situation: Situation, horizon: int) -> float:
        """The squeezed trailing excess return, over as many sessions as are predicted."""
        excess = next(back.excess for back in situation.market.trailing if back.sessions == horizon)
        return math.tanh(self.settings.scale * excess)


class Reversal(Momentum):
    """The negative of `Momentum`: what went up comes back."""

    key_factor = "反转基准"
    logic_chain = "近h个交易日的超额收益回吐，与新闻无关。"

    def score(self, situation: Situation, horizon: int) -> float:
        """The negative of the squeezed trailing excess return."""
        return -super().score(situation, horizon)


class NewsVolumeSettings(MechanismSettings):
    """`half`: articles that make a score of 0.5."""

    half: float = Field(gt=0, allow_inf_nan=False)


class NewsVolume(Baseline):
    """n / (n + half) for the n articles of the window: attention, whatever they say. Never negative: it only ranks."""

    settings_model = NewsVolumeSettings
    settings: NewsVolumeSettings
    key_factor = "新闻数量基准"
    logic_chain = "新闻越多得分越高，与内容无关。"

    def score(self, situation: Situation, horizon: int) -> float:
        """By all articles of the window, those that the news budget cut included."""
        articles = len(situation.news.items) + situation.news.cut
        return articles / (articles + self.settings.half)
