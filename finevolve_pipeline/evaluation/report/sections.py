"""The report's content as plain views: tables of text, figures, sentences. The template only lays them out.

What must not live here: HTML. Text is escaped by the template, whatever it holds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from finevolve_pipeline.evaluation import diagnostics, ic
from finevolve_pipeline.evaluation.comparison import ALL_HORIZONS, experiment_label, mechanism_label
from finevolve_pipeline.evaluation.layout import Table2Row, by_backbone, format_coefficient, table2_notes, table2_rows
from finevolve_pipeline.evaluation.published import PUBLISHED_METHOD, published_comparison
from finevolve_pipeline.evaluation.report import figures
from finevolve_pipeline.evaluation.report.inputs import ReportInputs
from finevolve_pipeline.evaluation.stages import COLD_START, EXPLOITATION, OVERALL, STAGES, split_stages
from finevolve_pipeline.settings import Experiment
from finevolve_pipeline.universe import INDUSTRIES

ROLLING = 20
"""Sessions of the rolling mean."""

SAMPLE = 12
"""Articles shown."""

_METHOD_NAMES = {"spearman": "Spearman", "pearson": "Pearson"}
_STAGE_NAMES = {OVERALL: "Overall", COLD_START: "Cold start", EXPLOITATION: "Exploitation"}


@dataclass(frozen=True)
class Cell:
    """One cell: its text, for heat maps a strength in [-1, 1], and the page that it leads to."""

    text: str
    strength: float | None = None
    href: str = ""


@dataclass(frozen=True)
class TableView:
    """A table of text. The first column heads its row; columns from `numeric_from` on are numbers."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    numeric_from: int = 1
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class FigureView:
    """A figure with its title, a sentence on how to read it, and its drawing (`<svg>` of our own making)."""

    title: str
    reading: str
    svg: str


@dataclass(frozen=True)
class PanelView:
    """What is shown per backbone."""

    backbone: str
    headline: TableView
    stages: tuple[TableView, ...]
    figures: tuple[FigureView, ...]
    heat_map: TableView


@dataclass(frozen=True)
class ManifestView:
    """One heading of the manifest with its values, each as text."""

    heading: str
    values: tuple[tuple[str, str], ...]


def text_table(
    caption: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    numeric_from: int = 1,
    notes: Sequence[str] = (),
) -> TableView:
    """A table without strengths."""
    cells = tuple(tuple(Cell(text) for text in row) for row in rows)
    return TableView(caption, tuple(columns), cells, numeric_from, tuple(notes))


def _share(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.1%}"


def _number(value: float, digits: int = 2) -> str:
    return "–" if math.isnan(value) else f"{value:,.{digits}f}"


class Evaluation:
    """Series and coefficients of all runs on common cells with the headline method, computed once."""

    def __init__(self, inputs: ReportInputs) -> None:
        self.inputs = inputs
        self.settings = inputs.settings.evaluation
        self.method: ic.Method = self.settings.headline
        self.runs = inputs.runs

    @cached_property
    def panels(self) -> dict[Experiment, ic.Panel]:
        """Panels of all runs, scores kept on common cells."""
        benchmark = self.inputs.settings.benchmark
        axes = ic.make_axes(benchmark.sessions, benchmark.horizons, benchmark.codes)
        panels = ic.make_panels(self.runs, self.inputs.alpha, axes)
        common = ic.common_cells(panels)
        return {e: panel.within(common[e.backbone]) for e, panel in panels.items()}

    @cached_property
    def daily(self) -> pd.DataFrame:
        """csIC by session: experiment, session, horizon, ic, pairs, rolling, cumulative."""
        return self._of_each(
            lambda panel: ic.with_running_means(ic.daily_ic(panel, self.settings, self.method), ROLLING)
        )

    @cached_property
    def industries(self) -> pd.DataFrame:
        """tsIC by industry over the whole window: experiment, code, horizon, ic, pairs."""
        return self._of_each(lambda panel: ic.industry_ic(panel, self.settings, self.method))

    def _of_each(self, compute: Callable[[ic.Panel], pd.DataFrame]) -> pd.DataFrame:
        parts = [compute(panel).assign(experiment=experiment.key) for experiment, panel in self.panels.items()]
        if not parts:
            return pd.DataFrame(columns=["experiment", "horizon", "ic", "pairs"])
        frame = pd.concat(parts, ignore_index=True)
        return frame.loc[:, ["experiment", *frame.columns.drop("experiment")]]

    def experiments_of(self, backbone: str) -> list[Experiment]:
        """The runs of one backbone."""
        return [experiment for experiment in self.runs if experiment.backbone == backbone]

    @property
    def marks(self) -> figures.Marks:
        """What time figures show behind their lines."""
        sessions = self.inputs.sessions
        cold = split_stages(sessions, self.settings)[0].end
        regimes = self.inputs.truth.regimes if self.inputs.truth else {}
        return figures.Marks(sessions[cold] if 0 < cold < len(sessions) else None, regimes)


