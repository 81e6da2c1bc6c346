"""The command line `finevolve`.

What belongs here: arguments, progress, tables in the terminal, exit codes. What must not: any rule of the benchmark.
Standard output carries results (with `--json` one JSON document and nothing else); progress and messages go to
standard error. Exit codes: 0 done; 1 something did not succeed (a failed check, input that broke off, a broken run);
2 wrong use or unusable input; 3 an experiment is locked by another process; 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from finevolve_pipeline.cli.alerts import alerts_group
from finevolve_pipeline.cli.bundle import bundle_command, leaderboard_command, verify_command
from finevolve_pipeline.cli.cache import cache_group
from finevolve_pipeline.cli.checks import checks_command, plan_command
from finevolve_pipeline.cli.crawl import coverage_command, crawl_command
from finevolve_pipeline.cli.experience import case_command, memory_command
from finevolve_pipeline.cli.exports import export_group
from finevolve_pipeline.cli.fetch import fetch_group
from finevolve_pipeline.cli.ic import ic_command
from finevolve_pipeline.cli.imports import import_group
from finevolve_pipeline.cli.inspect import alpha_command, doctor_command, status_command
from finevolve_pipeline.cli.maintain import audit_command, report_command, reset_command
from finevolve_pipeline.cli.money import estimate_command, usage_command
from finevolve_pipeline.cli.run import run_command
from finevolve_pipeline.cli.sensitivity import sensitivity_command
from finevolve_pipeline.cli.synthetic import demo_command, synth_command
from finevolve_pipeline.cli.tagging import tagging_group
from finevolve_pipeline.errors import FinEvolveError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--home",
    type=click.Path(path_type=Path),
    help="Folder of all state (FINEVOLVE_HOME, default .finevolve).",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Settings file (FINEVOLVE_CONFIG, default ./finevolve.toml).",
)
@click.version_option(package_name="finevolve-pipeline")
def cli(home: Path | None, config: Path | None) -> None:
    """FinEvolveBench: does experience help an agent that predicts industries from news?"""
    # Child processes and the Dagster code location read the same two variables.
    if home is not None:
        os.environ["FINEVOLVE_HOME"] = str(home.absolute())
    if config is not None:
        os.environ["FINEVOLVE_CONFIG"] = str(config.absolute())


for command in (
    demo_command,
    synth_command,
    import_group,
    crawl_command,
    coverage_command,
    fetch_group,
    estimate_command,
    run_command,
    usage_command,
    plan_command,
    checks_command,
    cache_group,
    tagging_group,
    status_command,
    alpha_command,
    ic_command,
    sensitivity_command,
    memory_command,
    case_command,
    report_command,
    audit_command,
    reset_command,
    export_group,
    bundle_command,
    verify_command,
    leaderboard_command,
    doctor_command,
    alerts_group,
):
    cli.add_command(command)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; errors meant for the user become one line and an exit code."""
    try:
        code = cli.main(args=arguments, prog_name="finevolve", standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("stopped", err=True)
        sys.exit(130)
    except click.ClickException as wrong:
        wrong.show()
        sys.exit(2)
    except FinEvolveError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of our output has gone (`finevolve ic | head`): not an error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as refused:
        # A file or folder of the user's choice that cannot be read or written; the tables' own errors come as ours.
        click.echo(f"error: {refused.filename or 'system'}: {refused.strerror or refused}", err=True)
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)
