"""The learned utility: a journal folded by hand, and its distribution over the window."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from finevolve_pipeline.evaluation.utility import (
    UtilityRun,
    all_utilities,
    final_utilities,
    no_utilities,
    retrieved_utilities,
    utility_histogram,
    utility_summary,
)
from finevolve_pipeline.mechanisms.memrl import MemRL, MemRLSettings, Rewarded
from finevolve_pipeline.mechanisms.trajectories import Remembered

DAYS = (dt.date(2025, 1, 2), dt.date(2025, 1, 3), dt.date(2025, 1, 6))
FIRST, SECOND = "2025-01-02/801010", "2025-01-03/801010"


class Written:
    """A journal in memory."""

    def __init__(self, days: Mapping[dt.date, Sequence[Any]]) -> None:
        self._days = days

    def sessions(self, experiment: str) -> Sequence[dt.date]:
        return tuple(self._days) if experiment == "memrl-rules" else ()

    def events(self, experiment: str, session: dt.date) -> Sequence[Mapping[str, Any]]:
        return [event.to_json() for event in self._days[session]]


def run(q_scope: str, experiment: str = "memrl-rules") -> UtilityRun:
    settings = MemRLSettings(candidates=20, top_k=5, learning_rate=0.5, initial_q=0.0, q_scope=q_scope)  # type: ignore[arg-type]
    return UtilityRun(experiment, MemRL, settings, (10, 20), ("801010", "801030"))


def rewarded(horizon: int, score: float, alpha: float, *memories: str) -> Rewarded:
    return Rewarded("801010", memories[0], horizon, score, alpha, memories)


JOURNAL = Written(
    {
        DAYS[0]: [Remembered("801010", FIRST)],
        DAYS[1]: [Remembered("801010", SECOND)],
        DAYS[2]: [rewarded(10, 1.0, 0.08, FIRST, SECOND), rewarded(20, -0.5, 0.04, FIRST)],
    }
)


def test_final_utilities_are_the_journal_applied_to_an_empty_store() -> None:
    found = final_utilities(run("shared"), JOURNAL).set_index("memory_id")
    # Q <- Q + 0.5 (r - Q): 0 -> 0.04 -> 0.04 + 0.5 (-0.02 - 0.04) = 0.01
    assert found.loc[FIRST, "q"] == pytest.approx(0.01)
    assert found.loc[FIRST, "visits"] == 2
    assert found.loc[SECOND, "q"] == pytest.approx(0.04)
    assert found.loc[SECOND, "visits"] == 1
    assert (found["horizon"] == 0).all()


def test_with_a_q_for_each_horizon_a_memory_has_a_row_for_each() -> None:
    found = final_utilities(run("per_horizon"), JOURNAL).set_index(["memory_id", "horizon"])["q"]
    assert found.to_dict() == {
        (FIRST, 10): pytest.approx(0.04),
        (FIRST, 20): pytest.approx(-0.01),
        (SECOND, 10): pytest.approx(0.04),
        (SECOND, 20): 0.0,
    }


def test_a_run_that_was_never_replayed_has_no_utilities() -> None:
    found = final_utilities(run("shared", "memrl-other"), JOURNAL)
    assert found.empty
    assert list(found.columns) == list(no_utilities().columns)


def test_retrieved_memories_fall_into_thirds_of_the_window_and_those_without_a_q_are_left_out() -> None:
    sessions = [f"2025-01-0{day}" for day in range(1, 8)]
    retrievals = pd.DataFrame(
        {
            "experiment": "memrl-rules",
            "session": [sessions[0], sessions[2], sessions[3], sessions[6], sessions[6]],
            "q": [0.0, 0.1, -0.1, 0.2, np.nan],
            "visits": [0, 1, 2, 3, 0],
        }
    )
    assert retrieved_utilities(retrievals, sessions)["when"].tolist() == ["first", "first", "second", "last"]


def test_the_summary_says_how_many_were_never_touched_and_where_q_lies() -> None:
    utilities = pd.DataFrame({"when": "last", "q": [-0.1, 0.0, 0.0, 0.3], "visits": [2, 0, 0, 4]})
    (row,) = utility_summary(utilities, ["when"]).to_dict("records")
    assert (row["memories"], row["untouched"], row["negative"], row["positive"]) == (4, 0.5, 0.25, 0.25)
    assert (row["median"], row["visits"]) == (0.0, 1.0)


def test_the_histogram_has_the_same_classes_for_all_groups_and_zero_in_the_middle_of_one() -> None:
    utilities = pd.DataFrame({"when": ["first", "first", "last"], "q": [0.0, 0.0, 0.5], "visits": [0, 0, 1]})
    classes = utility_histogram(utilities, ["when"], bins=5)
    assert classes["low"].tolist() == pytest.approx([-0.5, -0.3, -0.1, 0.1, 0.3] * 2)
    assert classes["memories"].tolist() == [0, 0, 2, 0, 0, 0, 0, 0, 0, 1]
    assert classes["share"].tolist() == [0, 0, 1, 0, 0, 0, 0, 0, 0, 1]


def test_memories_that_all_stay_at_zero_still_have_a_histogram_and_no_memory_has_an_empty_one() -> None:
    assert utility_histogram(pd.DataFrame({"when": ["last"], "q": [0.0], "visits": [0]}), ["when"])["share"].sum() == 1
    empty = pd.DataFrame(columns=["when", "q", "visits"])
    assert utility_histogram(empty, ["when"]).empty
    assert utility_summary(empty, ["when"]).empty


def test_retrieved_memories_come_in_the_order_of_time_and_those_held_in_the_end_last() -> None:
    retrievals = pd.DataFrame(
        {"experiment": "memrl-rules", "session": ["2025-01-03", "2025-01-02"], "q": [0.1, 0.2], "visits": [1, 0]}
    )
    final = final_utilities(run("per_horizon"), JOURNAL)
    found = all_utilities(retrievals, final, ["2025-01-02", "2025-01-03", "2025-01-06"])
    assert found["when"].tolist() == ["first", "second", "end", "end"]
    assert found["q"].tolist() == pytest.approx([0.2, 0.1, 0.015, 0.02])
    assert all_utilities(retrievals.iloc[:0], no_utilities(), ["2025-01-02"]).empty
