"""Reading news rows: which forms of times, sources, ids and texts are understood, and which are refused."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.errors import InputError
from finevolve_pipeline.importing import Reject, RowError, RowFile, find_columns
from finevolve_pipeline.news.importing import (
    FIELDS,
    SOURCE_NAMES,
    NewsOptions,
    NewsReader,
    read_moment,
    read_news,
)
from finevolve_pipeline.official import read_news_list
from finevolve_pipeline.settings import load_settings
from finevolve_pipeline.spreadsheet import safe_cell, unsafe_cell

NOW = dt.datetime(2026, 6, 1, 12, tzinfo=SHANGHAI)


def read(path: Path, **options: object) -> tuple[pd.DataFrame, list[Reject], NewsReader]:
    reader = NewsReader(NewsOptions(NOW, **options))  # type: ignore[arg-type]
    rejects: list[Reject] = []
    frames = list(read_news(RowFile(path), reader, rejects.append))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(), rejects, reader


def lines(path: Path, *rows: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path


@pytest.mark.parametrize(
    ("written", "read_as"),
    [
        ("2025-05-30 09:31:00", "2025-05-30 09:31:00+08:00"),
        ("2025-05-30T09:31:00", "2025-05-30 09:31:00+08:00"),
        ("2025-05-30T09:31:00.250", "2025-05-30 09:31:00.250+08:00"),
        ("2025-05-30T01:31:00Z", "2025-05-30 09:31:00+08:00"),
        ("2025-05-30 03:31:00+02:00", "2025-05-30 09:31:00+08:00"),
        ("2025/5/30 9:31", "2025-05-30 09:31:00+08:00"),
        ("2025年5月30日 09:31", "2025-05-30 09:31:00+08:00"),
        ("20250530093100", "2025-05-30 09:31:00+08:00"),
        ("20250530", "2025-05-30 23:59:59+08:00"),
        ("2025-05-30", "2025-05-30 23:59:59+08:00"),
        (1748568660, "2025-05-30 09:31:00+08:00"),
        ("1748568660", "2025-05-30 09:31:00+08:00"),
        (1748568660000, "2025-05-30 09:31:00+08:00"),
        (1748568660.0, "2025-05-30 09:31:00+08:00"),
        (dt.datetime(2025, 5, 30, 9, 31), "2025-05-30 09:31:00+08:00"),
        (dt.date(2025, 5, 30), "2025-05-30 23:59:59+08:00"),
    ],
)
def test_a_time_is_understood(written: object, read_as: str) -> None:
    moment = read_moment(written, SHANGHAI)
    assert pd.Timestamp(moment.microseconds, unit="us", tz="UTC") == pd.Timestamp(read_as)


@pytest.mark.parametrize(
    "written",
    [
        "yesterday",
        "2025-13-01 00:00",
        "2025-02-30",
        "2025-05-30 24:00:00",
        "2025-W22-5",
        "12",
        True,
        [1],
        "2025-5",
    ],
)
def test_what_is_no_time_is_refused(written: object) -> None:
    with pytest.raises(RowError, match="publication time"):
        read_moment(written, SHANGHAI)


def test_time_zone_is_of_times_without_offset_only() -> None:
    tokyo = ZoneInfo("Asia/Tokyo")
    naive, aware = read_moment("2025-05-30 10:31:00", tokyo), read_moment("2025-05-30T09:31:00+08:00", tokyo)
    assert naive.microseconds == aware.microseconds
    assert (naive.naive, aware.naive) == (True, False)


def test_chinese_source_names_lead_to_the_nine_ids() -> None:
    assert set(SOURCE_NAMES.values()) == set(load_settings(overrides={}).news.sources)
    assert SOURCE_NAMES["财联社"] == "cls"


def test_a_file_in_canonical_form_lands_as_sent(tmp_path: Path) -> None:
    row = {
        "id": 17, "title": "标题", "content": "标题", "url": " https://x/1 ",
        "publish_time": "2025-01-02T03:04:05",
        "modified_at": "2025-01-02T05:00:00+08:00", "source": "财联社", "importance": "8",
    }  # fmt: skip
    frame, rejects, _ = read(lines(tmp_path / "a.jsonl", row))
    assert rejects == []
    (landed,) = frame.to_dict("records")
    assert (landed["source"], landed["source_id"], landed["url"]) == ("cls", "17", "https://x/1")
    assert (landed["title"], landed["content"], landed["importance_given"]) == ("标题", "标题", 8.0)
    assert landed["published_at"] == pd.Timestamp("2025-01-02 03:04:05", tz="Asia/Shanghai")
    assert landed["modified_at"] == pd.Timestamp("2025-01-02 05:00:00", tz="Asia/Shanghai")
    assert landed["origin"] == "file:a.jsonl"
    assert landed["industries_given"] == []


def test_csv_parquet_and_jsonl_of_the_same_rows_land_equal(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "title": "=1+1", "content": 'line\nbreak, "quotes"', "time": "2025-01-02 09:00:00",
         "source": "cls"},
        {"id": "b", "title": "", "content": "二", "time": "2025-01-03 10:00:00", "source": "sina"},
    ]  # fmt: skip
    lines(tmp_path / "n.jsonl", *rows)
    pd.DataFrame(rows).to_csv(tmp_path / "n.csv", index=False)
    pd.DataFrame(rows).assign(time=lambda f: pd.to_datetime(f["time"])).to_parquet(tmp_path / "n.parquet")
    (tmp_path / "n.csv.gz").write_bytes(gzip.compress((tmp_path / "n.csv").read_bytes()))
    frames = []
    for name in ("n.jsonl", "n.csv", "n.csv.gz", "n.parquet"):
        frame, rejects, _ = read(tmp_path / name)
        assert rejects == []
        frames.append(frame.drop(columns="origin"))
    for other in frames[1:]:
        pd.testing.assert_frame_equal(other, frames[0])


def test_without_an_id_the_digest_of_url_and_text_is_the_id(tmp_path: Path) -> None:
    same = {"source": "a", "title": "t", "url": "u", "time": "2025-01-02 09:00:00"}
    frame, _, _ = read(
        lines(tmp_path / "a.jsonl", same, same | {"time": "2025-01-03 09:00:00"}, same | {"title": "t2"})
    )
    ids = frame["source_id"].tolist()
    assert ids[0] == ids[1] != ids[2]
    assert len(ids[0]) == 32


def test_columns_and_source_map_given_by_the_user_come_first(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", {"kopf": "t", "wann": "2025-01-02 09:00", "title": "no", "source": "某报"})
    frame, rejects, _ = read(path, columns={"title": "kopf", "published_at": "wann"}, source_map={"某报": "moubao"})
    assert rejects == []
    assert frame[["title", "source"]].to_numpy().tolist() == [["t", "moubao"]]


def test_a_forced_source_overrides_the_file(tmp_path: Path) -> None:
    frame, _, _ = read(
        lines(tmp_path / "a.jsonl", {"title": "t", "time": "2025-01-02 09:00", "source": "某报"}),
        source="mine",
    )
    assert frame["source"].tolist() == ["mine"]


def test_the_first_usual_name_wins_whatever_its_case() -> None:
    found = find_columns(("Time", "Publish_Time", "TITLE"), FIELDS, {})
    assert found == {"published_at": "Publish_Time", "title": "TITLE"}


def test_an_unknown_field_and_a_bad_source_id_are_refused() -> None:
    with pytest.raises(InputError, match="--columns headline: no such field; use published_at, modified_at"):
        NewsOptions(NOW, columns={"headline": "x"})
    with pytest.raises(InputError, match="source 'A B': no source id"):
        NewsOptions(NOW, source="A B")


def test_mixed_times_and_bare_days_are_told(tmp_path: Path) -> None:
    times = ("2025-01-02 09:00:00", "2025-01-02T09:00:00+08:00", "2025-01-03")
    _, _, reader = read(lines(tmp_path / "a.jsonl", *({"title": t, "time": t, "source": "a"} for t in times)))
    assert reader.notes() == [
        "1 times have an offset and 1 have none: those were read as Asia/Shanghai (--time-zone names another)",
        "1 times are only a day: read as its last second, 23:59:59",
    ]


def test_today_without_a_time_is_not_the_future(tmp_path: Path) -> None:
    frame, rejects, _ = read(
        lines(
            tmp_path / "a.jsonl",
            *({"title": t, "time": t, "source": "a"} for t in ("2026-06-01", "2026-06-02")),
        )
    )
    assert len(frame) == 1
    assert [reject.reason for reject in rejects] == ["publication time 2026-06-02: lies in the future"]


def test_half_a_surrogate_pair_is_replaced_and_whole_ones_stay(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"source":"a","time":"2025-01-02 09:00","title":"x\\ud83d","content":"\\ud83d\\ude00"}\n')
    rows = RowFile(path)
    (frame,) = read_news(rows, NewsReader(NewsOptions(NOW)), lambda _: None)
    assert frame[["title", "content"]].to_numpy().tolist() == [["x\ufffd", "\U0001f600"]]
    assert rows.replaced == 1


def test_chunks_are_bounded_and_keep_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("finevolve_pipeline.news.importing.CHUNK_ROWS", 4)
    path = lines(
        tmp_path / "a.jsonl",
        *({"id": i, "title": "t", "time": "2025-01-02 09:00", "source": "a"} for i in range(10)),
    )
    frames = list(read_news(RowFile(path), NewsReader(NewsOptions(NOW)), lambda _: None))
    assert [len(frame) for frame in frames] == [4, 4, 2]
    assert pd.concat(frames)["source_id"].tolist() == [str(i) for i in range(10)]


def test_an_unclosed_quote_costs_its_own_row_only(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    good = "".join(f"2025-01-02 09:0{i},t{i},a\n" for i in range(1, 6))
    path.write_text('time,title,source\n2025-01-02 09:00,"never closed,a\n' + good)
    frame, rejects, _ = read(path)
    assert frame["title"].tolist() == ["t1", "t2", "t3", "t4", "t5"]
    assert rejects == [Reject(2, "a quote is opened and never closed", '2025-01-02 09:00,"never closed,a')]


def test_rows_before_a_damage_are_read(tmp_path: Path) -> None:
    rows = [{"id": i, "title": f"{i * 7919}", "time": "2025-01-02 09:00", "source": "a"} for i in range(5000)]
    data = gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode())
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(data[: len(data) // 2])
    file = RowFile(path)
    rejects: list[Reject] = []
    (frame,) = read_news(file, NewsReader(NewsOptions(NOW)), rejects.append)
    assert 1000 < len(frame) < 4999
    assert len(rejects) <= 1
    assert file.damage == "the compressed file breaks off"


def test_parquet_damaged_in_a_late_row_group_gives_the_rows_before(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    count = 6000
    titles = [f"{np.random.default_rng(i).integers(10**12)}" for i in range(count)]
    table = pa.table({"title": titles, "time": ["2025-01-02 09:00"] * count, "source": ["a"] * count})
    pq.write_table(table, path, row_group_size=2048, compression="zstd", use_dictionary=False)
    offset = pq.read_metadata(path).row_group(1).column(0).data_page_offset
    data = bytearray(path.read_bytes())
    data[offset + 60 : offset + 400] = b"\x00" * 340
    path.write_bytes(data)
    file = RowFile(path)
    (frame,) = read_news(file, NewsReader(NewsOptions(NOW)), lambda _: None)
    assert len(frame) == 2048
    assert file.damage is not None
    assert file.damage.startswith("damaged after row 2048")


@pytest.mark.parametrize(
    ("cell", "articles"),
    [
        ('["a", {"title": "b"}]', ["a", {"title": "b"}]),
        ("['a', {'title': 'b', 'url': None}]", ["a", {"title": "b", "url": None}]),
        ("", []),
        ("nan", []),
        (None, []),
        ("[]", []),
    ],
)
def test_a_news_list_is_json_or_a_python_list(cell: object, articles: list[object]) -> None:
    assert read_news_list(cell) == articles


@pytest.mark.parametrize("cell", ["{'a': 1}", "__import__('os')", "[1, 2", "[{1, 2}]", "[" * 100_000])
def test_a_news_list_of_anything_else_is_refused(cell: str) -> None:
    with pytest.raises(RowError, match="newsList"):
        read_news_list(cell)


@given(st.text(alphabet="'=+-@\t\r\n＝＠ab", max_size=6))
def test_a_guarded_cell_never_runs_and_comes_back_unchanged(text: str) -> None:
    assert safe_cell(text)[:1] not in tuple("=+-@\t\r\n＝＋－＠")
    assert unsafe_cell(safe_cell(text)) == text
