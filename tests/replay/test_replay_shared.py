"""Replays on an object store with locks in Postgres: the same bytes, one writer, nothing half there, whatever fails."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from replay_world import EchoBackbone, contents, replayed, small_parts
from shared_child import SETTINGS, shared_store

from finevolve_pipeline.errors import ExperimentLockedError
from finevolve_pipeline.files import borrow, write_atomically
from finevolve_pipeline.locks import LockLostError
from finevolve_pipeline.replay.journal import ReplayStore
from resources.object_store import StorageError
from resources.storage import Storage

SESSIONS = SETTINGS.benchmark.sessions
KEY = "memrl-rules"
CHILD = Path(__file__).with_name("shared_child.py")


class Interrupted(EchoBackbone):
    """Does something when it is first asked about the third session."""

    def __init__(self, what) -> None:
        super().__init__()
        self._what = what

    def text(self, request):
        if request.session == SESSIONS[2] and self._what is not None:
            what, self._what = self._what, None
            what()
        return super().text(request)


def start(home: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(CHILD), str(home), "memrl", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def local(tmp_path_factory) -> dict[str, bytes]:
    """Every file of the same replay on this machine's disk, its lock apart."""
    root = tmp_path_factory.mktemp("local")
    replayed(root, "memrl", small_parts(SETTINGS))
    found = contents(root)
    assert found.pop(f"{KEY}/lock") == b""
    return found


def test_all_files_are_the_same_as_on_a_disk_and_are_read_alike(shared, home, local, tmp_path):
    store, done = replayed(shared_store(home), "memrl", small_parts(SETTINGS))
    assert contents(store.root) == local
    assert not any(day.reused for day in done)
    _, again = replayed(store, "memrl", small_parts(SETTINGS))
    assert [day.reused for day in again] == [True] * len(SESSIONS)
    borrow(store.folder(KEY), tmp_path / KEY)
    on_disk = ReplayStore(tmp_path)
    assert store.read_predictions(KEY).equals(on_disk.read_predictions(KEY))
    assert store.read_retrievals(KEY).equals(on_disk.read_retrievals(KEY))


def test_a_second_process_is_refused_and_goes_on_when_the_first_is_killed(shared, home, local):
    first = start(home, "hold")
    try:
        assert first.stdout.readline() == "held\n"
        _, said = (second := start(home)).communicate(timeout=120)
        assert second.returncode == ExperimentLockedError.exit_code
        assert said.startswith(f"experiment {KEY}: process {first.pid} on ")
        assert said.count("\n") == 1
        with pytest.raises(ExperimentLockedError, match=f"process {first.pid}"):
            shared_store(home).require_unlocked(KEY)
    finally:
        first.kill()
        first.wait()
    third = start(home)
    assert third.wait(timeout=120) == 0, third.stderr.read()
    assert contents(shared_store(home).root) == local


def test_of_processes_that_start_together_one_replays_and_no_file_differs(shared, home, local):
    running = [start(home) for _ in range(3)]
    ended = [(process.communicate(timeout=120)[1], process.returncode) for process in running]
    assert {code for _, code in ended} <= {0, ExperimentLockedError.exit_code}, ended
    assert 0 in [code for _, code in ended]
    assert contents(shared_store(home).root) == local


def test_a_run_whose_lock_is_lost_stops_before_it_commits(shared, home, postgres, local):
    store = shared_store(home)
    with pytest.raises(LockLostError, match=rf"{KEY}/lock: the lock was lost") as lost:
        replayed(store, "memrl", small_parts(SETTINGS, backbone=Interrupted(postgres.restart)))
    assert "\n" not in str(lost.value)
    assert store.sessions(KEY) == SESSIONS[:2]
    assert {name for name in contents(store.root) if f"/{SESSIONS[2]}/" in name} == set()
    replayed(store, "memrl", small_parts(SETTINGS))
    assert contents(store.root) == local


class Unaware:
    """Locks of a writer that was cut off and has not noticed: it believes that it holds them."""

    @contextlib.contextmanager
    def holding(self, path, patience=0.0):
        yield self

    def require(self) -> None:
        pass

    def owner(self, path) -> None:
        return None


def test_a_writer_that_lost_its_lock_unawares_cannot_replace_a_committed_day(anywhere, local):
    storage = Storage.of(anywhere)
    theirs = ReplayStore(storage.root / "replay", storage.locks)

    def overtake() -> None:
        other = threading.Thread(target=replayed, args=(theirs, "memrl", small_parts(SETTINGS)))
        other.start()
        other.join()

    cut_off = ReplayStore(theirs.root, Unaware())
    with pytest.raises(ExperimentLockedError, match=f"another process has committed {SESSIONS[2]} meanwhile") as told:
        replayed(cut_off, "memrl", small_parts(SETTINGS, backbone=Interrupted(overtake)))
    assert "\n" not in str(told.value)
    assert theirs.sessions(KEY) == SESSIONS
    found = contents(theirs.root)
    found.pop(f"{KEY}/lock", None)
    assert found == local


def test_a_store_that_is_away_for_some_seconds_is_waited_for(shared, home, object_server, local):
    def refuse() -> None:
        object_server.refuse(503)
        threading.Timer(2.0, object_server.serve).start()

    store, _ = replayed(shared_store(home), "memrl", small_parts(SETTINGS, backbone=Interrupted(refuse)))
    assert contents(store.root) == local


@pytest.mark.slow
def test_a_store_that_is_away_for_a_minute_is_waited_for(shared, home, object_server, local):
    def refuse() -> None:
        object_server.refuse(503)
        threading.Timer(60.0, object_server.serve).start()

    store, _ = replayed(shared_store(home), "memrl", small_parts(SETTINGS, backbone=Interrupted(refuse)))
    assert contents(store.root) == local


def test_a_store_that_forbids_stops_the_run_with_nothing_half_committed(shared, home, object_server, local):
    store = shared_store(home)
    backbone = Interrupted(lambda: object_server.refuse(403))
    try:
        with pytest.raises(StorageError, match=r"the object store refuses \(AccessDenied, HTTP 403\)") as told:
            replayed(store, "memrl", small_parts(SETTINGS, backbone=backbone))
    finally:
        object_server.serve()
    assert "\n" not in str(told.value)
    assert store.sessions(KEY) == SESSIONS[:2]
    replayed(store, "memrl", small_parts(SETTINGS))
    assert contents(store.root) == local


def test_what_a_dead_writer_left_of_a_day_is_no_day_and_is_overwritten(shared, home, local):
    store = shared_store(home)
    for name in ("predictions.parquet", "experience.jsonl.gz"):
        write_atomically(store.folder(KEY, SESSIONS[0]) / name, b"half")
    assert store.sessions(KEY) == ()
    replayed(store, "memrl", small_parts(SETTINGS))
    assert contents(store.root) == local
