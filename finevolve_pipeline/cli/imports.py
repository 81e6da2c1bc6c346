"""`finevolve import`: news, market and official files into the landing store.

Good rows land, bad rows go to a rejects file and are reported. Exit codes: 0 all was read; 1 a file broke
off and its rows up to there landed; 2 a file could not be used at all (the others were imported
nevertheless); 3 another import is writing.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click
import pandas as pd
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from finevolve_pipeline.calendar import SHANGHAI, all_sessions
from finevolve_pipeline.cli.output import emit_json, json_option, messages
from finevolve_pipeline.errors import CalendarError, FinEvolveError, InputError
from finevolve_pipeline.files import PARTIAL
from finevolve_pipeline.importing import ENCODINGS, Rejects, RowFile
from finevolve_pipeline.market.bars import AMOUNT_UNITS, VOLUME_UNITS
from finevolve_pipeline.market.importing import BarOptions, BarReader, read_bars
from finevolve_pipeline.news.importing import NewsOptions, NewsReader, count_sources, read_news
from finevolve_pipeline.official import official_files, read_official
from finevolve_pipeline.settings import Settings, finevolve_home, load_settings
from resources.landing import (
    BENCHMARK_BARS,
    INDUSTRY_BARS,
    SOURCES_FILE,
    BarCounts,
    Landing,
    NewsCounts,
    register_sources,
)
from resources.market.revisions import Revisions

_SHOWN_REJECTS = 5
_WORTH_A_BAR = 2 << 20

_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass
class FileReport:
    """What became of one file.

    Attributes:
        news, bars: what landed of each; None if the file holds none of it.
        rejected: rows (in the official layout also single articles) that were set aside.
        beyond_calendar: bars before or after the exchange calendar's years, skipped.
        outside_span: items that landed but lie outside the span of the settings' news.
        truncated: the file broke off.
    """

    file: str
    news: NewsCounts | None = None
    bars: BarCounts | None = None
    rejected: int = 0
    rejects_file: str | None = None
    beyond_calendar: int = 0
    repeated: int = 0
    outside_span: int = 0
    sources: dict[str, int] = field(default_factory=dict)
    first_day: str | None = None
    last_day: str | None = None
    truncated: bool = False
    warnings: list[str] = field(default_factory=list)

    def saw_days(self, days: pd.Series[Any]) -> None:
        """Widen the reported span of days (ISO dates)."""
        self.first_day = min(filter(None, (self.first_day, days.min())))
        self.last_day = max(filter(None, (self.last_day, days.max())))

    @property
    def document(self) -> dict[str, Any]:
        """For `--json`."""
        news, bars = self.news or NewsCounts(), self.bars or BarCounts()
        return {
            "file": self.file,
            "news": None
            if self.news is None
            else {
                "added": news.added,
                "updated": news.updated,
                "known": news.known,
                "contradicted": len(news.contradictions),
                "sources": self.sources,
            },
            "bars": None
            if self.bars is None
            else {
                "added": bars.added,
                "updated": bars.updated,
                "known": bars.known + self.repeated,
                "revisions": [revision._asdict() for revision in bars.revisions],
            },
            "first_day": self.first_day,
            "last_day": self.last_day,
            "outside_span": self.outside_span,
            "beyond_calendar": self.beyond_calendar,
            "rejected": self.rejected,
            "rejects_file": self.rejects_file,
            "truncated": self.truncated,
            "warnings": self.warnings,
        }

    @property
    def line(self) -> str:
        """For people."""
        parts = []
        if self.news is not None:
            news = self.news
            parts.append(f"{news.added:,} items landed, {news.updated:,} updated, {news.known:,} already known")
        if self.bars is not None:
            bars = self.bars
            parts.append(
                f"{bars.added:,} bars landed, {bars.updated:,} updated, {bars.known + self.repeated:,} already known"
            )
        parts.append(f"{self.rejected:,} rejected")
        span = f" ({self.first_day} to {self.last_day})" if self.first_day else ""
        sources = f" [{', '.join(f'{name} {count:,}' for name, count in sorted(self.sources.items()))}]"
        return f"{self.file}: {'; '.join(parts)}{span}{sources if self.sources else ''}"


@click.group("import")
def import_group() -> None:
    """Bring news and closes in.

    Importing a file again changes nothing; bad rows are set aside and reported.
    """


def _pairs(_: click.Context, parameter: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    """`A=B,C=D`, given once or several times, as a mapping."""
    found = {}
    for pair in (pair for value in values for pair in value.split(",")):
        left, sign, right = (part.strip() for part in pair.partition("="))
        if not (left and sign and right):
            raise click.BadParameter(f"{pair!r}: write NAME=VALUE[,NAME=VALUE...]", param=parameter)
        found[left] = right
    return found


def _zone(_: click.Context, parameter: click.Parameter, value: str) -> ZoneInfo:
    try:
        return ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise click.BadParameter(f"{value!r}: no time zone (use e.g. Asia/Shanghai or UTC)", param=parameter) from None


_NEWS_OPTIONS = (
    click.option("--source", metavar="ID", help="Source id of all items, whatever the file says."),
    click.option(
        "--source-map", multiple=True, callback=_pairs, metavar="NAME=ID,...",
        help="Source as written = its id.",
    ),
    click.option(
        "--columns", multiple=True, callback=_pairs, metavar="FIELD=COLUMN,...", help="Unusual column names."
    ),
    click.option(
        "--time-zone", "zone", default="Asia/Shanghai", show_default=True, callback=_zone,
        help="Time zone of times without offset.",
    ),
)  # fmt: skip
_REPLACE = click.option(
    "--replace", is_flag=True, help="Where an id is known with another text of the same time, take this one."
)
_ENCODING = click.option("--encoding", type=click.Choice(ENCODINGS), default="utf-8", show_default=True)


def _news_options(command: _Command) -> _Command:
    for option in reversed(_NEWS_OPTIONS):
        command = option(command)
    return command


def _unit_options(*prefixes: str) -> Callable[[_Command], _Command]:
    """Options that declare units: `--<prefix>volume-unit` and `--<prefix>amount-unit`."""

    def decorate(command: _Command) -> _Command:
        for prefix in reversed(prefixes):
            command = click.option(f"--{prefix}amount-unit", type=click.Choice(list(AMOUNT_UNITS)))(command)
            command = click.option(f"--{prefix}volume-unit", type=click.Choice(list(VOLUME_UNITS)))(command)
        return command

    return decorate


@import_group.command("news")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@_news_options
@_REPLACE
@_ENCODING
@json_option
def news_command(
    files: tuple[Path, ...],
    source: str | None,
    source_map: dict[str, str],
    columns: dict[str, str],
    zone: ZoneInfo,
    replace: bool,
    encoding: str,
    as_json: bool,
) -> None:
    """Import news: .jsonl or .csv, each also .gz, or .parquet.

    Usual column names and the Chinese names of the nine sources are known. Fields for --columns:
    published_at, modified_at, source, source_id, url, title, content, importance.
    """
    task = _Import.in_force(encoding, replace)
    options = NewsOptions(task.now, source, source_map, columns, zone)
    task.run([(file, "news", lambda path: _import_news(task, path, options)) for file in files], as_json)


@import_group.command("market")
@click.option("--industries", type=click.Path(path_type=Path), help="Bars of the 31 industry indices.")
@click.option("--benchmark", type=click.Path(path_type=Path), help="Bars of CSI1000.")
@_unit_options("industry-", "benchmark-")
@_ENCODING
@json_option
def market_command(
    industries: Path | None,
    benchmark: Path | None,
    industry_volume_unit: str | None,
    industry_amount_unit: str | None,
    benchmark_volume_unit: str | None,
    benchmark_amount_unit: str | None,
    encoding: str,
    as_json: bool,
) -> None:
    """Import daily bars: date, open, high, low, close, volume, amount, and for industries a code or name.

    Units of volume and amount must be declared where the file has such a column: sources differ by 10^8.
    """
    if industries is None and benchmark is None:
        raise click.UsageError("name a file: --industries FILE, --benchmark FILE or both")
    task = _Import.in_force(encoding)
    jobs: list[_Job] = []
    for path, table, volume, amount in (
        (industries, INDUSTRY_BARS, industry_volume_unit, industry_amount_unit),
        (benchmark, BENCHMARK_BARS, benchmark_volume_unit, benchmark_amount_unit),
    ):
        if path is not None:
            options = _bar_options(task, volume, amount, table == BENCHMARK_BARS)
            jobs.append((path, "market", _market_job(task, table, options)))
    task.run(jobs, as_json)


@import_group.command("official")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@_news_options
@_REPLACE
@_unit_options("")
@_ENCODING
@json_option
def official_command(
    paths: tuple[Path, ...],
    source: str | None,
    source_map: dict[str, str],
    columns: dict[str, str],
    zone: ZoneInfo,
    replace: bool,
    volume_unit: str | None,
    amount_unit: str | None,
    encoding: str,
    as_json: bool,
) -> None:
    """Import the official layout: daily YYYYMMDD.csv with date, sector, newsList, open, close, volume, ...

    PATHS are such files, or folders of them. Articles without a source become source "official".
    """
    task = _Import.in_force(encoding, replace)
    options = NewsOptions(task.now, source, source_map, columns, zone)
    units = BarOptions(False, task.now.date(), volume_unit, amount_unit, ("--volume-unit", "--amount-unit"))
    files = [file for path in paths for file in official_files(path)]
    task.run(
        [(file, "official", lambda path: _import_official(task, path, options, units)) for file in files],
        as_json,
    )


_Job = tuple[Path, str, Callable[["_OpenFile"], None]]


@dataclass
class _OpenFile:
    """A file being imported: its rows, its rejects and its report."""

    rows: RowFile
    rejects: Rejects
    report: FileReport
    own: set[tuple[str, str]] = field(default_factory=set)
    """News of which this file's copy was kept: (source, source_id)."""


