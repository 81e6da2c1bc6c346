"""Jobs, schedules, the sensor that retries partial days, and how fresh tables from outside must be.

By day, every source is asked for today's news, and the market after its close. By night, schedules ask for exactly the
partition that has just closed (Asia/Shanghai), layer after layer with time between them. Nothing here cascades down the
replay chain: one schedule asks for one new session of each experiment.

Whether a home follows the present at all is said by its settings: `[crawl] enabled`, and sources under `[market]`.
"""

import datetime as dt
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES

from assets.planning import EVALUATION, RANGE_END, RANGE_START
from finevolve_pipeline import calendar
from finevolve_pipeline.graph import Graph, news_key
from finevolve_pipeline.news import coverage
from finevolve_pipeline.news.coverage import SourceCoverage
from finevolve_pipeline.news.coverage_table import UNREADABLE
from finevolve_pipeline.partitions import DATE, EXPERIMENT, SOURCE
from finevolve_pipeline.settings import Settings
from resources.coverage_store import CoverageStore
from resources.landing import BENCHMARK_BARS, INDUSTRY_BARS
from resources.market import configured
from resources.news_sites import spiders
from resources.table_store import TableStore

_TIME_ZONE = "Asia/Shanghai"

SOURCE_TAG = "finevolve/source"
"""Of every run that crawls; dagster.yaml lets one run at a time have each value."""

Clock = Callable[[], dt.datetime]
"""Tells the present, aware."""

NEWS_POLICY = dg.FreshnessPolicy.time_window(fail_window=dt.timedelta(hours=3), warn_window=dt.timedelta(minutes=90))
"""Of raw_news as a whole: some source is crawled every half hour. Each single one is looked after by the alerts."""

_FIRST_CLOSING = 10
"""Minutes after midnight when yesterday's news is closed at the earliest."""

_LATER = {"daily_news": 40, "daily_session_inputs": 110, "daily_replay": 140}
_WEEKLY_LATER = {"weekly_labels": 140, "weekly_experiment_ic": 170, "weekly_rebuild": 200}
"""Minutes from that on."""

BARS_AT = dt.time(18, 10)
"""When the bars of a session are asked for, Asia/Shanghai: after the close, and after the sources have them."""


@dataclass(frozen=True)
class Automation:
    """What runs by itself, once it is switched on."""

    jobs: list[dg.JobDefinition | UnresolvedAssetJobDefinition]
    schedules: list[dg.ScheduleDefinition]
    sensors: list[dg.SensorDefinition]


def shanghai_now() -> dt.datetime:
    """The present."""
    return dt.datetime.now(calendar.SHANGHAI)


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


def due_spans(known: SourceCoverage, days: Iterable[dt.date], now: dt.datetime) -> tuple[tuple[str, ...], ...]:
    """Partial days of those given whose next try is due, consecutive ones together, oldest first."""
    allowed = {day.isoformat() for day in days}
    due = [dt.date.fromisoformat(day) for day in coverage.to_retry(known, now) if day in allowed]
    # Consecutive days have the same difference between date and position.
    runs = itertools.groupby(enumerate(due), lambda numbered: numbered[1].toordinal() - numbered[0])
    return tuple(tuple(day.isoformat() for _, day in run) for _, run in runs)


def automation(graph: Graph, clock: Clock = shanghai_now) -> Automation:
    """Jobs, schedules and the sensor that retries; `clock` is what the sensor goes by."""
    raw_news = dg.define_asset_job("raw_news_day", dg.AssetSelection.assets("raw_news"))
    news_tables = dg.define_asset_job(
        "news_day", dg.AssetSelection.assets("articles", "tagged_articles", "benchmark_news")
    )
    bars = dg.define_asset_job("market_session", dg.AssetSelection.assets("industry_bars", "benchmark_bars"))
    inputs = dg.define_asset_job("session_inputs", dg.AssetSelection.assets("news_window", "matured_alpha"))
    replay = dg.define_asset_job("replay_session", dg.AssetSelection.assets("replay"))
    labels = dg.define_asset_job("labels", dg.AssetSelection.assets("alpha", "label_bases"))
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
    closing = max(_FIRST_CLOSING, crawl.settle_minutes)

    def at(name: str) -> str:
        """When a schedule of the night ticks: all keep their distance to the closing of yesterday's news."""
        hour, minute = divmod(closing + {**_LATER, **_WEEKLY_LATER}.get(name, 0), 60)
        return f"{minute} {hour} * * {0 if name in _WEEKLY_LATER else '*'}"

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
    def daily_session_inputs(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        """Yesterday's news window and matured outcomes, if it was a session of the window."""
        day = yesterday(context)
        if day not in graph.sessions:
            return dg.SkipReason(f"{day} is no session of the prediction window")
        return dg.RunRequest(run_key=day.isoformat(), partition_key=day.isoformat())

    @dg.schedule(job=replay, cron_schedule=at("daily_replay"), execution_timezone=_TIME_ZONE, name="daily_replay")
    def daily_replay(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
        """Yesterday's session for every experiment: one new day each, never the rest of a chain."""
        day = yesterday(context)
        if day not in graph.sessions:
            yield dg.SkipReason(f"{day} is no session of the prediction window")
            return
        for chosen in graph.settings.all_experiments:
            key = dg.MultiPartitionKey({DATE: day.isoformat(), EXPERIMENT: chosen.key})
            yield dg.RunRequest(run_key=f"{day}|{chosen.key}", partition_key=key)

    @dg.schedule(
        job=experiment,
        cron_schedule=at("weekly_experiment_ic"),
        execution_timezone=_TIME_ZONE,
        name="weekly_experiment_ic",
    )
    def weekly_experiment_ic(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest]:
        """Information coefficients of every experiment."""
        week = yesterday(context).isoformat()
        for chosen in graph.settings.all_experiments:
            yield dg.RunRequest(run_key=f"{week}|{chosen.key}", partition_key=chosen.key)

    weekly_labels = dg.ScheduleDefinition(
        job=labels, cron_schedule=at("weekly_labels"), execution_timezone=_TIME_ZONE, name="weekly_labels"
    )
    weekly_rebuild = dg.ScheduleDefinition(
        job=evaluation, cron_schedule=at("weekly_rebuild"), execution_timezone=_TIME_ZONE, name="weekly_rebuild"
    )

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

    jobs: list[dg.JobDefinition | UnresolvedAssetJobDefinition] = [
        raw_news,
        news_tables,
        bars,
        inputs,
        replay,
        labels,
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
        weekly_labels,
        weekly_experiment_ic,
        weekly_rebuild,
    ]
    return Automation(jobs, schedules, [retry_partial_days])


def _retry(source: str, days: Sequence[str], known: SourceCoverage) -> dg.RunRequest:
    """One run for consecutive days of a source. Its key names the tries that it follows, so that each is made once."""
    tries = ",".join(f"{day} after {known.days[day].asked_at:%Y-%m-%dT%H:%M}" for day in days)
    first, last = (news_key(dt.date.fromisoformat(day), source) for day in (days[0], days[-1]))
    return dg.RunRequest(f"{source}|{tries}", tags={SOURCE_TAG: source, RANGE_START: first, RANGE_END: last})


def _busy(instance: dg.DagsterInstance, sources: Sequence[str]) -> set[str]:
    """Sources for which a run waits or is under way."""
    found = dg.RunsFilter(statuses=NOT_FINISHED_STATUSES, tags={SOURCE_TAG: list(sources)})
    return {run.tags[SOURCE_TAG] for run in instance.get_runs(found)} if sources else set()
