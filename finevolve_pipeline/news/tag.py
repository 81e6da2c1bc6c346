"""Tagging: industries, scope, importance and topics of every article, one request to a backbone each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from finevolve_pipeline.digests import digest_json
from finevolve_pipeline.errors import AnswerError
from finevolve_pipeline.llm.answers import TagAnswer, parse_tag
from finevolve_pipeline.llm.requests import Backbone, TagRequest, Usage
from finevolve_pipeline.news.instants import instants, moment
from finevolve_pipeline.tables import TaggedArticles, empty
from finevolve_pipeline.universe import industry

GIVEN = "given"
"""Tagger of an article whose industries and importance came with the data."""

_GIVEN_REASON = "given with the data"
_UNREADABLE = TagAnswer((), "none", 1, "the tagger's answer could not be read", ())
_ALL_GIVEN = TagAnswer((), "industry", 1, _GIVEN_REASON, ())
_AT_ONCE = 64
_TAGS = {
    "industries": "object",
    "scope": "str",
    "importance": "int8",
    "importance_reason": "str",
    "topics": "object",
    "tagger": "str",
}


class Tagging(NamedTuple):
    """Tagged articles, and what their tagging took.

    Attributes:
        frame: `TaggedArticles` rows, one per article, in the articles' order.
        asked: articles a backbone was asked about; the others came with industries and importance.
        asked_again: articles whose first answer could not be read.
        unreadable: articles whose second answer could not be read either; kept as scope none, importance 1.
        usage: what the calls cost.
    """

    frame: pd.DataFrame
    asked: int
    asked_again: int
    unreadable: int
    usage: Usage


class _Article(NamedTuple):
    request: TagRequest
    industries: tuple[str, ...]
    importance: int | None


class _Asked(NamedTuple):
    answer: TagAnswer
    failures: int
    usage: Usage


def tagger_identity(backbone: Backbone) -> str:
    """The tagger as `tagged_articles.tagger` names it: the backbone's name and a digest of its identity."""
    return f"{backbone.name}:{digest_json(backbone.identity)[:12]}"


async def tag_articles(articles: pd.DataFrame, backbone: Backbone) -> Tagging:
    """Articles with industries, scope, importance and topics.

    An answer that cannot be read is asked for once more. What came with the data stays: an article with
    industries and importance given is not asked about, one with either of them keeps it and gets the rest
    from the backbone. A given importance outside 1-10 counts as not given.

    Args:
        articles: `Articles` rows.
        backbone: who answers; a bounded number of requests is under way at a time.

    Raises:
        UniverseError: a given industry is none of the 31.
    """
    if articles.empty:
        return Tagging(empty(TaggedArticles), 0, 0, 0, Usage())
    rows = _rows(articles)
    unknown = [row.request for row in rows if not row.industries or row.importance is None]
    asked: dict[str, _Asked] = {}
    for start in range(0, len(unknown), _AT_ONCE):
        chunk = unknown[start : start + _AT_ONCE]
        answers = await asyncio.gather(*(_ask(request, backbone) for request in chunk))
        asked.update(zip((request.article_id for request in chunk), answers, strict=True))
    identity = tagger_identity(backbone)
    tagged = [_tagged(row, asked.get(row.request.article_id), identity) for row in rows]
    frame = articles[["article_id", "source", "url", "title", "content", "published_at"]].reset_index(drop=True)
    for column, values in zip(_TAGS, zip(*tagged, strict=True), strict=True):
        frame[column] = pd.Series(list(values), dtype=_TAGS[column])
    return Tagging(
        frame,
        asked=len(asked),
        asked_again=sum(one.failures > 0 for one in asked.values()),
        unreadable=sum(one.failures > 1 for one in asked.values()),
        usage=sum((one.usage for one in asked.values()), Usage()),
    )


async def _ask(request: TagRequest, backbone: Backbone) -> _Asked:
    usage = Usage()
    for failures in range(2):
        reply = await backbone.answer(request)
        usage += reply.usage
        try:
            return _Asked(parse_tag(reply.text), failures, usage)
        except AnswerError:
            continue
    return _Asked(_UNREADABLE, 2, usage)


def _tagged(row: _Article, asked: _Asked | None, identity: str) -> tuple[list[str], str, int, str, list[str], str]:
    answer = asked.answer if asked else _ALL_GIVEN
    industries, scope = list(answer.industries), str(answer.scope)
    importance, reason = answer.importance, answer.importance_reason
    tagger = identity if asked else GIVEN
    if row.industries:
        industries, scope = list(row.industries), "industry"
    if row.importance is not None:
        importance, reason = row.importance, _GIVEN_REASON
    if asked and (row.industries or row.importance is not None):
        tagger = f"{GIVEN}+{identity}"
    return industries, scope, importance, reason, sorted(answer.topics), tagger


def _rows(articles: pd.DataFrame) -> list[_Article]:
    requests = (
        TagRequest(*values)
        for values in zip(
            articles["article_id"].to_list(),
            articles["source"].to_list(),
            articles["title"].to_list(),
            articles["content"].to_list(),
            map(moment, instants(articles["published_at"])),
            strict=True,
        )
    )
    given = zip(articles["industries_given"].to_list(), articles["importance_given"].to_list(), strict=True)
    return [
        _Article(request, _codes(codes), _importance(importance))
        for request, (codes, importance) in zip(requests, given, strict=True)
    ]


def _codes(given: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted({industry(code).code for code in given}))


def _importance(given: float) -> int | None:
    return round(given) if 1 <= given <= 10 else None
