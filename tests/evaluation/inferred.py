"""`Inference` frames by hand: a few words a row, the rest filled in by rules that a reader can follow."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from finevolve_pipeline.tables import Inference, conform


@dataclass(frozen=True)
class Inferred:
    """One row. Its interval is the estimate +- `half`; p is a tenth of Holm's and Benjamini-Hochberg's half of it."""

    mechanism: str
    metric: str
    horizon: int
    estimate: float
    p_holm: float = math.nan
    detectable: float = math.nan
    quantity: str = "difference"
    backbone: str = "rules"
    stage: str = "overall"
    method: str = "spearman"
    half: float = 0.01


def level(mechanism: str, metric: str, horizon: int, estimate: float, p_holm: float, **others: object) -> Inferred:
    """A coefficient against zero."""
    return Inferred(mechanism, metric, horizon, estimate, p_holm, quantity="level", **others)


def inference(*rows: Inferred) -> pd.DataFrame:
    """The rows as the table `inference` holds them; a row without Holm's p was not tested."""
    return conform(pd.DataFrame([_row(one) for one in rows]), Inference, "inference")


def _row(one: Inferred) -> dict[str, object]:
    tested = not math.isnan(one.p_holm)
    return {
        **{name: getattr(one, name) for name in ("backbone", "mechanism", "stage", "metric", "method", "horizon")},
        "quantity": one.quantity,
        "estimate": one.estimate,
        "standard_error": 0.005 if tested else math.nan,
        "degrees": 8.0,
        "low": one.estimate - one.half if tested else math.nan,
        "high": one.estimate + one.half if tested else math.nan,
        "p": one.p_holm / 10,
        "p_holm": one.p_holm,
        "p_bh": one.p_holm / 2,
        **dict.fromkeys(("p_newey_west", "p_fixed_b", "p_hansen_hodrick", "p_naive"), math.nan),
        "minimum_detectable": one.detectable,
        "sessions": 299,
        "effective_sample": 29.9,
        "defined": 299,
        "undefined": 0,
        **dict.fromkeys(("icir", "positive_share", "hit_rate", "dispersion", "coverage"), math.nan),
        "seeds": 1,
        "seed_sd": math.nan,
    }
