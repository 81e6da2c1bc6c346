"""A small finished benchmark for tests of bundles: three mechanisms on a world in memory, packed; and ways to forge it.

A forger has three grades of care: he repairs the checksums; he also binds rows to their days again; he also
recomputes every figure and digest that follows from what he changed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from finevolve_pipeline import calendar
from finevolve_pipeline.digests import digest_frame
from finevolve_pipeline.embedding import HashingEmbedder
from finevolve_pipeline.evaluation.bundle.archive import Archive, tar_bytes
from finevolve_pipeline.evaluation.bundle.checks import news_digest
from finevolve_pipeline.evaluation.bundle.content import CHECKSUMS, Content, Run, checksums, links_of
from finevolve_pipeline.evaluation.bundle.figures import Figures, labels_digest, labels_of
from finevolve_pipeline.evaluation.bundle.gather import Facts, answers_digest, gather_closes, gather_run, pack
from finevolve_pipeline.evaluation.bundle.own import OwnData
from finevolve_pipeline.evaluation.bundle.verify import Reach, Verification, verify_archive
from finevolve_pipeline.llm.rules.backbone import RulesBackbone
from finevolve_pipeline.replay.journal import ReplayStore
from finevolve_pipeline.replay.runner import Parts, run
from finevolve_pipeline.settings import Settings
from finevolve_pipeline.tables import Bars, conform
from finevolve_pipeline.universe import BENCHMARK, CODES

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "replay"))

from replay_world import MemoryReader, small_reader, small_settings

HORIZONS = (1, 2, 4)
MECHANISMS = ("pipe", "memrl", "reflexion")


def world_settings(mechanisms: Sequence[str] = MECHANISMS) -> Settings:
    return small_settings(
        last="2025-01-16",
        horizons=HORIZONS,
        evaluation={"min_sessions": 3, "bootstrap_draws": 100},
        experiments={"mechanisms": list(mechanisms), "backbones": ["rules"]},
    )


def world_reader(settings: Settings) -> MemoryReader:
    """News and outcomes as in `replay_world`, and the bars that its outcomes come from."""
    sessions = settings.benchmark.sessions
    reader = small_reader(sessions, HORIZONS, articles_a_day=12)
    first = calendar.shift(sessions[0], -max(HORIZONS))
    days = calendar.sessions_between(first, sessions[-1])
    steps = np.random.default_rng(7).normal(0, 0.01, (len(days), len(CODES) + 1))
    closes = 1000 * np.exp(np.cumsum(steps, axis=0)).round(6)
    for day, row in zip(days, closes, strict=True):
        for table, codes, own in (("industry_bars", CODES, row[:-1]), ("benchmark_bars", (BENCHMARK,), row[-1:])):
            bars = pd.DataFrame({"session": day.isoformat(), "code": list(codes), "close": own})
            frame = conform(bars.assign(open=own, high=own, low=own, volume=np.nan, amount=np.nan), Bars, table)
            reader.frames[table, day.isoformat()] = frame
            reader.replace(table, day.isoformat(), frame)
    return reader


def world_parts(settings: Settings, reader: MemoryReader) -> Parts:
    return Parts(settings, reader, RulesBackbone(), HashingEmbedder(256, (2, 3)))


def packed(folder: Path, mechanisms: Sequence[str] = MECHANISMS) -> tuple[Content, OwnData]:
    """A bundle of runs of the small world, and the data that it was made from."""
    settings = world_settings(mechanisms)
    reader = world_reader(settings)
    parts, store, sessions = world_parts(settings, reader), ReplayStore(folder), settings.benchmark.sessions
    runs = []
    for experiment in settings.all_experiments:
        run(experiment, sessions, parts, store, lambda _: None)
        runs.append(gather_run(experiment, parts.mechanism_kind(experiment), store, sessions))
    news = pd.DataFrame({"day": ["2025-01-02"], "source": ["cls"], "articles": [12], "selected": [9]})
    facts = Facts(
        submitter="a submitter",
        made_by={"finevolve-pipeline": "0.1.0"},
        tagger="rules",
        cache={"rules": answers_digest(())},
        closes=gather_closes(reader, sessions, HORIZONS),
        news=news,
    )
    return pack(settings, runs, facts), OwnData(reader, lambda _: parts)


def sealed(members: dict[str, bytes]) -> dict[str, bytes]:
    """The members with right checksums: the first grade of care."""
    rest = {name: data for name, data in members.items() if name != CHECKSUMS}
    return {**rest, CHECKSUMS: checksums(rest)}


def bound(content: Content) -> Content:
    """The content with rows bound to their days, and heads that fit: the second grade."""
    runs = tuple(replace(run, links=links_of(run.days, run.rows)) for run in content.runs)
    headers = tuple(
        told.model_copy(update={"head": run.head, "link": run.links[-1] if run.links else ""})
        for told, run in zip(content.header.runs, runs, strict=True)
    )
    return replace(content, runs=runs, header=content.header.model_copy(update={"runs": headers}))


def recomputed(content: Content) -> Content:
    """The content with all figures and digests that follow from it: the third grade."""
    labels = labels_of(content.header, content.closes)
    told = content.header.dataset.model_copy(
        update={"labels": labels_digest(labels), "news": news_digest(content.runs[0].days)}
    )
    header = content.header.model_copy(update={"dataset": told})
    return bound(replace(content, header=header, figures=Figures(header, content.runs, labels).all()))


def resealed_days(run: Run) -> Run:
    """The run with manifests that have their own digests and parents."""
    days, parent = [], ""
    for day in run.days:
        day = day.model_copy(update={"parent": parent}).sealed()
        days.append(day)
        parent = day.digest
    return replace(run, days=tuple(days))


def with_run(content: Content, number: int, change: Callable[[Run], Run]) -> Content:
    """The content with one run changed."""
    runs = list(content.runs)
    runs[number] = change(runs[number])
    return replace(content, runs=tuple(runs))


def with_rows(content: Content, number: int, table: str, change: Callable[[pd.DataFrame], pd.DataFrame]) -> Content:
    """The content with one table of one run changed."""

    def changed(run: Run) -> Run:
        frame = change(run.rows[table].copy()).reset_index(drop=True)
        return replace(run, rows={**run.rows, table: frame})

    return with_run(content, number, changed)


def archive_of(members: dict[str, bytes]) -> Archive:
    return Archive(members, digest_frame(pd.DataFrame({"tar": [tar_bytes(members).hex()[:64]]})))


def verified(members: dict[str, bytes], own: OwnData | None = None, reach: Reach = "bundle") -> Verification:
    """What verifying these members finds."""
    return verify_archive("forged", archive_of(members), own, reach)
