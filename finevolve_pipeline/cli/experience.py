"""Commands that show experience: memory (what an agent knew on a day) and case (what it did with it)."""

from __future__ import annotations

import datetime as dt
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from finevolve_pipeline import calendar
from finevolve_pipeline.cli.output import Day, Pipeline, emit_json, json_option, print_lines, print_table, results
from finevolve_pipeline.errors import CalendarError, MissingPartitionError, SettingsError
from finevolve_pipeline.evaluation.case import (
    CaseRun,
    CaseStudy,
    Realised,
    Scored,
    SectorDay,
    build_case,
    lists_experience,
)
from finevolve_pipeline.evaluation.report.case_pages import (
    CasePage,
    ExperienceView,
    MemoryView,
    PredictionView,
    case_page,
)
from finevolve_pipeline.evaluation.report.views import TableView
from finevolve_pipeline.evaluation.report.words import Words
from finevolve_pipeline.mechanisms.base import Experience
from finevolve_pipeline.replay.runner import experience_at, not_replayed
from finevolve_pipeline.settings import Experiment, Settings
from finevolve_pipeline.tables import LEFT_OUT, SHORTENED
from finevolve_pipeline.universe import Industry, industry

_ARTICLE_CHARACTERS = 160
"""Of an article's body in the terminal; `--json` and the report have all of it."""


@click.command("memory")
@click.argument("experiment")
@click.option("--sector", required=True, help="A code (801170, 801170.SI) or a name.")
@click.option("--as-of", type=Day(), help="Session, or the one before that day (default: the last one replayed).")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Pieces shown; --json has all.")
@json_option
def memory_command(experiment: str, sector: str, as_of: dt.date | None, limit: int, as_json: bool) -> None:
    """What EXPERIMENT's agent of a sector knew when it predicted on a session, newest first.

    That is what was kept of the days before, and what that day's outcomes taught. Shown as rank n: it was the n-th
    piece of experience in the prompt of that day. Cut: it was retrieved, but the prompt had no room for it
    (prompts.experience_tokens).
    """
    pipeline = Pipeline.in_force()
    run, chosen = pipeline.settings.experiment(experiment), _predicted(sector, pipeline.settings)
    place = SectorDay(chosen, _stored_session(pipeline, run, as_of))
    parts = pipeline.parts(run)
    known = experience_at(run, parts, pipeline.store.replays, place.session, chosen.code)[::-1]
    found = _retrievals(pipeline, run, place)
    if as_json:
        emit_json(
            {
                "experiment": run.key,
                "sector": chosen.code,
                "session": place.session,
                "keeps_experience": lists_experience(run, parts),
                "experience": [_piece(one, found.get(one.memory_id)) for one in known],
            }
        )
        return
    if not lists_experience(run, parts):
        results.print(f"{run.key}: the mechanism {run.mechanism} keeps no experience")
        return
    _print_known(run, place, known, found, limit)


def _predicted(sector: str, settings: Settings) -> Industry:
    """The industry of that code or name. Raises `SettingsError` if it is not predicted here."""
    chosen = industry(sector)
    if chosen.code not in settings.benchmark.codes:
        raise SettingsError(f"sector {chosen.code}: not predicted here; choose one of benchmark.industries")
    return chosen


def _stored_session(pipeline: Pipeline, experiment: Experiment, asked: dt.date | None) -> dt.date:
    """The session asked for, or the one before that day; the last replayed one where none is asked for.

    Raises:
        CalendarError: it lies before the window.
        MissingPartitionError: it has not been replayed.
    """
    stored = pipeline.store.replays.sessions(experiment.key)
    if not stored:
        raise not_replayed(experiment, pipeline.parts(experiment))
    if asked is None:
        return stored[-1]
    session = asked if calendar.is_session(asked) else calendar.sessions_around(asked)[0]
    first = pipeline.settings.benchmark.sessions[0]
    if session is None or session < first:
        raise CalendarError(f"--as-of {asked}: lies before the window's first session {first}; give a later day")
    _require_in_window(session, pipeline.settings)
    if session not in stored:
        raise MissingPartitionError(
            f"replay {experiment.key} {session}: not stored; the last one is {stored[-1]}; "
            f"`finevolve run --to {session}` makes it"
        )
    return session


def _require_in_window(session: dt.date, settings: Settings) -> None:
    """Raises `CalendarError` if nothing is predicted on that session."""
    window = settings.benchmark.sessions
    if session not in window:
        raise CalendarError(
            f"session {session}: lies outside the prediction window {window[0]} to {window[-1]}; give one within it"
        )


