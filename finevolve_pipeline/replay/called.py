"""Calling a mechanism: whatever goes wrong in one of its methods says whose, which, when and for which sector.

An error of the mechanism's own goes on as it is, with that as its note. What a method must not give back is a
`MechanismError`, which also says what was expected.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

from finevolve_pipeline.digests import canonical_json
from finevolve_pipeline.errors import FinEvolveError, MechanismError
from finevolve_pipeline.llm.answers import PredictionAnswer
from finevolve_pipeline.llm.asking import Model
from finevolve_pipeline.llm.requests import SHOWN, SingleRequest
from finevolve_pipeline.mechanisms.base import Event, Experience, Mechanism, Recalled, UpdateFailed

_QUOTED = 120
"""Characters of a wrong value that a message repeats."""


@dataclass(frozen=True)
class Calling:
    """A call of a mechanism's method.

    Attributes:
        experiment: whose mechanism it is.
        kind: the mechanism's class.
        method: its name; empty while it is made.
        place: session and sector, as far as the call is about one.
    """

    experiment: str
    kind: type[Mechanism]
    method: str = ""
    place: tuple[str, ...] = ()

    def at(self, method: str, *place: object) -> Calling:
        """The call of a method about a session and a sector."""
        return replace(self, method=method, place=tuple(map(str, place)))

    def __str__(self) -> str:
        called = f".{self.method}" if self.method else ""
        place = f", {' '.join(self.place)}" if self.place else ""
        return f"mechanism {self.kind.__name__}{called} of {self.experiment}{place}"

    @contextmanager
    def named(self) -> Iterator[None]:
        """An error of the mechanism's own is raised as it is, with a note that names the call."""
        try:
            yield
        except Exception as defect:
            if not isinstance(defect, FinEvolveError):
                defect.add_note(f"in {self}")
            raise

    def wrong(self, value: object, expected: str) -> MechanismError:
        """The error for a value that the method must not give back."""
        said = repr(value)
        said = said if len(said) <= _QUOTED else f"{said[:_QUOTED]}…"
        return MechanismError(f"{self}: returned {' '.join(said.split())}; expected {expected}")

    # -- what methods ask ------------------------------------------------------------------------------------

    def asking(self, model: Model) -> Model:
        """The model, for questions of this call.

        They may use the templates that the mechanism declares, and the prediction's own: a run's identity holds no
        others, and of the budgets only those that these fill.
        """
        return replace(model, admit=self._require_declared)

    def _require_declared(self, request: SingleRequest) -> None:
        declared = ("predict", *self.kind.templates)
        if request.template not in declared:
            raise MechanismError(
                f"{self}: asked by {type(request).__name__}, whose template {request.template!r} the mechanism does "
                f"not declare; add it to `templates`, which names {', '.join(self.kind.templates) or 'none'}"
            )

    # -- what methods give back ------------------------------------------------------------------------------

    async def events(self, given: object) -> tuple[Event, ...]:
        """What `mature` or `append` wants to change.

        Raises:
            MechanismError: it is not awaitable, or no sequence of the mechanism's events, each of the sector itself and
                such that the journal can hold it.
        """
        if not inspect.isawaitable(given):
            raise self.wrong(given, f"a coroutine; write `async def {self.method}`")
        with self.named():
            events: Any = await given
        if not isinstance(events, Sequence) or isinstance(events, str):
            raise self.wrong(events, "a tuple or list of events, () for none")
        for event in events:
            self._require_event(event)
        return tuple(events)

    def _require_event(self, event: object) -> None:
        code = self.place[-1]
        if not isinstance(event, Event):
            raise self.wrong(event, "events, each a subclass of mechanisms.base.Event")
        # Exactly one of them: the journal gives back the class that it finds under an event's kind, no subclass of it.
        if type(event) not in (*self.kind.events, UpdateFailed):
            listed = ", ".join(one.__name__ for one in self.kind.events) or "none"
            raise self.wrong(event, f"events of the classes that `events` names ({listed}), or UpdateFailed")
        if event.code != code:
            raise self.wrong(event, f"events of the sector {code} itself")
        with self.named():
            value = event.to_json()
        try:
            canonical_json(value)
        except (TypeError, ValueError) as unfit:
            raise self.wrong(event, f"events with fields that JSON can hold ({unfit})") from None

    def recalled(self, given: object) -> tuple[Recalled, ...]:
        """What `retrieve` has found.

        Raises:
            MechanismError: it is no sequence of `Recalled`, or one of them cannot be shown or logged.
        """
        if not isinstance(given, Sequence) or isinstance(given, str):
            raise self.wrong(given, "a tuple of Recalled, () for none (and no `async`)")
        for one in given:
            if not isinstance(one, Recalled):
                raise self.wrong(one, "Recalled (mechanisms.base.recall makes one)")
            if not isinstance(one.shown, SHOWN):
                raise self.wrong(one.shown, f"as `shown` one of {', '.join(kind.__name__ for kind in SHOWN)}")
            for name in ("matured_share", "news_overlap"):
                share = getattr(one, name)
                if not _lies_in(0, share, 1):
                    raise self.wrong(share, f"as `{name}` of {one.shown.memory_id} a share from 0 to 1")
        return tuple(given)

    def kept(self, given: object) -> tuple[Experience, ...]:
        """What `experiences` lists. Raises `MechanismError` if it is no sequence of `Experience`."""
        if not isinstance(given, Sequence) or isinstance(given, str):
            raise self.wrong(given, "a tuple of Experience, () for none")
        for one in given:
            if not isinstance(one, Experience):
                raise self.wrong(one, "Experience")
        return tuple(given)

    def forecast(self, given: object, horizons: Collection[int]) -> PredictionAnswer | None:
        """What `forecast` has predicted.

        Raises:
            MechanismError: it is neither None nor an answer with a score in [-1, 1], or the reason why there is none,
                for each horizon.
        """
        if given is None:
            return None
        if not isinstance(given, PredictionAnswer):
            raise self.wrong(given, "a PredictionAnswer, or None where a model is to be asked")
        for name in ("scores", "invalid"):
            by_horizon = getattr(given, name)
            if not isinstance(by_horizon, Mapping):
                raise self.wrong(by_horizon, f"as `{name}` of a PredictionAnswer a dict by horizon")
        for horizon in horizons:
            score = given.scores.get(horizon)
            if score is None or (horizon not in given.invalid and not _lies_in(-1, score, 1)):
                raise self.wrong(score, f"a score in [-1, 1] for {horizon} sessions, or NaN and why in `invalid`")
        if given.confidence is not None and not _lies_in(0, given.confidence, 1):
            raise self.wrong(given.confidence, "a confidence in [0, 1], or None")
        return given


def _lies_in(least: float, value: object, most: float) -> bool:
    """Whether it is a number in that range; NaN lies in none."""
    return isinstance(value, Real) and not isinstance(value, bool) and least <= float(value) <= most
