"""A seeded world of news and bars with a planted signal, and the truth about it.

Every industry has a *tone* a day, in [-1, 1], that drifts from day to day. The higher it is, the likelier the
day's news is good. The tone of a session (of all days since the previous one) then moves the industry's
excess return over the 40 sessions *after* it, most of it in the first 15: in regime A in the news' direction,
in regime B against it ("good news is sold"). Nothing moves before the cutoff of the news.

Four kinds of world (`Regime`) say what experience is worth: *turning* begins in A and flips at each turn; *stable* is B
from end to end, a lesson that holds and that the news alone does not tell; *reversal* begins in B and flips, so that
what was learnt becomes wrong; in *noise* the news moves nothing, and there is nothing to learn.

Prices, tones and texts draw from separate random streams: more articles leave the bars as they are.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import pandas as pd

from finevolve_pipeline import calendar
from finevolve_pipeline.errors import SettingsError
from finevolve_pipeline.synth.text import (
    THROWS,
    Dice,
    Story,
    as_sent,
    industry_story,
    market_story,
    other_story,
)
from finevolve_pipeline.tables import TIME, Bars, RawNews, conform
from finevolve_pipeline.universe import BENCHMARK, CODES, INDUSTRIES

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

Regime = Literal["turning", "stable", "reversal", "noise"]
"""How the direction in which news moves prices runs through a world."""

REGIMES: tuple[Regime, ...] = get_args(Regime)

_FIRST_DIRECTION: dict[Regime, int] = {"turning": 1, "stable": -1, "reversal": -1, "noise": 0}
_TURNING: frozenset[Regime] = frozenset({"turning", "reversal"})
_REGIME_NAMES = {1: "A", -1: "B", 0: "none"}

BARS_BEFORE = 45
"""Sessions with bars before the first prediction: the longest trailing return and a few more."""

BARS_AFTER = 40
"""Sessions with bars after the last prediction: its longest horizon."""

NEWS_LEAD = dt.timedelta(days=12)
"""News starts this long before the first session, so that the first windows are full over any closure."""

EFFECT = 40
"""Sessions over which a session's tone moves prices."""

_NEWS_MEDIA = (
    "yuncaijing",
    "fenghuang",
    "sina",
    "eastmoney",
    "10jqka",
    "jinrongjie",
    "wallstreetcn",
    "yicai",
    "cls",
)
_TONE_MEMORY = 0.85
_EFFECT_DECAY = 15.0
_MARKET_VOLATILITY = 0.015
_EXCESS_VOLATILITY = 0.010
_WEEKEND_NEWS = 0.4
_COPIED = 0.08
_MIDNIGHT_EVERY = 7


