"""`finevolve fetch market` and `finevolve fetch news`, as people and programs meet them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "resources"))

from service_world import ERROR_500, TOKEN, CsIndexSite, FakeTime, TushareService, serving

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


def test_a_missing_token_names_its_variable(
    world: World, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TUSHARE_TOKEN")
    code, _, err = finevolve(capfd, "fetch", "news", "--source", "tushare")
    assert code == 1
    assert "error: tushare: environment variable TUSHARE_TOKEN with the account's token is not set" in err
    assert finevolve(capfd, "fetch", "market", *WEEK)[0] == 1
    assert world.landing.bars_sessions("benchmark_bars") != []


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
