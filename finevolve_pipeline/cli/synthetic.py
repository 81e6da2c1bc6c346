"""Commands on the synthetic world: synth writes it as files, demo runs the whole graph on it."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import sys
from importlib.resources import files as resource_files
from pathlib import Path

import click

from assets.planning import require_landed, want
from assets.publishing import TRUTH
from finevolve_pipeline import calendar
from finevolve_pipeline.cli.ic import print_ic
from finevolve_pipeline.cli.imports import import_group
from finevolve_pipeline.cli.output import Day, Pipeline, emit_json, json_option, messages, require_folder
from finevolve_pipeline.cli.run import build_everything, summary
from finevolve_pipeline.errors import InputError, SettingsError
from finevolve_pipeline.files import write_atomically
from finevolve_pipeline.news.window import window_days
from finevolve_pipeline.settings import load_settings
from finevolve_pipeline.synth.files import BENCHMARK_UNITS, INDUSTRY_UNITS, WorldFiles, write_world
from finevolve_pipeline.synth.world import REGIMES, Regime, SynthSettings, generate
from resources.storage import Storage

_DEFAULT = SynthSettings()

_SETTINGS = """\
# Settings of a synthetic world: its window, the news and the bars it has.
[benchmark]
first_session = {first}
last_session = {last}

[news]
first_day = {first_day}
last_day = {last_day}

[market]
first_session = {first_bar}
last_session = {last_bar}
"""


@click.command("synth")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--seed", type=click.IntRange(0), default=_DEFAULT.seed, show_default=True)
@click.option("--from", "first", type=Day(), default=_DEFAULT.first_session.isoformat(), show_default=True)
@click.option("--to", "last", type=Day(), default=_DEFAULT.last_session.isoformat(), show_default=True)
@click.option("--articles-per-day", type=click.IntRange(1), default=_DEFAULT.articles_per_day, show_default=True)
@click.option("--signal", type=float, default=_DEFAULT.signal, show_default=True, help="0 plants nothing.")
@click.option(
    "--regime",
    type=click.Choice(REGIMES),
    default=_DEFAULT.regime,
    show_default=True,
    help="Prices follow the news, then go against it (turning); go against it throughout (stable); go against it, then "
    "follow it (reversal); or move without it (noise).",
)
@json_option
def synth_command(
    folder: Path,
    seed: int,
    first: dt.date,
    last: dt.date,
    articles_per_day: int,
    signal: float,
    regime: Regime,
    as_json: bool,
) -> None:
    """Write a synthetic world to FOLDER: news, closes, settings, and the truth about both.

    The files go through `finevolve import` like real ones; the commands to do so are printed.
    """
    settings = SynthSettings(
        seed=seed,
        first_session=first,
        last_session=last,
        articles_per_day=articles_per_day,
        signal=signal,
        regime=regime,
    )
    config = folder / "finevolve.toml"
    if config.is_file() and config.read_bytes() != _settings_text(settings).encode():
        raise InputError(f"{config}: is there and says something else; name another folder, or move the file away")
    files = write_synthetic(settings, folder)
    commands = [" ".join(["finevolve", "import", *arguments]) for arguments in import_arguments(files)]
    if as_json:
        emit_json({"folder": str(folder), "settings": str(folder / "finevolve.toml"), "import": commands})
    else:
        messages.print(f"synthetic world of {len(settings.sessions)} sessions in {folder}; to use it:")
        for command in commands:
            click.echo(command.replace("finevolve ", f"finevolve --config {folder / 'finevolve.toml'} ", 1))


def write_synthetic(settings: SynthSettings, folder: Path) -> WorldFiles:
    """The world's files and the settings file that fits them."""
    files = write_world(generate(settings), folder)
    write_atomically(folder / "finevolve.toml", _settings_text(settings).encode())
    return files


def _settings_text(world: SynthSettings) -> str:
    """The world's window, and of its news and bars as much as the packaged window and horizons need of them.

    A longer span would leave days that no session needs, which the Dagster UI shows as missing for ever.
    """
    packaged = load_settings(Path(str(resource_files("finevolve_pipeline") / "finevolve.toml")))
    first, last = world.sessions[0], world.sessions[-1]
    return _SETTINGS.format(
        first=first,
        last=last,
        first_day=window_days(first, packaged.news.window)[0],
        last_day=last,
        first_bar=calendar.shift(first, -max(packaged.benchmark.horizons)),
        last_bar=world.bar_sessions[-1],
    )


def import_arguments(files: WorldFiles) -> list[list[str]]:
    """Arguments of the import commands that bring a written world in."""
    market = ["market", "--industries", str(files.industries), "--benchmark", str(files.benchmark)]
    for side, units in (("industry", INDUSTRY_UNITS), ("benchmark", BENCHMARK_UNITS)):
        market += [f"--{side}-volume-unit", units.volume, f"--{side}-amount-unit", units.amount]
    return [["news", str(files.news)], market]


@click.command("demo")
@click.option("--seed", type=click.IntRange(0), default=_DEFAULT.seed, show_default=True)
@json_option
def demo_command(seed: int, as_json: bool) -> None:
    """The whole graph on a synthetic world: about 60 sessions, 31 industries, nine sources, six mechanisms.

    State lies in FINEVOLVE_HOME, or in .finevolve/demo if that is not set. A second call reuses what is there.
    """
    home = Path(os.environ.get("FINEVOLVE_HOME") or Path(".finevolve") / "demo").absolute()
    world = home / "world"
    require_folder(home)
    _refuse_other_data(home, seed)
    settings = SynthSettings(seed=seed)
    first, last = settings.sessions[0], settings.sessions[-1]
    messages.print(f"[1/3] synthetic world: {len(settings.sessions)} sessions, {first} to {last}, seed {seed}")
    files = write_synthetic(settings, world)
    root = Storage.of(home).root
    if root != home:  # any machine may build the report
        write_atomically(root / TRUTH, files.truth.read_bytes())
    os.environ["FINEVOLVE_HOME"] = str(home)
    os.environ["FINEVOLVE_CONFIG"] = str(world / "finevolve.toml")
    messages.print("[2/3] import")
    with contextlib.redirect_stdout(sys.stderr):
        for arguments in import_arguments(files):
            import_group.main(arguments, standalone_mode=False)
    messages.print("[3/3] materialise the graph through Dagster")
    pipeline = Pipeline.in_force()
    wanted = want(pipeline.graph, pipeline.store)
    require_landed(pipeline.graph, pipeline.store, wanted)
    build_everything(pipeline, wanted, jobs=min(os.cpu_count() or 1, len(wanted.experiments)))
    if as_json:
        emit_json(summary(pipeline, wanted))
        return
    print_ic(pipeline)
    messages.print(f"report: {root / 'report' / 'index.html'}")
    messages.print(f"more:   finevolve --home {home} --config {world / 'finevolve.toml'} status")


def _refuse_other_data(home: Path, seed: int) -> None:
    """A home is given to one demo, and a home with data of its own to none."""
    marker = home / "world" / "seed"
    stored = marker.read_text("utf-8").strip() if marker.exists() else None
    if stored is None and (Storage.of(home).root / "landing").is_dir():
        raise SettingsError(f"home {home}: holds imported data; name another folder for the demo with --home")
    if stored not in (None, str(seed)):
        raise SettingsError(
            f"seed {seed}: {home} holds the demo of seed {stored}; name another folder with --home or FINEVOLVE_HOME"
        )
    write_atomically(marker, f"{seed}\n".encode())
