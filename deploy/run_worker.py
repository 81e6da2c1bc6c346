"""The Celery application of a worker that replays: `celery -A deploy.run_worker worker` with DAGSTER_HOME set.

Broker, queue and everything else are those of the run launcher in dagster.yaml, so both sides cannot disagree. The code
location is imported before the worker forks, so that a run does not begin with seconds of imports.
"""

from __future__ import annotations

import ctypes
import signal
import sys

from celery.signals import worker_process_init
from dagster import DagsterInstance
from dagster_celery.tasks import create_execute_job_task, create_resume_job_task

import finevolve_pipeline.definitions  # noqa: F401
from finevolve_pipeline.errors import SettingsError
from resources.run_launcher import WatchedCeleryRunLauncher

_PR_SET_PDEATHSIG = 1


def _application() -> object:
    with DagsterInstance.get() as instance:
        launcher = instance.run_launcher
        if not isinstance(launcher, WatchedCeleryRunLauncher):
            raise SettingsError(
                f"run launcher {type(launcher).__name__}: has no workers; use deploy/dagster.yaml as "
                "$DAGSTER_HOME/dagster.yaml"
            )
        application = launcher.celery
    create_execute_job_task(application)
    create_resume_job_task(application)
    return application


app = _application()


@worker_process_init.connect
def _die_with_the_worker(**_: object) -> None:
    """A run must not go on when the worker that answers for it is gone: it would hold its experiment's lock, unseen."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
