"""Reading what sites send: JSON and its wrappers, inline state, encodings, times, texts, titles. Once, for all spiders.

Functions that read a page raise `PageFailure`, those that read a value of one row raise `Unreadable`. No clock, no
network; times are aware, in Asia/Shanghai, whatever the zone of the machine.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit
from zoneinfo import ZoneInfo

from parsel import Selector
from scrapy.http import Response
from w3lib.encoding import html_body_declared_encoding, http_content_type_encoding, read_bom

from crawlers.pages import PageFailure, PageState, Row, Unreadable
from finevolve_pipeline.news.clean import clean_text

SHANGHAI = ZoneInfo("Asia/Shanghai")


# --- JSON and what it is wrapped in ------------------------------------------------------------------------------

# Control characters stand raw in some strings; NaN and Infinity are written by careless serialisers.
_DECODER = json.JSONDecoder(strict=False, parse_constant=lambda _: None)
_BEFORE = re.compile(
    r"[\s\ufeff]*(?:/\*.*?\*/\s*)?(?:try\s*\{\s*)?(?:(?:(?:var|let|const)\s+)?[\w$.]+\s*=\s*|[\w$.]+\s*\(\s*)?(?=[{\[])",
    re.S,
)
_AFTER = re.compile(
    r"\s*\)?\s*;?\s*(?:\}\s*catch\s*\(\s*\w*\s*\)\s*\{\s*\}\s*;?)?\s*(?:(?:var\s+)?[\w$.]+\s*=\s*;?)?\s*\Z"
)


def json_of(text: str) -> Any:
    """The value of a JSON text or of one in a wrapper of JavaScript: a callback, an assignment, `try{..}catch`.

    NaN and Infinity are None.

    Raises:
        PageFailure: (UNSUPPORTED) it is neither; the reason says how it begins. What begins as JSON and is broken may
            be whole the next time.
    """
    before = _BEFORE.match(text)
    if before is not None:
        try:
            value, end = _DECODER.raw_decode(text, before.end())
        except (ValueError, RecursionError):
            pass
        else:
            if _AFTER.match(text, end):
                return value
    raise PageFailure(PageState.UNSUPPORTED, f"no JSON: it begins {beginning(text)}", again=before is not None)


def assigned(text: str, name: str) -> Any:
    """The object or list assigned to the JavaScript variable `name` in a page: `var allData = {…};`.

    Read by a JSON decoder, which alone knows where it ends: strings may hold braces and semicolons.

    Raises:
        PageFailure: (UNSUPPORTED) there is none, or it is no JSON.
    """
    found = False
    for place in re.finditer(rf"(?<![\w$]){re.escape(name)}\s*=\s*(?=[{{\[])", text):
        found = True
        try:
            return _DECODER.raw_decode(text, place.end())[0]
        except (ValueError, RecursionError):
            continue
    what = "is no JSON" if found else "is not in the page"
    raise PageFailure(PageState.UNSUPPORTED, f"shape changed: {name} = {{…}} {what}; it begins {beginning(text)}")


def beginning(text: str) -> str:
    """The first 60 printable characters of a page, quoted, to be named in an error."""
    return repr(
        "".join(" " if mark.isspace() else mark for mark in text[:400] if mark.isprintable() or mark.isspace()).strip()[
            :60
        ]
    )


def member(value: Any, *path: str) -> Any:
    """The value at a path of names through objects; None where a step is missing or no object."""
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def field(value: Any, *path: str) -> Any:
    """The value at a path of names that must be there; the value itself may be null.

    Raises:
        PageFailure: (UNSUPPORTED) a step is missing.
    """
    for place, name in enumerate(path, 1):
        if not isinstance(value, Mapping) or name not in value:
            raise PageFailure(PageState.UNSUPPORTED, f"shape changed: there is no {'.'.join(path[:place])}")
        value = value[name]
    return value


def agreed(answer: Any, code: str, good: str, message: str) -> None:
    """Nothing, if the site says by the field `code` that all is well, as text or number.

    Raises:
        PageFailure: (FETCH_ERROR) it says something else, with its message; (UNSUPPORTED) it says nothing.
    """
    if str(said := field(answer, code)) != good:
        raise site_error(said, member(answer, message))


def required(item: Mapping[str, Any], *names: str) -> str:
    """The first of these fields that is filled, as text.

    Raises:
        Unreadable: none is.
    """
    for name in names:
        if text := text_of(item.get(name)):
            return text
    raise Unreadable(f"no {' or '.join(names)} in {str(dict(item))[:120]}")


def rows_of(
    items: Any, read: Callable[[Mapping[str, Any]], Row | None], what: str
) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """The rows of a list, and a line for each that lacks what it needs. `read` may answer None: no news at all.

    Every row needs some text, unless it is dropped.

    Raises:
        PageFailure: (UNSUPPORTED) `what` is no list, or nothing of it could be read.
    """
    if not isinstance(items, list):
        raise PageFailure(PageState.UNSUPPORTED, f"shape changed: {what} is {type(items).__name__}, not a list")
    rows, unreadable = [], []
    for item in items:
        try:
            if not isinstance(item, Mapping):
                raise Unreadable(f"{what}: {str(item)[:60]!r} is no object")
            row = read(item)
            if row is not None and not (row.title or row.content or row.dropped):
                raise Unreadable(f"{what}: {row.source_id} has neither title nor text")
        except Unreadable as lack:
            unreadable.append(str(lack))
        else:
            if row is not None:
                rows.append(row)
    if unreadable and len(unreadable) == len(items):
        raise PageFailure(PageState.UNSUPPORTED, f"shape changed: no row of {what} can be read: {unreadable[0]}")
    return tuple(rows), tuple(unreadable)


def site_error(code: Any, message: Any, *, again: bool = False) -> PageFailure:
    """What a site says is wrong, in a page that came with HTTP status 200."""
    said = clean_text(str(message))[:80] if message else "no reason given"
    return PageFailure(PageState.FETCH_ERROR, f"the site answers error {str(code)[:20]!r} ({said})", again=again)


# --- Encodings ---------------------------------------------------------------------------------------------------


def decoded(response: Response) -> str:
    """The text of a page, without NUL characters.

    What is clean UTF-8 is that whatever is declared: Chinese text of another encoding never is by chance. Else the
    declared charset (byte-order mark, header, meta) counts, GBK and GB2312 as GB18030; without one it is GB18030,
    unless so little of it is broken that it must be damaged UTF-8.
    """
    body = response.body
    mark, body = _bom(body)
    if mark:
        return body.decode(mark, "replace").replace("\0", "")
    text = body.decode("utf-8", "replace")
    if broken := text.count("\ufffd"):
        beyond_ascii = sum(1 for sign in text if sign > "\x7f")
        if broken * 20 > beyond_ascii:
            text = body.decode(_declared(response), "replace")
    return text.replace("\0", "")


def _bom(body: bytes) -> tuple[str | None, bytes]:
    encoding, mark = read_bom(body)
    return (encoding, body[len(mark) :]) if encoding and mark else (None, body)


def _declared(response: Response) -> str:
    """The charset that a page which is no UTF-8 says it has; GB18030 where it says none that could be."""
    header = (response.headers.get("Content-Type") or b"").decode("latin-1")
    for name in (http_content_type_encoding(header), html_body_declared_encoding(response.body[:4096])):
        if name and name not in ("utf-8", "ascii", "cp1252", "iso8859-1", "latin-1"):
            return "gb18030" if name in ("gbk", "gb2312", "cp936", "hz") else name
    return "gb18030"


# --- Texts -------------------------------------------------------------------------------------------------------

_HIDDEN = re.compile(r"<(script|style)(?![\w:-])[^<>]*>.*?(?:</\1\s*>|\Z)|<!--.*?(?:-->|\Z)", re.I | re.S)
_BREAK = re.compile(
    r"</?(?:article|blockquote|br|dd|div|dl|dt|h[1-6]|hr|li|ol|p|section|table|tr|ul)(?![\w:-])[^<>]*>", re.I
)
_LEAD = re.compile(r"\s*【([^【】]{1,200})】")
_NOTHING = ("nan", "none", "null", "undefined")


def plain(html: str) -> str:
    """The text of an HTML fragment or of a plain text; its paragraphs are lines.

    Tags, scripts, styles and comments go, entities become their characters, blanks of all kinds one space. Line
    breaks of the source count only where no block element says where paragraphs end. A `<` that opens no element
    stays.
    """
    text = _HIDDEN.sub(" ", html) if "<" in html else html
    if "<" in text and _BREAK.search(text):
        text = _BREAK.sub("\n", " ".join(text.split()))
    elif text.isprintable():
        return clean_text(text)
    return "\n".join(filter(None, map(clean_text, text.splitlines())))


def lead(content: str) -> str:
    """The newsroom's headline: what stands between a leading 【 and its 】; empty if there is none."""
    found = _LEAD.match(content)
    return found[1].strip() if found else ""