@dataclass(frozen=True)
class _Found:
    """The rank at which a piece of experience was retrieved, and how it stood in the prompt."""

    rank: int
    in_prompt: str

    @property
    def told(self) -> str:
        """For people."""
        if self.in_prompt == LEFT_OUT:
            return f"retrieved as rank {self.rank}, cut: not in the prompt"
        return f"shown as rank {self.rank}" + (", shortened" if self.in_prompt == SHORTENED else "")


def _retrievals(pipeline: Pipeline, experiment: Experiment, place: SectorDay) -> dict[str, _Found]:
    """What was retrieved for the prediction, by memory."""
    columns = ["code", "memory_id", "rank", "in_prompt"]
    found = pipeline.store.replays.read_retrievals(experiment.key, [place.session], columns)
    own = found[found["code"] == place.industry.code]
    rows = zip(*(own[column].tolist() for column in columns[1:]), strict=True)
    return {memory: _Found(rank, in_prompt) for memory, rank, in_prompt in rows}


def _piece(one: Experience, found: _Found | None) -> dict[str, object]:
    return {
        "memory_id": one.memory_id,
        "kind": one.kind,
        "horizons": one.horizons,
        "made_on": one.made_on,
        "available_from": one.available_from,
        "sources": one.sources,
        "q": one.q,
        "visits": one.visits,
        "rank": found.rank if found else None,
        "in_prompt": found.in_prompt if found else None,
        "text": one.text,
    }


def _print_known(
    experiment: Experiment, place: SectorDay, known: Sequence[Experience], found: dict[str, _Found], limit: int
) -> None:
    counted = f"{len(known)} piece{'' if len(known) == 1 else 's'} of experience"
    cut = sum(one.in_prompt == LEFT_OUT for one in found.values())
    shown = f"{len(found) - cut} of them shown" + (f", {cut} more retrieved but cut for length" if cut else "")
    _print(f"{experiment.key} on {place.title}: {counted}, {shown}", style="bold")
    for one in known[:limit]:
        retrieved = found.get(one.memory_id)
        horizons = ", ".join(f"{horizon}d" for horizon in one.horizons)
        results.print()
        _print(
            f"{one.memory_id}  {one.kind.replace('_', ' ')} for {horizons}"
            + (f", {retrieved.told}" if retrieved is not None else ""),
            style="bold",
        )
        _print(", ".join([*_utility(one), f"made on {one.made_on}, available from {one.available_from}"]), 2)
        if one.sources != (one.memory_id,):
            _print(f"from {', '.join(one.sources)}", 2)
        _print(one.text, 2)
    if len(known) > limit:
        results.print()
        results.print(f"{len(known) - limit} older ones not shown; --limit shows more of them, --json all")


def _utility(one: Experience) -> list[str]:
    """Q and visits, where the mechanism has them."""
    if one.q is None:
        return []
    if isinstance(one.q, dict):
        q = ", ".join(f"Q {value:+.4f} at {horizon}d" for horizon, value in one.q.items())
    else:
        q = f"Q {one.q:+.4f}"
    return [q, f"{one.visits or 0} visits"]


@click.command("case")
@click.argument("sector")
@click.argument("day", type=Day())
@click.option(
    "--experiments", "named", multiple=True, help="Keys with commas between, or repeatedly (default: all that have it)."
)
@json_option
def case_command(sector: str, day: dt.date, named: tuple[str, ...], as_json: bool) -> None:
    """SECTOR on the session DAY: its news, what each experiment recalled, its prediction, and what then happened.

    SECTOR is a code (801170, 801170.SI) or a name. Outcomes are told whether or not they were known that day.
    """
    pipeline = Pipeline.in_force()
    settings = pipeline.settings
    place = SectorDay(_predicted(sector, settings), day)
    calendar.session_index(day)
    _require_in_window(day, settings)
    keys = [key.strip() for one in named for key in one.split(",") if key.strip()]
    asked = [settings.experiment(key) for key in dict.fromkeys(keys)] or settings.all_experiments
    parts = {experiment: pipeline.parts(experiment) for experiment in asked}
    study = build_case(place, parts, pipeline.store.replays, pipeline.graph.told_outcomes(pipeline.store))
    if as_json:
        emit_json(_document(study))
    else:
        _print_case(case_page(study, "", Words()))


