"""What a run shows and what it cannot show: per backbone and horizon, which mechanisms differ from Pipe beyond noise.

What lives here: the verdict as data, from the table `inference`. What must not: sentences (see `report.verdict_text`),
tests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from finevolve_pipeline.evaluation.comparison import ALL_HORIZONS, PIPE
from finevolve_pipeline.evaluation.ic import METRICS
from finevolve_pipeline.evaluation.significance import beyond_noise, significance_level
from finevolve_pipeline.evaluation.stages import OVERALL
from finevolve_pipeline.settings import EvaluationSettings


@dataclass(frozen=True)
class Finding:
    """A number that goes beyond noise: a difference from Pipe or a coefficient, with its interval and Holm's p."""

    mechanism: str
    metric: str
    horizon: int
    estimate: float
    low: float
    high: float
    p: float

    @property
    def is_above(self) -> bool:
        """Above Pipe, or a coefficient above zero."""
        return self.estimate > 0


@dataclass(frozen=True)
class Detectable:
    """Sizes that a single test would have found with power 0.8: of the most precise test, and of the least."""

    smallest: float
    largest: float


@dataclass(frozen=True)
class Outcome:
    """What the tests of one metric at one horizon say of the mechanisms, each of which is in one of four groups.

    Attributes:
        metric: tsIC or csIC.
        found: beyond noise.
        open: tested and not beyond noise. It is not known whether they differ.
        identical: the difference is exactly zero every day, so there is nothing to test.
        untested: undefined, or too few sessions.
        detectable: of those that were tested; None if none was.
    """

    metric: str
    found: tuple[Finding, ...]
    open: tuple[str, ...]
    identical: tuple[str, ...]
    untested: tuple[str, ...]
    detectable: Detectable | None

    @property
    def is_tested(self) -> bool:
        """Whether any mechanism was tested."""
        return bool(self.found or self.open)


@dataclass(frozen=True)
class HorizonVerdict:
    """The outcomes at one horizon (in sessions; 0 = mean over the horizons): tsIC, then csIC."""

    horizon: int
    outcomes: tuple[Outcome, ...]

    @property
    def tested(self) -> tuple[Outcome, ...]:
        """Outcomes of the metrics in which anything was tested."""
        return tuple(outcome for outcome in self.outcomes if outcome.is_tested)

    @property
    def found(self) -> tuple[Finding, ...]:
        """All that goes beyond noise."""
        return tuple(finding for outcome in self.outcomes for finding in outcome.found)


@dataclass(frozen=True)
class BackboneVerdict:
    """The verdict on one backbone.

    Attributes:
        backbone: its name.
        has_pipe: whether there is a run without experience to compare with.
        mechanisms: those that are compared with Pipe.
        differences: from Pipe, by horizon, the mean gain last; empty if there is nothing to compare.
        levels: every run's own coefficients, Pipe's too, by horizon.
    """

    backbone: str
    has_pipe: bool
    mechanisms: tuple[str, ...]
    differences: tuple[HorizonVerdict, ...]
    levels: tuple[HorizonVerdict, ...]


@dataclass(frozen=True)
class Verdict:
    """The verdict on one stage with one kind of correlation; without backbones if nothing has been tested."""

    stage: str
    method: str
    confidence: float
    backbones: tuple[BackboneVerdict, ...]

    @property
    def level(self) -> float:
        """Beyond noise: Holm's adjusted p lies below."""
        return significance_level(self.confidence)

    @property
    def horizons(self) -> tuple[HorizonVerdict, ...]:
        """All verdicts of all backbones, on differences and on levels."""
        return tuple(one for verdict in self.backbones for one in (*verdict.differences, *verdict.levels))


def judge(
    inference: pd.DataFrame, settings: EvaluationSettings, stage: str = OVERALL, method: str | None = None
) -> Verdict:
    """The verdict on every backbone.

    Args:
        inference: `Inference`; may be empty, and any number in it NaN.
        settings: `confidence` sets the level, `headline` the kind of correlation unless `method` does.
        stage: cold_start, exploitation or overall.
        method: spearman or pearson.
    """
    method = method or settings.headline
    rows = inference[(inference["stage"] == stage) & (inference["method"] == method)]
    parts = rows.groupby("backbone", sort=False)
    judged = (_of_backbone(str(backbone), part, settings.confidence) for backbone, part in parts)
    return Verdict(stage, method, settings.confidence, tuple(judged))


def _of_backbone(backbone: str, rows: pd.DataFrame, confidence: float) -> BackboneVerdict:
    runs = tuple(dict.fromkeys(str(mechanism) for mechanism in rows["mechanism"]))
    others = tuple(mechanism for mechanism in runs if mechanism != PIPE)
    levels = rows[(rows["quantity"] == "level") & (rows["horizon"] != ALL_HORIZONS)]
    differences = rows[(rows["quantity"] == "difference") & (rows["mechanism"] != PIPE)]
    comparable = PIPE in runs and bool(others)
    return BackboneVerdict(
        backbone,
        PIPE in runs,
        others,
        _by_horizon(differences, others, confidence) if comparable else (),
        _by_horizon(levels, runs, confidence),
    )


def _by_horizon(rows: pd.DataFrame, mechanisms: Sequence[str], confidence: float) -> tuple[HorizonVerdict, ...]:
    # The mean over the horizons, which is horizon 0, comes last.
    horizons = sorted({int(horizon) for horizon in rows["horizon"]}, key=lambda h: (h == ALL_HORIZONS, h))
    places = {horizon: rows[rows["horizon"] == horizon] for horizon in horizons}
    return tuple(
        HorizonVerdict(
            horizon,
            tuple(_outcome(part[part["metric"] == metric], metric, mechanisms, confidence) for metric in METRICS),
        )
        for horizon, part in places.items()
    )


def _outcome(rows: pd.DataFrame, metric: str, mechanisms: Sequence[str], confidence: float) -> Outcome:
    by_mechanism = {str(row["mechanism"]): row for row in rows.to_dict("records")}
    # A difference of exactly nothing has no error that could be estimated, so it has no p.
    identical = tuple(n for n, row in by_mechanism.items() if row["estimate"] == 0 and math.isnan(row["p"]))
    rest = {name: row for name, row in by_mechanism.items() if name not in identical}
    marks = {name: beyond_noise(float(row["p_holm"]), confidence) for name, row in rest.items()}
    sizes = [float(row["minimum_detectable"]) for name, row in rest.items() if marks[name] is not None]
    sizes = [size for size in sizes if not math.isnan(size)]
    return Outcome(
        metric=metric,
        found=tuple(
            Finding(
                mechanism=name,
                metric=metric,
                horizon=int(row["horizon"]),
                estimate=float(row["estimate"]),
                low=float(row["low"]),
                high=float(row["high"]),
                p=float(row["p_holm"]),
            )
            for name, row in rest.items()
            if marks[name]
        ),
        open=tuple(name for name in rest if marks[name] is False),
        identical=identical,
        untested=tuple(name for name in mechanisms if name not in identical and marks.get(name) is None),
        detectable=Detectable(min(sizes), max(sizes)) if sizes else None,
    )
