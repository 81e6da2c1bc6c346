"""What only data of one's own can show: closes, news, and answers that a bundle was not made with.

The prompts of a run follow from its news and from what its mechanism kept. Where this home has the same news, prompts
without experience are written again at once; where it has the answers too (a lexicon, or an imported cache), the whole
run is repeated, and must come out row by row.
"""

from __future__ import annotations

import datetime as dt
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pandas as pd

from finevolve_pipeline import calendar
from finevolve_pipeline.digests import digest_json
from finevolve_pipeline.errors import CacheMissError, FinEvolveError
from finevolve_pipeline.evaluation.bundle.checks import Check, NotRun, Refuted, checked
from finevolve_pipeline.evaluation.bundle.content import RUN_SHEETS, Content, Run
from finevolve_pipeline.evaluation.bundle.gather import BARS, gather_run
from finevolve_pipeline.graph import TableReader
from finevolve_pipeline.llm.asking import Model
from finevolve_pipeline.llm.render import prompt_digest
from finevolve_pipeline.llm.requests import Call, PredictRequest, Reply
from finevolve_pipeline.llm.rules.backbone import RulesBackbone
from finevolve_pipeline.llm.stand_in import StandIn
from finevolve_pipeline.replay.clock import Gateway, Visible
from finevolve_pipeline.replay.journal import ReplayStore
from finevolve_pipeline.replay.runner import DayDone, Parts, identity, run
from finevolve_pipeline.settings import Experiment
from finevolve_pipeline.tables import LEFT_OUT
from finevolve_pipeline.universe import industry

CLOSE_TOLERANCE = 1e-5
"""Relative difference of two sources' closes that is rounding; a label moves by no more than that."""


@dataclass(frozen=True)
class OwnData:
    """A home's data, and what a run would be made of here.

    Attributes:
        reader: its tables.
        parts: what an experiment is made of; raises `FinEvolveError` where settings have no such experiment.
    """

    reader: TableReader
    parts: Callable[[Experiment], Parts]


class Unanswered(StandIn):
    """A backbone that answers only what was answered before; a lexicon answers for itself."""

    async def answer(self, call: Call) -> Reply:
        """The answer. Raises `CacheMissError` if there is none."""
        if isinstance(self._backbone, RulesBackbone):
            return await self._backbone.answer(call)
        reply = self.recall(call)
        if reply is None:
            raise CacheMissError(
                f"answers of {self.name} are not in this home's cache; `finevolve cache import` adds them"
            )
        return reply


