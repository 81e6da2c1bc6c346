"""A provider is asked politely, given up on with one clear line, and never told of in a way that shows the key."""

from __future__ import annotations

import asyncio
import base64
import email.utils
import logging
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from endpoint_world import KEY, VARIABLE, Recorder, World
from model_server import InOrder, ModelServer, always, echoes_authorization, hangs, html, running, status

from finevolve_pipeline.errors import BackboneError, BudgetError
from finevolve_pipeline.llm.requests import Reply
from resources import provider as provider_module
from resources.endpoint import Endpoint
from resources.provider import Provider, retry_after


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv(VARIABLE, KEY)
    monkeypatch.setattr(provider_module, "FIRST_PAUSE", 0.01)
    with running(ModelServer()) as server:
        yield World(tmp_path / "providers", server)


def line_of(world: World, **settings: Any) -> str:
    """The one line with which a question fails."""
    with pytest.raises(BackboneError) as stopped:
        world.complete(**settings)
    text = str(stopped.value)
    assert "\n" not in text
    assert KEY not in "".join(traceback.format_exception(stopped.value))
    return text


def test_without_its_key_a_provider_names_the_variable_and_asks_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE)
    assert f"export {VARIABLE}=" in line_of(world)
    assert world.server.log == []


def test_a_key_that_cannot_be_one_is_refused_without_being_shown(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("sk-ümlaut-secret", "sk-one sk-two", "sk-first\nsk-second"):
        monkeypatch.setenv(VARIABLE, key)
        line = line_of(world)
        assert VARIABLE in line
        assert "sk-" not in line


def test_a_key_with_a_line_break_behind_works(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    headers = []
    world.server.plan = lambda question: headers.append(question.headers["authorization"])  # type: ignore[func-returns-value]
    monkeypatch.setenv(VARIABLE, f"{KEY}\n")
    world.complete()
    assert headers == [f"Bearer {KEY}"]


def test_a_provider_without_key_variable_needs_none(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-somebody-else")
    headers: dict[str, str] = {}
    world.server.plan = lambda question: headers.update(question.headers)  # type: ignore[func-returns-value]
    world.provider_settings["key_variable"] = ""
    assert world.complete().text
    assert "somebody-else" not in str(headers)


@pytest.mark.parametrize(
    ("given", "low", "high"),
    [
        ({"retry-after": "0.3"}, 0.3, 2),
        ({"retry-after-ms": "300"}, 0.3, 2),
        ({"retry-after": "later"}, 0, 1),
        ({"retry-after": "-5"}, 0, 1),
        ({"retry-after": "nan"}, 0, 1),
        ({}, 0, 1),
    ],
)
def test_a_429_is_waited_off_as_long_as_the_provider_says(
    world: World, given: dict[str, str], low: float, high: float
) -> None:
    world.server.plan = InOrder(status(429, headers=given))
    began = time.monotonic()
    reply = world.complete()
    assert low <= time.monotonic() - began < high
    assert reply.failures == {"rate_limited": 1}
    assert world.meter.ends == ["release", "settle"]


def test_a_date_to_come_again_is_read_by_the_servers_own_clock() -> None:
    then, now = (email.utils.formatdate(at, usegmt=True) for at in (5_000_040, 5_000_000))
    assert retry_after(httpx2.Headers({"retry-after": then, "date": now})) == 40
    assert retry_after(httpx2.Headers({"retry-after": now, "date": then})) == 0
    ahead = email.utils.formatdate(time.time() + 30, usegmt=True)
    assert retry_after(httpx2.Headers({"retry-after": ahead})) == pytest.approx(30, abs=1.5)


def test_a_pause_that_one_request_was_told_holds_for_all(world: World) -> None:
    world.server.plan = InOrder(status(503, headers={"retry-after": "0.4"}))

    async def several(endpoint: Endpoint, _: Provider) -> None:
        first = asyncio.create_task(world.ask(endpoint, "0"))
        await asyncio.sleep(0.2)
        await asyncio.gather(first, *(world.ask(endpoint, str(i)) for i in range(1, 5)))

    world.run(several)
    refused, *others = world.server.log
    assert min(one.began for one in others) - refused.until > 0.35


def test_a_pause_longer_than_allowed_stops_everything(world: World) -> None:
    world.server.plan = always(status(429, "come back tomorrow", headers={"retry-after": "3600"}))
    line = line_of(world)
    assert "3600 s" in line
    assert "longest_wait_seconds 120 of [providers.p]" in line
    assert "run the same command again" in line
    assert len(world.server.log) == 1


@pytest.mark.parametrize("code", [408, 409, 425, 500, 502, 503, 504, 529])
def test_errors_of_the_server_are_tried_again(world: World, code: int) -> None:
    world.server.plan = InOrder(status(code), status(code))
    reply = world.complete()
    assert reply.failures == {"server_error": 2}
    assert reply.usage.calls == 1
    assert world.meter.ends[-1] == "settle"


def test_what_a_gateway_gave_up_on_may_have_been_billed_and_what_was_refused_not(world: World) -> None:
    world.server.plan = InOrder(status(504), status(502), status(503), status(500), status(429))
    world.complete()
    assert world.meter.ends == ["doubt", "doubt", "release", "release", "release", "settle"]


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (status(400, "This model's maximum context length is 8192 tokens"), ["prompts.news_tokens", "context_window"]),
        (status(400, "temperature must be below 2"), ["temperature must be below 2", "decoding"]),
        (status(422, "bad field"), ["status 422", "bad field"]),
        (status(401, "who are you"), [VARIABLE, "who are you"]),
        (status(403, "not for you"), [VARIABLE, "status 403"]),
        (status(402, "Insufficient Balance"), ["balance"]),
        (status(404, "no model m"), ["no model m", "base_url http://127.0.0.1"]),
        (status(413, "large"), ["prompts.news_tokens"]),
        (status(429, "You exceeded your current quota", error={"code": "insufficient_quota"}), ["balance"]),
        (status(307, "", headers={"location": "http://elsewhere.invalid/v1"}), ["redirects are not followed"]),
    ],
)
def test_what_will_not_get_better_stops_at_once_with_a_remedy(world: World, step: Any, words: list[str]) -> None:
    world.server.plan = always(step)
    line = line_of(world)
    assert line.startswith("provider p: status ")
    assert [word for word in words if word not in line] == []
    assert len(world.server.log) == 1
    assert world.meter.ends == ["release"]


@pytest.mark.parametrize(
    "step", [status(503), status(400, "response_format is unavailable")], ids=["refused", "form unknown"]
)
def test_tokens_of_attempts_that_took_none_are_given_back_to_the_minute(world: World, step: Any) -> None:
    # Of 100,000 a minute 5,000 may go at once, and each attempt puts 4,050 aside.
    world.provider_settings["tokens_per_minute"] = 100_000
    world.server.plan = InOrder(step)
    began = time.monotonic()
    world.complete(max_tokens=4000)
    assert time.monotonic() - began < 1


def test_nothing_listens_there(world: World) -> None:
    world.provider_settings |= {"base_url": "http://127.0.0.1:9/v1", "attempts": 2}
    line = line_of(world)
    assert "no connection to http://127.0.0.1:9/v1" in line
    assert "failed 2 times" in line
    assert world.meter.ends == ["release", "release"]


def test_a_request_is_given_up_after_its_attempts(world: World) -> None:
    world.provider_settings["attempts"] = 3
    world.server.plan = always(status(503, "overloaded"))
    assert line_of(world) == (
        "provider p: a request failed 3 times, at last: status 503: overloaded error; "
        "nothing is lost: run the same command again"
    )
    assert len(world.server.log) == 3


def test_pauses_grow_and_differ() -> None:
    provider = World(Path("unused"), ModelServer(port=1)).provider()
    trouble = provider_module._Trouble("server_error", "x")
    pauses = [[provider._pause(trouble, failed) for _ in range(50)] for failed in range(1, 12)]
    for failed, some in enumerate(pauses, 1):
        longest = min(120, provider_module.FIRST_PAUSE * 2 ** (failed - 1))
        assert longest / 2 <= min(some) < max(some) <= longest


def test_the_breaker_stops_all_that_wait_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_module, "FIRST_PAUSE", 0.05)
    world.provider_settings |= {"concurrency": 2, "failures_in_a_row": 4, "attempts": 50}
    world.server.plan = always(status(500, "down"))

    async def many(endpoint: Endpoint, _: Provider) -> tuple[list[Reply | BaseException], float]:
        began = time.monotonic()
        tasks = [world.ask(endpoint, str(i)) for i in range(30)]
        return await asyncio.gather(*tasks, return_exceptions=True), time.monotonic() - began

    ended, took = world.run(many)
    assert {str(one) for one in ended} == {
        "provider p: 4 attempts in a row failed, the last one: status 500: down error; "
        "nothing is lost: run the same command again"
    }
    assert len(ended) == 30
    assert len(world.server.log) <= 8
    assert took < 2
    assert set(world.meter.ends) == {"release"}


