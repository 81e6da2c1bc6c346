"""The sensors that tell people: failed runs, and data that is late or has fallen silent.

They are plain sensors with a cursor of their own: Dagster's run-failure sensor moves on when its function fails, and a
message that could not be sent would be lost. Here it stays on the board until it was told. What is told, and when
anew, is decided in `finevolve_pipeline.alerts`; how it travels, in `resources.alerts`.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg
from dagster._core.definitions.freshness import FreshnessState
from dagster._core.storage.dagster_run import RunRecord
from dagster._core.storage.tags import PARTITION_NAME_TAG, WILL_RETRY_TAG

from assets.automation import SOURCE_TAG, crawled, fetched_bars
from assets.checks import silence_of
from assets.following import BARS_AT, owed
from assets.planning import RANGE_END, RANGE_START
from finevolve_pipeline import alerts, calendar
from finevolve_pipeline.alerts import Board, Condition, FailedRun
from finevolve_pipeline.calendar import Clock, shanghai_now
from finevolve_pipeline.errors import FinEvolveError, SettingsError
from finevolve_pipeline.graph import Graph
from finevolve_pipeline.news import coverage
from finevolve_pipeline.settings import Settings
from resources.alerts import AlertError, Channel, channels, secrets
from resources.coverage_store import CoverageStore
from resources.table_store import TableStore

_OVERLAP = dt.timedelta(minutes=1)
"""Runs may be recorded a little out of order."""

_MOST_RUNS = 1000
_SECONDS_OF_A_TICK = 20.0
"""No further message is begun after that; a tick that lasts a minute is ended from outside."""

_LATE_DAYS = 7
_GRACE = dt.timedelta(hours=2)
_NOTHING = "no alerts: [alerts] names neither a webhook nor e-mail"


def alert_sensors(
    graph: Graph, environment: Mapping[str, str], clock: Clock = shanghai_now
) -> list[dg.SensorDefinition]:
    """Both sensors.

    Args:
        graph: the dataset.
        environment: variables, for the secrets that the settings name.
        clock: the present.
    """
    settings = graph.settings

    def ways(context: dg.SensorEvaluationContext) -> Sequence[Channel] | dg.SkipReason:
        """The channels, or why there are none; then the cursor stays, so that nothing is lost."""
        try:
            return channels(settings.alerts, environment) or dg.SkipReason(_NOTHING)
        except SettingsError as missing:
            context.log.error(str(missing))
            return dg.SkipReason(f"nothing is told: {missing}")

    @dg.sensor(name="alert_failed_runs", minimum_interval_seconds=60)
    def alert_failed_runs(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        """Tell of each run that failed, once while it fails the same way; one that succeeds ends that."""
        found = ways(context)
        if isinstance(found, dg.SkipReason):
            return found
        cursor = _cursor(context)
        if not cursor:
            begun = _Runs(clock(), {}, Board())
            return dg.SensorResult(skip_reason="failures from now on are told", cursor=begun.text())
        runs = _Runs.of(context, cursor)
        for record in _finished(context.instance, runs):
            runs = runs.after(record, _outcome(runs.board, context.instance, record, secrets(settings, environment)))
        board, said = _tell(context, runs.board, found, clock())
        return dg.SensorResult(skip_reason=said, cursor=replace(runs, board=board).text())

    @dg.sensor(name="alert_late_data", minimum_interval_seconds=900)
    def alert_late_data(
        context: dg.SensorEvaluationContext, store: dg.ResourceParam[TableStore]
    ) -> dg.SensorResult | dg.SkipReason:
        """Tell of sources that are late, partial for long, refused or silent, of tables and chains that are late, and
        of what experiments have read and would be otherwise now."""
        found = ways(context)
        if isinstance(found, dg.SkipReason):
            return found
        now, cursor = clock(), _cursor(context)
        board = _board(context, cursor["board"]) if cursor else Board()
        board = board.showing(
            [
                *_of_sources(settings, store, now),
                *_of_tables(context.instance, settings, store, now),
                *_of_what_is_owed(graph, store, now),
            ]
        )
        board, said = _tell(context, board, found, now)
        return dg.SensorResult(skip_reason=said, cursor=json.dumps({"board": board.document()}))

    return [alert_failed_runs, alert_late_data]


@dataclass(frozen=True)
class _Runs:
    """How far runs were looked at: last change seen, and the runs around it, since some are recorded out of order."""

    since: dt.datetime
    seen: Mapping[str, str]
    board: Board

    def text(self) -> str:
        """As a cursor."""
        return json.dumps({"since": self.since.isoformat(), "seen": self.seen, "board": self.board.document()})

    @staticmethod
    def of(context: dg.SensorEvaluationContext, cursor: Mapping[str, Any]) -> _Runs:
        """What a cursor says."""
        try:
            since = dt.datetime.fromisoformat(cursor["since"])
            return _Runs(since, dict(cursor["seen"]), _board(context, cursor["board"]))
        except (KeyError, TypeError, ValueError) as broken:
            raise _unreadable(context) from broken

    def after(self, record: RunRecord, board: Board) -> _Runs:
        """The same when a run was looked at."""
        since = max(self.since, record.update_timestamp)
        seen = {**self.seen, record.dagster_run.run_id: record.update_timestamp.isoformat()}
        recent = {run: at for run, at in seen.items() if dt.datetime.fromisoformat(at) > since - _OVERLAP}
        return _Runs(since, recent, board)


def _finished(instance: dg.DagsterInstance, runs: _Runs) -> Iterator[RunRecord]:
    """Runs that ended and were not looked at, in order."""
    ended = dg.RunsFilter(
        statuses=[dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS],
        updated_after=(runs.since - _OVERLAP).astimezone(dt.UTC),
    )
    records = instance.get_run_records(ended, limit=_MOST_RUNS, order_by="update_timestamp", ascending=True)
    for record in records:
        if record.dagster_run.run_id not in runs.seen:
            yield record


def _outcome(board: Board, instance: dg.DagsterInstance, record: RunRecord, hidden: Collection[str]) -> Board:
    """The board when a run has ended. One that will be tried again by Dagster itself has not failed yet."""
    run = record.dagster_run
    job = run.job_name
    if job.startswith("__"):  # made for a selection of assets
        job = ", ".join(sorted(key.to_user_string() for key in run.asset_selection or ())) or job
    single = run.tags.get(PARTITION_NAME_TAG)
    first, last = run.tags.get(RANGE_START, single), run.tags.get(RANGE_END, single)
    subject = run.tags.get(SOURCE_TAG, (first or "").partition("|")[2])
    if run.status == dg.DagsterRunStatus.SUCCESS:
        return board.cleared(alerts.run_id(job, subject))
    if run.tags.get(WILL_RETRY_TAG) == "true":
        return board
    partitions = (first, last) if first is not None and last is not None else None
    failed = FailedRun(job, subject, partitions, _error(instance, run), run.run_id)
    return board.raised(alerts.failed_run(failed, hidden))


def _error(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str:
    """What a run ended with: the root cause of its first failed step, else what Dagster says of the run."""
    kinds = {dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE}
    said = ""
    for record in instance.get_records_for_run(run.run_id, of_type=kinds, limit=20).records:
        event = record.event_log_entry.dagster_event
        if event is None:
            continue
        error = getattr(event.event_specific_data, "error", None)
        if event.event_type == dg.DagsterEventType.STEP_FAILURE and error is not None:
            while error.cause is not None:
                error = error.cause
            return str(error.message)
        said = said or event.message or ""
    return said


def _of_sources(settings: Settings, store: TableStore, now: dt.datetime) -> Iterator[Condition]:
    """What is wrong with the sources; one that was never asked owes nothing, nor a day that is not to be crawled."""
    kept = CoverageStore(store.home)
    grace = dt.timedelta(minutes=settings.crawl.settle_minutes) + _GRACE
    first = max(settings.news.first_day, settings.crawl.first_day or settings.news.first_day)
    days = _past_days(now, first, settings.news.last_day) if settings.crawl.enabled else ()
    for source in crawled(settings):
        known = kept.shown(source)
        yield from alerts.source_conditions(
            known,
            coverage.given_up(known, now),
            coverage.never_closed(known, days, now, grace),
            silence_of(store, known, now),
        )


def _of_tables(
    instance: dg.DagsterInstance, settings: Settings, store: TableStore, now: dt.datetime
) -> Iterator[Condition]:
    """Which tables that are fetched are late."""
    sessions = [
        day
        for day in _past_days(now, settings.market.first_session, settings.market.last_session, now.date())
        if day in settings.market.sessions and now >= dt.datetime.combine(day, BARS_AT, calendar.SHANGHAI) + _GRACE
    ]
    for table in fetched_bars(settings):
        lacking = [day.isoformat() for day in sessions if store.stored(table, day.isoformat()) is None]
        yield from alerts.missing_bars(table, lacking)
    key = dg.AssetKey("raw_news")
    if settings.crawl.enabled and settings.news.first_day <= now.date() <= settings.news.last_day:
        state = instance.get_freshness_state_records([key]).get(key)
        if state is not None and state.freshness_state == FreshnessState.FAIL:
            yield alerts.overdue("raw_news")


def _of_what_is_owed(graph: Graph, store: TableStore, now: dt.datetime) -> Iterator[Condition]:
    """What stays late in a home that follows the present, and which inputs of replayed days have changed since."""
    if not graph.settings.crawl.enabled:
        return
    found = owed(graph, store, now, crawled(graph.settings))
    for name, keys in found.late.items():
        yield from alerts.late_partitions(name, keys)
    for name, keys in found.kept.items():
        yield from alerts.revised_inputs(name, keys)


def _past_days(now: dt.datetime, first: dt.date, last: dt.date, until: dt.date | None = None) -> tuple[dt.date, ...]:
    """Days of the last week up to yesterday, or up to the day given, that lie in a span."""
    end = until or now.date() - dt.timedelta(days=1)
    return calendar.days_between(max(first, now.date() - dt.timedelta(days=_LATE_DAYS)), min(last, end))


def _tell(
    context: dg.SensorEvaluationContext, board: Board, ways: Sequence[Channel], now: dt.datetime
) -> tuple[Board, str]:
    """Tell each channel what it does not know. One that is out of order is left until the next tick."""
    began, sent, troubles = time.monotonic(), 0, list[str]()
    for channel in ways:
        for condition in board.untold(channel.name):
            if time.monotonic() - began > _SECONDS_OF_A_TICK:
                troubles.append(f"{channel.name}: the rest is told at the next tick")
                break
            try:
                said = channel.send(condition.message, now)
            except AlertError as failed:
                context.log.error(f"not told: {condition.message.subject}: {failed}")
                troubles.append(str(failed))
                break
            context.log.info(f"told by {channel.name} ({said}): {condition.message.subject}")
            board, sent = board.after_telling(channel.name, condition), sent + 1
    open_ones = f"{len(board.open)} conditions hold, {sent} messages were sent"
    return board, "; ".join([open_ones, *troubles])


def _cursor(context: dg.SensorEvaluationContext) -> Mapping[str, Any]:
    """The cursor's values; none if there is no cursor yet."""
    try:
        found = json.loads(context.cursor) if context.cursor else {}
    except ValueError as broken:
        raise _unreadable(context) from broken
    if not isinstance(found, dict) or (found and "board" not in found):
        raise _unreadable(context)
    return found


def _board(context: dg.SensorEvaluationContext, document: Mapping[str, Any]) -> Board:
    try:
        return Board.of_document(document)
    except (KeyError, TypeError, ValueError) as broken:
        raise _unreadable(context) from broken


def _unreadable(context: dg.SensorEvaluationContext) -> FinEvolveError:
    return FinEvolveError(f"sensor {context.sensor_name}: its cursor is not readable; reset it in the Dagster UI")
