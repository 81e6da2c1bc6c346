"""What the report's figures show, computed once for all languages, and the same numbers as files.

What must not live here: sentences, layout, and any formula (see `evaluation`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import pandas as pd

from finevolve_pipeline.evaluation import diagnostics, learning, news_statistics, spending, utility
from finevolve_pipeline.evaluation.comparison import mechanism_label
from finevolve_pipeline.evaluation.dataset import DatasetFacts, dataset_facts
from finevolve_pipeline.evaluation.differences import forest_rows, industry_differences
from finevolve_pipeline.evaluation.report.evaluated import ROLLING, Evaluation
from finevolve_pipeline.evaluation.stages import STAGES
from finevolve_pipeline.spreadsheet import frame_csv

_RUN = ["backbone", "mechanism"]


def of_backbone(frame: pd.DataFrame, backbone: str) -> pd.DataFrame:
    """Rows of one backbone."""
    return frame[frame["backbone"] == backbone]


class Findings:
    """Tables behind the figures; every one is also a file (see `files`)."""

    def __init__(self, evaluation: Evaluation) -> None:
        self.evaluation = evaluation
        self.inputs = evaluation.inputs

    @cached_property
    def curve(self) -> pd.DataFrame:
        """csIC and its difference from Pipe beside matured experience (see `learning.learning_curve`)."""
        evaluation = self.evaluation
        return learning.learning_curve(evaluation.panels, evaluation.settings, evaluation.method, ROLLING)

    @cached_property
    def blocks(self) -> pd.DataFrame:
        """The curve in blocks (see `learning.learning_blocks`)."""
        return learning.learning_blocks(self.curve)

    @cached_property
    def slopes(self) -> pd.DataFrame:
        """Trends of the difference, adjusted within each backbone (see `learning.learning_slopes`)."""
        backbones = dict.fromkeys(run.backbone for run in self.evaluation.runs)
        curves = [of_backbone(self.curve, backbone) for backbone in backbones] or [self.curve]
        slopes = [learning.learning_slopes(curve, self.evaluation.settings) for curve in curves]
        return pd.concat(slopes, ignore_index=True)

    def mechanisms(self, backbone: str) -> dict[str, str]:
        """Mechanisms of a backbone's runs and what people call them; several seeds are one mechanism."""
        return {run.mechanism: mechanism_label(run.mechanism) for run in self.evaluation.experiments_of(backbone)}

    def _named(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of known experiments with backbone and mechanism in place of the experiment."""
        runs = {run.key: run for run in self.inputs.settings.all_experiments}
        known = frame[frame["experiment"].isin(list(runs))]
        return known.assign(
            backbone=[runs[key].backbone for key in known["experiment"]],
            mechanism=[runs[key].mechanism for key in known["experiment"]],
        ).drop(columns="experiment")

    def forest(self, stage: str) -> pd.DataFrame:
        """Differences from Pipe with their intervals (see `differences.forest_rows`)."""
        return forest_rows(self.inputs.inference, stage, self.evaluation.method, self.evaluation.settings.confidence)

    @cached_property
    def industry_differences(self) -> pd.DataFrame:
        """tsIC of each industry less Pipe's (see `differences.industry_differences`)."""
        return industry_differences(self.evaluation.industries, self.evaluation.runs)

    @cached_property
    def spending(self) -> pd.DataFrame:
        """What runs took beside what they gained (see `spending.spending`)."""
        inputs = self.inputs
        return spending.spending(inputs.usage, inputs.inference, self.evaluation.runs, self.evaluation.method)

    @cached_property
    def utilities(self) -> pd.DataFrame:
        """Q of memories: backbone, mechanism, when (a third of the window, or `utility.IN_THE_END`), q, visits."""
        inputs = self.inputs
        return self._named(utility.all_utilities(inputs.retrievals, inputs.utilities, inputs.sessions))

    @cached_property
    def utility_histogram(self) -> pd.DataFrame:
        """Classes of Q (see `utility.utility_histogram`); a mechanism on a backbone has classes of its own."""
        runs = [run for _, run in self.utilities.groupby(_RUN, sort=False)] or [self.utilities]
        return pd.concat([utility.utility_histogram(run, [*_RUN, "when"]) for run in runs], ignore_index=True)

    @cached_property
    def utility_summary(self) -> pd.DataFrame:
        """What is known of Q in a few numbers (see `utility.utility_summary`)."""
        return utility.utility_summary(self.utilities, [*_RUN, "when"])

    @cached_property
    def retrieval_spread(self) -> pd.DataFrame:
        """Ages and shares of retrieved memories (see `diagnostics.retrieval_distribution`)."""
        return diagnostics.retrieval_distribution(self._named(self.inputs.retrievals), [*_RUN, "kind"])

    @cached_property
    def facts(self) -> DatasetFacts:
        """The dataset in a few numbers."""
        inputs = self.inputs
        return dataset_facts(inputs.settings, inputs.news_counts, inputs.predictions, inputs.alpha)

    @cached_property
    def months(self) -> pd.DataFrame:
        """Articles by month and source."""
        return news_statistics.months(self.inputs.news_counts)

    @cached_property
    def lengths(self) -> pd.DataFrame:
        """Lengths of articles by source (see `news_statistics.length_summary`)."""
        return news_statistics.length_summary(self.inputs.news.lengths)

    @cached_property
    def length_classes(self) -> pd.DataFrame:
        """Articles by length class."""
        return news_statistics.length_classes(self.inputs.news.lengths)

    @cached_property
    def shown(self) -> pd.DataFrame:
        """Articles shown by session and industry (see `news_statistics.shown_articles`)."""
        return news_statistics.shown_articles(self.inputs.predictions)

    def files(self) -> Mapping[str, str]:
        """Every table as CSV, by file name."""
        news = self.inputs.news
        frames = {
            "learning_curve": self.curve,
            "learning_blocks": self.blocks,
            "learning_slopes": self.slopes,
            "differences": pd.concat([self.forest(stage) for stage in STAGES], ignore_index=True),
            "industry_differences": self.industry_differences,
            "spending": self.spending,
            "utility_histogram": self.utility_histogram,
            "utility_summary": self.utility_summary,
            "retrieval_distribution": self.retrieval_spread,
            "news_months": self.months,
            "news_scopes": news.scopes,
            "news_industries": news.industries,
            "news_topics": news.topics,
            "news_lengths": news.lengths,
            "news_length_summary": self.lengths,
            "news_length_classes": self.length_classes,
            "shown_articles": self.shown,
        }
        return {f"tables/{name}.csv": frame_csv(frame) for name, frame in frames.items()}
