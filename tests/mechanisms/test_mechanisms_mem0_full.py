"""Mem0 as published: facts that are added, updated and deleted.

Each text begins with the angle of its vector in degrees, so that similarities are plain to see.
"""

import math

import numpy as np
import pytest

from finevolve_pipeline.calendar import shift
from finevolve_pipeline.errors import BackboneError, ReplayMismatchError
from finevolve_pipeline.mechanisms.base import session_of
from finevolve_pipeline.mechanisms.mem0_full import FactDeleted, FactUpdated, Mem0Full
from finevolve_pipeline.mechanisms.trajectories import Remembered

CODE = "801170"
SETTINGS = {"max_facts": 3, "similar": 10, "top_k": 5, "min_similarity": 0.1}
UNREADABLE = ("no answer", "none again")


def embed(text):
    angle = math.radians(float(text.split("°")[0]))
    return np.array([math.cos(angle), math.sin(angle)], dtype=np.float32)


@pytest.fixture
def make(bench, monkeypatch):
    """Makes a bench whose past embeds texts by their angle, and which remembers all events in `journal`."""
    apply = bench._apply

    def journalled(self, session, events):
        self.journal += [(session, event) for event in events]
        apply(self, session, events)

    monkeypatch.setattr(bench, "_apply", journalled)

    def made(**settings):
        one = bench(Mem0Full, **{**SETTINGS, **settings})
        one.past.embed = embed
        one.journal = []
        return one

    return made


@pytest.fixture
def mem0(make):
    return make()


def add(text):
    return {"operation": "ADD", "text": text}


def update(number, text):
    return {"operation": "UPDATE", "memory": number, "text": text}


def delete(number):
    return {"operation": "DELETE", "memory": number}


NOOP = {"operation": "NOOP"}


def live(bench, day, facts=(), operations=()):
    """A day whose prediction leaves these facts, on which these operations are decided. The events."""
    before = len(bench.journal)
    bench.script({"facts": list(facts)})
    if facts:
        bench.script({"operations": list(operations)})
    bench.remember(day)
    return [event for _, event in bench.journal[before:]]


def keep(bench, day, *texts):
    """A day on which these facts are kept as they are."""
    return live(bench, day, texts, [add(text) for text in texts])


def texts(bench):
    return [one.text for one in bench.mechanism.experiences(CODE)]


def shown(bench, day, angle=0):
    return [one.shown.text for one in bench.retrieve(day, angle)]


def test_facts_are_drawn_from_the_news_and_the_prediction(mem0):
    mem0.script({"facts": []})
    mem0.remember(0, scores={10: 0.7, 40: -0.2})
    (request,) = mem0.asked
    assert (request.session.isoformat(), request.industry.code) == ("2025-01-02", CODE)
    assert request.news == mem0.past.news(mem0.id(0))
    assert (request.scores, request.key_factor, request.logic_chain) == ({10: 0.7, 40: -0.2}, "因素0", "链")
    assert request.max_facts == 3


def test_without_facts_nothing_more_is_asked_and_nothing_changes(mem0):
    assert live(mem0, 0) == []
    assert len(mem0.asked) == 1
    assert texts(mem0) == []


def test_an_added_fact_is_a_memory_of_its_day_and_seen_from_the_next_session(mem0):
    events = keep(mem0, 0, "0° 油价下跌", "10° 运价上涨")
    assert [event.made for event in events] == [(f"{mem0.id(0)}/fact/1",), (f"{mem0.id(0)}/fact/2",)]
    first, second = mem0.mechanism.experiences(CODE)
    assert (first.memory_id, first.kind, first.horizons, first.text) == (
        f"{mem0.id(0)}/fact/1",
        "fact",
        (10, 20, 40),
        "0° 油价下跌",
    )
    assert (first.made_on, first.available_from) == (session_of(mem0.id(0)), shift(session_of(mem0.id(0)), 1))
    assert (first.sources, second.memory_id) == ((mem0.id(0),), f"{mem0.id(0)}/fact/2")
    assert mem0.retrieve(1)[0].available_from == first.available_from


