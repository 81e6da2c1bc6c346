"""The commands `crawl` and `coverage`: ask the news sites for days, and see which days are known to be complete.

Exit codes of `crawl`: 0 every source was read as far as was asked; 1 a source was not (the others were); 2 wrong use;
3 all that was left to do is being done by another process.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import click
from rich.progress import TaskID

from crawlers.records import Probe
from finevolve_pipeline import calendar
from finevolve_pipeline.cli.output import (
    Day,
    Pipeline,
    emit_json,
    json_option,
    messages,
    print_table,
    progress_bar,
    results,
)
from finevolve_pipeline.errors import SettingsError
from finevolve_pipeline.news.coverage_table import UNREADABLE, CoverageTable, SourceDay, Standing
from resources.coverage_store import CoverageStore, CrawlLockedError
from resources.news_sites import Crawled, NewsSites

_LOCKED = "locked"
_SHOWN_NOTES = 5


def present() -> dt.datetime:
    """The present, in Asia/Shanghai."""
    return dt.datetime.now(calendar.SHANGHAI)


@click.command("crawl")
@click.option(
    "--source", "sources", multiple=True, help="Only this source (repeatable; default: all of [news] sources)."
)
@click.option("--from", "first", type=Day(), help="First day (default: yesterday).")
@click.option("--to", "last", type=Day(), help="Last day (default: today).")
@click.option("--again", is_flag=True, help="Ask for days that are complete, too.")
@json_option
def crawl_command(
    sources: tuple[str, ...], first: dt.date | None, last: dt.date | None, again: bool, as_json: bool
) -> None:
    """Ask the news sites for days; what they publish lands beside what was imported.

    Days are calendar days in Asia/Shanghai. A day that is known to be complete is not asked for again; today stays
    open. Stop it any time: the same command goes on with the days that are left. robots.txt is obeyed, a site that
    refuses is left alone; how politely they are asked is in [crawl] of finevolve.toml.
    """
    pipeline = Pipeline.in_force()
    now = present()
    chosen = _chosen(pipeline, sources)
    days = _days(first or (last or now.date()) - dt.timedelta(days=1), last or now.date(), now)
    sites = NewsSites(pipeline.home, pipeline.settings.crawl)
    _warn_of_days_outside(pipeline, days)
    with progress_bar() as progress:
        tasks: dict[str, TaskID] = {}

        def advance(source: str, done: int, asked: int, articles: int) -> None:
            if source not in tasks:
                tasks[source] = progress.add_task(source, total=asked)
            progress.update(tasks[source], completed=done, description=f"{source} {articles:,} articles")

        crawled = sites.bring(dict.fromkeys(chosen, days), now, again=again, advance=advance)
    if as_json:
        emit_json({"first_day": days[0], "last_day": days[-1], "sources": [_document(one) for one in crawled]})
    else:
        _print(crawled)
    _end(crawled)


def _chosen(pipeline: Pipeline, sources: Sequence[str]) -> tuple[str, ...]:
    known = pipeline.settings.news.sources
    for source in sources:
        if source not in known:
            raise SettingsError(f"source {source!r}: not among {', '.join(known)}; add it to [news] sources")
    return tuple(dict.fromkeys(sources)) or known


def _days(first: dt.date, last: dt.date, now: dt.datetime) -> tuple[dt.date, ...]:
    if first > last:
        raise click.UsageError(f"--from {first} lies after --to {last}")
    if last > now.date():
        raise click.UsageError(f"--to {last} lies in the future; today is {now.date()} in Asia/Shanghai")
    return calendar.days_between(first, last)


def _warn_of_days_outside(pipeline: Pipeline, days: Sequence[dt.date]) -> None:
    """Articles of such days land, and no table shows them."""
    span = pipeline.settings.news
    outside = sum(1 for day in days if not span.first_day <= day <= span.last_day)
    if outside:
        messages.print(
            f"{outside} of {len(days)} days lie outside the news span {span.first_day} to {span.last_day}: "
            "kept, not used; set [news] first_day and last_day in finevolve.toml"
        )


def _document(one: Crawled) -> dict[str, object]:
    return {
        "source": one.source,
        "state": one.state,
        "reason": one.reason,
        "asked": one.asked,
        "complete": one.complete if one.days_known else None,
        "partial": one.partial if one.days_known else None,
        "open": one.open if one.days_known else None,
        "articles": {
            "added": one.counts.added,
            "updated": one.counts.updated,
            "known": one.counts.known,
            "changed_texts": len(one.counts.contradictions),
        },
        "dropped": dict(one.dropped),
        "unreadable": one.unreadable,
        "newest": one.newest or None,
        "notes": list(one.notes),
        "seconds": round(one.seconds, 3),
        "exit_code": 0 if one.went_through else 1,
    }


def _print(crawled: Sequence[Crawled]) -> None:
    rows = [
        [
            one.source,
            one.state if one.asked or one.state != "ok" else "nothing to ask",
            *(str(days) if one.days_known else "" for days in (one.complete, one.partial, one.open)),
            f"{one.counts.added:,}",
            f"{one.counts.known + one.counts.updated:,}",
            str(sum(one.dropped.values())),
            one.newest[:16].replace("T", " "),
        ]
        for one in crawled
    ]
    columns = ["source", "state", "complete", "partial", "open", "new articles", "known", "left out", "newest"]
    print_table("days and articles by source", columns, rows)
    told_at_the_end = _only_locked(crawled)
    for one in crawled:
        if one.reason and one not in told_at_the_end:
            messages.print(f"{one.source}: {one.reason}")
        for line in one.notes[:_SHOWN_NOTES]:
            messages.print(f"{one.source}: {line}")


def _only_locked(crawled: Sequence[Crawled]) -> list[Crawled]:
    """Sources that another process is crawling, if nothing else went wrong."""
    failed = [one for one in crawled if not one.went_through]
    return failed if all(one.state == _LOCKED for one in failed) else []


def _end(crawled: Sequence[Crawled]) -> None:
    """Exit with what did not succeed."""
    failed = [one for one in crawled if not one.went_through]
    locked = _only_locked(crawled)
    if locked:
        raise CrawlLockedError("; ".join(f"{one.source}: {one.reason}" for one in locked))
    if failed:
        raise click.exceptions.Exit(1)


@click.command("coverage")
@click.option("--source", "sources", multiple=True, help="Only this source (repeatable).")
@click.option("--from", "first", type=Day(), help="First day (default: the first that holds anything).")
@click.option("--to", "last", type=Day(), help="Last day (default: the last that holds anything).")
@click.option("--partial", is_flag=True, help="List only days that are partial, with the reason.")
@json_option
def coverage_command(
    sources: tuple[str, ...], first: dt.date | None, last: dt.date | None, partial: bool, as_json: bool
) -> None:
    """Articles by day and source, and what is known of each day: complete, partial (why), open, imported.

    `imported` days came from files or another service: how complete they are is not known here. Exit code 1 if what is
    known of a source cannot be read; the others are shown as ever.
    """
    if first is not None and last is not None and first > last:
        raise click.UsageError(f"--from {first} lies after --to {last}")
    pipeline = Pipeline.in_force()
    counts = pipeline.store.landing.news_counts()
    table = CoverageStore(pipeline.home).table(
        pipeline.settings.news.sources, counts, only=sources, first=first, last=last
    )
    if as_json:
        emit_json(table.document(Standing.PARTIAL if partial else None))
    elif partial:
        _print_partial(table)
    else:
        _print_coverage(table)
    for source, why in table.unreadable.items():
        messages.print(f"{source}: {UNREADABLE}: {why}", soft_wrap=True)
    if table.unreadable:
        raise click.exceptions.Exit(1)


_MARKS = {Standing.COMPLETE: "", Standing.PARTIAL: "!", Standing.OPEN: "+", Standing.IMPORTED: "i"}


def _print_coverage(table: CoverageTable) -> None:
    """By source; the days themselves if they are few."""
    days = table.days
    rows = [
        [
            source,
            f"{table.articles[source]:,}",
            *(str(table.standings[source][standing]) for standing in _MARKS),
            one.earliest[:10],
            one.newest[:16].replace("T", " "),
            one.state,
        ]
        for source, one in table.sources.items()
    ]
    columns = ["source", "articles", *_MARKS, "reaches back to", "newest seen", "last crawl"]
    print_table(f"{len(days)} days{f', {days[0]} to {days[-1]}' if days else ''}", columns, rows)
    if 0 < len(days) <= 62:
        cells = [[day, *(_marked(table.at(source, day)) for source in table.sources)] for day in days]
        print_table("articles by day (! partial, + open, i imported)", ["day", *table.sources], cells)
    doubtful = sum(1 for counts in table.standings.values() if counts[Standing.PARTIAL])
    if doubtful:
        have = "1 source has" if doubtful == 1 else f"{doubtful} sources have"
        results.print(f"{have} partial days: `finevolve coverage --partial` tells why")


def _marked(found: SourceDay) -> str:
    return f"{'' if found.articles is None else found.articles}{_MARKS.get(found.standing, '')}"


def _print_partial(table: CoverageTable) -> None:
    """One line a day: reasons are long."""
    partial = sorted((day, source) for (source, day), at in table.known.items() if at.standing is Standing.PARTIAL)
    for day, source in partial:
        one = table.sources[source].days[day]
        crawls = f"{one.tries} crawl{'' if one.tries == 1 else 's'}"
        results.print(f"{day} {source} ({crawls}): {one.reason}", soft_wrap=True)
    messages.print(f"{len(partial)} partial day{'' if len(partial) == 1 else 's'}")


_STALE_HOURS = 24.0


def probe_sources(pipeline: Pipeline, as_json: bool) -> None:
    """What the newest page of each source is like; exit code 1 if one cannot be read, has drifted or is stale."""
    now = present()
    found = NewsSites(pipeline.home, pipeline.settings.crawl).probe(pipeline.settings.news.sources, now)
    ages = {source: _age_hours(probe, now) for source, probe in found.items()}
    told = {source: _what_is_wrong(probe, ages[source]) for source, probe in found.items()}
    if as_json:
        emit_json(
            {
                source: {
                    "channel": probe.channel,
                    "state": probe.state.value,
                    "problem": told[source],
                    "rows": probe.rows,
                    "newest": probe.newest or None,
                    "newest_age_hours": ages[source],
                    "fields": dict(probe.fields),
                    "left_out": probe.dropped,
                    "unreadable": list(probe.unreadable),
                }
                for source, probe in found.items()
            }
        )
    else:
        rows = [
            [
                source,
                probe.channel,
                probe.state.value,
                str(probe.rows),
                "" if (age := ages[source]) is None else f"{age:.1f} h",
                " ".join(f"{name} {share:.0%}" for name, share in probe.fields.items()),
                told[source],
            ]
            for source, probe in found.items()
        ]
        columns = ["source", "list", "state", "rows", "newest is", "fields filled", "problem"]
        print_table("newest page of each source", columns, rows)
    if any(told.values()):
        raise click.exceptions.Exit(1)


def _age_hours(probe: Probe, now: dt.datetime) -> float | None:
    return (now - dt.datetime.fromisoformat(probe.newest)).total_seconds() / 3600 if probe.newest else None


def _what_is_wrong(probe: Probe, age: float | None) -> str:
    """Why the page is not as it should be, empty if it is."""
    if probe.reason:
        return probe.reason
    return f"stale: nothing new for {age:.0f} hours" if age is not None and age > _STALE_HOURS else ""