class OwnChecker:
    """Checks of one bundle, sound in itself, against a home's own data."""

    def __init__(self, content: Content, own: OwnData) -> None:
        self._content = content
        self._own = own
        self._reader = own.reader

    def closes(self) -> Check:
        """The closes are those of this home."""
        return checked("own closes", self._closes)

    def prompts(self) -> Iterator[Check]:
        """Per run: repeated from own news and answers, or else its prompts written again as far as they show no
        experience."""
        for run_ in self._content.runs:
            repeated = checked(f"own run {run_.key}", partial(self._repeated, run_))
            yield repeated
            if repeated.status == "not run":
                yield checked(f"own prompts {run_.key}", partial(self._prompts, run_))

    def _closes(self) -> str:
        told: dict[str, dict[str, float]] = {}
        for session, code, close in self._content.closes.itertuples(index=False, name=None):
            told.setdefault(session, {})[code] = close
        header, known = self._content.header, 0
        # A run reads the closes of its whole window, so a session without any was left out like a single close.
        last = dt.date.fromisoformat(max([header.last_session.isoformat(), *told]))
        for day in calendar.sessions_between(header.first_session, last):
            session = day.isoformat()
            theirs = told.get(session, {})
            for code, close in self._own_closes(session).items():
                if code not in theirs:
                    raise Refuted(f"{session} {code}: this home has a close, the bundle has none")
                known += 1
                if not math.isclose(close, theirs[code], rel_tol=CLOSE_TOLERANCE):
                    raise Refuted(f"{session} {code}: close {theirs[code]} in the bundle, {close} in this home")
        number = len(self._content.closes)
        if known < number or not known:
            raise NotRun(
                f"this home has {known} of {number} closes, which agree; `finevolve fetch market` or `finevolve "
                "import market`, then `finevolve run`, bring the others"
            )
        return f"{known} closes are those of this home"

    def _own_closes(self, session: str) -> dict[str, float]:
        """Closes that this home knows, by code."""
        found: dict[str, float] = {}
        for table in BARS:
            if self._reader.digest(table, session) is not None:
                frame = self._reader.read(table, session)
                known = frame[frame["close"].notna()]
                found |= dict(zip(known["code"].tolist(), known["close"].tolist(), strict=True))
        return found

    def _parts(self, run_: Run) -> Parts:
        """What the run would be made of here. Raises `NotRun` where it would be another run."""
        try:
            parts = self._own.parts(run_.experiment)
            mine = identity(run_.experiment, parts)
        except FinEvolveError as other:
            raise NotRun(f"cannot be made here: {other}") from None
        theirs = run_.identity
        for name in sorted({*mine, *theirs}):
            if digest_json(mine.get(name)) != digest_json(theirs.get(name)):
                raise NotRun(f"would be another run here: {name} is another (code, or settings in force)")
        benchmark = parts.settings.benchmark
        if benchmark.sessions != self._content.header.sessions:
            raise NotRun("would be another run here: the window is another (settings in force)")
        for day in run_.days:
            for table, digest in day.inputs.items():
                if self._reader.digest(table, day.session.isoformat()) != digest:
                    raise NotRun(f"rests on another {table} of {day.session} than this home has")
        return parts

    def _repeated(self, run_: Run) -> str:
        parts = self._parts(run_)
        sessions = self._content.header.sessions
        with tempfile.TemporaryDirectory(prefix="finevolve-verify-") as folder:
            scratch = ReplayStore(Path(folder))
            try:
                run(run_.experiment, sessions, replace(parts, backbone=Unanswered(parts.backbone)), scratch, _unheard)
            except CacheMissError as unknown:
                raise NotRun(str(unknown)) from None
            again = gather_run(run_.experiment, parts.mechanism_kind(run_.experiment), scratch, sessions)
        _require_same(run_, again)
        return f"{len(sessions)} sessions repeated from own news, closes and answers, the same row by row"

    def _prompts(self, run_: Run) -> str:
        parts = self._parts(run_)
        frame = run_.rows["predictions"]
        asked = frame[frame["prompt_digest"] != ""].drop_duplicates(["session", "code"])
        shown = run_.rows["retrievals"]
        shown = shown[shown["in_prompt"] != LEFT_OUT]
        with_memories = set(zip(shown["session"], shown["code"], strict=True))
        rewritten = Rewritten(parts, self._content.header.horizons)
        number = 0
        for session, code, told in zip(asked["session"], asked["code"], asked["prompt_digest"], strict=True):
            if (session, code) in with_memories:
                continue
            number += 1
            if rewritten.digest(session, code) != told:
                raise Refuted(f"{session} {code}: this home's news give another prompt")
        if number < len(asked):
            raise NotRun(
                f"{number} of {len(asked)} prompts are those of this home's news; the others show experience, which "
                "needs the answers"
            )
        return f"all {number} prompts are those of this home's news"


class Rewritten:
    """Prompts without experience, written again from a home's own tables."""

    def __init__(self, parts: Parts, horizons: Sequence[int]) -> None:
        self._model = Model(parts.backbone, parts.settings.prompts)
        self._gateway = Gateway(parts.reader, Visible.of(parts.settings, parts.backbone.count_tokens))
        self._horizons = tuple(horizons)

    def digest(self, session: str, code: str) -> str:
        """Digest of the prompt of a sector-day; sessions must not go back."""
        day = pd.Timestamp(session).date()
        if self._gateway.clock != day:
            self._gateway.advance(day)
        request = PredictRequest(
            session=day,
            industry=industry(code),
            horizons=self._horizons,
            news=self._gateway.news(day, "verify")[code],
            market=self._gateway.market(day, code, "verify"),
            memories=(),
        )
        return prompt_digest(self._model.call(request).prompt.messages)


def _require_same(told: Run, again: Run) -> None:
    """Raises `Refuted` at the first row or day in which a repeated run is another one."""
    for name, sheet in RUN_SHEETS.items():
        theirs, mine = sheet.lines(told.rows[name]), sheet.lines(again.rows[name])
        for number, (one, other) in enumerate(zip(theirs, mine, strict=False), start=1):
            if one != other:
                raise Refuted(f"{name} row {number} is {one} in the bundle, and {other} when the run is repeated")
        if len(theirs) != len(mine):
            raise Refuted(f"{name} has {len(theirs)} rows in the bundle, and {len(mine)} when the run is repeated")
    for day, repeated in zip(told.days, again.days, strict=True):
        if day != repeated:
            raise Refuted(f"{day.session}: the day's manifest is another one when the run is repeated")


def _unheard(_: DayDone) -> None:
    """A check needs no report of each day."""
