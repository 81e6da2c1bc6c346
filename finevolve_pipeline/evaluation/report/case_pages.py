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
    Verdict,
    signed,
    signed_percent,
)
from finevolve_pipeline.evaluation.comparison import experiment_label
from finevolve_pipeline.evaluation.report.sections import Cell, TableView, text_table
from finevolve_pipeline.news.block import NewsItem
from finevolve_pipeline.tables import LEFT_OUT, SHORTENED

SOURCES = 3
"""Earlier predictions named under a piece of experience; the others are counted."""

LEGEND = (
    "Age in sessions; today: made that same day, from outcomes that had just become known. Outcomes known: share of "
    "the outcomes of what it rests on that were known that day. News shared: Jaccard index of article ids, of what it "
    "rests on and of today. Under each text stand the predictions that it rests on, with what came of them; (later): "
    "not yet known that day."
)
_CUT = "Cut: retrieved, but the prompt had no room for it (prompts.experience_tokens), so that no model saw it."

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


def case_page(study: CaseStudy, reason: str) -> CasePage:
    """The page of a case; `reason` says why it is shown."""
    several = len({run.experiment.backbone for run in study.runs}) > 1
    runs = [(f"r{number}", _label(run, several), run) for number, run in enumerate(study.runs)]
    without = [label for _, label, run in runs if not run.retrieved]
    return CasePage(
        title=study.place.title,
        session=study.place.session.isoformat(),
        reason=reason,
        overview=_overview(study, [label for _, label, _ in runs]),
        news_note=_news_note(study),
        news=tuple(_article(item, at < study.news_shown) for at, item in enumerate(study.news)),
        market=_market(study),
        experience=tuple(_experience(*one, study) for one in runs if one[2].retrieved),
        without_experience=f"Nothing was retrieved by {', '.join(without)}." if without else "",
        legend=f"{LEGEND} {_CUT}" if any(run.left_out for run in study.runs) else LEGEND,
        predictions=tuple(_prediction(*one) for one in runs),
        outcome=_outcome(study),
    )


def _label(run: CaseRun, several_backbones: bool) -> str:
    """The run, with the backbone where there are several."""
    name = experiment_label(run.experiment)
    return f"{name} on {run.experiment.backbone}" if several_backbones else name


def case_table(studies: Sequence[CaseStudy]) -> TableView | None:
    """The cases with links to their pages; None if there is none."""
    if not studies:
        return None
    horizons = [one.horizon for one in studies[0].realised]
    rows = tuple(
        (
            Cell(study.place.title, href=page_name(study)),
            *(Cell(one.told) for one in study.realised),
            *(Cell(_right(study, horizon)) for horizon in horizons),
        )
        for study in studies
    )
    columns = ["Case", *(f"Excess {h}d" for h in horizons), *(f"Direction right {h}d" for h in horizons)]
    return TableView("Realised excess return, and how many runs predicted its sign", tuple(columns), rows)


def _right(study: CaseStudy, horizon: int) -> str:
    verdicts = [one.verdict for run in study.runs for one in run.scores if one.realised.horizon == horizon]
    judged = [verdict for verdict in verdicts if verdict]
    return f"{judged.count('ok')} of {len(judged)}" if judged else "–"


def _overview(study: CaseStudy, labels: Sequence[str]) -> TableView:
    realised = (Cell("Realised excess return"), *(Cell(one.told) for one in study.realised), Cell(""))
    rows = (
        (
            Cell(label),
            *(Cell(one.told, _STRENGTHS.get(one.verdict)) for one in run.scores),
            Cell(f"{len(run.retrieved)} of {run.known}" + (f", {run.left_out} cut" if run.left_out else "")),
        )
        for label, run in zip(labels, study.runs, strict=True)
    )
    notes = [
        "ok: score and excess return over CSI1000 have the same sign; wrong: they have not. Retrieved: pieces of "
        "experience, of all that the agent had that day."
    ]
    if any(run.left_out for run in study.runs):
        notes.append(_CUT)
    if study.absent:
        notes.append(f"Not replayed to this session: {', '.join(study.absent)}.")
    columns = ("Run", *(f"{one.horizon}d" for one in study.realised), "Retrieved")
    return TableView("Scores in [-1, 1] by horizon in sessions", columns, (realised, *rows), notes=tuple(notes))


def _news_note(study: CaseStudy) -> str:
    """How many articles there were, and who was shown fewer."""
    total, most = len(study.news), study.news_shown
    if not total:
        return "There was no news of this industry in the window."
    seen = f"{total} articles in the window" + (f", the first {most} of them shown" if most < total else "")
    fewer = [f"{run.experiment.key} {run.articles}" for run in study.runs if run.articles < most]
    return f"{seen}; less news fits into the prompts of {', '.join(fewer)}." if fewer else f"{seen}; the same for all."


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


