"""A small deterministic world for replay tests and measurements: tables in memory, settings, a model
without a model.

News windows and outcomes look like the pipeline's own; every number and text follows from the seed.
"""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from finevolve_pipeline import calendar
from finevolve_pipeline.digests import digest_frame, digest_text
from finevolve_pipeline.embedding import HashingEmbedder
from finevolve_pipeline.errors import MissingPartitionError
from finevolve_pipeline.files import files_below, object_store, read_many
from finevolve_pipeline.llm.requests import Call, PredictRequest, Reply, Usage
from finevolve_pipeline.llm.tokens import estimate_tokens
from finevolve_pipeline.replay.journal import ReplayStore
from finevolve_pipeline.replay.runner import DayDone, Parts, run
from finevolve_pipeline.settings import Experiment, Settings, load_settings
from finevolve_pipeline.tables import NewsWindow, Outcomes, conform, empty
from finevolve_pipeline.universe import CODES

WORDS = [
    "产能利用率上升",
    "政策支持力度加大",
    "订单同比增长",
    "价格连续上涨",
    "需求回暖",
    "库存下降",
    "出口管制",
    "监管趋严",
    "利润下滑",
    "新项目投产",
    "补贴退坡",
    "技术突破",
    "资金净流入",
    "限产",
    "运价走高",
    "集采降价",
    "消费复苏",
    "海外订单",
    "原材料涨价",
    "行业整合",
]


class MemoryReader:
    """Tables in memory, with the reading interface of the stored ones. Counts what is read."""

    def __init__(self, frames: dict[tuple[str, str], pd.DataFrame], digests: dict[tuple[str, str], str]) -> None:
        self.frames = frames
        self.reads: list[tuple[str, str]] = []
        self._digests = digests

    def read(self, table: str, partition: str) -> pd.DataFrame:
        self.reads.append((table, partition))
        if (table, partition) not in self.frames:
            raise MissingPartitionError(f"{table} {partition}: not stored")
        return self.frames[table, partition]

    def digest(self, table: str, partition: str) -> str | None:
        return self._digests[table, partition] if (table, partition) in self.frames else None

    def replace(self, table: str, partition: str, frame: pd.DataFrame) -> None:
        self.frames[table, partition] = frame
        self._digests[table, partition] = digest_frame(frame)


def news_windows(sessions: Sequence[dt.date], articles_a_day: int, characters: int) -> dict[str, pd.DataFrame]:
    """A five-day window a session; every calendar day has `articles_a_day` articles of 1-3 industries."""
    by_day: dict[dt.date, list[dict[str, object]]] = {}
    for day in calendar.days_between(sessions[0] - dt.timedelta(days=4), sessions[-1]):
        chance = random.Random(day.toordinal())
        by_day[day] = [_article(day, number, chance, characters) for number in range(articles_a_day)]
    windows = {}
    for session in sessions:
        rows = [row for back in range(5) for row in by_day[session - dt.timedelta(days=back)]]
        rows.sort(key=lambda row: (-row["importance"], -row["published_at"].timestamp(), row["article_id"]))
        if not rows:
            windows[session.isoformat()] = empty(NewsWindow)
            continue
        frame = pd.DataFrame(rows).assign(session=session.isoformat(), position=np.arange(len(rows)))
        windows[session.isoformat()] = conform(frame, NewsWindow, f"news_window {session}")
    return windows


