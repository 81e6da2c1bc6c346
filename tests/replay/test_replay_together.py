"""Several experiments in one process: each as if it were alone, none waits for another, none fails for another."""

import asyncio

import pytest
from replay_world import EchoBackbone, contents, replayed, small_parts, small_settings

from finevolve_pipeline.errors import BackboneError, ExperimentLockedError
from finevolve_pipeline.replay.journal import ReplayStore
from finevolve_pipeline.replay.runner import Range, replay
from finevolve_pipeline.settings import Experiment

SETTINGS = small_settings(last="2025-01-10")
SESSIONS = SETTINGS.benchmark.sessions
MECHANISMS = ("pipe", "mem0", "memrl")


class Waiting(EchoBackbone):
    """Takes a turn of the loop for each answer, and knows how many wait at once over all its like."""

    def __init__(self, meter):
        super().__init__()
        self.meter = meter

    async def answer(self, call):
        self.meter["now"] += 1
        self.meter["most"] = max(self.meter["most"], self.meter["now"])
        await asyncio.sleep(0.002)
        self.meter["now"] -= 1
        return await super().answer(call)


class Refusing(EchoBackbone):
    async def answer(self, call):
        if call.request.session == SESSIONS[2]:
            raise BackboneError("provider far: 503 again and again")
        return await super().answer(call)


def ranges(make, sessions=SESSIONS):
    return [
        Range(Experiment(mechanism=name, backbone="rules"), sessions, small_parts(SETTINGS, backbone=make(name)))
        for name in MECHANISMS
    ]


def test_experiments_replayed_together_have_the_bytes_of_each_alone(tmp_path):
    meter = {"now": 0, "most": 0}
    replay(ranges(lambda name: Waiting(meter)), ReplayStore(tmp_path / "together"), lambda day: None)
    for name in MECHANISMS:
        replayed(tmp_path / "alone", name, small_parts(SETTINGS))
    assert contents(tmp_path / "together") == contents(tmp_path / "alone")
    assert meter["most"] > len(SETTINGS.benchmark.codes)


def test_one_failing_experiment_does_not_stop_the_others_and_resumes(tmp_path):
    store = ReplayStore(tmp_path)
    with pytest.raises(BackboneError, match="503 again"):
        replay(
            ranges(lambda name: Refusing() if name == "mem0" else EchoBackbone()),
            store,
            lambda day: None,
        )
    assert store.sessions("pipe-rules") == store.sessions("memrl-rules") == SESSIONS
    assert store.sessions("mem0-rules") == SESSIONS[:2]
    replay(ranges(lambda name: EchoBackbone()), store, lambda day: None)
    assert store.sessions("mem0-rules") == SESSIONS


def test_the_gravest_failure_is_raised_and_names_the_others(tmp_path):
    class Broken(EchoBackbone):
        async def answer(self, call):
            raise ZeroDivisionError("a defect")

    kinds = {"pipe": Refusing, "mem0": Broken, "memrl": EchoBackbone}
    with pytest.raises(ZeroDivisionError) as caught:
        replay(ranges(lambda name: kinds[name]()), ReplayStore(tmp_path), lambda day: None)
    assert caught.value.__notes__ == ["provider far: 503 again and again"]


def test_a_locked_experiment_stops_the_whole_range_before_anything_is_asked(tmp_path):
    store, backbones = ReplayStore(tmp_path), []

    def make(name):
        backbones.append(EchoBackbone())
        return backbones[-1]

    with store.lock("memrl-rules"), pytest.raises(ExperimentLockedError, match="memrl-rules"):
        replay(ranges(make), store, lambda day: None)
    assert [backbone.asked for backbone in backbones] == [[], [], []]


def test_a_trial_of_three_industries_asks_for_these_alone(tmp_path):
    codes = ["801170", "801010", "801780"]
    benchmark = {"first_session": SESSIONS[0], "last_session": SESSIONS[-1], "horizons": [1, 2, 4], "industries": codes}
    parts = small_parts(small_settings().model_copy(update={"benchmark": _benchmark(benchmark)}))
    store, done = replayed(tmp_path, "memrl", parts)
    frame = store.read_predictions("memrl-rules")
    assert sorted(frame["code"].unique()) == sorted(codes)
    assert len(frame) == len(SESSIONS) * 3 * 3
    assert sum(day.manifest.counts.matured for day in done) == 3 * sum(len(SESSIONS) - h for h in (1, 2, 4))


def _benchmark(values):
    return type(SETTINGS.benchmark).model_validate(values)
