"""The benchmark release: the dataset in the paper's layout of daily `YYYYMMDD.csv` files, and as parquet.

One row per session and industry: bars, and `newsList`, the articles of that industry that became observable
since the previous session's cutoff, so that no article stands in two sessions of one industry. Bytes depend
on content only: the same tables give the same files.

What lives here: layout, checksums, datasheet. What must not: selection of news (see `news`), scores.
"""

from __future__ import annotations

import csv
import datetime as dt
import hashlib
import io
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from finevolve_pipeline import calendar
from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.digests import digest_text
from finevolve_pipeline.evaluation.folders import whole_folder
from finevolve_pipeline.spreadsheet import safe_cell
from finevolve_pipeline.universe import INDUSTRIES, Industry

TableOf = Callable[[str], pd.DataFrame]
"""Gives a partition's table: of a session, or of a calendar day, by its ISO date."""

BAR_COLUMNS = ("open", "high", "low", "close", "volume", "amount")
COLUMNS = ("date", "sector", "sector_name", "newsList", *BAR_COLUMNS)
PARQUET = "benchmark.parquet"
CHECKSUMS = "SHA256SUMS"
DATASHEET = "DATASHEET.md"

_ARTICLE = pa.struct(
    [
        ("id", pa.string()),
        ("source", pa.string()),
        ("title", pa.string()),
        ("content", pa.string()),
        ("published_at", pa.string()),
        ("importance", pa.int8()),
        ("importance_reason", pa.string()),
        ("topics", pa.list_(pa.string())),
        ("industries", pa.list_(pa.string())),
    ]
)
_SCHEMA = pa.schema(
    [
        ("date", pa.string()),
        ("sector", pa.string()),
        ("sector_name", pa.string()),
        ("newsList", pa.list_(_ARTICLE)),
        *((name, pa.float64()) for name in BAR_COLUMNS),
    ]
)


@dataclass(frozen=True)
class ReleaseFiles:
    """What was written: the folder, file names in order, digest of all contents, and counts."""

    folder: Path
    names: tuple[str, ...]
    digest: str
    sessions: int
    rows: int
    articles: int


@dataclass
class _Counts:
    """What the datasheet says, gathered while the sessions pass by."""

    rows: int = 0
    closes_missing: int = 0
    volumes_missing: int = 0
    mentions: int = 0
    articles: dict[str, str] = field(default_factory=dict)
    importance: Counter[int] = field(default_factory=Counter)
    first_published: str = ""
    last_published: str = ""

    def add_article(self, article: Mapping[str, Any]) -> None:
        self.mentions += 1
        if article["id"] in self.articles:
            return
        self.articles[article["id"]] = article["source"]
        self.importance[article["importance"]] += 1
        stamp = article["published_at"]
        self.first_published = min(self.first_published or stamp, stamp)
        self.last_published = max(self.last_published, stamp)


def news_between_cutoffs(session: str, news_of_day: TableOf) -> pd.DataFrame:
    """Articles that became observable between the previous session's cutoff and this session's.

    Args:
        session: ISO session.
        news_of_day: gives `BenchmarkNews` of an ISO calendar day.
    """
    day = dt.date.fromisoformat(session)
    before = calendar.shift(day, -1)
    days = calendar.days_between(before + dt.timedelta(days=1), day)
    return pd.concat([news_of_day(each.isoformat()) for each in days], ignore_index=True)


def export_release(
    target: Path,
    sessions: Sequence[str],
    news_of_session: TableOf,
    bars_of_session: TableOf,
    identity: Mapping[str, str],
) -> ReleaseFiles:
    """Write the release of `sessions` as one folder; an older one there is replaced as a whole.

    Args:
        target: the folder to write.
        sessions: ISO sessions, ascending; one file each.
        news_of_session: articles new at a session (see `news_between_cutoffs`): article_id, source, title,
            content, published_at, importance, importance_reason, topics, industries. One without industries
            is market-wide and stands with every industry.
        bars_of_session: `Bars` of a session; an industry without a bar gets empty numbers.
        identity: what made the dataset (versions, settings digest …), printed in the datasheet.

    Sessions pass by one at a time, so memory holds one session and the ids of all articles.
    """
    counts = _Counts()
    with whole_folder(target) as folder:
        with pq.ParquetWriter(folder / PARQUET, _SCHEMA, compression="zstd") as parquet:
            for session in sessions:
                rows = _rows_of_session(session, news_of_session(session), bars_of_session(session))
                _count(rows, counts)
                (folder / f"{session.replace('-', '')}.csv").write_text(_csv(rows), "utf-8", newline="")
                parquet.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA))
        (folder / DATASHEET).write_text(_datasheet(sessions, counts, identity), "utf-8", newline="")
        names = tuple(sorted(path.name for path in folder.iterdir()))
        checksums = _checksums(folder, names)
        (folder / CHECKSUMS).write_text(checksums, "utf-8", newline="")
    return ReleaseFiles(
        folder=target,
        names=(*names, CHECKSUMS),
        digest=digest_text(checksums),
        sessions=len(sessions),
        rows=counts.rows,
        articles=len(counts.articles),
    )


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [dict(zip(frame.columns, row, strict=True)) for row in frame.itertuples(index=False, name=None)]


def _rows_of_session(session: str, news: pd.DataFrame, bars: pd.DataFrame) -> list[dict[str, Any]]:
    articles = [_article(row) for row in _records(news)]
    articles.sort(key=lambda article: article["id"])
    articles.sort(key=lambda article: (article["importance"], article["published_at"]), reverse=True)
    by_code = {row["code"]: row for row in _records(bars)}
    return [_row(session, industry, articles, by_code.get(industry.code, {})) for industry in INDUSTRIES]


