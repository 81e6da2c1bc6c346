"""Which days of a source are known to be complete, and which must be asked for again.

A day is complete only if every list of the source was paged back to its start, after it had ended, and has a row from
after its end. It says nothing of rows that could not be read: a crawl tells those by themselves. Everything else
that was asked for is partial, with the reason: a day without articles is a finding, a day that was not reached is not.
Days are calendar days in Asia/Shanghai; instants are aware.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from finevolve_pipeline.calendar import SHANGHAI

_FIRST_RETRY = dt.timedelta(hours=1)
_RETRIED_FOR = dt.timedelta(days=7)


class DayState(StrEnum):
    """What is known of a source's day."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    OPEN = "open"
    """Read as far as it had gone when it was asked for."""


@dataclass(frozen=True)
class DayCoverage:
    """One source's day.

    Attributes:
        channels: list -> why it is not complete; empty text: it is.
        asked_at: when the last crawl began that asked for it.
        tries: crawls that asked for it.
        open: it had not ended, or not long enough ago, when it was last asked for.
    """

    channels: Mapping[str, str]
    asked_at: dt.datetime
    tries: int = 1
    open: bool = False

    @property
    def state(self) -> DayState:
        """Complete, partial or open."""
        if any(self.channels.values()):
            return DayState.PARTIAL
        return DayState.OPEN if self.open else DayState.COMPLETE

    @property
    def reason(self) -> str:
        """Why it is not complete, empty if it is."""
        return "; ".join(f"{name}: {reason}" for name, reason in sorted(self.channels.items()) if reason)

    @property
    def next_try(self) -> dt.datetime | None:
        """When a partial day may be asked for again by itself: after 1, 2, 4, 8... hours, for a week; None: no more."""
        if self.state is not DayState.PARTIAL:
            return None
        doublings = min(self.tries - 1, 8)
        return self.asked_at + min(_FIRST_RETRY * (1 << doublings), _RETRIED_FOR)


@dataclass(frozen=True)
class SourceCoverage:
    """All that is known of a source.

    Attributes:
        days: by ISO day.
        earliest: earliest instant that its lists are known to reach, ISO; empty if unknown.
        newest: newest publication seen, ISO; empty if none.
        state: page state of the last crawl (`ok`, `blocked`, ...), empty if there was none.
        reason: why it was not ok.
    """

    source: str
    days: Mapping[str, DayCoverage] = field(default_factory=dict)
    earliest: str = ""
    newest: str = ""
    state: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Span:
    """Consecutive days, both included, that lack the same lists."""

    first: dt.date
    last: dt.date
    channels: tuple[str, ...]


def ends_at(day: dt.date) -> dt.datetime:
    """The midnight that ends a day."""
    return dt.datetime.combine(day + dt.timedelta(days=1), dt.time(), SHANGHAI)


def starts_at(day: dt.date) -> dt.datetime:
    """The midnight that begins a day."""
    return dt.datetime.combine(day, dt.time(), SHANGHAI)


def is_open(day: dt.date, now: dt.datetime, settle: dt.timedelta) -> bool:
    """Whether more may still be published on a day, or has not settled."""
    return now < ends_at(day) + settle


def lacking(day: DayCoverage | None, channels: Sequence[str]) -> tuple[str, ...]:
    """Lists of the source that are not known to be complete for a day."""
    if day is None or day.open:
        return tuple(channels)
    return tuple(name for name in channels if day.channels.get(name, "not asked yet"))


def plan(
    coverage: SourceCoverage, days: Iterable[dt.date], channels: Sequence[str], now: dt.datetime, *, again: bool = False
) -> tuple[Span, ...]:
    """What must be asked for: consecutive days that lack the same lists, newest first.

    Args:
        coverage: what is known.
        days: days that are wanted; those that have not begun are left out.
        channels: lists that a complete day needs.
        now: days that begin later are left out.
        again: ask for complete days too.
    """
    spans: list[Span] = []
    for day in sorted({day for day in days if starts_at(day) <= now}, reverse=True):
        missing = tuple(channels) if again else lacking(coverage.days.get(day.isoformat()), channels)
        if not missing:
            continue
        if spans and spans[-1].channels == missing and spans[-1].first - day == dt.timedelta(days=1):
            spans[-1] = replace(spans[-1], first=day)
        else:
            spans.append(Span(day, day, missing))
    return tuple(spans)


def restricted(coverage: SourceCoverage, channels: Sequence[str]) -> SourceCoverage:
    """The coverage without lists that are no longer read: what they lack is nobody's concern any more."""
    days = {}
    for day, known in coverage.days.items():
        kept = {name: why for name, why in known.channels.items() if name in channels}
        if kept:  # a day of which none is left was never asked for
            days[day] = replace(known, channels=kept)
    return replace(coverage, days=days)


def begun(coverage: SourceCoverage, spans: Iterable[Span], now: dt.datetime, settle: dt.timedelta) -> SourceCoverage:
    """The coverage while a crawl of these spans is under way: if it breaks off, this is what stays."""
    days = dict(coverage.days)
    for span in spans:
        for day in days_of(span):
            before = days.get(day.isoformat())
            known = dict(before.channels) if before is not None and not before.open else {}
            days[day.isoformat()] = DayCoverage(
                {**known, **dict.fromkeys(span.channels, "a crawl began and has not ended")},
                now,
                1 if before is None or before.open else before.tries + 1,
                is_open(day, now, settle),
            )
    return replace(coverage, days=days)


