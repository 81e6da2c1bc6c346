"""Lists that a site addresses by day."""

from __future__ import annotations

import datetime as dt

import pytest
from answering import at

from crawlers.days import LONGEST_SILENCE, DayPage
from crawlers.pages import PageFailure, PageState, Row

DAY = dt.date(2024, 3, 5)


def row(moment: str, key: str = "1") -> Row:
    return Row(key, at(moment), "标题")


def test_a_cursor_names_its_page_and_back():
    for page in (DayPage(DAY), DayPage(DAY, 7), DayPage(DAY, 1, 3)):
        assert DayPage.of(str(page)) == page


def test_rows_before_midnight_begin_with_the_day_that_ends_there():
    assert DayPage.before(at("2024-03-06")) == DayPage(DAY)
    assert DayPage.before(at("2024-03-06T00:00:01")) == DayPage(dt.date(2024, 3, 6))


def test_the_day_is_one_of_shanghai_whatever_the_zone_of_until():
    assert DayPage.before(at("2024-03-06T00:00:01").astimezone(dt.UTC)) == DayPage(dt.date(2024, 3, 6))


def test_a_page_with_rows_is_followed_by_the_days_next_page_and_proves_no_more_than_its_rows():
    page = DayPage(DAY, 2).listed([row("2024-03-05T09:00")], [], pages=True)
    assert (page.following, page.reached) == ("2024-03-05/3", None)


def test_a_page_without_rows_behind_one_with_rows_ends_the_day():
    page = DayPage(DAY, 3).listed([], [], pages=True)
    assert (page.following, page.reached) == ("2024-03-04/1", at("2024-03-05"))


def test_a_page_that_holds_the_whole_day_ends_it():
    page = DayPage(DAY).listed([row("2024-03-05T09:00")], [], pages=False)
    assert (page.following, page.reached) == ("2024-03-04/1", at("2024-03-05"))


def test_a_day_without_rows_is_not_proved_by_itself():
    page = DayPage(DAY).listed([], [], pages=True)
    assert (page.following, page.reached) == ("2024-03-04/1/1", None)


def test_the_list_ends_after_the_longest_silence():
    assert DayPage(DAY, 1, LONGEST_SILENCE - 2).listed([], [], pages=False).following is not None
    assert DayPage(DAY, 1, LONGEST_SILENCE - 1).listed([], [], pages=False).following is None


def test_a_day_with_rows_breaks_the_silence():
    assert DayPage(DAY, 1, 5).listed([row("2024-03-05T09:00")], [], pages=True).following == "2024-03-05/2"


def test_rows_of_other_days_alone_mean_that_the_site_does_not_heed_the_day():
    with pytest.raises(PageFailure, match="rows of 2026-01-01 where 2024-03-05 was asked") as info:
        DayPage(DAY).listed([row("2026-01-01T09:00")], [], pages=True)
    assert info.value.state is PageState.FETCH_ERROR


def test_a_row_of_the_night_before_among_the_days_own_is_no_failure():
    rows = [row("2024-03-05T00:01"), row("2024-03-04T23:59", "2")]
    assert DayPage(DAY).listed(rows, [], pages=True).rows == tuple(rows)