@dataclass(frozen=True)
class SynthSettings:
    """What a world is made of; the same settings give the same world.

    Attributes:
        seed: of all random streams, not negative.
        first_session: first session of predictions.
        last_session: last one; bars reach 40 sessions further.
        articles_per_day: news on a session's day, copies not counted; 40 % of it on other days.
        signal: excess move over 40 sessions for one session of full tone, a fraction; 0 plants nothing.
        regime: what kind of world it is.
        turns: where a `turning` or `reversal` world flips, as shares of the prediction window, ascending.
        missing: share of industry bars with a missing close, and again of those with a close only.
        sources: source ids of the news.
    """

    seed: int = 1
    first_session: dt.date = dt.date(2025, 1, 2)
    last_session: dt.date = dt.date(2025, 4, 3)
    articles_per_day: int = 150
    signal: float = 0.006
    regime: Regime = "turning"
    turns: tuple[float, ...] = (0.5,)
    missing: float = 0.002
    sources: tuple[str, ...] = field(default=_NEWS_MEDIA)

    def __post_init__(self) -> None:
        """Refuses values that make no world. Raises `SettingsError`."""
        rules: tuple[tuple[bool, str, object, str], ...] = (
            (self.seed >= 0, "seed", self.seed, "use 0 or more"),
            (
                bool(self.sessions),
                "last_session",
                self.last_session,
                f"no session from {self.first_session} on",
            ),
            (self.articles_per_day >= 1, "articles_per_day", self.articles_per_day, "use 1 or more"),
            (math.isfinite(self.signal), "signal", self.signal, "use a finite number"),
            (self.regime in REGIMES, "regime", self.regime, f"use one of {', '.join(REGIMES)}"),
            (
                all(0 < turn < 1 for turn in self.turns) and list(self.turns) == sorted(set(self.turns)),
                "turns",
                self.turns,
                "use ascending shares between 0 and 1",
            ),
            (0 <= self.missing < 0.5, "missing", self.missing, "use a share from 0 to below 0.5"),
            (
                len(set(self.sources)) == len(self.sources) >= 2,
                "sources",
                self.sources,
                "name two or more, each once",
            ),
        )
        for holds, name, value, advice in rules:
            if not holds:
                raise SettingsError(f"synthetic world: {name} {value}: {advice}")

    @property
    def sessions(self) -> tuple[dt.date, ...]:
        """Sessions of predictions."""
        return calendar.sessions_between(self.first_session, self.last_session)

    @property
    def bar_sessions(self) -> tuple[dt.date, ...]:
        """Sessions with bars. Raises `CalendarError` if they leave the calendar table."""
        return calendar.sessions_between(
            calendar.shift(self.sessions[0], -BARS_BEFORE), calendar.shift(self.sessions[-1], BARS_AFTER)
        )

    @property
    def news_days(self) -> tuple[dt.date, ...]:
        """Calendar days with news, weekends and closures included."""
        return calendar.days_between(self.sessions[0] - NEWS_LEAD, self.sessions[-1])

    @property
    def turn_sessions(self) -> tuple[dt.date, ...]:
        """First session of each later regime; none where the world does not turn."""
        turns = self.turns if self.regime in _TURNING else ()
        return tuple(self.sessions[int(len(self.sessions) * turn)] for turn in turns)

    def direction(self, session: dt.date) -> int:
        """1 in regime A, where prices follow the session's news, -1 in regime B, where they go against it, 0 where they
        do neither."""
        flipped = sum(turn <= session for turn in self.turn_sessions) % 2
        return -_FIRST_DIRECTION[self.regime] if flipped else _FIRST_DIRECTION[self.regime]


@dataclass(frozen=True)
class Truth:
    """What was planted; a test or a report may compare with it, nothing that predicts may read it.

    Attributes:
        impact: per session and industry: session, code, tone (mean over the days since the previous session),
            regime (A, B or none), impact (expected excess move over the 40 sessions after it, a fraction).
        stories: per article: source, source_id, scope, code, tone (-1, 0, 1).
        copies: later copies of an article by another source: source, source_id, original (source:source_id).
    """

    impact: pd.DataFrame
    stories: pd.DataFrame
    copies: pd.DataFrame


@dataclass(frozen=True)
class SynthWorld:
    """News (`RawNews`), bars (`Bars`) of industries and benchmark, and the truth behind them."""

    settings: SynthSettings
    news: pd.DataFrame
    industry_bars: pd.DataFrame
    benchmark_bars: pd.DataFrame
    truth: Truth


def generate(settings: SynthSettings) -> SynthWorld:
    """The world of these settings.

    Raises:
        CalendarError: bars would be needed beyond the calendar table.
    """
    prices, tones, texts, gaps = (
        np.random.Generator(np.random.PCG64(sequence)) for sequence in np.random.SeedSequence(settings.seed).spawn(4)
    )
    tone = _drifting_tones(len(settings.news_days), tones)
    impact = _impact(settings, tone)
    excess = _planted_excess(settings, impact)
    industry, benchmark = _bars(settings, excess, prices)
    news, stories, copies = _news(settings, tone, texts)
    return SynthWorld(
        settings,
        news,
        conform(_with_gaps(industry, settings.missing, gaps), Bars, "synthetic industry bars"),
        conform(benchmark, Bars, "synthetic benchmark bars"),
        Truth(impact, stories, copies),
    )


def _drifting_tones(days: int, rng: np.random.Generator) -> Floats:
    """Tones of days x industries: a first-order autoregression, squeezed into [-1, 1]."""
    shocks = rng.standard_normal((days, len(CODES)))
    level = np.empty_like(shocks)
    level[0] = shocks[0]
    for day in range(1, days):
        level[day] = _TONE_MEMORY * level[day - 1] + math.sqrt(1 - _TONE_MEMORY**2) * shocks[day]
    return np.asarray(np.tanh(level))


