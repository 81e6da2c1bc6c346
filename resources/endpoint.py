"""Chat completions of one model: a prompt goes out, a reply comes back, whatever the server makes of it.

Requests and answers are plain JSON here; the SDK carries them, and its models of answers are left aside, for they cost
more time than everything else and refuse what half the servers send.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import httpx2
import openai
from openai import AsyncOpenAI, AsyncStream

from finevolve_pipeline.errors import BackboneError
from finevolve_pipeline.llm import failures
from finevolve_pipeline.llm.metering import Meter, Reservation
from finevolve_pipeline.llm.requests import Message, Reply, Usage
from finevolve_pipeline.llm.tokens import estimate_tokens
from finevolve_pipeline.settings import ModelSettings
from resources.provider import AttemptError, Declined, Provider, error_text

FORMS = ("json_schema", "json_object", "prompt")
"""How an answer's shape is demanded, strongest first."""
MARGIN = 64
"""Tokens left free when a cap is raised, for what the server adds to a prompt."""
LONGEST_BODY = 16_000_000
"""Bytes of a response; more is no answer."""
AFTER_DONE_SECONDS = 1.0
"""How long a stream that has said all may take to end, so that its connection can be used again."""

_JSON = {"content-type": "application/json"}
_FINISHES = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "sensitive": "content_filter",
}
_FAILED_FINISHES = frozenset({"error", "abort", "insufficient_system_resource", "network_error"})
_FORM_WORDS = re.compile(r"response[_ ]format|json[_ ]?schema|json[_ ]?object|guided|grammar|structured", re.I)
_USAGE_WORDS = re.compile(r"stream_options|include_usage", re.I)
_FILTER_WORDS = re.compile(r"content[_ ]?filter|content exists risk|ResponsibleAIPolicy|data_inspection_failed", re.I)
_SNAPSHOT = re.compile(r"(:latest|[-@:](\d{4}|\d{6}|\d{8}|\d{4}-\d{2}-\d{2}))$")


