"""MemRL as published: a mixture of standardised similarity and Q; rewards of 1 and -1. Arithmetic done by hand."""

import math

import pytest
from pydantic import ValidationError

from finevolve_pipeline.mechanisms.base import session_of
from finevolve_pipeline.mechanisms.memrl_original import MemRLOriginal, standardised
from finevolve_pipeline.mechanisms.trajectories import Remembered

SETTINGS = {
    "candidates": 20,
    "top_k": 5,
    "learning_rate": 0.3,
    "initial_q": 0.0,
    "min_similarity": 0.3,
    "mix": 0.5,
    "z_clip": 3.0,
}


@pytest.fixture
def memrl(bench):
    return bench(MemRLOriginal, **SETTINGS)


def q(bench, day):
    return bench.mechanism.utility(bench.id(day)).mean


def visits(bench, day):
    return bench.mechanism.utility(bench.id(day)).visits


def praise(bench, day, praised):
    """A prediction of `day`, without news, was shown the memory of the day `praised` and turned out right."""
    bench.remember(day, None, references=[praised])
    bench.mature(day + 10, (day, 10, 0.01))


@pytest.mark.parametrize(
    ("score", "alpha", "reward"),
    [
        (0.5, 0.02, 1),
        (-0.1, -0.3, 1),
        (0.5, -0.02, -1),
        (-0.5, 0.02, -1),
        (0.0, 0.02, -1),  # no direction: a failure
    ],
)
def test_the_reward_is_whether_the_direction_was_right(memrl, score, alpha, reward):
    memrl.remember(0)
    memrl.remember(1, scores={10: score}, references=[0])
    (event,) = memrl.mature(11, (1, 10, alpha))
    assert event.reward == reward
    assert q(memrl, 0) == pytest.approx(0.3 * reward)


@pytest.mark.parametrize(
    ("scores", "alpha"),
    [({10: 0.5}, 0.0), ({10: 0.5}, math.nan), ({20: 0.5}, 0.02)],
    ids=["alpha of zero", "undefined alpha", "invalid score"],
)
def test_without_a_direction_of_the_outcome_or_a_score_nobody_is_rewarded(memrl, scores, alpha):
    memrl.remember(0)
    memrl.remember(1, scores=scores, references=[0])
    assert memrl.mature(11, (1, 10, alpha)) == []
    assert (q(memrl, 0), visits(memrl, 0)) == (0.0, 0)


def test_only_the_memories_that_were_shown_learn(memrl):
    for day in range(3):
        memrl.remember(day)
    memrl.remember(3, references=[2, 0])
    (event,) = memrl.mature(13, (3, 10, 0.01))
    assert event.memories == (memrl.id(2), memrl.id(0))
    assert [q(memrl, day) for day in range(4)] == pytest.approx([0.3, 0.0, 0.3, 0.0])
    assert [visits(memrl, day) for day in range(4)] == [1, 0, 1, 0]


def test_a_prediction_that_was_shown_nothing_rewards_nobody(memrl):
    memrl.remember(0)
    assert memrl.mature(10, (0, 10, 0.01)) == []


def test_each_reward_moves_q_by_its_share_of_the_distance(memrl):
    memrl.remember(0)
    memrl.remember(1, references=[0])
    memrl.mature(11, (1, 10, 0.01))  # 0 + 0.3 * (1 - 0) = 0.3
    memrl.mature(21, (1, 20, -0.01))  # 0.3 + 0.3 * (-1 - 0.3) = -0.09
    memrl.mature(41, (1, 40, 0.01))  # -0.09 + 0.3 * (1 + 0.09) = 0.237
    assert (q(memrl, 0), visits(memrl, 0)) == (pytest.approx(0.237), 3)


def test_an_untouched_memory_has_exactly_the_initial_q_and_no_visits(bench):
    memrl = bench(MemRLOriginal, **{**SETTINGS, "initial_q": 0.1})
    for day in range(2):
        memrl.remember(day)
    memrl.remember(2, references=[0])
    memrl.mature(12, (2, 10, 0.3))
    for day in range(3):
        assert (visits(memrl, day) == 0) == (q(memrl, day) == 0.1)


# Similarity 0.5 and Q 0.3 on day 0, similarity 1 and Q 0 on day 1. Over two candidates z is 1 for the higher and -1 for
# the lower value, so day 0 has 2 * mix - 1 and day 1 the opposite.
MIXTURES = [
    # mix, days as shown, their selection scores
    (0.0, [1, 0], [1.0, -1.0]),
    (0.4, [1, 0], [0.2, -0.2]),
    (0.5, [1, 0], [0.0, 0.0]),  # a tie: the more similar one
    (0.6, [0, 1], [0.2, -0.2]),
    (1.0, [0, 1], [1.0, -1.0]),
]


@pytest.mark.parametrize(("mix", "days", "scores"), MIXTURES)
def test_similarity_and_q_are_mixed(bench, mix, days, scores):
    memrl = bench(MemRLOriginal, **{**SETTINGS, "mix": mix})
    memrl.remember(0, 60)
    memrl.remember(1, 0)
    praise(memrl, 2, praised=0)
    assert memrl.recalled(13) == days
    assert [one.shown.selection_score for one in memrl.retrieve(13)] == scores


def test_memories_below_the_threshold_are_no_candidates(memrl):
    memrl.remember(0, math.degrees(math.acos(0.299)))
    memrl.remember(1, math.degrees(math.acos(0.301)))
    memrl.remember(2, None)
    praise(memrl, 3, praised=0)
    assert memrl.recalled(14) == [1]


