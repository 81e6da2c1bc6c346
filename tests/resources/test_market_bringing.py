"""What is asked of the market sources, what lands, what is kept beside, and what is told of revisions."""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from service_world import NOW, close_of

from finevolve_pipeline.calendar import SHANGHAI, sessions_between
from finevolve_pipeline.errors import CalendarError, InputError, SourceError, TableError
from finevolve_pipeline.market.fetching import (
    Fetched,
    Span,
    agreement,
    sessions_to_ask,
    settled_sessions,
    spans,
)
from finevolve_pipeline.settings import Settings, load_settings
from finevolve_pipeline.tables import Bars, conform
from finevolve_pipeline.universe import BENCHMARK, CODES
from resources.landing import Landing, LandingLockedError, Revision
from resources.market import Brought, Revisions, bring, second_store
from resources.market.bringing import spanned

SESSIONS = sessions_between(dt.date(2025, 1, 2), dt.date(2025, 1, 20))
TABLE = "benchmark_bars"


def bars(closes: dict[tuple[dt.date, str], float]) -> pd.DataFrame:
    rows = [
        {"session": day.isoformat(), "code": code, **dict.fromkeys(("open", "high", "low", "close"), close)}
        for (day, code), close in closes.items()
    ]
    return conform(pd.DataFrame(rows).assign(volume=1e9, amount=1e11), Bars, "test")


class Told:
    """A source that has what it is given; `absent` it lacks, `changed` it has with other numbers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: list[tuple[str, Span]] = []
        self.absent: set[tuple[dt.date, str]] = set()
        self.changed: dict[tuple[dt.date, str], float] = {}
        self.error = ""

    def bars(self, table: str, codes: Sequence[str], span: Span, now: dt.datetime) -> Fetched:
        self.asked.append((table, span))
        if self.error:
            raise SourceError(self.error)
        cells = [(d, c) for d in sessions_between(*span) for c in codes if (d, c) not in self.absent]
        return Fetched(bars({cell: self.changed.get(cell, close_of(cell[1], cell[0])) for cell in cells}))


class World:
    """A home with two sources."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.first, self.second = Told("csindex"), Told("tushare")
        self.settings = settings(benchmark=["csindex", "tushare"], industries=["akshare"])

    def bring(self, table: str = TABLE, now: dt.datetime = NOW, **options: Any) -> Brought:
        made = {"csindex": self.first, "akshare": self.first, "tushare": self.second}
        sessions = options.pop("sessions", SESSIONS)

        def build(name: str, _: Settings) -> Told:
            return made[name]

        return bring(self.settings, self.home, table, sessions, now, build=build, **options)

    @property
    def landing(self) -> Landing:
        return Landing(self.home / "landing")

    def close(self, day: dt.date, code: str = BENCHMARK, landing: Landing | None = None) -> float:
        frame = (landing or self.landing).read_bars(TABLE if code == BENCHMARK else "industry_bars", day.isoformat())
        return float(frame.set_index("code").loc[code, "close"])


def settings(**market: Any) -> Settings:
    return load_settings(overrides={"market": {"recheck_sessions": 2, **market}})


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


# Which sessions are asked for


@pytest.mark.parametrize(("time", "last"), [("15:29", "2025-01-17"), ("15:30", "2025-01-20"), ("23:59", "2025-01-20")])
def test_a_session_is_settled_half_an_hour_after_its_close(time: str, last: str) -> None:
    now = dt.datetime.fromisoformat(f"2025-01-20 {time}").replace(tzinfo=SHANGHAI)
    assert settled_sessions(SESSIONS, now)[-1].isoformat() == last
    assert settled_sessions(SESSIONS, now.astimezone(dt.UTC))[-1].isoformat() == last


