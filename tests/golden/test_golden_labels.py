"""The labelled telegraphs are well formed and still describe the real file."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import zlib
from pathlib import Path

import pytest

from finevolve_pipeline.universe import CODES

LABELS = Path(__file__).resolve().parent / "telegraph_labels.csv"
TELEGRAPHS = Path("news") / "cls_telegraph_2026-02-05_2026-04-30.jsonl.gz"
HEADER = ["id", "content_sha256", "industries", "scope", "importance"]
PER_MONTH = {"2026-02": 66, "2026-03": 67, "2026-04": 67}


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    with LABELS.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        assert reader.fieldnames == HEADER
        return list(reader)


def codes_of(row: dict[str, str]) -> list[str]:
    return row["industries"].split("|") if row["industries"] else []


def test_two_hundred_unique_sorted_ids(rows: list[dict[str, str]]) -> None:
    ids = [row["id"] for row in rows]
    assert len(ids) == len(set(ids)) == 200
    assert ids == sorted(ids)


def test_ids_come_from_the_even_half(rows: list[dict[str, str]]) -> None:
    assert [row["id"] for row in rows if zlib.crc32(row["id"].encode()) % 2] == []


def test_industries_are_of_the_universe_and_ascending(rows: list[dict[str, str]]) -> None:
    for row in rows:
        codes = codes_of(row)
        assert set(codes) <= set(CODES), row["id"]
        assert codes == sorted(set(codes)), row["id"]


def test_scope_agrees_with_industries(rows: list[dict[str, str]]) -> None:
    for row in rows:
        assert row["scope"] in {"industry", "market", "none"}, row["id"]
        assert (row["scope"] == "industry") == bool(codes_of(row)), row["id"]


def test_importance_is_an_integer_from_one_to_ten(rows: list[dict[str, str]]) -> None:
    scale = {str(step) for step in range(1, 11)}
    assert [row["id"] for row in rows if row["importance"] not in scale] == []


def test_no_text_is_checked_in(rows: list[dict[str, str]]) -> None:
    for row in rows:
        assert set(row) == set(HEADER), row["id"]
        assert len(row["content_sha256"]) == 64, row["id"]
        assert set(row["content_sha256"]) <= set("0123456789abcdef"), row["id"]


@pytest.mark.real_data
def test_sample_and_hashes_are_those_of_the_real_file(rows: list[dict[str, str]], real_data: Path) -> None:
    """The documented draw gives exactly these ids, and each text is the one that was labelled."""
    drawn: dict[str, list[tuple[str, str, str]]] = {month: [] for month in PER_MONTH}
    with gzip.open(real_data / TELEGRAPHS, "rt", encoding="utf-8") as file:
        for line in file:
            item = json.loads(line)
            if zlib.crc32(item["id"].encode()) % 2 == 0:
                rank = hashlib.sha256(f"label-v1{item['id']}".encode()).hexdigest()
                drawn[item["publish_time"][:7]].append((rank, item["id"], item["content"]))
    expected = {
        key: hashlib.sha256(content.encode()).hexdigest()
        for month, size in PER_MONTH.items()
        for _, key, content in sorted(drawn[month])[:size]
    }
    assert {row["id"]: row["content_sha256"] for row in rows} == expected
