"""Whether a source that answers may still have fallen silent, judged by its own history and by nothing else.

Two rules. *Silence*: within an hour of the same time of day on each of the last 30 days, how long had nothing been
published? The longest of these is the source's usual silence for this hour, weekends included; three times that is too
long. *Drop*: a complete day with no article, or with less than a tenth of the median of the same weekday in the eight
weeks before it. Where history is too short to judge, nothing is said. Instants are aware, days are calendar days in
Asia/Shanghai.
"""

from __future__ import annotations

import bisect
import datetime as dt
import itertools
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

SILENCE_DAYS = 30
"""Days of history that a silence is compared with."""

DROP_WEEKS = 8
"""Weeks of history that a day's count is compared with."""

_LEAST_DAYS = 7
_TIMES = 3
_AROUND = dt.timedelta(hours=1)
_LEAST_ALLOWED = dt.timedelta(hours=1)
_LEAST_SAME_WEEKDAYS = 4
_LEAST_SHARE = 0.1


@dataclass(frozen=True)
class Silence:
    """How long a source has published nothing.

    Attributes:
        newest: its newest publication.
        lasts: since then.
        usual: longest silence at this hour within the last 30 days.
    """

    newest: dt.datetime
    lasts: dt.timedelta
    usual: dt.timedelta

    @property
    def allowed(self) -> dt.timedelta:
        """Three times the usual, and an hour at least."""
        return max(_TIMES * self.usual, _LEAST_ALLOWED)

    @property
    def is_stale(self) -> bool:
        """Whether it lasts longer than allowed."""
        return self.lasts > self.allowed

    def __str__(self) -> str:
        return (
            f"newest publication {self.newest:%Y-%m-%d %H:%M}, {_hours(self.lasts)} ago; at this hour the longest "
            f"silence of the last {SILENCE_DAYS} days was {_hours(self.usual)}"
        )


@dataclass(frozen=True)
class Drop:
    """A day with far fewer articles than its weekday had before.

    Attributes:
        day: the day.
        count: its articles.
        usual: median of the same weekday.
    """

    day: dt.date
    count: int
    usual: float

    def __str__(self) -> str:
        return f"{self.day}: {self.count} articles, usually {self.usual:g} on a {self.day:%A}"


def silence(published: Iterable[dt.datetime], now: dt.datetime) -> Silence | None:
    """How long a source has been silent; None if fewer than 7 of the last 30 days can be compared.

    Args:
        published: publications of at least the last 31 days, in any order; those after `now` are left out.
        now: the present.
    """
    times = sorted(time for time in published if time <= now)
    if not times:
        return None
    compared, usual = 0, dt.timedelta()
    for days in range(1, SILENCE_DAYS + 1):
        begin, end = (now - dt.timedelta(days=days) + side * _AROUND for side in (-1, 1))
        first, beyond = bisect.bisect_right(times, begin), bisect.bisect_right(times, end)
        if not beyond:
            break
        compared += 1
        if end <= times[-1]:  # otherwise it is the beginning of the present silence
            within = times[max(first - 1, 0) : beyond]
            usual = max([usual, end - within[-1], *(later - earlier for earlier, later in itertools.pairwise(within))])
    return Silence(times[-1], now - times[-1], usual) if compared >= _LEAST_DAYS else None


def drop(counts: Mapping[dt.date, int], day: dt.date) -> Drop | None:
    """Whether a day has dropped to (nearly) nothing; None if it has not, or cannot be judged.

    Args:
        counts: articles of days that are complete or came from files, `day` among them. At least four of the eight
            days before it that fall on its weekday are needed.
        day: a complete day.
    """
    earlier = (day - dt.timedelta(weeks=weeks) for weeks in range(1, DROP_WEEKS + 1))
    same = [counts[then] for then in earlier if then in counts]
    if len(same) < _LEAST_SAME_WEEKDAYS:
        return None
    usual = statistics.median(same)
    count = counts[day]
    return Drop(day, count, usual) if count < _LEAST_SHARE * usual else None


def _hours(span: dt.timedelta) -> str:
    minutes = int(span.total_seconds() // 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"
