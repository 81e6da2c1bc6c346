"""The command ic: Table 2 in the terminal or as a file, what can be told from chance, and a verdict in words."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import click

from assets.publishing import stored_inference
from finevolve_pipeline.cli.output import Pipeline, emit_json, fits, json_option, messages, print_lines, print_table
from finevolve_pipeline.evaluation.ic import METRICS
from finevolve_pipeline.evaluation.layout import (
    Estimate,
    Table2,
    Table2Cell,
    Table2Row,
    by_backbone,
    format_coefficient,
    format_gain,
    table2,
    table2_csv,
    table2_document,
    table2_json,
    table2_latex,
    table2_markdown,
    table2_notes,
)
from finevolve_pipeline.evaluation.layout.numbers import format_p, format_percent
from finevolve_pipeline.evaluation.layout.statistics import differences, horizon_text, levels
from finevolve_pipeline.evaluation.report.verdict_text import meanings, told
from finevolve_pipeline.evaluation.report.words import Words
from finevolve_pipeline.evaluation.stages import OVERALL
from finevolve_pipeline.evaluation.verdict import Verdict, judge
from finevolve_pipeline.graph import SINGLE
from finevolve_pipeline.mechanisms.registry import without_experience

FORMATS: dict[str, Callable[[Table2], str]] = {
    "markdown": table2_markdown,
    "csv": table2_csv,
    "latex": table2_latex,
    "json": table2_json,
}


@click.command("ic")
@click.option("--stage", type=click.Choice(["overall", "cold_start", "exploitation"]), default=OVERALL)
@click.option("--method", type=click.Choice(["spearman", "pearson"]), help="Default: the headline method.")
@click.option("--intervals", is_flag=True, help="Also intervals, adjusted p and the least detectable difference.")
@click.option(
    "--format",
    "style",
    type=click.Choice(list(FORMATS)),
    help="The table with everything that is known of it as Markdown, CSV, LaTeX or JSON, for a file. The report's "
    "tables/table2.* hold all stages.",
)
@json_option
def ic_command(stage: str, method: str | None, intervals: bool, style: str | None, as_json: bool) -> None:
    """Information coefficients of all experiments, in the layout of the paper's Table 2.

    ↑ marks a coefficient above Pipe's and says nothing about chance; * one that differs from Pipe's beyond noise.
    Below the table stands in words what the run shows and what it could not have shown.

    --json prints everything: every coefficient, gain and test of all stages, the table and the verdict.
    """
    if style and as_json:
        raise click.UsageError(f"--format {style} prints the table, --json a document with everything: choose one")
    pipeline = Pipeline.in_force()
    _tell_if_outdated(pipeline)
    if style:
        click.echo(FORMATS[style](_table(pipeline, stage, method)), nl=False)
    elif as_json:
        emit_json(_document(pipeline, stage, method))
    elif intervals:
        print_intervals(_table(pipeline, stage, method))
        _print_verdict(pipeline, stage, method)
        _print_reading(pipeline, stage, method)
    else:
        print_ic(pipeline, stage, method)
        _print_reading(pipeline, stage, method)


def _tell_if_outdated(pipeline: Pipeline) -> None:
    """A note where what the table rests on has changed since."""
    for name in ("ic_matrix", "comparison", "inference"):
        stored = pipeline.store.stored(name, SINGLE)
        if stored and stored.recipe != pipeline.graph.tables[name].recipe(SINGLE, pipeline.store).digest:
            messages.print(
                f"note: {name} was made from other predictions, labels, settings or code than there are now; "
                "`finevolve run` makes it anew, `finevolve status` says what is due"
            )
            return


def _table(pipeline: Pipeline, stage: str, method: str | None) -> Table2:
    rules = pipeline.settings.evaluation
    comparison, inference = pipeline.store.read("comparison", SINGLE), stored_inference(pipeline.store)
    alone = without_experience(pipeline.settings)
    return table2(comparison, inference, rules.confidence, (stage,), (method or rules.headline,), alone)


def _verdict(pipeline: Pipeline, stage: str, method: str | None) -> Verdict:
    return judge(stored_inference(pipeline.store), pipeline.settings.evaluation, stage, method)


def _document(pipeline: Pipeline, stage: str, method: str | None) -> dict[str, object]:
    comparison, inference = pipeline.store.read("comparison", SINGLE), stored_inference(pipeline.store)
    verdict = _verdict(pipeline, stage, method)
    return {
        "settings_digest": pipeline.settings.digest,
        "ic": pipeline.store.read("ic_matrix", SINGLE).to_dict("records"),
        "comparison": comparison.to_dict("records"),
        "inference": inference.to_dict("records"),
        "table2": table2_document(table2(comparison, inference, pipeline.settings.evaluation.confidence)),
        "verdict": {**dataclasses.asdict(verdict), "sentences": (*told(verdict, Words()), *meanings(verdict, Words()))},
    }


def print_ic(pipeline: Pipeline, stage: str = OVERALL, method: str | None = None) -> None:
    """Table 2 in the terminal, and the verdict in a few sentences."""
    table = _table(pipeline, stage, method)
    if not table.rows:
        print_lines("No run to compare.")
        return
    for backbone, rows in by_backbone(table.rows).items():
        _print_coefficients(f"Backbone {backbone}, {_what(rows[0])}", rows)
    print_lines(
        f"On cells valid in every run. ↑ above Pipe, * differs beyond noise (Holm's adjusted p below {table.level:g}), "
        "– undefined."
    )
    for note in table2_notes(table.rows):
        print_lines(note)
    _print_verdict(pipeline, stage, method)


def _what(row: Table2Row) -> str:
    return f"{row.stage.replace('_', ' ')}, {row.method}"


def _print_coefficients(title: str, rows: Sequence[Table2Row]) -> None:
    """One table; one for each metric where the terminal is too narrow for both."""
    columns = ["method", *(f"{cell.metric} {cell.horizon}d" for cell in rows[0].cells), "ΔtsIC", "ΔcsIC"]
    lines = [[row.label, *map(_compact, (*row.cells, *row.gains))] for row in rows]
    if fits(columns, lines):
        print_table(title, columns, lines)
        return
    for metric in METRICS:
        horizons = [f"{cell.horizon}d" for cell in rows[0].cells if cell.metric == metric]
        print_table(
            f"{title}, {metric}",
            ["method", *horizons, "mean Δ"],
            [[row.label, *(_compact(c) for c in (*row.cells, *row.gains) if c.metric == metric)] for row in rows],
        )


def _compact(cell: Table2Cell) -> str:
    return cell.text.replace(" ", "")


def print_intervals(table: Table2) -> None:
    """Every difference from Pipe and every coefficient with its interval and adjusted p."""
    interval = f"{format_percent(table.confidence)} interval"
    for backbone, rows in by_backbone(table.rows).items():
        for metric in METRICS:
            where = f"Backbone {backbone}, {_what(rows[0])}, {metric}"
            _print_estimates(
                f"{where}: differences from Pipe, {interval}",
                [one for one in differences(rows) if one[1].metric == metric],
                format_gain,
            )
            _print_estimates(
                f"{where}: coefficients against zero, {interval}",
                [one for one in levels(rows) if one[1].metric == metric],
                format_coefficient,
            )


def _print_estimates(
    title: str, found: Sequence[tuple[Table2Row, Table2Cell, Estimate]], style: Callable[[float], str]
) -> None:
    if not found:
        return
    print_table(
        title,
        ["method", "h", "value", "low", "high", "Holm p", "BH p", "least detectable"],
        [
            [
                row.label,
                horizon_text(cell.horizon),
                *map(style, (estimate.value, estimate.low, estimate.high)),
                *map(format_p, (estimate.p_holm, estimate.p_bh)),
                format_coefficient(estimate.minimum_detectable),
            ]
            for row, cell, estimate in found
        ],
    )


def _print_verdict(pipeline: Pipeline, stage: str, method: str | None) -> None:
    if pipeline.store.digest("inference", SINGLE) is None:
        print_lines("No difference has been tested: there is no table `inference` yet; `finevolve run` makes it.")
        return
    for sentence in told(_verdict(pipeline, stage, method), Words()):
        print_lines(sentence)


def _print_reading(pipeline: Pipeline, stage: str, method: str | None) -> None:
    """What the verdict's words mean, and what the coefficients rest on."""
    for sentence in meanings(_verdict(pipeline, stage, method), Words()):
        print_lines(sentence)
    rules = pipeline.settings.evaluation
    matrix = pipeline.store.read("ic_matrix", SINGLE)
    chosen = matrix[(matrix["stage"] == stage) & (matrix["method"] == (method or rules.headline))]
    own = chosen[chosen["cells"] == "own"]
    if own["coverage"].isna().all():
        print_lines("Nothing here has a label, so there is nothing to cover.")
        return
    print_lines(
        f"Returns start at {rules.label_base}. "
        f"Coverage {own['coverage'].min():.1%} to {own['coverage'].max():.1%}; {int(own['undefined'].sum())} "
        f"correlations undefined and left out (constant, fewer than {rules.min_sessions} sessions for tsIC or "
        f"{rules.min_industries} industries for csIC)."
    )