def _impact(settings: SynthSettings, tone: Floats) -> pd.DataFrame:
    """The planted signal of every session with news, also of those before the first prediction."""
    days = settings.news_days
    position = {day: number for number, day in enumerate(days)}
    parts = []
    after = 0
    for session in calendar.sessions_between(days[0], days[-1]):
        until = position[session] + 1
        mean = tone[after:until].mean(axis=0)
        direction = settings.direction(session)
        parts.append(
            pd.DataFrame(
                {
                    "session": session.isoformat(),
                    "code": CODES,
                    "tone": mean,
                    "regime": _REGIME_NAMES[direction],
                    "impact": direction * settings.signal * mean,
                }
            )
        )
        after = until
    return pd.concat(parts, ignore_index=True)


def _planted_excess(settings: SynthSettings, impact: pd.DataFrame) -> Floats:
    """Planted excess return of bar sessions x industries: each impact spread over the sessions after it."""
    spread = np.exp(-np.arange(EFFECT) / _EFFECT_DECAY)
    spread /= spread.sum()
    sessions = [session.isoformat() for session in settings.bar_sessions]
    planted = impact.pivot(index="session", columns="code", values="impact")
    impulses = planted.reindex(index=sessions, columns=list(CODES)).fillna(0.0).to_numpy()
    moves = np.zeros_like(impulses)
    for lag, weight in enumerate(spread, start=1):
        moves[lag:] += weight * impulses[:-lag]
    return moves


