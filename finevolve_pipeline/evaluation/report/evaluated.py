"""What the report computes from runs and labels, once for all languages: series and coefficients on common cells.

What must not live here: sentences, layout, and any formula (see `evaluation.ic`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import pandas as pd

from finevolve_pipeline.evaluation import ic
from finevolve_pipeline.evaluation.report import figures
from finevolve_pipeline.evaluation.report.inputs import ReportInputs
from finevolve_pipeline.evaluation.report.words import Words
from finevolve_pipeline.evaluation.stages import split_stages
from finevolve_pipeline.settings import Experiment

ROLLING = 20
"""Sessions of the rolling mean."""


class Evaluation:
    """Series and coefficients of all runs on common cells with the headline method, computed once."""

    def __init__(self, inputs: ReportInputs) -> None:
        self.inputs = inputs
        self.settings = inputs.settings.evaluation
        self.method: ic.Method = self.settings.headline
        self.runs = inputs.runs

    @cached_property
    def panels(self) -> dict[Experiment, ic.Panel]:
        """Panels of all runs, scores kept on common cells."""
        benchmark = self.inputs.settings.benchmark
        axes = ic.make_axes(benchmark.sessions, benchmark.horizons, benchmark.codes)
        panels = ic.make_panels(self.runs, self.inputs.alpha, axes)
        common = ic.common_cells(panels)
        return {e: panel.within(common[e.backbone]) for e, panel in panels.items()}

    @cached_property
    def daily(self) -> pd.DataFrame:
        """csIC by session: experiment, session, horizon, ic, pairs, rolling, cumulative."""
        return self._of_each(
            lambda panel: ic.with_running_means(ic.daily_ic(panel, self.settings, self.method), ROLLING)
        )

    @cached_property
    def industries(self) -> pd.DataFrame:
        """tsIC by industry over the whole window: experiment, code, horizon, ic, pairs."""
        return self._of_each(lambda panel: ic.industry_ic(panel, self.settings, self.method))

    def _of_each(self, compute: Callable[[ic.Panel], pd.DataFrame]) -> pd.DataFrame:
        parts = [compute(panel).assign(experiment=experiment.key) for experiment, panel in self.panels.items()]
        if not parts:
            return pd.DataFrame(columns=["experiment", "horizon", "ic", "pairs"])
        frame = pd.concat(parts, ignore_index=True)
        return frame.loc[:, ["experiment", *frame.columns.drop("experiment")]]

    @property
    def backbones(self) -> tuple[str, ...]:
        """Backbones of the comparison, in order."""
        return tuple(dict.fromkeys(str(backbone) for backbone in self.inputs.comparison["backbone"]))

    def experiments_of(self, backbone: str) -> list[Experiment]:
        """The runs of one backbone."""
        return [experiment for experiment in self.runs if experiment.backbone == backbone]

    def marks(self, words: Words) -> figures.Marks:
        """What time figures show behind their lines."""
        sessions = self.inputs.sessions
        cold = split_stages(sessions, self.settings)[0].end
        regimes = self.inputs.truth.regimes if self.inputs.truth else {}
        named = {session: words("regime {regime}", regime=regime) for session, regime in regimes.items()}
        return figures.Marks(sessions[cold] if 0 < cold < len(sessions) else None, named)
