"""One sector-day looked at closely: what the agents read, recalled and predicted, and what then happened (Appendix C).

What lives here: the case as data, how it is put together from stored tables, and which one is worth showing. What must
not: layout. Outcomes come from the `alpha` table, which no agent sees.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from finevolve_pipeline import calendar
from finevolve_pipeline.errors import MissingPartitionError
from finevolve_pipeline.market.context import MarketContext
from finevolve_pipeline.mechanisms.base import Experience, Mechanism, session_of
from finevolve_pipeline.mechanisms.canaries import REFUSED
from finevolve_pipeline.news.block import NewsItem
from finevolve_pipeline.news.window import items_by_industry
from finevolve_pipeline.replay.clock import NEWS, Gateway, Visible
from finevolve_pipeline.replay.journal import ReplayStore
from finevolve_pipeline.replay.runner import Parts, experience_at, not_replayed
from finevolve_pipeline.settings import Experiment
from finevolve_pipeline.tables import LEFT_OUT, SHORTENED
from finevolve_pipeline.universe import Industry, industry

_ASKER = "the case study"

Verdict = Literal["ok", "wrong", "no direction", "invalid", ""]
"""Was the predicted direction the realised one? Empty where the outcome has no number."""

Row = Mapping[Any, Any]


def signed(score: float) -> str:
    """A score with its sign. One that is not zero never reads like zero, which has no direction."""
    text = f"{score + 0.0:+.3f}"
    return text if float(text) or not score else f"{score:+.1g}"


def signed_percent(value: float) -> str:
    """A fraction as a percentage with its sign; likewise."""
    text = f"{value + 0.0:+.2%}"
    return text if float(text[:-1]) or not value else f"{100 * value:+.1g}%"


@dataclass(frozen=True)
class SectorDay:
    """A sector on a session."""

    industry: Industry
    session: dt.date

    @property
    def slug(self) -> str:
        """Its name in file names, e.g. `801170-2025-05-30`."""
        return f"{self.industry.code}-{self.session}"

    @property
    def title(self) -> str:
        """How people write it."""
        return f"{self.industry.code}.SI {self.industry.name_zh} {self.industry.name_en}, {self.session}"


@dataclass(frozen=True)
class Realised:
    """What the index did over one horizon from a session on.

    Attributes:
        horizon: in sessions.
        known_on: the session it ends; None where that lies beyond the calendar table.
        points: change of the index, index points.
        industry_return: fraction, as the next two.
        benchmark_return: of CSI1000.
        alpha: the excess return. All numbers are NaN where a close is missing.
        is_over: whether the stored closes reach its end.
    """

    horizon: int
    known_on: dt.date | None
    points: float
    industry_return: float
    benchmark_return: float
    alpha: float
    is_over: bool

    @property
    def is_known(self) -> bool:
        """Whether the excess return has a number."""
        return not math.isnan(self.alpha)

    @property
    def told(self) -> str:
        """The excess return, or why there is none."""
        if self.is_known:
            return signed_percent(self.alpha)
        return "missing" if self.is_over else "not known yet"


@dataclass(frozen=True)
class Scored:
    """The score of one horizon, NaN with its reason where it is invalid, and what was realised."""

    score: float
    invalid_reason: str
    realised: Realised

    @property
    def verdict(self) -> Verdict:
        """Whether score and excess return have the same sign; a 0 has none."""
        if math.isnan(self.score):
            return "invalid"
        if not self.realised.is_known:
            return ""
        product = self.score * self.realised.alpha
        return "no direction" if product == 0 else "ok" if product > 0 else "wrong"

    @property
    def told(self) -> str:
        """Score and verdict."""
        return self.verdict if math.isnan(self.score) else f"{signed(self.score)} {self.verdict}".rstrip()


@dataclass(frozen=True)
class Source:
    """An earlier prediction that a piece of experience rests on, of the horizons it is for."""

    memory_id: str
    scores: tuple[Scored, ...]

    @property
    def session(self) -> dt.date:
        """When it was made."""
        return session_of(self.memory_id)


@dataclass(frozen=True)
class Retrieved:
    """A piece of experience as it was retrieved that day; see `tables.Retrievals` for the numbers, None where it has
    none, and for how it stood in the prompt.

    `text` is the one it had that day, None where the mechanism does not list what it keeps.
    """

    rank: int
    memory_id: str
    kind: str
    horizons: tuple[int, ...]
    made_on: dt.date
    available_from: dt.date
    age: int
    similarity: float | None
    q: float | None
    visits: int | None
    selection_score: float | None
    matured_share: float
    news_overlap: float
    in_prompt: str
    text: str | None
    sources: tuple[Source, ...]


@dataclass(frozen=True)
class CaseRun:
    """What one experiment recalled and predicted.

    Attributes:
        confidence: in [0, 1], NaN if not given.
        articles: it was shown so many of the sector's articles, the first ones.
        articles_cut: so many more did not fit.
        known: pieces of experience that the agent had that day, the retrieved ones included.
    """

    experiment: Experiment
    scores: tuple[Scored, ...]
    confidence: float
    key_factor: str
    logic_chain: str
    articles: int
    articles_cut: int
    retrieved: tuple[Retrieved, ...]
    known: int

    @property
    def left_out(self) -> int:
        """Retrieved pieces of experience for which the prompt had no room."""
        return sum(one.in_prompt == LEFT_OUT for one in self.retrieved)

    @property
    def shortened(self) -> int:
        """Shown pieces of experience of which the prompt held the beginning only."""
        return sum(one.in_prompt == SHORTENED for one in self.retrieved)


@dataclass(frozen=True)
class CaseStudy:
    """A sector-day, side by side for all experiments that have replayed it.

    Attributes:
        news: the sector's articles in the order of prompts; a run was shown the first `articles` of them.
        market: what prompts said of the market.
        realised: by horizon, what then happened.
        absent: keys of the asked experiments that have not replayed the session.
    """

    place: SectorDay
    news: tuple[NewsItem, ...]
    market: MarketContext
    realised: tuple[Realised, ...]
    runs: tuple[CaseRun, ...]
    absent: tuple[str, ...]

    @property
    def news_shown(self) -> int:
        """Articles that at least one run was shown."""
        return max(run.articles for run in self.runs)


def build_case(
    place: SectorDay, experiments: Mapping[Experiment, Parts], store: ReplayStore, alpha: pd.DataFrame
) -> CaseStudy:
    """Put a case together from what is stored.

    Args:
        place: the sector-day.
        experiments: those to show, with what each is made of, in this order.
        store: their replays.
        alpha: `Outcomes` by prediction day.

    Raises:
        MissingPartitionError: no experiment has replayed the session, or an input of it is not stored.
        ReplayMismatchError: a stored day is damaged.
    """
    having = {
        experiment: parts for experiment, parts in experiments.items() if store.has(experiment.key, place.session)
    }
    if not having:
        if all(issubclass(parts.mechanism_kind(experiment), REFUSED) for experiment, parts in experiments.items()):
            raise not_replayed(*next(iter(experiments.items())))
        asked = ", ".join(experiment.key for experiment in experiments)
        raise MissingPartitionError(
            f"case {place.industry.code} {place.session}: not replayed by {asked}; "
            f"`finevolve run --to {place.session}` does it"
        )
    parts = next(iter(having.values()))
    after = _Aftermath(alpha, place.industry.code, parts.settings.benchmark.horizons)
    window = parts.reader.read(NEWS, place.session.isoformat())
    codes = (place.industry.code,)
    return CaseStudy(
        place=place,
        news=items_by_industry(window, codes, parts.settings.news.market_wide)[place.industry.code],
        market=_market(place, parts),
        realised=tuple(after.of(place.session, horizon) for horizon in parts.settings.benchmark.horizons),
        runs=tuple(_run(place, experiment, own, store, after) for experiment, own in having.items()),
        absent=tuple(experiment.key for experiment in experiments if experiment not in having),
    )


def lists_experience(experiment: Experiment, parts: Parts) -> bool:
    """Whether the mechanism says what it keeps; one that keeps nothing does not."""
    return parts.mechanism_kind(experiment).experiences is not Mechanism.experiences


def _market(place: SectorDay, parts: Parts) -> MarketContext:
    gateway = Gateway(parts.reader, Visible.of(parts.settings, parts.backbone.count_tokens))
    gateway.advance(place.session)
    return gateway.market(place.session, place.industry.code, _ASKER)


class _Aftermath:
    """What one sector's index did after any session of the window."""

    def __init__(self, alpha: pd.DataFrame, code: str, horizons: tuple[int, ...]) -> None:
        own = alpha[alpha["code"] == code]
        self.horizons = horizons
        self._rows = {(row["predicted_on"], row["horizon"]): row for row in own.to_dict("records")}
        self._closes_until = max(alpha.loc[alpha["alpha"].notna(), "matured_on"], default="")

    def of(self, session: dt.date, horizon: int) -> Realised:
        """Over one horizon."""
        row = self._rows.get((session.isoformat(), horizon))
        if row is None:
            return Realised(horizon, None, math.nan, math.nan, math.nan, math.nan, is_over=False)
        return Realised(
            horizon=horizon,
            known_on=dt.date.fromisoformat(row["matured_on"]),
            points=row["close_to"] - row["close_from"],
            industry_return=row["industry_return"],
            benchmark_return=row["benchmark_return"],
            alpha=row["alpha"],
            is_over=row["matured_on"] <= self._closes_until,
        )

    def scored(self, session: dt.date, rows: Iterable[Row]) -> tuple[Scored, ...]:
        """The scores of a prediction made on a session, by horizon."""
        by_horizon = {row["horizon"]: row for row in rows}
        return tuple(
            Scored(by_horizon[h]["score"], by_horizon[h]["invalid_reason"], self.of(session, h))
            for h in self.horizons
            if h in by_horizon
        )