def test_one_success_lets_the_breaker_count_anew(world: World) -> None:
    world.provider_settings |= {"failures_in_a_row": 3, "attempts": 50, "concurrency": 1}
    world.server.plan = lambda question: status(500) if question.number % 3 else None

    async def several(endpoint: Endpoint, _: Provider) -> list[Reply]:
        return [await world.ask(endpoint, str(i)) for i in range(4)]

    assert [sum(reply.failures.values()) for reply in world.run(several)] == [0, 2, 2, 2]


def test_what_fails_together_is_one_failure_in_a_row(world: World) -> None:
    world.provider_settings |= {"failures_in_a_row": 2, "concurrency": 31}
    world.server.latency = 0.05
    world.server.plan = lambda question: status(502) if question.number < 31 else None

    async def many(endpoint: Endpoint, _: Provider) -> list[Reply]:
        return await asyncio.gather(*(world.ask(endpoint, str(i)) for i in range(31)))

    assert {tuple(reply.failures.items()) for reply in world.run(many)} == {(("server_error", 1),)}


def test_a_refused_key_stops_all_that_wait_after_what_is_under_way(world: World) -> None:
    world.provider_settings["concurrency"] = 2
    world.server.plan = always(status(401, "no"))

    async def many(endpoint: Endpoint, _: Provider) -> list[Reply | BaseException]:
        return await asyncio.gather(*(world.ask(endpoint, str(i)) for i in range(30)), return_exceptions=True)

    ended = world.run(many)
    assert len({str(one) for one in ended}) == 1
    assert len(world.server.log) <= 2


