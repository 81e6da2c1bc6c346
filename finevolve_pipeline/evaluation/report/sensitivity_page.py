"""The sensitivity page: does the conclusion survive? As plain views; `sensitivity.html.j2` lays them out.

What must not live here: HTML, computing what a variant finds (see `evaluation.sensitivity`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from finevolve_pipeline.evaluation.comparison import mechanism_label
from finevolve_pipeline.evaluation.layout.numbers import format_ends, format_gain, format_percent
from finevolve_pipeline.evaluation.report.names import horizon_name
from finevolve_pipeline.evaluation.report.views import Cell, TableView, text_table
from finevolve_pipeline.evaluation.report.words import Words
from finevolve_pipeline.evaluation.sensitivity import (
    CUTOFF_CHANGE,
    HEADLINE,
    Conclusion,
    Place,
    Survival,
    conclusions,
    survivals,
)
from finevolve_pipeline.evaluation.significance import significance_level
from finevolve_pipeline.evaluation.stages import EXPLOITATION, OVERALL
from finevolve_pipeline.settings import RulesSettings, Settings

LABEL_BASES: Mapping[str, str] = {
    "close_t": "From the close of t",
    "open_next": "From the next open",
    "close_next": "From the next close",
}
"""Where returns start."""

_TITLES: Mapping[str, str] = {
    HEADLINE: "Headline",
    "spearman": "Spearman",
    "pearson": "Pearson",
    "own_cells": "Own cells",
    "undefined_zero": "Undefined as zero",
    **LABEL_BASES,
    "before_cutoff": "Up to the knowledge cutoff",
    "after_cutoff": "After the knowledge cutoff",
    "split_third": "Stages: after a third",
    "split_half": "Stages: after a half",
}
_DEFINITIONS: Mapping[str, str] = {
    "spearman": "Correlations of ranks, ties with their average rank.",
    "pearson": "Correlations of the numbers themselves; a few extreme returns can carry them.",
    "own_cells": "A coefficient rests on all valid cells of its run, a difference on those valid in the mechanism's "
    "run and in Pipe's; the headline takes cells valid in every run of the backbone.",
    "undefined_zero": "A correlation that is undefined (constant, or too few pairs) counts as 0 instead of being left "
    "out: days in csIC, industries in tsIC; days whose labels are not known count as well.",
    "close_t": "Returns C(t+h)/C(t) - 1, as in the paper: what agents are told. The close of t is past when the news "
    "of t is complete.",
    "open_next": "Returns C(t+h)/O(t+1) - 1: what could be earned by trading at the first price after the news. "
    "Where an open is missing there is no label.",
    "close_next": "Returns C(t+1+h)/C(t+1) - 1: what could be earned by trading until the next close and then holding "
    "for h sessions.",
    "before_cutoff": "Only predictions of sessions up to the declared knowledge cutoff of the backbone: their outcomes "
    "may stand in its training data, as far as they were over by then.",
    "after_cutoff": "Only predictions of sessions after it: no outcome can have been learnt from its training data.",
    "split_third": "The exploitation stage begins after a third of the sessions.",
    "split_half": "The exploitation stage begins after half of the sessions.",
}
_STAGES: Mapping[str, str] = {OVERALL: "all sessions", EXPLOITATION: "exploitation stage"}
_MARKS: Mapping[str, str] = {"above": " ▲", "below": " ▼", "noise": "", "untested": " ?"}
_LISTED = 8
"""Findings named in a sentence."""
_HIGHLIGHT = 0.5
"""Strength of the colour behind what is beyond noise."""
_MOVED: Mapping[str, str] = {"new": "new finding", "weaker": "within noise", "reversed": "reversed"}


@dataclass(frozen=True)
class CutoffView:
    """One backbone before and after its knowledge cutoff: what is declared, and the numbers if there are any."""

    sentence: str
    table: TableView | None


@dataclass(frozen=True)
class BackboneView:
    """All that the page says of one backbone.

    Attributes:
        backbone: its name.
        conclusion: what the headline finds.
        sentences: whether that survives.
        matrix: differences from Pipe, a column per variant.
        exploitation: the same of the exploitation stage under other splits.
        levels: the coefficients themselves.
        changes: every finding that changes, in words.
        cutoff: before and after the knowledge cutoff.
    """

    backbone: str
    conclusion: str
    sentences: tuple[str, ...]
    matrix: TableView
    exploitation: TableView
    levels: TableView
    changes: tuple[str, ...]
    cutoff: CutoffView


@dataclass(frozen=True)
class SensitivityView:
    """The page: the verdict over all backbones, each backbone, and what each variant is."""

    sentences: tuple[str, ...]
    backbones: tuple[BackboneView, ...]
    definitions: TableView


def sensitivity_view(table: pd.DataFrame, settings: Settings, words: Words) -> SensitivityView:
    """The page's content.

    Args:
        table: `Sensitivity`; may be empty.
        settings: window, knowledge cutoffs and confidence.
        words: in which language.
    """
    headlines = {one.backbone: one for one in conclusions(table) if (one.variant, one.stage) == (HEADLINE, OVERALL)}
    fates = survivals(table)
    return SensitivityView(
        sentences=verdict(fates, headlines.values(), words),
        backbones=tuple(
            _Backbone(name, table[table["backbone"] == name], settings, words).view(
                headlines.get(name), [fate for fate in fates if fate.backbone == name]
            )
            for name in dict.fromkeys(str(backbone) for backbone in table["backbone"])
        ),
        definitions=_definitions(table, words),
    )


def verdict(fates: Sequence[Survival], headlines: Iterable[Conclusion], words: Words) -> tuple[str, ...]:
    """Whether the conclusion survives all changes, and under which it does not."""
    if not any(one.tested for one in headlines):
        return (words("There is no conclusion yet: no difference from Pipe could be tested."),)
    names = list(dict.fromkeys(fate.variant for fate in fates))
    changed = [name for name in names if any(fate.moved for fate in fates if fate.variant == name)]
    unsure = [
        name
        for name in names
        if name not in changed and any(fate.outcome == "untested" for fate in fates if fate.variant == name)
    ]
    left = len(names) - len(changed) - len(unsure)
    sentences = []
    if left == len(names):
        sentences.append(words("The conclusion survives all {count} changes of the evaluation.", count=left))
    elif changed:
        sentences.append(words("The conclusion changes under: {named}.", named=_named(changed, words)))
        sentences.append(words("It survives {left} of {count} changes.", left=left, count=len(names)))
    else:
        told = words(
            "The conclusion survives every change that could be tested: {left} of {count}.", left=left, count=len(names)
        )
        sentences.append(told)
    if unsure:
        sentences.append(words("Some of it could not be tested under: {named}.", named=_named(unsure, words)))
    return tuple(sentences)


def _named(variants: Sequence[str], words: Words) -> str:
    return words("; ").join(words(_TITLES[name]) for name in variants)


def _listed(parts: Sequence[str], words: Words) -> str:
    """The first few; the tables have all of them."""
    more = len(parts) - _LISTED
    listed = words("; ").join(parts[:_LISTED])
    return listed if more <= 0 else listed + words("; and {more} more", more=more)


def _definitions(table: pd.DataFrame, words: Words) -> TableView:
    shown = [name for name in dict.fromkeys(table["variant"]) if name in _DEFINITIONS]
    return text_table(
        words("What each variant changes; all else is as in the headline"),
        (words("Variant"), words("Definition")),
        [(words(_TITLES[name]), words(_DEFINITIONS[name])) for name in shown],
        numeric_from=2,
    )


class _Backbone:
    """One backbone's rows of the table, told in words."""

    def __init__(self, name: str, rows: pd.DataFrame, settings: Settings, words: Words) -> None:
        self._name = name
        self._rows = rows
        self._settings = settings
        self._words = words

    def view(self, headline: Conclusion | None, fates: Sequence[Survival]) -> BackboneView:
        words = self._words
        conclusions_of = [headline] if headline is not None else []
        return BackboneView(
            backbone=self._name,
            conclusion=self._conclusion(headline),
            sentences=verdict(fates, conclusions_of, words),
            matrix=self._matrix("difference", OVERALL, words("Differences from Pipe, {stage}")),
            exploitation=self._matrix("difference", EXPLOITATION, words("Differences from Pipe, {stage}")),
            levels=self._matrix("level", OVERALL, words("Coefficients, {stage}")),
            changes=tuple(self._moved(fate, place, how) for fate in fates for place, how in fate.moved.items()),
            cutoff=self._cutoff(),
        )

    def _conclusion(self, headline: Conclusion | None) -> str:
        words = self._words
        if headline is None or not headline.tested:
            return words("The headline tests no difference from Pipe.")
        found = headline.beyond_noise
        if not found:
            return words(
                "The headline: none of {tested} differences from Pipe is beyond noise.", tested=headline.tested
            )
        listed = _listed(
            [
                words("{place} above Pipe" if finding == "above" else "{place} below Pipe", place=self._place(place))
                for place, finding in found.items()
            ],
            words,
        )
        return words(
            "The headline: {found} of {tested} differences from Pipe are beyond noise: {listed}.",
            found=len(found),
            tested=headline.tested,
            listed=listed,
        )

    def _place(self, place: Place) -> str:
        return f"{mechanism_label(place.mechanism)} {place.metric} {horizon_name(place.horizon, self._words)}"

    def _moved(self, fate: Survival, place: Place, how: str) -> str:
        words = self._words
        title = words(_TITLES[fate.variant])
        return words("{title}: {place}, {how}.", title=title, place=self._place(place), how=words(_MOVED[how]))

    def _matrix(self, quantity: str, stage: str, caption: str) -> TableView:
        words = self._words
        rows = self._rows
        rows = rows[(rows["quantity"] == quantity) & (rows["stage"] == stage) & (rows["variant"] != CUTOFF_CHANGE)]
        shown = list(dict.fromkeys(rows["variant"]))
        cells = {
            (row["mechanism"], row["metric"], row["horizon"], row["variant"]): _cell(row)
            for row in rows.to_dict("records")
        }
        places = list(dict.fromkeys(key[:3] for key in cells))
        return TableView(
            caption.format(stage=words(_STAGES[stage])),
            (words("Mechanism"), words("Metric"), words("Horizon"), *(words(_TITLES[name]) for name in shown)),
            tuple(
                (
                    Cell(mechanism_label(mechanism)),
                    Cell(metric),
                    Cell(horizon_name(horizon, self._words)),
                    *(cells.get((mechanism, metric, horizon, name), Cell("–")) for name in shown),
                )
                for mechanism, metric, horizon in places
            ),
            numeric_from=3,
            notes=(
                words(
                    "▲ above and ▼ below {zero} beyond noise (Holm's adjusted p below {level:g}); ? not tested; "
                    "≠ another finding than the headline's.",
                    zero=words("Pipe" if quantity == "difference" else "zero"),
                    level=significance_level(self._settings.evaluation.confidence),
                ),
            ),
        )

    def _cutoff(self) -> CutoffView:
        words, day = self._words, self._settings.knowledge_cutoffs.get(self._name)
        if day is None and isinstance(self._settings.backbones.get(self._name), RulesSettings):
            return CutoffView(
                words("{backbone} is a lexicon and no model, so it knew no outcomes.", backbone=self._name), None
            )
        if day is None:
            return CutoffView(
                words(
                    "No knowledge cutoff is declared for {backbone}, so nobody can say whether it knew outcomes. "
                    "Its maker's date goes into the settings as knowledge_cutoff of [backbones.{backbone}].",
                    backbone=self._name,
                ),
                None,
            )
        sessions = self._settings.benchmark.sessions
        before = sum(session <= day for session in sessions)
        after = len(sessions) - before
        counted = {"before": before, "after": after, "day": day.isoformat()}
        if not before:
            return CutoffView(words("All {after} sessions lie after the knowledge cutoff {day}.", **counted), None)
        if not after:
            told = words(
                "All {before} sessions lie up to the knowledge cutoff {day}: the backbone may know the outcomes.",
                **counted,
            )
            return CutoffView(told, None)
        rows = self._rows[(self._rows["variant"] == CUTOFF_CHANGE) & (self._rows["quantity"] == "level")]
        told = words("{before} sessions lie up to the knowledge cutoff {day}, {after} after it.", **counted)
        return CutoffView(f"{told} {self._cutoff_finding(rows)}", self._cutoff_table(rows))

    def _cutoff_finding(self, rows: pd.DataFrame) -> str:
        words = self._words
        if (rows["finding"] == "untested").all():
            return words("That is too few on one side to test any coefficient.")
        found = rows[rows["finding"].isin(["above", "below"])]
        if found.empty:
            return words("No coefficient changes beyond noise.")
        listed = _listed(
            [
                words(
                    "{place} rises by {size:.4f}" if row["estimate"] > 0 else "{place} falls by {size:.4f}",
                    place=self._place(Place(row["mechanism"], row["metric"], row["horizon"])),
                    size=abs(row["estimate"]),
                )
                for row in found.to_dict("records")
            ],
            words,
        )
        fell = (found["estimate"] < 0).any()
        reading = words(" A fall is what knowledge of the outcomes would leave behind.") if fell else ""
        return words("From before to after, beyond noise: {listed}.", listed=listed) + reading

    def _cutoff_table(self, changes: pd.DataFrame) -> TableView:
        words = self._words
        levels = self._rows[self._rows["quantity"] == "level"]
        sides = {
            (row["variant"], row["mechanism"], row["metric"], row["horizon"]): row["estimate"]
            for row in levels.to_dict("records")
        }
        rows = []
        for row in changes.to_dict("records"):
            place = (row["mechanism"], row["metric"], row["horizon"])
            rows.append(
                (
                    mechanism_label(row["mechanism"]),
                    row["metric"],
                    horizon_name(row["horizon"], self._words),
                    format_gain(sides["before_cutoff", *place]),
                    format_gain(sides["after_cutoff", *place]),
                    format_gain(row["estimate"]) + _MARKS[row["finding"]],
                    format_ends(row["low"], row["high"]),
                )
            )
        confidence = self._settings.evaluation.confidence
        return text_table(
            words("Coefficients before and after the knowledge cutoff"),
            (
                words("Mechanism"),
                words("Metric"),
                words("Horizon"),
                words("Before"),
                words("After"),
                words("Change"),
                words("{confidence} interval", confidence=format_percent(confidence)),
            ),
            rows,
            numeric_from=3,
        )


def _cell(row: Mapping[Hashable, Any]) -> Cell:
    moved = " ≠" if row["change"] in _MOVED else ""
    strength = {"above": _HIGHLIGHT, "below": -_HIGHLIGHT}.get(row["finding"])
    return Cell(f"{format_gain(row['estimate'])}{_MARKS[row['finding']]}{moved}", strength)
