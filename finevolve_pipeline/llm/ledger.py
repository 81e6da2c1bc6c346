"""The ledger: what models and embedders took, attempt by attempt, and the budget that holds for all of it.

One SQLite file a home, shared by threads and processes, or tables of a database that hosts share (see `databases`).
Money is counted in whole millionths of a millionth of a USD, so that sums are exact. An attempt that can cost something
under a budget is put aside before it is made; what a dead process had put aside counts as spent. Rows say who, what
for, how much, and when by the wall clock: never a prompt, an answer or a key.

Everything written may be written again where a connection broke and nobody knows whether the first time counted: the
id of an attempt is drawn by whoever makes it, and stands for it wherever it is written down.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from finevolve_pipeline.databases import Connection, Database, Schema, database_at, text_of
from finevolve_pipeline.errors import BudgetError
from finevolve_pipeline.llm.failures import LOST
from finevolve_pipeline.llm.metering import Meter, Reservation
from finevolve_pipeline.llm.requests import Usage
from finevolve_pipeline.settings import PriceSettings

By = Literal["experiment", "backbone", "phase", "day"]

_PICO = 10**12
_SQLITE = """
CREATE TABLE purposes (
    id INTEGER PRIMARY KEY,
    experiment TEXT NOT NULL, backbone TEXT NOT NULL, phase TEXT NOT NULL, day TEXT NOT NULL,
    UNIQUE (experiment, day, backbone, phase)
) STRICT;
-- One row an attempt. failure is empty for one that was answered; a failed one with a cost is in doubt. The id of one
-- that was given up as lost is its negative.
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
_POSTGRES = """
CREATE TABLE purposes (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    experiment TEXT COLLATE "C" NOT NULL, backbone TEXT COLLATE "C" NOT NULL,
    phase TEXT COLLATE "C" NOT NULL, day TEXT COLLATE "C" NOT NULL,
    UNIQUE (experiment, day, backbone, phase)
);
CREATE TABLE attempts (
    id BIGINT PRIMARY KEY,
    ended_ms BIGINT NOT NULL,
    purpose BIGINT NOT NULL REFERENCES purposes,
    failure TEXT COLLATE "C" NOT NULL,
    prompt_tokens BIGINT NOT NULL, cached_prompt_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL, reasoning_tokens BIGINT NOT NULL,
    cost BIGINT NOT NULL
);
CREATE INDEX attempts_by_purpose ON attempts (purpose);
CREATE TABLE put_aside (
    id BIGINT PRIMARY KEY,
    process TEXT COLLATE "C" NOT NULL,
    purpose BIGINT NOT NULL REFERENCES purposes,
    cost BIGINT NOT NULL
);
CREATE TABLE spent (cost BIGINT NOT NULL);
INSERT INTO spent VALUES (0);
CREATE FUNCTION attempt_is_spent() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN UPDATE spent SET cost = cost + NEW.cost; RETURN NULL; END $$;
CREATE TRIGGER attempt_is_spent AFTER INSERT ON attempts FOR EACH ROW WHEN (NEW.cost > 0)
EXECUTE FUNCTION attempt_is_spent();
"""
_INSERT = """INSERT INTO attempts
    (id, ended_ms, purpose, failure, prompt_tokens, cached_prompt_tokens, completion_tokens, reasoning_tokens, cost)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"""
_GIVE_UP = """INSERT INTO attempts
    (id, ended_ms, purpose, failure, prompt_tokens, cached_prompt_tokens, completion_tokens, reasoning_tokens, cost)
    SELECT -id, ?, purpose, ?, 0, 0, 0, 0, cost FROM put_aside WHERE process = ? ON CONFLICT (id) DO NOTHING"""
