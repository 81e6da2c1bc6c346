"""The Dagster instance inside FINEVOLVE_HOME: made on first use, and cleared of what dead processes left."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path

import dagster as dg

from assets.planning import PROCESS_TAG, STARTED_BY
from finevolve_pipeline.errors import SettingsError
from finevolve_pipeline.files import PARTIAL, sweep, write_atomically
from finevolve_pipeline.processes import is_alive

_UNFINISHED = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
_YAML = "dagster.yaml"


def dagster_home(home: Path) -> Path:
    """`<home>/dagster` with dagster.yaml and databases, created if absent.

    Raises:
        SettingsError: the home folder cannot be written.
    """
    folder = home / "dagster"
    if not (folder / _YAML).exists():
        try:
            _create(folder)
        except OSError as refused:
            raise SettingsError(
                f"home {home}: cannot be written ({refused.strerror}); name another folder with --home "
                "or FINEVOLVE_HOME"
            ) from None
    return folder


def _create(folder: Path) -> None:
    """Make the folder beside its place and move it there whole.

    Dagster's databases cannot be made by two processes at once, and one that was left half-made stays so.
    """
    packaged = (Path(__file__).resolve().parents[2] / _YAML).read_bytes()
    made = folder.with_name(f"{PARTIAL}{os.getpid()}-{uuid.uuid4().hex[:8]}-{folder.name}")
    write_atomically(made / _YAML, packaged)
    with _instance(made):
        pass
    try:
        made.rename(folder)
    except OSError:
        # Another process was faster, or somebody has put a file there: what is there stays.
        shutil.rmtree(made)
        if not (folder / _YAML).exists():
            write_atomically(folder / _YAML, packaged)


def _instance(folder: Path) -> dg.DagsterInstance:
    os.environ["DAGSTER_HOME"] = str(folder)
    return dg.DagsterInstance.get()


def join_instance(home: Path) -> dg.DagsterInstance:
    """The instance of a home, as it is."""
    return _instance(dagster_home(home))


def open_instance(home: Path) -> dg.DagsterInstance:
    """The instance of a home. Runs of a command that died are reported as failed, its leftovers are removed.

    Raises:
        SettingsError: the home folder cannot be written.
    """
    instance = join_instance(home)
    sweep(home)
    for run in instance.get_runs(filters=dg.RunsFilter(statuses=_UNFINISHED, tags=STARTED_BY)):
        process = run.tags.get(PROCESS_TAG, "")
        if not is_alive(process):
            instance.report_run_failed(run, f"process {process} died; the next `finevolve run` goes on from there")
    return instance
