"""Commands that write the dataset out: export release."""

from __future__ import annotations

import click

from assets.planning import Materialiser
from finevolve_pipeline.cli.dagster_home import open_instance
from finevolve_pipeline.cli.output import Pipeline, emit_json, json_option
from finevolve_pipeline.definitions import build_defs
from finevolve_pipeline.files import files_below


@click.group("export")
def export_group() -> None:
    """Write results out."""


@export_group.command("release")
@json_option
def export_release_command(as_json: bool) -> None:
    """The dataset as daily YYYYMMDD.csv and parquet with checksums and a datasheet, in <home>/release."""
    pipeline = Pipeline.in_force()
    with open_instance(pipeline.home) as instance:
        Materialiser(build_defs(pipeline.settings, pipeline.home), instance).materialise(["benchmark_release"])
    target = pipeline.store.storage.root / "release"
    if as_json:
        emit_json({"release": str(target), "files": files_below(target)})
    else:
        click.echo(target)
