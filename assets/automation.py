"""Jobs, schedules, sensors and conditions: what runs by itself, and how fresh tables from outside must be.

By day, every source is asked for today's news, and the market after its close. By night, schedules ask for exactly the
partition that has just closed (Asia/Shanghai), layer after layer with time between them. What they missed, and what
late news and revised closes have changed, is asked for by the sensor `catch_up` (see `assets.following`). Nothing here
cascades down the replay chain: each asks for one session of an experiment at a time.

Tables without partitions rest on all of the history, which is never complete while it goes on, so Dagster's ready-made
conditions would never fire. They have conditions of their own: made again when what they rest on was made.

Whether a home follows the present at all is said by its settings: `[crawl] enabled`, and sources under `[market]`.
"""

import datetime as dt
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES

from assets.following import (
    BARS_AT,
    INPUTS_LATER,
    NEWS_LATER,
    REPLAY_LATER,
    Work,
    closing_minutes,
    is_read,
    not_ready,
    owed,
)
from assets.planning import EVALUATION, RANGE_END, RANGE_START
from finevolve_pipeline import calendar
from finevolve_pipeline.calendar import Clock, shanghai_now
from finevolve_pipeline.graph import Graph, news_key
from finevolve_pipeline.news import coverage
from finevolve_pipeline.news.coverage import SourceCoverage
from finevolve_pipeline.news.coverage_table import UNREADABLE
from finevolve_pipeline.partitions import DATE, EXPERIMENT, SOURCE
from finevolve_pipeline.replay.clock import INPUTS
from finevolve_pipeline.settings import Settings
from resources.coverage_store import CoverageStore
from resources.landing import BENCHMARK_BARS, INDUSTRY_BARS
from resources.market import configured
from resources.news_sites import spiders
from resources.table_store import TableStore

_TIME_ZONE = "Asia/Shanghai"

SOURCE_TAG = "finevolve/source"
"""Of every run that crawls; dagster.yaml lets one run at a time have each value."""

NEWS_POLICY = dg.FreshnessPolicy.time_window(fail_window=dt.timedelta(hours=3), warn_window=dt.timedelta(minutes=90))
"""Of raw_news as a whole: some source is crawled every half hour. Each single one is looked after by the alerts."""

EXPERIMENT_TAG = "finevolve/experiment"
"""Of every run that replays by itself."""

CATCH_UP_TAG = "finevolve/catch_up"
ASKED_AT_TAG = "finevolve/asked_at"
"""Of every run that makes up for something: what it began with, and when it was asked for."""

_FIRST_WAIT, _LONGEST_WAIT = dt.timedelta(minutes=30), dt.timedelta(hours=4)
"""Before the second try of catching up with one thing; doubled from then on, up to the longest."""

_LATER = {"daily_news": NEWS_LATER, "daily_session_inputs": INPUTS_LATER, "daily_replay": REPLAY_LATER}
"""Minutes from the closing of yesterday's news to a schedule of the night."""

_REPORT_CRON = "0 5 * * *"
_RELEASE_CRON = "0 6 * * 0"


@dataclass(frozen=True)
class Automation:
    """What runs by itself, once it is switched on."""

    jobs: list[dg.JobDefinition | UnresolvedAssetJobDefinition]
    schedules: list[dg.ScheduleDefinition]
    sensors: list[dg.SensorDefinition]


def crawled(settings: Settings) -> tuple[str, ...]:
    """Sources of the settings that a spider reads."""
    return tuple(source for source in settings.news.sources if source in spiders())


def fetched_bars(settings: Settings) -> tuple[str, ...]:
    """Tables of bars that have a source; the others are imported when somebody likes."""
    return tuple(table for table in (INDUSTRY_BARS, BENCHMARK_BARS) if configured(settings, table))


