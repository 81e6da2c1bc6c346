"""What `finevolve import` says to bad files and arguments: each case with the exact lines it gets."""

from __future__ import annotations

import csv
import fcntl
import gzip
import io
import json
import os
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from finevolve_pipeline.cli import main
from finevolve_pipeline.importing import file_digest
from resources.landing import Landing, registered_sources

HEADER = "time,title,source\n"
GOOD = "2025-01-02 09:00,good,cls\n"
GOOD_JSON = '{"time":"2025-01-02 09:00","title":"good","source":"cls"}\n'
UNITS = [
    *("--industry-volume-unit", "shares", "--industry-amount-unit", "yuan"),
    *("--benchmark-volume-unit", "shares", "--benchmark-amount-unit", "yuan"),
]


@dataclass(frozen=True)
class Outcome:
    """Exit code and what stood on the two streams."""

    code: int
    out: str
    err: list[str]


Finevolve = Callable[..., Outcome]


@pytest.fixture
def finevolve(home: Path, capsys: pytest.CaptureFixture[str]) -> Finevolve:
    """Run `finevolve import ...` as a user would."""

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["import", *(str(argument) for argument in arguments)])
        code = ended.value.code
        captured = capsys.readouterr()
        return Outcome(code if isinstance(code, int) else 0, captured.out, captured.err.splitlines())

    return run


def truncated(text: str, keep: float) -> bytes:
    data = gzip.compress(text.encode())
    return data[: int(len(data) * keep)]


def many_rows(count: int) -> str:
    rows = ({"id": i, "title": str(i * 7919), "time": "2025-01-02 09:00", "source": "cls"} for i in range(count))
    return "".join(json.dumps(row) + "\n" for row in rows)


def parquet(**columns: list[object]) -> bytes:
    sink = io.BytesIO()
    pd.DataFrame(columns).to_parquet(sink)
    return sink.getvalue()


