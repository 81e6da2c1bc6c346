"""Asking: at most one question more, the better answer counts, everything that went wrong is counted."""

import asyncio
import datetime as dt

import pytest

from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.errors import AnswerError, BackboneError
from finevolve_pipeline.llm.asking import Model
from finevolve_pipeline.llm.requests import Reply, TagRequest, Usage
from finevolve_pipeline.llm.tokens import estimate_tokens
from finevolve_pipeline.settings import load_settings

REQUEST = TagRequest("a1", "cls", "标题", "正文", dt.datetime(2025, 1, 2, 9, tzinfo=SHANGHAI))
USAGE = Usage(calls=1, prompt_tokens=100, cached_prompt_tokens=60, completion_tokens=10, reasoning_tokens=4, cost=0.1)


class Scripted:
    """Answers in turn; knows what it was asked."""

    name = "scripted"
    identity = {"kind": "scripted"}  # noqa: RUF012

    def __init__(self, *replies):
        self.replies = list(replies)
        self.calls = []

    def count_tokens(self, text):
        return estimate_tokens(text)

    async def answer(self, call):
        self.calls.append(call)
        given = self.replies.pop(0)
        if isinstance(given, Exception):
            raise given
        return given if isinstance(given, Reply) else Reply(given, USAGE, model="m-1")


def numbers(text):
    """A toy answer: numbers with commas between; x is a flaw."""
    if not text.strip("0123456789,x"):
        return text.split(",")
    raise AnswerError(f"answer: no numbers in {text!r}")


def flaws(answer):
    return tuple(f"{place} is x" for place, one in enumerate(answer) if one == "x")


def ask(*replies, first=None):
    backbone = Scripted(*replies)
    model = Model(backbone, load_settings().prompts)
    return asyncio.run(model.ask(REQUEST, numbers, flaws, first)), backbone


def test_a_good_answer_is_asked_for_once():
    asked, backbone = ask("1,2")
    assert (asked.answer, asked.problem, asked.reasked, asked.failures) == (["1", "2"], "", False, {})
    assert asked.usage == USAGE
    assert asked.models == ("m-1",)
    assert len(backbone.calls) == 1


def test_an_unreadable_answer_is_asked_for_again_with_the_problem_named():
    asked, backbone = ask("rubbish!", "1,2")
    assert asked.answer == ["1", "2"]
    assert asked.problem == ""
    assert asked.failures == {"reasked": 1, "unreadable": 1}
    assert asked.usage == USAGE + USAGE
    first, second = (call.prompt.messages for call in backbone.calls)
    assert second[: len(first)] == first
    assert "rubbish!" in second[len(first)].content
    assert "no numbers" in second[-1].content
    assert asked.prompt.messages == first


@pytest.mark.parametrize(
    ("replies", "answer", "problem"),
    [
        (("1,x,x", "1,x,3"), ["1", "x", "3"], "1 is x"),
        (("1,x,3", "x,x,3"), ["1", "x", "3"], "1 is x"),
        (("1,x", "no!"), ["1", "x"], "1 is x"),
        (("1,x", "2,x"), ["1", "x"], "1 is x"),
        (("no!", "x"), ["x"], "0 is x"),
        (("no!", "none!"), None, "answer: no numbers in 'no!'"),
    ],
)
def test_the_better_of_two_answers_counts_and_the_first_of_equals(replies, answer, problem):
    asked, backbone = ask(*replies)
    assert (asked.answer, asked.problem, asked.reasked) == (answer, problem, True)
    assert len(backbone.calls) == 2


def test_a_refusal_of_the_content_is_final_and_counted():
    asked, backbone = ask(Reply("", USAGE, "content_filter", {"content_filter": 1}))
    assert asked.answer is None
    assert "content filter" in asked.problem
    assert asked.failures == {"content_filter": 1}
    assert len(backbone.calls) == 1


def test_failures_on_the_way_to_both_answers_are_added_up():
    asked, _ = ask(Reply("x", USAGE, "stop", {"timeout": 2}), Reply("1", USAGE, "stop", {"timeout": 1, "dropped": 1}))
    assert asked.failures == {"dropped": 1, "invalid_field": 1, "reasked": 1, "timeout": 3}


def test_an_answer_that_is_known_already_is_not_asked_for():
    asked, backbone = ask("7", first=Reply("no!", USAGE))
    assert asked.answer == ["7"]
    assert len(backbone.calls) == 1


def test_a_provider_that_cannot_be_used_stops_everything():
    with pytest.raises(BackboneError, match="gone"):
        ask(BackboneError("gone"))


def test_a_long_bad_answer_is_quoted_in_part():
    asked, backbone = ask("!" * 50_000, "1")
    assert asked.answer == ["1"]
    assert sum(len(message.content) for message in backbone.calls[1].prompt.messages[2:]) < 5000