@dataclass(frozen=True)
class _Import:
    """Where an import writes, when it is made (for the check of future dates only), and whether its texts
    replace known ones of the same time."""

    settings: Settings
    home: Path
    landing: Landing
    now: dt.datetime
    encoding: str
    replace: bool

    @staticmethod
    def in_force(encoding: str, replace: bool = False) -> _Import:
        """By FINEVOLVE_HOME and FINEVOLVE_CONFIG."""
        home = finevolve_home()
        now = dt.datetime.now(SHANGHAI)
        return _Import(load_settings(), home, Landing.of(home), now, encoding, replace)

    def run(self, jobs: Sequence[_Job], as_json: bool) -> None:
        """Import file by file; a file that cannot be used does not stop the others."""
        reports: list[FileReport] = []
        failures: list[FinEvolveError] = []
        with self.landing.importing():
            self._sweep()
            for path, kind, job in jobs:
                try:
                    report = self._import(path, kind, job)
                except (InputError, CalendarError) as unusable:
                    failures.append(unusable)
                    continue
                reports.append(report)
                if not as_json:
                    click.echo(report.line)
        if as_json:
            emit_json({"files": [report.document for report in reports], "errors": [str(f) for f in failures]})
        if failures:
            for failed in failures[:-1]:
                click.echo(f"error: {failed}", err=True)
            raise failures[-1]
        if any(report.truncated for report in reports):
            raise click.exceptions.Exit(1)

    def _sweep(self) -> None:
        """Remove what an import that died left half-written (the landing store sweeps its own)."""
        for leftover in (
            *(self.home / "rejects").glob(f"{PARTIAL}*"),
            *self.home.glob(f"{PARTIAL}*-{SOURCES_FILE}"),
        ):
            leftover.unlink(missing_ok=True)

    def _import(self, path: Path, kind: str, job: Callable[[_OpenFile], None]) -> FileReport:
        with _progress(path) as advance:
            rows = RowFile(path, self.encoding, advance)
            file = _OpenFile(rows, Rejects(self.home / "rejects", kind, path), FileReport(path.name))
            try:
                job(file)
            except BaseException:
                file.rejects.discard()
                raise
        self._finish(file)
        return file.report

    def _finish(self, file: _OpenFile) -> None:
        """Put the rejects in place and tell what the user should know."""
        report, rejects, rows = file.report, file.rejects, file.rows
        aside = rejects.close()
        report.rejected, report.rejects_file = rejects.count, None if aside is None else str(aside)
        report.truncated = rows.damage is not None
        landed = sum(c.added + c.updated + c.known for c in (report.news, report.bars) if c is not None)
        if not landed and not report.beyond_calendar and (rejects.count or not rows.count):
            raise InputError(_nothing(rows, rejects, aside))
        for reject in rejects.first[:_SHOWN_REJECTS]:
            click.echo(f"warning: {rows.name} row {reject.row}: {reject.reason}", err=True)
        if aside is not None:
            report.warnings.append(f"{rejects.count:,} rejected, set aside in {aside}")
        if rows.damage is not None:
            report.warnings.append(f"{rows.damage}; the rows before that landed, fetch the file again")
        if rows.replaced:
            report.warnings.append(f"{rows.replaced:,} rows hold half a surrogate pair: replaced by U+FFFD")
        if report.outside_span:
            span = self.settings.news
            report.warnings.append(
                f"{report.outside_span:,} items lie outside the news span "
                f"{span.first_day} to {span.last_day}: kept, not used"
            )
        if report.news is not None:
            report.warnings += _contradicted(report.news)
        if report.beyond_calendar:
            first, last = all_sessions()[0].year, all_sessions()[-1].year
            report.warnings.append(
                f"{report.beyond_calendar:,} bars lie outside the calendar table {first}–{last} "
                "(before or after): skipped"
            )
        if report.bars is not None and report.bars.revisions:
            closes = report.bars.revised_closes
            what = f"{len(closes):,} closes" if closes else f"{len(report.bars.revisions):,} numbers"
            report.warnings.append(f"revised {what}, first {(closes or report.bars.revisions)[0]}")
        for warning in report.warnings:
            click.echo(f"warning: {rows.name}: {warning}", err=True)


