"""Mem0: the most similar trajectories, never labelled."""

import dataclasses
import math

import pytest

from finevolve_pipeline.mechanisms.mem0 import Mem0


@pytest.fixture
def mem0(bench):
    return bench(Mem0, top_k=3, min_similarity=0.1)


def test_recalls_the_most_similar_first(mem0):
    for day, angle in enumerate([60, 10, 40, 20]):
        mem0.remember(day, angle)
    assert mem0.recalled(4) == [1, 3, 2]


def test_ties_are_broken_newest_first(mem0):
    for day in range(5):
        mem0.remember(day, 30)
    assert mem0.recalled(5) == [4, 3, 2]


def test_keeps_only_memories_at_least_as_similar_as_the_threshold(mem0):
    mem0.remember(0, 90)
    mem0.remember(1, math.degrees(math.acos(0.099)))
    mem0.remember(2, math.degrees(math.acos(0.101)))
    assert mem0.recalled(3) == [2]


def test_a_day_without_news_recalls_nothing_and_is_recalled_by_nobody(mem0):
    mem0.remember(0, 10)
    mem0.remember(1, None)
    assert mem0.recalled(2, None) == []
    assert mem0.recalled(2, 10) == [0]


def test_shows_what_was_predicted_and_nothing_of_the_outcome(mem0):
    mem0.remember(0, 0)
    mem0.remember(1, 0, scores={10: -0.75, 40: 1.0}, references=[0])
    before = mem0.retrieve(2)
    assert mem0.mature(11, (1, 10, 0.02)) == []
    assert mem0.retrieve(2) == before
    shown = before[0].shown
    assert (shown.scores, shown.references) == ({10: -0.75, 40: 1.0}, (mem0.id(0),))
    assert (shown.q, shown.visits, shown.similarity, shown.selection_score) == (None, None, 1.0, 1.0)
    assert {field.name for field in dataclasses.fields(shown)}.isdisjoint({"alpha", "reward", "outcome"})


def test_another_sector_sees_nothing(mem0):
    mem0.remember(0, 0)
    (situation_sector,) = {one.shown.memory_id[11:] for one in mem0.retrieve(1)}
    assert situation_sector == "801170"
    assert mem0.mechanism.store("801780").memories == []
