"""Figures as Plotly charts: plain values of JSON that the page's script draws in place of the SVG of `figures`.

Every colour is a CSS variable, resolved on the page, so that charts follow light and dark. Every text of others goes
through `plain`: Plotly reads some markup in its texts. Only traces drawn as SVG are used; those of WebGL would need
scripts made of text, which the page's policy forbids. What must not live here: computing what is drawn, sentences.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from finevolve_pipeline.evaluation.report.figures import Marks, dash
from finevolve_pipeline.evaluation.report.words import Words

Chart = Mapping[str, Any]
"""`data` and `layout` as Plotly has them, and `x`: the places of all traces that bring none of their own."""

_COLOURS = 8
_DASHES = ("solid", "dash", "dot", "dashdot")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up")
_DIGITS = 5
_HEAD, _FOOT, _TITLE = 56, 44, 20
"""Pixels above and below all panels, and of a panel's title."""


def tool_texts(words: Words) -> Mapping[str, Any]:
    """What the tools of charts say, for the page's script: `locale`, `dictionary`, `format` as Plotly has them."""
    dictionary = {
        "Zoom": words("Zoom"),
        "Pan": words("Pan"),
        "Zoom in": words("Zoom in"),
        "Zoom out": words("Zoom out"),
        "Autoscale": words("Fit to the data"),
        "Reset axes": words("Reset the axes"),
        "Reset": words("Reset the axes"),
        "Double-click to zoom back out": words("Double-click to zoom back out"),
        "Double-click on legend to isolate one trace": words("Double-click a name to show it alone"),
    }
    # Dates are categories and numbers read alike in both languages, so no format of a locale is needed.
    return {"locale": words.language, "dictionary": dictionary, "format": {}}


def plain(text: str) -> str:
    """A text that Plotly shows as it stands, whatever it holds."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def colour(position: int) -> str:
    """The colour of the series at a position, as a CSS variable."""
    return f"var(--s{position % _COLOURS})"


def _number(value: Any) -> float | int | None:
    number = float(value)
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() else float(f"{number:.{_DIGITS}g}")


def _numbers(values: Iterable[Any]) -> list[float | int | None]:
    return [_number(value) for value in values]


def _axis(**more: Any) -> dict[str, Any]:
    return {"gridcolor": "var(--line)", "linecolor": "var(--muted)", "zerolinecolor": "var(--muted)", **more}


def _place(number: int) -> str:
    """How Plotly counts axes: x, x2, x3; also y."""
    return "" if number == 0 else f"{number + 1}"


def _title(text: str, number: int) -> dict[str, Any]:
    """A panel's title, above its upper left corner."""
    place = _place(number)
    return {
        "text": plain(text),
        "xref": f"x{place} domain",
        "yref": f"y{place} domain",
        "x": 0,
        "y": 1,
        "xanchor": "left",
        "yanchor": "bottom",
        "showarrow": False,
    }


def _chart(data: list[Any], height: int, layout: Mapping[str, Any], x: Sequence[Any] = ()) -> Chart:
    # Above the panels' titles; margins grow with the rows of names that a screen's width asks for.
    names = 1 + _TITLE / (height - _HEAD - _FOOT)
    common = {
        "height": height,
        "margin": {"l": 52, "r": 12, "t": _HEAD, "b": _FOOT},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": names, "yanchor": "bottom"},
    }
    return {"data": data, "layout": {**common, **layout}, "x": list(x)}


def _stacked(panels: int) -> list[tuple[float, float]]:
    """Where panels stand above each other, the first on top, as shares of the height."""
    gap = 0.3 / max(1, panels)
    height = (1 - gap * (panels - 1)) / max(1, panels)
    return [(1 - row * (height + gap) - height, 1 - row * (height + gap)) for row in range(panels)]


