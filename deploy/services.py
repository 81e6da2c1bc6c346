"""Servers on this machine, for tests and for a cluster without containers: Postgres, Redis, an S3-compatible store.

Each has a folder and a free port of its own on 127.0.0.1, is ready when `start` returns, and can be killed and started
again as the same server. Postgres and Redis are Debian's; the object store is `moto`'s, so its objects live as long as
its process does.

    python deploy/services.py FOLDER    starts all three, prints the environment that leads to them, waits for Ctrl-C
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

READY_SECONDS = 60.0
"""For so long a server may take to be ready."""

_LOOK_SECONDS = 0.05
_BUCKET = "finevolve"
_NAME = "finevolve"


class ServiceError(Exception):
    """A server that cannot be started; the text says what to do."""


class AbsentError(ServiceError):
    """The program of a server is not installed."""


class Service(ABC):
    """A server process.

    Args:
        folder: where its files and its log lie; made if need be.
        port: where it listens; 0 for any that is free.
    """

    name: str

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.folder = folder
        self.port = port or free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """What it says."""
        return self.folder / f"{self.name}.log"

    @property
    def pid(self) -> int:
        """Its process. Raises `ServiceError` if it does not run."""
        if self._process is None:
            raise ServiceError(f"{self.name}: not started")
        return self._process.pid

    @abstractmethod
    def command(self) -> Sequence[str]:
        """What starts it."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether it answers."""

    def prepare(self) -> None:
        """Make what must be there before it starts."""
        self.folder.mkdir(parents=True, exist_ok=True)

    def user(self) -> Mapping[str, int]:
        """Under whom it runs, as arguments of `Popen`; of itself under who starts it."""
        return {}

    def start(self) -> None:
        """Start it, and wait until it answers. Raises `ServiceError` if it does not."""
        self.prepare()
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.folder,
                **self.user(),
            )
        end = time.monotonic() + READY_SECONDS
        while not self.is_ready():
            if self._process.poll() is not None or time.monotonic() > end:
                self.kill()
                raise ServiceError(f"{self.name}: does not answer on port {self.port}; see {self.log}")
            time.sleep(_LOOK_SECONDS)

    def stop(self) -> None:
        """End it in order, at the latest after ten seconds."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, as a power cut would."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop it and start it again with the same files and port."""
        self.stop()
        self.start()

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(how)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Postgres(Service):
    """Debian's Postgres, whose one user has all rights and needs no password from this machine."""

    name = "postgres"

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.folder / "data"

    @property
    def url(self) -> str:
        """For FINEVOLVE_DATABASE."""
        return f"postgresql+psycopg2://{_NAME}@127.0.0.1:{self.port}/{_NAME}"

    def user(self) -> Mapping[str, int]:
        """As `postgres` if root starts it: Postgres refuses to run as root."""
        if os.geteuid() != 0:
            return {}
        try:
            found = pwd.getpwnam("postgres")
        except KeyError:
            raise AbsentError("postgres: there is no user postgres; install Debian's package postgresql") from None
        return {"user": found.pw_uid, "group": found.pw_gid}

    def prepare(self) -> None:
        """Make the data folder and the database, once."""
        super().prepare()
        program("initdb")
        if (self.data / "PG_VERSION").exists():
            return
        user = self.user()
        self.data.mkdir(exist_ok=True)
        for one in (self.folder, self.data) if user else ():
            os.chown(one, user["user"], user["group"])
        for above in self.folder.absolute().parents if user else ():
            if not above.stat().st_mode & 0o001:
                raise ServiceError(f"postgres: user postgres may not enter {above}; name a folder that all may enter")
        arguments = ["-D", str(self.data), "-U", _NAME, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]
        _run([program("initdb"), *arguments], self.folder, **user)
        (self.data / "init.sql").write_text(f"CREATE DATABASE {_NAME};\n")
        with open(self.data / "init.sql", "rb") as told:
            _run([program("postgres"), "--single", "-D", str(self.data), "postgres"], self.folder, told, **user)

    def command(self) -> Sequence[str]:
        """See `Service.command`."""
        settings = {"port": self.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off"}
        given = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [program("postgres"), "-D", str(self.data), *given, "-c", "max_connections=200"]

    def is_ready(self) -> bool:
        """Whether it takes connections."""
        asked = [program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port), "-d", _NAME, "-U", _NAME]
        return subprocess.run(asked, check=False).returncode == 0

    def stop(self) -> None:
        """End it without waiting for its clients to leave."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End it and the processes of its connections at once."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        super().kill()
        (self.data / "postmaster.pid").unlink(missing_ok=True)


class Redis(Service):
    """Debian's Redis, which keeps what it was told through a restart."""

    name = "redis"

    @property
    def url(self) -> str:
        """For Celery's broker and backend."""
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self) -> Sequence[str]:
        """See `Service.command`."""
        settings = {"--port": str(self.port), "--bind": "127.0.0.1", "--appendonly": "yes", "--save": ""}
        return [program("redis-server"), *(part for pair in settings.items() for part in pair)]

    def is_ready(self) -> bool:
        """Whether it answers a ping; not while it still loads what it kept."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False


class ObjectStore(Service):
    """An S3-compatible store with one bucket. A test can make it refuse (see `deploy/object_store.py`)."""

    name = "object_store"

    @property
    def endpoint(self) -> str:
        """For AWS_ENDPOINT_URL."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """For FINEVOLVE_STORAGE."""
        return f"s3://{_BUCKET}"

    @property
    def environment(self) -> dict[str, str]:
        """What leads a client of S3 to it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": _NAME,
            "AWS_SECRET_ACCESS_KEY": _NAME,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def command(self) -> Sequence[str]:
        """See `Service.command`."""
        server = Path(__file__).with_name("object_store.py")
        return [sys.executable, str(server), str(self.port), _BUCKET, str(self._refusal)]

    def stop(self) -> None:
        """End it at once: it has nothing to keep, and asked in order it would wait for clients to leave."""
        self.kill()

    def is_ready(self) -> bool:
        """Whether it answers."""
        return _answers(f"{self.endpoint}/moto-api/data.json")

    def refuse(self, status: int) -> None:
        """Answer every request with this status, until `serve`."""
        self._refusal.write_text(str(status))

    def serve(self) -> None:
        """Answer again."""
        self._refusal.unlink(missing_ok=True)

    def prepare(self) -> None:
        """A server that starts refuses nothing."""
        super().prepare()
        self.serve()

    @property
    def _refusal(self) -> Path:
        return self.folder / "refuse"


