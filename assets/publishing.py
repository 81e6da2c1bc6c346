"""Gathers stored tables into the report and the release. Layout and text are the domain's (`evaluation`)."""

from __future__ import annotations

import importlib.metadata
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from finevolve_pipeline import calendar, tables
from finevolve_pipeline.digests import digest_json, source_digest
from finevolve_pipeline.embedding import NoVectors
from finevolve_pipeline.errors import MissingPartitionError
from finevolve_pipeline.evaluation import utility
from finevolve_pipeline.evaluation.case import CaseStudy, SectorDay, build_case, choose_cases
from finevolve_pipeline.evaluation.news_statistics import (
    TAGGED_COLUMNS,
    all_facts,
    article_facts,
    news_counts,
    news_statistics,
)
from finevolve_pipeline.evaluation.release import export_release, news_between_cutoffs
from finevolve_pipeline.evaluation.report import build_report
from finevolve_pipeline.evaluation.report.inputs import PlantedTruth, ReportInputs
from finevolve_pipeline.evaluation.spending import usage_table
from finevolve_pipeline.files import write_atomically
from finevolve_pipeline.graph import SINGLE, Graph
from finevolve_pipeline.mechanisms.memrl import UtilityMechanism
from finevolve_pipeline.mechanisms.registry import code_digest, mechanism_class, mechanism_settings
from finevolve_pipeline.news.coverage_table import CoverageTable
from finevolve_pipeline.replay.runner import Parts
from resources.backbones import build_backbone
from resources.coverage_store import CoverageStore
from resources.table_store import TableStore


@dataclass(frozen=True)
class Published:
    """A folder that was written, how many files it holds, and the digest of its content."""

    path: str
    files: int
    digest: str


TRUTH = Path("world") / "truth.json"
"""Where a synthetic world leaves what it planted, below the root of all state."""

RECIPE = "report.recipe"
"""What the report was made of, beside its folder."""

_PREDICTION_COLUMNS = (
    "session",
    "experiment",
    "code",
    "horizon",
    "score",
    "invalid_reason",
    "prompt_digest",
    "articles",
    "articles_cut",
)

_MADE_BY = (
    "finevolve_pipeline.evaluation",
    "finevolve_pipeline.market.context",
    "finevolve_pipeline.news",
    "finevolve_pipeline.replay",
    "assets.publishing",
)
"""Whose code the report comes from, beside the mechanisms'."""


def news_coverage(graph: Graph, store: TableStore) -> CoverageTable:
    """By day and source what landed, and what is known of how complete it is."""
    return CoverageStore(store.home).table(graph.settings.news.sources, store.landing.news_counts())


def report_recipe(graph: Graph, store: TableStore, coverage: CoverageTable) -> str:
    """Digest of everything the report is made of."""
    settings = graph.settings
    names = ("alpha", "label_bases", "ic_matrix", "comparison", "inference", "sensitivity")
    tables_used = [(name, SINGLE) for name in names]
    tables_used += [("replay", experiment.key) for experiment in settings.all_experiments]
    for name in ("tagged_articles", "benchmark_news", "news_window", "matured_alpha"):
        tables_used += [(name, key) for key in graph.tables[name].partitions]
    inputs = {f"{name}/{key}": digest for name, key in tables_used if (digest := store.digest(name, key)) is not None}
    kinds = {name: mechanism_class(name, settings.mechanisms[name]) for name in settings.experiments.mechanisms}
    code = {"report": source_digest(*_MADE_BY), **{name: code_digest(kind) for name, kind in kinds.items()}}
    return digest_json({"code": code, "settings": settings.digest, "inputs": inputs, "coverage": coverage.document()})


def report_is_fresh(graph: Graph, store: TableStore) -> bool:
    """Whether there is a report, made from what is stored now."""
    if not (store.storage.root / "report").is_dir():
        return False
    try:
        recipe = (store.storage.root / RECIPE).read_text("utf-8")
    except FileNotFoundError:
        return False
    return recipe == report_recipe(graph, store, news_coverage(graph, store))