def bars(
    panels: Sequence[str], places: Sequence[str], layers: Mapping[str, Sequence[Sequence[float]]], hover: str = ".4f"
) -> Chart:
    """Bars by place and series, one panel beside the other.

    Args:
        panels: titles, left to right.
        places: what stands below the bars of every panel.
        layers: label to the heights of each panel, one a place; NaN leaves a gap.
        hover: how heights are written (a format of d3).
    """
    data: list[Any] = []
    for position, (label, heights) in enumerate(layers.items()):
        for number, row in enumerate(heights):
            data.append(
                {
                    "type": "bar",
                    "name": plain(label),
                    "legendgroup": f"{position}",
                    "showlegend": number == 0,
                    "y": _numbers(row),
                    "xaxis": f"x{_place(number)}",
                    "yaxis": f"y{_place(number)}",
                    "marker": {"color": colour(position)},
                    "hovertemplate": f"%{{x}}: %{{y:{hover}}}",
                }
            )
    layout: dict[str, Any] = {"barmode": "group", "annotations": [_title(t, n) for n, t in enumerate(panels)]}
    width = 1 / max(1, len(panels))
    for number in range(len(panels)):
        place = _place(number)
        low = number * width + (0.04 if number else 0)
        layout[f"xaxis{place}"] = _axis(type="category", domain=[low, (number + 1) * width], anchor=f"y{place}")
        matched = {"matches": "y"} if number else {}
        layout[f"yaxis{place}"] = _axis(anchor=f"x{place}", **matched)
    return _chart(data, 340, layout, [plain(place) for place in places])


def session_lines(
    series: pd.DataFrame,
    sessions: Sequence[str],
    panels: Sequence[str],
    labels: Sequence[str],
    marks: Marks,
    hover: str = ".4f",
) -> Chart:
    """Lines over sessions, one panel below the other, one line per label (arguments as `figures.session_lines`).

    Args:
        series: panel, label, session, value; NaN makes a gap.
        sessions: the x axis.
        panels: titles, top to bottom.
        labels: names of lines; a name's place is its colour, one without values is left out.
        marks: what stands behind the lines.
        hover: how values are written (a format of d3).
    """
    drawn = set(series["label"])
    values = series.set_index(["panel", "label"]).sort_index()
    data: list[Any] = []
    for number, panel in enumerate(panels):
        for position, label in enumerate(labels):
            if label not in drawn:
                continue
            line = values.loc[[(panel, label)]] if (panel, label) in values.index else values.iloc[:0]
            heights = line.set_index("session")["value"].reindex(list(sessions))
            where = {"y": _numbers(heights), "yaxis": f"y{_place(number)}"}
            data.append(_line(label, position, number, where, f"%{{y:{hover}}}"))
    layout: dict[str, Any] = {
        "hovermode": "x",
        "xaxis": _axis(type="category", nticks=8, anchor=f"y{_place(len(panels) - 1)}", range=_ends(sessions)),
        "annotations": [{**_title(title, n), "xref": "paper"} for n, title in enumerate(panels)],
        "shapes": _marks(sessions, marks),
    }
    for number, (low, high) in enumerate(_stacked(len(panels))):
        layout[f"yaxis{_place(number)}"] = _axis(domain=[low, high], anchor="x")
    return _chart(data, 110 + 180 * max(1, len(panels)), layout, sessions)


