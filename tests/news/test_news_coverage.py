"""Which days count as complete, which are asked for again, and when."""

from __future__ import annotations

import datetime as dt

import pytest

from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.news.coverage import (
    DayCoverage,
    DayState,
    SourceCoverage,
    Span,
    begun,
    days_of,
    of_document,
    plan,
    reached,
    restricted,
    starts_at,
    stopped,
    to_document,
    to_retry,
)

NOW = dt.datetime(2026, 5, 20, 15, tzinfo=SHANGHAI)
SETTLE = dt.timedelta(minutes=10)
NOTHING = SourceCoverage("sina")


def day(number: int) -> dt.date:
    return dt.date(2026, 5, number)


def days(*numbers: int) -> list[dt.date]:
    return [day(number) for number in numbers]


def done(*numbers: int, channels: tuple[str, ...] = ("feed",), asked: dt.datetime = NOW) -> SourceCoverage:
    """A source whose days of May are complete."""
    known = DayCoverage(dict.fromkeys(channels, ""), asked)
    return SourceCoverage("sina", {day(number).isoformat(): known for number in numbers})


def test_a_new_source_is_asked_for_all_days_at_once() -> None:
    assert plan(NOTHING, days(3, 1, 2), ["feed"], NOW) == (Span(day(1), day(3), ("feed",)),)


def test_complete_days_are_not_asked_for_again_unless_told() -> None:
    known = done(1, 2, 3)
    assert plan(known, days(1, 2, 3), ["feed"], NOW) == ()
    assert plan(known, days(1, 2, 3), ["feed"], NOW, again=True) == (Span(day(1), day(3), ("feed",)),)


def test_holes_are_spans_of_their_own_newest_first() -> None:
    assert plan(done(2, 3, 5), days(*range(1, 8)), ["feed"], NOW) == (
        Span(day(6), day(7), ("feed",)),
        Span(day(4), day(4), ("feed",)),
        Span(day(1), day(1), ("feed",)),
    )


def test_a_list_added_to_the_settings_is_asked_for_alone() -> None:
    assert plan(done(1, 2), days(1, 2), ["feed", "roll"], NOW) == (Span(day(1), day(2), ("roll",)),)


def test_a_list_taken_out_of_the_settings_is_nobodys_concern_any_more() -> None:
    day_ = DayCoverage({"feed": "", "roll": "HTTP 403"}, NOW)
    known = restricted(
        SourceCoverage("sina", {"2026-05-01": day_, "2026-05-02": DayCoverage({"roll": ""}, NOW)}), ["feed"]
    )
    assert {name: one.state for name, one in known.days.items()} == {"2026-05-01": DayState.COMPLETE}
    assert plan(known, days(1, 2), ["feed"], NOW) == (Span(day(2), day(2), ("feed",)),)


def test_days_that_have_not_begun_are_left_out() -> None:
    assert plan(NOTHING, days(20, 21), ["feed"], NOW) == (Span(day(20), day(20), ("feed",)),)


def test_a_day_is_complete_once_every_list_reached_its_start() -> None:
    span = Span(day(1), day(3), ("feed", "roll"))
    known = begun(NOTHING, [span], NOW, SETTLE)
    assert {one.state for one in known.days.values()} == {DayState.PARTIAL}
    known = reached(known, span, "feed", starts_at(day(1)), NOW, {})
    assert {one.state for one in known.days.values()} == {DayState.PARTIAL}
    known = reached(known, span, "roll", starts_at(day(2)) - dt.timedelta(seconds=1), NOW, {})
    assert [known.days[day(n).isoformat()].state for n in (1, 2, 3)] == ["partial", "complete", "complete"]


def test_a_second_short_of_its_start_is_not_complete() -> None:
    span = Span(day(1), day(1), ("feed",))
    known = begun(NOTHING, [span], NOW, SETTLE)
    known = reached(known, span, "feed", starts_at(day(1)) + dt.timedelta(seconds=1), NOW, {})
    assert known.days["2026-05-01"].state is DayState.PARTIAL


@pytest.mark.parametrize(
    ("asked", "state"),
    [
        (dt.datetime(2026, 5, 20, 15, tzinfo=SHANGHAI), DayState.OPEN),
        (dt.datetime(2026, 5, 21, 0, 9, 59, tzinfo=SHANGHAI), DayState.OPEN),
        (dt.datetime(2026, 5, 21, 0, 10, tzinfo=SHANGHAI), DayState.COMPLETE),
        (dt.datetime(2026, 5, 20, 16, 10, tzinfo=dt.UTC), DayState.COMPLETE),
    ],
)
def test_a_day_stays_open_until_it_has_settled(asked: dt.datetime, state: DayState) -> None:
    span = Span(day(20), day(20), ("feed",))
    known = reached(begun(NOTHING, [span], asked, SETTLE), span, "feed", starts_at(day(20)), asked, {})
    assert known.days["2026-05-20"].state is state
    assert bool(plan(known, days(20), ["feed"], asked)) is (state is DayState.OPEN)


