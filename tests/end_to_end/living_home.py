"""A home that follows the present, while simulated time passes: schedules, sensors and conditions are evaluated when
they would tick, and what they ask for is run in this process on one instance.

News comes from the local nine sites as they stand at the simulated time, closes from a local Tushare, predictions and
tags from a local model server. Nothing reads the machine's clock.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.execution import build_resources
from dagster._core.test_utils import freeze_time
from forked_crawls import Forks, forked_crawls
from model_server import ModelServer, Question, default_answer, status
from model_server import running as model_running
from service_world import ERROR_500, TOKEN, TushareService, serving

from assets import alerting, publishing
from assets.automation import SOURCE_TAG
from assets.planning import RANGE_END, RANGE_START
from finevolve_pipeline.alerts import Message
from finevolve_pipeline.calendar import SHANGHAI, shift
from finevolve_pipeline.definitions import build_defs, build_graph
from finevolve_pipeline.evaluation.report import ReportFiles
from finevolve_pipeline.evaluation.report.inputs import ReportInputs
from finevolve_pipeline.graph import Table
from finevolve_pipeline.settings import Settings, load_settings
from resources import news_sites
from resources.table_store import TableStore
from tests.sites.process import Running
from tests.sites.process import running as sites_running

HANDLER = "tests.sites.handler.LocalSites"
MECHANISMS = ("pipe", "mem0")
KEYS = tuple(f"{name}-served" for name in MECHANISMS)
INDUSTRIES = ("801010", "801080", "801170", "801780", "801880")
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}

SETTINGS = """\
[benchmark]
first_session = {first}
last_session = {last}
horizons = [1, 2, 4]
industries = {industries}

[news]
first_day = {first_day}
last_day = {last}
sources = {sources}
min_importance = 3

[market]
first_session = {first_bar}
last_session = {last}
industries = ["tushare"]
benchmark = ["tushare"]

[tushare]
base_url = "{tushare}"
requests_per_minute = 1000000
attempts = 1

[evaluation]
min_sessions = 3
min_industries = 3
bootstrap_draws = 100
cases = []

[experiments]
mechanisms = ["pipe", "mem0", "memrl"]
backbones = ["served"]

[automation]
experiments = ["pipe-served", "mem0-served"]

[tagging]
backbone = "served"

[alerts]
webhook = "HOOK"

[providers.loopback]
base_url = "{model}"
deployment = "loopback"
concurrency = 8
attempts = 1
failures_in_a_row = 3
longest_wait_seconds = 0.1

[backbones.served]
kind = "openai"
provider = "loopback"
model = "m"
context_window = 40000
max_tokens = 2000

[crawl]
enabled = true
delay_seconds = 0
autothrottle = false
requests_at_once = 8
back_off_seconds = 0.01
attempts = 2
timeout_seconds = 5
longest_wait_seconds = 5
silence_seconds = 60

