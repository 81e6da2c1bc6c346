"""What remembering an answer costs: `python benchmarks/answer_cache.py [--answers 120000] [--vectors 10000]`.

Fills a cache in a temporary folder with made-up predictions (scores, a key factor and a logic chain in Chinese, about
1 kB), and prints a Markdown table of times and sizes. In the same run, with the same answers: a plain SQLite table (the
JSON text by its key, no compression, no checksum, same WAL settings), and a folder with one JSON file an answer, each
written under a temporary name and renamed (no fsync, as neither SQLite does one an answer).

From disk: the cache has just been opened and the system was told to forget its files (posix_fadvise), so that nearly
every answer is read from the disk. First: just opened. Again: the same answers once more. Lookups are in random order.
Export and import run in a process of their own; its largest memory is told, interpreter and libraries included (Linux).

With `--database postgresql+psycopg2://...`, an empty database, the same answers are put there and looked up too.
"""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Protocol

import numpy as np

from finevolve_pipeline.llm.bundle import export_bundle, import_bundle
from finevolve_pipeline.llm.cache import (
    About,
    AnswerCache,
    VectorCache,
    answer_key,
    document_of,
    reply_of,
    vector_key,
)
from finevolve_pipeline.llm.requests import Call, Message, Prompt, Reply, TagRequest, Usage

LOOKUPS = 3000
DIMENSIONS = 1024
WORDS = (
    *(
        "新能源",
        "锂电",
        "半导体",
        "券商",
        "地产",
        "消费",
        "医药",
        "军工",
        "煤炭",
        "银行",
        "政策",
        "支持",
        "需求",
        "回落",
    ),
    *(
        "供应",
        "收缩",
        "景气",
        "上行",
        "板块",
        "资金",
        "流入",
        "业绩",
        "超预期",
        "低于预期",
        "风险",
        "海外",
        "降息",
        "出口",
    ),
    *("库存", "价格", "上涨", "竞争", "加剧", "订单", "增长", "估值", "修复", "短期", "中期", "分化", "压力", "缓解"),
)


class Store(Protocol):
    """Keeps answers by key."""

    def get(self, key: bytes) -> Reply | None: ...

    def put(self, key: bytes, reply: Reply, about: About) -> object: ...

    def close(self) -> None: ...


class PlainTable:
    """The bare alternative: one SQLite table of JSON texts."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute("CREATE TABLE IF NOT EXISTS answers (key BLOB PRIMARY KEY, reply BLOB)")

    def get(self, key: bytes) -> Reply | None:
        found = self._connection.execute("SELECT reply FROM answers WHERE key = ?", (key,)).fetchone()
        return reply_of(found[0]) if found else None

    def put(self, key: bytes, reply: Reply, about: About) -> object:
        return self._connection.execute("INSERT OR IGNORE INTO answers VALUES (?, ?)", (key, document_of(reply)))

    def close(self) -> None:
        self._connection.close()


class Folder:
    """The other one: a file an answer, in 256 folders."""

    def __init__(self, path: Path) -> None:
        self._path = path
        for first in range(256):
            (path / f"{first:02x}").mkdir(parents=True, exist_ok=True)

    def _file(self, key: bytes) -> str:
        name = key.hex()
        return f"{self._path}/{name[:2]}/{name}.json"

    def get(self, key: bytes) -> Reply | None:
        try:
            with open(self._file(key), "rb") as source:
                return reply_of(source.read())
        except FileNotFoundError:
            return None

    def put(self, key: bytes, reply: Reply, about: About) -> object:
        file = self._file(key)
        with open(f"{file}.partial", "wb") as sink:
            sink.write(document_of(reply))
        os.replace(f"{file}.partial", file)
        return reply

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class Figures:
    """Of one store: seconds of each operation, bytes on disk."""

    put: list[float]
    opened: float
    from_disk: list[float]
    first: list[float]
    again: list[float]
    miss: list[float]
    size: int


def made_up(number: int) -> Reply:
    """An answer like a model's."""
    dice = random.Random(number)
    answer = {
        "scores": {horizon: round(dice.uniform(-1, 1), 3) for horizon in ("10", "20", "40")},
        "confidence_score": round(dice.random(), 2),
        "key_factor": "，".join(dice.choices(WORDS, k=8)),
        "logic_chain": "。".join("".join(dice.choices(WORDS, k=9)) for _ in range(10)),
    }
    usage = Usage(1, dice.randint(8000, 26000), dice.randint(0, 8000), dice.randint(200, 1800), 0, dice.random() / 100)
    return Reply(json.dumps(answer, ensure_ascii=False), usage, "stop", {}, "model")


