"""What is missing or stale, layer by layer, and how to materialise it through Dagster.

Used by `finevolve run` and `finevolve status`. A layer is a set of assets over one range of partitions that one
Dagster run can take; layers come upstream first, and staleness is judged when a layer's turn has come, because
only then the digests of its inputs are known.
"""

from __future__ import annotations

import datetime as dt
import signal
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace

import dagster as dg

from finevolve_pipeline import calendar, errors
from finevolve_pipeline.errors import CalendarError, FinEvolveError, MissingPartitionError
from finevolve_pipeline.graph import SINGLE, Graph
from finevolve_pipeline.news.window import window_days
from finevolve_pipeline.processes import process_mark
from finevolve_pipeline.recipes import Cause, Reason, causes, reasons
from resources.table_store import TableStore

RANGE_START = "dagster/asset_partition_range_start"
RANGE_END = "dagster/asset_partition_range_end"
DATA_VERSION = "dagster/data_version"
STARTED_BY = {"finevolve/started_by": "cli"}
PROCESS_TAG = "finevolve/process"


@dataclass(frozen=True)
class Wanted:
    """The partitions of each table that a range of sessions needs, in order."""

    sessions: tuple[dt.date, ...]
    experiments: tuple[str, ...]
    partitions: Mapping[str, tuple[str, ...]]

    def without(self, experiments: Collection[str]) -> Wanted:
        """The same for all other experiments."""
        kept = tuple(key for key in self.experiments if key not in experiments)
        return replace(self, experiments=kept, partitions={**self.partitions, "ic_by_experiment": kept})


@dataclass(frozen=True)
class Freshness:
    """How a table's wanted partitions stand."""

    table: str
    wanted: int
    fresh: int
    stale: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def due(self) -> tuple[str, ...]:
        """Stale and missing partitions, in order."""
        return tuple(sorted((*self.stale, *self.missing)))

    @property
    def places(self) -> frozenset[tuple[str, str]]:
        """The same, each with the table's name."""
        return frozenset((self.table, key) for key in self.due)


def asked_sessions(graph: Graph, first: dt.date | None, last: dt.date | None) -> tuple[dt.date, ...]:
    """Sessions of the prediction window from `first` to `last` (None: its own first, last); never empty.

    Raises:
        CalendarError: none lies in that range, or a bound is beyond the calendar.
    """
    if first is not None and last is not None and first > last:
        raise CalendarError(f"sessions {first}..{last}: the first lies after the last; exchange --from and --to")
    start, end = graph.sessions[0], graph.sessions[-1]
    asked = set(calendar.sessions_between(first or start, last or end))
    sessions = tuple(session for session in graph.sessions if session in asked)
    if not sessions:
        raise CalendarError(
            f"sessions {first or start}..{last or end}: none lies in the prediction window {start}..{end}; "
            "choose other days or change [benchmark] in finevolve.toml"
        )
    return sessions


def want(
    graph: Graph,
    store: TableStore,
    first: dt.date | None = None,
    last: dt.date | None = None,
    experiments: Sequence[str] | None = None,
) -> Wanted:
    """Everything that the sessions from `first` to `last` need. Raises as `asked_sessions`."""
    sessions = asked_sessions(graph, first, last)
    news = graph.settings.news
    day_set = {d for s in sessions for d in window_days(s, news.window) if d >= news.first_day}
    days = calendar.days_between(min(day_set), max(day_set))
    read_from = days[0] - dt.timedelta(days=1)
    raw = sorted(
        f"{day}|{source}"
        for source, day in store.landing.news_partitions()
        if source in graph.sources
        and read_from.isoformat() <= day <= days[-1].isoformat()
        and day >= news.first_day.isoformat()
    )
    first_bar = calendar.shift(sessions[0], -max(graph.settings.benchmark.horizons))
    market = _keys([s for s in graph.settings.market.sessions if s >= first_bar])
    chosen = tuple(experiments or (e.key for e in graph.settings.all_experiments))
    keys = {
        "raw_news": tuple(raw),
        **{name: _keys(days) for name in ("articles", "tagged_articles", "benchmark_news")},
        "news_window": _keys(sessions),
        **{
            name: tuple(sorted(set(market) & set(store.landing.bars_sessions(name))))
            for name in ("industry_bars", "benchmark_bars")
        },
        "matured_alpha": _keys(sessions),
        "alpha": (SINGLE,),
        "label_bases": (SINGLE,),
        "ic_by_experiment": chosen,
        "ic_matrix": (SINGLE,),
        "comparison": (SINGLE,),
        "inference": (SINGLE,),
        "sensitivity": (SINGLE,),
    }
    return Wanted(sessions, chosen, keys)


