"""Alerts get through, or it is told why not: never for ever, never with a secret."""

from __future__ import annotations

import datetime as dt
import email
import email.policy
import logging
import time

import pytest
from alert_servers import hook, mail_server, refused_port

from finevolve_pipeline.alerts import Message
from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.errors import SettingsError
from finevolve_pipeline.settings import AlertSettings, load_settings
from resources.alerts import AlertError, Channel, Timing, channels, secrets

NOW = dt.datetime(2026, 5, 29, 10, 0, tzinfo=SHANGHAI)
MESSAGE = Message("FinEvolve: raw_news 失败", "第一行\nsecond line\n.\nafter a dot\n")
QUICK = Timing(deadline_seconds=0.6, attempts=3, pause_seconds=0.01)


def webhook(url: str) -> Channel:
    (channel,) = channels(AlertSettings(webhook="HOOK"), {"HOOK": url}, QUICK)
    return channel


def mail(port: int, password: str = "very-secret", **more: object) -> Channel:
    values = {
        "email_to": ("a@example.org", "b@example.org"),
        "email_from": "finevolve@example.org",
        "smtp_host": "127.0.0.1",
        "smtp_port": port,
        "starttls": False,
    }
    settings = AlertSettings.model_validate({**values, **more})
    (channel,) = channels(settings, {"USER": "me", "PASSWORD": password}, QUICK)
    return channel


def test_a_webhook_gets_subject_and_text_as_json() -> None:
    with hook(204) as server:
        assert webhook(server.url).send(MESSAGE, NOW) == "HTTP 204"
    assert server.bodies == [{"subject": MESSAGE.subject, "text": f"{MESSAGE.subject}\n{MESSAGE.text}"}]


@pytest.mark.parametrize("trouble", [500, 503, 429, "cut", "hang", "trickle"])
def test_passing_trouble_is_got_over(trouble: int | str) -> None:
    with hook(trouble, 200) as server:
        assert webhook(server.url).send(MESSAGE, NOW) == "HTTP 200"
    assert len(server.bodies) == 2


@pytest.mark.parametrize(
    ("trouble", "said", "requests"),
    [
        (500, "HTTP 500; it is tried again", 3),
        ("cut", "no answer (RemoteProtocolError); it is tried again", 3),
        ("hang", "no answer within 0.6 s; it is tried again", 3),
        ("trickle", "no answer within 0.6 s; it is tried again", 3),
        (404, "HTTP 404; the URL is not, or no longer", 1),
        (302, "HTTP 302; the URL is not, or no longer", 1),
    ],
)
def test_lasting_trouble_ends_after_few_attempts_and_names_the_variable_alone(
    trouble: int | str, said: str, requests: int
) -> None:
    began = time.monotonic()
    with hook(trouble) as server, pytest.raises(AlertError) as told:
        webhook(server.url).send(MESSAGE, NOW)
    assert time.monotonic() - began < 6
    assert said in str(told.value)
    assert str(told.value).startswith("webhook of HOOK: ")
    assert "127.0.0.1" not in str(told.value)
    assert "very-secret" not in str(told.value)
    assert len(server.bodies) == requests


def test_a_webhook_that_is_down_is_told_without_its_address() -> None:
    with pytest.raises(AlertError, match=r"webhook of HOOK: no answer \(ConnectError\)"):
        webhook(f"http://127.0.0.1:{refused_port()}/very-secret").send(MESSAGE, NOW)


@pytest.mark.parametrize("url", ["no-url-but-very-secret", "ftp://x/very-secret", "http://[very-secret", "http://"])
def test_what_is_no_url_is_told_without_repeating_it(url: str) -> None:
    with pytest.raises(AlertError) as told:
        webhook(url).send(MESSAGE, NOW)
    assert "very-secret" not in str(told.value)
    assert told.value.__cause__ is None


def test_the_url_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("httpx2").setLevel(logging.NOTSET)
    with caplog.at_level(logging.INFO), hook() as server:
        webhook(server.url).send(MESSAGE, NOW)
    assert "very-secret" not in caplog.text


