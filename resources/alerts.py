"""Sending alerts: a webhook by HTTP, e-mail by SMTP. What is said, and whether anew, is decided elsewhere.

Each attempt has a deadline of its own that even a server which trickles cannot stretch. A channel that cannot be
reached is an `AlertError`, whose text never holds the webhook's URL, a user or a password.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import email.utils
import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.message import EmailMessage
from typing import Protocol

import httpx2

from finevolve_pipeline.alerts import Message
from finevolve_pipeline.errors import FinEvolveError, SettingsError
from finevolve_pipeline.settings import AlertSettings, Settings
from resources.pools import quiet, tls

DEADLINE_SECONDS = 10.0
"""Longest time of one attempt."""

ATTEMPTS = 3
"""Attempts at a webhook that does not answer or has a failure of its own."""

PAUSE_SECONDS = 0.5
"""Before the second attempt, then doubled."""

_TOO_MANY = 429


class AlertError(FinEvolveError):
    """A message that did not get through. It may be sent again."""

    exit_code = 1


class Channel(Protocol):
    """A way to tell people."""

    @property
    def name(self) -> str:
        """`webhook` or `email`."""

    def send(self, message: Message, now: dt.datetime) -> str:
        """Send a message. Returns what the other side said.

        Raises:
            AlertError: it did not get through.
        """


@dataclass(frozen=True)
class Timing:
    """How patient a channel is."""

    deadline_seconds: float = DEADLINE_SECONDS
    attempts: int = ATTEMPTS
    pause_seconds: float = PAUSE_SECONDS


@dataclass(frozen=True)
class Webhook:
    """POST of a JSON object with `subject` and `text`; any 2xx answer means that it was taken.

    Attributes:
        variable: the environment variable that the URL comes from; it is named in errors instead of the URL.
        url: a secret.
        timing: how patient.
    """

    variable: str
    url: str
    timing: Timing = Timing()

    @property
    def name(self) -> str:
        """Its name."""
        return "webhook"

    def send(self, message: Message, now: dt.datetime) -> str:
        """Send a message. Network failures, 429 and 5xx are tried again, after a pause.

        Raises:
            AlertError: no attempt got through, or the answer says that none will.
        """
        body = {"subject": message.subject, "text": f"{message.subject}\n{message.text}"}
        pause = self.timing.pause_seconds
        for left in reversed(range(self.timing.attempts)):
            try:
                status = asyncio.run(self._post(body))
            except _NoAnswerError as failed:
                said, final = str(failed), False
            else:
                if httpx2.codes.is_success(status):
                    return f"HTTP {status}"
                said = f"HTTP {status}"
                final = status != _TOO_MANY and not httpx2.codes.is_server_error(status)
            if final or not left:
                raise AlertError(f"webhook of {self.variable}: {said}; {self._advice(final)}")
            time.sleep(pause)
            pause *= 2
        raise AssertionError("there is at least one attempt")

    async def _post(self, body: Mapping[str, str]) -> int:
        try:
            async with (
                asyncio.timeout(self.timing.deadline_seconds),
                httpx2.AsyncClient(
                    timeout=self.timing.deadline_seconds, follow_redirects=False, verify=tls()
                ) as client,
                client.stream("POST", self.url, json=body) as response,  # what it says beyond its status is not read
            ):
                return response.status_code
        except (TimeoutError, httpx2.TimeoutException):
            raise _NoAnswerError(f"no answer within {self.timing.deadline_seconds:g} s") from None
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, ValueError):
            raise AlertError(f"webhook of {self.variable}: it holds no URL that can be asked; set it anew") from None
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as failed:
            raise _NoAnswerError(f"no answer ({type(failed).__name__})") from None

    @staticmethod
    def _advice(final: bool) -> str:
        if final:
            return "the URL is not, or no longer, one that takes messages: set the variable anew"
        return "it is tried again"


@dataclass(frozen=True)
class Login:
    """User and password, both secrets."""

    user: str
    password: str


@dataclass(frozen=True)
class Email:
    """One plain-text e-mail to all recipients; one attempt, for a mail server keeps what it has taken."""

    settings: AlertSettings
    login: Login | None = None
    timing: Timing = Timing()

    @property
    def name(self) -> str:
        """Its name."""
        return "email"

    def send(self, message: Message, now: dt.datetime) -> str:
        """Send a message.

        Raises:
            AlertError: the server cannot be reached, does not encrypt, refuses the login, or every recipient.
        """
        where = f"email by {self.settings.smtp_host}:{self.settings.smtp_port}"
        try:
            refused = self._deliver(message, now)
        except _NoAnswerError as failed:
            raise AlertError(f"{where}: {failed}; it is tried again") from None
        taken = len(self.settings.email_to) - len(refused)
        return f"taken for {taken} of {len(self.settings.email_to)} recipients"

    def _deliver(self, message: Message, now: dt.datetime) -> Sequence[str]:
        """Addresses that were refused, while others were not."""
        mail = EmailMessage()
        mail["Subject"] = message.subject
        mail["From"] = self.settings.email_from
        mail["To"] = ", ".join(self.settings.email_to)
        mail["Date"] = email.utils.format_datetime(now)
        mail["Message-ID"] = email.utils.make_msgid(domain=self.settings.email_from.partition("@")[2])
        mail.set_content(message.text, cte="base64")  # whether or not the server takes eight bits
        seconds, began = self.timing.deadline_seconds, time.monotonic()
        try:
            with _TimedServer(self.settings.smtp_host, self.settings.smtp_port, seconds) as server:
                if self.settings.starttls:
                    server.starttls(context=ssl.create_default_context())
                if self.login is not None:
                    server.login(self.login.user, self.login.password)
                return tuple(server.send_message(mail))
        except smtplib.SMTPAuthenticationError as refused:
            raise _NoAnswerError(f"the login was refused (code {refused.smtp_code})") from None
        except smtplib.SMTPRecipientsRefused as refused:
            raise _NoAnswerError(f"all {len(refused.recipients)} recipients were refused") from None
        except smtplib.SMTPResponseException as refused:
            raise _NoAnswerError(f"refused with code {refused.smtp_code}") from None
        except smtplib.SMTPNotSupportedError:
            offered = "STARTTLS" if self.login is None else "STARTTLS or a login"
            raise _NoAnswerError(f"the server offers no {offered}; see [alerts] starttls") from None
        except UnicodeError:
            # Its text would name a character of the password.
            raise _NoAnswerError("host, user or password holds a character that mail cannot carry") from None
        except (smtplib.SMTPException, OSError) as failed:
            late = time.monotonic() - began >= seconds
            raise _NoAnswerError(
                f"no answer within {seconds:g} s" if late else f"no answer ({type(failed).__name__})"
            ) from None


def channels(settings: AlertSettings, environment: Mapping[str, str], timing: Timing = Timing()) -> tuple[Channel, ...]:
    """The channels that the settings name.

    Raises:
        SettingsError: an environment variable that they name is not set.
    """
    quiet()
    found: list[Channel] = []
    if settings.webhook:
        found.append(Webhook(settings.webhook, _value(environment, settings.webhook, "webhook"), timing))
    if settings.email_to:
        login = None
        if settings.smtp_user_variable:
            user = _value(environment, settings.smtp_user_variable, "smtp_user_variable")
            password = _value(environment, settings.smtp_password_variable, "smtp_password_variable")
            login = Login(user, password)
        found.append(Email(settings, login, timing))
    return tuple(found)


def secrets(settings: Settings, environment: Mapping[str, str]) -> frozenset[str]:
    """Values of all environment variables that the settings name, none of which may be told."""
    names = {settings.alerts.webhook}

    def walk(value: object) -> None:
        if isinstance(value, dict):
            names.update(named for key, named in value.items() if str(key).endswith("_variable"))
            for inner in value.values():
                walk(inner)

    walk(settings.model_dump())
    return frozenset(value for name in names if isinstance(name, str) and (value := environment.get(name, "").strip()))


def _value(environment: Mapping[str, str], variable: str, key: str) -> str:
    value = environment.get(variable, "").strip()
    if not value:
        raise SettingsError(f"alerts.{key}: environment variable {variable} is not set")
    return value


class _NoAnswerError(Exception):
    """An attempt that did not get through; the text is fit for people."""


class _TimedServer(smtplib.SMTP):
    """A connection that is closed after so long: a socket's own timeout starts anew with every byte."""

    def __init__(self, host: str, port: int, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True
        self._timer.start()
        try:
            # Named, or smtplib would look up this machine's name, which can take longer than all else.
            super().__init__(host, port, local_hostname="localhost", timeout=seconds)
        except BaseException:
            self.close()
            raise

    def _cut(self) -> None:
        if self.sock is not None:
            with suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self._timer.cancel()
        super().close()
