"""Whatever a mechanism does wrong is told with its method, session and sector."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
from replay_world import replayed, small_parts, small_settings

from finevolve_pipeline.errors import MechanismError
from finevolve_pipeline.llm.answers import PredictionAnswer
from finevolve_pipeline.mechanisms.base import Event, Mechanism
from finevolve_pipeline.mechanisms.mem0 import Mem0
from finevolve_pipeline.replay.journal import ReplayStore

SETTINGS = small_settings(last="2025-01-06")
FIRST, SECOND, THIRD = SETTINGS.benchmark.sessions


@dataclass(frozen=True)
class Noted(Event):
    kind: ClassVar[str] = "noted"

    value: object


class Noting(Mechanism):
    """Its journal holds one value a day and sector; subclasses break something."""

    events = (Noted,)

    async def append(self, trajectory, model):
        return (Noted(trajectory.code, self.value()),)

    def value(self):
        return 1.0

    def apply(self, session, event):
        """Nothing is kept."""


def run(tmp_path, kind, mechanism="pipe"):
    return replayed(tmp_path, mechanism, small_parts(SETTINGS, kind=kind))


# -- defects of its own


class InInit(Noting):
    def __init__(self, *arguments):
        raise ValueError("boom")


class InMature(Noting):
    async def mature(self, session, code, matured, model):
        raise ValueError("boom")


class InMatureBeforeItWaits(Noting):
    def mature(self, session, code, matured, model):
        raise ValueError("boom")


class InForecast(Noting):
    def forecast(self, situation):
        raise ValueError("boom")


class InRetrieve(Noting):
    def retrieve(self, situation):
        raise ValueError("boom")


class InAppend(Noting):
    async def append(self, trajectory, model):
        raise ValueError("boom")


class InApply(Noting):
    def apply(self, session, event):
        raise ValueError("boom")


class InToJson(Noting):
    async def append(self, trajectory, model):
        return (Broken(trajectory.code),)


@dataclass(frozen=True)
class Broken(Event):
    kind: ClassVar[str] = "broken"

    def to_json(self):
        raise ValueError("boom")


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        (InInit, ".__init__ of pipe-rules"),
        (InMature, f".mature of pipe-rules, {SECOND} 801010"),
        (InMatureBeforeItWaits, f".mature of pipe-rules, {SECOND} 801010"),
        (InForecast, f".forecast of pipe-rules, {FIRST} 801010"),
        (InRetrieve, f".retrieve of pipe-rules, {FIRST} 801010"),
        (InAppend, f".append of pipe-rules, {FIRST} 801010"),
        (InApply, f".apply of pipe-rules, {FIRST} 801010"),
        (InToJson, f".append of pipe-rules, {FIRST} 801010"),
    ],
)
def test_a_defect_is_raised_as_it_is_with_a_note_of_where_it_was_met(tmp_path, kind, where):
    with pytest.raises(ValueError, match="boom") as raised:
        run(tmp_path, kind)
    assert raised.value.args == ("boom",)
    assert raised.value.__notes__ == [f"in mechanism {kind.__name__}{where}"]
    assert str(raised.traceback[-1].path).endswith("test_replay_called.py")


def test_a_defect_on_reading_the_journal_back_is_named_too(tmp_path):
    run(tmp_path, Noting)
    store = ReplayStore(tmp_path)
    store.reset("pipe-rules", THIRD)
    with pytest.raises(ValueError, match="boom") as raised:
        run_again(tmp_path)
    assert raised.value.__notes__ == [f"in mechanism Noting.apply of pipe-rules, {FIRST} 801010"]


def run_again(tmp_path):
    """The same mechanism with a state that cannot be built up any more."""

    def apply(self, session, event):
        raise ValueError("boom")

    before, Noting.apply = Noting.apply, apply
    try:
        run(tmp_path, Noting)
    finally:
        Noting.apply = before


# -- what a method must not give back


class NoneFromRetrieve(Noting):
    def retrieve(self, situation):
        return None


class TextFromRetrieve(Noting):
    def retrieve(self, situation):
        return "memory"


class ShownFromRetrieve(Mem0):
    def retrieve(self, situation):
        return tuple(one.shown for one in super().retrieve(situation))


class NothingShown(Mem0):
    def retrieve(self, situation):
        return tuple(replace(one, shown=None) for one in super().retrieve(situation))


class OddShare(Mem0):
    def retrieve(self, situation):
        return tuple(replace(one, matured_share=math.nan) for one in super().retrieve(situation))


class NotAsync(Noting):
    def mature(self, session, code, matured, model):
        return ()


class NoneFromAppend(Noting):
    async def append(self, trajectory, model):
        return None


class DictFromAppend(Noting):
    async def append(self, trajectory, model):
        return [{"event": "noted"}]


class OthersSector(Noting):
    async def append(self, trajectory, model):
        return (Noted("801170", 1.0),)


class NotANumber(Noting):
    def value(self):
        return math.nan


class ASet(Noting):
    def value(self):
        return {1}


class NumberFromForecast(Noting):
    def forecast(self, situation):
        return 0.5


class OneHorizonOnly(Noting):
    def forecast(self, situation):
        return PredictionAnswer({1: 0.5}, {}, None, "", "")


class TooHigh(Noting):
    def forecast(self, situation):
        return PredictionAnswer({1: 0.5, 2: 1.5, 4: 0.0}, {}, None, "", "")


WRONG = [
    (NoneFromRetrieve, f"retrieve of pipe-rules, {FIRST} 801010: returned None; expected a tuple of Recalled"),
    (TextFromRetrieve, "retrieve of pipe-rules, .*: returned 'memory'; expected a tuple of Recalled"),
    (ShownFromRetrieve, f"retrieve of mem0-rules, {SECOND} 801010: returned ShownMemory.*; expected Recalled"),
    (NothingShown, "retrieve of .*: returned None; expected as `shown` one of ShownMemory, ShownReflection, "),
    (OddShare, f"returned nan; expected as `matured_share` of {FIRST}/801010 a share from 0 to 1"),
    (
        NotAsync,
        rf"mature of pipe-rules, {SECOND} 801010: returned \(\); expected a coroutine; write `async def mature`",
    ),
    (NoneFromAppend, f"append of pipe-rules, {FIRST} 801010: returned None; expected a tuple or list of events"),
    (DictFromAppend, "expected events, each a subclass of mechanisms.base.Event"),
    (OthersSector, "801010: returned Noted.*; expected events of the sector 801010 itself"),
    (NotANumber, "returned Noted.*nan.*; expected events with finite numbers"),
    (ASet, r"expected events with fields that JSON can hold \(Object of type set is not JSON serializable\)"),
    (NumberFromForecast, f"forecast of pipe-rules, {FIRST} 801010: returned 0.5; expected a PredictionAnswer, or None"),
    (OneHorizonOnly, r"returned None; expected a score in \[-1, 1\] for 2 sessions"),
    (TooHigh, r"returned 1.5; expected a score in \[-1, 1\] for 2 sessions"),
]


@pytest.mark.parametrize(("kind", "said"), WRONG, ids=[kind.__name__ for kind, _ in WRONG])
def test_a_wrong_value_is_told_with_what_was_expected(tmp_path, kind, said):
    with pytest.raises(MechanismError, match=said) as refused:
        run(tmp_path, kind, "mem0" if issubclass(kind, Mem0) else "pipe")
    assert str(refused.value).startswith(f"mechanism {kind.__name__}.")
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400
