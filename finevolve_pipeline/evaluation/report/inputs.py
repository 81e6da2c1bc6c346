"""What a report is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from finevolve_pipeline.evaluation.case import CaseStudy, Choice
from finevolve_pipeline.evaluation.news_statistics import NewsStatistics
from finevolve_pipeline.evaluation.spending import no_usage
from finevolve_pipeline.evaluation.utility import no_utilities
from finevolve_pipeline.news.coverage_table import CoverageTable
from finevolve_pipeline.settings import Experiment, Settings
from finevolve_pipeline.tables import Inference, Sensitivity, empty

_NOTHING_CHOSEN = Choice(())


@dataclass(frozen=True)
class PlantedTruth:
    """What a synthetic world planted: the regime of each ISO session, the first session of each later one."""

    regimes: Mapping[str, str]
    turns: tuple[str, ...]

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> PlantedTruth:
        """From the synthetic world's `truth.json`: keys `sessions` (session, regime) and `turns`."""
        regimes = {str(row["session"]): str(row["regime"]) for row in document["sessions"]}
        return cls(regimes, tuple(str(turn) for turn in document["turns"]))


@dataclass(frozen=True)
class ReportInputs:
    """All that a report shows. Tables keep their contracts' columns; extra columns are ignored.

    Attributes:
        settings: the effective settings.
        ic_matrix: `InformationCoefficients` of all runs.
        comparison: `Comparison`.
        predictions: of all runs: session, experiment, code, horizon, score, invalid_reason, articles,
            articles_cut.
        retrievals: `Retrievals` of all runs, may be empty.
        alpha: `Outcomes` by prediction day.
        news_counts: day, source, importance, articles, selected (see `news_statistics.news_counts`).
        news_sessions: session, articles (observable in the session's news window).
        news_sample: a few `BenchmarkNews` or `NewsWindow` rows to look at, may be empty; 12 are shown.
        coverage: by day and source what landed, and what is known of how complete it is.
        manifests: what made the dataset and the runs, by heading: versions, digests. Plain JSON values.
        truth: what was planted, for a synthetic world.
        cases: sector-days that get a page of their own.
        choice: how these were chosen.
        inference: `Inference`; empty: nothing has been tested.
        sensitivity: `Sensitivity`; empty: there is no page of it.
        news: counts over articles by scope, industry, topic and length.
        usage: what each day of each run took of models (see `spending.usage_table`), may be empty.
        utilities: Q of all memories after each run's last session (see `utility.final_utilities`), may be empty.
    """

    settings: Settings
    ic_matrix: pd.DataFrame
    comparison: pd.DataFrame
    predictions: pd.DataFrame
    retrievals: pd.DataFrame
    alpha: pd.DataFrame
    news_counts: pd.DataFrame
    news_sessions: pd.DataFrame
    news_sample: pd.DataFrame
    coverage: CoverageTable
    manifests: Mapping[str, Mapping[str, object]]
    truth: PlantedTruth | None = None
    cases: tuple[CaseStudy, ...] = ()
    choice: Choice = _NOTHING_CHOSEN
    inference: pd.DataFrame = field(default_factory=lambda: empty(Inference))
    sensitivity: pd.DataFrame = field(default_factory=lambda: empty(Sensitivity))
    news: NewsStatistics = field(default_factory=NewsStatistics)
    usage: pd.DataFrame = field(default_factory=no_usage)
    utilities: pd.DataFrame = field(default_factory=no_utilities)

    @property
    def sessions(self) -> tuple[str, ...]:
        """The prediction window as ISO sessions."""
        return tuple(session.isoformat() for session in self.settings.benchmark.sessions)

    @property
    def runs(self) -> dict[Experiment, pd.DataFrame]:
        """Predictions by experiment, in the order of the settings; experiments without any are left out."""
        parts = {str(key): part for key, part in self.predictions.groupby("experiment", sort=False)}
        return {e: parts[e.key] for e in self.settings.all_experiments if e.key in parts}
