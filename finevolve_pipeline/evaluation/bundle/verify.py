"""Verifying a bundle: all checks that can be made, and how far they reach.

Four levels, each with all before it: a bundle agrees with itself; its labels follow from own closes; its prompts follow
from own news; its runs, repeated, give the same scores. Only the last leaves nothing of a run to the submitter's word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

import pandas as pd

from finevolve_pipeline.evaluation.bundle.archive import Archive, read_archive
from finevolve_pipeline.evaluation.bundle.checks import Check, Checker, check_checksums, checked, one_line
from finevolve_pipeline.evaluation.bundle.content import Content, ContentError, read_content
from finevolve_pipeline.evaluation.bundle.own import OwnChecker, OwnData

Reach = Literal["bundle", "closes", "all"]
"""How far to check: the bundle alone, own closes too, or news and runs as well."""

SELF_CONSISTENT = "self-consistent"
LABELS = "labels checked against own closes"
PROMPTS = "prompts re-derived from own news"
REPEATED = "runs repeated from own news and answers"
REFUSED = "refused"
LEVELS = (REFUSED, SELF_CONSISTENT, LABELS, PROMPTS, REPEATED)

REACHES: tuple[Reach, ...] = get_args(Reach)


@dataclass(frozen=True)
class Verification:
    """What came of it.

    Attributes:
        name: the file's name, without its folder.
        digest: the bundle's identity (see `archive.Archive`).
        checks: in the order they were made.
        content: what the bundle holds; None if it could not be read.
        figures: as they follow from it, whatever it claims; empty where it is refused.
    """

    name: str
    digest: str
    checks: tuple[Check, ...]
    content: Content | None = field(default=None, repr=False)
    figures: Mapping[str, pd.DataFrame] = field(default_factory=dict, repr=False)

    @property
    def ok(self) -> bool:
        """Whether nothing that was checked is wrong."""
        return not self.failures

    @property
    def failures(self) -> tuple[Check, ...]:
        """Checks that failed."""
        return tuple(check for check in self.checks if check.status == "failed")

    @property
    def level(self) -> str:
        """How far the checks reach, one of `LEVELS`."""
        if not self.ok:
            return REFUSED
        done = {check.name for check in self.checks if check.status == "ok"}
        if "own closes" not in done:
            return SELF_CONSISTENT
        keys = [run.key for run in self.content.runs] if self.content is not None else []
        if all(f"own run {key}" in done for key in keys):
            return REPEATED
        if all(f"own run {key}" in done or f"own prompts {key}" in done for key in keys):
            return PROMPTS
        return LABELS


def verify_file(path: Path, own: OwnData | None, reach: Reach) -> Verification:
    """Check a bundle's file.

    Args:
        path: the file.
        own: data to check it against; None if there is none.
        reach: how far to check.

    Raises:
        BundleError: it cannot be read as a bundle at all.
    """
    return verify_archive(path.name, read_archive(path), own, reach)


def verify_archive(name: str, archive: Archive, own: OwnData | None, reach: Reach) -> Verification:
    """Check a bundle that is unpacked; as `verify_file`."""
    checks = [checked("checksums", lambda: check_checksums(archive.members))]
    try:
        content = read_content(archive.members)
    except ContentError as unreadable:
        return Verification(name, archive.digest, (*checks, Check("contents", "failed", one_line(unreadable))))
    checks.append(Check("contents", "ok", f"{len(archive.members)} members, {len(content.runs)} runs"))
    checker = Checker(content)
    checks += checker.results()
    # A bundle that contradicts itself is not worth a look at one's own data.
    if any(check.status == "failed" for check in checks):
        return Verification(name, archive.digest, tuple(checks), content)
    checks += _own_checks(content, own, reach)
    return Verification(name, archive.digest, tuple(checks), content, checker.found.all())


def _own_checks(content: Content, own: OwnData | None, reach: Reach) -> Iterator[Check]:
    if own is None or reach == "bundle":
        why = "no home with data of its own" if own is None else "only the bundle itself was to be checked"
        yield Check("own closes", "not run", why)
        return
    checker = OwnChecker(content, own)
    yield checker.closes()
    if reach == "all":
        yield from checker.prompts()
