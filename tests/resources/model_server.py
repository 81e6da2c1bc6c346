"""A small OpenAI-compatible server on 127.0.0.1 that does what a test tells it, hostile things included.

In a test's own loop (`async with ModelServer() as server`), in a thread (`with running(ModelServer()) as server`),
or as a process of its own for measurements (`python tests/resources/model_server.py --latency 2 --admits 31`), which
prints its base URL and then serves until it is killed; `GET /stats` tells counts, `GET /log` each request as well.

It never judges a request: every answer follows from the prompt's digest, so that equal questions get equal answers.
A `plan` may take over single requests by giving a `Step`.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import re
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from finevolve_pipeline.llm.render import prompt_digest
from finevolve_pipeline.llm.requests import Message
from finevolve_pipeline.llm.tokens import estimate_tokens
from finevolve_pipeline.universe import CODES

REASONS = {200: "OK", 307: "Temporary Redirect", 400: "Bad Request", 429: "Too Many Requests", 500: "Server Error"}
TOPICS = ("市场情绪", "地缘政治", "政策监管", "供应链", "宏观经济")
DIMENSIONS = 8
PIECE = 40
"""Characters of a streamed piece."""
HANGS = 60.0
"""Seconds after which a hanging answer gives up."""


@dataclass(frozen=True)
class Question:
    """One request as it came in. `number` counts from 0."""

    number: int
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """The prompt; empty where the request has none."""
        return tuple(Message(one["role"], one["content"]) for one in self.body.get("messages", ()))

    @cached_property
    def digest(self) -> str:
        """The prompt's digest, as manifests show it; of the texts for `/embeddings`."""
        if "messages" in self.body:
            return prompt_digest(self.messages)
        return hashlib.sha256(json.dumps(self.body.get("input")).encode()).hexdigest()[:32]

    @cached_property
    def text(self) -> str:
        """All messages."""
        return "\n".join(message.content for message in self.messages)

    @property
    def model(self) -> str:
        """The model asked for."""
        return str(self.body.get("model", ""))

    @property
    def streams(self) -> bool:
        """Whether a stream is asked for."""
        return bool(self.body.get("stream"))

    @property
    def form(self) -> str:
        """How the answer's shape is demanded: json_schema, json_object, or none."""
        return str((self.body.get("response_format") or {}).get("type", "none"))

    @property
    def schema(self) -> Mapping[str, Any]:
        """The demanded schema, empty where the prompt alone tells."""
        return (self.body.get("response_format") or {}).get("json_schema", {}).get("schema", {})

    @property
    def wants(self) -> str:
        """Which kind of answer, by the schema's name: prediction, tags, reflection, ...; without one, by the prompt."""
        named = (self.body.get("response_format") or {}).get("json_schema", {}).get("name")
        if named:
            return str(named)
        if '"scores"' in self.text:
            return "prediction"
        return "tag_batch" if '"articles"' in self.text else "tags"


@dataclass
class Seen:
    """What the log keeps of a request. Times are seconds since the server began; `until` is 0 while it runs."""

    path: str
    digest: str
    form: str
    max_tokens: int
    began: float
    until: float = 0.0
    delivered: bool = False
    status: int = 0


Answer = Callable[[Question], str]
"""What the model says to a question."""


def default_answer(question: Question) -> str:
    """A fitting JSON answer that follows from the prompt's digest alone."""
    seed = bytes.fromhex(question.digest)
    match question.wants:
        case "prediction":
            answer: dict[str, Any] = _prediction(question, seed)
        case "tag_batch":
            answer = _tag_batch(question, seed)
        case "reflection" | "insight" as kind:
            answer = {kind: f"第{seed[0]}条教训：订单增加时利润改善。"}
        case "reasoning_items":
            item = {"title": f"策略{seed[0]}", "description": "订单", "content": "订单增加时利润改善。"}
            answer = {"items": [item] * (seed[1] % 4)}
        case "facts":
            answer = {"facts": [f"订单{one}增加" for one in seed[: seed[0] % 3]]}
        case "rule_operations" | "memory_operations" as kind:
            answer = {"operations": [{"operation": "ADD", kind.partition("_")[0]: 0, "text": f"看订单{seed[0]}"}]}
        case _:
            answer = _tags(seed)
    return json.dumps(answer, ensure_ascii=False)


