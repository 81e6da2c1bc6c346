"""The leaderboard: a static page of verified bundles, made of the figures that verifying recomputed.

Runs stand in one table only if they are comparable: same window, horizons, industries, labels, news and way of
evaluating. A bundle that fails a check is named beside the tables, with the reason, and enters none. Equal bundles give
equal bytes, whatever their files' order or times.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from pydantic import BaseModel, ConfigDict

from finevolve_pipeline.digests import digest_json
from finevolve_pipeline.evaluation.bundle.content import Content, Run
from finevolve_pipeline.evaluation.bundle.verify import LEVELS, REFUSED, Verification
from finevolve_pipeline.evaluation.comparison import ALL_HORIZONS, PIPE, mechanism_label
from finevolve_pipeline.evaluation.folders import require_own, whole_folder
from finevolve_pipeline.evaluation.ic import COMMON, METRICS
from finevolve_pipeline.evaluation.layout.numbers import (
    format_coefficient,
    format_gain,
    format_interval,
    format_p,
    format_percent,
)
from finevolve_pipeline.evaluation.report.templates import template_environment
from finevolve_pipeline.evaluation.report.views import TableView, text_table
from finevolve_pipeline.evaluation.report.words import Words
from finevolve_pipeline.evaluation.significance import beyond_noise
from finevolve_pipeline.evaluation.stages import OVERALL
from finevolve_pipeline.spreadsheet import frame_csv

PAGE, TABLE, DOCUMENT = "index.html", "leaderboard.csv", "leaderboard.json"


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
        return math.fsum(math.nan if gain is None else gain for gain in gains) / len(gains)


class Board(_Plain):
    """What makes runs comparable."""

    first_session: str
    last_session: str
    sessions: int
    horizons: tuple[int, ...]
    industries: int
    method: str
    confidence: float
    digest: str


class Entry(_Plain):
    """A bundle as the leaderboard knows it; `problem` says why it is refused."""

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
        runs=digest_json([[run.experiment.key, run.head] for run in content.runs]),
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
    )


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
    """A run's place in a table. Pipe has no rank: it is what the others are measured by."""

    rank: int | None
    entry: Entry
    row: Row


def standings(entries: Sequence[Entry]) -> dict[Board, tuple[Standing, ...]]:
    """The tables: comparable runs by mean gain, largest first; ties by name. Largest table first.

    Two files with the same runs count once, under the first name.
    """
    boards: dict[Board, list[tuple[Entry, Row]]] = {}
    for entry in distinct(entries):
        if entry.board is not None:
            boards.setdefault(entry.board, []).extend((entry, row) for row in entry.rows)
    listed = {board: tuple(_ranked(rows)) for board, rows in boards.items()}
    order = sorted(listed, key=lambda board: (-len(listed[board]), board.first_session, board.digest))
    return {board: listed[board] for board in order}


def distinct(entries: Iterable[Entry]) -> list[Entry]:
    """Bundles by file name, each content once, whoever submits it."""
    seen: dict[str, Entry] = {}
    for entry in sorted(entries, key=lambda one: one.file):
        if entry.ok:
            seen.setdefault(entry.runs, entry)
    return list(seen.values())


def _ranked(rows: Iterable[tuple[Entry, Row]]) -> Iterable[Standing]:
    rank = 0
    for entry, row in sorted(rows, key=_order):
        is_ranked = row.mechanism != PIPE and not math.isnan(row.gain)
        rank += is_ranked
        yield Standing(rank if is_ranked else None, entry, row)


def _order(pair: tuple[Entry, Row]) -> tuple[bool, float, str, str, str]:
    entry, row = pair
    last = row.mechanism == PIPE or math.isnan(row.gain)
    return last, 0.0 if last else -row.gain, row.mechanism, row.backbone, entry.file


def require_own_folder(target: Path) -> None:
    """Refuse a folder that holds anything but an earlier leaderboard: it is replaced as a whole."""
    require_own(target, (PAGE, TABLE, DOCUMENT))


def build_leaderboard(target: Path, entries: Sequence[Entry]) -> tuple[str, ...]:
    """Write the leaderboard's folder: `index.html`, `leaderboard.csv`, `leaderboard.json`. Returns the files' names.

    Args:
        target: the folder; an older one there is replaced as a whole.
        entries: all bundles, refused ones included, in any order.

    Raises:
        FinEvolveError: `target` holds other files (see `require_own_folder`), or cannot be written.
    """
    require_own_folder(target)
    tables = standings(entries)
    out = sorted((entry for entry in entries if not entry.ok), key=lambda entry: entry.file)
    files = {
        PAGE: _page(tables, entries, out),
        TABLE: frame_csv(_frame(tables)),
        DOCUMENT: json.dumps(_document(tables, out), ensure_ascii=False, indent=1, allow_nan=False) + "\n",
    }
    with whole_folder(target) as folder:
        for name, text in files.items():
            (folder / name).write_text(text, "utf-8", newline="")
    return tuple(files)


def _page(tables: Mapping[Board, Sequence[Standing]], entries: Sequence[Entry], out: Sequence[Entry]) -> str:
    counted = distinct(entries)
    return (
        template_environment(Words())
        .get_template("leaderboard.html.j2")
        .render(
            boards=[_board_view(number, board, rows) for number, (board, rows) in enumerate(tables.items(), start=1)],
            refused=text_table("Refused bundles", ("File", "Reason"), [(e.file, e.problem) for e in out], 2)
            if out
            else None,
            facts=[
                ("Verified bundles", str(len(counted))),
                ("Runs", str(sum(len(entry.rows) for entry in counted))),
                ("Refused bundles", str(len(out))),
            ],
            levels=LEVELS[1:],
        )
    )


