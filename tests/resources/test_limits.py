"""Limits hold over tasks, event loops and processes; nobody keeps a slot who is dead, cancelled, or needs none."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resources.limits import Limits, Rate

CHILD = Path(__file__).parent / "limits_child.py"
ROOT = Path(__file__).parents[2]


@contextmanager
def child(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, CHILD, *map(str, arguments)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() in ("held", "began")
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def most_at_a_time(limits: list[Limits], tasks: int) -> int:
    """Run tasks that need a slot each, spread over `limits`; the most that held one together."""
    now = most = 0

    async def task(one: Limits) -> None:
        nonlocal now, most
        async with one.slot(1):
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.002)
            now -= 1

    await asyncio.gather(*(task(limits[i % len(limits)]) for i in range(tasks)))
    return most


def test_no_more_slots_than_allowed_are_held_together(tmp_path: Path) -> None:
    assert asyncio.run(most_at_a_time([Limits(tmp_path, "p", 3)], 40)) == 3


def test_two_limits_of_one_name_share_and_of_two_names_do_not(tmp_path: Path) -> None:
    assert asyncio.run(most_at_a_time([Limits(tmp_path, "p", 3), Limits(tmp_path, "p", 3)], 40)) == 3
    assert asyncio.run(most_at_a_time([Limits(tmp_path, "p", 3), Limits(tmp_path, "../q", 3)], 40)) == 6


def test_limits_of_odd_names_stay_in_their_folder(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    assert asyncio.run(most_at_a_time([Limits(folder, "../../out", 2)], 4)) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_one_object_serves_several_loops_one_after_the_other(tmp_path: Path) -> None:
    limits = Limits(tmp_path, "p", 2)
    assert [asyncio.run(most_at_a_time([limits], 10)) for _ in range(3)] == [2, 2, 2]


def test_loops_in_two_threads_share_the_slots(tmp_path: Path) -> None:
    limits = Limits(tmp_path, "p", 2)
    now, most, lock = 0, 0, threading.Lock()

    async def task() -> None:
        nonlocal now, most
        async with limits.slot(1):
            with lock:
                now += 1
                most = max(most, now)
            await asyncio.sleep(0.005)
            with lock:
                now -= 1

    async def many() -> None:
        await asyncio.gather(*(task() for _ in range(10)))

    threads = [threading.Thread(target=lambda: asyncio.run(many())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert most == 2


def test_a_loop_that_ended_with_slots_held_gives_them_back(tmp_path: Path) -> None:
    limits = Limits(tmp_path, "p", 1)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(limits.slot(1).__aenter__())
    loop.close()
    assert asyncio.run(most_at_a_time([limits], 2)) == 1


def test_waiting_is_first_come_first_served(tmp_path: Path) -> None:
    limits, order = Limits(tmp_path, "p", 1), []

    async def task(i: int) -> None:
        async with limits.slot(1):
            order.append(i)
            await asyncio.sleep(0)

    async def all_of_them() -> None:
        await asyncio.gather(*(task(i) for i in range(20)))

    asyncio.run(all_of_them())
    assert order == list(range(20))


def test_a_slot_of_another_process_is_waited_for_and_a_killed_process_frees_its_own(tmp_path: Path) -> None:
    async def try_one(limits: Limits, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds), limits.slot(1):
                return True
        except TimeoutError:
            return False

    with child("hold", tmp_path, 2, 2) as process:
        limits = Limits(tmp_path, "p", 2)
        assert not asyncio.run(try_one(limits, 0.15))
        process.kill()
        process.wait()
        assert asyncio.run(try_one(limits, 5))
    assert asyncio.run(most_at_a_time([limits], 10)) == 2


def test_processes_that_all_want_more_than_there_is_share_fairly(tmp_path: Path) -> None:
    concurrency, seconds = 6, 1.0

    async def own() -> int:
        limits = Limits(tmp_path, "p", concurrency)
        taken, until = 0, time.monotonic() + seconds

        async def worker() -> None:
            nonlocal taken
            while time.monotonic() < until:
                async with limits.slot(1):
                    taken += 1
                    await asyncio.sleep(0.01)

        await asyncio.gather(*(worker() for _ in range(3 * concurrency)))
        return taken

    with child("count", tmp_path, concurrency, seconds) as process:
        here = asyncio.run(own())
        assert process.stdout is not None
        there = int(process.stdout.readline())
    assert here + there <= 2 * seconds / 0.01 * concurrency
    assert min(here, there) > 0.3 * max(here, there)


def test_a_forked_child_does_not_keep_the_slots_of_its_dead_parent(tmp_path: Path) -> None:
    with child("fork", tmp_path, 2, 2) as process:
        assert process.stdout is not None
        grandchild = int(process.stdout.readline())
        process.kill()
        process.wait()
        try:
            assert asyncio.run(most_at_a_time([Limits(tmp_path, "p", 2)], 10)) == 2
            os.kill(grandchild, 0)
        finally:
            os.kill(grandchild, signal.SIGKILL)


def test_a_cancelled_wait_takes_no_slot_along(tmp_path: Path) -> None:
    limits = Limits(tmp_path, "p", 1)

    async def cancel_some() -> tuple[int, int]:
        async def task() -> None:
            async with limits.slot(1):
                await asyncio.sleep(0.01)

        tasks = [asyncio.create_task(task()) for _ in range(20)]
        await asyncio.sleep(0.015)
        for i, one in enumerate(tasks):
            if i % 2:
                one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return limits.held, limits.waiting

    assert asyncio.run(cancel_some()) == (0, 0)
    assert asyncio.run(most_at_a_time([limits], 3)) == 1


def test_a_slot_handed_to_a_task_that_is_cancelled_at_that_moment_goes_on(tmp_path: Path) -> None:
    limits = Limits(tmp_path, "p", 1)

    async def race() -> int:
        first = limits.slot(1)
        await first.__aenter__()
        waiting = asyncio.create_task(limits.slot(1).__aenter__())
        await asyncio.sleep(0)
        await first.__aexit__(None, None, None)  # hands the slot over
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return limits.held

    assert asyncio.run(race()) == 0


def test_a_pause_holds_everybody_back_and_a_shorter_one_does_not_end_it(tmp_path: Path) -> None:
    now = [1000.0]
    one, other = (Limits(tmp_path, "p", 3, clock=lambda: now[0]) for _ in range(2))
    one.pause(30)
    one.pause(5)
    assert other.paused_for() == 30
    now[0] = 1029.0
    assert other.paused_for() == pytest.approx(1)
    now[0] = 1030.0
    assert other.paused_for() == 0


def test_a_pause_from_a_clock_that_was_set_back_is_ignored(tmp_path: Path) -> None:
    now = [10_000_000.0]
    limits = Limits(tmp_path, "p", 3, requests_per_minute=60, clock=lambda: now[0])
    limits.pause(100)
    now[0] = 1000.0
    assert limits.paused_for() == 0


def test_a_request_waits_until_a_pause_is_over(tmp_path: Path) -> None:
    limits = Limits(tmp_path, "p", 3)

    async def waited() -> float:
        limits.pause(0.15)
        began = time.monotonic()
        async with limits.slot(1):
            return time.monotonic() - began

    assert 0.14 < asyncio.run(waited()) < 1


def test_stop_ends_all_waiting_for_slots_and_pauses(tmp_path: Path) -> None:
    limits = Limits(tmp_path, "p", 1)

    async def stopped() -> list[object]:
        async def task() -> None:
            async with limits.slot(1):
                limits.pause(60)
                await limits.sleep(60)

        tasks = [asyncio.create_task(task()) for _ in range(30)]
        await asyncio.sleep(0.01)
        limits.stop(lambda: ValueError("over"))
        ended = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 1)
        return [*map(str, ended), limits.held, limits.waiting]

    assert asyncio.run(stopped()) == ["over"] * 30 + [0, 0]


@given(
    per_minute=st.integers(1, 300),
    gaps=st.lists(st.floats(0, 20), min_size=1, max_size=400),
)
def test_no_minute_holds_more_requests_than_allowed(per_minute: int, gaps: list[float]) -> None:
    rate, theoretical, now, starts = Rate(per_minute), 0.0, 1000.0, []
    for gap in gaps * 3:
        now += gap / 20
        start, theoretical = rate.admit(theoretical, now, 1)
        starts.append(start)
    starts.sort()
    assert all(later - earlier > 60 - 1e-6 for earlier, later in zip(starts, starts[per_minute:], strict=False))


def test_a_steady_flow_gets_what_a_minute_allows() -> None:
    rate, theoretical, start = Rate(600), 0.0, 0.0
    for _ in range(6000):
        start, theoretical = rate.admit(theoretical, 0.0, 1)
    assert 600 <= start <= 600 * 1.06


def test_one_that_is_larger_than_a_burst_goes_through_and_is_waited_off() -> None:
    rate = Rate(1000)
    start, theoretical = rate.admit(0.0, 5000.0, 3000)
    assert start == 5000.0
    later, _ = rate.admit(theoretical, 5000.0, 50)
    assert later == pytest.approx(5000 + 3000 * 60 / 951, rel=0.01)


def test_requests_a_minute_are_shared_by_two_processes_of_a_home(tmp_path: Path) -> None:
    now = [1000.0]
    one, other = (Limits(tmp_path, "p", 9, requests_per_minute=60, clock=lambda: now[0]) for _ in range(2))
    waits = [limits._book(1) for limits in (one, other) * 3]
    # 60 a minute: three at once, then each after another 60/58 s.
    assert waits == pytest.approx([0, 0, 0, 60 / 58, 120 / 58, 180 / 58])


def test_tokens_that_were_not_used_are_given_back(tmp_path: Path) -> None:
    now = [1000.0]
    limits = Limits(tmp_path, "p", 9, tokens_per_minute=1000, clock=lambda: now[0])

    async def two() -> float:
        async with limits.slot(800) as slot:
            slot.used(100)
        return limits._book(1)

    waited = asyncio.run(two())
    assert waited == pytest.approx((100 - 49) * 60 / 951, abs=0.2)


def test_a_real_wait_for_the_minutes_allowance(tmp_path: Path) -> None:
    limits = Limits(tmp_path, "p", 9, requests_per_minute=600)

    async def spent() -> float:
        began = time.monotonic()
        for _ in range(33):
            async with limits.slot(1):
                pass
        return time.monotonic() - began

    assert 0.28 < asyncio.run(spent()) < 1.5


def test_a_cancelled_wait_gives_its_place_in_the_minute_back(tmp_path: Path) -> None:
    limits = Limits(tmp_path, "p", 9, requests_per_minute=1)

    async def cancelled() -> float:
        async with limits.slot(1):
            pass
        for _ in range(5):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01), limits.slot(1):
                    pass
        return limits._book(1)

    assert asyncio.run(cancelled()) < 61


def test_a_free_slot_is_got_and_given_back_without_a_turn_of_the_loop(tmp_path: Path) -> None:
    limits = Limits(tmp_path, "p", 31)

    async def turns() -> int:
        seen = 0

        async def others() -> None:
            nonlocal seen
            while True:
                seen += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(others())
        for _ in range(100):
            async with limits.slot(1):
                pass
        task.cancel()
        return seen

    assert asyncio.run(turns()) == 0
