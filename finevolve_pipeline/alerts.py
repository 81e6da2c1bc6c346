"""What people are told when something needs them: conditions, what has been told already, and the texts.

A condition is told once for each of its states and channel; when it no longer holds it is forgotten, so that its
return is told again. Texts say what failed, for which partitions, the first line of the error and where to look:
never a secret, never a stack. Nothing here sends anything.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from finevolve_pipeline.news.coverage import SourceCoverage
from finevolve_pipeline.news.coverage_table import UNREADABLE
from finevolve_pipeline.news.staleness import Silence

_LONGEST_LINE = 300
_MOST_OPEN = 100
_LEAST_SECRET = 4
_REFUSALS = frozenset({"blocked", "disallowed", "javascript_required", "unsupported", "defect"})
"""States of a source's last crawl that waiting does not mend."""

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
"""Surrogates among them: alone, they cannot be sent in UTF-8."""

_USER_IN_URL = re.compile(r"(?<=://)[^/\s@]*@")
_REST_OF_URL = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s?#'\"]*)[?#][^\s'\"]*", re.I)


@dataclass(frozen=True)
class Message:
    """What is sent: one line, and a plain text."""

    subject: str
    text: str


@dataclass(frozen=True)
class Condition:
    """Something that needs somebody.

    Attributes:
        id: what it is about; it stays the same while it lasts.
        state: when this changes, it is told again.
        message: what is told.
    """

    id: str
    state: str
    message: Message


@dataclass(frozen=True)
class Board:
    """Conditions that hold, and what each channel has been told.

    Attributes:
        open: in the order in which they are told.
        told: channel -> condition's id -> its state then.
    """

    open: tuple[Condition, ...] = ()
    told: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def showing(self, conditions: Iterable[Condition]) -> Board:
        """With just these conditions, the newest hundred of them; what else was told is forgotten."""
        kept = tuple({condition.id: condition for condition in conditions}.values())[-_MOST_OPEN:]
        ids = {condition.id for condition in kept}
        told = {
            channel: {name: state for name, state in states.items() if name in ids}
            for channel, states in self.told.items()
        }
        return Board(kept, told)

    def raised(self, condition: Condition) -> Board:
        """With this condition beside the others."""
        return self.showing((*(one for one in self.open if one.id != condition.id), condition))

    def cleared(self, name: str) -> Board:
        """Without the condition of that id."""
        return self.showing(one for one in self.open if one.id != name)

    def untold(self, channel: str) -> tuple[Condition, ...]:
        """Conditions that a channel has not been told in their present state."""
        told = self.told.get(channel, {})
        return tuple(condition for condition in self.open if told.get(condition.id) != condition.state)

    def after_telling(self, channel: str, condition: Condition) -> Board:
        """The same when a channel has been told."""
        told = {**self.told, channel: {**self.told.get(channel, {}), condition.id: condition.state}}
        return replace(self, told=told)

    def document(self) -> dict[str, Any]:
        """As plain values, for a cursor."""
        return {
            "open": [[one.id, one.state, one.message.subject, one.message.text] for one in self.open],
            "told": {channel: dict(states) for channel, states in self.told.items()},
        }

    @staticmethod
    def of_document(document: Mapping[str, Any]) -> Board:
        """The board that `document` told. Raises `KeyError`, `TypeError` or `ValueError` for other values."""
        listed = (Condition(name, state, Message(subject, text)) for name, state, subject, text in document["open"])
        told = document["told"]
        if not isinstance(told, Mapping) or not all(isinstance(states, Mapping) for states in told.values()):
            raise TypeError(f"told: {str(told)[:_LONGEST_LINE]!r} is no states by channel")
        return Board(tuple(listed), told)


@dataclass(frozen=True)
class FailedRun:
    """A run that failed.

    Attributes:
        job: its job, or the assets that it was asked for.
        subject: what its partitions have in common: a source, an experiment; empty: nothing.
        partitions: first and last partition (the same if there is one); none: it has no partitions.
        error: what it ended with; only its first line is told.
        run: its id.
    """

    job: str
    subject: str
    partitions: tuple[str, str] | None
    error: str
    run: str


def run_id(job: str, subject: str) -> str:
    """Id of the condition that runs of a job fail for a subject; a later one ends it by succeeding."""
    return f"run|{job}|{subject}"


def failed_run(failed: FailedRun, secrets: Collection[str]) -> Condition:
    """The condition of a failed run. It is another one for other partitions, or if the error reads otherwise."""
    if failed.partitions is None:
        keys = ""
    elif failed.partitions[0] == failed.partitions[1]:
        keys = failed.partitions[0]
    else:
        keys = f"{failed.partitions[0]} to {failed.partitions[1]}"
    error = one_line(failed.error, secrets) or "none was recorded"
    lines = [
        f"The run of {failed.job} failed.",
        *([f"Partitions: {keys}"] if keys else []),
        f"Error: {error}",
        f"Look at: run {failed.run} in the Dagster UI (/runs/{failed.run}). What is stored stays; the same run again "
        "goes on from there.",
    ]
    state = f"{keys}|{re.sub(r'[0-9a-f]*[0-9][0-9a-f]*', '#', error)}"
    return _condition(
        run_id(failed.job, failed.subject), state, f"{failed.job} failed{f' ({keys})' if keys else ''}", lines
    )


