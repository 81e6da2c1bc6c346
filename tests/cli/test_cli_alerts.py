"""`finevolve alerts test`: what happened on each channel, and an exit code for scripts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "resources"))

from alert_servers import hook, mail_server

from finevolve_pipeline.cli import main


def run(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(ended.value.code or 0)


def configure(text: str) -> None:
    Path("finevolve.toml").write_text(f"[alerts]\n{text}")


def test_without_alerts_it_says_what_to_set(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["alerts", "test"]) == 2
    assert "names neither a webhook nor email_to; set one in finevolve.toml" in capsys.readouterr().err


def test_every_channel_is_tried_and_told(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with hook(200) as webhook, mail_server() as mail:
        monkeypatch.setenv("HOOK", webhook.url)
        configure(
            'webhook = "HOOK"\nemail_to = ["a@b.org"]\nemail_from = "f@b.org"\nsmtp_host = "127.0.0.1"\n'
            f"smtp_port = {mail.port}\nstarttls = false\n"
        )
        assert run(["alerts", "test"]) == 0
    assert capsys.readouterr().out.splitlines() == ["webhook: HTTP 200", "email: taken for 1 of 1 recipients"]
    assert webhook.bodies[0]["subject"] == "FinEvolve: test of alerts"
    assert len(mail.mails) == 1


def test_one_that_fails_is_told_without_the_url(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with hook(404) as webhook:
        monkeypatch.setenv("HOOK", webhook.url)
        configure('webhook = "HOOK"\n')
        assert run(["alerts", "test"]) == 1
        said = capsys.readouterr()
        assert "webhook: not sent: webhook of HOOK: HTTP 404" in said.err
        assert run(["alerts", "test", "--json"]) == 1
        document = json.loads(capsys.readouterr().out)
    assert [(one["name"], one["taken"]) for one in document["channels"]] == [("webhook", False)]
    assert "very-secret" not in said.err + said.out + json.dumps(document)


def test_a_variable_that_is_not_set_is_named(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configure('webhook = "HOOK_NOT_SET"\n')
    assert run(["alerts", "test"]) == 2
    assert "alerts.webhook: environment variable HOOK_NOT_SET is not set" in capsys.readouterr().err
