"""A process of its own that takes slots of a provider, for the tests of limits."""

import asyncio
import os
import sys
import time
from pathlib import Path

from resources.limits import Limits


async def hold(folder: Path, concurrency: int, wanted: int) -> None:
    """Take that many slots, say so, and keep them until killed."""
    limits = Limits(folder, "p", concurrency)
    for _ in range(wanted):
        await limits.slot(1).__aenter__()
    sys.stdout.write("held\n")
    sys.stdout.flush()
    await asyncio.sleep(60)


async def fork(folder: Path, concurrency: int, wanted: int) -> None:
    """As `hold`, with a forked child that goes on for a while; says its id."""
    limits = Limits(folder, "p", concurrency)
    for _ in range(wanted):
        await limits.slot(1).__aenter__()
    child = os.fork()
    if child == 0:
        time.sleep(20)
        os._exit(0)
    sys.stdout.write(f"held\n{child}\n")
    sys.stdout.flush()
    await asyncio.sleep(60)


async def count(folder: Path, concurrency: int, seconds: float) -> None:
    """Want many slots for a while; say how many were got, counted each time."""
    limits = Limits(folder, "p", concurrency)
    taken = 0
    until = asyncio.get_running_loop().time() + seconds

    async def worker() -> None:
        nonlocal taken
        while asyncio.get_running_loop().time() < until:
            async with limits.slot(1):
                taken += 1
                await asyncio.sleep(0.01)

    sys.stdout.write("began\n")
    sys.stdout.flush()
    await asyncio.gather(*(worker() for _ in range(3 * concurrency)))
    sys.stdout.write(f"{taken}\n")


if __name__ == "__main__":
    folder, concurrency, number = Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    match sys.argv[1]:
        case "hold":
            asyncio.run(hold(folder, concurrency, int(number)))
        case "fork":
            asyncio.run(fork(folder, concurrency, int(number)))
        case "count":
            asyncio.run(count(folder, concurrency, number))
