"""One day keeps the protocol's order: mature, observe, retrieve and predict, freeze, append."""

import asyncio
import datetime as dt
import math

import pytest
from replay_world import EchoBackbone, answer_text, replayed, small_parts, small_settings

from finevolve_pipeline import calendar
from finevolve_pipeline.errors import (
    BackboneError,
    BudgetError,
    CacheError,
    CacheMissError,
    LookAheadError,
    MissingPartitionError,
    TemplateError,
)
from finevolve_pipeline.llm.requests import ShownMemory
from finevolve_pipeline.mechanisms.base import Mechanism, Recalled, UpdateFailed
from finevolve_pipeline.mechanisms.mem0 import Mem0
from finevolve_pipeline.replay.journal import Counts
from finevolve_pipeline.universe import CODES

SETTINGS = small_settings(last="2025-01-14")
SESSIONS = SETTINGS.benchmark.sessions
HORIZONS = SETTINGS.benchmark.horizons


def asked_on(backbone, session, code="801170"):
    """The request of one sector-day."""
    return next(r for r in backbone.asked if r.session == session and r.industry.code == code)


class Scripted(EchoBackbone):
    """Gives the scripted answers in turn to one sector-day, echoes otherwise."""

    def __init__(self, session, code, *answers):
        super().__init__()
        self.script = list(answers)
        self.at = (session, code)

    def text(self, request):
        if (request.session, request.industry.code) == self.at and self.script:
            return self.script.pop(0)
        return super().text(request)


def row(store, session, code, horizon, mechanism="pipe"):
    frame = store.read_predictions(f"{mechanism}-rules", [session])
    return frame[(frame["code"] == code) & (frame["horizon"] == horizon)].iloc[0]


def test_every_sector_is_asked_once_a_day_and_gives_a_row_for_each_horizon(tmp_path):
    parts = small_parts(SETTINGS)
    store, done = replayed(tmp_path, "pipe", parts)
    assert [(r.session, r.industry.code) for r in parts.backbone.asked] == [(s, c) for s in SESSIONS for c in CODES]
    frame = store.read_predictions("pipe-rules")
    assert len(frame) == len(SESSIONS) * 31 * 3
    assert done[0].manifest.usage.calls == 31
    assert done[0].manifest.usage.prompt_tokens == 3100


def test_matured_predictions_count_as_the_closed_form_says(tmp_path):
    _, done = replayed(tmp_path, "memrl", small_parts(SETTINGS))
    window = len(SESSIONS)
    assert sum(day.manifest.counts.matured for day in done) == 31 * sum(window - h for h in HORIZONS)
    assert sum(day.manifest.counts.events for day in done) == 31 * sum(window - h for h in HORIZONS) + 31 * window
    assert sum(day.manifest.counts.retrievals for day in done) == 31 * sum(min(5, t) for t in range(window))


def test_an_outcome_that_matures_today_is_learnt_before_today_s_prediction(tmp_path):
    parts = small_parts(SETTINGS)
    replayed(tmp_path, "memrl", parts)
    (memory,) = asked_on(parts.backbone, SESSIONS[1]).memories
    assert memory.made_on == SESSIONS[0]
    assert memory.visits == 1  # the one-session outcome became known at today's close
    assert memory.q != 0


def test_a_prediction_sees_no_memory_of_its_own_day_and_no_other_sector(tmp_path):
    parts = small_parts(SETTINGS)
    replayed(tmp_path, "mem0", parts)
    for request in parts.backbone.asked:
        assert all(memory.made_on < request.session for memory in request.memories)
        assert all(memory.memory_id.endswith(request.industry.code) for memory in request.memories)
    assert asked_on(parts.backbone, SESSIONS[0]).memories == ()
    assert [m.made_on for m in asked_on(parts.backbone, SESSIONS[1]).memories] == [SESSIONS[0]]


def test_pipe_is_shown_the_same_news_as_the_others_and_no_memory(tmp_path):
    plain, with_memories = small_parts(SETTINGS), small_parts(SETTINGS)
    replayed(tmp_path / "a", "pipe", plain)
    replayed(tmp_path / "b", "memrl", with_memories)
    assert all(request.memories == () for request in plain.backbone.asked)
    assert [r.news.text for r in plain.backbone.asked] == [r.news.text for r in with_memories.backbone.asked]


