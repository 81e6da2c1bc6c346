"""Tagging through the real client: articles a second, and memory over time, against a server that answers at once.

    python benchmarks/tagging_throughput.py --data <folder with news/> --articles 222025 --batch 1

A second process serves the model (`tests/resources/model_server.py`, no latency). Articles are real telegraphs,
repeated with a number behind so that no two are alike, 252 a day, stored as `articles`. What is timed is the making
of all days of `tagged_articles` without Dagster: reading, prompts, cache look-up, ledger, HTTP, parsing, cache,
writing. Then all days are made once more, every answer from the cache.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil

from assets.partitioned import make_partitions
from finevolve_pipeline.graph import Graph
from finevolve_pipeline.news.clean import clean_article
from finevolve_pipeline.news.deduplicate import article_id
from finevolve_pipeline.settings import Settings, load_settings
from resources.backbones import build_backbone
from resources.table_store import TableStore

SERVER = Path(__file__).resolve().parents[1] / "tests" / "resources" / "model_server.py"
TELEGRAPHS = Path("news") / "cls_telegraph_2026-02-05_2026-04-30.jsonl.gz"
A_DAY = 252
MIB = 1 << 20


@contextmanager
def model_server() -> Iterator[tuple[str, psutil.Process]]:
    """Base URL and process of a server without latency."""
    server = subprocess.Popen([sys.executable, str(SERVER)], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield server.stdout.readline().strip(), psutil.Process(server.pid)
    finally:
        server.terminate()
        server.wait()


def settings_for(base_url: str, batch: int, concurrency: int) -> Settings:
    """Packaged settings, but for the tagger: a model on that server."""
    backbone = {
        "kind": "openai",
        "provider": "bench",
        "model": "bench",
        "context_window": 131_072,
        "max_tokens": 2000 if batch == 1 else 6000,
        "structured": "json_schema",
        "price": {"input": 0.14, "cached_input": 0.0028, "output": 0.28},
    }
    provider = {"base_url": base_url, "deployment": "benchmark", "concurrency": concurrency}
    return load_settings(
        overrides={
            "providers": {"bench": provider},
            "backbones": {"bench": backbone},
            "tagging": {"backbone": "bench", "batch": batch},
        }
    )


def texts(telegraphs: Path) -> Iterator[tuple[str, str]]:
    """Cleaned titles and bodies without end, no two alike."""
    with gzip.open(telegraphs, "rt", encoding="utf-8") as source:
        real = [json.loads(line) for line in source]
    clean = [clean_article(item["title"], item["content"]) for item in real]
    for number in count():
        title, content = clean[number % len(clean)]
        yield title, f"{content}（{number}）"


def store_articles(graph: Graph, store: TableStore, telegraphs: Path, articles: int) -> list[str]:
    """Days of `articles` with that many rows in all; their keys."""
    endless = texts(telegraphs)
    table = graph.tables["articles"]
    keys: list[str] = []
    for key in islice(table.partitions, -(-articles // A_DAY)):
        today = list(islice(endless, min(A_DAY, articles - len(keys) * A_DAY)))
        ids = [f"{key}-{n}" for n in range(len(today))]
        nothing: pd.Series[Any] = pd.Series([[] for _ in today], dtype="object")
        frame = pd.DataFrame(today, columns=["title", "content"]).assign(
            article_id=[article_id("cls", one) for one in ids],
            source="cls",
            source_id=ids,
            url="",
            published_at=pd.Timestamp(f"{key} 10:00", tz="Asia/Shanghai").as_unit("us"),
            duplicates=nothing,
            industries_given=nothing,
            importance_given=np.nan,
        )
        store.write(table, key, frame, "benchmark")
        keys.append(key)
    return keys


def timed(title: str, graph: Graph, store: TableStore, keys: list[str], server: psutil.Process) -> None:
    """Make all days, and print what it took."""
    own = psutil.Process()
    print(f"\n{title}\n{'articles':>9} {'seconds':>8} {'a second':>9} {'RSS, MiB':>9}")
    began, cpu, server_cpu = time.perf_counter(), own.cpu_times(), server.cpu_times()
    steps = {round(len(keys) * tenth / 10) for tenth in range(1, 11)}
    rows, unreadable, peak, before, last = 0, 0, 0, 0, began
    for number, made in enumerate(make_partitions(graph.tables["tagged_articles"], keys, store, lambda frame: {}), 1):
        rows += made.stored.rows
        unreadable += made.metadata["unreadable"] + made.metadata["asked_again"]
        peak = max(peak, own.memory_info().rss)
        if number in steps:
            now = time.perf_counter()
            print(
                f"{rows:9} {now - began:8.1f} {(rows - before) / (now - last):9.0f} {own.memory_info().rss / MIB:9.0f}"
            )
            before, last = rows, now
    took = time.perf_counter() - began
    spent, served = own.cpu_times(), server.cpu_times()
    client = spent.user + spent.system - cpu.user - cpu.system
    serving = served.user + served.system - server_cpu.user - server_cpu.system
    print(
        f"{rows / took:.0f} articles/s; {rows} articles in {took:.1f} s; {unreadable} asked again or unreadable; "
        f"peak RSS {peak / MIB:.0f} MiB; processor seconds: client {client:.1f}, server {serving:.1f}"
    )


def main() -> None:
    """Measure for the batch sizes named on the command line."""
    parser = argparse.ArgumentParser(description="Throughput and memory of tagging through a local model server.")
    parser.add_argument("--data", type=Path, required=True, help="folder with news/")
    parser.add_argument("--articles", type=int, default=20_000)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument(
        "--concurrency", type=int, default=8, help="of the provider; more only costs where nothing waits"
    )
    asked = parser.parse_args()
    for batch in asked.batch:
        with model_server() as (base_url, server), tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            settings = settings_for(base_url, batch, asked.concurrency)
            store = TableStore(home)
            graph = Graph(settings, settings.news.sources, build_backbone("bench", settings, home))
            keys = store_articles(graph, store, asked.data / TELEGRAPHS, asked.articles)
            timed(f"batch {batch}, asked of the server", graph, store, keys, server)
            for key in keys:
                store.path("tagged_articles", key).unlink()
            timed(f"batch {batch}, made again from the cache", graph, store, keys, server)


if __name__ == "__main__":
    main()
