"""Jobs of a GitHub Actions workflow on this machine: as much of a runner as the example workflow needs.

Each job has a workspace of its own; what lasts from one to the next went through the cache's steps. An action or an
expression that is not known here is an error, never skipped.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]

_EXPRESSION = re.compile(r"\$\{\{\s*(.+?)\s*\}\}")
_NAME = re.compile(r"[a-z_]+(\.[A-Za-z_]+)*")
_NOT_CHECKED_OUT = (".git", ".venv", ".finevolve")
_SHELLS = {None: ["bash", "-e"], "bash": ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail"]}
_DOES_NOTHING_HERE = ("actions/checkout", "./.github/actions/environment")


def evaluated(text: str, contexts: Mapping[str, Mapping[str, str]]) -> str:
    """A text with its expressions replaced: names in contexts and quoted literals, with `||` between them."""

    def value(expression: str) -> str:
        for part in map(str.strip, expression.split("||")):
            if part.startswith("'") and part.endswith("'"):
                found = part[1:-1]
            else:
                assert _NAME.fullmatch(part), f"expression {part!r}: not known to this runner"
                context, _, name = part.partition(".")
                found = contexts[context].get(name, "")
            if found:
                return found
        return ""

    return _EXPRESSION.sub(lambda match: value(match[1]), text)


@dataclass(frozen=True)
class Step:
    """How a step ended: `success`, `failure` or `skipped`, and what it printed."""

    name: str
    conclusion: str
    log: str = ""


@dataclass(frozen=True)
class Job:
    """How a job ended."""

    workspace: Path
    steps: tuple[Step, ...]
    summary: str

    @property
    def is_green(self) -> bool:
        """Whether no step failed."""
        return all(step.conclusion != "failure" for step in self.steps)

    @property
    def failed(self) -> Step:
        """The step that failed."""
        return next(step for step in self.steps if step.conclusion == "failure")

    def log(self, name: str) -> str:
        """What a step printed."""
        return next(step.log for step in self.steps if step.name == name)


@dataclass
class Runner:
    """Runs the only job of a workflow. `folder` holds workspaces and the cache."""

    workflow: Path
    folder: Path
    variables: Mapping[str, str]
    number: int = 0
    saved: list[tuple[str, Path]] = field(default_factory=list)

    def run(self, inputs: Mapping[str, str] | None = None, kill_when: Callable[[Path], bool] | None = None) -> Job:
        """One job. `kill_when` is asked all the time; once it says yes, what runs in the workspace is killed (-9)."""
        self.number += 1
        document = yaml.safe_load(self.workflow.read_text("utf-8"))
        (job,) = document["jobs"].values()
        workspace = self._check_out()
        contexts: dict[str, Mapping[str, str]] = {
            "github": {"workspace": str(workspace), "run_id": str(self.number), "run_attempt": "1"},
            "inputs": inputs or {},
            "vars": self.variables,
        }
        summary = self.folder / f"summary-{self.number}.md"
        given = {name: evaluated(str(text), contexts) for name, text in document["env"].items()}
        environment = {
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
            "HOME": os.environ["HOME"],
            "LANG": "C.UTF-8",
            "COLUMNS": "200",
            "PYTHONPATH": str(REPOSITORY),
            "GITHUB_STEP_SUMMARY": str(summary),
            **given,
        }
        shell = _SHELLS[document.get("defaults", {}).get("run", {}).get("shell")]
        steps: list[Step] = []
        red = False
        for step in job["steps"]:
            name = step.get("name") or step.get("uses") or step["run"]
            if red and step.get("if") != "always()":
                steps.append(Step(name, "skipped"))
                continue
            if "run" in step:
                code, log = self._shell([*shell, "-c", step["run"]], workspace, environment, kill_when)
                steps.append(Step(name, "failure" if code else "success", log))
                red = red or code != 0
            else:
                wanted = {key: evaluated(str(text), contexts) for key, text in step.get("with", {}).items()}
                self._use(step["uses"].split("@")[0], wanted, workspace)
                steps.append(Step(name, "success"))
        return Job(workspace, tuple(steps), summary.read_text("utf-8") if summary.exists() else "")

    def _check_out(self) -> Path:
        workspace = self.folder / f"workspace-{self.number}"
        workspace.mkdir(parents=True)
        for entry in REPOSITORY.iterdir():
            if entry.name not in _NOT_CHECKED_OUT:
                (workspace / entry.name).symlink_to(entry)
        return workspace

    def _use(self, action: str, wanted: Mapping[str, Any], workspace: Path) -> None:
        if action == "actions/cache/restore":
            prefixes = (wanted["key"], wanted["restore-keys"])
            found = [folder for key, folder in self.saved if key.startswith(prefixes)]
            if found:
                shutil.copytree(found[-1], workspace / wanted["path"])
        elif action == "actions/cache/save":
            kept = self.folder / f"cache-{self.number}"
            shutil.copytree(workspace / wanted["path"], kept)
            self.saved.append((wanted["key"], kept))
        elif action == "actions/upload-artifact":
            assert list((workspace / wanted["path"]).iterdir()), f"{wanted['path']}: nothing to keep"
        else:
            assert action in _DOES_NOTHING_HERE, f"action {action}: not known to this runner"

    def _shell(
        self,
        command: list[str],
        workspace: Path,
        environment: Mapping[str, str],
        kill_when: Callable[[Path], bool] | None,
    ) -> tuple[int, str]:
        log = self.folder / f"log-{self.number}.txt"
        with open(log, "wb") as sink:
            process = subprocess.Popen(
                command,
                cwd=workspace,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            while kill_when is not None and process.poll() is None:
                if kill_when(workspace):
                    os.killpg(process.pid, signal.SIGKILL)
                    break
                time.sleep(0.02)
            code = process.wait()
        return code, log.read_text("utf-8", "replace")
