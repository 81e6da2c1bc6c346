"""The news block: the deterministic text of a sector's news on one session.

It is what a prompt shows and the key by which memories are compared. The budget is in tokens, as the backbone counts
them, and is the same for every mechanism.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.llm.tokens import TokenCount


@dataclass(frozen=True)
class NewsItem:
    """One article as an agent may see it. `industries` are Shenwan codes, empty for market-wide news."""

    article_id: str
    source: str
    title: str
    content: str
    published_at: dt.datetime
    industries: tuple[str, ...]
    industry_names: tuple[str, ...]
    importance: int
    importance_reason: str
    topics: tuple[str, ...]

    @cached_property
    def text(self) -> str:
        """The article's lines in a block; times as Asia/Shanghai with offset."""
        stamp = self.published_at.astimezone(SHANGHAI).isoformat(sep=" ", timespec="seconds")
        return (
            f"[{stamp}] id={self.article_id} src={self.source} importance={self.importance} "
            f"topic={','.join(self.topics) or '-'} industries={','.join(self.industry_names) or '-'}\n"
            f"title: {self.title}\ncontent: {self.content or self.title}\n"
            f"importance_reason: {self.importance_reason}"
        )


@dataclass(frozen=True)
class NewsBlock:
    """The articles shown to one sector on one session, in order, and how many the budget cut."""

    items: tuple[NewsItem, ...]
    cut: int

    @cached_property
    def text(self) -> str:
        """The block's text; empty if there is no news."""
        return "\n\n".join(item.text for item in self.items)

    @cached_property
    def article_ids(self) -> frozenset[str]:
        """Ids of the shown articles."""
        return frozenset(item.article_id for item in self.items)


def build_block(items: Sequence[NewsItem], budget: int, count: TokenCount) -> NewsBlock:
    """The longest prefix of `items` within `budget` tokens (items come most important and newest first).

    Args:
        items: articles in their order.
        budget: tokens; the same for every mechanism of a backbone.
        count: tokens of a text, as the backbone counts them.
    """
    used = 0
    for number, item in enumerate(items):
        used += count(item.text) + 1
        if used > budget:
            return NewsBlock(tuple(items[:number]), len(items) - number)
    return NewsBlock(tuple(items), 0)
