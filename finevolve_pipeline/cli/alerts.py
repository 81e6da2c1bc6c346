"""The command `alerts test`: whether somebody would be told if something failed.

Exit codes: 0 every channel took the message; 1 one did not; 2 there is none, or its environment variable is not set.
"""

from __future__ import annotations

import datetime as dt
import os

import click

from finevolve_pipeline import alerts, calendar
from finevolve_pipeline.cli.output import emit_json, json_option, messages, results
from finevolve_pipeline.errors import SettingsError
from finevolve_pipeline.settings import load_settings
from resources.alerts import AlertError, channels


@click.group("alerts")
def alerts_group() -> None:
    """Telling people of failed runs and late data."""


@alerts_group.command("test")
@json_option
def test_command(as_json: bool) -> None:
    """Send a test message to the webhook and the addresses of [alerts], and say what happened.

    The sensors alert_failed_runs and alert_late_data use the same channels; switch them on in the Dagster UI.
    """
    settings = load_settings().alerts
    found = channels(settings, os.environ)
    if not found:
        raise SettingsError("no alerts: [alerts] names neither a webhook nor email_to; set one in finevolve.toml")
    now = dt.datetime.now(calendar.SHANGHAI)
    outcomes = []
    for channel in found:
        try:
            outcomes.append((channel.name, True, channel.send(alerts.trial(now), now)))
        except AlertError as failed:
            outcomes.append((channel.name, False, str(failed)))
    if as_json:
        emit_json({"channels": [{"name": name, "taken": taken, "said": said} for name, taken, said in outcomes]})
    else:
        for name, taken, said in outcomes:
            if taken:
                results.print(f"{name}: {said}")
            else:
                messages.print(f"{name}: not sent: {said}")
    if not all(taken for _, taken, _ in outcomes):
        raise click.exceptions.Exit(1)
