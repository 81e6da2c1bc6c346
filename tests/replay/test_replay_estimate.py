"""An estimate before a run counts what the run then asks, and writes nothing."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from replay_world import contents

from assets.planning import INPUT_LAYERS, want
from finevolve_pipeline.calendar import sessions_between
from finevolve_pipeline.embedding import HashingEmbedder
from finevolve_pipeline.errors import MissingPartitionError
from finevolve_pipeline.graph import Graph
from finevolve_pipeline.llm.ledger import Measured
from finevolve_pipeline.llm.requests import Backbone, Call, Reply, TagBatchRequest, TagRequest, Usage
from finevolve_pipeline.llm.rules.backbone import RulesBackbone
from finevolve_pipeline.llm.tokens import TokenCount, estimate_tokens, token_counter
from finevolve_pipeline.replay.estimate import Estimate, Line, TablesToBe, ToDo, estimate
from finevolve_pipeline.replay.runner import Parts, run
from finevolve_pipeline.settings import Settings, load_settings
from finevolve_pipeline.synth.world import SynthSettings, generate
from resources.table_store import TableStore

FIRST, LAST = dt.date(2025, 1, 2), dt.date(2025, 1, 9)
SESSIONS = sessions_between(FIRST, LAST)
CODES = ["801080", "801170", "801780"]
PRICE = {"input": 2.0, "cached_input": 0.5, "output": 8.0}
MODEL = {"kind": "openai", "provider": "local", "model": "m", "context_window": 40000, "max_tokens": 1000}
MECHANISMS = ["pipe", "mem0", "memrl"]


def settings_of(backbones: dict[str, dict[str, object]], tagger: str = "rules", **sections: object) -> Settings:
    return load_settings(
        overrides={
            "benchmark": {"first_session": FIRST, "last_session": LAST, "horizons": [1, 2, 4], "industries": CODES},
            "news": {"first_day": dt.date(2024, 12, 24), "last_day": dt.date(2025, 1, 31), "sources": ["cls", "sina"]},
            "market": {"first_session": dt.date(2024, 12, 20), "last_session": dt.date(2025, 1, 31)},
            "tagging": {"backbone": tagger, "batch": 1},
            "backbones": {name: {**MODEL, **changes} for name, changes in backbones.items()},
            "experiments": {"mechanisms": MECHANISMS, "backbones": list(backbones) or ["rules"]},
            **sections,
        }
    )


class Asked:
    """Answers by rules, and writes down what it was asked."""

    def __init__(self, name: str, count: TokenCount = estimate_tokens, known: Sequence[str] = ()) -> None:
        self.name = name
        self.calls: Counter[tuple[str, str]] = Counter()
        self.tokens: Counter[tuple[str, str]] = Counter()
        self.count_tokens = count
        self._known = known

    @property
    def identity(self) -> dict[str, object]:
        return {"kind": "asked", "name": self.name}

    async def answer(self, call: Call) -> Reply:
        key = call.request.phase, call.request.day
        self.calls[key] += 1
        self.tokens[key] += sum(self.count_tokens(message.content) + 8 for message in call.prompt.messages)
        return Reply(RulesBackbone().answer_now(call.request), Usage(calls=1))

    def recall(self, call: Call) -> Reply | None:
        if isinstance(call.request, TagRequest) and call.request.article_id in self._known:
            return Reply(RulesBackbone().answer_now(call.request), Usage(calls=1))
        return None

    def remember(self, call: Call, reply: Reply) -> None:
        """It forgets."""

    async def close(self) -> None:
        """There is no connection."""


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with news and closes, and nothing made of them."""
    home = tmp_path_factory.mktemp("imported")
    world = generate(
        SynthSettings(seed=3, first_session=FIRST, last_session=LAST, articles_per_day=30, sources=("cls", "sina"))
    )
    landing = TableStore(home).landing
    landing.merge_news(world.news)
    landing.merge_bars("industry_bars", world.industry_bars)
    landing.merge_bars("benchmark_bars", world.benchmark_bars)
    return home


