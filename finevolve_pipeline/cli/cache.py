"""Commands of the cache: cache export, import, stats, verify.

The cache holds what models answered and embedders computed, never an article: a bundle of it may be given away, and
lets anyone re-run a table of results with `--cache replay-only`, without a model or a key.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from finevolve_pipeline.cli.output import Pipeline, emit_json, json_option, messages, print_table, results
from finevolve_pipeline.errors import CacheError
from finevolve_pipeline.llm.bundle import Manifest, export_bundle, import_bundle
from finevolve_pipeline.llm.cache import (
    AnswerCache,
    Health,
    Tally,
    Total,
    VectorCache,
    plain,
)
from resources.backbones import build_backbone
from resources.records import answer_cache, vector_cache


@click.group("cache")
def cache_group() -> None:
    """Answers of models and vectors, kept so that nothing is asked twice."""


@cache_group.command("export")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--backbone", "backbones", multiple=True, help="Only answers of this backbone (repeatable).")
@json_option
def export_command(file: Path, backbones: tuple[str, ...], as_json: bool) -> None:
    """Write the cache to FILE, a bundle with checksums. It holds no article and no prompt.

    A bundle that is there is replaced, any other file stays.
    """
    _require_writable(file)
    pipeline = Pipeline.in_force()
    answers, vectors = _caches(pipeline)
    if not answers.is_there() and not vectors.is_there():
        raise CacheError(f"cache of {pipeline.home}: nothing to export yet; `finevolve run` fills it")
    known = _identities(pipeline, backbones or answers.backbones())
    manifest = export_bundle(file, answers, vectors, known, backbones or None)
    for name in sorted({one.backbone for one in manifest.contents} - known.keys()):
        messages.print(f"{name}: not in the settings, so the bundle does not say how it was asked")
    if as_json:
        emit_json({"bundle": str(file), "bytes": file.stat().st_size} | _described(manifest))
        return
    messages.print(f"{manifest.answers} answers, {manifest.vectors} vectors, {_size(file.stat().st_size)}")
    click.echo(file)


@cache_group.command("import")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--replace", is_flag=True, help="It is replaced instead.")
@json_option
def import_command(file: Path, replace: bool, as_json: bool) -> None:
    """Merge the bundle FILE into the cache.

    All of it, or nothing if anything in it is wrong. An entry that is here with other content stays as it is.
    """
    pipeline = Pipeline.in_force()
    imported = import_bundle(file, *_caches(pipeline), replace=replace)
    theirs = imported.manifest.identities
    ours = _identities(pipeline, theirs)
    other = {name: _difference(theirs[name], ours[name]) for name in ours if ours[name] != theirs[name]}
    if as_json:
        tallies = {"answers": asdict(imported.answers), "vectors": asdict(imported.vectors)}
        emit_json({"bundle": str(file), **tallies, "asked_with_other_settings": sorted(other)})
        return
    rows = [("answers", imported.answers), ("vectors", imported.vectors)]
    fate = "replaced" if replace else "differ, kept"
    print_table(f"imported {file}", ["", "new", "same", fate], [_tally_row(*row) for row in rows])
    for name, difference in other.items():
        messages.print(f"{name} was asked with other settings, so its answers will not be found: {difference}")


@cache_group.command("stats")
@json_option
def stats_command(as_json: bool) -> None:
    """What the cache holds.

    Entries, tokens and cost of answers by backbone and phase, vectors by length, size on disk.
    """
    pipeline = Pipeline.in_force()
    answers, vectors = _caches(pipeline)
    totals = answers.totals() if answers.is_there() else []
    dimensions = vectors.by_dimensions() if vectors.is_there() else {}
    if as_json:
        emit_json(
            {
                "answers": {
                    "path": answers.place,
                    "bytes": answers.size(),
                    "entries": sum(one.entries for one in totals),
                    "totals": [asdict(one) for one in totals],
                },
                "vectors": {
                    "path": vectors.place,
                    "bytes": vectors.size(),
                    "entries": sum(dimensions.values()),
                    "by_dimensions": dimensions,
                },
            }
        )
        return
    print_table(
        f"answers, {_size(answers.size())}",
        ["backbone", "phase", "entries", "prompt", "cached", "answers", "thought", "USD"],
        [_total_row(one) for one in totals],
        text_columns=2,
    )
    print_table(
        f"vectors, {_size(vectors.size())}",
        ["dimensions", "entries"],
        [[str(length), f"{entries:,}"] for length, entries in dimensions.items()],
    )
    results.print("Tokens and USD are those of the time when the answers were given.")


@cache_group.command("verify")
@click.option("--repair", is_flag=True, help="Delete damaged entries; they are asked again when they are needed.")
@click.option("--set-aside", is_flag=True, help="Rename a cache that cannot be read, so that a new one can be made.")
@json_option
def verify_command(repair: bool, set_aside: bool, as_json: bool) -> None:
    """Is the cache sound?

    Verifies every checksum and the files themselves. Exit code 1 if damage is left.
    """
    findings = []
    for cache in _caches(Pipeline.in_force()):
        health = cache.verify() if cache.is_there() else Health(entries=0)
        if set_aside and health.structure:
            aside = cache.set_aside()
            messages.print(f"{cache.label} cannot be read; it lies at {aside} now")
            health = Health(entries=0)
        deleted = cache.delete(one.key for one in health.damaged) if repair and health.damaged else 0
        findings.append(_Finding(cache.label, cache.place, health, deleted))
    if as_json:
        emit_json([finding.as_json() for finding in findings])
    else:
        print_table(
            "cache",
            ["file", "entries", "damaged", "deleted", "structure"],
            [
                [one.label, f"{one.health.entries:,}", str(len(one.health.damaged)), str(one.deleted), one.structure]
                for one in findings
            ],
        )
        for finding in findings:
            for line in finding.lines():
                messages.print(f"{finding.label}: {line}")
    if any(finding.is_damage_left for finding in findings):
        raise click.exceptions.Exit(1)


def _require_writable(file: Path) -> None:
    """Raises `CacheError` where a bundle would replace something else, or has no folder to lie in."""
    if file.exists() and not zipfile.is_zipfile(file):
        raise CacheError(f"bundle {file}: a file of another kind is there, and stays; name another one")
    if not file.absolute().parent.is_dir():
        raise CacheError(f"bundle {file}: there is no such folder; make it first, or name another one")


def _caches(pipeline: Pipeline) -> tuple[AnswerCache, VectorCache]:
    return answer_cache(pipeline.home), vector_cache(pipeline.home)


def _identities(pipeline: Pipeline, names: Iterable[str]) -> dict[str, dict[str, object]]:
    """Of those backbones that are in the settings."""
    settings, home = pipeline.settings, pipeline.home
    return {name: build_backbone(name, settings, home).identity for name in names if name in settings.backbones}


def _described(manifest: Manifest) -> dict[str, object]:
    contents = [asdict(one) for one in manifest.contents]
    return {"answers": manifest.answers, "vectors": manifest.vectors, "contents": contents}


def _difference(theirs: Mapping[str, object], ours: Mapping[str, object]) -> str:
    keys = sorted(key for key in theirs.keys() | ours.keys() if theirs.get(key) != ours.get(key))
    return plain("; ".join(f"{key} {theirs.get(key)!r} there, {ours.get(key)!r} here" for key in keys))


def _tally_row(kind: str, tally: Tally) -> list[str]:
    return [kind, f"{tally.new:,}", f"{tally.same:,}", f"{tally.conflicting:,}"]


def _total_row(total: Total) -> list[str]:
    usage = total.usage
    tokens = (usage.prompt_tokens, usage.cached_prompt_tokens, usage.completion_tokens, usage.reasoning_tokens)
    names = (total.backbone, total.phase)
    return [*names, f"{total.entries:,}", *(f"{number:,}" for number in tokens), f"{usage.cost:,.4f}"]


@dataclass(frozen=True)
class _Finding:
    """What verifying one cache found, and how many damaged entries were deleted."""

    label: str
    place: str
    health: Health
    deleted: int

    @property
    def structure(self) -> str:
        return "DAMAGED" if self.health.structure else "sound"

    @property
    def is_damage_left(self) -> bool:
        return bool(self.health.structure) or len(self.health.damaged) > self.deleted

    def lines(self) -> list[str]:
        """For people: each damage, and what can be done about a structure that is damaged."""
        damaged = [f"{one.key.hex()} is damaged ({one.about})" for one in self.health.damaged]
        remedy = ["`finevolve cache verify --set-aside` makes room for a new one"] if self.health.structure else []
        return [*damaged, *self.health.structure, *remedy]

    def as_json(self) -> dict[str, object]:
        damaged = [{"key": one.key.hex(), "about": one.about} for one in self.health.damaged]
        return {
            "path": self.place,
            "entries": self.health.entries,
            "damaged": damaged,
            "deleted": self.deleted,
            "structure": list(self.health.structure),
        }


def _size(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 100_000 else f"{size / 1e3:,.1f} kB"
