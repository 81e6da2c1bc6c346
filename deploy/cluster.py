"""The server profile on this machine, without containers: Postgres, Redis, an object store, Celery workers, daemon, UI.

    python deploy/cluster.py [--workers 4] [--machines 1] [--port 3000]

All state lies in FINEVOLVE_HOME/cluster. With FINEVOLVE_STORAGE set, tables go there; otherwise to an object store that
lives as long as the cluster, which then begins empty each time. Ctrl-C stops everything, and so does any other end.
`--machines`: workers have homes of their own, as on so many machines; a provider's limits then hold for each of them.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from services import ObjectStore, Postgres, Redis, Service, ServiceError, free_port

from finevolve_pipeline.files import write_atomically

REPOSITORY = Path(__file__).resolve().parents[1]
PROFILE = REPOSITORY / "deploy" / "dagster.yaml"
WORKSPACE = REPOSITORY / "deploy" / "workspace.yaml"

WORKER = ("celery", "-A", "deploy.run_worker", "worker", "-Q", "dagster", "-c", "1", "--loglevel", "INFO")

READY_SECONDS = 180.0
STOPPING_SECONDS = 10.0
_LOOK_SECONDS = 0.5
_LOADED = (
    b'{"query": "{ workspaceOrError { ... on Workspace { locationEntries { locationOrLoadError { __typename } } } } }"}'
)


class Program:
    """A process of this project, in a group of its own."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "ab") as sink:
            self.process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def ended(self) -> bool:
        """Whether it runs no more."""
        return self.process.poll() is not None

    def ask_to_stop(self) -> None:
        """The polite signal: of a worker the one that gives up its run."""
        self._signal(signal.SIGQUIT if self.name.startswith("worker") else signal.SIGTERM)

    def kill(self) -> None:
        """End it and all that it started, at once."""
        self._signal(signal.SIGKILL)
        self.process.wait()

    def _signal(self, how: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, how)