def _keys(days: Sequence[dt.date]) -> tuple[str, ...]:
    return tuple(day.isoformat() for day in days)


def freshness(
    graph: Graph, store: TableStore, wanted: Wanted, name: str, due: Set[tuple[str, str]] = frozenset()
) -> Freshness:
    """Which wanted partitions of a table are fresh, stale or missing.

    Stale is a partition whose recipe changed, or that rests on one of the (table, partition) in `due`: whether
    that changes its recipe is known when they are made.
    """
    table = graph.tables[name]
    stale: list[str] = []
    missing: list[str] = []
    for key in wanted.partitions[name]:
        stored = store.stored(name, key)
        if stored is None:
            missing.append(key)
        elif stored.recipe != table.recipe(key, store).digest or (
            due and any((item.table, item.partition) in due for item in table.inputs(key, store))
        ):
            stale.append(key)
    keys = wanted.partitions[name]
    return Freshness(name, len(keys), len(keys) - len(stale) - len(missing), tuple(stale), tuple(missing))


def standing(
    graph: Graph, store: TableStore, wanted: Wanted, layers: Sequence[Layer], above: Set[tuple[str, str]] = frozenset()
) -> list[Freshness]:
    """How the tables of some layers stand, upstream first, each seeing what is due above it.

    `above`: (table, partition) that are due before these layers.
    """
    due = set(above)
    found: list[Freshness] = []
    for layer in layers:
        for name in layer.tables:
            found.append(freshness(graph, store, wanted, name, due))
            due |= found[-1].places
    return found


def why(graph: Graph, store: TableStore, found: Freshness, due: Set[tuple[str, str]]) -> tuple[Reason, ...]:
    """Why partitions of a table are stale, those with the same cause together; `due` as `freshness` had it."""
    table = graph.tables[found.table]
    told: dict[str, tuple[Cause, ...]] = {}
    for key in found.stale:
        stored, recipe = store.stored(table.name, key), table.recipe(key, store)
        differs = stored is None or stored.recipe != recipe.digest
        told[key] = (
            *(causes(store.parts(table.name, key), recipe.parts) if differs else ()),
            *awaited(due & {(item.table, item.partition) for item in table.inputs(key, store)}),
        )
    return reasons(told)


def awaited(due: Collection[tuple[str, str]]) -> tuple[Cause, ...]:
    """The causes of resting on (table, partition) that are due."""
    by_table: dict[str, list[str]] = {}
    for name, key in sorted(due):
        by_table.setdefault(name, []).append(key)
    return tuple(Cause("upstream", name, "is due before it", tuple(keys)) for name, keys in by_table.items())


def recorded(instance: dg.DagsterInstance, asset: str) -> dict[str, str]:
    """The data version Dagster knows of each materialised partition; `all` for an asset without partitions."""
    key = dg.AssetKey(asset)
    event = instance.get_latest_materialization_event(key)
    if event is None or event.asset_materialization is None:
        return {}
    if event.asset_materialization.partition is None:
        return {SINGLE: (event.asset_materialization.tags or {}).get(DATA_VERSION, "")}
    tags = instance.event_log_storage.get_latest_tags_by_partition(
        key, dg.DagsterEventType.ASSET_MATERIALIZATION, [DATA_VERSION]
    )
    return {partition: found.get(DATA_VERSION, "") for partition, found in tags.items()}