def test_a_memory_exactly_at_the_threshold_is_a_candidate(bench):
    memrl = bench(MemRLOriginal, **{**SETTINGS, "min_similarity": 1.0})
    memrl.remember(0, 0)
    memrl.remember(1, 10)
    assert memrl.recalled(2) == [0]


def test_only_the_most_similar_are_candidates_and_only_they_are_standardised(bench):
    memrl = bench(MemRLOriginal, **{**SETTINGS, "candidates": 2})
    for day, angle in enumerate([60, 0, 30]):
        memrl.remember(day, angle)
    praise(memrl, 3, praised=0)  # the most useful, but the least similar of three
    best, second = memrl.retrieve(14)
    assert [best.shown.memory_id, second.shown.memory_id] == [memrl.id(1), memrl.id(2)]
    # Q is 0 for both, so its z is 0; the z of similarity is 1 and -1.
    assert (best.shown.selection_score, second.shown.selection_score) == (0.5, -0.5)


def test_the_best_are_shown_and_ties_go_to_the_more_similar_then_the_newest(bench):
    memrl = bench(MemRLOriginal, **{**SETTINGS, "mix": 1.0, "top_k": 3})
    for day, angle in enumerate([20, 0, 0, 40]):
        memrl.remember(day, angle)
    assert memrl.recalled(4) == [2, 1, 0]


def test_without_a_memory_above_the_threshold_nothing_is_shown(memrl):
    assert memrl.retrieve(0) == ()
    memrl.remember(0, 0)
    assert memrl.retrieve(1, 90) == ()
    assert memrl.retrieve(1, None) == ()


def test_an_extreme_value_counts_no_more_than_the_clip_allows(bench):
    memrl = bench(MemRLOriginal, **{**SETTINGS, "z_clip": 1.5})
    for day in range(5):
        memrl.remember(day)
    praise(memrl, 5, praised=0)
    # Q is 0.3 once and 0 four times: mean 0.06, deviation 0.12, so z is 2 and -0.5. Similarities are all alike.
    scores = {one.shown.memory_id: one.shown.selection_score for one in memrl.retrieve(16)}
    assert (scores[memrl.id(0)], scores[memrl.id(1)]) == (0.75, -0.25)


@pytest.mark.parametrize(
    ("values", "clip", "expected"),
    [
        ([], 3, []),
        ([0.4], 3, [0.0]),
        ([1, 3], 3, [-1.0, 1.0]),
        ([1, 2, 3], 3, [-math.sqrt(1.5), 0.0, math.sqrt(1.5)]),  # population's deviation: root of 2/3
        ([0, 0, 0, 0, 1], 3, [-0.5, -0.5, -0.5, -0.5, 2.0]),
        ([0] * 16 + [17], 3, [-0.25] * 16 + [3.0]),  # 4 without the clip
        ([0] * 16 + [-17], 3, [0.25] * 16 + [-3.0]),
        ([0.1, 0.1, 0.1], 3, [0.0, 0.0, 0.0]),
        ([0.1, 0.1, 0.1 + 1e-12], 3, [0.0, 0.0, 0.0]),  # rounding is no preference
    ],
)
def test_standardised(values, clip, expected):
    assert standardised(values, clip) == pytest.approx(expected, abs=1e-12)


def test_similarity_utility_visits_and_selection_are_shown_separately(memrl):
    memrl.remember(0, 60)
    memrl.remember(1, 0)
    praise(memrl, 2, praised=0)
    one = next(recalled.shown for recalled in memrl.retrieve(13) if recalled.shown.memory_id == memrl.id(0))
    assert (one.similarity, one.q) == (pytest.approx(0.5, abs=2e-4), pytest.approx(0.3))
    assert (one.visits, one.selection_score) == (1, 0.0)
    kept = memrl.mechanism.experiences("801170")[0]
    assert (kept.kind, kept.q, kept.visits) == ("trajectory", pytest.approx(0.3), 1)


def test_each_reward_names_its_outcome_and_events_from_the_journal_restore_the_state(bench, memrl):
    memrl.remember(0)
    memrl.remember(1, references=[0])
    rewards = memrl.mature(11, (1, 10, 0.25)) + memrl.mature(21, (1, 20, -0.5))
    assert [memrl.read_back(event) for event in rewards] == rewards
    (evidence,) = rewards[0].evidence
    assert (evidence.predicted_on.isoformat(), evidence.horizon, evidence.code, evidence.alpha) == (
        memrl.id(1)[:10],
        10,
        "801170",
        0.25,
    )
    fresh = bench(MemRLOriginal, **SETTINGS)
    fresh.past.trajectories, fresh.past.vectors = memrl.past.trajectories, memrl.past.vectors
    for event in [Remembered("801170", memrl.id(0)), Remembered("801170", memrl.id(1)), *rewards]:
        fresh.mechanism.apply(session_of(memrl.id(21)), fresh.read_back(event))
    assert fresh.mechanism.experiences("801170") == memrl.mechanism.experiences("801170")
    assert fresh.retrieve(22) == memrl.retrieve(22)


def test_settings_of_memrl_that_do_not_apply_are_refused():
    with pytest.raises(ValidationError, match="q_scope"):
        MemRLOriginal.settings_model(**SETTINGS, q_scope="shared")
