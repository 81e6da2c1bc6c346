"""The market context of a prediction: the close of t and trailing returns, all known at the close of t."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TrailingReturn:
    """Return over the last `sessions` sessions up to and including t, fractions; NaN where a close is missing."""

    sessions: int
    industry: float
    benchmark: float

    @property
    def excess(self) -> float:
        """Industry less benchmark."""
        return self.industry - self.benchmark


@dataclass(frozen=True)
class MarketContext:
    """One industry's market data at the close of t. `close` in index points, NaN if missing."""

    close: float
    trailing: tuple[TrailingReturn, ...]
