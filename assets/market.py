"""Market assets: industry_bars, benchmark_bars, matured_alpha, alpha. Rules live in the domain."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pandas as pd

from assets.partitioned import Presentation, table_asset
from assets.plots import histogram
from finevolve_pipeline.graph import Graph
from finevolve_pipeline.partitions import Partitions

GROUP = "market"


def _bars(frame: pd.DataFrame) -> dict[str, Any]:
    return {"missing_closes": int(frame["close"].isna().sum())}


def _outcomes(frame: pd.DataFrame) -> dict[str, Any]:
    known = frame.dropna(subset=["alpha"])
    by_horizon = known.groupby("horizon")["alpha"].agg(["mean", "std", "size"])
    return {
        "missing_labels": int(frame["alpha"].isna().sum()),
        "alpha_by_horizon": {
            str(horizon): {"mean": float(row["mean"]), "std": float(row["std"]), "labels": int(row["size"])}
            for horizon, row in by_horizon.iterrows()
        },
    }


def _labels(frame: pd.DataFrame) -> dict[str, Any]:
    by_horizon = {f"{horizon} sessions": part["alpha"] for horizon, part in frame.groupby("horizon")}
    return {**_outcomes(frame), "distribution": histogram(by_horizon, "excess return over CSI1000, fraction")}


def market_assets(graph: Graph, partitions: Partitions) -> list[dg.AssetsDefinition]:
    """All market assets, upstream first."""
    tables = graph.tables
    bars_back = partitions.bars_back()
    return [
        table_asset(
            tables["industry_bars"],
            Presentation(GROUP, "Daily bars of the 31 Shenwan level-1 indices: points, shares, yuan.", describe=_bars),
            partitions.market_sessions,
            [],
        ),
        table_asset(
            tables["benchmark_bars"],
            Presentation(GROUP, "Daily bars of CSI1000 (000852): points, shares, yuan.", describe=_bars),
            partitions.market_sessions,
            [],
        ),
        table_asset(
            tables["matured_alpha"],
            Presentation(
                GROUP,
                "Outcomes that become known at a session's close, for predictions made 10, 20 and 40 sessions "
                "before. Causal by construction: a new session touches only its own partition.",
                describe=_outcomes,
            ),
            partitions.sessions,
            [
                dg.AssetDep("industry_bars", partition_mapping=bars_back),
                dg.AssetDep("benchmark_bars", partition_mapping=bars_back),
            ],
        ),
        table_asset(
            tables["alpha"],
            Presentation(
                GROUP,
                "Excess returns over CSI1000 by prediction day, for the evaluation only: no agent may read it.",
                describe=_labels,
            ),
            None,
            ["industry_bars", "benchmark_bars"],
        ),
    ]