def test_a_body_that_could_not_be_fetched_keeps_its_day_partial() -> None:
    span = Span(day(1), day(2), ("feed",))
    known = begun(NOTHING, [span], NOW, SETTLE)
    lacks = {"2026-05-01": "2 articles whose body could not be fetched"}
    known = reached(known, span, "feed", starts_at(day(1)), NOW, lacks)
    assert known.days["2026-05-02"].state is DayState.COMPLETE
    assert known.days["2026-05-01"].reason == "feed: 2 articles whose body could not be fetched"


@pytest.mark.parametrize(
    ("newest", "complete"),
    [
        (dt.datetime(2026, 5, 4, 0, 0, tzinfo=SHANGHAI), ["2026-05-01", "2026-05-02", "2026-05-03"]),
        (dt.datetime(2026, 5, 3, 23, 59, 59, tzinfo=SHANGHAI), ["2026-05-01", "2026-05-02"]),
        (dt.datetime(2026, 5, 1, 20, 0, tzinfo=SHANGHAI), []),
        (None, []),
    ],
)
def test_a_list_that_stands_still_proves_no_day_that_it_has_not_gone_beyond(
    newest: dt.datetime | None, complete: list[str]
) -> None:
    span = Span(day(1), day(3), ("feed",))
    known = reached(begun(NOTHING, [span], NOW, SETTLE), span, "feed", starts_at(day(1)), newest, {})
    assert [name for name, one in sorted(known.days.items()) if one.state is DayState.COMPLETE] == complete
    assert all("may stand still" in one.reason for one in known.days.values() if one.state is not DayState.COMPLETE)


def test_a_list_that_stops_says_why_for_the_days_it_did_not_reach() -> None:
    span = Span(day(1), day(3), ("feed",))
    known = begun(NOTHING, [span], NOW, SETTLE)
    instant = starts_at(day(2))
    known = stopped(reached(known, span, "feed", instant, NOW, {}), span, "feed", instant, "the list ends here")
    assert [one.reason for _, one in sorted(known.days.items())] == ["feed: the list ends here", "", ""]


def test_a_crawl_that_breaks_off_leaves_what_was_known_of_other_lists() -> None:
    known = begun(done(1), [Span(day(1), day(1), ("roll",))], NOW, SETTLE)
    assert known.days["2026-05-01"].channels == {"feed": "", "roll": "a crawl began and has not ended"}


def test_tries_are_counted_anew_when_an_open_day_has_ended() -> None:
    span = Span(day(19), day(19), ("feed",))
    during = begun(NOTHING, [span], dt.datetime(2026, 5, 19, 12, tzinfo=SHANGHAI), SETTLE)
    after = begun(during, [span], NOW, SETTLE)
    again = begun(after, [span], NOW, SETTLE)
    assert [one.days["2026-05-19"].tries for one in (during, after, again)] == [1, 1, 2]


@pytest.mark.parametrize(("tries", "hours"), [(1, 1), (2, 2), (3, 4), (4, 8), (7, 64), (8, 128), (9, 168), (40, 168)])
def test_waits_between_tries_double_up_to_a_week(tries: int, hours: int) -> None:
    partial = DayCoverage({"feed": "blocked"}, NOW, tries)
    assert partial.next_try == NOW + dt.timedelta(hours=hours)


def test_complete_and_open_days_are_never_retried() -> None:
    assert DayCoverage({"feed": ""}, NOW).next_try is None
    assert DayCoverage({"feed": ""}, NOW, open=True).next_try is None


def test_partial_days_of_the_last_week_are_retried_when_their_time_has_come() -> None:
    asked = NOW - dt.timedelta(hours=3)
    known = SourceCoverage(
        "sina",
        {
            "2026-05-01": DayCoverage({"feed": "blocked"}, asked),  # ended more than a week ago
            "2026-05-17": DayCoverage({"feed": "blocked"}, asked, tries=2),
            "2026-05-18": DayCoverage({"feed": "blocked"}, asked, tries=3),  # not before an hour from now
            "2026-05-19": DayCoverage({"feed": ""}, asked),
        },
    )
    assert to_retry(known, NOW) == ("2026-05-17",)
    assert to_retry(known, NOW + dt.timedelta(hours=1)) == ("2026-05-17", "2026-05-18")


def test_days_of_a_span_come_newest_first() -> None:
    assert list(days_of(Span(day(1), day(3), ()))) == days(3, 2, 1)


def test_coverage_survives_its_file() -> None:
    known = SourceCoverage(
        "sina",
        {"2026-05-01": DayCoverage({"feed": "", "roll": "HTTP 403"}, NOW, 3, open=True)},
        "2024-01-01T00:00:00+08:00",
        "2026-05-20T14:00:00+08:00",
        "blocked",
        "roll: HTTP 403",
    )
    assert of_document(to_document(known)) == known  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "broken",
    [{}, {"days": []}, {"days": {"yesterday": {}}}, {"days": {"2026-05-01": {"channels": {}}}}],
)
def test_a_file_that_is_no_coverage_is_told(broken: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        of_document(broken)
