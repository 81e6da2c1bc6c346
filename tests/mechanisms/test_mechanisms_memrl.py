"""MemRL: utility learnt from realised excess returns; arithmetic done by hand."""

import math

import pytest

from finevolve_pipeline.mechanisms.memrl import MemRL

SETTINGS = {"candidates": 20, "top_k": 5, "learning_rate": 0.3, "initial_q": 0.0, "q_scope": "shared"}


@pytest.fixture
def memrl(bench):
    return bench(MemRL, **SETTINGS)


def q(bench, day):
    return bench.mechanism.utility(bench.id(day)).values


def visits(bench, day):
    return bench.mechanism.utility(bench.id(day)).visits


def test_a_reward_moves_the_own_memory_and_then_the_referenced_ones(memrl):
    memrl.remember(0)
    memrl.remember(1)
    memrl.remember(2, scores={10: 0.5, 20: -0.4, 40: 0.8}, references=[1, 0])
    events = memrl.mature(12, (2, 10, 0.04))
    # r = 0.5 * 0.04 = 0.02; Q = 0 + 0.3 * (0.02 - 0) = 0.006
    assert [event.memories for event in events] == [(memrl.id(2), memrl.id(1), memrl.id(0))]
    assert [q(memrl, day)[0] for day in (0, 1, 2)] == pytest.approx([0.006] * 3)
    # r = -0.4 * 0.05 = -0.02; Q = 0.006 + 0.3 * (-0.02 - 0.006) = -0.0018
    memrl.mature(22, (2, 20, 0.05))
    assert [q(memrl, day)[0] for day in (0, 1, 2)] == pytest.approx([-0.0018] * 3)
    assert [visits(memrl, day) for day in (0, 1, 2)] == [2, 2, 2]


def test_several_maturities_of_one_day_are_applied_in_the_given_order(memrl):
    memrl.remember(0, scores={40: 1.0})
    memrl.remember(20, scores={20: 1.0}, references=[0])
    memrl.remember(30, scores={10: 1.0}, references=[0])
    memrl.mature(40, (0, 40, 0.10), (20, 20, -0.10), (30, 10, 0.20))
    # memory 0: 0.3*0.10 = 0.03; 0.03 + 0.3*(-0.13) = -0.009; -0.009 + 0.3*0.209 = 0.0537
    assert q(memrl, 0) == pytest.approx([0.0537])
    assert q(memrl, 20) == pytest.approx([-0.03])
    assert q(memrl, 30) == pytest.approx([0.06])
    assert visits(memrl, 0) == 3


def test_an_invalid_score_or_an_undefined_alpha_changes_nothing(memrl):
    memrl.remember(0, scores={20: 0.5})
    assert memrl.mature(10, (0, 10, 0.05)) == []
    assert memrl.mature(20, (0, 20, math.nan)) == []
    assert (q(memrl, 0), visits(memrl, 0)) == ([0.0], 0)


def test_a_zero_score_is_a_valid_one_and_pulls_towards_zero(bench):
    memrl = bench(MemRL, **{**SETTINGS, "initial_q": 0.1})
    memrl.remember(0, scores={10: 0.0})
    memrl.mature(10, (0, 10, 0.05))
    assert q(memrl, 0) == pytest.approx([0.07])


def test_an_untouched_memory_has_exactly_the_initial_q_and_no_visits(bench):
    memrl = bench(MemRL, **{**SETTINGS, "initial_q": 0.1})
    memrl.remember(0)
    memrl.remember(1, references=[0])
    memrl.remember(2)
    memrl.mature(11, (1, 10, 0.3))
    for day in range(3):
        assert (visits(memrl, day) == 0) == (q(memrl, day) == [0.1])


def test_an_update_that_leaves_the_number_alone_still_counts_as_a_visit(memrl):
    memrl.remember(0, scores={10: 0.0})
    memrl.mature(10, (0, 10, 0.05))
    assert (q(memrl, 0), visits(memrl, 0)) == ([0.0], 1)


def test_with_per_horizon_utility_each_horizon_learns_alone_and_the_mean_ranks(bench):
    memrl = bench(MemRL, **{**SETTINGS, "q_scope": "per_horizon"})
    memrl.remember(0, scores={10: 1.0, 20: 1.0, 40: 1.0})
    memrl.mature(10, (0, 10, 0.10))
    memrl.mature(20, (0, 20, -0.20))
    assert q(memrl, 0) == pytest.approx([0.03, -0.06, 0.0])
    (one,) = memrl.retrieve(21)
    assert one.shown.q == pytest.approx({10: 0.03, 20: -0.06, 40: 0.0})
    assert one.shown.selection_score == pytest.approx(-0.01)
    assert one.shown.visits == 2


def test_recalls_the_most_useful_among_the_most_similar(bench):
    memrl = bench(MemRL, **{**SETTINGS, "candidates": 3, "top_k": 2})
    for day, angle in enumerate([0, 10, 20, 80]):
        memrl.remember(day, angle)
    memrl.mature(13, (3, 10, 0.9))  # the most useful, but not among the three most similar
    memrl.mature(14, (2, 10, 0.5))
    assert memrl.recalled(15, 0) == [2, 0]


def test_equal_utility_is_ranked_by_similarity_then_newest(bench):
    memrl = bench(MemRL, **{**SETTINGS, "top_k": 4})
    for day, angle in enumerate([40, 0, 0, 20]):
        memrl.remember(day, angle)
    assert memrl.recalled(4, 0) == [2, 1, 3, 0]


def test_candidates_are_all_memories_if_fewer_and_no_similarity_is_too_low(memrl):
    memrl.remember(0, 180)
    memrl.remember(1, None)
    assert memrl.recalled(2, 0) == [1, 0]


def test_similarity_utility_visits_and_selection_are_shown_separately(memrl):
    memrl.remember(0, 60)
    memrl.mature(10, (0, 10, 0.2))
    shown = memrl.retrieve(11, 0)[0].shown
    assert shown.similarity == pytest.approx(0.5, abs=2e-4)
    assert (shown.q, shown.visits, shown.selection_score) == (pytest.approx(0.03), 1, pytest.approx(0.03))


def test_each_reward_names_the_outcome_it_rests_on(memrl):
    memrl.remember(0)
    (event,) = memrl.mature(10, (0, 10, 0.25))
    (evidence,) = event.evidence
    assert (evidence.predicted_on.isoformat(), evidence.horizon, evidence.alpha) == ("2025-01-02", 10, 0.25)
    assert event.reward == 0.125
