"""How long the evaluation of a full benchmark takes: 12 experiments x 3 horizons x 299 sessions x 31 industries.

    python benchmarks/evaluation_speed.py

Three figures of one run: the IC matrix (3 stages, both correlations, both metrics, on own and on common cells), all
inference with 2,000 draws, and daily rank ICs beside `alphalens-reloaded`, which is fed the same cells of one
experiment and asked for the same csIC.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from finevolve_pipeline.evaluation.ic import Panel, common_cells, cross_sectional_ic, make_axes, panel_coefficients
from finevolve_pipeline.evaluation.inference import infer
from finevolve_pipeline.settings import Experiment, Settings, load_settings
from finevolve_pipeline.tables import InformationCoefficients, conform

MECHANISMS = ("pipe", "mem0", "memrl", "reflexion", "expel", "reasoningbank")
BACKBONES = ("one", "other")


def panels(settings: Settings) -> dict[Experiment, Panel]:
    """Random scores of two decimals, a hundredth of them missing, beside overlapping outcomes."""
    rng = np.random.default_rng(1)
    axes = make_axes(settings.benchmark.sessions, settings.benchmark.horizons)
    _, sessions, industries = axes.shape
    daily = rng.normal(size=(sessions + max(axes.horizons), industries))
    index = np.vstack([np.zeros(industries), daily.cumsum(axis=0)])
    alpha = np.stack([index[h : sessions + h] - index[:sessions] for h in axes.horizons])

    def scores() -> np.ndarray:
        found = np.round(np.clip(rng.normal(size=axes.shape) / 2, -1, 1), 2)
        return np.where(rng.random(axes.shape) < 0.01, np.nan, found)

    return {Experiment(mechanism=m, backbone=b): Panel(axes, scores(), alpha) for b in BACKBONES for m in MECHANISMS}


@dataclass(frozen=True)
class Spent:
    """Seconds of wall clock and of processor."""

    wall: float
    processor: float

    def __str__(self) -> str:
        return f"{self.wall:.3g} s ({self.processor:.3g} s of processor)"


def spent(work: Callable[[], object], times: int = 1) -> Spent:
    """The quickest of several times."""
    found = []
    for _ in range(times):
        wall, processor = time.perf_counter(), time.process_time()
        work()
        found.append(Spent(time.perf_counter() - wall, time.process_time() - processor))
    return min(found, key=lambda each: each.wall)


def all_coefficients(runs: dict[Experiment, Panel], settings: Settings) -> pd.DataFrame:
    """The IC matrix from panels: own and common cells, as `comparison.ic_matrix` makes it from tables."""
    common = common_cells(runs)
    parts = [
        panel_coefficients(experiment, panel, settings.evaluation, cells)
        for experiment, panel in runs.items()
        for cells in (None, common[experiment.backbone])
    ]
    return conform(pd.concat(parts, ignore_index=True), InformationCoefficients, "ic_matrix")


def for_alphalens(panel: Panel) -> pd.DataFrame:
    """One run as alphalens wants it: index (date, asset), a column a horizon, and one factor: the first horizon's."""
    sessions, codes = panel.axes.sessions, panel.axes.codes
    index = pd.MultiIndex.from_product([pd.DatetimeIndex(sessions), codes], names=["date", "asset"])
    columns = {f"{h}D": panel.alpha[k].reshape(-1) for k, h in enumerate(panel.axes.horizons)}
    return pd.DataFrame({**columns, "factor": panel.score[0].reshape(-1)}, index=index).dropna()


def main() -> None:
    """Print the figures."""
    from alphalens.performance import factor_information_coefficient

    warnings.simplefilter("ignore")
    settings = load_settings()
    runs = panels(settings)
    one = next(iter(runs.values()))
    same_scores = Panel(one.axes, np.broadcast_to(one.score[0], one.score.shape), one.alpha)
    frame = for_alphalens(one)
    # One thread: the products are small, and threads that wait for each other cost more than they bring.
    with threadpool_limits(1):
        matrix = spent(lambda: all_coefficients(runs, settings), 5)
        tested = spent(lambda: infer(runs, settings.evaluation), 2)
        theirs = spent(lambda: factor_information_coefficient(frame), 3)
        ours = spent(lambda: cross_sectional_ic(same_scores, settings.evaluation, "spearman"), 10)
    right = factor_information_coefficient(frame).to_numpy().T
    largest = np.abs(right - cross_sectional_ic(same_scores, settings.evaluation, "spearman").value).max()
    print(f"IC matrix of {len(runs)} experiments x 3 horizons x 3 stages x 2 correlations: {matrix}")
    print(f"all inference, {settings.evaluation.bootstrap_draws} draws: {tested}")
    print(f"daily rank IC of one experiment, 3 horizons: {ours}; alphalens-reloaded: {theirs}")
    ratios = theirs.wall / ours.wall, theirs.processor / ours.processor
    print(f"{ratios[0]:.0f} times by the clock, {ratios[1]:.0f} by the processor; largest difference {largest:.0e}")


if __name__ == "__main__":
    main()
