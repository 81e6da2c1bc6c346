"""A mechanism of one's own: a sector is shown its latest realised excess returns. No model is asked for a lesson."""

from dataclasses import dataclass

from pydantic import PositiveInt

from finevolve_pipeline.llm.requests import ShownFact
from finevolve_pipeline.mechanisms import base


class LastOutcomesSettings(base.MechanismSettings):
    """`last` outcomes are shown at most."""

    last: PositiveInt


@dataclass(frozen=True)
class Noted(base.Event):
    """A prediction's outcome became known on `day`, and the sector keeps it."""

    kind = "noted"

    day: str
    source: str
    horizon: int
    alpha: float

    @property
    def evidence(self):
        return (base.Evidence(base.session_of(self.source), self.horizon, self.code, self.alpha),)

    @property
    def made(self):
        return (f"{self.day}/{self.code}/{self.horizon}d",)


class LastOutcomes(base.Mechanism):
    """The latest outcomes of the sector's own predictions, the newest first."""

    settings_model = LastOutcomesSettings
    events = (Noted,)

    def __init__(self, settings, world):
        super().__init__(settings, world)
        self._noted = {code: [] for code in world.codes}

    async def mature(self, session, code, matured, model):
        known = base.with_outcome(matured)
        return [Noted(code, str(session), one.prediction.memory_id, one.horizon, one.outcome.alpha) for one in known]

    def apply(self, session, event):
        self._noted[event.code].append(event)

    def experiences(self, code):
        return tuple(_experience(one) for one in self._noted[code])

    def retrieve(self, situation):
        latest = self.experiences(situation.industry.code)[-self.settings.last :][::-1]
        shown = [ShownFact(one.memory_id, one.made_on, one.text) for one in latest]
        return tuple(base.recall(*pair, situation, self.world.past) for pair in zip(shown, latest, strict=True))


def _experience(one):
    memory, made_on = one.made[0], base.session_of(one.day)
    text = f"{base.session_of(one.source)}起{one.horizon}个交易日的超额收益为{one.alpha:+.2%}"
    return base.Experience(memory, "fact", (one.horizon,), made_on, made_on, (one.source,), text)