@pytest.fixture
def store(imported: Path, tmp_path: Path) -> TableStore:
    """The same in a home of this test's own."""
    for name, data in contents(imported).items():
        (tmp_path / "home" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "home" / name).write_bytes(data)
    return TableStore(tmp_path / "home")


def graph_of(settings: Settings, tagger: Backbone) -> Graph:
    return Graph(settings, settings.news.sources, tagger)


def days_of(graph: Graph, store: TableStore) -> tuple[str, ...]:
    return want(graph, store).partitions["tagged_articles"]


def make_inputs(graph: Graph, store: TableStore) -> None:
    """What a run makes before the replay."""
    wanted = want(graph, store)
    for layer in INPUT_LAYERS:
        for name in layer.tables:
            table = graph.tables[name]
            for key in wanted.partitions[name]:
                store.write(table, key, table.build(key, store), table.recipe(key, store).digest)


def replay(settings: Settings, store: TableStore, key: str, backbone: Backbone, sessions: Sequence[dt.date]) -> None:
    """What a run does then."""
    parts = Parts(settings, store, backbone, HashingEmbedder(settings.embedder.dimensions, (2, 3)))
    run(settings.experiment(key), sessions, parts, store.replays, lambda day: None)


def estimated(
    graph: Graph,
    store: TableStore,
    experiments: Sequence[str] | None = None,
    measured: Callable[[str, str], Measured] = lambda backbone, phase: Measured(0, 0.0),
    heard: list[tuple[str, int, int]] | None = None,
) -> Estimate:
    settings = graph.settings
    keys = experiments or [experiment.key for experiment in settings.all_experiments]
    todo = ToDo.of(settings, keys, store.replays.sessions, LAST, days_of(graph, store))
    told = [] if heard is None else heard
    return estimate(todo, graph, store, measured, lambda *step: told.append(step))


def line_of(found: Estimate, experiment: str, phase: str) -> Line:
    (line,) = [one for one in found.lines if (one.experiment, one.phase) == (experiment, phase)]
    return line


# -- what is to be done


def test_the_full_window_takes_9269_predictions_an_experiment() -> None:
    settings = load_settings()
    todo = ToDo.of(settings, ["pipe-rules"], lambda key: (), settings.benchmark.last_session, ())
    assert len(todo.experiments["pipe-rules"]) * len(settings.benchmark.codes) == 9269


def test_stored_sessions_are_done_and_later_ones_not_asked_for() -> None:
    settings = load_settings()
    window = settings.benchmark.sessions
    stored = {"pipe-rules": window[:100], "mem0-rules": ()}
    todo = ToDo.of(settings, list(stored), lambda key: stored[key], window[149], ())
    assert todo.experiments == {"pipe-rules": window[100:150], "mem0-rules": window[:150]}


# -- the counts


def test_an_estimate_counts_what_the_run_then_asks_and_writes_nothing(store: TableStore) -> None:
    settings = settings_of({"near": {}}, tagger="near")
    tagger = Asked("near")
    before = contents(store.home)
    found = estimated(graph_of(settings, tagger), store)
    assert contents(store.home) == before
    assert not tagger.calls

    make_inputs(graph_of(settings, tagger), store)
    tags = line_of(found, "", "tag")
    assert tags.calls == tagger.calls.total() > 100
    assert tags.prompt_tokens == tagger.tokens.total()
    for experiment in settings.all_experiments:
        backbone = Asked("near")
        replay(settings, store, experiment.key, backbone, SESSIONS)
        line = line_of(found, experiment.key, "predict")
        assert line.calls == backbone.calls.total() == len(SESSIONS) * len(CODES)
        assert line.prompt_tokens == backbone.tokens.total()
    assert line_of(found, "memrl-near", "predict").prompt_tokens > line_of(found, "pipe-near", "predict").prompt_tokens


