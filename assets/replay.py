"""The replay asset: session x experiment, one run a range, one event for every durable day.

The chain and its store are the domain's (`finevolve_pipeline.replay`); here is only how Dagster starts it and
hears of each day. A self-dependent range cannot use an IO manager, so the asset yields no value.
"""

import datetime as dt
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import dagster as dg

from assets.partitioned import OWNER, column_schema, provenance_tags, reported, version_tags
from finevolve_pipeline import tables
from finevolve_pipeline.graph import Graph, code_version
from finevolve_pipeline.llm.ledger import Ledger
from finevolve_pipeline.partitions import DATE, EXPERIMENT, Partitions
from finevolve_pipeline.replay.runner import DayDone, Parts, Range, replay
from resources.backbones import build_backbone
from resources.embedders import build_embedder
from resources.observer import Observer
from resources.outside import Outside
from resources.table_store import TableStore

GROUP = "replay"
UPSTREAM = ("news_window", "matured_alpha")


def replay_code_version(graph: Graph) -> str:
    """Digest of code and settings that can change any experiment's days."""
    settings = graph.settings
    parts = settings.model_dump(
        mode="json",
        include={"benchmark", "scores", "backbones", "mechanisms"},
        exclude={"backbones": {"__all__": {"knowledge_cutoff"}}},  # the evaluation's alone
    )
    return code_version(
        "finevolve_pipeline.replay",
        "finevolve_pipeline.mechanisms",
        "finevolve_pipeline.llm",
        "finevolve_pipeline.news.block",
        settings={
            **parts,
            "prompts": settings.prompts.model_dump(mode="json", exclude={"article_tokens"}),  # those of tagging
            "embedder": settings.embedder.model_dump(mode="json"),
        },
    ).digest


def by_experiment(keys: Sequence[str]) -> dict[str, list[dt.date]]:
    """Sessions asked for each experiment, in order; experiments in the order of their first appearance."""
    asked: dict[str, list[dt.date]] = defaultdict(list)
    for key in keys:
        parts = (
            key.keys_by_dimension
            if isinstance(key, dg.MultiPartitionKey)
            else dict(zip((DATE, EXPERIMENT), key.split("|", 1), strict=True))
        )
        asked[parts[EXPERIMENT]].append(dt.date.fromisoformat(parts[DATE]))
    return {experiment: sorted(sessions) for experiment, sessions in asked.items()}


def replay_asset(graph: Graph, partitions: Partitions) -> dg.AssetsDefinition:
    """The replay of all experiments."""
    settings = graph.settings
    version = replay_code_version(graph)
    spec = dg.AssetSpec(
        "replay",
        deps=[
            *(dg.AssetDep(name, partition_mapping=partitions.to_date()) for name in UPSTREAM),
            dg.AssetDep("replay", partition_mapping=partitions.previous_session()),
        ],
        description=(
            "One experience mechanism on one backbone, day by day: outcomes mature, news is observed, experience is "
            "retrieved, scores are predicted and frozen, the trajectory is stored. Each day is one atomic commit; "
            "a run resumes where it stopped. `finevolve reset EXPERIMENT --from DAY` forgets days. The columns are "
            "those of the predictions."
        ),
        group_name=GROUP,
        kinds={"parquet", "python"},
        owners=[OWNER],
        code_version=version,
        partitions_def=partitions.sessions_by_experiment,
        metadata={"dagster/column_schema": column_schema(tables.Predictions)},
    )

    @dg.multi_asset(specs=[spec], name="replay", backfill_policy=dg.BackfillPolicy.single_run(), pool="replay")
    def run_replay(
        context: dg.AssetExecutionContext,
        store: dg.ResourceParam[TableStore],
        observer: dg.ResourceParam[Observer],
    ) -> Iterator[Any]:
        seen = provenance_tags(context.instance, [dg.AssetKey(name) for name in UPSTREAM])

        def log_day(day: DayDone) -> None:
            context.log_event(
                dg.AssetMaterialization(
                    asset_key="replay",
                    partition=dg.MultiPartitionKey(
                        {DATE: day.session.isoformat(), EXPERIMENT: day.manifest.experiment}
                    ),
                    metadata=day_metadata(day, Outside.of(settings, store.home).ledger),
                    # A day has seen the event of the day before it, a moment ago.
                    tags={
                        **seen,
                        **provenance_tags(context.instance, [spec.key]),
                        **version_tags(day.manifest.digest, version),
                    },
                )
            )
            observer.done("replay", f"{day.session}|{day.manifest.experiment}", day.reused)

        embedder = build_embedder(settings, store.home)
        ranges = []
        for key, sessions in by_experiment(context.partition_keys).items():
            experiment = settings.experiment(key)
            context.log.info(f"{key}: {len(sessions)} sessions, {sessions[0]} to {sessions[-1]}")
            backbone = build_backbone(experiment.backbone, settings, store.home, key)
            ranges.append(Range(experiment, sessions, Parts(settings, store, backbone, embedder)))
        replay(ranges, store.replays, log_day)
        yield reported("replay")

    return run_replay


def day_metadata(day: DayDone, ledger: Ledger) -> dict[str, Any]:
    """What the UI shows of a day. `usage` is what its answers took when they were given; `spent` is what this home
    has paid for them, less whatever came from the cache."""
    manifest = day.manifest
    return {
        "dagster/row_count": manifest.counts.predictions,
        "reused": day.reused,
        "digest": manifest.digest,
        **manifest.counts.model_dump(exclude={"predictions"}),
        "usage": manifest.usage.model_dump(),
        "failures": manifest.failures,
        "models": list(manifest.models),
        "spent": asdict(ledger.spent_on(manifest.experiment, manifest.session.isoformat())),
    }
