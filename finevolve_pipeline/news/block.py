"""The news block: the deterministic text of a sector's news on one session.

It is what a prompt shows (made harmless, `shown`) and the key by which memories are compared (`text`). The budget is in
tokens of what is shown, as the backbone counts them, and is the same for every mechanism.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.llm.tokens import TokenCount
from finevolve_pipeline.llm.untrusted import neutralised, one_line

_FIELDS = ("title: ", "content: ", "importance_reason: ")
"""The lines of an article below its first one."""


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
        """The article's lines in a block; times as Asia/Shanghai with offset.

        Each field is one line, so that an article cannot look like several.
        """
        stamp = self.published_at.astimezone(SHANGHAI).isoformat(sep=" ", timespec="seconds")
        return (
            f"[{stamp}] id={self.article_id} src={self.source} importance={self.importance} "
            f"topic={one_line(','.join(self.topics)) or '-'} industries={','.join(self.industry_names) or '-'}\n"
            f"{_FIELDS[0]}{one_line(self.title)}\n{_FIELDS[1]}{one_line(self.content or self.title)}\n"
            f"{_FIELDS[2]}{one_line(self.importance_reason)}"
        )

    @cached_property
    def shown(self) -> str:
        """The text as prompts show it: nothing in it is taken for control."""
        harmless = neutralised(self.text)
        return self.text if harmless == self.text else harmless  # mostly the same, which then is not held twice

    def beginning(self, characters: int) -> NewsItem | None:
        """The article as far as the first `characters` of `shown` tell it; None if they say nothing of what it says."""
        if characters >= len(self.shown):
            return self
        _, *fields = self.shown[:characters].split("\n")
        told = [field[len(name) :] for name, field in zip(_FIELDS, fields, strict=False)]
        title, content, reason = (*told, *[""] * (len(_FIELDS) - len(told)))
        # A field that is followed by another one is whole, and then it is the article's own.
        title = self.title if len(told) > 1 else title
        content = self.content if len(told) > 2 or not self.content else content
        if not title and not content:
            return None
        return replace(self, title=title, content=content if len(told) > 1 else "", importance_reason=reason)


_BETWEEN = "\n\n"
"""What stands between two articles."""


@dataclass(frozen=True)
class NewsBlock:
    """The articles shown to one sector on one session, in order, and how many the budget cut."""

    items: tuple[NewsItem, ...]
    cut: int

    @cached_property
    def text(self) -> str:
        """The block's text; empty if there is no news."""
        return _BETWEEN.join(item.text for item in self.items)

    @cached_property
    def shown(self) -> str:
        """The text as prompts show it; empty if there is no news."""
        return _BETWEEN.join(item.shown for item in self.items)

    @cached_property
    def article_ids(self) -> frozenset[str]:
        """Ids of the shown articles."""
        return frozenset(item.article_id for item in self.items)


def block_beginning(block: NewsBlock, characters: int) -> NewsBlock:
    """The block as far as the first `characters` of its `shown` tell it; articles they leave out count as cut."""
    told: list[NewsItem] = []
    left = characters
    for item in block.items:
        found = item.beginning(left)
        if found is None:
            break
        told.append(found)
        left -= len(item.shown) + len(_BETWEEN)
        if left <= 0:
            break
    return NewsBlock(tuple(told), block.cut + len(block.items) - len(told))


def build_block(items: Sequence[NewsItem], budget: int, count: TokenCount) -> NewsBlock:
    """The longest prefix of `items` within `budget` tokens (items come most important and newest first).

    Args:
        items: articles in their order.
        budget: tokens; the same for every mechanism of a backbone.
        count: tokens of a text, as the backbone counts them.
    """
    used = 0
    for number, item in enumerate(items):
        used += count(item.shown) + 1
        if used > budget:
            return NewsBlock(tuple(items[:number]), len(items) - number)
    return NewsBlock(tuple(items), 0)
