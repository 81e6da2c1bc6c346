"""What was retrieved as views: by run and kind, and over time; how it is distributed is in `retrieval_spread`.

What must not live here: counting (see `evaluation.diagnostics`), HTML.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from finevolve_pipeline.evaluation import diagnostics
from finevolve_pipeline.evaluation.comparison import experiment_label
from finevolve_pipeline.evaluation.layout.numbers import format_number, format_share
from finevolve_pipeline.evaluation.report import charts, figures
from finevolve_pipeline.evaluation.report.evaluated import Evaluation
from finevolve_pipeline.evaluation.report.inputs import ReportInputs
from finevolve_pipeline.evaluation.report.months import month_of, month_table
from finevolve_pipeline.evaluation.report.names import kind_name
from finevolve_pipeline.evaluation.report.views import FigureView, TableView, text_table
from finevolve_pipeline.evaluation.report.words import Words


def retrieval_table(inputs: ReportInputs, words: Words) -> TableView | None:
    """What was retrieved, by run and kind; None if no mechanism retrieved anything."""
    found = diagnostics.retrieval_summary(inputs.retrievals)
    order = {experiment.key: place for place, experiment in enumerate(inputs.settings.all_experiments)}
    found = found[found["experiment"].isin(list(order))]
    if found.empty:
        return None
    rows = [
        [
            str(row["experiment"]),
            kind_name(str(row["kind"]), words),
            format_number(row["memories"], ",.0f"),
            format_number(row["per_prediction"], ",.2f"),
            format_number(row["age_median"], ",.0f"),
            format_number(row["age_p90"], ",.0f"),
            format_share(row["from_this_session"]),
            format_share(row["from_previous_session"]),
            format_share(row["matured_share"]),
            format_share(row["news_overlap"]),
            format_number(row["similarity"], ",.3f"),
            format_share(row["in_prompt"]),
        ]
        for row in found.sort_values("experiment", key=lambda keys: keys.map(order), kind="stable").to_dict("records")
    ]
    columns = [
        words("Run"),
        words("Kind"),
        words("Memories"),
        words("Per prediction"),
        words("Median age"),
        words("90 % age"),
        words("From today"),
        words("From yesterday"),
        words("Outcomes known"),
        words("News overlap"),
        words("Similarity"),
        words("In prompts"),
    ]
    return text_table(
        words("Memories retrieved; ages in sessions"),
        columns,
        rows,
        2,
        [
            words(
                "From today: share of memories made on that very session, from outcomes that had just become known; "
                "from yesterday: on the session before. Outcomes known: share of the outcomes of what a memory rests "
                "on that were known. News overlap: Jaccard index of article ids, of what it rests on and of the day. "
                "Similarity: cosine, – where none is compared. In prompts: share of them that prompts had room for "
                "(prompts.experience_tokens); no model saw the others."
            ),
        ],
    )


def retrieval_figures(evaluation: Evaluation, words: Words) -> tuple[FigureView, ...]:
    """Age, matured share and overlap of retrieved memories over time, per backbone that retrieved any."""
    means = diagnostics.retrieval_by_session(evaluation.inputs.retrievals)
    found = []
    for place, backbone in enumerate(dict.fromkeys(e.backbone for e in evaluation.runs)):
        labels = {e.key: experiment_label(e, words) for e in evaluation.experiments_of(backbone)}
        own = means[means["experiment"].isin(list(labels))]
        if not own.empty:
            found.append(_retrieval_figure(evaluation, f"retrieval{place}", backbone, labels, own, words))
    return tuple(found)


def _retrieval_figure(
    evaluation: Evaluation, name: str, backbone: str, labels: Mapping[str, str], means: pd.DataFrame, words: Words
) -> FigureView:
    panels = {
        "age": words("Age of memories, sessions"),
        "matured_share": words("Share of outcomes known"),
        "news_overlap": words("Overlap with the day's news"),
    }
    label = means["experiment"].map(labels)
    series = pd.concat(
        pd.DataFrame({"panel": title, "label": label, "session": means["session"], "value": means[column]})
        for column, title in panels.items()
    )
    title = words("Retrieved memories over time, backbone {backbone}", backbone=backbone)
    shown = (evaluation.inputs.sessions, list(panels.values()), list(labels.values()))
    return FigureView(
        name,
        title,
        words(
            "Means over the memories of all industries. A young prediction that shares today's news is yesterday "
            "rather than experience. What was made from outcomes may be young: its age is the lesson's, not that of "
            "the news."
        ),
        figures.session_lines(name, title, series, *shown, evaluation.marks(words)),
        month_table(
            words("{title}, means of each month", title=title),
            series.groupby(["panel", "label", month_of(series["session"])])["value"].mean(),
            *shown[1:],
            words,
            [words("Every session stands in {file}.", file="tables/retrieval_by_session.csv")],
            ".2f",
        ),
        charts.session_lines(series, *shown, evaluation.marks(words), ".2f"),
    )
