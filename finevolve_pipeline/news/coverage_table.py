"""News coverage, day by source: how many articles landed, and what is known of how complete the day is.

One table for all who show it: the command, its JSON, and the report. Days are ISO calendar days in Asia/Shanghai.
What must not live here: reading files, laying out.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from finevolve_pipeline.calendar import days_between
from finevolve_pipeline.news.coverage import DayState, SourceCoverage

UNREADABLE = "unreadable"
"""State of a source whose coverage file cannot be read; its reason says why and what to do."""


class Standing(StrEnum):
    """What is known of a source's day, crawled or not."""

    COMPLETE = DayState.COMPLETE.value
    PARTIAL = DayState.PARTIAL.value
    OPEN = DayState.OPEN.value
    IMPORTED = "imported"
    """It came from files or another service, or what its crawls found cannot be read: how complete it is, is not known
    here."""
    NEVER_ASKED = "never asked"


@dataclass(frozen=True)
class SourceDay:
    """One source's day.

    Attributes:
        articles: how many landed; None: nothing ever did.
        standing: what is known of it.
        reason: why it is partial, else empty.
    """

    articles: int | None = None
    standing: Standing = Standing.NEVER_ASKED
    reason: str = ""


@dataclass(frozen=True)
class PartialSpan:
    """Consecutive calendar days of a source that are partial for the same reason; both days are included."""

    source: str
    first: str
    last: str
    articles: int
    reason: str

    @property
    def days(self) -> int:
        """How many days."""
        return (dt.date.fromisoformat(self.last) - dt.date.fromisoformat(self.first)).days + 1


@dataclass(frozen=True)
class CoverageTable:
    """Sources by days.

    Attributes:
        sources: what is known of each source from its crawls, in the order to show.
        days: ascending; those on which any of the sources has an article or was asked for.
        known: (source, day) -> what is known; a day that is not here was never asked for.
    """

    sources: Mapping[str, SourceCoverage]
    days: tuple[str, ...]
    known: Mapping[tuple[str, str], SourceDay]

    def at(self, source: str, day: str) -> SourceDay:
        """One source's day."""
        return self.known.get((source, day), _NOTHING)

    @property
    def span(self) -> tuple[str, ...]:
        """All calendar days from the first to the last of `days`."""
        if not self.days:
            return ()
        first, last = (dt.date.fromisoformat(self.days[end]) for end in (0, -1))
        return tuple(day.isoformat() for day in days_between(first, last))

    @cached_property
    def articles(self) -> Mapping[str, int]:
        """Articles by source."""
        counts = Counter(dict.fromkeys(self.sources, 0))
        for (source, _), found in self.known.items():
            counts[source] += found.articles or 0
        return counts

    @cached_property
    def standings(self) -> Mapping[str, Mapping[Standing, int]]:
        """Days of `span` by source and standing."""
        counts = {source: Counter(dict.fromkeys(Standing, 0)) for source in self.sources}
        for (source, _), found in self.known.items():
            counts[source][found.standing] += 1
        days = len(self.span)
        for of_source in counts.values():
            of_source[Standing.NEVER_ASKED] = days - of_source.total()
        return counts

    @cached_property
    def months(self) -> Mapping[tuple[str, str], Mapping[str, int]]:
        """(source, month YYYY-MM) -> `articles` and days by standing, of months that hold anything of it."""
        found: dict[tuple[str, str], Counter[str]] = {}
        for (source, day), known in self.known.items():
            counts = found.setdefault((source, day[:7]), Counter())
            counts["articles"] += known.articles or 0
            counts[known.standing] += 1
        return found

    def partial_spans(self) -> tuple[PartialSpan, ...]:
        """All partial days, newest first, those of the same last day in the order of the sources."""
        spans = [span for source in self.sources for span in self._partial_spans(source)]
        return tuple(sorted(spans, key=lambda span: span.last, reverse=True))

    def _partial_spans(self, source: str) -> Iterator[PartialSpan]:
        span: PartialSpan | None = None
        for day in self.days:
            found = self.at(source, day)
            if found.standing is not Standing.PARTIAL:
                continue
            count = found.articles or 0
            if span is not None and span.reason == found.reason and _follows(day, span.last):
                span = PartialSpan(source, span.first, day, span.articles + count, span.reason)
                continue
            if span is not None:
                yield span
            span = PartialSpan(source, day, day, count, found.reason)
        if span is not None:
            yield span

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Sources whose coverage cannot be read, and why."""
        return {source: one.reason for source, one in self.sources.items() if one.state == UNREADABLE}

    def document(self, only: Standing | None = None) -> dict[str, object]:
        """As plain values: what `finevolve coverage --json` prints; of days those of one standing, if it is given."""
        return {
            "sources": {
                source: {
                    "earliest": one.earliest or None,
                    "newest": one.newest or None,
                    "state": one.state or None,
                    "reason": one.reason,
                    "days": {
                        day: _day_document(found)
                        for day in self.days
                        if (found := self.at(source, day)) and only in (None, found.standing)
                    },
                }
                for source, one in self.sources.items()
            }
        }


_NOTHING = SourceDay()


def _follows(day: str, before: str) -> bool:
    return dt.date.fromisoformat(day) - dt.date.fromisoformat(before) == dt.timedelta(days=1)


def _day_document(found: SourceDay) -> dict[str, object]:
    asked = found.standing is not Standing.NEVER_ASKED
    return {
        "articles": found.articles,
        "state": found.standing.value if asked else None,
        "reason": found.reason,
    }


def all_sources(configured: Iterable[str], landed: Iterable[str], crawled: Iterable[str]) -> tuple[str, ...]:
    """The configured sources in their order, then those that are only known because something landed or was asked."""
    return tuple(dict.fromkeys((*configured, *sorted({*landed, *crawled}))))


def coverage_table(
    sources: Iterable[SourceCoverage],
    counts: Mapping[tuple[str, str], int],
    *,
    first: dt.date | None = None,
    last: dt.date | None = None,
) -> CoverageTable:
    """The coverage of sources.

    Args:
        sources: what is known of each from its crawls, in the order to show; other sources are left out.
        counts: (source, ISO day) -> articles that landed.
        first, last: days before and after are left out; None: no bound.
    """
    by_source = {one.source: one for one in sources}
    lowest, highest = (first or dt.date.min).isoformat(), (last or dt.date.max).isoformat()
    known = {
        (source, day): SourceDay(count, Standing.IMPORTED)
        for (source, day), count in counts.items()
        if source in by_source and lowest <= day <= highest
    }
    for source, one in by_source.items():
        for day, found in one.days.items():
            if lowest <= day <= highest:
                standing = Standing(found.state.value)
                known[source, day] = SourceDay(counts.get((source, day)), standing, found.reason)
    days = tuple(sorted({day for _, day in known}))
    return CoverageTable(by_source, days, dict(sorted(known.items())))
