"""What a crawl tells while it goes on, and the job that it is given: plain values, one JSON document a line.

The child process writes these lines, the parent reads them. A page comes whole or not at all: its articles, and how
far back its channel is now proved to be complete.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from crawlers.items import Article
from crawlers.pages import PageState


@dataclass(frozen=True)
class Window:
    """Days of one crawl, both included, in Asia/Shanghai, and the channels to be asked for them."""

    first: dt.date
    last: dt.date
    channels: tuple[str, ...]


@dataclass(frozen=True)
class Job:
    """What a child process is to do.

    Attributes:
        source: source id.
        windows: days to crawl, in this order.
        started_at: aware. Items published later are left to the next crawl; it is every item's `crawled_at`.
        probe: read the newest page of each window's first channel only, and tell what it is like.
        scrapy: settings of Scrapy beyond the project's.
    """

    source: str
    windows: tuple[Window, ...]
    started_at: dt.datetime
    probe: bool = False
    scrapy: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PageRead:
    """A page that was read whole.

    Attributes:
        channel: its name.
        window: position among the job's windows.
        articles: public ones of the window, not told before.
        reached: all articles of the channel from this instant to the window's end have been told (ISO 8601).
        dropped: rows left out, by kind.
        unreadable: rows set aside, one line each.
        missing: days for which a body could not be fetched, with the number of such articles: they are not told, and
            the day is not complete.
        newest: publication of the newest row that the list is known to have, ISO 8601; empty if none. A day is only
            proved by a list that has gone on after it.
        doubts: days of which something may be hidden, with the reason: they are not complete either.
        notes: what the user should know.
    """

    channel: str
    window: int
    articles: tuple[Article, ...]
    reached: str
    dropped: Mapping[str, int] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()
    missing: Mapping[str, int] = field(default_factory=dict)
    doubts: Mapping[str, str] = field(default_factory=dict)
    newest: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ChannelEnd:
    """A channel was left: the window's start was reached, its list ended, or it failed.

    Attributes:
        state: `ok`, or what stopped it.
        reason: why, empty if ok.
        reached: as in `PageRead`.
        ends: the list ended at `reached`, before the window's start: the site serves no more.
        newest: as in `PageRead`.
    """

    channel: str
    window: int
    state: PageState
    reason: str
    reached: str
    ends: bool = False
    newest: str = ""


@dataclass(frozen=True)
class Probe:
    """What the newest page of a channel is like.

    Attributes:
        reason: why it could not be read, or how it differs from what is usual; empty: as it should be.
        rows: rows on it.
        newest: publication of the newest, ISO 8601; empty if there is none.
        fields: share of rows (0..1) in which a field is filled.
        unreadable: rows that could not be read.
        dropped: rows that are not for the public.
    """

    channel: str
    state: PageState
    reason: str
    rows: int = 0
    newest: str = ""
    fields: Mapping[str, float] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()
    dropped: int = 0


Record = PageRead | ChannelEnd | Probe

_KINDS: dict[str, type[PageRead] | type[ChannelEnd] | type[Probe]] = {
    "page": PageRead,
    "end": ChannelEnd,
    "probe": Probe,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def encode(record: Record) -> str:
    """One line of JSON, in ASCII: whatever the child's locale is, and whatever the texts hold, it arrives."""
    return json.dumps({"kind": _NAMES[type(record)], **asdict(record)})


def decode(line: str) -> Record:
    """The record of a line. Raises `ValueError` if it is none."""
    found = json.loads(line)
    if not isinstance(found, dict) or found.get("kind") not in _KINDS:
        raise ValueError(f"no record of a crawl: {line[:80]!r}")
    kind = _KINDS[found.pop("kind")]
    for name in ("unreadable", "notes"):
        if name in found:
            found[name] = tuple(found[name])
    if "state" in found:
        found["state"] = PageState(found["state"])
    if "articles" in found:
        found["articles"] = tuple(Article(**article) for article in found["articles"])
    return kind(**found)


def encode_job(job: Job) -> str:
    """A job as one line of JSON."""
    windows = [{"first": w.first.isoformat(), "last": w.last.isoformat(), "channels": w.channels} for w in job.windows]
    return json.dumps(
        {
            "source": job.source,
            "windows": windows,
            "started_at": job.started_at.isoformat(),
            "probe": job.probe,
            "scrapy": dict(job.scrapy),
        }
    )


def decode_job(line: str) -> Job:
    """The job of a line."""
    found = json.loads(line)
    return Job(
        found["source"],
        tuple(
            Window(dt.date.fromisoformat(w["first"]), dt.date.fromisoformat(w["last"]), tuple(w["channels"]))
            for w in found["windows"]
        ),
        dt.datetime.fromisoformat(found["started_at"]),
        found["probe"],
        found["scrapy"],
    )
