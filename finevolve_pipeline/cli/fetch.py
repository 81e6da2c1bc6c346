"""`finevolve fetch`: bars and the history of news from services, into the landing store.

Only what is missing is asked for. Exit codes: 0 all sources answered; 1 a source is broken, or rows of it could not be
had or used (the others were asked, and what they brought landed); 2 wrong use, a missing token, or trading days that
differ from the project's; 3 another import is writing.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click

from finevolve_pipeline import calendar
from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.cli.output import Day, emit_json, json_option, messages, progress_bar, require_folder
from finevolve_pipeline.errors import InputError
from finevolve_pipeline.settings import Settings, finevolve_home, load_settings
from resources.history import SourceReport, fetch_news
from resources.landing import BENCHMARK_BARS, INDUSTRY_BARS, register_sources
from resources.market import Brought, bring, configured
from resources.market.bringing import spanned
from resources.market.sources import SOURCES, require_credentials
from resources.market.tushare import NEWS_SOURCES, Tushare

_FROM = click.option("--from", "first", type=Day(), help="First day (default: that of the settings' span).")
_TO = click.option("--to", "last", type=Day(), help="Last day (default: that of the settings' span, at most today).")


@click.group("fetch")
def fetch_group() -> None:
    """Ask services for bars and for the history of news.

    Only what is missing is asked for; good rows land, and what is wrong with the others is told.
    """


@fetch_group.command("market")
@_FROM
@_TO
@click.option(
    "--source",
    type=click.Choice(sorted(SOURCES)),
    help="This one alone, for the tables it has (default: those of [market]).",
)
@click.option("--again", is_flag=True, help="Ask for all sessions, also for those that have bars.")
@json_option
def market_command(
    first: dt.date | None, last: dt.date | None, source: str | None, again: bool, as_json: bool
) -> None:  # fmt: skip
    """Fetch daily bars of the 31 industries and of CSI1000.

    Sessions without bars are asked for, and the newest ones again, since sources revise them.
    """
    settings, home = load_settings(), finevolve_home()
    require_folder(home)
    sessions, now = spanned(settings, first, last), dt.datetime.now(SHANGHAI)
    tables = _tables(settings, source)
    for table in tables:
        require_credentials(configured(settings, table) if source is None else (source,), settings)
    brought: list[Brought] = []
    named = None if source is None else (source,)
    try:
        with _progress("sessions", as_json) as progress:
            for table in tables:
                told = _labelled(table, progress)
                one = bring(settings, home, table, sessions, now, sources=named, again=again, progress=told)
                brought.append(one)
                if not as_json:
                    _print_bars(one)
    finally:
        # An error in one table does not hide what is to be told of those before it.
        errors = [error for one in brought for error in one.failures]
        _tell([warning for one in brought for warning in one.warnings], errors)
    if as_json:
        emit_json({"tables": [one.document for one in brought], "errors": errors})
    if errors:
        raise click.exceptions.Exit(1)


def _tables(settings: Settings, source: str | None) -> tuple[str, ...]:
    """Tables to fetch. Raises `InputError` if no source is configured."""
    if source is not None:
        return (BENCHMARK_BARS,) if source == "csindex" else (INDUSTRY_BARS, BENCHMARK_BARS)
    tables = tuple(table for table in (INDUSTRY_BARS, BENCHMARK_BARS) if configured(settings, table))
    if not tables:
        raise InputError(
            "market: no source is configured; set industries and benchmark of [market] in finevolve.toml, "
            "or name one with --source"
        )
    return tables


def _print_bars(one: Brought) -> None:
    for asked in one.sources:
        counts = asked.landed
        click.echo(
            f"{one.table} from {asked.source}: {asked.asked:,} sessions asked for; {counts.added:,} bars landed, "
            f"{counts.updated:,} updated, {counts.known:,} already known"
        )


@fetch_group.command("news")
@click.option("--source", "service", type=click.Choice(["tushare"]), required=True, help="The service to ask.")
@click.option(
    "--src", "sources", multiple=True, type=click.Choice(NEWS_SOURCES), help="A news source (default: all nine)."
)
@_FROM
@_TO
@click.option("--again", is_flag=True, help="Ask for finished days too.")
@json_option
def news_command(
    service: str,
    sources: tuple[str, ...],
    first: dt.date | None,
    last: dt.date | None,
    again: bool,
    as_json: bool,
) -> None:
    """Fetch the history of news, day by day.

    A finished day is not asked for again, so an interrupted fetch goes on where it was. A day of which rows cannot be
    had or used is not finished.
    """
    settings, home = load_settings(), finevolve_home()
    require_folder(home)
    first, last = first or settings.news.first_day, last or settings.news.last_day
    days = calendar.days_between(first, last)
    if not days:
        raise InputError(f"days {first}..{last}: the first lies after the last; exchange --from and --to")
    wanted = tuple(dict.fromkeys(sources)) or NEWS_SOURCES
    client = Tushare(settings.tushare)
    new = [source for source in wanted if source not in settings.news.sources]
    if new:
        register_sources(home, new)
    with _progress("days", as_json) as progress:
        reports = fetch_news(
            client, home, wanted, days, lambda: dt.datetime.now(SHANGHAI), again=again, progress=progress
        )
    errors = [error for report in reports for error in report.failures]
    if as_json:
        emit_json({"service": service, "sources": [report.document for report in reports], "errors": errors})
    else:
        for report in reports:
            click.echo(_line(report))
    _tell([problem for report in reports for problem in report.problems], errors)
    if errors:
        raise click.exceptions.Exit(1)


def _line(report: SourceReport) -> str:
    news = report.news
    return (
        f"{report.source}: {report.asked:,} days asked for, {report.finished:,} finished before; {news.added:,} items "
        f"landed, {news.updated:,} updated, {news.known:,} already known, {report.rejected:,} rejected"
    )


def _tell(warnings: Sequence[str], errors: Sequence[str]) -> None:
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    for error in dict.fromkeys(errors):
        click.echo(f"error: {error}", err=True)


_Progress = Callable[[str, int, int], None]


@contextmanager
def _progress(what: str, quiet: bool) -> Iterator[_Progress]:
    """A bar for each source on standard error, where that is a terminal."""
    if quiet or not messages.is_terminal:
        yield lambda source, done, wanted: None
        return
    with progress_bar() as bar:
        bars = {}

        def tell(source: str, done: int, wanted: int) -> None:
            if source not in bars:
                bars[source] = bar.add_task(f"{source} {what}", total=wanted)
            bar.update(bars[source], completed=done, total=wanted)

        yield tell


def _labelled(table: str, progress: _Progress) -> _Progress:
    return lambda source, done, wanted: progress(f"{table} {source}", done, wanted)
