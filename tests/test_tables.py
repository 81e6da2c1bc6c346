"""Table contracts: what they accept, what they refuse and how they say it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from finevolve_pipeline import tables
from finevolve_pipeline.digests import digest_frame
from finevolve_pipeline.errors import TableError
from finevolve_pipeline.tables import Articles, Bars, Contract, Predictions, conform

ALL_CONTRACTS = sorted(
    (
        value
        for value in vars(tables).values()
        if isinstance(value, type) and issubclass(value, Contract) and value is not Contract
    ),
    key=lambda contract: contract.__name__,
)

BARS = pd.DataFrame(
    {
        "session": ["2025-05-30", "2025-05-30"],
        "code": ["801010", "801030"],
        "open": [10.0, np.nan],
        "high": [11.0, np.nan],
        "low": [9.0, np.nan],
        "close": [10.5, 20.0],
        "volume": [1e9, np.nan],
        "amount": [1e10, np.nan],
    }
)

ARTICLES = pd.DataFrame(
    {
        "article_id": ["a1", "a2"],
        "source": ["cls", "sina"],
        "source_id": ["1", "2"],
        "url": ["", ""],
        "title": ["标题", ""],
        "content": ["", "正文"],
        "published_at": pd.to_datetime(
            ["2025-05-30T23:59:59+08:00", "2025-05-30T16:00:00Z"], format="ISO8601", utc=True
        ),
        "origin": ["file:x", "crawl"],
        "duplicates": [["sina:9"], []],
        "industries_given": [[], []],
        "importance_given": [8.0, np.nan],
    }
)


@pytest.mark.parametrize("contract", ALL_CONTRACTS, ids=lambda contract: contract.__name__)
def test_every_column_says_what_it_means(contract: type[Contract]) -> None:
    assert [name for name, column in contract.to_schema().columns.items() if not column.description] == []


@pytest.mark.parametrize("contract", ALL_CONTRACTS, ids=lambda contract: contract.__name__)
def test_a_table_without_rows_keeps_its_types_in_parquet(contract: type[Contract], tmp_path: Path) -> None:
    nothing = tables.empty(contract)
    stored = pa.Table.from_pandas(nothing, schema=tables.arrow_schema(contract), preserve_index=False)
    pq.write_table(stored, tmp_path / "empty.parquet")
    back = conform(pd.read_parquet(tmp_path / "empty.parquet"), contract, "empty")
    pd.testing.assert_frame_equal(back, nothing)


def test_missing_numbers_stay_missing() -> None:
    kept = conform(BARS, Bars, "bars")
    assert kept["open"].isna().tolist() == [False, True]
    assert kept["close"].tolist() == [10.5, 20.0]


def test_columns_come_in_the_contracts_order_and_others_are_dropped() -> None:
    shuffled = BARS[BARS.columns[::-1]].assign(remark="x")
    assert list(conform(shuffled, Bars, "bars").columns) == list(BARS.columns)


def test_a_missing_column_is_named() -> None:
    with pytest.raises(TableError, match=r"^bars 2025-05-30: column 'close' is missing$"):
        conform(BARS.drop(columns="close"), Bars, "bars 2025-05-30")


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("close", -1.0),
        ("close", 0.0),
        ("volume", -1.0),
        ("session", "20250530"),
    ],
)
def test_a_broken_rule_names_column_value_and_row(column: str, value: object) -> None:
    broken = BARS.copy()
    broken[column] = [BARS[column].iloc[0], value]
    with pytest.raises(TableError, match=rf"^bars: column '{column}': {value} in row 1 breaks the contract"):
        conform(broken, Bars, "bars")


def test_text_where_a_number_belongs_is_refused() -> None:
    with pytest.raises(TableError, match="column 'close'"):
        conform(BARS.assign(close=["high", "low"]), Bars, "bars")


def test_an_id_may_stand_once() -> None:
    with pytest.raises(TableError, match="column 'article_id': a1"):
        conform(ARTICLES.assign(article_id="a1"), Articles, "articles")


def test_times_come_out_in_shanghai() -> None:
    times = conform(ARTICLES, Articles, "articles")["published_at"]
    assert [time.isoformat() for time in times] == ["2025-05-30T23:59:59+08:00", "2025-05-31T00:00:00+08:00"]


@pytest.mark.parametrize("score", [1.0000001, -1.0000001, np.inf])
def test_a_score_beyond_one_is_no_prediction(score: float) -> None:
    row = {
        "session": "2025-05-30",
        "experiment": "pipe-rules",
        "code": "801170",
        "horizon": 10,
        "score": score,
        "invalid_reason": "",
        "confidence": 0.5,
        "key_factor": "",
        "logic_chain": "",
        "prompt_digest": "",
        "articles": 0,
        "articles_cut": 0,
    }
    assert len(conform(pd.DataFrame([row | {"score": np.nan}]), Predictions, "predictions")) == 1
    with pytest.raises(TableError, match="column 'score'"):
        conform(pd.DataFrame([row]), Predictions, "predictions")


@pytest.mark.parametrize("duplicates", [[["sina:9"], []], [[], []]], ids=["some lists", "empty lists only"])
def test_content_digest_survives_storing(duplicates: list[list[str]], tmp_path: Path) -> None:
    before = conform(ARTICLES.assign(duplicates=duplicates), Articles, "articles")
    stored = pa.Table.from_pandas(before, schema=tables.arrow_schema(Articles), preserve_index=False)
    pq.write_table(stored, tmp_path / "articles.parquet")
    after = conform(pd.read_parquet(tmp_path / "articles.parquet"), Articles, "articles")
    assert digest_frame(after) == digest_frame(before)