def _prediction(question: Question, seed: bytes) -> dict[str, Any]:
    demanded = question.schema.get("properties", {}).get("scores", {}).get("properties", {})
    written = re.search(r'"scores":\s*\{([^}]*)\}', question.text)
    horizons = list(demanded) or re.findall(r'"(\d+)"', written.group(1) if written else "") or ["10", "20", "40"]
    scores = {horizon: round(seed[i % 16] / 127.5 - 1, 3) for i, horizon in enumerate(horizons)}
    return {"scores": scores, "confidence_score": 0.5, "key_factor": "需求", "logic_chain": "订单增加，利润改善"}


def _tags(seed: bytes) -> dict[str, Any]:
    scope = ("industry", "market", "none")[seed[0] % 3]
    industries = sorted({CODES[one % len(CODES)] for one in seed[1:3]}) if scope == "industry" else []
    return {
        "industries": industries,
        "scope": scope,
        "importance": 1 + seed[3] % 10,
        "importance_reason": "常规消息",
        "topics": [TOPICS[seed[4] % len(TOPICS)]],
    }


def _tag_batch(question: Question, seed: bytes) -> dict[str, Any]:
    demanded = question.schema.get("properties", {}).get("articles", {})
    count = demanded.get("minItems") or max(1, question.messages[-1].content.count("<<<NEWS"))
    return {"articles": [{"id": str(i + 1), **_tags(hashlib.sha256(seed + bytes([i])).digest())} for i in range(count)]}


@dataclass
class Exchange:
    """One question and the means to answer it."""

    question: Question
    answer: str
    writer: asyncio.StreamWriter
    seen: Seen
    reasoning: str = ""

    def send(self, status: int, body: bytes, kind: str = "application/json", headers: Mapping[str, str] = {}) -> None:
        """A whole response."""
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}", f"content-type: {kind}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        head = "\r\n".join([*lines, f"content-length: {len(body)}", "", ""])
        self.seen.status = status
        self.writer.write(head.encode() + body)

    def begin_stream(self) -> None:
        """The head of a streamed response."""
        self.seen.status = 200
        self.writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
        )

    def piece(self, text: str) -> None:
        """Some text of a stream."""
        data = text.encode()
        self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))

    def event(self, value: object) -> None:
        """One event of a stream."""
        self.piece(f"data: {json.dumps(value, ensure_ascii=False)}\n\n")

    def end_stream(self) -> None:
        """The end of a stream, as it should be."""
        self.writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")

    def drop(self) -> None:
        """Break the connection off."""
        self.writer.transport.abort()

    def completion(self, choices: Sequence[object], model: str | None = None, usage: object = None) -> bytes:
        """A whole chat completion."""
        whole: dict[str, object] = {"id": "c", "object": "chat.completion", "created": 1, "choices": list(choices)}
        if (model if model is not None else self.question.model) != "":
            whole["model"] = model if model is not None else self.question.model
        if usage != "none":
            whole["usage"] = usage or self.usage(self.answer)
        return json.dumps(whole, ensure_ascii=False).encode()

    def chunk(self, delta: Mapping[str, object], finish: str | None = None, model: str | None = None) -> object:
        """One chunk of a streamed chat completion."""
        return {
            "id": "c",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": model or self.question.model,
            "choices": [{"index": 0, "delta": dict(delta), "finish_reason": finish}],
        }

    def usage(self, completion: str) -> dict[str, object]:
        """Token counts as most providers give them."""
        prompt, written = estimate_tokens(self.question.text), estimate_tokens(completion)
        return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}


Step = Callable[[Exchange], Awaitable[None]]
"""How one question is answered."""
Plan = Callable[[Question], Step | None]
"""Which step answers a question; None: the ordinary one."""