# The memory holds "0° a" (number 1) and "30° b" (number 2) when the fact "0° c" is drawn.
OPERATIONS = [
    # operations, texts that are kept, oldest first
    ([], ["0° a", "30° b"]),
    ([NOOP], ["0° a", "30° b"]),
    ([add("0° c")], ["0° a", "30° b", "0° c"]),
    ([add("0° c"), add("5° d")], ["0° a", "30° b", "0° c", "5° d"]),
    ([update(1, "0° a, c")], ["0° a, c", "30° b"]),
    ([update(2, "20° b, c")], ["0° a", "20° b, c"]),
    ([delete(1)], ["30° b"]),
    ([delete(1), delete(2)], []),
    ([delete(2), add("0° c"), update(1, "0° a!")], ["0° a!", "0° c"]),
    ([NOOP, update(1, "0° first"), update(1, "0° second"), delete(1)], ["0° first", "30° b"]),  # the first counts
    ([delete(1), update(1, "0° again")], ["30° b"]),
]


@pytest.mark.parametrize(("operations", "kept"), OPERATIONS)
def test_operations_change_the_memory(mem0, operations, kept):
    keep(mem0, 0, "0° a", "30° b")
    events = live(mem0, 1, ["0° c"], operations)
    assert mem0.asked[-1].memories == ("0° a", "30° b")
    assert texts(mem0) == kept
    assert [mem0.read_back(event) for event in events] == events


def test_an_update_keeps_id_and_day_and_gains_the_new_source(mem0):
    keep(mem0, 0, "0° a")
    (event,) = live(mem0, 3, ["60° b"], [update(1, "60° a, then b")])
    assert event == FactUpdated(CODE, f"{mem0.id(0)}/fact/1", "60° a, then b", mem0.id(3))
    assert event.made == ()
    (one,) = mem0.mechanism.experiences(CODE)
    assert (one.memory_id, one.made_on) == (f"{mem0.id(0)}/fact/1", session_of(mem0.id(0)))
    assert one.sources == (mem0.id(0), mem0.id(3))
    (recalled,) = mem0.retrieve(4, 60)
    assert (recalled.shown.similarity, recalled.sources) == (1.0, one.sources)


def test_a_deleted_memory_is_neither_shown_nor_compared(mem0):
    keep(mem0, 0, "0° a", "10° b")
    live(mem0, 1, ["0° c"], [delete(1)])
    assert shown(mem0, 2) == ["10° b"]
    keep(mem0, 2, "0° d")
    assert mem0.asked[-1].memories == ("10° b",)


def test_facts_are_compared_with_the_most_similar_memories_of_each_the_nearest_first(make):
    mem0 = make(similar=2)
    keep(mem0, 0, "0° a", "20° b", "40° c")
    keep(mem0, 1, "80° d", "95° e")
    live(mem0, 2, ["12° x", "90° y"], [NOOP])
    request = mem0.asked[-1]
    assert request.facts == ("12° x", "90° y")
    # x finds b (8° away) and a (12°), y finds e (5°) and d (10°).
    assert request.memories == ("95° e", "20° b", "80° d", "0° a")


def test_a_memory_that_several_facts_find_is_compared_once(make):
    mem0 = make(similar=1)
    keep(mem0, 0, "0° a", "90° b")
    live(mem0, 1, ["10° x", "20° y"], [NOOP])
    assert mem0.asked[-1].memories == ("0° a",)


def test_a_memory_that_several_facts_find_ranks_by_the_nearest_of_them(mem0):
    keep(mem0, 0, "0° a", "30° b")
    live(mem0, 1, ["5° x", "60° y"], [NOOP])
    assert mem0.asked[-1].memories == ("0° a", "30° b")  # 5° and 25° from x, 60° and 30° from y


def test_equally_similar_memories_are_compared_newest_first_by_the_day_they_were_added(make):
    mem0 = make(similar=2)
    for day, text in enumerate(["0° a", "0° b", "0° c"]):
        keep(mem0, day, text)
    live(mem0, 3, ["0° x"], [update(1, "0° c again"), NOOP])
    assert mem0.asked[-1].memories == ("0° c", "0° b")
    live(mem0, 4, ["0° y"], [update(2, "0° b again")])  # changed last, but no newer than c
    live(mem0, 5, ["0° z"], [NOOP])
    assert mem0.asked[-1].memories == ("0° c again", "0° b again")
    assert shown(mem0, 6) == ["0° c again", "0° b again", "0° a"]


