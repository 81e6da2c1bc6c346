"""Whatever a server does, a call ends with an answer or with one clear line; money is closed once; the key stays."""

from __future__ import annotations

import asyncio
import datetime as dt
import email.utils
import json
import logging
import math
import time
import traceback
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from endpoint_world import KEY, VARIABLE, World
from model_server import (
    Exchange,
    InOrder,
    ModelServer,
    Step,
    always,
    body,
    choices,
    drops,
    echoes_authorization,
    events,
    hangs,
    html,
    running,
    says,
    slow,
    status,
)

from finevolve_pipeline.errors import BackboneError
from finevolve_pipeline.llm.answers import PredictionAnswer, parse_prediction, prediction_flaws
from finevolve_pipeline.llm.asking import Asked, Model
from finevolve_pipeline.llm.requests import Call, PredictRequest, Reply
from finevolve_pipeline.llm.schemas import schema_of
from finevolve_pipeline.llm.tokens import estimate_tokens
from finevolve_pipeline.market.context import MarketContext
from finevolve_pipeline.news.block import NewsBlock
from finevolve_pipeline.settings import load_settings
from finevolve_pipeline.universe import industry
from resources import provider as provider_module
from resources.endpoint import Endpoint
from resources.provider import Provider

TEXT = '{"scores": {"10": 0.5}}'
HORIZONS = (10, 20, 40)
IDLE = 0.3


@pytest.fixture
def streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv(VARIABLE, KEY)
    monkeypatch.setattr(provider_module, "FIRST_PAUSE", 0.01)
    with running(ModelServer()) as server:
        yield World(tmp_path / "providers", server, provider_settings={"idle_seconds": IDLE})


@pytest.fixture(params=[True, False], ids=["streamed", "whole"])
def world(request: pytest.FixtureRequest, streamed: World) -> World:
    streamed.model_settings["stream"] = request.param
    return streamed


def tomorrow(seconds: float) -> dict[str, str]:
    """Headers of a server whose clock is a day ahead, and which wants to be left alone for so long."""
    now = time.time() + 86_400
    return {
        "date": email.utils.formatdate(now, usegmt=True),
        "retry-after": email.utils.formatdate(now + seconds, usegmt=True),
    }


async def half_an_error(exchange: Exchange) -> None:
    """An error whose body never comes."""
    exchange.writer.write(b"HTTP/1.1 500 Bad\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{")
    await exchange.writer.drain()
    await asyncio.sleep(5)