def test_every_seed_is_asked_and_paid_for_as_often_as_one(store: TableStore) -> None:
    once = {"mechanisms": ["pipe", "memrl"], "backbones": ["near"], "seeds": [0]}
    heard: list[tuple[str, int, int]] = []
    one = estimated(graph_of(settings_of({"near": {"price": PRICE}}, experiments=once), RulesBackbone()), store)
    settings = settings_of({"near": {"price": PRICE}}, experiments={**once, "seeds": [0, 1, 2]})
    three = estimated(graph_of(settings, RulesBackbone()), store, heard=heard)
    for key in ("pipe-near", "pipe-near@1", "memrl-near@2"):
        assert line_of(three, key, "predict").calls == len(SESSIONS) * len(CODES)
    plain = [line_of(one, f"{mechanism}-near", "predict") for mechanism in ("pipe", "memrl")]
    assert three.total.calls == 3 * sum(line.calls for line in plain)
    assert three.total.cost == pytest.approx(3 * sum(line.cost for line in plain))
    # Prompts have the same length for every seed, so a mechanism is gone through once.
    assert len({step for step, *_ in heard if step != "tags"}) == 2
    assert any("differ in their seed alone" in note for note in three.notes)
    assert not any("seed" in note for note in one.notes)


def test_the_seeds_of_rules_are_told_to_be_alike(store: TableStore) -> None:
    settings = settings_of({}, experiments={"mechanisms": ["pipe"], "backbones": ["rules"], "seeds": [0, 1]})
    found = estimated(graph_of(settings, RulesBackbone()), store)
    assert any(note.startswith("Backbone rules answers alike for every seed") for note in found.notes)


def test_stored_tables_give_the_same_and_are_not_tagged_again(store: TableStore) -> None:
    settings = settings_of({"near": {}}, tagger="near")
    graph = graph_of(settings, Asked("near"))
    before = estimated(graph, store)
    make_inputs(graph, store)
    after = estimated(graph, store)
    assert line_of(after, "", "tag").calls == 0
    assert after.lines[1:] == before.lines[1:]


def test_a_changed_day_is_tagged_again_and_no_other(store: TableStore, imported: Path) -> None:
    settings = settings_of({"near": {}}, tagger="near")
    graph = graph_of(settings, Asked("near"))
    make_inputs(graph, store)
    news = store.landing.read_news("cls", "2025-01-06").head(1)
    store.landing.merge_news(news.assign(source_id="another", title="半导体设备订单大增", content="出口管制解除"))
    tables = TablesToBe(graph, store)
    stale = [day for day in days_of(graph, store) if not tables.is_fresh("tagged_articles", day)]
    # Copies are looked for across midnight, so that the day after is made again too.
    assert stale == ["2025-01-06", "2025-01-07"]
    expected = sum(len(tables.read("articles", day)) for day in stale)
    assert line_of(estimated(graph, store), "", "tag").calls == expected


def test_tags_that_the_model_has_given_before_are_not_counted(store: TableStore) -> None:
    settings = settings_of({"near": {}}, tagger="near")
    graph = graph_of(settings, Asked("near"))
    every = line_of(estimated(graph, store), "", "tag").calls
    articles = TablesToBe(graph, store).read("articles", "2025-01-06")["article_id"].to_list()
    again = estimated(graph_of(settings, Asked("near", known=articles)), store)
    assert line_of(again, "", "tag").calls == every - len(articles)