class Endpoint:
    """One model behind a provider.

    Args:
        name: of the [backbones] section.
        model: that section.
        provider: who serves it.
    """

    def __init__(self, name: str, model: ModelSettings, provider: Provider) -> None:
        self._name = name
        self._model = model
        self._provider = provider
        self._form = 0 if model.structured == "auto" else FORMS.index(model.structured)
        self._asks_usage = True
        self._refused = ""

    async def complete(
        self,
        messages: Sequence[Message],
        schema_name: str,
        schema: Mapping[str, object],
        prompt_tokens: int,
        meter: Meter,
        seed: int = 0,
    ) -> Reply:
        """The model's answer to a prompt.

        Args:
            messages: the prompt.
            schema_name: of the answer's shape.
            schema: JSON schema of the answer.
            prompt_tokens: upper estimate of the prompt's tokens.
            meter: on whose account.
            seed: of the sample; 0: as the decoding settings say.

        Raises:
            BackboneError: the provider refuses or does not answer, or another model answered.
            BudgetError: from the meter.
        """
        question = _Question(messages, schema_name, schema, prompt_tokens, meter, seed)
        counted: Counter[str] = Counter()
        cap = self._model.max_tokens
        answer = await self._ask(question, cap, counted)
        usage = self._usage(answer, prompt_tokens)
        if answer.finish == "length":
            higher = min(2 * cap, self._model.context_window - usage.prompt_tokens - MARGIN)
            if higher > cap:
                counted[failures.CAP_RAISED] += 1
                answer = await self._ask(question, higher, counted)
                usage += self._usage(answer, prompt_tokens)
            if answer.finish == "length":
                counted[failures.TRUNCATED] += 1
        text = answer.text
        if answer.finish == "content_filter":
            counted[failures.CONTENT_FILTER] += 1
        elif not text:
            counted[failures.EMPTY] += 1
        return Reply(text, usage, answer.finish, dict(sorted(counted.items())), answer.model)

    async def _ask(self, question: _Question, cap: int, counted: Counter[str]) -> _Answer:
        """One answer; the demanded form is weakened as far as the server makes it necessary."""
        while True:
            form, asks_usage = self._form, self._model.stream and self._asks_usage
            attempt = partial(self._post, self._body(question, cap, FORMS[form], asks_usage), form, asks_usage)
            try:
                answer, failed = await self._provider.send(
                    attempt,
                    question.prompt_tokens + cap,
                    lambda: self._reserve(question, cap),
                    lambda answer: self._usage(answer, question.prompt_tokens),
                )
            except Declined as declined:
                counted.update(declined.failures)
                if declined.what == "usage":
                    self._asks_usage = False
                else:
                    # Others that asked meanwhile may have learned the same.
                    self._form = max(self._form, form + 1)
                continue
            counted.update(failed)
            if self._model.structured == "auto" and form > 0:
                counted[failures.UNSTRUCTURED] += 1
            self._require_model(answer.model)
            return answer

    def _reserve(self, question: _Question, cap: int) -> Reservation:
        """Put aside what an attempt may cost; none is begun once another model has answered."""
        if self._refused:
            raise BackboneError(self._refused)
        return question.meter.reserve(question.prompt_tokens, cap)

    def _body(self, question: _Question, cap: int, form: str, asks_usage: bool) -> bytes:
        model = self._model
        body = dict(model.decoding)
        for key, value in model.thinking_request.items():
            known = body.get(key)
            body[key] = {**known, **value} if isinstance(known, dict) and isinstance(value, dict) else value
        if question.seed:
            body["seed"] = question.seed
        body["model"] = model.model
        body["messages"] = [{"role": role, "content": content} for role, content in question.messages]
        body[model.max_tokens_field] = cap
        if form == "json_schema":
            shape = {"name": question.schema_name, "schema": question.schema, "strict": True}
            body["response_format"] = {"type": form, "json_schema": shape}
        elif form == "json_object":
            body["response_format"] = {"type": form}
        body["stream"] = model.stream
        if asks_usage:
            body["stream_options"] = {"include_usage": True}
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")

    async def _post(self, body: bytes, form: int, asks_usage: bool, client: AsyncOpenAI) -> _Answer:
        """Send a request once and read the answer. What it asks for counts, not what was learned meanwhile."""
        try:
            # With `stream` the body is left to us, and with `cast_to` the response comes as it is.
            response = cast(
                httpx2.Response,
                await client.post(
                    "/chat/completions",
                    cast_to=httpx2.Response,
                    content=body,
                    options={"headers": _JSON},
                    stream=True,
                    stream_cls=AsyncStream[object],
                ),
            )
        except openai.APIStatusError as error:
            words = error_text(error) if error.status_code in (400, 422, 501) else ""
            if _FILTER_WORDS.search(words):
                return _Answer(refused=True, finish_reason="content_filter")
            if asks_usage and _USAGE_WORDS.search(words):
                raise Declined("usage") from None
            if self._model.structured == "auto" and form < len(FORMS) - 1 and _FORM_WORDS.search(words):
                raise Declined("form") from None
            raise
        try:
            return await _read(response)
        finally:
            await response.aclose()

    def _usage(self, answer: _Answer, prompt_tokens: int) -> Usage:
        """What an answer took, by what the provider says, else by estimate."""
        if answer.refused:
            return Usage(calls=1)
        told: Mapping[str, Any] = answer.usage or {}
        prompt = _count(told.get("prompt_tokens"))
        written = _count(told.get("completion_tokens"))
        thought = _count(_part(told, "completion_tokens_details").get("reasoning_tokens"))
        cached = _count(_part(told, "prompt_tokens_details").get("cached_tokens"))
        if cached is None:
            cached = _count(told.get("prompt_cache_hit_tokens")) or 0
        if prompt is None:
            prompt = prompt_tokens
        elif thought and written is not None and _count(told.get("total_tokens")) == prompt + written + thought:
            written += thought  # some count reasoning beside the completion
        if thought is None:
            thought = estimate_tokens(answer.thoughts)
        if written is None:
            written = estimate_tokens(answer.said) + thought
        cached, thought = min(cached, prompt), min(thought, written)
        price = self._model.price
        cost = price.cost(prompt, cached, written) if price is not None else 0.0
        return Usage(1, prompt, cached, written, thought, cost)

    def _require_model(self, answered: str) -> None:
        """Refuse the answer of another model than the one asked for, dated names of it aside."""
        asked = self._model.model
        if answered in ("", asked, *self._model.served_as):
            return
        if answered.startswith(asked) and _SNAPSHOT.fullmatch(answered[len(asked) :]):
            return
        section = f"[backbones.{self._name}]"
        self._refused = (
            f"backbone {self._name}: asked for model {asked!r} and was answered by "
            f"{self._provider.scrub(answered)!r}; if that is the same, add it to served_as of {section}, "
            f"else correct model there"
        )
        raise BackboneError(self._refused)