def free_port() -> int:
    """A port on which nobody listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def program(name: str) -> str:
    """Where a program is. Raises `AbsentError` naming the Debian package that brings it."""
    package = "redis-server" if name.startswith("redis") else "postgresql"
    places = [os.environ.get("PATH", ""), *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)]
    found = shutil.which(name, path=os.pathsep.join(places))
    if found is None:
        raise AbsentError(f"{name}: not installed; install Debian's package {package}")
    return found


@contextlib.contextmanager
def running(*services: Service) -> Iterator[None]:
    """Services that run while the block does; they are started in order and stopped in reverse."""
    with contextlib.ExitStack() as stack:
        for service in services:
            stack.callback(service.stop)
            service.start()
        yield


def _run(command: Sequence[str], folder: Path, told: object = subprocess.DEVNULL, **user: int) -> None:
    done = subprocess.run(command, stdin=told, capture_output=True, cwd=folder, check=False, **user)  # type: ignore[call-overload]
    if done.returncode:
        raise ServiceError(f"{Path(command[0]).name}: {done.stderr.decode(errors='replace').strip()}")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except (urllib.error.URLError, OSError):
        return False


def main() -> None:
    """Run all three until Ctrl-C."""
    if len(sys.argv) != 2:
        sys.exit("usage: python deploy/services.py FOLDER")
    folder = Path(sys.argv[1]).absolute()
    postgres, redis, store = Postgres(folder / "postgres"), Redis(folder / "redis"), ObjectStore(folder / "objects")
    try:
        with running(postgres, redis, store):
            told = {**store.environment, "FINEVOLVE_STORAGE": store.url, "FINEVOLVE_DATABASE": postgres.url}
            for name, value in {**told, "FINEVOLVE_BROKER": redis.url}.items():
                sys.stdout.write(f"export {name}={value}\n")
            sys.stdout.flush()
            with contextlib.suppress(KeyboardInterrupt):
                signal.pause()
    except ServiceError as refused:
        sys.exit(str(refused))


if __name__ == "__main__":
    main()
