"""Trading calendar of the Shanghai exchange (XSHG), from the checked-in table `data/xshg_sessions.csv`.

A *session* is a trading day. The table covers 2024-2026; a question beyond it raises `CalendarError`
instead of guessing. Its content equals `exchange_calendars` 4.13 (tested). All days are plain dates in
Asia/Shanghai; a session's news cutoff is 24:00 of that day.
"""

from __future__ import annotations

import bisect
import datetime as dt
import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.resources import files
from zoneinfo import ZoneInfo

from finevolve_pipeline.errors import CalendarError

SHANGHAI = ZoneInfo("Asia/Shanghai")

Clock = Callable[[], dt.datetime]
"""Tells the present, aware."""


def shanghai_now() -> dt.datetime:
    """The present."""
    return dt.datetime.now(SHANGHAI)


@lru_cache(maxsize=1)
def all_sessions() -> tuple[dt.date, ...]:
    """Every session of the table, oldest first."""
    lines = (files("finevolve_pipeline") / "data" / "xshg_sessions.csv").read_text("utf-8").split()
    return tuple(dt.date.fromisoformat(line) for line in lines[1:])


@lru_cache(maxsize=1)
def _positions() -> dict[dt.date, int]:
    return {day: position for position, day in enumerate(all_sessions())}


def parse_day(text: str, what: str = "day") -> dt.date:
    """A calendar day written as YYYY-MM-DD (or YYYYMMDD).

    Raises:
        CalendarError: the text is no such day.
    """
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise CalendarError(f"{what} {text!r}: not a calendar day (use YYYY-MM-DD)") from None


def covers(day: dt.date) -> bool:
    """Whether the table knows if `day` is a session."""
    return dt.date(all_sessions()[0].year, 1, 1) <= day <= dt.date(all_sessions()[-1].year, 12, 31)


def _require_covered(day: dt.date) -> None:
    if not covers(day):
        first, last = all_sessions()[0].year, all_sessions()[-1].year
        raise CalendarError(
            f"session {day}: beyond the XSHG table of {first}-{last}; extend data/xshg_sessions.csv to use it"
        )


def is_session(day: dt.date) -> bool:
    """Whether the exchange trades on `day`. Raises `CalendarError` beyond the table."""
    _require_covered(day)
    return day in _positions()


def session_index(day: dt.date) -> int:
    """Position of a session in the table. Raises `CalendarError` if `day` is none."""
    _require_covered(day)
    position = _positions().get(day)
    if position is None:
        before, after = sessions_around(day)
        raise CalendarError(f"session {day}: the exchange was closed; nearest sessions are {before} and {after}")
    return position


def sessions_around(day: dt.date) -> tuple[dt.date | None, dt.date | None]:
    """The last session before `day` and the first one after it; None at an end of the table."""
    sessions = all_sessions()
    left, right = bisect.bisect_left(sessions, day), bisect.bisect_right(sessions, day)
    return (sessions[left - 1] if left else None, sessions[right] if right < len(sessions) else None)


def shift(session: dt.date, count: int) -> dt.date:
    """The session `count` sessions after `session` (before it if negative).

    Raises:
        CalendarError: `session` is none, or the result lies beyond the table.
    """
    position = session_index(session) + count
    if not 0 <= position < len(all_sessions()):
        raise CalendarError(
            f"session {session} {count:+d}: beyond the XSHG table of "
            f"{all_sessions()[0].year}-{all_sessions()[-1].year}; extend data/xshg_sessions.csv to use it"
        )
    return all_sessions()[position]


def sessions_between(first: dt.date, last: dt.date) -> tuple[dt.date, ...]:
    """All sessions from `first` to `last`, both inclusive (they need not be sessions themselves)."""
    _require_covered(first)
    _require_covered(last)
    sessions = all_sessions()
    return sessions[bisect.bisect_left(sessions, first) : bisect.bisect_right(sessions, last)]


def days_between(first: dt.date, last: dt.date) -> tuple[dt.date, ...]:
    """All calendar days from `first` to `last`, both inclusive."""
    return tuple(first + dt.timedelta(days=offset) for offset in range((last - first).days + 1))


def closed_weekdays(first: dt.date, last: dt.date) -> tuple[dt.date, ...]:
    """Weekdays between `first` and `last` on which the exchange is closed (for partition exclusions)."""
    return tuple(d for d in days_between(first, last) if d.weekday() < 5 and not is_session(d))


def longest_closure(sessions: Sequence[dt.date]) -> int:
    """The largest number of calendar days from one session to the next within `sessions`."""
    return max((b - a).days for a, b in itertools.pairwise(sessions))


def cutoff(session: dt.date) -> dt.datetime:
    """24:00 Asia/Shanghai of `session`: news first published before it is observable.

    An article stamped exactly 00:00:00 belongs to the new day, the later of the two readings.
    """
    return dt.datetime.combine(session + dt.timedelta(days=1), dt.time(), tzinfo=SHANGHAI)
