"""Where mechanisms differ from Pipe: industry by industry and horizon by horizon.

What must not live here: differences (see `evaluation.differences`), HTML.
"""

from __future__ import annotations

import math

from finevolve_pipeline.evaluation.comparison import PIPE
from finevolve_pipeline.evaluation.report.findings import Findings, of_backbone
from finevolve_pipeline.evaluation.report.sections import METHOD_NAMES, industry_names
from finevolve_pipeline.evaluation.report.views import Block, Cell, TableView
from finevolve_pipeline.evaluation.report.words import Words
from finevolve_pipeline.universe import INDUSTRIES


def industry_block(findings: Findings, backbone: str, words: Words) -> Block:
    """tsIC less Pipe's as a heat map; a sentence where nothing can be compared."""
    own = of_backbone(findings.industry_differences, backbone)
    if own["difference"].isna().all():
        return Block((words("No industry has a difference from Pipe yet."),))
    return Block(tables=(industry_map(findings, backbone, words),))


def industry_map(findings: Findings, backbone: str, words: Words) -> TableView:
    """tsIC less Pipe's by industry (rows) and mechanism x horizon (columns), with the mean of each row and column."""
    own = of_backbone(findings.industry_differences, backbone)
    values = own.set_index(["code", "mechanism", "horizon"])["difference"].to_dict()
    benchmark = findings.inputs.settings.benchmark
    labels = {mechanism: label for mechanism, label in findings.mechanisms(backbone).items() if mechanism != PIPE}
    places = [(mechanism, horizon) for mechanism in labels for horizon in benchmark.horizons]
    largest = max((abs(value) for value in values.values() if not math.isnan(value)), default=0.0) or 1.0

    def heat(value: float) -> Cell:
        return Cell("–") if math.isnan(value) else Cell(f"{value:+.2f}", value / largest)

    rows = [
        (
            Cell(f"{industry.code} {industry_names(industry, words)}"),
            *(heat(float(values.get((industry.code, *place), math.nan))) for place in places),
        )
        for industry in INDUSTRIES
        if industry.code in benchmark.codes
    ]
    means = own.groupby(["mechanism", "horizon"])["difference"].mean().to_dict()
    rows.append((Cell(words("Mean")), *(heat(float(means.get(place, math.nan))) for place in places)))
    columns = [f"{labels[mechanism]} {horizon}d" for mechanism, horizon in places]
    caption = words(
        "tsIC less Pipe's by industry, {method}, common cells, overall; full colour at ±{largest}",
        method=METHOD_NAMES[findings.evaluation.method],
        largest=f"{largest:.2f}",
    )
    note = words(
        "One industry's difference rests on few spans that do not overlap, and industries move together: look for "
        "rows and columns of one colour, not for single cells."
    )
    return TableView(caption, (words("Industry"), *columns), tuple(rows), notes=(note,))
