"""The checked-in calendar: equal to the exchange's, and silent about nothing beyond it."""

from __future__ import annotations

import datetime as dt

import exchange_calendars
import pytest
from hypothesis import given
from hypothesis import strategies as st

from finevolve_pipeline import calendar
from finevolve_pipeline.errors import CalendarError
from finevolve_pipeline.settings import load_settings


def test_table_equals_exchange_calendars() -> None:
    reference = exchange_calendars.get_calendar("XSHG", start="2024-01-01", end="2026-12-31")
    assert list(calendar.all_sessions()) == [session.date() for session in reference.sessions]


def test_table_holds_the_sessions_of_three_years() -> None:
    assert len(calendar.all_sessions()) == 727


@pytest.mark.usefixtures("home")
def test_packaged_window_has_299_sessions_by_calendar() -> None:
    window = load_settings().benchmark.sessions
    assert (window[0], window[-1]) == (dt.date(2025, 1, 2), dt.date(2026, 3, 31))
    assert len(window) == 299


def test_horizons_are_counted_in_sessions_not_in_days() -> None:
    prediction = dt.date(2025, 5, 30)
    ends = [calendar.shift(prediction, h) for h in (10, 20, 40)]
    assert ends == [dt.date(2025, 6, 16), dt.date(2025, 6, 30), dt.date(2025, 7, 28)]


@given(st.sampled_from(calendar.all_sessions()), st.integers(-60, 60))
def test_shifting_back_undoes_shifting_forth(session: dt.date, count: int) -> None:
    position = calendar.session_index(session) + count
    if 0 <= position < len(calendar.all_sessions()):
        assert calendar.shift(calendar.shift(session, count), -count) == session
    else:
        with pytest.raises(CalendarError, match="beyond the XSHG table"):
            calendar.shift(session, count)


def test_a_closed_day_names_its_neighbours() -> None:
    with pytest.raises(CalendarError, match="closed; nearest sessions are 2025-09-30 and 2025-10-09"):
        calendar.session_index(dt.date(2025, 10, 1))


@pytest.mark.parametrize("day", [dt.date(2023, 12, 29), dt.date(2027, 1, 4)])
def test_case_30_beyond_the_table_every_question_is_refused(day: dt.date) -> None:
    inside = dt.date(2025, 1, 2)
    questions = (
        lambda: calendar.is_session(day),
        lambda: calendar.session_index(day),
        lambda: calendar.shift(day, 0),
        lambda: calendar.sessions_between(min(day, inside), max(day, inside)),
    )
    for question in questions:
        with pytest.raises(CalendarError, match="beyond the XSHG table of 2024-2026"):
            question()


def test_covers_whole_years() -> None:
    edges = [dt.date(2023, 12, 31), dt.date(2024, 1, 1), dt.date(2026, 12, 31), dt.date(2027, 1, 1)]
    assert [calendar.covers(day) for day in edges] == [False, True, True, False]


def test_sessions_between_takes_closed_ends() -> None:
    assert calendar.sessions_between(dt.date(2025, 5, 31), dt.date(2025, 6, 4)) == (
        dt.date(2025, 6, 3),
        dt.date(2025, 6, 4),
    )
    assert calendar.sessions_between(dt.date(2025, 10, 1), dt.date(2025, 10, 8)) == ()


MAKE_UP_DAYS = [
    "2024-02-04",
    "2024-02-18",
    "2024-04-07",
    "2024-04-28",
    "2024-05-11",
    "2024-09-14",
    "2024-09-29",
    "2024-10-12",
    "2025-01-26",
    "2025-02-08",
    "2025-04-27",
    "2025-09-28",
    "2025-10-11",
    "2026-01-04",
    "2026-02-14",
    "2026-02-28",
    "2026-05-09",
    "2026-09-20",
    "2026-10-10",
]
"""Days of weekends on which offices work and exchanges do not, by the yearly notices of the State Council."""


@pytest.mark.parametrize("day", [*MAKE_UP_DAYS, "2024-02-09"])
def test_case_30_days_on_which_offices_work_are_no_sessions(day: str) -> None:
    assert not calendar.is_session(dt.date.fromisoformat(day))


def test_case_30_the_spring_festival_of_2025_closes_the_exchange_from_its_eve_on() -> None:
    around = calendar.sessions_between(dt.date(2025, 1, 24), dt.date(2025, 2, 7))
    assert [day.isoformat() for day in around] == [
        "2025-01-24",
        "2025-01-27",
        "2025-02-05",
        "2025-02-06",
        "2025-02-07",
    ]


def test_closed_weekdays_are_the_holidays() -> None:
    assert calendar.closed_weekdays(dt.date(2025, 4, 28), dt.date(2025, 5, 9)) == (
        dt.date(2025, 5, 1),
        dt.date(2025, 5, 2),
        dt.date(2025, 5, 5),
    )


def test_longest_closure_is_measured_in_calendar_days() -> None:
    assert calendar.longest_closure(calendar.sessions_between(dt.date(2025, 9, 29), dt.date(2025, 10, 10))) == 9


def test_ends_of_the_table_have_no_neighbour() -> None:
    first, last = calendar.all_sessions()[0], calendar.all_sessions()[-1]
    assert calendar.sessions_around(first)[0] is None
    assert calendar.sessions_around(last)[1] is None


def test_cutoff_is_midnight_in_shanghai() -> None:
    cutoff = calendar.cutoff(dt.date(2025, 5, 30))
    assert cutoff.isoformat() == "2025-05-31T00:00:00+08:00"


@pytest.mark.parametrize("text", ["2025-02-30", "yesterday", "", "2025/05/30"])
def test_text_that_is_no_day_is_named(text: str) -> None:
    with pytest.raises(CalendarError, match="use YYYY-MM-DD"):
        calendar.parse_day(text, "articles")


def test_both_spellings_of_a_day_are_read() -> None:
    assert calendar.parse_day("2025-05-30") == calendar.parse_day("20250530") == dt.date(2025, 5, 30)
