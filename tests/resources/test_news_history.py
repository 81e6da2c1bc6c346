"""The history of news from tushare: every row lands once, a finished day is not asked again, silence is told."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from service_world import ERROR_500, TOKEN, Asked, FakeTime, Reply, TushareService, serving

from finevolve_pipeline.calendar import SHANGHAI, days_between
from finevolve_pipeline.errors import TableError
from finevolve_pipeline.settings import load_settings
from resources.history import SourceReport, fetch_news, silences
from resources.landing import Landing
from resources.market.tushare import Tushare

DAYS = days_between(dt.date(2025, 1, 6), dt.date(2025, 1, 9))
NOW = dt.datetime(2025, 1, 20, 9, 0, tzinfo=SHANGHAI)


class World:
    def __init__(self, home: Path, service: TushareService) -> None:
        self.home, self.service = home, service
        self.now: Callable[[], dt.datetime] = lambda: NOW

    def fetch(self, *sources: str, days: Any = DAYS, **options: Any) -> list[SourceReport]:
        settings = load_settings(overrides={"tushare": {"base_url": self.service.url}}).tushare
        client = Tushare(settings, FakeTime().politeness(), self.service.rows_a_call)
        return fetch_news(client, self.home, sources or ("cls",), days, self.now, **options)

    def landed(self, source: str, day: str) -> list[tuple[str, str]]:
        frame = Landing(self.home / "landing").read_news(source, day)
        times = frame["published_at"].dt.strftime("%H:%M:%S")
        return list(zip(times, frame["content"], strict=True))

    @property
    def asked_days(self) -> list[str]:
        """Days whose windows were asked for, each once, in order."""
        middles = [dt.datetime.fromisoformat(call["end_date"]) for call in self.service.calls("news")]
        return list(dict.fromkeys(f"{middle - dt.timedelta(seconds=2):%Y-%m-%d}" for middle in middles))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("TUSHARE_TOKEN", TOKEN)
    service = TushareService()
    service.news = {
        "cls": [(f"{day} {hour:02}:00:00", "", f"财联社电，{day}第{hour}条。") for day in DAYS for hour in range(24)],
        "sina": [(f"{day} 12:00:00", "标题", f"新浪{day}") for day in DAYS],
    }
    with serving(service):
        yield World(tmp_path, service)


def test_rows_land_with_their_origin_time_and_a_digest_as_id(world: World) -> None:
    (report,) = world.fetch("sina")
    assert (report.asked, report.rows, report.news.added, report.error) == (4, 4, 4, "")
    row = Landing(world.home / "landing").read_news("sina", "2025-01-06").iloc[0]
    assert row["published_at"].isoformat() == "2025-01-06T12:00:00+08:00"
    assert (row["origin"], row["title"], row["content"]) == ("tushare", "标题", "新浪2025-01-06")
    assert row["crawled_at"].isoformat() == NOW.isoformat()
    assert len(row["source_id"]) >= 32


def test_a_day_with_more_rows_than_a_call_gives_is_whole(world: World) -> None:
    world.service.rows_a_call = 7
    (report,) = world.fetch()
    assert report.news.added == 96
    assert [len(world.landed("cls", day.isoformat())) for day in DAYS] == [24] * 4


def test_a_finished_day_is_not_asked_again_unless_told(world: World) -> None:
    world.fetch(days=DAYS[:2])
    world.service.asked.clear()
    (report,) = world.fetch()
    assert (report.asked, report.finished) == (2, 2)
    assert world.asked_days == ["2025-01-08", "2025-01-09"]
    (report,) = world.fetch(again=True)
    assert (report.asked, report.finished, report.news.added, report.news.known) == (4, 0, 0, 96)


def test_the_same_again_changes_no_byte_of_the_landing_store(world: World) -> None:
    world.fetch()
    before = {path: path.read_bytes() for path in (world.home / "landing").rglob("*.parquet")}
    world.now = lambda: NOW + dt.timedelta(hours=5)
    world.fetch(again=True)
    assert {path: path.read_bytes() for path in (world.home / "landing").rglob("*.parquet")} == before


def test_today_and_a_day_that_ended_just_now_stay_open(world: World) -> None:
    world.now = lambda: dt.datetime(2025, 1, 9, 1, 30, tzinfo=SHANGHAI)
    (report,) = world.fetch(days=days_between(DAYS[0], dt.date(2025, 1, 12)))
    assert report.asked == 4
    world.service.asked.clear()
    world.fetch()
    assert world.asked_days == ["2025-01-08", "2025-01-09"]


def test_a_day_without_a_row_stays_open(world: World) -> None:
    world.service.news["cls"] = [row for row in world.service.news["cls"] if not row[0].startswith("2025-01-07")]
    world.fetch()
    world.service.asked.clear()
    world.fetch()
    assert world.asked_days == ["2025-01-07"]


def test_what_came_before_an_error_is_kept_and_the_next_fetch_goes_on_there(world: World) -> None:
    world.service.plan = lambda asked: ERROR_500 if asked.number >= 2 else None
    (report,) = world.fetch()
    assert (report.asked, report.news.added) == (2, 48)
    assert "failed 3 times, at last: status 500" in report.error
    world.service.plan = lambda asked: None
    world.service.asked.clear()
    world.fetch()
    assert world.asked_days == ["2025-01-08", "2025-01-09"]


def test_stopping_it_keeps_what_came(world: World) -> None:
    def progress(source: str, done: int, wanted: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.fetch(progress=progress)
    world.service.asked.clear()
    world.fetch()
    assert world.asked_days == ["2025-01-09"]


def test_a_source_that_fails_stops_no_other(world: World) -> None:
    refusal = TushareService.refusal(50101, "系统内部错误")
    world.service.plan = lambda asked: refusal if asked.body["params"]["src"] == "cls" else None
    first, second = world.fetch("cls", "sina")
    assert "系统内部错误" in first.error
    assert (second.error, second.news.added) == ("", 4)


def test_a_second_with_too_many_rows_leaves_its_day_open_and_is_told(world: World) -> None:
    world.service.rows_a_call = 30
    world.service.news["cls"] += [("2025-01-07 10:00:00", "", f"同秒{n}") for n in range(40)]
    (report,) = world.fetch()
    assert "2025-01-07: tushare: cls has 30 rows or more" in report.problems[0]
    assert (report.asked, report.unfinished) == (4, ["2025-01-07"])
    # What came of that second has landed, and every row of the other hours.
    landed = [time for time, _ in world.landed("cls", "2025-01-07")]
    assert {f"{hour:02}:00:00" for hour in range(24)} == set(landed)
    assert len(landed) > 24
    finished = json.loads((world.home / "fetched/tushare_news/cls.json").read_text())
    assert finished == {"2025-01-06": 24, "2025-01-08": 24, "2025-01-09": 24}


def test_crowded_days_are_no_silence(world: World) -> None:
    world.service.rows_a_call = 30
    world.service.news["cls"] = [(f"{day} 10:00:00", "", f"同秒{n}") for day in DAYS for n in range(30)]
    (report,) = world.fetch()
    assert report.unfinished == [day.isoformat() for day in DAYS]
    assert not any("nothing from" in problem for problem in report.problems)


def test_bad_rows_are_told_and_the_others_land(world: World) -> None:
    def plan(asked: Asked) -> Reply | None:
        if asked.number:
            return None
        items = [["2025-01-06 12:00:00", "标题", "新浪"], ["2025-01-06 13:00:00", None, ""], ["2025-13-06", "", "x"]]
        return Reply({"code": 0, "msg": "", "data": {"fields": ["datetime", "title", "content"], "items": items}})

    world.service.plan = plan
    (report,) = world.fetch("sina", days=DAYS[:1])
    assert (report.news.added, report.rejected) == (1, 2)
    assert "2 rows cannot be used, neither title nor content; publication time '2025-13-06'" in report.problems[0]


def test_a_feed_that_has_stopped_is_told(world: World) -> None:
    (report,) = world.fetch("sina", days=days_between(DAYS[0], dt.date(2025, 1, 19)))
    assert report.problems == [
        "sina: nothing from 2025-01-10 to 2025-01-19 (10 days): the feed has stopped, or the service is behind"
    ]


def test_a_hole_is_told_and_a_short_silence_is_none() -> None:
    days = days_between(dt.date(2025, 1, 1), dt.date(2025, 1, 10))
    rows = {day.isoformat(): 5 for day in (days[0], days[6], days[9])}
    assert silences(days, rows, "cls") == [
        "cls: nothing from 2025-01-02 to 2025-01-06 (5 days): a hole in the service's history"
    ]


@pytest.mark.parametrize("text", ["{", "[]", "null", '{"2025-01-06": "many"}'])
def test_a_memory_that_cannot_be_read_is_told(world: World, text: str) -> None:
    path = world.home / "fetched" / "tushare_news" / "cls.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(TableError, match=r"cls\.json: cannot be read"):
        world.fetch()