def test_an_email_is_plain_text_to_all_recipients() -> None:
    with mail_server() as server:
        assert mail(server.port).send(MESSAGE, NOW) == "taken for 2 of 2 recipients"
    (taken,) = server.mails
    assert (taken.sender, taken.recipients) == ("finevolve@example.org", ["a@example.org", "b@example.org"])
    read = email.message_from_string(taken.data, policy=email.policy.default)
    assert (read["subject"], read["to"]) == (MESSAGE.subject, "a@example.org, b@example.org")
    assert read["date"] == "Fri, 29 May 2026 10:00:00 +0800"
    assert str(read["message-id"]).endswith("@example.org>")
    assert read.get_content_type() == "text/plain"
    assert read.get_content().splitlines()[:2] == ["第一行", "second line"]


@pytest.mark.parametrize(
    ("manner", "said"),
    [
        ("hang", "no answer within 0.6 s"),
        ("trickle", "no answer within 0.6 s"),
        ("cut", r"no answer \(SMTPServerDisconnected\)"),
        ("busy", "refused with code 421"),
        ("refuse", "all 2 recipients were refused"),
    ],
)
def test_a_mail_server_without_manners_is_told_and_never_waited_for(manner: str, said: str) -> None:
    began = time.monotonic()
    with mail_server(manner) as server, pytest.raises(AlertError, match=said) as told:
        mail(server.port).send(MESSAGE, NOW)
    assert time.monotonic() - began < 4
    assert str(told.value).endswith("; it is tried again")


def test_a_mail_server_that_is_down_is_told() -> None:
    with pytest.raises(AlertError, match=r"email by 127\.0\.0\.1:\d+: no answer \(ConnectionRefusedError\);"):
        mail(refused_port()).send(MESSAGE, NOW)


def test_one_refused_recipient_does_not_keep_it_from_the_other() -> None:
    with mail_server("refuse-first") as server:
        assert mail(server.port).send(MESSAGE, NOW) == "taken for 1 of 2 recipients"
    assert [taken.recipients for taken in server.mails] == [["b@example.org"]]


LOGIN = {"smtp_user_variable": "USER", "smtp_password_variable": "PASSWORD"}


def test_a_login_comes_from_the_environment() -> None:
    with mail_server(users={"me": "very-secret"}) as server:
        mail(server.port, **LOGIN).send(MESSAGE, NOW)
    assert len(server.logins) == len(server.mails) == 1


def test_a_refused_login_is_told_without_the_password() -> None:
    with mail_server(users={"me": "another"}) as server, pytest.raises(AlertError, match="login was refused") as told:
        mail(server.port, **LOGIN).send(MESSAGE, NOW)
    assert "very-secret" not in str(told.value)


def test_a_password_that_mail_cannot_carry_is_told_without_any_of_it() -> None:
    with mail_server(users={"me": "x"}) as server, pytest.raises(AlertError, match="that mail cannot carry") as told:
        mail(server.port, "geheimß", **LOGIN).send(MESSAGE, NOW)
    assert not any(part in str(told.value) for part in ("geheim", "ß", "xdf"))
    assert told.value.__cause__ is None


def test_a_host_that_is_no_name_is_told() -> None:
    with pytest.raises(AlertError, match=r"email by a\.\.b:25: host, user or password holds a character"):
        mail(25, smtp_host="a..b").send(MESSAGE, NOW)


def test_nothing_is_sent_where_encryption_is_asked_for_and_not_offered() -> None:
    with mail_server() as server, pytest.raises(AlertError, match="no STARTTLS"):
        mail(server.port, starttls=True).send(MESSAGE, NOW)
    assert server.mails == []


def test_no_settings_no_channels() -> None:
    assert channels(load_settings().alerts, {}) == ()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"webhook": "HOOK"}, "alerts.webhook: environment variable HOOK is not set"),
        (
            {"email_to": ("a@b.org",), "email_from": "a@b.org", "smtp_host": "mx.org", **LOGIN},
            "alerts.smtp_user_variable: environment variable USER is not set",
        ),
    ],
)
def test_a_variable_that_is_not_set_is_named(settings: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        channels(AlertSettings.model_validate(settings), {"HOOK": " "})


def test_secrets_are_the_values_of_all_variables_that_the_settings_name() -> None:
    settings = load_settings(overrides={"alerts": {"webhook": "HOOK"}})
    environment = {"HOOK": "https://hook", "DEEPSEEK_API_KEY": "sk-123", "HOME": "/home/me"}
    assert secrets(settings, environment) == {"https://hook", "sk-123"}
