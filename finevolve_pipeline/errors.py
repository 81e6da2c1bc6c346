"""Errors a user may meet. Each message names the thing, the value, and what to do next, in one line."""

from __future__ import annotations


class FinEvolveError(Exception):
    """Base of every error whose message is written for the user; the CLI prints it without a traceback.

    `exit_code`: 2 for wrong use or unusable input, 1 for work that did not succeed, 3 for a locked experiment.
    """

    exit_code = 2


class SettingsError(FinEvolveError):
    """A settings file or an experiment name that cannot be used."""


class CalendarError(FinEvolveError):
    """A day that is no session, no calendar day, or beyond the calendar table."""


class UniverseError(FinEvolveError):
    """An industry code or name outside the 31 Shenwan level-1 industries."""


class InputError(FinEvolveError):
    """A file that cannot be read at all (single bad rows are set aside instead, see `news.importing`)."""


class TableError(FinEvolveError):
    """A table that breaks its contract (see `tables`)."""

    exit_code = 1


class MissingPartitionError(FinEvolveError):
    """A partition that must exist before this step and does not."""

    exit_code = 1


class LookAheadError(FinEvolveError):
    """Something asked for data after the simulated clock. The message names who asked and for what."""

    exit_code = 1


class ExperimentLockedError(FinEvolveError):
    """A second writer for an experiment that another process is replaying."""

    exit_code = 3


class ReplayMismatchError(FinEvolveError):
    """A stored day that rests on other inputs, settings, code or another parent than the present ones."""

    exit_code = 1


class AnswerError(FinEvolveError):
    """A backbone's answer that cannot be read as the requested JSON."""

    exit_code = 1


class TemplateError(FinEvolveError):
    """A prompt template that cannot be filled in."""


class MechanismError(FinEvolveError):
    """A mechanism that gives back what it must not; the text says what was expected, where and when."""

    exit_code = 1


class BackboneError(FinEvolveError):
    """A provider that cannot be used or does not answer; the run stops, and goes on where it stopped."""

    exit_code = 1


class SourceError(FinEvolveError):
    """A source of bars or news that cannot be used or does not answer as it should; what it brought before stays."""

    exit_code = 1


class CredentialError(SourceError):
    """The token of a source is not set, or is none: nothing was asked."""

    exit_code = 2


class BudgetError(FinEvolveError):
    """A call that could take the spending beyond the budget; it was not made.

    `may_wait`: only what calls under way could still cost stands against it; when they have ended there may be room.
    """

    exit_code = 1

    def __init__(self, message: str, may_wait: bool = False) -> None:
        super().__init__(message)
        self.may_wait = may_wait


class CacheMissError(FinEvolveError):
    """An answer or vector that is not in the cache while only the cache may be used."""

    exit_code = 1


class CacheError(FinEvolveError):
    """A cache, bundle or ledger that is damaged or of another version."""
