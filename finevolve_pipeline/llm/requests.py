"""Typed requests: everything that is ever asked of a model, with the fields a prompt is written from.

A backbone gets a `Call`: the request and its prompt. Models on the network read the messages, the offline backbone
`rules` reads the fields. Both answer JSON text, which `answers` parses the same way.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple, Protocol

from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.market.context import MarketContext
from finevolve_pipeline.news.block import NewsBlock
from finevolve_pipeline.universe import Industry

TemplateKind = Literal["common", "predict", "tag", "reflect", "insight", "reasoning", "rules", "facts", "memory"]
"""Kinds of prompt templates (`prompts/*.md`). A request's `template` is its own; `common` belongs to all."""


@dataclass(frozen=True)
class Reask:
    """What was wrong with the first answer, for the one time that a request is made again."""

    answer: str
    problem: str


@dataclass(frozen=True)
class TagRequest:
    """Which industries does an article concern, how important is it (1-10), and why?"""

    phase: ClassVar[str] = "tag"
    template: ClassVar[TemplateKind] = "tag"

    article_id: str
    source: str
    title: str
    content: str
    published_at: dt.datetime
    reask: Reask | None = None

    @property
    def day(self) -> str:
        """The article's day of publication, ISO."""
        return self.published_at.astimezone(SHANGHAI).date().isoformat()

    @property
    def subject(self) -> str:
        """What it is about, for messages: the article's id."""
        return self.article_id


@dataclass(frozen=True)
class TagBatchRequest:
    """The same of several articles at once."""

    phase: ClassVar[str] = "tag"
    template: ClassVar[TemplateKind] = "tag"

    articles: tuple[TagRequest, ...]

    @property
    def day(self) -> str:
        """The first article's day of publication, ISO."""
        return self.articles[0].day

    @property
    def subject(self) -> str:
        """What it is about, for messages: the articles' ids."""
        return f"{self.articles[0].article_id} and {len(self.articles) - 1} more"


@dataclass(frozen=True)
class Shown:
    """One piece of experience as a prediction sees it; subclasses say what it holds.

    Numbers that a mechanism does not have are None. `selection_score` is the one that its last ranking used.
    """

    memory_id: str
    made_on: dt.date
    similarity: float | None = field(default=None, kw_only=True)
    q: float | dict[int, float] | None = field(default=None, kw_only=True)
    visits: int | None = field(default=None, kw_only=True)
    selection_score: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class ShownMemory(Shown):
    """An earlier prediction with the news it saw; nothing of its outcome."""

    news: str
    scores: dict[int, float]
    key_factor: str
    logic_chain: str
    references: tuple[str, ...] = ()


@dataclass(frozen=True)
class ShownReflection(Shown):
    """A reflection on predictions whose outcomes are known."""

    text: str


@dataclass(frozen=True)
class ShownInsight(Shown):
    """What was learnt from one prediction and its outcome; `alpha` is a fraction."""

    text: str
    horizon: int
    predicted_on: dt.date
    score: float
    alpha: float


@dataclass(frozen=True)
class ReasoningItem:
    """A strategy that was drawn from one prediction and its outcome."""

    title: str
    description: str
    content: str


@dataclass(frozen=True)
class ShownItem(Shown):
    """A reasoning item, for predictions of its horizon. `success`: the direction had been right."""

    item: ReasoningItem
    horizon: int
    predicted_on: dt.date
    success: bool


@dataclass(frozen=True)
class ShownFact(Shown):
    """A fact that was kept from earlier news and predictions."""

    text: str


@dataclass(frozen=True)
class ShownRule(Shown):
    """A rule that was learnt, and how often it was confirmed on balance."""

    text: str
    importance: int


SHOWN = (ShownMemory, ShownReflection, ShownInsight, ShownItem, ShownFact, ShownRule)
"""The kinds of experience that a prompt can show."""


@dataclass(frozen=True)
class SectorRequest:
    """What is asked about one industry on one session."""

    phase: ClassVar[str]
    template: ClassVar[TemplateKind]

    session: dt.date
    industry: Industry

    @property
    def day(self) -> str:
        """The session, ISO."""
        return self.session.isoformat()

    @property
    def subject(self) -> str:
        """What it is about, for messages: the industry's code."""
        return self.industry.code


