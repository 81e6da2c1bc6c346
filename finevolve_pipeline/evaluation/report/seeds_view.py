"""What the report says of seeds and of the noise floor: two tables a backbone.

What lives here: which numbers of `evaluation.seeds` are shown, and the words around them. What must not: their
computation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from finevolve_pipeline.evaluation import ic
from finevolve_pipeline.evaluation.comparison import ALL_HORIZONS, PIPE, mechanism_label
from finevolve_pipeline.evaluation.layout.numbers import format_coefficient, format_gain, format_number
from finevolve_pipeline.evaluation.report.inputs import ReportInputs
from finevolve_pipeline.evaluation.report.names import coefficient_name
from finevolve_pipeline.evaluation.report.views import TableView, text_table
from finevolve_pipeline.evaluation.report.words import Words
from finevolve_pipeline.evaluation.seeds import differences, noise_floor, samples_of_pipe
from finevolve_pipeline.evaluation.stages import OVERALL
from finevolve_pipeline.settings import Experiment


def seed_tables(inputs: ReportInputs, inference: pd.DataFrame, words: Words) -> tuple[TableView, ...]:
    """For every backbone: spread over seeds and noise floor, then the differences between runs of Pipe, if any.

    Over the whole window, with the headline method, on common cells.

    Args:
        inputs: what the report shows.
        inference: `Inference` of the same runs.
        words: the report's language.
    """
    same = samples_of_pipe(inputs.settings)
    floor = _headline(noise_floor(inputs.ic_matrix, inference, same), inputs)
    pairs = _headline(differences(inputs.ic_matrix, same), inputs)
    found: list[TableView] = []
    for backbone in dict.fromkeys(floor["backbone"]):
        found.append(_floor_table(str(backbone), floor[floor["backbone"] == backbone], inputs, words))
        own = pairs[pairs["backbone"] == backbone]
        if not own.empty:
            found.append(_pairs_table(str(backbone), own, inputs, words))
    return tuple(found)


def _headline(frame: pd.DataFrame, inputs: ReportInputs) -> pd.DataFrame:
    return frame[(frame["stage"] == OVERALL) & (frame["method"] == inputs.settings.evaluation.headline)]


def _floor_table(backbone: str, floor: pd.DataFrame, inputs: ReportInputs, words: Words) -> TableView:
    columns = [
        *(words("Mechanism"), words("Coefficient"), words("Seeds"), words("Mean over seeds"), words("SD over seeds")),
        *(
            words("SE over sessions"),
            words("Variance due to the seed"),
            words("Gain over Pipe"),
            words("SE of the gain"),
        ),
        *(words("Noise floor"), words("Above the floor?")),
    ]
    return text_table(
        words("Seeds and noise floor, backbone {backbone}", backbone=backbone),
        columns,
        [_floor_row(row, words) for row in floor.to_dict("records")],
        2,
        _floor_notes(backbone, floor, inputs, words),
    )


def _floor_row(row: Mapping[Any, Any], words: Words) -> list[str]:
    return [
        mechanism_label(row["mechanism"]),
        coefficient_name(row["metric"], row["horizon"], words),
        f"{row['seeds']}",
        format_coefficient(row["value"]),
        format_coefficient(row["seed_sd"]),
        format_coefficient(row["standard_error"]),
        format_number(row["seed_share"], ".0%"),
        "–" if row["mechanism"] == PIPE else format_gain(row["gain"]),
        format_coefficient(row["gain_standard_error"]),
        format_coefficient(row["floor"]),
        "–" if math.isnan(row["exceeds"]) else words("yes") if row["exceeds"] else words("no"),
    ]


def _floor_notes(backbone: str, floor: pd.DataFrame, inputs: ReportInputs, words: Words) -> list[str]:
    notes = [
        words(
            "SD over seeds: how far runs with other samples of the model lie apart. SE over sessions: how far the mean "
            "would on other days. Variance due to the seed: the share of the first in both, for a single run."
        )
    ]
    pairs = int(floor["pairs"].max())
    if not pairs:
        notes.append(
            words(
                "There is one run of Pipe, so the noise floor is not known: give [experiments] more seeds, or run "
                "pipe_aa."
            )
        )
    elif not (floor["floor"] > 0).any():
        notes.append(words("All runs of Pipe are alike, so their difference of 0 is no noise floor."))
    else:
        notes.append(
            words(
                "Noise floor: root mean square of the differences between {pairs} pairs of single runs of Pipe. A gain "
                "above it, of either sign, is more than Pipe gains over Pipe; whether it is more than chance over "
                "sessions is another question.",
                pairs=pairs,
            )
        )
    if len(inputs.settings.experiments.seeds) > 1 and backbone in inputs.settings.seedless_backbones:
        notes.append(
            words(
                "Backbone {backbone} answers alike for every seed: runs of one mechanism differ only in what the "
                "mechanism draws itself.",
                backbone=backbone,
            )
        )
    return notes


def _pairs_table(backbone: str, pairs: pd.DataFrame, inputs: ReportInputs, words: Words) -> TableView:
    columns = [(metric, h) for h in (*inputs.settings.benchmark.horizons, ALL_HORIZONS) for metric in ic.METRICS]
    experiments = {experiment.key: experiment for experiment in inputs.settings.all_experiments}
    rows = []
    for (first, second), part in pairs.groupby(["first", "second"], sort=False):
        found = part.set_index(["metric", "horizon"])["difference"].to_dict()
        name = f"{_run(experiments[str(second)], words)} − {_run(experiments[str(first)], words)}"
        rows.append([name, *_gains(found, columns)])
    return text_table(
        words("Pipe against Pipe, backbone {backbone}", backbone=backbone),
        [words("Runs"), *(coefficient_name(metric, horizon, words) for metric, horizon in columns)],
        rows,
    )


def _gains(found: Mapping[Any, float], columns: Sequence[tuple[str, int]]) -> list[str]:
    return [format_gain(found.get(column, math.nan)) for column in columns]


def _run(experiment: Experiment, words: Words) -> str:
    """The run with its seed, 0 included: runs that differ in nothing else stand beside each other."""
    name = mechanism_label(experiment.mechanism)
    return words("{mechanism}, seed {seed}", mechanism=name, seed=experiment.seed)
