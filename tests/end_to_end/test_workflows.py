"""The workflows: as the forge's own schema has them, and the example run job by job as a runner would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from small_world import SESSIONS, spoil_a_bar, write_small_world
from workflow_runner import REPOSITORY, Job, Runner, evaluated

from finevolve_pipeline.replay.journal import MANIFEST, PREDICTIONS, ReplayStore

WORKFLOWS = REPOSITORY / ".github" / "workflows"
EXAMPLE = WORKFLOWS / "materialise.yml"
ACTIONS = REPOSITORY / ".github" / "actions"
EXPERIMENTS = ("pipe-rules", "mem0-rules")
ALL_DAYS = len(EXPERIMENTS) * len(SESSIONS)

INPUTS, REPLAY, EVALUATION = "Materialise the inputs", "Replay, one experiment after another", "Evaluate"


def steps_of(path: Path) -> Iterator[dict[str, str]]:
    """Steps of a workflow or of a composite action."""
    document = yaml.safe_load(path.read_text("utf-8"))
    for part in [*document.get("jobs", {}).values(), *([document["runs"]] if "runs" in document else [])]:
        yield from part["steps"]


def every_file() -> list[Path]:
    return [*sorted(WORKFLOWS.glob("*.yml")), *sorted(ACTIONS.glob("*/action.yml"))]


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("vendor.github-workflows", sorted(WORKFLOWS.glob("*.yml"))),
        ("vendor.github-actions", sorted(ACTIONS.glob("*/action.yml"))),
    ],
)
def test_every_file_fits_the_schema_of_its_kind(schema: str, files: list[Path]) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, files)]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("path", every_file(), ids=lambda path: path.stem)
def test_actions_of_others_are_pinned_by_their_full_version(path: Path) -> None:
    others = [step["uses"] for step in steps_of(path) if "uses" in step and not step["uses"].startswith("./")]
    assert others
    assert [use for use in others if not re.fullmatch(r"[\w./-]+@v\d+\.\d+\.\d+", use)] == []


@pytest.mark.parametrize("path", sorted(WORKFLOWS.glob("*.yml")), ids=lambda path: path.stem)
def test_a_job_may_only_read_the_repository_and_ends_by_itself(path: Path) -> None:
    document = yaml.safe_load(path.read_text("utf-8"))
    assert document["permissions"] == {"contents": "read"}
    for job in document["jobs"].values():
        assert "permissions" not in job
        assert job["timeout-minutes"] <= 350


@pytest.mark.parametrize("path", every_file(), ids=lambda path: path.stem)
def test_no_shell_text_holds_an_expression_that_somebody_else_may_fill(path: Path) -> None:
    for step in steps_of(path):
        assert "${{" not in step.get("run", "")


@pytest.mark.parametrize("path", every_file(), ids=lambda path: path.stem)
def test_every_shell_text_can_be_read_by_bash(path: Path) -> None:
    texts = [step["run"] for step in steps_of(path) if "run" in step]
    assert texts
    for text in texts:
        read = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
        assert read.returncode == 0, read.stderr


def test_the_project_is_checked_by_the_targets_that_ci_runs() -> None:
    asked = {step["run"].split()[1] for step in steps_of(WORKFLOWS / "checks.yml") if "make " in step.get("run", "")}
    by_hand = set(re.findall(r"make ([a-z-]+)", (REPOSITORY / ".ci" / "run").read_text("utf-8"))) - {"install"}
    assert by_hand <= asked


def test_expressions_are_a_first_value_that_is_not_empty() -> None:
    contexts = {"inputs": {"first": "2025-01-02", "last": ""}}
    assert evaluated("${{ inputs.first }}/${{ inputs.last || 'data' }}", contexts) == "2025-01-02/data"
    with pytest.raises(AssertionError, match="not known"):
        evaluated("${{ hashFiles('x') }}", contexts)


def replays(workspace: Path) -> ReplayStore:
    return ReplayStore(workspace / ".finevolve" / "replay")


def stored_days(workspace: Path) -> dict[tuple[str, str], int]:
    """Committed days of all experiments and when they were written, in nanoseconds."""
    store = replays(workspace)
    return {
        (key, session.isoformat()): (store.folder(key, session) / MANIFEST).stat().st_mtime_ns
        for key in EXPERIMENTS
        for session in store.sessions(key)
    }


def conclusions(job: Job) -> dict[str, str]:
    return {step.name: step.conclusion for step in job.steps}


@dataclass(frozen=True)
class Example:
    """The example workflow with a small world as its data."""

    data: Path
    runner: Runner


@pytest.fixture
def example(tmp_path: Path) -> Example:
    data = write_small_world(tmp_path / "data", ("pipe", "mem0"))
    variables = {"FINEVOLVE_DATA": str(data), "FINEVOLVE_CONFIG": str(data / "finevolve.toml")}
    return Example(data, Runner(EXAMPLE, tmp_path / "runner", variables))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_killed_job_is_taken_up_by_the_next_and_ends_green_and_a_blocking_check_fails_dagster(
    example: Example,
) -> None:
    killed = example.runner.run(kill_when=lambda workspace: len(stored_days(workspace)) > 0)
    assert killed.failed.name == REPLAY
    assert conclusions(killed)["Keep the home"] == "success"
    before = stored_days(killed.workspace)
    assert 0 < len(before) < ALL_DAYS

    green = example.runner.run()
    assert green.is_green, green.failed.log
    after = stored_days(green.workspace)
    assert len(after) == ALL_DAYS
    assert {day: written for day, written in after.items() if day in before} == before
    assert "| rules | + Mem0 |" in green.summary

    damaged = replays(green.workspace).folder("pipe-rules", SESSIONS[2]) / PREDICTIONS
    damaged.write_bytes(damaged.read_bytes()[:-1])
    blocked = evaluate_alone(green.workspace, example.runner.variables)
    assert blocked.returncode != 0
    assert blocked.stdout.count("::group::") == 1
    assert "::endgroup::" not in blocked.stdout


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_failed_check_that_blocks_nothing_makes_the_job_red_before_the_replay(example: Example) -> None:
    spoil_a_bar(example.data)
    red = example.runner.run()
    assert red.failed.name == INPUTS
    assert conclusions(red)[REPLAY] == conclusions(red)[EVALUATION] == "skipped"
    assert conclusions(red)["Keep the home"] == "success"
    told = red.failed.log
    assert told.count("::group::") == told.count("::endgroup::") > 0
    assert re.search(r"industry_bars +plausible_moves +warned", told)


def evaluate_alone(workspace: Path, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """The last stage in a workspace as a job left it."""
    home = workspace / ".finevolve"
    environment = {
        **os.environ,
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
        "PYTHONPATH": str(REPOSITORY),
        "FINEVOLVE_HOME": str(home),
        "DAGSTER_HOME": str(home / "dagster"),
        "FINEVOLVE_CONFIG": variables["FINEVOLVE_CONFIG"],
    }
    command = [".ci/materialise", "evaluation"]
    return subprocess.run(command, cwd=workspace, env=environment, capture_output=True, text=True, timeout=300)