@dataclass(frozen=True)
class PredictRequest(SectorRequest):
    """How will this industry do against CSI1000 over the next h sessions, for each h?"""

    phase: ClassVar[str] = "predict"
    template: ClassVar[TemplateKind] = "predict"

    horizons: tuple[int, ...]
    news: NewsBlock
    market: MarketContext
    memories: tuple[Shown, ...] = field(default=())
    reask: Reask | None = None


@dataclass(frozen=True)
class Episode:
    """A prediction of one horizon, the news it saw, and the outcome that is known by now.

    `score` lies in [-1, 1]; closes are index points, returns and `alpha` fractions; `success` means that score
    and alpha have the same sign.
    """

    memory_id: str
    predicted_on: dt.date
    matured_on: dt.date
    horizon: int
    score: float
    key_factor: str
    logic_chain: str
    news: NewsBlock
    close_from: float
    close_to: float
    industry_return: float
    benchmark_return: float
    alpha: float

    @property
    def points(self) -> float:
        """Change of the industry's index, index points."""
        return self.close_to - self.close_from

    @property
    def success(self) -> bool:
        """Whether the predicted direction was the realised one; a score of 0 has none."""
        return self.score > 0 < self.alpha or self.score < 0 > self.alpha


Signal = Literal["index_points", "percent_excess"]
"""How an outcome is told to a reflection: the index's change in points, or the excess return in per cent."""


@dataclass(frozen=True)
class ReflectRequest(SectorRequest):
    """What should be learnt from these outcomes, given the reflections before? `episodes`: oldest first."""

    phase: ClassVar[str] = "reflect"
    template: ClassVar[TemplateKind] = "reflect"

    previous: tuple[str, ...]
    episodes: tuple[Episode, ...]
    signal: Signal
    max_characters: int
    reask: Reask | None = None


@dataclass(frozen=True)
class InsightRequest(SectorRequest):
    """What reusable insight does this prediction and its outcome give?"""

    phase: ClassVar[str] = "extract_insight"
    template: ClassVar[TemplateKind] = "insight"

    episode: Episode
    reask: Reask | None = None


@dataclass(frozen=True)
class ReasoningRequest(SectorRequest):
    """What can be taken from this success, or from this failure, for later reasoning?"""

    phase: ClassVar[str] = "extract_reasoning"
    template: ClassVar[TemplateKind] = "reasoning"

    episode: Episode
    max_items: int
    reask: Reask | None = None


@dataclass(frozen=True)
class KnownRule:
    """A rule as an update sees it: its number in the list, from 1."""

    number: int
    text: str
    importance: int


@dataclass(frozen=True)
class RulesRequest(SectorRequest):
    """How should the list of rules change after these outcomes?

    `is_full`: there are as many rules as allowed, so that some should go.
    """

    phase: ClassVar[str] = "update_rules"
    template: ClassVar[TemplateKind] = "rules"

    rules: tuple[KnownRule, ...]
    episodes: tuple[Episode, ...]
    max_operations: int
    is_full: bool
    reask: Reask | None = None


@dataclass(frozen=True)
class FactsRequest(SectorRequest):
    """Which facts of this news and this prediction are worth keeping?"""

    phase: ClassVar[str] = "extract_facts"
    template: ClassVar[TemplateKind] = "facts"

    news: NewsBlock
    scores: dict[int, float]
    key_factor: str
    logic_chain: str
    max_facts: int
    reask: Reask | None = None


@dataclass(frozen=True)
class MemoryRequest(SectorRequest):
    """How should the memories change with these new facts? `memories` are numbered from 1."""

    phase: ClassVar[str] = "update_memory"
    template: ClassVar[TemplateKind] = "memory"

    facts: tuple[str, ...]
    memories: tuple[str, ...]
    reask: Reask | None = None


UpdateRequest = ReflectRequest | InsightRequest | ReasoningRequest | RulesRequest | FactsRequest | MemoryRequest
"""What a mechanism asks in order to learn."""

SingleRequest = TagRequest | PredictRequest | UpdateRequest
"""What may be asked a second time, after a bad answer."""

Request = SingleRequest | TagBatchRequest


