"""What experience is worth in worlds where the truth is known: `python benchmarks/regimes.py [--worlds 12]`.

The worlds of `tests/replay/test_replay_regimes.py`, with more mechanisms than the test replays: mean gain over Pipe in
daily csIC by kind of world and stage, and the one-sided p (t over worlds) of the gain where a lesson is stable and of
the loss after it has turned round.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "replay"))

from test_replay_regimes import AFTER, BEFORE, KINDS, Played, gains, p_above_zero, play

SYSTEMS = (
    *("memrl", "reflexion", "expel", "reasoningbank", "mem0"),
    *("mem0_full", "memrl_original", "reflexion_original", "expel_original", "placebo_shuffled"),
)
COLUMNS = (
    ("stable", slice(None)),
    ("follow", slice(None)),
    ("reversal", BEFORE),
    ("reversal", AFTER),
    ("noise", slice(None)),
)


def head(worlds: dict[str, list[Played]]) -> str:
    """The table's head, with Pipe's own csIC."""
    names = ("stable", "follow", "reversal, before", "after", "noise")
    own = [np.mean([one.ic("pipe", stage) for one in worlds[kind]]) for kind, stage in COLUMNS]
    cells = " | ".join(f"{name} ({value:+.3f})" for name, value in zip(names, own, strict=True))
    return f"| mechanism | {cells} | p, stable | p, loss after |\n|---|{'---:|' * 7}"


def row(system: str, worlds: dict[str, list[Played]]) -> str:
    """One mechanism."""
    found = [gains(worlds[kind], system, stage) for kind, stage in COLUMNS]
    means = " | ".join(f"{values.mean():+.3f}" for values in found)
    return f"| {system} | {means} | {p_above_zero(found[0]):.2g} | {p_above_zero(-found[3]):.2g} |"


def main() -> None:
    """Measure and print a Markdown table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--worlds", type=int, default=12, help="of each kind")
    given = arguments.parse_args()
    worlds = play({name: kind.settings for name, kind in KINDS.items()}, SYSTEMS, given.worlds)
    print(head(worlds))
    for system in SYSTEMS:
        print(row(system, worlds))


if __name__ == "__main__":
    main()
