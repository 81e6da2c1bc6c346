"""Reflexion as published: failures only, the last three reflections."""

import math

import pytest

from finevolve_pipeline.mechanisms.base import UpdateFailed, session_of
from finevolve_pipeline.mechanisms.reflexion_original import ReflexionOriginal

CODE = "801170"
SETTINGS = {"max_characters": 4000, "signal": "index_points", "shown": 3}


@pytest.fixture
def reflexion(bench):
    return bench(ReflexionOriginal, **SETTINGS)


def fail(bench, day, text):
    """An outcome of `day` shows that the prediction of ten sessions before was wrong; what is written about it."""
    bench.remember(day - 10, scores={10: 0.5})
    bench.script({"reflection": text})
    return bench.mature(day, (day - 10, 10, -0.02))


def shown(bench, day):
    return [one.shown.text for one in bench.retrieve(day)]


@pytest.mark.parametrize(
    ("score", "alpha", "is_failure"),
    [
        (0.5, 0.02, False),
        (-0.5, -0.02, False),
        (0.5, -0.02, True),
        (-0.5, 0.02, True),
        (0.0, 0.02, True),
        (0.0, -0.02, True),
        (0.5, 0.0, False),
        (0.0, 0.0, False),
        (0.5, math.nan, False),
    ],
)
def test_a_wrong_direction_is_reflected_on_and_nothing_else(reflexion, score, alpha, is_failure):
    reflexion.remember(0, scores={10: score})
    reflexion.script({"reflection": "错。"})
    events = reflexion.mature(10, (0, 10, alpha))
    assert [event.text for event in events] == (["错。"] if is_failure else [])
    assert len(reflexion.asked) == is_failure
    assert shown(reflexion, 10) == (["错。"] if is_failure else [])


def test_of_the_outcomes_of_a_session_the_failures_are_told_oldest_source_first(reflexion):
    reflexion.remember(0, scores={40: 0.0})
    reflexion.remember(20, scores={20: 0.5})
    reflexion.remember(30, scores={10: -0.5})
    reflexion.script({"reflection": "错。"})
    (event,) = reflexion.mature(40, (0, 40, 0.03), (20, 20, 0.02), (30, 10, 0.01))
    (request,) = reflexion.asked
    assert [(one.memory_id, one.horizon, one.success) for one in request.episodes] == [
        (reflexion.id(0), 40, False),
        (reflexion.id(30), 10, False),
    ]
    assert event.sources == (reflexion.id(0), reflexion.id(30))
    assert [(one.horizon, one.alpha) for one in event.evidence] == [(40, 0.03), (10, 0.01)]


def test_the_last_three_are_shown_newest_first_and_the_next_is_written_from_them(reflexion):
    for day, text in enumerate(["一。", "二。", "三。", "四。", "五。"], start=10):
        fail(reflexion, day, text)
    assert [request.previous for request in reflexion.asked] == [
        (),
        ("一。",),
        ("一。", "二。"),
        ("一。", "二。", "三。"),
        ("二。", "三。", "四。"),
    ]
    assert shown(reflexion, 14) == ["五。", "四。", "三。"]
    kept = reflexion.mechanism.experiences(CODE)
    assert [(one.kind, one.text) for one in kept] == [("reflection", text) for text in ("三。", "四。", "五。")]
    assert [one.available_from for one in kept] == [session_of(reflexion.id(day)) for day in (12, 13, 14)]


def test_a_session_without_failures_leaves_the_reflections_as_they_are(reflexion):
    fail(reflexion, 10, "一。")
    reflexion.remember(1, scores={10: 0.5})
    assert reflexion.mature(11, (1, 10, 0.02)) == []
    assert shown(reflexion, 11) == ["一。"]


def test_an_answer_that_cannot_be_read_keeps_the_reflections_and_is_reported(reflexion):
    fail(reflexion, 10, "一。")
    reflexion.remember(1, scores={10: 0.5})
    reflexion.script("no answer", "none again")
    (event,) = reflexion.mature(11, (1, 10, -0.02))
    assert isinstance(event, UpdateFailed)
    assert shown(reflexion, 11) == ["一。"]


def test_events_from_the_journal_restore_the_state(bench, reflexion):
    events = [event for day in range(10, 15) for event in fail(reflexion, day, f"{day}。")]
    assert [reflexion.read_back(event) for event in events] == events
    fresh = bench(ReflexionOriginal, **SETTINGS)
    for event in events:
        fresh.mechanism.apply(session_of(event.memory), fresh.read_back(event))
    assert fresh.mechanism.experiences(CODE) == reflexion.mechanism.experiences(CODE) != ()
    assert fresh.retrieve(15) == reflexion.retrieve(15)
