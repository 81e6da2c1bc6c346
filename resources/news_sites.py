"""The nine news sites: which days are asked for, the child process that asks, and what becomes of its answers.

Each source is crawled by a process of its own, so one that hangs, is blocked or dies stops no other. Articles land
before a day is called complete; a crawl that dies leaves its days partial, and the same call goes on with them.
"""

from __future__ import annotations

import datetime as dt
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from crawlers import settings as scrapy_project
from crawlers.items import Article
from crawlers.pages import PageState
from crawlers.records import ChannelEnd, Job, PageRead, Probe, Record, Window, decode, encode_job
from finevolve_pipeline.errors import FinEvolveError, SettingsError, TableError
from finevolve_pipeline.importing import RowError
from finevolve_pipeline.news import coverage as rules
from finevolve_pipeline.news.coverage import DayState, SourceCoverage
from finevolve_pipeline.news.importing import NewsItem, NewsOptions, NewsReader, to_frame
from finevolve_pipeline.settings import CrawlSettings
from resources.coverage_store import CoverageStore, CrawlLockedError
from resources.landing import Landing, NewsCounts

if TYPE_CHECKING:
    from crawlers.spiders.base import NewsSpider

ORIGIN = "crawl"
_COLUMNS = {name: name for name in ("source_id", "url", "title", "content", "published_at", "modified_at")}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

_ARTICLES_AT_ONCE = 4_000
_SECONDS_AT_MOST = 20.0
"""Articles wait for others no longer than this before they land."""

_LANDING_WAIT_SECONDS = 3600.0
"""An import may hold the landing store for long; a crawl waits for it rather than lose what it has fetched."""

_WATCH_SECONDS = 0.05
"""A child's silence is looked at no more often."""

Advance = Callable[[str, int, int, int], None]
"""Told of progress: source, days done, days asked for, articles."""


def ignore_progress(source: str, done: int, asked: int, articles: int) -> None:
    """An `Advance` that nobody watches."""


@dataclass(frozen=True)
class Crawled:
    """What a crawl of one source brought.

    Attributes:
        source: source id.
        asked: days that were asked for; none if all were complete before.
        counts: what landed.
        complete, partial, open: the asked days by what is now known of them.
        state: page state that ended it, `ok` if it went through.
        reason: why it is not ok, or what stopped the first list that did not go through.
        dropped: rows left out because they are not for the public, by kind.
        unreadable: rows that could not be read.
        notes: what the user should know, one line each, the first ones.
        newest: newest publication seen, ISO; empty if none.
        seconds: wall time.
        days_known: whether anything is known of the asked days; if not, their numbers say nothing.
    """

    source: str
    asked: int = 0
    counts: NewsCounts = field(default_factory=NewsCounts)
    complete: int = 0
    partial: int = 0
    open: int = 0
    state: str = PageState.OK.value
    reason: str = ""
    dropped: Mapping[str, int] = field(default_factory=dict)
    unreadable: int = 0
    notes: tuple[str, ...] = ()
    newest: str = ""
    seconds: float = 0.0
    days_known: bool = True

    @property
    def went_through(self) -> bool:
        """Whether all that was asked for is known now."""
        return self.state == PageState.OK.value and not self.partial


@cache
def spiders() -> Mapping[str, type[NewsSpider]]:
    """Spiders by source id."""
    # Scrapy takes a second to import; commands that do not crawl need not wait for it.
    from scrapy.settings import Settings as ScrapySettings
    from scrapy.spiderloader import SpiderLoader

    from crawlers.spiders.base import NewsSpider

    settings = ScrapySettings()
    settings.setmodule(scrapy_project, priority="project")
    loader = SpiderLoader.from_settings(settings)
    found = ((name, loader.load(name)) for name in loader.list())
    return {name: spider for name, spider in found if issubclass(spider, NewsSpider)}


