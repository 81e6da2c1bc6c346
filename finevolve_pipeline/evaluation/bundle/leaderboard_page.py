"""The leaderboard's page.

What lives here: which tables it has and what their cells say. What must not: who stands where (see `standings`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from finevolve_pipeline.evaluation.bundle.standings import Board, Entry, Row, Standing, Value, number
from finevolve_pipeline.evaluation.bundle.verify import LEVELS
from finevolve_pipeline.evaluation.comparison import ALL_HORIZONS, PIPE, mechanism_label
from finevolve_pipeline.evaluation.ic import METRICS
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


def page(tables: Mapping[Board, Sequence[Standing]], out: Sequence[Entry]) -> str:
    """The page's HTML.

    Args:
        tables: see `standings`.
        out: bundles that were refused.
    """
    counted = {one.entry.file: one for rows in tables.values() for one in rows}
    told: dict[str, set[str]] = {}
    for board in tables:
        for name, value in board.conditions:
            told.setdefault(name, set()).add(value)
    unlike = {name for name, values in told.items() if len(values) > 1}
    return (
        template_environment(Words())
        .get_template("leaderboard.html.j2")
        .render(
            boards=[
                _board_view(number, board, rows, unlike) for number, (board, rows) in enumerate(tables.items(), start=1)
            ],
            refused=text_table("Refused bundles", ("File", "Reason"), [(e.file, e.problem) for e in out], 2)
            if out
            else None,
            facts=[
                ("Verified bundles", str(len(counted))),
                ("Runs", str(sum(map(len, tables.values())))),
                ("Files with the same runs", str(sum(len(one.copies) for one in counted.values()))),
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
    conditions: TableView


def _board_view(number: int, board: Board, rows: Sequence[Standing], unlike: Collection[str]) -> BoardView:
    """A table; `unlike` names the conditions in which tables of the page differ."""
    horizons = ", ".join(map(str, board.horizons))
    places = [(metric, horizon) for horizon in board.horizons for metric in METRICS]
    return BoardView(
        title=f"Dataset {number}: {board.first_session} to {board.last_session}",
        lead=f"{board.sessions} sessions, {board.industries} industries, horizons of {horizons} sessions, "
        f"{board.method.capitalize()} correlations. Runs on other news, labels or settings stand in another table "
        f"(this one: {board.digest[:12]}).{_unlike(board, unlike)}",
        gains=text_table(
            "Mean gain over Pipe, with interval and Holm's p",
            ("Rank", "Mechanism", "Backbone", "Submitter", "Checked", "Gain", *(f"Δ{metric}" for metric in METRICS)),
            [
                (
                    "–" if one.rank is None else str(one.rank),
                    *_named(one),
                    f"{LEVELS.index(one.entry.level)} of {len(LEVELS) - 1}",
                    _gain(one.row.gain, one.row),
                    *(_difference(one.row, metric) for metric in METRICS),
                )
                for one in rows
            ],
            numeric_from=5,
            notes=(_told_from_noise(board, rows), "Gain: mean of both differences. Checked: see the levels below."),
        ),
        coefficients=text_table(
            "Coefficients on common cells, with intervals",
            ("Run", *(f"{horizon}d {metric}" for metric, horizon in places)),
            [("\n".join(_named(one)), *(_level(one.row.value(*place, "level")) for place in places)) for one in rows],
        ),
        runs=text_table(
            "What the runs took",
            ("Run", "Bundle", "Same runs in", "Models", "Seeds", "Coverage", "Invalid", "Calls", "USD"),
            [
                (
                    "\n".join(_named(one)),
                    f"{one.entry.file} ({one.entry.digest[:12]})",
                    ", ".join(_file(copy) for copy in one.copies) or "–",
                    ", ".join(one.row.models) or "–",
                    str(one.row.seeds),
                    "–" if one.row.coverage is None else f"{one.row.coverage:.1%}",
                    f"{one.row.invalid:,}",
                    f"{one.row.calls:,}",
                    f"{one.row.cost:,.2f}",
                )
                for one in rows
            ],
            numeric_from=4,
            notes=(
                "Models, calls and USD are the submitter's word where runs were not repeated. Files with the same "
                "scores count once, as the one that was checked furthest, then the first by name: which of them was "
                "first in time cannot be known. A copy with another name of a run, or a score changed in its last "
                "digit, is not recognised.",
            ),
        ),
        conditions=text_table("What its runs share", ("Condition", "Value"), board.conditions, 2),
    )


def _unlike(board: Board, unlike: Collection[str]) -> str:
    """What tells the table from others of the page, in words."""
    own = [f"{name} {_short(value)}" for name, value in board.conditions if name in unlike]
    return f" What differs between the tables of this page is here: {', '.join(own)}." if own else ""


def _short(value: str) -> str:
    return value if len(value) <= 40 else f"{value[:12]}…"


def _file(entry: Entry) -> str:
    return f"{entry.file} ({entry.submitter})" if entry.submitter else entry.file


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
    p = "" if value.p is None else f"\np {format_p(value.p)}"
    return format_gain(number(value.value)) + _interval(value) + p


def _level(value: Value) -> str:
    return format_coefficient(number(value.value)) + _interval(value)


def _interval(value: Value) -> str:
    low, high = number(value.low), number(value.high)
    return "" if math.isnan(low) or math.isnan(high) else f"\n{format_interval(low, high)}"