def summary(evaluation: Evaluation) -> tuple[str, ...]:
    """What the run shows, in sentences that claim nothing about chance."""
    sentences = []
    table = table2_rows(evaluation.inputs.comparison, method=evaluation.method)
    for backbone, rows in by_backbone(table).items():
        pipe = next((row for row in rows if row.is_pipe), None)
        others = [row for row in rows if not row.is_pipe]
        if pipe is None:
            sentences.append(f"Backbone {backbone}: there is no Pipe run, so nothing can be compared with it.")
        elif not others:
            sentences.append(f"Backbone {backbone}: only Pipe has been run.")
        else:
            parts = [
                f"{mechanism_label(row.mechanism)} lies {_above(row.gain_ts)} in tsIC and {_above(row.gain_cs)} in csIC"
                for row in others
            ]
            sentences.append(
                f"Backbone {backbone}, against Pipe without experience, mean over the horizons: {'; '.join(parts)}."
            )
    sentences.append(
        "These are point estimates. Returns over many sessions overlap, so neighbouring days repeat each "
        "other; nothing here has been tested for significance, and a difference may be chance."
    )
    return tuple(sentences)


def _above(gain: float) -> str:
    if math.isnan(gain):
        return "at an undefined distance"
    return f"{abs(gain):.4f} {'above' if gain > 0 else 'below'}" if gain else "level"


def facts(evaluation: Evaluation) -> tuple[tuple[str, str], ...]:
    """The run in a few numbers: what, value."""
    inputs = evaluation.inputs
    sessions, horizons = inputs.sessions, inputs.settings.benchmark.horizons
    common = inputs.ic_matrix[(inputs.ic_matrix["cells"] == ic.COMMON) & (inputs.ic_matrix["stage"] == OVERALL)]
    coverage = common["coverage"].dropna()
    covered = f"{coverage.min():.1%} – {coverage.max():.1%}" if len(coverage) else "–"
    return (
        ("Window", f"{sessions[0]} – {sessions[-1]}"),
        ("Sessions", f"{len(sessions)}"),
        ("Industries", f"{len(inputs.settings.benchmark.codes)}"),
        ("Horizons", f"{', '.join(map(str, horizons))} sessions"),
        ("Runs", f"{len(evaluation.runs)} of {len(inputs.settings.all_experiments)}"),
        ("Predictions", f"{len(inputs.predictions):,}"),
        ("Articles tagged", f"{int(inputs.news_counts['articles'].sum()):,}"),
        ("Common coverage", covered),
    )


def coefficient_table(caption: str, rows: Sequence[Table2Row]) -> TableView:
    """One panel in the layout of the paper's Table 2."""
    names = [f"{c.metric} {c.horizon}d" for c in rows[0].cells] if rows else []
    return text_table(
        caption,
        ["Method", *names, "Mean ΔtsIC", "Mean ΔcsIC"],
        [row.texts() for row in rows],
        notes=table2_notes(rows),
    )


def panel(evaluation: Evaluation, number: int, backbone: str) -> PanelView:
    """All that is shown about one backbone. `number` makes ids unique."""
    comparison, method = evaluation.inputs.comparison, evaluation.method
    tables = {
        stage: coefficient_table(
            f"{_STAGE_NAMES[stage]}, {_METHOD_NAMES[method]}, common cells",
            by_backbone(table2_rows(comparison, stage, method)).get(backbone, ()),
        )
        for stage in (OVERALL, COLD_START, EXPLOITATION)
    }
    return PanelView(
        backbone=backbone,
        headline=tables[OVERALL],
        stages=(tables[COLD_START], tables[EXPLOITATION]),
        figures=(
            _bars(evaluation, f"p{number}bars", backbone),
            _running(evaluation, f"p{number}rolling", backbone, "rolling"),
            _running(evaluation, f"p{number}cumulative", backbone, "cumulative"),
        ),
        heat_map=heat_map(evaluation, backbone),
    )


