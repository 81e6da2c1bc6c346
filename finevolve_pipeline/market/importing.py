"""Bars from files: rows of any of the usual layouts become `Bars` with declared units, bad rows are set
aside.

Missing numbers stay NaN. Rows outside the exchange calendar are skipped and counted, since nothing can be
said about them; rows on a day without trading are rejected.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from finevolve_pipeline import calendar, tables
from finevolve_pipeline.errors import CalendarError, InputError, UniverseError
from finevolve_pipeline.importing import Reject, RowError, RowFile, find_columns, reject_row, require_commas
from finevolve_pipeline.market.bars import AMOUNT_UNITS, VOLUME_UNITS, to_contract_units
from finevolve_pipeline.universe import BENCHMARK, industry

FIELDS: dict[str, tuple[str, ...]] = {
    "date": ("date", "session", "trade_date", "tradedate", "datetime", "日期", "交易日期", "交易日"),
    "code": (
        "code", "sector", "ts_code", "symbol", "index_code", "industry", "name",
        "代码", "指数代码", "行业", "名称",
    ),
    "name": ("name", "industry_name", "sector", "industry", "名称", "行业名称", "行业"),
    "open": ("open", "开盘", "开盘价", "开盘指数"),
    "high": ("high", "最高", "最高价", "最高指数"),
    "low": ("low", "最低", "最低价", "最低指数"),
    "close": ("close", "收盘", "收盘价", "收盘指数"),
    "volume": ("volume", "vol", "成交量"),
    "amount": ("amount", "成交额", "成交金额"),
}  # fmt: skip
"""Fields of a bar and the column names each is known by, in any case; the first one present is taken."""

PRICES = ("open", "high", "low", "close")
NUMBERS = (*PRICES, "volume", "amount")

PLAUSIBLE: dict[bool, dict[str, tuple[float, float]]] = {
    False: {"volume": (1e6, 1e12), "amount": (1e7, 2e12)},
    True: {"volume": (1e6, 1e12), "amount": (1e9, 5e12)},
}
"""Where a day's shares and yuan of one industry (False), and of the benchmark (True), can lie."""

CHUNK_ROWS = 50_000
_ROUNDING = 1e-6  # relative; published bars are rounded to 2 or 4 digits and keep their order exactly
_MISSING = frozenset(("", "nan", "na", "n/a", "null", "none", "nat", "-", "--"))
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?")
_DATE = re.compile(r"(\d{4})([-/.]?)(\d{1,2})\2(\d{1,2})(?:[T ]00:00(?::00(?:\.0+)?)?(?:[+-]\d{2}:?\d{2}|Z)?)?")
_BENCHMARK = re.compile(r"(?:(?:sh|csi)?0{0,3}852(?:\.(?:sh|csi|xshg))?|中证1000|csi ?1000)", re.I)


@dataclass(frozen=True)
class BarOptions:
    """How a file of bars is to be read.

    Attributes:
        benchmark: True for the market benchmark (one index, the file need not name it), False for industries.
        today: no bar may be dated after it (Asia/Shanghai).
        volume_unit: unit of the volumes, a key of `VOLUME_UNITS`; None if undeclared.
        amount_unit: unit of the turnover, a key of `AMOUNT_UNITS`; None if undeclared.
        unit_options: the two options that declare the units, for the error text.
    """

    benchmark: bool
    today: dt.date
    volume_unit: str | None
    amount_unit: str | None
    unit_options: tuple[str, str]

    def require_units(self, found: Mapping[str, str], where: str) -> None:
        """Raises `InputError` naming the options, if a column has no declared unit.

        Units are never guessed.
        """
        wanted = []
        for name, unit, option, units in (
            ("volume", self.volume_unit, self.unit_options[0], VOLUME_UNITS),
            ("amount", self.amount_unit, self.unit_options[1], AMOUNT_UNITS),
        ):
            if name in found and unit is None:
                wanted.append(f"{option} {'|'.join(units)}")
        if wanted:
            raise InputError(f"{where}: units must be declared: add {' and '.join(wanted)}")


class Bar(NamedTuple):
    """One bar in the file's units."""

    session: str
    code: str
    open: float
    high: float
    low: float
    close: float
    volume: float
    amount: float

    @property
    def numbers(self) -> tuple[float, ...]:
        """Prices, volume and amount."""
        return self[2:]


