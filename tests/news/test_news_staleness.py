"""When a source counts as silent or dropped: by its own history, at this hour, on this weekday."""

from __future__ import annotations

import datetime as dt

import pytest

from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.news.staleness import drop, silence

NOW = dt.datetime(2026, 5, 29, 10, 0, tzinfo=SHANGHAI)
"""A Friday."""
HOUR = dt.timedelta(hours=1)


def daily(hours: list[int], days: int, last: dt.datetime = NOW) -> list[dt.datetime]:
    """Publications at these hours of each of the last days, none after `last`."""
    midnight = NOW.replace(hour=0)
    all_days = [midnight - dt.timedelta(days=back) for back in range(days + 1)]
    return [time for day in all_days for hour in hours if (time := day.replace(hour=hour)) <= last]


@pytest.mark.parametrize(
    ("lasts", "stale"),
    [(0.5 * HOUR, False), (8.9 * HOUR, False), (9.1 * HOUR, True), (50 * HOUR, True)],
    ids=["as usual", "below three times", "above three times", "for days"],
)
def test_three_times_the_usual_silence_at_this_hour_is_too_long(lasts: dt.timedelta, stale: bool) -> None:
    # Around ten o'clock the newest is always of eight: up to three hours are usual.
    published = [*daily([8, 18], 32, NOW - max(lasts, dt.timedelta(days=1))), NOW - lasts]
    found = silence(published, NOW)
    assert found is not None
    assert (found.usual, found.is_stale) == (3 * HOUR, stale)


def test_a_busy_source_is_allowed_an_hour() -> None:
    published = [NOW - dt.timedelta(minutes=minutes) for minutes in range(50, 60 * 24 * 32)]
    found = silence(published, NOW)
    assert found is not None
    assert (found.usual, found.is_stale) == (dt.timedelta(minutes=1), False)


def test_a_silent_weekend_is_usual_if_weekends_are_silent() -> None:
    sunday = dt.datetime(2026, 5, 31, 20, 0, tzinfo=SHANGHAI)
    days = [sunday - dt.timedelta(days=back) for back in range(33)]
    weekdays = [day.replace(hour=17) for day in days if day.weekday() < 5]
    found = silence(weekdays, sunday)
    assert found is not None
    assert (found.lasts, found.usual, found.is_stale) == (51 * HOUR, 52 * HOUR, False)


def test_the_present_silence_does_not_become_usual_by_lasting() -> None:
    published = daily([8], 35, NOW - dt.timedelta(days=4))
    found = silence(published, NOW)
    assert found is not None
    assert (found.usual, found.is_stale) == (3 * HOUR, True)


@pytest.mark.parametrize("minutes", [-1, 0, 1])
def test_it_makes_no_difference_whether_a_regular_publication_is_a_minute_early_or_late(minutes: int) -> None:
    # Every two hours, on the hour: at ten sharp one has just come every day, a minute before ten two hours ago.
    now = NOW + dt.timedelta(minutes=minutes)
    published = [NOW - 2 * HOUR * number for number in range(2, 12 * 33)]
    found = silence(published, now)
    assert found is not None
    assert (found.usual, found.is_stale) == (2 * HOUR, False)


def test_publications_after_now_are_not_looked_at() -> None:
    found = silence([*daily([8], 32), NOW + HOUR], NOW)
    assert found is not None
    assert found.newest == NOW.replace(hour=8)


@pytest.mark.parametrize(("days", "judged"), [(0, False), (6, False), (8, True)])
def test_a_short_history_allows_no_verdict(days: int, judged: bool) -> None:
    assert (silence(daily([8], days), NOW) is not None) is judged
    assert silence([], NOW) is None


def test_a_silence_says_since_when_and_what_is_usual() -> None:
    published = [*daily([8], 32, NOW - dt.timedelta(days=2)), NOW - dt.timedelta(hours=25, minutes=30)]
    assert str(silence(published, NOW)) == (
        "newest publication 2026-05-28 08:30, 25 h 30 min ago; at this hour the longest silence of the last 30 days "
        "was 3 h 00 min"
    )


DAY = dt.date(2026, 5, 29)


def fridays(*counts: int) -> dict[dt.date, int]:
    """Counts of the Fridays before, newest first."""
    return {DAY - dt.timedelta(weeks=week): count for week, count in enumerate(counts, start=1)}


@pytest.mark.parametrize(
    ("count", "before", "dropped"),
    [
        (0, (100,) * 8, True),
        (9, (100,) * 8, True),
        (10, (100,) * 8, False),
        (0, (3, 3, 3, 3), True),
        (0, (3, 3, 3), False),
        (0, (0, 0, 0, 0), False),
        (20, (10_000, 100, 100, 100, 100), False),
        (0, (0, 0, 0, 50, 50, 50, 50, 50), True),
    ],
    ids=["nothing", "below a tenth", "a tenth", "four weeks", "three weeks", "always nothing", "one peak", "old gap"],
)
def test_a_day_has_dropped_if_it_has_less_than_a_tenth_of_its_weekday(
    count: int, before: tuple[int, ...], dropped: bool
) -> None:
    assert (drop({**fridays(*before), DAY: count}, DAY) is not None) is dropped


def test_other_weekdays_and_older_weeks_do_not_count() -> None:
    others = {DAY - dt.timedelta(days=back): 500 for back in range(1, 57) if back % 7}
    older = {DAY - dt.timedelta(weeks=week): 500 for week in range(9, 20)}
    assert drop({**others, **older, DAY: 0}, DAY) is None


def test_a_drop_says_what_is_usual() -> None:
    assert str(drop({**fridays(40, 60, 50, 50), DAY: 2}, DAY)) == "2026-05-29: 2 articles, usually 50 on a Friday"
