"""Time and verdict of the whole sensitivity analysis: `python benchmarks/sensitivity.py`.

Twelve experiments (six mechanisms on two backbones) x 299 sessions x 31 industries x three horizons, 2,000 draws, with
a knowledge cutoff for each backbone. Excess returns are sums of independent daily ones, so they overlap; scores persist
(AR 0.9). Planted: MemRL knows the outcome a little on both backbones, and all scores of the second backbone know it
well up to the cutoff, as those of a model would that has read what happened. Everything is seeded.
"""

from __future__ import annotations

import time

import numpy as np
import pandas as pd

from finevolve_pipeline.evaluation.report.sensitivity_page import sensitivity_view
from finevolve_pipeline.evaluation.report.words import Words
from finevolve_pipeline.evaluation.sensitivity import sensitivity
from finevolve_pipeline.market.alpha import BASES
from finevolve_pipeline.settings import Experiment, Settings, load_settings

CUTOFF = "2025-07-31"
KNOWS, LEAKED = 0.25, 0.4
"""What is added to scores of unit variance: multiples of the standardised outcome."""


def long_form(grid: np.ndarray, settings: Settings, day: str, value: str) -> pd.DataFrame:
    """Horizons x sessions x industries as a long table."""
    days = [session.isoformat() for session in settings.benchmark.sessions]
    axes = [settings.benchmark.horizons, days, settings.benchmark.codes]
    places = pd.MultiIndex.from_product(axes, names=["horizon", day, "code"])
    return pd.DataFrame({value: grid.reshape(-1)}, index=places).reset_index()


def outcomes(rng: np.random.Generator, settings: Settings) -> np.ndarray:
    """Excess returns over each horizon."""
    sessions, horizons = len(settings.benchmark.sessions), settings.benchmark.horizons
    path = np.cumsum(rng.normal(0, 0.01, (sessions + max(horizons) + 1, len(settings.benchmark.codes))), axis=0)
    return np.stack([path[h : h + sessions] - path[:sessions] for h in horizons])


def persistent(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Autoregressive noise of unit variance."""
    found, steps = np.zeros(shape), rng.normal(size=shape)
    for t in range(1, shape[1]):
        found[:, t] = 0.9 * found[:, t - 1] + steps[:, t]
    return np.asarray(found / found.std())


def main() -> None:
    """Print the time, and what the page would say."""
    declared = {name: {"knowledge_cutoff": CUTOFF} for name in ("rules", "rules-noisy")}
    settings = load_settings(overrides={"experiments": {"backbones": list(declared)}, "backbones": declared})
    rng = np.random.default_rng(1)
    alpha = outcomes(rng, settings)
    signal = alpha / alpha.std(axis=(1, 2), keepdims=True)
    # Of the other bases, labels that differ by a day's move.
    grids = {base: alpha + (base != "close_t") * rng.normal(0, 0.01, alpha.shape) for base in BASES}
    labels = pd.concat([long_form(g, settings, "predicted_on", "alpha").assign(base=b) for b, g in grids.items()])
    before = np.array([session.isoformat() <= CUTOFF for session in settings.benchmark.sessions])[None, :, None]

    def scores(experiment: Experiment) -> np.ndarray:
        known = KNOWS * (experiment.mechanism == "memrl") + LEAKED * before * (experiment.backbone == "rules-noisy")
        return np.tanh(persistent(rng, alpha.shape) + known * signal)

    runs = {e: long_form(scores(e), settings, "session", "score") for e in settings.all_experiments}
    wall, cpu = time.perf_counter(), time.process_time()
    table = sensitivity(runs, labels, settings)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    variants = table.loc[table["backbone"] == "rules", ["variant", "stage"]].drop_duplicates()
    print(f"{len(runs)} experiments, {len(variants)} variants, {len(table)} rows: {wall:.1f} s, {cpu:.1f} s of CPU\n")
    view = sensitivity_view(table, settings, Words())
    for sentence in view.sentences:
        print(sentence)
    for one in view.backbones:
        print(f"\n{one.backbone}: {one.conclusion}\n{one.cutoff.sentence}")


if __name__ == "__main__":
    main()
