"""The definitions under packaged settings: the asset graph as a snapshot, column schemas, schedules."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import dagster as dg
import pytest

from assets.automation import EVALUATION
from assets.planning import RANGE_END
from finevolve_pipeline import tables
from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.definitions import build_defs
from finevolve_pipeline.replay.journal import ReplayStore
from finevolve_pipeline.settings import load_settings
from resources.table_store import Stored, TableStore

SNAPSHOT = """\
benchmark_bars [market; pandas, parquet]
  partitions: 2024-10-08 .. 2026-06-30 (420)
  reads: -
  checks: no_revised_closes
industry_bars [market; pandas, parquet]
  partitions: 2024-10-08 .. 2026-06-30 (420)
  reads: -
  checks: no_revised_closes, plausible_moves
raw_news [news; pandas, parquet]
  partitions: date: 2024-01-01 .. 2026-06-01 (883) x source: yuncaijing .. cls (9)
  reads: -
  checks: complete, fresh, not_dropped_to_zero
alpha [market; pandas, parquet]
  partitions: one
  reads: benchmark_bars, industry_bars
  checks: agrees_with_matured_alpha!
articles [news; pandas, parquet]
  partitions: 2024-01-01 .. 2026-06-01 (883)
  reads: articles, raw_news
label_bases [market; pandas, parquet]
  partitions: one
  reads: benchmark_bars, industry_bars
matured_alpha [market; pandas, parquet]
  partitions: 2025-01-02 .. 2026-03-31 (299)
  reads: benchmark_bars, industry_bars
  checks: complete_and_known!
tagged_articles [news; pandas, parquet]
  partitions: 2024-01-01 .. 2026-06-01 (883)
  reads: articles
benchmark_news [news; pandas, parquet]
  partitions: 2024-01-01 .. 2026-06-01 (883)
  reads: tagged_articles
benchmark_release [evaluation; csv, parquet]
  partitions: one
  reads: benchmark_news, industry_bars
news_window [news; pandas, parquet]
  partitions: 2025-01-02 .. 2026-03-31 (299)
  reads: benchmark_news
  checks: has_news, observable_at_cutoff!
replay [replay; parquet, python]
  partitions: date: 2025-01-02 .. 2026-03-31 (299) x experiment: pipe-rules .. reasoningbank-rules (6)
  reads: matured_alpha, news_window, replay
ic_by_experiment [evaluation; pandas, parquet]
  partitions: pipe-rules .. reasoningbank-rules (6)
  reads: alpha, replay
  checks: replay_verifies!
ic_matrix [evaluation; pandas, parquet]
  partitions: one
  reads: alpha, ic_by_experiment, replay
  checks: defined
inference [evaluation; pandas, parquet]
  partitions: one
  reads: alpha, ic_by_experiment, replay
sensitivity [evaluation; pandas, parquet]
  partitions: one
  reads: ic_by_experiment, label_bases, replay
comparison [evaluation; pandas, parquet]
  partitions: one
  reads: ic_matrix
report [evaluation; html]
  partitions: one
  reads: alpha, benchmark_news, comparison, ic_matrix, inference, label_bases, news_window, replay, sensitivity, \
