"""A run is in good health while a worker says that it has its task, and is given up when none has had it for long."""

from __future__ import annotations

from collections.abc import Mapping

import dagster as dg
import pytest
from celery.result import AsyncResult
from dagster._core.launcher import WorkerStatus
from dagster._core.storage.dagster_run import DagsterRunStatus

from resources import run_launcher
from resources.run_launcher import REPLY_SECONDS, WatchedCeleryRunLauncher

TASK = "dagster-celery/task_id"
PATIENCE = 60


class Workers:
    """What workers answer, what the backend has noted, and what time it is."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.tasks: Mapping[str, list[str]] | None = {}
        self.noted: dict[str, str] = {}
        self.asked = 0

    def monotonic(self) -> float:
        return self.now

    def active(self) -> Mapping[str, list[dict[str, str]]] | None:
        self.asked += 1
        if self.tasks is None:
            return None
        return {worker: [{"id": task} for task in tasks] for worker, tasks in self.tasks.items()}

    def reserved(self) -> None:
        return None


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Workers:
    found = Workers()
    monkeypatch.setattr(run_launcher, "time", found)
    monkeypatch.setattr(AsyncResult, "state", property(lambda one: found.noted.get(one.id, "PENDING")))
    return found


@pytest.fixture
def launcher(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> WatchedCeleryRunLauncher:
    made = WatchedCeleryRunLauncher(
        lost_after_seconds=PATIENCE, default_queue="dagster", broker="redis://127.0.0.1:1/0", backend="cache+memory://"
    )
    monkeypatch.setattr(made.celery.control, "inspect", lambda timeout: workers)
    return made


def run_with(task: str | None = "task") -> dg.DagsterRun:
    tags = {} if task is None else {TASK: task}
    return dg.DagsterRun(job_name="job", tags=tags, status=DagsterRunStatus.STARTED)


def health(launcher: WatchedCeleryRunLauncher, task: str | None = "task") -> WorkerStatus:
    return launcher.check_run_worker_health(run_with(task)).status


def test_a_run_goes_on_as_long_as_a_worker_has_it_even_if_the_backend_forgot(
    launcher: WatchedCeleryRunLauncher, workers: Workers
) -> None:
    workers.tasks = {"a": [], "b": ["task"]}
    for _ in range(5):
        workers.now += PATIENCE
        assert health(launcher) is WorkerStatus.RUNNING


def test_a_run_that_no_worker_has_is_lost_after_the_patience_though_the_backend_says_started(
    launcher: WatchedCeleryRunLauncher, workers: Workers
) -> None:
    workers.tasks, workers.noted = {"a": ["task"]}, {"task": "STARTED"}
    assert health(launcher) is WorkerStatus.RUNNING
    workers.tasks = {"b": []}
    workers.now += PATIENCE - 1
    assert health(launcher) is WorkerStatus.RUNNING
    workers.now += 1
    told = launcher.check_run_worker_health(run_with())
    assert told.status is WorkerStatus.FAILED
    assert told.msg == "no worker has had task task for 60 s: its machine is gone or cut off"


def test_a_worker_that_misses_one_question_has_lost_nothing(
    launcher: WatchedCeleryRunLauncher, workers: Workers
) -> None:
    for answer in ({"a": ["task"]}, None, {"a": ["task"]}, None, {"a": ["task"]}):
        workers.tasks = answer
        workers.now += PATIENCE - 1
        assert health(launcher) is WorkerStatus.RUNNING


def test_workers_are_asked_once_for_all_runs_of_a_round(launcher: WatchedCeleryRunLauncher, workers: Workers) -> None:
    workers.tasks = {"a": ["one"], "b": ["two"]}
    assert [health(launcher, one) for one in ("one", "two")] == [WorkerStatus.RUNNING] * 2
    assert workers.asked == 1
    workers.now += REPLY_SECONDS + 1
    health(launcher, "one")
    assert workers.asked == 2


@pytest.mark.parametrize(("noted", "status"), [("FAILURE", WorkerStatus.FAILED), ("SUCCESS", WorkerStatus.SUCCESS)])
def test_how_a_task_ended_is_believed_at_once(
    launcher: WatchedCeleryRunLauncher, workers: Workers, noted: str, status: WorkerStatus
) -> None:
    workers.noted = {"task": noted}
    assert health(launcher) is status


def test_a_run_that_is_no_task_is_left_alone(launcher: WatchedCeleryRunLauncher, workers: Workers) -> None:
    """One that a command runs in its own process."""
    assert health(launcher, None) is WorkerStatus.RUNNING
    workers.now += 10 * PATIENCE
    assert health(launcher, None) is WorkerStatus.RUNNING


def test_a_terminated_run_is_reported_as_being_cancelled_so_that_it_is_not_retried(
    launcher: WatchedCeleryRunLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    revoked: list[bool] = []
    monkeypatch.setattr(AsyncResult, "revoke", lambda one, terminate: revoked.append(terminate))
    with dg.DagsterInstance.ephemeral() as instance:
        launcher.register_instance(instance)
        run = run_with()
        instance.add_run(run)
        assert launcher.terminate(run.run_id)
        assert revoked == [True]
        assert instance.get_run_by_id(run.run_id).status is DagsterRunStatus.CANCELING  # type: ignore[union-attr]
        assert not launcher.terminate("unknown")
