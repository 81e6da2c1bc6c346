"""The learned utility Q of memories: of those retrieved over the window, and of all that a run holds in the end.

What lives here: distributions, and the fold of a journal into final utilities. What must not: figures, files; the
journal comes through `Journal`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import pandas as pd

from finevolve_pipeline.embedding import Vectors
from finevolve_pipeline.mechanisms.base import MechanismSettings, Observations, Past, World
from finevolve_pipeline.mechanisms.memrl import UtilityMechanism

THIRDS = ("first", "second", "last")
"""Thirds of the prediction window, by session: when memories were retrieved."""

IN_THE_END = "end"
"""In place of a third: all memories that are held after the last session, retrieved or not."""

BINS = 25
"""Classes of equal width of a histogram of Q."""

FINAL_COLUMNS = ("experiment", "memory_id", "horizon", "q", "visits")

ONE_FOR_ALL = 0
"""Value of `horizon` where one Q serves all horizons."""


def no_utilities() -> pd.DataFrame:
    """The final utilities of no run."""
    return pd.DataFrame(columns=list(FINAL_COLUMNS))


class Journal(Protocol):
    """Read access to what runs wrote down."""

    def sessions(self, experiment: str) -> Sequence[dt.date]:
        """Committed sessions, oldest first."""

    def events(self, experiment: str, session: dt.date) -> Sequence[Mapping[str, Any]]:
        """The journal of a committed session, in the order it was applied."""


class _Unread:
    """A past whose news nobody compares: the Q of a memory does not depend on what it says."""

    def key(self, memory: str) -> Vectors:
        """A vector without entries."""
        return np.zeros(0, dtype=np.float32)


@dataclass(frozen=True)
class UtilityRun:
    """A run whose memories have a Q.

    Attributes:
        experiment: its key.
        kind: the mechanism's class.
        settings: the mechanism's.
        horizons: in sessions.
        codes: the industries it predicted.
    """

    experiment: str
    kind: type[UtilityMechanism]
    settings: MechanismSettings
    horizons: tuple[int, ...]
    codes: tuple[str, ...]

    def mechanism(self) -> UtilityMechanism:
        """The mechanism with an empty store, able to apply its journal and nothing else."""
        nothing = cast(Observations, None)
        return self.kind(self.settings, World(cast(Past, _Unread()), nothing, self.horizons, 0, self.codes))


def final_utilities(run: UtilityRun, journal: Journal) -> pd.DataFrame:
    """Q and visits of every memory after the last committed session.

    Returns:
        `FINAL_COLUMNS`: horizon is `ONE_FOR_ALL` where one Q serves all; q a fraction, as the excess returns that it is
        learned from. Memories that no outcome has touched have 0 visits and the initial Q.
    """
    mechanism = run.mechanism()
    for session in journal.sessions(run.experiment):
        for entry in journal.events(run.experiment, session):
            mechanism.apply(session, mechanism.decode(entry))
    rows = []
    for code in run.codes:
        for memory in mechanism.store(code).memories:
            utility = mechanism.utility(memory)
            own = run.horizons if len(utility.values) > 1 else (ONE_FOR_ALL,)
            rows += [
                (run.experiment, memory, horizon, q, utility.visits)
                for horizon, q in zip(own, utility.values, strict=True)
            ]
    return pd.DataFrame(rows, columns=list(FINAL_COLUMNS))


def retrieved_utilities(retrievals: pd.DataFrame, sessions: Sequence[str]) -> pd.DataFrame:
    """Retrieved memories that have a Q, with the third of the window in which they were retrieved.

    Args:
        retrievals: `Retrievals`.
        sessions: the prediction window, ISO, ascending.

    Returns:
        experiment, when (see `THIRDS`), q, visits; a row a retrieval.
    """
    with_q = retrievals.loc[retrievals["q"].notna(), ["experiment", "session", "q", "visits"]]
    third = {session: THIRDS[3 * at // len(sessions)] for at, session in enumerate(sessions)}
    return with_q.assign(when=with_q["session"].map(third)).loc[:, list(_COLUMNS)]


def all_utilities(retrievals: pd.DataFrame, final: pd.DataFrame, sessions: Sequence[str]) -> pd.DataFrame:
    """Utilities of retrieved memories, and of all that are held in the end.

    Args:
        retrievals: `Retrievals`.
        final: see `final_utilities`; where each horizon has a Q, a memory's is their mean, which ranks it.
        sessions: the prediction window, ISO, ascending.

    Returns:
        experiment, when (see `THIRDS` and `IN_THE_END`), q, visits; experiment by experiment, in the order of time.
    """
    held = final.groupby(["experiment", "memory_id"], sort=False)[["q", "visits"]].mean().reset_index()
    held = held.assign(when=IN_THE_END).loc[:, list(_COLUMNS)]
    parts = [part for part in (retrieved_utilities(retrievals, sessions), held) if len(part)]
    if not parts:
        return pd.DataFrame(columns=list(_COLUMNS))
    both = pd.concat(parts, ignore_index=True)
    order = {when: at for at, when in enumerate((*THIRDS, IN_THE_END))}
    return both.sort_values(
        ["experiment", "when"], key=lambda keys: keys.map(lambda key: order.get(key, key)), kind="stable"
    )


_COLUMNS = ("experiment", "when", "q", "visits")


def utility_summary(utilities: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """What is known of Q by `keys`, groups in order of appearance.

    Returns:
        the keys; memories, untouched (share without a visit), negative, positive (shares), q10, median, q90,
        visits (median).
    """
    rows = []
    for group, part in utilities.groupby(list(keys), sort=False):
        q = part["q"]
        rows.append(
            {
                **dict(zip(keys, group, strict=True)),
                "memories": len(part),
                "untouched": (part["visits"] == 0).mean(),
                "negative": (q < 0).mean(),
                "positive": (q > 0).mean(),
                "q10": q.quantile(0.1),
                "median": q.median(),
                "q90": q.quantile(0.9),
                "visits": part["visits"].median(),
            }
        )
    names = ["memories", "untouched", "negative", "positive", "q10", "median", "q90", "visits"]
    return pd.DataFrame(rows, columns=[*keys, *names])


def utility_histogram(utilities: pd.DataFrame, keys: Sequence[str], bins: int = BINS) -> pd.DataFrame:
    """Share of memories by class of Q, within each group of `keys`; the same classes for all groups.

    Classes are symmetric about zero, so that zero, where most memories begin, is the middle of one (`bins` is odd).

    Returns:
        the keys; low, high (ends of the class), memories, share (of the group). Classes without any have rows too.
    """
    columns = [*keys, "low", "high", "memories", "share"]
    if utilities.empty:
        return pd.DataFrame(columns=columns)
    reach = float(utilities["q"].abs().max()) or 1.0
    edges = np.linspace(-reach, reach, bins + 1)
    parts = []
    for group, part in utilities.groupby(list(keys), sort=False):
        counts, _ = np.histogram(part["q"], edges)
        named = dict(zip(keys, group, strict=True))
        parts.append(
            pd.DataFrame(
                {**named, "low": edges[:-1], "high": edges[1:], "memories": counts, "share": counts / len(part)}
            )
        )
    return pd.concat(parts, ignore_index=True).loc[:, columns]
