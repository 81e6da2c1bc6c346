"""The verdict in plain sentences, English and Chinese.

What lives here: wording. It never takes "not found" for "equal", and says what could not have been found. What must
not: what is beyond noise (see `evaluation.verdict`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

import pandas as pd

from finevolve_pipeline.evaluation.comparison import ALL_HORIZONS, mechanism_label
from finevolve_pipeline.evaluation.report.words import Words
from finevolve_pipeline.evaluation.verdict import (
    BackboneVerdict,
    Detectable,
    Finding,
    HorizonVerdict,
    Outcome,
    Verdict,
    judge,
)
from finevolve_pipeline.settings import EvaluationSettings


def verdict_sentences(inference: pd.DataFrame, settings: EvaluationSettings, words: Words) -> tuple[str, ...]:
    """What the run shows and cannot show: the whole window, the headline's kind of correlation.

    Args:
        inference: `Inference`; empty: nothing has been tested.
        settings: confidence and headline.
        words: the language.
    """
    verdict = judge(inference, settings)
    return (*told(verdict, words), *meanings(verdict, words))


def told(verdict: Verdict, words: Words) -> tuple[str, ...]:
    """A verdict as sentences: what differs from Pipe, what predicts at all; what they mean is in `meanings`."""
    if not verdict.backbones:
        return (words("Nothing has been tested yet, so any difference between runs may be chance."),)
    speaker = _Speaker(words, verdict)
    return tuple(sentence for one in verdict.backbones for sentence in speaker.of_backbone(one))


def meanings(verdict: Verdict, words: Words) -> tuple[str, ...]:
    """What the words of `told` mean; nothing where nothing was tested."""
    if not any(horizon.tested for horizon in verdict.horizons):
        return ()
    beyond_noise = words(
        "tsIC and csIC are correlations of scores with what then happened, over time and over industries. Beyond "
        "noise: the p-value, adjusted by Holm's method over all differences from Pipe (coefficients: over all "
        "coefficients) of the backbone, stage and correlation, is below {level}. What is not beyond noise is not shown "
        "to be equal: a smaller difference may be there.",
        level=f"{verdict.level:g}",
    )
    outcomes = [outcome for horizon in verdict.horizons for outcome in horizon.outcomes]
    if not any(outcome.open and outcome.detectable for outcome in outcomes):
        return (beyond_noise,)
    could_have_been_seen = words(
        "Could have been seen: a true value of that size would be found four times out of five by a test on its own; "
        "among many tests it takes a larger one. Where a range stands, it depends on the run."
    )
    return beyond_noise, could_have_been_seen


class _Speaker:
    """Sentences of one verdict in one language."""

    def __init__(self, words: Words, verdict: Verdict) -> None:
        self._words = words
        self._verdict = verdict

    def of_backbone(self, one: BackboneVerdict) -> list[str]:
        name = one.backbone
        if not one.has_pipe:
            first = [self._words("Backbone {backbone} has no Pipe run, so nothing can be compared.", backbone=name)]
        elif not one.mechanisms:
            first = [
                self._words("On backbone {backbone} only Pipe has been run, so nothing can be compared.", backbone=name)
            ]
        else:
            first = self._differences(one)
        return [*first, *self._levels(one)]

    # -- differences from Pipe

    def _differences(self, one: BackboneVerdict) -> list[str]:
        if not any(horizon.tested for horizon in one.differences):
            return [*self._identical(one), *self._nothing_tested(one)]
        sentences = [
            sentence
            for horizon in one.differences
            for sentence in (*self._of_horizon(one, horizon), *self._untested(one, horizon))
        ]
        return [*sentences, *self._identical(one)]

    def _of_horizon(self, one: BackboneVerdict, horizon: HorizonVerdict) -> list[str]:
        if not horizon.tested:
            return []
        place = self._place(one, horizon)
        sizes = self._sizes(horizon.tested, "; only differences of about {sizes} or more could have been seen")
        if horizon.found:
            findings = self._listed(
                [self._finding(finding) for finding in horizon.found], "{left}; {right}", "{left}; {right}"
            )
            if not any(outcome.open for outcome in horizon.tested):
                return [self._words("{place} {findings}.", place=place, findings=findings)]
            return [
                self._words(
                    "{place} {findings}; no other tested difference from Pipe goes beyond noise{sizes}.",
                    place=place,
                    findings=findings,
                    sizes=sizes,
                )
            ]
        if any(outcome.untested for outcome in horizon.outcomes):
            return [
                self._words(
                    "{place} none of the mechanisms that could be tested in {metrics} differs from Pipe beyond "
                    "noise{sizes}.",
                    place=place,
                    metrics=self._and([outcome.metric for outcome in horizon.tested]),
                    sizes=sizes,
                )
            ]
        return [self._words("{place} no mechanism differs from Pipe beyond noise{sizes}.", place=place, sizes=sizes)]

    def _finding(self, finding: Finding) -> str:
        digits = 3 if abs(finding.estimate) >= 0.01 else 4
        template = (
            "{mechanism} lies above Pipe in {metric} ({estimate}, {confidence} % interval {low} to {high}, "
            "adjusted p {p})"
            if finding.is_above
            else "{mechanism} lies below Pipe in {metric} ({estimate}, {confidence} % interval {low} to {high}, "
            "adjusted p {p})"
        )
        return self._words(
            template,
            mechanism=mechanism_label(finding.mechanism),
            metric=finding.metric,
            estimate=f"{finding.estimate:+.{digits}f}",
            confidence=f"{100 * self._verdict.confidence:.6g}",
            low=f"{finding.low:.{digits}f}",
            high=f"{finding.high:.{digits}f}",
            p=self._p(finding.p),
        )

    def _p(self, p: float) -> str:
        return self._words("below 0.001") if p < 0.001 else f"{p:.2g}"

    def _untested(self, one: BackboneVerdict, horizon: HorizonVerdict) -> list[str]:
        """One sentence for each set of metrics in which the same mechanisms could not be tested."""
        missing: dict[tuple[str, ...], list[str]] = {}
        for outcome in horizon.outcomes:
            if outcome.untested:
                missing.setdefault(outcome.untested, []).append(outcome.metric)
        return [
            self._words(
                "{place} {mechanisms} could not be tested in {metrics}: undefined, or too few sessions or industries.",
                place=self._place(one, horizon),
                mechanisms=self._names(mechanisms),
                metrics=self._and(metrics),
            )
            for mechanisms, metrics in missing.items()
        ]

    def _nothing_tested(self, one: BackboneVerdict) -> list[str]:
        same = set(self._identical_everywhere(one))
        if same.issuperset(one.mechanisms):
            return []
        return [
            self._words(
                "On backbone {backbone} no difference from Pipe could be tested: the coefficients are undefined, or "
                "the sessions are too few. Whether any mechanism differs is not known.",
                backbone=one.backbone,
            )
        ]

    def _identical(self, one: BackboneVerdict) -> list[str]:
        same = self._identical_everywhere(one)
        if not same:
            return []
        return [
            self._words(
                "On backbone {backbone} the coefficients of {mechanisms} are exactly Pipe's, so there is nothing to "
                "test.",
                backbone=one.backbone,
                mechanisms=self._names(same),
            )
        ]

    def _identical_everywhere(self, one: BackboneVerdict) -> list[str]:
        outcomes = [outcome for horizon in one.differences for outcome in horizon.outcomes]
        return [name for name in one.mechanisms if outcomes and all(name in outcome.identical for outcome in outcomes)]

    # -- coefficients against zero

    def _levels(self, one: BackboneVerdict) -> list[str]:
        tested = [outcome for horizon in one.levels for outcome in horizon.tested]
        if not tested:
            return [
                self._words(
                    "On backbone {backbone} no coefficient could be tested: undefined, or too few sessions.",
                    backbone=one.backbone,
                )
            ]
        found = [finding for horizon in one.levels for finding in horizon.found]
        sizes = self._sizes(tested, "; only coefficients of about {sizes} or more could have been seen")
        if not found and any(outcome.untested for horizon in one.levels for outcome in horizon.outcomes):
            return [
                self._words(
                    "On backbone {backbone} none of the runs' own coefficients that could be tested differs from zero "
                    "beyond noise: that any run predicts is not shown{sizes}.",
                    backbone=one.backbone,
                    sizes=sizes,
                )
            ]
        if not found:
            return [
                self._words(
                    "On backbone {backbone} no run's own coefficient differs from zero beyond noise: that any of them "
                    "predicts is not shown{sizes}.",
                    backbone=one.backbone,
                    sizes=sizes,
                )
            ]
        above = [finding for finding in found if finding.is_above]
        below = [finding for finding in found if not finding.is_above]
        sentences = []
        if above:
            sentences.append(
                self._words(
                    "On backbone {backbone} these coefficients lie above zero beyond noise: {runs}.",
                    backbone=one.backbone,
                    runs=self._runs(above),
                )
            )
        if below:
            sentences.append(
                self._words(
                    "On backbone {backbone} these coefficients lie below zero beyond noise, so the scores order the "
                    "industries the wrong way round: {runs}.",
                    backbone=one.backbone,
                    runs=self._runs(below),
                )
            )
        return sentences

    def _runs(self, findings: Iterable[Finding]) -> str:
        """`Pipe (csIC 10d 20d); Mem0 (tsIC 40d)`."""
        places: dict[str, dict[str, list[str]]] = {}
        for finding in findings:
            by_metric = places.setdefault(finding.mechanism, {})
            by_metric.setdefault(finding.metric, []).append(f"{finding.horizon}d")
        runs = [
            f"{mechanism_label(name)} ({', '.join(' '.join([metric, *where]) for metric, where in by_metric.items())})"
            for name, by_metric in places.items()
        ]
        return self._listed(runs, "{left}; {right}", "{left}; {right}")

    # -- pieces

    def _place(self, one: BackboneVerdict, horizon: HorizonVerdict) -> str:
        several = len(self._verdict.backbones) > 1
        if horizon.horizon == ALL_HORIZONS:
            if several:
                return self._words("On backbone {backbone}, on average over the horizons,", backbone=one.backbone)
            return self._words("On average over the horizons")
        if several:
            return self._words(
                "On backbone {backbone}, at {horizon} sessions,", backbone=one.backbone, horizon=horizon.horizon
            )
        return self._words("At {horizon} sessions", horizon=horizon.horizon)

    def _sizes(self, outcomes: Sequence[Outcome], clause: str) -> str:
        """The clause with its `{sizes}`, `0.04 tsIC and 0.05 to 0.07 csIC`; nothing if they are not known."""
        ranges: dict[str, list[Detectable]] = {}
        for outcome in outcomes:
            if outcome.detectable and outcome.detectable.smallest <= 1:
                ranges.setdefault(outcome.metric, []).append(outcome.detectable)
        if not ranges:
            return ""
        parts = [self._size(metric, found) for metric, found in ranges.items()]
        return self._words(clause, sizes=self._and(parts))

    def _size(self, metric: str, found: Sequence[Detectable]) -> str:
        low = f"{float(f'{min(one.smallest for one in found):.2g}'):g}"
        largest = max(one.largest for one in found)
        high = f"{float(f'{largest:.2g}'):g}"
        if largest > 1:
            return self._words("{low} {metric} (for some runs none: it would exceed 1)", low=low, metric=metric)
        if low == high:
            return f"{low} {metric}"
        return self._words("{low} to {high} {metric}", low=low, high=high, metric=metric)

    def _names(self, mechanisms: Iterable[str]) -> str:
        return self._and([mechanism_label(name) for name in mechanisms])

    def _and(self, texts: Sequence[str]) -> str:
        return self._listed(texts, "{left}, {right}", "{left} and {right}")

    def _listed(self, texts: Sequence[str], between: str, before_last: str) -> str:
        *head, last = texts
        if not head:
            return last
        return self._words(
            before_last, left=reduce(lambda left, right: self._words(between, left=left, right=right), head), right=last
        )
