"""What must be impossible: the future in a prompt, and order or concurrency in a result."""

import random
from dataclasses import replace

import pytest
from replay_world import contents, replayed, small_parts, small_settings

from finevolve_pipeline import calendar
from finevolve_pipeline.errors import LookAheadError
from finevolve_pipeline.mechanisms.base import Mechanism
from finevolve_pipeline.replay.audit import CANARIES, PerturbedFuture
from finevolve_pipeline.replay.day import Execution
from finevolve_pipeline.universe import INDUSTRIES

SETTINGS = small_settings(last="2025-01-14")
SESSIONS = SETTINGS.benchmark.sessions
MECHANISMS = ("pipe", "mem0", "memrl")


def days(store, mechanism, sessions):
    return [contents(store.folder(f"{mechanism}-rules", session)) for session in sessions]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("cut", [0, 3, len(SESSIONS) - 2])
def test_a_changed_future_changes_nothing_up_to_the_day_and_much_after_it(tmp_path, mechanism, cut):
    parts = small_parts(SETTINGS)
    true, _ = replayed(tmp_path / "true", mechanism, parts)
    other = replace(parts, reader=PerturbedFuture(parts.reader, SESSIONS[cut]))
    perturbed, _ = replayed(tmp_path / "other", mechanism, other)
    until = SESSIONS[: cut + 1]
    assert days(perturbed, mechanism, until) == days(true, mechanism, until)
    after = [SESSIONS[cut + 1]]
    mine, theirs = (s.read_predictions(f"{mechanism}-rules", after) for s in (true, perturbed))
    assert not (mine["prompt_digest"] == theirs["prompt_digest"]).any()


@pytest.mark.parametrize("table", ["news_window", "matured_alpha"])
def test_tomorrow_s_tables_are_not_even_read(tmp_path, table):
    parts = small_parts(SETTINGS)
    replayed(tmp_path, "memrl", parts, SESSIONS[:4])
    read = {partition for name, partition in parts.reader.reads if name == table}
    assert read == {session.isoformat() for session in SESSIONS[:4]}


@pytest.mark.parametrize("name", CANARIES)
def test_a_mechanism_that_reaches_for_tomorrow_is_caught_by_name(tmp_path, name):
    parts = replace(small_parts(SETTINGS), kind=CANARIES[name])
    with pytest.raises(LookAheadError) as caught:
        replayed(tmp_path, name, parts)
    assert str(caught.value).startswith(f"mechanism '{name}' asked for ")
    assert str(caught.value).endswith("of 2025-01-03 while the clock stood at 2025-01-02")


class LateCanary(Mechanism):
    """Behaves until the sixth session, then reaches ahead while it matures."""

    async def mature(self, session, code, matured, model):
        if session == SESSIONS[5]:
            self.world.observations.outcomes(calendar.shift(session, 4))
        return ()


def test_a_canary_that_waits_is_caught_on_its_day_and_the_days_before_stay(tmp_path):
    parts = replace(small_parts(SETTINGS), kind=LateCanary)
    with pytest.raises(LookAheadError, match="mechanism 'late' asked for outcomes of 2025-01-15 while the clock"):
        replayed(tmp_path, "late", parts)
    assert sorted(path.name for path in (tmp_path / "late-rules").glob("2025-*")) == [
        session.isoformat() for session in SESSIONS[:5]
    ]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_sector_order_and_concurrency_change_no_byte(tmp_path, mechanism):
    reference, _ = replayed(tmp_path / "reference", mechanism, small_parts(SETTINGS))
    shuffled = list(INDUSTRIES)
    random.Random(1).shuffle(shuffled)
    for number, execution in enumerate(
        [Execution(1, INDUSTRIES[::-1]), Execution(31, INDUSTRIES), Execution(5, tuple(shuffled))]
    ):
        parts = replace(small_parts(SETTINGS), execution=execution)
        store, _ = replayed(tmp_path / str(number), mechanism, parts)
        assert contents(store.root) == contents(reference.root)
