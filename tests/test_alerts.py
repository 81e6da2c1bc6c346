"""What is told, once for each state, and what never stands in it."""

from __future__ import annotations

import datetime as dt

import pytest

from finevolve_pipeline.alerts import (
    Board,
    Condition,
    FailedRun,
    Message,
    failed_run,
    missing_bars,
    one_line,
    overdue,
    source_conditions,
    trial,
)
from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.errors import SettingsError
from finevolve_pipeline.news.coverage import DayCoverage, SourceCoverage
from finevolve_pipeline.news.staleness import Silence
from finevolve_pipeline.settings import load_settings

NOW = dt.datetime(2026, 5, 29, 10, 0, tzinfo=SHANGHAI)


def condition(name: str, state: str = "bad") -> Condition:
    return Condition(name, state, Message(f"subject {name}", f"text {state}\n"))


def told(board: Board, channel: str) -> list[tuple[str, str]]:
    return [(one.id, one.state) for one in board.untold(channel)]


def test_a_condition_is_told_once_until_it_changes() -> None:
    board = Board().showing([condition("a"), condition("b")])
    assert told(board, "webhook") == [("a", "bad"), ("b", "bad")]
    board = board.after_telling("webhook", condition("a")).showing([condition("a"), condition("b")])
    assert told(board, "webhook") == [("b", "bad")]
    assert told(board.showing([condition("a", "worse")]), "webhook") == [("a", "worse")]


def test_each_channel_is_told() -> None:
    board = Board().showing([condition("a")]).after_telling("webhook", condition("a"))
    assert told(board, "webhook") == []
    assert told(board, "email") == [("a", "bad")]


def test_what_comes_back_is_told_again() -> None:
    board = Board().showing([condition("a")]).after_telling("webhook", condition("a"))
    assert told(board.cleared("a"), "webhook") == []
    assert told(board.cleared("a").raised(condition("a")), "webhook") == [("a", "bad")]
    assert told(board.raised(condition("a")), "webhook") == []


def test_a_board_outlives_its_process() -> None:
    board = Board().showing([condition("a"), condition("失败")]).after_telling("email", condition("a"))
    assert Board.of_document(board.document()) == board


@pytest.mark.parametrize(
    "document", [{}, {"open": [["a"]], "told": {}}, {"open": 3, "told": {}}, {"open": [], "told": None}]
)
def test_other_values_are_no_board(document: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        Board.of_document(document)


def test_a_flood_of_conditions_keeps_the_newest_hundred() -> None:
    board = Board().showing(condition(str(number)) for number in range(1000))
    assert [one.id for one in board.open] == [str(number) for number in range(900, 1000)]


ERROR = """finevolve_pipeline.errors.TableError: articles 2026-05-28: 3 rows without title
Stack Trace:
  File "/srv/finevolve/assets/partitioned.py", line 170, in materialise
"""


def failed(error: str = ERROR, partitions: tuple[str, str] | None = ("2026-05-28|cls", "2026-05-28|cls")) -> FailedRun:
    return FailedRun("raw_news_day", "cls", partitions, error, "5f2c")


def test_a_failed_run_tells_job_partitions_first_line_and_where_to_look() -> None:
    assert failed_run(failed(), ()).message == Message(
        "FinEvolve: raw_news_day failed (2026-05-28|cls)",
        "The run of raw_news_day failed.\n"
        "Partitions: 2026-05-28|cls\n"
        "Error: finevolve_pipeline.errors.TableError: articles 2026-05-28: 3 rows without title\n"
        "Look at: run 5f2c in the Dagster UI (/runs/5f2c). What is stored stays; the same run again goes on from "
        "there.\n",
    )


@pytest.mark.parametrize(
    ("partitions", "line"),
    [(None, None), (("2026-05-01", "2026-05-28"), "Partitions: 2026-05-01 to 2026-05-28")],
)
def test_ranges_and_runs_without_partitions(partitions: tuple[str, str] | None, line: str | None) -> None:
    lines = failed_run(failed(partitions=partitions), ()).message.text.splitlines()
    assert [one for one in lines if one.startswith("Partitions")] == ([line] if line else [])


def test_a_failure_stays_the_same_while_only_numbers_of_its_error_change() -> None:
    first, again = (failed_run(failed(f"timeout after {seconds} s, page {seconds}"), ()) for seconds in (12, 17))
    assert (first.id, first.state) == (again.id, again.state)
    other = failed_run(failed("captcha"), ())
    assert (first.id, first.state) != (other.id, other.state)
    assert other.id == first.id
    next_day = failed_run(failed("timeout after 12 s, page 12", ("2026-05-29|cls", "2026-05-29|cls")), ())
    assert next_day.state != first.state


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\n\n  first\nsecond", "first"),
        ("key sk-very/secret refused", "key [secret] refused"),
        ("GET https://x.org/a?k=sk-very%2Fsecret", "GET https://x.org/a?[...]"),
        ("asked https://x.org/sk-very%2Fsecret/a", "asked https://x.org/[secret]/a"),
        ("by http://user:word@proxy:80/a", "by http://proxy:80/a"),
        ("at 'https://x.org/hook?token=abc', twice", "at 'https://x.org/hook?[...]', twice"),
        ("bell\x07, escape\x1b[31m, break\u2028", "bell , escape [31m, break"),
        ("half \ud83d of a sign\udfff", "half   of a sign"),
        ("x" * 400, "x" * 299 + "…"),
        ("", ""),
    ],
)
def test_a_line_is_short_and_holds_no_secret(text: str, shown: str) -> None:
    assert one_line(text, {"sk-very/secret", "", "a"}) == shown


