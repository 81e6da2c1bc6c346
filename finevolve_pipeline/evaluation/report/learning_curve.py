"""The learning curve as views: does the lead over Pipe grow with matured experience?

What must not live here: the curve and its test (see `evaluation.learning`), HTML.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from finevolve_pipeline.evaluation.comparison import PIPE
from finevolve_pipeline.evaluation.layout.numbers import format_ends, format_gain, format_p, format_percent
from finevolve_pipeline.evaluation.learning import PER_OUTCOMES
from finevolve_pipeline.evaluation.report import charts, figures
from finevolve_pipeline.evaluation.report.evaluated import ROLLING
from finevolve_pipeline.evaluation.report.findings import Findings, of_backbone
from finevolve_pipeline.evaluation.report.views import Block, FigureView, TableView, text_table
from finevolve_pipeline.evaluation.report.words import Words
from finevolve_pipeline.evaluation.significance import significance_level

FILE = "tables/learning_curve.csv"


def learning_block(findings: Findings, place: int, backbone: str, words: Words) -> Block:
    """The learning curve of one backbone: level and difference from Pipe, blocks, tested slopes.

    Args:
        findings: what was computed.
        place: makes ids unique.
        backbone: whose runs.
        words: the language.
    """
    labels = findings.mechanisms(backbone)
    curve = of_backbone(findings.curve, backbone)
    if curve.empty or curve["ic"].isna().all():
        return Block((words("No csIC is defined yet, so there is no learning curve."),))
    level = _figure(findings, f"p{place}learning", backbone, words, labels, "ic")
    others = {mechanism: label for mechanism, label in labels.items() if mechanism != PIPE}
    if curve.loc[curve["mechanism"] != PIPE, "difference"].isna().all():
        return Block((words("There is nothing to compare with Pipe, so only levels are shown."),), (level,))
    lead = _figure(findings, f"p{place}lead", backbone, words, others, "difference")
    slopes = of_backbone(findings.slopes, backbone)
    slopes = slopes[slopes["mechanism"] != PIPE]
    confidence = findings.evaluation.settings.confidence
    return Block(
        (_definition(words), _verdict(slopes, others, confidence, words)),
        (lead, level),
        (slope_table(slopes, others, confidence, words),),
    )


def _definition(words: Words) -> str:
    return words(
        "Matured experience is the number of outcomes, of all industries and horizons, that a run has been given when "
        "it predicts. It grows with time alone, so a trend may be learning or anything else that drifts; the "
        "difference from Pipe, which learns nothing, takes out what both share."
    )


def _verdict(slopes: pd.DataFrame, labels: Mapping[str, str], confidence: float, words: Words) -> str:
    tested = slopes.dropna(subset=["p_holm"])
    if tested.empty:
        return words("There are too few sessions with a difference to test a trend.")
    found = tested[tested["p_holm"] < significance_level(confidence)]
    if found.empty:
        return words(
            "No trend of the difference from Pipe can be told from chance (Holm-adjusted p of at least {p}).",
            p=format_p(tested["p_holm"].min()),
        )
    trends = [
        words("{mechanism} falls behind at {horizon} sessions (p {p})", **_trend(row, labels))
        if row["slope"] < 0
        else words("{mechanism} gains ground at {horizon} sessions (p {p})", **_trend(row, labels))
        for row in found.to_dict("records")
    ]
    return words(
        "As outcomes mature, against Pipe: {trends}; Holm-adjusted. Whether that is learning, a trend cannot say.",
        trends=words("; ").join(trends),
    )


def _trend(row: Mapping[Any, Any], labels: Mapping[str, str]) -> dict[str, object]:
    return {"mechanism": labels[row["mechanism"]], "horizon": row["horizon"], "p": format_p(row["p_holm"])}


def _figure(
    findings: Findings, name: str, backbone: str, words: Words, labels: Mapping[str, str], column: str
) -> FigureView:
    curve = of_backbone(findings.curve, backbone)
    curve = curve[curve["mechanism"].isin(list(labels))]
    horizons = findings.inputs.settings.benchmark.horizons
    titles = {horizon: words("Horizon {count} sessions", count=horizon) for horizon in horizons}
    series = pd.DataFrame(
        {
            "panel": curve["horizon"].map(titles),
            "label": curve["mechanism"].map(labels),
            "x": curve["matured"],
            "y": curve[f"rolling_{column}"],
        }
    )
    title, reading = {
        "difference": (
            words("Learning curve: csIC less Pipe's, by matured experience"),
            words(
                "Mean of the last {count} sessions. A line that climbs gains on Pipe as outcomes mature.", count=ROLLING
            ),
        ),
        "ic": (
            words("csIC by matured experience"),
            words("Mean of the last {count} sessions, Pipe included.", count=ROLLING),
        ),
    }[column]
    described = words("{title}, backbone {backbone}", title=title, backbone=backbone)
    panels, names = list(titles.values()), list(labels.values())
    axis = words("Outcomes known when predicting")
    first = 0 if column == "ic" else 1  # so that a mechanism has the colour that it has where Pipe is drawn too
    return FigureView(
        name,
        title,
        reading,
        figures.number_lines(name, described, series, panels, names, axis, first=first),
        block_table(findings, backbone, labels, column, words),
        charts.number_lines(series, panels, names, axis, first=first),
    )


def block_table(findings: Findings, backbone: str, labels: Mapping[str, str], column: str, words: Words) -> TableView:
    """The curve in blocks of consecutive sessions: a row a block, a column per horizon and mechanism."""
    blocks = of_backbone(findings.blocks, backbone)
    blocks = blocks[blocks["mechanism"].isin(list(labels))]
    values = blocks.set_index(["mechanism", "horizon", "block"])[column].to_dict()
    horizons = findings.inputs.settings.benchmark.horizons
    rows = []
    for number, part in blocks.groupby("block", sort=True):
        numbers = [
            format_gain(float(values.get((key, horizon, number), math.nan))) for horizon in horizons for key in labels
        ]
        first = part.iloc[0]
        rows.append([f"{first['first']} – {first['last']}", f"{first['matured']:,.0f}", *numbers])
    heads = [f"{label} {horizon}d" for horizon in horizons for label in labels.values()]
    caption = {
        "difference": words("csIC less Pipe's, mean within blocks of sessions"),
        "ic": words("csIC, mean within blocks of sessions"),
    }[column]
    return text_table(
        caption,
        [words("From – to"), words("Outcomes matured"), *heads],
        rows,
        notes=[words("Every session stands in {file}.", file=FILE)],
    )


def slope_table(slopes: pd.DataFrame, labels: Mapping[str, str], confidence: float, words: Words) -> TableView:
    """Tested trends: a row per mechanism and horizon."""
    rows = [
        [
            labels[str(row["mechanism"])],
            f"{row['horizon']}",
            f"{row['sessions']}",
            format_gain(row["slope"]),
            format_ends(row["low"], row["high"]),
            format_p(row["p"]),
            format_p(row["p_holm"]),
        ]
        for row in slopes.to_dict("records")
    ]
    columns = [
        words("Method"),
        words("Horizon"),
        words("Sessions"),
        words("Slope"),
        words("{confidence} interval", confidence=format_percent(confidence)),
        words("p"),
        words("p (Holm)"),
    ]
    return text_table(
        words("Trend of csIC less Pipe's, per {count} matured outcomes", count=f"{PER_OUTCOMES:,}"),
        columns,
        rows,
        notes=[
            words(
                "Least squares; errors may be correlated over time: their variance comes from the lowest cosines that "
                "are orthogonal to the trend. Holm over mechanisms and horizons."
            )
        ],
    )
