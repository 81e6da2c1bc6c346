"""ExpeL as published (arXiv 2308.10144): a short list of rules that each update adds to, edits, confirms or thins out.

On every session on which outcomes become known one call gets the sector's rules and these outcomes, successes and
failures, and answers with a few operations. ADD makes a rule of importance 2; EDIT gives a rule a new text and 1 more,
AGREE 1 more, REMOVE 1 less, or 3 less when the list is full. What is left with 0 or less is dropped. Additions come
last, as in the published code, so that what goes makes room. All rules are shown, the most important first.

Deviations from the publication:

- `max_rules` is a limit: a list of that many is full, and additions without room are left out. In the published code
  (20 rules) it is none: from 20 on the model is told to remove rather than to add, but additions are still taken, and
  REMOVE counts 3 from 25 on.
- Operations name rules by number; the published code finds them by their text. As there, adding a rule that exists does
  nothing, and editing one into another that exists is agreeing with that one.
- At most `max_operations` operations, and on each rule the first only: the published prompt asks for as much, here it
  is also kept to.
- The outcomes of one session take the place of trials of one task, since no task is ever tried twice. They are no
  random sample of a finished training set: the rules grow with the replay.
- Earlier successes are not retrieved as examples beside the rules.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar, NamedTuple, Self

from pydantic import Field

from finevolve_pipeline.llm.asking import Model
from finevolve_pipeline.llm.requests import KnownRule, RulesRequest, ShownRule
from finevolve_pipeline.llm.updates import Operation, listed_flaws, parse_rule_operations
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

_NEW = 2
"""Importance of a rule when it is added."""
_CONFIRMED = 1
_REMOVED = -1
_REMOVED_WHEN_FULL = -3


class ExpeLOriginalSettings(MechanismSettings):
    """At most `max_rules` rules a sector, changed by at most `max_operations` operations a session."""

    max_rules: int = Field(ge=1)
    max_operations: int = Field(ge=1)


class RuleChange(NamedTuple):
    """What is done to one rule.

    Attributes:
        verb: ADD, EDIT, AGREE or REMOVE.
        rule: id of the rule.
        text: its new text; empty where it keeps its own.
        importance: by how much its importance changes; of a new rule, what it starts with.
    """

    verb: str
    rule: str
    text: str
    importance: int


@dataclass(frozen=True)
class RulesChanged(OutcomesEvent):
    """The rules of a sector changed by `changes`, in this order, after the outcomes `told`."""

    kind: ClassVar[str] = "rules_changed"

    changes: tuple[RuleChange, ...]

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The event back from the journal."""
        plain = super().from_json(value)
        return replace(plain, changes=tuple(RuleChange(*change) for change in plain.changes))

    @property
    def made(self) -> tuple[str, ...]:
        """The rules that were added."""
        return tuple(change.rule for change in self.changes if change.verb == "ADD")


@dataclass(frozen=True)
class Rule:
    """A rule as it stands, and the predictions that its text rests on."""

    memory_id: str
    text: str
    importance: int
    sources: tuple[str, ...]


