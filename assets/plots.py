"""Small plots for asset metadata: pictures for the few large tables, text bars for the many partitions."""

import base64
import io
from collections.abc import Mapping, Sequence

import dagster as dg
import pandas as pd
from matplotlib.figure import Figure

_BLOCKS = "▁▂▃▄▅▆▇█"
_SIZE = (6.4, 2.6)
_LEGEND_LINE = 0.22
"""Inches."""


def text_bars(counts: Sequence[int]) -> str:
    """Counts as one line of block characters, the largest full; empty bars are blanks."""
    top = max(counts, default=0)
    return "".join(_BLOCKS[(count * (len(_BLOCKS) - 1)) // top] if count else " " for count in counts)


def histogram(values: Mapping[str, pd.Series], label: str) -> dg.MarkdownMetadataValue:
    """Distributions over each other, one outline a key, missing values left out."""
    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.subplots()
    for name, series in values.items():
        axes.hist(series.dropna(), bins=60, histtype="step", label=name)
    axes.set_xlabel(label)
    axes.legend(frameon=False)
    return _picture(figure, label)


def bars(values: pd.DataFrame, label: str) -> dg.MarkdownMetadataValue:
    """Groups of bars: one group a row, one bar a column. The picture is as high as its legend needs."""
    across, high = _SIZE
    figure = Figure(figsize=(across, max(high, _LEGEND_LINE * len(values.columns))), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / max(1, len(values.columns))
    for position, name in enumerate(values.columns):
        places = [group - 0.4 + (position + 0.5) * width for group in range(len(values))]
        axes.bar(places, values[name], width, label=str(name))
    axes.set_xticks(range(len(values)), [str(name) for name in values.index])
    axes.axhline(0, color="0.5", linewidth=0.8)
    axes.set_ylabel(label)
    if len(values.columns):
        figure.legend(loc="outside right upper", frameon=False, fontsize="small")
    return _picture(figure, label)


def _picture(figure: Figure, label: str) -> dg.MarkdownMetadataValue:
    sink = io.BytesIO()
    figure.savefig(sink, format="png", dpi=80)
    return dg.MetadataValue.md(f"![{label}](data:image/png;base64,{base64.b64encode(sink.getvalue()).decode()})")
