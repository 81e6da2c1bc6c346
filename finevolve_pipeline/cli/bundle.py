"""Commands of the leaderboard: bundle, verify, leaderboard."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import click
from pydantic import ValidationError
from rich.markup import escape

from finevolve_pipeline.cli.output import Pipeline, emit_json, json_option, messages, print_table, progress_bar
from finevolve_pipeline.digests import digest_json, source_digest
from finevolve_pipeline.errors import MissingPartitionError
from finevolve_pipeline.evaluation.bundle.archive import (
    Archive,
    BundleError,
    read_archive,
    require_own_file,
    tar_bytes,
    write_archive,
)
from finevolve_pipeline.evaluation.bundle.checks import one_line
from finevolve_pipeline.evaluation.bundle.content import Answers
from finevolve_pipeline.evaluation.bundle.gather import (
    BARS,
    Facts,
    RunRefusedError,
    answers_digest,
    gather_closes,
    gather_news,
    gather_run,
    pack,
    require_complete,
    require_label_base,
)
from finevolve_pipeline.evaluation.bundle.leaderboard import build_leaderboard, require_own_folder
from finevolve_pipeline.evaluation.bundle.own import OwnData
from finevolve_pipeline.evaluation.bundle.standings import Entry, entry_of, refused
from finevolve_pipeline.evaluation.bundle.verify import REACHES, Reach, Verification, verify_archive, verify_file
from finevolve_pipeline.evaluation.comparison import PIPE
from finevolve_pipeline.files import require_writable, write_atomically
from finevolve_pipeline.replay.audit import Recalling, audit
from finevolve_pipeline.replay.clock import INPUTS
from finevolve_pipeline.replay.runner import not_replayed
from finevolve_pipeline.settings import CacheSettings, Experiment, finevolve_home
from resources.backbones import build_backbone
from resources.embedders import build_embedder
from resources.records import answer_cache

SUFFIX = ".bundle.tar.gz"

_PACKAGES = ("finevolve-pipeline", "numpy", "pandas", "scipy")
_CHECKED_BY = ("finevolve_pipeline", "resources")
"""Whose code an old verification must come from to be believed again."""

_reach = click.option(
    "--against",
    "reach",
    type=click.Choice(REACHES),
    help="bundle: the bundle alone. closes: the home's closes too. all: its news and answers as well.",
)


@click.command("bundle")
@click.argument("experiments", nargs=-1, required=True)
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help=f"Default: <home>/bundles/*{SUFFIX}.")
@click.option("--submitter", default="", help="Your name as the leaderboard shows it.")
@click.option("--sessions", "replayed", type=click.IntRange(1), default=5, show_default=True, help="As in `audit`.")
@json_option
def bundle_command(
    experiments: tuple[str, ...], output: Path | None, submitter: str, replayed: int, as_json: bool
) -> None:
    """Pack finished EXPERIMENTS into one file for a leaderboard.

    It holds predictions, digests, counts, closes and figures, and no article text. Pipe of the same backbone is packed
    too, since gains are over it. Each run is audited first; one that is incomplete or fails is refused.
    """
    if len(submitter) > 80 or not submitter.isprintable():
        raise click.BadParameter("at most 80 printable characters", param_hint="--submitter")
    pipeline = _recalling(Pipeline.in_force(), "use")
    bundles = pipeline.home / "bundles"
    require_writable(output or bundles / SUFFIX)
    if output is not None:
        require_own_file(output)
    require_label_base(pipeline.settings)
    chosen = _with_pipe(pipeline, [pipeline.settings.experiment(name) for name in experiments])
    sessions = pipeline.settings.benchmark.sessions
    for experiment in chosen:
        if pipeline.store.replays.head_digest(experiment.key) is None:
            raise not_replayed(experiment, pipeline.parts(experiment))
        require_complete(experiment, pipeline.store.replays, sessions)
    _require_sound(pipeline, chosen, replayed)
    runs = [
        gather_run(one, pipeline.parts(one).mechanism_kind(one), pipeline.store.replays, sessions) for one in chosen
    ]
    content = pack(pipeline.settings, runs, _facts(pipeline, chosen, submitter))
    members = content.members()
    digest = hashlib.sha256(tar_bytes(members)).hexdigest()
    found = verify_archive("bundle", Archive(members, digest), None, "bundle")
    if not found.ok:
        first = found.failures[0]
        raise RunRefusedError(f"bundle: what was packed does not verify, {first.name}: {first.detail}")
    path = output or bundles / f"{digest[:16]}{SUFFIX}"
    write_archive(path, members)
    if as_json:
        emit_json({"bundle": str(path), "digest": digest, "runs": [run.key for run in runs], "members": len(members)})
        return
    click.echo(path)
    added = [one.key for one in chosen if one.key not in experiments]
    if added:
        messages.print(f"with {', '.join(added)}, which gains are over")


@click.command("verify")
@click.argument("file", type=click.Path(path_type=Path))
@_reach
@json_option
def verify_command(file: Path, reach: Reach | None, as_json: bool) -> None:
    """Is the bundle FILE what it claims to be?

    Recomputes every figure and looks for leaks. Where this home has closes, news and answers of its own, labels,
    prompts and scores are derived from them again. Exit code 1 if a check fails, 2 if FILE is no bundle.
    """
    found = verify_file(file, _own_data(), reach or "all")
    if as_json:
        emit_json(
            {
                "file": found.name,
                "digest": found.digest,
                "ok": found.ok,
                "level": found.level,
                "checks": [asdict(check) for check in found.checks],
            }
        )
    else:
        _print(found)
    if not found.ok:
        raise click.exceptions.Exit(1)


@click.command("leaderboard")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), help="Default: <home>/leaderboard.")
@_reach
@json_option
def leaderboard_command(folder: Path, output: Path | None, reach: Reach | None, as_json: bool) -> None:
    """A static page from the bundles in FOLDER, of those alone that verify.

    A bundle that was verified before by the same code against the same data is not verified again.
    """
    reach = reach or "closes"
    target = output or finevolve_home() / "leaderboard"
    require_own_folder(target)
    require_writable(target)
    require_writable(_verified())
    files = sorted(folder.glob(f"[!.]*{SUFFIX}"))
    if not files:
        raise MissingPartitionError(f"{folder}: holds no file *{SUFFIX}; `finevolve bundle` writes them")
    own = _own_data()
    before = source_digest(*_CHECKED_BY), reach, _own_digest(own, reach)
    entries = []
    with progress_bar() as progress:
        task = progress.add_task("verify", total=len(files))
        for path in files:
            progress.update(task, description=escape(f"verify {one_line(path.name)[:21]}"))
            entries.append(_entry(path, own, reach, before))
            progress.advance(task)
    names = build_leaderboard(target, entries)
    out = [entry for entry in entries if not entry.ok]
    if as_json:
        refusals = [{"file": entry.file, "reason": entry.problem} for entry in out]
        emit_json({"leaderboard": str(target / names[0]), "verified": len(entries) - len(out), "refused": refusals})
        return
    for entry in out:
        messages.print(f"refused {entry.file}: {entry.problem}")
    click.echo(target / names[0])


def _recalling(pipeline: Pipeline, mode: Literal["use", "replay-only"]) -> Pipeline:
    """The pipeline with another mode of its cache."""
    return Pipeline(pipeline.settings.model_copy(update={"cache": CacheSettings(mode=mode)}), pipeline.home)


def _with_pipe(pipeline: Pipeline, chosen: Sequence[Experiment]) -> list[Experiment]:
    """The experiments and Pipe of their backbones and seeds, each once, in the order of the settings."""
    pipes = [Experiment(mechanism=PIPE, backbone=one.backbone, seed=one.seed) for one in chosen]
    wanted = {one.key: one for one in (*pipes, *chosen)}
    order = [one.key for one in pipeline.settings.all_experiments]
    return sorted(wanted.values(), key=lambda one: order.index(one.key) if one.key in order else -1)


def _require_sound(pipeline: Pipeline, chosen: Sequence[Experiment], replayed: int) -> None:
    settings, store = pipeline.settings, pipeline.store
    with progress_bar() as progress:
        task = progress.add_task("audit", total=None)
        for experiment in chosen:
            report = audit(
                experiment,
                settings=settings,
                reader=store,
                store=store.replays,
                backbone=Recalling(build_backbone(experiment.backbone, settings, pipeline.home, experiment.key)),
                embedder=build_embedder(settings, pipeline.home),
                progress=lambda text: progress.update(task, description=text[:28], advance=1),
                replayed=replayed,
            )
            for finding in report.findings:
                if not finding.ok:
                    raise RunRefusedError(
                        f"bundle {experiment.key}: its audit fails, {finding.check}: {finding.detail}; "
                        f"`finevolve audit {experiment.key}` has all of it"
                    )


def _facts(pipeline: Pipeline, chosen: Sequence[Experiment], submitter: str) -> Facts:
    benchmark = pipeline.settings.benchmark
    return Facts(
        submitter=submitter,
        made_by={name: importlib.metadata.version(name) for name in _PACKAGES},
        tagger=pipeline.settings.tagging.backbone,
        cache=_answers(pipeline, sorted({one.backbone for one in chosen})),
        closes=gather_closes(pipeline.store, benchmark.sessions, benchmark.horizons),
        news=gather_news(pipeline.store, pipeline.graph.calendar_days),
    )


def _answers(pipeline: Pipeline, backbones: Sequence[str]) -> dict[str, Answers]:
    cache = answer_cache(pipeline.home)
    if not cache.is_there():
        return {name: answers_digest(()) for name in backbones}
    window = [session.isoformat() for session in pipeline.settings.benchmark.sessions]
    try:
        return {
            name: answers_digest(
                entry
                for entry in cache.entries([name])
                if entry.about.phase != "tag" and window[0] <= entry.about.day <= window[-1]
            )
            for name in backbones
        }
    finally:
        cache.close()


def _own_data() -> OwnData | None:
    """This home's data; None where there is no home."""
    if not (finevolve_home() / "tables").is_dir():
        return None
    pipeline = _recalling(Pipeline.in_force(), "replay-only")
    return OwnData(pipeline.store, pipeline.parts)


