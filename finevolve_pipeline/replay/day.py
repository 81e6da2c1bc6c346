"""One day of the replay, in the protocol's order: mature, observe, retrieve and predict, freeze, append.

Every sector sees the stores as they stood when the day's outcomes had matured and nothing of today's other
predictions, so the order of the sectors and how many run at once change nothing.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import math
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np

from finevolve_pipeline import calendar
from finevolve_pipeline.embedding import Vectors
from finevolve_pipeline.errors import BackboneError, BudgetError, CacheError, CacheMissError, LookAheadError
from finevolve_pipeline.llm.answers import PredictionAnswer, parse_prediction, prediction_flaws
from finevolve_pipeline.llm.asking import Asked, Model
from finevolve_pipeline.llm.requests import Cuts, PredictRequest, Shown, total_failures, total_usage
from finevolve_pipeline.mechanisms.base import (
    Event,
    MaturedPrediction,
    Mechanism,
    Recalled,
    Situation,
    Trajectory,
    UpdateFailed,
)
from finevolve_pipeline.news.block import NewsBlock
from finevolve_pipeline.replay.called import Calling
from finevolve_pipeline.replay.clock import Gateway, is_known
from finevolve_pipeline.replay.history import History
from finevolve_pipeline.replay.journal import APPEND, MATURE, PHASE, Columns, Counts, DayContent, Spent
from finevolve_pipeline.replay.maturity import matured
from finevolve_pipeline.tables import LEFT_OUT, SHORTENED, WHOLE
from finevolve_pipeline.universe import INDUSTRIES, Industry, industry

_NO_KEY: Vectors = np.zeros(0, dtype=np.float32)
_REPLAY = "the replay"
_EMBEDDING = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embedding")
"""Where news is embedded: one batch at a time, while other experiments of the process go on."""
_MODEL_STOPPED = (BackboneError, BudgetError, CacheError, CacheMissError)
"""Errors by which a model can be asked nothing more, though what it was asked before may still be answered."""
_T = TypeVar("_T")


@dataclass(frozen=True)
class Execution:
    """How a day is worked through. Results do not depend on it.

    Attributes:
        workers: sectors that may wait for a model at the same time.
        order: the order in which sectors are started.
    """

    workers: int = len(INDUSTRIES)
    order: tuple[Industry, ...] = INDUSTRIES


@dataclass(frozen=True)
class Chain:
    """What stays the same from day to day of one experiment; `codes` are the industries it predicts."""

    experiment: str
    horizons: tuple[int, ...]
    codes: tuple[str, ...]
    out_of_range: Literal["invalid", "clip"]
    gateway: Gateway
    history: History
    mechanism: Mechanism
    model: Model
    execution: Execution

    @property
    def calling(self) -> Calling:
        """How its calls of the mechanism are named."""
        return Calling(self.experiment, type(self.mechanism))


@dataclass(frozen=True)
class Predicted:
    """One sector's answer and all that belongs to it. `asked` is None where no model was needed."""

    industry: Industry
    news: NewsBlock
    recalled: tuple[Recalled, ...]
    answer: PredictionAnswer
    asked: Asked[PredictionAnswer] | None

    @property
    def _shown(self) -> tuple[Shown, ...]:
        """The first ones of what was recalled, as the prompt shows them."""
        told = self.asked.prompt.told if self.asked else None
        return told.memories if isinstance(told, PredictRequest) else tuple(one.shown for one in self.recalled)

    @property
    def in_prompt(self) -> list[str]:
        """How each recalled memory stood in the prompt (see `tables.Retrievals`)."""
        shown = self._shown
        stood = [WHOLE if one.shown is told else SHORTENED for one, told in zip(self.recalled, shown, strict=False)]
        return stood + [LEFT_OUT] * (len(self.recalled) - len(shown))

    def frozen(self, session: dt.date) -> Trajectory:
        """The prediction as the chain's history keeps it."""
        confidence = self.answer.confidence
        return Trajectory(
            session=session,
            code=self.industry.code,
            scores={h: score for h, score in self.answer.scores.items() if h not in self.answer.invalid},
            invalid=self.answer.invalid,
            confidence=math.nan if confidence is None else confidence,
            key_factor=self.answer.key_factor,
            logic_chain=self.answer.logic_chain,
            references=tuple(one.memory_id for one in self._shown),
        )


