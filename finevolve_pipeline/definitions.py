"""The Dagster code location: `build_defs` assembles fresh definitions, `defs` is the one that Dagster loads."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import dagster as dg

from assets.alerting import alert_sensors
from assets.automation import automation, with_conditions, with_freshness
from assets.checks import checks
from assets.evaluation import evaluation_assets
from assets.market import market_assets
from assets.news import news_assets
from assets.replay import replay_asset
from finevolve_pipeline.calendar import Clock, shanghai_now
from finevolve_pipeline.graph import Graph
from finevolve_pipeline.partitions import Partitions
from finevolve_pipeline.settings import Settings, finevolve_home, load_settings
from resources.backbones import build_backbone
from resources.landing import registered_sources
from resources.observer import Observer, Silent
from resources.table_store import TableStore


def build_graph(settings: Settings, home: Path) -> Graph:
    """The dataset's graph: sources are those of the settings and those that imports into `home` named."""
    extra = (source for source in registered_sources(home) if source not in settings.news.sources)
    return Graph(settings, (*settings.news.sources, *extra), build_backbone(settings.tagging.backbone, settings, home))


def build_defs(
    settings: Settings | None = None,
    home: Path | None = None,
    observer: Observer | None = None,
    clock: Clock = shanghai_now,
) -> dg.Definitions:
    """Fresh definitions under the given settings (default: those in force) and home folder.

    `observer` hears of every finished partition; by default nobody does. `clock` tells the present.
    """
    # Partition mappings over two dimensions are "beta" in Dagster: measured, pinned, and not the user's concern.
    warnings.simplefilter("ignore", dg.BetaWarning)
    warnings.simplefilter("ignore", dg.PreviewWarning)
    settings = settings or load_settings()
    home = home or finevolve_home()
    graph = build_graph(settings, home)
    partitions = Partitions.of(graph)
    store = TableStore(home)
    fetched = [*news_assets(graph, partitions, home, clock), *market_assets(graph, partitions, home, clock)]
    automatic = automation(graph, clock)
    return dg.Definitions(
        assets=[
            *with_conditions(with_freshness(fetched, settings)),
            replay_asset(graph, partitions),
            *with_conditions(evaluation_assets(graph, partitions)),
        ],
        asset_checks=checks(graph, clock),
        jobs=automatic.jobs,
        schedules=automatic.schedules,
        sensors=[*automatic.sensors, *alert_sensors(graph, os.environ, clock)],
        resources={"store": store, "observer": observer or Silent()},
        executor=dg.in_process_executor,
    )


@dg.definitions
def defs() -> dg.Definitions:
    """What Dagster loads: definitions under the settings in force."""
    return build_defs()