def _article(day: dt.date, number: int, chance: random.Random, characters: int) -> dict[str, object]:
    words = [chance.choice(WORDS) for _ in range(max(2, characters // 6))]
    at = dt.datetime.combine(day, dt.time(chance.randrange(24), chance.randrange(60)), tzinfo=calendar.SHANGHAI)
    return {
        "article_id": digest_text(f"{day}/{number}")[:16],
        "source": chance.choice(["cls", "sina", "yicai"]),
        "title": "，".join(words[:2]),
        "content": "，".join(words) + "。",
        "published_at": pd.Timestamp(at).as_unit("us"),
        "industries": sorted(chance.sample(CODES, chance.choice([1, 1, 2, 3]))),
        "importance": chance.choice([8, 8, 9, 10]),
        "importance_reason": "影响行业盈利",
        "topics": [chance.choice(["政策", "价格", "公司"])],
    }


def outcome_tables(sessions: Sequence[dt.date], horizons: Sequence[int], seed: int = 7) -> dict[str, pd.DataFrame]:
    """`matured_alpha` of each session from random walks of 31 indices and a benchmark."""
    first = calendar.shift(sessions[0], -max(horizons))
    days = calendar.sessions_between(first, sessions[-1])
    steps = np.random.default_rng(seed).normal(0, 0.01, (len(days), len(CODES) + 1))
    closes = 1000 * np.exp(np.cumsum(steps, axis=0)).round(6)
    at = {day: row for row, day in enumerate(days)}
    tables = {}
    for session in sessions:
        parts = []
        for horizon in horizons:
            start = calendar.shift(session, -horizon)
            before, now = closes[at[start]], closes[at[session]]
            industry, market = now[:-1] / before[:-1] - 1, now[-1] / before[-1] - 1
            parts.append(
                pd.DataFrame(
                    {
                        "predicted_on": start.isoformat(),
                        "matured_on": session.isoformat(),
                        "code": list(CODES),
                        "horizon": horizon,
                        "close_from": before[:-1],
                        "close_to": now[:-1],
                        "industry_return": industry,
                        "benchmark_return": market,
                        "alpha": industry - market,
                    }
                )
            )
        tables[session.isoformat()] = conform(pd.concat(parts), Outcomes, f"matured_alpha {session}")
    return tables


def small_reader(
    sessions: Sequence[dt.date], horizons: Sequence[int], articles_a_day: int = 30, characters: int = 60
) -> MemoryReader:
    """Both tables for `sessions`."""
    frames, digests = _small_frames(tuple(sessions), tuple(horizons), articles_a_day, characters)
    return MemoryReader(dict(frames), dict(digests))


@lru_cache(maxsize=8)
def _small_frames(
    sessions: tuple[dt.date, ...], horizons: tuple[int, ...], articles_a_day: int, characters: int
) -> tuple[dict[tuple[str, str], pd.DataFrame], dict[tuple[str, str], str]]:
    frames = {("news_window", d): f for d, f in news_windows(sessions, articles_a_day, characters).items()}
    frames |= {("matured_alpha", d): f for d, f in outcome_tables(sessions, horizons).items()}
    return frames, {key: digest_frame(frame) for key, frame in frames.items()}


def small_settings(
    first: str = "2025-01-02",
    last: str = "2025-01-20",
    horizons: Sequence[int] = (1, 2, 4),
    **sections: object,
) -> Settings:
    """Packaged settings with a short window and short horizons."""
    return load_settings(
        overrides={
            "benchmark": {
                "first_session": dt.date.fromisoformat(first),
                "last_session": dt.date.fromisoformat(last),
                "horizons": list(horizons),
            },
            **sections,
        }
    )


class EchoBackbone:
    """Answers from a digest of all it is shown, so that any change of the prompt changes the scores."""

    name = "echo"

    def __init__(self) -> None:
        self.asked: list[PredictRequest] = []

    @property
    def identity(self) -> dict[str, object]:
        return {"kind": "echo", "version": 1}

    def count_tokens(self, text: str) -> int:
        return estimate_tokens(text)

    async def answer(self, call: Call) -> Reply:
        assert isinstance(call.request, PredictRequest)
        self.asked.append(call.request)
        return Reply(self.text(call.request), Usage(calls=1, prompt_tokens=100, completion_tokens=10))

    def recall(self, call: Call) -> Reply | None:
        return None

    def remember(self, call: Call, reply: Reply) -> None:
        raise AssertionError("a replay remembers nothing by itself")

    async def close(self) -> None:
        """There is no connection."""

    def text(self, request: PredictRequest) -> str:
        shown = repr((request.news.text, request.market, request.memories, request.industry))
        seed = int(digest_text(shown)[:12], 16)
        chance = random.Random(seed)
        return answer_text({h: round(chance.uniform(-1, 1), 4) for h in request.horizons}, f"因素{seed % 97}")


def answer_text(scores: dict[int, object], key_factor: str = "因素") -> str:
    """A model's answer as `llm.answers` reads it."""
    return json.dumps(
        {
            "scores": {str(horizon): score for horizon, score in scores.items()},
            "confidence_score": 0.6,
            "key_factor": key_factor,
            "logic_chain": f"{key_factor} → 盈利 → 估值",
        },
        ensure_ascii=False,
    )


def small_parts(settings: Settings | None = None, **changes: object) -> Parts:
    """All parts of a small replay."""
    settings = settings or small_settings()
    sessions, horizons = settings.benchmark.sessions, settings.benchmark.horizons
    given = {
        "reader": small_reader(sessions, horizons),
        "backbone": EchoBackbone(),
        "embedder": HashingEmbedder(256, (2, 3)),
        **changes,
    }
    return Parts(settings, **given)


def replayed(
    where: Path | ReplayStore, mechanism: str, parts: Parts, sessions: Sequence[dt.date] | None = None
) -> tuple[ReplayStore, list[DayDone]]:
    """Replay sessions (default: the whole window) into a store, or into one below a folder of this machine."""
    store, done = where if isinstance(where, ReplayStore) else ReplayStore(where), []
    wanted = parts.settings.benchmark.sessions if sessions is None else sessions
    run(Experiment(mechanism=mechanism, backbone="rules"), wanted, parts, store, done.append)
    return store, done


def contents(root: Path) -> dict[str, bytes]:
    """Every file below a folder, by relative path."""
    if object_store(root):
        names = files_below(root)
        return dict(zip(names, read_many([root / name for name in names]), strict=True))
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}