@dataclass(frozen=True)
class Layer:
    """Assets that one Dagster run takes together. `split` cuts due partitions into the runs they need."""

    tables: tuple[str, ...]
    split: Callable[[Sequence[str]], Iterator[tuple[str, str]]]


def _one_range(keys: Sequence[str]) -> Iterator[tuple[str, str]]:
    yield keys[0], keys[-1]


def _one_range_a_source(keys: Sequence[str]) -> Iterator[tuple[str, str]]:
    """A multi-partition range is the product of its two dimensions, so each source has a run of its own."""
    for source in sorted({key.split("|", 1)[1] for key in keys}):
        own = [key for key in keys if key.split("|", 1)[1] == source]
        yield own[0], own[-1]


def _each(keys: Sequence[str]) -> Iterator[tuple[str, str]]:
    for key in keys:
        yield key, key


INPUT_LAYERS = (
    Layer(("raw_news",), _one_range_a_source),
    Layer(("articles", "tagged_articles", "benchmark_news"), _one_range),
    Layer(("industry_bars", "benchmark_bars"), _one_range),
    Layer(("news_window", "matured_alpha"), _one_range),
    Layer(("alpha", "label_bases"), _each),
)
"""Everything up to the replay."""

EVALUATION_LAYERS = (
    Layer(("ic_by_experiment",), _each),
    Layer(("ic_matrix", "comparison", "inference", "sensitivity"), _each),
)
"""Tables after the replay."""

EVALUATION = ("ic_matrix", "comparison", "inference", "sensitivity", "report", "benchmark_release")
"""What is made once from all experiments' coefficients."""

STAGES = ("inputs", "replay", "evaluation")
"""The graph in three parts, upstream first."""


@dataclass(frozen=True)
class PlannedRun:
    """One Dagster run: assets, and the ends of its range of partitions (None: they have none)."""

    assets: tuple[str, ...]
    first: str | None = None
    last: str | None = None


def planned_runs(graph: Graph, stage: str, wanted: Wanted) -> list[PlannedRun]:
    """The runs that materialise all that is wanted of one of `STAGES`, in order; the replay has one an experiment."""
    if stage == "replay":
        first, last = wanted.sessions[0], wanted.sessions[-1]
        return [PlannedRun(("replay",), f"{first}|{key}", f"{last}|{key}") for key in wanted.experiments]
    if stage == "evaluation":
        return [
            PlannedRun(("ic_by_experiment",), wanted.experiments[0], wanted.experiments[-1]),
            PlannedRun(EVALUATION),
        ]
    return [PlannedRun(layer.tables, *_ends(graph, wanted.partitions[layer.tables[0]])) for layer in INPUT_LAYERS]


def _ends(graph: Graph, keys: Sequence[str]) -> tuple[str, str] | tuple[None, None]:
    """The smallest range with all of these partitions; of days by source, that is all days of all their sources."""
    if keys[0] == SINGLE:
        return None, None
    if "|" not in keys[0]:
        return keys[0], keys[-1]
    days, named = zip(*(key.split("|", 1) for key in keys), strict=True)
    sources = [source for source in graph.sources if source in named]
    return f"{min(days)}|{sources[0]}", f"{max(days)}|{sources[-1]}"


def require_landed(graph: Graph, store: TableStore, wanted: Wanted) -> None:
    """Raises `MissingPartitionError` if there is nothing to start from: no news or no closes."""
    if not wanted.partitions["raw_news"]:
        raise MissingPartitionError(
            f"news {wanted.sessions[0]}..{wanted.sessions[-1]}: nothing has been imported for these days; "
            "`finevolve import news FILE` or `finevolve synth` brings some"
        )
    for name, option in (("industry_bars", "--industries"), ("benchmark_bars", "--benchmark")):
        have = set(wanted.partitions[name])
        first = calendar.shift(wanted.sessions[0], -max(graph.settings.benchmark.horizons))
        needed = _keys(calendar.sessions_between(first, wanted.sessions[-1]))
        absent = [key for key in needed if key not in have]
        if absent:
            raise MissingPartitionError(
                f"{name} {absent[0]}: no bar has been imported for this session ({len(absent)} of {len(needed)} are "
                f"missing); `finevolve import market {option} FILE` brings them"
            )


