"""Reflexion (paper, Appendix B.3): the sector's verbal reflection, written anew when outcomes become known.

On every session on which outcomes become known one call covers them all, whatever their horizons. It starts from the
newest reflection, so what is to be kept must be said again, within the limit. Predictions of the same session already
see what it wrote; before the first reflection they see news only. The paper tells outcomes as the change of the index
in points (C.3.1).

In its own publication (Shinn et al., 2023) only failures are reflected on and the last few reflections are shown:
`worth_reflecting` and the settings are where that differs.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field

from finevolve_pipeline.llm.asking import Model
from finevolve_pipeline.llm.requests import ReflectRequest, ShownReflection, Signal
from finevolve_pipeline.llm.updates import no_flaws, parse_reflection
from finevolve_pipeline.mechanisms.base import (
    Event,
    Experience,
    MaturedPrediction,
    Mechanism,
    MechanismSettings,
    Recalled,
    Situation,
    UpdateFailed,
    World,
    episode,
    memory_id,
    recall,
    session_of,
    with_outcome,
)
from finevolve_pipeline.mechanisms.outcomes import OutcomesEvent, Told
from finevolve_pipeline.universe import industry

# A point before a digit is a decimal point: a sentence cut there would state another number.
_SENTENCE_END = re.compile(r"[。！？!?\n]|\.(?!\d)")


class ReflexionSettings(MechanismSettings):
    """A reflection has at most `max_characters`, outcomes are told as `signal`, the `shown` newest ones are kept."""

    max_characters: int = Field(ge=1)
    signal: Signal
    shown: int = Field(ge=1)


@dataclass(frozen=True)
class Reflected(OutcomesEvent):
    """The reflection `memory` was written about the outcomes `told`."""

    kind: ClassVar[str] = "reflected"

    memory: str
    text: str

    @property
    def made(self) -> tuple[str, ...]:
        """The reflection."""
        return (self.memory,)


class Reflexion(Mechanism):
    """Reflects on all outcomes of a session at once; shows the newest reflections, newest first."""

    settings_model = ReflexionSettings
    templates = ("reflect",)
    settings: ReflexionSettings
    events: ClassVar[tuple[type[Event], ...]] = (Reflected,)

    def __init__(self, settings: MechanismSettings, world: World) -> None:
        super().__init__(settings, world)
        self._reflections: dict[str, deque[Reflected]] = {}

    def worth_reflecting(self, matured: Sequence[MaturedPrediction]) -> Sequence[MaturedPrediction]:
        """Those of the session's known outcomes that a reflection is written about; with none, none is written."""
        return matured

    async def mature(
        self, session: dt.date, code: str, matured: Sequence[MaturedPrediction], model: Model
    ) -> Sequence[Event]:
        """One reflection on all of them, oldest source first."""
        about = self.worth_reflecting(with_outcome(matured))
        if not about:
            return ()
        request = ReflectRequest(
            session=session,
            industry=industry(code),
            previous=tuple(known.text for known in self._known(code)),
            episodes=tuple(episode(one, self.world.past) for one in about),
            signal=self.settings.signal,
            max_characters=self.settings.max_characters,
        )
        asked = await model.ask(request, parse_reflection, no_flaws)
        if asked.answer is None:
            return (UpdateFailed(code, reason=asked.problem),)
        reflected = Reflected(
            code=code,
            memory=f"{memory_id(session, code)}/reflection",
            text=cut_at_sentence(asked.answer, self.settings.max_characters),
            told=tuple(Told.of(one) for one in about),
        )
        return (reflected,)

    def apply(self, session: dt.date, event: Event) -> None:
        """Keep the reflection; the oldest goes if there are more than are shown."""
        if not isinstance(event, Reflected):
            super().apply(session, event)
            return
        if event.code not in self._reflections:
            self._reflections[event.code] = deque(maxlen=self.settings.shown)
        self._reflections[event.code].append(event)

    def retrieve(self, situation: Situation) -> tuple[Recalled, ...]:
        """The reflections kept, newest first."""
        return tuple(
            recall(
                ShownReflection(known.memory, session_of(known.memory), text=known.text),
                self._experience(known),
                situation,
                self.world.past,
            )
            for known in reversed(self._known(situation.industry.code))
        )

    def experiences(self, code: str) -> tuple[Experience, ...]:
        """The reflections kept."""
        return tuple(self._experience(known) for known in self._known(code))

    def _known(self, code: str) -> Sequence[Reflected]:
        """The reflections kept, oldest first."""
        return self._reflections.get(code, ())

    def _experience(self, known: Reflected) -> Experience:
        made_on = session_of(known.memory)
        return Experience(
            memory_id=known.memory,
            kind="reflection",
            horizons=self.world.horizons,
            made_on=made_on,
            available_from=made_on,
            sources=known.sources,
            text=known.text,
        )


def cut_at_sentence(text: str, most: int) -> str:
    """The sentences of a text that fit into `most` characters; its first `most` ones if none does."""
    if len(text) <= most:
        return text
    ends = [found.end() for found in _SENTENCE_END.finditer(text) if found.end() <= most]
    return text[: ends[-1] if ends else most].rstrip()