_PUT_ASIDE = """INSERT INTO put_aside (id, process, purpose, cost) VALUES (?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET process = excluded.process"""
_SUMMED = (
    "SUM(prompt_tokens)",
    "SUM(cached_prompt_tokens)",
    "SUM(completion_tokens)",
    "SUM(reasoning_tokens)",
    "SUM(cost)",
    "SUM(cost) FILTER (WHERE failure <> '')",
)
_SUMS = "COUNT(*) FILTER (WHERE failure = ''), COUNT(*) FILTER (WHERE failure <> ''), " + ", ".join(
    f"CAST(COALESCE({one}, 0) AS BIGINT)" for one in _SUMMED
)


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
    """What was spent, and what may be. Its tables are made by the first attempt.

    Args:
        place: a database, or the path of a SQLite file (see `ledger_path`).
        budget: USD that may be spent in all, earlier runs included; None: no limit.

    Every method raises `CacheError` if the database is damaged, of another version, or cannot be written.
    """

    schema: ClassVar[Schema] = Schema(
        kind="ledger",
        name="attempts",
        version=1,
        tables=("put_aside", "attempts", "purposes", "spent"),
        sqlite=_SQLITE,
        postgres=_POSTGRES,
        if_damaged="put a copy back, or delete it, which forgets what was spent",
        if_other_version="use the program that made it, or delete it, which forgets what was spent",
    )

    def __init__(self, place: Path | Database, budget: float | None) -> None:
        self._database = database_at(place, self.schema)
        self._budget = None if budget is None else round(budget * _PICO)
        self._purposes: dict[Purpose, int] = {}

    @property
    def budget(self) -> float | None:
        """USD that may be spent in all; None: no limit."""
        return None if self._budget is None else self._budget / _PICO

    def meter(self, purpose: Purpose, price: PriceSettings | None) -> Meter:
        """A meter for attempts of one purpose at a price; None: the price is not known."""
        return _Meter(self, purpose, price)

    def spent(self) -> float:
        """USD spent so far, what is in doubt included."""
        found = self._asked("SELECT cost FROM spent")
        return int(found[0][0]) / _PICO if found else 0.0

    def totals(self, by: Sequence[By]) -> list[Total]:
        """The attempts so far in groups that have `by` in common, sorted; one group if `by` is empty."""
        chosen = ", ".join(by)
        grouped = f"GROUP BY {chosen} ORDER BY {chosen}" if by else ""
        return self._grouped(by, f"SELECT {_sums_with(by)} FROM attempts JOIN purposes p ON p.id = purpose {grouped}")

    def spent_on(self, experiment: str, day: str) -> Total:
        """The attempts for a simulated day of an experiment."""
        found = self._grouped(
            (),
            f"SELECT {_SUMS} FROM purposes p CROSS JOIN attempts WHERE purpose = p.id AND experiment = ? AND day = ?",
            (experiment, day),
        )
        group = {"experiment": experiment, "day": day}
        return replace(found[0], group=group) if found else Total.of(group, (0,) * 8)

    def failures(self) -> dict[str, int]:
        """Failed attempts by kind (see `failures`), sorted."""
        found = self._asked(
            "SELECT failure, COUNT(*) FROM attempts WHERE failure <> '' GROUP BY failure ORDER BY failure"
        )
        return {text_of(kind): count for kind, count in found}

    def measured(self, backbone: str, phase: str) -> Measured:
        """How long the answers of a backbone in a phase were so far."""
        found = self._asked(
            "SELECT COUNT(*), CAST(COALESCE(SUM(completion_tokens), 0) AS BIGINT) FROM purposes p CROSS JOIN attempts "
            "WHERE purpose = p.id AND backbone = ? AND phase = ? AND failure = ''",
            (backbone, phase),
        )
        calls, tokens = found[0] if found else (0, 0)
        return Measured(calls, tokens / calls if calls else 0.0)

    def close(self) -> None:
        """Close this process's connection; the next use opens it again."""
        self._database.close()

    def reserve(self, purpose: Purpose, cost: float) -> Reservation:
        """Put aside an attempt that costs at most `cost` USD. Raises `BudgetError` as `Meter.reserve`; it may wait
        where attempts of living processes alone stand against it."""
        bound = round(cost * _PICO)
        if self._budget is None or bound == 0:
            return _Attempt(self, purpose, bound, None)
        budget, attempt = self._budget, _drawn()

        def put_aside(connection: Connection) -> None:
            spent, aside = connection.execute(
                "SELECT (SELECT cost FROM spent), "
                "(SELECT CAST(COALESCE(SUM(cost), 0) AS BIGINT) FROM put_aside WHERE id <> ?)",
                (attempt,),
            ).fetchone()
            if spent + aside + bound > budget:
                raise BudgetError(
                    f"budget {usd(budget / _PICO)} USD: {usd(spent / _PICO)} spent and "
                    f"{usd(aside / _PICO)} put aside; this call of {purpose.backbone} could cost "
                    f"{usd(bound / _PICO)} more; raise --budget or [budget] usd: the run goes on where it stopped",
                    may_wait=spent + bound <= budget,
                )
            connection.execute(_PUT_ASIDE, (attempt, self._database.mark(connection), number, bound))

        number = self._number(purpose)
        self._give_up_lost()
        self._database.atomically(put_aside)
        return _Attempt(self, purpose, bound, attempt)

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
        attempt = _drawn() if reservation is None else reservation
        row = (attempt, _now(), self._number(purpose), failure, *tokens, cost)

        def settle(connection: Connection) -> None:
            connection.execute("DELETE FROM put_aside WHERE id = ?", (attempt,))
            # Another process may have given it up, e.g. while the database was away: now it is known what it took.
            lost = connection.execute("DELETE FROM attempts WHERE id = ? RETURNING cost", (-attempt,)).fetchall()
            for one in lost:
                connection.execute("UPDATE spent SET cost = cost - ?", one)
            connection.execute(_INSERT, row)

        if reservation is None:
            self._database.run(lambda connection: connection.execute(_INSERT, row))
        else:
            self._database.atomically(settle)

    def _grouped(self, by: Sequence[str], query: str, values: Sequence[str] = ()) -> list[Total]:
        keys = len(by)
        return [
            Total.of(dict(zip(by, map(text_of, row[:keys]), strict=True)), row[keys:])
            for row in self._asked(query, values)
        ]

    def _asked(self, query: str, values: Sequence[str] = ()) -> list[Any]:
        """The rows of a query; none where nothing was ever written down."""
        if not self._database.is_there():
            return []
        self._give_up_lost()
        return self._database.run(lambda connection: connection.execute(query, values).fetchall())

    def _number(self, purpose: Purpose) -> int:
        """The row of a purpose, made if there is none."""
        if purpose not in self._purposes:
            key = (purpose.experiment, purpose.backbone, purpose.phase, purpose.day)

            def number(connection: Connection) -> int:
                connection.execute(
                    "INSERT INTO purposes (experiment, backbone, phase, day) VALUES (?, ?, ?, ?) "
                    "ON CONFLICT (experiment, day, backbone, phase) DO NOTHING",
                    key,
                )
                (found,) = connection.execute(
                    "SELECT id FROM purposes WHERE experiment = ? AND backbone = ? AND phase = ? AND day = ?", key
                ).fetchone()
                return int(found)

            self._purposes[purpose] = self._database.run(number)
        return self._purposes[purpose]

    def _give_up_lost(self) -> None:
        """Count what dead processes had put aside as spent, in doubt."""

        def dead(connection: Connection) -> list[str]:
            marks = [text_of(mark) for (mark,) in connection.execute("SELECT DISTINCT process FROM put_aside")]
            return self._database.gone(connection, marks)

        def give_up(connection: Connection) -> None:
            for mark in lost:
                connection.execute(_GIVE_UP, (_now(), LOST, mark))
                connection.execute("DELETE FROM put_aside WHERE process = ?", (mark,))

        lost = self._database.run(dead)
        if lost:
            self._database.atomically(give_up)


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


def _drawn() -> int:
    """The id of an attempt, which no other has."""
    return 1 + secrets.randbelow(2**63 - 1)


def _sums_with(by: Sequence[str]) -> str:
    return ", ".join((*by, _SUMS))


def _now() -> int:
    return time.time_ns() // 1_000_000
