"""Partitions of a table, made one by one or together: order, reuse, and what is durable when something goes wrong."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pandas as pd
import pytest

from assets.partitioned import Made, make_partitions
from finevolve_pipeline.errors import BackboneError, MissingPartitionError
from finevolve_pipeline.graph import Built, Input, Stream, Table, TableReader, code_version
from finevolve_pipeline.tables import Bars
from resources.table_store import TableStore

KEYS = tuple(f"2025-01-{day:02}" for day in range(1, 11))
AHEAD = 3


def bars(key: str, close: float = 100.0) -> pd.DataFrame:
    return pd.DataFrame(
        {"session": [key], "code": ["801080"]} | {name: [close] for name in ("open", "high", "low", "close")}
    ).assign(volume=1.0, amount=1.0)


class World:
    """A table whose partitions are built from `given` ones of the same key."""

    def __init__(self, home: Path, together: bool) -> None:
        self.store = TableStore(home)
        self.source = Table(
            "industry_bars", Bars, KEYS, lambda key, reader: (), lambda key, reader: bars(key), code_version()
        )
        self.table = Table(
            "benchmark_bars", Bars, KEYS, self._inputs, self._build, code_version(), self._stream(together)
        )
        self.taken: list[str] = []
        self.fails_at = ""
        self.closed = 0
        for key in KEYS:
            self.give(key)

    def give(self, key: str, close: float = 100.0) -> None:
        self.store.write(self.source, key, bars(key, close), "given")

    def take_away(self, key: str) -> None:
        self.store.path("industry_bars", key).unlink()

    def make(self) -> Generator[Made, None, None]:
        return make_partitions(self.table, KEYS, self.store, lambda frame: {"close": float(frame["close"].iloc[0])})

    def _inputs(self, key: str, reader: TableReader) -> tuple[Input, ...]:
        return (Input("industry_bars", key),)

    def _build(self, key: str, reader: TableReader) -> pd.DataFrame:
        if key == self.fails_at:
            raise BackboneError(f"{key}: nobody answers")
        return reader.read("industry_bars", key)

    def _stream(self, together: bool) -> Stream | None:
        """Takes three keys ahead of the one it makes."""

        def stream(keys: Iterator[str], reader: TableReader) -> Generator[Built, None, None]:
            try:
                ahead = deque(self._note(islice(keys, AHEAD)))
                while ahead:
                    ahead.extend(self._note(islice(keys, 1)))
                    key = ahead.popleft()
                    yield Built(key, self._build(key, reader), {"took": key})
            finally:
                self.closed += 1

        return stream if together else None

    def _note(self, keys: Iterator[str]) -> list[str]:
        found = list(keys)
        self.taken += found
        return found


@pytest.fixture(params=[False, True], ids=["one by one", "together"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(tmp_path, request.param)


def summary(made: Iterator[Made]) -> list[tuple[str, bool]]:
    return [(one.key, bool(one.metadata["reused"])) for one in made]


def test_partitions_come_out_in_order_and_stay(world: World) -> None:
    assert summary(world.make()) == [(key, False) for key in KEYS]
    assert summary(world.make()) == [(key, True) for key in KEYS]


def test_only_what_is_due_is_built_and_all_come_out_in_order(world: World) -> None:
    list(world.make())
    world.taken.clear()
    for key in (KEYS[2], KEYS[3], KEYS[7]):
        world.give(key, close=200.0)
    made = list(world.make())
    assert [one.key for one in made] == list(KEYS)
    assert [one.key for one in made if not one.metadata["reused"]] == [KEYS[2], KEYS[3], KEYS[7]]
    assert made[2].metadata["close"] == 200.0
    if world.table.stream is not None:
        assert world.taken == [KEYS[2], KEYS[3], KEYS[7]]


def test_each_one_is_durable_when_it_comes_out(world: World) -> None:
    for made in world.make():
        stored = world.store.stored("benchmark_bars", made.key)
        assert stored == made.stored
        following = KEYS[KEYS.index(made.key) + 1 :]
        assert all(world.store.stored("benchmark_bars", key) is None for key in following)


def test_an_error_in_a_build_leaves_all_before_it_durable(world: World) -> None:
    world.fails_at = KEYS[5]
    made: list[Made] = []
    with pytest.raises(BackboneError, match="nobody answers"):
        made.extend(world.make())
    assert [one.key for one in made] == list(KEYS[:5])
    world.fails_at = ""
    assert summary(world.make()) == [(key, n < 5) for n, key in enumerate(KEYS)]


def test_an_absent_input_is_told_after_all_before_it_are_durable(world: World) -> None:
    world.take_away(KEYS[4])
    made: list[Made] = []
    with pytest.raises(MissingPartitionError, match=f"industry_bars {KEYS[4]} does not exist"):
        made.extend(world.make())
    assert [one.key for one in made] == list(KEYS[:4])


def test_what_has_not_landed_is_left_out(world: World) -> None:
    def inputs(key: str, reader: TableReader) -> tuple[Input, ...]:
        return (Input("landing_industry_bars" if key in KEYS[3:5] else "industry_bars", key),)

    world.table = replace(world.table, inputs=inputs)
    assert summary(world.make()) == [(key, False) for key in KEYS if key not in KEYS[3:5]]


def test_facts_of_a_build_are_told_with_it_and_not_of_one_that_is_reused(tmp_path: Path) -> None:
    world = World(tmp_path, together=True)
    assert [one.metadata["took"] for one in world.make()] == list(KEYS)
    assert all("took" not in one.metadata for one in world.make())


def test_who_leaves_early_closes_what_builds(tmp_path: Path) -> None:
    world = World(tmp_path, together=True)
    made = world.make()
    next(made)
    assert world.closed == 0
    made.close()
    assert world.closed == 1


def test_nothing_is_opened_where_nothing_is_due(tmp_path: Path) -> None:
    world = World(tmp_path, together=True)
    list(world.make())
    list(world.make())
    assert world.closed == 1