def about(number: int) -> About:
    """What it is for."""
    return About(
        "deepseek-v4-flash", "predict", f"2025-{1 + number % 12:02}-{1 + number % 28:02}", f"8010{number % 31:02}"
    )


def key(number: int) -> bytes:
    """Its key."""
    return hashlib.sha256(number.to_bytes(8, "little")).digest()


def timed(work: Callable[[int], object], numbers: Iterable[int]) -> list[float]:
    """Seconds of each call."""
    seconds = []
    for number in numbers:
        started = time.perf_counter()
        work(number)
        seconds.append(time.perf_counter() - started)
    return seconds


def forget(files: Iterable[Path]) -> None:
    """Drop the file system's cache of files."""
    for file in files:
        handle = os.open(file, os.O_RDONLY)
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


def size(path: Path) -> int:
    """Bytes on disk, in whole blocks."""
    files = path.rglob("*") if path.is_dir() else path.parent.glob(f"{path.name}*")
    return sum(file.stat().st_blocks * 512 for file in files if file.is_file())


def measured(make: Callable[[Path], Store], path: Path, replies: Sequence[Reply]) -> Figures:
    """Fill a store, open it anew, look up."""
    store = make(path)
    put = timed(lambda number: store.put(key(number), replies[number], about(number)), range(len(replies)))
    store.close()
    asked = random.Random(1).sample(range(len(replies)), min(LOOKUPS, len(replies)))
    forget([path] if path.is_file() else [path / key(n).hex()[:2] / f"{key(n).hex()}.json" for n in asked])
    store = make(path)
    from_disk = timed(lambda number: store.get(key(number)), asked)
    store.close()
    started = time.perf_counter()
    store = make(path)
    right = store.get(key(0)) == replies[0]
    opened = time.perf_counter() - started
    if not right:
        raise SystemExit(f"{path}: gives another answer than was put in")
    first, again = (timed(lambda number: store.get(key(number)), asked) for _ in range(2))
    miss = timed(lambda number: store.get(key(number)), range(len(replies), len(replies) + LOOKUPS))
    store.close()
    return Figures(put, opened, from_disk, first, again, miss, size(path))


def in_database(url: str, replies: Sequence[Reply]) -> str:
    """A line about the cache in a database."""
    from resources.database import Database
    from resources.postgres import PostgresDatabase

    answers = AnswerCache(PostgresDatabase(Database(url), AnswerCache.schema))
    put = timed(lambda number: answers.put(key(number), replies[number], about(number)), range(len(replies)))
    asked = random.Random(1).sample(range(len(replies)), min(LOOKUPS, len(replies)))
    hit = timed(lambda number: answers.get(key(number)), asked)
    miss = timed(lambda number: answers.get(key(number)), range(len(replies), len(replies) + LOOKUPS))
    told = f"put {spread(put)}, hit {spread(hit)}, miss {spread(miss)} ms (median / 99 %)"
    told = f"- in Postgres: {told}, {answers.size() / 1e6:,.0f} MB"
    answers.close()
    return told


def spread(seconds: Sequence[float]) -> str:
    """Median and 99th percentile in milliseconds."""
    return f"{median(seconds) * 1e3:.3f} / {quantiles(seconds, n=100)[98] * 1e3:.3f}"