class Cluster:
    """A server profile on this machine.

    Args:
        home: FINEVOLVE_HOME; the cluster's state is below its folder `cluster`.
        config: settings file; None: as the environment says.
        workers: Celery workers, each one run at a time.
        machines: homes that they are spread over.
        port: of the UI; 0: any that is free.
    """

    def __init__(
        self, home: Path, config: Path | None = None, workers: int = 4, machines: int = 1, port: int = 0
    ) -> None:
        self.folder = home.absolute() / "cluster"
        self.machines = machines
        self.postgres = Postgres(self.folder / "postgres")
        self.redis = Redis(self.folder / "redis")
        given = os.environ.get("FINEVOLVE_STORAGE", "")
        self.objects = None if given else ObjectStore(self.folder / "objects")
        self.workers: dict[int, Program] = {}
        self._count = workers
        self.others: list[Program] = []
        self.port = port or free_port()
        self._guard: subprocess.Popen[bytes] | None = None
        self._taken: BinaryIO | None = None
        stores = {**self.objects.environment, "FINEVOLVE_STORAGE": self.objects.url} if self.objects else {}
        self.shared = {
            **stores,
            **({"FINEVOLVE_CONFIG": str(config.absolute())} if config else {}),
            "FINEVOLVE_DATABASE": self.postgres.url,
            "FINEVOLVE_BROKER": self.redis.url,
            "FINEVOLVE_WORKERS": str(workers),
            "FINEVOLVE_RUNS_PER_PROVIDER": os.environ.get("FINEVOLVE_RUNS_PER_PROVIDER", str(workers)),
            "FINEVOLVE_CODE_HOST": "127.0.0.1",
            "FINEVOLVE_CODE_PORT": str(free_port()),
        }

    @property
    def url(self) -> str:
        """The UI."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def services(self) -> tuple[Service, ...]:
        """The servers that keep state."""
        return tuple(one for one in (self.postgres, self.redis, self.objects) if one)

    @property
    def programs(self) -> tuple[Program, ...]:
        """Everything else that runs."""
        return (*self.others, *self.workers.values())

    def machine_of(self, worker: int) -> int:
        """The machine that a worker is on, from 1."""
        return (worker - 1) % self.machines + 1

    def home(self, machine: int) -> Path:
        """FINEVOLVE_HOME of a machine, made if need be: its own files, which may be lost."""
        home = self.folder / "machines" / str(machine)
        settings = home / "dagster" / PROFILE.name
        if not settings.exists():
            # Whole or not at all: an instance without settings would be another one, of files, and know no run.
            write_atomically(settings, PROFILE.read_bytes())
        return home

    def variables(self, machine: int = 1) -> dict[str, str]:
        """What leads a process of a machine to the cluster."""
        home = self.home(machine)
        return {**self.shared, "FINEVOLVE_HOME": str(home), "DAGSTER_HOME": str(home / "dagster")}

    def start(self) -> None:
        """Start everything; returns when the UI shows the code location.

        Raises:
            ServiceError: something does not come up.
        """
        self.start_services()
        self._create_tables()
        workspace = ["-w", str(WORKSPACE)]
        code = ["-h", "127.0.0.1", "-p", self.shared["FINEVOLVE_CODE_PORT"], "-m", "finevolve_pipeline.definitions"]
        self.others = [self._program("code", ["dagster", "code-server", "start", *code])]
        for worker in range(1, self._count + 1):
            self.start_worker(worker)
        self._wait("code", self._code_answers)
        self.others += [
            self._program("webserver", ["dagster-webserver", "-h", "127.0.0.1", "-p", str(self.port), *workspace]),
            self._program("daemon", ["dagster-daemon", "run", *workspace]),
        ]
        self._wait("webserver", self._ui_answers)

    def start_services(self) -> None:
        """Start the servers that keep state, and what ends everything if this process does not.

        Raises:
            ServiceError: one does not come up, another cluster runs in this home, or the UI's port is in use.
        """
        self._take()
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", self.port))
            except OSError as taken:
                raise ServiceError(f"port {self.port}: {taken.strerror}; choose another with --port") from None
        if self.objects and self.folder.exists():
            shutil.rmtree(self.folder)  # events of tables that are gone would be lies
        self.folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.folder / "machines", ignore_errors=True)
        guard = [sys.executable, str(REPOSITORY / "deploy" / "guard.py")]
        self._guard = subprocess.Popen(guard, stdin=subprocess.PIPE, start_new_session=True)
        for service in self.services:
            service.start()
            self.guard(service.pid)

    def start_worker(self, worker: int) -> Program:
        """Start a worker, or one in place of one that has ended."""
        machine = self.machine_of(worker)
        self.workers[worker] = self._program(
            f"worker-{worker}",
            [*WORKER, "-n", f"worker{worker}@machine{machine}"],
            machine,
        )
        return self.workers[worker]

    def stop(self) -> None:
        """Stop everything: what is asked and does not is killed."""
        for program in reversed(self.programs):
            program.ask_to_stop()
        end = time.monotonic() + STOPPING_SECONDS
        while time.monotonic() < end and not all(program.ended for program in self.programs):
            time.sleep(_LOOK_SECONDS / 5)
        for program in self.programs:
            program.kill()
        for service in reversed(self.services):
            service.stop()
        if self._guard and self._guard.stdin:
            self._guard.stdin.close()
            self._guard.wait()
        if self._taken:
            self._taken.close()

    def watch(self) -> None:
        """Start workers that end again, until interrupted.

        Raises:
            ServiceError: something else has ended.
        """
        while True:
            for worker, program in list(self.workers.items()):
                if program.ended:
                    print(f"{program.name} ended with {program.process.returncode}; started again", flush=True)
                    self.start_worker(worker)
            for program in self.others:
                self._require(program)
            time.sleep(_LOOK_SECONDS)

    def guard(self, group: int) -> None:
        """Have a process group killed if this process ends without stopping it."""
        if self._guard and self._guard.stdin:
            self._guard.stdin.write(f"{group}\n".encode())
            self._guard.stdin.flush()

    def write_environment(self) -> Path:
        """A file for shells: `set -a; . FILE; set +a` leads the command line to the cluster."""
        path = self.folder / "environment"
        path.touch(mode=0o600)
        path.write_text("".join(f"{name}={shlex.quote(value)}\n" for name, value in self.variables().items()))
        return path

    def _take(self) -> None:
        path = self.folder.with_suffix(".lock")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._taken = open(path, "ab")  # noqa: SIM115 - held until the cluster stops
        try:
            fcntl.flock(self._taken, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ServiceError(f"home {path.parent}: a cluster runs there; stop it, or set FINEVOLVE_HOME") from None

    def _program(self, name: str, command: Sequence[str], machine: int = 1) -> Program:
        found = [str(Path(sys.executable).with_name(command[0])), *command[1:]]
        environment = {**os.environ, **self.variables(machine), "PYTHONPATH": str(REPOSITORY)}
        program = Program(name, found, environment, self.folder / "logs" / f"{name}.log")
        self.guard(program.process.pid)
        return program

    def _create_tables(self) -> None:
        """Dagster's tables, by one process alone: several that find none at once get in each other's way."""
        program = self._program("instance", ["dagster", "instance", "migrate"])
        if program.process.wait():
            raise ServiceError(f"dagster: cannot create its tables in Postgres; see {program.log}")

    def _wait(self, name: str, answers: Callable[[], bool]) -> None:
        end = time.monotonic() + READY_SECONDS
        while not answers():
            for program in self.others:
                self._require(program)
            if time.monotonic() > end:
                raise ServiceError(f"{name}: does not answer after {READY_SECONDS:.0f} s; see {self.folder / 'logs'}")
            time.sleep(_LOOK_SECONDS)

    def _require(self, program: Program) -> None:
        if program.ended:
            raise ServiceError(f"{program.name}: ended with {program.process.returncode}; see {program.log}")

    def _code_answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", int(self.shared["FINEVOLVE_CODE_PORT"])), timeout=1):
                return True
        except OSError:
            return False

    def _ui_answers(self) -> bool:
        asked = urllib.request.Request(f"{self.url}/graphql", _LOADED, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(asked, timeout=30) as answer:
                said = answer.read()
        except (urllib.error.URLError, OSError):
            return False
        if b"PythonError" in said:
            raise ServiceError(f"code: cannot be loaded; see {self.folder / 'logs' / 'code.log'}")
        return b"RepositoryLocation" in said


@contextlib.contextmanager
def running(cluster: Cluster) -> Iterator[Cluster]:
    """A cluster that runs while the block does."""
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def _within(least: int, most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text}: no whole number from {least} to {most}")
        return int(text)

    return number


def main() -> None:
    """Run a cluster until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=_within(1, 1000), default=4)
    parser.add_argument("--machines", type=_within(1, 1000), default=1)
    parser.add_argument("--port", type=_within(1, 65535), default=3000)
    given = parser.parse_args()
    home = Path(os.environ.get("FINEVOLVE_HOME") or ".finevolve")
    config = os.environ.get("FINEVOLVE_CONFIG")
    for how in (signal.SIGINT, signal.SIGTERM):
        signal.signal(how, signal.default_int_handler)
    cluster = Cluster(home, Path(config) if config else None, given.workers, given.machines, given.port)
    print(f"starting; logs in {cluster.folder / 'logs'}", flush=True)
    try:
        with running(cluster):
            environment = cluster.write_environment()
            print(f"UI: {cluster.url} ({given.workers} workers; Ctrl-C stops everything)")
            print(f"the command line on it: set -a; . {shlex.quote(str(environment))}; set +a", flush=True)
            cluster.watch()
    except ServiceError as refused:
        sys.exit(f"error: {refused}")
    except OSError as refused:
        sys.exit(f"error: {refused.filename or cluster.folder}: {refused.strerror or refused}")
    except KeyboardInterrupt:
        print("stopped")


if __name__ == "__main__":
    main()