def test_the_numbers_of_operations_are_those_of_the_comparison(mem0):
    keep(mem0, 0, "60° a", "0° b")
    (event,) = live(mem0, 1, ["0° x"], [delete(2)])
    assert event == FactDeleted(CODE, f"{mem0.id(0)}/fact/1")  # compared: b, then a
    assert texts(mem0) == ["0° b"]


def test_an_operation_on_a_number_that_was_not_compared_is_left_out(mem0):
    keep(mem0, 0, "0° a")
    wrong = {"operations": [delete(2), add("0° x")]}
    mem0.script({"facts": ["0° x"]}, wrong, wrong)  # it is asked once more
    mem0.remember(1)
    assert texts(mem0) == ["0° a", "0° x"]


def test_no_more_facts_count_than_are_asked_for(mem0):
    many = {"facts": ["0° a", "1° b", "2° c", "3° d"]}
    mem0.script(many, many, {"operations": [NOOP]})
    mem0.remember(0)
    assert mem0.asked[-1].facts == ("0° a", "1° b", "2° c")


def test_the_most_similar_memories_above_the_threshold_are_shown(make):
    mem0 = make(top_k=2)
    keep(mem0, 0, "30° a", "10° b", "20° c")
    assert shown(mem0, 1) == ["10° b", "20° c"]
    assert shown(mem0, 1, 90) == ["30° a", "20° c"]
    assert shown(mem0, 1, 110) == ["30° a"]  # cosines 0.17, -0.17 and 0: only the first is at least 0.1


def test_the_similarity_is_shown_and_nothing_of_an_outcome(mem0):
    keep(mem0, 0, "60° a")
    asked = len(mem0.asked)
    before = mem0.retrieve(10)
    assert mem0.mature(10, (0, 10, 0.05)) == []
    assert (mem0.retrieve(10), len(mem0.asked)) == (before, asked)
    one = before[0].shown
    assert one.similarity == one.selection_score == pytest.approx(0.5, abs=1e-4)
    assert (one.q, one.visits) == (None, None)


def test_a_day_without_news_is_shown_nothing(mem0):
    keep(mem0, 0, "0° a")
    assert mem0.retrieve(1, None) == ()


@pytest.mark.parametrize(
    "answers",
    [UNREADABLE, ({"facts": ["0° c"]}, *UNREADABLE), ({"facts": ["0° c"]}, {"facts": []}, {"operations": "ADD"})],
    ids=["facts", "operations", "no list of operations"],
)
def test_an_answer_that_cannot_be_read_changes_nothing_and_is_reported(mem0, answers):
    keep(mem0, 0, "0° a", "30° b")
    before = mem0.mechanism.experiences(CODE)
    mem0.script(*answers)
    mem0.remember(1)
    _, failed = mem0.journal[-1]
    assert (failed.kind, failed.code) == ("update_failed", CODE)
    assert failed.reason.startswith("answer")
    assert mem0.mechanism.experiences(CODE) == before


def test_a_backbone_that_refuses_stops_the_run(mem0):
    mem0.script({"facts": ["0° a"]}, BackboneError("no money"))
    with pytest.raises(BackboneError, match="no money"):
        mem0.remember(0)


def test_events_from_the_journal_restore_the_state(make, mem0):
    keep(mem0, 0, "0° a", "30° b", "60° c")
    live(mem0, 1, ["40° x", "5° y"], [update(1, "35° b, x"), delete(2), add("5° y")])
    live(mem0, 2, ["5° z"], [update(1, "6° y, z")])
    fresh = make()
    fresh.past.trajectories = mem0.past.trajectories
    for session, event in mem0.journal:
        fresh.mechanism.apply(session, fresh.read_back(event))
    assert len({type(event) for _, event in mem0.journal}) == 3
    assert fresh.mechanism.experiences(CODE) == mem0.mechanism.experiences(CODE)
    assert fresh.retrieve(3) == mem0.retrieve(3) != ()


def test_another_sector_sees_nothing(mem0):
    keep(mem0, 0, "0° a")
    assert len(mem0.mechanism.experiences(CODE)) == 1
    assert mem0.mechanism.experiences("801780") == ()


def test_an_event_of_another_mechanism_is_refused(mem0):
    with pytest.raises(ReplayMismatchError, match="cannot apply an event 'remembered'"):
        mem0.mechanism.apply(session_of(mem0.id(0)), Remembered(CODE, mem0.id(0)))