@dataclass(frozen=True)
class _Question:
    """What `Endpoint.complete` was asked."""

    messages: Sequence[Message]
    schema_name: str
    schema: Mapping[str, object]
    prompt_tokens: int
    meter: Meter
    seed: int


@dataclass
class _Answer:
    """A chat completion, put together from one body or from the events of a stream.

    Attributes:
        refused: whether the provider refused the content by status 400.
        spoke: whether there was any choice with a message.
        pieces: of the content.
        thinking: pieces of reasoning that stand beside the content.
        refusals: pieces of what a model says when it refuses.
        finish_reason: in the server's word; None if it did not tell.
        model: name in the answer.
        usage: as the server tells it.
    """

    refused: bool = False
    spoke: bool = False
    pieces: list[str] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    model: str = ""
    usage: Mapping[str, Any] | None = None

    def add(self, event: object) -> None:
        """Take in a whole completion or a chunk of one.

        Raises:
            AttemptError: it reports an error, or is no such thing.
        """
        if not isinstance(event, dict):
            raise AttemptError(failures.MALFORMED, f"no chat completion but {json.dumps(event)[:80]}")
        if event.get("error"):
            raise _reported(event["error"])
        if not self.model and isinstance(event.get("model"), str):
            self.model = event["model"]
        if isinstance(event.get("usage"), dict):
            self.usage = event["usage"]
        choices = event.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and choice.get("index") in (0, None):
                self._add_choice(choice)

    def _add_choice(self, choice: Mapping[str, Any]) -> None:
        if choice.get("error"):
            raise _reported(choice["error"])
        message = choice.get("delta") or choice.get("message")
        if isinstance(message, dict):
            self.spoke = True
            for name, kept in (("content", self.pieces), ("refusal", self.refusals)):
                if message.get(name):
                    kept.append(_plain(message[name]))
            thought = message.get("reasoning_content") or message.get("reasoning")
            if thought:
                self.thinking.append(_plain(thought))
        if isinstance(choice.get("finish_reason"), str):
            self.finish_reason = choice["finish_reason"]

    def ended(self, completely: bool) -> _Answer:
        """This, if it is an answer at all.

        Args:
            completely: whether the end of the stream, or of the body, came as it should.

        Raises:
            AttemptError: it broke off, or held no choice with a message.
        """
        if self.finish_reason is None and not completely:
            raise AttemptError(failures.DROPPED, "an answer ended without a finish reason")
        if self.finish_reason in _FAILED_FINISHES:
            raise AttemptError(failures.SERVER_ERROR, f"an answer ended with {self.finish_reason!r}")
        if not self.spoke and self.finish_reason is None:
            raise AttemptError(failures.MALFORMED, "an answer without any choice that holds a message")
        return self

    @property
    def said(self) -> str:
        """All content, reasoning within it included."""
        return "".join(self.pieces)

    @property
    def thoughts(self) -> str:
        """All reasoning, wherever it stood."""
        return "".join(self.thinking)

    @property
    def finish(self) -> str:
        """stop, length or content_filter."""
        if self.refusals and not self.said.strip():
            return "content_filter"
        return _FINISHES.get((self.finish_reason or "").lower(), "stop")

    @property
    def text(self) -> str:
        """What was answered, reasoning apart; empty where the content was filtered."""
        return "" if self.finish == "content_filter" else _without_thoughts(self.said)


