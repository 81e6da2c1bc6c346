"""Stages of the prediction window: cold start, exploitation and overall, split by prediction date.

What lives here: which sessions belong to which stage. What must not: any correlation.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

from finevolve_pipeline.settings import EvaluationSettings

COLD_START = "cold_start"
EXPLOITATION = "exploitation"
OVERALL = "overall"
STAGES = (COLD_START, EXPLOITATION, OVERALL)


@dataclass(frozen=True)
class Stage:
    """A run of consecutive sessions: positions `first` up to, not including, `end`."""

    name: str
    first: int
    end: int

    @property
    def positions(self) -> slice:
        """The stage's positions among the window's sessions."""
        return slice(self.first, self.end)

    @property
    def size(self) -> int:
        """Number of sessions."""
        return self.end - self.first


def cold_start_sessions(sessions: Sequence[str], settings: EvaluationSettings) -> int:
    """How many of the ascending ISO `sessions` belong to the cold start.

    `third` (the paper) and `half` take the floor of T/3 and T/2; `first_n` at most all; `date` those before.
    """
    count = len(sessions)
    if settings.stage_split == "third":
        return count // 3
    if settings.stage_split == "half":
        return count // 2
    if settings.stage_split == "first_n":
        return min(settings.stage_first_n, count)
    # The settings refuse a split by date without one.
    boundary = settings.stage_date.isoformat() if settings.stage_date else ""
    return bisect.bisect_left(list(sessions), boundary)


def split_stages(sessions: Sequence[str], settings: EvaluationSettings) -> tuple[Stage, Stage, Stage]:
    """Cold start, exploitation and overall of ascending ISO sessions. A stage may be empty."""
    count, cold = len(sessions), cold_start_sessions(sessions, settings)
    return Stage(COLD_START, 0, cold), Stage(EXPLOITATION, cold, count), Stage(OVERALL, 0, count)
