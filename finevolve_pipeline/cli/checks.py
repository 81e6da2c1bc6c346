"""The commands `plan` and `checks`: what a CI job materialises with Dagster's own command, and whether it may go on."""

from __future__ import annotations

import datetime as dt

import click

from assets.evaluations import CheckStanding, Verdict, check_standings
from assets.planning import STAGES, asked_sessions, planned_runs, require_landed, want
from finevolve_pipeline import calendar
from finevolve_pipeline.cli.dagster_home import open_instance
from finevolve_pipeline.cli.output import Day, Pipeline, emit_json, json_option, print_table
from finevolve_pipeline.cli.run import reaching_back
from finevolve_pipeline.definitions import build_defs
from finevolve_pipeline.errors import SettingsError

_FAILS = {
    "warn": (Verdict.FAILED, Verdict.NOT_EVALUATED, Verdict.WARNED),
    "error": (Verdict.FAILED, Verdict.NOT_EVALUATED),
}


@click.command("plan")
@click.argument("stage", type=click.Choice(STAGES))
@click.option("--from", "first", type=Day(), help="First session (default: the window's first).")
@click.option("--to", "last", type=Day(), help="Last session, or the one before that day (default: the window's last).")
@json_option
def plan_command(stage: str, first: dt.date | None, last: dt.date | None, as_json: bool) -> None:
    """The Dagster runs that materialise a STAGE of the graph, in order: inputs, then replay, then evaluation.

    A line for each, ASSETS<tab>FIRST...LAST, for `dagster asset materialize --select ASSETS --partition-range
    FIRST...LAST`; assets without partitions have no range. Stored partitions that are fresh are reused, so all that
    is wanted is named. As in `finevolve run`, --from reaches back to the first day not yet replayed.
    """
    pipeline = Pipeline.in_force()
    experiments = [experiment.key for experiment in pipeline.settings.all_experiments]
    asked = asked_sessions(pipeline.graph, first, last)
    wanted = want(pipeline.graph, pipeline.store, reaching_back(pipeline, experiments, asked[0]), asked[-1])
    require_landed(pipeline.graph, pipeline.store, wanted)
    runs = planned_runs(pipeline.graph, stage, wanted)
    if as_json:
        emit_json([{"assets": run.assets, "first": run.first, "last": run.last} for run in runs])
        return
    for run in runs:
        click.echo(f"{','.join(run.assets)}\t{'' if run.first is None else f'{run.first}...{run.last}'}")


@click.command("checks")
@click.argument("assets", nargs=-1)
@click.option(
    "--fail-on",
    type=click.Choice(tuple(_FAILS)),
    default="warn",
    show_default=True,
    help="Mildest severity of a failed check that gives exit code 1.",
)
@json_option
def checks_command(assets: tuple[str, ...], fail_on: str, as_json: bool) -> None:
    """How the asset checks of ASSETS (default: of all) stand, by what Dagster's runs have recorded.

    A failure stands until a later run has looked at the same partitions. Exit code 1 if one stands: Dagster's own
    commands fail on blocking checks only.
    """
    pipeline = Pipeline.in_force()
    definitions = build_defs(pipeline.settings, pipeline.home)
    known = {key.to_user_string() for key in definitions.resolve_asset_graph().get_all_asset_keys()}
    for asset in assets:
        if asset not in known:
            raise SettingsError(f"asset {asset!r}: not among {', '.join(sorted(known))}; name one of these")
    with open_instance(pipeline.home) as instance:
        standings = check_standings(definitions, instance, assets)
    if as_json:
        emit_json([_document(standing) for standing in standings])
    else:
        columns = ["asset", "check", "", "evaluated", "what it found"]
        print_table("asset checks", columns, [row for standing in standings for row in _rows(standing)], 5)
    if any(standing.verdict in _FAILS[fail_on] for standing in standings):
        raise click.exceptions.Exit(1)


def _rows(standing: CheckStanding) -> list[list[str]]:
    """A line for each evaluation that stands."""
    if not standing.evaluations:
        return [[standing.asset, standing.check, standing.verdict.value, "", ""]]
    return [
        [
            standing.asset,
            standing.check,
            found.verdict.value,
            f"{found.at.astimezone(calendar.SHANGHAI):%Y-%m-%d %H:%M}",
            found.text,
        ]
        for found in standing.evaluations
    ]


def _document(standing: CheckStanding) -> dict[str, object]:
    return {
        "asset": standing.asset,
        "check": standing.check,
        "verdict": standing.verdict.value,
        "evaluations": [
            {"verdict": found.verdict.value, "at": found.at.isoformat(), "run": found.run, "description": found.text}
            for found in standing.evaluations
        ],
    }
