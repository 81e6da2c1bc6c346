"""What stands in a bundle, and how it becomes members of a file and is read back from them.

    manifest.json                what it is about: window, settings, dataset, runs and their identities, licence
    closes.csv                   index closes that labels follow from
    news.csv                     articles by day and source; numbers only
    figures/*.csv                the figures that are claimed
    runs/N/days.jsonl            the manifests of the run's days, and a link that binds each to the rows of its day
    runs/N/predictions.csv, retrievals.csv, memories.csv, evidence.csv
    SHA256SUMS                   digests of all of these

No column can hold a sentence: what models wrote is left out, since it may quote the news.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from typing import Any

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from finevolve_pipeline import calendar, tables
from finevolve_pipeline.digests import canonical_json, digest_json, digest_text
from finevolve_pipeline.errors import FinEvolveError
from finevolve_pipeline.evaluation.bundle.sheets import (
    CODE,
    DAY,
    DIGEST,
    MEMORY,
    Sheet,
    SheetError,
    count_column,
    figure_sheet,
    number_column,
    text_column,
    words_column,
)
from finevolve_pipeline.replay.journal import APPEND, MATURE, Manifest
from finevolve_pipeline.settings import LARGEST_SEED, SOURCE_ID, EvaluationSettings, Experiment
from finevolve_pipeline.tables import LEFT_OUT, SHORTENED, WHOLE

FORMAT = "finevolve-bundle"
VERSION = 1
MANIFEST, CHECKSUMS, CLOSES, NEWS = "manifest.json", "SHA256SUMS", "closes.csv", "news.csv"
DAYS = "days.jsonl"
INVALID_KINDS = ("missing", "no_number", "out_of_range", "twice", "refused", "unreadable")
"""Why a score is invalid, without the words it was told in."""

LICENCE = (
    "Predictions, digests and counts of a run of FinEvolveBench (arXiv 2606.06960). No article text, title or address "
    "stands in this file; index closes are facts published by the index providers. Articles belong to the media that "
    "published them, and this file grants no right to them."
)

PREDICTIONS = Sheet(
    (
        text_column("session", DAY),
        text_column("code", CODE),
        count_column("horizon", low=1),
        number_column("score", -1, 1),
        text_column("invalid", "|".join(("", *INVALID_KINDS))),
        number_column("confidence", 0, 1),
        text_column("prompt_digest", f"({DIGEST})?"),
        count_column("articles"),
        count_column("articles_cut"),
    ),
    ("session", "code", "horizon"),
)
RETRIEVALS = Sheet(
    (
        text_column("session", DAY),
        text_column("code", CODE),
        count_column("rank", low=1),
        text_column("memory_id", MEMORY),
        text_column("kind", "trajectory|reflection|insight|reasoning_item|fact|rule"),
        count_column("horizon"),
        text_column("made_on", DAY),
        text_column("available_from", DAY),
        words_column("sources", MEMORY),
        number_column("similarity"),
        number_column("q"),
        count_column("visits"),
        number_column("selection_score"),
        count_column("age"),
        number_column("matured_share", 0, 1, required=True),
        number_column("news_overlap", 0, 1, required=True),
        text_column("in_prompt", "|".join((WHOLE, SHORTENED, LEFT_OUT))),
    ),
    ("session", "code", "rank"),
)
MEMORIES = Sheet(
    (text_column("session", DAY), text_column("phase", f"{APPEND}|{MATURE}"), text_column("memory_id", MEMORY)),
    ("session", "phase", "memory_id"),
)
EVIDENCE = Sheet(
    (
        text_column("session", DAY),
        text_column("code", CODE),
        text_column("predicted_on", DAY),
        count_column("horizon", low=1),
        number_column("alpha", required=True),
    ),
    ("session", "code", "predicted_on", "horizon"),
)
RUN_SHEETS: Mapping[str, Sheet] = {
    "predictions": PREDICTIONS,
    "retrievals": RETRIEVALS,
    "memories": MEMORIES,
    "evidence": EVIDENCE,
}
CLOSE_SHEET = Sheet(
    (text_column("session", DAY), text_column("code", CODE), number_column("close", 1e-9, required=True)),
    ("session", "code"),
)
NEWS_SHEET = Sheet(
    (text_column("day", DAY), text_column("source", SOURCE_ID), count_column("articles"), count_column("selected")),
    ("day", "source"),
)
FIGURE_SHEETS: Mapping[str, Sheet] = {
    "ic_matrix": figure_sheet(tables.InformationCoefficients),
    "comparison": figure_sheet(tables.Comparison),
    "inference": figure_sheet(tables.Inference),
}


class ContentError(FinEvolveError):
    """Members that are no bundle's; the message names the member."""

    exit_code = 1


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Dataset(_Strict):
    """What predictions were made from and measured by.

    Attributes:
        news: digest over the digests of all news windows.
        labels: digest of the labels that follow from the closes.
        tagger: identity of who tagged the articles.
    """

    news: str
    labels: str
    tagger: str = Field(max_length=300)