def _run(place: SectorDay, experiment: Experiment, parts: Parts, store: ReplayStore, after: _Aftermath) -> CaseRun:
    code, key = place.industry.code, experiment.key
    predicted = _rows_of(store.read_predictions(key, [place.session]), code)
    retrieved = _rows_of(store.read_retrievals(key, [place.session]), code)
    if not predicted:
        raise MissingPartitionError(
            f"case {code} {place.session}: {key} does not predict this industry; choose one of benchmark.industries"
        )
    listed = experience_at(experiment, parts, store, place.session, code) if lists_experience(experiment, parts) else ()
    known = {one.memory_id: one for one in listed}
    earlier = _Earlier(key, store, code, {memory for row in retrieved for memory in row["sources"]})
    first = predicted[0]
    return CaseRun(
        experiment=experiment,
        scores=after.scored(place.session, predicted),
        confidence=first["confidence"],
        key_factor=first["key_factor"],
        logic_chain=first["logic_chain"],
        articles=first["articles"],
        articles_cut=first["articles_cut"],
        retrieved=tuple(
            _retrieved(row, known.get(row["memory_id"]), earlier, after)
            for row in sorted(retrieved, key=lambda row: int(row["rank"]))
        ),
        known=len(known),
    )


def _rows_of(frame: pd.DataFrame, code: str) -> list[Row]:
    return list(frame[frame["code"] == code].to_dict("records"))


