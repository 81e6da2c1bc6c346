"""Who is told of each finished partition while a run goes on: nobody by default, a progress bar in the CLI."""

from __future__ import annotations

from typing import Protocol


class Observer(Protocol):
    """Hears of finished partitions, in the process that runs them."""

    def done(self, table: str, partition: str, reused: bool) -> None:
        """One partition is durable (or was already, if `reused`)."""


class Silent:
    """An observer that ignores everything."""

    def done(self, table: str, partition: str, reused: bool) -> None:
        """Nothing."""
