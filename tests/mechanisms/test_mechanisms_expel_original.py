"""ExpeL as published: a list of rules that gain and lose importance. Every table can be checked by hand."""

import math

import pytest

from finevolve_pipeline.errors import BackboneError
from finevolve_pipeline.mechanisms.base import UpdateFailed, session_of
from finevolve_pipeline.mechanisms.expel_original import ExpeLOriginal

CODE = "801170"
SETTINGS = {"max_rules": 20, "max_operations": 4}


@pytest.fixture
def expel(bench):
    return bench(ExpeLOriginal, **SETTINGS)


def add(text):
    return {"operation": "ADD", "text": text}


def edit(number, text):
    return {"operation": "EDIT", "rule": number, "text": text}


def agree(number):
    return {"operation": "AGREE", "rule": number}


def remove(number):
    return {"operation": "REMOVE", "rule": number}


def update(bench, day, *operations):
    """An outcome of `day`, of the prediction of ten sessions before, and what is answered to it. The events."""
    bench.remember(day - 10)
    bench.script({"operations": list(operations)})
    return bench.mature(day, (day - 10, 10, 0.02))


def shown(bench, day):
    return [(one.shown.text, one.shown.importance) for one in bench.retrieve(day)]


# The list holds a (number 1, importance 3), b (number 2, importance 2) and c (number 3, importance 1).
OPERATIONS = [
    # operations, rules as they are shown afterwards
    ([], [("a", 3), ("b", 2), ("c", 1)]),
    ([add("d")], [("a", 3), ("b", 2), ("d", 2), ("c", 1)]),
    ([add("d"), add("d"), add("e")], [("a", 3), ("b", 2), ("d", 2), ("e", 2), ("c", 1)]),
    ([agree(2)], [("a", 3), ("b", 3), ("c", 1)]),
    ([agree(2), agree(3)], [("a", 3), ("b", 3), ("c", 2)]),
    ([edit(3, "c, if d")], [("a", 3), ("b", 2), ("c, if d", 2)]),
    ([edit(3, "c")], [("a", 3), ("b", 2), ("c", 2)]),
    ([remove(1)], [("a", 2), ("b", 2), ("c", 1)]),
    ([remove(3)], [("a", 3), ("b", 2)]),
    ([add("d"), remove(3), edit(2, "b!"), agree(1)], [("a", 4), ("b!", 3), ("d", 2)]),
    # On each rule the first operation counts.
    ([remove(3), agree(3)], [("a", 3), ("b", 2)]),
    ([agree(3), remove(3), edit(3, "x")], [("a", 3), ("b", 2), ("c", 2)]),
    # A rule that exists is not added, and editing a rule into one that exists is agreeing with that one.
    ([add("b")], [("a", 3), ("b", 2), ("c", 1)]),
    ([edit(3, "b")], [("a", 3), ("b", 3), ("c", 1)]),
    ([edit(2, "x"), edit(3, "x")], [("a", 3), ("x", 3), ("c", 1)]),
    ([edit(3, "x"), add("x")], [("a", 3), ("b", 2), ("x", 2)]),
]


@pytest.fixture
def three_rules(expel):
    update(expel, 10, add("a"), add("b"), add("c"))
    update(expel, 11, agree(1), remove(3))
    assert shown(expel, 11) == [("a", 3), ("b", 2), ("c", 1)]
    return expel


@pytest.mark.parametrize(("operations", "rules"), OPERATIONS)
def test_operations_change_the_rules(three_rules, operations, rules):
    events = update(three_rules, 12, *operations)
    assert [(one.number, one.text, one.importance) for one in three_rules.asked[-1].rules] == [
        (1, "a", 3),
        (2, "b", 2),
        (3, "c", 1),
    ]
    assert shown(three_rules, 12) == rules
    assert [three_rules.read_back(event) for event in events] == events


