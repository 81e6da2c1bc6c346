"""Who stands in which table of the leaderboard, and where: verified bundles, by the figures that were recomputed.

Runs stand in one table only if they are comparable: same window, horizons, industries, labels, news and way of
evaluating. What must not live here: files, pages.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd
from pydantic import BaseModel, ConfigDict

from finevolve_pipeline.digests import digest_frame, digest_json
from finevolve_pipeline.evaluation.bundle.content import Content, Header, Run
from finevolve_pipeline.evaluation.bundle.verify import LEVELS, REFUSED, Verification
from finevolve_pipeline.evaluation.comparison import ALL_HORIZONS, PIPE
from finevolve_pipeline.evaluation.ic import COMMON, METRICS
from finevolve_pipeline.evaluation.stages import OVERALL

_SCORES = ("session", "code", "horizon", "score")
"""What makes runs the same, whoever sends them: days can be chained anew around the scores of somebody else."""


class _Plain(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Value(_Plain):
    """A coefficient, or a difference from Pipe, with its interval and its p-value adjusted over the table (Holm).

    `horizon` is in sessions, 0 for the mean over the horizons. None where it is undefined or was not computed.
    """

    metric: str
    horizon: int
    quantity: str
    value: float | None
    low: float | None = None
    high: float | None = None
    p: float | None = None


class Row(_Plain):
    """A mechanism on a backbone, over all its seeds in a bundle."""

    mechanism: str
    backbone: str
    seeds: int
    models: tuple[str, ...]
    values: tuple[Value, ...]
    coverage: float | None
    invalid: int
    calls: int
    cost: float

    def value(self, metric: str, horizon: int, quantity: str) -> Value:
        """The value of that name. Raises `StopIteration` if there is none."""
        return next(
            one for one in self.values if (one.metric, one.horizon, one.quantity) == (metric, horizon, quantity)
        )

    @property
    def gain(self) -> float:
        """Mean gain over Pipe, of tsIC and csIC over all horizons; NaN if one is undefined."""
        gains = [self.value(metric, ALL_HORIZONS, "difference").value for metric in METRICS]
        return math.fsum(number(gain) for gain in gains) / len(gains)


class Board(_Plain):
    """What makes runs comparable; `conditions` names each part of it and its value, as text."""

    first_session: str
    last_session: str
    sessions: int
    horizons: tuple[int, ...]
    industries: int
    method: str
    confidence: float
    digest: str
    conditions: tuple[tuple[str, str], ...] = ()


class Entry(_Plain):
    """A bundle as the leaderboard knows it; `problem` says why it is refused, `runs` is a digest of all its scores."""

    file: str
    digest: str
    level: str
    problem: str
    submitter: str
    runs: str
    board: Board | None
    rows: tuple[Row, ...]

    @property
    def ok(self) -> bool:
        """Whether it enters a table."""
        return self.level != REFUSED


def entry_of(found: Verification) -> Entry:
    """What the leaderboard keeps of a bundle that was verified."""
    if not found.ok or found.content is None:
        return refused(found.name, "; ".join(f"{check.name}: {check.detail}" for check in found.failures), found.digest)
    content = found.content
    return Entry(
        file=found.name,
        digest=found.digest,
        level=found.level,
        problem="",
        submitter=content.header.submitter,
        runs=digest_json([[run.key, digest_frame(run.rows["predictions"][list(_SCORES)])] for run in content.runs]),
        board=_board(content),
        rows=tuple(_row(content, runs, found.figures) for runs in _by_mechanism(content.runs)),
    )


def refused(name: str, problem: str, digest: str = "") -> Entry:
    """A file that enters no table."""
    return Entry(file=name, digest=digest, level=REFUSED, problem=problem, submitter="", runs="", board=None, rows=())


def _board(content: Content) -> Board:
    header = content.header
    alike = {
        "window": [header.first_session.isoformat(), header.last_session.isoformat()],
        "horizons": list(header.horizons),
        "industries": list(header.industries),
        "evaluation": header.evaluation.model_dump(mode="json"),
        "labels": header.dataset.labels,
        "news": header.dataset.news,
    }
    return Board(
        first_session=header.first_session.isoformat(),
        last_session=header.last_session.isoformat(),
        sessions=len(header.sessions),
        horizons=header.horizons,
        industries=len(header.industries),
        method=header.evaluation.headline,
        confidence=header.evaluation.confidence,
        digest=digest_json(alike),
        conditions=tuple(_conditions(header)),
    )


def _conditions(header: Header) -> Iterable[tuple[str, str]]:
    yield "window", f"{header.first_session} to {header.last_session}"
    yield "horizons", ", ".join(map(str, header.horizons))
    yield "industries", " ".join(header.industries)
    for name, value in header.evaluation.model_dump(mode="json", exclude={"cases"}).items():
        yield name, str(value)
    yield "labels", header.dataset.labels
    yield "news", header.dataset.news


def _by_mechanism(runs: Iterable[Run]) -> list[list[Run]]:
    """Runs that differ in their seed alone, together."""
    found: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        found.setdefault((run.experiment.mechanism, run.experiment.backbone), []).append(run)
    return list(found.values())


def _row(content: Content, runs: Sequence[Run], figures: Mapping[str, pd.DataFrame]) -> Row:
    method = content.header.evaluation.headline
    matrix = figures["ic_matrix"]
    own = matrix[
        matrix["experiment"].isin([run.key for run in runs])
        & (matrix["cells"] == COMMON)
        & (matrix["stage"] == OVERALL)
        & (matrix["method"] == method)
    ]
    return Row(
        mechanism=runs[0].experiment.mechanism,
        backbone=runs[0].experiment.backbone,
        seeds=len(runs),
        models=tuple(sorted({name for run in runs for day in run.days for name in day.models})),
        values=tuple(_values(runs[0], method, figures)),
        coverage=_known(own["coverage"].min()),
        invalid=sum(day.counts.invalid for run in runs for day in run.days),
        calls=sum(run.calls for run in runs),
        cost=sum(run.cost for run in runs),
    )


def _values(run: Run, method: str, figures: Mapping[str, pd.DataFrame]) -> Iterable[Value]:
    told = _inference(run, method, figures)
    comparison = _of_run(run, method, figures["comparison"])
    for metric, horizon, value, gain in zip(
        *(comparison[name].tolist() for name in ("metric", "horizon", "value", "gain")), strict=True
    ):
        for quantity, number in (("level", value), ("difference", gain)):
            interval = told.get((metric, int(horizon), quantity), {})
            yield Value(metric=metric, horizon=horizon, quantity=quantity, value=_known(number), **interval)


def _inference(
    run: Run, method: str, figures: Mapping[str, pd.DataFrame]
) -> dict[tuple[str, int, str], dict[str, float | None]]:
    """Interval and adjusted p of a run's values."""
    if "inference" not in figures:
        return {}
    rows = _of_run(run, method, figures["inference"]).to_dict("records")
    return {
        (row["metric"], int(row["horizon"]), row["quantity"]): {
            "low": _known(row["low"]),
            "high": _known(row["high"]),
            "p": _known(row["p_holm"]),
        }
        for row in rows
    }


