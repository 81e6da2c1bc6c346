"""The command `sensitivity`: does the conclusion survive another way of evaluating the same predictions?"""

from __future__ import annotations

import click

from finevolve_pipeline.cli.output import Pipeline, emit_json, json_option, print_lines, print_table
from finevolve_pipeline.evaluation.report.sensitivity_page import sensitivity_view
from finevolve_pipeline.evaluation.report.views import TableView
from finevolve_pipeline.evaluation.report.words import Words
from finevolve_pipeline.evaluation.sensitivity import survivals
from finevolve_pipeline.graph import SINGLE


@click.command("sensitivity")
@json_option
def sensitivity_command(as_json: bool) -> None:
    """Does the conclusion survive? Differences from Pipe with one thing of the evaluation changed at a time."""
    pipeline = Pipeline.in_force()
    table = pipeline.store.read("sensitivity", SINGLE)
    view = sensitivity_view(table, pipeline.settings, Words())
    if as_json:
        emit_json(
            {
                "settings_digest": pipeline.settings.digest,
                "verdict": list(view.sentences),
                "survival": [
                    {"backbone": fate.backbone, "variant": fate.variant, "stage": fate.stage, "outcome": fate.outcome}
                    for fate in survivals(table)
                ],
                "rows": table.to_dict("records"),
            }
        )
        return
    print_lines(" ".join(view.sentences))
    for one in view.backbones:
        print_lines("")
        print_lines(f"Backbone {one.backbone}", style="bold")
        if one.matrix.rows:
            print_lines(f"{one.conclusion} {' '.join(one.sentences)}")
        else:
            print_lines("There is nothing to compare: no mechanism has been run beside Pipe.")
        for line in one.changes:
            print_lines(line, 2)
        _print(one.matrix)
        print_lines(one.cutoff.sentence)
        if one.cutoff.table is not None:
            _print(one.cutoff.table)
        _print(one.exploitation)


def _print(view: TableView) -> None:
    if not view.rows:
        return
    print_table(view.caption, view.columns, [[cell.text for cell in row] for row in view.rows], view.numeric_from)
    for note in view.notes:
        print_lines(note)