def test_what_lacks_bars_is_asked_for_and_the_newest_again() -> None:
    have = set(SESSIONS) - {SESSIONS[3]}
    newest = SESSIONS[-2:]
    assert sessions_to_ask(SESSIONS, have, newest, False) == (SESSIONS[3], *newest)
    assert sessions_to_ask(SESSIONS[:5], have, newest, False) == (SESSIONS[3],)
    assert sessions_to_ask(SESSIONS, have, newest, True) == SESSIONS


def test_sessions_far_apart_are_asked_for_apart() -> None:
    year = sessions_between(dt.date(2024, 1, 2), dt.date(2024, 12, 31))
    assert spans((year[0], year[15], year[100], year[101])) == (Span(year[0], year[15]), Span(year[100], year[101]))
    assert spans(()) == ()


def test_the_first_time_all_is_asked_for_and_then_only_the_newest(world: World) -> None:
    assert world.bring().landed.added == len(SESSIONS)
    again = world.bring()
    assert [span for _, span in world.first.asked] == [Span(SESSIONS[0], SESSIONS[-1]), Span(*SESSIONS[-2:])]
    assert (again.landed.added, again.landed.updated) == (0, 0)
    assert again.document["missing_closes"] == 0


def test_an_old_session_with_bars_is_not_asked_for_again(world: World) -> None:
    world.bring()
    world.first.asked.clear()
    world.bring(sessions=SESSIONS[:3])
    assert world.first.asked == []
    world.settings = settings(benchmark=["csindex"], recheck_sessions=0)
    world.bring()
    assert world.first.asked == []


def test_a_session_with_one_index_missing_is_asked_for_again(world: World) -> None:
    hole = (SESSIONS[2], "801193"[:3] + "010")
    world.first.absent = {hole}
    brought = world.bring("industry_bars")
    assert brought.absent == {SESSIONS[2]: (hole[1],)}
    assert f"1 closes missing in 1 sessions, first {SESSIONS[2]} {hole[1]}" in brought.warnings[-1]
    world.first.absent = set()
    world.bring("industry_bars")
    assert world.first.asked[-1][1].first == SESSIONS[2]
    assert world.bring("industry_bars").absent == {}


def test_a_session_that_is_not_over_is_not_asked_for(world: World) -> None:
    world.bring(now=dt.datetime(2025, 1, 20, 14, 0, tzinfo=SHANGHAI))
    assert world.first.asked == [(TABLE, Span(SESSIONS[0], SESSIONS[-2]))]


def test_a_process_that_is_writing_is_waited_for(world: World) -> None:
    held, free = threading.Event(), threading.Event()

    def write() -> None:
        with Landing(world.home / "landing").importing():
            held.set()
            free.wait(5)

    writer = threading.Thread(target=write)
    writer.start()
    held.wait(5)
    threading.Timer(0.2, free.set).start()
    with pytest.raises(LandingLockedError):
        world.landing.merge_bars(TABLE, bars({(SESSIONS[0], BENCHMARK): 1.0}))
    assert world.bring().landed.added == len(SESSIONS)
    writer.join()


# Order of preference


def test_the_first_source_lands_and_the_second_is_kept_beside(world: World) -> None:
    world.second.changed = {(SESSIONS[1], BENCHMARK): 9999.0}
    brought = world.bring()
    assert world.close(SESSIONS[1]) == close_of(BENCHMARK, SESSIONS[1])
    assert world.close(SESSIONS[1], landing=second_store(world.home, "tushare")) == 9999.0
    assert [asked.landed.added for asked in brought.sources] == [len(SESSIONS), 0]


def test_what_the_first_lacks_lands_from_the_second(world: World) -> None:
    world.first.absent = {(SESSIONS[1], BENCHMARK)}
    brought = world.bring()
    assert [asked.landed.added for asked in brought.sources] == [len(SESSIONS) - 1, 1]
    assert world.close(SESSIONS[1]) == close_of(BENCHMARK, SESSIONS[1])
    assert brought.absent == {}


