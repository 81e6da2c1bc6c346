"""What a run would ask and cost: the real chain on the real tables, with a counter in the model's place.

The counter answers by `rules` and counts the tokens of each prompt, so that retrieval and experience sections fill as
they would. Nothing is asked over a network and nothing is stored: tables that a run would have to make first are made
in memory, days of the replay go to a temporary folder. A mechanism's prompts depend on its backbone only by how tokens
are counted, so it is replayed once for each way of counting.
"""

from __future__ import annotations

import datetime as dt
import math
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Protocol

import pandas as pd

from finevolve_pipeline.contracts import table_of
from finevolve_pipeline.digests import digest_text
from finevolve_pipeline.embedding import Embedder, HashingEmbedder, Vectors
from finevolve_pipeline.graph import Graph, Input, TableReader
from finevolve_pipeline.llm.ledger import Measured
from finevolve_pipeline.llm.requests import Backbone, Call, Reply, Usage
from finevolve_pipeline.llm.rules.backbone import RulesBackbone
from finevolve_pipeline.llm.stand_in import StandIn
from finevolve_pipeline.llm.tokens import MESSAGE_TOKENS, TokenCount, estimate_tokens, token_counter
from finevolve_pipeline.mechanisms.registry import mechanism_class
from finevolve_pipeline.replay.journal import ReplayStore
from finevolve_pipeline.replay.runner import DayDone, Parts, run
from finevolve_pipeline.settings import (
    EndpointEmbedderSettings,
    Experiment,
    HashingSettings,
    ModelSettings,
    PriceSettings,
    Settings,
)

ENOUGH_MEASURED = 30
"""From so many answers on their mean length counts instead of the assumed one."""

EMBED, TAG = "embed", "tag"

_STAND_IN = HashingSettings(kind="hashing", dimensions=1024, ngrams=(2, 3))
_SMALL = frozenset({"benchmark_news", "industry_bars", "benchmark_bars"})
"""Tables that are read over and over and small enough to be kept."""

Progress = Callable[[str, int, int], None]
"""Hears the step, how much of it is done, and how much there is."""


@dataclass
class Tally:
    """Calls of a phase on a day, and their tokens.

    Attributes:
        calls: requests.
        prompt_tokens: of their prompts.
        prefix_tokens: of these, tokens of the system message, which is the same in every call of a phase.
        answer_tokens: of answers as `rules` writes them, without any reasoning.
    """

    calls: int = 0
    prompt_tokens: int = 0
    prefix_tokens: int = 0
    answer_tokens: int = 0

    def add(self, other: Tally) -> None:
        """Add another tally's numbers to this one's."""
        self.calls += other.calls
        self.prompt_tokens += other.prompt_tokens
        self.prefix_tokens += other.prefix_tokens
        self.answer_tokens += other.answer_tokens


@dataclass
class Tallies:
    """Tallies by phase and simulated day."""

    found: dict[tuple[str, str], Tally] = field(default_factory=dict)

    def at(self, phase: str, day: str) -> Tally:
        """The tally of a phase on a day."""
        return self.found.setdefault((phase, day), Tally())

    @property
    def phases(self) -> tuple[str, ...]:
        """Phases with a call, in the order of their first one."""
        return tuple(dict.fromkeys(phase for phase, _ in self.found))

    def total(self, phase: str, days: Iterable[str]) -> Tally:
        """The sum of a phase over the given days."""
        total = Tally()
        for day in days:
            total.add(self.found.get((phase, day), Tally()))
        return total