def key_seconds() -> list[float]:
    """Keys of prompts of 60 kB, each another one."""
    identity = {"kind": "openai", "model": "m", "decoding": {"temperature": 1.0, "top_p": 0.95}, "max_tokens": 6000}
    schema = {"type": "object", "properties": {str(n): {"type": "number", "minimum": -1} for n in range(40)}}
    request = TagRequest("id", "cls", "", "", dt.datetime(2025, 1, 2))
    texts = ["".join(random.Random(number).choices(WORDS, k=9000))[:19_000] + "a" * 3000 for number in range(200)]
    prompts = [Prompt((Message("system", "说明" * 500), Message("user", text))) for text in texts]
    return timed(lambda number: answer_key(identity, Call(request, prompts[number]), schema), range(200))


def child(task: str, folder: Path) -> tuple[float, float]:
    """Seconds and largest megabytes of an export or import in a process of its own."""
    done = subprocess.run([sys.executable, __file__, "--child", task, str(folder)], capture_output=True, check=True)
    seconds, memory = done.stdout.split()
    return float(seconds), float(memory)


def work(task: str, folder: Path) -> None:
    """Be that process."""
    name = "there" if task == "import" else "here"
    answers = AnswerCache(folder / name / "answers.sqlite")
    vectors = VectorCache(folder / name / "vectors.sqlite")
    started = time.perf_counter()
    if task == "export":
        export_bundle(folder / "bundle.zip", answers, vectors, {})
    else:
        import_bundle(folder / "bundle.zip", answers, vectors)
    seconds = time.perf_counter() - started
    # Not ru_maxrss, which starts with the memory of the process that started this one.
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(seconds, int(peak.split()[1]) / 1024)


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--answers", type=int, default=120_000)
    arguments.add_argument("--vectors", type=int, default=10_000)
    arguments.add_argument("--database", help="URL of an empty Postgres database.")
    arguments.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.child:
        work(given.child[0], Path(given.child[1]))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        replies = [made_up(number) for number in range(given.answers)]
        ours = measured(AnswerCache, folder / "here" / "answers.sqlite", replies)
        table = measured(PlainTable, folder / "plain.sqlite", replies)
        files = measured(Folder, folder / "files", replies)
        stores = (ours, table, files)
        print(
            f"{given.answers:,} answers of {np.mean([len(document_of(one)) for one in replies[:1000]]):,.0f} bytes.\n"
        )
        print("| | answer cache | plain SQLite table | a JSON file each |\n|---|---:|---:|---:|")
        rows = {
            "put, ms (median / 99 %)": [spread(one.put) for one in stores],
            "open and first answer, ms": [f"{one.opened * 1e3:.1f}" for one in stores],
            "hit from disk, ms": [spread(one.from_disk) for one in stores],
            "hit, first, ms": [spread(one.first) for one in stores],
            "hit, again, ms": [spread(one.again) for one in stores],
            "miss, ms": [spread(one.miss) for one in stores],
            "size on disk, MB": [f"{one.size / 1e6:,.0f}" for one in stores],
        }
        for name, cells in rows.items():
            print(f"| {name} | {' | '.join(cells)} |")
        dice = np.random.default_rng(1)
        vectors = VectorCache(folder / "here" / "vectors.sqlite")
        given_vectors = {
            vector_key({}, str(number)): dice.standard_normal(DIMENSIONS, dtype=np.float32)
            for number in range(given.vectors)
        }
        keys = list(given_vectors)
        batches = [keys[start : start + 32] for start in range(0, len(keys), 32)]
        stored = timed(lambda n: vectors.put_many({one: given_vectors[one] for one in batches[n]}), range(len(batches)))
        found = timed(lambda n: vectors.get_many(batches[n]), range(len(batches)))
        vectors.close()
        exported, imported = child("export", folder), child("import", folder)
        bundle = (folder / "bundle.zip").stat().st_size
        print(f"\n- key of a prompt of 60 kB: {spread(key_seconds())} ms (median / 99 %)")
        print(f"- {given.vectors:,} vectors of {DIMENSIONS}: put {spread(stored)} ms, get {spread(found)} ms for 32")
        print(f"- bundle of all: {bundle / 1e6:,.0f} MB")
        if given.database:
            print(in_database(given.database, replies))
        for name, (seconds, memory) in (("export", exported), ("import", imported)):
            print(f"- {name}: {seconds:.1f} s, at most {memory:,.0f} MB of memory")


if __name__ == "__main__":
    main()