class BarReader:
    """Turns rows into bars.

    Attributes:
        beyond: rows outside the exchange calendar.
        repeated: rows that say again what an earlier row said.
    """

    def __init__(self, options: BarOptions) -> None:
        self.options = options
        self.beyond = 0
        self.repeated = 0
        self._sizes: dict[str, list[np.ndarray[Any, np.dtype[np.float64]]]] = {"volume": [], "amount": []}
        self._seen: dict[tuple[str, str], tuple[int, tuple[float, ...]]] = {}
        self._session = lru_cache(maxsize=10_000)(self._read_session)
        self._industry = lru_cache(maxsize=1000)(_industry_code)

    def bar(self, number: int, values: Mapping[str, Any], columns: Mapping[str, str]) -> Bar | None:
        """The bar of one row, None if it lies outside the calendar or repeats an earlier row.

        Args:
            number: the row's number in its file.
            values: the row by column.
            columns: which column holds which field.

        Raises:
            RowError: the row cannot be used.
        """
        if "date" not in columns:
            raise RowError("no date")
        code = self.code(values.get(columns["code"]) if "code" in columns else None)
        session = self._session(_hashable(values.get(columns["date"])))
        if session is None:
            self.beyond += 1
            return None
        self._require_one_industry(code, values.get(columns["name"]) if "name" in columns else None)
        prices = [_price(values, columns, name) for name in PRICES]
        _require_order(*prices)
        bar = Bar(session, code, *prices, *(_quantity(values, columns, name) for name in ("volume", "amount")))
        earlier = self._seen.setdefault((session, code), (number, bar.numbers))
        if earlier[0] == number:
            return bar
        if str(earlier[1]) != str(bar.numbers):
            raise RowError(f"{code} {session}: row {earlier[0]} has other numbers for it")
        self.repeated += 1
        return None

    def code(self, value: object) -> str:
        """The index code of a row. Raises `RowError` if it is none that this file may hold."""
        text = "" if value is None or value != value else str(value).strip()
        if not self.options.benchmark:
            return self._industry(text)
        if text and not _BENCHMARK.fullmatch(text):
            raise RowError(f"index {text[:40]!r}: not CSI1000 ({BENCHMARK})")
        return BENCHMARK

    def _require_one_industry(self, code: str, name: object) -> None:
        """Raises `RowError` if a name beside the code is that of another industry; other names are free."""
        text = "" if name is None or name != name else str(name).strip()
        try:
            named = self._industry(text)
        except RowError:
            return
        if named != code:
            raise RowError(f"code {code} is not {text[:40]!r}, which is {named}")

    def frame(self, bars: list[Bar], where: str) -> pd.DataFrame:
        """Bars as a `Bars` table in shares and yuan, remembered for `notes`."""
        frame = to_frame(bars, self.options, where)
        for name, sizes in self._sizes.items():
            numbers = frame[name].to_numpy(dtype="float64")
            sizes.append(numbers[numbers > 0])
        return frame

    def notes(self) -> list[str]:
        """What the user should know about the numbers of the file: units that look wrong."""
        options, found = self.options, []
        units = (options.volume_unit, options.amount_unit)
        for name, measure, unit, option in zip(
            self._sizes, ("shares", "yuan"), units, options.unit_options, strict=True
        ):
            numbers = np.concatenate([np.empty(0), *self._sizes[name]])
            low, high = PLAUSIBLE[options.benchmark][name]
            if len(numbers) and not low <= (median := float(np.median(numbers))) <= high:
                index = "CSI1000" if options.benchmark else "one industry"
                found.append(
                    f"{option} {unit} looks wrong: the median {name} of a day is {median:.3g} {measure}, "
                    f"for {index} {low:g} to {high:g} is plausible"
                )
        return found

    def _read_session(self, value: object) -> str | None:
        day = read_day(value)
        if not calendar.covers(day):
            return None
        try:
            calendar.session_index(day)
        except CalendarError as broken:
            raise RowError(str(broken)) from None
        if day > self.options.today:
            raise RowError(f"session {day}: lies in the future")
        return day.isoformat()


def _require_order(opened: float, high: float, low: float, close: float) -> None:
    """Raises `RowError` if the prices there are contradict each other by more than rounding."""
    if high < low * (1 - _ROUNDING):
        raise RowError(f"high {high:.12g} lies below low {low:.12g}")
    for name, price in (("open", opened), ("close", close)):
        if price > high * (1 + _ROUNDING):
            raise RowError(f"{name} {price:.12g} lies above high {high:.12g}")
        if price < low * (1 - _ROUNDING):
            raise RowError(f"{name} {price:.12g} lies below low {low:.12g}")


