"""A home, its graph and its Dagster instance: materialise, look at events, ask what is stale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleCause, StaleStatus
from dagster._core.loader import LoadingContextForTest
from small_world import SESSIONS

from assets.planning import EVALUATION_LAYERS, INPUT_LAYERS, Layer, Materialiser, Wanted, freshness, want
from finevolve_pipeline.cli.dagster_home import dagster_home
from finevolve_pipeline.definitions import build_defs, build_graph
from finevolve_pipeline.graph import SINGLE, Graph
from finevolve_pipeline.settings import load_settings
from resources.table_store import TableStore

DAYS = tuple(session.isoformat() for session in SESSIONS)


@dataclass(frozen=True)
class AssetWorld:
    """Materialises in this process and remembers nothing but the home and the instance."""

    home: Path
    config: Path
    graph: Graph
    definitions: dg.Definitions
    instance: dg.DagsterInstance

    @staticmethod
    @contextmanager
    def at(home: Path, config: Path) -> Iterator[AssetWorld]:
        """The world of a home under a settings file."""
        settings = load_settings(config)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DAGSTER_HOME", str(dagster_home(home)))
            instance = dg.DagsterInstance.get()
        with instance:
            yield AssetWorld(home, config, build_graph(settings, home), build_defs(settings, home), instance)

    @property
    def store(self) -> TableStore:
        """Its tables."""
        return TableStore(self.home)

    @property
    def wanted(self) -> Wanted:
        """All partitions there can be."""
        return want(self.graph, self.store)

    def materialise(self, assets: Sequence[str], first: str | None = None, last: str | None = None) -> None:
        """One run over a range (`last` None: one partition; both None: no partitions)."""
        Materialiser(self.definitions, self.instance).materialise(assets, first, last or first)

    def build(self) -> None:
        """Materialise every table once, upstream first."""
        for layer in INPUT_LAYERS:
            self._layer(layer)
        for experiment in self.graph.settings.all_experiments:
            self.materialise(["replay"], f"{DAYS[0]}|{experiment.key}", f"{DAYS[-1]}|{experiment.key}")
        for layer in EVALUATION_LAYERS:
            self._layer(layer)

    def _layer(self, layer: Layer) -> None:
        due = [freshness(self.graph, self.store, self.wanted, name).due for name in layer.tables]
        keys = sorted(set().union(*due))
        for first, last in layer.split(keys) if keys else ():
            self.materialise(layer.tables, *(() if first == SINGLE else (first, last)))

    def events(self, asset: str) -> list[dg.AssetMaterialization]:
        """Materialisation events of an asset, oldest first."""
        records = self.instance.fetch_materializations(dg.AssetKey(asset), limit=10_000, ascending=True).records
        return [record.asset_materialization for record in records if record.asset_materialization is not None]

    def versions(self, asset: str) -> list[tuple[str | None, str]]:
        """Partition and data version of all events, oldest first."""
        return [(event.partition, (event.tags or {})["dagster/data_version"]) for event in self.events(asset)]

    def keys(self, asset: str) -> Sequence[str | None]:
        """All partitions of an asset that there can be; None for one without partitions."""
        if asset == "replay":
            return [f"{day}|{experiment}" for day in DAYS for experiment in self.wanted.experiments]
        keys = self.wanted.partitions[asset]
        return [None] if keys == (SINGLE,) else keys

    def stale(self, asset: str, keys: Sequence[str | None]) -> dict[str | None, list[tuple[str, str]]]:
        """Partitions that Dagster does not call fresh: reason, and asset with partition that it comes from."""
        graph = self.definitions.resolve_asset_graph()
        resolver = CachingStaleStatusResolver(self.instance, graph, LoadingContextForTest(self.instance))
        key = dg.AssetKey(asset)
        return {
            partition: [(cause.reason, _named(cause)) for cause in resolver.get_stale_causes(key, partition)]
            for partition in keys
            if resolver.get_status(key, partition) != StaleStatus.FRESH
        }


def _named(cause: StaleCause) -> str:
    if cause.dependency is None:
        return cause.asset_key.to_user_string()
    return f"{cause.dependency.asset_key.to_user_string()} {cause.dependency.partition_key}"
