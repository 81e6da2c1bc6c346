"""Whoever should know is told: once, of each failure and of late data, also when the channel was out of order."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg
import pandas as pd
import pytest
from alert_servers import Hook, hook
from dagster._core.definitions.freshness import FreshnessState, FreshnessStateChange
from published_articles import publish

from assets import alerting, automation
from assets.alerting import alert_sensors
from assets.following import Owed
from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.definitions import build_graph
from finevolve_pipeline.errors import FinEvolveError, TableError
from finevolve_pipeline.news.coverage import DayCoverage, SourceCoverage
from finevolve_pipeline.settings import Settings, load_settings
from resources import alerts
from resources.coverage_store import CoverageStore
from resources.table_store import TableStore

NOW = dt.datetime(2026, 5, 29, 21, 0, tzinfo=SHANGHAI)
"""A Friday evening, hours after the close."""
HOUR, DAY = dt.timedelta(hours=1), dt.timedelta(days=1)


def settings(enabled: bool = True, **sections: Mapping[str, object]) -> Settings:
    chosen = {
        "news": {"sources": ["cls", "sina"]},
        "crawl": {"enabled": enabled},
        "market": {"industries": ["akshare"], "benchmark": ["csindex"]} if enabled else {},
        "alerts": {"webhook": "HOOK"},
    }
    return load_settings(overrides={**chosen, **sections})


@pytest.fixture(autouse=True)
def quick(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automation, "spiders", lambda: {"cls": None, "sina": None})
    # What is owed has tests of its own.
    monkeypatch.setattr(alerting, "owed", lambda *_: Owed((), {}, {}, ()))
    timing = alerts.Timing(deadline_seconds=2.0, attempts=2, pause_seconds=0.01)
    monkeypatch.setattr(alerting, "channels", lambda chosen, environment: alerts.channels(chosen, environment, timing))


@pytest.fixture(scope="module")
def _instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as found:
        yield found


@pytest.fixture
def instance(_instance: dg.DagsterInstance) -> dg.DagsterInstance:
    """An instance without runs."""
    _instance.wipe()
    return _instance


@dataclass
class Ticking:
    """Ticks of one sensor, the cursor carried on."""

    name: str
    home: Path
    instance: dg.DagsterInstance
    url: str = ""
    chosen: Settings = field(default_factory=settings)
    now: dt.datetime = NOW
    cursor: str | None = None
    environment: dict[str, str] = field(default_factory=dict)

    def tick(self) -> str:
        """One tick. Returns what it says."""
        environment = {**({"HOOK": self.url} if self.url else {}), **self.environment}
        sensors = alert_sensors(build_graph(self.chosen, self.home), environment, lambda: self.now)
        (sensor,) = (one for one in sensors if one.name == self.name)
        context = dg.build_sensor_context(
            instance=self.instance,
            cursor=self.cursor,
            sensor_name=self.name,
            resources={"store": TableStore(self.home)},
            repository_def=dg.Definitions(sensors=sensors, resources={"store": None}).get_repository_def(),
        )
        found = sensor.evaluate_tick(context)
        self.cursor = found.cursor
        assert not found.run_requests
        return found.skip_message or ""


@pytest.fixture
def server() -> Iterator[Hook]:
    with hook() as found:
        yield found


def subjects(server: Hook) -> list[str]:
    return [body["subject"].removeprefix("FinEvolve: ") for body in server.bodies]


# Failed runs


def run(
    instance: dg.DagsterInstance, error: Exception | None = None, name: str = "raw_news_day", **tags: str
) -> dg.ExecuteInProcessResult:
    """A run that ended, with that error or well."""

    @dg.op(name="made")
    def work() -> None:
        if error is not None:
            raise error

    @dg.job(name=name)
    def job() -> None:
        work()

    return job.execute_in_process(instance=instance, raise_on_error=False, tags=tags)


def partition(key: str) -> dict[str, str]:
    return {"dagster/partition": key}


@pytest.fixture
def runs(home: Path, instance: dg.DagsterInstance, server: Hook) -> Ticking:
    """The sensor of failed runs, switched on."""
    found = Ticking("alert_failed_runs", home, instance, server.url, now=dt.datetime.now(SHANGHAI) - 10 * HOUR)
    assert found.tick() == "failures from now on are told"
    return found


def test_a_failed_run_is_told_with_job_partition_and_first_line(runs: Ticking, server: Hook) -> None:
    failed = run(runs.instance, TableError("cls: 3 rows without title\nsecond line"), **partition("2026-05-28|cls"))
    assert runs.tick() == "1 conditions hold, 1 messages were sent"
    assert subjects(server) == ["raw_news_day failed (2026-05-28|cls)"]
    text = server.bodies[0]["text"]
    assert "TableError: cls: 3 rows without title\n" in text
    assert f"/runs/{failed.run_id}" in text
    assert "second line" not in text
    assert "Traceback" not in text
    assert __file__ not in text


def test_what_failed_before_the_sensor_was_switched_on_is_history(
    home: Path, instance: dg.DagsterInstance, server: Hook
) -> None:
    run(instance, TableError("old"))
    runs = Ticking("alert_failed_runs", home, instance, server.url, now=dt.datetime.now(SHANGHAI) + 2 * HOUR)
    runs.tick()
    assert runs.tick() == "0 conditions hold, 0 messages were sent"


def test_the_same_failure_again_is_not_told_again_until_it_was_mended(runs: Ticking, server: Hook) -> None:
    for pause in (12, 15):
        run(runs.instance, TableError(f"no answer for {pause} s"), **partition("2026-05-28|cls"))
        runs.tick()
    assert len(server.bodies) == 1
    run(runs.instance, None, **partition("2026-05-29|cls"))
    assert runs.tick() == "0 conditions hold, 0 messages were sent"
    run(runs.instance, TableError("no answer for 12 s"), **partition("2026-05-28|cls"))
    runs.tick()
    assert len(server.bodies) == 2


def test_sources_and_jobs_fail_each_for_itself(runs: Ticking, server: Hook) -> None:
    run(runs.instance, TableError("x"), **partition("2026-05-28|cls"))
    run(runs.instance, TableError("x"), **partition("2026-05-28|sina"))
    run(runs.instance, TableError("x"), "news_day", **partition("2026-05-28"))
    run(runs.instance, None, **partition("2026-05-28|sina"))
    runs.tick()
    assert subjects(server) == ["raw_news_day failed (2026-05-28|cls)", "news_day failed (2026-05-28)"]


def test_a_range_and_a_root_cause_are_told(runs: Ticking, server: Hook) -> None:
    error = RuntimeError("wrapped")
    error.__cause__ = TableError("the cause")
    ends = {"dagster/asset_partition_range_start": "2026-05-01", "dagster/asset_partition_range_end": "2026-05-28"}
    run(runs.instance, error, "bars", **ends)
    runs.tick()
    assert subjects(server) == ["bars failed (2026-05-01 to 2026-05-28)"]
    assert "the cause" in server.bodies[0]["text"]


def test_a_run_that_dagster_will_try_again_has_not_failed_yet(runs: Ticking, server: Hook) -> None:
    run(runs.instance, TableError("x"), **{"dagster/will_retry": "true"})
    assert runs.tick() == "0 conditions hold, 0 messages were sent"
    assert server.bodies == []


def test_a_secret_in_an_error_is_not_told(runs: Ticking, server: Hook) -> None:
    runs.environment = {"DEEPSEEK_API_KEY": "sk-very-secret"}
    run(runs.instance, TableError(f"refused: sk-very-secret, {server.url}"))
    runs.tick()
    sent = json.dumps(server.bodies)
    assert "sk-very-secret" not in sent
    assert "very-secret-token" not in sent
    assert runs.cursor is not None
    assert "very-secret" not in runs.cursor


@pytest.mark.parametrize("trouble", [500, "cut", 404])
def test_a_message_that_did_not_get_through_is_sent_at_the_next_tick(runs: Ticking, trouble: int | str) -> None:
    run(runs.instance, TableError("x"), **partition("2026-05-28|cls"))
    good = runs.url
    with hook(trouble) as broken:
        runs.url = broken.url
        for _ in range(2):
            assert "1 conditions hold, 0 messages were sent; webhook of HOOK: " in runs.tick()
    runs.url = good
    assert runs.tick() == "1 conditions hold, 1 messages were sent"
    assert runs.tick() == "1 conditions hold, 0 messages were sent"


def test_one_broken_channel_does_not_silence_the_other(runs: Ticking, server: Hook) -> None:
    mail = {"email_to": ["a@b.org"], "email_from": "a@b.org", "smtp_host": "127.0.0.1", "smtp_port": 1}
    runs.chosen = settings(alerts={"webhook": "HOOK", **mail, "starttls": False})
    run(runs.instance, TableError("x"))
    for _ in range(2):
        assert "email by 127.0.0.1:1: no answer" in runs.tick()
    assert len(server.bodies) == 1


@pytest.mark.parametrize("name", ["alert_failed_runs", "alert_late_data"])
def test_without_a_channel_nothing_is_looked_at(name: str, home: Path, instance: dg.DagsterInstance) -> None:
    ticking = Ticking(name, home, instance, chosen=load_settings())
    assert ticking.tick() == "no alerts: [alerts] names neither a webhook nor e-mail"
    ticking.chosen = settings()
    assert "environment variable HOOK is not set" in ticking.tick()


@pytest.mark.parametrize("cursor", ["[", "[]", '{"since": 1}', '{"since": "x", "seen": {}, "board": {}}'])
def test_a_cursor_of_somebody_else_is_told_with_the_remedy(runs: Ticking, cursor: str) -> None:
    runs.cursor = cursor
    with pytest.raises(FinEvolveError, match="alert_failed_runs: its cursor is not readable; reset it"):
        runs.tick()


# Late data


@pytest.fixture
def late(home: Path, instance: dg.DagsterInstance, server: Hook) -> Ticking:
    """The sensor of late data."""
    return Ticking("alert_late_data", home, instance, server.url, chosen=settings(market={}))


def keep(home: Path, known: SourceCoverage) -> None:
    CoverageStore(home).write(known)


def days(
    first: int, last: int, channels: Mapping[str, str] | None = None, open_: bool = False
) -> dict[str, DayCoverage]:
    """Days of May 2026, asked for at noon of the next day, or of the day itself if they stayed open."""
    found = {}
    for day in range(first, last + 1):
        noon = dt.datetime(2026, 5, day, 12, tzinfo=SHANGHAI)
        found[f"2026-05-{day:02d}"] = DayCoverage(channels or {"feed": ""}, noon if open_ else noon + DAY, open=open_)
    return found


def test_all_is_well_with_days_that_were_closed_and_sources_never_asked(late: Ticking, server: Hook) -> None:
    keep(late.home, SourceCoverage("cls", days(1, 28), state="ok"))
    assert late.tick() == "0 conditions hold, 0 messages were sent"


def test_a_source_that_is_blocked_late_and_long_partial_is_told_once(late: Ticking, server: Hook) -> None:
    known = SourceCoverage(
        "cls", {**days(10, 11, {"feed": "HTTP 503"}), **days(12, 26)}, state="blocked", reason="captcha"
    )
    keep(late.home, known)
    late.tick()
    assert subjects(server) == [
        "cls cannot be read: blocked",
        "cls: 2 partial days are older than a week",
        "cls: raw_news of 2026-05-28 is late",
    ]
    assert late.tick() == "3 conditions hold, 0 messages were sent"
    keep(late.home, SourceCoverage("cls", {**known.days, **days(27, 28)}, state="ok"))
    assert late.tick() == "1 conditions hold, 0 messages were sent"


@pytest.mark.parametrize(
    ("crawl", "told"),
    [
        ({"enabled": False}, []),
        ({"enabled": True, "first_day": "2026-05-29"}, []),
        ({"enabled": True, "first_day": "2026-05-28"}, ["cls: raw_news of 2026-05-28 is late"]),
    ],
)
def test_days_that_are_not_to_be_crawled_are_never_late(
    late: Ticking, server: Hook, crawl: dict[str, object], told: list[str]
) -> None:
    late.chosen = settings(crawl=crawl, market={})
    keep(late.home, SourceCoverage("cls", days(10, 26), state="ok"))
    late.tick()
    assert subjects(server) == told


def every_two_hours(until: dt.datetime) -> list[dt.datetime]:
    """For 33 days."""
    return [until - 2 * HOUR * number for number in range(12 * 33)]


@pytest.mark.parametrize(("silent", "told"), [(3 * HOUR, []), (9 * HOUR, ["cls has fallen silent"])])
def test_a_source_that_answers_and_publishes_nothing_is_told(
    late: Ticking, server: Hook, silent: dt.timedelta, told: list[str]
) -> None:
    publish(late.home, "cls", every_two_hours(NOW - silent))
    today = {"2026-05-29": DayCoverage({"feed": ""}, NOW - HOUR / 2, open=True)}
    keep(late.home, SourceCoverage("cls", {**days(20, 28), **today}, state="ok"))
    late.tick()
    assert subjects(server) == told


def test_a_source_that_was_not_asked_is_late_and_not_silent(late: Ticking, server: Hook) -> None:
    publish(late.home, "cls", every_two_hours(NOW - 60 * HOUR))
    keep(late.home, SourceCoverage("cls", {**days(20, 26), **days(27, 27, open_=True)}, state="ok"))
    late.tick()
    assert subjects(server) == ["cls: raw_news of 2026-05-28 is late"]


def test_bars_are_late_two_hours_after_they_were_due(late: Ticking, server: Hook) -> None:
    late.chosen = settings()
    late.now = NOW.replace(hour=20, minute=9)
    for table in ("industry_bars", "benchmark_bars"):
        for day in ("2026-05-22", "2026-05-25", "2026-05-26", "2026-05-27", "2026-05-28"):
            _store_bars(late.home, table, day)
    assert late.tick() == "0 conditions hold, 0 messages were sent"
    late.now = NOW.replace(hour=20, minute=10)
    late.tick()
    assert subjects(server) == ["industry_bars of 2026-05-29 is late", "benchmark_bars of 2026-05-29 is late"]
    _store_bars(late.home, "industry_bars", "2026-05-29")
    late.now += 14 * HOUR
    assert late.tick() == "1 conditions hold, 0 messages were sent"


def _store_bars(home: Path, table: str, day: str) -> None:
    chosen = build_graph(settings(), home).tables[table]
    numbers = dict.fromkeys(("open", "high", "low", "close", "volume", "amount"), 1.0)
    frame = pd.DataFrame([{"session": day, "code": "801080", **numbers}])
    TableStore(home).write(chosen, day, frame, "recipe")


def test_an_asset_that_broke_its_freshness_policy_is_told(late: Ticking, server: Hook) -> None:
    late.chosen = settings()
    late.now = NOW.replace(year=2025, month=1, day=1)  # a holiday after weekdays without bars here
    change = FreshnessStateChange(
        key=dg.AssetKey("raw_news"),
        new_state=FreshnessState.FAIL,
        previous_state=FreshnessState.PASS,
        state_change_timestamp=NOW.timestamp(),
    )
    late.instance._report_runless_asset_event(change)
    late.tick()
    assert "raw_news is overdue" in subjects(server)


def test_bars_of_a_finished_history_are_never_late(late: Ticking) -> None:
    late.chosen, late.now = settings(), NOW + 100 * DAY
    assert late.tick() == "0 conditions hold, 0 messages were sent"
