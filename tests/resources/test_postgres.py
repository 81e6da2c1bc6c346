"""Answers, vectors and ledger in Postgres: what only a server can do to them, and what must hold all the same.

What is true of files too is tested with them (`tests/llm`, `tests/cli`).
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from finevolve_pipeline import databases
from finevolve_pipeline.errors import BudgetError, CacheError, SettingsError
from finevolve_pipeline.evaluation.bundle.gather import answers_digest
from finevolve_pipeline.llm import failures
from finevolve_pipeline.llm.bundle import export_bundle, import_bundle
from finevolve_pipeline.llm.cache import About, AnswerCache, Health, Tally, VectorCache
from finevolve_pipeline.llm.ledger import Ledger, Purpose
from finevolve_pipeline.llm.requests import Reply, Usage
from finevolve_pipeline.settings import PriceSettings
from resources.database import Database as Server
from resources.postgres import SPACE, PostgresDatabase
from resources.records import answer_cache, open_ledger, vector_cache

ABOUT = About("qwen", "predict", "2025-01-02", "801730")
PRICE = PriceSettings(input=2.0, cached_input=0.5, output=8.0)
PREDICT = Purpose("mem0-big", "big", "predict", "2025-01-02")
BOUND = 0.0028  # of 1000 prompt tokens and 100 completion tokens at PRICE
ONE = Usage(1, 1000, 200, 50, 20, PRICE.cost(1000, 200, 50))  # 0.0021 USD

CHILD = Path(__file__).parent / "ledger_child.py"
SECRET = "hush-hush-4711"
HOME = Path("/nowhere")
"""Of no use to stores that lie in a database, and nothing may be written there."""


def key(number: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest()


def reply(text: str) -> Reply:
    return Reply(text, Usage(1, 900, 800, 70, 50, 0.00125), "stop", {}, "qwen3")


def told(url: str, statement: str) -> list[Any]:
    """The rows of a statement, by whoever may do everything."""
    with closing(Server(url).connect("test")) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET search_path TO {SPACE}")
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description else []


def cut_off(url: str, name: str) -> None:
    """End the connections to those tables, as when a host or the network between is gone."""
    ended = told(url, f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = '{name}'")
    assert ended


def impatient(url: str) -> Server:
    return Server(url, patience=0.3)


# A server that goes away


def test_what_was_stored_is_there_after_a_restart_and_work_goes_on(postgres, database) -> None:
    answers, vectors, ledger = answer_cache(HOME), vector_cache(HOME), open_ledger(HOME, 1.0)
    answers.put(key(1), reply("before"), ABOUT)
    vectors.put_many({key(1): np.ones(3)})
    under_way = ledger.meter(PREDICT, PRICE).reserve(1000, 100)
    postgres.restart()
    assert answers.get(key(1)) == reply("before")
    assert answers.put(key(1), reply("after"), ABOUT) == reply("before")
    assert vectors.put_many({key(1): np.zeros(3), key(2): np.zeros(2)})[key(1)].tolist() == [1, 1, 1]
    under_way.settle(ONE)
    assert ledger.spent() == 0.0021
    assert answers.merge([*answers.entries()]) == Tally(same=1)


def test_a_server_that_is_killed_loses_nothing_that_was_stored(postgres, database) -> None:
    answers, ledger = answer_cache(HOME), open_ledger(HOME, 1.0)
    for number in range(50):
        answers.put(key(number), reply(str(number)), ABOUT)
    ledger.meter(PREDICT, PRICE).reserve(1000, 100).settle(ONE)
    postgres.kill()
    postgres.start()
    assert [answers.get(key(number)) for number in range(50)] == [reply(str(number)) for number in range(50)]
    assert answers.verify() == Health(entries=50)
    assert ledger.spent() == 0.0021


def test_who_asks_while_the_server_is_away_waits_for_it(postgres, database) -> None:
    answers = answer_cache(HOME)
    answers.put(key(1), reply("before"), ABOUT)
    postgres.stop()
    got = []
    asking = threading.Thread(target=lambda: got.append(answers.put(key(1), reply("after"), ABOUT)))
    asking.start()
    asking.join(1.5)
    assert asking.is_alive()
    postgres.start()
    asking.join(60)
    assert got == [reply("before")]


def test_a_server_that_stays_away_is_one_clear_error(postgres, database) -> None:
    answers = AnswerCache(PostgresDatabase(impatient(database), AnswerCache.schema))
    ledger = Ledger(PostgresDatabase(impatient(database), Ledger.schema), 1.0)
    answers.put(key(1), reply("before"), ABOUT)
    postgres.stop()
    try:
        for use in (lambda: answers.get(key(1)), lambda: list(answers.entries()), ledger.spent):
            with pytest.raises(CacheError, match=r"cannot be reached \(.*\); see that it runs") as refused:
                use()
            assert "\n" not in str(refused.value)
    finally:
        postgres.start()
    assert answers.get(key(1)) == reply("before")
    assert ledger.spent() == 0.0


def test_a_merge_that_is_cut_off_leaves_nothing_and_says_so(database) -> None:
    answers = answer_cache(HOME)
    answers.put(key(0), reply("0"), ABOUT)
    (entry,) = answers.entries()

    def entries():
        yield entry
        for number in range(1, 20):
            if number == 10:
                cut_off(database, "finevolve answers")
            yield type(entry)(key(number), ABOUT, entry.document)

    with pytest.raises(CacheError, match=r"the connection broke off .*; see that Postgres runs and start again"):
        answers.merge(entries())
    assert answers.count() == 1


def test_an_attempt_given_up_while_its_process_was_cut_off_is_counted_once_when_it_ends(database) -> None:
    """As on a host that the others took for dead, or after a restart: in doubt until it is known."""
    mine, other = open_ledger(HOME, 0.0060), open_ledger(HOME, 0.0060)
    under_way = mine.meter(PREDICT, PRICE).reserve(1000, 100)
    assert other.spent() == 0.0
    cut_off(database, "finevolve attempts")
    assert other.spent() == BOUND
    assert other.failures() == {failures.LOST: 1}
    under_way.settle(ONE)
    assert (mine.spent(), other.spent()) == (0.0021, 0.0021)
    (total,) = other.totals([])
    assert (total.calls, total.failed, total.in_doubt) == (1, 0, 0.0)
    assert other.failures() == {}


def test_what_may_have_been_written_already_is_not_written_twice(database, monkeypatch) -> None:
    """The connection breaks after every commit, before the client hears of it."""
    ledger = open_ledger(HOME, 1.0)
    ledger.meter(PREDICT, PRICE).reserve(1000, 100).settle(ONE)
    session = type(ledger._database._connection)
    execute = session.execute
    broken = []

    def execute_and_break(self, statement, values=()):
        found = execute(self, statement, values)
        if (statement == "COMMIT" or "INTO purposes" in statement) and statement not in broken:
            broken.append(statement)
            self._raw.close()
            execute(self, "SELECT 1")
        return found

    monkeypatch.setattr(session, "execute", execute_and_break)
    for number in range(3):
        broken.clear()
        reserved = ledger.meter(Purpose("x", "big", "predict", str(number)), PRICE).reserve(1000, 100)
        assert len(broken) == 2
        broken.clear()
        reserved.settle(ONE)
        assert broken == ["COMMIT"]
    monkeypatch.undo()
    assert ledger.spent() == 4 * 0.0021
    assert [total.calls for total in ledger.totals(["day"])] == [1, 1, 1, 1]
    assert told(database, "SELECT count(*) FROM put_aside") == [(0,)]


# Several hosts


def putting_aside(budget: str) -> subprocess.Popen[str]:
    """A process that puts aside all of the budget that it can get."""
    return subprocess.Popen(
        [sys.executable, str(CHILD), str(HOME), budget],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(CHILD.parents[2])},
    )


def test_four_processes_put_aside_no_more_than_the_budget_together_and_a_killed_ones_part_is_spent(database) -> None:
    running = [putting_aside("0.0100") for _ in range(4)]
    try:
        said = [process.stdout.readline().split() for process in running]
        held = [int(number) for number, _ in said]
        assert sum(held) == 3  # 3 x 0.0028 = 0.0084; one more would make it 0.0112
        assert {may_wait for _, may_wait in said} == {"True"}
        ledger = open_ledger(HOME, 0.0100)
        assert ledger.spent() == 0.0
        killed = running[held.index(max(held))]
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait(30)
        assert ledger.spent() == pytest.approx(max(held) * BOUND, abs=1e-12)
        with pytest.raises(BudgetError, match="raise --budget"):
            ledger.meter(PREDICT, PRICE).reserve(1000, 100)
    finally:
        for process in running:
            process.kill()
            process.communicate(timeout=30)
    assert ledger.spent() == pytest.approx(3 * BOUND, abs=1e-12)


def test_writers_of_the_same_vectors_in_other_orders_do_not_stop_each_other(database) -> None:
    given = {key(number): np.full(8, number, np.float32) for number in range(200)}
    orders = [list(given), list(reversed(given))]
    failed = []

    def write(order: list[bytes]) -> None:
        cache = vector_cache(HOME)
        try:
            for _ in range(5):
                cache.replace_many({one: given[one] for one in order})
        except CacheError as error:
            failed.append(error)
        cache.close()

    threads = [threading.Thread(target=write, args=(order,)) for order in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert vector_cache(HOME).count() == 200


def test_who_waits_too_long_for_another_writer_is_told_so(database, monkeypatch) -> None:
    monkeypatch.setattr(databases, "BUSY_SECONDS", 0.1)
    one, other = vector_cache(HOME), vector_cache(HOME)
    other.put_many({key(1): np.ones(2)})
    with one.transaction():
        one.merge([])
        assert other.get_many([key(1)]).keys() == {key(1)}
        with pytest.raises(CacheError, match="locked by another process"):
            other.put_many({key(2): np.ones(2)})
    other.put_many({key(2): np.ones(2)})
    assert other.count() == 2


# Tables


def test_looking_makes_no_tables_and_no_file(database) -> None:
    assert not answer_cache(HOME).is_there()
    assert answer_cache(HOME).size() == 0
    assert (open_ledger(HOME, 1.0).spent(), open_ledger(HOME, 1.0).totals(["phase"])) == (0.0, [])
    assert told(database, f"SELECT to_regnamespace('{SPACE}')") == [(None,)]
    answer_cache(HOME).put(key(1), reply("x"), ABOUT)
    assert answer_cache(HOME).is_there()
    assert answer_cache(HOME).size() > 0
    assert not vector_cache(HOME).is_there()
    assert not HOME.exists()


@pytest.mark.parametrize(
    ("make", "name", "remedy"),
    [
        (lambda: answer_cache(HOME).count(), "answers", "export it with the program that wrote it"),
        (lambda: vector_cache(HOME).count(), "vectors", "export it with the program that wrote it"),
        (lambda: open_ledger(HOME, None).spent(), "attempts", "which forgets what was spent"),
    ],
)
def test_tables_of_another_version_are_left_alone(database, make: Callable[[], object], name: str, remedy: str) -> None:
    answer_cache(HOME).count()
    vector_cache(HOME).count()
    open_ledger(HOME, None).meter(PREDICT, PRICE).reserve(1000, 100).settle(ONE)
    told(database, f"UPDATE versions SET version = 2 WHERE name = '{name}'")
    with pytest.raises(CacheError, match=f"of version 2, this program reads 1; .*{remedy}"):
        make()


def test_a_missing_table_is_named_with_what_to_do(database) -> None:
    ledger = open_ledger(HOME, None)
    ledger.meter(PREDICT, PRICE).reserve(1000, 100).settle(ONE)
    told(database, "DROP TABLE spent")
    with pytest.raises(CacheError, match=r"ledger .*a table is missing .*spent.*forgets what was spent"):
        ledger.spent()


def test_tables_set_aside_stay_and_new_ones_are_made(database) -> None:
    answers = answer_cache(HOME)
    for number in (1, 2):
        answers.put(key(number), reply("x"), ABOUT)
        assert answers.set_aside() == f"table {SPACE}.answers_damaged_{number}"
        assert answers.count() == 0
        assert told(database, f"SELECT key FROM answers_damaged_{number}")[0][0].tobytes() == key(number)


def test_other_tables_of_the_database_are_left_alone(database) -> None:
    told(database, "CREATE TABLE public.answers (mine INTEGER)")
    answers = answer_cache(HOME)
    answers.put(key(1), reply("x"), ABOUT)
    assert answers.get(key(1)) == reply("x")
    assert told(database, "SELECT count(*) FROM public.answers") == [(0,)]


def test_one_database_holds_what_another_and_a_file_hold(database, tmp_path) -> None:
    """A bundle of what hosts share, imported into a home of files, and back: no byte differs."""
    shared = answer_cache(HOME), vector_cache(HOME)
    texts = ["[red] 锂电", "\ud83d \x00", "x" * 5000]
    for number in range(300):
        answer = reply(f"{texts[number % 3]} {number}")
        shared[0].put(key(number), answer, About("q\x1b", f"phase {number % 4}", "2025-01-02", texts[number % 3]))
    shared[1].put_many({key(number): np.arange(1 + number, dtype=np.float32) for number in range(100)})
    export_bundle(tmp_path / "shared.zip", *shared, {})
    local = AnswerCache(tmp_path / "answers.sqlite"), VectorCache(tmp_path / "vectors.sqlite")
    import_bundle(tmp_path / "shared.zip", *local)
    export_bundle(tmp_path / "local.zip", *local, {})
    assert (tmp_path / "local.zip").read_bytes() == (tmp_path / "shared.zip").read_bytes()
    assert answers_digest(local[0].entries()) == answers_digest(shared[0].entries())
    assert answers_digest(local[0].entries()).answers == 300
    assert local[0].totals() == shared[0].totals()
    assert local[0].backbones() == shared[0].backbones()
    again = import_bundle(tmp_path / "local.zip", *shared)
    assert (again.answers, again.vectors) == (Tally(same=300), Tally(same=100))


# Secrets


def every_word_of(error: BaseException) -> str:
    return "".join(traceback.TracebackException.from_exception(error, capture_locals=False).format())


@pytest.fixture
def with_password(postgres, database):
    """The database's URL for a user who must know a password, and may do nothing."""
    rules = postgres.data / "pg_hba.conf"
    before = rules.read_text()
    told(database, f"CREATE ROLE guest LOGIN PASSWORD '{SECRET}'")
    rules.write_text("host all guest 127.0.0.1/32 scram-sha-256\n" + before)
    told(database, "SELECT pg_reload_conf()")
    yield database.replace("://finevolve@", f"://guest:{SECRET}@")
    rules.write_text(before)
    told(database, "SELECT pg_reload_conf()")
    told(database, "DROP OWNED BY guest; DROP ROLE guest")


