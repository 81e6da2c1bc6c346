"""The benchmark release: layout, exact bytes, checksums, and what a kill leaves behind."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from finevolve_pipeline.errors import FinEvolveError
from finevolve_pipeline.evaluation import folders
from finevolve_pipeline.evaluation.folders import whole_folder
from finevolve_pipeline.evaluation.release import COLUMNS, export_release, news_between_cutoffs
from finevolve_pipeline.tables import TIME, Bars, BenchmarkNews, conform
from finevolve_pipeline.universe import CODES

SESSIONS = ["2025-05-30", "2025-06-03"]  # the Dragon Boat festival lies between
IDENTITY = {"version": "0.1.0", "tagger": "rules|1 <b>"}


def article(article_id: str, published: str, codes: list[str], **changes: object) -> dict[str, object]:
    return {
        "article_id": article_id,
        "source": "cls",
        "url": "",
        "title": "航运指数上涨",
        "content": "正文",
        "published_at": pd.Timestamp(published, tz="Asia/Shanghai"),
        "industries": codes,
        "scope": "industry",
        "importance": 8,
        "importance_reason": "政策",
        "topics": ["policy"],
        "rejected_industries": [],
        "tagger": "rules",
        **changes,
    }


def news(*rows: dict[str, object]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=list(BenchmarkNews.to_schema().columns)).astype({"published_at": TIME})
    return conform(frame, BenchmarkNews, "news")


def bars(session: str, codes: tuple[str, ...] = CODES) -> pd.DataFrame:
    price = np.arange(len(codes)) + 1000.25
    frame = pd.DataFrame({"session": session, "code": codes, "open": price, "high": np.nan, "low": np.nan})
    return conform(frame.assign(close=price + 1, volume=1.5e9, amount=np.nan), Bars, "bars")


DAYS = {
    "2025-05-30": news(
        article("b", "2025-05-30 09:00:05", ["801170"]),
        article("a", "2025-05-30 09:00:05", ["801170", "801780"], importance=9, source="sina|x"),
        article("c", "2025-05-30 21:00", ["801170"], title='=HYPERLINK("http://x")', content='a,"b"\nc'),
    ),
    "2025-06-01": news(article("d", "2025-06-01 12:00", ["801010"])),
    "2025-06-03": news(article("e", "2025-06-03 23:59:59", [], scope="market")),
}


def news_of_day(day: str) -> pd.DataFrame:
    return DAYS.get(day, news())


def export(target: Path) -> Path:
    export_release(target, SESSIONS, lambda s: news_between_cutoffs(s, news_of_day), bars, IDENTITY)
    return target


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text("utf-8"), newline="")))


def test_a_session_has_every_industry_with_bars_and_its_news(tmp_path: Path) -> None:
    rows = rows_of(export(tmp_path / "release") / "20250530.csv")
    assert tuple(rows[0]) == COLUMNS
    assert [row["sector"] for row in rows] == [f"{code}.SI" for code in CODES]
    transport = rows[CODES.index("801170")]
    assert transport["sector_name"] == "交通运输"
    assert (transport["open"], transport["high"], transport["close"]) == ("1011.25", "", "1012.25")
    assert (transport["volume"], transport["amount"]) == ("1500000000.0", "")
    listed = json.loads(transport["newsList"])
    assert [a["id"] for a in listed] == ["a", "c", "b"]  # importance, then newest
    assert listed[0] == {
        "id": "a",
        "source": "sina|x",
        "title": "航运指数上涨",
        "content": "正文",
        "published_at": "2025-05-30T09:00:05+08:00",
        "importance": 9,
        "importance_reason": "政策",
        "topics": ["policy"],
        "industries": ["801170.SI", "801780.SI"],
    }
    assert rows[0]["newsList"] == "[]"


def test_news_of_a_closure_stands_once_at_the_next_session(tmp_path: Path) -> None:
    rows = rows_of(export(tmp_path / "release") / "20250603.csv")
    ids = [[a["id"] for a in json.loads(row["newsList"])] for row in rows]
    assert ids[0] == ["e", "d"]
    assert ids[1:] == [["e"]] * 30  # market-wide: no industry of its own


def test_no_csv_cell_starts_a_formula(tmp_path: Path) -> None:
    for path in export(tmp_path / "release").glob("*.csv"):
        for row in rows_of(path):
            assert not any(cell.startswith(("=", "+", "-", "@")) for cell in row.values())


def test_parquet_holds_the_same_rows(tmp_path: Path) -> None:
    folder = export(tmp_path / "release")
    table = pq.read_table(folder / "benchmark.parquet").to_pylist()
    written = [row for name in ("20250530", "20250603") for row in rows_of(folder / f"{name}.csv")]
    assert len(table) == len(written) == 62
    for ours, theirs in zip(table, written, strict=True):
        assert json.loads(theirs["newsList"]) == ours["newsList"]
        assert theirs["close"] == repr(ours["close"])
        assert ours["amount"] is None


def test_checksums_cover_every_file_and_bytes_are_reproducible(tmp_path: Path) -> None:
    first, second = export(tmp_path / "one"), export(tmp_path / "two")
    listed = dict(line.split("  ")[::-1] for line in (first / "SHA256SUMS").read_text().splitlines())
    assert set(listed) == {p.name for p in first.iterdir()} - {"SHA256SUMS"}
    for name, digest in listed.items():
        assert hashlib.sha256((first / name).read_bytes()).hexdigest() == digest
    assert {p.name: p.read_bytes() for p in first.iterdir()} == {p.name: p.read_bytes() for p in second.iterdir()}


def test_the_datasheet_counts_and_cannot_be_broken_by_a_source_name(tmp_path: Path) -> None:
    text = (export(tmp_path / "release") / "DATASHEET.md").read_text("utf-8")
    assert "| sessions | 2 (2025-05-30 to 2025-06-03) |" in text
    assert "| distinct articles | 5 |" in text
    assert f"| articles counted once per industry | {4 + 1 + 31} |" in text
    assert "| first publication | 2025-05-30T09:00:05+08:00 to 2025-06-03T23:59:59+08:00 |" in text
    assert "| sina\\|x | 1 | 20.00% |" in text
    assert "rules\\|1 &lt;b>" in text
    assert "belong to the media" in text


def test_a_missing_bar_leaves_numbers_empty(tmp_path: Path) -> None:
    export_release(tmp_path / "r", SESSIONS[:1], news_of_day, lambda s: bars(s, CODES[:30]), IDENTITY)
    last = rows_of(tmp_path / "r" / "20250530.csv")[-1]
    assert (last["sector"], last["open"], last["close"]) == ("801980.SI", "", "")
    assert "| rows without a close | 1 |" in (tmp_path / "r" / "DATASHEET.md").read_text()


def test_a_failing_export_leaves_the_old_release_untouched(tmp_path: Path) -> None:
    folder = export(tmp_path / "release")
    before = {p.name: p.read_bytes() for p in folder.iterdir()}

    def broken(session: str) -> pd.DataFrame:
        raise RuntimeError(session)

    with pytest.raises(RuntimeError):
        export_release(folder, SESSIONS, broken, bars, IDENTITY)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    assert [p.name for p in tmp_path.iterdir()] == ["release"]


def write_two(target: Path, text: str) -> None:
    with whole_folder(target) as folder:
        (folder / "a").write_text(text)
        (folder / "sub").mkdir()
        (folder / "sub" / "b").write_text(text)


def content(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_folder_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool) -> None:
    if not can_exchange:
        monkeypatch.setattr(folders, "_exchange", lambda new, target: False)
    for text in ("old", "new"):
        write_two(tmp_path / "f", text)
        assert content(tmp_path / "f") == {"a": text, "sub/b": text}
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


KILLED = """
import os, signal, sys
from pathlib import Path
from finevolve_pipeline.evaluation import folders
at, target = sys.argv[1], Path(sys.argv[2])
die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
if at == "while writing":
    pass