def test_after_a_stop_the_next_run_of_the_same_process_asks_again(world: World) -> None:
    world.server.plan = InOrder(status(401, "no"))
    provider = world.provider()

    async def once() -> Reply:
        return await world.ask(world.endpoint(provider))

    with pytest.raises(BackboneError):
        asyncio.run(once())
    assert asyncio.run(once()).text


def test_a_stopped_provider_is_not_asked_again_in_that_run_until_it_is_closed(world: World) -> None:
    world.server.plan = InOrder(status(401, "no"))

    async def thrice(endpoint: Endpoint, provider: Provider) -> str:
        for _ in range(2):
            with pytest.raises(BackboneError, match="status 401"):
                await world.ask(endpoint)
        await provider.close()
        return (await world.ask(endpoint)).text

    assert world.run(thrice)
    assert len(world.server.log) == 2


def test_cancelled_requests_hold_no_slot_and_count_as_spent(world: World) -> None:
    world.provider_settings["concurrency"] = 3
    world.server.plan = always(hangs())

    async def cancel(endpoint: Endpoint, provider: Provider) -> int:
        tasks = [asyncio.create_task(world.ask(endpoint, str(i))) for i in range(10)]
        while len(world.server.log) < 3:
            await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return provider.limits.held

    assert world.run(cancel) == 0
    assert world.meter.ends == ["doubt"] * 3


