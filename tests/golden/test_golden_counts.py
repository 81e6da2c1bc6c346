"""The call budget of one full backbone (T = 299, 31 sectors, all labels present), by closed forms."""

from __future__ import annotations

import datetime as dt
import sys
from collections import Counter
from pathlib import Path

import pytest

from finevolve_pipeline.embedding import HashingEmbedder
from finevolve_pipeline.llm.rules.backbone import RulesBackbone
from finevolve_pipeline.mechanisms.memrl import Rewarded
from finevolve_pipeline.replay.journal import ReplayStore
from finevolve_pipeline.replay.runner import Parts, experience_at, run
from finevolve_pipeline.settings import Experiment, Settings, load_settings
from finevolve_pipeline.universe import CODES

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "replay"))

from replay_world import small_reader

T, SECTORS, HORIZONS = 299, 31, (10, 20, 40)
MATURITIES = SECTORS * sum(T - horizon for horizon in HORIZONS)

pytestmark = pytest.mark.slow


class Full:
    """A whole window of one mechanism in a world of few articles and no missing close."""

    def __init__(self, folder: Path, settings: Settings, mechanism: str) -> None:
        self.experiment = Experiment(mechanism=mechanism, backbone="rules")
        self.store = ReplayStore(folder)
        self.sessions = settings.benchmark.sessions
        reader = small_reader(self.sessions, settings.benchmark.horizons, articles_a_day=8, characters=40)
        self.parts = Parts(settings, reader, RulesBackbone(), HashingEmbedder(64, (2,)))
        run(self.experiment, self.sessions, self.parts, self.store, lambda _: None)

    def counts(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for session in self.sessions:
            total.update(self.store.manifest(self.experiment.key, session).counts.model_dump())
        return total

    def events(self) -> list[tuple[dt.date, dict]]:
        return [(day, event) for day in self.sessions for event in self.store.events(self.experiment.key, day)]


@pytest.fixture(scope="module")
def settings() -> Settings:
    found = load_settings(Path(__file__).resolve().parents[2] / "finevolve_pipeline" / "finevolve.toml")
    assert (len(found.benchmark.sessions), len(found.benchmark.codes)) == (T, SECTORS)
    return found


@pytest.fixture
def full(tmp_path: Path, settings: Settings):
    return lambda mechanism: Full(tmp_path, settings, mechanism)


def test_the_budget_itself() -> None:
    assert (T * SECTORS, MATURITIES, SECTORS * (T - min(HORIZONS))) == (9_269, 25_637, 8_959)


@pytest.mark.parametrize(
    ("mechanism", "updates"),
    [("pipe", 0), ("mem0", 0), ("reflexion", 8_959), ("expel", 25_637)],
)
def test_a_full_run_predicts_matures_and_updates_as_often_as_the_protocol_says(full, mechanism, updates) -> None:
    counts = full(mechanism).counts()
    assert counts["predictions"] == 9_269 * len(HORIZONS)
    assert (counts["matured"], counts["undefined"], counts["invalid"]) == (25_637, 0, 0)
    assert (counts["updates"], counts["update_failures"]) == (updates, 0)


def test_reasoningbank_extracts_from_every_outcome_but_those_without_a_direction(full) -> None:
    run_ = full("reasoningbank")
    counts = run_.counts()
    alphas = [
        run_.parts.reader.read("matured_alpha", session.isoformat())[["predicted_on", "alpha"]]
        for session in run_.sessions
    ]
    first = run_.sessions[0].isoformat()
    flat = sum(int(((frame["predicted_on"] >= first) & (frame["alpha"] == 0)).sum()) for frame in alphas)
    assert counts["updates"] == 25_637 - flat == sum(event["event"] == "extracted" for _, event in run_.events())


def test_memrl_makes_one_q_event_per_outcome_and_touches_its_own_and_the_shown_memories(full) -> None:
    run_ = full("memrl")
    assert run_.counts()["updates"] == 0
    rewarded = [event for _, event in run_.events() if event["event"] == Rewarded.kind]
    assert len(rewarded) == 25_637
    # A prediction on the t-th session was shown min(5, t) memories: 5 but for the first five sessions.
    shown = sum(6 * (T - horizon) - (5 + 4 + 3 + 2 + 1) for horizon in HORIZONS)
    assert sum(len(event["memories"]) for event in rewarded) == SECTORS * shown == 152_427
    touched = {memory for event in rewarded for memory in event["memories"]}
    initial = run_.parts.settings.mechanisms["memrl"]["initial_q"]
    for code in (CODES[0], CODES[-1]):
        known = experience_at(run_.experiment, run_.parts, run_.store, run_.sessions[-1], code)
        assert len(known) == T - 1
        for one in known:
            assert (one.visits == 0) == (one.memory_id not in touched)
            assert one.visits > 0 or one.q == initial
