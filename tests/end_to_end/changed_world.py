"""A small world whose tables are all made, changed in one thing: what is stale, why, and what making it again takes.

Tables are made as the assets make them, but in this process and without Dagster, so that code and prompts can be
changed under a test and every question to the model be counted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from assets.partitioned import make_partitions
from assets.planning import EVALUATION_LAYERS, INPUT_LAYERS, Layer, want
from assets.publishing import publish_report
from finevolve_pipeline import digests
from finevolve_pipeline.cli import cli
from finevolve_pipeline.cli.output import Pipeline
from finevolve_pipeline.errors import ReplayMismatchError
from finevolve_pipeline.llm import render
from finevolve_pipeline.llm.rules.backbone import RulesBackbone
from finevolve_pipeline.replay.runner import run


@dataclass(frozen=True)
class Made:
    """What bringing everything up to date took.

    Attributes:
        written: (table, partition) that were made, those of a replay by (experiment, session).
        changed: those of them whose content is another now.
        refused: why an experiment was refused, by its key.
        asked: questions to the model, by type of request.
    """

    written: set[tuple[str, str]] = field(default_factory=set)
    changed: set[tuple[str, str]] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class ChangedWorld:
    """A home and its settings file, in force in this process."""

    home: Path
    config: Path
    patch: pytest.MonkeyPatch

    @staticmethod
    def at(home: Path, config: Path, patch: pytest.MonkeyPatch) -> ChangedWorld:
        """The world, in force as long as the patch holds."""
        patch.setenv("FINEVOLVE_HOME", str(home))
        patch.setenv("FINEVOLVE_CONFIG", str(config))
        patch.setenv("COLUMNS", "200")
        return ChangedWorld(home, config, patch)

    def command(self, *arguments: str) -> str:
        """What a command prints to standard output."""
        return CliRunner().invoke(cli, arguments, catch_exceptions=False).stdout

    def status(self) -> dict[str, Any]:
        """What `finevolve status --json` says."""
        found: dict[str, Any] = json.loads(self.command("status", "--json"))
        return found

    def set(self, text: str, instead_of: str = "") -> None:
        """Write something into the settings file: at its end, or in place of a text."""
        before = self.config.read_text()
        assert instead_of in before
        self.config.write_text(before.replace(instead_of, text) if instead_of else before + text)

    def edit_template(self, name: str) -> None:
        """Change a word in a packaged prompt template (`tag.zh`)."""
        source = render._source
        self.patch.setattr(
            render, "_source", lambda one: source(one).replace("。", "！", 1) if one == name else source(one)
        )

    def edit_code(self, file: str) -> None:
        """Change the code of a module, by the end of its path."""
        digest = digests._digest_of_file
        self.patch.setattr(
            digests, "_digest_of_file", lambda path: "edited" + digest(path)[6:] if path.match(file) else digest(path)
        )

    def bring_up(self) -> Made:
        """Make all tables that are due, as `finevolve run` does; not the report."""
        pipeline, made = Pipeline.in_force(), Made()
        with fresh_templates(), counted(made.asked):
            self._layers(pipeline, INPUT_LAYERS, made)
            for experiment in pipeline.settings.all_experiments:
                try:
                    run(
                        experiment,
                        pipeline.graph.sessions,
                        pipeline.parts(experiment),
                        pipeline.store.replays,
                        lambda day: day.reused or made.written.add((day.manifest.experiment, day.session.isoformat())),
                    )
                except ReplayMismatchError as mismatch:
                    made.refused[experiment.key] = str(mismatch)
            if not made.refused:
                self._layers(pipeline, EVALUATION_LAYERS, made)
        return made

    def publish(self) -> None:
        """Write the report."""
        pipeline = Pipeline.in_force()
        publish_report(pipeline.graph, pipeline.store)

    def _layers(self, pipeline: Pipeline, layers: tuple[Layer, ...], made: Made) -> None:
        wanted = want(pipeline.graph, pipeline.store)
        for name in (name for layer in layers for name in layer.tables):
            keys = wanted.partitions[name]
            before = {key: pipeline.store.digest(name, key) for key in keys}
            for one in make_partitions(pipeline.graph.tables[name], keys, pipeline.store, lambda frame: {}):
                if not one.metadata["reused"]:
                    made.written.add((name, one.key))
                if one.stored.digest != before[one.key]:
                    made.changed.add((name, one.key))


@contextmanager
def fresh_templates() -> Iterator[None]:
    """Prompt templates are read anew inside, and again afterwards."""
    render._parts.cache_clear()
    try:
        yield
    finally:
        render._parts.cache_clear()


@contextmanager
def counted(asked: Counter[str]) -> Iterator[None]:
    """Count the questions to the model inside."""
    answer = RulesBackbone.answer

    async def counting(self: RulesBackbone, call: Any) -> Any:
        asked[type(call.told).__name__] += 1
        return await answer(self, call)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RulesBackbone, "answer", counting)
        yield
