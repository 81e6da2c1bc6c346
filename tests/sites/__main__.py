"""`python -m tests.sites`: serves the nine sites until it is killed; the first line printed tells where, as JSON."""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import json
import sys
from pathlib import Path

from tests.sites.faults import Fault
from tests.sites.server import Arrivals, Sites, serve
from tests.sites.world import CHANNELS, DEFAULT_NOW, FEEDS, SECOND_CURSORS, SHANGHAI, World


def pair(text: str) -> tuple[str, int]:
    """SOURCE=ROWS."""
    source, _, rows = text.partition("=")
    if source not in CHANNELS or not rows.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r}: not SOURCE=ROWS (sources: {', '.join(CHANNELS)})")
    return source, int(rows)


def arrivals(text: str) -> Arrivals:
    """ITEMS:EVERY."""
    items, _, every = text.partition(":")
    try:
        return Arrivals(int(items), int(every))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: not ITEMS:EVERY ({error})") from error


def moment(text: str) -> dt.datetime:
    """An ISO instant; without an offset it is Asia/Shanghai."""
    try:
        read = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: not an ISO date and time") from error
    return read if read.tzinfo else read.replace(tzinfo=SHANGHAI)


def faults(text: str) -> list[Fault]:
    """A JSON file with a list of faults."""
    try:
        return [Fault.read(one) for one in json.loads(Path(text).read_text("utf-8"))]
    except (OSError, ValueError, TypeError) as error:
        raise argparse.ArgumentTypeError(f"{text}: {error}") from error


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.sites", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--days", type=int, default=30, help="calendar days, the last being that of --now")
    parser.add_argument("--items", type=int, default=30, help="mean items a weekday and feed")
    parser.add_argument("--now", type=moment, default=DEFAULT_NOW, help="where simulated time starts")
    parser.add_argument("--reach", type=pair, action="append", default=[], help="SOURCE=ROWS its lists still show")
    parser.add_argument("--ties", type=pair, action="append", default=[], help="SOURCE=ROWS, its longest run of ties")
    parser.add_argument(
        "--inclusive", action="append", default=[], choices=sorted(SECOND_CURSORS), help="cursor repeats its own second"
    )
    parser.add_argument("--arrivals", type=arrivals, help="ITEMS:EVERY, news coming in while lists are read")
    parser.add_argument("--faults", type=faults, default=[], help="JSON file with a list of faults")
    parser.add_argument("--warm", action="store_true", help="write all rows before serving")
    return parser


async def run(given: argparse.Namespace) -> None:
    """Serves for ever."""
    world = World(
        seed=given.seed,
        days=given.days,
        now=given.now,
        items=given.items,
        reach=dict(given.reach),
        ties=dict(given.ties),
        inclusive=frozenset(given.inclusive),
    )
    rows = {name: len(world.feeds[name].published) for name in FEEDS}
    sites = Sites(world, arrivals=given.arrivals, faults=given.faults)
    if given.warm:
        sites.warm()
    listening = await serve(sites, given.port)
    port = listening.sockets[0].getsockname()[1]
    told = {"at": f"http://127.0.0.1:{port}", "port": port, "items": sum(rows.values()), "feeds": rows}
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
    await listening.serve_forever()


if __name__ == "__main__":
    asyncio.run(run(options().parse_args()))