def says(
    text: str | None = None,
    finish: str | None = "stop",
    *,
    model: str | None = None,
    usage: Mapping[str, object] | str | None = None,
    reasoning: str = "",
    piece: int = PIECE,
    pause: float = 0.0,
) -> Step:
    """An ordinary answer with that text (None: the default one); `usage` "none" leaves it out."""

    async def step(exchange: Exchange) -> None:
        content = exchange.answer if text is None else text
        thoughts = reasoning or exchange.reasoning
        counted = usage or exchange.usage(thoughts + content)
        if not exchange.question.streams:
            message = {"role": "assistant", "content": content} | ({"reasoning_content": thoughts} if thoughts else {})
            exchange.send(200, exchange.completion([_choice(message, finish)], model, counted))
            return
        exchange.begin_stream()
        pieces: list[Mapping[str, object]] = [
            {"reasoning_content": thoughts[i : i + piece]} for i in range(0, len(thoughts), piece)
        ]
        pieces += [{"content": content[i : i + piece]} for i in range(0, len(content), piece)]
        for one in pieces:
            exchange.event(exchange.chunk(one, None, model))
            if pause:
                await exchange.writer.drain()
                await asyncio.sleep(pause)
        exchange.event(exchange.chunk({}, finish, model))
        wanted = (exchange.question.body.get("stream_options") or {}).get("include_usage")
        if counted != "none" and wanted:
            exchange.event({"id": "c", "model": model or exchange.question.model, "choices": [], "usage": counted})
        exchange.end_stream()

    return step


def _choice(message: Mapping[str, object], finish: str | None) -> dict[str, object]:
    return {"index": 0, "message": dict(message), "finish_reason": finish}


def status(
    code: int, message: str = "no", *, headers: Mapping[str, str] = {}, error: Mapping[str, object] = {}
) -> Step:
    """An error response."""

    async def step(exchange: Exchange) -> None:
        whole = {"error": {"message": message, "type": "error", "code": str(code)} | dict(error)}
        exchange.send(code, json.dumps(whole).encode(), headers=headers)

    return step


def body(text: str, kind: str = "application/json", code: int = 200, headers: Mapping[str, str] = {}) -> Step:
    """Any body with any status."""

    async def step(exchange: Exchange) -> None:
        exchange.send(code, text.encode(), kind, headers)

    return step


def html(code: int = 200) -> Step:
    """A page of some proxy instead of an answer."""
    page = "<!DOCTYPE html><html><head><title>Gateway &amp; friends</title></head><body>" + "<p>sorry</p>" * 500
    return body(page + "</body></html>", "text/html", code)


def events(*given: object, done: bool = True) -> Step:
    """A stream of just these events; a text goes out as it is."""

    async def step(exchange: Exchange) -> None:
        exchange.begin_stream()
        for one in given:
            if isinstance(one, str):
                exchange.piece(one)
            else:
                exchange.event(one)
        if done:
            exchange.end_stream()
        else:
            exchange.writer.write(b"0\r\n\r\n")

    return step


def choices(*given: object, **more: object) -> Step:
    """A completion of just these choices, not streamed."""

    async def step(exchange: Exchange) -> None:
        exchange.send(200, exchange.completion(given, **more))  # type: ignore[arg-type]

    return step


def hangs(after: int = 0, comments: float = 0.0) -> Step:
    """Silence, after so many pieces of an answer; `comments`: with a sign of life every so many seconds."""

    async def step(exchange: Exchange) -> None:
        if after or comments:
            exchange.begin_stream()
            for i in range(after):
                exchange.event(exchange.chunk({"content": exchange.answer[i]}))
        until = time.monotonic() + HANGS
        while time.monotonic() < until:
            await asyncio.sleep(comments or HANGS)
            if comments:
                exchange.piece(": still here\n\n")
                await exchange.writer.drain()

    return step


def slow(seconds: float, every: float) -> Step:
    """An ordinary stream after so long a silence, broken by comments and blank lines only."""

    async def step(exchange: Exchange) -> None:
        exchange.begin_stream()
        signs = (": keep-alive\n\n", "\n", ":\n")
        for i in range(round(seconds / every)):
            exchange.piece(signs[i % 3])
            await exchange.writer.drain()
            await asyncio.sleep(every)
        exchange.event(exchange.chunk({"content": exchange.answer}))
        exchange.event(exchange.chunk({}, "stop"))
        exchange.end_stream()

    return step


