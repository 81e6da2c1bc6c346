"""The store: a day exists from its manifest on, never in part, and cannot be changed unnoticed."""

import datetime as dt
import gzip
import json
import os

import pandas as pd
import pytest
from replay_world import contents, replayed, small_parts, small_settings

from finevolve_pipeline.errors import ExperimentLockedError, MissingPartitionError, ReplayMismatchError
from finevolve_pipeline.files import files_below, parquet_facts
from finevolve_pipeline.replay.journal import ReplayStore
from finevolve_pipeline.tables import Predictions, Retrievals, conform
from resources.storage import Storage

SETTINGS = small_settings(last="2025-01-08")
SESSIONS = SETTINGS.benchmark.sessions
KEY = "memrl-rules"


@pytest.fixture
def store(anywhere):
    storage = Storage.of(anywhere)
    return replayed(ReplayStore(storage.root / "replay", storage.locks), "memrl", small_parts(SETTINGS))[0]


def test_a_day_is_four_files_and_the_experiment_one_beside_its_lock(store):
    names = [name for name in files_below(store.root) if name != f"{KEY}/lock"]
    days = [
        f"{KEY}/{s}/{name}"
        for s in SESSIONS
        for name in ("experience.jsonl.gz", "manifest.json", "predictions.parquet", "retrievals.parquet")
    ]
    assert names == sorted([*days, f"{KEY}/identity.json"])


def test_the_same_content_is_the_same_bytes_at_another_time(store, tmp_path, monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    again, _ = replayed(tmp_path / "again", "memrl", small_parts(SETTINGS))
    stored = contents(store.root)
    assert {**contents(again.root), f"{KEY}/lock": b""} == {**stored, f"{KEY}/lock": b""}


def test_stored_tables_hold_their_contracts(store):
    assert len(conform(store.read_predictions(KEY), Predictions, "predictions")) == len(SESSIONS) * 93
    assert len(conform(store.read_retrievals(KEY), Retrievals, "retrievals")) == 31 * (1 + 2 + 3 + 4)


def test_predictions_come_in_the_asked_order_with_the_asked_columns(store):
    frame = store.read_predictions(KEY, [SESSIONS[2], SESSIONS[0]], ["session", "code", "score"])
    assert list(frame.columns) == ["session", "code", "score"]
    assert list(frame["session"].unique()) == [SESSIONS[2].isoformat(), SESSIONS[0].isoformat()]
    assert isinstance(frame["session"].dtype, pd.StringDtype)


def test_reading_days_that_are_not_stored_says_what_makes_them(store):
    with pytest.raises(MissingPartitionError, match="2025-01-09: not stored; `finevolve run --to 2025-01-09`"):
        store.read_predictions(KEY, [dt.date(2025, 1, 9)])
    with pytest.raises(MissingPartitionError, match="pipe-rules 2025-01-02: not stored"):
        store.manifest("pipe-rules", SESSIONS[0])
    assert len(store.read_predictions("pipe-rules")) == 0
    assert store.head_digest("pipe-rules") is None


def test_the_manifests_form_a_chain_from_the_first_day(store):
    parent = ""
    for session in store.sessions(KEY):
        manifest = store.manifest(KEY, session)
        assert manifest.parent == parent
        parent = manifest.digest
    assert store.head_digest(KEY) == parent
    assert store.experiments() == (KEY,)


def test_files_carry_no_writer_metadata_and_no_time(store):
    folder = store.folder(KEY, SESSIONS[-1])
    assert not parquet_facts(folder / "predictions.parquet").metadata
    assert (folder / "experience.jsonl.gz").read_bytes()[4:8] == b"\0\0\0\0"
    first = json.loads(gzip.decompress((folder / "experience.jsonl.gz").read_bytes()).splitlines()[0])
    assert first["event"] == "rewarded"


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-7])