elif at == "before the swap":
    folders._replace = die
elif at == "after the swap":
    folders.shutil.rmtree = lambda *_, **__: die()
elif at == "between the renames":
    folders._exchange = lambda new, target: False
    move = Path.rename
    folders.Path.rename = lambda self, to: die() if ".partial-" in self.name else move(self, to)
with folders.whole_folder(target) as folder:
    (folder / "a").write_text("new")
    if at == "while writing":
        die()
    (folder / "sub").mkdir()
    (folder / "sub" / "b").write_text("new")
"""


@pytest.mark.parametrize("at", ["while writing", "before the swap", "after the swap", "between the renames"])
def test_a_kill_leaves_the_old_folder_or_the_new_one(tmp_path: Path, at: str) -> None:
    target = tmp_path / "f"
    write_two(target, "old")
    child = subprocess.run([sys.executable, "-c", KILLED, at, str(target)], check=False)
    assert child.returncode == -signal.SIGKILL
    whole = {"a": "new", "sub/b": "new"} if at == "after the swap" else {"a": "old", "sub/b": "old"}
    if at != "between the renames":  # only systems without an exchanging rename have this moment
        assert content(target) == whole
    with pytest.raises(RuntimeError), whole_folder(target):  # the next writer mends, even if it fails itself
        raise RuntimeError
    assert content(target) == whole
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_another_living_writer_is_left_alone(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "f") as outer:
        (outer / "x").write_text("outer")
        write_two(tmp_path / "f", "inner")
        assert outer.exists()
        assert outer.name.startswith(f".partial-{os.getpid()}-")
    assert content(tmp_path / "f") == {"x": "outer"}


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("mine")
    with pytest.raises(FinEvolveError, match="is a file, not a folder"):
        write_two(tmp_path / "f", "new")
    assert (tmp_path / "f").read_text() == "mine"
