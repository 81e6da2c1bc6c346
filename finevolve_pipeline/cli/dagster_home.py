"""The Dagster instance inside FINEVOLVE_HOME: made on first use, and cleared of what dead processes left."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
from sqlalchemy.exc import DBAPIError

from assets.planning import PROCESS_TAG, STARTED_BY
from finevolve_pipeline.errors import FinEvolveError, SettingsError
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


class RecordsError(FinEvolveError):
    """Dagster's records of a home cannot be read or written."""

    exit_code = 1


@contextmanager
def join_instance(home: Path) -> Iterator[dg.DagsterInstance]:
    """The instance of a home, as it is, for a block.

    Raises:
        RecordsError: its databases cannot be read or written, in the block too.
        SettingsError: the home folder cannot be written.
    """
    folder = dagster_home(home)
    try:
        with _instance(folder) as instance:
            yield instance
    except DBAPIError as refused:
        said = str(refused.orig).strip().partition("\n")[0]
        raise RecordsError(
            f"{folder}: Dagster's records cannot be used ({said}); see that the disk has room, or that Postgres runs; "
            "if they are damaged, remove that folder: results stay, and the next run records them anew"
        ) from None


@contextmanager
def open_instance(home: Path) -> Iterator[dg.DagsterInstance]:
    """As `join_instance`. Runs of a command that died are reported as failed, its leftovers are removed."""
    with join_instance(home) as instance:
        sweep(home)
        for run in instance.get_runs(filters=dg.RunsFilter(statuses=_UNFINISHED, tags=STARTED_BY)):
            process = run.tags.get(PROCESS_TAG, "")
            if not is_alive(process):
                instance.report_run_failed(run, f"process {process} died; the next `finevolve run` goes on from there")
        yield instance