def test_the_budgets_refusal_passes_through_and_nothing_is_asked(world: World) -> None:
    world.meter = Recorder(grants=0)
    with pytest.raises(BudgetError, match="budget: spent"):
        world.complete()
    assert world.server.log == []


@pytest.mark.parametrize("code", [400, 401, 403, 429, 500])
def test_the_key_is_in_no_message_no_traceback_and_no_log(
    world: World, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    world.provider_settings["attempts"] = 2
    world.server.plan = always(echoes_authorization(code))
    with pytest.raises(BackboneError) as stopped:
        world.complete()
    shown = "".join(traceback.format_exception(stopped.value)) + repr(stopped.value) + caplog.text
    assert "Incorrect API key provided: [key]" in str(stopped.value)
    for secret in (KEY, KEY[:7], KEY[-6:], base64.b64encode(KEY.encode()).decode()):
        assert secret not in shown
    assert len(str(stopped.value)) < 500


def test_requests_leave_no_address_in_the_log_of_a_run(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world.complete()
    assert "127.0.0.1" not in caplog.text


def test_a_repr_shows_no_key(world: World) -> None:
    async def shown(endpoint: Endpoint, provider: Provider) -> str:
        await world.ask(endpoint)
        return repr(provider) + repr(endpoint)

    assert KEY not in world.run(shown)


def test_foreign_text_becomes_one_short_line(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scrubbed(endpoint: Endpoint, provider: Provider) -> list[str]:
        await world.ask(endpoint)
        texts = [
            "a\r\n\x1b[31m b\u2028c",
            f"x{KEY[3:15]}y and {KEY[:5]}***{KEY[-4:]} and {KEY.replace('-', '%2D')}",
            "Authorization: Bearer other-secret",
            "<!DOCTYPE html><html><head><title>502 Bad &lt;Gateway&gt;</title></head><body>" + "z" * 9000,
            "长" * 5000,
        ]
        return [provider.scrub(text) for text in texts]

    plain, keyed, bearer, page, long = world.run(scrubbed)
    assert plain == "a [31m b c"
    assert KEY[3:9] not in keyed
    assert KEY[-4:] not in keyed
    assert bearer == "Authorization: Bearer [key]"
    assert page == "an HTML page 502 Bad <Gateway>"
    assert len(long) == 200


def test_an_error_page_is_told_by_its_title(world: World) -> None:
    world.provider_settings["attempts"] = 1
    world.server.plan = always(html(502))
    assert "failed once, at last: status 502: an HTML page Gateway & friends;" in line_of(world)


def test_loopback_is_reached_without_the_proxy_of_the_environment(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert world.complete().text


def test_connections_are_used_again(world: World) -> None:
    async def many(endpoint: Endpoint, _: Provider) -> int:
        for i in range(10):
            await world.ask(endpoint, str(i))
        return len(world.server._connections)

    assert world.run(many) == 1


def test_closing_leaves_requests_under_way_alone(world: World) -> None:
    world.server.latency = 0.2

    async def close_meanwhile(endpoint: Endpoint, provider: Provider) -> tuple[Reply, int]:
        asking = asyncio.create_task(world.ask(endpoint))
        while not world.server.log:
            await asyncio.sleep(0.01)
        await provider.close()
        reply = await asking
        await asyncio.sleep(0.05)
        return reply, len(world.server._connections)

    reply, connections = world.run(close_meanwhile)
    assert (reply.failures, connections) == ({}, 0)
