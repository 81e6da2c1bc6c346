"""Worlds in which experience should help, mislead, or be worth nothing, and the offline backbone that learns from it.

Every mechanism is replayed, in memory, on independent worlds of four kinds. Pipe believes the news, so it is wrong
where prices go against it. A mechanism's *gain* in a world is its mean daily cross-sectional IC less Pipe's; worlds are
independent, days are not, so significance is taken over worlds. A mechanism that merely mixed its scores up would also
do better than Pipe where Pipe is wrong: it has learnt something only if it gains more there than it loses in the same
worlds with prices that follow the news.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
import pytest
from replay_world import MemoryReader
from scipy.stats import binomtest, rankdata, ttest_1samp

from finevolve_pipeline import calendar
from finevolve_pipeline.digests import digest_text
from finevolve_pipeline.embedding import HashingEmbedder
from finevolve_pipeline.evaluation.ic import correlate, make_axes, to_grid
from finevolve_pipeline.llm.asking import Model
from finevolve_pipeline.llm.requests import Call, Prompt
from finevolve_pipeline.llm.rules.backbone import RulesBackbone
from finevolve_pipeline.market.alpha import excess_returns
from finevolve_pipeline.mechanisms.base import World
from finevolve_pipeline.mechanisms.registry import mechanism_class, mechanism_settings
from finevolve_pipeline.news.window import build_window, window_days
from finevolve_pipeline.replay.clock import NEWS, OUTCOMES, Gateway, Visible
from finevolve_pipeline.replay.day import Chain, Execution, replay_day
from finevolve_pipeline.replay.history import History
from finevolve_pipeline.settings import load_settings
from finevolve_pipeline.synth.world import SynthSettings, SynthWorld, generate
from finevolve_pipeline.universe import CODES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

SECTORS = CODES[:8]
LAST = dt.date(2025, 6, 13)
"""106 sessions: enough for outcomes of 40 sessions to teach, and to mislead after a turn in the middle."""
WORLD = {"last_session": LAST, "articles_per_day": 60, "signal": 0.03, "missing": 0.0}
"""The signal is five times that of the demo: prices are to be about half news, so that few worlds suffice."""
LEARNERS = ("memrl", "reflexion", "expel", "reasoningbank")
APPEND_ONLY = ("expel", "reasoningbank")
"""Learners that never change or drop what they once learnt."""


@dataclass(frozen=True)
class Kind:
    """A kind of world: its settings, the systems that are replayed in it beside Pipe, and in how many."""

    settings: dict[str, object]
    systems: tuple[str, ...]
    worlds: int


KINDS = {
    "stable": Kind({"regime": "stable"}, LEARNERS, 11),
    "follow": Kind({"regime": "turning", "turns": ()}, LEARNERS, 11),
    "reversal": Kind({"regime": "reversal"}, APPEND_ONLY, 11),
    "noise": Kind({"regime": "noise"}, LEARNERS, 8),
}

BACKBONE = RulesBackbone()
PACKAGED = load_settings()
HORIZONS = PACKAGED.benchmark.horizons
SESSIONS = calendar.sessions_between(dt.date(2025, 1, 2), LAST)
AXES = make_axes(SESSIONS, HORIZONS, SECTORS)
TURN = len(SESSIONS) // 2
BEFORE, AFTER = slice(0, TURN), slice(TURN, None)


@dataclass(frozen=True)
class Played:
    """Alpha of one world and each system's scores, horizons x sessions x industries."""

    alpha: np.ndarray
    scores: dict[str, np.ndarray]

    def ic(self, system: str, stage: slice = slice(None)) -> float:
        """Mean daily cross-sectional IC."""
        daily = correlate(self.scores[system], self.alpha, axis=2, min_pairs=5, method="spearman").value
        return float(np.nanmean(daily[:, stage]))

    def gain(self, system: str, stage: slice = slice(None)) -> float:
        return self.ic(system, stage) - self.ic("pipe", stage)

    def chance(self, system: str, seed: int) -> float:
        """Two-sided p of the gain, if industries' returns could as well have been each other's, all days together.

        The days' correlations add up to one matrix of industries x industries, whose columns are permuted.
        """
        gained = _standard_ranks(self.scores[system]) - _standard_ranks(self.scores["pipe"])
        cells = np.einsum("hti,htj->ij", gained, _standard_ranks(self.alpha))
        rng = np.random.default_rng(seed)
        rows = np.arange(len(SECTORS))
        others = np.array([cells[rows, rng.permutation(len(SECTORS))].sum() for _ in range(1999)])
        observed = abs(np.trace(cells))
        return (1 + np.sum(np.abs(others) >= observed - 1e-9)) / (1 + len(others))


