"""What a home that follows the present still owes: partitions of the last days whose time has come and which are
missing, or not what they would be made of now.

Schedules ask for each partition once, on its day. What they missed (a machine that was off, a dead site, a model that
could not be asked) and what has changed since (late news, revised closes) is found here, oldest first, by the same
recipes as `finevolve status`. `assets.automation` asks for it, `assets.alerting` tells what stays late.

A chain goes on by one session at a time, and only with inputs that are up to date. What an experiment has read stays
as it was read: a window or outcomes that would come out otherwise now are not made again here, since days rest on them
that were predicted on what was known then. They are named instead; whoever wants the revised past runs `finevolve run`
and resets the chains.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from assets.planning import Wanted, freshness
from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.contracts import table_of
from finevolve_pipeline.digests import digest_table
from finevolve_pipeline.files import looking
from finevolve_pipeline.graph import LANDING, SINGLE, Graph, news_key
from finevolve_pipeline.news import coverage
from finevolve_pipeline.replay.clock import INPUTS
from finevolve_pipeline.settings import Experiment, Settings
from resources.coverage_store import CoverageStore
from resources.landing import BENCHMARK_BARS, INDUSTRY_BARS
from resources.market import configured
from resources.market.bringing import complete
from resources.table_store import TableStore

NEWS_TABLES = ("articles", "tagged_articles", "benchmark_news")

BARS_AT = dt.time(18, 10)
"""When the bars of a session are asked for, Asia/Shanghai: after the close, and after the sources have them."""

_FIRST_CLOSING = 10
"""Minutes after midnight when yesterday's news is closed at the earliest."""

NEWS_LATER, INPUTS_LATER, REPLAY_LATER = 40, 110, 140
"""Minutes from the closing to when the night's schedules ask for a day's tables, session inputs and replay."""

_AFTER_SCHEDULE = dt.timedelta(minutes=15)
_BARS_PATIENCE = dt.timedelta(hours=1)
_SOURCE_PATIENCE = dt.timedelta(hours=2)
"""A day's tables wait for a source that was not asked yet for so long; then the others go on."""

_LATE = dt.timedelta(hours=2)
"""After its time, a partition that is missing is late."""


@dataclass(frozen=True)
class Work:
    """Neighbouring partitions that one run can make now.

    Attributes:
        job: the job whose run makes them.
        tables: the assets of it that are due.
        first: partition key.
        last: partition key.
        subject: the source or experiment that all of them belong to; empty: none.
    """

    job: str
    tables: tuple[str, ...]
    first: str
    last: str
    subject: str = ""

    @property
    def mark(self) -> str:
        """What stays the same from one try to the next, though more partitions come to stand behind the first."""
        return f"{self.job}|{'+'.join(self.tables)}|{self.first}"


@dataclass(frozen=True)
class Owed:
    """What is owed.

    Attributes:
        work: what runs can make now: upstream first, oldest first.
        kept: table -> sessions that would come out otherwise now, and stay as experiments have read them.
        late: what -> its partitions that are missing hours after their time, oldest first.
        notes: why something that is owed is not among the work, a sentence each.
    """

    work: tuple[Work, ...]
    kept: Mapping[str, tuple[str, ...]]
    late: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...]


def closing_minutes(settings: Settings) -> int:
    """Minutes after midnight when the news of the day before is closed, and the night begins."""
    return max(_FIRST_CLOSING, settings.crawl.settle_minutes)


def owed(graph: Graph, store: TableStore, now: dt.datetime, crawled: Sequence[str]) -> Owed:
    """What is owed of the last `[automation] catch_up_days` at `now` (aware); `crawled` are sources with a spider."""
    with looking():
        look = _Look(graph, store, now.astimezone(SHANGHAI))
        work = (
            *look.raw_news(crawled if graph.settings.crawl.enabled else ()),
            *look.news_tables(),
            *look.bars(),
            *look.session_inputs(),
            *look.replays(),
            *look.coefficients(),
        )
    return Owed(
        work,
        {name: tuple(keys) for name, keys in look.kept.items() if keys},
        {name: tuple(keys) for name, keys in look.late.items() if keys},
        tuple(look.notes),
    )


def is_read(graph: Graph, store: TableStore, session: dt.date) -> bool:
    """Whether any experiment has replayed a session, so that its inputs stay as they are."""
    return any(store.replays.has(one.key, session) for one in graph.settings.all_experiments)


def not_ready(graph: Graph, store: TableStore, experiment: Experiment, session: dt.date) -> str:
    """Why an experiment cannot replay a session as its next one; empty if it can."""
    for name in INPUTS:
        if store.stored(name, session.isoformat()) is None:
            return f"replay {experiment.key} {session}: {name} is not there yet"
    position = graph.sessions.index(session)
    before = graph.sessions[position - 1] if position else None
    if before is not None and not store.replays.has(experiment.key, before):
        return f"replay {experiment.key} {session}: {before} comes first"
    return ""


