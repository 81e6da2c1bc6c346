"""Sensitivity: does the conclusion survive another way of evaluating the same predictions?

The conclusion is which mechanisms differ from Pipe beyond noise, by metric and horizon, and in which direction. A
variant changes one thing of the headline: the correlation, the cells, what an undefined correlation counts, where
labels start, or the sessions. Every variant goes through the same inference as the headline.

Sessions up to a backbone's declared knowledge cutoff may be known to it; those after it are not. A prediction belongs
to the session it was made on, so labels of the last sessions up to the cutoff end after it: what is found before may
be known in part, what is found after cannot be.

What lives here: variants, what they find, and the comparison with the headline. What must not: correlations (see `ic`),
tests (see `inference`), words of the report.
"""

from __future__ import annotations

import bisect
import datetime as dt
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

import pandas as pd
from scipy import stats

from finevolve_pipeline.evaluation import ic
from finevolve_pipeline.evaluation.comparison import PIPE
from finevolve_pipeline.evaluation.inference import DIFFERENCE, LEVEL, Scope, infer, with_adjusted_p
from finevolve_pipeline.evaluation.significance import beyond_noise
from finevolve_pipeline.evaluation.stages import EXPLOITATION, OVERALL
from finevolve_pipeline.market.alpha import BASES
from finevolve_pipeline.settings import EvaluationSettings, Experiment, Settings
from finevolve_pipeline.tables import Sensitivity, conform, empty

Finding = Literal["above", "below", "noise", "untested"]
"""What a test says of a number: beyond noise above or below zero, within noise, or that it cannot be tested."""

Change = Literal["same", "new", "weaker", "reversed", "untested"]
"""A finding beside the headline's: the same, noise become a finding, a finding become noise, its sign turned, or not to
be compared because one of the two is untested."""

CHANGES: tuple[Change, ...] = get_args(Change)

Span = Literal["all", "before", "after"]
"""Sessions of a variant: all, those up to the knowledge cutoff, those after it."""

HEADLINE = "headline"
CUTOFF_CHANGE = "cutoff_change"
"""Rows that hold after less before the knowledge cutoff."""

_SPLITS = ("third", "half")
_GRAVEST: tuple[Change, ...] = ("reversed", "weaker", "new", "untested", "same")
_KEY = ["mechanism", "metric", "horizon", "quantity"]
_COLUMNS = tuple(name for name in Sensitivity.to_schema().columns if name not in ("finding", "change"))


@dataclass(frozen=True)
class Variant:
    """One way to evaluate.

    Attributes:
        name: `headline`, or what it changes.
        settings: with its method (`headline`), label base and stage split.
        stage: whose conclusion is looked at.
        cells: own or common.
        undefined: what an undefined correlation counts; NaN: it is left out.
        span: the sessions.
    """

    name: str
    settings: EvaluationSettings
    stage: str = OVERALL
    cells: str = ic.COMMON
    undefined: float = math.nan
    span: Span = "all"


def variants(settings: EvaluationSettings, splits_at_cutoff: bool) -> tuple[Variant, ...]:
    """The headline and every change of it, one at a time. Another split of the stages is looked at in the exploitation
    stage, and has the headline's there to be compared with."""
    first = Variant(HEADLINE, settings)

    def changed(name: str, **update: object) -> Variant:
        return replace(first, name=name, settings=settings.model_copy(update=update))

    late = replace(first, stage=EXPLOITATION)
    spans: tuple[Span, ...] = ("before", "after") if splits_at_cutoff else ()
    return (
        first,
        *(changed(method, headline=method) for method in ic.METHODS if method != settings.headline),
        replace(first, name="own_cells", cells=ic.OWN),
        replace(first, name="undefined_zero", undefined=0.0),
        *(changed(base, label_base=base) for base in BASES if base != settings.label_base),
        *(replace(first, name=f"{span}_cutoff", span=span) for span in spans),
        late,
        *(
            replace(changed(f"split_{split}", stage_split=split), stage=EXPLOITATION)
            for split in _SPLITS
            if split != settings.stage_split
        ),
    )


def finding(estimate: float, p_holm: float, confidence: float) -> Finding:
    """What a test says (see `significance`), and in which direction."""
    found = None if math.isnan(estimate) else beyond_noise(p_holm, confidence)
    if found is None:
        return "untested"
    if not found:
        return "noise"
    return "above" if estimate > 0 else "below"


def change(headline: Finding, other: Finding) -> Change:
    """A variant's finding beside the headline's."""
    if "untested" in (headline, other):
        return "untested"
    if headline == other:
        return "same"
    if headline == "noise":
        return "new"
    return "weaker" if other == "noise" else "reversed"


