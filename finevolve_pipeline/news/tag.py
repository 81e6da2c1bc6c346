"""Tagging: industries, scope, importance and topics of every article, asked of a backbone.

Days come out in order, but nobody waits at midnight: while the last answers of a day are awaited, articles of the next
days are asked about. One event loop and one set of connections serve a whole range.

The unit of caching is the article, also where one request asks about several: each part of such an answer is remembered
as the answer about its own article. So a new or changed article is asked about alone.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pandas as pd

from finevolve_pipeline.digests import digest_json
from finevolve_pipeline.errors import AnswerError, FinEvolveError
from finevolve_pipeline.llm import failures
from finevolve_pipeline.llm.answers import TagAnswer, parse_tag, parse_tag_batch, tag_flaws
from finevolve_pipeline.llm.asking import Asked, Model
from finevolve_pipeline.llm.render import prompt_templates_digest, render
from finevolve_pipeline.llm.requests import Call, Reply, TagBatchRequest, TagRequest, Usage, total_failures, total_usage
from finevolve_pipeline.news.instants import instants, moment
from finevolve_pipeline.settings import ModelSettings, Settings
from finevolve_pipeline.tables import TaggedArticles, empty
from finevolve_pipeline.universe import industry

GIVEN = "given"
"""Tagger of an article whose industries and importance came with the data."""

LOOK_AHEAD = 8
"""Articles are kept at hand for that many times the requests under way: a request is waited for that much longer than
the average before others have to wait too."""

SHOWN_REJECTED = 20
"""Rejected industry names that the facts of a day list, the most frequent ones."""

_LONGEST_NAME = 40
_GIVEN_REASON = "given with the data"
_UNREADABLE = TagAnswer((), "none", 1, "the tagger's answer could not be read", ())
_ALL_GIVEN = TagAnswer((), "industry", 1, _GIVEN_REASON, ())
_RULES_AT_ONCE = 64
_TAGS = {
    "industries": "object",
    "scope": "str",
    "importance": "int8",
    "importance_reason": "str",
    "topics": "object",
    "tagger": "str",
    "rejected_industries": "object",
}


@dataclass(frozen=True)
class Tagging:
    """Tagged articles, and what their tagging took.

    Attributes:
        frame: `TaggedArticles` rows, one per article, in the articles' order.
        asked: articles a backbone was asked about; the others came with industries and importance.
        asked_again: articles whose first answer could not be used in full.
        unreadable: articles whose second answer could not be read either; kept as scope none, importance 1.
        cut: articles of which only a part was shown.
        rejected: names that answers gave for industries and that are none, with how often.
        failures: what went wrong, by kind (see `llm.failures`).
        usage: what the answers cost, whenever they were given.
    """

    frame: pd.DataFrame
    asked: int
    asked_again: int
    unreadable: int
    cut: int
    rejected: Mapping[str, int]
    failures: Mapping[str, int]
    usage: Usage

    @property
    def facts(self) -> dict[str, object]:
        """All but the rows, as plain values. Of rejected names the most frequent ones, each shortened."""
        usage = self.usage
        return {
            "asked": self.asked,
            "asked_again": self.asked_again,
            "unreadable": self.unreadable,
            "articles_cut": self.cut,
            "rejected_industries": sum(self.rejected.values()),
            "rejected_names": {
                name[:_LONGEST_NAME]: count for name, count in Counter(self.rejected).most_common(SHOWN_REJECTED)
            },
            "failures": dict(self.failures),
            "calls": usage.calls,
            "tokens": {
                "prompt": usage.prompt_tokens,
                "cached_prompt": usage.cached_prompt_tokens,
                "completion": usage.completion_tokens,
                "reasoning": usage.reasoning_tokens,
            },
            "cost_usd": usage.cost,
        }


@dataclass(frozen=True)
class Tagger:
    """All that can change a tag.

    Attributes:
        identity: as `tagged_articles.tagger` names it: the backbone's name, and a digest of it and of its prompts.
        settings: values by their path in the settings, the backbone's identity under `tagging.tagger`.
        templates: digest of the prompt templates.
    """

    identity: str
    settings: Mapping[str, object]
    templates: str


def tagger(model: Model, batch: int) -> Tagger:
    """The tagger that a model makes, asked about `batch` articles at a time."""
    backbone, prompts = model.backbone.identity, model.prompts
    templates = prompt_templates_digest(prompts.language, ("common", "tag"))
    said: dict[str, object] = {
        "backbone": backbone,
        "language": prompts.language,
        "article_tokens": prompts.article_tokens,
        "templates": templates,
    }
    if batch > 1:
        said["batch"] = batch
    settings = {
        "tagging.tagger": backbone,
        "prompts.language": prompts.language,
        "prompts.article_tokens": prompts.article_tokens,
        "tagging.batch": batch,
    }
    return Tagger(f"{model.backbone.name}:{digest_json(said)[:12]}", settings, templates)


def requests_under_way(settings: Settings, backbone: str) -> int:
    """How many requests of tagging are kept under way at a time: twice what the provider admits, so that none of its
    places stays empty."""
    section = settings.backbones[backbone]
    if isinstance(section, ModelSettings):
        return 2 * settings.providers[section.provider].concurrency
    return _RULES_AT_ONCE


def tag_days(
    days: Iterator[tuple[str, pd.DataFrame]], model: Model, batch: int, in_flight: int
) -> Generator[tuple[str, Tagging], None, None]:
    """Days with industries, scope, importance and topics, one after the other.

    What came with the data stays: an article with industries and importance given is not asked about, one with
    either of them keeps it and gets the rest from the backbone. A given importance outside 1-10 counts as not
    given. Later days are read and asked about before earlier ones are complete, as far as `LOOK_AHEAD` allows.

    Args:
        days: keys with `Articles` rows; taken when their turn comes, and not to be read by others meanwhile.
        model: who answers. Its connections are closed in the end.
        batch: articles a request.
        in_flight: requests under way at a time.

    Raises:
        BackboneError, BudgetError, CacheMissError: the backbone stops; what is under way is waited for. Complete
            days before the one concerned came out.
        UniverseError: a given industry is none of the 31.
    """
    identity = tagger(model, batch).identity
    desk = _Desk(days, model, batch, in_flight)
    with asyncio.Runner() as runner:
        try:
            while (day := runner.run(desk.next_day())) is not None:
                yield day.key, day.tagging(identity)
        finally:
            runner.run(desk.close())


class _Article(NamedTuple):
    request: TagRequest
    industries: tuple[str, ...]
    importance: int | None


class _Day:
    """A day whose articles are being asked about."""

    def __init__(self, key: str, articles: pd.DataFrame) -> None:
        self.key = key
        self.articles = articles
        self.rows = _rows(articles)
        self.unknown = [row.request for row in self.rows if not row.industries or row.importance is None]
        self.asked: dict[str, Asked[TagAnswer]] = {}

    @property
    def is_answered(self) -> bool:
        return len(self.asked) == len(self.unknown)

    @property
    def weight(self) -> int:
        """Articles, and one more, so that days without any are not taken without end."""
        return len(self.rows) + 1

    def tagging(self, identity: str) -> Tagging:
        """The day's result; every unknown article is answered."""
        asked = self.asked.values()
        tagged = [_tagged(row, self.asked.get(row.request.article_id), identity) for row in self.rows]
        return Tagging(
            _frame(self.articles, tagged),
            asked=len(asked),
            asked_again=sum(one.reasked for one in asked),
            unreadable=sum(one.answer is None for one in asked),
            cut=sum(one.cuts.articles > 0 for one in asked),
            rejected=Counter(name for row in tagged for name in row.rejected),
            failures=total_failures(one.failures for one in asked),
            usage=total_usage(one.usage for one in asked),
        )


