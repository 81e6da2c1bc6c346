"""The pages of case studies as plain views, in the layout of the paper's Appendix C: news, experience retrieved,
prediction and reasoning, outcome.

What must not live here: HTML. Text is escaped by the template, whatever it holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.evaluation.case import (
    CaseRun,
    CaseStudy,
    Realised,
    Retrieved,
    Scored,
    SectorDay,
    Verdict,
    signed,
    signed_percent,
)
from finevolve_pipeline.evaluation.comparison import experiment_label
from finevolve_pipeline.evaluation.layout.numbers import format_number
from finevolve_pipeline.evaluation.report.names import industry_names, kind_name
from finevolve_pipeline.evaluation.report.pages import file_of
from finevolve_pipeline.evaluation.report.views import Cell, TableView, text_table
from finevolve_pipeline.evaluation.report.words import Words
from finevolve_pipeline.news.block import NewsItem
from finevolve_pipeline.tables import LEFT_OUT, SHORTENED

SOURCES = 3
"""Earlier predictions named under a piece of experience; the others are counted."""

_STRENGTHS: Mapping[Verdict, float] = {"ok": 0.5, "wrong": -0.5}
"""Colours of verdicts, as strengths of cells; the others have none."""


@dataclass(frozen=True)
class ArticleView:
    """One article; `content` is empty where it says no more than the title. `shown`: at least one run saw it."""

    published: str
    importance: str
    source: str
    title: str
    content: str
    reason: str
    shown: bool


@dataclass(frozen=True)
class MemoryView:
    """One piece of experience: its numbers by name, its text, what it rests on; `is_cut`: no model saw it."""

    heading: str
    memory_id: str
    numbers: tuple[tuple[str, str], ...]
    text: str
    sources: tuple[str, ...]
    is_cut: bool


@dataclass(frozen=True)
class ExperienceView:
    """What one run recalled. `anchor` makes ids unique."""

    anchor: str
    label: str
    note: str
    memories: tuple[MemoryView, ...]


@dataclass(frozen=True)
class PredictionView:
    """What one run predicted, and why."""

    anchor: str
    label: str
    scores: TableView
    facts: tuple[tuple[str, str], ...]
    reasoning: str


@dataclass(frozen=True)
class CasePage:
    """All that a page shows."""

    title: str
    session: str
    reason: str
    overview: TableView
    news_note: str
    news: tuple[ArticleView, ...]
    market: TableView
    experience: tuple[ExperienceView, ...]
    without_experience: str
    legend: str
    predictions: tuple[PredictionView, ...]
    outcome: TableView


def page_name(study: CaseStudy) -> str:
    """The page's file in the report's folder."""
    return f"cases/{study.place.slug}.html"


def _legend(words: Words) -> str:
    return words(
        "Age in sessions; today: made that same day, from outcomes that had just become known. Outcomes known: share "
        "of the outcomes of what it rests on that were known that day. News shared: Jaccard index of article ids, of "
        "what it rests on and of today. Under each text stand the predictions that it rests on, with what came of "
        "them; (later): not yet known that day."
    )


def _cut(words: Words) -> str:
    return words(
        "Cut: retrieved, but the prompt had no room for it (prompts.experience_tokens), so that no model saw it."
    )


def _name(place: SectorDay, words: Words) -> str:
    """Sector and day, as headings have it."""
    return f"{place.industry.code}.SI {industry_names(place.industry, words)}, {place.session.isoformat()}"


def _sessions(count: int, words: Words) -> str:
    return words("{count} sessions", count=count)


def case_page(study: CaseStudy, reason: str, words: Words) -> CasePage:
    """The page of a case; `reason` says why it is shown."""
    several = len({run.experiment.backbone for run in study.runs}) > 1
    runs = [(f"r{number}", _label(run, several, words), run) for number, run in enumerate(study.runs)]
    without = [label for _, label, run in runs if not run.retrieved]
    nothing = words("Nothing was retrieved by {runs}.", runs=words(", ").join(without)) if without else ""
    legend = [_legend(words), *([_cut(words)] if any(run.left_out for run in study.runs) else [])]
    return CasePage(
        title=_name(study.place, words),
        session=study.place.session.isoformat(),
        reason=reason,
        overview=_overview(study, [label for _, label, _ in runs], words),
        news_note=_news_note(study, words),
        news=tuple(_article(item, at < study.news_shown) for at, item in enumerate(study.news)),
        market=_market(study, words),
        experience=tuple(_experience(*one, study, words) for one in runs if one[2].retrieved),
        without_experience=nothing,
        legend=words(" ").join(legend),
        predictions=tuple(_prediction(*one, words) for one in runs),
        outcome=_outcome(study, words),
    )


def _label(run: CaseRun, several_backbones: bool, words: Words) -> str:
    """The run, with the backbone where there are several."""
    name = experiment_label(run.experiment, words)
    if not several_backbones:
        return name
    return words("{run} on {backbone}", run=name, backbone=run.experiment.backbone)


def _verdict(verdict: Verdict, words: Words) -> str:
    told = {
        "ok": words("ok"),
        "wrong": words("wrong"),
        "no direction": words("no direction"),
        "invalid": words("invalid"),
        "": "",
    }
    return told[verdict]


def _excess(one: Realised, words: Words) -> str:
    """The excess return, or why there is none."""
    if one.is_known:
        return one.told
    return words("missing") if one.is_over else words("not known yet")


def _score(one: Scored, words: Words) -> str:
    """Score and verdict."""
    verdict = _verdict(one.verdict, words)
    return verdict if math.isnan(one.score) else f"{signed(one.score)} {verdict}".rstrip()


def case_table(studies: Sequence[CaseStudy], words: Words) -> TableView | None:
    """The cases with links to their pages; None if there is none."""
    if not studies:
        return None
    horizons = [one.horizon for one in studies[0].realised]
    rows = tuple(
        (
            Cell(_name(study.place, words), href=file_of(page_name(study), words.language)),
            *(Cell(_excess(one, words)) for one in study.realised),
            *(Cell(_right(study, horizon, words)) for horizon in horizons),
        )
        for study in studies
    )
    columns = (
        words("Case"),
        *(words("Excess {horizon}d", horizon=horizon) for horizon in horizons),
        *(words("Direction right {horizon}d", horizon=horizon) for horizon in horizons),
    )
    return TableView(words("Realised excess return, and how many runs predicted its sign"), columns, rows)


def _right(study: CaseStudy, horizon: int, words: Words) -> str:
    verdicts = [one.verdict for run in study.runs for one in run.scores if one.realised.horizon == horizon]
    judged = [verdict for verdict in verdicts if verdict]
    return words("{some} of {all}", some=judged.count("ok"), all=len(judged)) if judged else "–"


def _overview(study: CaseStudy, labels: Sequence[str], words: Words) -> TableView:
    realised = (
        Cell(words("Realised excess return")),
        *(Cell(_excess(one, words)) for one in study.realised),
        Cell(""),
    )
    rows = (
        (
            Cell(label),
            *(Cell(_score(one, words), _STRENGTHS.get(one.verdict)) for one in run.scores),
            Cell(_retrieved(run, words)),
        )
        for label, run in zip(labels, study.runs, strict=True)
    )
    notes = [
        words(
            "ok: score and excess return over CSI1000 have the same sign; wrong: they have not. Retrieved: pieces of "
            "experience, of all that the agent had that day."
        )
    ]
    if any(run.left_out for run in study.runs):
        notes.append(_cut(words))
    if study.absent:
        notes.append(words("Not replayed to this session: {runs}.", runs=words(", ").join(study.absent)))
    columns = (words("Run"), *(f"{one.horizon}d" for one in study.realised), words("Retrieved"))
    return TableView(words("Scores in [-1, 1] by horizon in sessions"), columns, (realised, *rows), notes=tuple(notes))


def _retrieved(run: CaseRun, words: Words) -> str:
    found = words("{some} of {all}", some=len(run.retrieved), all=run.known)
    return words("{found}, {cut} cut", found=found, cut=run.left_out) if run.left_out else found


def _news_note(study: CaseStudy, words: Words) -> str:
    """How many articles there were, and who was shown fewer."""
    total, most = len(study.news), study.news_shown
    if not total:
        return words("There was no news of this industry in the window.")
    seen = words("{total} articles in the window", total=total)
    if most < total:
        seen = words("{total} articles in the window, the first {shown} of them shown", total=total, shown=most)
    fewer = [f"{run.experiment.key} {run.articles}" for run in study.runs if run.articles < most]
    if fewer:
        runs = words(", ").join(fewer)
        return words("{seen}; less news fits into the prompts of {runs}.", seen=seen, runs=runs)
    return words("{seen}; the same for all.", seen=seen)


def _article(item: NewsItem, shown: bool) -> ArticleView:
    return ArticleView(
        published=f"{item.published_at.astimezone(SHANGHAI):%Y-%m-%d %H:%M}",
        importance=f"{item.importance}",
        source=item.source,
        title=item.title or item.content,
        content=item.content if item.title and item.content != item.title else "",
        reason=item.importance_reason,
        shown=shown,
    )


def _market(study: CaseStudy, words: Words) -> TableView:
    rows = [
        [
            words("last {count} sessions", count=back.sessions),
            *(_percent(value) for value in (back.industry, back.benchmark, back.excess)),
        ]
        for back in study.market.trailing
    ]
    if math.isnan(study.market.close):
        close = words("Close: missing.")
    else:
        close = words("Close: {points} index points.", points=f"{study.market.close:,.2f}")
    columns = [words("Return over the"), words("Industry"), "CSI1000", words("Excess")]
    return text_table(words("Market context, as prompts tell it"), columns, rows, notes=[close])


def _outcome(study: CaseStudy, words: Words) -> TableView:
    columns = [
        words("Horizon"),
        words("Known on"),
        words("Index points"),
        words("Industry"),
        "CSI1000",
        words("Excess return"),
    ]
    return text_table(
        words("What the index did afterwards; no agent saw it before it was known"),
        columns,
        [_realised(one, words) for one in study.realised],
        2,
    )


def _realised(one: Realised, words: Words) -> list[str]:
    points = format_number(one.points, "+,.2f")
    returns = [_percent(one.industry_return), _percent(one.benchmark_return)]
    return [_sessions(one.horizon, words), str(one.known_on or "–"), points, *returns, _excess(one, words)]


def _percent(value: float) -> str:
    return "–" if math.isnan(value) else signed_percent(value)


def _experience(anchor: str, label: str, run: CaseRun, study: CaseStudy, words: Words) -> ExperienceView:
    parts = [words("{count} shown", count=len(run.retrieved) - run.left_out)]
    if run.shortened:
        parts.append(words(", {count} of them shortened", count=run.shortened))
    if run.left_out:
        parts.append(words("; {count} more retrieved, but cut for length", count=run.left_out))
    parts.append(words(", of {count} that the agent had", count=run.known))
    return ExperienceView(anchor, label, "".join(parts), tuple(_memory(one, study, words) for one in run.retrieved))


def _age(sessions: int, words: Words) -> str:
    if sessions == 0:
        return words("today")
    return words("1 session ago") if sessions == 1 else words("{count} sessions ago", count=sessions)


def _stood(in_prompt: str, words: Words) -> str:
    """How a piece of experience that did not stand whole in the prompt is told."""
    told = {SHORTENED: words(", shortened in the prompt"), LEFT_OUT: words(", cut: not in the prompt")}
    return told.get(in_prompt, "")


def _memory(one: Retrieved, study: CaseStudy, words: Words) -> MemoryView:
    kind = kind_name(one.kind, words)
    if one.horizons:
        horizons = ", ".join(f"{h}d" for h in one.horizons)
        kind = words("{kind} for {horizons}", kind=kind, horizons=horizons)
    made = words("{kind}, made {day} ({age})", kind=kind, day=one.made_on, age=_age(one.age, words))
    optional = (
        (words("Similarity"), one.similarity, "{:.4f}"),
        ("Q", one.q, "{:+.4f}"),
        (words("Visits"), one.visits, "{}"),
        (words("Selection score"), one.selection_score, "{:.4f}"),
    )
    return MemoryView(
        heading=f"{one.rank}. {made}{_stood(one.in_prompt, words)}",
        memory_id=one.memory_id,
        numbers=(
            *((name, style.format(value)) for name, value, style in optional if value is not None),
            (words("Outcomes known"), f"{one.matured_share:.0%}"),
            (words("News shared"), f"{one.news_overlap:.0%}"),
        ),
        text=words("(The mechanism does not list what it keeps.)") if one.text is None else one.text,
        sources=_sources(one, study, words),
        is_cut=one.in_prompt == LEFT_OUT,
    )


def _sources(one: Retrieved, study: CaseStudy, words: Words) -> tuple[str, ...]:
    """The predictions that it rests on, newest first, with what came of them."""
    newest = sorted(one.sources, key=lambda source: source.session, reverse=True)
    lines = tuple(
        words(
            "Predicted on {day}: {ends}",
            day=source.session,
            ends=words("; ").join(_ended(scored, study, words) for scored in source.scores),
        )
        for source in newest[:SOURCES]
    )
    more = len(newest) - SOURCES
    return (*lines, words("and {count} earlier predictions", count=more)) if more > 0 else lines


def _ended(one: Scored, study: CaseStudy, words: Words) -> str:
    known_on = one.realised.known_on
    later = one.realised.is_known and known_on is not None and known_on > study.place.session
    score = words("invalid") if math.isnan(one.score) else signed(one.score)
    verdict = f" {_verdict(one.verdict, words)}" if one.verdict not in ("", "invalid") else ""
    told = f"{one.realised.horizon}d {score} → {_excess(one.realised, words)}{verdict}"
    return words("{told} (later)", told=told) if later else told


def _prediction(anchor: str, label: str, run: CaseRun, words: Words) -> PredictionView:
    rows = tuple(
        (
            Cell(_sessions(one.realised.horizon, words)),
            Cell(
                _score(one, words) + (f": {one.invalid_reason}" if one.invalid_reason else ""),
                _STRENGTHS.get(one.verdict),
            ),
            Cell(_excess(one.realised, words)),
        )
        for one in run.scores
    )
    confidence = words("not given") if math.isnan(run.confidence) else f"{run.confidence:.2f}"
    articles = f"{run.articles}"
    if run.articles_cut:
        articles = words("{shown} ({cut} cut)", shown=run.articles, cut=run.articles_cut)
    columns = (words("Horizon"), words("Score"), words("Realised"))
    return PredictionView(
        anchor=anchor,
        label=label,
        scores=TableView(words("Scores of {run}", run=label), columns, rows),
        facts=(
            (words("Confidence"), confidence),
            (words("Articles shown"), articles),
            (words("Key factor"), run.key_factor or "–"),
        ),
        reasoning=run.logic_chain or words("(No reasoning was given.)"),
    )