class Answers(_Strict):
    """The cached answers of a backbone: how many, and the digest over their keys and contents."""

    answers: int = Field(ge=0)
    digest: str


class RunHeader(_Strict):
    """One run: who it is, all that could change a byte of it, and where its chain of days and of rows ends."""

    mechanism: str = Field(pattern=r"^\w{1,60}$")
    backbone: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,60}$")
    seed: int = Field(ge=0, le=LARGEST_SEED)
    identity: dict[str, Any]
    head: str
    link: str


class Header(_Strict):
    """What a bundle says about itself (`manifest.json`)."""

    format: str
    version: int
    submitter: str = Field(max_length=80)
    made_by: dict[str, str]
    first_session: dt.date
    last_session: dt.date
    horizons: tuple[int, ...] = Field(min_length=1, max_length=20)
    industries: tuple[str, ...] = Field(min_length=1)
    evaluation: EvaluationSettings
    dataset: Dataset
    cache: dict[str, Answers]
    runs: tuple[RunHeader, ...] = Field(min_length=1, max_length=60)
    licence: str

    @cached_property
    def sessions(self) -> tuple[dt.date, ...]:
        """The prediction window. Raises `CalendarError` beyond the calendar."""
        return calendar.sessions_between(self.first_session, self.last_session)

    def text(self) -> bytes:
        """The one JSON text of it."""
        value = json.loads(canonical_json(self.model_dump(mode="json")))
        return (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode()


@dataclass(frozen=True)
class Run:
    """One run as it stands in a bundle.

    Attributes:
        days: manifests of its sessions, oldest first.
        links: per day, what binds its manifest and rows to all days before (see `links_of`).
        rows: its tables by name (`RUN_SHEETS`).
    """

    experiment: Experiment
    identity: Mapping[str, Any]
    days: tuple[Manifest, ...]
    links: tuple[str, ...]
    rows: Mapping[str, pd.DataFrame]

    @property
    def key(self) -> str:
        """The experiment's key."""
        return self.experiment.key

    @property
    def head(self) -> str:
        """Digest of the last day."""
        return self.days[-1].digest if self.days else ""

    @cached_property
    def calls(self) -> int:
        """Answers that the run took."""
        return sum(day.usage.calls for day in self.days)

    @cached_property
    def cost(self) -> float:
        """What they cost, USD."""
        return sum(day.usage.cost for day in self.days)

    @cached_property
    def failures(self) -> Counter[str]:
        """What went wrong on the way to its answers, by kind."""
        return sum((Counter(day.failures) for day in self.days), Counter())


def links_of(days: Sequence[Manifest], rows: Mapping[str, pd.DataFrame]) -> tuple[str, ...]:
    """Digests over each day's manifest, its rows in every table, and the link before: no row of any day can change
    without every later link changing."""
    by_day: dict[str, dict[str, list[str]]] = {}
    for name, sheet in RUN_SHEETS.items():
        for session, line in zip(rows[name]["session"].tolist(), sheet.lines(rows[name]), strict=True):
            by_day.setdefault(session, {}).setdefault(name, []).append(line)
    links, before = [], ""
    for day in days:
        own = by_day.get(day.session.isoformat(), {})
        digests = [digest_text("\n".join(own.get(name, ()))) for name in RUN_SHEETS]
        before = digest_json([before, day.digest, *digests])
        links.append(before)
    return tuple(links)


@dataclass(frozen=True)
class Content:
    """All of a bundle."""

    header: Header
    runs: tuple[Run, ...]
    closes: pd.DataFrame
    news: pd.DataFrame
    figures: Mapping[str, pd.DataFrame] = field(default_factory=dict)

    def members(self) -> dict[str, bytes]:
        """The files that it consists of, checksums included."""
        found = {
            MANIFEST: self.header.text(),
            CLOSES: CLOSE_SHEET.write(self.closes),
            NEWS: NEWS_SHEET.write(self.news),
        }
        for name, sheet in FIGURE_SHEETS.items():
            found[_figure(name)] = sheet.write(self.figures[name])
        for number, run in enumerate(self.runs, start=1):
            found[_of_run(number, DAYS)] = _day_lines(run)
            for name, sheet in RUN_SHEETS.items():
                found[_of_run(number, f"{name}.csv")] = sheet.write(run.rows[name])
        return {**found, CHECKSUMS: checksums(found)}


def checksums(members: Mapping[str, bytes]) -> bytes:
    """Digests of all members but themselves, as `sha256sum -c` reads them."""
    return "".join(
        f"{hashlib.sha256(members[name]).hexdigest()}  {name}\n" for name in sorted(members) if name != CHECKSUMS
    ).encode()


def read_content(members: Mapping[str, bytes]) -> Content:
    """What the members say, each in its one form.

    Raises:
        ContentError: a member is missing, is none of a bundle's, or cannot be read.
    """
    header = _header(_member(members, MANIFEST))
    expected = {MANIFEST, CHECKSUMS, CLOSES, NEWS, *map(_figure, FIGURE_SHEETS)}
    for number in range(1, len(header.runs) + 1):
        expected |= {_of_run(number, name) for name in (DAYS, *(f"{sheet}.csv" for sheet in RUN_SHEETS))}
    for name in sorted(members):
        if name not in expected:
            raise ContentError(f"{name}: is no part of a bundle with {len(header.runs)} runs")
    return Content(
        header=header,
        runs=tuple(_run(members, number, run) for number, run in enumerate(header.runs, start=1)),
        closes=_sheet(members, CLOSES, CLOSE_SHEET),
        news=_sheet(members, NEWS, NEWS_SHEET),
        figures={name: _sheet(members, _figure(name), sheet) for name, sheet in FIGURE_SHEETS.items()},
    )


def _figure(name: str) -> str:
    return f"figures/{name}.csv"


def _of_run(number: int, name: str) -> str:
    return f"runs/{number}/{name}"


def _member(members: Mapping[str, bytes], name: str) -> bytes:
    if name not in members:
        raise ContentError(f"{name}: is missing")
    return members[name]


def _header(data: bytes) -> Header:
    try:
        value = json.loads(data)
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise ContentError(f"{MANIFEST}: is not the manifest of a bundle")
        if value.get("version") != VERSION:
            raise ContentError(f"{MANIFEST}: version {str(value.get('version'))[:20]!r}, this program reads {VERSION}")
        header = Header.model_validate(value)
        canonical = header.text()
    except ValidationError as broken:
        first = broken.errors()[0]
        raise ContentError(f"{MANIFEST}: {'.'.join(map(str, first['loc']))}: {first['msg'][:120]}") from None
    except (ValueError, RecursionError) as broken:
        raise ContentError(f"{MANIFEST}: no JSON ({str(broken)[:80]})") from None
    if canonical != data:
        raise ContentError(f"{MANIFEST}: is not written as it must be, {_first_odd_line(data, canonical)}")
    return header


def _first_odd_line(data: bytes, canonical: bytes) -> str:
    """Where a text leaves the one form that it may have: keys in order, one to a line, indented by one blank each."""
    mine, wanted = data.decode("utf-8", "replace").split("\n"), canonical.decode().split("\n")
    for number, (told, line) in enumerate(zip_longest(mine, wanted), start=1):
        if told != line:
            if line is None or told is None:
                return f"line {number}: {'is not there' if told is None else 'stands behind its end'}"
            return f"line {number}: {told[:60]!r} where {line[:60]!r} must stand"
    return "its bytes are no plain text"


def _sheet(members: Mapping[str, bytes], name: str, sheet: Sheet) -> pd.DataFrame:
    try:
        return sheet.read(_member(members, name))
    except SheetError as wrong:
        raise ContentError(f"{name}: {wrong}") from None


def _run(members: Mapping[str, bytes], number: int, header: RunHeader) -> Run:
    days, links = [], []
    for day, link in _days(_member(members, _of_run(number, DAYS)), _of_run(number, DAYS)):
        days.append(day)
        links.append(link)
    return Run(
        experiment=Experiment(mechanism=header.mechanism, backbone=header.backbone, seed=header.seed),
        identity=header.identity,
        days=tuple(days),
        links=tuple(links),
        rows={name: _sheet(members, _of_run(number, f"{name}.csv"), sheet) for name, sheet in RUN_SHEETS.items()},
    )


def _day_line(day: Manifest, link: str) -> str:
    return canonical_json({**day.model_dump(mode="json"), "link": link})


def _day_lines(run: Run) -> bytes:
    return "".join(f"{_day_line(*both)}\n" for both in zip(run.days, run.links, strict=True)).encode()


def _days(data: bytes, member: str) -> Iterator[tuple[Manifest, str]]:
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        raise ContentError(f"{member}: is no plain text") from None
    if lines[-1]:
        raise ContentError(f"{member}: is broken off in its last line")
    for number, line in enumerate(lines[:-1], start=1):
        try:
            value = json.loads(line)
            link = value.pop("link")
            day = Manifest.model_validate(value)
            canonical = _day_line(day, link) if isinstance(link, str) else ""
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ContentError(f"{member}: line {number} is no manifest of a day") from None
        if canonical != line:
            at = next(n for n, pair in enumerate(zip_longest(line, canonical)) if pair[0] != pair[1])
            raise ContentError(
                f"{member}: line {number} is not written as it must be, {line[at : at + 40]!r} where "
                f"{canonical[at : at + 40]!r} must stand"
            )
        yield day, link