def test_a_broken_source_is_told_and_stops_no_other(world: World) -> None:
    world.first.error = "csindex: failed 4 times"
    brought = world.bring()
    assert brought.broken == ("csindex: failed 4 times",)
    assert brought.landed.added == len(SESSIONS)
    assert brought.document["sources"][0]["error"] == "csindex: failed 4 times"


def test_what_landed_before_a_source_broke_stays(world: World) -> None:
    world.bring(sessions=SESSIONS[:3])
    world.first.error = world.second.error = "down"
    brought = world.bring()
    assert set(brought.absent) == set(SESSIONS[3:])
    assert world.landing.bars_sessions(TABLE) == [day.isoformat() for day in SESSIONS[:3]]


def test_what_a_second_source_gave_before_it_broke_lands_too(world: World) -> None:
    """Sessions far apart are asked for in two spans; it breaks in the second one."""
    far = sessions_between(dt.date(2024, 3, 1), dt.date(2024, 3, 8))
    world.first.error = "csindex: down"

    class Breaking(Told):
        def bars(self, table: str, codes: Sequence[str], span: Span, now: dt.datetime) -> Fetched:
            self.error = "tushare: down" if self.asked else ""
            return super().bars(table, codes, span, now)

    world.second = Breaking("tushare")
    brought = world.bring(sessions=(*far, *SESSIONS))
    assert brought.broken == ("csindex: down", "tushare: down")
    assert brought.landed.added == len(far)
    assert world.landing.bars_sessions(TABLE) == [day.isoformat() for day in far]


def test_a_source_named_for_once_lands_unless_it_is_a_second_one(world: World) -> None:
    world.bring(sources=("tushare",))
    assert world.first.asked == []
    world.bring("industry_bars", sources=("tushare",))
    assert world.second.asked[-1][0] == "industry_bars"
    assert len(world.landing.bars_sessions("industry_bars")) == len(SESSIONS)
    assert not (world.home / "market" / "second" / "tushare" / "industry_bars").exists()


def test_without_a_source_the_setting_is_named(world: World) -> None:
    world.settings = settings()
    with pytest.raises(InputError, match=r"benchmark of \[market\]"):
        world.bring()


def test_sessions_outside_the_kept_ones_are_refused() -> None:
    with pytest.raises(InputError, match=r"sessions 2024-01-02\.\.2024-01-05: none lies in"):
        spanned(settings(), dt.date(2024, 1, 2), dt.date(2024, 1, 5))
    assert spanned(settings(), dt.date(2025, 1, 4), dt.date(2025, 1, 6)) == (dt.date(2025, 1, 6),)


# Trading days


class Calendar(Told):
    days: frozenset[dt.date] = frozenset(SESSIONS)

    def trading_days(self, first: dt.date, last: dt.date) -> frozenset[dt.date]:
        if self.error:
            raise SourceError(self.error)
        return self.days


def test_other_trading_days_end_it_before_anything_lands(world: World) -> None:
    world.first = Calendar("csindex")
    world.first.days = frozenset({*SESSIONS, dt.date(2025, 1, 18)})
    with pytest.raises(CalendarError, match="only csindex has 2025-01-18"):
        world.bring()
    assert world.landing.bars_sessions(TABLE) == []


# Revisions


def test_a_revised_close_lands_is_told_and_is_logged(world: World) -> None:
    world.bring()
    last, old = SESSIONS[-1], close_of(BENCHMARK, SESSIONS[-1])
    world.first.changed = {(last, BENCHMARK): 2000.0}
    brought = world.bring()
    assert world.close(last) == 2000.0
    assert f"1 closes revised, first {BENCHMARK} {last} close {old:.12g} -> 2000" in brought.warnings[0]
    (entry,) = Revisions(world.home).closes(TABLE)
    assert (entry.session, entry.before, entry.after, entry.source) == (f"{last}", old, 2000.0, "csindex")
    assert entry.seen_at == "2025-01-20T18:00:00+08:00"
    assert Revisions(world.home).closes("industry_bars") == []