class CountingBackbone(StandIn):
    """Counts what a backbone would be asked, and answers by `rules`.

    Args:
        like: the backbone in whose name it stands; what it recalls is answered so, and not counted.
        count: how that backbone counts tokens.
    """

    def __init__(self, like: Backbone, count: TokenCount) -> None:
        super().__init__(like)
        self.tallies = Tallies()
        self._count = count
        self._rules = RulesBackbone()
        self._prefix = lru_cache(maxsize=64)(count)

    def count_tokens(self, text: str) -> int:
        """As it was told."""
        return self._count(text)

    async def answer(self, call: Call) -> Reply:
        """What is known, else what `rules` says, counted."""
        known = self.recall(call)
        if known is not None:
            return known
        text = self._rules.answer_now(call.told, call.prompt.language)
        first, *others = call.prompt.messages
        prefix = self._prefix(first.content) + MESSAGE_TOKENS
        prompt = prefix + sum(self._count(message.content) + MESSAGE_TOKENS for message in others)
        tally = self.tallies.at(call.request.phase, call.request.day)
        tally.add(Tally(1, prompt, prefix, self._count(text)))
        return Reply(text, Usage(calls=1, prompt_tokens=prompt))


class CountingEmbedder:
    """Counts what an endpoint would be asked to embed, each text once; vectors come from a stand-in."""

    def __init__(self, endpoint: EndpointEmbedderSettings, stand_in: Embedder) -> None:
        self.tallies = Tallies()
        self.day = ""
        """The session whose texts are asked for, to be set by whoever replays."""
        self._endpoint = endpoint
        self._stand_in = stand_in
        self._seen: set[str] = set()

    @property
    def dimensions(self) -> int:
        """Of the stand-in."""
        return self._stand_in.dimensions

    @property
    def identity(self) -> dict[str, object]:
        """Of the stand-in."""
        return self._stand_in.identity

    def cut(self, texts: Sequence[str]) -> int:
        """None: nothing is embedded in earnest."""
        return 0

    def embed(self, texts: Sequence[str]) -> Vectors:
        """The stand-in's vectors."""
        fresh = {digest_text(text): text for text in texts if text}
        fresh = {digest: text for digest, text in fresh.items() if digest not in self._seen}
        self._seen.update(fresh)
        longest = self._endpoint.max_tokens
        counts = (estimate_tokens(text) for text in fresh.values())
        tokens = sum(min(count, longest) if longest else count for count in counts)
        self.tallies.at(EMBED, self.day).add(Tally(-(-len(fresh) // self._endpoint.batch), tokens))
        return self._stand_in.embed(texts)


class HasRecipe(Protocol):
    """What is known of a stored partition."""

    @property
    def recipe(self) -> str:
        """Digest of what it was made of."""


class StoredTables(TableReader, Protocol):
    """Stored tables that tell what they were made of."""

    def stored(self, table: str, partition: str) -> HasRecipe | None:
        """Facts about a stored partition, None if there is none."""


class TablesToBe:
    """The tables as a run would have them: stored ones that are fresh, all others made in memory when they are read.

    Args:
        graph: how they are made.
        store: what is there; only read.
    """

    def __init__(self, graph: Graph, store: StoredTables) -> None:
        self._graph = graph
        self._store = store
        self._fresh: dict[tuple[str, str], bool] = {}
        self._made: dict[tuple[str, str], bool] = {}
        self._kept: dict[tuple[str, str], pd.DataFrame] = {}

    def read(self, table: str, partition: str) -> pd.DataFrame:
        """The rows of a partition. Raises `MissingPartitionError` if it cannot be made from what was imported."""
        kept = self._kept.get((table, partition))
        if kept is not None:
            return kept
        frame = self._store.read(table, partition) if self._is_there(table, partition) else self._make(table, partition)
        if table in _SMALL:
            self._kept[table, partition] = frame
        return frame

    def digest(self, table: str, partition: str) -> str | None:
        """Something that stands for the digest of a partition; None if it cannot be made."""
        if self._is_there(table, partition):
            return self._store.digest(table, partition)
        return "made in memory" if self._can_be_made(table, partition) else None

    def is_fresh(self, table: str, partition: str) -> bool:
        """Whether a partition is stored as a run would make it now, and all it rests on too."""
        key = table, partition
        if key not in self._fresh:
            self._fresh[key] = self._found_fresh(table, partition)
        return self._fresh[key]

    def _is_there(self, table: str, partition: str) -> bool:
        return table not in self._graph.tables or self.is_fresh(table, partition)

    def _found_fresh(self, table: str, partition: str) -> bool:
        stored = self._store.stored(table, partition)
        if stored is None or stored.recipe != self._graph.tables[table].recipe(partition, self._store).digest:
            return False
        return all(self._is_settled(item) for item in self._inputs(table, partition))

    def _is_settled(self, item: Input) -> bool:
        return self._is_there(item.table, item.partition) or self.digest(item.table, item.partition) is None

    def _can_be_made(self, table: str, partition: str) -> bool:
        key = table, partition
        if key not in self._made:
            self._made[key] = all(
                item.optional or self.digest(item.table, item.partition) is not None
                for item in self._inputs(table, partition)
            )
        return self._made[key]

    def _inputs(self, table: str, partition: str) -> tuple[Input, ...]:
        return self._graph.tables[table].inputs(partition, self)

    def _make(self, name: str, partition: str) -> pd.DataFrame:
        table = self._graph.tables[name]
        table.require_inputs(partition, table.recipe(partition, self))
        made = table.build(partition, self)
        # Through Arrow and back, as through a file: lists become arrays, numbers get their width.
        columns = {str(column): made[column] for column in made.columns}
        frame: pd.DataFrame = table_of(columns, table.contract, f"{name} {partition}").to_pandas()
        return frame


@dataclass(frozen=True)
class ToDo:
    """What a run still has to do.

    Attributes:
        experiments: sessions to be replayed, by experiment key.
        days: calendar days whose articles are to be tagged, or have been.
    """

    experiments: Mapping[str, tuple[dt.date, ...]]
    days: tuple[str, ...]

    @classmethod
    def of(
        cls,
        settings: Settings,
        experiments: Sequence[str],
        stored: Callable[[str], Iterable[dt.date]],
        last: dt.date,
        days: Sequence[str],
    ) -> ToDo:
        """What is missing up to a session: a chain is replayed from the first session on that is not stored."""
        window = [session for session in settings.benchmark.sessions if session <= last]
        done = {key: frozenset(stored(key)) for key in experiments}
        return cls({key: tuple(s for s in window if s not in done[key]) for key in experiments}, tuple(days))


@dataclass(frozen=True)
class Line:
    """What one experiment still needs in one phase.

    Attributes:
        experiment: its key; empty for what all experiments share.
        backbone: name of the backbone, or of the embedder.
        phase: tag, predict, embed, or what a mechanism calls its own.
        calls: requests over the network; none for `rules`.
        prompt_tokens: of all of them.
        completion_tokens: likewise, expected.
        measured_over: answers whose mean length is expected; 0: the length is assumed.
        cost: USD, all prompt tokens at full price; None: the price is not known.
        cost_if_cached: USD if the provider bills the system message as cached from the second call on.
    """

    experiment: str
    backbone: str
    phase: str
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    measured_over: int = 0
    cost: float | None = 0.0
    cost_if_cached: float | None = 0.0


@dataclass(frozen=True)
class Estimate:
    """All lines, and what to know about them, a sentence each."""

    lines: tuple[Line, ...]
    notes: tuple[str, ...]

    @property
    def total(self) -> Line:
        """Their sum, with no name; its cost is None if one of theirs is."""
        return Line(
            experiment="",
            backbone="",
            phase="",
            calls=sum(line.calls for line in self.lines),
            prompt_tokens=sum(line.prompt_tokens for line in self.lines),
            completion_tokens=sum(line.completion_tokens for line in self.lines),
            cost=_known_sum(line.cost for line in self.lines),
            cost_if_cached=_known_sum(line.cost_if_cached for line in self.lines),
        )


def estimate(
    todo: ToDo,
    graph: Graph,
    store: StoredTables,
    measured: Callable[[str, str], Measured],
    progress: Progress,
) -> Estimate:
    """What the calls of a run would take.

    Args:
        todo: what is to be done.
        graph: the dataset; its tagger is asked only what it recalls.
        store: tables that are there.
        measured: lengths of answers so far by backbone (or embedder) and phase.
        progress: hears of every day.

    Raises:
        MissingPartitionError: news or closes that a session needs have not been imported.
        SettingsError: a tokenizer cannot be loaded.
    """
    return _Estimator(todo, graph, store, measured, progress).estimate()


class _Estimator:
    def __init__(
        self,
        todo: ToDo,
        graph: Graph,
        store: StoredTables,
        measured: Callable[[str, str], Measured],
        progress: Progress,
    ) -> None:
        settings = graph.settings
        self._todo = todo
        self._settings = settings
        self._measured = measured
        self._progress = progress
        self._tagger = CountingBackbone(graph.tagger, graph.tagger.count_tokens)
        self._tables = TablesToBe(replace(graph, tagger=self._tagger), store)
        section = settings.embedder
        hashing = section if isinstance(section, HashingSettings) else _STAND_IN
        stand_in = HashingEmbedder(hashing.dimensions, hashing.ngrams)
        self._endpoint = section if isinstance(section, EndpointEmbedderSettings) else None
        self._embedder = CountingEmbedder(self._endpoint, stand_in) if self._endpoint else stand_in
        self._replayed: dict[tuple[str, str], Tallies] = {}

    def estimate(self) -> Estimate:
        needed = self._needed()
        if needed or isinstance(self._settings.backbones[self._tagger.name], ModelSettings):
            self._tag()
        for way, sessions in needed.items():
            self._replayed[way] = self._replay(*way, sessions)
        lines = (*self._shared(), *chain.from_iterable(map(self._of_experiment, self._todo.experiments)))
        return Estimate(lines, tuple(self._notes(lines)))

    def _tag(self) -> None:
        """Make the days that are not tagged yet."""
        due = [day for day in self._todo.days if not self._tables.is_fresh("tagged_articles", day)]
        for done, day in enumerate(due, 1):
            self._tables.read("benchmark_news", day)
            self._progress("tags", done, len(due))

    def _needed(self) -> dict[tuple[str, str], tuple[dt.date, ...]]:
        """The chains to be replayed, by mechanism and tokenizer: from the window's start to the last session needed."""
        last: dict[tuple[str, str], dt.date] = {}
        for key, missing in self._todo.experiments.items():
            experiment = self._settings.experiment(key)
            way = self._way_of(experiment)
            if missing and way is not None:
                last[way] = max(missing[-1], last.get(way, missing[-1]))
        window = self._settings.benchmark.sessions
        return {way: window[: window.index(end) + 1] for way, end in last.items()}

    def _way_of(self, experiment: Experiment) -> tuple[str, str] | None:
        """Mechanism and tokenizer of an experiment; None if it asks nothing over a network."""
        section = self._settings.backbones[experiment.backbone]
        if isinstance(section, ModelSettings):
            return experiment.mechanism, section.tokenizer
        return (experiment.mechanism, "") if self._embeds(experiment) else None

    @property
    def _has_several_seeds(self) -> bool:
        """Whether any two experiments that are still to be run differ in their seed alone."""
        due = [self._settings.experiment(key) for key, missing in self._todo.experiments.items() if missing]
        return len({(one.mechanism, one.backbone) for one in due}) < len(due)

    def _embeds(self, experiment: Experiment) -> bool:
        section = self._settings.mechanisms[experiment.mechanism]
        return self._endpoint is not None and mechanism_class(experiment.mechanism, section).compares_news

    def _replay(self, mechanism: str, tokenizer: str, sessions: tuple[dt.date, ...]) -> Tallies:
        backbone = CountingBackbone(RulesBackbone(), token_counter(tokenizer)[0])
        days = [session.isoformat() for session in sessions]
        done = 0

        def begin() -> None:
            if isinstance(self._embedder, CountingEmbedder) and done < len(days):
                self._embedder.day = days[done]

        def on_day(_: DayDone) -> None:
            nonlocal done
            done += 1
            self._progress(f"{mechanism} {Path(tokenizer).parent.name if tokenizer else ''}".strip(), done, len(days))
            begin()

        begin()
        parts = Parts(self._settings, self._tables, backbone, self._embedder)
        with tempfile.TemporaryDirectory(prefix="finevolve-estimate-") as folder:
            run(Experiment(mechanism=mechanism, backbone="rules"), sessions, parts, ReplayStore(Path(folder)), on_day)
        return backbone.tallies

    def _shared(self) -> list[Line]:
        """Lines of what all experiments share."""
        name = self._tagger.name
        lines = [self._line("", name, TAG, self._tagger.tallies.total(TAG, self._todo.days))]
        if isinstance(self._embedder, CountingEmbedder) and self._endpoint is not None:
            days = {
                session.isoformat()
                for key, missing in self._todo.experiments.items()
                if self._embeds(self._settings.experiment(key))
                for session in missing
            }
            price = self._endpoint.price
            tally = self._embedder.tallies.total(EMBED, days)
            cost = (
                None
                if price is None
                else PriceSettings(input=price, cached_input=price, output=0).cost(tally.prompt_tokens, 0, 0)
            )
            embedder = self._settings.embedding.embedder
            lines.append(Line("", embedder, EMBED, tally.calls, tally.prompt_tokens, cost=cost, cost_if_cached=cost))
        return lines

    def _of_experiment(self, key: str) -> list[Line]:
        experiment = self._settings.experiment(key)
        way = self._way_of(experiment)
        days = [session.isoformat() for session in self._todo.experiments[key]]
        tallies = self._replayed.get(way, Tallies()) if way else Tallies()
        phases = tallies.phases or ("predict",)
        return [self._line(key, experiment.backbone, phase, tallies.total(phase, days)) for phase in phases]

    def _line(self, experiment: str, backbone: str, phase: str, tally: Tally) -> Line:
        section = self._settings.backbones[backbone]
        if not isinstance(section, ModelSettings):
            return Line(experiment, backbone, phase)
        measured = self._measured(backbone, phase)
        if measured.calls >= ENOUGH_MEASURED:
            over, completion = measured.calls, round(measured.completion_tokens * tally.calls)
        else:
            over, completion = 0, max(section.expected_tokens * tally.calls, tally.answer_tokens)
        again = tally.prefix_tokens - tally.prefix_tokens // max(1, tally.calls)
        price = section.price
        return Line(
            experiment,
            backbone,
            phase,
            tally.calls,
            tally.prompt_tokens,
            completion,
            over,
            None if price is None else price.cost(tally.prompt_tokens, 0, completion),
            None if price is None else price.cost(tally.prompt_tokens, again, completion),
        )

    def _notes(self, lines: Sequence[Line]) -> list[str]:
        notes = [
            "Second questions after a bad answer and attempts that are repeated are not counted. Of answers in the "
            "cache only tags are looked up."
        ]
        if any(line.phase == TAG and line.calls for line in lines):
            notes.append("News blocks are those of tags by `rules` where the tagger has not answered yet.")
        if not isinstance(self._settings.embedder, HashingSettings) and self._replayed:
            notes.append("Memories are recalled by `hashing` vectors here, in the embedder's place.")
        if self._has_several_seeds:
            notes.append(
                "Runs that differ in their seed alone are counted once each, with the prompts of seed 0: their own are "
                "as many, and about as long."
            )
        notes += [f"{doubt[0].upper()}{doubt[1:]}." for doubt in self._settings.seed_doubts]
        unpriced = dict.fromkeys(line.backbone for line in lines if line.cost is None)
        if unpriced:
            notes.append(f"No price is set for {', '.join(unpriced)}: costs are not known, and no budget can be kept.")
        return notes


def _known_sum(costs: Iterable[float | None]) -> float | None:
    """The exact sum; None if one of them is not known."""
    listed = list(costs)
    known = [cost for cost in listed if cost is not None]
    return math.fsum(known) if len(known) == len(listed) else None
