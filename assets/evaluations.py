"""How asset checks stand, by the evaluations that Dagster has recorded.

A run evaluates a check for the partitions that it materialises and says one thing about them all, so the newest
evaluation says nothing about the others: what failed stands until its partitions have been looked at again.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

import dagster as dg
from dagster._core.storage.asset_check_execution_record import (
    AssetCheckExecutionRecord,
    AssetCheckExecutionRecordStatus,
)
from dagster._core.storage.tags import PARTITION_NAME_TAG

from assets.planning import RANGE_END, RANGE_START

_PAGE = 500
"""Evaluations read at a time."""


class Verdict(Enum):
    """What came of an evaluation, or, of a check that no run was ever to evaluate, that there is none."""

    PASSED = "passed"
    WARNED = "warned"
    FAILED = "failed"
    NOT_EVALUATED = "not evaluated"
    NEVER = "never"


@dataclass(frozen=True)
class Evaluation:
    """One run's evaluation of a check. `partitions`: those that it looked at; None: not known."""

    verdict: Verdict
    partitions: frozenset[str] | None
    at: dt.datetime
    run: str
    text: str


@dataclass(frozen=True)
class CheckStanding:
    """A check with the evaluations that stand: those that went wrong and, if none did, the newest; none if never."""

    asset: str
    check: str
    evaluations: tuple[Evaluation, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst that stands."""
        found = {evaluation.verdict for evaluation in self.evaluations}
        worst_first = (Verdict.FAILED, Verdict.NOT_EVALUATED, Verdict.WARNED, Verdict.PASSED)
        return next((verdict for verdict in worst_first if verdict in found), Verdict.NEVER)


def still_standing(newest_first: Iterable[Evaluation], every: frozenset[str]) -> tuple[Evaluation, ...]:
    """The evaluations that went wrong and have a partition that no later one looked at; if none, the newest.

    `every` is all partitions of the asset, for which evaluations of unknown partitions speak if they went wrong;
    if they went well, they speak for none.
    """
    wrong: list[Evaluation] = []
    newest: Evaluation | None = None
    seen: set[str] = set()
    for evaluation in newest_first:
        newest = newest or evaluation
        went_well = evaluation.verdict is Verdict.PASSED
        unknown: frozenset[str] = frozenset() if went_well else every
        looked_at = unknown if evaluation.partitions is None else evaluation.partitions
        if not went_well and not looked_at <= seen:
            wrong.append(evaluation)
        seen |= looked_at
        if every <= seen:
            break
    return tuple(wrong) if wrong or newest is None else (newest,)


def check_standings(
    definitions: dg.Definitions, instance: dg.DagsterInstance, assets: Collection[str] = ()
) -> list[CheckStanding]:
    """How every check of the given assets (none given: of all) stands, by asset and name."""
    graph = definitions.resolve_asset_graph()
    found: list[CheckStanding] = []
    for key in sorted(graph.asset_check_keys, key=str):
        asset = key.asset_key.to_user_string()
        if assets and asset not in assets:
            continue
        looked_at = _LookedAt(graph.get(key.asset_key).partitions_def)
        standing = still_standing(_evaluations(instance, key, looked_at), looked_at.every)
        found.append(CheckStanding(asset, key.name, standing))
    return found


class _LookedAt:
    """The partitions of an asset that a run was for, by its tags."""

    def __init__(self, partitions: dg.PartitionsDefinition | None) -> None:
        self._partitions = partitions
        self.every = frozenset[str]({""} if partitions is None else partitions.get_partition_keys())
        self._ranges: dict[tuple[str, str], frozenset[str]] = {}

    def by(self, run: dg.DagsterRun | None) -> frozenset[str] | None:
        """All of them if the run named none; None if it is forgotten, or named some that are no more."""
        if run is None:
            return None
        one = run.tags.get(PARTITION_NAME_TAG)
        first, last = run.tags.get(RANGE_START, one), run.tags.get(RANGE_END, one)
        if self._partitions is None or first is None or last is None:
            return self.every
        if first not in self.every or last not in self.every:
            return None
        if (first, last) not in self._ranges:
            between = self._partitions.get_partition_keys_in_range(dg.PartitionKeyRange(first, last))
            self._ranges[first, last] = frozenset(between)
        return self._ranges[first, last]


def _evaluations(instance: dg.DagsterInstance, key: dg.AssetCheckKey, looked_at: _LookedAt) -> Iterator[Evaluation]:
    """A check's evaluations, newest first, read as far as they are asked for."""
    cursor = None
    while True:
        page = instance.event_log_storage.get_asset_check_execution_history(key, limit=_PAGE, cursor=cursor)
        if not page:
            return
        wanted = dg.RunsFilter(run_ids=list({record.run_id for record in page}))
        runs = {run.run_id: run for run in instance.get_runs(wanted)}
        for record in page:
            yield _evaluation(record, runs.get(record.run_id), looked_at)
        cursor = page[-1].id


def _evaluation(record: AssetCheckExecutionRecord, run: dg.DagsterRun | None, looked_at: _LookedAt) -> Evaluation:
    at = dt.datetime.fromtimestamp(record.create_timestamp, dt.UTC)
    partitions = looked_at.by(run)
    if record.status is AssetCheckExecutionRecordStatus.PLANNED:
        how = "has not ended" if run is not None and not run.is_finished else "ended before it was evaluated"
        return Evaluation(Verdict.NOT_EVALUATED, partitions, at, record.run_id, f"its run {how}")
    told = record.evaluation
    text = (told.description if told else None) or ""
    if record.status is AssetCheckExecutionRecordStatus.SUCCEEDED:
        return Evaluation(Verdict.PASSED, partitions, at, record.run_id, text)
    only_warned = told is not None and told.severity is dg.AssetCheckSeverity.WARN
    return Evaluation(Verdict.WARNED if only_warned else Verdict.FAILED, partitions, at, record.run_id, text)
