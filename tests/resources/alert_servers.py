"""A webhook and a mail server on 127.0.0.1 that do what a test tells them, bad manners included."""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

TRICKLE_SECONDS = 0.05


def _served(handle: Callable[[socket.socket], None]) -> tuple[socket.socket, int]:
    """A listening socket whose connections are handled in a thread each."""
    listener = socket.create_server(("127.0.0.1", 0))

    def converse(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(5)
            handle(connection)

    def run() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=converse, args=(connection,), daemon=True).start()

    threading.Thread(target=run, daemon=True).start()
    return listener, listener.getsockname()[1]


def _trickle(connection: socket.socket, line: bytes, stopped: threading.Event) -> None:
    """Send a line a byte at a time, and never its end."""
    while not stopped.is_set():
        for byte in line:
            connection.send(bytes([byte]))
            if stopped.wait(TRICKLE_SECONDS):
                return


@dataclass
class Hook:
    """A webhook. `plan` says what it does with each request, the last entry from then on: a status, or `hang`,
    `cut` (closes the connection without an answer) or `trickle`."""

    plan: Sequence[int | str] = (200,)
    url: str = ""
    bodies: list[dict[str, str]] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def handle(self, connection: socket.socket) -> None:
        """One request."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(65536)
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        while len(body) < length:
            body += connection.recv(65536)
        does = self.plan[min(len(self.bodies), len(self.plan) - 1)]
        self.bodies.append(json.loads(body))
        if does == "hang":
            self.stopped.wait(10)
        elif does == "trickle":
            _trickle(connection, b"HTTP/1.1 200 OK\r\nx: " + b"y" * 1000, self.stopped)
        elif does != "cut":
            location = "location: http://127.0.0.1:1/\r\n" if str(does).startswith("3") else ""
            connection.sendall(
                f"HTTP/1.1 {does} X\r\n{location}content-length: 0\r\nconnection: close\r\n\r\n".encode()
            )


@dataclass
class Mail:
    """What a mail server took."""

    sender: str
    recipients: list[str]
    data: str


@dataclass
class MailServer:
    """A mail server without encryption. `manner`: `good`, `hang` (no greeting), `trickle` (one without end), `cut`
    (leaves in the middle of the mail), `busy` (421), `refuse` (every recipient), `refuse-first`."""

    manner: str = "good"
    users: dict[str, str] = field(default_factory=dict)
    port: int = 0
    mails: list[Mail] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def handle(self, connection: socket.socket) -> None:
        """One conversation."""
        if self.manner == "hang":
            self.stopped.wait(10)
            return
        if self.manner == "trickle":
            _trickle(connection, b"220 " + b"x" * 1000, self.stopped)
            return
        lines = connection.makefile("rwb")

        def say(text: str) -> None:
            lines.write(f"{text}\r\n".encode())
            lines.flush()

        say("421 too busy" if self.manner == "busy" else "220 test")
        sender, recipients = "", list[str]()
        for raw in lines:
            line = raw.decode().strip()
            match line.upper().split(" ")[0].split(":")[0]:
                case "EHLO":
                    say("250-test")
                    say("250 AUTH PLAIN" if self.users else "250 8BITMIME")
                case "AUTH":
                    self.logins.append(line)
                    say("235 welcome" if self._knows(line) else "535 no")
                case "MAIL":
                    sender, recipients = line.partition("<")[2].partition(">")[0], []
                    say("250 ok")
                case "RCPT":
                    if self.manner == "refuse" or (self.manner == "refuse-first" and not recipients):
                        recipients.append("")
                        say("550 nobody here")
                    else:
                        recipients.append(line.partition("<")[2].partition(">")[0])
                        say("250 ok")
                case "DATA":
                    say("354 go on")
                    if self.manner == "cut":
                        return
                    data = b""
                    while not data.endswith(b"\r\n.\r\n"):
                        data += lines.readline()
                    self.mails.append(Mail(sender, [one for one in recipients if one], data.decode()))
                    say("250 taken")
                case "QUIT":
                    say("221 bye")
                    return
                case "RSET" | "NOOP":
                    say("250 ok")
                case _:
                    say("502 unknown")

    def _knows(self, line: str) -> bool:
        _, user, password = base64.b64decode(line.split(" ")[2]).decode().split("\0")
        return self.users.get(user) == password


@contextmanager
def hook(*plan: int | str) -> Iterator[Hook]:
    """A webhook at its `url`."""
    server = Hook(plan or (200,))
    listener, port = _served(server.handle)
    server.url = f"http://127.0.0.1:{port}/hook/very-secret-path?token=very-secret-token"
    try:
        yield server
    finally:
        server.stopped.set()
        listener.close()


@contextmanager
def mail_server(manner: str = "good", users: dict[str, str] | None = None) -> Iterator[MailServer]:
    """A mail server at its `port`."""
    server = MailServer(manner, users or {})
    listener, server.port = _served(server.handle)
    try:
        yield server
    finally:
        server.stopped.set()
        listener.close()


def refused_port() -> int:
    """A port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port
