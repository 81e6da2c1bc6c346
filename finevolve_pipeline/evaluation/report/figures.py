"""Figures as inline SVG whose colours follow the page: every colour is a CSS variable, text is text.

Bytes depend on the data and on matplotlib's version only. What must not live here: computing what is drawn.
"""

from __future__ import annotations

import html
import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

_INK, _MUTED, _GRID, _BAND, _PAPER = "#010101", "#020202", "#030303", "#040404", "#010102"
_SERIES = tuple(f"#0505{number:02x}" for number in range(8))
_VARIABLES = {
    _INK: "var(--ink)",
    _MUTED: "var(--muted)",
    _GRID: "var(--line)",
    _BAND: "var(--band)",
    _PAPER: "var(--paper)",
    **{colour: f"var(--s{number})" for number, colour in enumerate(_SERIES)},
}
_DASHES = ("-", (0, (5, 1.5)), (0, (2, 1)), (0, (6, 1.5, 1.5, 1.5)))

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "finevolve",
    "font.family": ["DejaVu Sans"],
    "font.size": 10,
    "text.parse_math": False,
    "text.color": _INK,
    "axes.edgecolor": _MUTED,
    "axes.labelcolor": _INK,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.7,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "hatch.color": _MUTED,
}


@dataclass(frozen=True)
class Marks:
    """What stands behind lines over time: the first exploitation session; names of planted regimes by session."""

    exploitation: str | None
    regimes: Mapping[str, str]

    def spans(self, sessions: Sequence[str]) -> list[tuple[str, int, int, bool]]:
        """Sessions of one regime in a row: its name, first and last position, whether it is shaded."""
        names = list(dict.fromkeys(self.regimes.values()))
        found, start = [], 0
        for position in range(1, len(sessions) + 1):
            regime = self.regimes.get(sessions[start])
            if position < len(sessions) and self.regimes.get(sessions[position]) == regime:
                continue
            if regime is not None:
                found.append((regime, start, position - 1, bool(names.index(regime) % 2)))
            start = position
        return found


@contextmanager
def _drawing(width: float, height: float) -> Iterator[Figure]:
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        figure = Figure(figsize=(width, height), layout="constrained")
        figure.patch.set_visible(False)
        yield figure


def _svg(figure: Figure, name: str, description: str) -> str:
    """The figure as `<svg>`: no prolog, no metadata, ids unique on the page, colours from the page."""
    for axes in figure.axes:
        axes.patch.set_visible(False)
    sink = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with warnings.catch_warnings():
        # Texts are measured with matplotlib's own font everywhere, and drawn by the reader's: it need not have Chinese.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(sink, format="svg", metadata=nothing)
    text = sink.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*|<style.*?</style>\s*|<!--.*?-->\s*", "", text, flags=re.S)
    text = re.sub(r'(?<=\bid=")', f"{name}-", text)
    text = re.sub(r'(?<=href="#)|(?<=url\(#)', f"{name}-", text)
    text = re.sub(r" ?font-family: [^;\"]*;?", "", text)
    text = text.replace("xlink:href", "href")
    text = re.sub("#0[1-5]0[1-5][0-9a-f]{2}", lambda found: _VARIABLES.get(found[0], found[0]), text)
    box = re.search(r'viewBox="[^"]*"', text)
    assert box is not None
    label = html.escape(description, quote=True)
    opening = f'<svg role="img" aria-label="{label}" {box[0]}>'
    return re.sub(r"<svg[^>]*>", lambda _: opening, text, count=1).strip() + "\n"


def _colour(position: int) -> str:
    return _SERIES[position % len(_SERIES)]


