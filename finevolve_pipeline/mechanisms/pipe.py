"""Pipe: the baseline without experience. News and market context only, no store."""

from __future__ import annotations

from finevolve_pipeline.mechanisms.base import Mechanism


class Pipe(Mechanism):
    """Keeps nothing, recalls nothing."""

    templates = ()