def _standard_ranks(values: np.ndarray) -> np.ndarray:
    """Ranks of each day with mean 0 and length 1; zeros where all are equal."""
    away = rankdata(values, axis=-1) - (values.shape[-1] + 1) / 2
    length = np.sqrt((away**2).sum(axis=-1, keepdims=True))
    return away / np.where(length > 0, length, 1.0)


class Unwritten(Model):
    """A model that is asked without a written prompt, which `rules` does not read."""

    def call(self, request, variant=""):
        return Call(request, Prompt(()), variant, self.seed)


class Remembering:
    """An embedder that several systems share: each text is embedded once."""

    def __init__(self) -> None:
        embedder = HashingEmbedder(256, (2, 3))
        self.dimensions = embedder.dimensions
        self._vector = lru_cache(maxsize=None)(lambda text: embedder.embed([text])[0])

    def embed(self, texts):
        return np.stack([self._vector(text) for text in texts])

    def cut(self, texts):
        return 0


def _news(world: SynthWorld) -> pd.DataFrame:
    """The articles of the sectors with a tone, once each, tagged by what the world knows of them."""
    told = world.truth.stories
    ids = (world.news["source"] + ":" + world.news["source_id"]).to_numpy()
    copies = set(world.truth.copies["source"] + ":" + world.truth.copies["source_id"])
    kept = (told["code"].isin(SECTORS) & (told["tone"] != 0)).to_numpy() & [one not in copies for one in ids]
    articles = world.news.loc[kept, ["source", "title", "content", "published_at"]].reset_index(drop=True)
    return articles.assign(
        article_id=[digest_text(one)[:16] for one in ids[kept]],
        industries=[[code] for code in told.loc[kept, "code"]],
        importance=np.int8(PACKAGED.news.min_importance),
        importance_reason="",
        topics=[[] for _ in range(len(articles))],
    )


def _windows(world: SynthWorld) -> dict[tuple[str, str], pd.DataFrame]:
    """The news table that a replay reads, by the functions that make it of real articles."""
    articles = _news(world)
    by_day = dict(tuple(articles.groupby(articles["published_at"].dt.date)))
    frames = {}
    for session in SESSIONS:
        days = [by_day[day] for day in window_days(session, PACKAGED.news.window) if day in by_day]
        window = pd.concat(days, ignore_index=True) if days else articles.iloc[:0]
        frames[NEWS, session.isoformat()] = build_window(session, window, PACKAGED.news)
    return frames


def _matured(world: SynthWorld) -> dict[tuple[str, str], pd.DataFrame]:
    """The table of outcomes by the session on which they become known."""
    outcomes = _outcomes(world, world.settings.bar_sessions)
    return {(OUTCOMES, session): rows for session, rows in outcomes.groupby("matured_on")}


def _outcomes(world: SynthWorld, sessions) -> pd.DataFrame:
    return excess_returns(sessions, HORIZONS, world.industry_bars, world.benchmark_bars)


class Shared(Gateway):
    """A gateway for several chains that go from day to day together, so that each day is read once."""

    def advance(self, session: dt.date) -> None:
        if session != self.clock:
            super().advance(session)


def _chain(system: str, gateway: Gateway, embedder: Remembering) -> Chain:
    section = PACKAGED.mechanisms[system]
    kind = mechanism_class(system, section)
    history = History(gateway, embedder, HORIZONS, SECTORS, system)
    world = World(history, gateway.view(system), HORIZONS, embedder.dimensions, SECTORS)
    return Chain(
        experiment=system,
        horizons=HORIZONS,
        codes=SECTORS,
        out_of_range="invalid",
        gateway=gateway,
        history=history,
        mechanism=kind(mechanism_settings(system, kind, section), world),
        model=Unwritten(BACKBONE, PACKAGED.prompts),
        execution=Execution(),
    )