def _bars(evaluation: Evaluation, name: str, backbone: str) -> FigureView:
    comparison = evaluation.inputs.comparison
    rows = comparison[
        (comparison["backbone"] == backbone)
        & (comparison["stage"] == OVERALL)
        & (comparison["method"] == evaluation.method)
        & (comparison["horizon"] != ALL_HORIZONS)
    ]
    values = rows.assign(label=rows["mechanism"].map(mechanism_label))
    values = values.sort_values("metric", key=lambda metrics: metrics.map(ic.METRICS.index), kind="stable")
    title = "Coefficients by horizon and mechanism"
    reading = "Numbers stand in the table above. Above zero the scores order outcomes the right way round."
    return FigureView(title, reading, figures.coefficient_bars(name, f"{title}, backbone {backbone}", values))


def _running(evaluation: Evaluation, name: str, backbone: str, column: str) -> FigureView:
    keys = {e.key: experiment_label(e) for e in evaluation.experiments_of(backbone)}
    daily = evaluation.daily[evaluation.daily["experiment"].isin(list(keys))]
    horizons = evaluation.inputs.settings.benchmark.horizons
    series = pd.DataFrame(
        {
            "panel": daily["horizon"].map(lambda horizon: f"Horizon {horizon} sessions"),
            "label": daily["experiment"].map(keys),
            "session": daily["session"],
            "value": daily[column],
        }
    )
    if column == "rolling":
        title = f"csIC, mean of the last {ROLLING} sessions"
        reading = "Gaps: fewer than half of those sessions have a defined csIC."
    else:
        title = "Cumulative csIC"
        reading = "The sum of daily csIC; a steady slope is a steady ability, a bend is a change."
    if evaluation.marks.exploitation:
        reading += " The dotted line is where exploitation begins."
    if evaluation.marks.regimes:
        reading += " Shaded: the other planted regime."
    drawing = figures.session_lines(
        name,
        f"{title}, backbone {backbone}; daily values are in tables/daily_csic.csv",
        series,
        evaluation.inputs.sessions,
        [f"Horizon {horizon} sessions" for horizon in horizons],
        list(keys.values()),
        evaluation.marks,
    )
    return FigureView(title, reading, drawing)


def heat_map(evaluation: Evaluation, backbone: str) -> TableView:
    """tsIC by industry (rows) and mechanism x horizon (columns), coloured by value."""
    experiments = evaluation.experiments_of(backbone)
    horizons = evaluation.inputs.settings.benchmark.horizons
    frame = evaluation.industries
    frame = frame[frame["experiment"].isin([e.key for e in experiments])]
    values = {
        (str(experiment), str(code), int(horizon)): float(value)
        for experiment, code, horizon, value in frame[["experiment", "code", "horizon", "ic"]].itertuples(index=False)
    }
    largest = max((abs(value) for value in values.values() if not math.isnan(value)), default=0.0) or 1.0
    rows = tuple(
        (
            Cell(f"{industry.code} {industry.name_zh} {industry.name_en}"),
            *(
                _heat(values[experiment.key, industry.code, horizon], largest)
                for experiment in experiments
                for horizon in horizons
            ),
        )
        for industry in INDUSTRIES
        if industry.code in evaluation.inputs.settings.benchmark.codes
    )
    columns = [f"{experiment_label(e)} {horizon}d" for e in experiments for horizon in horizons]
    method = _METHOD_NAMES[evaluation.method]
    caption = f"tsIC by industry, {method}, common cells, overall; full colour at ±{largest:.2f}"
    return TableView(caption, ("Industry", *columns), rows)


def _heat(value: float, largest: float) -> Cell:
    return Cell("–") if math.isnan(value) else Cell(f"{value:+.2f}", value / largest)


def published_tables() -> tuple[TableView, ...]:
    """The paper's Table 2, backbone by backbone."""
    rows = table2_rows(published_comparison(), method=PUBLISHED_METHOD)
    return tuple(
        coefficient_table(f"As published for {backbone}", panel) for backbone, panel in by_backbone(rows).items()
    )


