"""Whom a run asks is known when it is queued, and the queue's limits are by that."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.run_coordinator import SubmitRunContext
from dagster._core.storage.dagster_run import DagsterRunStatus
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon

from finevolve_pipeline.settings import Settings, load_settings
from resources.run_queue import EXPERIMENT_TAGS, PROVIDER_TAGS, ProviderRunQueue, experiments_of, queue_tags

FIRST, LAST = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
SETTINGS = """\
[experiments]
mechanisms = ["pipe", "mem0", "memrl"]
backbones = ["deepseek-v4-flash", "rules", "qwen3.6-35b-a3b"]
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    path = tmp_path / "finevolve.toml"
    path.write_text(SETTINGS)
    monkeypatch.setenv("FINEVOLVE_CONFIG", str(path))
    return load_settings()


def run_of(asset: str, **tags: str) -> dg.DagsterRun:
    names = {"first": FIRST, "last": LAST, "single": "dagster/partition"}
    given = {names[name]: value for name, value in tags.items()}
    location = RegisteredCodeLocationOrigin("finevolve")
    return dg.DagsterRun(
        job_name="job",
        tags=given,
        asset_selection=frozenset({dg.AssetKey(asset)}),
        remote_job_origin=RemoteJobOrigin(RemoteRepositoryOrigin(location, "all"), "job"),
    )


def test_a_run_of_one_experiment_is_tagged_with_it_and_its_provider(settings: Settings) -> None:
    run = run_of("replay", first="2025-01-02|mem0-deepseek-v4-flash", last="2025-03-31|mem0-deepseek-v4-flash")
    assert queue_tags(run, settings) == {
        f"{EXPERIMENT_TAGS}mem0-deepseek-v4-flash": "replayed",
        f"{PROVIDER_TAGS}deepseek": "asked",
    }


def test_a_run_of_one_partition_is_too(settings: Settings) -> None:
    run = run_of("replay", single="2025-01-02|pipe-qwen3.6-35b-a3b")
    assert queue_tags(run, settings) == {
        f"{EXPERIMENT_TAGS}pipe-qwen3.6-35b-a3b": "replayed",
        f"{PROVIDER_TAGS}local": "asked",
    }


def test_a_run_of_several_experiments_counts_against_all_their_providers(settings: Settings) -> None:
    run = run_of("replay", first="2025-01-02|mem0-deepseek-v4-flash", last="2025-01-03|pipe-qwen3.6-35b-a3b")
    assert experiments_of(run, settings) == (
        "mem0-deepseek-v4-flash",
        "memrl-deepseek-v4-flash",
        "pipe-rules",
        "mem0-rules",
        "memrl-rules",
        "pipe-qwen3.6-35b-a3b",
    )
    assert {tag for tag in queue_tags(run, settings) if tag.startswith(PROVIDER_TAGS)} == {
        f"{PROVIDER_TAGS}deepseek",
        f"{PROVIDER_TAGS}local",
    }


def test_rules_ask_nobody(settings: Settings) -> None:
    run = run_of("replay", first="2025-01-02|mem0-rules", last="2025-01-03|mem0-rules")
    assert queue_tags(run, settings) == {f"{EXPERIMENT_TAGS}mem0-rules": "replayed"}


def test_other_assets_are_not_tagged_even_if_their_partitions_look_alike(settings: Settings) -> None:
    assert queue_tags(run_of("raw_news", first="2025-01-02|mem0-rules", last="2025-01-02|mem0-rules"), settings) == {}


def test_tagging_news_asks_the_providers_of_its_backbone(settings: Settings) -> None:
    asking = settings.model_copy(
        update={"tagging": settings.tagging.model_copy(update={"backbone": "qwen3.6-35b-a3b"})}
    )
    assert queue_tags(run_of("tagged_articles", first="2025-01-02", last="2025-01-03"), asking) == {
        f"{PROVIDER_TAGS}local": "asked"
    }


@pytest.mark.parametrize(
    ("experiments", "started"),
    [
        (("pipe-deepseek-v4-flash", "mem0-deepseek-v4-flash", "memrl-deepseek-v4-flash", "pipe-rules"), (0, 1, 3)),
        (("pipe-rules", "pipe-rules", "mem0-rules"), (0, 2)),
    ],
    ids=["two runs of a provider", "one run of an experiment"],
)
def test_the_queue_starts_no_more_runs_than_may_be_at_once(
    settings: Settings, tmp_path: Path, experiments: tuple[str, ...], started: tuple[int, ...]
) -> None:
    overrides = {
        "run_coordinator": {
            "module": "resources.run_queue",
            "class": "ProviderRunQueue",
            "config": {"max_concurrent_runs": 10, "runs_per_provider": 2},
        }
    }
    with dg.DagsterInstance.local_temp(str(tmp_path), overrides=overrides) as instance:
        queue = instance.run_coordinator
        assert isinstance(queue, ProviderRunQueue)
        queued = []
        for experiment in experiments:
            run = run_of("replay", first=f"2025-01-02|{experiment}", last=f"2025-01-03|{experiment}")
            instance.add_run(run)
            queued.append(queue.submit_run(SubmitRunContext(run, workspace=None)))  # type: ignore[arg-type]
        assert [run.status for run in queued] == [DagsterRunStatus.QUEUED] * len(experiments)
        daemon = QueuedRunCoordinatorDaemon(interval_seconds=1)
        chosen = daemon._get_runs_to_dequeue(instance, instance.get_concurrency_config(), fixed_iteration_time=None)
        assert {run.run_id for run in chosen} == {queued[i].run_id for i in started}