@pytest.mark.parametrize(
    ("name", "spoil", "message"),
    [
        ("predictions.parquet", truncate, "predictions.parquet is damaged"),
        ("retrievals.parquet", flip, "retrievals.parquet is damaged"),
        ("experience.jsonl.gz", lambda path: path.unlink(), "experience.jsonl.gz is missing"),
        ("manifest.json", truncate, "manifest.json cannot be read"),
        ("manifest.json", lambda path: path.write_bytes(b""), "manifest.json cannot be read"),
        (
            "manifest.json",
            lambda path: path.write_text(path.read_text().replace('"predictions":93', '"predictions":94')),
            "manifest.json does not have its own digest",
        ),
    ],
)
def test_a_damaged_day_stops_the_next_run_with_the_command_that_removes_it(store, name, spoil, message):
    spoil(store.folder(KEY, SESSIONS[2]) / name)
    with pytest.raises(ReplayMismatchError) as caught:
        replayed(store, "memrl", small_parts(SETTINGS))
    assert f"replay {KEY} {SESSIONS[2]}: {message}" in str(caught.value)
    assert f"`finevolve reset {KEY} --from {SESSIONS[2]}`" in str(caught.value)


def test_reading_a_truncated_table_names_the_day(store):
    truncate(store.folder(KEY, SESSIONS[2]) / "predictions.parquet")
    with pytest.raises(ReplayMismatchError, match=rf"{KEY} {SESSIONS[2]}: predictions.parquet cannot be read"):
        store.read_predictions(KEY)
    truncate(store.folder(KEY, SESSIONS[2]) / "experience.jsonl.gz")
    with pytest.raises(ReplayMismatchError, match=r"experience\.jsonl\.gz cannot be read"):
        store.events(KEY, SESSIONS[2])


def test_a_folder_without_a_manifest_is_no_day(store):
    (store.folder(KEY, SESSIONS[-1]) / "manifest.json").unlink()
    assert store.sessions(KEY) == SESSIONS[:-1]


def test_reset_removes_the_newest_days_and_the_same_run_makes_them_again(store):
    before = contents(store.root)
    assert store.reset(KEY, SESSIONS[2]) == SESSIONS[2:]
    assert store.sessions(KEY) == SESSIONS[:2]
    replayed(store, "memrl", small_parts(SETTINGS))
    assert contents(store.root) == before


def test_reset_to_the_beginning_leaves_no_identity(store):
    assert store.reset(KEY, SESSIONS[0]) == SESSIONS
    assert store.identity(KEY) is None
    assert store.reset(KEY, SESSIONS[0]) == ()
    assert store.reset("unknown-rules", SESSIONS[0]) == ()


def test_an_interrupted_reset_leaves_a_valid_beginning(store, monkeypatch):
    removed = []

    def dies(folder):
        removed.append(folder)
        if len(removed) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("finevolve_pipeline.replay.journal.remove_folder", dies)
        with pytest.raises(KeyboardInterrupt):
            store.reset(KEY, SESSIONS[0])
    assert store.sessions(KEY) == SESSIONS[:-2]
    replayed(store, "memrl", small_parts(SETTINGS), SESSIONS[:3])


def test_a_second_writer_is_refused_with_the_owner_s_process_id(store):
    message = rf"experiment {KEY}: process {os.getpid()}( on \S+)? is replaying it; wait, or stop that process"
    with store.lock(KEY), pytest.raises(ExperimentLockedError, match=message), store.lock(KEY):
        pass
    with store.lock(KEY):
        pass


def test_a_reset_waits_for_nobody(store):
    with store.lock(KEY), pytest.raises(ExperimentLockedError):
        store.reset(KEY, SESSIONS[0])
    assert store.sessions(KEY) == SESSIONS


def test_a_held_lock_is_seen_without_taking_it(tmp_path):
    store = ReplayStore(tmp_path)
    store.require_unlocked("pipe-rules")
    with store.lock("pipe-rules"), pytest.raises(ExperimentLockedError, match="pipe-rules: process"):
        store.require_unlocked("pipe-rules")
    store.require_unlocked("pipe-rules")
    (tmp_path / "pipe-rules" / "lock").write_text("999999999")
    store.require_unlocked("pipe-rules")