[crawl.scrapy]
SITES_AT = "{sites}"
DOWNLOAD_HANDLERS = {{ http = "{handler}", https = "{handler}" }}
"""


def moment(day: dt.date, time: str) -> dt.datetime:
    """A time of a day in Shanghai."""
    return dt.datetime.combine(day, dt.time.fromisoformat(time), SHANGHAI)


@dataclass
class Told:
    """A channel of alerts that remembers."""

    name: str = "webhook"
    messages: list[tuple[dt.datetime, str]] = field(default_factory=list)

    def send(self, message: Message, now: dt.datetime) -> str:
        """Remember a message."""
        self.messages.append((now, message.subject.removeprefix("FinEvolve: ")))
        return "remembered"


@dataclass
class Writes:
    """Stands before `TableStore.write` and counts what was made: table, partition, recipe."""

    write: Callable[..., Any]
    counted: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def __call__(
        self, store: TableStore, table: Table, partition: str, frame: object, recipe: str, *parts: object
    ) -> Any:
        """Write and count."""
        self.counted[table.name, partition, recipe] += 1
        return self.write(store, table, partition, frame, recipe, *parts)


@dataclass
class Run:
    """A run that was asked for: by what, when, and whether it succeeded."""

    asked_by: str
    at: dt.datetime
    job: str
    partitions: str
    success: bool


@dataclass
class LivingHome:
    """See the module."""

    home: Path
    settings: Settings
    instance: dg.DagsterInstance
    sites: Running
    market: TushareService
    model: ModelServer
    forks: Forks
    now: dt.datetime
    told: Told
    writes: Writes
    runs: list[Run] = field(default_factory=list)
    prompts: list[tuple[dt.datetime, Question]] = field(default_factory=list)
    events: dict[dt.datetime, list[Callable[[], None]]] = field(default_factory=dict)
    _keys: set[tuple[str, str]] = field(default_factory=set)
    _cursors: dict[str, str] = field(default_factory=dict)
    _conditions: Any = None

    def __post_init__(self) -> None:
        self.graph = build_graph(self.settings, self.home)
        self.store = TableStore(self.home)
        self.definitions = build_defs(self.settings, self.home, clock=lambda: self.now)
        self.repository = self.definitions.get_repository_def()
        self.model.answer = self._answer

    def _answer(self, question: Question) -> str:
        self.prompts.append((self.now, question))
        return default_answer(question)

    # What goes wrong

    def model_is_out(self, out: bool) -> None:
        """No request is answered from now on, or each is again."""
        self.model.plan = (lambda question: status(503, "down")) if out else None

    def site_is_dead(self, *hosts: str) -> None:
        """These hosts answer nothing but errors from now on; none named: all are well again."""
        self.sites.order(clear=True)
        if hosts:
            self.sites.order(faults=[{"kind": "500", "host": host} for host in hosts])

    def market_is_dead(self, dead: bool) -> None:
        """The market's service answers errors from now on, or is well again."""
        self.market.plan = (lambda asked: ERROR_500) if dead else (lambda asked: None)

    # Time

    def pass_time(self, until: dt.datetime, crawls_of_today: Sequence[str] = (), off: Sequence[dt.date] = ()) -> None:
        """Let time pass.

        Args:
            until: the end.
            crawls_of_today: times of the day at which `crawl_today` is evaluated; at its other ticks it is not, for
                the sake of the test's time.
            off: days on which the machine that ticks is off until noon.
        """
        day = self.now.date()
        while moment(day, "00:00") < until:
            for at, what in self._ticks(day, crawls_of_today):
                if not self.now < at <= until or (day in off and at < moment(day, "12:00")):
                    continue
                self._at(at)
                what()
            day += dt.timedelta(days=1)
        self._at(until)

    def _ticks(self, day: dt.date, crawls: Sequence[str]) -> Iterator[tuple[dt.datetime, Callable[[], None]]]:
        """All ticks of a day in order; what happens at a time comes before what ticks then.

        Sensors tick at some times only, in the evening of days on which something happens.
        """
        ticks = [(at, 0, what) for at, listed in self.events.items() for what in listed if at.date() == day]
        for schedule in self.definitions.schedules or ():
            assert isinstance(schedule, dg.ScheduleDefinition)
            name = schedule.name
            minute, hour, *_ = str(schedule.cron_schedule).split()
            times = crawls if name == "crawl_today" else (f"{int(hour):02}:{int(minute):02}",)
            ticks += [(moment(day, time), 1, lambda name=name: self._schedule(name)) for time in times]
        evening = ("21:00",) if day in {at.date() for at in self.events} else ()
        for time in ("03:00", "05:10", "12:00", *evening):
            ticks.append((moment(day, time), 2, self._sensors))
        yield from ((at, what) for at, _, what in sorted(ticks, key=lambda tick: tick[:2]))

    def _at(self, now: dt.datetime) -> None:
        self.now = now
        self.sites.order(now=now.isoformat())

    def _schedule(self, name: str) -> None:
        with freeze_time(self.now):
            context = dg.build_schedule_context(
                self.instance, self.now, repository_def=self.repository, resources={"store": self.store}
            )
            found = self.definitions.resolve_schedule_def(name).evaluate_tick(context)
        for request in found.run_requests or ():
            self._run(name, request, self.definitions.resolve_schedule_def(name).job_name)

    def _sensors(self) -> None:
        """Sensors, ten minutes apart, until none asks for anything any more; then who is to be told."""
        for _ in range(40):
            asked = [self._sensor("retry_partial_days"), self._sensor("catch_up"), self._conditions_met()]
            if not any(asked):
                break
            self._at(self.now + dt.timedelta(minutes=10))
        else:
            raise AssertionError(f"{self.now}: the sensors find no end: {self.runs[-6:]}")
        for name in ("alert_failed_runs", "alert_late_data"):
            self._sensor(name)

    def _sensor(self, name: str) -> bool:
        sensor = self.definitions.resolve_sensor_def(name)
        with freeze_time(self.now):
            context = dg.build_sensor_context(
                self.instance,
                self._cursors.get(name),
                repository_def=self.repository,
                resources={"store": self.store},
            )
            found = sensor.evaluate_tick(context)
        if found.cursor is not None:
            self._cursors[name] = found.cursor
        requests = [one for one in found.run_requests or () if (name, one.run_key) not in self._keys]
        for request in requests:
            self._keys.add((name, str(request.run_key)))
            self._run(name, request, request.job_name or sensor.job_name)
        return bool(requests)

    def _conditions_met(self) -> bool:
        sensor = self.definitions.resolve_sensor_def("keep_evaluated")
        assert isinstance(sensor, dg.AutomationConditionSensorDefinition)
        with freeze_time(self.now):
            found = dg.evaluate_automation_conditions(
                self.definitions, self.instance, sensor.asset_selection, self.now, self._conditions
            )
            self._conditions = found.cursor
            requested = [result.key for result in found.results if not result.true_subset.is_empty]
            if requested:
                result = self.definitions.resolve_implicit_global_asset_job_def().execute_in_process(
                    instance=self.instance, asset_selection=requested, raise_on_error=False, run_config=QUIET
                )
                names = "+".join(sorted(key.to_user_string() for key in requested))
                self.runs.append(Run("keep_evaluated", self.now, names, "", result.success))
        return bool(requested)

    def ask_for(self, request: dg.RunRequest, job: str) -> None:
        """What a user starts."""
        self._run("user", request, job)

    def _run(self, asked_by: str, request: dg.RunRequest, job: str) -> None:
        tags = dict(request.tags)
        with freeze_time(self.now):
            result = self.definitions.resolve_job_def(job).execute_in_process(
                instance=self.instance,
                partition_key=request.partition_key,
                tags=tags,
                asset_selection=list(request.asset_selection) if request.asset_selection else None,
                raise_on_error=False,
                run_config=QUIET,
            )
        first, last = tags.get(RANGE_START), tags.get(RANGE_END)
        keys = str(request.partition_key) if first is None else first if first == last else f"{first}...{last}"
        self.runs.append(Run(asked_by, self.now, job, keys, result.success))

    # What came of it

    def made(self, asset: str) -> list[dg.AssetMaterialization]:
        """Materialisations of an asset that were work, oldest first: what was only found to be fresh left out."""
        records = self.instance.fetch_materializations(dg.AssetKey(asset), limit=10_000, ascending=True).records
        events = [record.asset_materialization for record in records if record.asset_materialization is not None]
        return [event for event in events if not (event.metadata.get("reused") and event.metadata["reused"].value)]

    def asked_of_model(self) -> Counter[str]:
        """How often each prompt was answered."""
        return Counter(seen.digest for seen in self.model.delivered)


