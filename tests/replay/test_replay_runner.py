"""A range of sessions: what is stored is verified and reused, what is missing is replayed, in one chain."""

import datetime as dt

import pytest
from replay_world import EchoBackbone, contents, replayed, small_parts, small_settings

from finevolve_pipeline.embedding import HashingEmbedder
from finevolve_pipeline.errors import (
    CalendarError,
    MissingPartitionError,
    ReplayMismatchError,
    SettingsError,
)
from finevolve_pipeline.replay.journal import ReplayStore
from finevolve_pipeline.replay.runner import run
from finevolve_pipeline.settings import Experiment
from resources.backbones import build_backbone

SETTINGS = small_settings(last="2025-01-14")
SESSIONS = SETTINGS.benchmark.sessions
MECHANISMS = ("pipe", "mem0", "memrl")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_chain_made_in_pieces_equals_the_uninterrupted_one(tmp_path, mechanism):
    whole, _ = replayed(tmp_path / "whole", mechanism, small_parts(SETTINGS))
    for piece in (SESSIONS[:3], SESSIONS[3:4], SESSIONS[4:]):
        pieces, _ = replayed(tmp_path / "pieces", mechanism, small_parts(SETTINGS), piece)
    assert contents(pieces.root) == contents(whole.root)


def test_every_session_of_the_range_is_reported_when_it_is_durable(tmp_path):
    parts = small_parts(SETTINGS)
    replayed(tmp_path, "mem0", parts, SESSIONS[:3])
    store, seen = ReplayStore(tmp_path), []
    experiment = Experiment(mechanism="mem0", backbone="rules")
    run(
        experiment,
        SESSIONS[2:5],
        parts,
        store,
        lambda day: seen.append((day.session, day.reused, store.manifest("mem0-rules", day.session) == day.manifest)),
    )
    assert seen == [(SESSIONS[2], True, True), (SESSIONS[3], False, True), (SESSIONS[4], False, True)]


def test_a_stored_range_asks_no_model_and_reads_no_table(tmp_path):
    replayed(tmp_path, "memrl", small_parts(SETTINGS))
    parts = small_parts(SETTINGS)
    parts.reader.reads.clear()
    _, done = replayed(tmp_path, "memrl", parts)
    assert all(day.reused for day in done)
    assert parts.backbone.asked == []
    assert parts.reader.reads == []


def test_a_hole_is_filled_and_the_later_days_still_fit(tmp_path):
    store, _ = replayed(tmp_path, "memrl", small_parts(SETTINGS))
    before = contents(tmp_path)
    (store.folder("memrl-rules", SESSIONS[3]) / "manifest.json").unlink()
    _, done = replayed(tmp_path, "memrl", small_parts(SETTINGS))
    assert [day.session for day in done if not day.reused] == [SESSIONS[3]]
    assert contents(tmp_path) == before


def test_a_range_needs_all_sessions_before_it(tmp_path):
    parts = small_parts(SETTINGS)
    replayed(tmp_path, "mem0", parts, SESSIONS[:2])
    with pytest.raises(MissingPartitionError) as caught:
        replayed(tmp_path, "mem0", parts, SESSIONS[4:6])
    assert str(caught.value) == (
        "replay mem0-rules 2025-01-06: not stored, and 2025-01-08 rests on it; first `finevolve run "
        "--from 2025-01-06 --to 2025-01-09 --mechanism mem0 --backbone rules --seed 0`"
    )


@pytest.mark.parametrize(
    ("sessions", "message"),
    [
        ((SESSIONS[0], SESSIONS[2]), "session 2025-01-06: sessions must be consecutive"),
        ((SESSIONS[1], SESSIONS[0]), "session 2025-01-0[23]: sessions must be consecutive"),
        ((SESSIONS[0], SESSIONS[0]), "session 2025-01-02: sessions must be consecutive"),
        (
            (dt.date(2025, 1, 4),),
            "session 2025-01-04: not in the benchmark's window 2025-01-02 to 2025-01-14",
        ),
        ((dt.date(2025, 6, 3),), "session 2025-06-03: not in the benchmark's window"),
    ],
)
def test_sessions_must_be_consecutive_sessions_of_the_window(tmp_path, sessions, message):
    with pytest.raises(CalendarError, match=message):
        replayed(tmp_path, "pipe", small_parts(SETTINGS), sessions)


def test_an_empty_range_does_nothing(tmp_path):
    _, done = replayed(tmp_path, "pipe", small_parts(SETTINGS), ())
    assert done == []
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("table", ["news_window", "matured_alpha"])
def test_a_changed_input_names_the_day_and_the_table(tmp_path, table):
    replayed(tmp_path, "memrl", small_parts(SETTINGS))
    parts = small_parts(SETTINGS)
    day = SESSIONS[4].isoformat()
    parts.reader.replace(table, day, parts.reader.frames[table, day].iloc[::-1])
    with pytest.raises(ReplayMismatchError) as caught:
        replayed(tmp_path, "memrl", parts)
    assert f"replay memrl-rules {day}: made from another {table}" in str(caught.value)
    assert f"`finevolve reset memrl-rules --from {day}`" in str(caught.value)
    replayed(tmp_path, "memrl", parts, SESSIONS[:4])  # days before it do not rest on it