def _verified() -> Path:
    """Where this home keeps what verifying found."""
    return finevolve_home() / "cache" / "verified"


def _own_digest(own: OwnData | None, reach: Reach) -> str:
    """Digest of all that a bundle is checked against: tables, settings, and answers where runs are repeated."""
    if own is None or reach == "bundle":
        return ""
    pipeline = Pipeline.in_force()
    stored = {
        f"{table}/{partition}": own.reader.digest(table, partition)
        for table in (*BARS, *INPUTS)
        for partition in pipeline.store.partitions(table)
    }
    answers = _digest_of_answers(pipeline.home) if reach == "all" else ""
    return digest_json({"tables": stored, "settings": pipeline.settings.digest, "answers": answers})


def _digest_of_answers(home: Path) -> str:
    cache = answer_cache(home)
    if not cache.is_there():
        return ""
    try:
        return answers_digest(cache.entries()).digest
    finally:
        cache.close()


def _entry(path: Path, own: OwnData | None, reach: Reach, before: tuple[str, ...]) -> Entry:
    """The file as the leaderboard knows it, verified now or before."""
    try:
        archive = read_archive(path)
    except BundleError as unreadable:
        return refused(one_line(path.name), one_line(str(unreadable).partition(": ")[2]))
    kept = _verified() / f"{digest_json([archive.digest, *before])}.json"
    known = _remembered(kept)
    if known is None:
        known = entry_of(verify_archive(path.name, archive, own, reach))
        document = known.model_dump(mode="json")
        write_atomically(kept, json.dumps({"entry": document, "digest": digest_json(document)}).encode())
    return known.model_copy(update={"file": one_line(path.name)})


def _remembered(kept: Path) -> Entry | None:
    """What was found before; None if nothing was, or the note is damaged."""
    try:
        note = json.loads(kept.read_bytes())
        document = note["entry"]
        return Entry.model_validate(document) if note["digest"] == digest_json(document) else None
    except (FileNotFoundError, ValueError, KeyError, TypeError, ValidationError):
        return None


def _print(found: Verification) -> None:
    shown = {"ok": "ok", "failed": "FAILED", "not run": "not run"}
    print_table(
        f"{found.name} ({found.digest[:16]})",
        ["check", "", "detail"],
        [[check.name, shown[check.status], check.detail] for check in found.checks],
        text_columns=3,
    )
    for check in found.failures:
        click.echo(f"FAILED {check.name}: {check.detail}")
    click.echo(f"level: {found.level}")
