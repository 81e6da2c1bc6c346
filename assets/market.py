"""Market assets: industry_bars, benchmark_bars, matured_alpha, alpha, label_bases. Rules live in the domain."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd

from assets.partitioned import Before, Presentation, table_asset
from assets.plots import histogram
from finevolve_pipeline.calendar import Clock, shanghai_now
from finevolve_pipeline.graph import Graph
from finevolve_pipeline.partitions import Partitions
from finevolve_pipeline.settings import Settings
from resources.market import bring, configured

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


def _bases(frame: pd.DataFrame) -> dict[str, Any]:
    no_open = frame[(frame["base"] == "open_next") & frame["close_from"].isna()]
    return {
        "missing_labels": {str(base): int(part["alpha"].isna().sum()) for base, part in frame.groupby("base")},
        "sessions_without_next_open": int(no_open["predicted_on"].nunique()),
    }


def fetching(settings: Settings, home: Path, table: str, clock: Clock) -> Before | None:
    """Fetches what a run's partitions of bars lack at the present; None where no source is configured.

    A broken source does not end the run: what has landed is made, and what is lacking stays out and is told.
    """
    if not configured(settings, table):
        return None

    def before(context: dg.AssetExecutionContext, keys: Sequence[str]) -> None:
        sessions = [dt.date.fromisoformat(key) for key in keys]
        brought = bring(settings, home, table, sessions, clock())
        for error in brought.broken:
            context.log.error(error)
        for warning in brought.warnings:
            context.log.warning(warning)
        counts = brought.landed
        context.log.info(f"{table}: {counts.added} bars landed, {counts.updated} updated, {counts.known} already known")

    return before


def market_assets(
    graph: Graph, partitions: Partitions, home: Path, clock: Clock = shanghai_now
) -> list[dg.AssetsDefinition]:
    """All market assets, upstream first. `home` is where bars land that are fetched, `clock` tells the present."""
    tables = graph.tables
    bars_back = partitions.bars_back()
    return [
        table_asset(
            tables["industry_bars"],
            Presentation(GROUP, "Daily bars of the 31 Shenwan level-1 indices: points, shares, yuan.", describe=_bars),
            partitions.market_sessions,
            [],
            fetching(graph.settings, home, "industry_bars", clock),
        ),
        table_asset(
            tables["benchmark_bars"],
            Presentation(GROUP, "Daily bars of CSI1000 (000852): points, shares, yuan.", describe=_bars),
            partitions.market_sessions,
            [],
            fetching(graph.settings, home, "benchmark_bars", clock),
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
        table_asset(
            tables["label_bases"],
            Presentation(
                GROUP,
                "The same from the close of t, the next open and the next close, for the evaluation's sensitivity.",
                describe=_bases,
            ),
            None,
            ["industry_bars", "benchmark_bars"],
        ),
    ]
