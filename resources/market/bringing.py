"""Asking the market sources for what the landing store lacks.

For each table the sources of the settings are asked in order. What the first says lands; what it lacks lands from the
next; and what the next ones say is kept beside, for comparison. A broken source is told and stops no other. The
network is never asked under the store's lock.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from finevolve_pipeline import tables
from finevolve_pipeline.errors import InputError, SourceError
from finevolve_pipeline.market.fetching import (
    Span,
    codes_of,
    missing_closes,
    require_same_sessions,
    sessions_to_ask,
    settled_sessions,
    spans,
    told_missing,
)
from finevolve_pipeline.settings import Settings
from resources.landing import BarCounts, Landing
from resources.market.revisions import Revisions
from resources.market.sources import CalendarSource, MarketSource, build_source, configured, second_store

PATIENCE = 60.0
"""Seconds to wait for another process that is writing into the landing store."""

Progress = Callable[[str, int, int], None]
"""Told of (source, sessions asked so far, sessions to ask)."""


@dataclass
class Asked:
    """What became of one source for one table.

    Attributes:
        source: its name.
        asked: sessions it was asked for.
        landed: what its bars did in the landing store (of a later source: where the first lacks one).
        problems: what was wrong with its answers.
        unusable: codes for which it gave an answer, or rows, of no use.
        error: why it is broken; empty if it is not.
    """

    source: str
    asked: int = 0
    landed: BarCounts = field(default_factory=BarCounts)
    problems: list[str] = field(default_factory=list)
    unusable: set[str] = field(default_factory=set)
    error: str = ""


@dataclass
class Brought:
    """What `bring` did for one table.

    Attributes:
        table: its name.
        sources: each source, in order of preference.
        absent: settled sessions asked for that still lack closes, with the codes.
    """

    table: str
    sources: list[Asked] = field(default_factory=list)
    absent: dict[dt.date, tuple[str, ...]] = field(default_factory=dict)

    @property
    def landed(self) -> BarCounts:
        """Of all sources."""
        return sum((asked.landed for asked in self.sources), BarCounts())

    @property
    def broken(self) -> tuple[str, ...]:
        """Errors of broken sources."""
        return tuple(asked.error for asked in self.sources if asked.error)

    @property
    def failures(self) -> tuple[str, ...]:
        """What did not succeed: broken sources, and closes still lacking of indices whose rows were of no use.

        A close that no source has any row of is no failure: the index may be younger, or the source a little late.
        """
        absent = [
            (day, lacking)
            for day, codes in self.absent.items()
            if (lacking := [code for code in codes if any(code in asked.unusable for asked in self.sources)])
        ]
        if not absent:
            return self.broken
        count = sum(len(lacking) for _, lacking in absent)
        day, lacking = absent[0]
        named = ", ".join(asked.source for asked in self.sources if asked.unusable)
        return (
            *self.broken,
            f"{self.table}: rows of {named} could not be used and no other source has them: {count:,} closes lack, "
            f"first {lacking[0]} {day}",
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """What people should know, errors apart."""
        told = [f"{self.table}: {problem}" for asked in self.sources for problem in asked.problems]
        revised = self.landed.revised_closes
        if revised:
            told.append(f"{self.table}: {len(revised):,} closes revised, first {revised[0]}")
        lacking = told_missing(self.absent, codes_of(self.table))
        return (*told, *([f"{self.table}: {lacking}"] if lacking else ()))

    @property
    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "table": self.table,
            "sources": [
                {
                    "source": asked.source,
                    "sessions_asked": asked.asked,
                    "added": asked.landed.added,
                    "updated": asked.landed.updated,
                    "known": asked.landed.known,
                    "revisions": [revision._asdict() for revision in asked.landed.revisions],
                    "problems": asked.problems,
                    "error": asked.error or None,
                }
                for asked in self.sources
            ],
            "missing_closes": sum(map(len, self.absent.values())),
            "missing_sessions": [day.isoformat() for day in self.absent],
        }


@dataclass(frozen=True)
class _Work:
    """One call of `bring`."""

    table: str
    sessions: tuple[dt.date, ...]
    now: dt.datetime
    newest: tuple[dt.date, ...]
    again: bool
    landing: Landing
    revisions: Revisions
    progress: Progress

    def ask(self, source: MarketSource, beside: Landing | None, report: Asked) -> None:
        """Ask a source; `beside` is where a later source's answers are kept, None for the first one."""
        own = beside or self.landing
        wanted = sessions_to_ask(self.sessions, complete(own, self.table, self.sessions), self.newest, self.again)
        done = 0
        try:
            for span in spans(wanted):
                asked = [session for session in wanted if span.first <= session <= span.last]
                self.progress(source.name, done, len(wanted))
                fetched = source.bars(self.table, codes_of(self.table), span, self.now)
                report.problems += [problem for problem in fetched.problems if problem not in report.problems]
                report.unusable |= fetched.unusable
                bars = fetched.frame[fetched.frame["session"].isin([session.isoformat() for session in asked])]
                if beside is not None:
                    beside.merge_bars(self.table, bars)
                done += len(asked)
                report.asked = done
                if beside is None:
                    report.landed += self._land(source, bars)
        finally:
            # What a later source gave before it broke lands too.
            if beside is not None:
                report.landed += self._land(source, self._lacking(beside))
        self.progress(source.name, done, len(wanted))

    def _land(self, source: MarketSource, bars: pd.DataFrame) -> BarCounts:
        tell = self.revisions.teller(self.table, source.name, self.now)
        return self.landing.merge_bars(self.table, bars, tell)

    def _lacking(self, beside: Landing) -> pd.DataFrame:
        """Bars of a later source for closes that the landing store lacks."""
        there = read(self.landing, self.table, self.sessions)
        absent = missing_closes(there, self.sessions, codes_of(self.table))
        bars = read(beside, self.table, tuple(absent))
        cells = {(day.isoformat(), code) for day, codes in absent.items() for code in codes}
        wanted = [cell in cells for cell in zip(bars["session"], bars["code"], strict=True)]
        return bars[pd.Series(wanted, index=bars.index, dtype="bool")]