def _hashable(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, dt.date)) else str(value)


def _industry_code(text: str) -> str:
    if not text:
        raise RowError("no sector")
    try:
        return industry(text).code
    except UniverseError as broken:
        raise RowError(str(broken)) from None


def read_day(value: object) -> dt.date:
    """A day: `2025-05-30`, `2025/5/30`, `20250530` (text or number), a midnight, a date.

    Raises:
        RowError: none of these.
    """
    if isinstance(value, dt.datetime):
        return value.date()
    if isinstance(value, dt.date):
        return value
    text = format(value, ".0f") if isinstance(value, float) else str("" if value is None else value).strip()
    if not text:
        raise RowError("no date")
    if match := _DATE.fullmatch(text):
        year, separator, month, day = match.groups()
        if separator or len(month) == len(day) == 2:
            try:
                return dt.date(int(year), int(month), int(day))
            except ValueError as broken:
                raise RowError(f"date {text!r}: {broken}") from None
    raise RowError(f"date {text[:40]!r}: not a calendar day (use YYYY-MM-DD)")


def is_missing(value: object) -> bool:
    """Whether a cell holds no number: empty, NaN, null, a dash."""
    if value is None or value != value:
        return True
    return isinstance(value, str) and value.strip().lower() in _MISSING


def _number(value: object, name: str) -> float:
    if is_missing(value):
        return math.nan
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number = float(value)
    else:
        text = str(value).strip()
        if not _NUMBER.fullmatch(text):
            raise RowError(f"{name} {text[:40]!r}: not a number")
        number = float(text)
    if math.isinf(number):
        raise RowError(f"{name} {str(value)[:40]}: not a finite number")
    return number


def _price(values: Mapping[str, Any], columns: Mapping[str, str], name: str) -> float:
    number = _number(values.get(columns[name]), name) if name in columns else math.nan
    if number <= 0:
        raise RowError(f"{name} {number:g}: a price must be above 0")
    return number


def _quantity(values: Mapping[str, Any], columns: Mapping[str, str], name: str) -> float:
    number = _number(values.get(columns[name]), name) if name in columns else math.nan
    if number < 0:
        raise RowError(f"{name} {number:g}: below 0")
    return number


def to_frame(bars: list[Bar], options: BarOptions, where: str) -> pd.DataFrame:
    """Bars as a `Bars` table in shares and yuan."""
    frame = pd.DataFrame(bars, columns=list(Bar._fields))
    frame[list(NUMBERS)] = frame[list(NUMBERS)].astype("float64")
    # An undeclared unit means that there is no such column, and NaN is NaN in any unit.
    frame = to_contract_units(frame, options.volume_unit or "shares", options.amount_unit or "yuan")
    return tables.conform(frame, tables.Bars, where)


def read_bars(rows: RowFile, reader: BarReader, reject: Callable[[Reject], None]) -> Iterator[pd.DataFrame]:
    """The file's bars as `Bars` tables of bounded size, in the file's order, in shares and yuan.

    Args:
        rows: the file.
        reader: how rows are read; afterwards it knows what to tell the user.
        reject: is told of each row that cannot be used.

    Raises:
        InputError: a column that every row needs is missing, or a unit is not declared.
    """
    options = reader.options
    if rows.columns:
        found = find_columns(rows.columns, FIELDS, {})
        require_commas(rows, found)
        for name in ("date", "close", *(() if options.benchmark else ("code",))):
            if name not in found:
                raise InputError(
                    f"{rows.path}: no column {name!r} among {', '.join(rows.columns[:20])}; "
                    f"name it {' or '.join(FIELDS[name][:3])}"
                )

    @lru_cache(maxsize=1000)
    def mapping(present: tuple[str, ...]) -> dict[str, str]:
        found = find_columns(present, FIELDS, {})
        options.require_units(found, str(rows.path))
        return found

    mapping(rows.columns)
    bars: list[Bar] = []
    for row in rows:
        if isinstance(row, Reject):
            reject(row)
            continue
        try:
            bar = reader.bar(row.number, row.values, mapping(tuple(row.values)))
        except RowError as broken:
            reject(reject_row(row, str(broken)))
            continue
        if bar is not None:
            bars.append(bar)
        if len(bars) >= CHUNK_ROWS:
            yield reader.frame(bars, rows.name)
            bars = []
    if bars:
        yield reader.frame(bars, rows.name)
