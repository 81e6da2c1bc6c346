"""News from files: rows of any of the usual layouts become `RawNews`, one bad row never stops the others.

What a source sent is kept as sent; cleaning comes later (`news.clean`). Times are read as Asia/Shanghai
or another given zone where they carry no offset. The wall clock serves one check only, that no time lies
in the future.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd

from finevolve_pipeline import tables
from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.digests import digest_json
from finevolve_pipeline.errors import InputError
from finevolve_pipeline.importing import Reject, RowError, RowFile, find_columns, folded, reject_row, require_commas
from finevolve_pipeline.settings import SOURCE_ID

FIELDS: dict[str, tuple[str, ...]] = {
    "published_at": (
        "published_at", "publish_time", "pub_time", "publishtime", "pubtime", "first_seen", "showtime",
        "datetime", "pub_date", "pubdate", "ctime", "time", "date", "发布时间", "时间", "日期",
    ),
    "modified_at": ("modified_at", "modified", "updated_at", "update_time", "修改时间", "更新时间"),
    "source": ("source", "src", "media", "来源"),
    "source_id": ("source_id", "id", "article_id", "news_id", "uid", "编号"),
    "url": ("url", "link", "href", "链接"),
    "title": ("title", "headline", "标题"),
    "content": ("content", "body", "text", "summary", "正文", "内容"),
    "importance": ("importance", "importance_score", "重要性"),
}  # fmt: skip
"""Fields of a news item and their usual column names, in any case; the first one present is taken."""

SOURCE_NAMES: dict[str, str] = {
    "云财经": "yuncaijing", "凤凰": "fenghuang", "凤凰网": "fenghuang", "凤凰财经": "fenghuang",
    "凤凰网财经": "fenghuang", "ifeng": "fenghuang", "新浪": "sina", "新浪网": "sina", "新浪财经": "sina",
    "东方财富": "eastmoney", "东方财富网": "eastmoney", "同花顺": "10jqka", "同花顺财经": "10jqka",
    "ths": "10jqka", "金融界": "jinrongjie", "jrj": "jinrongjie", "华尔街见闻": "wallstreetcn",
    "第一财经": "yicai", "财联社": "cls",
}  # fmt: skip
"""What people call the nine sources, and their ids."""

CHUNK_ROWS = 20_000
CHUNK_CHARACTERS = 16 << 20
_LONGEST_ID = 200
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_SHANGHAI_OFFSET = 8 * 3600 * _SECOND  # without daylight saving since 1992
_EARLIEST = int((dt.datetime(2000, 1, 1, tzinfo=SHANGHAI) - _EPOCH).total_seconds()) * _SECOND
_WRITTEN = re.compile(
    r"(\d{4})[-/.年](\d{1,2})[-/.月](\d{1,2})日?"
    r"(?:(?:[T ]|\s+)(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?\s*(Z|z|[+-]\d{2}:?\d{2}|[+-]\d{2})?)?"
)
_COMPACT = re.compile(r"(20\d{2})(\d{2})(\d{2})(?:(\d{2})(\d{2})(\d{2}))?")
_CLOCK = re.compile(r"\d{1,2}:\d{2}(?::\d{2})?")


class Moment(NamedTuple):
    """A time as read: microseconds since 1970 UTC, and how it was written."""

    microseconds: int
    naive: bool = False
    day_only: bool = False


def read_moment(value: object, zone: ZoneInfo, what: str = "publication time") -> Moment:
    """A time of a news item.

    Text like `2025-05-30 09:31:00`, with T, seconds, fraction and offset or without; `2025/5/30 9:31`;
    `20250530`; seconds or milliseconds since 1970; a datetime or date. Without offset it is local time of
    `zone`. A day without a time is read as its last second, the latest it can mean, so that nothing is seen
    too early.

    Raises:
        RowError: none of these; the text begins with `what`.
    """
    try:
        return _moment(value, zone)
    except (ValueError, OverflowError) as broken:
        raise RowError(f"{what} {_clean(value)!r}: {broken}") from None


def _moment(value: object, zone: ZoneInfo) -> Moment:
    """As `read_moment`; raises `ValueError` saying what is wrong."""
    if isinstance(value, dt.datetime):
        return _of_datetime(value, zone)
    if isinstance(value, dt.date):
        return _of_datetime(dt.datetime.combine(value, dt.time(23, 59, 59)), zone)._replace(day_only=True)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError("not a time")
    text = value.strip() if isinstance(value, str) else format(value, ".0f")
    if len(text) >= 19 and text[4] == text[7] == "-" and text[10] in "T " and text[13] == text[16] == ":":
        with suppress(ValueError):  # the patterns below know more forms and say what is wrong
            return _of_datetime(dt.datetime.fromisoformat(text), zone)
    if match := _WRITTEN.fullmatch(text):
        return _of_parts(match.groups(), zone)
    if (match := _COMPACT.fullmatch(text)) and isinstance(value, str):
        return _of_parts((*match.groups(), None, None), zone)
    if text.isdecimal() and len(text) in (10, 13):
        return Moment(int(text) * (_SECOND if len(text) == 10 else 1000))
    raise ValueError("not a time (use 2025-05-30 09:31:00, with offset or without)")


def _of_datetime(moment: dt.datetime, zone: ZoneInfo) -> Moment:
    naive = moment.tzinfo is None
    since = (moment.replace(tzinfo=zone) if naive else moment) - _EPOCH
    return Moment((since.days * 86_400 + since.seconds) * _SECOND + since.microseconds, naive)


def _of_parts(parts: tuple[str | None, ...], zone: ZoneInfo) -> Moment:
    year, month, day, hour, minute, second, fraction, offset = parts
    date = dt.date(int(year or 0), int(month or 0), int(day or 0))
    if hour is None:
        return _moment(date, zone)
    clock = dt.time(int(hour), int(minute or 0), int(second or 0), int((fraction or "0").ljust(6, "0")[:6]))
    moment = dt.datetime.combine(date, clock)
    if offset is None:
        return _of_datetime(moment, zone)
    written = "+00:00" if offset in "Zz" else offset
    return _of_datetime(dt.datetime.fromisoformat(f"{moment.isoformat()}{written}"), zone)


def day_of(microseconds: int) -> dt.date:
    """Calendar day in Asia/Shanghai."""
    return dt.date.fromordinal((microseconds + _SHANGHAI_OFFSET) // _DAY + _EPOCH.toordinal())


@dataclass(frozen=True)
class NewsOptions:
    """How a file is to be read.

    Attributes:
        now: no publication time may lie after it.
        source: source id of every row, whatever the file says; None: the file says it.
        source_map: source as written -> source id, before `SOURCE_NAMES`.
        columns: field -> column, before the usual names of `FIELDS`.
        zone: of times without offset.
    """

    now: dt.datetime
    source: str | None = None
    source_map: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    zone: ZoneInfo = SHANGHAI

    def __post_init__(self) -> None:
        """Raises `InputError` if a source id or a field is none."""
        folded(self.columns, FIELDS, "--columns")
        for given in (*self.source_map.values(), *([] if self.source is None else [self.source])):
            if not re.fullmatch(SOURCE_ID, given):
                raise InputError(f"source {given!r}: no source id (a letter or digit, then up to 63 of a-z 0-9 _ . -)")


class NewsItem(NamedTuple):
    """One item as it will land; times in microseconds since 1970 UTC."""

    source: str
    source_id: str
    url: str
    title: str
    content: str
    published_at: int
    modified_at: int | None
    industries: tuple[str, ...]
    importance: float


class NewsReader:
    """Turns rows into items and counts what the user should hear about.

    Attributes:
        naive, aware: times read without and with an offset.
        day_only: times that were only a day.
    """

    def __init__(self, options: NewsOptions) -> None:
        self.options = options
        self.naive = self.aware = self.day_only = 0
        self._latest = int((options.now - _EPOCH).total_seconds() * _SECOND)
        self._source = lru_cache(maxsize=10_000)(self._read_source)

    def item(
        self,
        values: Mapping[str, Any],
        columns: Mapping[str, str],
        *,
        day: dt.date | None = None,
        industries: tuple[str, ...] = (),
        default_source: str | None = None,
    ) -> NewsItem:
        """The item of one row.

        Args:
            values: the row by column.
            columns: which column holds which field.
            day: the day the item belongs to if its time is missing or only a clock time.
            industries: codes that came with the row.
            default_source: source id of an item that names none.

        Raises:
            RowError: the row cannot be used.
        """

        def cell(name: str) -> Any:
            return values.get(columns[name]) if name in columns else None

        title, content = _text(cell("title"), "title"), _text(cell("content"), "content")
        if not title.strip() and not content.strip():
            raise RowError("neither title nor content")
        moment = self._published(cell("published_at"), day)
        modified = cell("modified_at")
        url = _text(cell("url"), "url").strip()
        item = NewsItem(
            self._source_of(cell("source"), default_source),
            _id(cell("source_id")) or digest_json([url, title, content]),
            url,
            title,
            content,
            moment.microseconds,
            None if _missing(modified) else read_moment(modified, self.options.zone, "modification time").microseconds,
            industries,
            _importance(cell("importance")),
        )
        self._count(moment)
        return item

    def _count(self, moment: Moment) -> None:
        if moment.day_only:
            self.day_only += 1
        elif moment.naive:
            self.naive += 1
        else:
            self.aware += 1

    def _published(self, value: object, day: dt.date | None) -> Moment:
        if _missing(value):
            if day is None:
                raise RowError("no publication time")
            value = day
        elif day is not None and isinstance(value, str) and _CLOCK.fullmatch(value.strip()):
            value = f"{day.isoformat()} {value.strip().zfill(5)}"
        moment = read_moment(value, self.options.zone)
        if moment.microseconds > self._latest and not (
            moment.day_only and day_of(moment.microseconds) <= self.options.now.astimezone(SHANGHAI).date()
        ):
            raise RowError(f"publication time {_clean(value)}: lies in the future")
        if moment.microseconds < _EARLIEST:
            raise RowError(f"publication time {_clean(value)}: lies before the year 2000")
        return moment

    def _source_of(self, value: object, default: str | None) -> str:
        if self.options.source is not None:
            return self.options.source
        text = _text(value, "source").strip()
        if text:
            return self._source(text)
        if default is None:
            raise RowError("no source; name it with --source ID")
        return default

    def _read_source(self, text: str) -> str:
        found = self.options.source_map.get(text) or SOURCE_NAMES.get(text) or SOURCE_NAMES.get(text.lower())
        found = found or text.lower()
        if not re.fullmatch(SOURCE_ID, found):
            raise RowError(f"source {text[:40]!r}: no source id; give it one with --source-map {text[:40]}=ID")
        return found

    def notes(self) -> list[str]:
        """What the user should know about the times of the file."""
        zone = self.options.zone.key
        found = []
        if self.naive and self.aware:
            found.append(
                f"{self.aware} times have an offset and {self.naive} have none: those were read as {zone} "
                "(--time-zone names another)"
            )
        if self.day_only:
            found.append(f"{self.day_only} times are only a day: read as its last second, 23:59:59")
        return found


def _clean(value: object) -> str:
    return str(value)[:40]


def _missing(value: object) -> bool:
    if value is None or value != value:  # NaN and NaT differ from themselves
        return True
    return isinstance(value, str) and value.strip().lower() in ("", "nan", "nat", "null", "none")


def _text(value: object, what: str) -> str:
    if isinstance(value, str):
        return value
    if value is None or value != value:
        return ""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    raise RowError(f"{what} is a {type(value).__name__}, not text")


def _id(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = _text(value, "id").strip()
    if len(text) > _LONGEST_ID:
        raise RowError(f"id of {len(text)} characters; {_LONGEST_ID} are allowed")
    if not text.isprintable():
        raise RowError(f"id {text[:40]!r}: holds a control character")
    return text


def _importance(value: object) -> float:
    if _missing(value):
        return np.nan
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise RowError(f"importance {_clean(value)!r}: not a number") from None
    if not 1 <= number <= 10:
        raise RowError(f"importance {_clean(value)}: outside 1 to 10")
    return number


def to_frame(
    items: Iterable[NewsItem], numbers: Sequence[int], origin: str, crawled_at: int | None = None
) -> pd.DataFrame:
    """Items as a `RawNews` table, with the number of the row that each came from as index.

    Args:
        items: the items.
        numbers: their row numbers.
        origin: where they came from, e.g. `file:telegraph.jsonl`.
        crawled_at: when the crawl that fetched them began, microseconds since 1970 UTC; None for files.
    """
    rows = list(items)
    columns: list[tuple[Any, ...]] = list(zip(*rows, strict=True)) if rows else [()] * len(NewsItem._fields)
    count = len(rows)
    frame = pd.DataFrame(
        {
            "source": pd.Series(columns[0], dtype="str"),
            "source_id": pd.Series(columns[1], dtype="str"),
            "url": pd.Series(columns[2], dtype="str"),
            "title": pd.Series(columns[3], dtype="str"),
            "content": pd.Series(columns[4], dtype="str"),
            "published_at": _times(columns[5]),
            "modified_at": _times(columns[6]),
            "crawled_at": _times([crawled_at] * count),
            "origin": pd.Series([origin] * count, dtype="str"),
            "industries_given": pd.Series([list(codes) for codes in columns[7]], dtype="object"),
            "importance_given": pd.Series(columns[8], dtype="float64"),
        }
    )
    return tables.conform(frame, tables.RawNews, origin).set_axis(pd.Index(np.array(numbers, dtype="int64")))


def _times(microseconds: Iterable[int | None]) -> pd.Series[Any]:
    nat = np.iinfo(np.int64).min
    values = np.array([nat if value is None else value for value in microseconds], dtype="int64")
    utc = pd.Series(values.view("datetime64[us]")).dt.tz_localize("UTC")
    return utc.dt.tz_convert("Asia/Shanghai")


class Chunks:
    """Gathers items until there are enough for one table: bounded in rows and in text."""

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._items: list[NewsItem] = []
        self._numbers: list[int] = []
        self._characters = 0

    @property
    def full(self) -> bool:
        """Whether it is time to take the table."""
        return len(self._items) >= CHUNK_ROWS or self._characters >= CHUNK_CHARACTERS

    def add(self, item: NewsItem, number: int) -> None:
        """One more item, of the row with that number."""
        self._items.append(item)
        self._numbers.append(number)
        self._characters += len(item.title) + len(item.content) + len(item.url)

    def take(self) -> pd.DataFrame | None:
        """The gathered items as `RawNews` by row number, None if there are none; the next chunk begins."""
        if not self._items:
            return None
        frame = to_frame(self._items, self._numbers, self._origin)
        self._items, self._numbers, self._characters = [], [], 0
        return frame


def read_news(rows: RowFile, reader: NewsReader, reject: Callable[[Reject], None]) -> Iterator[pd.DataFrame]:
    """The file's items as `RawNews` tables of bounded size, by row number, in the file's order.

    Args:
        rows: the file.
        reader: how rows are read; afterwards it knows what to tell the user.
        reject: is told of each row that cannot be used.

    Raises:
        InputError: the file has columns, and a field that every row needs is not among them.
    """
    options = reader.options
    _require_columns(rows, options)
    mapping = lru_cache(maxsize=1000)(lambda present: find_columns(present, FIELDS, options.columns))
    chunks = Chunks(f"file:{rows.name}")
    for row in rows:
        if isinstance(row, Reject):
            reject(row)
            continue
        try:
            chunks.add(reader.item(row.values, mapping(tuple(row.values))), row.number)
        except RowError as broken:
            reject(reject_row(row, str(broken)))
            continue
        if chunks.full and (frame := chunks.take()) is not None:
            yield frame
    if (frame := chunks.take()) is not None:
        yield frame


def _require_columns(rows: RowFile, options: NewsOptions) -> None:
    if not rows.columns:
        return
    listed = ", ".join(rows.columns[:20])
    found = find_columns(rows.columns, FIELDS, options.columns)
    require_commas(rows, found)
    for name, column in options.columns.items():
        if column not in rows.columns:
            raise InputError(f"{rows.path}: no column {column!r} for {name}; there are {listed}")
    if "published_at" not in found:
        raise InputError(
            f"{rows.path}: no column for the publication time among {listed}; name it with --columns published_at=NAME"
        )
    if "title" not in found and "content" not in found:
        raise InputError(
            f"{rows.path}: no column for the title or content among {listed}; name it with --columns title=NAME"
        )
    if "source" not in found and options.source is None:
        raise InputError(f"{rows.path}: no column for the source among {listed}; name the source with --source ID")


def count_sources(frame: pd.DataFrame) -> Counter[str]:
    """Rows by source."""
    return Counter(frame["source"].tolist())
