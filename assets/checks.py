"""Asset checks. Blocking ones stop the graph where a bad table must not go on; the others warn.

Contracts (columns, types, ranges, unique ids) are held on every write already, so checks ask what a contract
cannot: causality, completeness, agreement between tables, plausibility. In a range they look at all its partitions
and say one thing about it; checks with partitions of their own would show each as not evaluated after a range.
"""

import datetime as dt
from collections.abc import Iterable, Iterator
from functools import cache

import dagster as dg

from finevolve_pipeline import calendar
from finevolve_pipeline.calendar import Clock, shanghai_now
from finevolve_pipeline.errors import ReplayMismatchError
from finevolve_pipeline.graph import SINGLE, Graph, Table
from finevolve_pipeline.market.fetching import agreement, codes_of, missing_closes, settled_sessions
from finevolve_pipeline.news import coverage, staleness
from finevolve_pipeline.news.coverage import DayState, SourceCoverage
from finevolve_pipeline.news.coverage_table import UNREADABLE
from finevolve_pipeline.news.staleness import Drop, Silence
from finevolve_pipeline.replay.journal import ReplayStore
from finevolve_pipeline.universe import CODES
from resources.coverage_store import CoverageStore
from resources.landing import BENCHMARK_BARS, INDUSTRY_BARS
from resources.market import Revisions, configured, second_store
from resources.market.bringing import read as bars_of
from resources.table_store import TableStore

_EXTREME_DAY = 0.2
"""A one-day move of an industry index beyond this is a unit or data mistake, not a market."""

_SAME_CLOSE = 1e-4
"""Closes of two sources that differ by less, relative, are the same number, rounded otherwise."""


def _asked(context: dg.AssetCheckExecutionContext) -> list[str] | None:
    """The partitions of this run; None when the check runs alone without partitions."""
    if context.has_partition_key or context.has_partition_key_range:
        return [str(key) for key in context.partition_keys]
    return None


def _stored(context: dg.AssetCheckExecutionContext, store: TableStore, table: str) -> list[str]:
    """The partitions of this run that are stored; all stored ones when the check runs alone without partitions."""
    asked = _asked(context)
    keys = asked if asked is not None else list(store.partitions(table))
    return [key for key in keys if store.digest(table, key) is not None]


def _source_days(context: dg.AssetCheckExecutionContext, kept: CoverageStore) -> dict[str, list[str]]:
    """Days of this run by source; all that any crawl asked for when the check runs alone without partitions."""
    asked = _asked(context)
    if asked is None:
        return {source: sorted(kept.shown(source).days) for source in kept.sources()}
    days: dict[str, list[str]] = {}
    for key in asked:
        day, source = key.split("|", 1)
        days.setdefault(source, []).append(day)
    return days


def incomplete_days(known: SourceCoverage, days: Iterable[str], store: TableStore) -> Iterator[str]:
    """Days of a source that a crawl asked for and that are partial, or have no stored partition, and why.

    Days that no crawl asked for came from files; how complete they are is not known.
    """
    if known.state == UNREADABLE:
        yield known.reason
    for day in days:
        found = known.days.get(day)
        if found is None:
            continue
        key = f"{day}|{known.source}"
        if found.state is DayState.PARTIAL:
            yield f"{key}: {found.reason}"
        elif store.stored("raw_news", key) is None:
            yield f"{key}: asked for, and no partition is stored"


def dropped_days(known: SourceCoverage, days: Iterable[str], store: TableStore) -> Iterator[Drop]:
    """Complete days of a source that have (nearly) no articles, by its own last eight weeks."""

    @cache
    def counted(day: dt.date) -> int | None:
        found = known.days.get(day.isoformat())
        if found is not None and found.state is not DayState.COMPLETE:
            return None
        return store.landing.news_count(known.source, day.isoformat())

    for text in days:
        day = dt.date.fromisoformat(text)
        if text not in known.days or counted(day) is None:
            continue
        span = [day - dt.timedelta(weeks=weeks) for weeks in range(staleness.DROP_WEEKS + 1)]
        counts = {then: count for then in span if (count := counted(then)) is not None}
        found = staleness.drop(counts, day)
        if found is not None:
            yield found


