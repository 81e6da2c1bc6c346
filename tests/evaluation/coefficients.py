"""A small IC matrix by hand."""

from __future__ import annotations

import pandas as pd


def coefficients(horizons: tuple[int, ...] = (10, 20), **values: tuple[float, ...]) -> pd.DataFrame:
    """Per mechanism one coefficient at each horizon; tsIC is twice csIC, own cells lie 1 higher."""
    return pd.DataFrame(
        {
            "backbone": "rules",
            "mechanism": mechanism,
            "cells": cells,
            "stage": "overall",
            "horizon": horizon,
            "metric": metric,
            "method": "spearman",
            "value": value * (2 if metric == "tsIC" else 1) + (1 if cells == "own" else 0),
        }
        for mechanism, by_horizon in values.items()
        for cells in ("own", "common")
        for metric in ("tsIC", "csIC")
        for horizon, value in zip(horizons, by_horizon, strict=True)
    )