class ExpeLOriginal(Mechanism):
    """Rules that outcomes confirm or thin out; all are shown."""

    settings_model = ExpeLOriginalSettings
    templates = ("rules",)
    settings: ExpeLOriginalSettings
    events: ClassVar[tuple[type[Event], ...]] = (RulesChanged,)

    def __init__(self, settings: MechanismSettings, world: World) -> None:
        super().__init__(settings, world)
        self._rules: dict[str, dict[str, Rule]] = {}

    def ranked(self, code: str) -> list[Rule]:
        """The rules of a sector as they are shown and numbered: the most important first, ties oldest first."""
        return sorted(self._rules.get(code, {}).values(), key=lambda rule: -rule.importance)

    async def mature(
        self, session: dt.date, code: str, matured: Sequence[MaturedPrediction], model: Model
    ) -> Sequence[Event]:
        """What the session's outcomes change in the rules; an outcome of exactly 0 tells nothing."""
        about = [one for one in with_outcome(matured) if one.outcome.alpha != 0]
        if not about:
            return ()
        rules = self.ranked(code)
        most = self.settings.max_operations
        request = RulesRequest(
            session=session,
            industry=industry(code),
            rules=tuple(KnownRule(number, rule.text, rule.importance) for number, rule in enumerate(rules, 1)),
            episodes=tuple(episode(one, self.world.past) for one in about),
            max_operations=most,
            is_full=len(rules) >= self.settings.max_rules,
        )
        asked = await model.ask(request, lambda text: parse_rule_operations(text, len(rules), most), listed_flaws)
        if asked.answer is None:
            return (UpdateFailed(code, asked.problem),)
        prefix = f"{memory_id(session, code)}/rule"
        changes = _changes(asked.answer.entries, rules, self.settings.max_rules, prefix)
        if not changes:
            return ()
        return (RulesChanged(code, tuple(Told.of(one) for one in about), changes),)

    def apply(self, session: dt.date, event: Event) -> None:
        """Change the rules one by one, then drop those that have lost all importance."""
        if not isinstance(event, RulesChanged):
            super().apply(session, event)
            return
        rules = self._rules.setdefault(event.code, {})
        sources = tuple(one.source for one in event.told)
        for change in event.changes:
            if change.verb == "ADD":
                rules[change.rule] = Rule(change.rule, change.text, change.importance, sources)
                continue
            known = rules[change.rule]
            changed = replace(known, importance=known.importance + change.importance)
            if change.verb == "EDIT":
                changed = replace(changed, text=change.text, sources=tuple(dict.fromkeys((*known.sources, *sources))))
            rules[change.rule] = changed
        self._rules[event.code] = {memory: rule for memory, rule in rules.items() if rule.importance > 0}

    def retrieve(self, situation: Situation) -> tuple[Recalled, ...]:
        """All rules of the sector, the most important first."""
        return tuple(
            recall(
                ShownRule(
                    memory_id=rule.memory_id,
                    made_on=session_of(rule.memory_id),
                    text=rule.text,
                    importance=rule.importance,
                    selection_score=float(rule.importance),
                ),
                self._experience(rule),
                situation,
                self.world.past,
            )
            for rule in self.ranked(situation.industry.code)
        )

    def experiences(self, code: str) -> tuple[Experience, ...]:
        """All rules of the sector as they stand now."""
        return tuple(self._experience(rule) for rule in self._rules.get(code, {}).values())

    def _experience(self, rule: Rule) -> Experience:
        made_on = session_of(rule.memory_id)
        return Experience(
            memory_id=rule.memory_id,
            kind="rule",
            horizons=self.world.horizons,
            made_on=made_on,
            available_from=made_on,
            sources=rule.sources,
            text=rule.text,
        )


def _changes(
    operations: Sequence[Operation], rules: Sequence[Rule], max_rules: int, prefix: str
) -> tuple[RuleChange, ...]:
    """The operations on the numbered `rules` as changes, additions last.

    Args:
        operations: as the model gave them.
        rules: as the model saw them.
        max_rules: how many there may be.
        prefix: of the ids of rules that are added.
    """
    removal = _REMOVED_WHEN_FULL if len(rules) >= max_rules else _REMOVED
    holder = {rule.text: rule.memory_id for rule in rules}
    changes: dict[str, RuleChange] = {}
    for operation in operations:
        if operation.verb == "ADD":
            continue
        named = rules[operation.number - 1].memory_id
        match operation.verb:
            case "REMOVE":
                change = RuleChange("REMOVE", named, "", removal)
            case "EDIT" if holder.get(operation.text, named) == named:
                change = RuleChange("EDIT", named, operation.text, _CONFIRMED)
            case "EDIT":
                change = RuleChange("AGREE", holder[operation.text], "", _CONFIRMED)
            case _:
                change = RuleChange("AGREE", named, "", _CONFIRMED)
        if change.rule not in changes:
            changes[change.rule] = change
            if change.verb == "EDIT":
                holder[change.text] = change.rule
    changed = (rule.importance + changes[rule.memory_id].importance for rule in rules if rule.memory_id in changes)
    room = max_rules - len(rules) + sum(1 for importance in changed if importance <= 0)
    new = dict.fromkeys(one.text for one in operations if one.verb == "ADD" and one.text not in holder)
    added = [
        RuleChange("ADD", f"{prefix}/{number}", text, _NEW) for number, text in enumerate(islice(new, room), start=1)
    ]
    return (*changes.values(), *added)