def _result(
    bad: Iterable[str],
    looked_at: int,
    what: str,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
) -> dg.AssetCheckResult:
    found = list(bad)
    return dg.AssetCheckResult(
        passed=not found,
        severity=severity,
        description=f"{len(found)} of {looked_at} {what}" + (f", first: {found[0]}" if found else ""),
        metadata={"looked_at": looked_at, "bad": len(found), "first": found[:5]},
    )


def broken_days(replays: ReplayStore, experiment: str) -> Iterator[str]:
    """What is wrong with an experiment's stored days: files, digests, chain."""
    parent = ""
    for session in replays.sessions(experiment):
        try:
            manifest = replays.manifest(experiment, session)
            replays.verify_files(manifest)
        except ReplayMismatchError as broken:
            yield str(broken)
            return
        if manifest.parent != parent:
            yield f"{experiment} {session}: does not follow the stored day before it"
        parent = manifest.digest


def silence_of(store: TableStore, known: SourceCoverage, now: dt.datetime) -> Silence | None:
    """How long a source had been silent when it was last asked for its newest; None if that was before yesterday."""
    asked = coverage.asked_for_news(known, now)
    if asked is None:
        return None
    first = asked.astimezone(calendar.SHANGHAI).date() - dt.timedelta(days=staleness.SILENCE_DAYS + 1)
    days = calendar.days_between(first, asked.astimezone(calendar.SHANGHAI).date())
    published = [time for day in days for time in store.landing.news_times(known.source, day.isoformat())]
    return staleness.silence(published, asked)


def no_revised_closes(table: str) -> dg.AssetChecksDefinition:
    """No close of these sessions was replaced by another number since it landed."""

    @dg.asset_check(asset=table, name="no_revised_closes", description=no_revised_closes.__doc__)
    def check(context: dg.AssetCheckExecutionContext, store: dg.ResourceParam[TableStore]) -> dg.AssetCheckResult:
        keys = set(_stored(context, store, table))
        revised = [str(entry) for entry in Revisions(store.home).closes(table) if entry.session in keys]
        return _result(revised, len(keys), "closes were revised (sessions looked at)", dg.AssetCheckSeverity.WARN)

    return check


def _is_fresh(table: Table, key: str, store: TableStore) -> bool:
    """Whether a stored partition is what it would be made of now."""
    stored = store.stored(table.name, key)
    return stored is not None and stored.recipe == table.recipe(key, store).digest


def all_sessions_there(graph: Graph, table: str, clock: Clock) -> dg.AssetChecksDefinition:
    """Every session asked for that is over has all its closes, from one source or another."""

    @dg.asset_check(asset=table, name="all_sessions_there", description=all_sessions_there.__doc__)
    def check(context: dg.AssetCheckExecutionContext, store: dg.ResourceParam[TableStore]) -> dg.AssetCheckResult:
        sessions = settled_sessions(_sessions_asked(context, graph, table), clock())
        absent = missing_closes(bars_of(store.landing, table, sessions), sessions, codes_of(table))
        bad = [f"{day}: {len(codes)} closes missing, first {codes[0]}" for day, codes in absent.items()]
        return _result(bad, len(sessions), "sessions lack closes", dg.AssetCheckSeverity.WARN)

    return check


def sources_agree(graph: Graph, table: str, clock: Clock) -> dg.AssetChecksDefinition:
    """The closes that landed equal those of the further sources, where both have them."""

    @dg.asset_check(asset=table, name="sources_agree", description=sources_agree.__doc__)
    def check(context: dg.AssetCheckExecutionContext, store: dg.ResourceParam[TableStore]) -> dg.AssetCheckResult:
        sessions = settled_sessions(_sessions_asked(context, graph, table), clock())
        landed = bars_of(store.landing, table, sessions)
        bad: list[str] = []
        figures: dict[str, dict[str, float | int | str | None]] = {}
        for source in configured(graph.settings, table)[1:]:
            told = bars_of(second_store(store.home, source), table, sessions)
            found = agreement(landed, told, _SAME_CLOSE)
            bad.extend(f"{source}: {where}" for where in found.beyond)
            figures[source] = {
                "closes_compared": found.compared,
                "largest_relative_difference": found.largest if found.compared else None,
                "where": found.where,
                "missing_there": found.only_first,
                "missing_here": found.only_second,
                "sessions_missing_there": len(missing_closes(told, sessions, codes_of(table))),
            }
        result = _result(bad, len(sessions), "closes differ (sessions looked at)", dg.AssetCheckSeverity.WARN)
        return result._replace(metadata={**result.metadata, "sources": dg.MetadataValue.json(figures)})

    return check


