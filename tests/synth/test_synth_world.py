"""The synthetic world: reproducible, within the contracts, with a signal that is where it was planted."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from finevolve_pipeline import calendar
from finevolve_pipeline.digests import digest_frame
from finevolve_pipeline.errors import CalendarError, SettingsError
from finevolve_pipeline.market.alpha import excess_returns
from finevolve_pipeline.news.deduplicate import build_articles
from finevolve_pipeline.settings import load_settings
from finevolve_pipeline.synth.text import PRODUCTS
from finevolve_pipeline.synth.world import SynthSettings, SynthWorld, generate
from finevolve_pipeline.tables import Bars, RawNews, conform
from finevolve_pipeline.universe import BENCHMARK, CODES

SMALL = SynthSettings(first_session=dt.date(2025, 4, 28), last_session=dt.date(2025, 5, 9), articles_per_day=30)
HORIZONS = (10, 20, 40)
PRICES = ["open", "high", "low", "close"]


@pytest.fixture(scope="module")
def world() -> SynthWorld:
    return generate(SynthSettings())


def _digests(world: SynthWorld) -> list[str]:
    truth = world.truth
    frames = (
        world.news,
        world.industry_bars,
        world.benchmark_bars,
        truth.impact,
        truth.stories,
        truth.copies,
    )
    return [digest_frame(frame) for frame in frames]


def test_the_same_seed_gives_the_same_world_in_another_process(tmp_path: Path) -> None:
    program = (
        "import sys, datetime as dt\n"
        "from pathlib import Path\n"
        "from finevolve_pipeline.synth.files import write_world\n"
        "from finevolve_pipeline.synth.world import SynthSettings, generate\n"
        "first, last = map(dt.date.fromisoformat, sys.argv[2:])\n"
        "settings = SynthSettings(first_session=first, last_session=last, articles_per_day=30)\n"
        "write_world(generate(settings), Path(sys.argv[1]))\n"
    )
    for salt in ("1", "2"):
        arguments = [tmp_path / salt, SMALL.first_session.isoformat(), SMALL.last_session.isoformat()]
        subprocess.run(
            [sys.executable, "-c", program, *map(str, arguments)],
            check=True,
            env={**os.environ, "PYTHONHASHSEED": salt},
        )
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / salt).iterdir()} for salt in ("1", "2"))
    assert sorted(one) == ["benchmark.csv", "industries.csv", "news.jsonl.gz", "truth.json"]
    assert one == two


def test_another_seed_gives_another_world() -> None:
    ours, theirs = _digests(generate(SMALL)), _digests(generate(SynthSettings(**{**vars(SMALL), "seed": 2})))
    assert not set(ours) & set(theirs)


def test_default_world_has_60_sessions_and_the_bars_they_need(world: SynthWorld) -> None:
    sessions = world.settings.sessions
    kept = world.industry_bars["session"].unique().tolist()
    assert len(sessions) == 60
    assert kept == [day.isoformat() for day in world.settings.bar_sessions]
    assert kept.index(sessions[0].isoformat()) == 45
    assert kept[-41] == sessions[-1].isoformat()


def test_tables_keep_their_contracts(world: SynthWorld) -> None:
    for frame, contract in (
        (world.news, RawNews),
        (world.industry_bars, Bars),
        (world.benchmark_bars, Bars),
    ):
        pd.testing.assert_frame_equal(conform(frame, contract, "world"), frame)


@pytest.mark.usefixtures("home")
def test_news_comes_from_all_nine_sources(world: SynthWorld) -> None:
    assert set(world.news["source"]) == set(load_settings().news.sources)
    assert len(load_settings().news.sources) == 9


def test_every_calendar_day_has_news_and_closed_days_have_less(world: SynthWorld) -> None:
    per_day = world.news.groupby(world.news["published_at"].dt.date).size()
    assert per_day.index.tolist() == list(world.settings.news_days)
    trading = np.array([calendar.is_session(day) for day in per_day.index])
    assert 130 < per_day[trading].mean() < 190
    assert 40 < per_day[~trading].mean() < 90


def test_ids_are_unique_within_a_source_and_news_is_in_order(world: SynthWorld) -> None:
    assert not world.news.duplicated(["source", "source_id"]).any()
    assert world.news["published_at"].is_monotonic_increasing


def test_texts_carry_what_cleaning_must_remove(world: SynthWorld) -> None:
    texts = world.news["title"] + world.news["content"]
    for noise in ("<p>", "&nbsp;", "\u3000", "\x00", "【", "\r\n"):
        assert texts.str.contains(noise, regex=False).sum() > 20, repr(noise)


def test_no_template_is_left_unfilled(world: SynthWorld) -> None:
    assert not (world.news["title"] + world.news["content"]).str.contains(r"[{}]").any()


def test_copies_come_from_another_source_within_minutes_some_after_midnight(world: SynthWorld) -> None:
    published = world.news.assign(key=world.news["source"] + ":" + world.news["source_id"]).set_index("key")[
        "published_at"
    ]
    copies = world.truth.copies
    later = published[(copies["source"] + ":" + copies["source_id"]).to_list()].reset_index(drop=True)
    earlier = published[copies["original"].to_list()].reset_index(drop=True)
    assert 0.05 < len(copies) / len(world.news) < 0.1
    assert (copies["source"] != copies["original"].str.partition(":")[0]).all()
    assert (later - earlier).between(pd.Timedelta(minutes=1), pd.Timedelta(minutes=20)).all()
    assert (later.dt.date != earlier.dt.date).sum() >= 5


def test_stories_tell_the_truth_about_each_article(world: SynthWorld) -> None:
    stories = world.truth.stories
    assert stories[["source", "source_id"]].equals(world.news[["source", "source_id"]])
    assert stories["scope"].value_counts(normalize=True)["industry"] == pytest.approx(0.72, abs=0.02)
    assert set(stories.loc[stories["scope"] == "industry", "code"]) == set(CODES)
    assert set(stories.loc[stories["scope"] != "industry", "code"]) == {""}
    text = world.news["title"] + world.news["content"]
    for code in CODES:
        assert text[stories["code"] == code].str.contains("|".join(PRODUCTS[code])).all(), code


def test_a_product_belongs_to_one_industry() -> None:
    assert list(PRODUCTS) == list(CODES)
    products = [product for names in PRODUCTS.values() for product in names]
    assert len(products) == len(set(products))


def test_good_news_is_likelier_the_higher_the_tone(world: SynthWorld) -> None:
    days = world.news["published_at"].dt.date.astype(str)
    heard = world.truth.stories["tone"].groupby([days, world.truth.stories["code"]]).mean().rename("heard")
    told = world.truth.impact.set_index(["session", "code"])["tone"]
    both = pd.concat([told, heard.rename_axis(["session", "code"])], axis=1, join="inner")
    assert len(both) > 1000
    assert both.corr().loc["tone", "heard"] > 0.4


def test_bars_are_possible_days(world: SynthWorld) -> None:
    for bars in (world.industry_bars, world.benchmark_bars):
        whole = bars.dropna()
        assert (whole["high"] >= whole[PRICES].max(axis=1)).all()
        assert (whole["low"] <= whole[PRICES].min(axis=1)).all()
        assert (whole[["volume", "amount"]] > 0).all(axis=None)
    assert world.industry_bars.groupby("session")["code"].apply(list).map(lambda codes: codes == list(CODES)).all()
    assert set(world.benchmark_bars["code"]) == {BENCHMARK}


def test_a_few_closes_are_missing_and_a_few_rows_hold_a_close_only(world: SynthWorld) -> None:
    bars = world.industry_bars
    no_close, close_only = bars["close"].isna(), bars["close"].notna() & bars["volume"].isna()
    assert 0 < no_close.sum() < 0.01 * len(bars)
    assert 0 < close_only.sum() < 0.01 * len(bars)
    assert bars.loc[no_close, [*PRICES, "volume", "amount"]].isna().all(axis=None)
    assert not generate(SynthSettings(**{**vars(SMALL), "missing": 0.0})).industry_bars.isna().any(axis=None)


def _cross_sectional_ic(world: SynthWorld, regime: str) -> float:
    """Mean rank correlation over days and horizons of the latent tone with what followed."""
    truth = world.truth.impact
    outcomes = excess_returns(world.settings.sessions, HORIZONS, world.industry_bars, world.benchmark_bars)
    cells = outcomes.merge(
        truth[truth["regime"] == regime], left_on=["predicted_on", "code"], right_on=["session", "code"]
    ).dropna(subset=["alpha"])
    by_day = cells.groupby(["horizon", "session"])
    return float(by_day[["tone", "alpha"]].apply(lambda day: day["tone"].corr(day["alpha"], method="spearman")).mean())


def test_tone_predicts_in_regime_a_and_misleads_in_regime_b() -> None:
    worlds = [generate(SynthSettings(seed=seed)) for seed in (1, 2)]
    assert np.mean([_cross_sectional_ic(world, "A") for world in worlds]) > 0.1
    assert np.mean([_cross_sectional_ic(world, "B") for world in worlds]) < -0.1


def test_without_a_signal_tone_predicts_nothing() -> None:
    worlds = [generate(SynthSettings(seed=seed, signal=0.0, turns=(), articles_per_day=1)) for seed in range(4)]
    assert abs(np.mean([_cross_sectional_ic(world, "A") for world in worlds])) < 0.08


def _first_difference(one: SynthWorld, other: SynthWorld) -> str:
    merged = one.industry_bars.merge(other.industry_bars, on=["session", "code"], suffixes=("", "_other"))
    differs = merged["close"].fillna(0) != merged["close_other"].fillna(0)
    return str(merged.loc[differs, "session"].min())


def test_no_price_moves_before_the_cutoff_of_its_news() -> None:
    quiet = generate(SynthSettings(signal=0.0, articles_per_day=1))
    loud = generate(SynthSettings(signal=0.3, articles_per_day=1))
    first = next(day for day in loud.settings.news_days if calendar.is_session(day))
    assert _first_difference(quiet, loud) == calendar.shift(first, 1).isoformat()


def test_the_regime_turns_with_the_news_of_its_day() -> None:
    turning = generate(SynthSettings(signal=0.3, articles_per_day=1))
    steady = generate(SynthSettings(signal=0.3, articles_per_day=1, turns=()))
    (turn,) = turning.settings.turn_sessions
    assert turn == turning.settings.sessions[30]
    assert _first_difference(turning, steady) == calendar.shift(turn, 1).isoformat()
    regimes = turning.truth.impact.groupby("session")["regime"].first()
    assert (regimes == np.where(regimes.index < turn.isoformat(), "A", "B")).all()


def test_more_articles_leave_the_prices_as_they_are() -> None:
    more = SynthSettings(**{**vars(SMALL), "articles_per_day": 40})
    assert _digests(generate(more))[1:4] == _digests(generate(SMALL))[1:4]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": -1}, "seed -1"),
        ({"articles_per_day": 0}, "articles_per_day 0"),
        (
            {"first_session": dt.date(2025, 10, 1), "last_session": dt.date(2025, 10, 7)},
            "last_session 2025-10-07",
        ),
        ({"signal": float("nan")}, "signal nan"),
        ({"turns": (0.6, 0.3)}, "turns"),
        ({"turns": (1.0,)}, "turns"),
        ({"missing": 0.5}, "missing 0.5"),
        ({"sources": ("cls",)}, "sources"),
    ],
)
def test_settings_that_make_no_world_are_refused(change: dict[str, object], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        SynthSettings(**{**vars(SMALL), **change})


def test_bars_beyond_the_calendar_are_refused() -> None:
    with pytest.raises(CalendarError, match="beyond the XSHG table"):
        generate(SynthSettings(first_session=dt.date(2026, 12, 1), last_session=dt.date(2026, 12, 15)))


@pytest.mark.usefixtures("home")
def test_cleaning_and_deduplication_find_exactly_the_planted_copies(world: SynthWorld) -> None:
    by_day = dict(tuple(world.news.groupby(world.news["published_at"].dt.date)))
    rules, nothing = load_settings().news.deduplicate, world.news.iloc[:0]
    kept = pd.concat(
        build_articles(day, by_day[day], by_day.get(day - dt.timedelta(days=1), nothing), rules).frame
        for day in world.settings.news_days
    )
    made, copies = (set(frame["source"] + ":" + frame["source_id"]) for frame in (world.news, world.truth.copies))
    assert set(kept["source"] + ":" + kept["source_id"]) == made - copies
    assert not (kept["title"] + kept["content"]).str.contains("<|&nbsp|\u3000|\x00|【").any()
