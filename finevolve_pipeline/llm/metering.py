"""The interface between a call and the money: reserve before an attempt, settle after it."""

from __future__ import annotations

from typing import Protocol

from finevolve_pipeline.llm.requests import Usage


class Reservation(Protocol):
    """What one attempt may cost at most, put aside until it is known. Exactly one method is called, once."""

    def settle(self, usage: Usage) -> None:
        """The attempt was answered; this is what it took, its cost included."""

    def release(self, failure: str) -> None:
        """The attempt failed before anything could be billed (refused, not connected, status 429)."""

    def doubt(self, failure: str) -> None:
        """The attempt failed when it may have been billed already (silence, an answer broken off): all of what
        was put aside counts as spent."""


class Meter(Protocol):
    """Puts aside what attempts for one purpose may cost."""

    def reserve(self, prompt_tokens: int, completion_tokens: int) -> Reservation:
        """Put aside an attempt's upper bound.

        Raises:
            BudgetError: spent and put aside together would exceed the budget; nothing was put aside.
        """


class _Nothing:
    def settle(self, usage: Usage) -> None:
        """Nothing is kept."""

    def release(self, failure: str) -> None:
        """Nothing is kept."""

    def doubt(self, failure: str) -> None:
        """Nothing is kept."""


class Unmetered:
    """A meter that counts nothing, for calls that cost nothing and are not to be listed."""

    def reserve(self, prompt_tokens: int, completion_tokens: int) -> Reservation:
        """Always granted."""
        return _Nothing()
