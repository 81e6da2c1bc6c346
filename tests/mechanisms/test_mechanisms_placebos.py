"""Placebos: the same amount of context, without what makes it experience."""

import datetime as dt
import math
from collections import Counter
from dataclasses import replace

import pytest

from finevolve_pipeline import calendar
from finevolve_pipeline.errors import SettingsError
from finevolve_pipeline.mechanisms.base import Outcome, session_of
from finevolve_pipeline.mechanisms.mem0 import Mem0
from finevolve_pipeline.mechanisms.memrl import MemRL
from finevolve_pipeline.mechanisms.placebos import RandomRetrieval, ShuffledOutcomes, StaleMemories
from finevolve_pipeline.universe import CODES

MEMRL = {"candidates": 20, "top_k": 5, "learning_rate": 0.3, "initial_q": 0.0, "q_scope": "shared"}
CODE = "801170"
DAYS = calendar.sessions_between(dt.date(2025, 1, 2), dt.date(2025, 6, 30))


# -- random retrieval ----------------------------------------------------------------------------------------


def filled(bench, kind, days=12, **settings):
    made = bench(kind, **settings)
    for day in range(days):
        made.remember(day, 7.0 * day)
    return made


def test_random_retrieval_draws_anew_each_session_and_the_same_again(bench):
    drawn = filled(bench, RandomRetrieval, top_k=3, shuffle_seed=0)
    sessions = [tuple(drawn.recalled(day)) for day in range(12, 20)]
    assert sessions == [tuple(drawn.recalled(day)) for day in range(12, 20)]
    assert len(set(sessions)) == len(sessions)
    assert all(len(set(one)) == 3 for one in sessions)


def test_another_seed_draws_other_memories(bench):
    one, other = (filled(bench, RandomRetrieval, top_k=3, shuffle_seed=seed) for seed in (0, 1))
    assert [one.recalled(day) for day in (12, 13)] != [other.recalled(day) for day in (12, 13)]


def test_each_memory_has_the_same_chance_and_none_for_its_similarity(bench):
    drawn = bench(RandomRetrieval, top_k=2, shuffle_seed=0)
    for day, angle in enumerate([0, 170, 90, 10]):
        drawn.remember(day, angle)
    times = Counter(day for session in range(4, 104) for day in drawn.recalled(session))
    # 200 of 4 memories: 50 each, standard deviation 5
    assert sorted(times) == [0, 1, 2, 3]
    assert max(times.values()) <= 65
    assert min(times.values()) >= 35


def test_the_similarity_is_logged_and_the_draw_ranks(bench):
    drawn = filled(bench, RandomRetrieval, top_k=12, shuffle_seed=0)
    shown = [one.shown for one in drawn.retrieve(12, 0.0)]
    similarities = {
        one.shown.memory_id: one.shown.similarity
        for one in filled(bench, Mem0, top_k=12, min_similarity=-1).retrieve(12, 0.0)
    }
    assert {one.memory_id: one.similarity for one in shown} == similarities
    draws = [one.selection_score for one in shown]
    assert draws == sorted(draws, reverse=True)
    assert len(set(draws)) == 12
    assert all(0 <= draw < 1 for draw in draws)


def test_few_memories_are_all_recalled(bench):
    assert sorted(filled(bench, RandomRetrieval, days=2, top_k=5, shuffle_seed=0).recalled(2)) == [0, 1]


# -- stale memories ------------------------------------------------------------------------------------------


def test_stale_memories_are_the_most_similar_of_those_that_are_old_enough(bench):
    stale = bench(StaleMemories, top_k=2, min_similarity=0.1, min_age=3)
    for day, angle in enumerate([60, 10, 89, 20, 0, 0]):
        stale.remember(day, angle)
    assert stale.recalled(6) == [1, 3]  # 3 is just old enough, 4 and 5 are too young
    assert stale.recalled(5) == [1, 0]
    assert stale.recalled(3) == [0]
    assert stale.recalled(2) == []


def test_an_age_of_one_session_is_mem0_itself(bench):
    stale, mem0 = (
        filled(bench, kind, top_k=5, min_similarity=0.1, **more)
        for kind, more in ((StaleMemories, {"min_age": 1}), (Mem0, {}))
    )
    assert stale.retrieve(12, 30.0) == mem0.retrieve(12, 30.0)
    assert len(stale.retrieve(12, 30.0)) == 5