async def replay_day(session: dt.date, chain: Chain) -> DayContent:
    """Replay one session and bring the chain's state to its end.

    Args:
        session: the session after the last one replayed.
        chain: the experiment.

    Returns:
        What the day leaves, ready to be committed.

    Raises:
        LookAheadError: something reached beyond the close of `session`.
        MechanismError: the mechanism gave back what it must not. Its own errors are raised as they are, with a note.
        MissingPartitionError: an input of the day does not exist.
    """
    chain.gateway.advance(session)
    due = matured(chain.gateway.outcomes(session, _REPLAY), chain.history)
    all_due = [one for code in chain.codes for one in due.get(code, ())]
    chain.history.settle(all_due)
    heard: list[Asked[Any]] = []
    model = replace(chain.model, heard=heard.append)
    learnt = await _mature(session, due, chain, model)
    updates = len(heard)
    situations = await _observe(session, chain)
    keys_cut = await _embedding(chain.history.texts_cut, session) if chain.mechanism.compares_news else 0
    predicted = await _each_sector(chain, lambda industry: _predict(situations[industry.code], chain, model))
    frozen = [one.frozen(session) for one in predicted]
    chain.history.record(frozen)
    asked = len(heard)
    kept = await _append(session, frozen, chain, model)
    updates += len(heard) - asked
    return DayContent(
        session=session,
        predictions=_prediction_rows(session, predicted, chain),
        retrievals=_retrieval_rows(session, predicted, chain),
        events=[
            {PHASE: phase, **event.to_json()}
            for phase, events in ((MATURE, learnt), (APPEND, kept))
            for event in events
        ],
        counts=_counts(all_due, predicted, [*learnt, *kept], updates, heard, keys_cut),
        usage=Spent(**asdict(total_usage(one.usage for one in heard))),
        failures=total_failures(one.failures for one in heard),
        models=tuple(sorted({name for one in heard for name in one.models})),
    )


def apply_events(session: dt.date, events: Sequence[Event], mechanism: Mechanism, calling: Calling) -> None:
    """Change a mechanism's state by journal events, in their order; failed updates change nothing."""
    for event in events:
        if not isinstance(event, UpdateFailed):
            with calling.at("apply", session, event.code).named():
                mechanism.apply(session, event)


async def _each_sector(chain: Chain, work: Callable[[Industry], Awaitable[_T]]) -> list[_T]:
    """The work of every sector, at most `workers` at once; results in the universe's order."""
    free = asyncio.Semaphore(chain.execution.workers)

    async def one(industry: Industry) -> _T:
        async with free:
            return await work(industry)

    order = [industry for industry in chain.execution.order if industry.code in chain.codes]
    tasks = {industry.code: asyncio.ensure_future(one(industry)) for industry in order}
    try:
        await _until_a_defect([tasks[code] for code in chain.codes])
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
    return [tasks[code].result() for code in chain.codes]


async def _until_a_defect(tasks: Sequence[asyncio.Task[_T]]) -> None:
    """Wait for all tasks. A model that cannot be asked further (`_MODEL_STOPPED`) stops none of them: what it is
    answering now is paid for and will be kept. Any other failure is raised at once."""
    waiting = set(tasks)
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:  # so that of several the same one is told each time
            if task not in done:
                continue
            error = task.exception()
            if error is not None and not isinstance(error, _MODEL_STOPPED):
                raise error


