"""How politely a provider is asked, over all processes of a home: requests at a time, requests and tokens a minute,
and the pause it asked for.

A request at a time is a locked file, so the kernel gives back what a dead process held. Rates, the pause and who waits
stand in one small file that is changed under a lock. Times are wall-clock seconds, the only clock that all share.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import struct
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

POLL_SECONDS = 0.02
"""How often a process without a free slot looks whether another one has given one back."""
ASKING_SECONDS = 0.25
"""For how long a process counts as waiting after it last said so."""
BURST = 20
"""Share of a minute's allowance that may be used at once: one 20th."""
LONGEST_PAUSE = 86_400.0
"""A pause or debt that lies further ahead stems from a clock that was set back, and is ignored."""

_PAUSE = struct.Struct("<d")
_HEAD = struct.Struct("<ddd")  # paused until, requests' and tokens' theoretical time
_ASKER = struct.Struct("<Qd")  # who, until when
_ASKERS = 64
_SIZE = _HEAD.size + _ASKERS * _ASKER.size
_CHANCE = random.Random()


@dataclass(frozen=True)
class Rate:
    """An allowance a minute, as a theoretical arrival time (generic cell rate algorithm).

    At most `per_minute` units start in any minute, except that something larger than a 20th of it is let through
    whole once the allowance has recovered, and the debt is waited off afterwards.
    """

    per_minute: int

    @property
    def burst(self) -> int:
        """Units that may start at once."""
        return max(1, self.per_minute // BURST)

    @property
    def interval(self) -> float:
        """Seconds a unit takes."""
        return 60 / (self.per_minute - self.burst + 1)

    def admit(self, theoretical: float, now: float, units: int) -> tuple[float, float]:
        """When so many units may start, and the theoretical time afterwards."""
        free_at = theoretical if theoretical < now + LONGEST_PAUSE else now
        slack = max(0, self.burst - units) * self.interval
        start = max(now, free_at - slack)
        return start, max(free_at, start) + units * self.interval


class Limits:
    """The limits of one provider. Any number of event loops, threads and processes may have one of its name.

    Args:
        folder: where all processes of the home keep limits.
        name: of the provider.
        concurrency: slots.
        requests_per_minute: 0 for no limit.
        tokens_per_minute: likewise.
        clock: wall-clock seconds.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        concurrency: int,
        requests_per_minute: int = 0,
        tokens_per_minute: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.concurrency = concurrency
        self._requests = Rate(requests_per_minute) if requests_per_minute else None
        self._tokens = Rate(tokens_per_minute) if tokens_per_minute else None
        self._clock = clock
        self._slots = folder / f"{quote(name, safe='')}.slots"
        self._state = _State(folder / f"{quote(name, safe='')}.limits")
        self._pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Pool] = weakref.WeakKeyDictionary()
        self._opening = threading.Lock()
        _ALL.add(self)

    def slot(self, tokens: int) -> Slot:
        """Leave for one request of about so many tokens, prompt and completion: `async with limits.slot(n)`."""
        return Slot(self, tokens)

    @property
    def held(self) -> int:
        """Slots that this event loop holds."""
        return len(self._pool.held)

    @property
    def waiting(self) -> int:
        """Requests of this event loop that wait for a slot."""
        return len(self._pool.waiters)

    def pause(self, seconds: float) -> None:
        """Let no request of any process start for so long. A longer pause that is under way stays."""
        until = self._clock() + min(seconds, LONGEST_PAUSE)

        def later(paused: float, requests: float, tokens: float) -> tuple[float, float, float]:
            known = paused if paused < self._clock() + LONGEST_PAUSE else 0.0
            return max(known, until), requests, tokens

        self._state.change(later)

    def paused_for(self) -> float:
        """Seconds until requests may start again; 0 if they may."""
        left = self._state.paused_until() - self._clock()
        return left if 0 < left < LONGEST_PAUSE else 0.0

    async def sleep(self, seconds: float) -> None:
        """Wait, unless `stop` ends all waiting."""
        await self._pool.sleep(seconds)

    def stop(self, error: Callable[[], Exception]) -> None:
        """End all waiting of this event loop, for a slot, an allowance, or a pause: each raises its `error()`."""
        self._pool.stop(error)

    @property
    def _pool(self) -> _Pool:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            with self._opening:
                # What loops that have ended still held is given back.
                for other in [one for one in self._pools if one.is_closed()]:
                    self._pools.pop(other).abandon()
                pool = self._pools[loop] = _Pool(self._slots, self.concurrency, self._state, self._clock)
        return pool

    async def _enter(self, pool: _Pool, tokens: int) -> int:
        number = pool.take()
        if number is None:
            number = await pool.wait()
        try:
            await self._allowance(pool, tokens)
        except BaseException:
            pool.give(number)
            raise
        return number

    async def _allowance(self, pool: _Pool, tokens: int) -> None:
        """Wait off pauses and the minute's limits."""
        while left := self.paused_for():
            # A little apart, so that not all processes come back at the same instant.
            await pool.sleep(left + _CHANCE.uniform(0, min(0.25, left / 10)))
        if self._requests is None and self._tokens is None:
            return
        wait = self._book(tokens)
        if wait <= 0:
            return
        try:
            await pool.sleep(wait)
        except BaseException:
            self._correct(-1, -tokens)
            raise
        while left := self.paused_for():
            await pool.sleep(left)

    def _book(self, tokens: int) -> float:
        """Take a place in the minute's allowance; seconds until it comes."""
        now = self._clock()
        starts = [now]

        def book(paused: float, requests: float, owed: float) -> tuple[float, float, float]:
            if self._requests is not None:
                start, requests = self._requests.admit(requests, now, 1)
                starts.append(start)
            if self._tokens is not None:
                start, owed = self._tokens.admit(owed, now, tokens)
                starts.append(start)
            return paused, requests, owed

        self._state.change(book)
        return max(starts) - now

    def _correct(self, requests: int, tokens: int) -> None:
        """Book so many more, or give back."""

        def corrected(paused: float, asked: float, owed: float) -> tuple[float, float, float]:
            return (
                paused,
                asked + requests * self._requests.interval if self._requests else asked,
                owed + tokens * self._tokens.interval if self._tokens else owed,
            )

        if (self._tokens and tokens) or (self._requests and requests):
            self._state.change(corrected)

    def _forget(self) -> None:
        """In a forked child: the locks are the parent's."""
        self._opening = threading.Lock()
        for pool in self._pools.values():
            pool.abandon()
        self._pools.clear()
        self._state.close()


class Slot:
    """Leave for one request, while the `async with` lasts."""

    __slots__ = ("_limits", "_number", "_pool", "_tokens")

    def __init__(self, limits: Limits, tokens: int) -> None:
        self._limits = limits
        self._tokens = tokens

    async def __aenter__(self) -> Slot:
        """Wait for leave."""
        self._pool = self._limits._pool
        self._number = await self._limits._enter(self._pool, self._tokens)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Give it back."""
        self._pool.give(self._number)

    def used(self, tokens: int) -> None:
        """Say how many tokens the request really took, so that the minute's allowance is right."""
        self._limits._correct(0, tokens - self._tokens)
        self._tokens = tokens


@dataclass
class _Pool:
    """The slots of one event loop: those it holds, and who waits for one.

    A slot that comes free goes to the next in line here, unless other processes wait and this one has its share.
    """

    folder: Path
    concurrency: int
    state: _State
    clock: Callable[[], float]
    held: set[int] = field(default_factory=set)
    waiters: deque[asyncio.Future[int]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._files: dict[int, int] = {}
        self._mark = int.from_bytes(os.urandom(7)) | 1
        self._share = self.concurrency
        self._said = 0.0
        self._polling: asyncio.TimerHandle | None = None
        self._next = 0
        self._sleepers: set[asyncio.Future[None]] = set()

    def take(self) -> int | None:
        """A free slot, unless others are in line."""
        return None if self.waiters else self._lock_one()

    async def wait(self) -> int:
        """The next slot, first come first served."""
        turn: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.waiters.append(turn)
        if self._polling is None:
            self._poll()
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.give(turn.result())
            elif turn in self.waiters:
                self.waiters.remove(turn)
            raise

    def give(self, number: int) -> None:
        """Back to the next in line, or to all processes."""
        if number not in self.held:
            return  # given back with its loop, or held by the parent of this process
        if len(self.held) <= self._share and self._hand(number):
            return
        self.held.discard(number)
        fcntl.flock(self._files[number], fcntl.LOCK_UN)

    async def sleep(self, seconds: float) -> None:
        """Wait, unless stopped."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = asyncio.get_running_loop().call_later(max(0.0, seconds), _wake, over)
        self._sleepers.add(over)
        try:
            await over
        finally:
            timer.cancel()
            self._sleepers.discard(over)

    def stop(self, error: Callable[[], Exception]) -> None:
        """Let all that wait fail."""
        waiting: list[asyncio.Future[Any]] = [*self.waiters, *self._sleepers]
        for future in waiting:
            if not future.done():
                future.set_exception(error())
        self.waiters.clear()

    def abandon(self) -> None:
        """The loop has ended."""
        self.held.clear()
        self.close()

    def close(self) -> None:
        """Close the files, and with them all locks that no other process shares."""
        while self._files:
            os.close(self._files.popitem()[1])

    def __del__(self) -> None:
        self.close()

    def _hand(self, number: int) -> bool:
        while self.waiters:
            turn = self.waiters.popleft()
            if not turn.done():
                turn.set_result(number)
                return True
        return False

    def _poll(self) -> None:
        """Look for slots that others gave back, as long as somebody waits here."""
        self._polling = None
        self._ask()
        while self.waiters:
            number = self._lock_one()
            if number is None:
                self._polling = asyncio.get_running_loop().call_later(POLL_SECONDS, self._poll)
                return
            if not self._hand(number):
                self.give(number)
        self._share = self.concurrency

    def _ask(self) -> None:
        """Say that this process waits, and hear how many do: each may hold its share."""
        now = self.clock()
        if abs(now - self._said) > ASKING_SECONDS / 2:
            self.state.ask(self._mark, now)
            self._said = now
        askers = self.state.askers(now) | {self._mark}
        self._share = max(1, -(-self.concurrency // len(askers)))

    def _lock_one(self) -> int | None:
        """Lock a slot that nobody holds; None if there is none, or if this process has its share."""
        if len(self.held) >= min(self._share, self.concurrency):
            return None
        for step in range(self.concurrency):
            number = (self._next + step) % self.concurrency
            if number in self.held:
                continue
            try:
                fcntl.flock(self._file(number), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            self._next = number
            self.held.add(number)
            return number
        return None

    def _file(self, number: int) -> int:
        file = self._files.get(number)
        if file is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = os.open(self.folder / f"{number:04d}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._files[number] = file
        return file


def _wake(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)


class _State:
    """The shared file: pause, rates, and who waits."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened = -1
        self._thread = threading.Lock()

    def paused_until(self) -> float:
        """As last written."""
        return float(_PAUSE.unpack(os.pread(self._file, _PAUSE.size, 0))[0])

    def change(self, change: Callable[[float, float, float], tuple[float, float, float]]) -> None:
        """Change pause and rates while no other process does."""
        with self._alone() as file:
            os.pwrite(file, _HEAD.pack(*change(*_HEAD.unpack(os.pread(file, _HEAD.size, 0)))), 0)

    def ask(self, mark: int, now: float) -> None:
        """Note that `mark` waits."""
        with self._alone() as file:
            table = self._table()
            own = next((i for i, (who, _) in enumerate(table) if who == mark), None)
            place = next((i for i, entry in enumerate(table) if not _waits(entry, now)), 0) if own is None else own
            entry = _ASKER.pack(mark, now + ASKING_SECONDS)
            os.pwrite(file, entry, _HEAD.size + place * _ASKER.size)

    def askers(self, now: float) -> set[int]:
        """Who waits."""
        return {entry[0] for entry in self._table() if _waits(entry, now)}

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        self._thread = threading.Lock()  # a forked child may have inherited a locked one
        if self._opened >= 0:
            os.close(self._opened)
            self._opened = -1

    def __del__(self) -> None:
        self.close()

    @contextmanager
    def _alone(self) -> Iterator[int]:
        """While no other process, and no other thread of this one, changes the file."""
        with self._thread:
            file = self._file
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield file
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)

    def _table(self) -> list[tuple[int, float]]:
        data = os.pread(self._file, _SIZE - _HEAD.size, _HEAD.size)
        return list(_ASKER.iter_unpack(data))

    @property
    def _file(self) -> int:
        if self._opened < 0:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._opened = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if os.fstat(self._opened).st_size != _SIZE:
                os.ftruncate(self._opened, _SIZE)
        return self._opened


def _waits(entry: tuple[int, float], now: float) -> bool:
    return entry[0] != 0 and 0 < entry[1] - now <= ASKING_SECONDS + 1


_ALL: weakref.WeakSet[Limits] = weakref.WeakSet()


def _forget_all() -> None:
    for limits in _ALL:
        limits._forget()


os.register_at_fork(after_in_child=_forget_all)