async def half_a_body(exchange: Exchange) -> None:
    """A connection that breaks within a body of known length."""
    exchange.writer.write(b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"choices')
    await exchange.writer.drain()
    await asyncio.sleep(0.01)
    exchange.drop()


async def no_http(exchange: Exchange) -> None:
    """Another protocol."""
    exchange.writer.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
    await exchange.writer.drain()
    exchange.drop()


async def bad_gzip(exchange: Exchange) -> None:
    """A body that is not encoded as it says."""
    exchange.send(200, b"not gzip", headers={"content-encoding": "gzip"})


PIECE = {"model": "m", "choices": [{"index": 0, "delta": {"content": "{"}}]}

TROUBLES: dict[str, tuple[Step, str, str]] = {
    "429": (status(429, "slow down"), "rate_limited", "release"),
    "429 seconds": (status(429, "x", headers={"retry-after": "0.05"}), "rate_limited", "release"),
    "429 milliseconds": (status(429, "x", headers={"retry-after-ms": "50"}), "rate_limited", "release"),
    "500": (status(500), "server_error", "release"),
    "502": (status(502), "server_error", "doubt"),
    "503": (status(503, headers={"retry-after": "0.05"}), "server_error", "release"),
    "502 page": (html(502), "server_error", "doubt"),
    "hang": (hangs(), "timeout", "doubt"),
    "error that hangs": (half_an_error, "timeout", "doubt"),
    "drop": (drops(), "connection", "doubt"),
    "broken body": (half_a_body, "dropped", "doubt"),
    "no http": (no_http, "connection", "doubt"),
    "bad gzip": (bad_gzip, "dropped", "doubt"),
    "page": (html(), "malformed", "doubt"),
    "truncated json": (body('{"choices": [{"message": {"cont'), "malformed", "doubt"),
    "nothing": (body(""), "malformed", "doubt"),
    "array": (body("[1, 2]"), "malformed", "doubt"),
    "deep": (body("[" * 100_000), "malformed", "doubt"),
    "null": (body("null"), "malformed", "doubt"),
    "no choices": (choices(), "malformed", "doubt"),
    "choices null": (body('{"model": "m", "choices": null}'), "malformed", "doubt"),
    "choices of rubbish": (body('{"model": "m", "choices": [null, 3, "x", {"message": 4}]}'), "malformed", "doubt"),
    "error in 200": (body('{"error": {"message": "overloaded", "code": 529}}'), "server_error", "doubt"),
    "429 in 200": (body('{"error": {"message": "slow", "code": 429}}'), "rate_limited", "doubt"),
    "error of a choice": (body('{"choices": [{"error": {"message": "out of memory"}}]}'), "server_error", "doubt"),
    "resources": (
        choices({"message": {"content": "{"}, "finish_reason": "insufficient_system_resource"}),
        "server_error",
        "doubt",
    ),
}
STREAM_TROUBLES: dict[str, tuple[Step, str, str]] = {
    "hang midway": (hangs(after=2), "timeout", "doubt"),
    "drop midway": (drops(after=2), "dropped", "doubt"),
    "end midway": (drops(after=2, cleanly=True), "dropped", "doubt"),
    "half an event": (events(PIECE, 'data: {"choices": [{"del', done=False), "dropped", "doubt"),
    "broken event": (events(PIECE, 'data: {"choices": [{"del\n\n'), "malformed", "doubt"),
    "error event": (events(PIECE, {"error": {"message": "engine died"}}), "server_error", "doubt"),
    "error text": (events({"error": "engine died"}), "server_error", "doubt"),
    "no events": (events(), "malformed", "doubt"),
    "no events, no end": (events(done=False), "dropped", "doubt"),
    "no choices": (events({"model": "m", "choices": []}), "malformed", "doubt"),
}


def recovers(world: World, step: Step, failure: str, end: str) -> None:
    world.server.plan = InOrder(step)
    reply = world.complete()
    assert reply.failures == {failure: 1}
    assert json.loads(reply.text)["scores"]
    assert reply.usage.calls == 1
    assert world.meter.ends == [end, "settle"]
    assert len(world.server.log) == 2


def gives_up(world: World, step: Step, end: str) -> str:
    world.server.plan = always(step)
    world.provider_settings["attempts"] = 2
    with pytest.raises(BackboneError) as stopped:
        world.complete()
    line = str(stopped.value)
    assert line.startswith("provider p: a request failed 2 times, at last: ")
    assert line.endswith("nothing is lost: run the same command again")
    assert len(line) < 400
    assert line.isprintable()
    assert world.meter.ends == [end, end]
    return line


@pytest.mark.parametrize("name", TROUBLES)
def test_trouble_is_got_over_once_and_ends_in_one_line_if_it_lasts(world: World, name: str) -> None:
    step, failure, end = TROUBLES[name]
    recovers(world, step, failure, end)
    world.meter.reserved.clear()
    world.server.log.clear()
    gives_up(world, step, end)


@pytest.mark.parametrize("name", STREAM_TROUBLES)
def test_trouble_of_streams_is_got_over_once_and_ends_in_one_line_if_it_lasts(streamed: World, name: str) -> None:
    step, failure, end = STREAM_TROUBLES[name]
    recovers(streamed, step, failure, end)
    streamed.meter.reserved.clear()
    streamed.server.log.clear()
    gives_up(streamed, step, end)


def test_a_date_to_come_again_is_waited_for(world: World) -> None:
    began = time.monotonic()
    recovers(world, status(429, headers=tomorrow(1)), "rate_limited", "release")
    assert 1 <= time.monotonic() - began < 3


def test_lines_tell_what_happened(world: World) -> None:
    world.provider_settings["attempts"] = 2
    assert "at last: an HTML page Gateway & friends; " in gives_up(world, html(), "doubt")
    world.meter.reserved.clear()
    assert "a silence longer than idle_seconds 0.3 of [providers.p]" in gives_up(world, hangs(), "doubt")


def test_signs_of_life_keep_a_slow_stream_alive_beyond_the_longest_silence(streamed: World) -> None:
    streamed.server.plan = always(slow(2.5 * IDLE, IDLE / 4))
    reply = streamed.complete()
    assert reply.failures == {}
    assert json.loads(reply.text)["scores"]
    assert len(streamed.server.log) == 1


def test_signs_of_life_do_not_keep_a_stream_alive_beyond_the_deadline(streamed: World) -> None:
    streamed.provider_settings["deadline_seconds"] = 0.5
    line = gives_up(streamed, hangs(comments=0.05), "doubt")
    assert "an answer took longer than deadline_seconds 0.5 of [providers.p]" in line


def test_a_stream_that_ends_late_though_all_is_said_costs_at_most_a_second(streamed: World) -> None:
    async def lingers(exchange: Exchange) -> None:
        exchange.begin_stream()
        exchange.event(exchange.chunk({"content": TEXT}, "stop"))
        exchange.piece("data: [DONE]\n\n")
        await exchange.writer.drain()
        await asyncio.sleep(5)

    streamed.server.plan = always(lingers)
    streamed.provider_settings["idle_seconds"] = 30
    began = time.monotonic()
    assert streamed.complete().text == TEXT
    assert time.monotonic() - began < 2


def test_an_endless_answer_is_cut_short(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def endless(exchange: Exchange) -> None:
        exchange.begin_stream()
        for _ in range(3000):
            exchange.event(PIECE)
            await exchange.writer.drain()

    monkeypatch.setattr("resources.endpoint.LONGEST_BODY", 20_000)
    assert "a body of more than 20000 bytes" in gives_up(world, endless, "doubt")


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (status(401, "who are you"), [VARIABLE]),
        (status(402, "Insufficient Balance"), ["check the balance"]),
        (status(403, "no"), [VARIABLE]),
        (status(404, "no model m"), ["check the model's name", "http://127.0.0.1"]),
        (status(413, "too large"), ["prompts.news_tokens", "context_window"]),
        (
            status(400, "This model's maximum context length is 8192 tokens. However", error={"param": "messages"}),
            ["prompts.news_tokens", "context_window"],
        ),
        (
            status(400, "the request exceeds the available context size", error={"type": "exceed_context_size_error"}),
            ["prompts.news_tokens"],
        ),
        (status(302, "", headers={"location": "http://127.0.0.1:1/v1"}), ["redirects are not followed", "base_url"]),
        (status(308, "", headers={"location": "/v2"}), ["redirects are not followed", "base_url"]),
    ],
)
def test_what_will_not_get_better_stops_at_the_first_attempt(world: World, step: Step, words: list[str]) -> None:
    world.server.plan = always(step)
    with pytest.raises(BackboneError) as stopped:
        world.complete()
    assert [word for word in words if word not in str(stopped.value)] == []
    assert len(world.server.log) == 1
    assert world.meter.ends == ["release"]


