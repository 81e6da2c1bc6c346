"""Packing: stored runs as a bundle's tables, with everything left out that a model wrote.

A run that cannot be shown whole is refused, and the message says what is missing and which command makes it.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from finevolve_pipeline import calendar
from finevolve_pipeline.errors import FinEvolveError, MissingPartitionError
from finevolve_pipeline.evaluation.bundle.checks import news_digest
from finevolve_pipeline.evaluation.bundle.content import (
    CLOSE_SHEET,
    FORMAT,
    LICENCE,
    NEWS_SHEET,
    RUN_SHEETS,
    VERSION,
    Answers,
    Content,
    Dataset,
    Header,
    Run,
    RunHeader,
    links_of,
)
from finevolve_pipeline.evaluation.bundle.figures import (
    CODE,
    LABEL_BASE,
    Figures,
    figures_code,
    labels_digest,
    labels_of,
)
from finevolve_pipeline.evaluation.bundle.sheets import SheetError
from finevolve_pipeline.evaluation.news_statistics import article_facts, news_counts
from finevolve_pipeline.graph import TableReader
from finevolve_pipeline.llm.cache import AnswerEntry
from finevolve_pipeline.mechanisms.base import Mechanism
from finevolve_pipeline.replay.journal import APPEND, MATURE, Manifest, ReplayStore
from finevolve_pipeline.settings import Experiment, Settings

_INVALID = (
    ("score is missing", "missing"),
    ("is no number", "no_number"),
    ("is outside [-1, 1]", "out_of_range"),
    ("stands there twice", "twice"),
    ("content filter", "refused"),
)
_MACHINE = re.compile(r"(^|[\s\"'=(])(/|~/|[A-Za-z]:[\\/]|\\\\)[\w.]|file:|/(home|Users|root|tmp|mnt)/")
"""What paths of a machine look like."""


BARS = ("industry_bars", "benchmark_bars")
"""Tables that hold closes, by session."""


class RunRefusedError(FinEvolveError):
    """A run that does not go into a bundle, since it would not be believed."""

    exit_code = 1


@dataclass(frozen=True)
class Facts:
    """What a bundle says beside its runs.

    Attributes:
        submitter: who packs it, as they want to be named; may be empty.
        made_by: versions, by name.
        tagger: who tagged the articles.
        cache: answers that the runs took, by backbone.
        closes: session, code, close of all indices.
        news: day, source, articles, selected.
    """

    submitter: str
    made_by: Mapping[str, str]
    tagger: str
    cache: Mapping[str, Answers]
    closes: pd.DataFrame
    news: pd.DataFrame


def invalid_kind(reason: str) -> str:
    """Why a score is invalid, without the words that a model may have written; empty for a valid one."""
    if not reason:
        return ""
    return next((kind for words, kind in _INVALID if words in reason), "unreadable")


def answers_digest(entries: Iterable[AnswerEntry]) -> Answers:
    """Count and digest of cached answers, by keys and contents, in the order of keys."""
    whole, number = hashlib.sha256(), 0
    for entry in entries:
        whole.update(entry.key + hashlib.sha256(entry.document).digest())
        number += 1
    return Answers(answers=number, digest=whole.hexdigest())


def require_complete(experiment: Experiment, store: ReplayStore, sessions: Sequence[dt.date]) -> None:
    """Raises `MissingPartitionError` if a session of the window is not stored."""
    missing = [session for session in sessions if not store.has(experiment.key, session)]
    if missing:
        raise MissingPartitionError(
            f"bundle {experiment.key}: {len(missing)} of {len(sessions)} sessions are not stored, {missing[0]} to "
            f"{missing[-1]}; `finevolve run {experiment.options}` makes them"
        )


def gather_run(experiment: Experiment, kind: type[Mechanism], store: ReplayStore, sessions: Sequence[dt.date]) -> Run:
    """A stored run as it stands in a bundle.

    Raises:
        MissingPartitionError: a session is not stored.
        ReplayMismatchError: a stored day is damaged.
        FinEvolveError: a memory has an id that no bundle can hold.
    """
    require_complete(experiment, store, sessions)
    key = experiment.key
    days = tuple(store.manifest(key, session) for session in sessions)
    for day in days:
        store.verify_files(day)
    rows = {
        "predictions": _predictions(store.read_predictions(key, sessions)),
        "retrievals": store.read_retrievals(key, sessions),
        **_lessons(experiment, kind, store, sessions),
    }
    try:
        held = {
            name: RUN_SHEETS[name].read(RUN_SHEETS[name].write(_sorted(name, frame))) for name, frame in rows.items()
        }
    except SheetError as other:
        raise FinEvolveError(f"bundle {key}: {other}; a bundle holds no such text") from None
    return Run(experiment, store.identity(key) or {}, days, links_of(days, held), held)


def require_label_base(settings: Settings) -> None:
    """Raises `FinEvolveError` if the settings' labels cannot be computed from what a bundle holds."""
    if settings.evaluation.label_base != LABEL_BASE:
        raise FinEvolveError(
            f"bundle: evaluation.label_base is {settings.evaluation.label_base}, but figures of a bundle are over "
            f'{LABEL_BASE}, from the closes in it; set label_base = "{LABEL_BASE}" (`finevolve sensitivity` tells of '
            "the others)"
        )


