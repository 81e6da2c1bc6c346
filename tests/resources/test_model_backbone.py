"""A question is asked once, whoever has it; answers are found again; nothing else of the settings counts."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import json
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from endpoint_world import KEY, VARIABLE
from model_server import InOrder, ModelServer, always, hangs, running, says, status

from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.errors import BackboneError, BudgetError, CacheMissError, SettingsError
from finevolve_pipeline.llm.requests import Call, Message, PredictRequest, Prompt, Reply, TagRequest, Usage
from finevolve_pipeline.market.context import MarketContext
from finevolve_pipeline.news.block import NewsBlock
from finevolve_pipeline.settings import Settings, load_settings
from finevolve_pipeline.universe import industry
from resources import provider as provider_module
from resources.backbones import build_backbone
from resources.model_backbone import ModelBackbone
from resources.outside import Outside

T = TypeVar("T")
CHILD = Path(__file__).parent / "backbone_child.py"
REQUEST = PredictRequest(
    dt.date(2025, 5, 30), industry("801080"), (10, 20, 40), NewsBlock((), 0), MarketContext(4321.5, ())
)
ARTICLE = TagRequest("cls-1", "cls", "标题", "正文", dt.datetime(2025, 1, 2, 9, tzinfo=SHANGHAI))


@pytest.fixture
def server(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """A model server; `home` is fresh."""
    monkeypatch.setenv(VARIABLE, KEY)
    monkeypatch.setattr(provider_module, "FIRST_PAUSE", 0.01)
    with running(ModelServer()) as one:
        yield one


def settings_for(base_url: str, mode: str = "use", usd: float | None = None, **changes: dict[str, Any]) -> Settings:
    """Settings with a backbone `b` at a provider `p`; `changes`: of their sections `model` and `provider`."""
    provider = {"base_url": base_url, "key_variable": VARIABLE} | changes.get("provider", {})
    model = {"kind": "openai", "provider": "p", "model": "m", "context_window": 32768, "max_tokens": 500}
    price = {"input": 1.0, "cached_input": 1.0, "output": 1.0}
    return load_settings(
        overrides={
            "providers": {"p": provider},
            "backbones": {"b": model | {"price": price} | changes.get("model", {})},
            "cache": {"mode": mode},
            "budget": {"usd": usd} if usd is not None else {},
        }
    )


def call(text: str = "新闻：需求回暖", request: PredictRequest | TagRequest = REQUEST, variant: str = "") -> Call:
    """A question."""
    return Call(request, Prompt((Message("system", '{"scores": {}}'), Message("user", text))), variant)


def process(settings: Settings, home: Path) -> Callable[[str], ModelBackbone]:
    """What a fresh process would build: backbones by experiment, on one outside world."""
    outside = Outside(settings, home)
    section = settings.backbones["b"]
    assert section.kind == "openai"
    return lambda experiment: ModelBackbone("b", section, outside, experiment)


def ask(settings: Settings, home: Path, *calls: Call) -> list[Reply]:
    """Answers of a fresh process, one after the other."""
    backbone = process(settings, home)("e")

    async def all_of_them() -> list[Reply]:
        try:
            return [await backbone.answer(one) for one in calls]
        finally:
            await backbone.close()

    return asyncio.run(all_of_them())


async def closing(backbone: ModelBackbone, work: Coroutine[Any, Any, T]) -> T:
    try:
        return await asyncio.wait_for(work, 20)
    finally:
        await backbone.close()


def test_a_question_is_asked_once_and_then_remembered_over_processes(server: ModelServer, home: Path) -> None:
    settings = settings_for(server.base_url)
    first, again = ask(settings, home, call(), call())
    (later,) = ask(settings, home, call())
    assert first == again == later
    assert first.usage.cost > 0
    assert len(server.log) == 1
    assert Outside(settings, home).ledger.spent() == pytest.approx(first.usage.cost, abs=1e-9)


@pytest.mark.parametrize(
    "other",
    [
        call("新闻：需求回暖。"),
        call(variant="batch of 8"),
        call(request=dataclasses.replace(REQUEST, horizons=(10, 20))),
    ],
    ids=["text", "variant", "schema"],
)
def test_another_question_is_asked(server: ModelServer, home: Path, other: Call) -> None:
    ask(settings_for(server.base_url), home, call(), other)
    assert len(server.log) == 2


def test_another_seed_is_another_sample_that_is_asked_for_by_it_and_kept_by_itself(
    server: ModelServer, home: Path
) -> None:
    sent: list[object] = []
    server.plan = lambda question: sent.append(question.body.get("seed"))
    settings = settings_for(server.base_url)
    for _ in range(2):
        ask(settings, home, call(), dataclasses.replace(call(), seed=1), dataclasses.replace(call(), seed=2))
    assert sent == [None, 1, 2]


def test_two_experiments_with_the_same_question_at_once_ask_it_once(server: ModelServer, home: Path) -> None:
    settings = settings_for(server.base_url)
    server.latency = 0.1
    build = process(settings, home)
    one, other = build("one"), build("other")

    async def both() -> list[Reply]:
        return await asyncio.gather(*(backbone.answer(call()) for backbone in (one, other, one)))

    replies = asyncio.run(closing(one, both()))
    assert replies[0] == replies[1] == replies[2]
    assert len(server.log) == 1
    totals = Outside(settings, home).ledger.totals(["experiment", "phase", "day"])
    assert [(total.group, total.calls) for total in totals] == [
        ({"experiment": "one", "phase": "predict", "day": "2025-05-30"}, 1)
    ]


def test_one_that_leaves_does_not_end_the_call_for_the_other(server: ModelServer, home: Path) -> None:
    server.latency = 0.2
    build = process(settings_for(server.base_url), home)
    backbone = build("e")

    async def first_leaves() -> Reply:
        first, second = (asyncio.create_task(build(name).answer(call())) for name in "ab")
        while not server.log:
            await asyncio.sleep(0.01)
        first.cancel()
        reply = await second
        assert first.cancelled()
        return reply

    assert asyncio.run(closing(backbone, first_leaves())).text
    assert len(server.log) == 1


def test_the_last_to_leave_ends_the_call_and_the_next_asks_anew(server: ModelServer, home: Path) -> None:
    settings = settings_for(server.base_url)
    server.plan = InOrder(hangs())
    outside = Outside(settings, home)
    section: Any = settings.backbones["b"]
    backbone = ModelBackbone("b", section, outside, "e")

    async def all_leave() -> Reply:
        tasks = [asyncio.create_task(backbone.answer(call())) for _ in range(2)]
        while not server.log:
            await asyncio.sleep(0.01)
        (under_way,) = outside.under_way.values()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert outside.under_way == {}
        reply = await backbone.answer(call())
        assert under_way.task.cancelled()
        assert outside.provider("p").limits.held == 0
        return reply

    reply = asyncio.run(closing(backbone, all_leave()))
    assert len(server.log) == 2
    (total,) = outside.ledger.totals(["experiment"])
    assert (total.calls, total.failed) == (1, 1)
    assert total.in_doubt > 0
    assert total.cost == pytest.approx(reply.usage.cost + total.in_doubt)


def test_a_failure_meets_all_that_wait_and_is_not_remembered(server: ModelServer, home: Path) -> None:
    server.latency = 0.05
    server.plan = InOrder(status(413, "too large"))
    backbone = process(settings_for(server.base_url), home)("e")

    async def both_then_one() -> Reply:
        ended = await asyncio.gather(*(backbone.answer(call()) for _ in range(2)), return_exceptions=True)
        assert [type(one) for one in ended] == [BackboneError, BackboneError]
        return await backbone.answer(call())

    assert asyncio.run(closing(backbone, both_then_one())).text
    assert len(server.log) == 2


def test_one_backbone_serves_several_loops_one_after_the_other(server: ModelServer, home: Path) -> None:
    backbone = process(settings_for(server.base_url), home)("e")
    for text in "abc":
        assert asyncio.run(closing(backbone, backbone.answer(call(text)))).text
    assert len(server.log) == 3


def test_refresh_asks_once_anew_and_replaces_what_was_known(server: ModelServer, home: Path) -> None:
    server.plan = InOrder(says('{"old": 1}'), says('{"new": 1}'))
    ask(settings_for(server.base_url), home, call())
    fresh, again = ask(settings_for(server.base_url, "refresh"), home, call(), call())
    (later,) = ask(settings_for(server.base_url), home, call())
    assert fresh.text == '{"new": 1}'
    assert fresh == again == later
    assert len(server.log) == 2


def test_replay_only_needs_no_key_and_opens_no_connection(
    server: ModelServer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = ask(settings_for(server.base_url), home, call())
    monkeypatch.delenv(VARIABLE)
    replay = settings_for(server.base_url, "replay-only")
    build = process(replay, home)
    assert asyncio.run(build("e").answer(call())) == known[0]
    with pytest.raises(CacheMissError):
        asyncio.run(build("e").answer(call("not known")))
    assert len(server.log) == 1
    assert sorted(path.name for path in (home / "providers").iterdir()) == ["p.limits", "p.slots"]  # of the first run
    other = home.parent / "other"
    with pytest.raises(CacheMissError):
        asyncio.run(process(replay, other)("e").answer(call()))
    assert not (other / "providers").exists()


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        (call("x"), "no answer of b to predict 801080 of 2025-05-30"),
        (call("x", ARTICLE), "no answer of b to tag cls-1 of 2025-01-02"),
    ],
)
def test_a_miss_names_the_request_and_what_helps(server: ModelServer, home: Path, asked: Call, named: str) -> None:
    with pytest.raises(CacheMissError) as missed:
        ask(settings_for(server.base_url, "replay-only"), home, asked)
    line = str(missed.value)
    assert named in line
    assert "finevolve cache import" in line
    assert "\n" not in line
    assert server.log == []


def test_the_budget_stops_before_a_call_and_what_is_cached_stays_free(server: ModelServer, home: Path) -> None:
    (first,) = ask(settings_for(server.base_url), home, call())
    tight = settings_for(server.base_url, usd=first.usage.cost * 1.01)
    assert ask(tight, home, call()) == [first]
    with pytest.raises(BudgetError):
        ask(tight, home, call(), call("another"))
    assert len(server.log) == 1


def test_what_is_remembered_is_recalled_and_the_first_stays(server: ModelServer, home: Path) -> None:
    backbone = process(settings_for(server.base_url), home)("e")
    reply, other = (Reply(text, Usage(calls=1)) for text in ("{}", "[]"))
    assert backbone.recall(call()) is None
    backbone.remember(call(), reply)
    backbone.remember(call(), other)
    assert backbone.recall(call()) == reply
    assert asyncio.run(backbone.answer(call())) == reply
    assert server.log == []


def identity(**changes: dict[str, Any]) -> dict[str, object]:
    return process(settings_for("http://127.0.0.1:1/v1", **changes), Path("unused"))("e").identity


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"model": "n"}},
        {"model": {"decoding": {"temperature": 0.1}}},
        {"model": {"thinking": "on"}},
        {"model": {"thinking": "on", "thinking_on": {"a": 1}}},
        {"model": {"structured": "prompt"}},
        {"model": {"max_tokens": 600}},
        {"model": {"context_window": 65536}},
        {"provider": {"deployment": "vllm at home"}},
        {"provider": {"base_url": "http://127.0.0.1:2/v1"}},
    ],
    ids=json.dumps,
)
def test_the_identity_changes_with_what_can_change_an_answer(changes: dict[str, dict[str, Any]]) -> None:
    assert identity(**changes) != identity()


def test_the_identity_changes_with_the_tokenizers_content(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    paths = [tmp_path / name for name in ("one.json", "same.json", "other.json")]
    for path, word in zip(paths, ("a", "a", "b"), strict=True):
        model = tokenizers.models.WordLevel({word: 0, "?": 1}, unk_token="?")
        tokenizers.Tokenizer(model).save(str(path))
    one, same, other = (identity(model={"tokenizer": str(path)}) for path in paths)
    assert one == same
    assert one != other
    assert one != identity()


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"price": {"input": 9.0, "cached_input": 9.0, "output": 9.0}}},
        {"model": {"served_as": ["n"]}},
        {"model": {"expected_tokens": 9}},
        {"model": {"stream": False}},
        {"model": {"knowledge_cutoff": "2025-05-31"}},
        {"provider": {"key_variable": "ANOTHER"}},
        {"provider": {"concurrency": 2, "requests_per_minute": 3, "tokens_per_minute": 4, "attempts": 5}},
        {"provider": {"idle_seconds": 1.0, "deadline_seconds": 2.0, "longest_wait_seconds": 3.0}},
    ],
    ids=json.dumps,
)
def test_the_identity_holds_no_price_and_no_politeness(changes: dict[str, dict[str, Any]]) -> None:
    assert identity(**changes) == identity()


def test_a_named_deployment_may_move_to_another_address(server: ModelServer, home: Path) -> None:
    named = {"deployment": "vllm 0.12"}
    known = ask(settings_for(server.base_url, provider=named), home, call())
    assert ask(settings_for("http://127.0.0.1:9/v1", provider=named), home, call()) == known
    assert len(server.log) == 1


def test_no_key_in_the_identity_or_in_any_file_of_the_home(server: ModelServer, home: Path) -> None:
    settings = settings_for(server.base_url)
    backbone = process(settings, home)("e")
    asyncio.run(closing(backbone, backbone.answer(call())))
    assert KEY not in json.dumps(backbone.identity) + repr(backbone)
    files = [path for path in home.rglob("*") if path.is_file()]
    assert {"answers.sqlite", "p.limits"} <= {path.name for path in files}
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []


def test_two_processes_that_ask_at_once_end_with_the_same_answer(server: ModelServer, home: Path) -> None:
    server.latency = 0.3
    told = iter(range(1000))
    server.answer = lambda question: json.dumps({"answer": next(told)})
    arguments = [sys.executable, str(CHILD), server.base_url, str(home)]
    root = CHILD.parents[2]
    children = [
        subprocess.Popen(arguments, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, cwd=root) for _ in "ab"
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        one, other = (child.communicate(timeout=30)[0] for child in children)
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert one == other
    assert '"answer"' in one
    assert len(server.log) == 2  # both asked
    assert Outside(settings_for(server.base_url), home).answers.count() == 1


def test_backbones_are_built_by_name(server: ModelServer, home: Path) -> None:
    settings = settings_for(server.base_url)
    assert build_backbone("b", settings, home).name == "b"
    assert build_backbone("rules", settings, home).name == "rules"
    assert not (home / "cache").exists()
    with pytest.raises(SettingsError, match=r"add a \[backbones.nobody\] section"):
        build_backbone("nobody", settings, home)


def test_experiments_of_one_process_share_their_outside(server: ModelServer, home: Path) -> None:
    settings = settings_for(server.base_url)
    server.plan = always(says("{}"))
    server.latency = 0.1
    one, other = (build_backbone("b", settings, home, name) for name in "ab")

    async def both() -> list[Reply]:
        return await asyncio.gather(one.answer(call()), other.answer(call()))

    assert isinstance(one, ModelBackbone)
    asyncio.run(closing(one, both()))
    assert len(server.log) == 1
