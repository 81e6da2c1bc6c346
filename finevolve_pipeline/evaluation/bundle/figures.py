"""Every figure of a bundle, from its predictions and closes alone; packing and checking compute them alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import pandas as pd

from finevolve_pipeline.digests import digest_text, source_digest
from finevolve_pipeline.evaluation.bundle.content import Header, Run
from finevolve_pipeline.evaluation.comparison import compare_with_pipe, ic_matrix
from finevolve_pipeline.evaluation.inference import inference
from finevolve_pipeline.market.alpha import excess_returns
from finevolve_pipeline.universe import BENCHMARK

TOLERANCE = 1e-12
"""By which a figure may differ, absolutely or relatively: another processor may round the last digit otherwise."""

TOLERANCES = {"ic_matrix": TOLERANCE, "comparison": TOLERANCE, "inference": 1e-9}
"""By table; standard errors and quantiles come from sums over thousands of draws."""


LABEL_BASE = "close_t"
"""What labels of a bundle are over (setting `evaluation.label_base`): it holds closes, no opens."""

CODE = "code of figures"
"""Name of `figures_code` among what made a bundle."""

_COMPUTED_BY = (
    "finevolve_pipeline.evaluation.bootstrap",
    "finevolve_pipeline.evaluation.comparison",
    "finevolve_pipeline.evaluation.ic",
    "finevolve_pipeline.evaluation.inference",
    "finevolve_pipeline.evaluation.long_run",
    "finevolve_pipeline.evaluation.stages",
    "finevolve_pipeline.market.alpha",
)


def figures_code() -> str:
    """Digest of the code that figures come from."""
    return source_digest(*_COMPUTED_BY)


def labels_of(header: Header, closes: pd.DataFrame) -> pd.DataFrame:
    """`Outcomes` by prediction day. Raises `CalendarError` if the window lies beyond the calendar."""
    is_benchmark = closes["code"] == BENCHMARK
    return excess_returns(header.sessions, header.horizons, closes[~is_benchmark], closes[is_benchmark])


def labels_digest(labels: pd.DataFrame) -> str:
    """Digest of all labels, missing ones included."""
    columns = (labels[name].tolist() for name in ("predicted_on", "code", "horizon", "alpha"))
    rows = zip(*columns, strict=True)
    return digest_text("\n".join(f"{day} {code} {horizon} {alpha!r}" for day, code, horizon, alpha in rows))


class Figures:
    """The tables that a bundle claims, each computed when it is asked for."""

    def __init__(self, header: Header, runs: Sequence[Run], labels: pd.DataFrame) -> None:
        self._predictions = {run.experiment: run.rows["predictions"] for run in runs}
        self._how = labels, header.sessions, header.evaluation, header.industries

    @cached_property
    def ic_matrix(self) -> pd.DataFrame:
        """`InformationCoefficients` of all runs."""
        return ic_matrix(self._predictions, *self._how)

    @cached_property
    def comparison(self) -> pd.DataFrame:
        """`Comparison`."""
        return compare_with_pipe(self.ic_matrix)

    @cached_property
    def inference(self) -> pd.DataFrame:
        """`Inference`; the most laborious by far."""
        return inference(self._predictions, *self._how)

    def table(self, name: str) -> pd.DataFrame:
        """The table of that name, one of `TOLERANCES`."""
        found: pd.DataFrame = getattr(self, name)
        return found

    def all(self) -> dict[str, pd.DataFrame]:
        """All tables by name."""
        return {name: self.table(name) for name in TOLERANCES}


def first_difference(claimed: pd.DataFrame, found: pd.DataFrame, tolerance: float = TOLERANCE) -> str:
    """Where two tables of figures differ first, in words; empty if nowhere.

    Texts and counts must be equal, numbers within `tolerance`, and what is undefined must be so in both.
    """
    if len(claimed) != len(found):
        return f"has {len(claimed)} rows, {len(found)} follow from the predictions"
    for number, (mine, theirs) in enumerate(
        zip(found.itertuples(index=False, name=None), claimed.itertuples(index=False, name=None), strict=True), start=1
    ):
        for name, value, told in zip(found.columns, mine, theirs, strict=True):
            if not _same(value, told, tolerance):
                named = " ".join(cell for cell in mine if isinstance(cell, str))
                return f"row {number} ({named}): {name} is said to be {told}, and is {value}"
    return ""


def _same(value: object, told: object, tolerance: float) -> bool:
    if not isinstance(value, float) or not isinstance(told, float):
        return bool(value == told)
    if math.isnan(value) or math.isnan(told):
        return math.isnan(value) and math.isnan(told)
    return math.isclose(value, told, rel_tol=tolerance, abs_tol=tolerance)