TRACEBACK = "Traceback (most recent call last):"
"""The line below which a log tells where the error of a run came from."""


class RunFailed(FinEvolveError):
    """A Dagster run that ended in failure, by no error of ours; the message is the first failed step's.

    `traceback`: where that came from, empty if it is not known.
    """

    exit_code = 1

    def __init__(self, message: str, traceback: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback


@contextmanager
def interrupts_heard() -> Iterator[None]:
    """Raise `KeyboardInterrupt` on leaving if SIGINT or SIGTERM came inside.

    Dagster turns an interrupt into an ordinary failure, and forgets one that comes between two of its steps.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard, told = socket.socketpair()
    heard.setblocking(False)
    told.setblocking(False)
    before = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        told.close()
        with heard:
            signals = heard.recv(4096)
    if {signal.SIGINT, signal.SIGTERM} & set(signals):
        raise KeyboardInterrupt


@dataclass(frozen=True)
class Materialiser:
    """Materialises assets of the given definitions in this process, as ordinary Dagster runs of the instance."""

    definitions: dg.Definitions
    instance: dg.DagsterInstance
    log_level: str = "CRITICAL"

    def materialise(self, tables: Sequence[str], first: str | None = None, last: str | None = None) -> None:
        """One run over `first`..`last` (None: unpartitioned), asset checks included.

        Raises:
            FinEvolveError: what a step raised, or `RunFailed` for anything else, a blocking check included.
            KeyboardInterrupt: it was interrupted; what is stored stays.
        """
        tags = {}
        if first is not None and last is not None:
            tags = {RANGE_START: first, RANGE_END: last}
        with interrupts_heard():
            result = dg.materialize(
                [*(self.definitions.assets or ()), *(self.definitions.asset_checks or ())],  # type: ignore[list-item]
                selection=dg.AssetSelection.assets(*tables),
                instance=self.instance,
                resources=dict(self.definitions.resources or {}),
                tags={**tags, **STARTED_BY, PROCESS_TAG: process_mark()},
                run_config={"loggers": {"console": {"config": {"log_level": self.log_level}}}},
                raise_on_error=False,
            )
        if not result.success:
            raise _failure(result)


def _failure(result: dg.ExecuteInProcessResult) -> FinEvolveError:
    """What went wrong first, as the error that it was where it is one of ours."""
    # A blocking check also fails a step, whose error does not say what the check has found.
    for evaluation in result.get_asset_check_evaluations():
        if not evaluation.passed and evaluation.blocking:
            asset = evaluation.asset_key.to_user_string()
            return RunFailed(f"check {evaluation.check_name} of {asset}: {evaluation.description}")
    for event in result.all_events:
        error = event.step_failure_data.error if event.is_step_failure else None
        defect = None
        while error is not None:
            # Ours say file and remedy; what a library said below them is only their cause.
            kind, message = getattr(errors, error.cls_name or "", None), error.message.strip()
            if isinstance(kind, type) and issubclass(kind, FinEvolveError):
                return kind(message.split(": ", 1)[-1])
            if defect is None and not (error.cls_name or "").startswith("Dagster"):
                defect = error
            if error.cause is None:
                defect = defect or error
                # The notes of an error stand in its last lines: where it was met, say.
                lines = defect.message.strip().splitlines()
                return RunFailed("; ".join(line.strip() for line in lines if line.strip()), defect.to_string())
            error = error.cause
    return RunFailed(f"run {result.run_id} failed; its log is in the Dagster UI")
