"""A defect of a mechanism, as `finevolve run` tells it: what, where it was met, and which log has its traceback."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from types import SimpleNamespace

import click
import dagster as dg
import pytest

from assets.planning import Materialiser, RunFailed
from finevolve_pipeline.cli import replay_child
from finevolve_pipeline.cli.run import _Child, _failures, _Group
from finevolve_pipeline.errors import MechanismError

NOTE = "in mechanism Mine.retrieve of mine-rules, 2025-01-02 801170"


def defect() -> None:
    raise ValueError("boom")


@dg.asset
def noted() -> None:
    try:
        defect()
    except ValueError as error:
        error.add_note(NOTE)
        raise


@dg.asset
def chained() -> None:
    try:
        {}["missing"]
    except KeyError as cause:
        raise ValueError("boom") from cause


@dg.asset
def ours() -> None:
    raise MechanismError(f"{NOTE}: returned None")


def failure(asset: dg.AssetsDefinition) -> Exception:
    with dg.DagsterInstance.ephemeral() as instance, pytest.raises(Exception) as raised:
        Materialiser(dg.Definitions(assets=[asset]), instance).materialise([asset.key.to_user_string()])
    return raised.value


def test_a_defect_is_told_in_one_line_with_its_notes_and_keeps_its_traceback() -> None:
    error = failure(noted)
    assert isinstance(error, RunFailed)
    assert str(error) == f"ValueError: boom; {NOTE}"
    assert "in defect" in error.traceback
    assert 'raise ValueError("boom")' in error.traceback


def test_what_is_raised_is_told_and_not_what_it_was_raised_from() -> None:
    error = failure(chained)
    assert str(error) == "ValueError: boom"
    assert "missing" in error.traceback


def test_an_error_meant_for_the_user_stays_what_it_is() -> None:
    error = failure(ours)
    assert isinstance(error, MechanismError)
    assert str(error) == f"{NOTE}: returned None"


def child(log: Path) -> _Child:
    return _Child(_Group(("mine-rules",), dt.date(2025, 1, 2)), None, log, {})  # type: ignore[arg-type]


def test_the_log_has_the_traceback_and_the_run_names_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise RunFailed(f"ValueError: boom; {NOTE}", "ValueError: boom\n\nStack Trace:\n  in defect\n")

    monkeypatch.setattr(replay_child, "watch_parent", lambda parent: None)
    monkeypatch.setattr(replay_child, "stretch", fail)
    monkeypatch.setattr(replay_child.Pipeline, "in_force", lambda: SimpleNamespace(settings=None))
    with pytest.raises(SystemExit) as ended:
        replay_child.main("mine-rules", "mine-rules", "2025-01-02", "2025-01-03", "1")
    log = tmp_path / "replay-mine-rules-1.log"
    log.write_text(capsys.readouterr().err, "utf-8")
    assert "in defect" in log.read_text("utf-8")
    (failed,) = _failures(child(log), ended.value.code)
    assert str(failed.error) == f"ValueError: boom; {NOTE}; its traceback is in {log}"
    assert log.exists()


def test_a_refusal_without_a_traceback_names_no_log(tmp_path: Path) -> None:
    log = tmp_path / "replay-mine-rules-1.log"
    with log.open("w", encoding="utf-8") as sink:
        click.echo("error: budget: nothing left", file=sink)
    (failed,) = _failures(child(log), 1)
    assert str(failed.error) == "budget: nothing left"
