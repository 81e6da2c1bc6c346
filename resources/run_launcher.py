"""Dagster's run launcher of the server profile: a run is a Celery task, and a run whose worker is gone is noticed.

Celery's own record cannot tell: a task that a vanished machine had begun stays "started" for ever, and a broker that
lost its memory has no record of a task that goes on. So the workers themselves are asked which tasks they have.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from dagster import DagsterRun, Field, IntSource
from dagster._core.launcher import CheckRunHealthResult, WorkerStatus
from dagster._serdes import ConfigurableClassData
from dagster_celery.launcher import CeleryRunLauncher
from dagster_celery.tags import DAGSTER_CELERY_TASK_ID_TAG

REPLY_SECONDS = 3.0
"""How long workers have to say which tasks they have."""
_ENDED = ("SUCCESS", "FAILURE")


class WatchedCeleryRunLauncher(CeleryRunLauncher):
    """`CeleryRunLauncher` that asks the workers.

    Args:
        lost_after_seconds: a run that no worker has said to have for so long has failed; Dagster then retries it.
    """

    def __init__(self, lost_after_seconds: int, **config: Any) -> None:
        super().__init__(**config)
        self._patience = lost_after_seconds
        self._asked_at = float("-inf")
        self._tasks: frozenset[str] = frozenset()
        self._seen: dict[str, float] = {}

    @classmethod
    def config_type(cls) -> Any:
        """The launcher's own, and the patience."""
        own: Any = super().config_type()
        return {**own, "lost_after_seconds": Field(IntSource, default_value=60)}

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData, config_value: Mapping[str, Any]
    ) -> WatchedCeleryRunLauncher:
        """The launcher that dagster.yaml asks for."""
        return cls(inst_data=inst_data, **config_value)

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Whether a worker has the run's task. A broker that cannot be reached raises: nothing is known then."""
        task = run.tags.get(DAGSTER_CELERY_TASK_ID_TAG)
        if task is None:
            return CheckRunHealthResult(
                WorkerStatus.RUNNING, "no task: the process that started the run answers for it"
            )
        if self.celery.AsyncResult(task).state in _ENDED:
            self._seen.pop(task, None)
            return super().check_run_worker_health(run)
        now = time.monotonic()
        if task in self._tasks_of_workers(now):
            self._seen[task] = now
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        missing = now - self._seen.setdefault(task, now)
        if missing < self._patience:
            return CheckRunHealthResult(WorkerStatus.RUNNING, f"no worker has had task {task} for {missing:.0f} s")
        del self._seen[task]
        return CheckRunHealthResult(
            WorkerStatus.FAILED, f"no worker has had task {task} for {missing:.0f} s: its machine is gone or cut off"
        )

    def terminate(self, run_id: str) -> bool:
        """Stop a run. Its task ends or is never begun; run monitoring reports it cancelled, so it is not retried."""
        run = self._instance.get_run_by_id(run_id)
        if run is None or run.is_finished or DAGSTER_CELERY_TASK_ID_TAG not in run.tags:
            return False
        self._instance.report_run_canceling(run)
        return super().terminate(run_id)

    def _tasks_of_workers(self, now: float) -> frozenset[str]:
        """Ids of the tasks that workers run or are about to; asked once for all runs of a round."""
        if now - self._asked_at > REPLY_SECONDS:
            inspect = self.celery.control.inspect(timeout=REPLY_SECONDS)
            found = [tasks for replies in (inspect.active(), inspect.reserved()) for tasks in (replies or {}).values()]
            self._tasks = frozenset(task["id"] for tasks in found for task in tasks)
            self._asked_at = time.monotonic()
        return self._tasks
