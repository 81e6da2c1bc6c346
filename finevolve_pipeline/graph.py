"""The dataset as a graph of tables: what each partition is built from, by which pure function.

The Dagster assets, `finevolve status` and `finevolve audit` all read this one description. A stored partition
carries a *recipe*: the digests of its inputs and of the code and settings that made it. It is fresh while the
recipe equals the present one; `recipes` tells what differs where it does not.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import pandas as pd

from finevolve_pipeline import calendar, tables
from finevolve_pipeline.digests import digest_json, digest_text, source_digest
from finevolve_pipeline.errors import MissingPartitionError
from finevolve_pipeline.evaluation import comparison, ic, inference, sensitivity
from finevolve_pipeline.llm.asking import Model
from finevolve_pipeline.llm.requests import Backbone
from finevolve_pipeline.market import alpha
from finevolve_pipeline.news import deduplicate, select, tag, window
from finevolve_pipeline.recipes import Parts, Version
from finevolve_pipeline.settings import Experiment, Settings


class TableReader(Protocol):
    """Read access to stored tables. Partitions are named by their keys, e.g. `2025-05-30`."""

    def read(self, table: str, partition: str) -> pd.DataFrame:
        """A stored partition. Raises `MissingPartitionError` if it does not exist."""

    def digest(self, table: str, partition: str) -> str | None:
        """Content digest of a stored partition, None if it does not exist."""


@dataclass(frozen=True)
class Input:
    """One partition that another is built from. An optional one may be absent (a source without news that day)."""

    table: str
    partition: str
    optional: bool = False


Build = Callable[[str, TableReader], pd.DataFrame]


@dataclass(frozen=True)
class Built:
    """A partition that was just made.

    Attributes:
        partition: its key.
        frame: its rows.
        facts: what its making took, as plain values by name; for people, no part of the table.
    """

    partition: str
    frame: pd.DataFrame
    facts: Mapping[str, object] = field(default_factory=dict)


Stream = Callable[[Iterator[str], TableReader], Generator[Built, None, None]]
"""Makes many partitions, in the order of their keys. It may take keys ahead of those it has made."""


@dataclass(frozen=True)
class Recipe:
    """What a partition would be made of now.

    Attributes:
        digest: of all of it.
        absent: required inputs that do not exist.
        parts: what it is made of, to tell causes.
    """

    digest: str
    absent: tuple[Input, ...]
    parts: Parts


@dataclass(frozen=True)
class Table:
    """One table of the graph.

    Attributes:
        name: the asset's name.
        contract: columns, types and units.
        partitions: all partition keys, oldest first.
        inputs: what a partition is built from, given what exists.
        build: makes a partition; reads its inputs from the given reader and nothing else.
        version: the code and settings that can change the result.
        stream: makes many partitions together, where that is quicker than one after the other.
    """

    name: str
    contract: type[tables.Contract]
    partitions: tuple[str, ...]
    inputs: Callable[[str, TableReader], tuple[Input, ...]]
    build: Build
    version: Version
    stream: Stream | None = None

    @property
    def code_version(self) -> str:
        """Digest of the code and settings that can change the result."""
        return self.version.digest

    def build_many(self, partitions: Iterator[str], reader: TableReader) -> Generator[Built, None, None]:
        """Make partitions, in the order of their keys; close the generator to give up those under way."""
        if self.stream is not None:
            yield from self.stream(partitions, reader)
            return
        for partition in partitions:
            yield Built(partition, self.build(partition, reader))

    def recipe(self, partition: str, reader: TableReader) -> Recipe:
        """The present recipe of a partition. An optional input that does not exist is no part of it."""
        digests: dict[str, dict[str, str | None]] = {}
        absent: list[Input] = []
        for item in self.inputs(partition, reader):
            digest = reader.digest(item.table, item.partition)
            if digest is None and item.optional:
                continue
            if digest is None:
                absent.append(item)
            digests.setdefault(item.table, {})[item.partition] = digest
        columns = digest_text(str(tables.arrow_schema(self.contract)))
        whole = digest_json({"code": self.code_version, "columns": columns, "inputs": digests})
        return Recipe(whole, tuple(absent), Parts.of(self.version, columns, digests))

    def require_inputs(self, partition: str, recipe: Recipe) -> None:
        """Raises `MissingPartitionError` naming the first absent input and what makes it."""
        if recipe.absent:
            first = recipe.absent[0]
            remedy = "import it" if first.table.startswith(LANDING) else f"materialise {first.table} first"
            raise MissingPartitionError(
                f"{self.name} {partition}: {first.table} {first.partition} does not exist; {remedy} "
                "(`finevolve run` does all that is missing)"
            )


SINGLE = "all"
"""Partition key of an unpartitioned table."""

_OF_RUNS = ("replay", "ic_by_experiment")

LANDING = "landing_"
"""Prefix of the tables that imports fill: landing_news, landing_industry_bars, landing_benchmark_bars."""


def code_version(
    *modules: str, settings: Mapping[str, object] | None = None, templates: Mapping[str, str] | None = None
) -> Version:
    """Modules (see `digests.source_digest`), the settings they read, by path, and digests of prompt templates by
    name."""
    return Version({**{name: source_digest(name) for name in modules}, **(templates or {})}, dict(settings or {}))


def news_key(day: dt.date, source: str) -> str:
    """Partition key of one source's day: `2025-01-02|cls`."""
    return f"{day.isoformat()}|{source}"