def test_an_input_that_is_gone_is_named(tmp_path):
    parts = small_parts(SETTINGS)
    del parts.reader.frames["news_window", SESSIONS[1].isoformat()]
    with pytest.raises(MissingPartitionError, match="news_window 2025-01-03: not stored"):
        replayed(tmp_path, "pipe", parts)
    assert ReplayStore(tmp_path).sessions("pipe-rules") == SESSIONS[:1]


class OtherModel(EchoBackbone):
    @property
    def identity(self):
        return {"kind": "echo", "version": 2}


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        (
            lambda: small_parts(small_settings(last="2025-01-14", prompts={"news_tokens": 500})),
            "prompts.news_tokens was 16000 and is 500",
        ),
        (
            lambda: small_parts(small_settings(last="2025-01-14", mechanisms={"mem0": {"top_k": 3}})),
            "mechanism.settings.top_k was 5 and is 3",
        ),
        (lambda: small_parts(SETTINGS, backbone=OtherModel()), "backbone.version was 1 and is 2"),
        (
            lambda: small_parts(SETTINGS, embedder=HashingEmbedder(128, (2,))),
            "embedder.dimensions was 256 and is 128",
        ),
        (
            lambda: small_parts(small_settings(first="2025-01-03", last="2025-01-14")),
            "first_session was '2025-01-02' and is '2025-01-03'",
        ),
    ],
)
def test_other_settings_or_models_are_refused_and_named(tmp_path, changed, what):
    replayed(tmp_path, "mem0", small_parts(SETTINGS), SESSIONS[:2])
    parts = changed()
    with pytest.raises(ReplayMismatchError) as caught:
        replayed(tmp_path, "mem0", parts, parts.settings.benchmark.sessions[:3])
    assert f"made with other settings or code: {what}" in str(caught.value)
    assert "`finevolve reset mem0-rules --from 2025-01-0" in str(caught.value)


def test_what_cannot_change_a_result_is_no_reason_to_refuse(tmp_path):
    replayed(tmp_path, "pipe", small_parts(SETTINGS), SESSIONS[:2])
    longer = small_settings(last="2025-01-20", evaluation={"min_sessions": 5})
    _, done = replayed(tmp_path, "pipe", small_parts(longer, embedder=HashingEmbedder(128, (2,))), SESSIONS[:3])
    assert [day.reused for day in done] == [True, True, False]


@pytest.mark.parametrize(
    "declared",
    [
        {"backbones": {"rules": {"knowledge_cutoff": "2025-01-06"}}},
        {"evaluation": {"label_base": "open_next"}},
    ],
    ids=["knowledge_cutoff", "label_base"],
)
def test_what_only_the_evaluation_reads_makes_no_replay_stale(tmp_path, declared):
    settings = small_settings(last="2025-01-14", **declared)
    assert settings.digest != SETTINGS.digest
    before, now = (
        small_parts(these, backbone=build_backbone("rules", these, tmp_path)) for these in (SETTINGS, settings)
    )
    store, _ = replayed(tmp_path, "mem0", before, SESSIONS[:3])
    stored = contents(store.folder("mem0-rules", SESSIONS[2]))
    _, done = replayed(tmp_path, "mem0", now, SESSIONS[:3])
    assert [day.reused for day in done] == [True, True, True]
    assert contents(store.folder("mem0-rules", SESSIONS[2])) == stored
    afresh, _ = replayed(tmp_path / "afresh", "mem0", now, SESSIONS[:3])
    assert contents(afresh.folder("mem0-rules", SESSIONS[2])) == stored


def test_a_day_spliced_in_from_another_chain_is_refused(tmp_path):
    store, _ = replayed(tmp_path / "mine", "memrl", small_parts(SETTINGS))
    other = small_parts(SETTINGS)
    first = SESSIONS[0].isoformat()
    other.reader.replace("news_window", first, other.reader.frames["news_window", first].iloc[:5])
    foreign, _ = replayed(tmp_path / "other", "memrl", other)
    for name in contents(foreign.folder("memrl-rules", SESSIONS[3])):
        source = foreign.folder("memrl-rules", SESSIONS[3]) / name
        (store.folder("memrl-rules", SESSIONS[3]) / name).write_bytes(source.read_bytes())
    with pytest.raises(ReplayMismatchError, match=rf"memrl-rules {SESSIONS[3]}: follows another day before it"):
        replayed(tmp_path / "mine", "memrl", small_parts(SETTINGS))


def test_an_unknown_mechanism_or_key_is_a_settings_error(tmp_path):
    with pytest.raises(SettingsError, match="mechanism 'dreams': not among pipe, mem0, memrl"):
        replayed(tmp_path, "dreams", small_parts(SETTINGS))
    bad = small_settings(last="2025-01-14", mechanisms={"mem0": {"topk": 3}})
    with pytest.raises(SettingsError, match=r"mechanisms.mem0.topk: .*\(keys of mem0: top_k, min_similarity\)"):
        replayed(tmp_path, "mem0", small_parts(bad))