def read(landing: Landing, table: str, sessions: Sequence[dt.date]) -> pd.DataFrame:
    """The bars that a store holds of those sessions, as `Bars`."""
    held = set(landing.bars_sessions(table))
    frames = [landing.read_bars(table, s.isoformat()) for s in sessions if s.isoformat() in held]
    return pd.concat(frames, ignore_index=True) if frames else tables.empty(tables.Bars)


def complete(landing: Landing, table: str, sessions: Sequence[dt.date]) -> frozenset[dt.date]:
    """Those of the sessions for which a store has every close."""
    absent = missing_closes(read(landing, table, sessions), sessions, codes_of(table))
    return frozenset(session for session in sessions if session not in absent)


def check_calendar(source: MarketSource, sessions: Sequence[dt.date], report: Asked) -> None:
    """Hold a source's trading days against ours, where it knows any; that it cannot be asked is a problem, told.

    Raises:
        CalendarError: they differ.
        SourceError: the source knows none at all.
    """
    if not isinstance(source, CalendarSource) or not sessions:
        return
    try:
        days = source.trading_days(sessions[0], sessions[-1])
    except SourceError as broken:
        report.problems.append(f"its trading days could not be had: {broken}")
        return
    require_same_sessions(days, sessions[0], sessions[-1], source.name)


def bring(
    settings: Settings,
    home: Path,
    table: str,
    sessions: Sequence[dt.date],
    now: dt.datetime,
    *,
    sources: Sequence[str] | None = None,
    again: bool = False,
    build: Callable[[str, Settings], MarketSource] = build_source,
    progress: Progress = lambda source, done, wanted: None,
) -> Brought:
    """Ask the sources of a table for the bars that the landing store lacks, and for the newest ones again.

    Sessions that are not over at `now` are not asked for.

    Args:
        settings: effective settings.
        home: folder of all state.
        table: `industry_bars` or `benchmark_bars`.
        sessions: sessions to have bars for, oldest first.
        now: the present (aware).
        sources: in order of preference; None: those of the settings. One that the settings put later is compared only.
        again: ask for all sessions, whatever there is.
        build: makes a source by its name.
        progress: is told how far it is.

    Raises:
        CalendarError: a source's trading days differ from the project's.
        InputError: no source is configured or named.
        LandingLockedError: another process is importing.
    """
    known = configured(settings, table)
    names = tuple(sources) if sources is not None else known
    if not names:
        side = "benchmark" if table == "benchmark_bars" else "industries"
        raise InputError(f"{table}: no source is configured; name them as {side} of [market] in finevolve.toml")
    settled = settled_sessions(sessions, now)
    landing, brought = Landing.of(home, PATIENCE), Brought(table)
    newest = _newest(settled_sessions(settings.market.sessions, now), settings.market.recheck_sessions)
    work = _Work(table, settled, now, newest, again, landing, Revisions(home), progress)
    for name in names:
        report = Asked(name)
        brought.sources.append(report)
        is_first = name not in known[1:]
        try:
            source = build(name, settings)
            check_calendar(source, settled, report)
            work.ask(source, None if is_first else second_store(home, name), report)
        except SourceError as broken:
            report.error = str(broken)
    brought.absent = missing_closes(read(landing, table, settled), settled, codes_of(table))
    return brought


def _newest(sessions: Sequence[dt.date], count: int) -> tuple[dt.date, ...]:
    return tuple(sessions[-count:]) if count else ()


def spanned(settings: Settings, first: dt.date | None, last: dt.date | None) -> tuple[dt.date, ...]:
    """Sessions of the kept bars from `first` to `last` (None: all).

    Raises:
        InputError: there are none.
    """
    market = settings.market
    span = Span(first or market.first_session, last or market.last_session)
    found = tuple(session for session in market.sessions if span.first <= session <= span.last)
    if not found:
        raise InputError(
            f"sessions {span.first}..{span.last}: none lies in [market] {market.first_session}..{market.last_session}; "
            "choose other days or change the section"
        )
    return found
