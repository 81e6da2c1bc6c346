"""Backbones that stand for another one: the same name, identity, tokens and memory, but answers got otherwise."""

from __future__ import annotations

from finevolve_pipeline.llm.requests import Backbone, Call, Reply


class StandIn:
    """A backbone in the name of another. Subclasses say how they answer; nothing is kept, no connection is held.

    Args:
        backbone: the one it stands for.
    """

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = backbone

    @property
    def name(self) -> str:
        """As the backbone that it stands for."""
        return self._backbone.name

    @property
    def identity(self) -> dict[str, object]:
        """As the backbone that it stands for."""
        return self._backbone.identity

    def count_tokens(self, text: str) -> int:
        """As the backbone that it stands for."""
        return self._backbone.count_tokens(text)

    async def answer(self, call: Call) -> Reply:
        """The answer of the backbone that it stands for."""
        return await self._backbone.answer(call)

    def recall(self, call: Call) -> Reply | None:
        """As the backbone that it stands for."""
        return self._backbone.recall(call)

    def remember(self, call: Call, reply: Reply) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """There is no connection of its own."""