UNUSABLE: dict[str, tuple[str, bytes | None, str]] = {
    "missing": ("a.csv", None, "{path}: no such file"),
    "empty": ("a.csv", b"", "{path}: is empty; fetch it again"),
    "another kind": (
        "a.xlsx", b"PK", "{path}: unknown kind of file; use .jsonl or .csv (.gz may follow) or .parquet"
    ),
    "no extension": (
        "news", b"x", "{path}: unknown kind of file; use .jsonl or .csv (.gz may follow) or .parquet"
    ),
    "named gz and is none": (
        "a.csv.gz", (HEADER + GOOD).encode(),
        "{path}: is not gzip-compressed although its name ends in .gz; rename it or fetch it again",
    ),
    "gz and not named so": (
        "a.csv", gzip.compress((HEADER + GOOD).encode()), "{path}: is gzip-compressed; let its "
            "name end in .gz"
    ),
    "gzip broken off in its header": (
        "a.jsonl.gz", gzip.compress(b"x")[:8], "{path}: the compressed file breaks off; fetch it again"
    ),
    "gzip of nothing": ("a.jsonl.gz", gzip.compress(b""), "{path}: is empty; fetch it again"),
    "GBK": (
        "a.csv", "time,title,source\n2025-01-02 09:00,沪指高开,财联社\n".encode("gbk"),
        "{path}: not UTF-8 from row 2 on; repeat with --encoding gb18030",
    ),
    "no encoding at all": (
        "a.csv", HEADER.encode() + b"2025-01-02 09:00,\xff\xff,cls\n",
        "{path}: not UTF-8 from row 2 on; convert it to UTF-8 first",
    ),
    "UTF-16": (
        "a.csv", (HEADER + GOOD).encode("utf-16"),
        "{path}: is UTF-16; convert it first (iconv -f UTF-16 -t UTF-8)",
    ),
    "header only": ("a.csv", HEADER.encode(), "{path}: holds no rows; fetch it again"),
    "blank lines only": ("a.jsonl", b"\n\n", "{path}: holds no rows; fetch it again"),
    "no header": ("a.csv", b"\n2025-01-02,x\n", "{path}: has no header; the first line must "
        "name the columns"),
    "semicolons": (
        "a.csv", b"time;title;source\n2025-01-02 09:00;x;cls\n", "{path}: the separator looks like ';'; use commas"
    ),
    "tabs": (
        "a.csv", b"time\ttitle\tsource\n2025-01-02 09:00\tx\tcls\n",
        "{path}: the separator looks like a tab; use commas",
    ),
    "JSON lines named csv": (
        "a.csv", GOOD_JSON.encode(), "{path}: looks like JSON, not CSV; name it .jsonl (one object a line)"
    ),
    "a JSON array named csv": (
        "a.csv", b"[\n{}]", "{path}: looks like JSON, not CSV; name it .jsonl (one object a line)"
    ),
    "no time column": (
        "a.csv", b"title,source\nx,cls\n",
        "{path}: no column for the publication time among title, source; "
        "name it with --columns published_at=NAME",
    ),
    "no text column": (
        "a.csv", b"time,source\n2025-01-02,cls\n",
        "{path}: no column for the title or content among time, source; name it with --columns title=NAME",
    ),
    "no source column": (
        "a.csv", b"time,title\n2025-01-02,x\n",
        "{path}: no column for the source among time, title; name the source with --source ID",
    ),
    "a column twice": (
        "a.csv", b"time,title,title,source\n", "{path}: column 'title' stands twice; rename one of them"
    ),
    "parquet without the columns": (
        "a.parquet", parquet(when=["x"], title=["t"], source=["cls"]),
        "{path}: no column for the publication time among when, title, source; "
        "name it with --columns published_at=NAME",
    ),
    "parquet without rows": (
        "a.parquet", parquet(time=[], title=[], source=[]), "{path}: holds no rows; fetch it again"
    ),
    "no usable row": (
        "a.jsonl", b"{\n[1]\n",
        "{path}: no usable row of 2; the first, row 1: invalid JSON: Expecting property name "
        "enclosed in double "
        "quotes at character 2; see {rejects}",
    ),
    "a whole JSON array": (
        "a.json", b'[{"title":"x"}]', "{path}: no usable row of 1; the first, row 1: a JSON "
        "array, not an object; "
        "see {rejects}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", UNUSABLE)
def test_a_file_that_cannot_be_used_gets_one_line(case: str, finevolve: Finevolve, tmp_path: Path, home: Path) -> None:
    name, data, line = UNUSABLE[case]
    path = tmp_path / name
    if data is not None:
        path.write_bytes(data)
    outcome = finevolve("news", path)
    rejects = home / "rejects" / f"news-a-{file_digest(path)}.csv" if data is not None else None
    assert outcome.err == ["error: " + line.format(path=path, rejects=rejects)]
    assert (outcome.code, outcome.out) == (2, "")
    assert Landing(home / "landing").news_partitions() == []


BAD_JSON_ROWS: dict[str, tuple[str, str]] = {
    "broken JSON": ('{"time":,', "invalid JSON: Expecting value at character 9"),
    "NUL bytes": ("\0" * 20, "invalid JSON: Expecting value at character 1"),
    "array": ("[1, 2]", "a JSON array, not an object"),
    "text": ('"x"', "a JSON string, not an object"),
    "number": ("17", "a JSON number, not an object"),
    "null": ("null", "a JSON null, not an object"),
    "deeply nested": ("[" * 100_000, "invalid JSON: nested too deeply"),
    "number of too many digits": (
        '{"id":' + "9" * 5000 + "}",
        "invalid JSON: Exceeds the limit (4300 digits) for integer string conversion: value has 5000 digits; "
        "use sys.set_int_max_str_digits() to increase the limit",
    ),
    "no time": ('{"title":"x","source":"cls"}', "no publication time"),
    "a word as time": (
        '{"title":"x","source":"cls","time":"yesterday"}',
        "publication time 'yesterday': not a time (use 2025-05-30 09:31:00, with offset or without)",
    ),
    "no such day": (
        '{"title":"x","source":"cls","time":"2025-02-30 10:00"}',
        "publication time '2025-02-30 10:00': day is out of range for month",
    ),
    "in the future": (
        '{"title":"x","source":"cls","time":"2999-01-01 00:00:00"}',
        "publication time 2999-01-01 00:00:00: lies in the future",
    ),
    "the epoch": (
        '{"title":"x","source":"cls","time":"1970-01-01 08:00:00"}',
        "publication time 1970-01-01 08:00:00: lies before the year 2000",
    ),
    "no text": (
        '{"title":" ","content":null,"source":"cls","time":"2025-01-02"}',
        "neither title nor content",
    ),
    "list as title": ('{"title":["x"],"source":"cls","time":"2025-01-02"}', "title is a list, not text"),
    "true as content": ('{"content":true,"source":"cls","time":"2025-01-02"}', "content is a bool, not text"),
    "no source": ('{"title":"x","time":"2025-01-02"}', "no source; name it with --source ID"),
    "a source without id": (
        '{"title":"x","source":"某某日报","time":"2025-01-02"}',
        "source '某某日报': no source id; give it one with --source-map 某某日报=ID",
    ),
    "source as path": (
        '{"title":"x","source":"../../etc","time":"2025-01-02"}',
        "source '../../etc': no source id; give it one with --source-map ../../etc=ID",
    ),
    "id with control character": (
        '{"title":"x","source":"cls","time":"2025-01-02","id":"a\\u0000b"}',
        r"id 'a\x00b': holds a control character",
    ),
    "endless id": (
        '{"title":"x","source":"cls","time":"2025-01-02","id":"' + "1" * 300 + '"}',
        "id of 300 characters; 200 are allowed",
    ),
    "importance beyond the scale": (
        '{"title":"x","source":"cls","time":"2025-01-02","importance":11}',
        "importance 11: outside 1 to 10",
    ),
    "importance in words": (
        '{"title":"x","source":"cls","time":"2025-01-02","importance":"high"}',
        "importance 'high': not a number",
    ),
    "unknown modification time": (
        '{"title":"x","source":"cls","time":"2025-01-02","modified_at":"soon"}',
        "modification time 'soon': not a time (use 2025-05-30 09:31:00, with offset or without)",
    ),
}


@pytest.mark.parametrize("case", BAD_JSON_ROWS)
def test_a_bad_row_is_set_aside_and_good_rows_go_on(
    case: str, finevolve: Finevolve, tmp_path: Path, home: Path
) -> None:
    text, reason = BAD_JSON_ROWS[case]
    path = tmp_path / "a.jsonl"
    path.write_text(GOOD_JSON + text + "\n" + GOOD_JSON.replace("good", "also good"), "utf-8")
    outcome = finevolve("news", path)
    rejects = home / "rejects" / f"news-a-{file_digest(path)}.csv"
    assert outcome.err == [
        f"warning: a.jsonl row 2: {reason}",
        f"warning: a.jsonl: 1 rejected, set aside in {rejects}",
    ]
    assert outcome.code == 0
    assert outcome.out == (
        "a.jsonl: 2 items landed, 0 updated, 0 already known; 1 rejected (2025-01-02 to 2025-01-02) [cls 2]\n"
    )
    csv.field_size_limit(1 << 20)
    (header, row) = csv.reader(io.StringIO(rejects.read_text("utf-8")))
    assert header == ["file", "row", "reason", "raw"]
    assert row == ["a.jsonl", "2", reason, text.rstrip("\n")[:32_000]]


BAD_CSV_ROWS: dict[str, tuple[bytes, str]] = {
    "cells missing": (b"2025-01-02 09:00,x\n", "2 cells where the header has 3"),
    "cells too many": (b"2025-01-02 09:00,x,cls,y\n", "4 cells where the header has 3"),
    "quote never closed": (b'2025-01-02 09:00,"x,cls\n', "a quote is opened and never closed"),
    "text behind a quoted cell": (b'2025-01-02 09:00,"x"y,cls\n', "',' expected after '\"'"),
    "one wrong byte": (b"2025-01-02 09:00,\xb5,cls\n", "not UTF-8 (byte 0xb5 at 18)"),
    "formula as source": (
        b"2025-01-02 09:00,x,=cmd|' /C calc'!A0\n",
        "source \"=cmd|' /C calc'!A0\": no source id; give it one with --source-map =cmd|' /C calc'!A0=ID",
    ),
}


@pytest.mark.parametrize("case", BAD_CSV_ROWS)
def test_a_bad_csv_row_is_set_aside(case: str, finevolve: Finevolve, tmp_path: Path) -> None:
    row, reason = BAD_CSV_ROWS[case]
    path = tmp_path / "a.csv"
    other = "2025-01-02 09:01,另一条,cls\n2025-01-02 09:02,第三条,cls\n"
    path.write_bytes((HEADER + GOOD).encode() + row + other.encode())
    outcome = finevolve("news", path)
    assert outcome.err[0] == f"warning: a.csv row 3: {reason}"
    assert len(outcome.err) == 2
    assert outcome.out.startswith("a.csv: 3 items landed")
    assert outcome.code == 0


def test_no_cell_of_the_rejects_file_runs_in_a_spreadsheet(finevolve: Finevolve, tmp_path: Path, home: Path) -> None:
    path = tmp_path / "=a.csv"
    starts = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "'=1"]
    sink = io.StringIO()
    csv.writer(sink).writerows([["title", "time", "source"], *([text, "never", "cls"] for text in starts)])
    path.write_text(sink.getvalue(), newline="")
    assert finevolve("news", path).code == 2
    (rejects,) = (home / "rejects").iterdir()
    with open(rejects, newline="", encoding="utf-8") as source:
        rows = list(csv.reader(source))[1:]
    assert [row[3] for row in rows] == [f"'{text},never,cls" for text in starts]
    assert {row[0] for row in rows} == {"'=a.csv"}
    assert not any(cell[0] in "=+-@\t\r" for row in rows for cell in row)


