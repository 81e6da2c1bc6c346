"""The ledger: what models and embedders took, attempt by attempt, and the budget that holds for all of it.

One SQLite file a home, shared by threads and processes. Money is counted in whole millionths of a millionth of a USD,
so that sums are exact. An attempt that can cost something under a budget is put aside before it is made; what a dead
process had put aside counts as spent. Rows say who, what for, how much, and when by the wall clock: never a prompt, an
answer or a key.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from finevolve_pipeline.databases import transaction, use_write_ahead_log
from finevolve_pipeline.errors import BudgetError, CacheError
from finevolve_pipeline.llm.failures import LOST
from finevolve_pipeline.llm.metering import Meter, Reservation
from finevolve_pipeline.llm.requests import Usage
from finevolve_pipeline.processes import is_alive, process_mark
from finevolve_pipeline.settings import PriceSettings

By = Literal["experiment", "backbone", "phase", "day"]

_PICO = 10**12
_VERSION = 1
_WAIT_SECONDS = 60.0
_SCHEMA = """
CREATE TABLE purposes (
    id INTEGER PRIMARY KEY,
    experiment TEXT NOT NULL, backbone TEXT NOT NULL, phase TEXT NOT NULL, day TEXT NOT NULL,
    UNIQUE (experiment, day, backbone, phase)
) STRICT;
-- One row an attempt. failure is empty for one that was answered; a failed one with a cost is in doubt.
CREATE TABLE attempts (
    id INTEGER PRIMARY KEY,
    ended_ms INTEGER NOT NULL,  -- since 1970, UTC
    purpose INTEGER NOT NULL REFERENCES purposes,
    failure TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL, cached_prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL, reasoning_tokens INTEGER NOT NULL,
    cost INTEGER NOT NULL       -- 1e-12 USD
) STRICT;
CREATE INDEX attempts_by_purpose ON attempts (purpose);
-- Attempts under way, at the most that each can cost. AUTOINCREMENT: an id is never used again.
CREATE TABLE put_aside (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    process TEXT NOT NULL,
    purpose INTEGER NOT NULL REFERENCES purposes,
    cost INTEGER NOT NULL
) STRICT;
-- The sum of attempts.cost, so that asking for it does not read them all.
CREATE TABLE spent (cost INTEGER NOT NULL) STRICT;
INSERT INTO spent VALUES (0);
CREATE TRIGGER attempt_is_spent AFTER INSERT ON attempts WHEN NEW.cost > 0
BEGIN UPDATE spent SET cost = cost + NEW.cost; END;
"""
_INSERT = """INSERT INTO attempts
    (ended_ms, purpose, failure, prompt_tokens, cached_prompt_tokens, completion_tokens, reasoning_tokens, cost)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
_SUMS = """COUNT(*) FILTER (WHERE failure = ''), COUNT(*) FILTER (WHERE failure <> ''),
    COALESCE(SUM(prompt_tokens), 0), COALESCE(SUM(cached_prompt_tokens), 0),
    COALESCE(SUM(completion_tokens), 0), COALESCE(SUM(reasoning_tokens), 0),
    COALESCE(SUM(cost), 0), COALESCE(SUM(cost) FILTER (WHERE failure <> ''), 0)"""


@dataclass(frozen=True)
class Purpose:
    """What a call is for.

    Attributes:
        experiment: on whose account it goes; empty for the dataset, which all experiments share.
        backbone: name of the backbone, or of the embedder, in the settings.
        phase: tag, predict, embed, or what a mechanism calls its own.
        day: the simulated day, YYYY-MM-DD.
    """

    experiment: str
    backbone: str
    phase: str
    day: str


