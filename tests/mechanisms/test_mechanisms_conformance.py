"""Every built-in mechanism keeps the benchmark's promises, and the kit catches whoever breaks one, by its check."""

import random
import time
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from finevolve_pipeline import testing
from finevolve_pipeline.errors import ReplayMismatchError, SettingsError
from finevolve_pipeline.llm.answers import parse_prediction
from finevolve_pipeline.llm.requests import FactsRequest, PredictRequest
from finevolve_pipeline.llm.updates import no_flaws
from finevolve_pipeline.mechanisms.base import Mechanism, next_session
from finevolve_pipeline.mechanisms.baselines import Zero
from finevolve_pipeline.mechanisms.canaries import OracleCanary
from finevolve_pipeline.mechanisms.mem0 import Mem0
from finevolve_pipeline.mechanisms.memrl import MemRL, Rewarded
from finevolve_pipeline.mechanisms.pipe import Pipe
from finevolve_pipeline.mechanisms.registry import BUILT_IN, KIND
from finevolve_pipeline.mechanisms.trajectories import Remembered
from finevolve_pipeline.replay import audit
from finevolve_pipeline.settings import load_settings
from finevolve_pipeline.testing import SECTORS, assert_conforms, causality, conformance, trial
from finevolve_pipeline.universe import industry

CHECKS = [
    "determinism",
    "restore",
    "resume",
    "causality",
    "order",
    "bounded experience",
    "own sector",
    "evidence",
]
MEM0 = {"top_k": 5, "min_similarity": 0.1}
MEMRL = {"candidates": 20, "top_k": 5, "learning_rate": 0.3, "initial_q": 0.0, "q_scope": "shared"}
FITTED = {"placebo_stale": {"min_age": 20}}
"""Settings that differ from the packaged ones, because the kit's window is short."""
WITHOUT_EXPERIENCE = {"pipe", "zero", "random", "momentum", "reversal", "news_volume"}


def packaged(name):
    return {key: value for key, value in load_settings().mechanisms[name].items() if key != KIND} | FITTED.get(name, {})


# -- the built-in mechanisms ---------------------------------------------------------------------------------


PAPER = ("pipe", "mem0", "memrl", "reflexion", "expel", "reasoningbank")


@pytest.mark.parametrize(
    "name",
    [*PAPER, *(pytest.param(one, marks=pytest.mark.slow) for one in BUILT_IN if one not in (*PAPER, "oracle_canary"))],
)
def test_a_built_in_mechanism_conforms(name):
    found = conformance(BUILT_IN[name], packaged(name))
    assert [one for one in found if not one.ok] == []
    assert [one.check for one in found] == CHECKS
    shown = next(one.detail for one in found if one.check == "bounded experience")
    assert shown.startswith("0 memories") == (name in WITHOUT_EXPERIENCE)


def test_the_oracle_does_not_conform_and_says_for_what_it_asked():
    (found,) = conformance(OracleCanary, {})
    assert (found.check, found.ok) == ("causality", False)
    assert found.detail.startswith("mechanism 'OracleCanary' asked for outcomes of 2025-03-07 while the clock stood")


# -- mechanisms that break a promise -------------------------------------------------------------------------


class Marked(Mem0):
    """Mem0 that writes something of its own into what it shows; subclasses say what."""

    def mark(self, situation):
        raise NotImplementedError

    def retrieve(self, situation):
        said = str(self.mark(situation))
        return tuple(replace(one, shown=replace(one.shown, key_factor=said)) for one in super().retrieve(situation))


class ClockCheat(Marked):
    """Reads tomorrow's outcomes behind the gateway's back."""

    def mark(self, situation):
        window = testing.small_settings("any", {}).benchmark.sessions
        tomorrow = min(next_session(situation.session), window[-1])
        return self.world.observations._gateway._reader.read("matured_alpha", tomorrow.isoformat())["alpha"].iloc[0]


class GlobalRandom(Marked):
    """Draws from the random numbers of the process."""

    def mark(self, situation):
        return random.random()


class WallClock(Marked):
    """Looks at the clock on the wall."""

    def mark(self, situation):
        return time.time_ns()