def _of_run(run: Run, method: str, frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of a run's mechanism and backbone in a table, over the whole window."""
    return frame[
        (frame["mechanism"] == run.experiment.mechanism)
        & (frame["backbone"] == run.experiment.backbone)
        & (frame["stage"] == OVERALL)
        & (frame["method"] == method)
    ]


def _known(value: float) -> float | None:
    return None if pd.isna(value) else float(value)


@dataclass(frozen=True)
class Standing:
    """A run's place in a table. Pipe has no rank: it is what the others are measured by.

    `copies` are other files with the same runs as `entry`, by name.
    """

    rank: int | None
    entry: Entry
    row: Row
    copies: tuple[Entry, ...] = ()


def standings(entries: Sequence[Entry]) -> dict[Board, tuple[Standing, ...]]:
    """The tables: comparable runs by mean gain, largest first; ties by name. Largest table first.

    Files with the same scores in one table count once: as the one that was checked furthest, then by name.
    """
    boards: dict[Board, list[Standing]] = {}
    for board, (entry, *copies) in distinct(entries):
        boards.setdefault(board, []).extend(Standing(None, entry, row, tuple(copies)) for row in entry.rows)
    listed = {board: tuple(_ranked(rows)) for board, rows in boards.items()}
    order = sorted(listed, key=lambda board: (-len(listed[board]), board.first_session, board.digest))
    return {board: listed[board] for board in order}


def distinct(entries: Iterable[Entry]) -> list[tuple[Board, tuple[Entry, ...]]]:
    """Verified bundles, those with the same scores in one table together: the one that counts first."""
    seen: dict[tuple[Board, str], list[Entry]] = {}
    for entry in sorted(entries, key=lambda one: (-LEVELS.index(one.level), one.file)):
        if entry.ok and entry.board is not None:
            seen.setdefault((entry.board, entry.runs), []).append(entry)
    return [(board, tuple(same)) for (board, _), same in seen.items()]


def _ranked(rows: Iterable[Standing]) -> Iterable[Standing]:
    rank = 0
    for one in sorted(rows, key=_order):
        is_ranked = one.row.mechanism != PIPE and not math.isnan(one.row.gain)
        rank += is_ranked
        yield replace(one, rank=rank if is_ranked else None)


def _order(one: Standing) -> tuple[bool, float, str, str, str]:
    last = one.row.mechanism == PIPE or math.isnan(one.row.gain)
    return last, 0.0 if last else -one.row.gain, one.row.mechanism, one.row.backbone, one.entry.file


def number(value: float | None) -> float:
    """The value, NaN for None."""
    return math.nan if value is None else value
