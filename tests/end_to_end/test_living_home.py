"""A home that follows the present, day after day: some days for every test run, a month with all that goes wrong.

In the end everything is up to date, nothing was made or asked twice, and nobody saw tomorrow.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "resources"))

from living_home import INDUSTRIES, KEYS, MARK, LivingHome, bars_before, living_home, moment

from assets.following import owed
from assets.planning import EVALUATION_LAYERS, INPUT_LAYERS, standing, want
from assets.publishing import report_is_fresh
from finevolve_pipeline.calendar import sessions_between
from finevolve_pipeline.cli import cli
from finevolve_pipeline.universe import BENCHMARK

YEAR = 2025
UNFOLLOWED = "memrl-served"


def day(text: str) -> dt.date:
    """A day of the simulated year, MM-DD."""
    return dt.date.fromisoformat(f"{YEAR}-{text}")


def at(text: str) -> dt.datetime:
    """A time of the simulated year in Shanghai, MM-DD HH:MM."""
    date, time = text.split(" ")
    return moment(day(date), time)


def due_at_the_end(living: LivingHome) -> dict[str, tuple[str, ...]]:
    """Partitions that `finevolve status` does not call fresh, by table."""
    wanted = want(living.graph, living.store, experiments=KEYS)
    found = standing(living.graph, living.store, wanted, (*INPUT_LAYERS, *EVALUATION_LAYERS))
    return {one.table: one.due for one in found if one.due}


def nothing_is_owed_but(living: LivingHome, kept: dict[str, tuple[str, ...]]) -> None:
    """Everything is up to date but for inputs that stay as they were read; the newest of them are named."""
    since = living.now.date() - dt.timedelta(days=living.settings.automation.catch_up_days)
    recent = {table: tuple(key for key in keys if key >= since.isoformat()) for table, keys in kept.items()}
    found = owed(living.graph, living.store, living.now, living.settings.news.sources)
    assert (found.work, found.late, found.notes) == ((), {}, ())
    assert found.kept == {table: keys for table, keys in recent.items() if keys}
    assert due_at_the_end(living) == kept
    for key in KEYS:
        assert living.store.replays.sessions(key) == living.graph.sessions
    assert living.store.replays.sessions(UNFOLLOWED) == ()
    assert report_is_fresh(living.graph, living.store)
    assert (living.home / "report" / "index.html").read_text() == " ".join(sorted(KEYS))


def nothing_was_done_twice(living: LivingHome) -> None:
    """No partition was made twice of the same, no session replayed twice, no question answered twice."""
    assert [made for made, times in living.writes.counted.items() if times > 1] == []
    replayed = [str(event.partition) for event in living.made("replay")]
    assert Counter(replayed) == Counter(f"{session}|{key}" for session in living.graph.sessions for key in KEYS)
    for key in KEYS:
        own = [name for name in replayed if name.endswith(f"|{key}")]
        assert own == sorted(own), "sessions of a chain come in order"
    assert set(living.asked_of_model().values()) == {1}


def nobody_saw_tomorrow(living: LivingHome) -> int:
    """Every article in a prediction's prompt was published before the prompt's cutoff, and before it was asked.

    Returns how many articles were looked at.
    """
    published = {
        mark: dt.datetime.fromisoformat(str(item["published_at"]))
        for source in living.settings.news.sources
        for item in living.sites.truth(source)["public"]
        for mark in MARK.findall(str(item["content"]))
    }
    asked = {question.digest: (when, question.text) for when, question in living.prompts}
    looked_at = 0
    for key in KEYS:
        for session in living.graph.sessions:
            cutoff = moment(session, "00:00") + dt.timedelta(days=1)
            for digest in living.store.replays.read_predictions(key, [session])["prompt_digest"].unique():
                when, text = asked[digest]
                assert when >= cutoff, f"{key} {session} was asked at {when}"
                for mark in MARK.findall(text):
                    looked_at += 1
                    assert published[mark] < cutoff, f"{key} {session} saw {mark} of {published[mark]}"
    return looked_at


def audited(*sessions: str) -> dict[str, bool]:
    """What `finevolve audit` finds: check of an experiment -> whether it passed."""
    cuts = [part for session in sessions for part in ("--cut", session)]
    result = CliRunner().invoke(cli, ["audit", *KEYS, *cuts, "--sessions", "4", "--json"])
    reports = json.loads(result.stdout)
    return {f"{one['experiment']} {found['check']}": found["ok"] for one in reports for found in one["findings"]}


def test_some_days_without_a_model_and_with_a_revised_close_are_made_up_for(tmp_path: Path) -> None:
    with living_home(tmp_path, day("01-16"), day("01-20"), ("cls",), items=6) as living:
        living.events = {
            at("01-18 00:00"): [lambda: living.model_is_out(True)],
            at("01-18 08:00"): [lambda: living.model_is_out(False)],
            at("01-20 17:00"): [lambda: living.market.revised.update({(INDUSTRIES[0], f"{YEAR}-01-17"): 1500.0})],
        }
        living.ask_for(bars_before(living), "market_session")
        living.pass_time(at("01-21 12:30"))

        nothing_is_owed_but(living, {"matured_alpha": (f"{YEAR}-01-17",)})
        nothing_was_done_twice(living)
        assert nobody_saw_tomorrow(living) > 20
        failed = {run.at.date() for run in living.runs if not run.success}
        assert failed == {day("01-18")}
        subjects = [subject for _, subject in living.told.messages]
        assert f"matured_alpha of {YEAR}-01-17 has changed since it was read" in subjects
        assert f"news_day failed ({YEAR}-01-17)" in subjects


@pytest.mark.slow
def test_a_month_with_all_that_goes_wrong_ends_up_to_date(tmp_path: Path) -> None:
    sources = ("cls", "sina", "eastmoney")
    with living_home(tmp_path, day("01-13"), day("02-12"), sources, items=8) as living:
        revised = living.market.revised
        living.events = {
            at("01-15 17:00"): [lambda: revised.update({(INDUSTRIES[1], f"{YEAR}-01-14"): 1600.0})],
            at("01-20 00:05"): [lambda: living.site_is_dead("zhibo.sina.com.cn")],
            at("01-23 11:00"): [lambda: living.site_is_dead()],
            at("01-24 17:00"): [lambda: revised.update({(BENCHMARK, f"{YEAR}-01-22"): 1900.0})],
            at("02-06 00:00"): [lambda: living.model_is_out(True)],
            at("02-08 00:00"): [lambda: living.model_is_out(False)],
            at("02-11 18:00"): [lambda: living.market_is_dead(True)],
            at("02-12 01:00"): [lambda: living.market_is_dead(False)],
        }
        living.ask_for(bars_before(living), "market_session")
        living.pass_time(at("02-13 23:00"), off=[day("01-17")])

        windows = due_at_the_end(living).get("news_window", ())
        dead = [str(session) for session in sessions_between(day("01-19"), day("01-23"))]
        assert windows, "news that came late changes what was read"
        assert set(windows) <= set(dead)
        outcomes = tuple(f"{YEAR}-{text}" for text in ("01-14", "01-22", "01-23"))
        nothing_is_owed_but(living, {"news_window": windows, "matured_alpha": outcomes})
        nothing_was_done_twice(living)
        assert nobody_saw_tomorrow(living) > 200
        found = audited(f"{YEAR}-01-22", f"{YEAR}-02-06")
        assert found
        assert [check for check, passed in found.items() if not passed] == []

        # The days that the dead site held back are there, and the day that nobody asked for while the machine was off.
        for missed in ("01-16", "01-20", "01-21", "01-22"):
            date = f"{YEAR}-{missed}"
            held = living.sites.truth("sina", channel="live", start=date, end=date)["public"]
            kept = living.store.read("raw_news", f"{date}|sina")["source_id"]
            assert set(kept) == {item["id"] for item in held}

        holiday = {dt.date.fromisoformat(f"{YEAR}-01-29") + dt.timedelta(days=passed) for passed in range(7)}
        jobs = {run.job for run in living.runs if run.at.date() in holiday}
        assert jobs <= {"raw_news_day", "news_day", "report", "benchmark_release"}

        outage = [run for run in living.runs if not run.success]
        assert {run.job for run in outage} <= {"news_day", "market_session"}
        assert {run.at.date() for run in outage} <= {day("02-06"), day("02-07"), day("02-11"), day("02-12")}
        assert len(outage) < 40, "tries come less and less often"
        subjects = {subject for _, subject in living.told.messages}
        for table, keys in (("news_window", windows), ("matured_alpha", outcomes)):
            assert {f"{table} of {key} has changed since it was read" for key in keys} <= subjects
        assert f"news_day failed ({YEAR}-02-05)" in subjects
        assert f"replay {KEYS[0]} of {YEAR}-02-05 is late" in subjects
        assert f"industry_bars of {YEAR}-02-11 is late" in subjects
