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


# Ten days with horizons of 1, 2 and 3 sessions: from day 3 on three predictions mature every day, those of three, two
# and one days before, in this order. Scores are 1 at 1, -1 at 2 and 0.5 at 3 sessions, the learning rate is 1/2. News
# is always the same and one memory is recalled, the one of the highest Q, of equals the newest; the day's prediction
# refers to it. So Q <- (Q + r) / 2 for the prediction that matured and for the memory it refers to. Alphas and Q are
# in 64ths: floats hold these and their halves exactly, so equal Q are equal.
TEN_DAYS = [
    # day, alphas by horizon, recalled, Q and visits of the memories of days 0, 1, 2, ... once all has matured
    # 0 at 1: r = 1 * -8 = -8; Q0 = (0 - 8) / 2 = -4
    (1, {1: -8}, 0, [-4], [1]),
    # 0 at 2: r = -1 * 16 = -16; Q0 = (-4 - 16) / 2 = -10
    # 1 at 1: r = 1 * 12 = 12; Q1 = (0 + 12) / 2 = 6, Q0 = (-10 + 12) / 2 = 1
    (2, {2: 16, 1: 12}, 1, [1, 6], [3, 1]),
    # 0 at 3: r = 0.5 * 22 = 11; Q0 = (1 + 11) / 2 = 6
    # 1 at 2: r = -1 * -14 = 14; Q1 = (6 + 14) / 2 = 10, Q0 = (6 + 14) / 2 = 10
    # 2 at 1: r = 1 * 6 = 6; Q2 = (0 + 6) / 2 = 3, Q1 = (10 + 6) / 2 = 8
    (3, {3: 22, 2: -14, 1: 6}, 0, [10, 8, 3], [5, 3, 1]),
    # 1 at 3: r = 0.5 * -20 = -10; Q1 = (8 - 10) / 2 = -1, Q0 = (10 - 10) / 2 = 0
    # 2 at 2: r = -1 * 9 = -9; Q2 = (3 - 9) / 2 = -3, Q1 = (-1 - 9) / 2 = -5
    # 3 at 1: r = 1 * -16 = -16; Q3 = (0 - 16) / 2 = -8, Q0 = (0 - 16) / 2 = -8
    (4, {3: -20, 2: 9, 1: -16}, 2, [-8, -5, -3, -8], [7, 5, 2, 1]),
    # 2 at 3: r = 0.5 * 6 = 3; Q2 = (-3 + 3) / 2 = 0, Q1 = (-5 + 3) / 2 = -1
    # 3 at 2: r = -1 * -8 = 8; Q3 = (-8 + 8) / 2 = 0, Q0 = (-8 + 8) / 2 = 0
    # 4 at 1: r = 1 * 6 = 6; Q4 = (0 + 6) / 2 = 3, Q2 = (0 + 6) / 2 = 3
    (5, {3: 6, 2: -8, 1: 6}, 4, [0, -1, 3, 0, 3], [8, 6, 4, 2, 1]),
    # 3 at 3: r = 0.5 * -16 = -8; Q3 = (0 - 8) / 2 = -4, Q0 = (0 - 8) / 2 = -4
    # 4 at 2: r = -1 * 15 = -15; Q4 = (3 - 15) / 2 = -6, Q2 = (3 - 15) / 2 = -6
    # 5 at 1: r = 1 * 6 = 6; Q5 = (0 + 6) / 2 = 3, Q4 = (-6 + 6) / 2 = 0
    (6, {3: -16, 2: 15, 1: 6}, 5, [-4, -1, -6, -4, 0, 3], [9, 6, 5, 3, 3, 1]),
    # 4 at 3: r = 0.5 * 12 = 6; Q4 = (0 + 6) / 2 = 3, Q2 = (-6 + 6) / 2 = 0
    # 5 at 2: r = -1 * -13 = 13; Q5 = (3 + 13) / 2 = 8, Q4 = (3 + 13) / 2 = 8
    # 6 at 1: r = 1 * -8 = -8; Q6 = (0 - 8) / 2 = -4, Q5 = (8 - 8) / 2 = 0
    (7, {3: 12, 2: -13, 1: -8}, 4, [-4, -1, 0, -4, 8, 0, -4], [9, 6, 6, 3, 5, 3, 1]),
    # 5 at 3: r = 0.5 * -16 = -8; Q5 = (0 - 8) / 2 = -4, Q4 = (8 - 8) / 2 = 0
    # 6 at 2: r = -1 * -2 = 2; Q6 = (-4 + 2) / 2 = -1, Q5 = (-4 + 2) / 2 = -1
    # 7 at 1: r = 1 * 14 = 14; Q7 = (0 + 14) / 2 = 7, Q4 = (0 + 14) / 2 = 7
    (8, {3: -16, 2: -2, 1: 14}, 7, [-4, -1, 0, -4, 7, -1, -1, 7], [9, 6, 6, 3, 7, 5, 2, 1]),
    # 6 at 3: r = 0.5 * 14 = 7; Q6 = (-1 + 7) / 2 = 3, Q5 = (-1 + 7) / 2 = 3
    # 7 at 2: r = -1 * 15 = -15; Q7 = (7 - 15) / 2 = -4, Q4 = (7 - 15) / 2 = -4
    # 8 at 1: r = 1 * 4 = 4; Q8 = (0 + 4) / 2 = 2, Q7 = (-4 + 4) / 2 = 0
    (9, {3: 14, 2: 15, 1: 4}, 6, [-4, -1, 0, -4, -4, 3, 3, 0, 2], [9, 6, 6, 3, 8, 6, 3, 3, 1]),
]


def test_ten_days_of_maturing_recalling_and_remembering_worked_out_by_hand(bench):
    memrl = bench(MemRL, horizons=(1, 2, 3), candidates=20, top_k=1, learning_rate=0.5, initial_q=0.0, q_scope="shared")
    scores = {1: 1.0, 2: -1.0, 3: 0.5}
    memrl.remember(0, scores=scores)
    for day, alphas, recalled, utilities, visited in TEN_DAYS:
        memrl.mature(day, *((day - horizon, horizon, alpha / 64) for horizon, alpha in alphas.items()))
        assert [q(memrl, source)[0] * 64 for source in range(day)] == utilities, f"day {day}"
        assert [visits(memrl, source) for source in range(day)] == visited, f"day {day}"
        assert memrl.recalled(day) == [recalled], f"day {day}"
        memrl.remember(day, scores=scores, references=[recalled])
        assert (q(memrl, day), visits(memrl, day)) == ([0.0], 0)