def _without_thoughts(said: str) -> str:
    """The content behind `</think>`, whether or not the tag was opened within it."""
    said = said.strip()
    if said.startswith("<think>"):
        return said.partition("</think>")[2].strip()
    if "</think>" in said and not said.startswith(("{", "```")):
        return said.partition("</think>")[2].strip()
    return said


def _plain(content: object) -> str:
    """Content as text, also where it comes as a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return "".join(text for text in texts if isinstance(text, str))


def _reported(error: object) -> AttemptError:
    """The failure that an answer with status 200 reports."""
    told = error if isinstance(error, dict) else {"message": error}
    limited = str(told.get("code") or told.get("status") or told.get("type")) in ("429", "rate_limit_exceeded")
    words = told.get("message") or json.dumps(told)
    return AttemptError(failures.RATE_LIMITED if limited else failures.SERVER_ERROR, f"an answer with error: {words}")


def _part(told: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = told.get(name)
    return part if isinstance(part, dict) else {}


def _count(value: object) -> int | None:
    """A number of tokens; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        return None
    return int(value)


async def _read(response: httpx2.Response) -> _Answer:
    """The answer in a response, streamed or whole.

    Raises:
        AttemptError: there is none.
    """
    if "event-stream" in response.headers.get("content-type", ""):
        return await _read_stream(response)
    body = bytearray()
    async for data in response.aiter_bytes():
        body += data
        _require_bounded(len(body))
    if body.lstrip()[:5] == b"data:":
        events = _Events()
        events.feed(bytes(body) + b"\n")
        return events.answer.ended(events.done)
    answer = _Answer()
    answer.add(_parsed(bytes(body), failures.MALFORMED))
    return answer.ended(True)


async def _read_stream(response: httpx2.Response) -> _Answer:
    events, length = _Events(), 0
    chunks = response.aiter_bytes()
    async for data in chunks:
        length += len(data)
        _require_bounded(length)
        events.feed(data)
        if events.done:
            break
    if events.done:
        await _drain(chunks)
    else:
        events.feed(b"\n", failures.DROPPED)
    return events.answer.ended(events.done)


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    """Read to the end, which must be near."""
    try:
        async with asyncio.timeout(AFTER_DONE_SECONDS):
            async for _ in chunks:
                pass
    except (TimeoutError, httpx2.HTTPError):
        return  # the answer is complete; only the connection is lost


@dataclass
class _Events:
    """Server-sent events, as far as chat completions need them."""

    answer: _Answer = field(default_factory=_Answer)
    done: bool = False
    rest: bytes = b""

    def feed(self, data: bytes, unreadable: str = failures.MALFORMED) -> None:
        """Take in bytes of the stream. `unreadable`: the failure if a line is no JSON."""
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            if self.done:
                return
            if line.startswith(b"data:"):
                line = line[5:]
            elif not line.startswith(b"{"):
                continue  # comments, blank lines, names of events
            line = line.strip()
            if line == b"[DONE]":
                self.done = True
            elif line:
                self.answer.add(_parsed(line, unreadable))


def _parsed(data: bytes, unreadable: str) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        shown = data[:2000].decode("utf-8", "replace").strip()
        raise AttemptError(unreadable, f"no JSON but {shown or 'an empty body'}") from None


def _require_bounded(length: int) -> None:
    if length > LONGEST_BODY:
        raise AttemptError(failures.MALFORMED, f"a body of more than {LONGEST_BODY} bytes")