def test_one_prompt_too_long_does_not_stop_the_others(world: World) -> None:
    world.server.plan = lambda question: status(413, "too large") if "long" in question.text else None

    async def both(endpoint: Endpoint, _: Provider) -> list[Reply | BaseException]:
        return await asyncio.gather(*(world.ask(endpoint, one) for one in ("long", "a", "b")), return_exceptions=True)

    long, *others = world.run(both)
    assert isinstance(long, BackboneError)
    assert all(isinstance(one, Reply) for one in others)


def test_the_breaker_ends_thirty_calls_with_the_same_line_wherever_they_wait(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_module, "FIRST_PAUSE", 0.2)
    world.provider_settings |= {"failures_in_a_row": 5, "attempts": 50, "concurrency": 3}
    world.server.plan = always(status(503, "down"))

    async def many(endpoint: Endpoint, _: Provider) -> tuple[list[Reply | BaseException], float, float]:
        tasks = [asyncio.create_task(world.ask(endpoint, str(i))) for i in range(30)]
        ends: list[float] = []
        for task in tasks:
            task.add_done_callback(lambda _: ends.append(time.monotonic()))
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        return ended, min(ends), max(ends)

    ended, first, last = world.run(many)
    line = "provider p: 5 attempts in a row failed, the last one: status 503: down error; nothing is lost: run the same"
    assert {type(one) for one in ended} == {BackboneError}
    assert {str(one) for one in ended} == {f"{line} command again"}
    assert last - first < 0.15
    assert len(world.server.log) < 5 * 3 + 3
    assert set(world.meter.ends) == {"release"}


def test_after_an_answer_of_another_model_nothing_more_is_asked(world: World) -> None:
    world.provider_settings |= {"concurrency": 2}
    world.server.plan = always(says("{}", model="another"))

    async def many(endpoint: Endpoint, provider: Provider) -> list[Reply | BaseException]:
        ended = await asyncio.gather(*(world.ask(endpoint, str(i)) for i in range(31)), return_exceptions=True)
        assert (provider.limits.held, provider.limits.waiting) == (0, 0)
        return ended

    ended = world.run(many)
    assert {type(one) for one in ended} == {BackboneError}
    assert len({str(one) for one in ended}) == 1
    assert len(world.server.log) <= 3
    assert set(world.meter.ends) == {"settle"}