def full_matrix(evaluation: Evaluation) -> TableView:
    """Every coefficient: a row per run, stage, cells and method; columns metric x horizon."""
    matrix = evaluation.inputs.ic_matrix
    keys = ["experiment", "stage", "cells", "method"]
    if matrix.empty:
        return text_table("All coefficients", keys, [], len(keys))
    horizons = evaluation.inputs.settings.benchmark.horizons
    values = matrix.set_index([*keys, "metric", "horizon"])["value"].to_dict()
    rows = []
    for experiment in dict.fromkeys(matrix["experiment"]):
        for stage in STAGES:
            for cells in (ic.COMMON, ic.OWN):
                for method in ic.METHODS:
                    head = (str(experiment), stage, cells, method)
                    numbers = [
                        format_coefficient(values.get((*head, metric, horizon), math.nan))
                        for horizon in horizons
                        for metric in ic.METRICS
                    ]
                    rows.append([head[0], _STAGE_NAMES[stage], cells, method, *numbers])
    columns = ["Run", "Stage", "Cells", "Method", *(f"{m} {h}d" for h in horizons for m in ic.METRICS)]
    return text_table("All coefficients", columns, rows, 4)


def coverage_table(evaluation: Evaluation) -> TableView:
    """Coverage, and what undefined correlations would change, by run, cells and horizon."""
    matrix = evaluation.inputs.ic_matrix
    part = matrix[(matrix["stage"] == OVERALL) & (matrix["method"] == evaluation.method)]
    rows = []
    for (experiment, cells, horizon), both in part.groupby(["experiment", "cells", "horizon"], sort=False):
        by_metric = {row["metric"]: row for row in both.to_dict("records")}
        first = by_metric[ic.METRICS[0]]
        numbers = [f"{first['pairs']:,}", _share(first["coverage"])]
        for row in (by_metric[metric] for metric in ic.METRICS):
            numbers += [
                format_coefficient(row["value"]),
                f"{row['undefined']} of {row['defined'] + row['undefined']}",
                format_coefficient(row["value_undefined_zero"]),
            ]
        rows.append([str(experiment), str(cells), f"{horizon}", *numbers])
    names = [f"{metric}{what}" for metric in ic.METRICS for what in ("", " undefined", " with 0")]
    return text_table(
        f"Coverage and undefined correlations, overall, {_METHOD_NAMES[evaluation.method]}",
        ["Run", "Cells", "Horizon", "Pairs", "Coverage", *names],
        rows,
        2,
        [
            "Coverage: cells with a valid score and a known label / cells with a known label. tsIC is one "
            "correlation an industry, csIC one a session; sessions without a known label count as undefined. "
            "With 0: the mean if undefined correlations count as zero.",
        ],
    )


def prediction_table(evaluation: Evaluation) -> TableView:
    """What each run produced and was shown."""
    counts = diagnostics.prediction_counts(evaluation.inputs.predictions)
    rows = [
        [
            str(row["experiment"]),
            f"{row['sessions']}",
            f"{row['scores']:,}",
            f"{row['invalid']:,}",
            _number(row["mean_absolute_score"], 3),
            _number(row["articles"], 1),
            _number(row["articles_cut"], 1),
        ]
        for row in counts.to_dict("records")
    ]
    columns = ["Run", "Sessions", "Scores", "Invalid", "Mean |score|", "Articles shown", "Articles cut"]
    return text_table("Predictions; articles are means per industry and session", columns, rows)


def invalid_table(evaluation: Evaluation) -> TableView | None:
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
        [*map(str, key), *(f"{number:,}" for number in row)]
        for key, row in zip(by_horizon.index, by_horizon.to_numpy().tolist(), strict=True)
    ]
    columns = ["Run", "Reason", *(f"{horizon}d" for horizon in horizons)]
    return text_table("Invalid scores by reason and horizon", columns, rows, 2)