@dataclass(frozen=True)
class BoardView:
    """What the page shows of one table."""

    title: str
    lead: str
    gains: TableView
    coefficients: TableView
    runs: TableView


def _board_view(number: int, board: Board, rows: Sequence[Standing]) -> BoardView:
    horizons = ", ".join(map(str, board.horizons))
    places = [(metric, horizon) for horizon in board.horizons for metric in METRICS]
    return BoardView(
        title=f"Dataset {number}: {board.first_session} to {board.last_session}",
        lead=f"{board.sessions} sessions, {board.industries} industries, horizons of {horizons} sessions, "
        f"{board.method.capitalize()} correlations. Runs on other news, labels or settings stand in another table "
        f"(this one: {board.digest[:12]}).",
        gains=text_table(
            "Mean gain over Pipe, with interval and Holm's p",
            ("Rank", "Mechanism", "Backbone", "Submitter", "Gain", *(f"Δ{metric}" for metric in METRICS), "Checked"),
            [
                (
                    "–" if one.rank is None else str(one.rank),
                    *_named(one),
                    _gain(one.row.gain, one.row),
                    *(_difference(one.row, metric) for metric in METRICS),
                    f"{LEVELS.index(one.entry.level)} of {len(LEVELS) - 1}",
                )
                for one in rows
            ],
            numeric_from=4,
            notes=(_told_from_noise(board, rows), "Gain: mean of both differences. Checked: see the levels below."),
        ),
        coefficients=text_table(
            "Coefficients on common cells, with intervals",
            ("Mechanism", "Backbone", "Submitter", *(f"{horizon}d {metric}" for metric, horizon in places)),
            [(*_named(one), *(_level(one.row.value(*place, "level")) for place in places)) for one in rows],
            numeric_from=3,
        ),
        runs=text_table(
            "What the runs took",
            ("Mechanism", "Backbone", "Submitter", "Bundle", "Models", "Seeds", "Coverage", "Invalid", "Calls", "USD"),
            [
                (
                    *_named(one),
                    f"{one.entry.file} ({one.entry.digest[:12]})",
                    ", ".join(one.row.models) or "–",
                    str(one.row.seeds),
                    "–" if one.row.coverage is None else f"{one.row.coverage:.1%}",
                    f"{one.row.invalid:,}",
                    f"{one.row.calls:,}",
                    f"{one.row.cost:,.2f}",
                )
                for one in rows
            ],
            numeric_from=5,
        ),
    )


def _told_from_noise(board: Board, rows: Sequence[Standing]) -> str:
    """How many differences of the table are more than noise, in words."""
    tested = [
        value.p
        for one in rows
        for value in one.row.values
        if (value.horizon, value.quantity) == (ALL_HORIZONS, "difference") and value.p is not None
    ]
    level = f"{format_percent(board.confidence)}, Holm's p over all differences of a bundle; none over bundles"
    if not tested:
        return "No difference from Pipe could be tested."
    found = sum(beyond_noise(p, board.confidence) is True for p in tested)
    if not found:
        return f"None of {len(tested)} mean differences from Pipe is told from noise ({level})."
    return f"{found} of {len(tested)} mean differences from Pipe are told from noise ({level})."


def _named(one: Standing) -> tuple[str, str, str]:
    return mechanism_label(one.row.mechanism), one.row.backbone, one.entry.submitter or "–"


def _gain(gain: float, row: Row) -> str:
    return "–" if row.mechanism == PIPE else format_gain(gain)


def _difference(row: Row, metric: str) -> str:
    if row.mechanism == PIPE:
        return "–"
    value = row.value(metric, ALL_HORIZONS, "difference")
    p = "" if value.p is None else f", p {format_p(value.p)}"
    return format_gain(_number(value.value)) + _interval(value) + p


def _level(value: Value) -> str:
    return format_coefficient(_number(value.value)) + _interval(value)


def _interval(value: Value) -> str:
    low, high = _number(value.low), _number(value.high)
    return "" if math.isnan(low) or math.isnan(high) else f" ({format_interval(low, high)})"


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _frame(tables: Mapping[Board, Sequence[Standing]]) -> pd.DataFrame:
    """Every value of every run, in long form."""
    columns = (
        *("board", "rank", "file", "digest", "submitter", "level", "mechanism", "backbone"),
        *("metric", "horizon", "quantity", "value", "low", "high", "p_holm"),
    )
    rows = [
        (
            board.digest,
            _number(one.rank),
            *(one.entry.file, one.entry.digest, one.entry.submitter, one.entry.level),
            *(one.row.mechanism, one.row.backbone, value.metric, value.horizon, value.quantity),
            *map(_number, (value.value, value.low, value.high, value.p)),
        )
        for board, standing in tables.items()
        for one in standing
        for value in one.row.values
    ]
    return pd.DataFrame(rows, columns=list(columns))


def _document(tables: Mapping[Board, Sequence[Standing]], out: Sequence[Entry]) -> dict[str, object]:
    return {
        "boards": [
            {
                **board.model_dump(mode="json"),
                "runs": [
                    {
                        "rank": one.rank,
                        "gain": None if math.isnan(one.row.gain) else one.row.gain,
                        "file": one.entry.file,
                        "digest": one.entry.digest,
                        "submitter": one.entry.submitter,
                        "level": one.entry.level,
                        **one.row.model_dump(mode="json"),
                    }
                    for one in rows
                ],
            }
            for board, rows in tables.items()
        ],
        "refused": [{"file": entry.file, "reason": entry.problem} for entry in out],
    }
