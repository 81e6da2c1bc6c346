"""`finevolve crawl`, `coverage` and `doctor --sources`, and raw_news of Dagster, against the local nine sites."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner, Result
from local_crawls import HANDLER, NOW

from finevolve_pipeline.cli.crawl import coverage_command, crawl_command
from finevolve_pipeline.cli.imports import import_group
from finevolve_pipeline.cli.inspect import doctor_command
from finevolve_pipeline.definitions import build_defs
from finevolve_pipeline.partitions import DATE, SOURCE
from finevolve_pipeline.settings import load_settings
from resources.coverage_store import CoverageStore, CrawlLockedError
from resources.table_store import TableStore
from tests.sites.process import REPOSITORY, Running, running

TODAY = NOW.date()
YESTERDAY = TODAY - dt.timedelta(days=1)

SETTINGS = """\
[news]
last_day = {last_day}
sources = ["cls", "sina"]
[crawl]
enabled = true
delay_seconds = 0
autothrottle = false
attempts = 2
back_off_seconds = 0.01
[crawl.scrapy]
SITES_AT = "{at}"
DOWNLOAD_HANDLERS = {{ http = "{handler}", https = "{handler}" }}
"""

Command = Callable[..., Result]


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running("--days", "6", "--seed", "3", "--now", NOW.isoformat()) as sites:
        yield sites


@pytest.fixture
def sites(server: Running, home: Path, monkeypatch: pytest.MonkeyPatch) -> Running:
    server.order(clear=True, forget=True)
    monkeypatch.setattr("finevolve_pipeline.cli.crawl.present", lambda: NOW)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    text = SETTINGS.format(last_day=TODAY, at=server.at, handler=HANDLER)
    Path("finevolve.toml").write_text(text, "utf-8")
    return server


@pytest.fixture
def run() -> Command:
    runner = CliRunner()

    def command(which: dg.Definitions, *arguments: str) -> Result:
        return runner.invoke(which, list(arguments))  # type: ignore[arg-type]

    return command


def test_a_crawl_by_command_brings_days_and_coverage_tells_of_them(sites: Running, home: Path, run: Command) -> None:
    told = run(crawl_command, "--from", YESTERDAY.isoformat(), "--json")
    assert told.exit_code == 0, told.output
    document = {one["source"]: one for one in json.loads(told.stdout)["sources"]}
    for source in ("cls", "sina"):
        one = document[source]
        assert (one["state"], one["asked"], one["complete"], one["open"], one["partial"]) == ("ok", 2, 1, 1, 0)
        assert one["articles"]["added"] == sum(
            TableStore(home).landing.news_counts()[source, day.isoformat()] for day in (YESTERDAY, TODAY)
        )

    shown = json.loads(run(coverage_command, "--json").stdout)["sources"]
    assert {day: known["state"] for day, known in shown["cls"]["days"].items()} == {
        YESTERDAY.isoformat(): "complete",
        TODAY.isoformat(): "open",
    }
    table = run(coverage_command).stdout
    assert YESTERDAY.isoformat() in table
    assert "partial days" not in table


def test_case_01_a_broken_source_fails_for_itself_alone(sites: Running, home: Path, run: Command) -> None:
    sites.order(faults=[{"kind": "404", "host": "www.cls.cn"}])
    told = run(crawl_command, "--from", YESTERDAY.isoformat(), "--json")
    assert told.exit_code == 1
    document = {one["source"]: one for one in json.loads(told.stdout)["sources"]}
    assert (document["sina"]["exit_code"], document["sina"]["complete"]) == (0, 1)
    assert (document["cls"]["exit_code"], document["cls"]["state"]) == (1, "fetch_error")
    assert document["cls"]["reason"] == "telegraph: https://www.cls.cn/v1/roll/get_roll_list: HTTP 404"
    partial = run(coverage_command, "--partial").stdout
    assert partial.count("HTTP 404") == 2


def test_case_09_days_behind_a_stale_list_are_not_complete_and_are_asked_for_again(
    sites: Running, home: Path, run: Command
) -> None:
    first = (TODAY - dt.timedelta(days=4)).isoformat()
    sites.order(faults=[{"kind": "stale", "host": "www.cls.cn", "seconds": 2 * 86_400}])
    told = run(crawl_command, "--source", "cls", "--from", first, "--json")
    assert told.exit_code == 1
    assert json.loads(told.stdout)["sources"][0]["partial"] == 2
    days = json.loads(run(coverage_command, "--json").stdout)["sources"]["cls"]["days"]
    assert "may stand still" in days[YESTERDAY.isoformat()]["reason"]

    sites.order(clear=True)
    mended = json.loads(run(crawl_command, "--source", "cls", "--from", first, "--json").stdout)["sources"][0]
    assert (mended["asked"], mended["partial"], mended["complete"]) == (3, 0, 2)


def test_a_list_that_gives_only_its_newest_rows_proves_no_day(sites: Running, home: Path, run: Command) -> None:
    with Path("finevolve.toml").open("a", encoding="utf-8") as settings:
        settings.write('[crawl.sources]\ncls = { channels = ["newest"] }\n')
    told = run(crawl_command, "--source", "cls", "--from", (TODAY - dt.timedelta(days=4)).isoformat(), "--json")
    assert told.exit_code == 1
    one = json.loads(told.stdout)["sources"][0]
    assert one["articles"]["added"] > 0
    assert one["complete"] == 0
    reasons = json.loads(run(coverage_command, "--json").stdout)["sources"]["cls"]["days"]
    assert "serves nothing older" in reasons[(TODAY - dt.timedelta(days=4)).isoformat()]["reason"]


def test_days_before_the_lists_reach_say_nothing_of_it(sites: Running, home: Path, run: Command) -> None:
    told = run(crawl_command, "--source", "cls", "--from", "1990-01-01", "--to", "1990-01-02", "--json")
    assert told.exit_code == 1
    one = json.loads(told.stdout)["sources"][0]
    assert (one["state"], one["reason"]) == (
        "empty",
        "telegraph: the list has no rows before 1990-01-03T00:00:00+08:00",
    )
    assert json.loads(run(coverage_command, "--json").stdout)["sources"]["cls"]["earliest"] is None


def test_a_second_crawl_of_a_source_is_refused_while_one_is_under_way(sites: Running, home: Path, run: Command) -> None:
    with CoverageStore(home).crawling("cls"), CoverageStore(home).crawling("sina"):
        told = run(crawl_command, "--from", YESTERDAY.isoformat())
    assert isinstance(told.exception, CrawlLockedError)
    assert told.exception.exit_code == 3
    assert str(told.exception).count("another crawl of it is under way") == 2
    assert "under way" not in told.output
    assert TableStore(home).landing.news_partitions() == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--from", "2026-13-01"], "not a calendar day (use YYYY-MM-DD)"),
        (["--from", "2999-01-01", "--to", "2999-01-02"], "lies in the future"),
        (["--from", "2026-05-03", "--to", "2026-05-01"], "lies after"),
        (["--source", "reuters"], "source 'reuters': not among cls, sina"),
    ],
)
def test_wrong_arguments_are_told_in_a_line(sites: Running, run: Command, arguments: list[str], says: str) -> None:
    told = run(crawl_command, *arguments)
    assert told.exit_code != 0
    assert says in f"{told.output}{told.exception}"


def test_doctor_asks_each_source_once_and_tells_of_its_newest_page(sites: Running, run: Command) -> None:
    told = run(doctor_command, "--sources", "--json")
    assert told.exit_code == 0, told.output
    document = json.loads(told.stdout)
    assert {one["state"] for one in document.values()} == {"ok"}
    assert all(one["newest_age_hours"] < 24 and one["fields"]["content"] == 1.0 for one in document.values())
    asked = [one for one in sites.told()["requests"] if one[3] != "/robots.txt"]
    assert sorted(one[1] for one in asked) == ["www.cls.cn", "zhibo.sina.com.cn"]


def test_doctor_tells_when_a_sites_shape_has_drifted(sites: Running, run: Command) -> None:
    sites.order(faults=[{"kind": "drift", "host": "www.cls.cn", "name": "ctime"}])
    told = run(doctor_command, "--sources", "--json")
    assert told.exit_code == 1
    document = json.loads(told.stdout)
    assert document["sina"]["problem"] == ""
    assert document["cls"]["state"] == "unsupported"
    assert "ctime" in document["cls"]["problem"]


@pytest.mark.parametrize("name", ["content", "modified_time"])
def test_doctor_tells_of_a_field_that_is_gone_though_another_stands_in_for_it(
    name: str, sites: Running, run: Command
) -> None:
    sites.order(faults=[{"kind": "drift", "host": "www.cls.cn", "name": name}])
    told = run(doctor_command, "--sources", "--json")
    assert told.exit_code == 1
    assert f"no row has {name} any more" in json.loads(told.stdout)["cls"]["problem"]


def test_raw_news_asks_the_sites_for_what_it_lacks_and_tells_what_is_known(sites: Running, home: Path) -> None:
    sites.order(faults=[{"kind": "404", "host": "www.cls.cn"}])
    definitions = build_defs(load_settings(), home)
    key = dg.MultiPartitionKey({DATE: YESTERDAY.isoformat(), SOURCE: "sina"})
    broken = dg.MultiPartitionKey({DATE: YESTERDAY.isoformat(), SOURCE: "cls"})
    with dg.DagsterInstance.ephemeral() as instance:
        for one in (key, broken):
            assert (
                definitions.resolve_implicit_global_asset_job_def()
                .execute_in_process(instance=instance, partition_key=one, asset_selection=[dg.AssetKey("raw_news")])
                .success
            )
        events = {
            event.partition_key: event.asset_materialization.metadata
            for event in instance.fetch_materializations(dg.AssetKey("raw_news"), limit=10).records
        }
    assert events[str(key)]["coverage"].value == "complete"
    assert events[str(key)]["dagster/row_count"].value > 5
    assert events[str(broken)]["coverage"].value == "partial"
    assert events[str(broken)]["not_complete"].value.endswith("HTTP 404")
    assert events[str(broken)]["dagster/row_count"].value == 0


def test_nothing_is_asked_where_crawling_is_not_enabled(sites: Running, home: Path) -> None:
    settings = load_settings(overrides={"crawl": {"enabled": False}})
    key = dg.MultiPartitionKey({DATE: YESTERDAY.isoformat(), SOURCE: "sina"})
    with dg.DagsterInstance.ephemeral() as instance:
        assert not (
            build_defs(settings, home)
            .resolve_implicit_global_asset_job_def()
            .execute_in_process(
                instance=instance,
                partition_key=key,
                asset_selection=[dg.AssetKey("raw_news")],
                raise_on_error=False,
            )
            .success
        )
    assert sites.told()["counts"] == {}


def alone(sites: Running, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`scrapy crawl` from the root of the repository, as README tells."""
    handlers = json.dumps({"http": HANDLER, "https": HANDLER})
    options = [("SITES_AT", sites.at), ("DOWNLOAD_HANDLERS", handlers), ("DOWNLOAD_DELAY", "0")]
    options += [("AUTOTHROTTLE_ENABLED", "0"), ("BACK_OFF_SECONDS", "0.01"), ("BACK_OFF_ATTEMPTS", "2")]
    given = [part for name, value in options for part in ("-s", f"{name}={value}")]
    command = [sys.executable, "-m", "scrapy", "crawl", "cls", "-O", str(folder / "cls.jsonl"), *given, *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120)


