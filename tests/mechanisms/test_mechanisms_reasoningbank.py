"""ReasoningBank: items from successes and from failures, found again by news, for each horizon apart."""

import json
import math

import pytest

from finevolve_pipeline.mechanisms.base import UpdateFailed
from finevolve_pipeline.mechanisms.reasoningbank import ReasoningBank

SETTINGS = {"max_items": 3, "k": 1, "mode": "similar"}


@pytest.fixture
def bank(bench):
    return bench(ReasoningBank, **SETTINGS)


def items(*titles):
    return {
        "items": [{"title": title, "description": f"{title}的描述", "content": f"{title}的内容"} for title in titles]
    }


def learn(bench, *outcomes):
    """Outcomes (source day, horizon), each on its own day, answered by one item `source/horizon`."""
    for source, horizon in outcomes:
        bench.script(items(f"{source}/{horizon}"))
        bench.mature(source + horizon, (source, horizon, 0.01))


def shown(bench, day, angle=0.0):
    return [one.shown.item.title for one in bench.retrieve(day, angle)]


NOTHING = None


@pytest.mark.parametrize(
    ("score", "alpha", "success"),
    [
        (0.5, 0.02, True),
        (-0.5, -0.02, True),
        (0.5, -0.02, False),
        (-0.5, 0.02, False),
        (0.0, 0.02, False),  # predicts no direction
        (0.0, -0.02, False),
        (1e-12, 1e-9, True),  # a direction, however small
        (1e-12, -1e-9, False),
        (0.5, 0.0, NOTHING),  # nothing was right or wrong
        (0.0, 0.0, NOTHING),
        (0.5, math.nan, NOTHING),
        (None, 0.02, NOTHING),  # invalid
    ],
)
def test_success_is_the_right_direction(bank, score, alpha, success):
    bank.remember(0, scores={} if score is None else {10: score})
    bank.script(items("经验"))
    events = bank.mature(10, (0, 10, alpha))
    if success is NOTHING:
        assert (events, bank.asked) == ([], [])
        return
    (request,) = bank.asked
    assert (request.episode.success, request.episode.score, request.episode.alpha) == (success, score, alpha)
    assert [event.success for event in events] == [success]
    (recalled,) = bank.retrieve(10)
    assert recalled.shown.success is success


def test_an_extraction_is_told_one_prediction_and_how_many_items_are_allowed(bank):
    bank.remember(0, scores={20: 0.7})
    bank.script(items())
    bank.mature(20, (0, 20, 0.02))
    (request,) = bank.asked
    assert (request.industry.code, request.session.isoformat()) == ("801170", bank.id(20)[:10])
    assert (request.episode.memory_id, request.episode.horizon, request.max_items) == (bank.id(0), 20, 3)


def test_each_horizon_has_its_own_bank_and_the_shortest_is_shown_first(bank):
    bank.remember(0, 0)
    bank.remember(20, 0)
    bank.remember(30, 90)
    bank.script(items("四十", "再四十"), items("二十"), items("十"))
    bank.mature(40, (0, 40, 0.01), (20, 20, 0.01), (30, 10, -0.01))
    assert [(one.shown.item.title, one.shown.horizon, one.horizons) for one in bank.retrieve(40, 0)] == [
        ("十", 10, (10,)),  # the only one of its horizon, however unlike
        ("二十", 20, (20,)),
        ("四十", 40, (40,)),
        ("再四十", 40, (40,)),
    ]


def test_the_items_of_the_most_similar_episode_of_each_horizon_are_shown(bank):
    for day, angle in enumerate([0, 40, 80]):
        bank.remember(day, angle)
    learn(bank, (0, 10), (1, 10), (2, 10), (0, 20), (1, 20))
    # day 0 lies at 0, day 1 at 40, day 2 at 80 degrees; day 2 has no outcome at 20 sessions yet
    assert shown(bank, 22, 10) == ["0/10", "0/20"]
    assert shown(bank, 22, 30) == ["1/10", "1/20"]
    assert shown(bank, 22, 70) == ["2/10", "1/20"]


def test_items_come_by_similarity_of_their_episodes_which_is_shown(bench):
    bank = bench(ReasoningBank, **{**SETTINGS, "k": 2})
    for day, angle in enumerate([60, 0, 90]):
        bank.remember(day, angle)
    learn(bank, (0, 10), (1, 10), (2, 10))
    recalled = bank.retrieve(13, 0)
    assert [one.shown.item.title for one in recalled] == ["1/10", "0/10"]
    assert [one.shown.similarity for one in recalled] == pytest.approx([1.0, 0.5], abs=1e-5)
    assert [one.shown.selection_score for one in recalled] == [one.shown.similarity for one in recalled]


def test_ties_are_broken_newest_source_first(bench):
    bank = bench(ReasoningBank, **{**SETTINGS, "k": 2})
    for day in range(3):
        bank.remember(day, 30)
    learn(bank, (0, 10), (1, 10), (2, 10))
    assert shown(bank, 13) == ["2/10", "1/10"]


def test_a_source_that_was_kept_late_is_as_old_as_it_is(bank):
    # Day 0 has no valid score at 10 sessions, so its news enters the bank after that of day 1.
    bank.remember(0, 30, scores={20: 0.5})
    bank.remember(1, 30)
    learn(bank, (1, 10), (0, 20), (1, 20))
    assert shown(bank, 21) == ["1/10", "1/20"]


