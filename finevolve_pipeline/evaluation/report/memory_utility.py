"""The Q of memories as views: of those retrieved, by third of the window, and of all that are held in the end.

What must not live here: distributions (see `evaluation.utility`), HTML.
"""

from __future__ import annotations

import pandas as pd

from finevolve_pipeline.evaluation.comparison import mechanism_label
from finevolve_pipeline.evaluation.layout.numbers import format_count, format_gain, format_share
from finevolve_pipeline.evaluation.report import charts, figures
from finevolve_pipeline.evaluation.report.findings import Findings
from finevolve_pipeline.evaluation.report.views import Block, FigureView, TableView, text_table
from finevolve_pipeline.evaluation.report.words import Words
from finevolve_pipeline.evaluation.utility import IN_THE_END, THIRDS


def utility_block(findings: Findings, words: Words) -> Block:
    """Q of the memories of every run that learns one; a sentence if none does."""
    labels = _labels(findings)
    if not labels:
        return Block((words("No run has memories with a utility Q."),))
    return Block(figures=(_figure(findings, labels, words),))


Run = tuple[str, str]
"""Backbone and mechanism."""


def _labels(findings: Findings) -> dict[Run, str]:
    """Runs with a Q, in the order of the settings; the backbone is named where there are several."""
    summary = findings.utility_summary
    having = set(zip(summary["backbone"], summary["mechanism"], strict=True))
    listed = dict.fromkeys((run.backbone, run.mechanism) for run in findings.inputs.settings.all_experiments)
    runs = [run for run in listed if run in having]
    several = len({backbone for backbone, _ in runs}) > 1
    return {(backbone, kind): mechanism_label(kind) + (f", {backbone}" if several else "") for backbone, kind in runs}


def _when(words: Words) -> dict[str, str]:
    first, second, last = THIRDS
    return {
        first: words("retrieved, first third"),
        second: words("retrieved, second third"),
        last: words("retrieved, last third"),
        IN_THE_END: words("all held in the end"),
    }


def _figure(findings: Findings, labels: dict[Run, str], words: Words) -> FigureView:
    classes = findings.utility_histogram
    when = _when(words)
    series = pd.concat(
        pd.DataFrame({"panel": labels[run], "label": when[moment], **_outline(part)})
        for run in labels
        for moment in when
        if len(part := _of(classes, run, moment))
    )
    title = words("Utility Q of memories")
    name, axis, panels, lines = "utility", words("Q"), list(labels.values()), list(when.values())
    return FigureView(
        name,
        title,
        words(
            "Share of memories by class of Q. Where the lines stay on one peak at zero, outcomes have not told "
            "memories apart; the further they spread, the more Q decides what is shown."
        ),
        figures.number_lines(name, title, series, panels, lines, axis),
        summary_table(findings.utility_summary, labels, words),
        charts.number_lines(series, panels, lines, axis, hover=".1%"),
    )


def _of(classes: pd.DataFrame, run: Run, moment: str) -> pd.DataFrame:
    backbone, mechanism = run
    return classes[
        (classes["backbone"] == backbone) & (classes["mechanism"] == mechanism) & (classes["when"] == moment)
    ]


def _outline(classes: pd.DataFrame) -> dict[str, list[float]]:
    """The outline of a histogram: both ends of every class at its height."""
    ends = classes[["low", "high"]].to_numpy().reshape(-1).tolist()
    return {"x": ends, "y": classes["share"].repeat(2).tolist()}


def summary_table(summary: pd.DataFrame, labels: dict[Run, str], words: Words) -> TableView:
    """Q in a few numbers, a row per run and moment."""
    when = _when(words)
    rows = [
        [
            labels[row["backbone"], row["mechanism"]],
            when[str(row["when"])],
            format_count(row["memories"]),
            format_share(row["untouched"]),
            format_share(row["negative"]),
            format_share(row["positive"]),
            format_gain(row["q10"]),
            format_gain(row["median"]),
            format_gain(row["q90"]),
            format_count(row["visits"]),
        ]
        for row in summary.to_dict("records")
    ]
    columns = [
        words("Method"),
        words("Which memories"),
        words("Number"),
        words("Untouched"),
        words("Q below 0"),
        words("Q above 0"),
        words("Q, 10 %"),
        words("Q, median"),
        words("Q, 90 %"),
        words("Updates, median"),
    ]
    note = words(
        "Q learns from rewards, score times excess return as a fraction, or the sign of that where the mechanism says "
        "so. Untouched: no outcome has reached them. A memory counts each time it is retrieved; in the end each "
        "counts once, and where each horizon has its own Q, their mean."
    )
    every = words("Every class stands in {file}.", file="tables/utility_histogram.csv")
    return text_table(words("Q of memories, in numbers"), columns, rows, 2, [note, every])