async def _mature(
    session: dt.date, due: dict[str, tuple[MaturedPrediction, ...]], chain: Chain, model: Model
) -> list[Event]:
    async def learn(industry: Industry) -> Sequence[Event]:
        own = due.get(industry.code)
        if own is None:
            return ()
        call = chain.calling.at("mature", session, industry.code)
        with call.named():
            given = chain.mechanism.mature(session, industry.code, own, call.asking(model))
        return await call.events(given)

    events = [event for own in await _each_sector(chain, learn) for event in own]
    apply_events(session, events, chain.mechanism, chain.calling)
    return events


async def _embedding(work: Callable[[dt.date], _T], session: dt.date) -> _T:
    return await asyncio.get_running_loop().run_in_executor(_EMBEDDING, work, session)


async def _observe(session: dt.date, chain: Chain) -> dict[str, Situation]:
    news = chain.gateway.news(session, _REPLAY)
    keys = None
    if chain.mechanism.compares_news:
        keys = await _embedding(chain.history.keys, session)
    return {
        code: Situation(
            session=session,
            industry=industry(code),
            news=news[code],
            market=chain.gateway.market(session, code, _REPLAY),
            key=_NO_KEY if keys is None else keys[row],
        )
        for row, code in enumerate(chain.codes)
    }


async def _predict(situation: Situation, chain: Chain, model: Model) -> Predicted:
    place = situation.session, situation.industry.code
    call = chain.calling.at("forecast", *place)
    with call.named():
        predicted = chain.mechanism.forecast(situation)
    forecast = call.forecast(predicted, chain.horizons)
    if forecast is not None:
        return Predicted(situation.industry, situation.news, (), _storable(forecast), None)
    call = chain.calling.at("retrieve", *place)
    with call.named():
        given = chain.mechanism.retrieve(situation)
    recalled = call.recalled(given)
    for one in recalled:
        with call.named():
            available_from = one.available_from
        if available_from > situation.session:
            raise LookAheadError(
                f"{chain.experiment} recalled memory {one.shown.memory_id} for {situation.industry.code} on "
                f"{situation.session}, before it can be known"
            )
    request = PredictRequest(
        session=situation.session,
        industry=situation.industry,
        horizons=chain.horizons,
        news=situation.news,
        market=situation.market,
        memories=tuple(one.shown for one in recalled),
    )
    asked = await model.ask(
        request, lambda text: _storable(parse_prediction(text, chain.horizons, chain.out_of_range)), prediction_flaws
    )
    return Predicted(
        industry=situation.industry,
        news=situation.news,
        recalled=recalled,
        answer=asked.answer or _unreadable(chain.horizons, _encodable(asked.problem)),
        asked=asked,
    )


def _unreadable(horizons: tuple[int, ...], problem: str) -> PredictionAnswer:
    return PredictionAnswer(
        scores=dict.fromkeys(horizons, math.nan),
        invalid=dict.fromkeys(horizons, problem),
        confidence=None,
        key_factor="",
        logic_chain="",
    )


def _storable(answer: PredictionAnswer) -> PredictionAnswer:
    """The answer without lone surrogates, which UTF-8 cannot hold: live text must equal stored text."""
    return replace(
        answer,
        invalid={horizon: _encodable(why) for horizon, why in answer.invalid.items()},
        key_factor=_encodable(answer.key_factor),
        logic_chain=_encodable(answer.logic_chain),
    )


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


async def _append(session: dt.date, frozen: Sequence[Trajectory], chain: Chain, model: Model) -> list[Event]:
    own = {trajectory.code: trajectory for trajectory in frozen}

    async def keep(industry: Industry) -> Sequence[Event]:
        call = chain.calling.at("append", session, industry.code)
        with call.named():
            given = chain.mechanism.append(own[industry.code], call.asking(model))
        return await call.events(given)

    events = [event for one in await _each_sector(chain, keep) for event in one]
    apply_events(session, events, chain.mechanism, chain.calling)
    return events