@dataclass(frozen=True)
class Place:
    """What a conclusion speaks of: one mechanism's difference from Pipe. Horizon 0: mean over the horizons."""

    mechanism: str
    metric: str
    horizon: int


@dataclass(frozen=True)
class Conclusion:
    """What one variant finds about one backbone's mechanisms."""

    backbone: str
    variant: str
    stage: str
    findings: Mapping[Place, Finding]

    @property
    def beyond_noise(self) -> dict[Place, Finding]:
        """The findings themselves: what differs from Pipe, and in which direction."""
        return {place: found for place, found in self.findings.items() if found in ("above", "below")}

    @property
    def tested(self) -> int:
        """Differences that could be tested."""
        return sum(found != "untested" for found in self.findings.values())


@dataclass(frozen=True)
class Survival:
    """Whether a conclusion survives a variant: how each finding changes, where the headline could be tested."""

    backbone: str
    variant: str
    stage: str
    changes: Mapping[Place, Change]

    @property
    def outcome(self) -> Change:
        """The gravest change."""
        return min(self.changes.values(), key=_GRAVEST.index, default="untested")

    @property
    def moved(self) -> dict[Place, Change]:
        """What changes."""
        return {place: how for place, how in self.changes.items() if how in ("new", "weaker", "reversed")}


def conclusions(table: pd.DataFrame) -> tuple[Conclusion, ...]:
    """Every variant's conclusion from a `Sensitivity`, backbone by backbone, the headline first."""
    return tuple(
        Conclusion(backbone, variant, stage, dict(zip(places, part["finding"], strict=True)))
        for backbone, variant, stage, places, part in _differences(table)
    )


def survivals(table: pd.DataFrame) -> tuple[Survival, ...]:
    """How the headline's conclusion fares under every variant, from a `Sensitivity`."""
    headline = {(one.backbone, one.stage): one for one in conclusions(table) if one.variant == HEADLINE}
    found = []
    for backbone, variant, stage, places, part in _differences(table):
        if variant != HEADLINE:
            before = headline[backbone, stage].findings
            pairs = zip(places, part["change"], strict=True)
            changes = {place: how for place, how in pairs if before.get(place, "untested") != "untested"}
            found.append(Survival(backbone, variant, stage, changes))
    return tuple(found)


def _differences(table: pd.DataFrame) -> Iterator[tuple[str, str, str, list[Place], pd.DataFrame]]:
    rows = table[(table["quantity"] == DIFFERENCE) & (table["variant"] != CUTOFF_CHANGE)]
    for (backbone, variant, stage), part in rows.groupby(["backbone", "variant", "stage"], sort=False):
        columns = (part[name] for name in ("mechanism", "metric", "horizon"))
        places = [
            Place(str(mechanism), str(metric), int(horizon))
            for mechanism, metric, horizon in zip(*columns, strict=True)
        ]
        yield str(backbone), str(variant), str(stage), places, part


def sensitivity(
    predictions: Mapping[Experiment, pd.DataFrame], labels: pd.DataFrame, settings: Settings
) -> pd.DataFrame:
    """Levels and differences from Pipe under the headline and every variant of it.

    Own cells: a level rests on the cells valid in all runs of the mechanism (one per seed), a difference on those valid
    in Pipe's runs too.
    A backbone without a declared knowledge cutoff, or without a session on one side of it, has no rows for that side.

    Args:
        predictions: per experiment session, code, horizon, score.
        labels: `LabelBases` by prediction day.
        settings: evaluation, window, and knowledge cutoffs.

    Returns:
        `Sensitivity`, the headline first, then variant by variant.
    """
    benchmark = settings.benchmark
    axes = ic.make_axes(benchmark.sessions, benchmark.horizons, benchmark.codes)
    by_base = {base: ic.make_panels(predictions, labels[labels["base"] == base], axes) for base in BASES}
    parts = []
    for variant in variants(settings.evaluation, bool(settings.knowledge_cutoffs)):
        panels = within_span(by_base[variant.settings.label_base], settings.knowledge_cutoffs, variant.span)
        if panels:
            parts.append(_described(_inferred(panels, variant), variant))
    if not parts:
        return empty(Sensitivity)
    found = pd.concat(parts, ignore_index=True)
    both = pd.concat([found, _cutoff_change(found, settings.evaluation.confidence)], ignore_index=True)
    return conform(_with_findings(both, settings.evaluation.confidence), Sensitivity, "sensitivity")


