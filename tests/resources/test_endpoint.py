"""What a model answers comes through whole, counted as its provider counts, and asked for in a form that it knows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from endpoint_world import KEY, PROMPT, SCHEMA, VARIABLE, World
from model_server import (
    InOrder,
    ModelServer,
    Question,
    Step,
    always,
    body,
    choices,
    events,
    knows_only,
    running,
    says,
    status,
)

from finevolve_pipeline.errors import BackboneError
from finevolve_pipeline.llm.requests import Reply, Usage
from finevolve_pipeline.llm.tokens import estimate_tokens
from resources import provider as provider_module
from resources.endpoint import MARGIN, Endpoint
from resources.provider import Provider

TEXT = '{"scores": {"10": 0.5}}'


@pytest.fixture
def streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv(VARIABLE, KEY)
    monkeypatch.setattr(provider_module, "FIRST_PAUSE", 0.01)
    with running(ModelServer()) as server:
        yield World(tmp_path / "providers", server)


@pytest.fixture(params=[True, False], ids=["streamed", "whole"])
def world(request: pytest.FixtureRequest, streamed: World) -> World:
    streamed.model_settings["stream"] = request.param
    return streamed


def bodies(world: World) -> list[dict[str, Any]]:
    """What the server will be asked, in order; a plan that stands already goes on."""
    seen: list[dict[str, Any]] = []
    before = world.server.plan

    def plan(question: Question) -> Step | None:
        seen.append(dict(question.body))
        return before(question) if before else None

    world.server.plan = plan
    return seen


def message(**parts: object) -> dict[str, object]:
    """A choice with such a message."""
    return {"index": 0, "message": {"role": "assistant"} | parts, "finish_reason": "stop"}


def delta(finish: str | None = None, **parts: object) -> dict[str, object]:
    """A chunk of a stream with such a delta."""
    return {"model": "m", "choices": [{"index": 0, "delta": parts, "finish_reason": finish}]}


def either(world: World, *pieces: dict[str, object]) -> Step:
    """A message in these pieces, as the world wants it; the whole one has the last of each part."""
    if world.model_settings["stream"]:
        return events(*(delta(**piece) for piece in pieces), delta("stop"))
    return choices(message(**{name: value for piece in pieces for name, value in piece.items()}))


def test_an_answer_comes_through_with_its_tokens_and_the_models_name(world: World) -> None:
    usage = {"prompt_tokens": 120, "completion_tokens": 30, "total_tokens": 150}
    world.server.plan = always(says(TEXT, usage=usage))
    assert world.complete() == Reply(TEXT, Usage(1, 120, 0, 30), "stop", {}, "m")
    assert world.meter.ends == ["settle"]
    assert world.meter.reserved[0].bound == (50, 500)
    assert world.meter.settled == Usage(1, 120, 0, 30)


def test_a_request_says_what_the_settings_say_and_nothing_else(world: World) -> None:
    asked = bodies(world)
    world.complete(
        decoding={"temperature": 0.7, "top_k": 20, "chat_template_kwargs": {"a": 1}},
        thinking="on",
        thinking_on={"chat_template_kwargs": {"enable_thinking": True}},
        max_tokens_field="max_completion_tokens",
    )
    streams = world.model_settings["stream"]
    assert asked == [
        {
            "temperature": 0.7,
            "top_k": 20,
            "chat_template_kwargs": {"a": 1, "enable_thinking": True},
            "model": "m",
            "messages": [{"role": one.role, "content": one.content} for one in PROMPT],
            "max_completion_tokens": 500,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "prediction", "schema": SCHEMA, "strict": True},
            },
            "stream": streams,
        }
        | ({"stream_options": {"include_usage": True}} if streams else {})
    ]


@pytest.mark.parametrize(("form", "sent"), [("json_object", {"type": "json_object"}), ("prompt", None)])
def test_the_form_is_demanded_as_set(world: World, form: str, sent: object) -> None:
    asked = bodies(world)
    world.complete(structured=form)
    assert [one.get("response_format") for one in asked] == [sent]


def test_text_of_any_script_survives_in_both_directions(world: World) -> None:
    text = '{"key_factor": "储能需求📈 \\u00e9 \u2028 café"}'
    world.server.plan = always(says(text, piece=1))
    asked = bodies(world)

    async def ask(endpoint: Endpoint, _: Provider) -> Reply:
        return await world.ask(endpoint, "新闻📉 \u2028 \x00 \ud800")

    assert world.run(ask).text == text
    assert asked[0]["messages"][1]["content"] == "新闻📉 \u2028 \x00 ?"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([{"type": "text", "text": '{"a":'}, {"type": "text", "text": " 1}"}], '{"a": 1}'),
        (['{"a":', " 1}"], '{"a": 1}'),
        ([{"type": "image"}, {"type": "text", "text": "x"}, 7], "x"),
    ],
)
def test_content_may_be_a_list_of_parts(world: World, content: object, text: str) -> None:
    world.server.plan = always(either(world, {"content": content}))
    assert world.complete().text == text


@pytest.mark.parametrize("content", [None, "", []])
def test_an_answer_without_content_is_empty_and_not_an_error_of_transport(world: World, content: object) -> None:
    world.server.plan = always(either(world, {"role": "assistant", "content": content}))
    reply = world.complete()
    assert (reply.text, reply.finish, reply.failures) == ("", "stop", {"empty": 1})
    assert world.meter.ends == ["settle"]


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_beside_the_content_is_dropped_and_counted(world: World, name: str) -> None:
    world.server.plan = always(either(world, {name: "想一想" * 10}, {"content": TEXT}))
    reply = world.complete()
    assert reply.text == TEXT
    if world.model_settings["stream"]:  # this server tells no usage then, so that it is estimated
        assert reply.usage.reasoning_tokens == 30
        assert reply.usage.completion_tokens == 30 + estimate_tokens(TEXT)


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (f"<think>maybe {{1}}</think>\n\n{TEXT}", TEXT),
        (f"maybe {{1}} </think> {TEXT}", TEXT),
        ("<think>never ends", ""),
        ('{"a": "</think>"}', '{"a": "</think>"}'),
    ],
)
def test_reasoning_within_the_content_is_dropped(world: World, said: str, text: str) -> None:
    world.server.plan = always(says(said, piece=3))
    assert world.complete().text == text


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        (
            {"prompt_tokens": 100, "completion_tokens": 40, "prompt_cache_hit_tokens": 64},
            Usage(1, 100, 64, 40, 0, (36 * 1 + 64 * 0.1 + 40 * 2) / 1e6),
        ),
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 40,
                "prompt_tokens_details": {"cached_tokens": 32},
                "completion_tokens_details": {"reasoning_tokens": 25},
            },
            Usage(1, 100, 32, 40, 25, (68 * 1 + 32 * 0.1 + 40 * 2) / 1e6),
        ),
        (  # reasoning beside the completion
            {
                "prompt_tokens": 100,
                "completion_tokens": 10,
                "total_tokens": 135,
                "completion_tokens_details": {"reasoning_tokens": 25},
            },
            Usage(1, 100, 0, 35, 25, (100 + 35 * 2) / 1e6),
        ),
        (
            {"prompt_tokens": 100, "completion_tokens": 40, "prompt_tokens_details": None},
            Usage(1, 100, 0, 40, 0, (100 + 40 * 2) / 1e6),
        ),
        (  # more cached than there was, as nobody should tell
            {"prompt_tokens": 100, "completion_tokens": 40, "prompt_tokens_details": {"cached_tokens": 900}},
            Usage(1, 100, 100, 40, 0, (10 + 40 * 2) / 1e6),
        ),
        (
            {"prompt_tokens": "many", "completion_tokens": -4, "total_tokens": True},
            Usage(1, 50, 0, estimate_tokens(TEXT), 0, (50 + estimate_tokens(TEXT) * 2) / 1e6),
        ),
        ("none", Usage(1, 50, 0, estimate_tokens(TEXT), 0, (50 + estimate_tokens(TEXT) * 2) / 1e6)),
    ],
    ids=["deepseek", "openai", "beside", "null", "too-many", "nonsense", "missing"],
)
def test_tokens_and_cost_are_as_the_provider_tells_else_estimated(world: World, told: Any, usage: Usage) -> None:
    world.server.plan = always(says(TEXT, usage=told))
    reply = world.complete(price={"input": 1, "cached_input": 0.1, "output": 2})
    assert reply.usage.cost == pytest.approx(usage.cost)
    assert vars(reply.usage) | {"cost": 0} == vars(usage) | {"cost": 0}
    assert world.meter.settled == reply.usage


def test_a_content_filter_is_told_as_such_and_asked_once(world: World) -> None:
    world.server.plan = always(says("I can", "content_filter"))
    reply = world.complete()
    assert (reply.text, reply.finish, reply.failures) == ("", "content_filter", {"content_filter": 1})
    assert len(world.server.log) == 1


@pytest.mark.parametrize(
    "step",
    [
        status(
            400,
            "The response was filtered due to the prompt triggering the content management policy",
            error={"code": "content_filter", "innererror": {"code": "ResponsibleAIPolicyViolation"}},
        ),
        status(400, "Content Exists Risk", error={"code": "invalid_request_error"}),
    ],
    ids=["azure", "deepseek"],
)
def test_content_that_is_refused_by_status_is_a_content_filter_too(world: World, step: Step) -> None:
    world.server.plan = always(step)
    reply = world.complete()
    assert (reply.text, reply.finish, reply.failures) == ("", "content_filter", {"content_filter": 1})
    assert reply.usage == Usage(calls=1)
    assert world.meter.ends == ["settle"]
    assert len(world.server.log) == 1


def test_a_models_own_refusal_is_a_content_filter_too(world: World) -> None:
    world.server.plan = always(either(world, {"content": None, "refusal": "I cannot"}))
    assert world.complete().finish == "content_filter"


@pytest.mark.parametrize("answered", ["m", "m-2025-08-07", "m-0728", "m@20250807", "m:latest", "listed", ""])
def test_the_model_asked_for_may_answer_under_its_names(world: World, answered: str) -> None:
    step = either(world, {"content": TEXT}) if answered == "" else says(TEXT, model=answered)
    if answered == "" and not world.model_settings["stream"]:
        step = choices(message(content=TEXT), model="")
    world.server.plan = always(step)
    assert world.complete(served_as=("listed",)).text == TEXT


@pytest.mark.parametrize("answered", ["n", "m2", "m-mini", "m-mini-2025-08-07", "prefix/m"])
def test_the_answer_of_another_model_stops_the_run(world: World, answered: str) -> None:
    world.server.plan = always(says(TEXT, model=answered))
    with pytest.raises(BackboneError) as stopped:
        world.complete(served_as=("listed",))
    line = str(stopped.value)
    assert f"asked for model 'm' and was answered by '{answered}'" in line
    assert "add it to served_as of [backbones.b]" in line
    assert len(world.server.log) == 1
    assert world.meter.ends == ["settle"]  # it was paid for


def test_an_eaten_cap_is_raised_once_and_both_answers_count(world: World) -> None:
    told = {"prompt_tokens": 100, "completion_tokens": 500, "completion_tokens_details": {"reasoning_tokens": 500}}
    world.server.plan = InOrder(says("", "length", usage=told, reasoning="hm"), says(TEXT, usage=told))
    reply = world.complete()
    assert (reply.text, reply.finish, reply.failures) == (TEXT, "stop", {"cap_raised": 1})
    assert reply.usage == Usage(2, 200, 0, 1000, 1000)
    assert [one.max_tokens for one in world.server.log] == [500, 1000]
    assert [one.bound for one in world.meter.reserved] == [(50, 500), (50, 1000)]
    assert world.meter.settled == reply.usage


def test_a_cap_is_not_raised_twice(world: World) -> None:
    world.server.plan = always(says("half an ans", "length"))
    reply = world.complete()
    assert (reply.text, reply.finish) == ("half an ans", "length")
    assert reply.failures == {"cap_raised": 1, "truncated": 1}
    assert len(world.server.log) == 2


def test_a_cap_is_raised_within_the_context_window_only(world: World) -> None:
    told = {"prompt_tokens": 300, "completion_tokens": 500}
    world.server.plan = InOrder(says("", "length", usage=told), says(TEXT, usage=told))
    assert world.complete(context_window=1000).text == TEXT
    assert [one.max_tokens for one in world.server.log] == [500, 700 - MARGIN]


def test_where_the_window_leaves_no_room_the_cap_stays(world: World) -> None:
    told = {"prompt_tokens": 600, "completion_tokens": 400}
    world.server.plan = always(says("", "length", usage=told))
    reply = world.complete(context_window=1000)
    assert reply.failures == {"empty": 1, "truncated": 1}
    assert len(world.server.log) == 1


@pytest.mark.parametrize(
    ("known", "asked"),
    [
        (("json_schema",), ["json_schema"]),
        (("json_object",), ["json_schema", "json_object"]),
        ((), ["json_schema", "json_object", "none"]),
    ],
)
@pytest.mark.parametrize("code", [400, 422])
def test_auto_weakens_the_form_as_far_as_needed_and_remembers(
    world: World, known: tuple[str, ...], asked: list[str], code: int
) -> None:
    world.server.plan = knows_only(*known, code=code)

    async def twice(endpoint: Endpoint, _: Provider) -> list[Reply]:
        return [await world.ask(endpoint, text) for text in "ab"]

    replies = world.run(twice)
    weaker = {"unstructured": 1} if len(asked) > 1 else {}
    assert [one.form for one in world.server.log] == [*asked, asked[-1]]
    assert [one.failures for one in replies] == [weaker, weaker]
    assert world.meter.ends == ["release"] * (len(asked) - 1) + ["settle"] * 2


def test_calls_that_learn_together_that_a_form_is_unknown_skip_none(world: World) -> None:
    world.server.latency = 0.05
    world.server.plan = knows_only("json_object")

    async def many(endpoint: Endpoint, _: Provider) -> list[Reply]:
        return await asyncio.gather(*(world.ask(endpoint, str(i)) for i in range(10)))

    assert all(one.text for one in world.run(many))
    assert sorted(one.form for one in world.server.log) == ["json_object"] * 10 + ["json_schema"] * 10


def test_a_fixed_form_that_is_unknown_stops_with_a_clear_line(world: World) -> None:
    world.server.plan = knows_only("json_object")
    with pytest.raises(BackboneError, match=r"response_format type 'json_schema' is unavailable now.*structured"):
        world.complete(structured="json_schema")
    assert len(world.server.log) == 1
    assert world.meter.ends == ["release"]


def test_a_server_that_does_not_know_stream_options_is_asked_without_them_from_then_on(streamed: World) -> None:
    streamed.server.latency = 0.05
    streamed.server.plan = lambda question: (
        status(400, "Unrecognized request argument: stream_options") if "stream_options" in question.body else None
    )
    asked = bodies(streamed)

    async def several(endpoint: Endpoint, _: Provider) -> list[Reply]:
        first = await asyncio.gather(*(world_ask(endpoint, i) for i in range(5)))
        return [*first, await world_ask(endpoint, 5)]

    async def world_ask(endpoint: Endpoint, i: int) -> Reply:
        return await streamed.ask(endpoint, str(i))

    replies = streamed.run(several)
    assert all(one.text and one.usage.completion_tokens > 0 for one in replies)
    assert ["stream_options" in one for one in asked] == [True] * 5 + [False] * 6
    assert sorted(streamed.meter.ends) == ["release"] * 5 + ["settle"] * 6


def test_a_whole_answer_to_a_question_for_a_stream_is_read_all_the_same(streamed: World) -> None:
    streamed.server.plan = always(choices(message(content=TEXT)))
    assert streamed.complete().text == TEXT


def test_a_stream_that_is_not_called_one_is_read_all_the_same(streamed: World) -> None:
    lines = 'data: {"model": "m", "choices": [{"delta": {"content": "{}"}, "finish_reason": "stop"}]}\n\n'
    streamed.server.plan = always(body(lines + "data: [DONE]\n\n", "text/plain"))
    assert streamed.complete().text == "{}"


@pytest.mark.parametrize(
    "given",
    [
        (": hello\n\n", "event: message\n", delta(content=TEXT), "\r\n", delta("stop")),
        ('data:{"model":"m","choices":[{"delta":{"content":', '"{}"},"finish_reason":"stop"}]}\r\n\r\n'),
        (delta(role="assistant", content=""), delta(content="{}"), {"choices": []}, delta("stop")),
    ],
    ids=["comments", "split", "usage-less"],
)
def test_events_come_in_many_ways(streamed: World, given: tuple[object, ...]) -> None:
    streamed.server.plan = always(events(*given))
    assert streamed.complete().text in (TEXT, "{}")


def test_a_finished_answer_counts_though_its_stream_ends_without_done(streamed: World) -> None:
    streamed.server.plan = always(events(delta(content=TEXT), delta("stop"), done=False))
    assert streamed.complete().text == TEXT
    assert len(streamed.server.log) == 1


def test_other_choices_than_the_first_are_left_aside(streamed: World) -> None:
    other = {"model": "m", "choices": [{"index": 1, "delta": {"content": "other"}, "finish_reason": "length"}]}
    streamed.server.plan = always(events(delta(content="{"), other, delta(content="}"), delta("stop")))
    reply = streamed.complete()
    assert (reply.text, reply.finish) == ("{}", "stop")