def _bar_checks(graph: Graph, table: str, clock: Clock) -> list[dg.AssetChecksDefinition]:
    """Checks of a table of bars: of fetched ones where a source is configured, of their agreement where two are."""
    sources = configured(graph.settings, table)
    return [
        no_revised_closes(table),
        *([all_sessions_there(graph, table, clock)] if sources else []),
        *([sources_agree(graph, table, clock)] if len(sources) > 1 else []),
    ]


def _sessions_asked(context: dg.AssetCheckExecutionContext, graph: Graph, table: str) -> list[dt.date]:
    """Sessions of this run; all kept ones when the check runs alone without partitions."""
    asked = _asked(context)
    return [dt.date.fromisoformat(key) for key in (graph.tables[table].partitions if asked is None else asked)]


def checks(graph: Graph, clock: Clock = shanghai_now) -> list[dg.AssetChecksDefinition]:
    """All asset checks; `clock` tells the present to the one that is about it."""
    horizons = graph.settings.benchmark.horizons

    @dg.asset_check(asset="raw_news")
    def complete(context: dg.AssetCheckExecutionContext, store: dg.ResourceParam[TableStore]) -> dg.AssetCheckResult:
        """Every day that a crawl asked for was read back to its beginning, and is stored."""
        kept = CoverageStore(store.home)
        asked = _source_days(context, kept)
        bad = [text for source, days in asked.items() for text in incomplete_days(kept.shown(source), days, store)]
        return _result(bad, sum(map(len, asked.values())), "days of sources are not complete")

    @dg.asset_check(asset="raw_news")
    def fresh(context: dg.AssetCheckExecutionContext, store: dg.ResourceParam[TableStore]) -> dg.AssetCheckResult:
        """No source that was just asked for its newest has been silent for longer than it ever is at this hour."""
        kept, now = CoverageStore(store.home), clock()
        recent = {(now.date() - dt.timedelta(days=back)).isoformat() for back in (0, 1)}
        asked = [source for source, days in _source_days(context, kept).items() if recent & set(days)]
        silences = {source: silence_of(store, kept.shown(source), now) for source in asked}
        bad = [f"{source}: {found}" for source, found in silences.items() if found is not None and found.is_stale]
        return _result(bad, len(asked), "sources have fallen silent", dg.AssetCheckSeverity.WARN)

    @dg.asset_check(asset="raw_news")
    def not_dropped_to_zero(
        context: dg.AssetCheckExecutionContext, store: dg.ResourceParam[TableStore]
    ) -> dg.AssetCheckResult:
        """No complete day has less than a tenth of the articles that its source has on that weekday."""
        kept = CoverageStore(store.home)
        asked = _source_days(context, kept)
        bad = [
            f"{source} {found}"
            for source, days in asked.items()
            for found in dropped_days(kept.shown(source), days, store)
        ]
        what = "days of sources have dropped to nearly nothing"
        return _result(bad, sum(map(len, asked.values())), what, dg.AssetCheckSeverity.WARN)

    @dg.asset_check(asset="news_window", blocking=True)
    def observable_at_cutoff(
        context: dg.AssetCheckExecutionContext, store: dg.ResourceParam[TableStore]
    ) -> dg.AssetCheckResult:
        """Every article of a window was first published before the session's 24:00."""
        keys = _stored(context, store, "news_window")
        bad: list[str] = []
        for key in keys:
            frame = store.read("news_window", key)
            limit = calendar.cutoff(calendar.parse_day(key))
            late = frame[frame["published_at"] >= limit]
            bad.extend(f"{key} article {article}" for article in late["article_id"])
        return _result(bad, len(keys), "windows hold an article from after their cutoff")

    @dg.asset_check(asset="news_window")
    def has_news(context: dg.AssetCheckExecutionContext, store: dg.ResourceParam[TableStore]) -> dg.AssetCheckResult:
        """No session is without any news: an empty window is mostly a gap in the import."""
        keys = _stored(context, store, "news_window")
        empty = [key for key in keys if (found := store.stored("news_window", key)) is not None and not found.rows]
        return _result(empty, len(keys), "windows are empty", dg.AssetCheckSeverity.WARN)

    @dg.asset_check(asset="industry_bars")
    def plausible_moves(
        context: dg.AssetCheckExecutionContext, store: dg.ResourceParam[TableStore]
    ) -> dg.AssetCheckResult:
        """All 31 industries are there, and none moved by more than 20 % in a day."""
        keys = _stored(context, store, "industry_bars")
        bad: list[str] = []
        before = None
        for key in keys:
            closes = store.read("industry_bars", key).set_index("code")["close"]
            bad.extend(f"{key} {code} missing" for code in CODES if code not in closes.index)
            if before is not None:
                moves = (closes / before - 1).abs()
                bad.extend(f"{key} {code} moved {move:.0%}" for code, move in moves[moves > _EXTREME_DAY].items())
            before = closes
        return _result(bad, len(keys), "sessions look wrong", dg.AssetCheckSeverity.WARN)

    @dg.asset_check(asset="matured_alpha", blocking=True)
    def complete_and_known(
        context: dg.AssetCheckExecutionContext, store: dg.ResourceParam[TableStore]
    ) -> dg.AssetCheckResult:
        """Each session has one outcome for every industry and horizon, and none that matures later."""
        keys = _stored(context, store, "matured_alpha")
        bad: list[str] = []
        for key in keys:
            frame = store.read("matured_alpha", key)
            cells = set(zip(frame["code"], frame["horizon"].astype(int), strict=True))
            if cells != {(code, horizon) for code in CODES for horizon in horizons}:
                bad.append(f"{key}: {len(cells)} cells")
            if set(frame["matured_on"]) != {key}:
                bad.append(f"{key}: outcomes of another day")
        return _result(bad, len(keys), "sessions are incomplete or hold outcomes of another day")

    @dg.asset_check(asset="alpha", blocking=True, additional_deps=["matured_alpha", "label_bases"])
    def agrees_with_matured_alpha(store: dg.ResourceParam[TableStore]) -> dg.AssetCheckResult:
        """The evaluator's labels equal, bit by bit, the outcomes that the agents were given, where both are made of
        the same closes: outcomes that were read before a close was revised stay as they were read."""
        table = graph.tables["matured_alpha"]
        labels = graph.told_outcomes(store).set_index(["predicted_on", "code", "horizon"])["alpha"]
        bad: list[str] = []
        keys = [key for key in store.partitions("matured_alpha") if _is_fresh(table, key, store)]
        for key in keys:
            known = store.read("matured_alpha", key).set_index(["predicted_on", "code", "horizon"])["alpha"]
            both = known.index.intersection(labels.index)
            left, right = known.loc[both], labels.loc[both]
            differ = (left != right) & ~(left.isna() & right.isna())
            bad.extend(f"{key} {cell}" for cell in both[differ.to_numpy()])
        return _result(bad, len(keys), "sessions differ")

    @dg.asset_check(asset="ic_by_experiment", blocking=True)
    def replay_verifies(
        context: dg.AssetCheckExecutionContext, store: dg.ResourceParam[TableStore]
    ) -> dg.AssetCheckResult:
        """Every stored day of the experiment has its files, its digests and its parent."""
        keys = _stored(context, store, "ic_by_experiment")
        bad = [problem for key in keys for problem in broken_days(store.replays, key)]
        return _result(bad, len(keys), "experiments have a broken day")

    @dg.asset_check(asset="ic_matrix")
    def defined(store: dg.ResourceParam[TableStore]) -> dg.AssetCheckResult:
        """Overall coefficients are defined for every experiment, horizon and metric."""
        frame = store.read("ic_matrix", SINGLE)
        overall = frame[frame["stage"] == "overall"]
        missing = overall[overall["value"].isna()]
        bad = [f"{r['experiment']} {r['metric']} {r['horizon']}d" for _, r in missing.iterrows()]
        return _result(bad, len(overall), "coefficients are undefined", dg.AssetCheckSeverity.WARN)

    return [
        complete,
        fresh,
        not_dropped_to_zero,
        *(check for table in (INDUSTRY_BARS, BENCHMARK_BARS) for check in _bar_checks(graph, table, clock)),
        observable_at_cutoff,
        has_news,
        plausible_moves,
        complete_and_known,
        agrees_with_matured_alpha,
        replay_verifies,
        defined,
    ]
