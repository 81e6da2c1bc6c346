"""The model client against a local server: overhead, throughput, and how busy a replay keeps a provider.

    python benchmarks/model_client.py            overhead and cache, beside bare `openai` and `litellm`
    python benchmarks/model_client.py --replay   days of the real replay against a server of 2 s latency

The server is tests/resources/model_server.py in a process of its own. `litellm` is timed if it is installed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "replay"))

from replay_world import small_parts, small_reader, small_settings

from finevolve_pipeline.embedding import HashingEmbedder
from finevolve_pipeline.llm.asking import Model
from finevolve_pipeline.llm.requests import Call, PredictRequest
from finevolve_pipeline.replay.journal import ReplayStore
from finevolve_pipeline.replay.runner import DayDone, Parts, Range, replay, run
from finevolve_pipeline.settings import Experiment, Settings
from resources.backbones import build_backbone

SERVER = Path(__file__).resolve().parents[1] / "tests" / "resources" / "model_server.py"
AT_ONCE = 31
MECHANISMS = ("pipe", "mem0", "memrl")


@contextlib.contextmanager
def serving(*options: str) -> Iterator[str]:
    """A server in a process of its own; its base URL."""
    command = [sys.executable, str(SERVER), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.kill()


def statistics(base_url: str) -> dict[str, float]:
    """What the server has seen."""
    with urllib.request.urlopen(base_url.removesuffix("/v1") + "/stats") as answer:
        found: dict[str, float] = json.load(answer)
    return found


def settings_for(base_url: str, stream: bool, concurrency: int = AT_ONCE, last: str = "2025-01-20") -> Settings:
    """A small window, horizons that mature inside it, and backbones `model0`... behind the server."""
    backbones = {
        f"model{number}": {
            "kind": "openai",
            "provider": "bench",
            "model": f"m{number}",
            "context_window": 40_000,
            "max_tokens": 4000,
            "structured": "json_schema",
            "stream": stream,
            "price": {"input": 1.0, "cached_input": 0.1, "output": 2.0},
        }
        for number in range(4)
    }
    return small_settings(
        last=last,
        providers={"bench": {"base_url": base_url, "deployment": "bench", "concurrency": concurrency}},
        backbones=backbones,
        experiments={"mechanisms": list(MECHANISMS), "backbones": list(backbones)},
    )


def real_calls(settings: Settings, home: Path, count: int) -> list[Call]:
    """Prompts as the replay writes them, each of another day or sector."""
    parts = small_parts(settings, reader=_reader(settings))
    with tempfile.TemporaryDirectory() as folder:
        experiment = Experiment(mechanism="mem0", backbone="model0")
        run(experiment, settings.benchmark.sessions, parts, ReplayStore(Path(folder)), lambda day: None)
    model = Model(build_backbone("model0", settings, home), settings.prompts)
    requests: Sequence[PredictRequest] = parts.backbone.asked
    return [model.call(request) for request in requests[-count:]]


def _reader(settings: Settings) -> object:
    return small_reader(settings.benchmark.sessions, settings.benchmark.horizons, 60, 120)


async def each(calls: Sequence[Call], ask: Callable[[Call], Awaitable[object]]) -> tuple[float, float]:
    """Wall and processor milliseconds a call, `AT_ONCE` at a time."""
    waiting = list(calls)

    async def worker() -> None:
        while waiting:
            await ask(waiting.pop())

    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
    count = len(calls) / 1e3
    return (time.perf_counter() - wall) / count, (time.process_time() - cpu) / count


def bare(base_url: str, calls: Sequence[Call], stream: bool) -> tuple[float, float]:
    """`openai` called in a loop, as its documentation does."""
    import openai

    async def measure() -> tuple[float, float]:
        async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:

            async def ask(call: Call) -> None:
                messages = [message._asdict() for message in call.prompt.messages]
                if not stream:
                    await client.chat.completions.create(model="m0", messages=messages)
                    return
                async for _ in await client.chat.completions.create(model="m0", messages=messages, stream=True):
                    pass

            await each(calls[:50], ask)
            return await each(calls, ask)

    return asyncio.run(measure())


def litellm_loop(base_url: str, calls: Sequence[Call], stream: bool) -> tuple[float, float]:
    """`litellm.acompletion` in a loop."""
    import litellm

    litellm.suppress_debug_info = True

    async def ask(call: Call) -> None:
        messages = [message._asdict() for message in call.prompt.messages]
        answer = await litellm.acompletion(
            model="openai/m0", api_base=base_url, api_key="none", messages=messages, stream=stream, num_retries=0
        )
        if stream:
            async for _ in answer:
                pass

    async def measure() -> tuple[float, float]:
        await each(calls[:50], ask)
        return await each(calls, ask)

    return asyncio.run(measure())


def ours(settings: Settings, calls: Sequence[Call], home: Path) -> dict[str, tuple[float, float]]:
    """The whole backbone: key, cache, ledger, limits, request, parsing, cache; then the same from the cache."""

    async def measure() -> dict[str, tuple[float, float]]:
        backbone = build_backbone("model0", settings, home)
        await each(calls[:50], backbone.answer)
        asked = await each(calls[50:], backbone.answer)
        cached = await each(calls, backbone.answer)
        model = Model(backbone, settings.prompts)

        async def rendered(call: Call) -> object:
            assert isinstance(call.request, PredictRequest)
            return await backbone.answer(model.call(call.request))

        with_prompt = await each(calls, rendered)
        await backbone.close()
        return {"asked": asked, "cached": cached, "request to cached answer": with_prompt}

    return asyncio.run(measure())


def overhead(count: int) -> None:
    """Print milliseconds a call."""
    print(f"\n{count} prompts of the replay, {AT_ONCE} at once, milliseconds a call\n")
    print("| client | streamed | wall | processor |\n|---|---|---:|---:|")
    for stream in (False, True):
        with serving() as base_url, tempfile.TemporaryDirectory() as folder:
            settings = settings_for(base_url, stream)
            calls = real_calls(settings, Path(folder), count)
            rows = {"openai, bare": bare(base_url, calls, stream)}
            if importlib.util.find_spec("litellm"):
                rows["litellm"] = litellm_loop(base_url, calls, stream)
            rows |= {f"finevolve, {name}": found for name, found in ours(settings, calls, Path(folder)).items()}
            for name, (wall, cpu) in rows.items():
                print(f"| {name} | {'yes' if stream else 'no'} | {wall:.2f} | {cpu:.2f} |", flush=True)


def replayed_days(latency: float) -> None:
    """Print how long a day takes with one experiment, and how busy four keep the server."""
    print(f"\nServer of {latency:g} s latency, days of 31 sectors, streamed answers\n")
    print("| experiments in one process | admitted | days | seconds a day (median) | / latency | server busy |")
    print("|---:|---:|---:|---:|---:|---:|")
    for experiments in (1, 4):
        admitted = AT_ONCE * experiments
        options = ["--latency", str(latency), "--admits", str(admitted)]
        with serving(*options) as base_url, tempfile.TemporaryDirectory() as folder:
            settings = settings_for(base_url, True, admitted, last="2025-01-27")
            seconds: dict[str, list[float]] = {}
            began = time.perf_counter()

            def heard(day: DayDone, seconds: dict[str, list[float]] = seconds, began: float = began) -> None:
                seconds.setdefault(day.manifest.experiment, []).append(time.perf_counter() - began)

            chosen = [Experiment(mechanism="mem0", backbone=f"model{number}") for number in range(experiments)]
            ranges = [Range(one, settings.benchmark.sessions, _parts(settings, one, Path(folder))) for one in chosen]
            replay(ranges, ReplayStore(Path(folder) / "replay"), heard)
            seen = statistics(base_url)
            days = sorted(b - a for ends in seconds.values() for a, b in itertools.pairwise(ends))
            median = days[len(days) // 2]
            busy = seen["busy_seconds"] / (seen["span"] * admitted)
            count = len(settings.benchmark.sessions)
            print(
                f"| {experiments} | {admitted} | {count} | {median:.2f} | {median / latency:.3f} | {busy:.1%} |",
                flush=True,
            )


def _parts(settings: Settings, experiment: Experiment, home: Path) -> Parts:
    backbone = build_backbone(experiment.backbone, settings, home, experiment.key)
    return Parts(settings, _reader(settings), backbone, HashingEmbedder(1024, (2, 3)))


def main() -> None:
    """Measure and print Markdown tables."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--replay", action="store_true", help="days of a replay instead of single calls")
    arguments.add_argument("--latency", type=float, default=2.0, help="of the server, in seconds, with --replay")
    arguments.add_argument("--calls", type=int, default=600)
    given = arguments.parse_args()
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    if given.replay:
        replayed_days(given.latency)
    else:
        overhead(given.calls)


if __name__ == "__main__":
    main()