def test_only_the_first_rejects_are_shown(finevolve: Finevolve, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(GOOD_JSON + "{\n" * 1234)
    outcome = finevolve("news", path)
    assert [line.split(":")[1] for line in outcome.err[:5]] == [f" a.jsonl row {row}" for row in range(2, 7)]
    assert len(outcome.err) == 6
    assert outcome.err[5].startswith("warning: a.jsonl: 1,234 rejected, set aside in ")


def test_a_mended_file_leaves_no_rejects_of_the_same_content_behind(
    finevolve: Finevolve, tmp_path: Path, home: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("time,title,source\n2025-01-02 09:00,x,某报\n2025-01-02 09:00,y,cls\n", "utf-8")
    finevolve("news", path)
    assert len(list((home / "rejects").iterdir())) == 1
    assert finevolve("news", path, "--source-map", "某报=moubao").err == []
    assert list((home / "rejects").iterdir()) == []


def test_a_truncated_gzip_lands_up_to_where_it_breaks_off(finevolve: Finevolve, tmp_path: Path, home: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(truncated(many_rows(5000), 0.5))
    outcome = finevolve("news", path, "--json")
    (report,) = json.loads(outcome.out)["files"]
    assert outcome.code == 1
    assert report["truncated"] is True
    assert 1000 < report["news"]["added"] < 4999
    assert outcome.err[-1] == (
        "warning: a.jsonl.gz: the compressed file breaks off; the rows before that landed, fetch the file again"
    )


def test_a_gzip_with_a_wrong_checksum_lands_and_is_told(finevolve: Finevolve, tmp_path: Path) -> None:
    text = many_rows(10)
    data = bytearray(gzip.compress(text.encode()))
    data[-8:-4] = b"\0\0\0\0"
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(data)
    outcome = finevolve("news", path)
    assert outcome.err == [
        f"warning: a.jsonl.gz: the compressed file is damaged (CRC check failed 0x0 != "
        f"{zlib.crc32(text.encode()):#x}); "
        "the rows before that landed, fetch the file again"
    ]
    assert outcome.code == 1


def test_a_line_of_a_gibibyte_is_rejected_in_little_memory(finevolve: Finevolve, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with open(path, "wb") as sink:
        sink.write(GOOD_JSON.encode())
        sink.truncate(len(GOOD_JSON) + (1 << 30))  # a hole: reads as zeros, takes no room
        sink.seek(0, os.SEEK_END)
        sink.write(b"\n" + GOOD_JSON.replace("good", "also good").encode())
    tracemalloc.start()
    try:
        outcome = finevolve("news", path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert outcome.err[0] == "warning: a.jsonl row 2: longer than 16 MiB"
    assert outcome.out.startswith("a.jsonl: 2 items landed")
    assert peak < 64 << 20


GOOD_FILES: dict[str, tuple[str, bytes, list[str], list[str]]] = {
    "CSV with BOM": ("a.csv", (HEADER + GOOD).encode("utf-8-sig"), [], []),
    "CSV with CRLF": ("a.csv", (HEADER + GOOD).replace("\n", "\r\n").encode(), [], []),
    "no newline at the end": ("a.jsonl", GOOD_JSON.strip().encode(), [], []),
    "GBK declared": (
        "a.csv", "time,title,source\n2025-01-02 09:00,沪指高开,财联社\n".encode("gbk"),
        ["--encoding", "gb18030"], [],
    ),
    "NUL in a text": ("a.jsonl", GOOD_JSON.replace("good", "go\\u0000od").encode(), [], []),
    "NaN as content": ("a.jsonl", GOOD_JSON.replace("}", ',"content":NaN}').encode(), [], []),
    "half a surrogate pair": (
        "a.jsonl", GOOD_JSON.replace("good", "x\\ud800").encode(), [],
        ["warning: a.jsonl: 1 rows hold half a surrogate pair: replaced by U+FFFD"],
    ),
    "outside the news span": (
        "a.jsonl", GOOD_JSON.replace("2025", "2019").encode(), [],
        ["warning: a.jsonl: 1 items lie outside the news span 2024-01-01 to 2026-06-01: kept, not used"],
    ),
    "a day without time": (
        "a.jsonl", GOOD_JSON.replace(" 09:00", "").encode(), [],
        ["warning: a.jsonl: 1 times are only a day: read as its last second, 23:59:59"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", GOOD_FILES)
def test_an_odd_but_good_file_lands(case: str, finevolve: Finevolve, tmp_path: Path, home: Path) -> None:
    name, data, options, warnings = GOOD_FILES[case]
    (tmp_path / name).write_bytes(data)
    outcome = finevolve("news", tmp_path / name, *options)
    assert outcome.err == warnings
    assert outcome.code == 0
    assert outcome.out.startswith(f"{name}: 1 items landed, 0 updated, 0 already known; 0 rejected (20")
    assert [source for source, _ in Landing(home / "landing").news_partitions()] == ["cls"]


def test_naive_and_mixed_time_zones_are_told(finevolve: Finevolve, tmp_path: Path, home: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(GOOD_JSON + GOOD_JSON.replace("09:00", "23:30:00Z").replace("good", "next day in Shanghai"))
    outcome = finevolve("news", path)
    assert outcome.err == [
        "warning: a.jsonl: 1 times have an offset and 1 have none: those were read as Asia/Shanghai "
        "(--time-zone names another)"
    ]
    assert Landing(home / "landing").news_partitions() == [("cls", "2025-01-02"), ("cls", "2025-01-03")]


def test_duplicate_ids_in_a_file_are_one_item_the_earliest(finevolve: Finevolve, tmp_path: Path, home: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        "id,time,title,source\n7,2025-01-03 09:00,later,cls\n7,2025-01-02 "
        "09:00,first,cls\n7,2025-01-03 09:00,later,cls\n"
    )
    outcome = finevolve("news", path)
    assert outcome.out == (
        "a.csv: 1 items landed, 0 updated, 2 already known; 0 rejected (2025-01-02 to 2025-01-03) [cls 3]\n"
    )
    landing = Landing(home / "landing")
    assert landing.news_partitions() == [("cls", "2025-01-02")]
    assert landing.read_news("cls", "2025-01-02")["title"].tolist() == ["first"]
    assert outcome.err == [
        "warning: a.csv: 2 items repeat an id of this file with another text or link: the earliest stays, "
        "at equal times the first row, first cls 7 (row 2)"
    ]


@pytest.mark.parametrize("kind", ["news", "official"])
def test_another_text_of_a_known_id_is_told_and_taken_with_replace(
    kind: str, finevolve: Finevolve, tmp_path: Path, home: Path
) -> None:
    path = tmp_path / ("20250102.csv" if kind == "official" else "a.jsonl")

    def write(*titles: str) -> None:
        articles = [
            {"id": i, "title": title, "time": "2025-01-02 09:00", "source": "cls"} for i, title in enumerate(titles)
        ]
        if kind == "official":
            official(path, ["2025-01-02", "801010", json.dumps(articles), "", "", ""])
        else:
            path.write_text("".join(json.dumps(article) + "\n" for article in articles))

    def titles() -> list[str]:
        return Landing(home / "landing").read_news("cls", "2025-01-02")["title"].tolist()

    units = ["--volume-unit", "shares"] if kind == "official" else []
    write("a", "b", "c")
    assert finevolve(kind, path, *units).err == []
    write("a", "A better text", "And another")
    outcome = finevolve(kind, path, *units)
    row = 2  # in the official layout all articles stand in the row of their sector
    assert outcome.err == [
        f"warning: {path.name}: 2 items are known under the same id with another text or link: "
        f"the known text stays, first cls 1 (row {row}); --replace takes the new one"
    ]
    assert titles() == ["a", "b", "c"]
    (file,) = json.loads(finevolve(kind, path, *units, "--json").out)["files"]
    assert (file["news"]["known"], file["news"]["contradicted"], len(file["warnings"])) == (3, 2, 1)
    (file,) = json.loads(finevolve(kind, path, *units, "--replace", "--json").out)["files"]
    assert (file["news"]["updated"], file["news"]["contradicted"], file["warnings"]) == (2, 0, [])
    assert titles() == ["a", "A better text", "And another"]
    before = landed(home)
    for again in ([], ["--replace"]):
        assert finevolve(kind, path, *units, *again).err == []
    assert landed(home) == before


def test_swapped_units_are_told_and_land_nevertheless(finevolve: Finevolve, tmp_path: Path) -> None:
    path = tmp_path / "b.csv"
    path.write_text("code,date,close,amount\n801010,2025-01-03,2893.08,121.2\n")
    outcome = finevolve("market", "--industries", path, "--industry-amount-unit", "yuan")
    assert outcome.out.startswith("b.csv: 1 bars landed")
    assert outcome.err == [
        "warning: b.csv: --industry-amount-unit yuan looks wrong: the median amount of a day is 121 yuan, "
        "for one industry 1e+07 to 2e+12 is plausible"
    ]


def test_a_new_source_is_registered(finevolve: Finevolve, tmp_path: Path, home: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(GOOD_JSON + GOOD_JSON.replace("cls", "my-feed"))
    finevolve("news", path)
    assert registered_sources(home) == ("my-feed",)


BAD_ARGUMENTS: dict[str, tuple[list[str], str]] = {
    "no file": (["news"], "Error: Missing argument 'FILES...'."),
    "columns not as pairs": (
        ["news", "good.csv", "--columns", "title"],
        "Error: Invalid value for '--columns': 'title': write NAME=VALUE[,NAME=VALUE...]",
    ),
    "unknown field": (
        ["news", "good.csv", "--columns", "headline=title"],
        "error: --columns headline: no such field; use published_at, modified_at, source, "
        "source_id, url, title, "
        "content, importance",
    ),
    "column that is not there": (
        ["news", "good.csv", "--columns", "title=kopf"],
        "error: good.csv: no column 'kopf' for title; there are time, title, source",
    ),
    "bad source id": (
        ["news", "good.csv", "--source", "My Feed"],
        "error: source 'My Feed': no source id (a letter or digit, then up to 63 of a-z 0-9 _ . -)",
    ),
    "bad mapped source id": (
        ["news", "good.csv", "--source-map", "财联社=Cls"],
        "error: source 'Cls': no source id (a letter or digit, then up to 63 of a-z 0-9 _ . -)",
    ),
    "no time zone": (
        ["news", "good.csv", "--time-zone", "Mars/Olympus"],
        "Error: Invalid value for '--time-zone': 'Mars/Olympus': no time zone (use e.g. "
        "Asia/Shanghai or UTC)",
    ),
    "unknown encoding": (
        ["news", "good.csv", "--encoding", "utf-16"],
        "Error: Invalid value for '--encoding': 'utf-16' is not one of 'utf-8', 'gb18030', 'gbk', 'big5'.",
    ),
    "a folder": (["news", "folder"], "error: folder: is a folder; name the files in it"),
    "no market file": (
        ["market"], "Error: name a file: --industries FILE, --benchmark FILE or both",
    ),
    "unknown unit": (
        ["market", "--industries", "bars.csv", "--industry-volume-unit", "pieces"],
        "Error: Invalid value for '--industry-volume-unit': 'pieces' is not one of 'shares', "
        "'lots', '1e4-shares', '1e4-lots', "
        "'1e8-shares'.",
    ),
    "undeclared units of industries": (
        ["market", "--industries", "bars.csv"],
        "error: bars.csv: units must be declared: add --industry-volume-unit "
        "shares|lots|1e4-shares|1e4-lots|1e8-shares and "
        "--industry-amount-unit yuan|1e3-yuan|1e4-yuan|1e8-yuan",
    ),
    "undeclared unit of the benchmark": (
        ["market", "--benchmark", "bars.csv", "--benchmark-volume-unit", "lots"],
        "error: bars.csv: units must be declared: add --benchmark-amount-unit yuan|1e3-yuan|1e4-yuan|1e8-yuan",
    ),
    "no close": (
        ["market", "--industries", "no-close.csv"],
        "error: no-close.csv: no column 'close' among date, code; name it close or 收盘 or 收盘价",
    ),
    "official file of another name": (
        ["official", "good.csv"],
        "error: good.csv: the official layout is one file a day named YYYYMMDD.csv; rename it",
    ),
    "official folder without files": (["official", "folder"], "error: folder: holds no file "
        "named YYYYMMDD.csv"),
    "official file of no day": (
        ["official", "20250230.csv"],
        "error: 20250230.csv: file name '20250230': not a calendar day (use YYYY-MM-DD)",
    ),
    "official without newsList": (
        ["official", "20250102.csv"], "error: 20250102.csv: no column 'newsList' among date, sector, close"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_a_bad_argument_gets_one_line(case: str, finevolve: Finevolve, tmp_path: Path, home: Path) -> None:
    arguments, line = BAD_ARGUMENTS[case]
    (tmp_path / "folder").mkdir()
    (tmp_path / "good.csv").write_text(HEADER + GOOD)
    (tmp_path / "no-close.csv").write_text("date,code\n2025-01-02,801010\n")
    (tmp_path / "bars.csv").write_text("code,date,close,volume,amount\n801010,2025-01-02,1,2,3\n")
    for name in ("20250102.csv", "20250230.csv"):
        (tmp_path / name).write_text("date,sector,close\n2025-01-02,801010,1\n")
    outcome = finevolve(*arguments)
    assert outcome.err[-1] == line
    assert outcome.code == 2
    assert not list(home.rglob("*.parquet"))


BAD_BARS: dict[str, tuple[str, str]] = {
    "a Saturday": (
        "801010,2025-01-04,1,1,1",
        "session 2025-01-04: the exchange was closed; nearest sessions are 2025-01-03 and 2025-01-06",
    ),
    "a holiday": (
        "801010,2025-01-28,1,1,1",
        "session 2025-01-28: the exchange was closed; nearest sessions are 2025-01-27 and 2025-02-05",
    ),
    "no day": ("801010,30.05.2025,1,1,1", "date '30.05.2025': not a calendar day (use YYYY-MM-DD)"),
    "no such day": ("801010,2025-02-30,1,1,1", "date '2025-02-30': day is out of range for month"),
    "empty day": ("801010,,1,1,1", "no date"),
    "an old Shenwan sector": (
        "801020,2025-01-03,1,1,1",
        "sector '801020': not one of the 31 Shenwan level-1 industries; `finevolve doctor "
        "--sectors` lists them",
    ),
    "empty sector": (",2025-01-03,1,1,1", "no sector"),
    "negative price": ("801010,2025-01-03,-5,1,1", "close -5: a price must be above 0"),
    "price of zero": ("801010,2025-01-03,0,1,1", "close 0: a price must be above 0"),
    "price in words": ("801010,2025-01-03,dear,1,1", "close 'dear': not a number"),
    "thousands separator": ('801010,2025-01-03,"2,893.08",1,1', "close '2,893.08': not a number"),
    "endless price": ("801010,2025-01-03,1e999,1,1", "close 1e999: not a finite number"),
    "infinite in words": ("801010,2025-01-03,inf,1,1", "close 'inf': not a number"),
    "negative volume": ("801010,2025-01-03,1,-1,1", "volume -1: below 0"),
    "other numbers for one bar": (
        "801010,2025-01-02,2,1,1", "801010 2025-01-02: row 2 has other numbers for it"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_BARS)
def test_a_bad_bar_is_set_aside(case: str, finevolve: Finevolve, tmp_path: Path, home: Path) -> None:
    row, reason = BAD_BARS[case]
    path = tmp_path / "bars.csv"
    path.write_text(f"code,date,close,volume,amount\n801010,2025-01-02,1,,\n{row}\n801030,2025-01-02,3,2e9,1e10\n")
    outcome = finevolve("market", "--industries", path, *UNITS)
    rejects = home / "rejects" / f"market-bars-{file_digest(path)}.csv"
    assert outcome.err == [
        f"warning: bars.csv row 3: {reason}",
        f"warning: bars.csv: 1 rejected, set aside in {rejects}",
    ]
    assert outcome.out.startswith("bars.csv: 2 bars landed")
    landed = Landing(home / "landing").read_bars("industry_bars", "2025-01-02")
    assert landed["close"].tolist() == [1.0, 3.0]
    assert landed["volume"].isna().tolist() == [True, False]


def test_an_industry_is_no_benchmark(finevolve: Finevolve, tmp_path: Path) -> None:
    path = tmp_path / "b.csv"
    path.write_text("code,date,close\n801010,2025-01-02,1\n000852,2025-01-02,1\n")
    assert finevolve("market", "--benchmark", path).err[0] == (
        "warning: b.csv row 2: index '801010': not CSI1000 (000852)"
    )


def test_a_revised_close_is_told_and_wins(finevolve: Finevolve, tmp_path: Path, home: Path) -> None:
    path = tmp_path / "b.csv"
    path.write_text("code,date,close\n801010,2025-01-03,2893.08\n")
    assert finevolve("market", "--industries", path).err == []
    path.write_text("code,date,close\n801010,2025-01-03,2893.1\n801010,2023-12-01,5\n")
    assert finevolve("market", "--industries", path).err == [
        "warning: b.csv: 1 bars lie outside the calendar table 2024–2026 (before or after): skipped",
        "warning: b.csv: revised 1 closes, first 801010 2025-01-03 close 2893.08 -> 2893.1",
    ]


OFFICIAL = "date,sector,newsList,open,close,volume\n"


def official(path: Path, *rows: list[object]) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as sink:
        sink.write(OFFICIAL)
        csv.writer(sink).writerows(rows)
    return path


def test_the_official_layout_lands_news_with_industries_and_bars(
    finevolve: Finevolve, tmp_path: Path, home: Path
) -> None:
    shared = {
        "title": "港口", "content": "吞吐量", "publish_time": "09:31", "source": "财联社", "id": 5,
        "importance": 9,
    }  # fmt: skip
    official(
        tmp_path / "20250102.csv",
        ["2025-01-02", "801170.SI", json.dumps([shared, "只有正文"], ensure_ascii=False), 10, 11, 3],
        ["20250102", "银行", str([shared]), "", "NaN", ""],
        ["", "'=Banks", "[]", "", "", ""],
    )
    (tmp_path / "notes.txt").write_text("ignored")
    outcome = finevolve("official", tmp_path, "--volume-unit", "lots")
    assert outcome.err[0] == (
        "warning: 20250102.csv row 4: sector '=Banks': not one of the 31 Shenwan level-1 industries; "
        "`finevolve doctor --sectors` lists them"
    )
    assert outcome.err[1] == ("warning: 20250102.csv: 1 times are only a day: read as its last second, 23:59:59")
    landing = Landing(home / "landing")
    assert landing.news_partitions() == [("cls", "2025-01-02"), ("official", "2025-01-02")]
    (row,) = landing.read_news("cls", "2025-01-02").to_dict("records")
    assert (list(row["industries_given"]), row["importance_given"]) == (["801170", "801780"], 9.0)
    assert row["published_at"] == pd.Timestamp("2025-01-02 09:31", tz="Asia/Shanghai")
    assert landing.read_news("official", "2025-01-02")["content"].tolist() == ["只有正文"]
    bars = landing.read_bars("industry_bars", "2025-01-02")
    assert bars[["code", "open", "close", "volume"]].to_numpy().tolist() == [["801170", 10.0, 11.0, 300.0]]
    before = {path: path.read_bytes() for path in home.rglob("*.parquet")}
    finevolve("official", tmp_path / "20250102.csv", "--volume-unit", "lots")
    assert {path: path.read_bytes() for path in home.rglob("*.parquet")} == before


def test_articles_that_list_their_industries_keep_them(finevolve: Finevolve, tmp_path: Path, home: Path) -> None:
    own = {"id": "own", "content": "x", "source": "cls", "industries": ["801010.SI", "801170.SI"]}
    market_wide = {"id": "wide", "content": "y", "source": "cls", "industries": []}
    other_scheme = {"id": "other", "content": "z", "source": "cls", "industries": ["Shipping"]}
    listed = json.dumps([own, market_wide, other_scheme])
    path = official(
        tmp_path / "20250102.csv", *(["2025-01-02", code, listed] + [""] * 3 for code in ("801010", "801780"))
    )
    assert finevolve("official", path, "--volume-unit", "shares").code == 0
    landed = Landing(home / "landing").read_news("cls", "2025-01-02").set_index("source_id")["industries_given"]
    assert {name: list(codes) for name, codes in landed.items()} == {
        "own": ["801010", "801170"],
        "wide": [],
        "other": ["801010", "801780"],
    }


def test_a_day_without_news_and_numbers_is_no_error(finevolve: Finevolve, tmp_path: Path) -> None:
    path = official(tmp_path / "20250102.csv", ["2025-01-02", "801010", "[]", "", "", ""])
    outcome = finevolve("official", path, "--volume-unit", "shares")
    assert (outcome.code, outcome.err, outcome.out) == (0, [], "20250102.csv: 0 rejected\n")


BAD_OFFICIAL: dict[str, tuple[list[object], str]] = {
    "day of another file": (
        ["2025-01-03", "801010", '["x"]', "", "", ""], "date '2025-01-03': not the day of the file's name",
    ),
    "unknown sector": (
        ["2025-01-02", "802000", '["x"]', "", "", ""],
        "sector '802000': not one of the 31 Shenwan level-1 industries; `finevolve doctor "
        "--sectors` lists them",
    ),
    "newsList no list": (["2025-01-02", "801010", "x", "", "", ""], "newsList: neither a JSON "
        "array nor a Python list"),
    "newsList an object": (["2025-01-02", "801010", "{}", "", "", ""], "newsList: a dict, not a list"),
    "newsList code": (
        ["2025-01-02", "801010", "__import__('os').getcwd()", "", "", ""],
        "newsList: neither a JSON array nor a Python list",
    ),
    "article of a number": (
        ["2025-01-02", "801010", "[3]", "", "", ""], "newsList item 1: a int, neither text nor object",
    ),
    "article without text": (
        ["2025-01-02", "801010", '[{"title": ""}]', "", "", ""], "newsList item 1: neither title nor content",
    ),
    "negative close": (
        ["2025-01-02", "801010", "[]", "", "-3", ""], "bar: close -3: a price must be above 0 "
        "(its articles landed)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_OFFICIAL)
def test_a_bad_official_row_is_set_aside(case: str, finevolve: Finevolve, tmp_path: Path) -> None:
    row, reason = BAD_OFFICIAL[case]
    path = official(tmp_path / "20250102.csv", ["2025-01-02", "801030", '["good"]', 1, 1, 1], row)
    outcome = finevolve("official", path, "--volume-unit", "shares")
    assert outcome.err[0] == f"warning: 20250102.csv row 3: {reason}"
    assert "1 items landed" in outcome.out
    assert outcome.code == 0


def test_a_weekend_file_lands_its_articles_and_no_bar(finevolve: Finevolve, tmp_path: Path, home: Path) -> None:
    path = official(tmp_path / "20250104.csv", ["2025-01-04", "801030", '["weekend"]', 1, 1, 1])
    outcome = finevolve("official", path, "--volume-unit", "shares")
    assert outcome.err[0] == (
        "warning: 20250104.csv row 2: bar: session 2025-01-04: the exchange was closed; nearest sessions are "
        "2025-01-03 and 2025-01-06 (its articles landed)"
    )
    assert Landing(home / "landing").news_partitions() == [("official", "2025-01-04")]
    assert Landing(home / "landing").bars_sessions("industry_bars") == []


def test_one_unusable_file_does_not_stop_the_others(finevolve: Finevolve, tmp_path: Path, home: Path) -> None:
    (tmp_path / "b.csv").write_text(HEADER + GOOD)
    (tmp_path / "a.csv").write_text("")
    outcome = finevolve("news", "a.csv", "b.csv", "c.csv", "--json")
    assert outcome.code == 2
    assert outcome.err == ["error: a.csv: is empty; fetch it again", "error: c.csv: no such file"]
    document = json.loads(outcome.out)
    assert document["errors"] == ["a.csv: is empty; fetch it again", "c.csv: no such file"]
    assert [file["file"] for file in document["files"]] == ["b.csv"]
    assert document["files"][0]["news"] == {
        "added": 1, "updated": 0, "known": 0, "contradicted": 0, "sources": {"cls": 1}
    }  # fmt: skip


def test_a_second_import_at_the_same_time_is_refused(finevolve: Finevolve, tmp_path: Path, home: Path) -> None:
    (tmp_path / "a.csv").write_text(HEADER + GOOD)
    (home / "landing").mkdir(parents=True)
    with open(home / "landing" / ".lock", "ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        outcome = finevolve("news", "a.csv")
    assert outcome.err == [f"error: {home / 'landing'}: another import is writing here; wait until it has ended"]
    assert outcome.code == 3


def landed(home: Path) -> dict[str, bytes]:
    return {
        path.relative_to(home).as_posix(): path.read_bytes()
        for path in sorted(home.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def test_importing_again_changes_no_byte_and_order_does_not_matter(
    finevolve: Finevolve, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "1.jsonl", tmp_path / "2.csv"
    first.write_text(many_rows(50) + GOOD_JSON)
    second.write_text("id,time,title,source\n3,2025-01-01 09:00,earlier,cls\n4,2025-01-05 09:00,later,cls\nx,,,\n")
    finevolve("news", first, second)
    before = landed(home)
    finevolve("news", first, second)
    finevolve("news", second)
    assert landed(home) == before
    monkeypatch.setenv("FINEVOLVE_HOME", str(tmp_path / "other"))
    finevolve("news", second)
    finevolve("news", first)
    assert landed(tmp_path / "other") == before


KILLED = """
import os, signal, sys
from pathlib import Path
from finevolve_pipeline import files
from finevolve_pipeline.cli import main

def attempt(home, arguments, moment=None):
    child = os.fork()
    if child == 0:
        os.environ["FINEVOLVE_HOME"] = home
        renames = 0
        replace = os.replace
        def counted(source, target):
            nonlocal renames
            renames += 1
            if renames == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            replace(source, target)
        os.replace = counted
        main(arguments)
    _, status = os.waitpid(child, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

*arguments, = sys.argv[1:]
print(attempt("calm", arguments))
for moment in (1, 2, 9, 25):
    print(attempt(f"killed-{moment}", arguments, moment), attempt(f"killed-{moment}", arguments))
"""


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--replace"]])
def test_killed_anywhere_and_repeated_equals_uninterrupted(tmp_path: Path, home: Path, options: list[str]) -> None:
    rows = [
        json.dumps({"id": i % 70, "title": f"t{i}", "time": f"2025-01-{28 - i % 27:02d} 09:00", "source": "my-feed"})
        for i in range(90)
    ]
    (tmp_path / "a.jsonl").write_text("\n".join([*rows, "bad row"]))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-c", KILLED, "import", "news", "a.jsonl", *options],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    results = [line for line in done.stdout.splitlines() if not line.startswith("a.jsonl")]
    assert results == ["0", *["9 0"] * 4]
    calm = landed(tmp_path / "calm")
    assert len(calm) == 27 + 2
    for moment in (1, 2, 9, 25):
        assert landed(tmp_path / f"killed-{moment}") == calm


@pytest.mark.slow
@pytest.mark.real_data
def test_real_news_and_closes_land_whole_by_one_line_each(finevolve: Finevolve, real_data: Path, home: Path) -> None:
    telegraphs, titles = sorted((real_data / "news").iterdir())
    documents = [
        json.loads(finevolve(*arguments, "--json").out)["files"]
        for arguments in (
            ["news", telegraphs],
            ["news", titles],
            [
                *("market", "--industries", real_data / "market" / "shenwan_l1_daily.csv"),
                *("--industry-volume-unit", "1e8-shares", "--industry-amount-unit", "1e8-yuan"),
                *("--benchmark", real_data / "market" / "csi1000_daily.csv"),
                *("--benchmark-volume-unit", "shares", "--benchmark-amount-unit", "yuan"),
            ],
        )
    ]
    (telegraph,), (title,), (industry, benchmark) = documents
    sources = {"cls": 33_390}
    assert telegraph["news"] == {"added": 33_390, "updated": 0, "known": 0, "contradicted": 0, "sources": sources}
    assert title["news"]["contradicted"] == 0
    assert not any("looks wrong" in warning for file in (industry, benchmark) for warning in file["warnings"])
    assert sum(title["news"]["sources"].values()) == 63_859
    assert (title["news"]["added"], title["news"]["known"]) == (63_857, 2)  # two titles stand twice
    assert [file["rejected"] for files in documents for file in files] == [0, 0, 0, 0]
    assert (industry["bars"]["added"], industry["beyond_calendar"]) == (18_042, 651)
    assert (benchmark["bars"]["added"], benchmark["beyond_calendar"]) == (624, 21)
    assert registered_sources(home) == ("eastmoney-hot-topic", "toutiao-hot-finance", "xueqiu-hot-topic")
    landing = Landing(home / "landing")
    closes_only = landing.read_bars("industry_bars", "2026-03-19")
    assert closes_only["close"].notna().all()
    assert closes_only[["open", "volume", "amount"]].isna().all(axis=None)
    assert landing.read_bars("benchmark_bars", "2025-05-30")["volume"].iloc[0] > 1e9
    assert landing.read_bars("industry_bars", "2025-05-30")["volume"].sum() > 1e10