def source_conditions(
    coverage: SourceCoverage, gave_up: Sequence[str], not_closed: Sequence[str], silence: Silence | None
) -> Iterator[Condition]:
    """What is wrong with a source.

    Args:
        coverage: what is known of it.
        gave_up: its partial days that are no longer retried.
        not_closed: its days that nobody has asked for since they ended.
        silence: how long it has published nothing.
    """
    source = coverage.source
    if coverage.state == UNREADABLE:
        yield _condition(
            f"source|{source}|unreadable",
            coverage.reason,
            f"what is known of {source} cannot be read",
            [f"Look at: {one_line(coverage.reason, ())}"],
        )
        return
    if coverage.state in _REFUSALS:
        yield _condition(
            f"source|{source}|refused",
            coverage.state,
            f"{source} cannot be read: {coverage.state}",
            [
                f"The last crawl of {source} ended with state {coverage.state}.",
                f"Reason: {one_line(coverage.reason, ())}",
                f"Look at: `finevolve doctor --sources`, and the log crawl/log/{source}.log in FINEVOLVE_HOME. A site "
                "that refuses is left alone until the next crawl.",
            ],
        )
    if gave_up:
        reason = one_line(coverage.days[gave_up[-1]].reason, ())
        yield _condition(
            f"source|{source}|partial",
            " ".join(gave_up),
            f"{source}: {len(gave_up)} partial days are older than a week",
            [
                f"{_days(gave_up)} of {source} stayed partial for a week and are no longer retried.",
                f"Reason of the newest: {reason}",
                f"Look at: `finevolve coverage --partial --source {source}`; `finevolve crawl --source {source} "
                f"--from {gave_up[0]} --to {gave_up[-1]}` asks once more, `finevolve import news` brings files.",
            ],
        )
    if not_closed:
        yield _condition(
            f"source|{source}|late",
            " ".join(not_closed),
            f"{source}: raw_news of {not_closed[-1]} is late",
            [
                f"{_days(not_closed)} of {source} should have been closed by now, and nobody has asked since.",
                "Look at: are the schedules crawl_today and daily_raw_news switched on, and does the Dagster daemon "
                f"run? `finevolve crawl --source {source} --from {not_closed[0]} --to {not_closed[-1]}` does it now.",
            ],
        )
    if silence is not None and silence.is_stale:
        yield _condition(
            f"source|{source}|stale",
            silence.newest.isoformat(),
            f"{source} has fallen silent",
            [
                f"{source} answers, but publishes nothing: {silence}.",
                "Look at: `finevolve doctor --sources`; the list that is read may have moved.",
            ],
        )


def missing_bars(table: str, sessions: Sequence[str]) -> Iterator[Condition]:
    """What is wrong with a table of bars that lacks these past sessions."""
    if sessions:
        yield _condition(
            f"bars|{table}",
            " ".join(sessions),
            f"{table} of {sessions[-1]} is late",
            [
                f"{table} lacks {_days(sessions, 'session')}, hours after the close.",
                "Look at: is the schedule daily_bars switched on, and what did its last run say (Dagster UI, /runs)?",
            ],
        )


def late_partitions(what: str, keys: Sequence[str]) -> Iterator[Condition]:
    """What is wrong with a table, or the replay of an experiment, that lacks these partitions hours after their time.

    It is told again when the oldest of them is another one.
    """
    if keys:
        yield _condition(
            f"late|{what}",
            keys[0],
            f"{what} of {keys[0]} is late",
            [
                f"{what} lacks {_days(keys)}, hours after its time. The sensor catch_up asks again, oldest first.",
                "Look at: is catch_up switched on, what does its last tick say, and what did the last run say "
                "(Dagster UI, /runs)?",
            ],
        )


def revised_inputs(table: str, sessions: Sequence[str]) -> Iterator[Condition]:
    """Inputs that days were replayed from and that would come out otherwise now: late news, revised closes."""
    for session in sessions:
        yield _condition(
            f"revised|{table}|{session}",
            "revised",
            f"{table} of {session} has changed since it was read",
            [
                f"{table} of {session} would come out otherwise now: news came late, or closes were revised. Replayed "
                "days keep what was known when they were replayed, and so does the table; nothing is run again by "
                "itself.",
                f"To replay the revised past: `finevolve run --to {session}` makes the table again, then for each "
                f"experiment `finevolve reset EXPERIMENT --from {session}` and run again.",
            ],
        )


def overdue(asset: str) -> Condition:
    """An asset that has broken its freshness policy."""
    lines = [
        f"{asset} has not been materialised for longer than its freshness policy allows.",
        f"Look at: its page in the Dagster UI (/assets/{asset}), and whether its schedule is switched on.",
    ]
    return _condition(f"asset|{asset}", "overdue", f"{asset} is overdue", lines)


def trial(now: dt.datetime) -> Message:
    """What `finevolve alerts test` sends."""
    return Message(
        "FinEvolve: test of alerts",
        f"This is a test, sent at {now:%Y-%m-%d %H:%M:%S %Z}. Failed runs and late data are told this way.\n",
    )


def one_line(text: str, secrets: Collection[str]) -> str:
    """The first line of a text, without secrets, users and queries of URLs, and control characters; cut if long."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _LEAST_SECRET:
            first = first.replace(secret, "[secret]").replace(quote(secret, safe=""), "[secret]")
    first = _REST_OF_URL.sub(r"\1?[...]", _USER_IN_URL.sub("", first))
    first = _CONTROLS.sub(" ", first).strip()
    return first if len(first) <= _LONGEST_LINE else first[: _LONGEST_LINE - 1] + "…"


def _days(days: Sequence[str], what: str = "day") -> str:
    if len(days) == 1:
        return f"the {what} {days[0]}"
    return f"{len(days)} {what}s between {days[0]} and {days[-1]}"


def _condition(name: str, state: str, subject: str, lines: Sequence[str]) -> Condition:
    return Condition(name, state, Message(f"FinEvolve: {subject}", "\n".join(lines) + "\n"))