class _Earlier:
    """Earlier predictions of one experiment for one sector."""

    def __init__(self, experiment: str, store: ReplayStore, code: str, memories: Iterable[str]) -> None:
        sessions = sorted({session_of(memory) for memory in memories})
        columns = ["session", "code", "horizon", "score", "invalid_reason"]
        frame = store.read_predictions(experiment, sessions, columns)
        self._rows: dict[str, list[Row]] = {}
        for row in _rows_of(frame, code):
            self._rows.setdefault(row["session"], []).append(row)

    def rows(self, memory: str, horizons: tuple[int, ...]) -> list[Row]:
        """The prediction's rows of those horizons; of all where none is named."""
        rows = self._rows.get(session_of(memory).isoformat(), [])
        return [row for row in rows if not horizons or row["horizon"] in horizons]


def _retrieved(row: Row, known: Experience | None, earlier: _Earlier, after: _Aftermath) -> Retrieved:
    horizons = (row["horizon"],) if row["horizon"] else ()
    q = _present(row["q"])
    return Retrieved(
        rank=row["rank"],
        memory_id=row["memory_id"],
        kind=row["kind"],
        horizons=horizons,
        made_on=dt.date.fromisoformat(row["made_on"]),
        available_from=dt.date.fromisoformat(row["available_from"]),
        age=row["age"],
        similarity=_present(row["similarity"]),
        q=q,
        visits=None if q is None else row["visits"],
        selection_score=_present(row["selection_score"]),
        matured_share=row["matured_share"],
        news_overlap=row["news_overlap"],
        in_prompt=row["in_prompt"],
        text=None if known is None else known.text,
        sources=tuple(
            Source(memory, after.scored(session_of(memory), earlier.rows(memory, horizons)))
            for memory in row["sources"]
        ),
    )


