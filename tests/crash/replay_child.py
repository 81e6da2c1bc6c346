"""Replays a small window in a process of its own and kills it, hard, at a chosen point.

python replay_child.py STORE MECHANISM POINT, where POINT names one of `POINTS` or is `hold`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "replay"))

from replay_world import EchoBackbone, replayed, small_parts, small_settings

from finevolve_pipeline import files
from finevolve_pipeline.replay import journal, runner

SETTINGS = small_settings(last="2025-01-10")
SESSIONS = SETTINGS.benchmark.sessions
FATAL = SESSIONS[3]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class MortalBackbone(EchoBackbone):
    """Dies when it is asked about the tenth sector of the fatal day."""

    asked_that_day = 0

    def text(self, request):
        self.asked_that_day += request.session == FATAL
        if self.asked_that_day == 10:
            die()
        return super().text(request)


def die_before_writing(name: str) -> None:
    """Die when a file of that name is about to be written for the fatal day."""

    def fatal(write):
        def written(path: Path, data: bytes):
            if path.name == name and (path.parent.name == FATAL.isoformat() or name == "identity.json"):
                die()
            return write(path, data)

        return written

    journal.write_atomically, journal.create = fatal(journal.write_atomically), fatal(journal.create)


def die_before_renaming(name: str) -> None:
    """Die when a file of that name lies under its temporary name and not yet under its own."""

    def fatal(rename):
        def renamed(source: Path, target: Path) -> None:
            if target.name == name and (target.parent.name == FATAL.isoformat() or name == "identity.json"):
                die()
            rename(source, target)

        return renamed

    files.os.replace, files.os.link = fatal(os.replace), fatal(os.link)


def die_after_commit() -> None:
    """Die when the fatal day is durable and nobody has been told."""
    commit = journal.ReplayStore.commit

    def fatal(self, experiment, day, foundation):
        manifest = commit(self, experiment, day, foundation)
        if day.session == FATAL:
            die()
        return manifest

    journal.ReplayStore.commit = fatal


POINTS: dict[str, Callable[[], None]] = {
    "while a model is asked": lambda: None,
    "before the first data file": lambda: die_before_writing("predictions.parquet"),
    "between data files": lambda: die_before_writing("retrievals.parquet"),
    "inside a data file's rename": lambda: die_before_renaming("experience.jsonl.gz"),
    "between data files and manifest": lambda: die_before_writing("manifest.json"),
    "inside the manifest's rename": lambda: die_before_renaming("manifest.json"),
    "between commit and report": die_after_commit,
    "inside the identity's rename": lambda: die_before_renaming("identity.json"),
}


def hold() -> None:
    """Replay one day, say so, and keep the experiment until standard input ends."""
    committed = runner.ReplayStore.commit

    def wait(self, experiment, day, foundation):
        manifest = committed(self, experiment, day, foundation)
        sys.stdout.write("held\n")
        sys.stdout.flush()
        sys.stdin.read()
        return manifest

    runner.ReplayStore.commit = wait


if __name__ == "__main__":
    store, mechanism, point = sys.argv[1:]
    mortal = point == "while a model is asked"
    (hold if point == "hold" else POINTS[point])()
    replayed(Path(store), mechanism, small_parts(SETTINGS, backbone=MortalBackbone() if mortal else EchoBackbone()))
