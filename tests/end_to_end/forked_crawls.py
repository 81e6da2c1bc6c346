"""Crawls whose processes are forked from one that has imported Scrapy, so that a hundred of them cost little.

`python forked_crawls.py FD` is that one: over its socket it gets the descriptors of a child (job, answers, log, status)
and forks it. `Forks` stands for `subprocess` in `resources.news_sites`.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any


class Forked:
    """What `resources.news_sites` uses of a `Popen`."""

    def __init__(self, zygote: socket.socket, log: IO[str]) -> None:
        job, self._job = os.pipe()
        self._answers, answers = os.pipe()
        self._status, status = os.pipe()
        socket.send_fds(zygote, [b"go"], [job, answers, log.fileno(), status])
        self.pid = int(zygote.recv(32))
        for given in (job, answers, status):
            os.close(given)
        self.stdin = os.fdopen(self._job, "w", encoding="utf-8")
        self.stdout = os.fdopen(self._answers, "r", encoding="utf-8", errors="replace")
        self.returncode: int | None = None

    def kill(self) -> None:
        """Kill it if it has not ended."""
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Until it has ended; one that said no code was killed."""
        if self.returncode is None:
            said = os.read(self._status, 1)
            os.close(self._status)
            self.returncode = said[0] if said else -signal.SIGKILL
        return self.returncode


class Forks:
    """Takes the place of the module `subprocess`."""

    PIPE = subprocess.PIPE

    def __init__(self, zygote: socket.socket) -> None:
        self._zygote = zygote
        self.started = 0

    def Popen(self, command: list[str], *, stderr: IO[str], **_: Any) -> Forked:
        """A crawl."""
        assert command[1:] == ["-m", "crawlers.child"]
        self.started += 1
        return Forked(self._zygote, stderr)


@contextmanager
def forked_crawls(folders: list[str]) -> Iterator[Forks]:
    """Something to put in the place of `resources.news_sites.subprocess`; `folders` are searched for modules."""
    ours, theirs = socket.socketpair()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*folders, *sys.path])}
    command = [sys.executable, __file__, str(theirs.fileno())]
    with ours, subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL) as one:
        theirs.close()
        try:
            yield Forks(ours)
        finally:
            ours.close()
            one.wait(10)


def _serve(asked: socket.socket) -> None:
    from crawlers import child
    from tests.sites import handler  # noqa: F401 - imported before the first fork

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        said, descriptors, _, _ = socket.recv_fds(asked, 2, 4)
        if not said:
            return
        pid = os.fork()
        if pid:
            for given in descriptors:
                os.close(given)
            asked.sendall(str(pid).encode())
            continue
        job, answers, log, status = descriptors
        asked.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for given, standard in ((job, 0), (answers, 1), (log, 2)):
            os.dup2(given, standard)
            os.close(given)
        code = 70
        try:
            code = child.main()
        finally:
            sys.stderr.flush()
            os.write(status, bytes([code]))
            os._exit(code)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
