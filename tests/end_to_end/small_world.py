"""A world of eight sessions and two sources, and the command line on it, for tests that run the whole pipeline.

Horizons are 1, 2 and 4 sessions, so that outcomes mature, and are learned from, inside the window.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from finevolve_pipeline.calendar import sessions_between
from finevolve_pipeline.files import PARTIAL
from finevolve_pipeline.synth.files import BENCHMARK_UNITS, INDUSTRY_UNITS, write_world
from finevolve_pipeline.synth.world import SynthSettings, generate

FIRST, LAST = dt.date(2025, 1, 2), dt.date(2025, 1, 13)
SESSIONS = sessions_between(FIRST, LAST)
BAR_SESSIONS = sessions_between(dt.date(2024, 12, 26), dt.date(2025, 1, 17))
MECHANISMS = ("pipe", "mem0", "memrl")

SETTINGS = """\
[benchmark]
first_session = {first}
last_session = {last}
horizons = [1, 2, 4]

[market]
first_session = {first_bar}
last_session = {last_bar}

[news]
first_day = 2024-12-24
last_day = 2025-01-31
sources = ["cls", "sina"]

[evaluation]
min_sessions = 3

[experiments]
mechanisms = {mechanisms}
"""


def settings_text(mechanisms: Sequence[str] = MECHANISMS) -> str:
    """Settings of the small world."""
    return SETTINGS.format(
        first=FIRST,
        last=LAST,
        first_bar=BAR_SESSIONS[0],
        last_bar=BAR_SESSIONS[-1],
        mechanisms=json.dumps(list(mechanisms)),
    )


def write_small_world(
    folder: Path, mechanisms: Sequence[str] = MECHANISMS, seed: int = 5, articles_per_day: int = 40
) -> Path:
    """News, closes and settings below `folder`. Returns it."""
    settings = SynthSettings(
        seed=seed,
        first_session=FIRST,
        last_session=LAST,
        articles_per_day=articles_per_day,
        sources=("cls", "sina"),
    )
    world = generate(settings)
    kept = [session.isoformat() for session in BAR_SESSIONS]
    sides = {
        side: bars[bars["session"].isin(kept)].reset_index(drop=True)
        for side, bars in (("industry_bars", world.industry_bars), ("benchmark_bars", world.benchmark_bars))
    }
    write_world(replace(world, **sides), folder)
    (folder / "finevolve.toml").write_text(settings_text(mechanisms))
    return folder


def import_arguments(folder: Path) -> list[list[str]]:
    """The import commands for the files of a world."""
    market = ["--industries", str(folder / "industries.csv"), "--benchmark", str(folder / "benchmark.csv")]
    for side, units in (("industry", INDUSTRY_UNITS), ("benchmark", BENCHMARK_UNITS)):
        market += [f"--{side}-volume-unit", units.volume, f"--{side}-amount-unit", units.amount]
    return [["import", "news", str(folder / "news.jsonl.gz")], ["import", "market", *market]]


@dataclass(frozen=True)
class Outcome:
    """How a command ended. A negative code is the signal that killed it."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Standard output as the one JSON document that it must be."""
        return json.loads(self.out)

    @property
    def errors(self) -> list[str]:
        """Lines for the user that start with `error:` or `Error:`."""
        return [line for line in self.err.splitlines() if line.lower().startswith("error:")]

    def expect(self, code: int = 0) -> Outcome:
        """This outcome, which must have the exit code and must show no traceback."""
        assert self.code == code, f"exit code {self.code}\n{self.out}\n{self.err}"
        assert "Traceback" not in self.err + self.out, self.err
        return self


@dataclass
class Running:
    """A command that has been started."""

    pid: int
    finevolve: Finevolve
    streams: tuple[Path, Path]

    def wait(self) -> Outcome:
        """Wait for its end."""
        code = self.finevolve.ask({"wait": self.pid})["code"]
        out, err = (stream.read_text("utf-8", "replace") for stream in self.streams)
        return Outcome(code, out, err)

    def kill(self, group: bool) -> Outcome:
        """Kill it, with its children or alone, as a machine that runs out of memory would."""
        (os.killpg if group else os.kill)(self.pid, signal.SIGKILL)
        return self.wait()


class Finevolve:
    """The command line, one process for every command; see `zygote.py`."""

    def __init__(self, server: subprocess.Popen[str], scratch: Path) -> None:
        self._server = server
        self._scratch = scratch
        self._started = 0

    def ask(self, request: dict[str, Any]) -> dict[str, int]:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps({"wait": 0, **request}) + "\n")
        self._server.stdin.flush()
        answer: dict[str, int] = json.loads(self._server.stdout.readline())
        return answer

    def start(
        self,
        *arguments: object,
        home: Path,
        config: Path | None = None,
        death: tuple[Any, ...] = (),
        changes: Sequence[tuple[str, Sequence[Any]]] = (),
        replay: bool = False,
        environment: dict[str, str] | None = None,
    ) -> Running:
        """Start `finevolve ARGUMENTS`; with `replay`, the process that replays one experiment instead.

        `death` is the arguments of `changes.die`, `changes` are other functions of that module with theirs.
        """
        self._started += 1
        out, err = (self._scratch / f"{self._started}.{stream}" for stream in ("out", "err"))
        variables = {"FINEVOLVE_HOME": str(home), "FINEVOLVE_CONFIG": str(config or ""), "COLUMNS": "200"}
        request = {
            "arguments": [str(argument) for argument in arguments],
            "environment": {**variables, **(environment or {})},
            "folder": str(self._scratch),
            "out": str(out),
            "err": str(err),
            "changes": [*changes, *([("die", death)] if death else [])],
            "replay": replay,
        }
        return Running(self.ask(request)["pid"], self, (out, err))

    def __call__(self, *arguments: object, **how: Any) -> Outcome:
        """Run a command to its end."""
        return self.start(*arguments, **how).wait()


@contextmanager
def command_line(scratch: Path) -> Iterator[Finevolve]:
    """The command line, with a folder for the output of its processes."""
    command = [sys.executable, str(Path(__file__).parent / "zygote.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield Finevolve(server, scratch)
        finally:
            assert server.stdin is not None
            server.stdin.close()


COMPARED = ("landing", "tables", "replay", "report")


def contents(home: Path, below: Sequence[str] = COMPARED) -> dict[str, str]:
    """Digest of every file of a home's results, by path. Locks say who holds them and are no result."""
    return {
        path.relative_to(home).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for part in below
        for path in sorted((home / part).rglob("*"))
        if path.is_file() and not path.name.startswith(".") and path.name != "lock"
    }


def leftovers(home: Path) -> list[str]:
    """Temporary files and folders that nobody has removed."""
    return sorted(
        path.relative_to(home).as_posix() for path in home.rglob("*") if path.name.startswith((PARTIAL, ".previous-"))
    )


def copied(home: Path, to: Path) -> Path:
    """An independent copy of a home."""
    shutil.copytree(home, to)
    return to