def test_several_articles_a_request_are_fewer_requests_and_shorter_prompts(store: TableStore) -> None:
    wide = {"near": {"context_window": 100_000}}
    alone, together = (
        graph_of(settings_of(wide, "near", tagging={"backbone": "near", "batch": batch}), Asked("near"))
        for batch in (1, 10)
    )
    one, ten = (line_of(estimated(graph, store, ["pipe-near"]), "", "tag") for graph in (alone, together))
    tables = TablesToBe(alone, store)
    articles = [len(tables.read("articles", day)) for day in days_of(alone, store)]
    assert (one.calls, ten.calls) == (sum(articles), sum(-(-count // 10) for count in articles))
    assert ten.prompt_tokens < one.prompt_tokens
    assert ten.completion_tokens > ten.calls * 400  # longer than the answer about one article


def test_a_chain_that_goes_on_needs_the_rest_only(store: TableStore) -> None:
    settings = settings_of({"near": {}})
    graph = graph_of(settings, RulesBackbone())
    make_inputs(graph, store)
    replay(settings, store, "memrl-near", Asked("near"), SESSIONS[:3])
    found = estimated(graph, store)
    rest = Asked("near")
    replay(settings, store, "memrl-near", rest, SESSIONS)
    line = line_of(found, "memrl-near", "predict")
    assert (line.calls, line.prompt_tokens) == (rest.calls.total(), rest.tokens.total())
    assert line.calls == (len(SESSIONS) - 3) * len(CODES)
    assert line_of(found, "mem0-near", "predict").calls == len(SESSIONS) * len(CODES)
    assert line_of(estimated(graph, store, ["memrl-near"]), "memrl-near", "predict").calls == 0


def test_a_mechanism_is_gone_through_once_for_each_way_of_counting(store: TableStore, tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    file = tmp_path / "words" / "tokenizer.json"
    file.parent.mkdir()
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0}, unk_token="?"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.save(str(file))
    settings = settings_of({"near": {}, "far": {}, "own": {"tokenizer": str(file)}})
    heard: list[tuple[str, int, int]] = []
    found = estimated(graph_of(settings, RulesBackbone()), store, heard=heard)
    steps = Counter(step for step, _, _ in heard if step != "tags")
    assert steps == {f"{mechanism}{own}": len(SESSIONS) for mechanism in MECHANISMS for own in ("", " words")}
    near, far, own = (line_of(found, f"mem0-{name}", "predict") for name in ("near", "far", "own"))
    assert near.prompt_tokens == far.prompt_tokens > own.prompt_tokens
    make_inputs(graph_of(settings, RulesBackbone()), store)
    asked = Asked("own", token_counter(str(file))[0])
    replay(settings, store, "mem0-own", asked, SESSIONS)
    assert own.prompt_tokens == asked.tokens.total()


def test_rules_cost_nothing_and_nothing_is_gone_through(store: TableStore) -> None:
    heard: list[tuple[str, int, int]] = []
    found = estimated(graph_of(settings_of({}), RulesBackbone()), store, heard=heard)
    assert found.lines == (
        Line("", "rules", "tag"),
        *(Line(f"{mechanism}-rules", "rules", "predict") for mechanism in MECHANISMS),
    )
    assert found.total == Line("", "", "")
    assert heard == []


def test_texts_to_embed_are_counted_once_over_all_experiments(store: TableStore) -> None:
    endpoint = {"kind": "openai", "provider": "local", "model": "e", "dimensions": 64, "batch": 2, "price": 0.5}
    settings = settings_of(
        {"near": {}}, embedders={"far": {**endpoint, "max_tokens": 300}}, embedding={"embedder": "far"}
    )
    graph = graph_of(settings, RulesBackbone())
    found = estimated(graph, store)
    make_inputs(graph, store)
    shown: dict[str, str] = {}

    class Texts(Asked):
        async def answer(self, call: Call) -> Reply:
            assert not isinstance(call.request, TagRequest | TagBatchRequest)
            if call.request.news.text:
                shown.setdefault(call.request.news.text, call.request.session.isoformat())
            return await super().answer(call)

    parts = Parts(settings, store, Texts("near"), HashingEmbedder(64, (2, 3)))
    run(settings.experiment("mem0-near"), SESSIONS, parts, store.replays, lambda day: None)
    line = line_of(found, "", "embed")
    assert line.prompt_tokens == sum(min(300, estimate_tokens(text)) for text in shown)
    assert line.calls == sum(-(-count // 2) for count in Counter(shown.values()).values())
    assert line.cost == pytest.approx(line.prompt_tokens * 0.5e-6)
    assert "hashing" in " ".join(found.notes)
    # A mechanism that compares no news embeds nothing.
    assert line_of(estimated(graph, store, ["pipe-near"]), "", "embed").calls == 0


def test_news_that_was_never_imported_is_named(tmp_path: Path) -> None:
    settings = settings_of({"near": {}})
    graph = graph_of(settings, RulesBackbone())
    todo = ToDo.of(settings, ["pipe-near"], lambda key: (), LAST, ())
    with pytest.raises(MissingPartitionError, match="matured_alpha"):
        estimate(todo, graph, TableStore(tmp_path), lambda *_: Measured(0, 0.0), lambda *_: None)


# -- lengths and money


def test_measured_lengths_count_once_there_are_enough(store: TableStore) -> None:
    settings = settings_of({"near": {"expected_tokens": 700, "price": PRICE}})
    graph = graph_of(settings, RulesBackbone())

    def few(backbone: str, phase: str) -> Measured:
        return Measured(29, 1000.0)

    def enough(backbone: str, phase: str) -> Measured:
        return Measured(30, 1000.5) if (backbone, phase) == ("near", "predict") else Measured(0, 0.0)

    calls = len(SESSIONS) * len(CODES)
    assumed = line_of(estimated(graph, store, ["pipe-near"], few), "pipe-near", "predict")
    measured = line_of(estimated(graph, store, ["pipe-near"], enough), "pipe-near", "predict")
    assert (assumed.completion_tokens, assumed.measured_over) == (700 * calls, 0)
    assert (measured.completion_tokens, measured.measured_over) == (round(1000.5 * calls), 30)
    assert assumed.prompt_tokens == measured.prompt_tokens


def test_costs_follow_the_price_list(store: TableStore) -> None:
    settings = settings_of({"near": {"price": PRICE}, "own": {"price": dict.fromkeys(PRICE, 0.0)}})
    graph = graph_of(settings, RulesBackbone())
    found = estimated(graph, store)
    line = line_of(found, "mem0-near", "predict")
    full = line.prompt_tokens * 2e-6 + line.completion_tokens * 8e-6
    assert line.cost == pytest.approx(full)
    make_inputs(graph, store)
    asked: list[Call] = []

    class Calls(Asked):
        async def answer(self, call: Call) -> Reply:
            asked.append(call)
            return await super().answer(call)

    replay(settings, store, "mem0-near", Calls("near"), SESSIONS)
    (system,) = {call.prompt.messages[0].content for call in asked}
    again = (len(asked) - 1) * (estimate_tokens(system) + 8)
    assert line.cost_if_cached == pytest.approx(full - again * (2.0 - 0.5) * 1e-6)
    assert line_of(found, "mem0-own", "predict").cost == 0.0
    assert found.total.cost == pytest.approx(sum(one.cost or 0.0 for one in found.lines))


def test_an_unknown_price_makes_the_total_unknown_and_is_said(store: TableStore) -> None:
    settings = settings_of({"near": {"price": PRICE}, "dark": {}})
    found = estimated(graph_of(settings, RulesBackbone()), store)
    assert line_of(found, "pipe-dark", "predict").cost is None
    assert line_of(found, "pipe-near", "predict").cost is not None
    assert (found.total.cost, found.total.cost_if_cached) == (None, None)
    assert found.total.calls == 2 * len(MECHANISMS) * len(SESSIONS) * len(CODES)
    assert "No price is set for dark" in " ".join(found.notes)


def test_an_estimate_is_plain_data(store: TableStore) -> None:
    found = estimated(graph_of(settings_of({"near": {"price": PRICE}}), RulesBackbone()), store, ["pipe-near"])
    assert json.loads(json.dumps([vars(line) for line in found.lines]))[1]["experiment"] == "pipe-near"