def _contradicted(news: NewsCounts) -> list[str]:
    """What to say of items that come with another text than the one kept."""
    said = []
    for in_file, what, stays in (
        (False, "are known under the same id with another text or link", "the known text stays"),
        (
            True,
            "repeat an id of this file with another text or link",
            "the earliest stays, at equal times the first row",
        ),
    ):
        found = [contradiction for contradiction in news.contradictions if contradiction.in_file == in_file]
        if found:
            first = f"first {found[0].source} {found[0].source_id} (row {found[0].row})"
            advice = "" if in_file else "; --replace takes the new one"
            said.append(f"{len(found):,} items {what}: {stays}, {first}{advice}")
    return said


def _nothing(rows: RowFile, rejects: Rejects, aside: Path | None) -> str:
    """Why nothing of a file could be used."""
    if rejects.count:
        first = rejects.first[0]
        why = f"the first, row {first.row}: {first.reason}"
        return f"{rows.path}: no usable row of {rejects.count:,}; {why}; see {aside}"
    return f"{rows.path}: {rows.damage or 'holds no rows'}; fetch it again"


@contextmanager
def _progress(path: Path) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error for files that take more than a moment."""
    size = path.stat().st_size if path.is_file() else 0
    if size < _WORTH_A_BAR or not messages.is_terminal:
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=messages, transient=True) as progress:
        task = progress.add_task(f"import {path.name}", total=size)
        yield lambda done: progress.update(task, completed=done)


def _land_news(task: _Import, file: _OpenFile, frame: pd.DataFrame) -> None:
    """Merge a chunk of news and count what it was."""
    report = file.report
    sources = count_sources(frame)
    new = [source for source in sources if source not in task.settings.news.sources]
    if new:
        register_sources(task.home, new)
    counts = task.landing.merge_news(frame, replace=task.replace, own=file.own)
    report.news = (report.news or NewsCounts()) + counts
    days = frame["published_at"].dt.strftime("%Y-%m-%d")
    report.saw_days(days)
    span = task.settings.news
    report.outside_span += int((~days.between(span.first_day.isoformat(), span.last_day.isoformat())).sum())
    for source, count in sources.items():
        report.sources[source] = report.sources.get(source, 0) + count


def _land_bars(task: _Import, report: FileReport, table: str, frame: pd.DataFrame) -> None:
    """Merge a chunk of bars and count what it was."""
    tell = Revisions(task.home).teller(table, f"file:{report.file}", task.now)
    report.bars = (report.bars or BarCounts()) + task.landing.merge_bars(table, frame, tell)
    report.saw_days(frame["session"])


def _import_news(task: _Import, file: _OpenFile, options: NewsOptions) -> None:
    reader = NewsReader(options)
    for frame in read_news(file.rows, reader, file.rejects.add):
        _land_news(task, file, frame)
    file.report.warnings += reader.notes()


def _bar_options(task: _Import, volume: str | None, amount: str | None, benchmark: bool) -> BarOptions:
    side = "benchmark" if benchmark else "industry"
    return BarOptions(benchmark, task.now.date(), volume, amount, (f"--{side}-volume-unit", f"--{side}-amount-unit"))


def _market_job(task: _Import, table: str, options: BarOptions) -> Callable[[_OpenFile], None]:
    def job(file: _OpenFile) -> None:
        reader = BarReader(options)
        for frame in read_bars(file.rows, reader, file.rejects.add):
            _land_bars(task, file.report, table, frame)
        file.report.beyond_calendar, file.report.repeated = reader.beyond, reader.repeated
        file.report.warnings += reader.notes()

    return job


def _import_official(task: _Import, file: _OpenFile, options: NewsOptions, units: BarOptions) -> None:
    items, bars = NewsReader(options), BarReader(units)
    for chunk in read_official(file.rows, items, bars, file.rejects.add):
        if chunk.news is not None:
            _land_news(task, file, chunk.news)
        if chunk.bars is not None:
            _land_bars(task, file.report, INDUSTRY_BARS, chunk.bars)
    file.report.beyond_calendar, file.report.repeated = bars.beyond, bars.repeated
    file.report.warnings += [*items.notes(), *bars.notes()]
