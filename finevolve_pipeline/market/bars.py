"""Units of daily bars: sources disagree, the `Bars` contract stores shares and yuan."""

from __future__ import annotations

import pandas as pd

from finevolve_pipeline.errors import InputError

VOLUME_UNITS: dict[str, float] = {"shares": 1.0, "lots": 100.0, "1e4-shares": 1e4, "1e4-lots": 1e6, "1e8-shares": 1e8}
"""Shares in one unit of volume. A lot (shou) is 100 shares; 1e8-shares is the yi of Chinese vendors."""

AMOUNT_UNITS: dict[str, float] = {"yuan": 1.0, "1e3-yuan": 1e3, "1e4-yuan": 1e4, "1e8-yuan": 1e8}
"""Yuan in one unit of turnover."""


def _factor(units: dict[str, float], unit: str, what: str) -> float:
    if unit not in units:
        raise InputError(f"{what} unit {unit!r}: unknown; use one of {', '.join(units)}")
    return units[unit]


def to_contract_units(frame: pd.DataFrame, volume_unit: str, amount_unit: str) -> pd.DataFrame:
    """The frame with `volume` in shares and `amount` in yuan; everything else, NaN included, as it was.

    Args:
        frame: rows with float columns `volume` and `amount`.
        volume_unit: unit of the given volume, a key of `VOLUME_UNITS`.
        amount_unit: unit of the given amount, a key of `AMOUNT_UNITS`.

    Raises:
        InputError: a unit is unknown.
    """
    return frame.assign(
        volume=frame["volume"] * _factor(VOLUME_UNITS, volume_unit, "volume"),
        amount=frame["amount"] * _factor(AMOUNT_UNITS, amount_unit, "amount"),
    )
