"""Forecasts by formula: no model, no memory, known numbers."""

import datetime as dt
import math

import pytest

from finevolve_pipeline.market.context import MarketContext, TrailingReturn
from finevolve_pipeline.mechanisms.base import Situation, World
from finevolve_pipeline.mechanisms.baselines import Momentum, NewsVolume, Random, Reversal, Zero
from finevolve_pipeline.news.block import NewsBlock
from finevolve_pipeline.testing import trial
from finevolve_pipeline.universe import industry

HORIZONS = (10, 20, 40)
SESSION = dt.date(2025, 5, 30)
EXCESS = {10: 0.05, 20: 0.0, 40: -0.02}


def situation(session=SESSION, code="801170", excess=EXCESS, shown=0, cut=0):
    """A session on which the industry's excess returns were these; the benchmark's return was 1 %."""
    trailing = tuple(TrailingReturn(h, 0.01 + over, 0.01) for h, over in excess.items())
    return Situation(session, industry(code), NewsBlock((None,) * shown, cut), MarketContext(1.0, trailing), None)


def forecast(kind, given=None, **settings):
    mechanism = kind(kind.settings_model(**settings), World(None, None, HORIZONS, 2))
    return mechanism.forecast(given or situation())


def test_zero_has_no_opinion():
    assert forecast(Zero).scores == {10: 0.0, 20: 0.0, 40: 0.0}


def test_momentum_goes_on_and_reversal_comes_back():
    up = forecast(Momentum, scale=10.0)
    # tanh(10 * 0.05) = 0.462117, tanh(10 * -0.02) = -0.197375
    assert up.scores == {10: 0.462117, 20: 0.0, 40: -0.197375}
    assert forecast(Reversal, scale=10.0).scores == {10: -0.462117, 20: 0.0, 40: 0.197375}
    assert math.copysign(1.0, forecast(Reversal, scale=10.0).scores[20]) == 1.0
    assert forecast(Momentum, scale=20.0).scores[10] == 0.761594  # tanh(1)


@pytest.mark.parametrize("kind", [Momentum, Reversal])
def test_a_missing_close_makes_its_own_horizon_invalid_and_no_zero(kind):
    answer = forecast(kind, situation(excess={**EXCESS, 20: math.nan}), scale=10.0)
    assert math.isnan(answer.scores[20])
    assert answer.invalid == {20: "no excess return over the last 20 sessions: a close is missing"}
    assert abs(answer.scores[10]) == 0.462117


def test_news_volume_counts_the_articles_that_the_budget_cut_too():
    assert forecast(NewsVolume, situation(), half=5.0).scores[10] == 0.0
    assert forecast(NewsVolume, situation(shown=3, cut=2), half=5.0).scores == dict.fromkeys(HORIZONS, 0.5)
    assert forecast(NewsVolume, situation(shown=15), half=5.0).scores[40] == 0.75


def test_random_is_drawn_for_session_sector_horizon_and_seed():
    places = [(SESSION, "801170"), (SESSION, "801780"), (dt.date(2025, 5, 29), "801170")]
    scores = [
        score
        for seed in (0, 1)
        for session, code in places
        for score in forecast(Random, situation(session, code), random_seed=seed).scores.values()
    ]
    assert len(set(scores)) == 2 * 3 * 3
    assert forecast(Random, random_seed=0) == forecast(Random, random_seed=0)


def test_random_is_uniform_between_minus_one_and_one():
    drawn = [score for seed in range(400) for score in forecast(Random, random_seed=seed).scores.values()]
    counts = [sum(low <= score < low + 0.5 for score in drawn) for low in (-1.0, -0.5, 0.0, 0.5)]
    assert sum(counts) == len(drawn) == 1200
    assert all(abs(count - 300) < 60 for count in counts)  # standard deviation 15


def test_no_baseline_claims_confidence_and_each_says_what_it_is():
    kinds = {
        Zero: {},
        Random: {"random_seed": 0},
        Momentum: {"scale": 10.0},
        Reversal: {"scale": 10.0},
        NewsVolume: {"half": 5.0},
    }
    answers = [forecast(kind, **settings) for kind, settings in kinds.items()]
    assert {answer.confidence for answer in answers} == {None}
    assert len({answer.key_factor for answer in answers} - {""}) == len({answer.logic_chain for answer in answers}) == 5


def test_a_run_of_a_baseline_asks_no_model_and_says_where_a_close_is_missing():
    with trial(Momentum, {"scale": 10.0}) as run:
        rows = run.store.read_predictions(run.experiment.key, run.sessions)
        assert not run.asked
    assert set(rows["prompt_digest"]) == {""}
    assert (rows["score"].notna() == (rows["invalid_reason"] == "")).all()
    assert rows["score"].isna().any()  # some closes of the small world are missing