@dataclass(frozen=True)
class Total:
    """What a group of attempts took.

    Attributes:
        group: what they have in common, e.g. `{"experiment": "mem0-x", "phase": "predict"}`.
        calls: answered attempts.
        failed: attempts without an answer.
        prompt_tokens: cached ones included.
        cached_prompt_tokens: of these, how many the provider had cached.
        completion_tokens: reasoning included.
        reasoning_tokens: of these, how many were reasoning.
        cost: USD.
        in_doubt: of these, USD of failed attempts that may or may not have been billed.
    """

    group: dict[str, str]
    calls: int
    failed: int
    prompt_tokens: int
    cached_prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    cost: float
    in_doubt: float

    @classmethod
    def of(cls, group: dict[str, str], sums: Sequence[int]) -> Total:
        """From the sums that the ledger forms."""
        calls, failed, prompt, cached, completion, reasoning, cost, in_doubt = sums
        return cls(group, calls, failed, prompt, cached, completion, reasoning, cost / _PICO, in_doubt / _PICO)


@dataclass(frozen=True)
class Measured:
    """The answers of a backbone in a phase so far; `completion_tokens` is their mean, 0 if there is none."""

    calls: int
    completion_tokens: float


def ledger_path(home: Path) -> Path:
    """Where the ledger of a home lies."""
    return home / "ledger.sqlite"


def usd(amount: float) -> str:
    """An amount in USD with two decimals, up to four where they tell something, more where it is very small."""
    if 0 < abs(amount) < 0.0001:
        return f"{amount:.1e}"
    text = f"{amount:.4f}"
    return text[:-2] if text.endswith("00") else text.removesuffix("0")