class _Question(NamedTuple):
    """Articles of a day to ask about in one request, or one of them with what a request said of it."""

    day: _Day
    articles: tuple[TagRequest, ...]
    part: Reply | None = None


@dataclass
class _Desk:
    """Where workers take questions and put answers. One worker is one request under way.

    Workers wait at `_more` while there is nothing to take, whoever wants a day waits at `_news`.
    """

    days: Iterator[tuple[str, pd.DataFrame]]
    model: Model
    batch: int
    in_flight: int
    _open: deque[_Day] = field(default_factory=deque)
    _held: int = 0
    _all_read: bool = False
    _is_stopping: bool = False
    _questions: Iterator[_Question] = field(default_factory=lambda: iter(()))
    _parts: deque[_Question] = field(default_factory=deque)
    _workers: list[asyncio.Task[None]] = field(default_factory=list)
    _more: asyncio.Event = field(default_factory=asyncio.Event)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def next_day(self) -> _Day | None:
        """The oldest open day once it is answered; None after the last. Raises what stopped a worker."""
        if not self._workers:
            self._workers = [asyncio.create_task(self._work()) for _ in range(self.in_flight)]
            for worker in self._workers:
                worker.add_done_callback(lambda _: self._news.set())
        while True:
            if self._open and self._open[0].is_answered:
                day = self._open.popleft()
                self._held -= day.weight
                self._more.set()
                return day
            failed = next((worker for worker in self._workers if worker.done()), None)
            if failed is not None:
                if isinstance(failed.exception(), FinEvolveError):
                    await self._finish()
                failed.result()
            if self._all_read and not self._open:
                return None
            self._news.clear()
            await self._news.wait()

    async def _finish(self) -> None:
        """Let the others have the answers they wait for, which are paid for and will be kept; ask nothing more."""
        self._is_stopping = True
        self._more.set()
        await asyncio.wait(self._workers)

    async def close(self) -> None:
        """Give up what is under way, and the connections."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        await self.model.backbone.close()

    async def _work(self) -> None:
        while not self._is_stopping:
            question = self._take()
            if question is None:
                self._more.clear()
                await self._more.wait()
            elif question.part is None and self.batch > 1:
                await self._ask_about_several(question)
            else:
                (article,) = question.articles
                question.day.asked[article.article_id] = await self._ask_about_one(article, question.part)
                self._tell()

    def _take(self) -> _Question | None:
        """The next question; None while there is none to take."""
        if self._parts:
            return self._parts.popleft()
        while True:
            question = next(self._questions, None)
            if question is not None:
                return question
            if self._all_read or self._held >= LOOK_AHEAD * self.in_flight * self.batch:
                return None
            read = next(self.days, None)
            if read is None:
                self._all_read = True
            else:
                day = _Day(*read)
                self._open.append(day)
                self._held += day.weight
                self._questions = self._questions_of(day)
            self._tell()

    def _tell(self) -> None:
        if not self._open or self._open[0].is_answered:
            self._news.set()

    def _questions_of(self, day: _Day) -> Iterator[_Question]:
        if self.batch == 1:
            for article in day.unknown:
                yield _Question(day, (article,))
            return
        missing: list[TagRequest] = []
        for article in day.unknown:
            part = self.model.backbone.recall(self._call(article))
            if part is not None:
                yield _Question(day, (article,), part)
                continue
            missing.append(article)
            if len(missing) == self.batch:
                yield _Question(day, tuple(missing))
                missing = []
        if missing:
            yield _Question(day, tuple(missing))

    def _call(self, article: TagRequest) -> Call:
        """The call under which an article's part of an answer about several is remembered."""
        return self.model.call(article, f"batch of {self.batch}")

    async def _ask_about_several(self, question: _Question) -> None:
        request = TagBatchRequest(question.articles)
        backbone = self.model.backbone
        reply = await backbone.answer(Call(request, render(request, self.model.prompts, backbone.count_tokens)))
        for article, part in zip(question.articles, _parts_of(reply, request), strict=True):
            backbone.remember(self._call(article), part)
            self._parts.append(_Question(question.day, (article,), part))
        self._more.set()

    async def _ask_about_one(self, article: TagRequest, part: Reply | None) -> Asked[TagAnswer]:
        """An article's answer: by its own request, unless a readable part of another's is there already."""
        if part is None or _is_readable(part):
            return await self.model.ask(article, parse_tag, tag_flaws, part)
        asked = await self.model.ask(article, parse_tag, tag_flaws)
        wasted = {failures.UNREADABLE: 1, failures.REASKED: 1}
        return replace(
            asked,
            reasked=True,
            usage=asked.usage + part.usage,
            failures=total_failures((asked.failures, part.failures, wasted)),
        )