def within_span(
    panels: Mapping[Experiment, ic.Panel], cutoffs: Mapping[str, dt.date], span: Span
) -> dict[Experiment, ic.Panel]:
    """Panels of the sessions on one side of each backbone's knowledge cutoff; backbones without any are left out.

    A session on the day of the cutoff lies before it.
    """
    if span == "all":
        return dict(panels)
    cut = {e: panel for e, panel in panels.items() if e.backbone in cutoffs}
    sides = {}
    for experiment, panel in cut.items():
        sessions = panel.axes.sessions
        first_after = bisect.bisect_right(sessions, cutoffs[experiment.backbone].isoformat())
        side = slice(0, first_after) if span == "before" else slice(first_after, len(sessions))
        if sessions[side]:
            axes = replace(panel.axes, sessions=sessions[side])
            sides[experiment] = replace(panel, axes=axes, score=panel.score[:, side], alpha=panel.alpha[:, side])
    return sides


def _inferred(panels: Mapping[Experiment, ic.Panel], variant: Variant) -> pd.DataFrame:
    """Levels and differences of a variant's panels, with Holm's p over each backbone's."""
    scope = Scope((variant.stage,), (variant.settings.headline,), variant.undefined)
    if variant.cells == ic.COMMON:
        return infer(panels, variant.settings, scope)
    parts = []
    for mechanism in dict.fromkeys(e.mechanism for e in panels):
        alone = _only(panels, mechanism)
        levels = infer(alone, variant.settings, scope)
        parts.append(levels[levels["quantity"] == LEVEL])
        if mechanism != PIPE:
            both = infer({**alone, **_only(panels, PIPE)}, variant.settings, scope)
            parts.append(both[both["quantity"] == DIFFERENCE])
    return with_adjusted_p(pd.concat(parts, ignore_index=True))


def _only(panels: Mapping[Experiment, ic.Panel], mechanism: str) -> dict[Experiment, ic.Panel]:
    return {e: panel for e, panel in panels.items() if e.mechanism == mechanism}


def _described(rows: pd.DataFrame, variant: Variant) -> pd.DataFrame:
    return rows.assign(variant=variant.name, cells=variant.cells, label_base=variant.settings.label_base)[
        list(_COLUMNS)
    ]


def _cutoff_change(found: pd.DataFrame, confidence: float) -> pd.DataFrame:
    """After less before the knowledge cutoff, as rows of their own, tested as two independent estimates (Welch).

    Labels of the last sessions before overlap with those of the first after it by less than a horizon; what that makes
    them have in common narrows the true spread of the difference, so that the interval errs on the wide side.
    """
    sides = {name: found[found["variant"] == f"{name}_cutoff"] for name in ("before", "after")}
    both = sides["before"].merge(sides["after"], on=["backbone", *_KEY], suffixes=("_before", ""))
    if both.empty:
        return found.iloc[:0]
    before, after = both["standard_error_before"] ** 2, both["standard_error"] ** 2
    error = (before + after) ** 0.5
    terms = before**2 / both["degrees_before"] + after**2 / both["degrees"]
    degrees = ((before + after) ** 2 / terms).where(terms != 0, math.inf)
    estimate = both["estimate"] - both["estimate_before"]
    reach = stats.t.ppf(0.5 + confidence / 2, degrees) * error
    p = pd.Series(2 * stats.t.sf((estimate / error).abs(), degrees), index=both.index)
    rows = both.assign(
        variant=CUTOFF_CHANGE,
        sessions=both[["sessions_before", "sessions"]].min(axis=1),
        estimate=estimate,
        standard_error=error,
        degrees=degrees,
        low=estimate - reach,
        high=estimate + reach,
        p=p,
    )
    return with_adjusted_p(rows)[list(found.columns)]


def _with_findings(rows: pd.DataFrame, confidence: float) -> pd.DataFrame:
    """The rows with what each finds, and how that compares with the headline of the same stage."""
    pairs = zip(rows["estimate"], rows["p_holm"], strict=True)
    rows = rows.assign(finding=[finding(estimate, p, confidence) for estimate, p in pairs])
    where = ["backbone", "stage", *_KEY]
    headline = rows.loc[rows["variant"] == HEADLINE, [*where, "finding"]]
    both = rows.merge(headline, on=where, how="left", suffixes=("", "_headline"), validate="many_to_one")
    pairs = zip(both["finding_headline"], both["finding"], strict=True)
    both = both.assign(change=[change(before, now) for before, now in pairs])
    # A change over time is no other way to find the same thing.
    both.loc[both["variant"] == CUTOFF_CHANGE, "change"] = "untested"
    return both.drop(columns="finding_headline")