class Ledger:
    """What was spent from a home, and what may be. The file is made by the first attempt.

    Args:
        path: the file, see `ledger_path`.
        budget: USD that may be spent in all, earlier runs included; None: no limit.

    Every method raises `CacheError` if the file is damaged, of another version, or cannot be written.
    """

    def __init__(self, path: Path, budget: float | None) -> None:
        self._path = path
        self._budget = None if budget is None else round(budget * _PICO)
        self._lock = threading.Lock()
        self._connections: dict[int, sqlite3.Connection] = {}  # by process: a fork must not use its parent's
        self._purposes: dict[Purpose, int] = {}
        self._marks: dict[int, str] = {}

    @property
    def budget(self) -> float | None:
        """USD that may be spent in all; None: no limit."""
        return None if self._budget is None else self._budget / _PICO

    def meter(self, purpose: Purpose, price: PriceSettings | None) -> Meter:
        """A meter for attempts of one purpose at a price; None: the price is not known."""
        return _Meter(self, purpose, price)

    def spent(self) -> float:
        """USD spent so far, what is in doubt included."""
        if not self._path.exists():
            return 0.0
        with self._opened() as connection:
            self._give_up_lost(connection)
            return _spent(connection) / _PICO

    def totals(self, by: Sequence[By]) -> list[Total]:
        """The attempts so far in groups that have `by` in common, sorted; one group if `by` is empty."""
        chosen = ", ".join(by)
        grouped = f"GROUP BY {chosen} ORDER BY {chosen}" if by else ""
        return self._grouped(by, f"SELECT {_sums_with(by)} FROM attempts JOIN purposes p ON p.id = purpose {grouped}")

    def spent_on(self, experiment: str, day: str) -> Total:
        """The attempts for a simulated day of an experiment."""
        found = self._grouped(
            (),
            f"SELECT {_SUMS} FROM purposes p CROSS JOIN attempts ON purpose = p.id WHERE experiment = ? AND day = ?",
            (experiment, day),
        )
        group = {"experiment": experiment, "day": day}
        return replace(found[0], group=group) if found else Total.of(group, (0,) * 8)

    def failures(self) -> dict[str, int]:
        """Failed attempts by kind (see `failures`), sorted."""
        if not self._path.exists():
            return {}
        with self._opened() as connection:
            self._give_up_lost(connection)
            return dict(
                connection.execute(
                    "SELECT failure, COUNT(*) FROM attempts WHERE failure <> '' GROUP BY failure ORDER BY failure"
                ).fetchall()
            )

    def measured(self, backbone: str, phase: str) -> Measured:
        """How long the answers of a backbone in a phase were so far."""
        if not self._path.exists():
            return Measured(0, 0.0)
        with self._opened() as connection:
            calls, mean = connection.execute(
                "SELECT COUNT(*), AVG(completion_tokens) FROM purposes p CROSS JOIN attempts ON purpose = p.id "
                "WHERE backbone = ? AND phase = ? AND failure = ''",
                (backbone, phase),
            ).fetchone()
            return Measured(calls, mean or 0.0)

    def close(self) -> None:
        """Close this process's connection; the next use opens it again."""
        with self._lock:
            connection = self._connections.pop(os.getpid(), None)
            if connection is not None:
                connection.close()

    def reserve(self, purpose: Purpose, cost: float) -> Reservation:
        """Put aside an attempt that costs at most `cost` USD. Raises `BudgetError` as `Meter.reserve`; it may wait
        where attempts of living processes alone stand against it."""
        bound = round(cost * _PICO)
        if self._budget is None or bound == 0:
            return _Attempt(self, purpose, bound, None)
        with self._opened() as connection:
            number = self._number(connection, purpose)
            self._give_up_lost(connection)
            with transaction(connection):
                spent = _spent(connection)
                (aside,) = connection.execute("SELECT COALESCE(SUM(cost), 0) FROM put_aside").fetchone()
                if spent + aside + bound > self._budget:
                    raise BudgetError(
                        f"budget {usd(self._budget / _PICO)} USD: {usd(spent / _PICO)} spent and "
                        f"{usd(aside / _PICO)} put aside; this call of {purpose.backbone} could cost "
                        f"{usd(bound / _PICO)} more; raise --budget or [budget] usd: the run goes on where it stopped",
                        may_wait=spent + bound <= self._budget,
                    )
                row = connection.execute(
                    "INSERT INTO put_aside (process, purpose, cost) VALUES (?, ?, ?)", (self._mark, number, bound)
                ).lastrowid
        return _Attempt(self, purpose, bound, row)

    def write(self, purpose: Purpose, reservation: int | None, failure: str, usage: Usage, cost: int) -> None:
        """Write an attempt that has ended, in place of what was put aside for it.

        Args:
            purpose: what it was for.
            reservation: row of what was put aside, if anything was.
            failure: its kind; empty: it was answered.
            usage: the tokens it took.
            cost: in 1e-12 USD.
        """
        tokens = (usage.prompt_tokens, usage.cached_prompt_tokens, usage.completion_tokens, usage.reasoning_tokens)
        with self._opened() as connection:
            row = (_now(), self._number(connection, purpose), failure, *tokens, cost)
            if reservation is None:
                connection.execute(_INSERT, row)
                return
            with transaction(connection):
                connection.execute("DELETE FROM put_aside WHERE id = ?", (reservation,))
                connection.execute(_INSERT, row)

    def _grouped(self, by: Sequence[str], query: str, values: Sequence[str] = ()) -> list[Total]:
        if not self._path.exists():
            return []
        with self._opened() as connection:
            self._give_up_lost(connection)
            rows = connection.execute(query, values).fetchall()
        keys = len(by)
        return [Total.of(dict(zip(by, row[:keys], strict=True)), row[keys:]) for row in rows]

    @property
    def _mark(self) -> str:
        process = os.getpid()
        if process not in self._marks:
            self._marks[process] = process_mark()
        return self._marks[process]

    def _number(self, connection: sqlite3.Connection, purpose: Purpose) -> int:
        """The row of a purpose, made if there is none."""
        number = self._purposes.get(purpose)
        if number is None:
            key = (purpose.experiment, purpose.backbone, purpose.phase, purpose.day)
            connection.execute(
                "INSERT OR IGNORE INTO purposes (experiment, backbone, phase, day) VALUES (?, ?, ?, ?)", key
            )
            (number,) = connection.execute(
                "SELECT id FROM purposes WHERE experiment = ? AND backbone = ? AND phase = ? AND day = ?", key
            ).fetchone()
            self._purposes[purpose] = number
        return int(number)

    def _give_up_lost(self, connection: sqlite3.Connection) -> None:
        """Count what dead processes had put aside as spent, in doubt."""
        processes = [mark for (mark,) in connection.execute("SELECT DISTINCT process FROM put_aside")]
        dead = [mark for mark in processes if mark != self._mark and not is_alive(mark)]
        if not dead:
            return
        with transaction(connection):
            for mark in dead:
                connection.execute(
                    "INSERT INTO attempts (ended_ms, purpose, failure, prompt_tokens, cached_prompt_tokens, "
                    "completion_tokens, reasoning_tokens, cost) "
                    "SELECT ?, purpose, ?, 0, 0, 0, 0, cost FROM put_aside WHERE process = ?",
                    (_now(), LOST, mark),
                )
                connection.execute("DELETE FROM put_aside WHERE process = ?", (mark,))

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """The connection of this process, for one thread at a time; what SQLite raises becomes ours."""
        with self._lock:
            try:
                yield self._connected()
            except sqlite3.Error as refused:
                raise self._unusable(refused) from refused

    def _connected(self) -> sqlite3.Connection:
        connection = self._connections.get(os.getpid())
        if connection is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(
                self._path, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare(connection)
            except (sqlite3.Error, CacheError):
                connection.close()
                raise
            self._connections[os.getpid()] = connection
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        use_write_ahead_log(connection, _WAIT_SECONDS)
        connection.execute("PRAGMA synchronous = NORMAL")
        if _version(connection) != _VERSION:
            with transaction(connection):
                version = _version(connection)  # another process may have made the tables meanwhile
                (tables,) = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
                if version != _VERSION and (version or tables):
                    raise CacheError(
                        f"ledger {self._path}: of version {version}, this program writes {_VERSION}; use the program "
                        "that made it, or delete it, which forgets what was spent"
                    )
                if version != _VERSION:
                    for statement in _statements(_SCHEMA):
                        connection.execute(statement)
                    connection.execute(f"PRAGMA user_version = {_VERSION}")
        self._give_up_lost(connection)

    def _unusable(self, refused: sqlite3.Error) -> CacheError:
        code = getattr(refused, "sqlite_errorcode", 0) & 0xFF  # extended codes keep the plain one in their lowest byte
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or "no such" in str(refused):
            return CacheError(
                f"ledger {self._path}: damaged ({refused}); put a copy back, or delete it, which forgets what was spent"
            )
        return CacheError(f"ledger {self._path}: cannot be used ({refused}); correct that and run again")


@dataclass(frozen=True)
class _Meter:
    ledger: Ledger
    purpose: Purpose
    price: PriceSettings | None

    def reserve(self, prompt_tokens: int, completion_tokens: int) -> Reservation:
        if self.price is not None:
            return self.ledger.reserve(self.purpose, self.price.cost(prompt_tokens, 0, completion_tokens))
        if self.ledger.budget is None:
            return self.ledger.reserve(self.purpose, 0.0)
        section = "embedders" if self.purpose.phase == "embed" else "backbones"
        raise BudgetError(
            f"budget {usd(self.ledger.budget)} USD: cannot be kept while the price of {self.purpose.backbone} is not "
            f"known; set price in [{section}.{self.purpose.backbone}] (0 for a server of your own)"
        )


@dataclass(frozen=True)
class _Attempt:
    """One attempt under way; `row` is what was put aside for it, if anything was."""

    ledger: Ledger
    purpose: Purpose
    bound: int
    row: int | None

    def settle(self, usage: Usage) -> None:
        self.ledger.write(self.purpose, self.row, "", usage, round(usage.cost * _PICO))

    def release(self, failure: str) -> None:
        self.ledger.write(self.purpose, self.row, failure, Usage(), 0)

    def doubt(self, failure: str) -> None:
        self.ledger.write(self.purpose, self.row, failure, Usage(), self.bound)


def _statements(script: str) -> Iterator[str]:
    """The statements of a script, to be executed inside a transaction (`executescript` would end it)."""
    statement = ""
    for line in script.strip().splitlines():
        statement += f"{line}\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _spent(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT cost FROM spent").fetchone()[0])


def _sums_with(by: Sequence[str]) -> str:
    return ", ".join((*by, _SUMS))


def _now() -> int:
    return time.time_ns() // 1_000_000