def test_a_spider_alone_writes_a_file_that_can_be_imported(
    sites: Running, home: Path, tmp_path: Path, run: Command
) -> None:
    told = alone(sites, tmp_path, "-a", f"from={YESTERDAY}", "-a", f"to={YESTERDAY}")
    assert told.returncode == 0, told.stderr
    articles = [json.loads(line) for line in (tmp_path / "cls.jsonl").read_text("utf-8").splitlines()]
    held = sites.truth("cls", start=YESTERDAY.isoformat(), end=YESTERDAY.isoformat())["public"]
    assert {one["source_id"] for one in articles} == {one["id"] for one in held}
    assert run(import_group, "news", str(tmp_path / "cls.jsonl")).exit_code == 0
    assert TableStore(home).landing.news_counts() == {("cls", YESTERDAY.isoformat()): len(articles)}


@pytest.mark.parametrize(
    ("fault", "arguments"),
    [
        ({"kind": "404"}, []),
        ({"kind": "stuck-cursor"}, ["-a", f"from={TODAY - dt.timedelta(days=4)}"]),
        (None, ["-a", "channels=bogus"]),
        (None, ["-a", "from=yesterday"]),
    ],
)
def test_a_spider_alone_ends_with_1_where_not_all_was_read(
    fault: dict[str, str] | None, arguments: list[str], sites: Running, tmp_path: Path
) -> None:
    if fault is not None:
        sites.order(faults=[{"host": "www.cls.cn", **fault}])
    told = alone(sites, tmp_path, "-a", f"from={YESTERDAY}", "-a", f"to={YESTERDAY}", *arguments)
    assert told.returncode == 1, told.stderr