def _prediction_rows(session: dt.date, predicted: Sequence[Predicted], chain: Chain) -> Columns:
    rows = [
        (
            one.industry.code,
            horizon,
            one.answer.scores[horizon],
            one.answer.invalid.get(horizon, ""),
            math.nan if one.answer.confidence is None else one.answer.confidence,
            one.answer.key_factor,
            one.answer.logic_chain,
            one.asked.prompt_digest if one.asked else "",
            len(one.news.items),
            one.news.cut,
        )
        for one in predicted
        for horizon in chain.horizons
    ]
    return _table(session, chain.experiment, rows, _PREDICTION_COLUMNS)


def _retrieval_rows(session: dt.date, predicted: Sequence[Predicted], chain: Chain) -> Columns:
    today = calendar.session_index(session)
    rows = [
        (
            one.industry.code,
            rank,
            recalled.shown.memory_id,
            recalled.kind,
            recalled.horizons[0] if len(recalled.horizons) == 1 else 0,
            recalled.shown.made_on.isoformat(),
            recalled.available_from.isoformat(),
            list(recalled.sources),
            _number(recalled.shown.similarity),
            _utility(recalled.shown.q),
            recalled.shown.visits or 0,
            _number(recalled.shown.selection_score),
            today - calendar.session_index(recalled.shown.made_on),
            recalled.matured_share,
            recalled.news_overlap,
            in_prompt,
        )
        for one in predicted
        for rank, (recalled, in_prompt) in enumerate(zip(one.recalled, one.in_prompt, strict=True), start=1)
    ]
    return _table(session, chain.experiment, rows, _RETRIEVAL_COLUMNS)


_PREDICTION_COLUMNS = (
    "code",
    "horizon",
    "score",
    "invalid_reason",
    "confidence",
    "key_factor",
    "logic_chain",
    "prompt_digest",
    "articles",
    "articles_cut",
)
_RETRIEVAL_COLUMNS = (
    "code",
    "rank",
    "memory_id",
    "kind",
    "horizon",
    "made_on",
    "available_from",
    "sources",
    "similarity",
    "q",
    "visits",
    "selection_score",
    "age",
    "matured_share",
    "news_overlap",
    "in_prompt",
)


def _table(session: dt.date, experiment: str, rows: Sequence[tuple[object, ...]], columns: tuple[str, ...]) -> Columns:
    values = zip(*rows, strict=True) if rows else [()] * len(columns)
    return {
        "session": [session.isoformat()] * len(rows),
        "experiment": [experiment] * len(rows),
        **dict(zip(columns, values, strict=True)),
    }


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _utility(value: float | dict[int, float] | None) -> float:
    """The Q of the log: the one, or the mean over the horizons."""
    if isinstance(value, dict):
        return math.fsum(value.values()) / len(value)
    return _number(value)


def _counts(
    due: Sequence[MaturedPrediction],
    predicted: Sequence[Predicted],
    events: Sequence[Event],
    updates: int,
    heard: Sequence[Asked[Any]],
    keys_cut: int,
) -> Counts:
    cuts = sum((one.cuts for one in heard), Cuts())
    asked = [one.asked for one in predicted if one.asked is not None]
    return Counts(
        predictions=sum(len(one.answer.scores) for one in predicted),
        invalid=sum(len(one.answer.invalid) for one in predicted),
        retrievals=sum(len(one.recalled) for one in predicted),
        matured=len(due),
        undefined=sum(1 for one in due if one.score is None or not is_known(one.outcome)),
        updates=updates,
        events=len(events),
        update_failures=sum(1 for event in events if isinstance(event, UpdateFailed)),
        articles_cut=sum(one.news.cut for one in predicted),
        repaired=sum(1 for one in asked if one.reasked and one.answer is not None),
        memories_cut=cuts.memories,
        memory_news_cut=cuts.memory_news,
        update_news_cut=cuts.update_news,
        keys_cut=keys_cut,
    )