def test_no_password_is_in_an_error_a_log_or_a_representation(postgres, with_password, monkeypatch, caplog) -> None:
    caplog.set_level("DEBUG")
    wrong = with_password.replace(SECRET, f"{SECRET}-x")
    said = []
    for url, words in (
        (wrong, "password authentication failed"),
        (with_password, "grant its user the right"),
        (with_password.replace("127.0.0.1", "absent.invalid"), "cannot be reached"),
        (with_password.rpartition("/")[0] + "/absent", "does not exist"),
    ):
        monkeypatch.setenv("FINEVOLVE_DATABASE", url)
        cache, ledger = answer_cache(HOME), open_ledger(HOME, 1.0)
        for use in (cache.count, ledger.meter(PREDICT, PRICE).reserve):
            with pytest.raises(CacheError, match=words) as refused:
                use() if use == cache.count else use(1000, 100)
            said += [str(refused.value), every_word_of(refused.value)]
        said += [cache.place, repr(cache), repr(cache._database), repr(vars(cache._database)), repr(vars(ledger))]
    for text in (*said, caplog.text, postgres.log.read_text()):
        assert SECRET not in text


@pytest.mark.parametrize(
    "url",
    [f"postgres://u:{SECRET}@h/d", f"mysql://u:{SECRET}@h/d", f"{SECRET}", f"postgresql://u:{SECRET}@h:port/d"],
)
def test_an_address_that_is_none_is_refused_without_quoting_it(monkeypatch, url: str) -> None:
    monkeypatch.setenv("FINEVOLVE_DATABASE", url)
    with pytest.raises(SettingsError, match=r"FINEVOLVE_DATABASE: .*write postgresql") as refused:
        answer_cache(HOME)
    assert SECRET not in every_word_of(refused.value)
