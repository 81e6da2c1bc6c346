"""Whatever a mechanism does wrong is told with its method, session and sector."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
from replay_world import replayed, small_parts, small_settings

from finevolve_pipeline.errors import MechanismError
from finevolve_pipeline.llm.answers import PredictionAnswer
from finevolve_pipeline.llm.requests import FactsRequest, InsightRequest, PredictRequest, ShownFact
from finevolve_pipeline.llm.rules.backbone import RulesBackbone
from finevolve_pipeline.llm.stand_in import StandIn
from finevolve_pipeline.llm.updates import no_flaws, parse_insight
from finevolve_pipeline.mechanisms.base import Event, Mechanism, Recalled, episode
from finevolve_pipeline.mechanisms.mem0 import Mem0
from finevolve_pipeline.replay.journal import ReplayStore
from finevolve_pipeline.universe import industry

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


@dataclass(frozen=True)
class Broken(Event):
    kind: ClassVar[str] = "broken"

    def to_json(self):
        raise ValueError("boom")


class InToJson(Noting):
    events = (Noted, Broken)

    async def append(self, trajectory, model):
        return (Broken(trajectory.code),)


@dataclass(frozen=True)
class Undated(Recalled):
    @property
    def available_from(self):
        raise ValueError("boom")


class InWhatWasRetrieved(Noting):
    def retrieve(self, situation):
        return (Undated(ShownFact("memory", situation.session, "text"), 0.0, 0.0),)


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        (InInit, ".__init__ of pipe-rules"),
        (InMature, f".mature of pipe-rules, {SECOND} 801010"),
        (InMatureBeforeItWaits, f".mature of pipe-rules, {SECOND} 801010"),
        (InForecast, f".forecast of pipe-rules, {FIRST} 801010"),
        (InRetrieve, f".retrieve of pipe-rules, {FIRST} 801010"),
        (InWhatWasRetrieved, f".retrieve of pipe-rules, {FIRST} 801010"),
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


class Circular(Noting):
    def value(self):
        within = []
        within.append(within)
        return within


@dataclass(frozen=True)
class NotedMore(Noted):
    """Would be read back as `Noted`, whose kind it has."""

    more: int = 1


class Unlisted(Noting):
    events = ()


class Derived(Noting):
    async def append(self, trajectory, model):
        return (NotedMore(trajectory.code, 1.0),)


class NumberFromForecast(Noting):
    def forecast(self, situation):
        return 0.5


class OneHorizonOnly(Noting):
    def forecast(self, situation):
        return PredictionAnswer({1: 0.5}, {}, None, "", "")


class ListOfScores(Noting):
    def forecast(self, situation):
        return PredictionAnswer([0.5, 0.5, 0.5], {}, None, "", "")


class ListOfReasons(Noting):
    def forecast(self, situation):
        return PredictionAnswer({1: 0.5, 2: 0.5, 4: 0.5}, [], None, "", "")


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
    (NotANumber, r"returned Noted.*nan.*; expected events with fields that JSON can hold \(Out of range float values"),
    (Circular, r"expected events with fields that JSON can hold \(Circular reference detected\)"),
    (Unlisted, r"returned Noted.*; expected events of the classes that `events` names \(none\), or UpdateFailed"),
    (Derived, r"returned NotedMore.*; expected events of the classes that `events` names \(Noted\), or UpdateFailed"),
    (ASet, r"expected events with fields that JSON can hold \(Object of type set is not JSON serializable\)"),
    (NumberFromForecast, f"forecast of pipe-rules, {FIRST} 801010: returned 0.5; expected a PredictionAnswer, or None"),
    (OneHorizonOnly, r"returned None; expected a score in \[-1, 1\] for 2 sessions"),
    (ListOfScores, r"returned \[0.5, 0.5, 0.5\]; expected as `scores` of a PredictionAnswer a dict by horizon"),
    (ListOfReasons, r"returned \[\]; expected as `invalid` of a PredictionAnswer a dict by horizon"),
    (TooHigh, r"returned 1.5; expected a score in \[-1, 1\] for 2 sessions"),
]


@pytest.mark.parametrize(("kind", "said"), WRONG, ids=[kind.__name__ for kind, _ in WRONG])
def test_a_wrong_value_is_told_with_what_was_expected(tmp_path, kind, said):
    with pytest.raises(MechanismError, match=said) as refused:
        run(tmp_path, kind, "mem0" if issubclass(kind, Mem0) else "pipe")
    assert str(refused.value).startswith(f"mechanism {kind.__name__}.")
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


# -- what a method must not ask


class Heard(StandIn):
    """The offline backbone, and what it was asked."""

    def __init__(self):
        super().__init__(RulesBackbone())
        self.asked = []

    async def answer(self, call):
        self.asked.append(call.request)
        return await super().answer(call)


class Asking(Noting):
    """Asks for an insight, and declares that it does."""

    templates = ("insight",)

    async def mature(self, session, code, matured, model):
        request = InsightRequest(session, industry(code), episode(matured[0], self.world.past))
        await model.ask(request, parse_insight, no_flaws)
        return ()


class Undeclared(Asking):
    templates = ("facts",)


class UndeclaredInAppend(Noting):
    templates = ()

    async def append(self, trajectory, model):
        news = self.world.past.news(trajectory.memory_id)
        request = FactsRequest(trajectory.session, industry(trajectory.code), news, trajectory.scores, "", "", 1)
        await model.ask(request, lambda text: text, no_flaws)
        return ()


def insights_on(backbone):
    return [request.session for request in backbone.asked if isinstance(request, InsightRequest)]


def test_a_question_whose_template_is_declared_is_asked(tmp_path):
    parts = small_parts(SETTINGS, kind=Asking, backbone=Heard())
    replayed(tmp_path, "pipe", parts)
    assert set(insights_on(parts.backbone)) == {SECOND, THIRD}


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (
            Undeclared,
            f"mature of pipe-rules, {SECOND} 801010: asked by InsightRequest, whose template 'insight' the mechanism "
            "does not declare; add it to `templates`, which names facts",
        ),
        (
            UndeclaredInAppend,
            f"append of pipe-rules, {FIRST} 801010: asked by FactsRequest, whose template 'facts' the mechanism "
            "does not declare; add it to `templates`, which names none",
        ),
    ],
)
def test_a_question_whose_template_is_not_declared_is_refused_unasked(tmp_path, kind, said):
    """The identity of a run holds the declared ones only: a change of others would go unnoticed."""
    parts = small_parts(SETTINGS, kind=kind, backbone=Heard())
    with pytest.raises(MechanismError) as refused:
        replayed(tmp_path, "pipe", parts)
    assert str(refused.value) == f"mechanism {kind.__name__}.{said}"
    assert all(isinstance(request, PredictRequest) for request in parts.backbone.asked)