@dataclass
class _Look:
    """One look at a home, layer after layer, each seeing what is due above it."""

    graph: Graph
    store: TableStore
    now: dt.datetime
    kept: dict[str, list[str]] = field(default_factory=dict)
    late: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _due: set[tuple[str, str]] = field(default_factory=set)
    _behind: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        settings = self.graph.settings
        self._since = self.now.date() - dt.timedelta(days=settings.automation.catch_up_days)
        landed = [(dt.date.fromisoformat(day), source) for source, day in self.store.landing.news_partitions()]
        self._landed = {day for day, _ in landed if day >= self._since}
        # What lies before anything has landed was never this home's to follow.
        first = max(self._since, min((day for day, _ in landed), default=self.now.date()))
        self._days = tuple(day for day in self.graph.calendar_days if first <= day < self.now.date())
        self._sessions = tuple(day for day in self.graph.sessions if self._since <= day < self.now.date())

    def raw_news(self, crawled: Sequence[str]) -> Iterator[Work]:
        """Days of sources that nobody has asked for since they ended, and those that landed and were not made."""
        first = self.graph.settings.crawl.first_day or dt.date.min
        days = [day for day in self._days if day >= first]
        grace = dt.timedelta(minutes=closing_minutes(self.graph.settings)) + _AFTER_SCHEDULE
        table = self.graph.tables["raw_news"]
        for source in self.graph.sources:
            keys = [news_key(day, source) for day in self._days]
            landed = [key for key in keys if self.store.digest(f"{LANDING}news", key) is not None]
            due = set(self._stale_or_missing("raw_news", landed))
            if source in crawled:
                known = CoverageStore(self.store.home).shown(source)
                due |= {f"{day}|{source}" for day in coverage.never_closed(known, days, self.now, grace)}
            waited_for = {key for key in due if self.now < self._time(key[:10], NEWS_LATER) + _SOURCE_PATIENCE}
            self._due |= {("raw_news", key) for key in waited_for}
            own = [key for key in table.partitions if key.endswith(f"|{source}")]
            yield from _works("raw_news_day", ("raw_news",), own, due, source)

    def news_tables(self) -> Iterator[Work]:
        """Days that are to be cleaned, tagged and selected."""
        days = [day for day in self._days if self.now >= self._time(day, NEWS_LATER) + _AFTER_SCHEDULE]
        keys = [day.isoformat() for day in days if day in self._landed]
        due = {name: self._found_due(name, keys) for name in NEWS_TABLES}
        for key in (day.isoformat() for day in days):
            missing = self.store.stored(NEWS_TABLES[-1], key) is None
            if missing and self.now >= self._time(key, NEWS_LATER) + _LATE:
                self.late.setdefault(NEWS_TABLES[-1], []).append(key)
            if key not in keys:
                self.notes.append(f"{NEWS_TABLES[0]} {key}: nothing has landed for that day")
        yield from self._together("news_day", due)

    def bars(self) -> Iterator[Work]:
        """Bars that have landed and were not made, and sessions of which a source still owes closes."""
        market = self.graph.settings.market
        sessions = [
            day
            for day in market.sessions
            if self._since <= day <= self.now.date()
            and self.now >= dt.datetime.combine(day, BARS_AT, SHANGHAI) + _BARS_PATIENCE
        ]
        for name in (INDUSTRY_BARS, BENCHMARK_BARS):
            keys = [day.isoformat() for day in sessions]
            landed = [key for key in keys if self.store.digest(f"{LANDING}{name}", key) is not None]
            due = set(self._found_due(name, landed))
            if configured(self.graph.settings, name):
                whole = complete(self.store.landing, name, sessions)
                due |= {day.isoformat() for day in sessions if day not in whole}
            yield from _works("market_session", (name,), self.graph.tables[name].partitions, due)

    def session_inputs(self) -> Iterator[Work]:
        """Windows and outcomes that are to be made, but for those that would change what was read."""
        sessions = [day for day in self._sessions if self.now >= self._time(day, INPUTS_LATER) + _AFTER_SCHEDULE]
        due: dict[str, list[str]] = {}
        for name in INPUTS:
            due[name] = []
            for key in self._stale_or_missing(name, [day.isoformat() for day in sessions]):
                is_there = self.store.stored(name, key) is not None
                if not is_there and self.now >= self._time(key, INPUTS_LATER) + _LATE:
                    self.late.setdefault(name, []).append(key)
                if not is_there or not is_read(self.graph, self.store, dt.date.fromisoformat(key)):
                    self._due.add((name, key))
                    due[name].append(key)
                elif self._can_be_made(name, key):
                    # Judged when what it is made of is up to date.
                    (self.kept.setdefault(name, []) if self._would_differ(name, key) else due[name]).append(key)
        yield from self._together("session_inputs", due)

    def replays(self) -> Iterator[Work]:
        """The next session of each chain that automation follows."""
        sessions = [day for day in self._sessions if self.now >= self._time(day, REPLAY_LATER) + _AFTER_SCHEDULE]
        for experiment in self.graph.settings.followed_experiments:
            stored = set(self.store.replays.sessions(experiment.key))
            missing = [day for day in self.graph.sessions if day not in stored and sessions and day <= sessions[-1]]
            if not missing:
                continue
            self._behind.add(experiment.key)
            if missing[0] < sessions[0]:
                self.notes.append(
                    f"replay {experiment.key} {missing[0]}: lies before the last "
                    f"{self.graph.settings.automation.catch_up_days} days; `finevolve run {experiment.options}` does it"
                )
                continue
            late = [day.isoformat() for day in missing if self.now >= self._time(day, REPLAY_LATER) + _LATE]
            self.late[f"replay {experiment.key}"] = late
            why = not_ready(self.graph, self.store, experiment, missing[0])
            stale = [name for name in INPUTS if (name, missing[0].isoformat()) in self._due]
            if why or stale:
                self.notes.append(why or f"replay {experiment.key} {missing[0]}: {stale[0]} is to be made first")
                continue
            key = f"{missing[0]}|{experiment.key}"
            yield Work("replay_session", ("replay",), key, key, experiment.key)

    def coefficients(self) -> Iterator[Work]:
        """Experiments whose coefficients are not those of their predictions and labels, once their chain is level."""
        if self._stale_or_missing("alpha", [SINGLE]):
            return
        keys = [one.key for one in self.graph.settings.all_experiments]
        ran = [key for key in keys if key not in self._behind and self.store.digest("replay", key) is not None]
        due = self._stale_or_missing("ic_by_experiment", ran)
        yield from _works("experiment_ic", ("ic_by_experiment",), keys, due)

    def _time(self, day: dt.date | str, later: int) -> dt.datetime:
        """When the night after a day asks for it."""
        day = day if isinstance(day, dt.date) else dt.date.fromisoformat(day)
        minutes = closing_minutes(self.graph.settings) + later
        return coverage.ends_at(day) + dt.timedelta(minutes=minutes)

    def _stale_or_missing(self, name: str, keys: Sequence[str]) -> tuple[str, ...]:
        wanted = Wanted(self._sessions, (), {name: tuple(keys)})
        return freshness(self.graph, self.store, wanted, name, self._due).due

    def _found_due(self, name: str, keys: Sequence[str]) -> tuple[str, ...]:
        found = self._stale_or_missing(name, keys)
        self._due |= {(name, key) for key in found}
        return found

    def _can_be_made(self, name: str, key: str, beside: Collection[str] = ()) -> bool:
        """Whether all that a partition is made of is there and up to date, tables made in the same run left out."""
        inputs = (item for item in self.graph.tables[name].inputs(key, self.store) if item.table not in beside)
        return all(
            (item.table, item.partition) not in self._due
            and (item.optional or self.store.digest(item.table, item.partition) is not None)
            for item in inputs
        )

    def _would_differ(self, name: str, key: str) -> bool:
        """Whether a stored partition would have other rows if it were made now."""
        table = self.graph.tables[name]
        frame = table.build(key, self.store)
        made = table_of({str(column): frame[column] for column in frame.columns}, table.contract, f"{name} {key}")
        return digest_table(made) != self.store.digest(name, key)

    def _together(self, job: str, due: Mapping[str, Sequence[str]]) -> Iterator[Work]:
        """Runs of a job over partitions for which the same of its tables are due and can be made."""
        lacking: dict[tuple[str, ...], list[str]] = {}
        for key in sorted(set().union(*due.values())):
            tables = tuple(name for name, keys in due.items() if key in keys)
            made: tuple[str, ...] = ()
            for name in tables:
                made += (name,) if self._can_be_made(name, key, made) else ()
            if made:
                lacking.setdefault(made, []).append(key)
        for tables, keys in lacking.items():
            yield from _works(job, tables, self.graph.tables[tables[0]].partitions, keys)


def _works(
    job: str, tables: tuple[str, ...], order: Sequence[str], keys: Collection[str], subject: str = ""
) -> Iterator[Work]:
    """A run for each stretch of keys that stand next to each other in `order`."""
    wanted = set(keys)
    for is_wanted, stretch in itertools.groupby(order, wanted.__contains__):
        if is_wanted:
            listed = tuple(stretch)
            yield Work(job, tables, listed[0], listed[-1], subject)
