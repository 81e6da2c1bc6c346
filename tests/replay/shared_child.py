"""Replays the small window into the storage of FINEVOLVE_HOME, in a process of its own.

python shared_child.py HOME MECHANISM [hold]; with `hold` it says `held` when its first day is durable and then waits.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from replay_world import replayed, small_parts, small_settings

from finevolve_pipeline.errors import FinEvolveError
from finevolve_pipeline.replay.journal import ReplayStore
from resources.storage import Storage

SETTINGS = small_settings(last="2025-01-08")


class Holding(ReplayStore):
    """Waits after its first day."""

    def commit(self, experiment, day, foundation):
        manifest = super().commit(experiment, day, foundation)
        sys.stdout.write("held\n")
        sys.stdout.flush()
        sys.stdin.read()
        return manifest


def shared_store(home: Path, kind: type[ReplayStore] = ReplayStore) -> ReplayStore:
    """The replays of a home, wherever its state lies."""
    storage = Storage.of(home)
    return kind(storage.root / "replay", storage.locks)


if __name__ == "__main__":
    store = shared_store(Path(sys.argv[1]), Holding if sys.argv[3:] else ReplayStore)
    try:
        replayed(store, sys.argv[2], small_parts(SETTINGS))
    except FinEvolveError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