def test_a_revision_further_back_is_found_when_all_is_asked_again(world: World) -> None:
    world.bring()
    world.first.changed = {(SESSIONS[0], BENCHMARK): 2000.0}
    assert world.bring().landed.revised_closes == ()
    assert [revision.session for revision in world.bring(again=True).landed.revised_closes] == [f"{SESSIONS[0]}"]


def test_a_second_source_revises_nothing_that_landed(world: World) -> None:
    world.bring()
    world.second.changed = {(SESSIONS[-1], BENCHMARK): 2000.0}
    assert world.bring().landed.revised_closes == ()
    assert Revisions(world.home).entries() == []


def revision(before: float, after: float) -> Revision:
    return Revision("2025-01-02", BENCHMARK, "close", before, after)


def test_a_revision_said_again_is_logged_once_and_one_back_and_forth_each_time(tmp_path: Path) -> None:
    """A process that died between the log and the bar says it again."""
    log = Revisions(tmp_path)
    tell = log.teller(TABLE, "csindex", NOW)
    for before, after in ((1, 2), (1, 2), (2, 1), (1, 2)):
        tell([revision(before, after)])
    assert [(entry.before, entry.after) for entry in log.entries()] == [(1, 2), (2, 1), (1, 2)]


def test_a_line_that_a_dying_process_left_unfinished_is_none(tmp_path: Path) -> None:
    log = Revisions(tmp_path)
    log.teller(TABLE, "csindex", NOW)([revision(1, 2)])
    whole = log.path.read_bytes()
    log.path.write_bytes(whole + whole[:20])
    assert len(log.entries()) == 1
    log.teller(TABLE, "csindex", NOW)([revision(2, 3)])
    assert [json.loads(line)["after"] for line in log.path.read_text().splitlines()] == [2, 3]
    for nonsense in (b"nonsense\n", b"\xff\xfe\n"):
        log.path.write_bytes(nonsense)
        with pytest.raises(TableError, match="cannot be read"):
            log.entries()


def test_a_revision_is_logged_before_its_bar_is_written(tmp_path: Path) -> None:
    landing, day = Landing(tmp_path), SESSIONS[0]
    landing.merge_bars(TABLE, bars({(day, BENCHMARK): 100.0}))
    seen: list[tuple[int, float]] = []

    def tell(revisions: Sequence[Revision]) -> None:
        stored = landing.read_bars(TABLE, day.isoformat())["close"].iloc[0]
        seen.append((sum(r.column == "close" for r in revisions), stored))

    landing.merge_bars(TABLE, bars({(day, BENCHMARK): 101.0}), tell)
    assert seen == [(1, 100.0)]


# Agreement of two sources


def test_two_sources_are_compared_close_by_close() -> None:
    one = bars({(SESSIONS[0], CODES[0]): 100.0, (SESSIONS[0], CODES[1]): 200.0, (SESSIONS[1], CODES[0]): 100.0})
    other = bars({(SESSIONS[0], CODES[0]): 100.0, (SESSIONS[0], CODES[1]): 201.0, (SESSIONS[2], CODES[0]): 5.0})
    found = agreement(one, other, 1e-4)
    assert (found.compared, found.only_first, found.only_second) == (2, 1, 1)
    assert found.largest == pytest.approx(0.005)
    assert found.beyond == (f"{CODES[1]} {SESSIONS[0]}",)
    assert found.where == found.beyond[0]


def test_rounding_is_no_difference_and_nothing_compared_is_no_number() -> None:
    one, other = bars({(SESSIONS[0], BENCHMARK): 6130.051}), bars({(SESSIONS[0], BENCHMARK): 6130.05})
    assert agreement(one, other, 1e-4).beyond == ()
    nothing = agreement(one, bars({(SESSIONS[1], BENCHMARK): 1.0}), 1e-4)
    assert nothing.compared == 0
    assert nothing.largest != nothing.largest
