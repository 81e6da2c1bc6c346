"""A written world: plain files in the layouts that real ones have, imported without loss."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pandas as pd
import pytest

from finevolve_pipeline.importing import Reject, RowFile
from finevolve_pipeline.market.importing import BarOptions, BarReader, read_bars
from finevolve_pipeline.news.importing import NewsOptions, NewsReader, read_news
from finevolve_pipeline.synth.files import BENCHMARK_UNITS, INDUSTRY_UNITS, Units, WorldFiles, write_world
from finevolve_pipeline.synth.world import SynthSettings, SynthWorld, generate

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def world() -> SynthWorld:
    return generate(
        SynthSettings(first_session=dt.date(2025, 4, 28), last_session=dt.date(2025, 5, 9), articles_per_day=30)
    )


@pytest.fixture(scope="module")
def files(world: SynthWorld, tmp_path_factory: pytest.TempPathFactory) -> WorldFiles:
    return write_world(world, tmp_path_factory.mktemp("world"))


def test_news_is_imported_without_a_reject_or_a_change(world: SynthWorld, files: WorldFiles) -> None:
    rejects: list[Reject] = []
    reader = NewsReader(NewsOptions(now=NOW))
    imported = pd.concat(read_news(RowFile(files.news), reader, rejects.append), ignore_index=True)
    assert rejects == []
    assert reader.naive == 0
    pd.testing.assert_frame_equal(imported.drop(columns="origin"), world.news.drop(columns="origin"))
    assert set(imported["origin"]) == {"file:news.jsonl.gz"}


def _imported_bars(path: Path, units: Units, benchmark: bool) -> tuple[pd.DataFrame, list[Reject]]:
    rejects: list[Reject] = []
    options = BarOptions(benchmark, NOW.date(), units.volume, units.amount, ("--volume-unit", "--amount-unit"))
    bars = pd.concat(read_bars(RowFile(path), BarReader(options), rejects.append), ignore_index=True)
    return bars, rejects


@pytest.mark.parametrize("which", ["industries", "benchmark"])
def test_bars_are_imported_in_their_declared_units(world: SynthWorld, files: WorldFiles, which: str) -> None:
    benchmark = which == "benchmark"
    units = BENCHMARK_UNITS if benchmark else INDUSTRY_UNITS
    made = world.benchmark_bars if benchmark else world.industry_bars
    imported, rejects = _imported_bars(files.benchmark if benchmark else files.industries, units, benchmark)
    assert rejects == []
    prices = ["session", "code", "open", "high", "low", "close"]
    pd.testing.assert_frame_equal(imported[prices], made[prices], check_exact=True)
    pd.testing.assert_frame_equal(imported, made, rtol=1e-12)


def test_truth_names_regimes_turns_and_copies(world: SynthWorld, files: WorldFiles) -> None:
    truth = json.loads(files.truth.read_text("utf-8"))
    regimes = {entry["session"]: entry["regime"] for entry in truth["sessions"]}
    assert truth["turns"] == [day.isoformat() for day in world.settings.turn_sessions]
    assert [regimes[day.isoformat()] for day in world.settings.sessions] == ["A"] * 3 + ["B"] * 4
    assert truth["settings"]["seed"] == world.settings.seed
    assert len(truth["copies"]) == len(world.truth.copies) > 0
    assert len(truth["stories"]) == len(world.news)