def stored_inference(store: TableStore) -> pd.DataFrame:
    """`Inference`; without rows where nothing has been tested yet."""
    return _stored_or_empty(store, "inference")


def _stored_or_empty(store: TableStore, name: str) -> pd.DataFrame:
    return tables.empty(tables.CONTRACTS[name]) if store.digest(name, SINGLE) is None else store.read(name, SINGLE)


def publish_report(graph: Graph, store: TableStore) -> Published:
    """Write `<root>/report` from all stored tables."""
    (store.storage.root / RECIPE).unlink(missing_ok=True)
    coverage = news_coverage(graph, store)
    recipe = report_recipe(graph, store, coverage)
    ran = [e.key for e in graph.settings.all_experiments if store.digest("replay", e.key) is not None]
    read = store.replays.read_predictions
    predictions = _all([read(key, columns=_PREDICTION_COLUMNS) for key in ran], tables.Predictions)
    retrievals = [store.replays.read_retrievals(key) for key in ran]
    ic_matrix, alpha = store.read("ic_matrix", SINGLE), store.read("alpha", SINGLE)
    facts = _article_facts(graph, store)
    told = graph.told_outcomes(store)
    chosen = choose_cases(graph.settings.evaluation.sector_days, predictions, told)
    written = build_report(
        store.storage.root / "report",
        ReportInputs(
            settings=graph.settings,
            ic_matrix=ic_matrix,
            comparison=store.read("comparison", SINGLE),
            inference=stored_inference(store),
            sensitivity=_stored_or_empty(store, "sensitivity"),
            predictions=predictions,
            retrievals=_all(retrievals, tables.Retrievals),
            alpha=alpha,
            news_counts=news_counts(facts),
            news_sessions=_news_sessions(graph, store),
            news_sample=_news_sample(graph, store),
            coverage=coverage,
            manifests=manifests(graph, store, ran),
            truth=_truth(store.storage.root / TRUTH),
            cases=_cases(graph, store, chosen.places, told),
            choice=chosen,
            news=news_statistics(facts),
            usage=_usage(store, ran),
            utilities=_utilities(graph, store),
        ),
    )
    write_atomically(store.storage.root / RECIPE, recipe.encode())
    return Published(store.storage.shown(written.folder), len(written.names), written.digest)


def _cases(graph: Graph, store: TableStore, places: Sequence[SectorDay], told: pd.DataFrame) -> tuple[CaseStudy, ...]:
    settings = graph.settings
    nothing_compared = NoVectors(settings.embedder.dimensions)
    parts = {
        experiment: Parts(
            settings,
            store,
            build_backbone(experiment.backbone, settings, store.home, experiment.key),
            nothing_compared,
        )
        for experiment in settings.all_experiments
    }
    return tuple(build_case(place, parts, store.replays, told) for place in places)


def _all(frames: Sequence[pd.DataFrame], contract: type[tables.Contract]) -> pd.DataFrame:
    filled = [frame for frame in frames if len(frame)]
    return pd.concat(filled, ignore_index=True) if filled else tables.empty(contract)


def _article_facts(graph: Graph, store: TableStore) -> pd.DataFrame:
    """Every article without its words; each file is read once, and of the selection only the ids."""
    days = [
        key for key in graph.tables["tagged_articles"].partitions if store.digest("benchmark_news", key) is not None
    ]
    return all_facts(
        article_facts(
            day,
            store.read_columns("tagged_articles", day, TAGGED_COLUMNS),
            store.read_columns("benchmark_news", day, ["article_id"]),
        )
        for day in days
    )


def _usage(store: TableStore, experiments: Sequence[str]) -> pd.DataFrame:
    """What each stored day took, as its manifest says."""
    return usage_table(
        {"experiment": key, "session": session.isoformat(), **store.replays.manifest(key, session).usage.model_dump()}
        for key in experiments
        for session in store.replays.sessions(key)
    )


