"""De-duplication: one article for the same text from several sources, the earliest kept.

The rule looks backwards only: whether an article is kept depends on what was published before it, never on
what follows. The one thing later rows may change is the list of its copies, which is kept for provenance and
shown to no agent.
"""

from __future__ import annotations

import datetime as dt
import re
import unicodedata
from typing import NamedTuple

import pandas as pd

from finevolve_pipeline.digests import digest_text
from finevolve_pipeline.news.clean import CleanText, clean_article, without_dateline
from finevolve_pipeline.news.instants import HOUR, instants, midnight, times
from finevolve_pipeline.settings import DeduplicateSettings
from finevolve_pipeline.tables import Articles, empty

# Letters and digits, with the decimal points and minus signs that belong to numbers: 1.25 is not 12.5.
_SUBSTANCE = re.compile(r"[^\W_]+(?:[.．](?=\d)[^\W_]+)*|[-－](?=\d)")
_CREDIT = re.compile(r"[（(][^（）()]{0,12}(?:社|报|网|台|新闻|财经|客户端)[）)]\s*$")
_DAY = dt.timedelta(days=1)
_COLUMNS = tuple(Articles.to_schema().columns)


class ArticleBuild(NamedTuple):
    """Articles of one day, and what became of its raw rows: raw = kept + empty + duplicates."""

    frame: pd.DataFrame
    raw: int
    empty: int
    duplicates: int


class _Row(NamedTuple):
    """One raw row in the order in which the rule meets it."""

    published: int
    source: str
    source_id: str
    modified: int
    crawled: int
    title: str
    content: str
    url: str
    industries: tuple[str, ...]
    importance: float
    origin: str


class _Text(NamedTuple):
    row: _Row
    clean: CleanText
    key: str


class _Kept(NamedTuple):
    text: _Text
    copies: list[str]


def article_id(source: str, source_id: str) -> str:
    """The article's stable id: 16 hexadecimal characters from its source and the source's id."""
    return digest_text(f"{source}\n{source_id}")[:16]


def normalise(title: str, content: str) -> str:
    """What two printings of the same article have in common, from a cleaned title and body.

    The body decides, since sources put their own titles on it; a body shorter than its title says too little
    and is compared together with it. Datelines (财联社5月14日电，), the credit in brackets at the end,
    punctuation, blanks, width and case do not count.
    """
    head, body = _fold(title), _fold(content)
    return body if len(body) >= len(head) else head + body


def _fold(text: str) -> str:
    bare = _CREDIT.sub("", without_dateline(text)) or text
    return unicodedata.normalize("NFKC", "".join(_SUBSTANCE.findall(bare))).lower()


def build_articles(
    day: dt.date, today: pd.DataFrame, yesterday: pd.DataFrame, settings: DeduplicateSettings
) -> ArticleBuild:
    """Cleaned articles of a day without repetitions.

    An article goes if the same normalised text was published up to `settings.hours` before it, by any source,
    whether that copy was kept or not; and if its source sent the same id before (an edit: the first
    publication stays, as it was). Texts under `settings.min_characters` are compared within their source
    only. Rows of one instant are ordered by source and id. Rows without a letter or digit are left out.

    Args:
        day: the calendar day, Asia/Shanghai. `published_at` says which rows belong to it, in either frame.
        today: `RawNews` rows of that day, all sources, in any order.
        yesterday: `RawNews` rows of the day before, to find copies across midnight.
        settings: when two articles are the same.

    Returns:
        `Articles` rows sorted by `published_at`, then `article_id`, with the counts.
    """
    since, start, end = (midnight(day + count * _DAY) for count in (-1, 0, 1))
    rows = [row for frame in (yesterday, today) for row in _rows(frame) if since <= row.published < end]
    raw = sum(row.published >= start for row in rows)
    texts = [text for text in map(_clean, sorted(rows)) if text.key]
    written = sum(text.row.published >= start for text in texts)
    kept = [
        earliest
        for earliest in _earliest_copies(_first_publications(texts), settings)
        if earliest.text.row.published >= start
    ]
    return ArticleBuild(_frame(kept), raw, raw - written, written - len(kept))


def _clean(row: _Row) -> _Text:
    clean = clean_article(row.title, row.content)
    return _Text(row, clean, normalise(*clean))


def _first_publications(texts: list[_Text]) -> list[_Text]:
    """The first publication under each id; what the same id was given with at that very instant is joined."""
    first: dict[tuple[str, str], _Text] = {}
    for text in texts:
        row = text.row
        known = first.setdefault((row.source, row.source_id), text)
        if row.industries != known.row.industries and row.published == known.row.published:
            joined = tuple(sorted({*known.row.industries, *row.industries}))
            first[row.source, row.source_id] = known._replace(row=known.row._replace(industries=joined))
    return list(first.values())


def _earliest_copies(texts: list[_Text], settings: DeduplicateSettings) -> list[_Kept]:
    """The texts without an earlier copy in reach, each with the later copies of its day."""
    reach = settings.hours * HOUR
    last_published: dict[tuple[str, str], int] = {}
    latest: dict[tuple[str, str], _Kept] = {}
    kept = []
    for text in texts:
        row = text.row
        group = (row.source if len(text.key) < settings.min_characters else "", text.key)
        if row.published - last_published.get(group, row.published - reach - 1) <= reach:
            if _day(latest[group].text.row.published) == _day(row.published):
                latest[group].copies.append(f"{row.source}:{row.source_id}")
        else:
            latest[group] = _Kept(text, [])
            kept.append(latest[group])
        last_published[group] = row.published
    return kept


def _day(instant: int) -> int:
    """Number of the calendar day in Asia/Shanghai (no daylight saving since 1991)."""
    return (instant + 8 * HOUR) // (24 * HOUR)


def _rows(frame: pd.DataFrame) -> list[_Row]:
    if frame.empty:
        return []
    columns = (
        instants(frame["published_at"]),
        frame["source"].to_list(),
        frame["source_id"].to_list(),
        instants(frame["modified_at"]),
        instants(frame["crawled_at"]),
        frame["title"].to_list(),
        frame["content"].to_list(),
        frame["url"].to_list(),
        [tuple(codes) for codes in frame["industries_given"].to_list()],
        frame["importance_given"].to_list(),
        frame["origin"].to_list(),
    )
    return [_Row(*values) for values in zip(*columns, strict=True)]


def _frame(kept: list[_Kept]) -> pd.DataFrame:
    if not kept:
        return empty(Articles)
    articles = [
        (
            article_id(row.source, row.source_id),
            row.source,
            row.source_id,
            row.url,
            clean.title,
            clean.content,
            row.published,
            row.origin,
            copies,
            list(row.industries),
            row.importance,
        )
        for (row, clean, _), copies in kept
    ]
    articles.sort(key=lambda article: (article[6], article[0]))
    frame = pd.DataFrame(dict(zip(_COLUMNS, zip(*articles, strict=True), strict=True)))
    frame["published_at"] = times([article[6] for article in articles])
    return frame
