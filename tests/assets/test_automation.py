"""What runs by itself: by day and by night, under a clock that stands; retries; freshness policies."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test, freeze_time

from assets import automation as module
from assets.automation import SOURCE_TAG, automation, due_spans
from assets.planning import RANGE_END, RANGE_START
from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.cli.dagster_home import dagster_home
from finevolve_pipeline.definitions import build_defs, build_graph
from finevolve_pipeline.news.coverage import DayCoverage, SourceCoverage
from finevolve_pipeline.settings import Settings, load_settings
from resources.coverage_store import CoverageStore
from resources.run_queue import EXPERIMENT_TAGS
from resources.table_store import TableStore

SOURCES = ("cls", "sina", "files-only")
FRIDAY = "2026-05-29"


def at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=SHANGHAI)


def settings(**crawl: object) -> Settings:
    market = {"industries": ["akshare"], "benchmark": ["csindex"]}
    overrides = {"crawl": {"enabled": True, **crawl}, "news": {"sources": list(SOURCES)}, "market": market}
    return load_settings(overrides=overrides)


@pytest.fixture(autouse=True)
def two_spiders(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "spiders", lambda: {"cls": None, "sina": None})


@pytest.fixture(scope="module")
def _instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as found:
        yield found


@pytest.fixture
def instance(_instance: dg.DagsterInstance) -> dg.DagsterInstance:
    """An instance without runs."""
    _instance.wipe()
    return _instance


def tick(
    name: str, now: dt.datetime, instance: dg.DagsterInstance, home: Path, chosen: Settings | None = None
) -> tuple[list[dg.RunRequest], str]:
    """Run requests of a schedule at that very time, and why there are none."""
    with freeze_time(now):
        definitions = build_defs(chosen or settings(), home)
        context = dg.build_schedule_context(
            instance=instance,
            scheduled_execution_time=now,
            repository_def=definitions.get_repository_def(),
            resources={"store": TableStore(home)},
        )
        found = definitions.resolve_schedule_def(name).evaluate_tick(context)
    return list(found.run_requests or ()), found.skip_message or ""


@pytest.mark.parametrize("time", ["00:00", "00:30", "12:30", "23:30"])
def test_every_half_hour_each_source_is_asked_for_today_in_a_run_of_its_own(
    instance: dg.DagsterInstance, home: Path, time: str
) -> None:
    requests, _ = tick("crawl_today", at(f"{FRIDAY} {time}"), instance, home)
    assert [request.partition_key for request in requests] == [f"{FRIDAY}|cls", f"{FRIDAY}|sina"]
    assert [request.run_key for request in requests] == [f"{FRIDAY}T{time}|cls", f"{FRIDAY}T{time}|sina"]
    assert [request.tags[SOURCE_TAG] for request in requests] == ["cls", "sina"]


def test_a_source_that_is_still_being_asked_is_left_out(instance: dg.DagsterInstance, home: Path) -> None:
    create_run_for_test(instance, tags={SOURCE_TAG: "cls"}, status=dg.DagsterRunStatus.STARTED)
    create_run_for_test(instance, tags={SOURCE_TAG: "sina"}, status=dg.DagsterRunStatus.FAILURE)
    requests, _ = tick("crawl_today", at(f"{FRIDAY} 12:30"), instance, home)
    assert [request.partition_key for request in requests] == [f"{FRIDAY}|sina"]
    create_run_for_test(instance, tags={SOURCE_TAG: "sina"}, status=dg.DagsterRunStatus.NOT_STARTED)
    assert tick("crawl_today", at(f"{FRIDAY} 13:00"), instance, home) == (
        [],
        "every source is still being asked: cls, sina",
    )


@pytest.mark.parametrize(
    ("crawl", "day", "reason"),
    [
        ({"enabled": False}, FRIDAY, "enabled is false"),
        ({}, "2026-06-02", "lies outside"),
        ({"first_day": "2026-06-01"}, FRIDAY, "lies outside"),
    ],
)
def test_today_is_not_asked_for_where_it_is_not_wanted(
    instance: dg.DagsterInstance, home: Path, crawl: dict[str, object], day: str, reason: str
) -> None:
    requests, skipped = tick("crawl_today", at(f"{day} 12:30"), instance, home, settings(**crawl))
    assert (requests, reason in skipped) == ([], True)


def test_yesterday_is_closed_when_it_has_settled_of_the_sources_that_are_crawled(
    instance: dg.DagsterInstance, home: Path
) -> None:
    requests, _ = tick("daily_raw_news", at("2026-05-30 00:10"), instance, home)
    assert [(request.partition_key, request.tags[SOURCE_TAG]) for request in requests] == [
        (f"{FRIDAY}|{source}", source) for source in SOURCES if source != "files-only"
    ]


def test_where_nothing_is_crawled_yesterday_is_closed_of_all_that_imports_bring(
    instance: dg.DagsterInstance, home: Path
) -> None:
    requests, _ = tick("daily_raw_news", at("2026-05-30 00:10"), instance, home, settings(enabled=False))
    assert [request.partition_key for request in requests] == [f"{FRIDAY}|{source}" for source in SOURCES]


def test_bars_of_a_session_can_be_asked_for_before_its_day_is_over(instance: dg.DagsterInstance, home: Path) -> None:
    requests, _ = tick("daily_bars", at(f"{FRIDAY} 18:10"), instance, home)
    assert bars_asked(requests) == [("2026-05-25", FRIDAY)]
    assert requests[0].run_key == FRIDAY


@pytest.mark.parametrize(
    ("recheck", "day", "first"),
    [
        (0, FRIDAY, FRIDAY),
        (1, FRIDAY, FRIDAY),
        (7, FRIDAY, "2026-05-21"),
        (250, "2024-01-03", "2024-01-02"),
    ],
    ids=["none", "today", "beyond a weekend", "no more than are kept"],
)
def test_the_newest_sessions_are_asked_for_again_with_today(
    instance: dg.DagsterInstance, home: Path, recheck: int, day: str, first: str
) -> None:
    market = {"first_session": "2024-01-02", "industries": ["akshare"], "recheck_sessions": recheck}
    chosen = load_settings(overrides={"market": market})
    assert bars_asked(tick("daily_bars", at(f"{day} 18:10"), instance, home, chosen)[0]) == [(first, day)]


def bars_asked(requests: Sequence[dg.RunRequest]) -> list[tuple[str, str]]:
    """First and last session of run requests."""
    return [(request.tags[RANGE_START], request.tags[RANGE_END]) for request in requests]


@pytest.mark.parametrize(
    ("minutes", "crons"),
    [
        (0, ["10 0 * * *", "50 0 * * *", "0 2 * * *", "30 2 * * *"]),
        (10, ["10 0 * * *", "50 0 * * *", "0 2 * * *", "30 2 * * *"]),
        (45, ["45 0 * * *", "25 1 * * *", "35 2 * * *", "5 3 * * *"]),
        (720, ["0 12 * * *", "40 12 * * *", "50 13 * * *", "20 14 * * *"]),
    ],
)
def test_the_night_waits_until_the_news_has_settled(home: Path, minutes: int, crons: list[str]) -> None:
    schedules = automation(build_graph(settings(settle_minutes=minutes), home)).schedules
    found = {schedule.name: schedule.cron_schedule for schedule in schedules}
    names = ["daily_raw_news", "daily_news", "daily_session_inputs", "daily_replay"]
    assert [found[name] for name in names] == crons


@pytest.mark.parametrize(
    ("now", "last_day", "last_bars"),
    [
        ("2026-05-29 18:10", "2026-05-29", "2026-05-29"),
        ("2026-05-31 12:00", "2026-05-31", "2026-06-01"),
        ("2026-06-01 00:00", "2026-06-01", "2026-06-01"),
        ("2026-09-01 00:00", "2026-06-01", "2026-06-30"),
    ],
    ids=["session", "Sunday", "last day of news", "long after"],
)
def test_partitions_from_outside_reach_today_and_never_beyond_the_settings(
    home: Path, now: str, last_day: str, last_bars: str
) -> None:
    with freeze_time(at(now)):
        graph = build_defs(settings(), home).resolve_asset_graph()

        def last(asset: str) -> str:
            keys = graph.get(dg.AssetKey(asset)).partitions_def
            assert keys is not None
            return str(keys.get_last_partition_key())

        assert last("articles") == last_day
        assert last("industry_bars") == last_bars
        assert last("replay").split("|")[0] == "2026-03-31"


# Retries


NOW = at(f"{FRIDAY} 10:00")
HOUR = dt.timedelta(hours=1)


def partial(hours: float, tries: int = 1) -> DayCoverage:
    return DayCoverage({"feed": "timeout"}, NOW - hours * HOUR, tries)


def keep(home: Path, source: str, days: dict[str, DayCoverage]) -> None:
    CoverageStore(home).write(SourceCoverage(source, days))


def retry(
    home: Path, instance: dg.DagsterInstance, chosen: Settings | None = None, now: dt.datetime = NOW
) -> tuple[list[dg.RunRequest], str]:
    sensors = automation(build_graph(chosen or settings(), home), lambda: now).sensors
    (sensor,) = (one for one in sensors if one.name == "retry_partial_days")
    definitions = dg.Definitions(
        jobs=[build_defs(settings(), home).resolve_job_def("raw_news_day")],
    )
    context = dg.build_sensor_context(
        instance=instance, resources={"store": TableStore(home)}, repository_def=definitions.get_repository_def()
    )
    found = sensor.evaluate_tick(context)
    return list(found.run_requests or ()), found.skip_message or ""


def test_an_unreadable_coverage_file_stops_no_other_source(home: Path, instance: dg.DagsterInstance) -> None:
    keep(home, "sina", {"2026-05-28": partial(2)})
    (home / "crawl" / "coverage" / "cls.json").write_text("{", "utf-8")
    requests, _ = retry(home, instance)
    assert [request.tags[SOURCE_TAG] for request in requests] == ["sina"]
    (home / "crawl" / "coverage" / "sina.json").unlink()
    requests, reason = retry(home, instance)
    assert requests == []
    assert "cls.json: not readable" in reason


def asked(requests: Sequence[dg.RunRequest]) -> list[tuple[str, str, str]]:
    """Source, first and last partition of run requests."""
    names = (SOURCE_TAG, RANGE_START, RANGE_END)
    return [tuple(request.tags[name] for name in names) for request in requests]


def test_days_in_a_row_are_asked_for_again_in_one_run_of_their_source(instance: dg.DagsterInstance, home: Path) -> None:
    keep(home, "cls", {day: partial(2) for day in ("2026-05-24", "2026-05-25", "2026-05-28")})
    keep(home, "sina", {"2026-05-26": partial(3, 2)})
    requests, _ = retry(home, instance)
    assert asked(requests) == [
        ("cls", "2026-05-24|cls", "2026-05-25|cls"),
        ("cls", "2026-05-28|cls", "2026-05-28|cls"),
        ("sina", "2026-05-26|sina", "2026-05-26|sina"),
    ]


def test_each_try_has_a_run_key_of_its_own_and_only_one(instance: dg.DagsterInstance, home: Path) -> None:
    keep(home, "cls", {"2026-05-28": partial(2)})
    first, again = (retry(home, instance)[0][0].run_key for _ in range(2))
    keep(home, "cls", {"2026-05-28": partial(3, 2)})
    second = retry(home, instance)[0][0].run_key
    assert first == again == "cls|2026-05-28 after 2026-05-29T08:00"
    assert second == "cls|2026-05-28 after 2026-05-29T07:00"


def test_what_is_waited_for_is_told(instance: dg.DagsterInstance, home: Path) -> None:
    keep(home, "cls", {"2026-05-28": partial(2, 3)})
    keep(home, "sina", {"2026-05-28": partial(2)})
    create_run_for_test(instance, tags={SOURCE_TAG: "sina"}, status=dg.DagsterRunStatus.NOT_STARTED)
    assert retry(home, instance) == ([], "cls: 2026-05-28 again at 05-29 12:00; sina: it is being asked")


def test_without_partial_days_there_is_nothing_to_ask(instance: dg.DagsterInstance, home: Path) -> None:
    keep(home, "cls", {"2026-05-28": DayCoverage({"feed": ""}, NOW), "2026-05-01": partial(100)})
    assert retry(home, instance) == ([], "no day of the last week is partial")


@pytest.mark.parametrize("crawl", [{"enabled": False}, {"first_day": "2026-05-29"}])
def test_days_that_are_not_to_be_crawled_are_not_retried(
    instance: dg.DagsterInstance, home: Path, crawl: dict[str, object]
) -> None:
    keep(home, "cls", {"2026-05-28": partial(2)})
    assert retry(home, instance, settings(**crawl))[0] == []


def test_sources_without_a_spider_and_days_outside_the_span_are_not_retried(
    instance: dg.DagsterInstance, home: Path
) -> None:
    keep(home, "files-only", {"2026-05-28": partial(2)})
    known = SourceCoverage("cls", {"2026-05-28": partial(2), "2026-05-29": partial(2)})
    assert due_spans(known, [dt.date(2026, 5, 28)], NOW) == (("2026-05-28",),)
    assert retry(home, instance)[0] == []


def test_a_retry_run_makes_the_whole_range(
    instance: dg.DagsterInstance, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TableStore(home)
    for day in ("2026-05-24", "2026-05-25", "2026-05-26"):
        store.landing.note_day("cls", day)
    brought: list[dict[str, list[str]]] = []

    def bring(self: object, wanted: dict[str, list[dt.date]], now: dt.datetime, **more: object) -> tuple[()]:
        brought.append({source: [day.isoformat() for day in days] for source, days in wanted.items()})
        return ()

    monkeypatch.setattr("resources.news_sites.NewsSites.bring", bring)
    keep(home, "cls", {day: partial(2) for day in ("2026-05-24", "2026-05-25")})
    (request,) = retry(home, instance)[0]
    job = build_defs(settings(), home).resolve_job_def("raw_news_day")
    assert job.execute_in_process(tags=dict(request.tags), instance=instance).success
    assert brought == [{"cls": ["2026-05-24", "2026-05-25"]}]
    assert sorted(store.partitions("raw_news")) == ["2026-05-24|cls", "2026-05-25|cls"]


def test_one_run_at_a_time_asks_a_source_and_one_replays_an_experiment(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(dagster_home(home)))
    with dg.DagsterInstance.get() as instance:
        queue = instance.get_concurrency_config().run_queue_config
    assert queue is not None
    limits = [
        {"key": SOURCE_TAG, "value": {"applyLimitPerUniqueValue": True}, "limit": 1},
        *({"key": f"{EXPERIMENT_TAGS}{one.key}", "limit": 1} for one in load_settings().all_experiments),
    ]
    assert [limit for limit in queue.tag_concurrency_limits if limit in limits] == limits


# Freshness


def policies(chosen: Settings, home: Path) -> dict[str, object]:
    graph = build_defs(chosen, home).resolve_asset_graph()
    found = {
        key.to_user_string(): graph.get(key).freshness_policy_or_from_metadata for key in graph.get_all_asset_keys()
    }
    return {name: policy for name, policy in found.items() if policy is not None}


def test_a_home_that_follows_the_present_expects_news_by_the_hour_and_bars_after_every_closure(home: Path) -> None:
    found = policies(settings(), home)
    assert set(found) == {"raw_news", "industry_bars", "benchmark_bars"}
    assert found["raw_news"] == dg.FreshnessPolicy.time_window(dt.timedelta(hours=3), dt.timedelta(minutes=90))
    # The National Day closure of 2025 lasted eight days, the Spring Festival of 2026 eleven from close to close.
    assert found["industry_bars"] == dg.FreshnessPolicy.time_window(dt.timedelta(days=12))


def test_a_finished_history_is_never_called_stale_by_the_clock(home: Path) -> None:
    overrides = {"market": {"benchmark": ["csindex"]}}
    assert set(policies(load_settings(overrides=overrides), home)) == {"benchmark_bars"}
    assert policies(load_settings(), home) == {}


def test_everything_starts_switched_off(home: Path) -> None:
    definitions = build_defs(settings(), home)
    sensors = {sensor.name: sensor.default_status for sensor in definitions.sensors or ()}
    assert sensors == dict.fromkeys(
        ("retry_partial_days", "catch_up", "keep_evaluated", "alert_failed_runs", "alert_late_data"),
        dg.DefaultSensorStatus.STOPPED,
    )