@pytest.mark.parametrize("when", ["slot", "pause", "answer", "midway"])
def test_a_cancelled_call_closes_its_money_and_its_slot(world: World, when: str) -> None:
    steps = {"slot": hangs(), "pause": status(503, headers={"retry-after": "20"}), "answer": hangs()}
    world.server.plan = always(steps.get(when, hangs(after=2)))
    world.provider_settings |= {"concurrency": 1, "idle_seconds": 20}

    async def cancelled(endpoint: Endpoint, provider: Provider) -> None:
        tasks = [asyncio.create_task(world.ask(endpoint, str(i))) for i in range(2 if when == "slot" else 1)]
        while not world.server.log or (not world.server.log[0].status and when in ("pause", "midway")):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(one) for one in ended} == {asyncio.CancelledError}
        assert (provider.limits.held, provider.limits.waiting) == (0, 0)

    world.run(cancelled)
    assert world.meter.ends == (["release"] if when == "pause" else ["doubt"])


async def echoes_everywhere(exchange: Exchange) -> None:
    """The key in a stream's error."""
    sent = exchange.question.headers["authorization"]
    exchange.send(200, json.dumps({"error": {"message": f"bad {sent} {sent[10:]}"}}).encode())


async def echoes_as_model(exchange: Exchange) -> None:
    """The key in place of the model's name."""
    await says(TEXT, model=exchange.question.headers["authorization"])(exchange)


async def echoes_as_page(exchange: Exchange) -> None:
    """The key in a page's title."""
    sent = exchange.question.headers["authorization"]
    exchange.send(200, f"<html><title>{sent}</title></html>".encode(), "text/html")


async def echoes_as_rubbish(exchange: Exchange) -> None:
    """The key where JSON should stand."""
    exchange.send(200, exchange.question.headers["authorization"].encode())


@pytest.mark.parametrize(
    "step",
    [
        *(echoes_authorization(code) for code in (400, 401, 413, 429, 500)),
        echoes_everywhere,
        echoes_as_model,
        echoes_as_page,
        echoes_as_rubbish,
        html(),
        hangs(),
    ],
)
def test_no_key_in_any_message_repr_or_log(world: World, step: Step, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    world.provider_settings["attempts"] = 2
    world.server.plan = always(step)

    async def shown(endpoint: Endpoint, provider: Provider) -> str:
        with pytest.raises(BackboneError) as stopped:
            await world.ask(endpoint)
        told = [*traceback.format_exception(stopped.value), *map(repr, (stopped.value, endpoint, provider))]
        return "".join([*told, repr(vars(provider.settings))])

    text = world.run(shown) + caplog.text + "".join(str(vars(record)) for record in caplog.records)
    for secret in (KEY, KEY[8:16], KEY[-6:]):
        assert secret not in text


REQUEST = PredictRequest(
    dt.date(2025, 5, 30), industry("801080"), HORIZONS, NewsBlock((), 0), MarketContext(4321.5, ())
)
PROMPTS = load_settings().prompts


class Direct:
    """An endpoint as a backbone, without cache."""

    name = "b"

    def __init__(self, world: World, endpoint: Endpoint) -> None:
        self.identity: dict[str, object] = {"kind": "direct"}
        self._world = world
        self._endpoint = endpoint
        self.count_tokens = estimate_tokens

    async def answer(self, call: Call) -> Reply:
        """From the server."""
        name, schema = schema_of(call.request)
        return await self._endpoint.complete(call.prompt.messages, name, schema, 50, self._world.meter)

    def recall(self, call: Call) -> Reply | None:
        """Nothing is kept."""
        return None

    def remember(self, call: Call, reply: Reply) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """The world does."""


def asked(world: World, *texts: str | Step) -> Asked[PredictionAnswer]:
    """What becomes of a prediction that is answered by these, one after the other."""
    world.server.plan = InOrder(*(says(one) if isinstance(one, str) else one for one in texts))
    parse = partial(parse_prediction, horizons=HORIZONS, out_of_range="invalid")

    async def ask(endpoint: Endpoint, _: Provider) -> Asked[PredictionAnswer]:
        return await Model(Direct(world, endpoint), PROMPTS).ask(REQUEST, parse, prediction_flaws)

    return world.run(ask)


def prediction(ten: str, twenty: str = "0.2", forty: str = "-0.3", more: str = "") -> str:
    """An answer with these scores, written as they are."""
    scores = f'{{"10": {ten}, "20": {twenty}, "40": {forty}{more}}}'
    return f'{{"scores": {scores}, "confidence_score": 0.5, "key_factor": "需求", "logic_chain": "订单"}}'


GOOD = {10: 0.1, 20: 0.2, 40: -0.3}


@pytest.mark.parametrize(
    "text",
    [
        prediction("0.1"),
        prediction('"0.1"'),  # a number as text
        prediction("0.1", more=', "10": 0.1'),  # twice the same
        f"```json\n{prediction('0.1')}\n```",
        f"<think>is {{it}}?</think>{prediction('0.1')}",
        prediction("0.1", more=', "60": 0.9'),
    ],
    ids=["plain", "text", "twice", "fenced", "thought", "more"],
)
def test_odd_but_clear_answers_are_read_at_once(world: World, text: str) -> None:
    got = asked(world, text)
    assert got.answer is not None
    assert (got.answer.scores, got.problem, got.reasked, got.failures) == (GOOD, "", False, {})
    assert len(world.server.log) == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (prediction("NaN"), "horizon 10: score nan is no number"),
        (prediction("Infinity"), "horizon 10: score inf is no number"),
        (prediction("1e999"), "horizon 10: score inf is no number"),
        (prediction("1.5"), "horizon 10: score 1.5 is outside [-1, 1]"),
        (prediction('"-1.01"'), "horizon 10: score '-1.01' is outside [-1, 1]"),
        (prediction('"bullish"'), "horizon 10: score 'bullish' is no number"),
        (prediction("null"), "horizon 10: score None is no number"),
        (prediction("true"), "horizon 10: score True is no number"),
        (prediction("[0.1]"), "horizon 10: score [0.1] is no number"),
        (prediction("0.1", more=', "10": 0.9'), "horizon 10: score stands there twice, 0.1 and 0.9"),
        (prediction("0.1").replace('"10"', '"5"'), "horizon 10: score is missing"),
    ],
)
def test_a_wrong_score_is_asked_for_again_and_then_invalid_for_its_horizon_only(
    world: World, text: str, problem: str
) -> None:
    mended = asked(world, text, prediction("0.1"))
    assert mended.answer is not None
    assert (mended.answer.scores, mended.problem, mended.reasked) == (GOOD, "", True)
    assert mended.failures == {"invalid_field": 1, "reasked": 1}
    assert mended.usage.calls == 2

    stubborn = asked(world, text, text)
    assert stubborn.answer is not None
    assert (stubborn.problem, stubborn.reasked) == (problem, True)
    assert math.isnan(stubborn.answer.scores.pop(10))
    assert stubborn.answer.scores == {20: 0.2, 40: -0.3}
    assert stubborn.failures == {"invalid_field": 2, "reasked": 1}
    assert len(world.server.log) == 4