def _utilities(graph: Graph, store: TableStore) -> pd.DataFrame:
    """The Q of all memories in the end, of runs that learn one as `UtilityMechanism` does."""
    settings, found = graph.settings, []
    for experiment in settings.all_experiments:
        section = settings.mechanisms.get(experiment.mechanism, {})
        kind = mechanism_class(experiment.mechanism, section)
        if issubclass(kind, UtilityMechanism):
            run = utility.UtilityRun(
                experiment.key,
                kind,
                mechanism_settings(experiment.mechanism, kind, section),
                settings.benchmark.horizons,
                settings.benchmark.codes,
            )
            found.append(utility.final_utilities(run, store.replays))
    filled = [frame for frame in found if len(frame)]
    return pd.concat(filled, ignore_index=True) if filled else utility.no_utilities()


def _news_sessions(graph: Graph, store: TableStore) -> pd.DataFrame:
    found = {key: store.stored("news_window", key) for key in graph.tables["news_window"].partitions}
    rows = [(key, stored.rows) for key, stored in found.items() if stored is not None]
    return pd.DataFrame(rows, columns=["session", "articles"])


def _news_sample(graph: Graph, store: TableStore) -> pd.DataFrame:
    """The last session's window."""
    for key in reversed(graph.tables["news_window"].partitions):
        if store.digest("news_window", key) is not None:
            return store.read("news_window", key)
    return tables.empty(tables.NewsWindow)


def manifests(graph: Graph, store: TableStore, experiments: list[str]) -> Mapping[str, Mapping[str, object]]:
    """Versions and digests, by heading; nothing that changes without the result changing."""
    packages = ("finevolve-pipeline", "dagster", "pandas", "pyarrow", "numpy", "scipy")
    return {
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in packages},
        },
        "dataset": {
            **identity(graph),
            **{
                name: store.digest(name, SINGLE) or "absent"
                for name in ("alpha", "ic_matrix", "comparison", "inference", "sensitivity")
            },
        },
        **{
            f"experiment {key}": {**(store.replays.identity(key) or {}), "head": store.digest("replay", key)}
            for key in experiments
        },
    }


def _truth(path: Path) -> PlantedTruth | None:
    return PlantedTruth.from_document(json.loads(path.read_bytes())) if path.exists() else None


def publish_release(graph: Graph, store: TableStore) -> Published:
    """Write `<root>/release` from all sessions whose news and bars are stored.

    Raises:
        MissingPartitionError: no session is complete yet.
    """
    sessions = [session.isoformat() for session in graph.sessions if _complete(graph, store, session.isoformat())]
    if not sessions:
        raise MissingPartitionError("release: no session has both news and bars yet; `finevolve run` makes them")

    def news_of_day(day: str) -> pd.DataFrame:
        before_the_span = day < graph.settings.news.first_day.isoformat()
        return tables.empty(tables.BenchmarkNews) if before_the_span else store.read("benchmark_news", day)

    written = export_release(
        store.storage.root / "release",
        sessions,
        lambda session: news_between_cutoffs(session, news_of_day),
        lambda session: store.read("industry_bars", session),
        identity(graph),
    )
    return Published(store.storage.shown(written.folder), len(written.names), written.digest)


def _complete(graph: Graph, store: TableStore, session: str) -> bool:
    day = calendar.parse_day(session)
    since = calendar.shift(day, -1)
    days = [d.isoformat() for d in calendar.days_between(since, day)[1:] if d >= graph.settings.news.first_day]
    return store.digest("industry_bars", session) is not None and all(
        store.digest("benchmark_news", d) is not None for d in days
    )


def identity(graph: Graph) -> dict[str, str]:
    """What made the dataset."""
    return {
        "finevolve-pipeline": importlib.metadata.version("finevolve-pipeline"),
        "settings": graph.settings.digest,
        "tagger": graph.settings.tagging.backbone,
        "sources": ", ".join(graph.sources),
    }
