"""What the report says beside the default tests: those of other papers, and a description of every coefficient.

What lives here: which columns of `Inference` are shown, and the words around them. What must not: their computation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from finevolve_pipeline.evaluation.comparison import ALL_HORIZONS, mechanism_label
from finevolve_pipeline.evaluation.layout.numbers import format_coefficient, format_gain, format_number, format_p
from finevolve_pipeline.evaluation.report.names import coefficient_name
from finevolve_pipeline.evaluation.report.views import TableView, text_table
from finevolve_pipeline.evaluation.report.words import Words
from finevolve_pipeline.evaluation.stages import OVERALL
from finevolve_pipeline.settings import EvaluationSettings

DIFFERENCE, LEVEL = "difference", "level"


def inference_tables(
    inference: pd.DataFrame, backbone: str, settings: EvaluationSettings, words: Words
) -> tuple[TableView, ...]:
    """Differences from Pipe by several tests, then coefficients described: whole window, headline's correlation.

    Args:
        inference: `Inference`; without rows of the backbone there is no table.
        backbone: whose runs.
        settings: the headline.
        words: the report's language.
    """
    rows = inference[
        (inference["backbone"] == backbone)
        & (inference["stage"] == OVERALL)
        & (inference["method"] == settings.headline)
    ]
    differences, levels = (_records(rows[rows["quantity"] == quantity]) for quantity in (DIFFERENCE, LEVEL))
    tables = ((differences, _by_several_tests), (levels, _described))
    return tuple(made(found, words) for found, made in tables if found)


def _records(rows: pd.DataFrame) -> list[dict[Any, Any]]:
    """Mechanism by mechanism; horizons ascending, their mean last."""
    order = rows.assign(
        _mechanism=pd.factorize(rows["mechanism"])[0],
        _last=rows["horizon"].astype(float).replace(float(ALL_HORIZONS), math.inf),
    )
    return order.sort_values(["_mechanism", "_last"], kind="stable").to_dict("records")


def _by_several_tests(rows: list[dict[Any, Any]], words: Words) -> TableView:
    columns = [words("Mechanism"), words("Coefficient"), words("Difference"), words("Standard error"), words("p")]
    columns += [words("p, Newey–West"), words("p, fixed-b"), words("p, Hansen–Hodrick"), words("p, naive t")]
    return text_table(
        words("Differences from Pipe by the tests of other papers"),
        columns,
        [
            [
                *_place(row, words),
                format_gain(row["estimate"]),
                format_coefficient(row["standard_error"]),
                *(format_p(row[name]) for name in ("p", "p_newey_west", "p_fixed_b", "p_hansen_hodrick", "p_naive")),
            ]
            for row in rows
        ],
        2,
        [
            words(
                "None is adjusted for the number of tests. The first is the one used above: equal-weighted cosine for "
                "csIC, calibrated block bootstrap of dates for tsIC. In simulated runs without any difference, of 299 "
                "sessions and horizons of 10 to 40, the others find one at 5 % so many times as often as they should: "
                "fixed-b 1.1 to 2.4, Newey–West 1.8 to 4.3, Hansen–Hodrick 1.2 to 4.6, the naive t, which takes days "
                "for independent, 7 to 14; further still in shorter windows."
            )
        ],
    )


def _described(rows: list[dict[Any, Any]], words: Words) -> TableView:
    columns = [words("Mechanism"), words("Coefficient"), words("Value"), words("Standard error"), words("Spans")]
    columns += [words("Undefined"), words("ICIR"), words("Above zero"), words("Right sign"), words("Spread of scores")]
    return text_table(
        words("Coefficients described"),
        [*columns, words("Coverage")],
        [
            [
                *_place(row, words),
                format_coefficient(row["estimate"]),
                format_coefficient(row["standard_error"]),
                format_number(row["effective_sample"], ".1f"),
                f"{row['undefined']}",
                format_number(row["icir"], ".3f"),
                format_number(row["positive_share"], ".0%"),
                format_number(row["hit_rate"], ".1%"),
                format_number(row["dispersion"], ".3f"),
                format_number(row["coverage"], ".1%"),
            ]
            for row in rows
        ],
        2,
        [
            words(
                "Spans: sessions divided by the horizon, the number of outcomes that do not overlap. ICIR: mean of the "
                "correlations divided by their standard deviation, not annualised. Above zero: share of sessions "
                "(csIC) or industries (tsIC) with a positive correlation. Right sign: share of predictions whose score "
                "has the sign of the outcome. Spread of scores: their standard deviation over industries, mean over "
                "sessions."
            )
        ],
    )


def _place(row: Mapping[Any, Any], words: Words) -> list[str]:
    return [mechanism_label(str(row["mechanism"])), coefficient_name(row["metric"], row["horizon"], words)]