def test_an_unreadable_answer_is_asked_for_once_more(tmp_path):
    good = answer_text({1: 0.1, 2: 0.2, 4: 0.3})
    parts = small_parts(SETTINGS, backbone=Scripted(SESSIONS[0], "801170", "no JSON", good))
    store, done = replayed(tmp_path, "pipe", parts, SESSIONS[:1])
    assert row(store, SESSIONS[0], "801170", 2)["score"] == 0.2
    counts = done[0].manifest.counts
    assert (counts.repaired, counts.invalid, done[0].manifest.usage.calls) == (1, 0, 32)


def test_two_unreadable_answers_make_all_horizons_invalid_with_the_reason(tmp_path):
    parts = small_parts(SETTINGS, backbone=Scripted(SESSIONS[0], "801170", "no JSON", "again none"))
    store, done = replayed(tmp_path, "pipe", parts, SESSIONS[:2])
    for horizon in HORIZONS:
        bad = row(store, SESSIONS[0], "801170", horizon)
        assert math.isnan(bad["score"])
        assert bad["invalid_reason"] != ""
    assert (done[0].manifest.counts.invalid, done[0].manifest.counts.repaired) == (3, 0)
    assert done[1].manifest.counts.undefined == 1


def test_text_that_utf8_cannot_hold_is_replaced_before_it_is_remembered(tmp_path):
    backbone = Scripted(SESSIONS[0], "801170", answer_text({1: 0.1, 2: 0.2, 4: 0.3}, "A\ud800"))
    store, _ = replayed(tmp_path, "mem0", small_parts(SETTINGS, backbone=backbone), SESSIONS[:2])
    assert row(store, SESSIONS[0], "801170", 1, "mem0")["key_factor"] == "A?"
    assert asked_on(backbone, SESSIONS[1]).memories[0].key_factor == "A?"


def test_a_bad_score_makes_only_its_own_horizon_invalid_and_teaches_nothing(tmp_path):
    bad = answer_text({1: 7.0, 2: 0.2, 4: 0.3})
    backbone = Scripted(SESSIONS[0], "801170", bad, bad)
    store, done = replayed(tmp_path, "memrl", small_parts(SETTINGS, backbone=backbone))
    assert done[0].manifest.failures == {"invalid_field": 2, "reasked": 1}
    assert math.isnan(row(store, SESSIONS[0], "801170", 1, "memrl")["score"])
    assert row(store, SESSIONS[0], "801170", 2, "memrl")["score"] == 0.2
    rewards = [
        (session, event["horizon"])
        for session in SESSIONS
        for event in store.events("memrl-rules", session)
        if event.get("source") == f"{SESSIONS[0]}/801170"
    ]
    assert rewards == [(SESSIONS[2], 2), (SESSIONS[4], 4)]


def test_a_bad_score_is_asked_for_once_more(tmp_path):
    bad, good = answer_text({1: 7.0, 2: 0.2, 4: 0.3}), answer_text({1: 0.1, 2: -0.2, 4: 0.3})
    store, done = replayed(
        tmp_path, "pipe", small_parts(SETTINGS, backbone=Scripted(SESSIONS[0], "801170", bad, good)), SESSIONS[:1]
    )
    assert [row(store, SESSIONS[0], "801170", h)["score"] for h in (1, 2, 4)] == [0.1, -0.2, 0.3]
    assert (done[0].manifest.counts.invalid, done[0].manifest.counts.repaired) == (0, 1)


def test_a_missing_close_never_matures_and_never_teaches(tmp_path):
    parts = small_parts(SETTINGS)
    day = SESSIONS[1].isoformat()
    frame = parts.reader.frames["matured_alpha", day].copy()
    hit = (frame["code"] == "801170") & (frame["horizon"] == 1)
    frame.loc[hit, ["close_from", "industry_return", "alpha"]] = math.nan
    parts.reader.replace("matured_alpha", day, frame)
    store, done = replayed(tmp_path, "memrl", parts)
    assert done[1].manifest.counts.undefined == 1
    shown = store.read_retrievals("memrl-rules")
    own = shown[shown["memory_id"] == f"{SESSIONS[0]}/801170"].set_index("session")
    assert own.loc[day, "visits"] == 0
    assert own["matured_share"].max() == pytest.approx(2 / 3)