def _market(study: CaseStudy) -> TableView:
    rows = [
        [f"last {back.sessions} sessions", *(_percent(value) for value in (back.industry, back.benchmark, back.excess))]
        for back in study.market.trailing
    ]
    close = "missing" if math.isnan(study.market.close) else f"{study.market.close:,.2f} index points"
    columns = ["Return over the", "Industry", "CSI1000", "Excess"]
    return text_table("Market context, as prompts tell it", columns, rows, notes=[f"Close: {close}."])


def _outcome(study: CaseStudy) -> TableView:
    return text_table(
        "What the index did afterwards; no agent saw it before it was known",
        ["Horizon", "Known on", "Index points", "Industry", "CSI1000", "Excess return"],
        [_realised(one) for one in study.realised],
        2,
    )


def _realised(one: Realised) -> list[str]:
    points = "–" if math.isnan(one.points) else f"{one.points:+,.2f}"
    returns = [_percent(one.industry_return), _percent(one.benchmark_return)]
    return [f"{one.horizon} sessions", str(one.known_on or "–"), points, *returns, one.told]


def _percent(value: float) -> str:
    return "–" if math.isnan(value) else signed_percent(value)


def _experience(anchor: str, label: str, run: CaseRun, study: CaseStudy) -> ExperienceView:
    cut = f"; {run.left_out} more retrieved, but cut for length" if run.left_out else ""
    shortened = f", {run.shortened} of them shortened" if run.shortened else ""
    note = f"{len(run.retrieved) - run.left_out} shown{shortened}{cut}, of {run.known} that the agent had"
    return ExperienceView(anchor, label, note, tuple(_memory(one, study) for one in run.retrieved))


_STOOD = {SHORTENED: ", shortened in the prompt", LEFT_OUT: ", cut: not in the prompt"}
"""How a piece of experience that did not stand there whole is told."""


def _memory(one: Retrieved, study: CaseStudy) -> MemoryView:
    horizons = f" for {', '.join(f'{h}d' for h in one.horizons)}" if one.horizons else ""
    age = {0: "today", 1: "1 session ago"}.get(one.age, f"{one.age} sessions ago")
    optional = (
        ("Similarity", one.similarity, "{:.4f}"),
        ("Q", one.q, "{:+.4f}"),
        ("Visits", one.visits, "{}"),
        ("Selection score", one.selection_score, "{:.4f}"),
    )
    stood = _STOOD.get(one.in_prompt, "")
    return MemoryView(
        heading=f"{one.rank}. {one.kind.replace('_', ' ')}{horizons}, made {one.made_on} ({age}){stood}",
        memory_id=one.memory_id,
        numbers=(
            *((name, style.format(value)) for name, value, style in optional if value is not None),
            ("Outcomes known", f"{one.matured_share:.0%}"),
            ("News shared", f"{one.news_overlap:.0%}"),
        ),
        text="(The mechanism does not list what it keeps.)" if one.text is None else one.text,
        sources=_sources(one, study),
        is_cut=one.in_prompt == LEFT_OUT,
    )


def _sources(one: Retrieved, study: CaseStudy) -> tuple[str, ...]:
    """The predictions that it rests on, newest first, with what came of them."""
    newest = sorted(one.sources, key=lambda source: source.session, reverse=True)
    lines = tuple(
        f"Predicted on {source.session}: {'; '.join(_ended(scored, study) for scored in source.scores)}"
        for source in newest[:SOURCES]
    )
    more = len(newest) - SOURCES
    return (*lines, f"and {more} earlier predictions") if more > 0 else lines


def _ended(one: Scored, study: CaseStudy) -> str:
    known_on = one.realised.known_on
    later = one.realised.is_known and known_on is not None and known_on > study.place.session
    score = "invalid" if math.isnan(one.score) else signed(one.score)
    verdict = f" {one.verdict}" if one.verdict not in ("", "invalid") else ""
    return f"{one.realised.horizon}d {score} → {one.realised.told}{verdict}{' (later)' if later else ''}"


def _prediction(anchor: str, label: str, run: CaseRun) -> PredictionView:
    rows = tuple(
        (
            Cell(f"{one.realised.horizon} sessions"),
            Cell(one.told + (f": {one.invalid_reason}" if one.invalid_reason else ""), _STRENGTHS.get(one.verdict)),
            Cell(one.realised.told),
        )
        for one in run.scores
    )
    confidence = "not given" if math.isnan(run.confidence) else f"{run.confidence:.2f}"
    articles = f"{run.articles}" + (f" ({run.articles_cut} cut)" if run.articles_cut else "")
    return PredictionView(
        anchor=anchor,
        label=label,
        scores=TableView(f"Scores of {label}", ("Horizon", "Score", "Realised"), rows),
        facts=(("Confidence", confidence), ("Articles shown", articles), ("Key factor", run.key_factor or "–")),
        reasoning=run.logic_chain or "(No reasoning was given.)",
    )