def _row(
    session: str, industry: Industry, articles: Iterable[Mapping[str, Any]], bar: Mapping[str, float]
) -> dict[str, Any]:
    sector = f"{industry.code}.SI"
    return {
        "date": session,
        "sector": sector,
        "sector_name": industry.name_zh,
        "newsList": [a for a in articles if not a["industries"] or sector in a["industries"]],
        **{name: _number(bar.get(name, math.nan)) for name in BAR_COLUMNS},
    }


def _article(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": row["article_id"],
        "source": row["source"],
        "title": row["title"],
        "content": row["content"],
        "published_at": row["published_at"].astimezone(SHANGHAI).isoformat(timespec="seconds"),
        "importance": int(row["importance"]),
        "importance_reason": row["importance_reason"],
        "topics": list(row["topics"]),
        "industries": [f"{code}.SI" for code in row["industries"]],
    }


def _number(value: float) -> float | None:
    return None if pd.isna(value) else float(value)


def _count(rows: Iterable[Mapping[str, Any]], counts: _Counts) -> None:
    for row in rows:
        counts.rows += 1
        counts.closes_missing += row["close"] is None
        counts.volumes_missing += row["volume"] is None
        for article in row["newsList"]:
            counts.add_article(article)


def _csv(rows: Iterable[Mapping[str, Any]]) -> str:
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        news = json.dumps(row["newsList"], ensure_ascii=False, separators=(",", ":"))
        texts = (row["date"], row["sector"], row["sector_name"], news)
        numbers = ("" if row[name] is None else repr(row[name]) for name in BAR_COLUMNS)
        writer.writerow([*map(safe_cell, texts), *numbers])
    return sink.getvalue()


def _checksums(folder: Path, names: Iterable[str]) -> str:
    lines = []
    for name in names:
        with open(folder / name, "rb") as source:
            lines.append(f"{hashlib.file_digest(source, 'sha256').hexdigest()}  {name}\n")
    return "".join(lines)


def _datasheet(sessions: Sequence[str], counts: _Counts, identity: Mapping[str, str]) -> str:
    span = f"{sessions[0]} to {sessions[-1]}" if sessions else "none"
    published = f"{counts.first_published} to {counts.last_published}" if counts.articles else "none"
    sources = Counter(counts.articles.values())
    total = max(1, len(counts.articles))
    lines = [
        "# Datasheet",
        "",
        "Financial news and daily bars of the 31 Shenwan level-1 industries in the layout of FinEvolveBench",
        "(arXiv 2606.06960), built by finevolve-pipeline.",
        "",
        "## Counts",
        "",
        "| what | value |",
        "|---|---|",
        f"| sessions | {len(sessions)} ({span}) |",
        f"| rows (session x industry) | {counts.rows} |",
        f"| distinct articles | {len(counts.articles)} |",
        f"| articles counted once per industry | {counts.mentions} |",
        f"| first publication | {published} |",
        f"| rows without a close | {counts.closes_missing} |",
        f"| rows without a volume | {counts.volumes_missing} |",
        "",
        "## Sources",
        "",
        "| source | articles | share |",
        "|---|---:|---:|",
        *(
            f"| {_cell(source)} | {number} | {number / total:.2%} |"
            for source, number in sorted(sources.items(), key=lambda item: (-item[1], item[0]))
        ),
        "",
        "## Importance",
        "",
        "| importance | articles |",
        "|---:|---:|",
        *(f"| {importance} | {number} |" for importance, number in sorted(counts.importance.items())),
        "",
        *_FIELDS,
        "",
        "## What made it",
        "",
        "| what | value |",
        "|---|---|",
        *(f"| {_cell(name)} | {_cell(value)} |" for name, value in identity.items()),
        "",
        *_LICENCE,
    ]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


_FIELDS = (
    "## Files and fields",
    "",
    f"One `YYYYMMDD.csv` per session (UTF-8, comma, line feed), all sessions in `{PARQUET}`, digests in",
    f"`{CHECKSUMS}` (`sha256sum -c {CHECKSUMS}`). `finevolve import official FOLDER --volume-unit shares",
    "--amount-unit yuan` brings the folder into another home.",
    "",
    "| field | unit | meaning |",
    "|---|---|---|",
    "| date | | session, YYYY-MM-DD, Shanghai exchange |",
    "| sector | | industry code, e.g. 801170.SI |",
    "| sector_name | | the industry's Chinese name |",
    "| newsList | | JSON list of articles, most important and newest first; [] if none |",
    "| open, high, low, close | index points | missing values are empty, never filled in |",
    "| volume | shares | missing values are empty |",
    "| amount | yuan | missing values are empty |",
    "",
    "Each article: `id`, `source`, `title`, `content`, `published_at` (ISO 8601 with +08:00), `importance`",
    "(1-10), `importance_reason`, `topics`, `industries` (codes). It stands in the first session whose 24:00",
    "cutoff (Asia/Shanghai) lies after its publication. A text cell that a spreadsheet would run as a",
    "formula (leading = + - @) has an apostrophe in front in the CSV files; parquet holds the plain text.",
)

_LICENCE = (
    "## Licence",
    "",
    "News texts belong to the media that published them; this folder grants no right to them, and passing",
    "them on needs their leave. Index values are facts published by the index provider. Industries,",
    "importance and topics were assigned by this project's tagger and are no statement of the media.",
)
