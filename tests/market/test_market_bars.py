"""Declared units of bars become shares and yuan."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from finevolve_pipeline.errors import InputError
from finevolve_pipeline.market.bars import to_contract_units

FRAME = pd.DataFrame(
    {"code": ["801010", "801030"], "close": [10.0, 20.0], "volume": [2.0, np.nan], "amount": [3.0, np.nan]}
)


@pytest.mark.parametrize(
    ("volume_unit", "amount_unit", "volume", "amount"),
    [
        ("shares", "yuan", 2, 3),
        ("lots", "1e4-yuan", 200, 30_000),
        ("1e4-shares", "1e8-yuan", 20_000, 300_000_000),
        ("1e8-shares", "yuan", 200_000_000, 3),
    ],
)
def test_units(volume_unit: str, amount_unit: str, volume: float, amount: float) -> None:
    converted = to_contract_units(FRAME, volume_unit, amount_unit)
    assert converted.loc[0, ["volume", "amount"]].tolist() == [volume, amount]
    assert converted.loc[1, ["volume", "amount"]].isna().all()
    assert converted["close"].tolist() == [10.0, 20.0]


def test_the_given_frame_stays_as_it_is() -> None:
    before = FRAME.copy()
    to_contract_units(FRAME, "lots", "1e8-yuan")
    pd.testing.assert_frame_equal(FRAME, before)


@pytest.mark.parametrize(
    ("volume_unit", "amount_unit", "named"),
    [("hands", "yuan", "volume unit 'hands'"), ("shares", "$", "amount unit '\\$'")],
)
def test_an_unknown_unit_is_refused_with_the_known_ones(volume_unit: str, amount_unit: str, named: str) -> None:
    with pytest.raises(InputError, match=named + ".*use one of"):
        to_contract_units(FRAME, volume_unit, amount_unit)