class Counting(Marked):
    """Changes its state while it retrieves."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.asked = dict.fromkeys(SECTORS, 0)

    def mark(self, situation):
        self.asked[situation.industry.code] += 1
        return self.asked[situation.industry.code]


class FirstCome(Marked):
    """Lets sectors see who came before them on the same day."""

    day, before = None, 0

    def mark(self, situation):
        if situation.session != self.day:
            self.day, self.before = situation.session, 0
        self.before += 1
        return self.before


class Unjournalled(Marked):
    """Keeps something of a prediction that stands in no event."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.last = {}

    async def append(self, trajectory, model):
        self.last[trajectory.code] = trajectory.session
        return await super().append(trajectory, model)

    def mark(self, situation):
        return self.last.get(situation.industry.code)


class SecretlyVisited(Mem0):
    """Counts, in no event, how often a memory was shown. No prompt tells, only the experience as data."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.shown_so_far = {}

    def retrieve(self, situation):
        recalled = super().retrieve(situation)
        for one in recalled:
            memory = one.shown.memory_id
            self.shown_so_far[memory] = self.shown_so_far.get(memory, 0) + 1
        return recalled

    def experience(self, memory):
        return replace(super().experience(memory), visits=self.shown_so_far.get(memory, 0))


@dataclass(frozen=True)
class Scored(Remembered):
    """Holds what JSON gives back otherwise: numbers as keys."""

    kind: ClassVar[str] = "scored"

    scores: dict[int, float]


class NumbersAsKeys(Mem0):
    """Tells from the keys of a journalled object what was predicted."""

    events = (Scored,)

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.scores = {}

    async def append(self, trajectory, model):
        return (Scored(trajectory.code, trajectory.memory_id, dict(trajectory.scores)),)

    def apply(self, session, event):
        super().apply(session, event)
        self.scores[event.memory] = event.scores

    def experience(self, memory):
        return replace(super().experience(memory), text=repr(self.scores[memory]))


class Unlisted(Mem0):
    """Does not name its event among those that its journal may hold."""

    events = ()


class AskingAnew(Mem0):
    """Asks a question of its own first thing whenever it starts."""

    warm = False

    async def append(self, trajectory, model):
        if not self.warm:
            self.warm = True
            request = PredictRequest(
                session=trajectory.session,
                industry=industry(trajectory.code),
                horizons=self.world.horizons,
                news=self.world.past.news(trajectory.memory_id),
                market=self.world.observations.market(trajectory.session, trajectory.code),
            )
            await model.ask(request, lambda text: parse_prediction(text, self.world.horizons, "invalid"), no_flaws)
        return await super().append(trajectory, model)


class Inventing(Mem0):
    """Shows its memories under ids that no event made."""

    def retrieve(self, situation):
        return tuple(
            replace(one, shown=replace(one.shown, memory_id=f"{one.shown.memory_id}/fact/1"))
            for one in super().retrieve(situation)
        )


class Keeping(Mem0):
    """Keeps, as data, what is not made yet."""

    def experience(self, memory):
        known = super().experience(memory)
        return replace(known, available_from=next_session(known.available_from))


class Neighbourly(Mem0):
    """Shows a sector what another one remembers."""

    def retrieve(self, situation):
        other = SECTORS[SECTORS.index(situation.industry.code) - 1]
        return super().retrieve(replace(situation, industry=industry(other)))


class RestingOnOthers(Mem0):
    """Shows a sector's own memory, and rests it on another sector's prediction."""

    def experience(self, memory):
        known = super().experience(memory)
        return replace(known, sources=(memory.replace(SECTORS[0], SECTORS[1]),))


class Embellishing(MemRL):
    """Rewards with outcomes that nobody observed."""

    async def mature(self, session, code, matured, model):
        given = await super().mature(session, code, matured, model)
        return [replace(one, alpha=abs(one.alpha)) if isinstance(one, Rewarded) else one for one in given]


class Repeating(Mem0):
    """Keeps the same prediction twice."""

    async def append(self, trajectory, model):
        return (*await super().append(trajectory, model),) * 2

    def apply(self, session, event):
        if event.memory not in self.store(event.code).memories:
            super().apply(session, event)


class Twice(Mem0):
    """Retrieves the first memory once more."""

    def retrieve(self, situation):
        found = super().retrieve(situation)
        return (*found, *found[:1])


class KeptTwice(Mem0):
    """Lists every memory twice."""

    def experiences(self, code):
        return super().experiences(code) * 2


BROKEN = [
    (Repeating, MEM0, {"bounded experience": f"2025-01-02/{SECTORS[0]} is made twice (append)"}),
    (Twice, MEM0, {"bounded experience": f"2025-01-02/{SECTORS[0]} is retrieved twice"}),
    (KeptTwice, MEM0, {"bounded experience": f"2025-01-02/{SECTORS[0]} is kept twice"}),
    (ClockCheat, MEM0, {"causality": "predictions.parquet depends on the future"}),
    (GlobalRandom, MEM0, {"determinism": "predictions.parquet differs when the same days are replayed again"}),
    (WallClock, MEM0, {"determinism": "predictions.parquet differs when the same days are replayed again"}),
    (
        Counting,
        MEM0,
        {
            "restore": "predictions.parquet differs when the days before are read back",
            "resume": "predictions.parquet differs when the run is stopped after every 7 days",
        },
    ),
    (
        Unjournalled,
        MEM0,
        {
            "restore": "predictions.parquet differs when the days before are read back",
            "resume": "predictions.parquet differs when the run is stopped after every 7 days",
        },
    ),
    (SecretlyVisited, MEM0, {"restore": "is another one when the days before are read back"}),
    (NumbersAsKeys, MEM0, {"restore": "is another one when the days before are read back"}),
    (FirstCome, MEM0, {"order": "1 at once: "}),
    (
        AskingAnew,
        MEM0,
        {
            "restore": "manifest.json differs when the days before are read back",
            "resume": "224 questions when it is stopped, 217 when it is not: predict of 2025-01-13 801080",
        },
    ),
    (Inventing, MEM0, {"bounded experience": "/fact/1 was not there yet"}),
    (Keeping, MEM0, {"bounded experience": "is kept, made on 2025-01-02, available from 2025-01-06"}),
    (RestingOnOthers, MEM0, {"own sector": f"2025-01-02/{SECTORS[1]} is another sector's"}),
    (
        Neighbourly,
        MEM0,
        {
            "own sector": f"2025-01-02/{SECTORS[-1]} is another sector's",
            "bounded experience": f"2025-01-02/{SECTORS[-1]}",
        },
    ),
    (Embellishing, MEMRL, {"evidence": "but it was -0."}),
]


@pytest.mark.parametrize(("kind", "settings", "expected"), BROKEN, ids=[kind.__name__ for kind, *_ in BROKEN])
def test_a_broken_promise_is_caught_by_its_check_and_no_other(kind, settings, expected):
    failed = {one.check: one.detail for one in conformance(kind, settings) if not one.ok}
    assert failed.keys() == expected.keys()
    for check, said in expected.items():
        assert said in failed[check]


def test_an_event_that_the_journal_may_not_hold_is_not_read_back():
    entry = Remembered(SECTORS[0], f"2025-01-02/{SECTORS[0]}").to_json()
    assert Mem0.decode(entry) == Remembered(SECTORS[0], f"2025-01-02/{SECTORS[0]}")
    with pytest.raises(ReplayMismatchError) as refused:
        Unlisted.decode(entry)
    assert str(refused.value) == "Unlisted: the journal holds an event 'remembered'; it has no such one"


@pytest.mark.parametrize("kind", [Pipe, Zero])
def test_causality_is_not_proved_by_a_future_that_did_not_change(monkeypatch, kind):
    with trial(kind, {}) as run:
        assert causality(run).ok
        monkeypatch.setattr(audit, "PerturbedFuture", lambda reader, after: reader)
        found = causality(run)
    assert not found.ok
    assert found.detail.endswith("changed no prompt")


# -- what a package's test sees ------------------------------------------------------------------------------


def test_assert_conforms_says_what_failed_and_is_silent_otherwise():
    assert_conforms(Zero, {})
    with pytest.raises(AssertionError) as failed:
        assert_conforms(OracleCanary, {})
    first, second = str(failed.value).splitlines()
    assert first == "OracleCanary does not conform:"
    assert second.startswith("- causality: mechanism 'OracleCanary' asked for outcomes of 2025-03-07")


class Failing(Mechanism):
    """Has a defect of its own."""

    def retrieve(self, situation):
        raise KeyError("a defect")


class FailingToList(Mem0):
    """Has one where it lists what it keeps."""

    def experiences(self, code):
        raise KeyError("a defect")


@pytest.mark.parametrize(("kind", "settings"), [(Failing, {}), (FailingToList, MEM0)])
def test_a_defect_of_the_mechanism_s_own_is_raised_as_it_is_and_located(kind, settings):
    with pytest.raises(KeyError, match="a defect") as raised:
        conformance(kind, settings)
    method = "retrieve" if kind is Failing else "experiences"
    named = f"in mechanism {kind.__name__}.{method} of {kind.__name__}-rules, 2025-01-02 {SECTORS[0]}"
    assert raised.value.__notes__ == [named]


class Nothing(Mechanism):
    """Forgets to give back what it retrieved."""

    def retrieve(self, situation):
        return None


class NotAsync(Mem0):
    """Its `append` is no coroutine."""

    def append(self, trajectory, model):
        return (Remembered(trajectory.code, trajectory.memory_id),)


class Undefined(MemRL):
    """Rewards with NaN."""

    async def mature(self, session, code, matured, model):
        return [replace(one, alpha=float("nan")) for one in await super().mature(session, code, matured, model)]


class AskingUndeclared(Mem0):
    """Asks for facts, which Mem0 does not declare."""

    async def append(self, trajectory, model):
        news = self.world.past.news(trajectory.memory_id)
        asked = FactsRequest(trajectory.session, industry(trajectory.code), news, trajectory.scores, "", "", 1)
        await model.ask(asked, lambda text: text, no_flaws)
        return await super().append(trajectory, model)


class ListsNone(Mem0):
    """Lists nothing at all, not even an empty tuple."""

    def experiences(self, code):
        return None


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        (
            Nothing,
            {},
            f"retrieve of Nothing-rules, 2025-01-02 {SECTORS[0]}: returned None; expected a tuple of Recalled",
        ),
        (NotAsync, MEM0, "expected a coroutine; write `async def append`"),
        (Undefined, MEMRL, "expected events with fields that JSON can hold (Out of range float values"),
        (Unlisted, MEM0, "expected events of the classes that `events` names (none), or UpdateFailed"),
        (AskingUndeclared, MEM0, "asked by FactsRequest, whose template 'facts' the mechanism does not declare"),
        (ListsNone, MEM0, "returned None; expected a tuple of Experience"),
    ],
)
def test_what_a_method_must_not_give_back_is_the_one_finding(kind, settings, said):
    (found,) = conformance(kind, settings)
    assert (found.check, found.ok) == ("interface", False)
    assert said in found.detail
    with pytest.raises(AssertionError, match=f"{kind.__name__} does not conform:\n- interface: mechanism "):
        assert_conforms(kind, settings)


@pytest.mark.parametrize("given", [int, "Mem0", Mem0.retrieve])
def test_what_is_no_mechanism_is_refused_by_name(given):
    with pytest.raises(
        SettingsError, match=r"no mechanism; give a class that is a subclass of mechanisms\.base\.Mechanism"
    ):
        assert_conforms(given, {})


def test_the_small_world_has_what_a_mechanism_must_bear():
    """Days without news, missing closes, and maturities of every horizon."""
    with trial(Pipe, {}) as run:
        rows = run.store.read_predictions(run.experiment.key, run.sessions)
        counts = [run.store.manifest(run.experiment.key, session).counts for session in run.sessions]
    assert set(rows["code"]) == set(SECTORS)
    assert 0 < (rows["articles"] == 0).mean() < 0.2
    assert counts[-1].matured == 3 * len(SECTORS)
    assert sum(one.undefined for one in counts) > 0