@pytest.mark.parametrize(
    ("answer", "failures"),
    [
        ("", {"empty": 2, "reasked": 1, "unreadable": 2}),
        ("I would rather not say.", {"reasked": 1, "unreadable": 2}),
        (prediction("0.1")[:30], {"reasked": 1, "unreadable": 2}),
        ("[0.1, 0.2, -0.3]", {"reasked": 1, "unreadable": 2}),
    ],
)
def test_an_answer_that_cannot_be_read_is_asked_for_again_and_then_none(
    world: World, answer: str, failures: dict[str, int]
) -> None:
    got = asked(world, answer, answer)
    assert got.answer is None
    assert got.problem.startswith("answer: no JSON object in ")
    assert got.failures == failures
    assert len(world.server.log) == 2


@pytest.mark.parametrize("text", ['{"industries": [], "scope": "none"}', '{"scores": [0.1, 0.2, -0.3]}'])
def test_an_answer_of_another_schema_is_invalid_for_every_horizon(world: World, text: str) -> None:
    got = asked(world, text, text)
    assert got.answer is not None
    assert set(got.answer.invalid) == set(HORIZONS)
    assert got.failures == {"invalid_field": 6, "reasked": 1}


def test_what_the_content_filter_refuses_is_not_asked_for_again(world: World) -> None:
    got = asked(world, status(400, "Content Exists Risk"))
    assert (got.answer, got.reasked, got.failures) == (None, False, {"content_filter": 1})
    assert len(world.server.log) == 1


def test_trouble_between_answers_is_counted_with_them(world: World) -> None:
    got: Any = asked(world, status(500), prediction("2"), status(429), prediction("0.1"))
    assert got.answer.scores == GOOD
    assert got.failures == {"invalid_field": 1, "rate_limited": 1, "reasked": 1, "server_error": 1}
    assert sorted(world.meter.ends) == ["release", "release", "settle", "settle"]