def test_the_retrieval_log_says_age_overlap_and_maturity(tmp_path):
    parts = small_parts(SETTINGS)
    store, _ = replayed(tmp_path, "mem0", parts)
    shown = store.read_retrievals("mem0-rules")
    ages = shown.apply(
        lambda r: (
            calendar.session_index(dt.date.fromisoformat(r["session"]))
            - calendar.session_index(dt.date.fromisoformat(r["made_on"]))
        ),
        axis=1,
    )
    assert (shown["age"] == ages).all()
    assert (shown["matured_share"] == shown["age"].map(lambda age: sum(h <= age for h in HORIZONS) / 3)).all()
    request = asked_on(parts.backbone, SESSIONS[2])
    now = {item.article_id for item in request.news.items}
    then = {item.article_id for item in asked_on(parts.backbone, SESSIONS[1]).news.items}
    logged = shown[
        (shown["session"] == SESSIONS[2].isoformat()) & (shown["memory_id"] == f"{SESSIONS[1]}/801170")
    ].iloc[0]
    assert logged["news_overlap"] == pytest.approx(len(now & then) / len(now | then))
    assert logged["news_overlap"] > 0


class Premature(Mem0):
    """Shows a memory dated today."""

    def retrieve(self, situation):
        shown = ShownMemory("x", situation.session, "", {}, "", "")
        return (Recalled(shown, 0.0, 0.0),)


def test_a_memory_from_today_is_refused_by_name(tmp_path):
    parts = small_parts(SETTINGS)
    parts = type(parts)(parts.settings, parts.reader, parts.backbone, parts.embedder, kind=Premature)
    with pytest.raises(LookAheadError, match="mem0-rules recalled memory x for 801010 on 2025-01-02"):
        replayed(tmp_path, "mem0", parts)


class Failing(Mechanism):
    """Its updates fail."""

    async def append(self, trajectory, model):
        return (UpdateFailed(trajectory.code, "no answer"),)


def test_a_failed_update_keeps_the_state_and_is_counted(tmp_path):
    parts = small_parts(SETTINGS)
    parts = type(parts)(parts.settings, parts.reader, parts.backbone, parts.embedder, kind=Failing)
    store, done = replayed(tmp_path, "pipe", parts, SESSIONS[:2])
    assert done[0].manifest.counts.update_failures == 31
    assert store.events("pipe-rules", SESSIONS[0])[0] == {
        "event": "update_failed",
        "code": "801010",
        "reason": "no answer",
    }


def test_a_failing_model_leaves_the_day_uncommitted_and_the_next_run_takes_it_up(tmp_path):
    class Broken(EchoBackbone):
        def text(self, request):
            if request.session == SESSIONS[1] and request.industry.code == "801780":
                raise ConnectionError("gone")
            return super().text(request)

    with pytest.raises(ConnectionError):
        replayed(tmp_path, "mem0", small_parts(SETTINGS, backbone=Broken()))
    store, done = replayed(tmp_path, "mem0", small_parts(SETTINGS))
    assert [day.reused for day in done] == [True] + [False] * (len(SESSIONS) - 1)
    assert isinstance(store.manifest("mem0-rules", SESSIONS[1]).counts, Counts)


class FailsFirst(EchoBackbone):
    """Refuses one sector at once; the others' answers take some turns of the loop."""

    def __init__(self, error):
        super().__init__()
        self.error, self.answered = error, 0

    async def answer(self, call):
        if call.request.industry.code == CODES[3]:
            raise self.error
        for _ in range(5):
            await asyncio.sleep(0)
        self.answered += 1
        return await super().answer(call)


@pytest.mark.parametrize("kind", [BackboneError, BudgetError, CacheError, CacheMissError])
def test_a_model_that_can_be_asked_nothing_more_still_answers_what_it_was_asked(tmp_path, kind):
    backbone = FailsFirst(kind("no more"))
    with pytest.raises(kind, match="no more"):
        replayed(tmp_path, "pipe", small_parts(SETTINGS, backbone=backbone), SESSIONS[:1])
    assert backbone.answered == len(CODES) - 1


@pytest.mark.parametrize("kind", [LookAheadError, MissingPartitionError, TemplateError, ConnectionError])
def test_any_other_failure_is_raised_at_once(tmp_path, kind):
    backbone = FailsFirst(kind("broken"))
    with pytest.raises(kind, match="broken"):
        replayed(tmp_path, "pipe", small_parts(SETTINGS, backbone=backbone), SESSIONS[:1])
    assert backbone.answered == 0