# The list may hold three rules and does: a (importance 4), b (3) and c (2).
FULL = [
    # operations, rules as they are shown afterwards
    ([add("d")], [("a", 4), ("b", 3), ("c", 2)]),  # no room
    ([remove(1)], [("b", 3), ("c", 2), ("a", 1)]),
    ([remove(2)], [("a", 4), ("c", 2)]),
    ([remove(3)], [("a", 4), ("b", 3)]),
    ([add("d"), remove(3)], [("a", 4), ("b", 3), ("d", 2)]),  # a removal makes room, wherever it stands
    ([add("d"), add("e"), remove(3)], [("a", 4), ("b", 3), ("d", 2)]),
    ([add("d"), remove(2)], [("a", 4), ("c", 2), ("d", 2)]),
    ([add("d"), remove(1)], [("b", 3), ("c", 2), ("a", 1)]),  # a stays, so there is still no room
]


@pytest.mark.parametrize(("operations", "rules"), FULL)
def test_a_full_list_takes_no_more_and_a_removal_counts_three(bench, operations, rules):
    expel = bench(ExpeLOriginal, **{**SETTINGS, "max_rules": 3})
    update(expel, 10, add("a"), add("b"), add("c"))
    update(expel, 11, agree(1))
    update(expel, 12, agree(1), agree(2))
    assert shown(expel, 12) == [("a", 4), ("b", 3), ("c", 2)]
    update(expel, 13, *operations)
    assert shown(expel, 13) == rules
    assert [request.is_full for request in expel.asked] == [False, True, True, True]


def test_of_many_additions_those_that_have_room_are_taken_first_come_first(bench):
    expel = bench(ExpeLOriginal, **{**SETTINGS, "max_rules": 2})
    update(expel, 10, add("a"), add("b"), add("c"))
    assert shown(expel, 10) == [("a", 2), ("b", 2)]


def test_rules_are_numbered_as_they_are_shown_the_most_important_first_ties_oldest_first(expel):
    update(expel, 10, add("a"), add("b"))
    update(expel, 11, add("c"), agree(2))
    update(expel, 12, agree(3))
    assert [rule.text for rule in expel.asked[2].rules] == ["b", "a", "c"]
    assert shown(expel, 12) == [("b", 3), ("c", 3), ("a", 2)]
    assert [one.text for one in expel.mechanism.experiences(CODE)] == ["a", "b", "c"]  # oldest first


def test_no_more_operations_count_than_are_asked_for(bench):
    expel = bench(ExpeLOriginal, **{**SETTINGS, "max_operations": 2})
    many = {"operations": [add("a"), add("b"), add("c")]}
    expel.remember(0)
    expel.script(many, many)  # it is asked once more
    expel.mature(10, (0, 10, 0.02))
    assert expel.asked[0].max_operations == 2
    assert shown(expel, 10) == [("a", 2), ("b", 2)]


def test_one_call_tells_the_outcomes_of_a_session_successes_and_failures(expel):
    expel.remember(0, scores={40: 0.5})
    expel.remember(20, scores={20: -0.5})
    expel.remember(30, scores={10: 0.0})
    expel.script({"operations": [add("a")]})
    (event,) = expel.mature(40, (0, 40, 0.03), (20, 20, 0.02), (30, 10, -0.01))
    (request,) = expel.asked
    assert [(one.memory_id, one.horizon, one.alpha, one.success) for one in request.episodes] == [
        (expel.id(0), 40, 0.03, True),
        (expel.id(20), 20, 0.02, False),
        (expel.id(30), 10, -0.01, False),
    ]
    assert (request.session, request.industry.code) == (session_of(expel.id(40)), CODE)
    assert [(one.predicted_on, one.horizon, one.code, one.alpha) for one in event.evidence] == [
        (session_of(expel.id(0)), 40, CODE, 0.03),
        (session_of(expel.id(20)), 20, CODE, 0.02),
        (session_of(expel.id(30)), 10, CODE, -0.01),
    ]


