"""The ledger: a budget that nobody crosses, whoever spends at once and however a process dies; sums that are exact."""

from __future__ import annotations

import datetime as dt
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from finevolve_pipeline.errors import BudgetError, CacheError
from finevolve_pipeline.llm import failures
from finevolve_pipeline.llm.ledger import Ledger, Purpose, Total, ledger_path, usd
from finevolve_pipeline.llm.requests import Usage
from finevolve_pipeline.settings import PriceSettings
from resources.records import open_ledger

PRICE = PriceSettings(input=2.0, cached_input=0.5, output=8.0)
PREDICT = Purpose("mem0-big", "big", "predict", "2025-01-02")
TAG = Purpose("", "big", "tag", "2025-01-01")
BOUND = 0.0028  # of 1000 prompt tokens and 100 completion tokens at PRICE
ONE = Usage(1, 1000, 200, 50, 20, PRICE.cost(1000, 200, 50))  # 0.0021 USD


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return ledger_path(tmp_path / "home")


def spend(ledger: Ledger, times: int, purpose: Purpose = PREDICT) -> int:
    """Make attempts until the budget refuses one; how many were made."""
    for made in range(times):
        try:
            reserved = ledger.meter(purpose, PRICE).reserve(1000, 100)
        except BudgetError:
            return made
        reserved.settle(Usage(1, 1000, 0, 100, 0, BOUND))
    return times


def child(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Another process that runs this file's names and then `code`."""
    program = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); from test_llm_ledger import *\n{code}"
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])


def told(process: subprocess.Popen[str]) -> str:
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return out.strip()


# -- what is written


def test_an_answered_attempt_is_written_with_its_tokens_and_cost(kept: Path) -> None:
    ledger = open_ledger(kept, None)
    ledger.meter(PREDICT, PRICE).reserve(1000, 100).settle(ONE)
    assert ledger.spent() == pytest.approx(0.0021, abs=1e-15)
    assert ledger.totals(["backbone", "phase"]) == [
        Total({"backbone": "big", "phase": "predict"}, 1, 0, 1000, 200, 50, 20, 0.0021, 0.0)
    ]


def test_a_refused_attempt_costs_nothing_and_a_silent_one_all_that_was_put_aside(kept: Path) -> None:
    ledger = open_ledger(kept, 1.0)
    meter = ledger.meter(PREDICT, PRICE)
    meter.reserve(1000, 100).release(failures.RATE_LIMITED)
    assert ledger.spent() == 0.0
    meter.reserve(1000, 100).doubt(failures.TIMEOUT)
    meter.reserve(1000, 100).settle(ONE)
    (total,) = ledger.totals([])
    assert (total.calls, total.failed) == (1, 2)
    assert (total.cost, total.in_doubt) == (pytest.approx(0.0021 + BOUND), pytest.approx(BOUND))
    assert ledger.failures() == {failures.RATE_LIMITED: 1, failures.TIMEOUT: 1}


def test_doubt_counts_without_a_budget_too(kept: Path) -> None:
    open_ledger(kept, None).meter(PREDICT, PRICE).reserve(1000, 100).doubt(failures.DROPPED)
    assert open_ledger(kept, None).spent() == BOUND


def test_groups_are_as_asked_for(kept: Path) -> None:
    ledger = open_ledger(kept, None)
    for purpose, times in ((PREDICT, 2), (TAG, 1), (Purpose("pipe-big", "big", "predict", "2025-01-02"), 3)):
        spend(ledger, times, purpose)
    assert [(total.group, total.calls) for total in ledger.totals(["day", "experiment"])] == [
        ({"day": "2025-01-01", "experiment": ""}, 1),
        ({"day": "2025-01-02", "experiment": "mem0-big"}, 2),
        ({"day": "2025-01-02", "experiment": "pipe-big"}, 3),
    ]
    assert ledger.spent_on("pipe-big", "2025-01-02").calls == 3
    assert ledger.spent_on("pipe-big", "2025-01-03") == Total(
        {"experiment": "pipe-big", "day": "2025-01-03"}, 0, 0, 0, 0, 0, 0, 0.0, 0.0
    )


def test_the_mean_answer_leaves_failed_attempts_out(kept: Path) -> None:
    ledger = open_ledger(kept, None)
    meter = ledger.meter(PREDICT, PRICE)
    for tokens in (100, 300):
        meter.reserve(1000, 500).settle(Usage(1, 1000, 0, tokens, 0, 0.0))
    meter.reserve(1000, 500).doubt(failures.TIMEOUT)
    measured = ledger.measured("big", "predict")
    assert (measured.calls, measured.completion_tokens) == (2, 200.0)
    assert ledger.measured("big", "tag").calls == 0


