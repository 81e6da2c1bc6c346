"""The market sources by name, and what each offers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from finevolve_pipeline.errors import SourceError
from finevolve_pipeline.market.fetching import Fetched, Span
from finevolve_pipeline.settings import Settings
from resources.landing import BENCHMARK_BARS, Landing
from resources.market.akshare import AkShare
from resources.market.asking import Politeness
from resources.market.csindex import CsIndex
from resources.market.tushare import Tushare, read_token


class MarketSource(Protocol):
    """A service with daily bars."""

    name: str

    def bars(self, table: str, codes: Sequence[str], span: Span, now: dt.datetime) -> Fetched:
        """The bars of a table's indices on the sessions of a span, in shares and yuan.

        Args:
            table: `industry_bars` or `benchmark_bars`.
            codes: six digits each.
            span: first and last session.
            now: no bar may lie after it (aware).

        Returns:
            What is good of the answers, and what was wrong with the rest.

        Raises:
            SourceError: the source is broken, refuses, or has no such table.
        """


@runtime_checkable
class CalendarSource(Protocol):
    """A service that also knows trading days."""

    def trading_days(self, first: dt.date, last: dt.date) -> frozenset[dt.date]:
        """Trading days; those from `first` to `last` are among them. Raises `SourceError`."""


def _polite(settings: Settings) -> Politeness:
    market = settings.market
    return Politeness(market.requests_per_minute, market.attempts, market.deadline_seconds)


SOURCES: dict[str, Callable[[Settings], MarketSource]] = {
    "akshare": lambda settings: AkShare(_polite(settings)),
    "csindex": lambda settings: CsIndex(_polite(settings)),
    "tushare": lambda settings: Tushare(settings.tushare),
}
"""How each is made."""

_CREDENTIALS: dict[str, Callable[[Settings], str]] = {
    "tushare": lambda settings: read_token(settings.tushare.token_variable),
}
"""Sources that want one, and how it is read."""


def require_credentials(names: Sequence[str], settings: Settings) -> None:
    """See that sources can be asked, before any is. Raises `CredentialError` naming the variable that is not set."""
    for name in names:
        if name in _CREDENTIALS:
            _CREDENTIALS[name](settings)


def build_source(name: str, settings: Settings) -> MarketSource:
    """The source of that name. Raises `SourceError` if there is none, or it cannot be used."""
    if name not in SOURCES:
        raise SourceError(f"market source {name!r}: unknown; there are {', '.join(SOURCES)}")
    return SOURCES[name](settings)


def configured(settings: Settings, table: str) -> tuple[str, ...]:
    """Sources of a table by the settings, in order of preference."""
    return settings.market.benchmark if table == BENCHMARK_BARS else settings.market.industries


def second_store(home: Path, source: str) -> Landing:
    """What a source that is not the first said. Nothing but the comparison reads it."""
    return Landing.of(home, 10.0, name=f"market/second/{source}")