@pytest.mark.parametrize(
    ("scores", "alpha"),
    [({10: 0.5}, 0.0), ({10: 0.5}, math.nan), ({20: 0.5}, 0.02)],
    ids=["alpha of zero", "undefined alpha", "invalid score"],
)
def test_what_teaches_nothing_is_not_asked_about(expel, scores, alpha):
    expel.remember(0, scores=scores)
    assert expel.mature(10, (0, 10, alpha)) == []
    assert expel.asked == []


def test_of_the_outcomes_of_a_session_only_the_usable_are_told(expel):
    expel.remember(0)
    expel.remember(10)
    expel.script({"operations": []})
    assert expel.mature(20, (0, 20, 0.0), (10, 10, 0.05)) == []
    assert [one.memory_id for one in expel.asked[0].episodes] == [expel.id(10)]


def test_an_event_names_the_rules_it_adds_and_those_it_changes_by_their_ids(expel):
    (first,) = update(expel, 10, add("a"), add("b"))
    (second,) = update(expel, 11, remove(2), add("c"))
    a, b, c = f"{expel.id(10)}/rule/1", f"{expel.id(10)}/rule/2", f"{expel.id(11)}/rule/1"
    assert (first.made, second.made) == ((a, b), (c,))
    assert second.changes == (("REMOVE", b, "", -1), ("ADD", c, "c", 2))


def test_a_rule_is_shown_on_the_very_day_it_is_made_and_rests_on_what_its_text_came_from(expel):
    update(expel, 10, add("a"))
    update(expel, 11, agree(1))
    update(expel, 12, edit(1, "a, if b"))
    (recalled,) = expel.retrieve(12)
    (kept,) = expel.mechanism.experiences(CODE)
    assert (recalled.shown.memory_id, recalled.shown.made_on) == (f"{expel.id(10)}/rule/1", kept.made_on)
    assert recalled.available_from == kept.available_from == kept.made_on == session_of(expel.id(10))
    assert recalled.shown.selection_score == 4
    assert (kept.kind, kept.horizons, kept.text) == ("rule", (10, 20, 40), "a, if b")
    assert recalled.sources == kept.sources == (expel.id(0), expel.id(2))


def test_an_answer_that_cannot_be_read_keeps_the_rules_and_is_reported(expel):
    update(expel, 10, add("a"))
    expel.remember(1)
    expel.script("no answer", {"operations": "ADD"})
    (event,) = expel.mature(11, (1, 10, 0.02))
    assert isinstance(event, UpdateFailed)
    assert (event.code, event.reason.startswith("answer")) == (CODE, True)
    assert shown(expel, 11) == [("a", 2)]


def test_a_backbone_that_refuses_stops_the_run(expel):
    expel.remember(0)
    expel.script(BackboneError("no money"))
    with pytest.raises(BackboneError, match="no money"):
        expel.mature(10, (0, 10, 0.02))


def test_events_from_the_journal_restore_the_state(bench, expel):
    events = [
        *update(expel, 10, add("a"), add("b"), add("c")),
        *update(expel, 11, remove(1), edit(2, "b!"), agree(3)),
        *update(expel, 12, remove(3), add("d")),
    ]
    fresh = bench(ExpeLOriginal, **SETTINGS)
    for day, event in enumerate(events, start=10):
        fresh.mechanism.apply(session_of(fresh.id(day)), fresh.read_back(event))
    assert fresh.mechanism.experiences(CODE) == expel.mechanism.experiences(CODE)
    assert fresh.retrieve(13) == expel.retrieve(13)
    assert shown(fresh, 13) == [("b!", 3), ("c", 3), ("d", 2)]


def test_another_sector_sees_nothing(expel):
    update(expel, 10, add("a"))
    assert len(expel.mechanism.experiences(CODE)) == 1
    assert expel.mechanism.experiences("801780") == ()