def test_a_message_holds_neither_secret_nor_stack() -> None:
    message = failed_run(failed("refused: sk-very-secret\n" + ERROR), {"sk-very-secret"}).message
    assert "sk-very-secret" not in message.text
    assert "partitioned.py" not in message.text


def known(state: str = "ok", reason: str = "") -> SourceCoverage:
    days = {"2026-05-12": DayCoverage({"feed": "HTTP 503"}, NOW - dt.timedelta(days=9), 9)}
    return SourceCoverage("cls", days, state=state, reason=reason)


SILENT = Silence(NOW - dt.timedelta(hours=30), dt.timedelta(hours=30), dt.timedelta(hours=2))
USUAL = Silence(NOW - dt.timedelta(hours=3), dt.timedelta(hours=3), dt.timedelta(hours=2))


@pytest.mark.parametrize(
    ("arguments", "subjects"),
    [
        ((known(), (), (), None), []),
        ((known(), (), (), USUAL), []),
        ((known("fetch_error", "timeout"), (), (), None), []),
        ((known("blocked", "captcha"), (), (), None), ["cls cannot be read: blocked"]),
        ((known("unsupported", "no list"), (), (), None), ["cls cannot be read: unsupported"]),
        ((known("defect", "a defect"), (), (), None), ["cls cannot be read: defect"]),
        (
            (SourceCoverage("cls", state="unreadable", reason="cls.json: not readable"), (), (), None),
            ["what is known of cls cannot be read"],
        ),
        ((known(), ("2026-05-12",), (), None), ["cls: 1 partial days are older than a week"]),
        ((known(), (), ("2026-05-27", "2026-05-28"), None), ["cls: raw_news of 2026-05-28 is late"]),
        ((known(), (), (), SILENT), ["cls has fallen silent"]),
    ],
    ids=[
        "well",
        "usual silence",
        "passing",
        "blocked",
        "changed",
        "broken",
        "unreadable",
        "given up",
        "late",
        "silent",
    ],
)
def test_what_is_wrong_with_a_source(
    arguments: tuple[SourceCoverage, tuple[str, ...], tuple[str, ...], Silence | None], subjects: list[str]
) -> None:
    found = list(source_conditions(*arguments))
    assert [one.message.subject for one in found] == [f"FinEvolve: {subject}" for subject in subjects]
    assert all("Look at: " in one.message.text for one in found)


def test_partial_days_are_told_with_the_reason_and_the_command() -> None:
    (found,) = source_conditions(known(), ("2026-05-12",), (), None)
    assert "the day 2026-05-12 of cls stayed partial" in found.message.text
    assert "feed: HTTP 503" in found.message.text
    assert "finevolve crawl --source cls --from 2026-05-12 --to 2026-05-12" in found.message.text


def test_late_bars_and_overdue_assets() -> None:
    assert list(missing_bars("industry_bars", ())) == []
    (bars,) = missing_bars("industry_bars", ("2026-05-27", "2026-05-28"))
    assert "lacks 2 sessions between 2026-05-27 and 2026-05-28" in bars.message.text
    assert overdue("raw_news").message.subject == "FinEvolve: raw_news is overdue"


def test_a_trial_says_when_it_was_sent() -> None:
    assert "2026-05-29 10:00:00" in trial(NOW).text


@pytest.mark.parametrize(
    ("alerts", "said"),
    [
        ({"webhook": "https://hook/secret"}, "alerts: webhook must be the name of an environment variable"),
        ({"smtp_password_variable": "geheim!"}, "alerts: smtp_password_variable must be the name"),
        ({"email_to": ["a@b.org"]}, "alerts: email_to needs email_from and smtp_host"),
        ({"email_to": ["a@b.org\r\nBcc: c@d.org"]}, "alerts.email_to.0"),
        ({"email_to": ["a@b.org", "a@b.org"]}, "'a@b.org' is listed twice"),
        ({"smtp_user_variable": "USER"}, "smtp_user_variable and smtp_password_variable are both needed"),
        (
            {"smtp_user_variable": "U", "smtp_password_variable": "P", "smtp_host": "mx.org", "starttls": False},
            "starttls = false would send the password to mx.org unencrypted",
        ),
        ({"sms": "1"}, "alerts.sms: Extra inputs are not permitted"),
    ],
)
def test_settings_that_cannot_be_used_are_told_without_what_stands_there(alerts: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError) as told:
        load_settings(overrides={"alerts": alerts})
    assert said in str(told.value)
    assert "geheim" not in str(told.value)
    assert "hook/secret" not in str(told.value)
