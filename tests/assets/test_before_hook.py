"""What an asset does before its partitions are made: once a run, with the keys asked for, ahead of the first look."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import dagster as dg
import pandas as pd
import pytest

from assets.partitioned import Before, Presentation, table_asset
from finevolve_pipeline.errors import InputError
from finevolve_pipeline.graph import Input, Table, code_version
from finevolve_pipeline.tables import Bars
from resources.observer import Silent
from resources.table_store import TableStore

KEYS = ("2025-01-02", "2025-01-03", "2025-01-06")
TABLE = Table(
    "industry_bars",
    Bars,
    KEYS,
    lambda key, _: (Input("landing_industry_bars", key),),
    lambda key, reader: reader.read("landing_industry_bars", key),
    code_version(),
)


def land(store: TableStore, keys: Sequence[str]) -> None:
    numbers = dict.fromkeys(("open", "high", "low", "close", "volume", "amount"), 1.0)
    store.landing.merge_bars("industry_bars", pd.DataFrame([{"session": k, "code": "801080", **numbers} for k in keys]))


def run(home: Path, before: Before | None, keys: tuple[str, str]) -> dg.ExecuteInProcessResult:
    asset = table_asset(TABLE, Presentation("market", "Bars."), dg.StaticPartitionsDefinition(KEYS), [], before)
    return dg.materialize(
        [asset],
        resources={"store": TableStore(home), "observer": Silent()},
        tags={"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[1]},
    )


def test_it_is_called_once_with_all_keys_of_the_run_and_what_it_brings_is_made(tmp_path: Path) -> None:
    called: list[list[str]] = []

    def before(context: dg.AssetExecutionContext, keys: Sequence[str]) -> None:
        called.append(list(keys))
        land(TableStore(tmp_path), keys)

    assert run(tmp_path, before, (KEYS[0], KEYS[1])).success
    assert called == [list(KEYS[:2])]
    assert list(TableStore(tmp_path).partitions("industry_bars")) == list(KEYS[:2])


def test_what_it_raises_ends_the_run_before_anything_is_made(tmp_path: Path) -> None:
    def before(context: dg.AssetExecutionContext, keys: Sequence[str]) -> None:
        land(TableStore(tmp_path), keys)
        raise InputError("the source is broken")

    with pytest.raises(InputError, match="the source is broken"):
        run(tmp_path, before, (KEYS[0], KEYS[2]))
    assert list(TableStore(tmp_path).partitions("industry_bars")) == []


def test_an_asset_without_it_takes_what_has_landed(tmp_path: Path) -> None:
    land(TableStore(tmp_path), KEYS)
    assert run(tmp_path, None, (KEYS[0], KEYS[2])).success
    assert list(TableStore(tmp_path).partitions("industry_bars")) == list(KEYS)