def drops(after: int = 0, *, cleanly: bool = False) -> Step:
    """The connection breaks after so many pieces; `cleanly`: the stream just ends, unfinished."""

    async def step(exchange: Exchange) -> None:
        if after:
            exchange.begin_stream()
        for i in range(after):
            exchange.event(exchange.chunk({"content": exchange.answer[i]}))
        await exchange.writer.drain()
        await asyncio.sleep(0.01)
        if cleanly:
            exchange.writer.write(b"0\r\n\r\n")
        else:
            exchange.drop()

    return step


def echoes_authorization(code: int = 401) -> Step:
    """An error that repeats the key in several ways."""

    async def step(exchange: Exchange) -> None:
        sent = exchange.question.headers.get("authorization", "")
        key = sent.removeprefix("Bearer ")
        message = f"Incorrect API key provided: {key}. Header was Authorization: {sent}; {key[:7]}****{key[-6:]}"
        whole = {"error": {"message": message, "code": "invalid_api_key", "headers": {"authorization": sent}}}
        exchange.send(code, json.dumps(whole).encode(), headers={"x-echo": sent})

    return step


def knows_only(*forms: str, code: int = 400) -> Plan:
    """A server that refuses other answer formats than these."""

    def plan(question: Question) -> Step | None:
        if question.form == "none" or question.form in forms:
            return None
        return status(code, f"response_format type {question.form!r} is unavailable now")

    return plan


class InOrder:
    """A plan that answers the first requests by these steps (None: ordinarily), then ordinarily."""

    def __init__(self, *steps: Step | None) -> None:
        self._steps = list(steps)

    def __call__(self, question: Question) -> Step | None:
        """The next step."""
        return self._steps.pop(0) if self._steps else None


def always(step: Step) -> Plan:
    """A plan that knows one step."""
    return lambda question: step


def every(n: int, step: Step) -> Plan:
    """A plan that answers each n-th request by that step."""
    return lambda question: step if question.number % n == n - 1 else None