def _line(label: str, position: int, panel: int, where: Mapping[str, Any], hover: str) -> dict[str, Any]:
    """The trace of a line: `where` are its values and its axes, `hover` tells a point of it."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": plain(label),
        "legendgroup": f"{position}",
        "showlegend": panel == 0,
        **where,
        "connectgaps": False,
        "line": {"color": colour(position), "dash": _DASHES[dash(position, len(_DASHES))], "width": 1.7},
        "hovertemplate": hover,
    }


def _ends(places: Sequence[Any]) -> list[float]:
    return [-0.5, max(len(places) - 0.5, 0.5)]


def _marks(sessions: Sequence[str], marks: Marks) -> list[Any]:
    bands = [
        {
            "type": "rect",
            "xref": "x",
            "yref": "paper",
            "x0": first - 0.5,
            "x1": last + 0.5,
            "y0": 0,
            "y1": 1,
            "layer": "below",
            "line": {"width": 0},
            "fillcolor": "var(--band)",
            "label": {"text": plain(name), "textposition": "top center", "font": {"size": 10, "color": "var(--muted)"}},
        }
        for name, first, last, is_shaded in marks.spans(sessions)
        if is_shaded
    ]
    if marks.exploitation not in sessions:
        return bands
    at = sessions.index(marks.exploitation) - 0.5
    line = {"color": "var(--muted)", "width": 1, "dash": "dot"}
    return [*bands, {"type": "line", "xref": "x", "yref": "paper", "x0": at, "x1": at, "y0": 0, "y1": 1, "line": line}]


def areas(days: Sequence[str], layers: Mapping[str, Sequence[float]]) -> Chart:
    """Counts per day as overlaid areas, the largest first (arguments as `figures.daily_areas`)."""
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": plain(label),
            "y": _numbers(counts),
            "fill": "tozeroy",
            "fillcolor": colour(position),
            "line": {"color": colour(position), "width": 0, "shape": "hvh"},
            "hovertemplate": "%{y:,}",
        }
        for position, (label, counts) in enumerate(layers.items())
    ]
    axis = _axis(type="category", nticks=8, range=_ends(days))
    return _chart(data, 280, {"hovermode": "x", "xaxis": axis, "yaxis": _axis(rangemode="tozero")}, days)


def histogram(places: Sequence[int | str], layers: Mapping[str, Sequence[float]]) -> Chart:
    """Counts per place as overlaid bars, the largest first (arguments as `figures.histogram`)."""
    data = [
        {
            "type": "bar",
            "name": plain(label),
            "y": _numbers(counts),
            "marker": {"color": colour(position)},
            "hovertemplate": "%{x}: %{y:,}",
        }
        for position, (label, counts) in enumerate(layers.items())
    ]
    layout = {"barmode": "overlay", "xaxis": _axis(type="category"), "yaxis": _axis(rangemode="tozero")}
    return _chart(data, 280, layout, [plain(str(place)) for place in places])


def forest(rows: Sequence[str], layers: Mapping[str, pd.DataFrame], axis: str, hover: str = "+.4f") -> Chart:
    """Estimates with their intervals, a row each, around zero.

    Args:
        rows: names of rows, top to bottom.
        layers: label to row, value, low, high, found; layers of one row stand below each other, what was not found
            is hollow.
        axis: what is measured, with its unit.
        hover: how numbers are written (a format of d3).
    """
    height = 0.5 / max(1, len(layers))
    data = []
    for position, (label, frame) in enumerate(layers.items()):
        shift = (position - (len(layers) - 1) / 2) * height
        places = [rows.index(row) + shift for row in frame["row"]]
        value, low, high = frame["value"], frame["low"], frame["high"]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": plain(label),
                "x": _numbers(value),
                "y": places,
                "error_x": {
                    "type": "data",
                    "symmetric": False,
                    "array": _numbers(high - value),
                    "arrayminus": _numbers(value - low),
                    "color": colour(position),
                    "thickness": 1.6,
                    "width": 4,
                },
                "marker": {
                    "color": colour(position),
                    "size": 8,
                    "symbol": [
                        _SYMBOLS[position % len(_SYMBOLS)] + ("" if found else "-open") for found in frame["found"]
                    ],
                },
                "customdata": [
                    [plain(row), *_numbers(ends)] for row, *ends in zip(frame["row"], low, high, strict=True)
                ],
                "hovertemplate": (
                    f"%{{customdata[0]}}: %{{x:{hover}}} [%{{customdata[1]:{hover}}}, %{{customdata[2]:{hover}}}]"
                ),
            }
        )
    line = {"color": "var(--muted)", "width": 1.2}
    layout = {
        "xaxis": _axis(title={"text": plain(axis)}, zeroline=False),
        "yaxis": _axis(
            tickvals=list(range(len(rows))),
            ticktext=[plain(row) for row in rows],
            range=[len(rows) - 0.5, -0.5],
            automargin=True,
            zeroline=False,
        ),
        "shapes": [{"type": "line", "yref": "paper", "x0": 0, "x1": 0, "y0": 0, "y1": 1, "line": line}],
    }
    return _chart(data, 130 + (14 + 12 * len(layers)) * max(1, len(rows)), layout)


def scatter(
    layers: Mapping[str, pd.DataFrame], x_axis: str, y_axis: str, x_hover: str = ",", y_hover: str = ".4f"
) -> Chart:
    """Points of two quantities, a series per label.

    Args:
        layers: label to x, y, low, high (ends of y's interval), name (what a point is).
        x_axis: what is measured from left to right, with its unit.
        y_axis: what is measured upwards, with its unit.
        x_hover: how x is written (a format of d3).
        y_hover: how y is written.
    """
    data = [
        {
            "type": "scatter",
            "mode": "markers+text",
            "name": plain(label),
            "x": _numbers(points["x"]),
            "y": _numbers(points["y"]),
            "text": [plain(str(name)) for name in points["name"]],
            "textposition": "top right",
            "cliponaxis": False,
            "error_y": {
                "type": "data",
                "symmetric": False,
                "array": _numbers(points["high"] - points["y"]),
                "arrayminus": _numbers(points["y"] - points["low"]),
                "color": colour(position),
                "thickness": 1.6,
                "width": 4,
            },
            "customdata": [plain(str(name)) for name in points["name"]],
            "marker": {"color": colour(position), "size": 10},
            "hovertemplate": f"%{{customdata}}: %{{x:{x_hover}}}, %{{y:{y_hover}}}",
        }
        for position, (label, points) in enumerate(layers.items(), 1)
    ]
    layout = {
        "margin": {"l": 64, "r": 96, "t": _HEAD, "b": _FOOT},  # the name of the last point stands right of it
        "xaxis": _axis(title={"text": plain(x_axis)}, zeroline=False),
        "yaxis": _axis(title={"text": plain(y_axis)}),
    }
    return _chart(data, 380, layout)


def number_lines(
    series: pd.DataFrame,
    panels: Sequence[str],
    labels: Sequence[str],
    axis: str,
    columns: int = 1,
    first: int = 0,
    hover: str = ".4f",
) -> Chart:
    """Lines over a number (arguments as `figures.number_lines`; `hover`: how values are written, a format of d3)."""
    drawn = set(series["label"])
    data: list[Any] = []
    for number, panel in enumerate(panels):
        part = series[series["panel"] == panel]
        for position, label in enumerate(labels, first):
            if label not in drawn:
                continue
            line = part[part["label"] == label]
            place = _place(number)
            where = {"x": _numbers(line["x"]), "y": _numbers(line["y"]), "xaxis": f"x{place}", "yaxis": f"y{place}"}
            data.append(_line(label, position, number, where, f"%{{x:,}}: %{{y:{hover}}}"))
    rows = -(-max(1, len(panels)) // columns)
    layout: dict[str, Any] = {"annotations": [_title(title, number) for number, title in enumerate(panels)]}
    for number in range(len(panels)):
        place, row, column = _place(number), number // columns, number % columns
        gap = 0.06 if column else 0.0
        named = {"title": {"text": plain(axis)}} if axis and number >= len(panels) - columns else {}
        domain = [column / columns + gap, (column + 1) / columns]
        layout[f"xaxis{place}"] = _axis(domain=domain, anchor=f"y{place}", tickformat=",", zeroline=False, **named)
        layout[f"yaxis{place}"] = _axis(domain=list(_stacked(rows)[row]), anchor=f"x{place}")
    return _chart(data, 130 + (180 if columns == 1 else 230) * rows, layout)


def row_bars(places: Sequence[str], layers: Mapping[str, Sequence[float]]) -> Chart:
    """Counts as overlaid bars that lie, the largest layer first (arguments as `figures.row_bars`)."""
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": plain(label),
            "x": _numbers(counts),
            "y": [plain(place) for place in places],
            "marker": {"color": colour(position)},
            "hovertemplate": "%{y}: %{x:,}",
        }
        for position, (label, counts) in enumerate(layers.items())
    ]
    layout = {
        "barmode": "overlay",
        "xaxis": _axis(rangemode="tozero", tickformat=","),
        "yaxis": _axis(type="category", autorange="reversed", automargin=True),
    }
    return _chart(data, 120 + 21 * max(1, len(places)), layout)


def stacked_bars(places: Sequence[str], layers: Mapping[str, Sequence[float]]) -> Chart:
    """Counts per place as bars on top of each other (arguments as `figures.stacked_bars`)."""
    data = [
        {
            "type": "bar",
            "name": plain(label),
            "y": _numbers(counts),
            "marker": {
                "color": colour(position),
                "pattern": {"shape": "/" if position >= _COLOURS else ""},
            },
            "hovertemplate": "%{x}: %{y:,}",
        }
        for position, (label, counts) in enumerate(layers.items())
    ]
    layout = {"barmode": "stack", "xaxis": _axis(type="category", nticks=12), "yaxis": _axis(tickformat=",")}
    return _chart(data, 340, layout, [plain(place) for place in places])