def reached(
    coverage: SourceCoverage,
    span: Span,
    channel: str,
    instant: dt.datetime,
    newest: dt.datetime | None,
    lacks: Mapping[str, str],
) -> SourceCoverage:
    """The coverage after a list was read back to an instant.

    Args:
        coverage: before.
        span: what is crawled.
        channel: the list.
        instant: everything of the span from here on has been brought.
        newest: publication of the newest row that the list has. Days that it has not gone beyond may lack articles
            that are still to come: a list can stand still.
        lacks: ISO day -> what its pages did not give, though they were reached.
    """
    days = dict(coverage.days)
    for day in days_of(span):
        if starts_at(day) < instant:
            break
        known = days[day.isoformat()]
        reason = lacks.get(day.isoformat(), "")
        if not reason and not known.open and (newest is None or newest < ends_at(day)):
            seen = "nothing" if newest is None else f"the newest is of {newest.astimezone(SHANGHAI):%Y-%m-%d %H:%M}"
            reason = f"the list has not gone on since ({seen}): it may stand still"
        days[day.isoformat()] = replace(known, channels={**known.channels, channel: reason})
    return replace(coverage, days=days)


def stopped(coverage: SourceCoverage, span: Span, channel: str, instant: dt.datetime, reason: str) -> SourceCoverage:
    """The coverage after a list was left at an instant: the days before it are partial for that reason."""
    days = dict(coverage.days)
    for day in days_of(span):
        if starts_at(day) < instant:
            known = days[day.isoformat()]
            days[day.isoformat()] = replace(known, channels={**known.channels, channel: reason})
    return replace(coverage, days=days)


def days_of(span: Span) -> Iterator[dt.date]:
    """Days of a span, newest first."""
    day = span.last
    while day >= span.first:
        yield day
        day -= dt.timedelta(days=1)


def to_retry(coverage: SourceCoverage, now: dt.datetime) -> tuple[str, ...]:
    """Partial days of the last week whose next try is due, oldest first."""
    found = []
    for day, known in sorted(coverage.days.items()):
        due = known.next_try
        recent = now - _ends(day) <= _RETRIED_FOR
        if due is not None and due <= now and recent:
            found.append(day)
    return tuple(found)


def next_retry(coverage: SourceCoverage, now: dt.datetime) -> tuple[str, dt.datetime] | None:
    """The partial day that will be asked for again first, and when; None if none waits for its time."""
    waiting = [
        (due, day)
        for day, known in coverage.days.items()
        if (due := known.next_try) is not None and due > now and due - _ends(day) <= _RETRIED_FOR
    ]
    if not waiting:
        return None
    due, day = min(waiting)
    return day, due


def given_up(coverage: SourceCoverage, now: dt.datetime) -> tuple[str, ...]:
    """Partial days that ended more than a week ago, so that none of them is asked for again by itself, oldest first.

    Days that a crawl asked for within the last day are left out: its work may still be under way.
    """
    return tuple(
        day
        for day, known in sorted(coverage.days.items())
        if known.state is DayState.PARTIAL
        and now - _ends(day) > _RETRIED_FOR
        and now - known.asked_at > dt.timedelta(days=1)
    )


def asked_for_news(coverage: SourceCoverage, now: dt.datetime) -> dt.datetime | None:
    """When a source was last asked for its newest publications, and gave them; None if not since yesterday began."""
    newest = max(coverage.days, default=None)
    if newest is None or coverage.days[newest].state is DayState.PARTIAL:
        return None
    return coverage.days[newest].asked_at if now - _ends(newest) < dt.timedelta(days=1) else None


def never_closed(
    coverage: SourceCoverage, days: Iterable[dt.date], now: dt.datetime, grace: dt.timedelta
) -> tuple[str, ...]:
    """Days, of those given, that should have been asked for since they ended and were not, in the given order.

    Args:
        coverage: what is known; a source that was never asked owes nothing, nor does one owe days before its first.
        days: days to look at.
        now: the present.
        grace: time from a day's end to when it should have been closed.
    """
    first = min(coverage.days, default=None)
    found = []
    for day in days:
        if first is None or day.isoformat() < first or now < ends_at(day) + grace:
            continue
        known = coverage.days.get(day.isoformat())
        if known is None or known.state is DayState.OPEN:
            found.append(day.isoformat())
    return tuple(found)


def _ends(day: str) -> dt.datetime:
    return ends_at(dt.date.fromisoformat(day))


def to_document(coverage: SourceCoverage) -> dict[str, object]:
    """As plain values, for a file."""
    return {
        "source": coverage.source,
        "earliest": coverage.earliest,
        "newest": coverage.newest,
        "state": coverage.state,
        "reason": coverage.reason,
        "days": {
            day: {
                "channels": dict(known.channels),
                "asked_at": known.asked_at.isoformat(),
                "tries": known.tries,
                "open": known.open,
            }
            for day, known in sorted(coverage.days.items())
        },
    }


def of_document(found: Mapping[str, object]) -> SourceCoverage:
    """The coverage of plain values. Raises `KeyError`, `TypeError` or `ValueError` if they are none."""
    listed = found["days"]
    if not isinstance(listed, dict):
        raise TypeError("days: not a table")
    days = {
        dt.date.fromisoformat(day).isoformat(): DayCoverage(
            {str(name): str(reason) for name, reason in known["channels"].items()},
            dt.datetime.fromisoformat(known["asked_at"]),
            int(known["tries"]),
            bool(known["open"]),
        )
        for day, known in listed.items()
    }
    texts = {name: str(found[name]) for name in ("source", "earliest", "newest", "state", "reason")}
    return SourceCoverage(days=days, **texts)