def with_freshness(assets: Iterable[dg.AssetsDefinition], settings: Settings) -> list[dg.AssetsDefinition]:
    """The assets, with freshness policies on those that are fetched: news that is crawled, bars that have a source.

    A policy looks at an asset as a whole and knows no calendar: bars are late only when the longest closure of the
    market is over. Which single day of which source, and which session, is late is told by the alerts.
    """
    closure = dt.timedelta(days=calendar.longest_closure(calendar.all_sessions()) + 1)
    bars = dg.FreshnessPolicy.time_window(fail_window=closure)
    policies = {dg.AssetKey(table): bars for table in fetched_bars(settings)}
    if settings.crawl.enabled:
        policies[dg.AssetKey("raw_news")] = NEWS_POLICY

    def fresh(spec: dg.AssetSpec) -> dg.AssetSpec:
        return dg.apply_freshness_policy(spec, policies[spec.key]) if spec.key in policies else spec

    return list(dg.map_asset_specs(fresh, assets))


Condition = dg.AutomationCondition[dg.AssetKey | dg.AssetCheckKey]


def _made_again(*upstream: str) -> Condition:
    """When one of these dependencies (none named: any) was made since, and no dependency is being made.

    A dependency without partitions must be there; the others are never complete while history goes on.
    """
    chosen = dg.AssetSelection.assets(*upstream) if upstream else dg.AssetSelection.all()
    made = dg.AutomationCondition.newly_updated() | dg.AutomationCondition.will_be_requested()
    changed = dg.AutomationCondition.any_deps_match(made).allow(chosen).since_last_handled()
    idle = ~dg.AutomationCondition.in_progress() & ~dg.AutomationCondition.any_deps_in_progress()
    whole = dg.AssetSelection.assets(*_CONDITIONS)
    return changed & idle & ~dg.AutomationCondition.any_deps_missing().allow(whole)


def _once_a_tick(cron: str) -> Condition:
    """The same of any dependency, but not before a tick of the clock in Shanghai has passed."""
    ticked: Any = dg.AutomationCondition.cron_tick_passed(cron, _TIME_ZONE)
    both: Condition = _made_again() & ticked.since_last_handled()
    return both


_CONDITIONS = {
    "alpha": lambda: _made_again(),
    "label_bases": lambda: _made_again(),
    "ic_matrix": lambda: _made_again("ic_by_experiment"),
    "comparison": lambda: _made_again("ic_matrix"),
    "inference": lambda: _made_again("ic_by_experiment"),
    "sensitivity": lambda: _made_again("ic_by_experiment"),
    "report": lambda: _once_a_tick(_REPORT_CRON),
    "benchmark_release": lambda: _once_a_tick(_RELEASE_CRON),
}
"""Of tables without partitions; whatever changes labels changes coefficients too. Coefficients are asked for by
`catch_up`: only it knows which experiments have any."""


def with_conditions(assets: Iterable[dg.AssetsDefinition]) -> list[dg.AssetsDefinition]:
    """The assets, with automation conditions on tables without partitions."""

    def conditioned(spec: dg.AssetSpec) -> dg.AssetSpec:
        build = _CONDITIONS.get(spec.key.to_user_string())
        return spec if build is None else spec.replace_attributes(automation_condition=build())

    return list(dg.map_asset_specs(conditioned, assets))


def due_spans(known: SourceCoverage, days: Iterable[dt.date], now: dt.datetime) -> tuple[tuple[str, ...], ...]:
    """Partial days of those given whose next try is due, consecutive ones together, oldest first."""
    allowed = {day.isoformat() for day in days}
    due = [dt.date.fromisoformat(day) for day in coverage.to_retry(known, now) if day in allowed]
    # Consecutive days have the same difference between date and position.
    runs = itertools.groupby(enumerate(due), lambda numbered: numbered[1].toordinal() - numbered[0])
    return tuple(tuple(day.isoformat() for _, day in run) for _, run in runs)