def test_an_age_beyond_the_calendar_recalls_nothing(bench):
    assert filled(bench, StaleMemories, top_k=5, min_similarity=0.1, min_age=5000).recalled(12) == []


# -- shuffled outcomes ---------------------------------------------------------------------------------------


class KnownOutcomes:
    """Outcomes of every sector and horizon that become known on any session, told apart by their alpha."""

    def __init__(self, undefined=()):
        self.undefined = undefined

    def alpha(self, code, horizon):
        return math.nan if code in self.undefined else CODES.index(code) + horizon / 100

    def outcomes(self, session):
        return tuple(
            Outcome(session, session, code, horizon, 1.0, 1.0, 0.0, 0.0, self.alpha(code, horizon))
            for code in CODES
            for horizon in (10, 20, 40)
        )


def shuffled(bench, codes=CODES, undefined=(), **settings):
    made = bench(ShuffledOutcomes, **{**MEMRL, "shuffle_seed": 0, **settings})
    world = replace(made.mechanism.world, observations=KnownOutcomes(undefined), codes=codes)
    made.mechanism = ShuffledOutcomes(made.mechanism.settings, world)
    return made


def session(bench, day):
    return session_of(bench.id(day))


def test_a_reward_rests_on_another_sector_s_outcome_and_names_it(bench):
    memrl = shuffled(bench)
    memrl.remember(0)
    (event,) = memrl.mature(10, (0, 10, 0.25))
    other = memrl.mechanism.next_sector(session(memrl, 10), CODE, 10)
    (evidence,) = event.evidence
    assert evidence.code == other != CODE
    assert event.alpha == evidence.alpha == KnownOutcomes().alpha(other, 10)
    assert (evidence.horizon, evidence.predicted_on) == (10, session(memrl, 0))
    assert event.code == CODE
    # r = 0.5 * alpha; Q = 0 + 0.3 * (r - 0)
    assert memrl.mechanism.utility(memrl.id(0)).mean == pytest.approx(0.15 * event.alpha)


def test_every_sector_gets_one_other_sector_s_outcome_and_none_its_own(bench):
    mechanism = shuffled(bench).mechanism
    for day in range(10, 40):
        for horizon in (10, 20, 40):
            given = [mechanism.next_sector(DAYS[day], code, horizon) for code in CODES]
            assert sorted(given) == list(CODES)
            assert not any(own == other for own, other in zip(CODES, given, strict=True))


def test_sessions_horizons_and_seeds_shuffle_differently(bench):
    one, other = (shuffled(bench, shuffle_seed=seed).mechanism for seed in (0, 1))
    rings = {
        tuple(mechanism.next_sector(DAYS[day], code, horizon) for code in CODES)
        for mechanism in (one, other)
        for day in (10, 11)
        for horizon in (10, 20)
    }
    assert len(rings) == 8


def test_nothing_is_learnt_where_the_other_s_outcome_is_undefined(bench):
    memrl = shuffled(bench, codes=("801170", "801780"), undefined=("801780",))
    memrl.remember(0)
    assert memrl.mature(10, (0, 10, 0.25)) == []
    assert memrl.mechanism.utility(memrl.id(0)).visits == 0


def test_only_sectors_that_are_predicted_lend_their_outcomes(bench):
    mechanism = shuffled(bench, codes=("801170", "801780")).mechanism
    assert {mechanism.next_sector(DAYS[day], "801170", 10) for day in range(20)} == {"801780"}


def test_an_invalid_score_is_not_rewarded_by_others_either(bench):
    memrl = shuffled(bench)
    memrl.remember(0, scores={20: 0.5})
    assert memrl.mature(10, (0, 10, 0.25)) == []


def test_it_recalls_as_memrl_does(bench):
    placebo, memrl = filled(bench, MemRL, **MEMRL), shuffled(bench)
    for day in range(12):
        memrl.remember(day, 7.0 * day)
    assert placebo.retrieve(12, 30.0) == memrl.retrieve(12, 30.0)


def test_a_single_sector_has_no_other_and_is_refused_before_its_first_prediction(bench):
    alone = shuffled(bench, codes=("801170",))
    with pytest.raises(SettingsError, match=r"801170 is the only industry.*name two or more in benchmark\.industries"):
        alone.retrieve(0)
