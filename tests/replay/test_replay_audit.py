"""The audit finds nothing in a sound run, and finds each planted fault."""

from dataclasses import replace

import pytest
from replay_world import replayed, small_parts, small_settings

from finevolve_pipeline.errors import CalendarError, MissingPartitionError
from finevolve_pipeline.llm.requests import ShownMemory
from finevolve_pipeline.mechanisms.base import Mechanism, Recalled
from finevolve_pipeline.mechanisms.memrl import MemRL, Rewarded
from finevolve_pipeline.mechanisms.trajectories import TrajectoryMechanism
from finevolve_pipeline.replay.audit import _Auditor, audit
from finevolve_pipeline.replay.journal import ReplayStore
from finevolve_pipeline.settings import Experiment

SETTINGS = small_settings(last="2025-01-14")
SESSIONS = SETTINGS.benchmark.sessions


def audited(store, mechanism, parts, **limits):
    """The report, by the auditor itself where the mechanism is a test's own."""
    experiment = Experiment(mechanism=mechanism, backbone="rules")
    lines = []
    auditor = _Auditor(experiment, parts, store, lines.append)
    report = auditor.report(limits.get("cuts", ()), limits.get("replayed", 4))
    assert lines
    return report


def failures(report):
    return [(finding.check, finding.detail) for finding in report.findings if not finding.ok]


@pytest.mark.parametrize("mechanism", ["pipe", "memrl"])
def test_a_sound_run_passes_every_check(tmp_path, mechanism):
    parts = small_parts(SETTINGS)
    store, _ = replayed(tmp_path, mechanism, parts)
    experiment = Experiment(mechanism=mechanism, backbone="rules")
    lines = []
    report = audit(
        experiment,
        SETTINGS,
        parts.reader,
        store,
        parts.backbone,
        parts.embedder,
        lines.append,
        cuts=[SESSIONS[4], SESSIONS[-1]],
        replayed=3,
    )
    assert failures(report) == []
    assert report.ok
    assert [finding.check for finding in report.findings] == [
        *("chain", "news", "memories", "evidence"),
        *("future", "order") * 2,
        *("canary",) * 3,
    ]
    assert f"changed future after {SESSIONS[4]}: 3 sessions again" in lines


PEEKED = {}


class Peeking(TrajectoryMechanism):
    """Reads tomorrow's outcomes behind the gateway's back and shows them."""

    def retrieve(self, situation):
        text = PEEKED["reader"].read("matured_alpha", "2025-01-14")["alpha"].iloc[0]
        past = SESSIONS[0]
        if situation.session == past:
            return ()
        memory = ShownMemory(f"{past}/{situation.industry.code}", past, f"{text:.9f}", {}, "", "")
        return (Recalled(memory, 0.0, 0.0),)


def test_a_leak_behind_the_gateway_is_found_by_changing_the_future(tmp_path):
    parts = replace(small_parts(SETTINGS), kind=Peeking)
    PEEKED["reader"] = parts.reader
    store, _ = replayed(tmp_path, "peeking", parts)

    class Watched(_Auditor):
        def _replayed(self, sessions, again, given):
            PEEKED["reader"] = given.reader
            return super()._replayed(sessions, again, given)

    experiment = Experiment(mechanism="peeking", backbone="rules")
    report = Watched(experiment, parts, store, lambda _: None).report((SESSIONS[3],), 3)
    assert failures(report) == [
        ("future", f"cut {SESSIONS[3]}: {SESSIONS[1]} predictions.parquet depends on the future")
    ]


class Counting(Mechanism):
    """Its result depends on the order in which sectors are asked."""

    asked = 0

    def retrieve(self, situation):
        Counting.asked += 1
        if situation.session == SESSIONS[0]:
            return ()
        past = SESSIONS[0]
        memory = ShownMemory(f"{past}/{situation.industry.code}", past, f"{Counting.asked}", {}, "", "")
        return (Recalled(memory, 0.0, 0.0),)


def test_a_result_that_depends_on_order_is_found(tmp_path):
    parts = replace(small_parts(SETTINGS), kind=Counting)
    store, _ = replayed(tmp_path, "counting", parts)
    report = audited(store, "counting", parts, cuts=(SESSIONS[3],))
    assert "order" in [check for check, _ in failures(report)]


class WrongEvidence(MemRL):
    """Rewards with an alpha that nobody observed."""

    async def mature(self, session, code, matured, model):
        given = await super().mature(session, code, matured, model)
        return [replace(event, alpha=event.alpha + 1) if isinstance(event, Rewarded) else event for event in given]


class EarlyEvidence(MemRL):
    """Claims an outcome of a longer horizon than has passed."""

    async def mature(self, session, code, matured, model):
        given = await super().mature(session, code, matured, model)
        return [replace(event, horizon=4) if event.horizon == 1 else event for event in given]


@pytest.mark.parametrize(
    ("kind", "message"),
    [(WrongEvidence, "but it was"), (EarlyEvidence, "which did not become known that day")],
)
def test_an_update_on_false_evidence_is_found(tmp_path, kind, message):
    parts = replace(small_parts(SETTINGS), kind=kind)
    store, _ = replayed(tmp_path, "memrl", parts)
    (found,) = [detail for check, detail in failures(audited(store, "memrl", parts)) if check == "evidence"]
    assert found.startswith(f"{SESSIONS[1]}: an update of 801010 rests on the outcome from {SESSIONS[0]}")
    assert message in found


def test_a_damaged_day_fails_the_chain_and_nothing_is_built_on_it(tmp_path):
    parts = small_parts(SETTINGS)
    store, _ = replayed(tmp_path, "memrl", parts)
    path = store.folder("memrl-rules", SESSIONS[2]) / "predictions.parquet"
    path.write_bytes(path.read_bytes()[:-1])
    report = audited(store, "memrl", parts)
    assert [check for check, _ in failures(report)] == ["chain"]
    assert f"memrl-rules {SESSIONS[2]}: predictions.parquet is damaged" in failures(report)[0][1]


def test_a_hole_fails_the_chain(tmp_path):
    parts = small_parts(SETTINGS)
    store, _ = replayed(tmp_path, "pipe", parts)
    (store.folder("pipe-rules", SESSIONS[2]) / "manifest.json").unlink()
    report = audited(store, "pipe", parts)
    assert failures(report) == [("chain", f"session {SESSIONS[2]} is not stored, but later ones are")]


def test_the_audit_only_reads_the_store(tmp_path):
    parts = small_parts(SETTINGS)
    store, _ = replayed(tmp_path, "mem0", parts, SESSIONS[:4])
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert audited(store, "mem0", parts).ok
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_nothing_to_audit_and_unknown_cuts_are_said(tmp_path):
    parts = small_parts(SETTINGS)
    with pytest.raises(MissingPartitionError, match="replay mem0-rules: nothing is stored"):
        audited(ReplayStore(tmp_path), "mem0", parts)
    store, _ = replayed(tmp_path, "mem0", parts, SESSIONS[:2])
    with pytest.raises(CalendarError, match="cut 2025-01-06: not a stored session of mem0-rules"):
        audited(store, "mem0", parts, cuts=(SESSIONS[2],))
