"""The Dagster instance inside FINEVOLVE_HOME: made on first use, and cleared of runs whose process has died."""

from __future__ import annotations

import os
from pathlib import Path

import dagster as dg

from assets.planning import PID_TAG
from finevolve_pipeline.files import is_alive, write_atomically

_UNFINISHED = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.NOT_STARTED]


def dagster_home(home: Path) -> Path:
    """`<home>/dagster` with its dagster.yaml, created if absent."""
    folder = home / "dagster"
    target = folder / "dagster.yaml"
    if not target.exists():
        packaged = Path(__file__).resolve().parents[2] / "dagster.yaml"
        write_atomically(target, packaged.read_bytes())
    return folder


def open_instance(home: Path) -> dg.DagsterInstance:
    """The instance of a home; runs of a CLI process that no longer lives are reported as failed."""
    folder = dagster_home(home)
    os.environ["DAGSTER_HOME"] = str(folder)
    instance = dg.DagsterInstance.get()
    for run in instance.get_runs(filters=dg.RunsFilter(statuses=_UNFINISHED, tags={"finevolve/started_by": "cli"})):
        pid = int(run.tags.get(PID_TAG, "0"))
        if not is_alive(pid):
            instance.report_run_failed(run, f"process {pid} of `finevolve run` died; the next run resumes")
    return instance
