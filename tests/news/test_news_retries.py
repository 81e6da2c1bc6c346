"""Which partial days are asked for again, when, and for how long; which are given up; which were never closed."""

from __future__ import annotations

import datetime as dt

import pytest

from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.news.coverage import (
    DayCoverage,
    SourceCoverage,
    given_up,
    never_closed,
    next_retry,
    to_retry,
)

NOW = dt.datetime(2026, 5, 29, 10, 0, tzinfo=SHANGHAI)
HOUR, DAY = dt.timedelta(hours=1), dt.timedelta(days=1)


def partial(asked: dt.timedelta, tries: int = 1) -> DayCoverage:
    """Partial, asked for so long ago."""
    return DayCoverage({"feed": "timeout"}, NOW - asked, tries)


COMPLETE = DayCoverage({"feed": ""}, NOW - DAY)
OPEN = DayCoverage({"feed": ""}, NOW - DAY, open=True)


@pytest.mark.parametrize(
    ("tries", "asked", "due"),
    [(1, 0.9 * HOUR, False), (1, HOUR, True), (2, HOUR, False), (2, 2 * HOUR, True), (5, 15 * HOUR, False)],
)
def test_a_partial_day_waits_twice_as_long_after_each_try(tries: int, asked: dt.timedelta, due: bool) -> None:
    known = SourceCoverage("cls", {"2026-05-28": partial(asked, tries)})
    assert to_retry(known, NOW) == (("2026-05-28",) if due else ())
    waits = next_retry(known, NOW)
    assert waits == (None if due else ("2026-05-28", NOW - asked + HOUR * 2 ** (tries - 1)))


def test_the_first_of_several_is_waited_for() -> None:
    known = SourceCoverage("cls", {"2026-05-27": partial(HOUR, 3), "2026-05-28": partial(HOUR, 2)})
    assert next_retry(known, NOW) == ("2026-05-28", NOW + HOUR)


def test_complete_and_open_days_are_not_retried() -> None:
    known = SourceCoverage("cls", {"2026-05-27": COMPLETE, "2026-05-28": OPEN})
    assert (to_retry(known, NOW), next_retry(known, NOW), given_up(known, NOW)) == ((), None, ())


def test_after_a_week_a_partial_day_is_given_up_and_not_waited_for() -> None:
    known = SourceCoverage("cls", {"2026-05-20": partial(3 * DAY), "2026-05-23": partial(3 * DAY)})
    assert to_retry(known, NOW) == ("2026-05-23",)
    assert given_up(known, NOW) == ("2026-05-20",)
    late = SourceCoverage("cls", {"2026-05-22": partial(HOUR, 8)})
    assert next_retry(late, NOW) is None


def test_days_that_a_crawl_has_just_asked_for_are_not_given_up_yet() -> None:
    known = SourceCoverage("cls", {"2024-03-01": partial(HOUR), "2024-03-02": partial(2 * DAY)})
    assert given_up(known, NOW) == ("2024-03-02",)


WEEK = [NOW.date() - days * DAY for days in range(4, 0, -1)]


@pytest.mark.parametrize(
    ("days", "owed"),
    [
        ({}, ()),
        ({"2026-05-28": OPEN}, ("2026-05-28",)),
        ({"2026-05-26": COMPLETE, "2026-05-27": partial(DAY)}, ("2026-05-28",)),
        ({"2026-05-26": COMPLETE, "2026-05-27": COMPLETE, "2026-05-28": COMPLETE}, ()),
    ],
    ids=["never asked", "left open", "not asked since", "all closed"],
)
def test_a_day_that_was_not_asked_for_since_it_ended_was_never_closed(
    days: dict[str, DayCoverage], owed: tuple[str, ...]
) -> None:
    assert never_closed(SourceCoverage("cls", days), WEEK, NOW, 2 * HOUR) == owed


def test_a_day_is_owed_only_after_the_grace() -> None:
    known = SourceCoverage("cls", {"2026-05-28": OPEN})
    assert never_closed(known, WEEK, NOW, 11 * HOUR) == ()
