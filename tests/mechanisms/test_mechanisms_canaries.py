"""Cheats of every kind: each is caught, and by name."""

import pytest

from finevolve_pipeline import calendar
from finevolve_pipeline.errors import LookAheadError
from finevolve_pipeline.llm.requests import ShownMemory
from finevolve_pipeline.mechanisms.base import Recalled, memory_id
from finevolve_pipeline.mechanisms.canaries import CANARIES, OracleCanary
from finevolve_pipeline.mechanisms.mem0 import Mem0
from finevolve_pipeline.testing import small_settings, trial

SESSIONS = small_settings("any", {}).benchmark.sessions
MEM0 = {"top_k": 5, "min_similarity": 0.1}


@pytest.mark.parametrize("kind", CANARIES.values())
def test_who_asks_for_tomorrow_is_caught_by_name(kind):
    with (
        pytest.raises(LookAheadError, match=f"^mechanism '{kind.__name__}' asked for .* of 2025-01-03 while"),
        trial(kind, {}),
    ):
        pass


def test_the_oracle_is_caught_asking_for_the_outcomes_at_its_longest_horizon():
    with pytest.raises(LookAheadError) as caught, trial(OracleCanary, {}):
        pass
    assert str(caught.value) == (
        f"mechanism 'OracleCanary' asked for outcomes of {calendar.shift(SESSIONS[0], 40)} "
        f"while the clock stood at {SESSIONS[0]}"
    )


class Claiming(Mem0):
    """Shows one memory; subclasses say under what id, of what day, and whether they call it learnt from outcomes."""

    from_outcomes = False

    def claimed(self, session, code):
        raise NotImplementedError

    def retrieve(self, situation):
        if situation.session == SESSIONS[0]:
            return ()
        memory, made_on = self.claimed(situation.session, situation.industry.code)
        shown = ShownMemory(memory, made_on, news="", scores={}, key_factor="", logic_chain="")
        return (Recalled(shown, 0.0, 0.0, from_outcomes=self.from_outcomes),)


class Premature(Claiming):
    """Shows what it is going to keep of the prediction it is just making."""

    def claimed(self, session, code):
        return memory_id(session, code), session


def test_a_memory_that_is_available_tomorrow_cannot_be_recalled():
    with pytest.raises(LookAheadError) as caught, trial(Premature, MEM0):
        pass
    memory = f"{SESSIONS[1]}/801080"
    assert str(caught.value) == (
        f"Premature-rules recalled memory {memory} for 801080 on {SESSIONS[1]}, before it can be known"
    )


class Lying(Premature):
    """The same, said to be learnt from outcomes, so that it would be available at once."""

    from_outcomes = True


class Inventing(Claiming):
    """Shows a memory that nothing in the journal made."""

    def claimed(self, session, code):
        return f"{SESSIONS[0]}/{code}/fact/1", SESSIONS[0]


@pytest.mark.parametrize("kind", [Lying, Inventing])
def test_a_memory_that_no_event_made_before_is_found_by_the_audit(kind):
    with trial(kind, MEM0) as run:
        finding = run.stored.memories(run.sessions)
    assert (finding.check, finding.ok) == ("memories", False)
    assert finding.detail.startswith(f"{SESSIONS[1]} 801080: memory ")
    assert finding.detail.endswith("was not there yet")


class Misdated(Claiming):
    """Shows a memory that is there, as of a day on which it was not made."""

    from_outcomes = True

    def claimed(self, session, code):
        return memory_id(SESSIONS[0], code), SESSIONS[1]


def test_a_memory_as_of_another_day_is_found_by_the_audit():
    with trial(Misdated, MEM0) as run:
        finding = run.stored.memories(run.sessions)
    assert (finding.check, finding.ok) == ("memories", False)
    assert f"memory {SESSIONS[0]}/801080" in finding.detail
    assert str(SESSIONS[1]) in finding.detail
