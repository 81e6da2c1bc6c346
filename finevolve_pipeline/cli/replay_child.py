"""The process in which `finevolve run` replays experiments that stand together: FROM-EXPERIMENT TO-EXPERIMENT FIRST
LAST PARENT-PID.

Not for people: `finevolve run` starts it, follows its progress in the store, and reads its last line if it fails.
"""

from __future__ import annotations

import os
import sys
import threading
import time

import click

from assets.planning import TRACEBACK, Materialiser, RunFailed
from finevolve_pipeline.cli.dagster_home import join_instance
from finevolve_pipeline.cli.output import Pipeline
from finevolve_pipeline.definitions import build_defs
from finevolve_pipeline.errors import FinEvolveError
from finevolve_pipeline.settings import Settings


def watch_parent(parent: int) -> None:
    """End this process when its parent has died, so that a killed run leaves nobody holding a lock."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def stretch(settings: Settings, first: str, last: str) -> list[str]:
    """Keys of the experiments from `first` to `last`, in the settings' order."""
    keys = [experiment.key for experiment in settings.all_experiments]
    return keys[keys.index(first) : keys.index(last) + 1]


def main(from_experiment: str, to_experiment: str, first: str, last: str, parent: str) -> None:
    """Materialise the sessions `first` to `last` of a stretch of experiments as one Dagster run."""
    watch_parent(int(parent))
    pipeline = Pipeline.in_force()
    try:
        # Asked before the run starts, so that a second process leaves no failed run behind.
        for key in stretch(pipeline.settings, from_experiment, to_experiment):
            with pipeline.store.replays.lock(key):
                pass
        with join_instance(pipeline.home) as instance:
            materialiser = Materialiser(build_defs(pipeline.settings, pipeline.home), instance)
            materialiser.materialise(["replay"], f"{first}|{from_experiment}", f"{last}|{to_experiment}")
    except FinEvolveError as error:
        if isinstance(error, RunFailed) and error.traceback:
            click.echo(f"{TRACEBACK}\n{error.traceback}", err=True)
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main(*sys.argv[1:])
