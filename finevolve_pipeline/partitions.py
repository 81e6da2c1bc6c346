"""Dagster partitions of the dataset: trading days, calendar days, sources and experiments.

Trading days are daily partitions with the exchange's holidays excluded, so that time-window mappings skip
closures.

Dagster makes a day's partition when the day has ended. What comes from outside is wanted earlier, news all day long and
bars in the evening, so calendar days and sessions of the market reach one partition further (`end_offset`): today's,
and never beyond the last day of the settings. With exclusions that is the coming session while the exchange is
closed: a partition for which nothing has landed yet. Sessions of the prediction window have no partition before their
24:00, and so no replay.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

from finevolve_pipeline import calendar
from finevolve_pipeline.graph import Graph
from finevolve_pipeline.news.window import longest_window

DATE = "date"
SOURCE = "source"
EXPERIMENT = "experiment"

_TIME_ZONE = "Asia/Shanghai"
_WEEKEND = ("0 0 * * 6", "0 0 * * 0")


def calendar_days(first: dt.date, last: dt.date) -> dg.DailyPartitionsDefinition:
    """One partition a calendar day, `first` to `last` inclusive, Asia/Shanghai; each from its beginning on."""
    return dg.DailyPartitionsDefinition(
        start_date=first.isoformat(),
        end_date=(last + dt.timedelta(days=1)).isoformat(),
        timezone=_TIME_ZONE,
        end_offset=1,
    )


def trading_days(sessions: Sequence[dt.date], end_offset: int = 0) -> dg.DailyPartitionsDefinition:
    """One partition a session, from the first to the last of `sessions`, closures excluded.

    `end_offset`: 0: each from its 24:00 on; 1: one session earlier, so at its beginning at the latest.
    """
    first, last = sessions[0], sessions[-1]
    holidays = [
        dt.datetime.combine(day, dt.time(), tzinfo=calendar.SHANGHAI) for day in calendar.closed_weekdays(first, last)
    ]
    return dg.DailyPartitionsDefinition(
        start_date=first.isoformat(),
        end_date=(last + dt.timedelta(days=1)).isoformat(),
        timezone=_TIME_ZONE,
        exclusions=[*_WEEKEND, *holidays],
        end_offset=end_offset,
    )


@dataclass(frozen=True)
class Partitions:
    """All partitions definitions under one set of settings, and the mappings between them."""

    days: dg.DailyPartitionsDefinition
    days_by_source: dg.MultiPartitionsDefinition
    market_sessions: dg.DailyPartitionsDefinition
    sessions: dg.DailyPartitionsDefinition
    experiments: dg.StaticPartitionsDefinition
    sessions_by_experiment: dg.MultiPartitionsDefinition
    window_look_back: int
    longest_horizon: int

    @staticmethod
    def of(graph: Graph) -> Partitions:
        """The definitions that belong to a graph's settings."""
        settings = graph.settings
        days = calendar_days(settings.news.first_day, settings.news.last_day)
        sessions = trading_days(graph.sessions)
        experiments = dg.StaticPartitionsDefinition([e.key for e in settings.all_experiments])
        return Partitions(
            days=days,
            days_by_source=dg.MultiPartitionsDefinition(
                {DATE: days, SOURCE: dg.StaticPartitionsDefinition(list(graph.sources))}
            ),
            market_sessions=trading_days(settings.market.sessions, end_offset=1),
            sessions=sessions,
            experiments=experiments,
            sessions_by_experiment=dg.MultiPartitionsDefinition({DATE: sessions, EXPERIMENT: experiments}),
            window_look_back=longest_window(graph.sessions, settings.news.window) - 1,
            longest_horizon=max(settings.benchmark.horizons),
        )

    def previous_day(self) -> dg.TimeWindowPartitionMapping:
        """A calendar day follows the day before."""
        return dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)

    def window_of_days(self) -> dg.TimeWindowPartitionMapping:
        """A session reads calendar days as far back as the longest closure: too much rather than too little."""
        return dg.TimeWindowPartitionMapping(
            start_offset=-self.window_look_back, end_offset=0, allow_nonexistent_upstream_partitions=True
        )

    def bars_back(self) -> dg.TimeWindowPartitionMapping:
        """A session reads the bars of up to the longest horizon before it."""
        return dg.TimeWindowPartitionMapping(
            start_offset=-self.longest_horizon, end_offset=0, allow_nonexistent_upstream_partitions=True
        )

    def to_date(self) -> dg.MultiToSingleDimensionPartitionMapping:
        """Between a date and date x something."""
        return dg.MultiToSingleDimensionPartitionMapping(DATE)

    def to_experiment(self) -> dg.MultiToSingleDimensionPartitionMapping:
        """Between an experiment and date x experiment."""
        return dg.MultiToSingleDimensionPartitionMapping(EXPERIMENT)

    def previous_session(self) -> dg.MultiPartitionMapping:
        """A day of an experiment follows the same experiment's previous session."""
        return dg.MultiPartitionMapping(
            {
                DATE: dg.DimensionPartitionMapping(DATE, dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)),
                EXPERIMENT: dg.DimensionPartitionMapping(EXPERIMENT, dg.IdentityPartitionMapping()),
            }
        )