def retrieval_table(inputs: ReportInputs) -> TableView | None:
    """What was retrieved, by run and kind; None if no mechanism retrieved anything."""
    found = diagnostics.retrieval_summary(inputs.retrievals)
    order = {experiment.key: place for place, experiment in enumerate(inputs.settings.all_experiments)}
    found = found[found["experiment"].isin(list(order))]
    if found.empty:
        return None
    rows = [
        [
            str(row["experiment"]),
            str(row["kind"]).replace("_", " "),
            _number(row["memories"], 0),
            _number(row["per_prediction"]),
            _number(row["age_median"], 0),
            _number(row["age_p90"], 0),
            _share(row["from_this_session"]),
            _share(row["from_previous_session"]),
            _share(row["matured_share"]),
            _share(row["news_overlap"]),
            _number(row["similarity"], 3),
            _share(row["in_prompt"]),
        ]
        for row in found.sort_values("experiment", key=lambda keys: keys.map(order), kind="stable").to_dict("records")
    ]
    columns = ["Run", "Kind", "Memories", "Per prediction", "Median age", "90 % age", "From today", "From yesterday"]
    return text_table(
        "Memories retrieved; ages in sessions",
        [*columns, "Outcomes known", "News overlap", "Similarity", "In prompts"],
        rows,
        2,
        [
            "From today: share of memories made on that very session, from outcomes that had just become known; from "
            "yesterday: on the session before. Outcomes known: share of the outcomes of what a memory rests on that "
            "were known. News overlap: Jaccard index of article ids, of what it rests on and of the day. Similarity: "
            "cosine, – where none is compared. In prompts: share of them that prompts had room for "
            "(prompts.experience_tokens); no model saw the others.",
        ],
    )


def retrieval_figures(evaluation: Evaluation) -> tuple[FigureView, ...]:
    """Age, matured share and overlap of retrieved memories over time, per backbone that retrieved any."""
    means = diagnostics.retrieval_by_session(evaluation.inputs.retrievals)
    found = []
    for number, backbone in enumerate(dict.fromkeys(e.backbone for e in evaluation.runs)):
        labels = {e.key: experiment_label(e) for e in evaluation.experiments_of(backbone)}
        own = means[means["experiment"].isin(list(labels))]
        if not own.empty:
            found.append(_retrieval_figure(evaluation, f"retrieval{number}", backbone, labels, own))
    return tuple(found)


def _retrieval_figure(
    evaluation: Evaluation, name: str, backbone: str, labels: Mapping[str, str], means: pd.DataFrame
) -> FigureView:
    panels = {
        "age": "Age of memories, sessions",
        "matured_share": "Share of outcomes known",
        "news_overlap": "Overlap with the day's news",
    }
    label = means["experiment"].map(labels)
    series = pd.concat(
        pd.DataFrame({"panel": title, "label": label, "session": means["session"], "value": means[column]})
        for column, title in panels.items()
    )
    title = f"Retrieved memories over time, backbone {backbone}"
    drawing = figures.session_lines(
        name,
        f"{title}; means are in the table above, every session in tables/retrieval_by_session.csv",
        series,
        evaluation.inputs.sessions,
        list(panels.values()),
        list(labels.values()),
        evaluation.marks,
    )
    reading = (
        "Means over the memories of all industries. A young prediction that shares today's news is yesterday rather "
        "than experience. What was made from outcomes may be young: its age is the lesson's, not that of the news."
    )
    return FigureView(title, reading, drawing)


def news_figures(inputs: ReportInputs) -> tuple[FigureView, ...]:
    """News per calendar day, per session's window, and by importance."""
    counts = inputs.news_counts
    if counts.empty:
        return ()
    layers = {"articles": "tagged", "selected": "shown to agents"}
    by_day = counts.groupby("day", sort=True)[list(layers)].sum()
    by_importance = counts.groupby("importance")[list(layers)].sum().reindex(range(1, 11), fill_value=0)
    drawn = [
        FigureView(
            "Articles per calendar day",
            "Tagged articles, and those important and specific enough to be shown to agents.",
            figures.daily_areas(
                "newsdays",
                f"Articles per calendar day, {by_day.index[0]} to {by_day.index[-1]}",
                [str(day) for day in by_day.index],
                {label: by_day[column].tolist() for column, label in layers.items()},
            ),
        ),
        FigureView(
            "Importance",
            f"Articles by importance, 1 to 10; agents see {inputs.settings.news.min_importance} and above.",
            figures.histogram(
                "importance",
                "Articles by importance: "
                + ", ".join(f"{level}: {number}" for level, number in by_importance["articles"].items()),
                list(by_importance.index),
                {label: by_importance[column].tolist() for column, label in layers.items()},
            ),
        ),
    ]
    if not inputs.news_sessions.empty:
        windows = inputs.news_sessions.sort_values("session")
        view = FigureView(
            "Articles in each session's news window",
            "What could be observed at the session's 24:00 cutoff, all industries together.",
            figures.daily_areas(
                "newssessions",
                "Articles in the news window of each session, "
                f"{windows['articles'].min()} to {windows['articles'].max()}",
                windows["session"].tolist(),
                {"in the window": windows["articles"].tolist()},
            ),
        )
        drawn.insert(1, view)
    return tuple(drawn)


