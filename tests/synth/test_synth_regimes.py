"""Four kinds of world: what experience is worth in each follows from the direction in which news moves prices."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from finevolve_pipeline.cli.synthetic import synth_command
from finevolve_pipeline.digests import digest_frame
from finevolve_pipeline.errors import SettingsError
from finevolve_pipeline.market.alpha import excess_returns
from finevolve_pipeline.synth.files import write_world
from finevolve_pipeline.synth.world import REGIMES, SynthSettings, SynthWorld, generate

SMALL = SynthSettings(articles_per_day=5, signal=0.02)


def world(**changes: object) -> SynthWorld:
    return generate(dataclasses.replace(SMALL, **changes))


@pytest.fixture(scope="module")
def worlds() -> dict[str, SynthWorld]:
    return {regime: world(regime=regime) for regime in REGIMES}


def directions(settings: SynthSettings) -> list[int]:
    """Of each session of predictions."""
    return [settings.direction(session) for session in settings.sessions]


@pytest.mark.parametrize(
    ("regime", "first", "second"), [("turning", 1, -1), ("stable", -1, -1), ("reversal", -1, 1), ("noise", 0, 0)]
)
def test_the_direction_runs_through_a_world_as_its_regime_says(regime: str, first: int, second: int) -> None:
    settings = dataclasses.replace(SMALL, regime=regime)
    assert directions(settings) == [first] * 30 + [second] * 30
    assert settings.turn_sessions == ((settings.sessions[30],) if first != second else ())
    assert settings.direction(settings.news_days[0]) == first


def test_a_reversal_flips_at_every_turn() -> None:
    settings = dataclasses.replace(SMALL, regime="reversal", turns=(0.25, 0.5))
    assert directions(settings) == [-1] * 15 + [1] * 15 + [-1] * 30


def test_turning_is_the_default() -> None:
    assert SynthSettings().regime == "turning"
    assert directions(SynthSettings()) == [1] * 30 + [-1] * 30


def test_the_truth_tells_regime_and_impact_of_every_session(worlds: dict[str, SynthWorld]) -> None:
    names = {1: "A", -1: "B", 0: "none"}
    for made in worlds.values():
        impact = made.truth.impact
        told = impact.groupby("session")["regime"].unique()
        expected = {day.isoformat(): [names[made.settings.direction(day)]] for day in made.settings.sessions}
        assert {day: list(told[day]) for day in expected} == expected
        sign = impact["regime"].map({"A": 1, "B": -1, "none": 0})
        assert np.allclose(impact["impact"], sign * made.settings.signal * impact["tone"], atol=1e-15)


def test_regimes_differ_in_prices_only(worlds: dict[str, SynthWorld]) -> None:
    news = {(digest_frame(one.news), digest_frame(one.truth.stories)) for one in worlds.values()}
    closes = {digest_frame(one.industry_bars) for one in worlds.values()}
    benchmark = {digest_frame(one.benchmark_bars) for one in worlds.values()}
    assert (len(news), len(closes), len(benchmark)) == (1, len(REGIMES), 1)


def test_noise_has_the_prices_of_a_world_without_signal(worlds: dict[str, SynthWorld]) -> None:
    pd.testing.assert_frame_equal(worlds["noise"].industry_bars, world(signal=0.0).industry_bars)


def test_a_stable_world_is_one_of_opposite_signal_that_never_turns(worlds: dict[str, SynthWorld]) -> None:
    pd.testing.assert_frame_equal(worlds["stable"].industry_bars, world(signal=-0.02, turns=()).industry_bars)


def test_a_reversal_is_a_turning_world_of_opposite_signal(worlds: dict[str, SynthWorld]) -> None:
    pd.testing.assert_frame_equal(worlds["reversal"].industry_bars, world(signal=-0.02).industry_bars)


def _ic(made: SynthWorld, first: int, last: int) -> float:
    """Mean rank correlation, over days and horizons, of the tone with what followed."""
    outcomes = excess_returns(made.settings.sessions[first:last], (10, 20, 40), made.industry_bars, made.benchmark_bars)
    cells = outcomes.merge(made.truth.impact, left_on=["predicted_on", "code"], right_on=["session", "code"])
    by_day = cells.dropna(subset=["alpha"]).groupby(["horizon", "session"])
    return float(by_day[["tone", "alpha"]].apply(lambda day: day["tone"].corr(day["alpha"], method="spearman")).mean())


def test_prices_go_as_the_regime_says(worlds: dict[str, SynthWorld]) -> None:
    assert _ic(worlds["stable"], 0, 60) < -0.3
    assert _ic(worlds["reversal"], 0, 20) < -0.3
    assert _ic(worlds["reversal"], 30, 60) > 0.3
    assert abs(_ic(worlds["noise"], 0, 60)) < 0.1


def test_an_unknown_regime_is_refused() -> None:
    with pytest.raises(SettingsError, match="regime calm: use one of turning, stable, reversal, noise"):
        SynthSettings(regime="calm")


def test_the_written_truth_names_regime_and_turns(tmp_path: Path, worlds: dict[str, SynthWorld]) -> None:
    for regime, turns in (("noise", []), ("reversal", [SMALL.sessions[30].isoformat()])):
        document = json.loads(write_world(worlds[regime], tmp_path).truth.read_text("utf-8"))
        assert (document["settings"]["regime"], document["turns"]) == (regime, turns)


@pytest.mark.usefixtures("home")
def test_the_command_writes_the_world_of_a_regime(tmp_path: Path) -> None:
    arguments = [str(tmp_path), "--regime", "stable", "--to", "2025-01-10", "--articles-per-day", "5"]
    done = CliRunner().invoke(synth_command, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    document = json.loads((tmp_path / "truth.json").read_text("utf-8"))
    assert {session["regime"] for session in document["sessions"]} == {"B"}
    refused = CliRunner().invoke(synth_command, [str(tmp_path), "--regime", "calm"])
    assert refused.exit_code == 2
    assert "turning" in refused.output