def _bars(settings: SynthSettings, planted: Floats, rng: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Random walks of industries (benchmark plus excess) and benchmark, in points; volumes in shares."""
    sessions = [session.isoformat() for session in settings.bar_sessions]
    count = len(sessions)
    market = _MARKET_VOLATILITY * rng.standard_normal((count, 1))
    excess = _EXCESS_VOLATILITY * rng.standard_normal((count, len(CODES))) + planted
    start = rng.uniform(1500, 9000, len(CODES))
    industry = _table(sessions, CODES, start, market + excess, (1e9, 2e10), 2, rng)
    benchmark = _table(sessions, (BENCHMARK,), np.array([6000.0]), market, (1.5e10, 3e10), 4, rng)
    return industry, benchmark


def _table(
    sessions: Sequence[str],
    codes: Sequence[str],
    start: Floats,
    returns: Floats,
    usual_volume: tuple[float, float],
    decimals: int,
    rng: np.random.Generator,
) -> pd.DataFrame:
    shape = returns.shape
    close = start * np.cumprod(1 + np.clip(returns, -0.15, 0.15), axis=0)
    previous = np.vstack([start, close[:-1]])
    opened = previous * (1 + 0.003 * rng.standard_normal(shape))
    high = np.maximum(opened, close) * (1 + 0.006 * rng.random(shape))
    low = np.minimum(opened, close) * (1 - 0.006 * rng.random(shape))
    volume = np.round(rng.uniform(*usual_volume, shape[1]) * np.exp(0.25 * rng.standard_normal(shape)))
    amount = np.round(volume * rng.uniform(6, 25, shape[1]))
    return pd.DataFrame(
        {
            "session": np.repeat(np.array(sessions, dtype=object), len(codes)),
            "code": list(codes) * len(sessions),
            "open": np.round(opened, decimals).ravel(),
            "high": np.round(high, decimals).ravel(),
            "low": np.round(low, decimals).ravel(),
            "close": np.round(close, decimals).ravel(),
            "volume": volume.ravel(),
            "amount": amount.ravel(),
        }
    )


def _with_gaps(bars: pd.DataFrame, share: float, rng: np.random.Generator) -> pd.DataFrame:
    """The bars with some rows empty and some with a close only, as real files have them."""
    fate = rng.random(len(bars))
    gaps = bars.copy()
    gaps.loc[fate < 2 * share, ["open", "high", "low", "volume", "amount"]] = np.nan
    gaps.loc[fate < share, "close"] = np.nan
    return gaps


def _news(
    settings: SynthSettings, tone: Floats, rng: np.random.Generator
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """All articles with their copies, oldest first, and the truth about both."""
    desk = _Desk(settings.sources)
    for number, day in enumerate(settings.news_days):
        usual = settings.articles_per_day * (1.0 if calendar.is_session(day) else _WEEKEND_NEWS)
        desk.write_day(day, max(1, round(usual)), tone[number], number % _MIDNIGHT_EVERY == 0, rng)
    return desk.tables(last_day=settings.news_days[-1])


def _seconds_of_day(count: int, rng: np.random.Generator) -> list[int]:
    """Publication times: mostly around noon and early evening, some at any hour."""
    busy = rng.normal(13.5 * 3600, 4 * 3600, count)
    anytime = rng.uniform(0, 86400, count)
    return [int(second) % 86400 for second in np.where(rng.random(count) < 0.8, busy, anytime)]


class _Desk:
    """Collects articles while a world is written."""

    def __init__(self, sources: tuple[str, ...]) -> None:
        self._sources = sources
        self._articles: list[tuple[str, str, str, str, dt.datetime]] = []
        self._stories: list[tuple[str, str, str, str, int]] = []
        self._copies: list[tuple[str, str, str]] = []

    def write_day(self, day: dt.date, count: int, tone: Floats, midnight: bool, rng: np.random.Generator) -> None:
        """The day's articles. With `midnight` the last is published at 23:57 and copied after 24:00."""
        kinds = rng.random(count)
        industries = rng.integers(0, len(CODES), count)
        moods = rng.random(count)
        seconds = _seconds_of_day(count, rng)
        copied = rng.random(count) < _COPIED
        delays = rng.integers(60, 20 * 60, count)
        throws = rng.integers(0, 1 << 30, (count, THROWS)).tolist()
        start = dt.datetime.combine(day, dt.time(), tzinfo=calendar.SHANGHAI)
        for number in range(count):
            dice = Dice(throws[number])
            at_midnight = midnight and number == count - 1
            second, delay = (86220, 400) if at_midnight else (seconds[number], int(delays[number]))
            industry = int(industries[number])
            story = _story(float(kinds[number]), industry, float(tone[industry]), float(moods[number]), dice)
            place = dice.number(0, len(self._sources) - 1)
            published = start + dt.timedelta(seconds=second)
            original = self._send(story, place, published, dice)
            if copied[number] or at_midnight:
                other = (place + dice.number(1, len(self._sources) - 1)) % len(self._sources)
                copy = self._send(story, other, published + dt.timedelta(seconds=delay), dice)
                self._copies.append((*copy, ":".join(original)))

    def _send(self, story: Story, place: int, published: dt.datetime, dice: Dice) -> tuple[str, str]:
        source, source_id = self._sources[place], f"{published:%Y%m%d}{len(self._articles):07d}"
        title, content = as_sent(story, place, dice)
        self._articles.append((source, source_id, title, content, published))
        self._stories.append((source, source_id, story.scope, story.code, story.tone))
        return source, source_id

    def tables(self, last_day: dt.date) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
        """News, stories and copies; what fell beyond the last day is left out."""
        articles = pd.DataFrame(self._articles, columns=["source", "source_id", "title", "content", "published_at"])
        stories = pd.DataFrame(self._stories, columns=["source", "source_id", "scope", "code", "tone"])
        copies = pd.DataFrame(self._copies, columns=["source", "source_id", "original"])
        articles = articles.sort_values(["published_at", "source_id"], kind="stable")
        articles = articles[articles["published_at"] < calendar.cutoff(last_day)]
        told = stories.loc[articles.index].reset_index(drop=True)
        copies = copies[copies["source_id"].isin(articles["source_id"])].reset_index(drop=True)
        nothing: list[list[str]] = [[] for _ in range(len(articles))]
        news = articles.assign(
            url="https://news.invalid/" + articles["source"] + "/" + articles["source_id"],
            modified_at=pd.Series(pd.NaT, index=articles.index, dtype=TIME),
            crawled_at=pd.Series(pd.NaT, index=articles.index, dtype=TIME),
            origin="synth",
            industries_given=pd.Series(nothing, index=articles.index, dtype="object"),
            importance_given=np.nan,
        )
        return conform(news, RawNews, "synthetic news"), told, copies


def _story(kind: float, industry: int, tone: float, mood: float, dice: Dice) -> Story:
    """72 % industry news (a tenth of it neutral), 14 % market-wide, 14 % without bearing."""
    if kind < 0.72:
        if mood < 0.1:
            return industry_story(INDUSTRIES[industry], 0, dice)
        good = (mood - 0.1) / 0.9 < (1 + tone) / 2
        return industry_story(INDUSTRIES[industry], 1 if good else -1, dice)
    return market_story(dice) if kind < 0.86 else other_story(dice)
