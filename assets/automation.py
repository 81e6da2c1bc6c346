"""Jobs and schedules: the daily build and the weekly rebuild, and the job that CI materialises.

Schedules ask for exactly the partition that has just closed (Asia/Shanghai), layer after layer with time between
them. Nothing here cascades down the replay chain: one schedule asks for one new session of each experiment.
"""

import datetime as dt
from collections.abc import Iterator

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from finevolve_pipeline import calendar
from finevolve_pipeline.graph import Graph
from finevolve_pipeline.partitions import DATE, EXPERIMENT, SOURCE

_TIME_ZONE = "Asia/Shanghai"

EVALUATION = ("ic_matrix", "comparison", "report", "benchmark_release")


def automation(
    graph: Graph,
) -> tuple[list[dg.JobDefinition | UnresolvedAssetJobDefinition], list[dg.ScheduleDefinition]]:
    """Jobs and schedules."""
    raw_news = dg.define_asset_job("raw_news_day", dg.AssetSelection.assets("raw_news"))
    news_tables = dg.define_asset_job(
        "news_day", dg.AssetSelection.assets("articles", "tagged_articles", "benchmark_news")
    )
    bars = dg.define_asset_job("market_session", dg.AssetSelection.assets("industry_bars", "benchmark_bars"))
    inputs = dg.define_asset_job("session_inputs", dg.AssetSelection.assets("news_window", "matured_alpha"))
    replay = dg.define_asset_job("replay_session", dg.AssetSelection.assets("replay"))
    labels = dg.define_asset_job("labels", dg.AssetSelection.assets("alpha"))
    experiment = dg.define_asset_job("experiment_ic", dg.AssetSelection.assets("ic_by_experiment"))
    evaluation = dg.define_asset_job(
        "evaluation",
        dg.AssetSelection.assets(*EVALUATION),
        description="Tables, report and release from stored predictions: what CI materialises.",
    )

    def yesterday(context: dg.ScheduleEvaluationContext) -> dt.date:
        return context.scheduled_execution_time.astimezone(calendar.SHANGHAI).date() - dt.timedelta(days=1)

    def in_news_span(day: dt.date) -> bool:
        return graph.settings.news.first_day <= day <= graph.settings.news.last_day

    @dg.schedule(job=raw_news, cron_schedule="20 0 * * *", execution_timezone=_TIME_ZONE, name="daily_raw_news")
    def daily_raw_news(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
        """Close yesterday's news of every source."""
        day = yesterday(context)
        if not in_news_span(day):
            yield dg.SkipReason(f"{day} lies outside the news span")
            return
        for source in graph.sources:
            key = dg.MultiPartitionKey({DATE: day.isoformat(), SOURCE: source})
            yield dg.RunRequest(run_key=f"{day}|{source}", partition_key=key)

    @dg.schedule(job=news_tables, cron_schedule="50 0 * * *", execution_timezone=_TIME_ZONE, name="daily_news")
    def daily_news(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        """Clean, tag and select yesterday's news."""
        day = yesterday(context)
        if not in_news_span(day):
            return dg.SkipReason(f"{day} lies outside the news span")
        return dg.RunRequest(run_key=day.isoformat(), partition_key=day.isoformat())

    @dg.schedule(job=bars, cron_schedule="30 1 * * *", execution_timezone=_TIME_ZONE, name="daily_bars")
    def daily_bars(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        """Yesterday's bars, if it was a session."""
        day = yesterday(context)
        if day not in graph.settings.market.sessions:
            return dg.SkipReason(f"{day} is no session of the market span")
        return dg.RunRequest(run_key=day.isoformat(), partition_key=day.isoformat())

    @dg.schedule(job=inputs, cron_schedule="0 2 * * *", execution_timezone=_TIME_ZONE, name="daily_session_inputs")
    def daily_session_inputs(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        """Yesterday's news window and matured outcomes, if it was a session of the window."""
        day = yesterday(context)
        if day not in graph.sessions:
            return dg.SkipReason(f"{day} is no session of the prediction window")
        return dg.RunRequest(run_key=day.isoformat(), partition_key=day.isoformat())

    @dg.schedule(job=replay, cron_schedule="30 2 * * *", execution_timezone=_TIME_ZONE, name="daily_replay")
    def daily_replay(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
        """Yesterday's session for every experiment: one new day each, never the rest of a chain."""
        day = yesterday(context)
        if day not in graph.sessions:
            yield dg.SkipReason(f"{day} is no session of the prediction window")
            return
        for chosen in graph.settings.all_experiments:
            key = dg.MultiPartitionKey({DATE: day.isoformat(), EXPERIMENT: chosen.key})
            yield dg.RunRequest(run_key=f"{day}|{chosen.key}", partition_key=key)

    @dg.schedule(job=experiment, cron_schedule="0 3 * * 0", execution_timezone=_TIME_ZONE, name="weekly_experiment_ic")
    def weekly_experiment_ic(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest]:
        """Information coefficients of every experiment."""
        week = yesterday(context).isoformat()
        for chosen in graph.settings.all_experiments:
            yield dg.RunRequest(run_key=f"{week}|{chosen.key}", partition_key=chosen.key)

    weekly_labels = dg.ScheduleDefinition(
        job=labels, cron_schedule="30 2 * * 0", execution_timezone=_TIME_ZONE, name="weekly_labels"
    )
    weekly_rebuild = dg.ScheduleDefinition(
        job=evaluation, cron_schedule="30 3 * * 0", execution_timezone=_TIME_ZONE, name="weekly_rebuild"
    )
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
        daily_raw_news,
        daily_news,
        daily_bars,
        daily_session_inputs,
        daily_replay,
        weekly_labels,
        weekly_experiment_ic,
        weekly_rebuild,
    ]
    return jobs, schedules