MARK = re.compile(r"本条稿件编号(\d+)")
"""What tells one article of the sites from every other, in its text."""


def a_page(folder: Path, inputs: ReportInputs) -> ReportFiles:
    """In place of a report: who has coefficients in it."""
    folder.mkdir(exist_ok=True)
    text = " ".join(sorted(set(inputs.ic_matrix["experiment"])))
    (folder / "index.html").write_text(text)
    return ReportFiles(folder, folder / "index.html", ("index.html",), text)


@contextmanager
def living_home(
    folder: Path,
    first: dt.date,
    last: dt.date,
    sources: Sequence[str],
    items: int,
    environment: Mapping[str, str] = {},
) -> Iterator[LivingHome]:
    """A home whose window is the sessions from `first` to `last`, with the bars before it; time stands before the
    first night."""
    news_from = first - dt.timedelta(days=1)
    world = ["--seed", "7", "--items", str(items), "--now", moment(last + dt.timedelta(days=3), "15:00").isoformat()]
    days = (last - news_from).days + 8
    market = TushareService()
    with ExitStack() as stack:
        sites = stack.enter_context(sites_running(*world, "--days", str(days)))
        forks = stack.enter_context(forked_crawls([]))
        stack.enter_context(serving(market))
        model = stack.enter_context(model_running(ModelServer()))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("TUSHARE_TOKEN", TOKEN)
        patch.setattr(news_sites, "subprocess", forks)
        told = Told()
        patch.setattr(alerting, "channels", lambda settings, environment: [told])
        patch.setattr(publishing, "build_report", a_page)  # laying a report out takes most of its time
        patch.setattr(build_resources, "ephemeral_instance_if_missing", nullcontext)  # one less a tick
        writes = Writes(TableStore.write)
        patch.setattr(TableStore, "write", lambda store, *given: writes(store, *given))
        config = folder / "finevolve.toml"
        config.write_text(
            SETTINGS.format(
                first=first,
                last=last,
                first_day=news_from,
                first_bar=shift(first, -4),
                industries=list(INDUSTRIES),
                sources=list(sources),
                tushare=market.url,
                model=model.base_url,
                sites=sites.at,
                handler=HANDLER,
            )
        )
        patch.setenv("FINEVOLVE_CONFIG", str(config))
        patch.setenv("FINEVOLVE_HOME", str(folder / "home"))
        instance = stack.enter_context(dg.DagsterInstance.ephemeral())
        (folder / "home").mkdir()
        yield LivingHome(
            folder / "home",
            load_settings(config),
            instance,
            sites,
            market,
            model,
            forks,
            moment(first, "00:05"),
            told,
            writes,
        )


def bars_before(living: LivingHome) -> dg.RunRequest:
    """What a user asks for at the beginning: the bars before the window."""
    sessions = [day for day in living.settings.market.sessions if day < living.now.date()]
    return dg.RunRequest(tags={RANGE_START: sessions[0].isoformat(), RANGE_END: sessions[-1].isoformat()})


__all__ = ["KEYS", "MARK", "SOURCE_TAG", "LivingHome", "bars_before", "living_home", "moment"]
