"""The table store: contracts held, content digests, atomic replacement, clear errors."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from finevolve_pipeline import tables
from finevolve_pipeline.errors import MissingPartitionError, TableError
from finevolve_pipeline.graph import Table
from resources.table_store import TableStore

BARS = Table("industry_bars", tables.Bars, ("2025-01-02",), lambda *_: (), lambda *_: pd.DataFrame(), "v1")


def bars(close: float = 100.0) -> pd.DataFrame:
    row = {"session": "2025-01-02", "code": "801010", "open": 99.0, "high": 101.0, "low": 98.0}
    return pd.DataFrame([{**row, "close": close, "volume": 1e9, "amount": float("nan")}])


@pytest.fixture
def store(anywhere: Path) -> TableStore:
    return TableStore(anywhere)


def test_what_is_written_is_read_back_with_missing_numbers_kept(store: TableStore) -> None:
    store.write(BARS, "2025-01-02", bars(), "recipe")
    found = store.read("industry_bars", "2025-01-02")
    pd.testing.assert_frame_equal(found, tables.conform(bars(), tables.Bars, "test"))
    assert found["amount"].isna().all()


def test_the_digest_is_of_the_content_and_not_of_the_recipe(store: TableStore) -> None:
    first = store.write(BARS, "2025-01-02", bars(), "recipe one")
    again = store.write(BARS, "2025-01-02", bars(), "recipe two")
    other = store.write(BARS, "2025-01-02", bars(100.01), "recipe two")
    assert first.digest == again.digest != other.digest
    assert store.stored("industry_bars", "2025-01-02") == other


def test_times_come_back_in_shanghai(store: TableStore) -> None:
    table = Table("raw_news", tables.RawNews, (), lambda *_: (), lambda *_: pd.DataFrame(), "v1")
    row = {
        "source": "cls",
        "source_id": "1",
        "url": "",
        "title": "t",
        "content": "c",
        "published_at": pd.Timestamp("2025-01-02 23:59:59", tz="Asia/Shanghai"),
        "modified_at": pd.NaT,
        "crawled_at": pd.NaT,
        "origin": "file:x",
        "industries_given": [],
        "importance_given": float("nan"),
    }
    store.write(table, "2025-01-02|cls", pd.DataFrame([row]), "r")
    found = store.read("raw_news", "2025-01-02|cls")["published_at"]
    assert found.dt.tz is not None
    assert found.iloc[0].isoformat() == "2025-01-02T23:59:59+08:00"
    assert list(store.partitions("raw_news")) == ["2025-01-02|cls"]


def test_a_frame_that_breaks_its_contract_leaves_the_old_partition(store: TableStore) -> None:
    before = store.write(BARS, "2025-01-02", bars(), "r")
    with pytest.raises(TableError, match=r"industry_bars 2025-01-02: column 'close'.*-1"):
        store.write(BARS, "2025-01-02", bars(-1.0), "r")
    assert store.stored("industry_bars", "2025-01-02") == before


def test_a_missing_partition_says_what_makes_it(store: TableStore) -> None:
    with pytest.raises(MissingPartitionError, match=r"industry_bars 2025-01-02: .*finevolve run"):
        store.read("industry_bars", "2025-01-02")
    assert store.digest("industry_bars", "2025-01-02") is None


def test_a_broken_file_is_named_with_its_remedy(store: TableStore) -> None:
    store.write(BARS, "2025-01-02", bars(), "r")
    path = store.path("industry_bars", "2025-01-02")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(TableError, match=r"2025-01-02\.parquet: not readable .*delete it and run again"):
        store.stored("industry_bars", "2025-01-02")


def test_some_columns_come_in_the_order_asked_for_as_in_the_whole(store: TableStore) -> None:
    store.write(BARS, "2025-01-02", bars(), "r")
    found = store.read_columns("industry_bars", "2025-01-02", ["close", "code"])
    assert list(found.columns) == ["close", "code"]
    pd.testing.assert_frame_equal(found, store.read("industry_bars", "2025-01-02")[["close", "code"]])
    with pytest.raises(MissingPartitionError, match=r"industry_bars 2025-01-03"):
        store.read_columns("industry_bars", "2025-01-03", ["close"])


def test_a_table_of_another_version_is_named_with_its_remedy(
    store: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write(BARS, "2025-01-02", bars(), "r")
    monkeypatch.setitem(tables.CONTRACTS, "industry_bars", tables.Comparison)
    with pytest.raises(TableError, match=r"other columns than industry_bars has now.*`finevolve run` makes it again"):
        store.read("industry_bars", "2025-01-02")
