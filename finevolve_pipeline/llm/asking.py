"""Asking: the one way from a typed request to a typed answer, with at most one question more.

A first answer that cannot be read, or that has invalid fields, is followed by one re-ask that names the problem.
The better of both answers counts; what is invalid then stays invalid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from finevolve_pipeline.errors import AnswerError
from finevolve_pipeline.llm import failures
from finevolve_pipeline.llm.render import prompt_digest, render
from finevolve_pipeline.llm.requests import (
    Backbone,
    Call,
    Cuts,
    Prompt,
    Reask,
    Reply,
    SingleRequest,
    Usage,
)
from finevolve_pipeline.settings import PromptSettings

T = TypeVar("T")

QUOTED = 2000
"""Characters of a bad answer that the re-ask shows."""


@dataclass(frozen=True)
class Asked(Generic[T]):
    """What came of a request.

    Attributes:
        answer: None if no answer could be read.
        problem: why the answer is None or flawed; empty if it is neither.
        reasked: whether it took a second question.
        prompt: the first question.
        usage: of all questions.
        failures: of all questions, by kind.
        models: names under which the provider said it answered.
    """

    answer: T | None
    problem: str
    reasked: bool
    prompt: Prompt
    usage: Usage
    failures: Mapping[str, int]
    models: tuple[str, ...]

    @property
    def prompt_digest(self) -> str:
        """Digest of the first question's messages."""
        return prompt_digest(self.prompt.messages)

    @property
    def cuts(self) -> Cuts:
        """What the budgets left out."""
        return self.prompt.cuts


@dataclass(frozen=True)
class Model:
    """A backbone, and how it is asked.

    Attributes:
        prompts: how prompts for it are written.
        seed: of the samples (see `Call.seed`).
        heard: hears of all that came of a request.
        admit: sees each request before it is asked; raises where it must not be.
    """

    backbone: Backbone
    prompts: PromptSettings
    seed: int = 0
    heard: Callable[[Asked[Any]], object] | None = None
    admit: Callable[[SingleRequest], object] | None = None

    def call(self, request: SingleRequest, variant: str = "") -> Call:
        """The request with its prompt."""
        return Call(request, render(request, self.prompts, self.backbone.count_tokens), variant, self.seed)

    async def ask(
        self,
        request: SingleRequest,
        parse: Callable[[str], T],
        flaws: Callable[[T], tuple[str, ...]],
        first: Reply | None = None,
    ) -> Asked[T]:
        """Ask, and once more if need be.

        Args:
            request: what is asked.
            parse: reads an answer; raises `AnswerError` if it cannot.
            flaws: what is wrong with an answer that could be read, one text a flaw.
            first: the answer to the first question, where it is known already.

        Raises:
            BackboneError, BudgetError, CacheMissError: as `Backbone.answer`.
            MechanismError: a mechanism asks what it has not declared (`replay.called`).
        """
        if self.admit is not None:
            self.admit(request)
        asked = await self._asked(request, parse, flaws, first)
        if self.heard is not None:
            self.heard(asked)
        return asked

    async def _asked(
        self,
        request: SingleRequest,
        parse: Callable[[str], T],
        flaws: Callable[[T], tuple[str, ...]],
        first: Reply | None,
    ) -> Asked[T]:
        call = self.call(request)
        reply = first if first is not None else await self.backbone.answer(call)
        one = _Read.of(reply, parse, flaws)
        if one.is_final:
            return one.asked(call.prompt, False)
        shown = Reask(reply.text[:QUOTED], one.problem[:QUOTED])
        again = await self.backbone.answer(self.call(replace(request, reask=shown)))
        two = _Read.of(again, parse, flaws)
        best = two if two.rank < one.rank else one
        return best.asked(call.prompt, True, other=one if best is two else two)


@dataclass(frozen=True)
class _Read(Generic[T]):
    """One answer as it was read."""

    reply: Reply
    answer: T | None
    problems: tuple[str, ...]
    failures: Mapping[str, int]

    @classmethod
    def of(cls, reply: Reply, parse: Callable[[str], T], flaws: Callable[[T], tuple[str, ...]]) -> _Read[T]:
        counted = Counter(reply.failures)
        if reply.finish == "content_filter":
            return _Read(reply, None, ("the provider's content filter refused an answer",), counted)
        try:
            answer = parse(reply.text)
        except AnswerError as unreadable:
            counted[failures.UNREADABLE] += 1
            return _Read(reply, None, (str(unreadable),), counted)
        problems = flaws(answer)
        if problems:
            counted[failures.INVALID_FIELD] += len(problems)
        return _Read(reply, answer, problems, counted)

    @property
    def is_final(self) -> bool:
        """Whether asking again is of no use: nothing is wrong, or the provider refuses."""
        return not self.problems or self.reply.finish == "content_filter"

    @property
    def rank(self) -> tuple[bool, int]:
        """Better answers first."""
        return self.answer is None, len(self.problems)

    @property
    def problem(self) -> str:
        return "; ".join(self.problems)

    def asked(self, prompt: Prompt, reasked: bool, other: _Read[T] | None = None) -> Asked[T]:
        counted = Counter(self.failures)
        usage = self.reply.usage
        models = {self.reply.model}
        if other is not None:
            counted.update(other.failures)
            counted[failures.REASKED] += 1
            usage += other.reply.usage
            models.add(other.reply.model)
        return Asked(
            answer=self.answer,
            problem=self.problem,
            reasked=reasked,
            prompt=prompt,
            usage=usage,
            failures=dict(sorted(counted.items())),
            models=tuple(sorted(models - {""})),
        )
