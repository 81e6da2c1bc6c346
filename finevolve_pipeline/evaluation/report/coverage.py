"""What runs produced and how much of it counts, as views: predictions, invalid scores, coverage of the coefficients.

What must not live here: counting (see `evaluation.diagnostics`), HTML.
"""

from __future__ import annotations

from finevolve_pipeline.evaluation import diagnostics, ic
from finevolve_pipeline.evaluation.layout.numbers import format_coefficient, format_number, format_share
from finevolve_pipeline.evaluation.report.evaluated import Evaluation
from finevolve_pipeline.evaluation.report.names import METHOD_NAMES, cells_name
from finevolve_pipeline.evaluation.report.views import TableView, text_table
from finevolve_pipeline.evaluation.report.words import Words
from finevolve_pipeline.evaluation.stages import OVERALL


def prediction_table(evaluation: Evaluation, words: Words) -> TableView:
    """What each run produced and was shown."""
    counts = diagnostics.prediction_counts(evaluation.inputs.predictions)
    rows = [
        [
            str(row["experiment"]),
            f"{row['sessions']}",
            f"{row['scores']:,}",
            f"{row['invalid']:,}",
            format_number(row["mean_absolute_score"], ",.3f"),
            format_number(row["articles"], ",.1f"),
            format_number(row["articles_cut"], ",.1f"),
        ]
        for row in counts.to_dict("records")
    ]
    columns = [
        words("Run"),
        words("Sessions"),
        words("Scores"),
        words("Invalid"),
        words("Mean |score|"),
        words("Articles shown"),
        words("Articles cut"),
    ]
    return text_table(words("Predictions; articles are means per industry and session"), columns, rows)


def invalid_table(evaluation: Evaluation, words: Words) -> TableView | None:
    """Invalid scores by run and reason, a column per horizon; None if there are none."""
    counts = diagnostics.invalid_scores(evaluation.inputs.predictions)
    if counts.empty:
        return None
    horizons = evaluation.inputs.settings.benchmark.horizons
    by_horizon = counts.pivot_table(
        index=["experiment", "invalid_reason"],
        columns="horizon",
        values="scores",
        aggfunc="sum",
        fill_value=0,
    ).reindex(columns=list(horizons), fill_value=0)
    rows = [
        [*map(str, key), *(f"{count:,}" for count in row)]
        for key, row in zip(by_horizon.index, by_horizon.to_numpy().tolist(), strict=True)
    ]
    columns = [words("Run"), words("Reason"), *(f"{horizon}d" for horizon in horizons)]
    return text_table(words("Invalid scores by reason and horizon"), columns, rows, 2)


def coverage_table(evaluation: Evaluation, words: Words) -> TableView:
    """Coverage, and what undefined correlations would change, by run, cells and horizon."""
    matrix = evaluation.inputs.ic_matrix
    part = matrix[(matrix["stage"] == OVERALL) & (matrix["method"] == evaluation.method)]
    rows = []
    for (experiment, cells, horizon), both in part.groupby(["experiment", "cells", "horizon"], sort=False):
        by_metric = {row["metric"]: row for row in both.to_dict("records")}
        first = by_metric[ic.METRICS[0]]
        numbers = [f"{first['pairs']:,}", format_share(first["coverage"])]
        for row in (by_metric[metric] for metric in ic.METRICS):
            numbers += [
                format_coefficient(row["value"]),
                words("{some} of {all}", some=row["undefined"], all=row["defined"] + row["undefined"]),
                format_coefficient(row["value_undefined_zero"]),
            ]
        rows.append([str(experiment), cells_name(str(cells), words), f"{horizon}", *numbers])
    names = [
        name
        for metric in ic.METRICS
        for name in (metric, words("{metric} undefined", metric=metric), words("{metric} with 0", metric=metric))
    ]
    return text_table(
        words("Coverage and undefined correlations, overall, {method}", method=METHOD_NAMES[evaluation.method]),
        [words("Run"), words("Cells"), words("Horizon"), words("Pairs"), words("Coverage"), *names],
        rows,
        2,
        [
            words(
                "Coverage: cells with a valid score and a known label / cells with a known label. tsIC is one "
                "correlation an industry, csIC one a session; sessions without a known label count as undefined. "
                "With 0: the mean if undefined correlations count as zero."
            ),
        ],
    )