def channels_of(source: str, settings: CrawlSettings) -> tuple[str, ...]:
    """The lists that are read of a source.

    Raises:
        SettingsError: there is no spider for it, or it has no list of a name in the settings.
    """
    if source not in spiders():
        raise SettingsError(f"source {source!r}: no spider reads it; there are {', '.join(sorted(spiders()))}")
    spider, section = spiders()[source], settings.sources.get(source)
    chosen = section.channels if section is not None and section.channels else spider.default_channels
    known = {channel.name for channel in spider.channels}
    for name in chosen:
        if name not in known:
            raise SettingsError(
                f"crawl.sources.{source}.channels: {name!r} is none; there are {', '.join(sorted(known))}"
            )
    return tuple(chosen)


def scrapy_settings(settings: CrawlSettings) -> dict[str, object]:
    """`[crawl]` as settings of Scrapy."""
    agent: str = scrapy_project.USER_AGENT
    return {
        "USER_AGENT": agent.replace(")", f"; +{settings.contact})") if settings.contact else agent,
        "DOWNLOAD_DELAY": settings.delay_seconds,
        "AUTOTHROTTLE_ENABLED": settings.autothrottle,
        "AUTOTHROTTLE_START_DELAY": settings.delay_seconds,
        "CONCURRENT_REQUESTS_PER_DOMAIN": settings.requests_at_once,
        "CONCURRENT_REQUESTS": max(settings.requests_at_once, scrapy_project.CONCURRENT_REQUESTS),
        "DOWNLOAD_TIMEOUT": settings.timeout_seconds,
        "DOWNLOAD_MAXSIZE": settings.most_bytes,
        "MOST_PAGES": settings.most_pages,
        "BACK_OFF_ATTEMPTS": settings.attempts,
        "BACK_OFF_SECONDS": settings.back_off_seconds,
        "BACK_OFF_LONGEST_SECONDS": settings.longest_wait_seconds,
        "ROBOTS_UNAVAILABLE": settings.robots_unavailable,
        **settings.scrapy,
    }


