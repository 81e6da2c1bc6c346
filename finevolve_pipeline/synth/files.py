"""Writes a world as files that the ordinary importers read, and its truth beside them.

The market files carry the units that real ones come in: industries in 1e8 shares and 1e8 yuan, the benchmark
in shares and yuan.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from finevolve_pipeline.files import write_atomically
from finevolve_pipeline.market.bars import AMOUNT_UNITS, VOLUME_UNITS
from finevolve_pipeline.synth.world import SynthWorld
from finevolve_pipeline.universe import INDUSTRIES


class Units(NamedTuple):
    """Units of volume and amount in a market file, as the importer names them."""

    volume: str
    amount: str


INDUSTRY_UNITS = Units("1e8-shares", "1e8-yuan")
BENCHMARK_UNITS = Units("shares", "yuan")

_NEWS_FIELDS = ["source", "source_id", "url", "title", "content", "published_at"]
_BAR_FIELDS = ["date", "open", "high", "low", "close", "volume", "amount"]


@dataclass(frozen=True)
class WorldFiles:
    """Where a written world lies."""

    news: Path
    industries: Path
    benchmark: Path
    truth: Path


def write_world(world: SynthWorld, folder: Path) -> WorldFiles:
    """Writes `news.jsonl.gz`, `industries.csv`, `benchmark.csv` and `truth.json` to `folder`.

    Equal worlds give equal bytes. Files of an earlier world in the folder are replaced.
    """
    files = WorldFiles(
        news=folder / "news.jsonl.gz",
        industries=folder / "industries.csv",
        benchmark=folder / "benchmark.csv",
        truth=folder / "truth.json",
    )
    names = {industry.code: industry.name_zh for industry in INDUSTRIES}
    named = world.industry_bars.assign(name=world.industry_bars["code"].map(names))
    write_atomically(files.news, gzip.compress(_news_lines(world.news), compresslevel=6, mtime=0))
    write_atomically(files.industries, _bars_csv(named, ["code", "name", *_BAR_FIELDS], INDUSTRY_UNITS))
    write_atomically(files.benchmark, _bars_csv(world.benchmark_bars, _BAR_FIELDS, BENCHMARK_UNITS))
    write_atomically(files.truth, _truth_json(world))
    return files


def _news_lines(news: pd.DataFrame) -> bytes:
    columns = [
        [time.isoformat() for time in news[name]] if name == "published_at" else news[name].tolist()
        for name in _NEWS_FIELDS
    ]
    lines = [
        json.dumps(dict(zip(_NEWS_FIELDS, row, strict=True)), ensure_ascii=False) for row in zip(*columns, strict=True)
    ]
    return ("\n".join(lines) + "\n").encode()


def _bars_csv(bars: pd.DataFrame, columns: list[str], units: Units) -> bytes:
    rows = bars.rename(columns={"session": "date"}).assign(
        volume=bars["volume"] / VOLUME_UNITS[units.volume], amount=bars["amount"] / AMOUNT_UNITS[units.amount]
    )
    return str(rows[columns].to_csv(index=False, lineterminator="\n")).encode()


def _truth_json(world: SynthWorld) -> bytes:
    truth = world.truth
    impact = truth.impact.round({"tone": 6, "impact": 8})
    sessions = [
        {
            "session": session,
            "regime": rows["regime"].iloc[0],
            "tone": dict(zip(rows["code"], rows["tone"], strict=True)),
            "impact": dict(zip(rows["code"], rows["impact"], strict=True)),
        }
        for session, rows in impact.groupby("session")
    ]
    document = {
        "settings": asdict(world.settings),
        "turns": world.settings.turn_sessions,
        "sessions": sessions,
        "copies": truth.copies.to_dict("records"),
        "stories": truth.stories.to_dict("records"),
    }
    return json.dumps(document, ensure_ascii=False, default=str).encode()
