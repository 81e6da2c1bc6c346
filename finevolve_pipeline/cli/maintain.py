"""Commands that look after runs: report, audit, reset."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict

import click

from assets.planning import Materialiser
from finevolve_pipeline import calendar
from finevolve_pipeline.cli.dagster_home import open_instance
from finevolve_pipeline.cli.output import (
    Day,
    Pipeline,
    emit_json,
    json_option,
    messages,
    print_table,
    progress_bar,
)
from finevolve_pipeline.definitions import build_defs
from finevolve_pipeline.errors import MissingPartitionError
from finevolve_pipeline.replay.audit import Recalling, audit
from finevolve_pipeline.settings import CacheSettings
from resources.backbones import build_backbone
from resources.embedders import build_embedder


@click.command("report")
@json_option
def report_command(as_json: bool) -> None:
    """Build report/index.html from the stored tables."""
    pipeline = Pipeline.in_force()
    with open_instance(pipeline.home) as instance:
        Materialiser(build_defs(pipeline.settings, pipeline.home), instance).materialise(["report"])
    path = pipeline.store.storage.root / "report" / "index.html"
    if as_json:
        emit_json({"report": str(path)})
    else:
        click.echo(path)


@click.command("reset")
@click.argument("experiments", nargs=-1, required=True)
@click.option("--from", "first", type=Day(), required=True, help="First session to forget.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def reset_command(experiments: tuple[str, ...], first: dt.date, yes: bool, as_json: bool) -> None:
    """Forget the days of EXPERIMENTS from a session on; the next run replays them.

    An experiment is a chain, so all later days go too. Other experiments and all inputs stay.
    """
    pipeline = Pipeline.in_force()
    calendar.session_index(first)
    store = pipeline.store.replays
    doomed: dict[str, list[dt.date]] = {}
    for key in dict.fromkeys(pipeline.settings.experiment(name).key for name in experiments):
        doomed[key] = [session for session in store.sessions(key) if session >= first]
        if not doomed[key]:
            raise MissingPartitionError(f"experiment {key}: no stored day from {first} on; nothing to reset")
    if not yes:
        listed = "; ".join(f"{len(days)} of {key}, {days[0]} to {days[-1]}" for key, days in doomed.items())
        click.confirm(f"Forget these days: {listed}?", abort=True, err=True)
    removed = {key: store.reset(key, first) for key in doomed}
    if as_json:
        emit_json({"removed": removed})
        return
    for key, days in removed.items():
        messages.print(f"{key}: forgot {len(days)} days, {min(days)} to {max(days)}")


@click.command("audit")
@click.argument("experiments", nargs=-1)
@click.option("--cut", "cuts", type=Day(), multiple=True, help="Last session that stays true (repeatable).")
@click.option(
    "--sessions",
    "replayed",
    type=click.IntRange(1),
    default=30,
    show_default=True,
    help="Replayed before a cut.",
)
@json_option
def audit_command(experiments: tuple[str, ...], cuts: tuple[dt.date, ...], replayed: int, as_json: bool) -> None:
    """Does your own run keep the protocol? Looks for leaks in EXPERIMENTS (default: all that have run).

    Days are replayed again in a temporary folder with everything after a cut changed: what was stored up to the cut
    must come out byte for byte. Planted cheaters must be caught. Exit code 1 if any check fails.
    """
    pipeline = Pipeline.in_force()
    # Answers are only recalled: an audit of a model's run costs nothing and needs no key.
    settings = pipeline.settings.model_copy(update={"cache": CacheSettings(mode="use")})
    store = pipeline.store
    known = [settings.experiment(key) for key in experiments] or [
        e for e in settings.all_experiments if store.replays.head_digest(e.key) is not None
    ]
    if not known:
        raise MissingPartitionError("audit: no experiment has been replayed yet; `finevolve run` does it")
    reports = []
    with progress_bar() as progress:
        task = progress.add_task("audit", total=None)
        for experiment in known:
            reports.append(
                audit(
                    experiment,
                    settings=settings,
                    reader=store,
                    store=store.replays,
                    backbone=Recalling(build_backbone(experiment.backbone, settings, pipeline.home, experiment.key)),
                    embedder=build_embedder(settings, pipeline.home),
                    cuts=cuts,
                    replayed=replayed,
                    progress=lambda text: progress.update(task, description=text[:28], advance=1),
                )
            )
    if as_json:
        emit_json([asdict(report) | {"ok": report.ok} for report in reports])
    else:
        for report in reports:
            print_table(
                f"audit of {report.experiment}",
                ["check", "", "detail"],
                [[f.check, "ok" if f.ok else "FAILED", f.detail] for f in report.findings],
                text_columns=3,
            )
    if not all(report.ok for report in reports):
        raise click.exceptions.Exit(1)