def title_of(title: Any, content: str) -> str:
    """A title as one line of text; where the site sends none, the lead of the content; else empty."""
    return clean_text(text_of(title)) or lead(content)


def text_of(value: Any) -> str:
    """A value as text: None, NaN and their names are empty, a number is what one would write by hand.

    Raises:
        Unreadable: it is a list or an object.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        text = value.strip()
        if text.lower() in _NOTHING:
            return ""
        # Halves of surrogate pairs: JSON can carry them, UTF-8 cannot.
        return text if text.isascii() else text.encode("utf-8", "ignore").decode()
    if isinstance(value, float):
        if not math.isfinite(value):
            return ""
        return str(int(value)) if value.is_integer() else str(value)
    if isinstance(value, (int, bool)):
        return str(value)
    raise Unreadable(f"{str(value)[:60]!r} is no text")


def html_of(response: Response) -> Selector:
    """A page of HTML. What is none, JSON say, is one without the elements that are looked for."""
    return Selector(decoded(response), type="html")


def article_text(page: Selector, body: str, without: str = "script") -> str:
    """The text of an article's page: of the first element that the CSS selector `body` finds, its paragraphs as lines.

    Parts of it that the selector `without` finds are left out, in `page` too.

    Raises:
        PageFailure: (UNSUPPORTED) there is no such element, or no text in it.
    """
    found = page.css(body)
    if found:
        for part in found[0].css(without):
            part.drop()
        if text := plain(found[0].get()):
            return text
    raise PageFailure(PageState.UNSUPPORTED, f"no text at {body}")


def longer(content: str, brief: str) -> str:
    """The content, or the brief where the content is cut: it is how the brief begins."""
    return brief if brief.startswith(content) else content


def absolute(url: Any, base: str) -> str:
    """An address as it stands on the page `base`, made absolute; empty if it is none of the web."""
    try:
        address = urljoin(base, text_of(url)) if text_of(url) else ""
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and parts.port != 0  # reading a port that is none raises
        return address if usable else ""
    except ValueError:  # what is no address, Unreadable included
        return ""


# --- Numbers -----------------------------------------------------------------------------------------------------


def whole(value: Any) -> int:
    """A whole number, also one written as text.

    Raises:
        Unreadable: it is none.
    """
    text = text_of(value)
    try:
        return int(text)
    except ValueError:
        raise Unreadable(f"{text[:60]!r} is no whole number") from None


def flag(value: Any) -> bool:
    """Whether a flag is set: 0, "0", "", "false", None, False and empty lists are no."""
    if isinstance(value, str):
        return value.strip().lower() not in ("", "0", "false", *_NOTHING)
    return bool(value)


# --- Times -------------------------------------------------------------------------------------------------------

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EARLIEST, _LATEST = 631_152_000, 4_102_444_800  # 1990 and 2100: no news is older, and units cannot be mixed up
_NUMBER = re.compile(r"(\d{1,20})(?:\.(\d{1,9})\d*)?")
_WALL = re.compile(
    r"\s*(?:(?:(?P<year>\d{4})\s*[-/.年]\s*)?(?P<month>\d{1,2})\s*[-/.月]\s*(?P<day>\d{1,2})\s*日?\s*(?:T\s*)?)?"
    r"(?P<hour>\d{1,2})[:：](?P<minute>\d{2})(?:[:：](?P<second>\d{2})(?:\.\d+)?)?"
    r"\s*(?P<offset>Z|[+-]\d{2}:?\d{2})?(?![ \t]*[\w:：.+-])",
    re.A,
)


def epoch(value: Any) -> dt.datetime:
    """An instant counted in seconds, milliseconds or microseconds since 1970 UTC, told apart by size.

    Raises:
        Unreadable: no number, or none between 1990 and 2100 (0 stands for "no time").
    """
    number = _NUMBER.fullmatch("" if isinstance(value, bool) else text_of(value))
    if number is not None:
        count = int(number[1])
        for unit in (1, 1_000, 1_000_000):
            if _EARLIEST <= count // unit < _LATEST:
                fraction = int((number[2] or "0").ljust(9, "0"))
                micros = (count * 1_000_000 + fraction // 1_000) // unit
                return (_EPOCH + dt.timedelta(microseconds=micros)).astimezone(SHANGHAI)
    raise Unreadable(f"{str(value)[:60]!r} is no time since 1970")


def wall(text: Any, day: dt.date | None = None, today: dt.date | None = None) -> dt.datetime:
    """A time as written on a page, at its beginning: of Asia/Shanghai unless an offset is written with it.

    Args:
        text: "2024-03-05 09:31:40", "2024年03月05日 09:31", "03月05日 09:31", "09:31"; the date may be parted from
            the time by a T, the time may end in +08:00 or Z.
        day: the date where only hours and minutes are written.
        today: where the year is not written it is that of the latest such day which is not after this one.

    Raises:
        Unreadable: no such time, or its date is neither written nor given.
    """
    written = text_of(text)
    found = _WALL.match(written)
    if found is None:
        raise Unreadable(f"{written[:60]!r} is no time")
    try:
        if found["month"] is None:
            date = day
        elif found["year"] is not None:
            date = dt.date(int(found["year"]), int(found["month"]), int(found["day"]))
        else:
            date = _latest(int(found["month"]), int(found["day"]), today)
        if date is None:
            raise Unreadable(f"{written[:60]!r} says no date")
        clock = dt.time(int(found["hour"]), int(found["minute"]), int(found["second"] or 0))
        return dt.datetime.combine(date, clock, _zone(found["offset"])).astimezone(SHANGHAI)
    except ValueError as wrong:
        raise wrong if isinstance(wrong, Unreadable) else Unreadable(f"{written[:60]!r}: {wrong}") from None


def known(read: Callable[[Any], dt.datetime], value: Any) -> dt.datetime | None:
    """A time that need not be there, read by `epoch` or `wall`: None where it is not, or is no time."""
    try:
        return read(value)
    except Unreadable:
        return None


def later(value: Any, published_at: dt.datetime, read: Callable[[Any], dt.datetime] = epoch) -> dt.datetime | None:
    """When a row was modified, read by `epoch` or `wall`: None where the site gives no time after its publication."""
    modified_at = known(read, value)
    return modified_at if modified_at is not None and modified_at > published_at else None


def _latest(month: int, day: int, today: dt.date | None) -> dt.date | None:
    """The latest such day that is not after today. A leap day may be eight years ago."""
    if today is None:
        return None
    for year in range(today.year, today.year - 9, -1):
        try:
            date = dt.date(year, month, day)
        except ValueError:
            continue
        if date <= today:
            return date
    raise Unreadable(f"{month}-{day} is no day of a year")


def _zone(offset: str | None) -> dt.tzinfo:
    if offset is None:
        return SHANGHAI
    if offset == "Z":
        return dt.UTC
    hours, minutes = int(offset[1:3]), int(offset[-2:])
    return dt.timezone(dt.timedelta(hours=hours, minutes=minutes) * (-1 if offset[0] == "-" else 1))