def automation(graph: Graph, clock: Clock = shanghai_now) -> Automation:
    """Jobs, schedules and sensors; `clock` is what the sensors go by."""
    raw_news = dg.define_asset_job("raw_news_day", dg.AssetSelection.assets("raw_news"))
    news_tables = dg.define_asset_job(
        "news_day", dg.AssetSelection.assets("articles", "tagged_articles", "benchmark_news")
    )
    bars = dg.define_asset_job("market_session", dg.AssetSelection.assets("industry_bars", "benchmark_bars"))
    inputs = dg.define_asset_job("session_inputs", dg.AssetSelection.assets("news_window", "matured_alpha"))
    replay = dg.define_asset_job("replay_session", dg.AssetSelection.assets("replay"))
    experiment = dg.define_asset_job("experiment_ic", dg.AssetSelection.assets("ic_by_experiment"))
    evaluation = dg.define_asset_job(
        "evaluation",
        dg.AssetSelection.assets(*EVALUATION),
        description="Tables, report and release from stored predictions: what CI materialises.",
    )

    def yesterday(context: dg.ScheduleEvaluationContext) -> dt.date:
        return context.scheduled_execution_time.astimezone(calendar.SHANGHAI).date() - dt.timedelta(days=1)

    def today(context: dg.ScheduleEvaluationContext) -> dt.date:
        return context.scheduled_execution_time.astimezone(calendar.SHANGHAI).date()

    def in_news_span(day: dt.date) -> bool:
        return graph.settings.news.first_day <= day <= graph.settings.news.last_day

    crawl = graph.settings.crawl
    closing = closing_minutes(graph.settings)

    def at(name: str) -> str:
        """When a schedule of the night ticks: all keep their distance to the closing of yesterday's news."""
        hour, minute = divmod(closing + _LATER.get(name, 0), 60)
        return f"{minute} {hour} * * *"

    def may_crawl(day: dt.date) -> bool:
        return crawl.first_day is None or day >= crawl.first_day

    @dg.schedule(job=raw_news, cron_schedule="*/30 * * * *", execution_timezone=_TIME_ZONE, name="crawl_today")
    def crawl_today(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
        """Ask every source for today's news, each in a run of its own; one that is still being asked is left out."""
        day = today(context)
        if not crawl.enabled:
            yield dg.SkipReason("[crawl] enabled is false")
            return
        if not (in_news_span(day) and may_crawl(day)):
            yield dg.SkipReason(f"{day} lies outside the news span, or before [crawl] first_day")
            return
        tick = context.scheduled_execution_time.astimezone(calendar.SHANGHAI)
        sources = crawled(graph.settings)
        busy = _busy(context.instance, sources)
        for source in sources:
            if source not in busy:
                key = dg.MultiPartitionKey({DATE: day.isoformat(), SOURCE: source})
                yield dg.RunRequest(f"{tick:%Y-%m-%dT%H:%M}|{source}", partition_key=key, tags={SOURCE_TAG: source})
        if len(busy) == len(sources):
            yield dg.SkipReason(f"every source is still being asked: {', '.join(sources) or 'there is none'}")

    @dg.schedule(job=raw_news, cron_schedule=at("daily_raw_news"), execution_timezone=_TIME_ZONE, name="daily_raw_news")
    def daily_raw_news(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
        """Close yesterday's news of every source: of those that are crawled, or of all where imports bring them."""
        day = yesterday(context)
        if not in_news_span(day):
            yield dg.SkipReason(f"{day} lies outside the news span")
            return
        for source in crawled(graph.settings) if crawl.enabled else graph.sources:
            key = dg.MultiPartitionKey({DATE: day.isoformat(), SOURCE: source})
            yield dg.RunRequest(run_key=f"{day}|{source}", partition_key=key, tags={SOURCE_TAG: source})

    @dg.schedule(job=news_tables, cron_schedule=at("daily_news"), execution_timezone=_TIME_ZONE, name="daily_news")
    def daily_news(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        """Clean, tag and select yesterday's news."""
        day = yesterday(context)
        if not in_news_span(day):
            return dg.SkipReason(f"{day} lies outside the news span")
        return dg.RunRequest(run_key=day.isoformat(), partition_key=day.isoformat())

    @dg.schedule(
        job=bars,
        cron_schedule=f"{BARS_AT.minute} {BARS_AT.hour} * * *",
        execution_timezone=_TIME_ZONE,
        name="daily_bars",
    )
    def daily_bars(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        """Today's bars after the close, if it is a session, with the sessions before it that are asked for again."""
        day, market = today(context), graph.settings.market
        if day not in market.sessions:
            return dg.SkipReason(f"{day} is no session of the market span")
        newest = [session for session in market.sessions if session <= day][-max(1, market.recheck_sessions) :]
        span = {RANGE_START: newest[0].isoformat(), RANGE_END: day.isoformat()}
        return dg.RunRequest(run_key=day.isoformat(), tags=span)

    @dg.schedule(
        job=inputs,
        cron_schedule=at("daily_session_inputs"),
        execution_timezone=_TIME_ZONE,
        name="daily_session_inputs",
    )
    def daily_session_inputs(
        context: dg.ScheduleEvaluationContext, store: dg.ResourceParam[TableStore]
    ) -> dg.RunRequest | dg.SkipReason:
        """Yesterday's news window and matured outcomes, if it was a session of the window and they can be made."""
        day = yesterday(context)
        if day not in graph.sessions:
            return dg.SkipReason(f"{day} is no session of the prediction window")
        if is_read(graph, store, day):
            return dg.SkipReason(f"{day} has been replayed: its inputs stay as they were read")
        tables = (graph.tables[name] for name in INPUTS)
        absent = [item for table in tables for item in table.recipe(day.isoformat(), store).absent]
        if absent:
            return dg.SkipReason(f"{day}: {absent[0].table} {absent[0].partition} is not there yet; catch_up will ask")
        return dg.RunRequest(run_key=day.isoformat(), partition_key=day.isoformat())

    @dg.schedule(job=replay, cron_schedule=at("daily_replay"), execution_timezone=_TIME_ZONE, name="daily_replay")
    def daily_replay(
        context: dg.ScheduleEvaluationContext, store: dg.ResourceParam[TableStore]
    ) -> Iterator[dg.RunRequest | dg.SkipReason]:
        """Yesterday's session for every followed experiment that stands before it: never the rest of a chain."""
        day = yesterday(context)
        if day not in graph.sessions:
            yield dg.SkipReason(f"{day} is no session of the prediction window")
            return
        reasons = {one: not_ready(graph, store, one, day) for one in graph.settings.followed_experiments}
        for chosen in (one for one, reason in reasons.items() if not reason):
            key = dg.MultiPartitionKey({DATE: day.isoformat(), EXPERIMENT: chosen.key})
            yield dg.RunRequest(f"{day}|{chosen.key}", partition_key=key, tags={EXPERIMENT_TAG: chosen.key})
        if all(reasons.values()):
            yield dg.SkipReason("; ".join(reasons.values()))

    @dg.sensor(job=raw_news, name="retry_partial_days", minimum_interval_seconds=600)
    def retry_partial_days(
        context: dg.SensorEvaluationContext, store: dg.ResourceParam[TableStore]
    ) -> Iterator[dg.RunRequest | dg.SkipReason]:
        """Ask again for days of the last week that are partial, after 1, 2, 4... hours; days in a row in one run."""
        if not crawl.enabled:
            yield dg.SkipReason("[crawl] enabled is false")
            return
        now, sources = clock(), crawled(graph.settings)
        busy, waiting, requests = _busy(context.instance, sources), list[str](), list[dg.RunRequest]()
        days = [day for day in graph.calendar_days if may_crawl(day)]
        for source in sources:
            known = CoverageStore(store.home).shown(source)
            spans = due_spans(known, days, now)
            if known.state == UNREADABLE:
                waiting.append(known.reason)
            elif source in busy and spans:
                waiting.append(f"{source}: it is being asked")
            elif not spans and (later := coverage.next_retry(known, now)) is not None:
                waiting.append(f"{source}: {later[0]} again at {later[1].astimezone(calendar.SHANGHAI):%m-%d %H:%M}")
            requests += [_retry(source, span, known) for span in spans if source not in busy]
        yield from requests
        if not requests:
            yield dg.SkipReason("; ".join(waiting) or "no day of the last week is partial")

    made_up_for = [raw_news, news_tables, bars, inputs, replay, experiment]

    @dg.sensor(jobs=made_up_for, name="catch_up", minimum_interval_seconds=600)
    def catch_up(
        context: dg.SensorEvaluationContext, store: dg.ResourceParam[TableStore]
    ) -> Iterator[dg.RunRequest | dg.SkipReason]:
        """Ask for what is missing or has changed of the last days, each thing again after 30, 60, 120, 240... minutes.

        In a tick one run of each job, of each source and of each chain: the oldest that can be made. A chain's next
        session is asked for when the one before it is stored.
        """
        now = clock()
        found = owed(graph, store, now, crawled(graph.settings))
        unfinished = _unfinished(context.instance)
        waiting, requests = list(found.notes), dict[tuple[str, ...], dg.RunRequest]()
        for work in found.work:
            place = (work.job, work.subject, *work.tables)
            busy = {(work.job, work.subject), (work.job, "")} & unfinished
            if work.job == experiment.name:
                busy |= {one for one in unfinished if one[0] == replay.name}
            if busy or place in requests:
                waiting.append(f"{work.mark}: a run of {work.job} comes first")
                continue
            tries = _tries(context.instance, work)
            due = max(tries) + min(_FIRST_WAIT * (1 << min(len(tries) - 1, 8)), _LONGEST_WAIT) if tries else now
            if due > now:
                waiting.append(f"{work.mark}: again at {due.astimezone(calendar.SHANGHAI):%m-%d %H:%M}")
                continue
            requests[place] = _made_up(work, len(tries), now)
        waiting += [f"{name} {key}: stays as it was read" for name, keys in found.kept.items() for key in keys]
        yield from requests.values()
        if not requests:
            yield dg.SkipReason("; ".join(waiting) or "nothing is owed")

    evaluated = dg.AutomationConditionSensorDefinition(
        "keep_evaluated",
        target=dg.AssetSelection.assets(*_CONDITIONS),
        minimum_interval_seconds=60,
        description="Makes tables without partitions again when what they rest on was made: labels, tests, report.",
    )

    jobs: list[dg.JobDefinition | UnresolvedAssetJobDefinition] = [
        raw_news,
        news_tables,
        bars,
        inputs,
        replay,
        experiment,
        evaluation,
    ]
    schedules = [
        crawl_today,
        daily_raw_news,
        daily_news,
        daily_bars,
        daily_session_inputs,
        daily_replay,
    ]
    return Automation(jobs, schedules, [retry_partial_days, catch_up, evaluated])


def _made_up(work: Work, tries: int, now: dt.datetime) -> dg.RunRequest:
    """The run for a piece of work. Its key names the tries before it, so that each is made once."""
    subject = {"raw_news_day": SOURCE_TAG, "replay_session": EXPERIMENT_TAG}.get(work.job)
    return dg.RunRequest(
        f"{work.mark}|{tries}",
        job_name=work.job,
        asset_selection=[dg.AssetKey(name) for name in work.tables],
        tags={
            RANGE_START: work.first,
            RANGE_END: work.last,
            CATCH_UP_TAG: work.mark,
            ASKED_AT_TAG: now.isoformat(timespec="seconds"),
            **({subject: work.subject} if subject else {}),
        },
    )


def _tries(instance: dg.DagsterInstance, work: Work) -> list[dt.datetime]:
    """When runs were asked for to make up for the same."""
    runs = instance.get_runs(dg.RunsFilter(tags={CATCH_UP_TAG: work.mark}))
    return [dt.datetime.fromisoformat(run.tags[ASKED_AT_TAG]) for run in runs]


def _unfinished(instance: dg.DagsterInstance) -> set[tuple[str, str]]:
    """Job and subject of runs that wait or are under way."""
    runs = instance.get_runs(dg.RunsFilter(statuses=NOT_FINISHED_STATUSES))
    return {(run.job_name, run.tags.get(SOURCE_TAG) or run.tags.get(EXPERIMENT_TAG) or "") for run in runs}


def _retry(source: str, days: Sequence[str], known: SourceCoverage) -> dg.RunRequest:
    """One run for consecutive days of a source. Its key names the tries that it follows, so that each is made once."""
    tries = ",".join(f"{day} after {known.days[day].asked_at:%Y-%m-%dT%H:%M}" for day in days)
    first, last = (news_key(dt.date.fromisoformat(day), source) for day in (days[0], days[-1]))
    return dg.RunRequest(f"{source}|{tries}", tags={SOURCE_TAG: source, RANGE_START: first, RANGE_END: last})


def _busy(instance: dg.DagsterInstance, sources: Sequence[str]) -> set[str]:
    """Sources for which a run waits or is under way."""
    found = dg.RunsFilter(statuses=NOT_FINISHED_STATUSES, tags={SOURCE_TAG: list(sources)})
    return {run.tags[SOURCE_TAG] for run in instance.get_runs(found)} if sources else set()
