"""The paper's reflection of 2025-05-30 (Appendix C.3.1), on the real closes: what it is told, and who reads it."""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path

import pandas as pd
import pytest

from finevolve_pipeline import calendar
from finevolve_pipeline.digests import digest_frame
from finevolve_pipeline.embedding import HashingEmbedder
from finevolve_pipeline.llm.requests import Call, PredictRequest, ReflectRequest, Reply
from finevolve_pipeline.llm.rules.backbone import RulesBackbone
from finevolve_pipeline.market.alpha import outcomes_known_on
from finevolve_pipeline.replay.journal import ReplayStore
from finevolve_pipeline.replay.runner import Parts, run
from finevolve_pipeline.settings import Experiment, load_settings
from finevolve_pipeline.tables import NewsWindow, empty
from finevolve_pipeline.universe import BENCHMARK, CODES

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "replay"))

from replay_world import MemoryReader

SECTOR, DAY = "801170", dt.date(2025, 5, 30)
TOLD = {
    40: (dt.date(2025, 3, 31), 91.20),
    20: (dt.date(2025, 4, 29), 101.42),
    10: (dt.date(2025, 5, 16), 34.16),
}
"""Realised change in index points by horizon, and the session of the prediction; oldest source first."""

pytestmark = pytest.mark.real_data


class Listening(RulesBackbone):
    """`rules`, with a record of what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    async def answer(self, call: Call) -> Reply:
        self.calls.append(call)
        return await super().answer(call)


def closes(path: Path, code: str = "") -> pd.DataFrame:
    """Closes of a real file by session and code."""
    frame = pd.read_csv(path, dtype={"code": str})
    frame = frame.assign(session=frame["date"], code=code or frame.get("code"))
    return frame.loc[frame["code"].isin([*CODES, BENCHMARK]), ["session", "code", "close"]]


@pytest.fixture(scope="module")
def replayed(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Call]:
    """All calls of one sector's replay from 2025-03-31 to 2025-05-30, without news."""
    settings = load_settings(overrides={"benchmark": {"first_session": TOLD[40][0], "industries": [SECTOR]}})
    sessions = [session for session in settings.benchmark.sessions if session <= DAY]
    industry = closes(real_data / "market" / "shenwan_l1_daily.csv").groupby("session")
    benchmark = closes(real_data / "market" / "csi1000_daily.csv", BENCHMARK).groupby("session")
    frames = {}
    for session in sessions:
        frames["news_window", session.isoformat()] = empty(NewsWindow)
        frames["matured_alpha", session.isoformat()] = outcomes_known_on(
            session,
            settings.benchmark.horizons,
            lambda day: industry.get_group(day.isoformat()),
            lambda day: benchmark.get_group(day.isoformat()),
        )
    reader = MemoryReader(frames, {key: digest_frame(frame) for key, frame in frames.items()})
    backbone = Listening()
    store = ReplayStore(tmp_path_factory.mktemp("replay"))
    experiment = Experiment(mechanism="reflexion", backbone="rules")
    run(experiment, sessions, Parts(settings, reader, backbone, HashingEmbedder(16, (2,))), store, lambda _: None)
    return backbone.calls


def of_the_day(calls: list[Call], kind: type) -> list[Call]:
    return [call for call in calls if isinstance(call.request, kind) and call.request.session == DAY]


def test_the_update_is_told_the_papers_three_changes_in_index_points(replayed: list[Call]) -> None:
    (call,) = of_the_day(replayed, ReflectRequest)
    request = call.request
    assert isinstance(request, ReflectRequest)
    assert [one.horizon for one in request.episodes] == [40, 20, 10]
    assert {one.horizon: (one.predicted_on, round(one.points, 2)) for one in request.episodes} == TOLD
    prompt = call.prompt.messages[-1].content
    assert [text in prompt for text in ("+91.20", "+101.42", "+34.16")] == [True] * 3


def test_that_reflection_is_in_the_same_days_prediction_prompt(replayed: list[Call]) -> None:
    (call,) = of_the_day(replayed, PredictRequest)
    (shown,) = call.request.memories
    assert shown.memory_id == f"{DAY}/{SECTOR}/reflection"
    lines = shown.text.splitlines()
    assert len(lines) == 3
    assert [line in call.prompt.messages[-1].content for line in lines] == [True] * 3
    reflected = replayed.index(of_the_day(replayed, ReflectRequest)[0])
    assert reflected < replayed.index(call)


def test_before_the_first_outcome_there_is_nothing_to_reflect_on(replayed: list[Call]) -> None:
    first = calendar.shift(TOLD[40][0], 10)
    assert min(call.request.session for call in replayed if isinstance(call.request, ReflectRequest)) == first
    early = [call.request for call in replayed if isinstance(call.request, PredictRequest)]
    assert [bool(one.memories) for one in early] == [one.session >= first for one in early]