tagged_articles
"""
"""An exclamation mark: the check stops the graph."""


@pytest.fixture(scope="module")
def definitions(tmp_path_factory: pytest.TempPathFactory) -> dg.Definitions:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("FINEVOLVE_CONFIG", raising=False)
        patch.chdir(tmp_path_factory.mktemp("nowhere"))
        return build_defs(load_settings(), tmp_path_factory.mktemp("home"))


def partitions_of(definition: dg.PartitionsDefinition[str] | None) -> str:
    """First and last key and how many, a dimension at a time."""
    if definition is None:
        return "one"
    if isinstance(definition, dg.MultiPartitionsDefinition):
        parts = [f"{item.name}: {partitions_of(item.partitions_def)}" for item in definition.partitions_defs]
        return " x ".join(parts)
    keys = definition.get_partition_keys()
    return f"{keys[0]} .. {keys[-1]} ({len(keys)})"


def described(definitions: dg.Definitions) -> str:
    graph = definitions.resolve_asset_graph()
    lines = []
    for key in graph.toposorted_asset_keys:
        node = graph.get(key)
        specs = sorted((graph.get_check_spec(check) for check in node.check_keys), key=lambda spec: spec.name)
        checks = ", ".join(f"{spec.name}{'!' if spec.blocking else ''}" for spec in specs)
        lines += [
            f"{key.to_user_string()} [{node.group_name}; {', '.join(sorted(node.kinds))}]",
            f"  partitions: {partitions_of(node.partitions_def)}",
            f"  reads: {', '.join(sorted(parent.to_user_string() for parent in node.parent_keys)) or '-'}",
            *([f"  checks: {checks}"] if checks else []),
        ]
    return "\n".join(lines) + "\n"


def test_the_asset_graph_is_the_one_we_know(definitions: dg.Definitions) -> None:
    assert described(definitions) == SNAPSHOT


def test_every_asset_has_an_owner_and_a_description(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    nodes = [graph.get(key) for key in graph.toposorted_asset_keys]
    assert [node.key.to_user_string() for node in nodes if not (node.description and node.owners)] == []


def test_what_holds_one_table_declares_its_columns(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    contracts = {**tables.CONTRACTS, "replay": tables.Predictions}
    others = {"report", "benchmark_release"}
    assert {key.to_user_string() for key in graph.get_all_asset_keys()} == {*contracts, *others}
    for name, contract in contracts.items():
        schema = graph.get(dg.AssetKey(name)).metadata["dagster/column_schema"]
        columns = schema.schema.columns if isinstance(schema, dg.TableSchemaMetadataValue) else schema.columns
        assert [column.name for column in columns] == list(contract.to_schema().columns)
        assert all(column.description for column in columns)


class Whole(TableStore):
    """A store in which everything is there that a session needs to be replayed as the next one."""

    def __init__(self, session: dt.date) -> None:
        super().__init__(Path("nowhere"))
        self.replays = ReplayedUntil(session)

    def stored(self, table: str, partition: str) -> Stored:
        return Stored("digest", "recipe", 1, 1)

    def digest(self, table: str, partition: str) -> str:
        return "digest"


class ReplayedUntil(ReplayStore):
    """All sessions before one are stored."""

    def __init__(self, session: dt.date) -> None:
        super().__init__(Path("nowhere"))
        self.session = session

    def has(self, experiment: str, session: dt.date) -> bool:
        return session < self.session


def tick(definitions: dg.Definitions, name: str, local: str) -> list[str | None]:
    """Partitions that a schedule asks for at a time in Shanghai, in order, where nothing hinders it."""
    now = dt.datetime.fromisoformat(local).replace(tzinfo=SHANGHAI)
    schedule = definitions.resolve_schedule_def(name)
    context = dg.build_schedule_context(
        scheduled_execution_time=now,
        repository_def=definitions.get_repository_def(),
        resources={"store": Whole(now.date() - dt.timedelta(days=1))},
    )
    requests = schedule.evaluate_tick(context).run_requests or []
    job = definitions.resolve_job_def(schedule.job_name)
    keys = [request.partition_key or request.tags.get(RANGE_END) for request in requests]
    if job.partitions_def is not None:
        assert all(key is not None and job.partitions_def.has_partition_key(key) for key in keys)
    assert len({request.run_key for request in requests}) == len(requests)
    return keys


EXPERIMENTS = [f"{name}-rules" for name in ("pipe", "mem0", "memrl", "reflexion", "expel", "reasoningbank")]
FRIDAY = "2025-05-30"
"""The last session before the Dragon Boat festival: closed until Tuesday, 3 June."""


@pytest.mark.parametrize(
    ("name", "at", "asked"),
    [
        ("daily_news", "00:50", [FRIDAY]),
        ("daily_session_inputs", "02:00", [FRIDAY]),
        ("daily_replay", "02:30", [f"{FRIDAY}|{key}" for key in EXPERIMENTS]),
    ],
)
def test_in_the_night_after_a_session_its_partitions_are_asked_for(
    definitions: dg.Definitions, name: str, at: str, asked: list[str]
) -> None:
    assert tick(definitions, name, f"2025-05-31 {at}") == asked


def test_news_is_closed_source_by_source(definitions: dg.Definitions) -> None:
    sources = load_settings().news.sources
    assert tick(definitions, "daily_raw_news", "2025-05-31 00:10") == [f"{FRIDAY}|{source}" for source in sources]


@pytest.mark.parametrize(
    ("name", "night", "asked"),
    [
        ("daily_news", "2025-06-02", ["2025-06-01"]),
        ("daily_session_inputs", "2025-06-02", []),
        ("daily_replay", "2025-06-02", []),
    ],
)
def test_a_closed_day_has_news_and_nothing_else(
    definitions: dg.Definitions, name: str, night: str, asked: list[str]
) -> None:
    assert tick(definitions, name, f"{night} 02:30") == asked


@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("daily_raw_news", "2026-06-01"),
        ("daily_news", "2026-06-01"),
        ("daily_session_inputs", "2026-03-31"),
        ("daily_replay", "2026-03-31"),
    ],
)
def test_after_the_last_day_of_the_settings_nothing_is_asked_for(
    definitions: dg.Definitions, name: str, last: str
) -> None:
    end = dt.date.fromisoformat(last)
    assert tick(definitions, name, f"{end + dt.timedelta(days=1)} 03:00")
    assert tick(definitions, name, f"{end + dt.timedelta(days=2)} 03:00") == []


@pytest.mark.parametrize(
    ("day", "asked"),
    [(FRIDAY, [FRIDAY]), ("2025-06-01", []), ("2025-06-02", []), ("2026-06-30", ["2026-06-30"]), ("2026-07-01", [])],
    ids=["session", "Sunday", "holiday", "last", "after the last"],
)
def test_bars_are_asked_for_in_the_evening_of_the_session_itself(
    definitions: dg.Definitions, day: str, asked: list[str]
) -> None:
    assert tick(definitions, "daily_bars", f"{day} 18:10") == asked


def test_what_rests_on_all_of_the_history_has_a_condition_and_a_chain_has_none(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    conditioned = {
        key.to_user_string() for key in graph.get_all_asset_keys() if graph.get(key).automation_condition is not None
    }
    assert conditioned == {"alpha", "label_bases", *EVALUATION}
    assert all(graph.get(dg.AssetKey(name)).partitions_def is None for name in conditioned)


def test_schedules_run_upstream_first_in_shanghai_and_start_switched_off(definitions: dg.Definitions) -> None:
    schedules = [s for s in definitions.schedules or () if isinstance(s, dg.ScheduleDefinition)]
    assert {schedule.execution_timezone for schedule in schedules} == {"Asia/Shanghai"}
    assert {schedule.default_status for schedule in schedules} == {dg.DefaultScheduleStatus.STOPPED}
    crons = {schedule.name: str(schedule.cron_schedule) for schedule in schedules}
    assert crons.pop("crawl_today") == "*/30 * * * *"
    assert crons["daily_raw_news"] == "10 0 * * *"
    times = {name: (cron.split()[4], int(cron.split()[1]), int(cron.split()[0])) for name, cron in crons.items()}
    # Bars of a session come in the evening before the night that uses them.
    assert times.pop("daily_bars") == ("*", 18, 10)
    order = ["daily_raw_news", "daily_news", "daily_session_inputs", "daily_replay"]
    assert set(times) == set(order)
    assert [times[name] for name in order] == sorted(times[name] for name in order)