def pack(settings: Settings, runs: Sequence[Run], facts: Facts) -> Content:
    """A bundle of runs, with their figures.

    Raises:
        FinEvolveError: the settings' labels are from another base than closes of the session, or a text of the
            manifest looks like a path of this machine.
    """
    benchmark = settings.benchmark
    require_label_base(settings)
    header = Header(
        format=FORMAT,
        version=VERSION,
        submitter=facts.submitter,
        made_by={**facts.made_by, CODE: figures_code()},
        first_session=benchmark.sessions[0],
        last_session=benchmark.sessions[-1],
        horizons=benchmark.horizons,
        industries=benchmark.codes,
        evaluation=settings.evaluation.model_copy(update={"cases": ()}),
        dataset=Dataset(news=news_digest(runs[0].days), labels="", tagger=facts.tagger),
        cache=dict(facts.cache),
        runs=tuple(_run_header(run) for run in runs),
        licence=LICENCE,
    )
    labels = labels_of(header, facts.closes)
    header = header.model_copy(update={"dataset": header.dataset.model_copy(update={"labels": labels_digest(labels)})})
    for where, text in (*_texts(header.model_dump(mode="json")), *_model_names(runs)):
        if _MACHINE.search(text):
            raise FinEvolveError(
                f"bundle: {where} {text!r} looks like a path of this machine; give it another name in finevolve.toml "
                "(`deployment` of a provider, `served_as` of a model) and run again"
            )
    return Content(header, tuple(runs), facts.closes, facts.news, Figures(header, runs, labels).all())


def _run_header(run: Run) -> RunHeader:
    return RunHeader(
        mechanism=run.experiment.mechanism,
        backbone=run.experiment.backbone,
        seed=run.experiment.seed,
        identity=dict(run.identity),
        head=run.head,
        link=run.links[-1],
    )


def _predictions(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(invalid=[invalid_kind(reason) for reason in frame["invalid_reason"]])


def _sorted(name: str, frame: pd.DataFrame) -> pd.DataFrame:
    return frame.sort_values(list(RUN_SHEETS[name].keys), kind="stable")


def _lessons(
    experiment: Experiment, kind: type[Mechanism], store: ReplayStore, sessions: Sequence[dt.date]
) -> dict[str, pd.DataFrame]:
    """Ids of memories that came into being, and outcomes that changes rest on; texts stay behind."""
    made: list[tuple[str, str, str]] = []
    evidence: dict[tuple[str, str, str, int, float], None] = {}
    for session in sessions:
        day = session.isoformat()
        for phase in (APPEND, MATURE):
            for entry in store.events(experiment.key, session, phase):
                event = kind.decode(entry)
                made += [(day, phase, memory) for memory in event.made]
                for item in event.evidence:
                    evidence[day, item.code, item.predicted_on.isoformat(), item.horizon, item.alpha] = None
    return {
        "memories": RUN_SHEETS["memories"].frame(made),
        "evidence": RUN_SHEETS["evidence"].frame(list(evidence)),
    }


def _texts(value: Any, where: str = "manifest") -> Iterator[tuple[str, str]]:
    """Every text within JSON values, and where it stands."""
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(inner, f"{where}.{name}")
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner, where)


def _model_names(runs: Sequence[Run]) -> Iterator[tuple[str, str]]:
    days: Iterator[Manifest] = (day for run in runs for day in run.days)
    yield from sorted({(f"model of {day.experiment}", name) for day in days for name in day.models})


def gather_closes(reader: TableReader, sessions: Sequence[dt.date], horizons: Sequence[int]) -> pd.DataFrame:
    """Closes of all indices that labels of `sessions` need, as far as they are stored."""
    table = calendar.all_sessions()
    last = min(calendar.session_index(sessions[-1]) + max(horizons), len(table) - 1)
    parts = []
    for session in calendar.sessions_between(sessions[0], table[last]):
        for name in BARS:
            if reader.digest(name, session.isoformat()) is not None:
                bars = reader.read(name, session.isoformat())
                parts.append(bars.loc[bars["close"].notna(), ["session", "code", "close"]])
    found = pd.concat(parts, ignore_index=True) if parts else CLOSE_SHEET.frame([])
    return found.sort_values(list(CLOSE_SHEET.keys), kind="stable").reset_index(drop=True)


def gather_news(reader: TableReader, days: Iterable[dt.date]) -> pd.DataFrame:
    """Numbers of articles, and of those selected, by day and source."""
    rows = []
    for day in (each.isoformat() for each in days):
        if reader.digest("tagged_articles", day) is None or reader.digest("benchmark_news", day) is None:
            continue
        facts = article_facts(day, reader.read("tagged_articles", day), reader.read("benchmark_news", day))
        by_source = news_counts(facts).groupby("source")[["articles", "selected"]].sum()
        rows += [(day, source, int(one.articles), int(one.selected)) for source, one in by_source.iterrows()]
    return NEWS_SHEET.frame(sorted(rows))