def test_without_news_all_episodes_are_equally_unlike_and_the_newest_is_shown(bank):
    for day in range(2):
        bank.remember(day, 0)
    learn(bank, (0, 10), (1, 10))
    (recalled,) = bank.retrieve(12, None)
    assert (recalled.shown.item.title, recalled.shown.similarity) == ("1/10", 0.0)


def test_mode_recent_takes_the_newest_episodes_whatever_their_news(bench):
    bank = bench(ReasoningBank, max_items=3, k=2, mode="recent")
    for day, angle in enumerate([0, 60, 90]):
        bank.remember(day, angle)
    learn(bank, (0, 10), (1, 10), (2, 10), (0, 20))
    recalled = bank.retrieve(20, 0)
    assert [one.shown.item.title for one in recalled] == ["2/10", "1/10", "0/20"]
    assert {(one.shown.similarity, one.shown.selection_score) for one in recalled} == {(None, None)}


def test_items_are_numbered_and_shown_on_the_very_day_with_where_they_come_from(bank):
    bank.remember(0, scores={10: -0.4})
    bank.script(items("甲", "乙"))
    (event,) = bank.mature(10, (0, 10, -0.05))
    made = (f"{bank.id(10)}/10d/1", f"{bank.id(10)}/10d/2")
    assert event.made == made
    first, second = bank.retrieve(10)
    assert (first.shown.memory_id, second.shown.memory_id) == made
    assert (second.shown.item.title, second.shown.item.description, second.shown.item.content) == (
        "乙",
        "乙的描述",
        "乙的内容",
    )
    assert second.shown.predicted_on.isoformat() == bank.id(0)[:10]
    assert second.available_from == second.shown.made_on
    assert second.shown.made_on.isoformat() == bank.id(10)[:10]
    assert (second.kind, second.horizons, second.sources) == ("reasoning_item", (10,), (bank.id(0),))
    kept = bank.mechanism.experiences("801170")
    assert [one.memory_id for one in kept] == list(made)
    assert [one.text for one in kept] == ["甲\n甲的描述\n甲的内容", "乙\n乙的描述\n乙的内容"]


def test_experience_is_listed_oldest_first(bank):
    for day in (0, 10, 30):
        bank.remember(day)
    learn(bank, (0, 10), (10, 10))
    bank.script(items("0/40"), items("30/10"))
    bank.mature(40, (0, 40, 0.01), (30, 10, 0.01))
    listed = [one.text.split("\n")[0] for one in bank.mechanism.experiences("801170")]
    assert listed == ["0/10", "10/10", "0/40", "30/10"]


def test_of_too_many_items_the_first_three_count(bank):
    bank.remember(0)
    bank.script(items("甲", "乙", "丙", "丁"), items("甲", "乙", "丙", "丁"))
    (event,) = bank.mature(10, (0, 10, 0.01))
    assert len(event.made) == 3
    assert shown(bank, 10) == ["甲", "乙", "丙"]


def test_an_extraction_without_items_is_an_event_that_leaves_nothing(bank):
    bank.remember(0, 0)
    bank.remember(1, 90)
    bank.script(items())
    (event,) = bank.mature(10, (0, 10, 0.01))
    learn(bank, (1, 10))
    assert (event.items, event.made) == ((), ())
    assert shown(bank, 11, 0) == ["1/10"]  # the more similar episode left nothing to show


def test_extractions_of_one_day_are_asked_for_together_and_kept_in_the_order_of_the_outcomes(bank):
    for day in (0, 20, 30):
        bank.remember(day)
    bank.script(items("四十"), items("二十"), items("十"))
    events = bank.mature(40, (0, 40, 0.01), (20, 20, 0.01), (30, 10, 0.01))
    assert bank.backbone.most_at_once == 3
    assert [(event.horizon, event.items[0][0]) for event in events] == [(40, "四十"), (20, "二十"), (10, "十")]


def test_an_answer_that_cannot_be_read_leaves_the_bank_as_it_was_and_is_reported(bank):
    bank.remember(0)
    learn(bank, (0, 10))
    bank.script("no answer", json.dumps({"items": "none"}))
    (event,) = bank.mature(20, (0, 20, 0.01))
    assert isinstance(event, UpdateFailed)
    assert event.code == "801170"
    assert shown(bank, 20) == ["0/10"]


def test_each_extraction_names_the_outcome_it_rests_on_and_comes_back_from_the_journal(bank):
    bank.remember(0)
    bank.script(items("甲", "乙"))
    (event,) = bank.mature(10, (0, 10, 0.25))
    (evidence,) = event.evidence
    assert (evidence.predicted_on.isoformat(), evidence.horizon, evidence.code, evidence.alpha) == (
        "2025-01-02",
        10,
        "801170",
        0.25,
    )
    assert event.items == (("甲", "甲的描述", "甲的内容"), ("乙", "乙的描述", "乙的内容"))
    assert bank.read_back(event) == event


def test_another_sector_sees_nothing(bank):
    bank.remember(0)
    learn(bank, (0, 10))
    assert len(bank.mechanism.experiences("801170")) == 1
    assert bank.mechanism.experiences("801780") == ()