def test_sums_are_exact_whatever_their_order(kept: Path) -> None:
    ledger = open_ledger(kept, None)
    meter = ledger.meter(PREDICT, PRICE)
    for _ in range(1000):
        meter.reserve(1, 1).settle(Usage(1, 1, 0, 0, 0, 0.1))
    assert sum([0.1] * 1000) != 100.0
    assert ledger.spent() == 100.0


def test_rows_carry_the_time_and_no_text(path: Path) -> None:
    before = dt.datetime.now(dt.UTC)
    Ledger(path, None).meter(PREDICT, PRICE).reserve(1000, 100).settle(ONE)
    with closing(sqlite3.connect(path)) as file:
        (ended,) = file.execute("SELECT ended_ms FROM attempts").fetchone()
        texts = {
            column[1]
            for (table,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for column in file.execute(f"PRAGMA table_info({table})")
            if column[2] == "TEXT"
        }
    assert texts == {"experiment", "backbone", "phase", "day", "failure", "process"}
    assert abs(dt.datetime.fromtimestamp(ended / 1000, dt.UTC) - before) < dt.timedelta(minutes=1)


def test_looking_makes_no_file(path: Path) -> None:
    ledger = Ledger(path, 5.0)
    assert (ledger.spent(), ledger.totals(["phase"]), ledger.failures()) == (0.0, [], {})
    assert ledger.measured("big", "tag").calls == 0
    assert ledger.spent_on("mem0-big", "2025-01-02").calls == 0
    assert not path.parent.exists()


# -- the budget


def test_a_call_that_could_cross_the_budget_is_refused_and_leaves_nothing(kept: Path) -> None:
    ledger = open_ledger(kept, 0.0100)
    assert spend(ledger, 10) == 3  # 3 x 0.0028 = 0.0084; one more could make it 0.0112
    with pytest.raises(BudgetError) as refused:
        ledger.meter(PREDICT, PRICE).reserve(1000, 100)
    assert str(refused.value) == (
        "budget 0.01 USD: 0.0084 spent and 0.00 put aside; this call of big could cost 0.0028 more; "
        "raise --budget or [budget] usd: the run goes on where it stopped"
    )
    assert ledger.spent() == 0.0084
    ledger.meter(PREDICT, PRICE).reserve(800, 0).release(failures.CONNECTION)  # 0.0016 still fits


def test_the_budget_can_be_spent_to_the_last_cent(kept: Path) -> None:
    assert spend(open_ledger(kept, 0.0112), 10) == 4


def test_what_is_put_aside_counts_until_it_is_known(kept: Path) -> None:
    ledger = open_ledger(kept, 0.0060)
    meter = ledger.meter(PREDICT, PRICE)
    first, second = meter.reserve(1000, 100), meter.reserve(1000, 100)
    with pytest.raises(BudgetError, match=r"0\.00 spent and 0\.0056 put aside"):
        meter.reserve(1000, 100)
    first.release(failures.CONNECTION)
    meter.reserve(1000, 100).settle(ONE)
    second.settle(ONE)
    assert ledger.spent() == 0.0042


def test_a_budget_needs_a_price(kept: Path) -> None:
    with pytest.raises(BudgetError, match=r"price of big is not known; set price in \[backbones\.big\]"):
        open_ledger(kept, 1.0).meter(PREDICT, None).reserve(1000, 100)
    with pytest.raises(BudgetError, match=r"\[embedders\.endpoint\]"):
        open_ledger(kept, 1.0).meter(Purpose("", "endpoint", "embed", "2025-01-02"), None).reserve(1000, 0)
    open_ledger(kept, None).meter(PREDICT, None).reserve(1000, 100).settle(Usage(1, 1000, 0, 50, 0, 0.0))
    assert open_ledger(kept, None).totals([])[0].prompt_tokens == 1000


def test_a_server_of_ones_own_costs_nothing_even_when_all_is_spent(kept: Path) -> None:
    assert spend(open_ledger(kept, 0.0028), 2) == 1
    free = open_ledger(kept, 0.0028).meter(PREDICT, PriceSettings(input=0, cached_input=0, output=0))
    free.reserve(1000, 100).settle(Usage(1, 1000, 0, 50, 0, 0.0))
    assert open_ledger(kept, None).totals([])[0].calls == 2


def test_a_resume_counts_what_was_spent(kept: Path) -> None:
    first = open_ledger(kept, 0.0100)
    assert spend(first, 2) == 2
    first.close()
    assert spend(open_ledger(kept, 0.0100), 10) == 1
    assert spend(open_ledger(kept, 0.0200), 10) == 4


def test_threads_never_cross_the_budget(kept: Path) -> None:
    ledger, made = open_ledger(kept, 0.0500), []
    threads = [threading.Thread(target=lambda: made.append(spend(ledger, 10))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sum(made) == 17  # 17 x 0.0028 = 0.0476
    assert ledger.spent() == 0.0476


def test_processes_never_cross_the_budget_and_may_begin_together(kept: Path) -> None:
    program = "print(spend(open_ledger(Path(sys.argv[1]), 0.0500), 10))"
    made = [int(told(process)) for process in [child(program, kept) for _ in range(4)]]
    # While one attempt of a process is put aside another may be refused, so that fewer than 17 are possible.
    spent = open_ledger(kept, None).spent()
    assert spent <= 0.0500
    assert spent == pytest.approx(sum(made) * BOUND, abs=1e-12)
    assert sum(made) >= 10


# -- a process that dies


def _put_aside_and_wait(kept: Path) -> subprocess.Popen[str]:
    process = child(
        "held = open_ledger(Path(sys.argv[1]), 1.0).meter(PREDICT, PRICE).reserve(1000, 100)\n"
        "print('ready', flush=True); threading.Event().wait(60)",
        kept,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def _killed(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)


def test_what_a_killed_process_had_put_aside_counts_as_spent_once(kept: Path) -> None:
    process = _put_aside_and_wait(kept)
    try:
        assert open_ledger(kept, None).spent() == 0.0  # it lives
    finally:
        _killed(process)
    watching = [open_ledger(kept, None), open_ledger(kept, 1.0), open_ledger(kept, None)]
    assert [ledger.spent() for ledger in watching] == [BOUND] * 3
    (total,) = watching[0].totals([])
    assert (total.calls, total.failed, total.in_doubt) == (0, 1, BOUND)
    assert watching[0].failures() == {failures.LOST: 1}


def test_a_budget_is_kept_before_and_after_the_dead_are_found(kept: Path) -> None:
    ledger = open_ledger(kept, 0.0060)
    assert spend(ledger, 1) == 1  # opened before the other dies, so that nothing is found at opening
    process = _put_aside_and_wait(kept)
    _killed(process)
    with pytest.raises(BudgetError):
        ledger.meter(PREDICT, PRICE).reserve(1000, 100)
    assert ledger.spent() == 0.0056
    with pytest.raises(BudgetError, match=r"0\.0056 spent and 0\.00 put aside"):
        ledger.meter(PREDICT, PRICE).reserve(1000, 100)


# -- files that cannot be used


def test_a_damaged_file_is_named_with_what_deleting_it_means(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no database at all" * 100)
    for use in (lambda: Ledger(path, None).spent(), lambda: spend(Ledger(path, 1.0), 1)):
        with pytest.raises(CacheError) as refused:
            use()
        assert str(path) in str(refused.value)
        assert "forgets what was spent" in str(refused.value)
    assert path.read_bytes().startswith(b"no database")


@pytest.mark.parametrize("statement", ["PRAGMA user_version = 99", "DROP TABLE spent"])
def test_a_file_of_another_kind_is_refused(path: Path, statement: str) -> None:
    ledger = Ledger(path, None)
    spend(ledger, 1)
    ledger.close()
    with closing(sqlite3.connect(path)) as file:
        file.execute(statement)
    with pytest.raises(CacheError, match="forgets what was spent"):
        Ledger(path, None).spent()


def test_a_ledger_works_on_in_a_forked_process(kept: Path) -> None:
    program = """
ledger = open_ledger(Path(sys.argv[1]), 1.0)
spend(ledger, 1)
child = os.fork()
spend(ledger, 2)
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(ledger.totals([])[0].calls)
"""
    assert told(child(program, kept)) == "5"


@pytest.mark.parametrize(
    ("amount", "shown"),
    [(0.0, "0.00"), (20.0, "20.00"), (0.5, "0.50"), (0.0031, "0.0031"), (1.123, "1.123"), (0.00002, "2.0e-05")],
)
def test_amounts_are_shown_as_people_write_them(amount: float, shown: str) -> None:
    assert usd(amount) == shown