@dataclass
class ModelServer:
    """The server. Settings may be changed while it runs.

    Attributes:
        answer: what the model says.
        plan: which requests are answered in another way.
        latency: seconds before an answer.
        admits: requests served at a time, others get status 429; 0: any number.
        retry_after: what such an answer says about when to come again; empty: nothing.
        reasoning: thoughts before every answer.
        log: every request, in order of arrival.
    """

    answer: Answer = default_answer
    plan: Plan | None = None
    latency: float = 0.0
    admits: int = 0
    retry_after: str = ""
    reasoning: str = ""
    port: int = 0
    log: list[Seen] = field(default_factory=list)

    _server: asyncio.Server | None = None
    _serving: int = 0
    _busy: float = 0.0
    _changed: float = 0.0
    _epoch: float = field(default_factory=time.monotonic)
    _connections: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def base_url(self) -> str:
        """Where clients find it."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def delivered(self) -> list[Seen]:
        """Requests that got an answer with status 200."""
        return [one for one in self.log if one.delivered and one.status == 200]

    @property
    def busy_seconds(self) -> float:
        """Integral over time of the number of requests being served."""
        return self._busy

    def stats(self) -> dict[str, object]:
        """Counts for a benchmark; `span` is the time from the first request's arrival to the last one's end."""
        ends = [one.until for one in self.log if one.until]
        statuses: dict[str, int] = {}
        for one in self.log:
            statuses[str(one.status)] = statuses.get(str(one.status), 0) + 1
        return {
            "requests": len(self.log),
            "statuses": statuses,
            "distinct": len({one.digest for one in self.log}),
            "busy_seconds": self._busy,
            "span": max(ends) - min(one.began for one in self.log) if ends else 0.0,
        }

    async def __aenter__(self) -> ModelServer:
        """Listen."""
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", self.port, limit=1 << 22, backlog=512)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop, whatever is under way."""
        assert self._server is not None
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while await self._request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head[:-4].split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        data = await reader.readexactly(int(headers.get("content-length", 0)))
        path = first.split(" ")[1]
        if path.endswith("/stats") or path.endswith("/log"):
            shown = self.stats() | ({"log": [asdict(one) for one in self.log]} if path.endswith("/log") else {})
            Exchange(Question(0, path, headers, {}), "", writer, Seen(path, "", "", 0, 0.0)).send(
                200, json.dumps(shown).encode()
            )
            return True
        asked = json.loads(data) if data else {}
        question = Question(len(self.log), path, headers, asked)
        cap = asked.get("max_tokens") or asked.get("max_completion_tokens") or 0
        seen = Seen(path, question.digest, question.form, cap, self._now())
        self.log.append(seen)
        self._count(1)
        try:
            await self._serve(question, writer, seen)
            await writer.drain()
            seen.delivered = not writer.transport.is_closing()
        finally:
            seen.until = self._now()
            self._count(-1)
        return seen.delivered

    async def _serve(self, question: Question, writer: asyncio.StreamWriter, seen: Seen) -> None:
        if self.admits and self._serving > self.admits:
            headers = {"retry-after": self.retry_after} if self.retry_after else {}
            await status(429, "too many requests at a time", headers=headers)(Exchange(question, "", writer, seen))
            return
        if self.latency:
            await self._wait(writer)
        step = self.plan(question) if self.plan else None
        if step is None and question.path.endswith("/chat/completions"):
            step = says()
        if step is not None:
            spoken = self.answer(question) if question.messages else ""
            await step(Exchange(question, spoken, writer, seen, self.reasoning))
        elif question.path.endswith("/embeddings"):
            Exchange(question, "", writer, seen).send(200, json.dumps(embeddings(question)).encode())
        elif question.path.endswith("/models"):
            Exchange(question, "", writer, seen).send(200, b'{"object": "list", "data": [{"id": "m"}]}')
        else:
            await status(404, "no such path")(Exchange(question, "", writer, seen))

    async def _wait(self, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(self.latency)
        if writer.transport.is_closing():
            raise ConnectionResetError

    def _now(self) -> float:
        return time.monotonic() - self._epoch

    def _count(self, change: int) -> None:
        now = self._now()
        self._busy += self._serving * (now - self._changed)
        self._changed = now
        self._serving += change


def embeddings(question: Question) -> dict[str, object]:
    """Vectors that follow from the texts."""
    given = question.body.get("input", [])
    texts = [given] if isinstance(given, str) else list(given)
    length = question.body.get("dimensions") or DIMENSIONS
    data = []
    for i, text in enumerate(texts):
        seed = hashlib.shake_256(str(text).encode()).digest(length)
        data.append({"object": "embedding", "index": i, "embedding": [one / 127.5 - 1 for one in seed]})
    tokens = sum(estimate_tokens(str(text)) for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "model": question.model, "data": data, "usage": usage}


@contextmanager
def running(server: ModelServer) -> Iterator[ModelServer]:
    """The server in a thread with a loop of its own."""
    ready, loop = threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with server:
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    if not ready.wait(10):
        raise RuntimeError("the server did not start")
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


def main() -> None:
    """Serve as a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.0)
    parser.add_argument("--admits", type=int, default=0)
    parser.add_argument("--retry-after", default="")
    parser.add_argument("--reasoning", default="")
    parser.add_argument("--fail", metavar="STATUS:N", default="", help="each N-th request gets that status")
    given = parser.parse_args()
    server = ModelServer(
        latency=given.latency,
        admits=given.admits,
        retry_after=given.retry_after,
        reasoning=given.reasoning,
        port=given.port,
    )
    if given.fail:
        code, _, n = given.fail.partition(":")
        server.plan = every(int(n), status(int(code), "as told"))

    async def serve() -> None:
        async with server:
            sys.stdout.write(server.base_url + "\n")
            sys.stdout.flush()
            await asyncio.Event().wait()

    with suppress(KeyboardInterrupt):
        asyncio.run(serve())


if __name__ == "__main__":
    main()
