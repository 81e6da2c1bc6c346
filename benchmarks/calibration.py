"""How often the tests of `finevolve_pipeline.evaluation.inference` reject a true null, and a false one.

    python benchmarks/calibration.py              all cells into benchmarks/calibration.csv (ten minutes on two cores)
    python benchmarks/calibration.py --part null  some of them; the others keep their rows
    python benchmarks/calibration.py --samples 50 a trial, printed only

A sample is a world without any relation between scores and outcomes: daily excess returns of 31 industries with a
common and a style factor, outcomes as their sums over h sessions (so they overlap), and scores of two runs, Pipe and
another, that are autoregressive in time, share 60 % of their variance with each other and move together across
industries. The level is the other run's coefficient, the difference that from Pipe's. Planted samples add the outcome
itself to the other run's scores. The sample depends on its number alone, so the figures do not depend on the workers.
"""

from __future__ import annotations

import argparse
import csv
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from scipy.signal import lfilter
from threadpoolctl import threadpool_limits

from finevolve_pipeline.evaluation import inference
from finevolve_pipeline.evaluation.ic import Floats
from finevolve_pipeline.settings import EvaluationSettings, load_settings

TABLE = Path(__file__).with_suffix(".csv")
INDUSTRIES = 31
WARM_UP = 200
SHARED = 0.6
TASK = 50
LEVEL = 0.05
PARTS = ("null", "planted", "stages")
PLANTED = (0.03, 0.05, 0.08)
TESTS = {
    "default": "p",
    "newey_west": "p_newey_west",
    "fixed_b": "p_fixed_b",
    "hansen_hodrick": "p_hansen_hodrick",
    "naive": "p_naive",
}
PERCENTILE = "percentile"
"""The block bootstrap's percentiles as they are, for tsIC."""

COLUMNS = ("metric", "quantity", "test", "sessions", "ar", "horizon", "planted", "samples", "rejected")


@dataclass(frozen=True)
class Cell:
    """One kind of world: sessions, autoregression of scores, horizon, planted correlation (0: a true null)."""

    sessions: int
    ar: float
    horizon: int
    planted: float = 0.0


@dataclass(frozen=True)
class World:
    """Scores of Pipe and of the other run, and the outcomes (sessions x industries each)."""

    pipe: Floats
    other: Floats
    alpha: Floats


def autoregressive(rng: np.random.Generator, ar: float, sessions: int, series: int) -> Floats:
    """Stationary series of variance 1."""
    noise = rng.normal(size=(sessions + WARM_UP, series))
    return np.asarray(lfilter([np.sqrt(1 - ar**2)], [1, -ar], noise, axis=0))[WARM_UP:]


def make_world(cell: Cell, number: int) -> World:
    """The sample of that number."""
    rng = np.random.default_rng([number, cell.sessions, round(100 * cell.ar), cell.horizon, round(1000 * cell.planted)])
    style = rng.normal(size=INDUSTRIES)
    days = cell.sessions + cell.horizon
    common, factor = rng.normal(size=(2, days, 1))
    daily = 0.5 * common + 0.5 * factor * style + rng.normal(size=(days, INDUSTRIES))
    index = np.vstack([np.zeros(INDUSTRIES), daily.cumsum(axis=0)])
    alpha = index[cell.horizon : days] - index[: cell.sessions]

    def scores() -> Floats:
        together = autoregressive(rng, cell.ar, cell.sessions, 2)
        own = autoregressive(rng, cell.ar, cell.sessions, INDUSTRIES)
        return own + 0.5 * together[:, :1] + 0.5 * together[:, 1:] * style

    shared, of_pipe, of_other = scores(), scores(), scores()
    pipe, other = (np.sqrt(SHARED) * shared + np.sqrt(1 - SHARED) * own for own in (of_pipe, of_other))
    noise, signal = other / other.std(), alpha / alpha.std()
    return World(pipe, np.sqrt(1 - cell.planted**2) * noise + cell.planted * signal, alpha)


@lru_cache(maxsize=4)
def dates(cell: Cell, draws: int) -> dict[int, Floats]:
    """Draws of dates, the same for all samples of a cell as for all runs of a stage."""
    return inference.stage_weights(cell.sessions, [cell.horizon], evaluation(draws))


@lru_cache(maxsize=1)
def evaluation(draws: int) -> EvaluationSettings:
    """The packaged settings with so many draws."""
    return load_settings().evaluation.model_copy(update={"bootstrap_draws": draws})