class Message(NamedTuple):
    """One message of a prompt. `role` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True)
class Cuts:
    """What the budgets left out of a prompt.

    Attributes:
        memories: memories that were not shown at all.
        memory_news: shown memories that were shortened.
        articles: articles to tag that were shortened.
        update_news: news of past predictions that was shortened for an update.
    """

    memories: int = 0
    memory_news: int = 0
    articles: int = 0
    update_news: int = 0

    def __add__(self, other: Cuts) -> Cuts:
        return Cuts(
            self.memories + other.memories,
            self.memory_news + other.memory_news,
            self.articles + other.articles,
            self.update_news + other.update_news,
        )


Language = Literal["zh", "en"]
"""Of prompts."""


@dataclass(frozen=True)
class Prompt:
    """The messages of a request, and what was cut to make them fit.

    Attributes:
        told: the request with no more experience and past news than the messages show; None where they show all, and
            for tagging, whose articles are given whole.
        language: of the messages.
    """

    messages: tuple[Message, ...]
    cuts: Cuts = Cuts()
    told: SingleRequest | None = None
    language: Language = "zh"


@dataclass(frozen=True)
class Call:
    """One question to a backbone.

    Attributes:
        request: what is asked.
        prompt: how it is written.
        variant: tells apart answers to the same prompt that were got in another way (`batch of 8`).
        seed: tells apart samples: another one is another answer to the same prompt. 0: the backbone's own.
    """

    request: Request
    prompt: Prompt
    variant: str = ""
    seed: int = 0

    @property
    def told(self) -> Request:
        """The request as far as its prompt shows it: what an answer may rest on. Only articles to tag are whole in it
        though the messages show them shortened."""
        return self.prompt.told or self.request


@dataclass(frozen=True)
class Usage:
    """Tokens of calls and their cost. All zero for `rules`.

    Attributes:
        calls: requests that were answered.
        prompt_tokens: cached ones included.
        cached_prompt_tokens: of these, how many the provider had cached.
        completion_tokens: reasoning included.
        reasoning_tokens: of these, how many were reasoning.
        cost: USD by the price at the time of the call; 0 where no price is known.
    """

    calls: int = 0
    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return total_usage((self, other))


def total_usage(usages: Iterable[Usage]) -> Usage:
    """The sum; costs are added exactly, so that the order does not matter."""
    listed = list(usages)
    return Usage(
        calls=sum(one.calls for one in listed),
        prompt_tokens=sum(one.prompt_tokens for one in listed),
        cached_prompt_tokens=sum(one.cached_prompt_tokens for one in listed),
        completion_tokens=sum(one.completion_tokens for one in listed),
        reasoning_tokens=sum(one.reasoning_tokens for one in listed),
        cost=math.fsum(one.cost for one in listed),
    )


def total_failures(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sum of failure counts, by kind, sorted."""
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return dict(sorted(total.items()))


@dataclass(frozen=True)
class Reply:
    """A backbone's answer.

    Attributes:
        text: JSON text, as the model wrote it, reasoning apart.
        usage: what it cost, whenever it was given; an answer from the cache keeps its cost.
        finish: why it ended: stop, length (cut off), content_filter.
        failures: what went wrong on the way, by kind (see `failures`).
        model: how the provider named the model that answered; empty if it did not.
    """

    text: str
    usage: Usage
    finish: str = "stop"
    failures: Mapping[str, int] = field(default_factory=dict)
    model: str = ""


class Backbone(Protocol):
    """A model that answers typed requests."""

    @property
    def name(self) -> str:
        """Name in the settings, e.g. `rules`."""

    @property
    def identity(self) -> dict[str, object]:
        """Everything that can change an answer, as JSON; never a secret."""

    def count_tokens(self, text: str) -> int:
        """Tokens of a text: the model's own count where its tokenizer is present, else an upper estimate."""

    async def answer(self, call: Call) -> Reply:
        """The answer to one call.

        Raises:
            BackboneError: the provider refuses or does not answer; the run must stop.
            BudgetError: the call could exceed the budget.
            CacheMissError: only cached answers may be used, and this is none.
        """

    def recall(self, call: Call) -> Reply | None:
        """An answer given before, without asking; None if there is none (always for `rules`)."""

    def remember(self, call: Call, reply: Reply) -> None:
        """Keep an answer that was got by another way, e.g. as a part of a batch."""

    async def close(self) -> None:
        """Give back connections; the next call opens them again."""