def _document(study: CaseStudy) -> dict[str, object]:
    return {
        "sector": study.place.industry.code,
        "name": study.place.industry.name_en,
        "session": study.place.session,
        "news": [
            {
                "article_id": item.article_id,
                "published_at": item.published_at,
                "importance": item.importance,
                "source": item.source,
                "title": item.title,
                "content": item.content,
                "importance_reason": item.importance_reason,
                "topics": item.topics,
                "industries": item.industries,
            }
            for item in study.news
        ],
        "market": {
            "close": study.market.close,
            "trailing": [
                {"sessions": b.sessions, "industry": b.industry, "benchmark": b.benchmark, "excess": b.excess}
                for b in study.market.trailing
            ],
        },
        "outcomes": {one.horizon: _outcome(one) for one in study.realised},
        "experiments": {run.experiment.key: _run(run) for run in study.runs},
        "not_replayed": study.absent,
    }


def _outcome(one: Realised) -> dict[str, object]:
    return {
        "known_on": one.known_on,
        "points": one.points,
        "industry_return": one.industry_return,
        "benchmark_return": one.benchmark_return,
        "alpha": one.alpha,
        "standing": "known" if one.is_known else one.told,
    }


def _scores(scores: Sequence[Scored]) -> dict[int, object]:
    return {
        one.realised.horizon: {
            "score": one.score,
            "invalid_reason": one.invalid_reason,
            "verdict": one.verdict,
            "alpha": one.realised.alpha,
            "known_on": one.realised.known_on,
        }
        for one in scores
    }


def _run(run: CaseRun) -> dict[str, Any]:
    return {
        "scores": _scores(run.scores),
        "confidence": run.confidence,
        "key_factor": run.key_factor,
        "logic_chain": run.logic_chain,
        "articles": run.articles,
        "articles_cut": run.articles_cut,
        "known": run.known,
        "retrieved": [
            {
                "rank": one.rank,
                "memory_id": one.memory_id,
                "kind": one.kind,
                "horizons": one.horizons,
                "made_on": one.made_on,
                "available_from": one.available_from,
                "age": one.age,
                "similarity": one.similarity,
                "q": one.q,
                "visits": one.visits,
                "selection_score": one.selection_score,
                "matured_share": one.matured_share,
                "news_overlap": one.news_overlap,
                "in_prompt": one.in_prompt,
                "text": one.text,
                "sources": {source.memory_id: _scores(source.scores) for source in one.sources},
            }
            for one in run.retrieved
        ],
    }


def _print_case(page: CasePage) -> None:
    _print(page.title, style="bold")
    results.print()
    for table in (page.overview, page.outcome):
        _print_view(table)
    _print("News", style="bold underline")
    _print(page.news_note)
    for article in page.news:
        cut = "" if article.shown else ", cut"
        results.print()
        _print(f"{article.published}  importance {article.importance}, {article.source}{cut}")
        _print(article.title, 2, style="bold")
        if article.content:
            most = _ARTICLE_CHARACTERS
            _print(article.content if len(article.content) <= most else f"{article.content[:most]}…", 2)
    results.print()
    _print_view(page.market)
    recalled = {run.anchor: run for run in page.experience}
    for prediction in page.predictions:
        _print_run(prediction, recalled.get(prediction.anchor))
    if page.experience:
        _print(page.legend)


def _print_view(view: TableView) -> None:
    print_table(view.caption, view.columns, [[cell.text for cell in row] for row in view.rows], view.numeric_from)
    for note in view.notes:
        _print(note)
    results.print()


def _print_run(prediction: PredictionView, experience: ExperienceView | None) -> None:
    _print(prediction.label, style="bold underline")
    if experience is None:
        _print("No experience was retrieved.", 2)
    else:
        _print("Experience retrieved", 2, style="bold")
        _print(experience.note, 2)
        for memory in experience.memories:
            _print_memory(memory)
    results.print()
    told = "; ".join(f"{row[0].text} {row[1].text}" for row in prediction.scores.rows)
    _print("Prediction and reasoning", 2, style="bold")
    _print(told, 2)
    for what, value in prediction.facts:
        _print(f"{what}: {value}", 2)
    _print(prediction.reasoning, 2)
    results.print()


def _print_memory(memory: MemoryView) -> None:
    results.print()
    _print(memory.heading, 2, style="bold")
    _print(memory.memory_id, 4)
    _print(", ".join(f"{what} {value}" for what, value in memory.numbers), 4)
    _print(memory.text, 4)
    for line in memory.sources:
        _print(line, 4)


def _print(text: str, indent: int = 0, style: str = "") -> None:
    """A paragraph. It may be anybody's text: what would move the cursor or turn the writing round is left out."""
    harmless = "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf"))
    print_lines(harmless, indent, style)
