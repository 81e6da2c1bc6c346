"""A replay that dies anywhere and is started again ends with the same bytes as one that never died."""

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from finevolve_pipeline.errors import ExperimentLockedError

CHILD = Path(__file__).parent / "replay_child.py"
_spec = importlib.util.spec_from_file_location("replay_child", CHILD)
child = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(child)
world = sys.modules["replay_world"]

MECHANISM, KEY = "memrl", "memrl-rules"


def start(root, point):
    return subprocess.Popen(
        [sys.executable, str(CHILD), str(root), MECHANISM, point],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=Path(__file__).parent.parent.parent,
        text=True,
    )


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    root = tmp_path_factory.mktemp("uninterrupted")
    world.replayed(root, MECHANISM, world.small_parts(child.SETTINGS))
    return world.contents(root)


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """One store for each point of death, all made at once; the value is the folder."""
    roots = {point: tmp_path_factory.mktemp("killed") for point in child.POINTS}
    running = {point: start(root, point) for point, root in roots.items()}
    for point, process in running.items():
        _, errors = process.communicate(timeout=300)
        assert process.returncode == -signal.SIGKILL, f"{point}: {errors}"
    return roots


def test_a_day_half_written_is_no_day_for_readers(killed):
    store = child.runner.ReplayStore(killed["between data files and manifest"])
    assert (store.folder(KEY, child.FATAL) / "predictions.parquet").exists()
    assert store.sessions(KEY) == child.SESSIONS[:3]
    assert len(store.read_predictions(KEY)) == 93 * 3


COMMITTED = {"between commit and report": 4, "inside the identity's rename": 0}


@pytest.mark.parametrize("point", child.POINTS)
def test_a_killed_replay_resumes_to_the_same_bytes(killed, uninterrupted, point):
    root = killed[point]
    left = sorted(world.contents(root))
    assert left != sorted(uninterrupted)
    parts = world.small_parts(child.SETTINGS)
    store, done = world.replayed(root, MECHANISM, parts)
    assert sum(day.reused for day in done) == COMMITTED.get(point, 3)
    assert {request.session for request in parts.backbone.asked} == {d.session for d in done if not d.reused}
    assert world.contents(root) == uninterrupted
    assert store.sessions(KEY) == child.SESSIONS


def test_a_second_process_is_refused_while_the_first_one_lives(tmp_path, uninterrupted):
    first = start(tmp_path, "hold")
    try:
        assert first.stdout.readline() == "held\n"
        message = rf"experiment {KEY}: process {first.pid} is replaying it; wait, or stop that process"
        with pytest.raises(ExperimentLockedError, match=message):
            world.replayed(tmp_path, MECHANISM, world.small_parts(child.SETTINGS))
        other = world.replayed(tmp_path, "pipe", world.small_parts(child.SETTINGS))[1]
        assert len(other) == len(child.SESSIONS)
    finally:
        os.kill(first.pid, signal.SIGKILL)
        first.communicate()
    _, done = world.replayed(tmp_path, MECHANISM, world.small_parts(child.SETTINGS))
    assert done[0].reused
    mine = {name: data for name, data in world.contents(tmp_path).items() if name.startswith(f"{KEY}/")}
    assert mine == uninterrupted
