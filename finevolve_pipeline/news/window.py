"""News windows: what is observable at a session's cutoff, and which part of it concerns an industry.

A session t sees the calendar days t-4..t up to its 24:00 Asia/Shanghai (the paper's case study of 2025-05-29
shows 05-25..05-29). After a longer closure the window starts the day after the previous session, so that no
article is ever skipped; `news.window.strict` keeps the length flat.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import numpy as np
import pandas as pd

from finevolve_pipeline import calendar
from finevolve_pipeline.errors import LookAheadError, TableError
from finevolve_pipeline.llm.tokens import TokenCount
from finevolve_pipeline.news.block import NewsBlock, NewsItem, build_block
from finevolve_pipeline.news.instants import instant, instants, midnight, moment
from finevolve_pipeline.settings import NewsSettings, WindowSettings
from finevolve_pipeline.tables import NewsWindow, empty
from finevolve_pipeline.universe import INDUSTRIES

_NAMES = {industry.code: industry.name_zh for industry in INDUSTRIES}
_COLUMNS = list(NewsWindow.to_schema().columns)


def window_days(session: dt.date, settings: WindowSettings) -> tuple[dt.date, ...]:
    """Calendar days that a session's window covers, oldest first, ending with the session.

    Raises:
        CalendarError: `session` is none.
    """
    calendar.session_index(session)
    first = session - dt.timedelta(days=settings.days - 1)
    before, _ = calendar.sessions_around(session)
    if before is not None and not settings.strict:
        first = min(first, before + dt.timedelta(days=1))
    return calendar.days_between(first, session)


def longest_window(sessions: Sequence[dt.date], settings: WindowSettings) -> int:
    """Calendar days of the longest window among `sessions`: the look-back that covers every one of them."""
    return max(len(window_days(session, settings)) for session in sessions)


def build_window(session: dt.date, news: pd.DataFrame, settings: NewsSettings) -> pd.DataFrame:
    """The window of a session: its articles, most important first, then newest, then by id.

    An id that several days carry (a source published its item again) is shown once, as first published in the
    window.

    Args:
        session: the session.
        news: `BenchmarkNews` rows of the days `window_days(session, settings.window)`, in any order.
        settings: `window` says which days belong to it.

    Returns:
        `NewsWindow` rows.

    Raises:
        LookAheadError: an article was published at or after the session's cutoff.
        TableError: an article was published before the window.
        CalendarError: `session` is none.
    """
    first, cutoff = window_days(session, settings.window)[0], calendar.cutoff(session)
    if news.empty:
        return empty(NewsWindow)
    published, ids = instants(news["published_at"]), news["article_id"].to_list()
    newest, oldest = max(zip(published, ids, strict=True)), min(zip(published, ids, strict=True))
    if newest[0] >= instant(cutoff):
        raise LookAheadError(
            f"news window {session}: article {newest[1]} of {moment(newest[0])} lies at or after its cutoff "
            f"{cutoff}; give it the days up to the session only"
        )
    if oldest[0] < midnight(first):
        raise TableError(
            f"news window {session}: article {oldest[1]} of {moment(oldest[0])} lies before its first day "
            f"{first}; give it the days of window_days only"
        )
    importance = news["importance"].to_list()
    once: dict[str, int] = {}
    for row in sorted(range(len(ids)), key=published.__getitem__):
        once.setdefault(ids[row], row)
    order = sorted(once.values(), key=lambda row: (-importance[row], -published[row], ids[row]))
    shown = news.take(order).reset_index(drop=True)
    shown["session"] = session.isoformat()
    shown["position"] = np.arange(len(shown), dtype=np.int32)
    return shown[_COLUMNS]


def items(window: pd.DataFrame) -> tuple[NewsItem, ...]:
    """The articles of a `NewsWindow`, in its order; times in Asia/Shanghai, industries with Chinese names."""
    columns = zip(
        window["article_id"].to_list(),
        window["source"].to_list(),
        window["title"].to_list(),
        window["content"].to_list(),
        map(moment, instants(window["published_at"])),
        map(tuple, window["industries"].to_list()),
        window["importance"].to_list(),
        window["importance_reason"].to_list(),
        map(tuple, window["topics"].to_list()),
        strict=True,
    )
    return tuple(
        NewsItem(id_, source, title, content, time, codes, _names(codes), importance, reason, topics)
        for id_, source, title, content, time, codes, importance, reason, topics in columns
    )


def items_by_industry(window: pd.DataFrame, codes: Sequence[str], market_wide: bool) -> dict[str, tuple[NewsItem, ...]]:
    """The articles of each industry in `codes`, in window order.

    Market-wide articles (those without an industry) go to every industry if `market_wide`, else to none.
    """
    of_industry: dict[str, list[NewsItem]] = {code: [] for code in codes}
    for item in items(window):
        concerned = item.industries or (codes if market_wide else ())
        for code in concerned:
            if code in of_industry:
                of_industry[code].append(item)
    return {code: tuple(found) for code, found in of_industry.items()}


def blocks(
    window: pd.DataFrame, codes: Sequence[str], market_wide: bool, budget: int, count: TokenCount
) -> dict[str, NewsBlock]:
    """The news block of each industry in `codes`, within `budget` tokens each, as `count` counts them."""
    found = items_by_industry(window, codes, market_wide)
    return {code: build_block(articles, budget, count) for code, articles in found.items()}


def _names(codes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_NAMES[code] for code in codes)
