"""`finevolve fetch market` and `finevolve fetch news`, as people and programs meet them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "resources"))

from service_world import ERROR_500, TOKEN, Asked, CsIndexSite, FakeTime, Reply, TushareService, serving

from finevolve_pipeline.cli import main
from resources.landing import Landing, registered_sources
from resources.market import sources
from resources.market.csindex import CsIndex

SETTINGS = """\
[market]
industries = ["tushare"]
benchmark = ["csindex", "tushare"]
recheck_sessions = 1
[tushare]
base_url = "{url}"
requests_per_minute = 100000
attempts = 1
"""
WEEK = ["--from", "2025-01-06", "--to", "2025-01-10"]


class World:
    """A home, its services, and the command line on them."""

    def __init__(self, home: Path, tushare: TushareService, csindex: CsIndexSite) -> None:
        self.home, self.tushare, self.csindex = home, tushare, csindex

    @property
    def landing(self) -> Landing:
        return Landing(self.home / "landing")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    tushare, csindex = TushareService(), CsIndexSite()
    with serving(tushare), serving(csindex) as url:
        monkeypatch.setitem(sources.SOURCES, "csindex", lambda settings: CsIndex(FakeTime().politeness(1), url))
        (tmp_path / "finevolve.toml").write_text(SETTINGS.format(url=tushare.url))
        monkeypatch.setenv("TUSHARE_TOKEN", TOKEN)
        monkeypatch.setenv("FINEVOLVE_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("FINEVOLVE_CONFIG", str(tmp_path / "finevolve.toml"))
        yield World(tmp_path / "home", tushare, csindex)


Output = tuple[int, str, str]


def finevolve(capfd: pytest.CaptureFixture[str], *arguments: str) -> Output:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    out, err = capfd.readouterr()
    assert TOKEN not in out + err
    return int(ended.value.code or 0), out, err


def document(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code, out, _ = finevolve(capfd, *arguments, "--json")
    return code, json.loads(out)


def counts(table: dict[str, Any]) -> Sequence[tuple[str, int, int]]:
    return [(one["source"], one["sessions_asked"], one["added"]) for one in table["sources"]]


def test_bars_land_and_are_not_asked_for_twice(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    code, found = document(capfd, "fetch", "market", *WEEK)
    assert (code, found["errors"]) == (0, [])
    assert [table["table"] for table in found["tables"]] == ["industry_bars", "benchmark_bars"]
    assert counts(found["tables"][0]) == [("tushare", 5, 155)]
    assert counts(found["tables"][1]) == [("csindex", 5, 5), ("tushare", 5, 0)]
    assert world.landing.bars_sessions("benchmark_bars")[0] == "2025-01-06"

    _, again = document(capfd, "fetch", "market", *WEEK)
    assert [counts(table) for table in again["tables"]] == [[("tushare", 0, 0)], [("csindex", 0, 0), ("tushare", 0, 0)]]


def test_people_read_what_landed(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = finevolve(capfd, "fetch", "market", *WEEK, "--source", "csindex")
    assert (code, err) == (0, "")
    assert out == ("benchmark_bars from csindex: 5 sessions asked for; 5 bars landed, 0 updated, 0 already known\n")


def test_a_revised_close_is_told(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    finevolve(capfd, "fetch", "market", *WEEK)
    world.tushare.revised = {("801010", "2025-01-07"): 1234.5}
    code, _, err = finevolve(capfd, "fetch", "market", *WEEK, "--again")
    assert code == 0
    assert "warning: industry_bars: 1 closes revised, first 801010 2025-01-07 close 1019 -> 1234.5" in err


def test_a_broken_source_ends_with_1_and_the_others_land(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    world.tushare.first(10_000, ERROR_500)
    code, found = document(capfd, "fetch", "market", *WEEK)
    assert code == 1
    assert all("tushare: failed once, at last: status 500" in error for error in found["errors"])
    assert counts(found["tables"][1])[0] == ("csindex", 5, 5)
    assert found["tables"][0]["missing_sessions"] == [f"2025-01-{day:02}" for day in range(6, 11)]


def test_other_trading_days_end_with_2_and_name_them(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    world.tushare.days = lambda days: days[:2] + days[3:]
    code, out, err = finevolve(capfd, "fetch", "market", *WEEK)
    assert (code, out) == (2, "")
    assert "only ours has 2025-01-08" in err
    assert world.landing.bars_sessions("industry_bars") == []


def test_without_a_configured_source_the_setting_is_named(
    world: World, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "finevolve.toml").write_text("")
    code, _, err = finevolve(capfd, "fetch", "market")
    assert code == 2
    assert "no source is configured; set industries and benchmark of [market]" in err


def test_a_missing_token_is_wrong_use_and_told_before_anything_is_asked(
    world: World, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TUSHARE_TOKEN")
    for command in (["news", "--source", "tushare"], ["market", *WEEK], ["market", *WEEK, "--source", "tushare"]):
        code, out, err = finevolve(capfd, "fetch", *command)
        assert (code, out) == (2, "")
        assert err == (
            "error: tushare: environment variable TUSHARE_TOKEN with the account's token is not set; "
            "`export TUSHARE_TOKEN=...`\n"
        )
    assert world.csindex.asked == []
    assert finevolve(capfd, "fetch", "market", *WEEK, "--source", "csindex")[0] == 0


def test_news_lands_day_by_day_and_a_finished_day_is_not_asked_again(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    days = [f"2025-01-{day:02}" for day in range(6, 11)]
    world.tushare.news = {"cls": [(f"{day} 09:30:00", "", f"财联社电，{day}的消息。") for day in days]}
    news = ["fetch", "news", "--source", "tushare", "--src", "cls", *WEEK]
    code, found = document(capfd, *news)
    assert code == 0
    assert [found["sources"][0][name] for name in ("source", "days_asked", "rows", "added")] == ["cls", 5, 5, 5]
    assert [day for _, day in world.landing.news_partitions()] == days
    code, out, err = finevolve(capfd, *news)
    assert (code, err) == (0, "")
    assert out == ("cls: 0 days asked for, 5 finished before; 0 items landed, 0 updated, 0 already known, 0 rejected\n")


def test_all_nine_sources_are_asked_and_a_silent_one_is_told(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = finevolve(capfd, "fetch", "news", "--source", "tushare", *WEEK)
    assert code == 0
    assert len(world.tushare.calls("news")) == 45
    assert err.count("the feed has stopped, or the service is behind") == 9


def test_a_source_that_the_settings_do_not_name_becomes_one_of_the_graph(
    world: World, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "finevolve.toml"
    config.write_text('[news]\nsources = ["cls"]\n' + config.read_text())
    finevolve(capfd, "fetch", "news", "--source", "tushare", "--src", "yicai", *WEEK)
    assert list(registered_sources(world.home)) == ["yicai"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["news", "--source", "tushare", "--from", "2025-01-10", "--to", "2025-01-06"], "exchange --from and --to"),
        (["news", "--source", "tushare", "--src", "reuters"], "'reuters' is not one of"),
        (["news"], "Missing option '--source'"),
        (["market", "--source", "yahoo"], "'yahoo' is not one of"),
        (["market", "--from", "2019-01-01", "--to", "2019-02-01"], "choose other days"),
        (["market", "--from", "2025-02-30"], "not a calendar day"),
    ],
)
def test_wrong_use_ends_with_2(
    world: World, capfd: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    code, _, err = finevolve(capfd, "fetch", *arguments)
    assert code == 2
    assert told in " ".join(err.split())


def test_an_error_in_one_table_does_not_hide_what_is_told_of_the_table_before(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    renamed(world, close="closing_price")
    plan = world.tushare.plan

    def without_calendar_later(asked: Asked) -> Reply | None:
        if asked.body["api_name"] == "trade_cal" and asked.number > 0:
            world.tushare.days = lambda days: days[:2] + days[3:]
            return world.tushare.answer(asked)
        return plan(asked)

    world.tushare.plan = without_calendar_later
    code, _, err = finevolve(capfd, "fetch", "market", *WEEK)
    assert code == 2
    assert "only ours has 2025-01-08" in err
    assert "warning: industry_bars: " in err
    assert "error: industry_bars: rows of tushare could not be used" in err


NEWS = ["fetch", "news", "--source", "tushare", "--src", "cls", *WEEK]


def renamed(world: World, **names: str) -> None:
    """The service has other names for its columns from now on."""

    def plan(asked: Asked) -> Reply:
        answer: Any = world.tushare.answer(asked).body
        fields = answer["data"]["fields"]
        answer["data"]["fields"] = [names.get(name, name) for name in fields]
        return Reply(answer)

    world.tushare.plan = plan


def test_days_of_which_rows_cannot_be_used_fail_and_are_asked_again_by_the_same_command(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    days = [f"2025-01-{day:02}" for day in range(6, 11)]
    world.tushare.news = {"cls": [(f"{day} 09:30:00", "", f"财联社电，{day}的消息。") for day in days]}
    renamed(world, datetime="pub_time")
    code, _, err = finevolve(capfd, *NEWS)
    assert code == 1
    assert "error: cls: rows of 5 days cannot be had or used, first 2025-01-06; such days stay unfinished" in err
    code, found = document(capfd, *NEWS)
    assert (code, found["sources"][0]["days_unfinished"], len(found["errors"])) == (1, days, 1)

    renamed(world)
    code, found = document(capfd, *NEWS)
    assert (code, found["errors"], found["sources"][0]["days_unfinished"]) == (0, [], [])
    assert (found["sources"][0]["days_asked"], found["sources"][0]["added"]) == (5, 5)


def test_one_row_that_cannot_be_used_leaves_its_day_alone_unfinished(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    good = [(f"2025-01-{day:02} 09:30:00", "", f"{day}日的消息。") for day in range(6, 11)]
    world.tushare.news = {"cls": [*good, ("2025-01-07 10:00:00", "", "")]}
    code, found = document(capfd, *NEWS)
    assert (code, found["sources"][0]["added"], found["sources"][0]["days_unfinished"]) == (1, 5, ["2025-01-07"])
    assert document(capfd, *NEWS)[1]["sources"][0]["days_asked"] == 1


def test_more_rows_in_a_second_than_a_call_gives_are_a_failure(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    world.tushare.news = {"cls": [("2025-01-07 10:00:00", "", f"同秒{n}。") for n in range(1500)]}
    code, _, err = finevolve(capfd, *NEWS)
    assert code == 1
    assert "so some cannot be had; import that day from a file" in err
    assert "error: cls: rows of 1 day cannot be had or used, first 2025-01-07" in err


def test_bars_of_which_no_row_can_be_used_are_a_failure(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    renamed(world, close="closing_price")
    code, found = document(capfd, "fetch", "market", *WEEK, "--source", "tushare")
    assert code == 1
    assert found["errors"][0] == (
        "industry_bars: rows of tushare could not be used and no other source has them: 155 closes lack, "
        "first 801010 2025-01-06"
    )


def test_rows_that_another_source_fills_in_are_no_failure(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    renamed(world, close="closing_price")
    code, found = document(capfd, "fetch", "market", *WEEK)
    assert (code, [error.split(":")[0] for error in found["errors"]]) == (1, ["industry_bars"])
    assert any("rows cannot be used" in problem for problem in found["tables"][1]["sources"][1]["problems"])


def test_an_empty_calendar_is_a_broken_service(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    world.tushare.days = lambda days: []
    code, _, err = finevolve(capfd, "fetch", "market", *WEEK)
    assert code == 1
    assert "error: tushare: its calendar of trading days is empty; ask again, or leave the source out" in err
    assert len(world.landing.bars_sessions("benchmark_bars")) == 5