def source_table(inputs: ReportInputs) -> TableView:
    """Articles by source, most first."""
    counts = inputs.news_counts.groupby("source")[["articles", "selected"]].sum().reset_index()
    counts = counts.sort_values(["articles", "source"], ascending=[False, True])
    total = max(1, int(counts["articles"].sum()))
    rows = [
        [
            str(row["source"]),
            f"{row['articles']:,}",
            _share(row["articles"] / total),
            f"{row['selected']:,}",
            _share(row["selected"] / row["articles"] if row["articles"] else math.nan),
        ]
        for row in counts.to_dict("records")
    ]
    return text_table("Articles by source", ["Source", "Tagged", "Share", "Shown", "Share shown"], rows)


def importance_table(inputs: ReportInputs) -> TableView:
    """Articles by importance, the figure's numbers."""
    counts = inputs.news_counts.groupby("importance")[["articles", "selected"]].sum()
    counts = counts.reindex(range(1, 11), fill_value=0)
    rows = [[f"{level}", f"{row['articles']:,}", f"{row['selected']:,}"] for level, row in counts.iterrows()]
    return text_table("Articles by importance", ["Importance", "Tagged", "Shown to agents"], rows)


def news_sample(inputs: ReportInputs) -> TableView | None:
    """The first articles of the sample, to see what agents read; None without a sample."""
    if inputs.news_sample.empty:
        return None
    names = {industry.code: industry.name_zh for industry in INDUSTRIES}
    rows = []
    for row in inputs.news_sample.head(SAMPLE).to_dict("records"):
        industries = ", ".join(f"{code} {names.get(code, '')}".strip() for code in row["industries"])
        stamp = row["published_at"].strftime("%Y-%m-%d %H:%M")
        rows.append([stamp, str(row["source"]), str(row["title"]), industries or "–", f"{row['importance']}"])
    columns = ["Published (+08:00)", "Source", "Title", "Industries", "Importance"]
    return text_table("A few of the articles shown to agents", columns, rows, 4)


def truth_table(evaluation: Evaluation) -> TableView | None:
    """Mean csIC within each planted regime, by run and horizon; None for real data."""
    truth = evaluation.inputs.truth
    if truth is None:
        return None
    daily = evaluation.daily.assign(regime=evaluation.daily["session"].map(dict(truth.regimes)))
    means = daily.groupby(["experiment", "regime", "horizon"])["ic"].mean().to_dict()
    horizons = evaluation.inputs.settings.benchmark.horizons
    names = list(dict.fromkeys(truth.regimes.values()))
    rows = [
        [
            experiment.key,
            *(
                format_coefficient(means.get((experiment.key, regime, horizon), math.nan))
                for regime in names
                for horizon in horizons
            ),
        ]
        for experiment in evaluation.runs
    ]
    columns = [f"Regime {regime} {horizon}d" for regime in names for horizon in horizons]
    caption = f"Mean csIC by planted regime of the prediction day, {_METHOD_NAMES[evaluation.method]}, common cells"
    return text_table(caption, ["Run", *columns], rows)


def manifest(inputs: ReportInputs) -> tuple[ManifestView, ...]:
    """The manifests and the settings' digest, values as text."""
    views = [ManifestView("settings", (("digest", inputs.settings.digest),))]
    views += [
        ManifestView(str(heading), tuple((str(key), _plain(value)) for key, value in values.items()))
        for heading, values in inputs.manifests.items()
    ]
    return tuple(views)


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def effective_settings(inputs: ReportInputs) -> str:
    """Every effective setting as indented JSON."""
    return json.dumps(inputs.settings.model_dump(mode="json"), ensure_ascii=False, indent=2)


def backbones(comparison: pd.DataFrame) -> tuple[str, ...]:
    """Backbones of the comparison, in order."""
    return tuple(dict.fromkeys(str(backbone) for backbone in comparison["backbone"]))