def _parts_of(reply: Reply, request: TagBatchRequest) -> list[Reply]:
    """An answer about several articles as answers about each; without text where it says nothing usable of one.

    What the answer cost and what went wrong on the way is split so that the sum stays; remainders go to the first.
    """
    ids = tuple(article.article_id for article in request.articles)
    try:
        found = {} if reply.finish == "content_filter" else parse_tag_batch(reply.text, ids)
    except AnswerError:
        found = {}
    parts = []
    for position, (article_id, usage) in enumerate(zip(ids, _shares(reply.usage, len(ids)), strict=True)):
        answer = found.get(article_id)
        # Of a contradiction only half could be written down, so it counts as unusable.
        text = _written(answer) if isinstance(answer, TagAnswer) and not answer.contradiction else ""
        parts.append(replace(reply, text=text, usage=usage, finish="stop", failures={} if position else reply.failures))
    return parts


def _written(answer: TagAnswer) -> str:
    """The answer as a backbone writes it about one article."""
    return json.dumps(
        {
            "industries": [*answer.industries, *answer.rejected],
            "scope": answer.scope,
            "importance": answer.importance,
            "importance_reason": answer.importance_reason,
            "topics": list(answer.topics),
        },
        ensure_ascii=False,
    )


def _is_readable(part: Reply) -> bool:
    try:
        parse_tag(part.text)
    except AnswerError:
        return False
    return True