def rejections(cell: Cell, number: int, draws: int) -> Iterator[tuple[str, str, str]]:
    """(metric, quantity, test) of every test that rejects zero in a sample."""
    world, settings = make_world(cell, number), evaluation(draws)
    scores = np.stack([world.pipe, world.other])
    weights = dates(cell, draws)
    found = {
        "csIC": inference.cross_sectional_coefficients(scores, world.alpha, settings, "spearman"),
        "tsIC": inference.time_series_coefficients(scores, world.alpha, cell.horizon, weights, settings, "spearman"),
    }
    for metric, (pipe, other) in found.items():
        for quantity, coefficient in (("level", other), ("difference", other - pipe)):
            row = inference.tests(coefficient, cell.horizon, cell.sessions, settings)
            yield from ((metric, quantity, test) for test, column in TESTS.items() if row[column] < LEVEL)
            if coefficient.resample is not None:
                low, high = np.quantile(coefficient.resample.draws, [LEVEL / 2, 1 - LEVEL / 2])
                if not low <= 0 <= high:
                    yield metric, quantity, PERCENTILE


def count(cell: Cell, first: int, samples: int, draws: int) -> Counter[tuple[str, str, str]]:
    """Rejections among `samples` samples."""
    with threadpool_limits(1):
        each = (rejections(cell, number, draws) for number in range(first, first + samples))
        return Counter(itertools.chain.from_iterable(each))


def cells(part: str) -> dict[Cell, int]:
    """The cells of a part and how many samples of each."""
    persistence = list(itertools.product((0.8, 0.95), (10, 20, 40)))
    if part == "null":
        return {Cell(299, ar, horizon): 2000 for ar, horizon in persistence}
    if part == "planted":
        return {Cell(299, ar, horizon, planted): 400 for planted in PLANTED for ar, horizon in persistence}
    return {Cell(sessions, ar, horizon): 400 for sessions in (99, 200) for ar, horizon in persistence}


def rows(wanted: Mapping[Cell, int], draws: int, workers: int) -> Iterator[dict[str, object]]:
    """Rows of the table, cell by cell."""
    with ProcessPoolExecutor(workers) as pool:
        tasks = {
            pool.submit(count, cell, first, min(TASK, samples - first), draws): cell
            for cell, samples in wanted.items()
            for first in range(0, samples, TASK)
        }
        found = {cell: Counter[tuple[str, str, str]]() for cell in wanted}
        for task in track(as_completed(tasks), "samples", len(tasks), console=Console(stderr=True)):
            found[tasks[task]] += task.result()
    for cell, samples in wanted.items():
        for metric, quantity in itertools.product(("csIC", "tsIC"), ("level", "difference")):
            for test in (*TESTS, *([PERCENTILE] if metric == "tsIC" else [])):
                yield {
                    "metric": metric,
                    "quantity": quantity,
                    "test": test,
                    "sessions": cell.sessions,
                    "ar": cell.ar,
                    "horizon": cell.horizon,
                    "planted": cell.planted,
                    "samples": samples,
                    "rejected": found[cell][metric, quantity, test] / samples,
                }


def part_of(row: Mapping[str, object]) -> str:
    """Which part a row of the table belongs to."""
    if float(str(row["planted"])) > 0:
        return "planted"
    return "null" if int(str(row["sessions"])) == 299 else "stages"


def merged(made: Sequence[Mapping[str, object]], parts: Sequence[str]) -> list[Mapping[str, object]]:
    """New rows, and the table's rows of other parts, part by part."""
    kept: list[Mapping[str, object]] = []
    if TABLE.exists():
        with TABLE.open(encoding="utf-8", newline="") as source:
            kept += [row for row in csv.DictReader(source) if part_of(row) not in parts]
    return sorted([*kept, *made], key=lambda row: PARTS.index(part_of(row)))


def main() -> None:
    """Simulate, print what the default tests do, and write the table unless it is a trial."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, action="append", help="default: all")
    parser.add_argument("--samples", type=int, help="of every cell, instead of 2,000 or 400; nothing is written")
    parser.add_argument("--draws", type=int, default=500, help="of the bootstrap (default 500)")
    parser.add_argument("--workers", type=int, default=2)
    chosen = parser.parse_args()
    for part in chosen.part or PARTS:
        wanted = {cell: chosen.samples or samples for cell, samples in cells(part).items()}
        made = list(rows(wanted, chosen.draws, chosen.workers))
        for row in made:
            if row["test"] == "default":
                print(*(f"{name}={row[name]}" for name in COLUMNS))
        if chosen.samples is None:
            table = merged(made, [part])
            with TABLE.open("w", encoding="utf-8", newline="") as sink:
                writer = csv.DictWriter(sink, COLUMNS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(table)


if __name__ == "__main__":
    main()