def dash(position: int, dashes: int) -> int:
    """Which of so many dashes the line at a position has: lines that share a colour differ in it."""
    return (position + position // len(_SERIES)) % dashes


def _legend(figure: Figure, axes: Axes, columns: int) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside upper left", ncols=columns)


def _date_ticks(axes: Axes, days: Sequence[str]) -> None:
    step = max(1, len(days) // 7)
    positions = range(0, len(days), step)
    axes.set_xticks(list(positions), [days[position] for position in positions])
    axes.set_xlim(-0.5, max(len(days) - 0.5, 0.5))


def _draw_marks(axes: Axes, sessions: Sequence[str], marks: Marks, label: bool) -> None:
    for name, first, last, is_shaded in marks.spans(sessions):
        if is_shaded:
            axes.axvspan(first - 0.5, last + 0.5, color=_BAND, linewidth=0, zorder=0)
        if label:
            axes.annotate(
                name,
                ((first + last) / 2, 1),
                xycoords=("data", "axes fraction"),
                xytext=(0, -3),
                textcoords="offset points",
                ha="center",
                va="top",
                fontsize=8,
                color=_MUTED,
            )
    if marks.exploitation in sessions:
        axes.axvline(sessions.index(marks.exploitation) - 0.5, color=_MUTED, linewidth=0.9, linestyle=(0, (1, 2)))


def bars(
    name: str,
    description: str,
    panels: Sequence[str],
    places: Sequence[str],
    layers: Mapping[str, Sequence[Sequence[float]]],
) -> str:
    """Bars by place and series, one panel beside the other.

    Args:
        name: prefix of ids, unique on the page.
        description: text for people who do not see the figure.
        panels: titles, left to right.
        places: what stands below the bars of every panel.
        layers: label to the heights of each panel, one a place; NaN leaves a gap.
    """
    width = 0.8 / max(1, len(layers))
    with _drawing(9, 3.4) as figure:
        drawn = figure.subplots(1, max(1, len(panels)), sharey=True, squeeze=False)[0]
        for number, (axes, title) in enumerate(zip(drawn, panels, strict=False)):
            for position, (label, heights) in enumerate(layers.items()):
                middles = np.arange(len(places)) + (position - (len(layers) - 1) / 2) * width
                axes.bar(middles, list(heights[number]), width * 0.92, color=_colour(position), label=label)
            axes.axhline(0, color=_MUTED, linewidth=0.9)
            axes.set_xticks(range(len(places)), list(places))
            axes.grid(axis="x", visible=False)
            axes.set_title(title)
        _legend(figure, drawn[0], min(6, max(1, len(layers))))
        return _svg(figure, name, description)


def session_lines(
    name: str,
    description: str,
    series: pd.DataFrame,
    sessions: Sequence[str],
    panels: Sequence[str],
    labels: Sequence[str],
    marks: Marks,
) -> str:
    """Lines over sessions, one panel below the other, one line per run.

    Args:
        name: prefix of ids, unique on the page.
        description: text for people who do not see the figure.
        series: panel, label, session, value; NaN makes a gap.
        sessions: the x axis.
        panels: titles, top to bottom; they occur in `series["panel"]`.
        labels: names of lines; a name's place is its colour, one without values is left out.
        marks: what stands behind the lines.
    """
    drawn = set(series["label"])
    with _drawing(9, 0.8 + 1.7 * max(1, len(panels))) as figure:
        stack = figure.subplots(max(1, len(panels)), 1, sharex=True, squeeze=False)[:, 0]
        for row, (axes, panel) in enumerate(zip(stack, panels, strict=False)):
            _draw_marks(axes, sessions, marks, label=row == 0)
            part = series[series["panel"] == panel]
            for position, label in enumerate(labels):
                if label not in drawn:
                    continue
                line = part[part["label"] == label].set_index("session")["value"].reindex(list(sessions))
                axes.plot(
                    range(len(sessions)),
                    line.to_numpy(dtype=float),
                    color=_colour(position),
                    linestyle=_DASHES[dash(position, len(_DASHES))],
                    label=label,
                )
            axes.axhline(0, color=_MUTED, linewidth=0.9)
            axes.set_title(panel)
            _date_ticks(axes, sessions)
        _legend(figure, stack[0], min(6, max(1, len(labels))))
        return _svg(figure, name, description)


def daily_areas(name: str, description: str, days: Sequence[str], layers: Mapping[str, Sequence[float]]) -> str:
    """Counts per day as overlaid areas, the largest first.

    Args:
        name: prefix of ids, unique on the page.
        description: text for people who do not see the figure.
        days: ISO days, ascending.
        layers: label to one count per day.
    """
    with _drawing(9, 2.6) as figure:
        axes = figure.subplots()
        for position, (label, counts) in enumerate(layers.items()):
            axes.fill_between(
                range(len(days)), list(counts), step="mid", color=_colour(position), linewidth=0, label=label
            )
        axes.set_ylim(bottom=0)
        _date_ticks(axes, days)
        _legend(figure, axes, len(layers))
        return _svg(figure, name, description)


def histogram(name: str, description: str, places: Sequence[int], layers: Mapping[str, Sequence[float]]) -> str:
    """Counts per whole number as overlaid bars, the largest first (arguments as in `daily_areas`)."""
    with _drawing(9, 2.4) as figure:
        axes = figure.subplots()
        for position, (label, counts) in enumerate(layers.items()):
            axes.bar(list(places), list(counts), 0.8, color=_colour(position), label=label)
        axes.set_xticks(list(places))
        axes.grid(axis="x", visible=False)
        axes.set_ylim(bottom=0)
        _legend(figure, axes, len(layers))
        return _svg(figure, name, description)


def number_lines(
    name: str,
    description: str,
    series: pd.DataFrame,
    panels: Sequence[str],
    labels: Sequence[str],
    axis: str,
    columns: int = 1,
    first: int = 0,
) -> str:
    """Lines over a number, one line per label, panels in rows of `columns`.

    Args:
        name: prefix of ids, unique on the page.
        description: text for people who do not see the figure.
        series: panel, label, x, y, in the order in which points are joined; NaN makes a gap.
        panels: titles.
        labels: names of lines; a name's place is its colour, one without values is left out.
        axis: what is measured from left to right, below the lowest panels.
        columns: panels beside each other.
        first: position whose colour the first label has.
    """
    drawn, rows = set(series["label"]), -(-max(1, len(panels)) // columns)
    with _drawing(9, 0.9 + (1.7 if columns == 1 else 2.2) * rows) as figure:
        grid = figure.subplots(rows, columns, squeeze=False).reshape(-1)
        for number, axes in enumerate(grid):
            if number >= len(panels):
                axes.set_visible(False)
                continue
            part = series[series["panel"] == panels[number]]
            for position, label in enumerate(labels, first):
                if label not in drawn:
                    continue
                line = part[part["label"] == label]
                style = _DASHES[dash(position, len(_DASHES))]
                axes.plot(line["x"], line["y"], color=_colour(position), linestyle=style, label=label)
            axes.axhline(0, color=_MUTED, linewidth=0.9)
            axes.set_title(panels[number])
            axes.xaxis.set_major_formatter(_separated)
            if number >= len(panels) - columns:
                axes.set_xlabel(axis)
        _legend(figure, grid[0], min(6, max(1, len(labels))))
        return _svg(figure, name, description)


def _separated(value: float, _: float) -> str:
    """A tick's number; thousands are separated."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}".replace("-", "\N{MINUS SIGN}")


def forest(name: str, description: str, rows: Sequence[str], layers: Mapping[str, pd.DataFrame], axis: str) -> str:
    """Estimates with their intervals, a panel per layer, the same rows in all, around zero.

    Args:
        name: prefix of ids, unique on the page.
        description: text for people who do not see the figure.
        rows: names of rows, top to bottom.
        layers: title of a panel to row, value, low, high, found; what was found is filled.
        axis: what is measured, with its unit.
    """
    with _drawing(9, 1.1 + 0.34 * max(1, len(rows))) as figure:
        panels = figure.subplots(1, max(1, len(layers)), sharex=True, sharey=True, squeeze=False)[0]
        for axes, (title, frame) in zip(panels, layers.items(), strict=False):
            for row in frame.to_dict("records"):
                at = rows.index(row["row"])
                axes.plot([row["low"], row["high"]], [at, at], color=_SERIES[1], linewidth=1.8)
                face = _SERIES[1] if row["found"] else _PAPER
                axes.plot(row["value"], at, "o", markersize=6.5, color=_SERIES[1], markerfacecolor=face)
            axes.axvline(0, color=_MUTED, linewidth=0.9)
            axes.set_title(title)
            axes.locator_params(axis="x", nbins=4)
            axes.grid(axis="y", visible=False)
        panels[0].set_yticks(range(len(rows)), list(rows))
        panels[0].set_ylim(len(rows) - 0.4, -0.6)
        figure.supxlabel(axis, fontsize=10)
        return _svg(figure, name, description)


def scatter(name: str, description: str, layers: Mapping[str, pd.DataFrame], x_axis: str, y_axis: str) -> str:
    """Named points of two quantities with intervals upwards, a colour per layer.

    Args:
        name: prefix of ids, unique on the page.
        description: text for people who do not see the figure.
        layers: label to name, x, y, low, high.
        x_axis: what is measured from left to right, with its unit.
        y_axis: what is measured upwards.
    """
    with _drawing(9, 3.8) as figure:
        axes = figure.subplots()
        # The first colour is that of Pipe, which has no point here.
        for position, (label, points) in enumerate(layers.items(), 1):
            reach = [points["y"] - points["low"], points["high"] - points["y"]]
            axes.errorbar(points["x"], points["y"], yerr=reach, fmt="o", color=_colour(position), label=label)
            for point in points.to_dict("records"):
                place = (point["x"], point["y"])
                axes.annotate(point["name"], place, xytext=(6, 4), textcoords="offset points", fontsize=9)
        axes.axhline(0, color=_MUTED, linewidth=0.9)
        axes.margins(x=0.12)
        axes.set_xlabel(x_axis)
        axes.set_ylabel(y_axis)
        axes.xaxis.set_major_formatter(_separated)
        _legend(figure, axes, len(layers))
        return _svg(figure, name, description)


def row_bars(name: str, description: str, places: Sequence[str], layers: Mapping[str, Sequence[float]]) -> str:
    """Counts as overlaid bars that lie, a row each, the largest layer first (arguments as in `daily_areas`)."""
    with _drawing(9, 0.8 + 0.24 * max(1, len(places))) as figure:
        axes = figure.subplots()
        for position, (label, counts) in enumerate(layers.items()):
            axes.barh(range(len(places)), list(counts), 0.78, color=_colour(position), label=label)
        axes.set_yticks(range(len(places)), list(places))
        axes.set_ylim(len(places) - 0.4, -0.6)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_formatter(_separated)
        axes.grid(axis="y", visible=False)
        _legend(figure, axes, len(layers))
        _keep_free(figure, _wider_than_measured(places))
        return _svg(figure, name, description)


def _wider_than_measured(texts: Sequence[str]) -> float:
    """Inches by which the page writes a text wider than it is measured here: the measuring font lacks the glyphs of
    ideographs and takes them for 0.6 of their width."""
    ideographs = max((sum(character >= "\u2e80" for character in text) for text in texts), default=0)
    return 0.4 * ideographs * 10 / 72


def _keep_free(figure: Figure, inches: float) -> None:
    """Leave the left edge of the figure empty."""
    share = inches / figure.get_figwidth()
    figure.set_layout_engine("constrained", rect=(share, 0, 1 - share, 1))


def stacked_bars(name: str, description: str, places: Sequence[str], layers: Mapping[str, Sequence[float]]) -> str:
    """Counts per place as bars on top of each other, the first layer below (arguments as in `daily_areas`)."""
    with _drawing(9, 3.2) as figure:
        axes = figure.subplots()
        below = np.zeros(len(places))
        for position, (label, counts) in enumerate(layers.items()):
            hatch = "////" if position >= len(_SERIES) else None
            axes.bar(
                range(len(places)), list(counts), 0.84, bottom=below, color=_colour(position), hatch=hatch, label=label
            )
            below = below + np.asarray(counts, dtype=float)
        step = max(1, -(-len(places) // 10))
        axes.set_xticks(range(0, len(places), step), [places[at] for at in range(0, len(places), step)])
        axes.yaxis.set_major_formatter(_separated)
        axes.grid(axis="x", visible=False)
        _legend(figure, axes, min(5, max(1, len(layers))))
        return _svg(figure, name, description)