def _shares(usage: Usage, count: int) -> list[Usage]:
    each = Usage(
        0,
        usage.prompt_tokens // count,
        usage.cached_prompt_tokens // count,
        usage.completion_tokens // count,
        usage.reasoning_tokens // count,
        usage.cost / count,
    )
    others = count - 1
    first = Usage(
        usage.calls,
        usage.prompt_tokens - others * each.prompt_tokens,
        usage.cached_prompt_tokens - others * each.cached_prompt_tokens,
        usage.completion_tokens - others * each.completion_tokens,
        usage.reasoning_tokens - others * each.reasoning_tokens,
        usage.cost - others * each.cost,
    )
    return [first, *[each] * others]


class _Tags(NamedTuple):
    """An article's new columns, in the order of `_TAGS`."""

    industries: list[str]
    scope: str
    importance: int
    reason: str
    topics: list[str]
    tagger: str
    rejected: list[str]


def _tagged(row: _Article, asked: Asked[TagAnswer] | None, identity: str) -> _Tags:
    answer = (asked.answer or _UNREADABLE) if asked else _ALL_GIVEN
    tags = _Tags(
        list(answer.industries),
        answer.scope,
        answer.importance,
        answer.importance_reason,
        sorted(answer.topics),
        identity if asked else GIVEN,
        sorted(answer.rejected),
    )
    if row.industries:
        tags = tags._replace(industries=list(row.industries), scope="industry", rejected=[])
    if row.importance is not None:
        tags = tags._replace(importance=row.importance, reason=_GIVEN_REASON)
    if asked and (row.industries or row.importance is not None):
        tags = tags._replace(tagger=f"{GIVEN}+{identity}")
    return tags


def _frame(articles: pd.DataFrame, tagged: Sequence[_Tags]) -> pd.DataFrame:
    if not tagged:
        return empty(TaggedArticles)
    frame = articles[["article_id", "source", "url", "title", "content", "published_at"]].reset_index(drop=True)
    for column, values in zip(_TAGS, zip(*tagged, strict=True), strict=True):
        frame[column] = pd.Series(list(values), dtype=_TAGS[column])
    return frame


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
