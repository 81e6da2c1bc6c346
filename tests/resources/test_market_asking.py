"""Asking a service: paced, with an end, a few times; what is wrong is told in one line and never with the secret."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from service_world import (
    CAPTCHA,
    ERROR_500,
    HALF,
    HTML,
    NOT_JSON,
    TOKEN,
    TOO_MANY,
    Asked,
    FakeTime,
    Reply,
    Service,
    serving,
)

from finevolve_pipeline.errors import SourceError
from resources.market.asking import Asker, TryAgainError


class Echo(Service):
    def answer(self, asked: Asked) -> Reply:
        return Reply({"said": asked.query})


@pytest.fixture
def service() -> Iterator[Echo]:
    found = Echo()
    with serving(found):
        yield found


def read(answer: Any) -> Any:
    return answer["said"]


def ask(service: Service, time: FakeTime, **polite: Any) -> Any:
    return Asker("site", time.politeness(**polite), TOKEN).get(service.url, {"a": "1"}, read)


@pytest.mark.parametrize(
    "trouble", [ERROR_500, TOO_MANY, Reply("请求过于频繁", 429), HTML, NOT_JSON, HALF, Reply("", 456), Reply("no", 403)]
)
def test_trouble_that_passes_is_asked_again_after_growing_pauses(service: Echo, trouble: Reply) -> None:
    service.first(2, trouble)
    time = FakeTime()
    assert ask(service, time) == {"a": "1"}
    assert len(service.asked) == 3
    if trouble is not TOO_MANY:
        assert 0.5 <= time.slept[0] <= 1.0 <= time.slept[1] <= 2.0


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        (ERROR_500, "status 500: an HTML page oops"),
        (HTML, "no JSON .* an HTML page 维护中"),
        (Reply("[" * 100_000), "no JSON .*recursion"),
        (Reply("not json at all"), "no JSON .* not json at all"),
        (Reply(""), "no JSON .* it is empty"),
        (HALF, "the connection failed"),
    ],
)
def test_trouble_that_stays_is_told_after_the_last_attempt(service: Echo, trouble: Reply, told: str) -> None:
    service.first(99, trouble)
    with pytest.raises(SourceError, match=f"site: failed 3 times, at last: .*{told}"):
        ask(service, FakeTime())
    assert len(service.asked) == 3


def test_a_service_that_hangs_is_given_up(service: Echo) -> None:
    service.first(99, Reply("late", silent=1.0))
    with pytest.raises(SourceError, match=r"failed once, at last: no answer within 0\.2 s"):
        ask(service, FakeTime(), attempts=1, deadline=0.2)


def test_nobody_there_is_told(service: Echo) -> None:
    asker = Asker("site", FakeTime().politeness(attempts=1))
    with pytest.raises(SourceError, match="site: failed once, at last: the connection failed"):
        asker.get("http://127.0.0.1:9", {}, read)


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (Reply("<html><title>404</title></html>", 404), "status 404: an HTML page 404; the service no longer answers"),
        (CAPTCHA, "blocks us .an HTML page 请输入验证码.; stopped"),
        (Reply(CAPTCHA.body, 403), "blocks us .an HTML page 请输入验证码.; stopped"),
        (Reply("Access Denied", 503), "blocks us .Access Denied.; stopped"),
        (Reply("", 302, {"Location": "http://127.0.0.1:9/captcha"}), "status 302.*redirects are not followed"),
    ],
)
def test_what_another_attempt_cannot_mend_is_told_at_once(service: Echo, reply: Reply, told: str) -> None:
    service.first(99, reply)
    with pytest.raises(SourceError, match=told):
        ask(service, FakeTime())
    assert len(service.asked) == 1


def test_retry_after_is_kept_and_one_too_long_ends_it(service: Echo) -> None:
    time = FakeTime()
    service.first(1, Reply("", 429, {"Retry-After": "77"}))
    ask(service, time)
    assert time.slept == [77.0]
    service.asked.clear()
    service.first(1, Reply("", 503, {"Retry-After": "3600"}))
    with pytest.raises(SourceError, match=r"wants a pause of 3600 s .* more than 120 s"):
        ask(service, FakeTime())


def test_requests_start_no_faster_than_allowed(service: Echo) -> None:
    time = FakeTime()
    asker = Asker("site", time.politeness(per_minute=20))
    for _ in range(4):
        asker.get(service.url, {"a": "1"}, read)
    assert time.slept == pytest.approx([3.0, 3.0, 3.0])


def test_the_secret_stands_in_no_message_even_if_the_service_repeats_it(service: Echo) -> None:
    service.first(99, Reply(f"bad token {TOKEN} and {TOKEN[4:20]}", 500))
    with pytest.raises(SourceError) as told:
        ask(service, FakeTime())
    assert "[key]" in str(told.value)
    assert not any(TOKEN[i : i + 6] in str(told.value) for i in range(len(TOKEN) - 5))


def test_a_reader_may_want_another_attempt(service: Echo) -> None:
    seen: list[Any] = []

    def picky(answer: Any) -> int:
        seen.append(answer)
        if len(seen) < 3:
            raise TryAgainError("not this one", wait=5.0)
        return len(seen)

    time = FakeTime()
    assert Asker("site", time.politeness()).get(service.url, {}, picky) == 3
    assert time.slept == [5.0, 5.0]