def _keys(days: Iterable[dt.date]) -> tuple[str, ...]:
    return tuple(day.isoformat() for day in days)


def _concatenated(frames: Sequence[pd.DataFrame], contract: type[tables.Contract]) -> pd.DataFrame:
    filled = [frame for frame in frames if len(frame)]
    return pd.concat(filled, ignore_index=True) if filled else tables.empty(contract)


@dataclass(frozen=True)
class Graph:
    """All tables of the dataset under one set of settings.

    Attributes:
        settings: effective settings.
        sources: source ids: those of the settings and those that imports named.
        tagger: the backbone that tags articles.
    """

    settings: Settings
    sources: tuple[str, ...]
    tagger: Backbone

    @cached_property
    def calendar_days(self) -> tuple[dt.date, ...]:
        """Days of the news span."""
        return calendar.days_between(self.settings.news.first_day, self.settings.news.last_day)

    @cached_property
    def sessions(self) -> tuple[dt.date, ...]:
        """Sessions of the prediction window."""
        return self.settings.benchmark.sessions

    @cached_property
    def tables(self) -> dict[str, Table]:
        """Every table by name, upstream first."""
        listed = (
            self._raw_news(),
            self._articles(),
            self._tagged_articles(),
            self._benchmark_news(),
            self._news_window(),
            self._bars("industry_bars"),
            self._bars("benchmark_bars"),
            self._matured_alpha(),
            self._alpha(),
            self._label_bases(),
            self._ic_by_experiment(),
            self._ic_matrix(),
            self._comparison(),
            self._inference(),
            self._sensitivity(),
        )
        return {table.name: table for table in listed}

    def told_outcomes(self, reader: TableReader) -> pd.DataFrame:
        """`Outcomes` by prediction day as agents are told them: from the close of t, whatever the label base."""
        if self.settings.evaluation.label_base == "close_t":
            return reader.read("alpha", SINGLE)
        bases = reader.read("label_bases", SINGLE)
        return bases[bases["base"] == "close_t"].drop(columns="base").reset_index(drop=True)

    def _raw_news(self) -> Table:
        def build(key: str, reader: TableReader) -> pd.DataFrame:
            return reader.read(f"{LANDING}news", key)

        return Table(
            "raw_news",
            tables.RawNews,
            tuple(news_key(day, source) for day in self.calendar_days for source in self.sources),
            lambda key, _: (Input(f"{LANDING}news", key),),
            build,
            code_version(),
        )

    def _raw_inputs(self, day: dt.date, reader: TableReader) -> tuple[Input, ...]:
        """A source's day is required once anything has landed for it, else it may be absent."""
        keys = [news_key(day, source) for source in self.sources]
        return tuple(Input("raw_news", key, reader.digest(f"{LANDING}news", key) is None) for key in keys)

    def _articles(self) -> Table:
        first = self.settings.news.first_day

        def inputs(key: str, reader: TableReader) -> tuple[Input, ...]:
            day = dt.date.fromisoformat(key)
            before = day - dt.timedelta(days=1)
            return self._raw_inputs(day, reader) + (self._raw_inputs(before, reader) if before >= first else ())

        def build(key: str, reader: TableReader) -> pd.DataFrame:
            day = dt.date.fromisoformat(key)
            raw: dict[dt.date, list[pd.DataFrame]] = {day: [], day - dt.timedelta(days=1): []}
            for item in inputs(key, reader):
                if reader.digest(item.table, item.partition) is not None:
                    raw[dt.date.fromisoformat(item.partition[:10])].append(reader.read(item.table, item.partition))
            today, yesterday = (_concatenated(frames, tables.RawNews) for frames in raw.values())
            return deduplicate.build_articles(day, today, yesterday, self.settings.news.deduplicate).frame

        return Table(
            "articles",
            tables.Articles,
            _keys(self.calendar_days),
            inputs,
            build,
            code_version(
                "finevolve_pipeline.news.clean",
                "finevolve_pipeline.news.deduplicate",
                settings={"news.deduplicate": self.settings.news.deduplicate.model_dump()},
            ),
        )

    def _tagged_articles(self) -> Table:
        settings = self.settings.tagging
        model = Model(self.tagger, self.settings.prompts)
        in_flight = tag.requests_under_way(self.settings, settings.backbone)
        made_by = tag.tagger(model, settings.batch)

        def stream(keys: Iterator[str], reader: TableReader) -> Generator[Built, None, None]:
            days = ((key, reader.read("articles", key)) for key in keys)
            with closing(tag.tag_days(days, model, settings.batch, in_flight)) as tagged:
                for key, tagging in tagged:
                    yield Built(key, tagging.frame, tagging.facts)

        def build(key: str, reader: TableReader) -> pd.DataFrame:
            (built,) = stream(iter((key,)), reader)
            return built.frame

        return Table(
            "tagged_articles",
            tables.TaggedArticles,
            _keys(self.calendar_days),
            lambda key, _: (Input("articles", key),),
            build,
            code_version(
                "finevolve_pipeline.news.tag",
                "finevolve_pipeline.llm.answers",
                "finevolve_pipeline.llm.asking",
                "finevolve_pipeline.llm.render",
                "finevolve_pipeline.llm.schemas",
                "finevolve_pipeline.llm.untrusted",
                "finevolve_pipeline.universe",
                settings={"tagging.backbone": model.backbone.name, **made_by.settings},
                templates={f"prompt templates of tagging ({model.prompts.language})": made_by.templates},
            ),
            stream,
        )

    def _benchmark_news(self) -> Table:
        news = self.settings.news
        return Table(
            "benchmark_news",
            tables.BenchmarkNews,
            _keys(self.calendar_days),
            lambda key, _: (Input("tagged_articles", key),),
            lambda key, reader: select.select(reader.read("tagged_articles", key), news),
            code_version(
                "finevolve_pipeline.news.select",
                settings={"news.min_importance": news.min_importance, "news.market_wide": news.market_wide},
            ),
        )

    def _news_window(self) -> Table:
        news = self.settings.news

        def inputs(key: str, reader: TableReader) -> tuple[Input, ...]:
            days = window.window_days(dt.date.fromisoformat(key), news.window)
            return tuple(Input("benchmark_news", day.isoformat()) for day in days if day >= news.first_day)

        def build(key: str, reader: TableReader) -> pd.DataFrame:
            frames = [reader.read(item.table, item.partition) for item in inputs(key, reader)]
            selected = _concatenated(frames, tables.BenchmarkNews)
            return window.build_window(dt.date.fromisoformat(key), selected, news)

        return Table(
            "news_window",
            tables.NewsWindow,
            _keys(self.sessions),
            inputs,
            build,
            code_version("finevolve_pipeline.news.window", settings={"news.window": news.window.model_dump()}),
        )

    def _bars(self, name: str) -> Table:
        return Table(
            name,
            tables.Bars,
            _keys(self.settings.market.sessions),
            lambda key, _: (Input(f"{LANDING}{name}", key),),
            lambda key, reader: reader.read(f"{LANDING}{name}", key),
            code_version(),
        )

    def _bar_inputs(self, sessions: Sequence[dt.date], optional: bool) -> tuple[Input, ...]:
        return tuple(
            Input(name, session.isoformat(), optional)
            for name in ("industry_bars", "benchmark_bars")
            for session in sessions
        )

    def _matured_alpha(self) -> Table:
        horizons = self.settings.benchmark.horizons

        def inputs(key: str, _: TableReader) -> tuple[Input, ...]:
            session = dt.date.fromisoformat(key)
            return self._bar_inputs([session, *(calendar.shift(session, -h) for h in horizons)], optional=False)

        def build(key: str, reader: TableReader) -> pd.DataFrame:
            return alpha.outcomes_known_on(
                dt.date.fromisoformat(key),
                horizons,
                lambda session: reader.read("industry_bars", session.isoformat()),
                lambda session: reader.read("benchmark_bars", session.isoformat()),
            )

        return Table(
            "matured_alpha",
            tables.Outcomes,
            _keys(self.sessions),
            inputs,
            build,
            code_version("finevolve_pipeline.market.alpha", settings={"benchmark.horizons": list(horizons)}),
        )

    def _label_inputs(self) -> tuple[Input, ...]:
        """Bars from the first prediction to the end of the last label, as far as they are kept."""
        sessions = calendar.sessions_between(self.sessions[0], self.settings.market.last_session)
        return self._bar_inputs(sessions, optional=True)

    def _label_bars(self, reader: TableReader) -> tuple[pd.DataFrame, pd.DataFrame]:
        """All bars that labels rest on: of the industries, of the benchmark."""
        frames: dict[str, list[pd.DataFrame]] = {"industry_bars": [], "benchmark_bars": []}
        for item in self._label_inputs():
            if reader.digest(item.table, item.partition) is not None:
                frames[item.table].append(reader.read(item.table, item.partition))
        industry, benchmark = (_concatenated(found, tables.Bars) for found in frames.values())
        return industry, benchmark

    def _label_version(self, settings: Mapping[str, object]) -> Version:
        benchmark = {
            "benchmark.horizons": list(self.settings.benchmark.horizons),
            "benchmark.sessions": list(_keys((self.sessions[0], self.sessions[-1]))),
        }
        return code_version("finevolve_pipeline.market.alpha", settings={**benchmark, **settings})

    def _alpha(self) -> Table:
        horizons, base = self.settings.benchmark.horizons, self.settings.evaluation.label_base
        return Table(
            "alpha",
            tables.Outcomes,
            (SINGLE,),
            lambda _, __: self._label_inputs(),
            lambda _, reader: alpha.excess_returns(self.sessions, horizons, *self._label_bars(reader), base),
            self._label_version({"evaluation.label_base": base}),
        )

    def _label_bases(self) -> Table:
        horizons = self.settings.benchmark.horizons
        return Table(
            "label_bases",
            tables.LabelBases,
            (SINGLE,),
            lambda _, __: self._label_inputs(),
            lambda _, reader: alpha.label_bases(self.sessions, horizons, *self._label_bars(reader)),
            self._label_version({}),
        )

    def _evaluation_version(self, *modules: str, settings: Mapping[str, object] | None = None) -> Version:
        return code_version(
            "finevolve_pipeline.evaluation.ic",
            "finevolve_pipeline.evaluation.stages",
            "finevolve_pipeline.evaluation.comparison",
            "finevolve_pipeline.evaluation.inference",
            "finevolve_pipeline.evaluation.long_run",
            "finevolve_pipeline.evaluation.bootstrap",
            *modules,
            settings={
                "evaluation": self.settings.evaluation.model_dump(mode="json", exclude={"cases"}),
                "benchmark.industries": list(self.settings.benchmark.codes),
                **(settings or {}),
            },
        )

    def _ic_by_experiment(self) -> Table:
        def build(key: str, reader: TableReader) -> pd.DataFrame:
            return ic.information_coefficients(
                self.settings.experiment(key),
                reader.read("replay", key),
                reader.read("alpha", SINGLE),
                self.sessions,
                self.settings.evaluation,
                codes=self.settings.benchmark.codes,
            )

        return Table(
            "ic_by_experiment",
            tables.InformationCoefficients,
            tuple(experiment.key for experiment in self.settings.all_experiments),
            lambda key, _: (Input("replay", key), Input("alpha", SINGLE)),
            build,
            self._evaluation_version(),
        )

    def _evaluated(self, reader: TableReader) -> tuple[str, ...]:
        """Experiments whose tables a comparison can read."""
        keys = (experiment.key for experiment in self.settings.all_experiments)
        return tuple(key for key in keys if all(reader.digest(table, key) is not None for table in _OF_RUNS))

    def _runs(self, reader: TableReader) -> dict[Experiment, pd.DataFrame]:
        """Predictions of those experiments."""
        return {self.settings.experiment(key): reader.read("replay", key) for key in self._evaluated(reader)}

    def _inputs_of_runs(self, _: str, reader: TableReader) -> tuple[Input, ...]:
        of_runs = (Input(name, key) for key in self._evaluated(reader) for name in _OF_RUNS)
        return (*of_runs, Input("alpha", SINGLE))

    def _ic_matrix(self) -> Table:
        def build(_: str, reader: TableReader) -> pd.DataFrame:
            runs = self._runs(reader)
            both = comparison.ic_matrix(
                runs,
                reader.read("alpha", SINGLE),
                self.sessions,
                self.settings.evaluation,
                codes=self.settings.benchmark.codes,
            )
            own = [reader.read("ic_by_experiment", run.key) for run in runs]
            return _concatenated([*own, both[both["cells"] == ic.COMMON]], tables.InformationCoefficients)

        return Table(
            "ic_matrix",
            tables.InformationCoefficients,
            (SINGLE,),
            self._inputs_of_runs,
            build,
            self._evaluation_version(),
        )

    def _sensitivity(self) -> Table:
        def inputs(_: str, reader: TableReader) -> tuple[Input, ...]:
            return (*(Input("replay", key) for key in self._evaluated(reader)), Input("label_bases", SINGLE))

        def build(_: str, reader: TableReader) -> pd.DataFrame:
            return sensitivity.sensitivity(self._runs(reader), reader.read("label_bases", SINGLE), self.settings)

        declared = self.settings.knowledge_cutoffs.items()
        cutoffs = {name: {"knowledge_cutoff": day.isoformat()} for name, day in declared}
        return Table(
            "sensitivity",
            tables.Sensitivity,
            (SINGLE,),
            inputs,
            build,
            self._evaluation_version(
                "finevolve_pipeline.evaluation.sensitivity",
                "finevolve_pipeline.evaluation.significance",
                settings={"backbones": cutoffs},
            ),
        )

    def _comparison(self) -> Table:
        return Table(
            "comparison",
            tables.Comparison,
            (SINGLE,),
            lambda _, __: (Input("ic_matrix", SINGLE),),
            lambda _, reader: comparison.compare_with_pipe(reader.read("ic_matrix", SINGLE)),
            self._evaluation_version(),
        )

    def _inference(self) -> Table:
        def build(_: str, reader: TableReader) -> pd.DataFrame:
            return inference.inference(
                self._runs(reader),
                reader.read("alpha", SINGLE),
                self.sessions,
                self.settings.evaluation,
                codes=self.settings.benchmark.codes,
            )

        return Table(
            "inference",
            tables.Inference,
            (SINGLE,),
            self._inputs_of_runs,
            build,
            self._evaluation_version(),
        )
