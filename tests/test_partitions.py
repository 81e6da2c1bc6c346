"""Partitions follow the exchange's calendar, and their mappings skip its closures."""

from __future__ import annotations

import datetime as dt

import dagster as dg
import pytest

from finevolve_pipeline import calendar
from finevolve_pipeline.partitions import DATE, EXPERIMENT, Partitions, calendar_days, trading_days
from finevolve_pipeline.settings import load_settings

SETTINGS = load_settings()
SESSIONS = SETTINGS.benchmark.sessions


def test_the_window_has_299_partitions_and_they_are_the_sessions() -> None:
    keys = trading_days(SESSIONS).get_partition_keys()
    assert len(keys) == 299
    assert keys == [session.isoformat() for session in SESSIONS]


def test_market_partitions_are_the_sessions_of_the_market_span() -> None:
    sessions = SETTINGS.market.sessions
    assert trading_days(sessions).get_partition_keys() == [session.isoformat() for session in sessions]


def test_calendar_days_include_weekends_and_both_ends() -> None:
    keys = calendar_days(dt.date(2024, 1, 1), dt.date(2026, 6, 1)).get_partition_keys()
    assert (keys[0], keys[-1], len(keys)) == ("2024-01-01", "2026-06-01", 883)


@pytest.mark.parametrize(
    ("session", "previous"),
    [
        ("2025-02-05", "2025-01-27"),
        ("2025-10-09", "2025-09-30"),
        ("2026-02-24", "2026-02-13"),
    ],
)
def test_a_day_of_the_chain_follows_the_session_before_a_closure(session: str, previous: str) -> None:
    partitions = _partitions()
    upstream = partitions.previous_session().get_upstream_mapped_partitions_result_for_partitions(
        partitions.sessions_by_experiment.subset_with_partition_keys(
            [dg.MultiPartitionKey({DATE: session, EXPERIMENT: "pipe-rules"})]
        ),
        partitions.sessions_by_experiment,
        partitions.sessions_by_experiment,
    )
    keys = upstream.partitions_subset.get_partition_keys()
    assert list(keys) == [dg.MultiPartitionKey({DATE: previous, EXPERIMENT: "pipe-rules"})]


def test_the_declared_window_is_as_long_as_the_longest_closure_needs() -> None:
    # 2026-02-13 to 2026-02-24: the window of the 24th reaches back to the 14th, ten days.
    assert _partitions().window_look_back == 10


@pytest.mark.parametrize("session", [session for session in SESSIONS if session.month in (1, 2, 10)])
def test_the_declared_window_covers_what_a_session_reads(session: dt.date) -> None:
    from finevolve_pipeline.news.window import window_days

    look_back = dt.timedelta(days=_partitions().window_look_back)
    assert min(window_days(session, SETTINGS.news.window)) >= session - look_back


def test_a_weekday_closure_is_no_partition() -> None:
    keys = set(trading_days(SESSIONS).get_partition_keys())
    assert keys.isdisjoint(day.isoformat() for day in calendar.closed_weekdays(SESSIONS[0], SESSIONS[-1]))


def _partitions() -> Partitions:
    from finevolve_pipeline.graph import Graph
    from finevolve_pipeline.llm.rules.backbone import RulesBackbone

    return Partitions.of(Graph(SETTINGS, SETTINGS.news.sources, RulesBackbone()))
