"""Times as whole microseconds since 1970 UTC: what the news rules compare and sort by, row by row."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from finevolve_pipeline.calendar import SHANGHAI

HOUR = 3_600_000_000
"""Microseconds of an hour."""

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def instant(moment: dt.datetime) -> int:
    """The instant of an aware time."""
    return (moment - _EPOCH) // dt.timedelta(microseconds=1)


def midnight(day: dt.date) -> int:
    """The instant at which a calendar day begins in Asia/Shanghai."""
    return instant(dt.datetime.combine(day, dt.time(), tzinfo=SHANGHAI))


def moment(instant: int) -> dt.datetime:
    """The instant as a time in Asia/Shanghai."""
    return (_EPOCH + dt.timedelta(microseconds=instant)).astimezone(SHANGHAI)


def instants(times: pd.Series[Any]) -> list[int]:
    """The instants of a time column; a missing time lies before all others."""
    values: list[int] = times.dt.as_unit("us").astype("int64").to_list()
    return values


def times(instants: Sequence[int]) -> pd.Series[Any]:
    """The time column of instants, as the table contracts want it."""
    naive = pd.Series(np.asarray(instants, dtype=np.int64).astype("datetime64[us]"))
    return naive.dt.tz_localize("UTC").dt.tz_convert("Asia/Shanghai")