def _present(value: float) -> float | None:
    return None if math.isnan(value) else value


# -- which case is worth showing


@dataclass(frozen=True)
class Choice:
    """The cases that a report shows, and how they were chosen.

    Attributes:
        places: what is shown; empty where there is nothing to choose from.
        absent: sector-days that the settings name and no experiment has replayed, as text.
        is_named: whether the settings name what is shown; otherwise a rule chose it.
    """

    places: tuple[SectorDay, ...]
    absent: tuple[str, ...] = ()
    is_named: bool = False

    def reason(self, words: Callable[..., str] = str.format) -> str:
        """Why these, in a sentence or two.

        Args:
            words: fills a text's braces from keywords, in the language that is wanted; English by default.
        """
        absent = ", ".join(self.absent)
        if self.is_named and absent:
            return words("Named in the settings (evaluation.cases); not replayed: {absent}.", absent=absent)
        if self.is_named:
            return words("Named in the settings (evaluation.cases).")
        missed = words("evaluation.cases is empty.")
        if absent:
            missed = words("No run has replayed {absent}, which evaluation.cases names.", absent=absent)
        if self.places:
            rule = words(
                "Shown instead: of the sector-days whose outcomes are all known, the one on which the scores of the "
                "runs lie furthest apart (largest less smallest score, mean over the horizons; runs that ask no model "
                "are left out; the earliest session, then the lowest code among equals)."
            )
        else:
            rule = words("No sector-day of the runs has all its outcomes known yet, so that none is shown.")
        return words("{missed} {rule}", missed=missed, rule=rule)


def choose_cases(wanted: Sequence[tuple[str, dt.date]], predictions: pd.DataFrame, alpha: pd.DataFrame) -> Choice:
    """Those of the wanted sector-days that an experiment has replayed; one chosen by rule if none is.

    Args:
        wanted: code and session of each.
        predictions: of all experiments: session, experiment, code, horizon, score, prompt_digest.
        alpha: `Outcomes` by prediction day.
    """
    codes, sessions = predictions["code"], predictions["session"]
    found = [(c, session) for c, session in wanted if ((codes == c) & (sessions == session.isoformat())).any()]
    absent = tuple(f"{code} {session}" for code, session in wanted if (code, session) not in found)
    if found:
        return Choice(tuple(SectorDay(industry(code), session) for code, session in found), absent, is_named=True)
    disputed = most_disputed(predictions, alpha)
    return Choice(() if disputed is None else (disputed,), absent)


def most_disputed(predictions: pd.DataFrame, alpha: pd.DataFrame) -> SectorDay | None:
    """The sector-day on which the experiments disagree most; None if there is none to choose from.

    Counted are sector-days on which every experiment has a valid score, and the label is known, for every horizon.
    Their disagreement is the largest score less the smallest one, mean over the horizons; ties go to the earliest
    session, then to the lowest code. Experiments that ask no model are left out, unless all are such.

    Args:
        predictions: as `choose_cases`.
        alpha: `Outcomes` by prediction day.
    """
    asked = predictions[predictions["prompt_digest"] != ""]
    asked = asked if len(asked) else predictions
    known = alpha.loc[alpha["alpha"].notna(), ["predicted_on", "code", "horizon"]]
    known = known.rename(columns={"predicted_on": "session"})
    scores = asked.merge(known, on=["session", "code", "horizon"])
    cells = scores.groupby(["session", "code", "horizon"])["score"].agg(["min", "max", "count"])
    cells = cells[cells["count"] == asked["experiment"].nunique()]
    spread = (cells["max"] - cells["min"]).groupby(["session", "code"]).agg(["mean", "count"])
    spread = spread[spread["count"] == asked["horizon"].nunique()]
    if spread.empty:
        return None
    # Sums of decimals differ in their last bits: what is equal to 9 decimals counts as equal.
    ranked = (
        spread["mean"].round(9).reset_index().sort_values(["mean", "session", "code"], ascending=[False, True, True])
    )
    first = ranked.iloc[0]
    return SectorDay(industry(first["code"]), calendar.parse_day(first["session"]))