def _scores(systems: Sequence[str], reader: MemoryReader, embedder: Remembering) -> dict[str, np.ndarray]:
    """Each system's scores, horizons x sessions x industries."""
    gateway = Shared(reader, Visible.of(PACKAGED, BACKBONE.count_tokens))
    chains = {system: _chain(system, gateway, embedder) for system in systems}

    async def days():
        return [(system, await replay_day(session, chain)) for session in SESSIONS for system, chain in chains.items()]

    rows: dict[str, list[pd.DataFrame]] = {system: [] for system in systems}
    for system, day in asyncio.run(days()):
        rows[system].append(pd.DataFrame(day.predictions))
    return {system: to_grid(pd.concat(own), AXES, "session", "score") for system, own in rows.items()}


def play(settings: Mapping[str, Mapping[str, object]], systems: Sequence[str], worlds: int) -> dict[str, list[Played]]:
    """Pipe and other systems in worlds of several kinds, of seeds 1, 2, ...; worlds of one seed have the same news and
    the same noise in their prices."""
    played: dict[str, list[Played]] = {name: [] for name in settings}
    for seed in range(1, 1 + worlds):
        embedder = Remembering()
        windows = _windows(generate(SynthSettings(seed=seed, **WORLD)))
        for name, changes in settings.items():
            world = generate(SynthSettings(seed=seed, **WORLD, **changes))
            reader = MemoryReader({**windows, **_matured(world)}, {})
            alpha = to_grid(_outcomes(world, SESSIONS), AXES, "predicted_on", "alpha")
            played[name].append(Played(alpha, _scores(("pipe", *systems), reader, embedder)))
    return played


@pytest.fixture(scope="module")
def worlds() -> dict[str, list[Played]]:
    return {name: play({name: kind.settings}, kind.systems, kind.worlds)[name] for name, kind in KINDS.items()}


def gains(played: list[Played], system: str, stage: slice = slice(None)) -> np.ndarray:
    return np.array([one.gain(system, stage) for one in played])


def p_above_zero(values: np.ndarray) -> float:
    return float(ttest_1samp(values, 0.0, alternative="greater").pvalue)


def test_pipe_is_wrong_where_prices_go_against_the_news_and_knows_nothing_in_noise(worlds) -> None:
    assert p_above_zero(np.array([one.ic("pipe") for one in worlds["follow"]])) < 0.001
    assert p_above_zero(np.array([-one.ic("pipe") for one in worlds["stable"]])) < 0.001
    assert abs(np.mean([one.ic("pipe") for one in worlds["noise"]])) < 0.05


@pytest.mark.parametrize("system", LEARNERS)
def test_a_stable_lesson_is_learnt(worlds, system: str) -> None:
    gained = gains(worlds["stable"], system)
    assert p_above_zero(gained) < 0.01
    # More than mixing up could gain: that would lose as much where Pipe is right.
    assert p_above_zero(gained + gains(worlds["follow"], system)) < 0.01


@pytest.mark.parametrize("system", APPEND_ONLY)
def test_after_a_turn_memories_that_are_only_appended_hurt(worlds, system: str) -> None:
    assert p_above_zero(gains(worlds["reversal"], system, BEFORE)) < 0.01
    after = gains(worlds["reversal"], system, AFTER)
    assert p_above_zero(-after) < 0.01
    # It is what was learnt before the turn that hurts: without it the same mechanism loses less in the same sessions.
    assert p_above_zero(gains(worlds["follow"], system, AFTER) - after) < 0.01


def test_in_noise_nothing_is_significant_beyond_its_rate(worlds) -> None:
    by_world = [one.chance(system, seed) for seed, one in enumerate(worlds["noise"], 1) for system in LEARNERS]
    found = sum(p < 0.05 for p in by_world)
    assert binomtest(found, len(by_world), 0.05, alternative="greater").pvalue > 0.05
    over_worlds = sorted(float(ttest_1samp(gains(worlds["noise"], system), 0.0).pvalue) for system in LEARNERS)
    for step, p in enumerate(over_worlds):  # Holm
        assert p * (len(over_worlds) - step) > 0.05