class NewsSites:
    """Crawls into one home."""

    def __init__(self, home: Path, settings: CrawlSettings) -> None:
        self.home = home
        self.settings = settings
        self.coverage = CoverageStore(home)

    def bring(
        self,
        wanted: Mapping[str, Sequence[dt.date]],
        now: dt.datetime,
        *,
        again: bool = False,
        advance: Advance = ignore_progress,
    ) -> tuple[Crawled, ...]:
        """Ask the sources for those of the wanted days that are not known to be complete.

        Args:
            wanted: days by source.
            now: aware; later publications are left to the next crawl.
            again: ask for complete days too.
            advance: told of progress.

        Returns:
            What became of each source, in the order given. A source that fails costs the others nothing.

        Raises:
            SettingsError: a source has no spider, or no such list. Nothing has been asked then.
        """
        channels = {source: channels_of(source, self.settings) for source in wanted}

        def one(source: str) -> Crawled:
            try:
                return self._bring(source, wanted[source], channels[source], now, again, advance)
            except FinEvolveError as failed:
                reason = str(failed).removeprefix(f"{source}: ")
                return self._as_known(Crawled(source, state=_state_of(failed), reason=reason), wanted[source])

        with ThreadPoolExecutor(self.settings.sources_at_once) as threads:
            return tuple(threads.map(one, wanted))

    def _as_known(self, failed: Crawled, days: Iterable[dt.date]) -> Crawled:
        """A crawl that failed, with what is known of its days from before."""
        try:
            known = self.coverage.read(failed.source).days
        except TableError:
            return replace(failed, days_known=False)
        states = Counter(known[key].state for day in set(days) if (key := day.isoformat()) in known)
        return replace(
            failed,
            complete=states[DayState.COMPLETE],
            partial=states[DayState.PARTIAL],
            open=states[DayState.OPEN],
        )

    def probe(self, sources: Iterable[str], now: dt.datetime) -> dict[str, Probe]:
        """What the newest page of each source's first list is like: one polite request a source."""
        jobs = {
            source: Job(
                source,
                (Window(now.date(), now.date(), channels_of(source, self.settings)[:1]),),
                now,
                True,
                scrapy_settings(self.settings),
            )
            for source in sources
        }

        def one(source: str) -> Probe:
            channel = jobs[source].windows[0].channels[0]
            try:
                with self._child(jobs[source]) as child:
                    found = next((record for record in child.records() if isinstance(record, Probe)), None)
            except CrawlStartError as failed:
                return Probe(channel, PageState.FETCH_ERROR, str(failed))
            reason = f"{child.how_it_ended()}; {self._log(jobs[source])} says why"
            return found or Probe(channel, PageState.FETCH_ERROR, reason)

        with ThreadPoolExecutor(self.settings.sources_at_once) as threads:
            return dict(zip(jobs, threads.map(one, jobs), strict=True))

    def _bring(
        self,
        source: str,
        days: Sequence[dt.date],
        channels: tuple[str, ...],
        now: dt.datetime,
        again: bool,
        advance: Advance,
    ) -> Crawled:
        began = time.monotonic()
        with self.coverage.crawling(source):
            known = rules.restricted(self.coverage.read(source), channels)
            spans = rules.plan(known, days, channels, now, again=again)
            if not spans:
                if known.days:
                    self.coverage.write(known)
                return Crawled(source)
            windows = tuple(Window(span.first, span.last, span.channels) for span in spans)
            job = Job(source, windows, now, False, scrapy_settings(self.settings))
            settle = dt.timedelta(minutes=self.settings.settle_minutes)
            crawl = _Crawl(self, job, spans, rules.begun(known, spans, now, settle), advance)
            try:
                with self._child(job) as child:
                    crawl.take(child.records())
                ended = child.how_it_ended()
            except CrawlStartError as failed:
                ended = str(failed)
            return replace(crawl.finish(ended), seconds=time.monotonic() - began)

    def _log(self, job: Job) -> Path:
        """Where a child tells what it does; a look at the newest page does not write over a crawl's."""
        return self.coverage.log(f"{job.source}.newest" if job.probe else job.source)

    @contextmanager
    def _child(self, job: Job) -> Iterator[_Child]:
        """A child process on a job. It is ended if it falls silent, or if we fail.

        Raises:
            CrawlStartError: it could not be started.
        """
        log = self._log(job)
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            with open(log, "w", encoding="utf-8") as messages:
                process = subprocess.Popen(
                    [sys.executable, "-m", "crawlers.child"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=messages,
                    encoding="utf-8",
                    errors="replace",  # what it writes is ASCII; anything else is found to be no record
                )
        except OSError as failed:
            raise CrawlStartError(f"the crawl could not be started: {failed}") from failed
        child = _Child(process, self.settings.silence_seconds)
        try:
            child.give(encode_job(job))
            yield child
            child.wait()
        finally:
            child.end()


class CrawlStartError(FinEvolveError):
    """The process of a crawl could not be started."""


class _Child:
    """A crawl's process: gets its job, tells records, and is killed if it tells nothing for too long.

    Only the time that we wait for it counts: it is not silent because we are busy.
    """

    def __init__(self, process: subprocess.Popen[str], silence_seconds: float) -> None:
        self._process, self._silence = process, silence_seconds
        self._awaited_since: float | None = None
        self._ended = threading.Event()
        self._fell_silent = False
        self._rubbish = ""
        threading.Thread(target=self._watch, daemon=True).start()

    def give(self, job: str) -> None:
        """Hand it its job."""
        assert self._process.stdin is not None
        with _ended_child_tolerated():
            self._process.stdin.write(job + "\n")
            self._process.stdin.flush()

    def records(self) -> Iterator[Record]:
        """What it tells, until it ends; a line cut off by its death is none. One that tells anything else is killed."""
        assert self._process.stdout is not None
        while True:
            with self._waiting():
                line = self._process.stdout.readline()
            if not line.endswith("\n"):
                return
            if line == "\n":  # it is alive
                continue
            try:
                record = decode(line)
            except (ValueError, TypeError, KeyError, AttributeError):
                self._rubbish = line[:60]
                self._process.kill()
                return
            yield record

    def wait(self) -> None:
        """Until it has ended."""
        with self._waiting():
            self._process.wait()

    def end(self) -> None:
        """End it, whatever it does."""
        self._ended.set()
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with _ended_child_tolerated():
            self._process.stdin.close()
        self._process.stdout.close()

    def how_it_ended(self) -> str:
        """What to tell the user of a crawl that ended before its time."""
        code = self._process.returncode
        if self._rubbish:
            how = f"it told what is no record: {self._rubbish!r}"
        elif self._fell_silent:
            how = f"it did nothing for {self._silence:g} s and was stopped"
        elif code < 0:
            how = f"it was killed by {signal.Signals(-code).name}"
        else:
            how = f"exit code {code}"
        return f"the crawl broke off ({how})"

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        self._awaited_since = time.monotonic()
        yield
        self._awaited_since = None

    def _watch(self) -> None:
        left = self._silence
        while not self._ended.wait(max(left, _WATCH_SECONDS)):
            since = self._awaited_since
            left = self._silence if since is None else since + self._silence - time.monotonic()
            if left <= 0:
                self._fell_silent = True
                self._process.kill()
                return


@contextmanager
def _ended_child_tolerated() -> Iterator[None]:
    """Writing to a child that has died is no error here: its exit code and its log say why."""
    try:
        yield
    except BrokenPipeError:
        return


@dataclass
class _Crawl:
    """A crawl of one source under way: articles gather, land, and then prove days complete."""

    sites: NewsSites
    job: Job
    spans: tuple[rules.Span, ...]
    known: SourceCoverage
    advance: Advance
    counts: NewsCounts = field(default_factory=NewsCounts)
    dropped: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    ends: list[ChannelEnd] = field(default_factory=list)
    _waiting: list[Article] = field(default_factory=list)
    _reached: dict[tuple[int, str], dt.datetime] = field(default_factory=dict)
    _missing: dict[str, Counter[str]] = field(default_factory=dict)
    _doubts: dict[str, dict[str, str]] = field(default_factory=dict)
    _newest: dict[str, dt.datetime] = field(default_factory=dict)
    _unreadable: int = 0
    _landed_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._landing = Landing.of(self.sites.home, _LANDING_WAIT_SECONDS)
        self._reader = NewsReader(NewsOptions(self.job.started_at, self.job.source))
        self._asked = {day for span in self.spans for day in rules.days_of(span)}
        # Lists that prove nothing are no part of a day's proof, unless there is no other: then the day has none.
        chosen = channels_of(self.job.source, self.sites.settings)
        proving = {channel.name for channel in spiders()[self.job.source].channels if channel.proves}
        self._needed = proving.intersection(chosen) or set(chosen)
        self._proving = proving
        self.sites.coverage.write(self.known)
        self.advance(self.job.source, 0, len(self._asked), 0)

    def take(self, records: Iterator[Record]) -> None:
        """Take what the child tells until it ends."""
        for record in records:
            if isinstance(record, PageRead):
                self._page(record)
            elif isinstance(record, ChannelEnd):
                self._end(record)
        self._land()

    def finish(self, ended: str) -> Crawled:
        """What the crawl came to; lists that were never left are so because the child ended, or was refused."""
        done = {(end.window, end.channel) for end in self.ends}
        refused = next((end for end in self.ends if end.state is PageState.BLOCKED), None)
        for position, span in enumerate(self.spans):
            for channel in span.channels:
                if (position, channel) not in done:
                    reason = refused.reason if refused is not None else ended
                    self._leave(position, channel, reason)
        failed = next((end for end in self.ends if end.state is not PageState.OK), None)
        broke_off = refused is None and len(done) < sum(len(span.channels) for span in self.spans)
        state, reason = (
            (failed.state.value, f"{failed.channel}: {failed.reason}") if failed else (PageState.OK.value, "")
        )
        if failed is None and broke_off:
            state, reason = PageState.FETCH_ERROR.value, f"{ended}; {self.sites.coverage.log(self.job.source)} says why"
        short = next((end for end in self.ends if end.ends and end.channel in self._needed), None)
        if not reason and short is not None:
            reason = f"{short.channel}: {short.reason}"
        newest = max((end.newest for end in self.ends), default="")
        earliest = max((end.reached for end in self.ends if end.ends and end.channel in self._needed), default="")
        self.known = replace(
            self.known,
            state=state,
            reason=reason,
            newest=max(self.known.newest, newest),
            earliest=earliest or self.known.earliest,
        )
        with self._landing.importing():
            for day in self._asked:  # asked for, so a day without articles is a finding
                self._landing.note_day(self.job.source, day.isoformat())
        self.sites.coverage.write(self.known)
        states = Counter(self.known.days[day.isoformat()].state for day in self._asked)
        return Crawled(
            self.job.source,
            len(self._asked),
            self.counts,
            states[DayState.COMPLETE],
            states[DayState.PARTIAL],
            states[DayState.OPEN],
            state,
            reason,
            dict(self.dropped),
            self._unreadable,
            tuple(self.notes),
            newest,
        )

    def _page(self, page: PageRead) -> None:
        self._waiting.extend(page.articles)
        self.dropped.update(page.dropped)
        self._unreadable += len(page.unreadable)
        for line in (*page.unreadable, *page.notes):
            self._note(f"{page.channel}: {line}")
        self._missing.setdefault(page.channel, Counter()).update(page.missing)
        self._doubts.setdefault(page.channel, {}).update(page.doubts)
        if page.newest:
            self._newest[page.channel] = dt.datetime.fromisoformat(page.newest)
        self._reached[page.window, page.channel] = dt.datetime.fromisoformat(page.reached)
        late = time.monotonic() - self._landed_at > _SECONDS_AT_MOST
        if len(self._waiting) >= _ARTICLES_AT_ONCE or (late and self._waiting):
            self._land()

    def _end(self, end: ChannelEnd) -> None:
        self.ends.append(end)
        self._reached[end.window, end.channel] = dt.datetime.fromisoformat(end.reached)
        self._land()
        if end.state is not PageState.OK or end.ends:
            self._leave(end.window, end.channel, end.reason)

    def _leave(self, position: int, channel: str, reason: str) -> None:
        """The days of a window that a list did not reach are partial, if it is needed for their proof."""
        span = self.spans[position]
        instant = self._reached.get((position, channel), rules.ends_at(span.last))
        self.known = rules.stopped(self.known, span, channel, instant, reason if channel in self._needed else "")

    def _land(self) -> None:
        """Let the gathered articles land, then say which days they complete."""
        items, numbers = [], []
        for number, article in enumerate(self._waiting):
            item = self._item(article)
            if item is not None:
                items.append(item)
                numbers.append(number)
        if items:
            since = int((self.job.started_at - _EPOCH).total_seconds() * 1_000_000)
            counts = self._landing.merge_news(to_frame(items, numbers, ORIGIN, since))
            for told in counts.contradictions:
                self._note(f"{told.source_id}: has another text now; the first one stays")
            self.counts += counts
        self._waiting.clear()
        self._landed_at = time.monotonic()
        for (position, channel), instant in self._reached.items():
            newest = self._newest.get(channel) if channel in self._needed else self.job.started_at
            span, lacks = self.spans[position], self._lacks(channel)
            self.known = rules.reached(self.known, span, channel, instant, newest, lacks)
        self.sites.coverage.write(self.known)
        done = sum(1 for day in self._asked if self.known.days[day.isoformat()].state is not DayState.PARTIAL)
        landed = self.counts.added + self.counts.updated + self.counts.known
        self.advance(self.job.source, done, len(self._asked), landed)

    def _lacks(self, channel: str) -> dict[str, str]:
        """What days lack though their pages were reached."""
        if channel in self._needed and channel not in self._proving:
            return {day.isoformat(): "a list that gives only its newest rows proves no day" for day in self._asked}
        bodies = {
            day: f"{count} article{'' if count == 1 else 's'} whose body could not be fetched"
            for day, count in self._missing.get(channel, {}).items()
        }
        return {**self._doubts.get(channel, {}), **bodies}

    def _item(self, article: Article) -> NewsItem | None:
        """The article as it will land; None, with a note, if it cannot."""
        values = {name: getattr(article, name) for name in _COLUMNS}
        try:
            return self._reader.item(values, _COLUMNS)
        except RowError as broken:
            self._unreadable += 1
            self._note(f"{article.url or article.source_id}: {broken}")
            return None

    def _note(self, line: str) -> None:
        if len(self.notes) < 20:
            self.notes.append(line)


def _state_of(failed: FinEvolveError) -> str:
    return "locked" if isinstance(failed, CrawlLockedError) else PageState.FETCH_ERROR.value
