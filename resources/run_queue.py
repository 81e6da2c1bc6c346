"""Dagster's run queue: how many runs at once, in all, of a provider, of an experiment.

Dagster's pools are named by the asset, and one replay asset serves every backbone: whom a run will ask follows from its
partitions. So a run is tagged when it is queued, and the queue's limits are by tag. What a provider allows in requests
and tokens is kept by `resources.limits`; here is only how many runs share that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dagster import DagsterRun, Field, IntSource
from dagster._core.run_coordinator import QueuedRunCoordinator, SubmitRunContext
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    PARTITION_NAME_TAG,
)
from dagster._serdes import ConfigurableClassData

from finevolve_pipeline.settings import ModelSettings, Settings, load_settings

SOURCE_TAG = "finevolve/source"
PROVIDER_TAGS = "finevolve.provider/"
EXPERIMENT_TAGS = "finevolve.experiment/"
"""Prefixes: a run has a tag for each provider that it asks and each experiment that it replays, and counts against the
limits of all of them. (Dagster cuts a backfill of few sessions and many experiments into runs of one session.)"""


def experiments_of(run: DagsterRun, settings: Settings) -> tuple[str, ...]:
    """Experiments that a run replays, by the partitions it was started for; none if it does not replay."""
    if not _makes(run, "replay"):
        return ()
    keys = [one.key for one in settings.all_experiments]
    single = run.tags.get(PARTITION_NAME_TAG)
    ends = [
        (single or run.tags.get(tag, "")).partition("|")[2]
        for tag in (ASSET_PARTITION_RANGE_START_TAG, ASSET_PARTITION_RANGE_END_TAG)
    ]
    if not all(end in keys for end in ends):
        return tuple(keys)
    first, last = (keys.index(end) for end in ends)
    return tuple(keys[first : last + 1])


def queue_tags(run: DagsterRun, settings: Settings) -> dict[str, str]:
    """Tags by which the queue limits a run."""
    experiments = experiments_of(run, settings)
    backbones = {settings.experiment(key).backbone for key in experiments}
    if _makes(run, "tagged_articles"):
        backbones.add(settings.tagging.backbone)
    sections = (settings.backbones[name] for name in backbones)
    asked = {section.provider for section in sections if isinstance(section, ModelSettings)}
    return {
        **{f"{EXPERIMENT_TAGS}{key}": "replayed" for key in experiments},
        **{f"{PROVIDER_TAGS}{name}": "asked" for name in sorted(asked)},
    }


def _makes(run: DagsterRun, asset: str) -> bool:
    return any(key.path == [asset] for key in run.asset_selection or ())


class ProviderRunQueue(QueuedRunCoordinator):
    """`QueuedRunCoordinator` that knows whom a run asks.

    Args:
        runs_per_provider: runs at once that ask one provider.
        runs_per_source: runs at once that crawl one source.
    """

    def __init__(self, runs_per_provider: int, runs_per_source: int, **config: Any) -> None:
        settings = load_settings()
        limits = [
            {"key": SOURCE_TAG, "value": {"applyLimitPerUniqueValue": True}, "limit": runs_per_source},
            *({"key": f"{EXPERIMENT_TAGS}{one.key}", "limit": 1} for one in settings.all_experiments),
            *({"key": f"{PROVIDER_TAGS}{name}", "limit": runs_per_provider} for name in settings.providers),
        ]
        super().__init__(
            **{**config, "tag_concurrency_limits": [*limits, *(config.get("tag_concurrency_limits") or ())]}
        )

    @classmethod
    def config_type(cls) -> Any:
        """The queue's own, and the two limits."""
        own: Any = super().config_type()
        limits = {"runs_per_provider": Field(IntSource), "runs_per_source": Field(IntSource, default_value=1)}
        return {**own, **limits}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData, config_value: Mapping[str, Any]) -> ProviderRunQueue:
        """The queue that dagster.yaml asks for."""
        return cls(inst_data=inst_data, **config_value)

    def submit_run(self, context: SubmitRunContext) -> DagsterRun:
        """Tag and queue a run."""
        run = context.dagster_run
        tags = queue_tags(run, load_settings())
        if tags:
            self._instance.add_run_tags(run.run_id, tags)
        return super().submit_run(context)
