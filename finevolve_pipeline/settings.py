"""Settings: one TOML file over the packaged defaults. What the paper leaves open is a named setting here.

Order: `--config FILE` (or FINEVOLVE_CONFIG), else `finevolve.toml` in the working directory, else the packaged
`finevolve.toml` alone. Unknown keys are refused. Secrets never stand in settings, only names of environment variables.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from finevolve_pipeline import calendar
from finevolve_pipeline.digests import digest_json
from finevolve_pipeline.errors import CalendarError, SettingsError

Name = Literal["spearman", "pearson"]

SOURCE_ID = r"[a-z0-9][a-z0-9_.-]{0,63}"
"""Shape of a source id: a part of file names and of partition keys."""

SourceId = Annotated[str, Field(pattern=f"^{SOURCE_ID}$")]


def _require_distinct(names: tuple[str, ...]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice!r} is listed twice")


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BenchmarkSettings(_Section):
    """Prediction window and horizons (paper section 3.1)."""

    first_session: dt.date
    last_session: dt.date
    horizons: tuple[int, ...] = Field(min_length=1)

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


class MarketSettings(_Section):
    """Span of the kept bars."""

    first_session: dt.date
    last_session: dt.date

    @property
    def sessions(self) -> tuple[dt.date, ...]:
        """All sessions with bars, oldest first."""
        return calendar.sessions_between(self.first_session, self.last_session)

    @model_validator(mode="after")
    def _covered(self) -> MarketSettings:
        if not self.sessions:
            raise ValueError(f"no session between {self.first_session} and {self.last_session}")
        return self


class TaggingSettings(_Section):
    """Who tags articles."""

    backbone: str


class PromptSettings(_Section):
    """Language and token budgets of prompts."""

    language: Literal["zh", "en"]
    news_tokens: int = Field(ge=100)
    experience_tokens: int = Field(ge=0)


class ScoreSettings(_Section):
    """How scores outside [-1, 1] are read."""

    out_of_range: Literal["invalid", "clip"]


class EmbedderSettings(_Section):
    """The embedder shared by all mechanisms that compare news blocks."""

    kind: Literal["hashing"]
    dimensions: int = Field(ge=16, le=65536)
    ngrams: tuple[Annotated[int, Field(ge=1, le=16)], ...] = Field(min_length=1)


class BackboneSettings(_Section):
    """One model that answers typed requests."""

    kind: Literal["rules"]


class ExperimentSettings(_Section):
    """The experiments are mechanisms x backbones."""

    mechanisms: tuple[str, ...] = Field(min_length=1)
    backbones: tuple[str, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _distinct(self) -> ExperimentSettings:
        for names in (self.mechanisms, self.backbones):
            _require_distinct(names)
        return self


class EvaluationSettings(_Section):
    """How information coefficients are computed and staged."""

    headline: Name
    stage_split: Literal["third", "half", "first_n", "date"]
    stage_first_n: int = Field(ge=1)
    stage_date: dt.date | None = None
    min_industries: int = Field(ge=2)
    min_sessions: int = Field(ge=2)

    @model_validator(mode="after")
    def _date_given(self) -> EvaluationSettings:
        if self.stage_split == "date" and self.stage_date is None:
            raise ValueError("stage_split is 'date', so stage_date must say the first later session")
        return self


class Experiment(BaseModel):
    """One chain of the replay: a mechanism on a backbone. Its key is a partition key."""

    model_config = ConfigDict(frozen=True)
    mechanism: str
    backbone: str

    @property
    def key(self) -> str:
        """`mechanism-backbone`, e.g. `mem0-rules`."""
        return f"{self.mechanism}-{self.backbone}"


class Settings(_Section):
    """All effective settings. `digest` identifies them."""

    benchmark: BenchmarkSettings
    news: NewsSettings
    market: MarketSettings
    tagging: TaggingSettings
    prompts: PromptSettings
    scores: ScoreSettings
    embedder: EmbedderSettings
    backbones: dict[str, BackboneSettings]
    mechanisms: dict[str, dict[str, Any]]
    experiments: ExperimentSettings
    evaluation: EvaluationSettings

    @property
    def digest(self) -> str:
        """Digest of every effective value."""
        return digest_json(self.model_dump(mode="json"))

    @property
    def all_experiments(self) -> tuple[Experiment, ...]:
        """Every mechanism on every backbone, backbone by backbone."""
        return tuple(
            Experiment(mechanism=mechanism, backbone=backbone)
            for backbone in self.experiments.backbones
            for mechanism in self.experiments.mechanisms
        )

    def experiment(self, key: str) -> Experiment:
        """The experiment of that key. Raises `SettingsError` if there is none."""
        for experiment in self.all_experiments:
            if experiment.key == key:
                return experiment
        known = ", ".join(e.key for e in self.all_experiments)
        raise SettingsError(f"experiment {key!r}: not among {known}; add it under [experiments] in finevolve.toml")

    @model_validator(mode="after")
    def _consistent(self) -> Settings:
        for backbone in (*self.experiments.backbones, self.tagging.backbone):
            if backbone not in self.backbones:
                raise ValueError(f"backbone {backbone!r} has no [backbones.{backbone}] section")
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", backbone):
                raise ValueError(f"backbone {backbone!r}: use letters, digits, _ . and - only")
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
        return self


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


def load_settings(path: Path | None = None, overrides: dict[str, Any] | None = None) -> Settings:
    """Effective settings: packaged defaults, then the file, then `overrides`.

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
    try:
        return Settings.model_validate(values)
    except ValidationError as broken:
        first = broken.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "settings"
        raise SettingsError(f"{where}: {key}: {first['msg'].removeprefix('Value error, ')}") from None
    except CalendarError as beyond:
        raise SettingsError(f"{where}: {beyond}") from None


def finevolve_home() -> Path:
    """The folder that holds all state: FINEVOLVE_HOME, else ./.finevolve."""
    return Path(os.environ.get("FINEVOLVE_HOME") or ".finevolve").absolute()
