"""News coverage as calendar blocks, inline SVG: a row per source, a column per day, a block per quarter.

Colour tells how many articles, the shape what is known of the day, so the map can be read without colour. Every colour
is a CSS variable or class of the page. What must not live here: computing what is drawn.
"""

from __future__ import annotations

import datetime as dt
import html
import unicodedata
from calendar import monthrange
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from finevolve_pipeline.evaluation.report.words import Words
from finevolve_pipeline.news.coverage_table import CoverageTable, SourceDay, Standing

LEVELS = (1, 10, 30, 100, 300, 1000)
"""Least articles a day of each colour; half a decade each, so that a drop to a third is seen."""

_GUTTER, _HEAD = 132, 32
_PITCH, _ROW = 10, 15
_CELL_WIDTH, _CELL_HEIGHT = 9, 12
_WEEK_GAP = 3
_WIDTH = _GUTTER + 92 * _PITCH + 14 * _WEEK_GAP
_LABEL_COLUMNS = 16
_HATCH = "coverage-partial"


def _months(words: Words) -> tuple[str, ...]:
    # Not by `strftime`: its names follow the machine's language.
    return (
        words("Jan"),
        words("Feb"),
        words("Mar"),
        words("Apr"),
        words("May"),
        words("Jun"),
        words("Jul"),
        words("Aug"),
        words("Sep"),
        words("Oct"),
        words("Nov"),
        words("Dec"),
    )


def _weekdays(words: Words) -> tuple[str, ...]:
    return words("Mon"), words("Tue"), words("Wed"), words("Thu"), words("Fri"), words("Sat"), words("Sun")


def standing_name(standing: Standing, words: Words) -> str:
    """What is known of a day, in a word or two."""
    names = {
        Standing.COMPLETE: words("complete"),
        Standing.PARTIAL: words("partial"),
        Standing.OPEN: words("open"),
        Standing.IMPORTED: words("imported"),
        Standing.NEVER_ASKED: words("never asked"),
    }
    return names[standing]


@dataclass(frozen=True)
class Block:
    """A quarter: its name, and its drawing."""

    title: str
    svg: str


def blocks(table: CoverageTable, configured: Collection[str], words: Words) -> tuple[Block, ...]:
    """The quarters that hold anything, oldest first.

    Args:
        table: what to draw.
        configured: sources that have a row in every block; others have one where they hold anything.
        words: the language.
    """
    quarters: dict[tuple[int, int], set[str]] = {}
    for source, day in table.known:
        quarters.setdefault(_quarter(day), set()).add(source)
    return tuple(
        _block(table, quarter, [one for one in table.sources if one in configured or one in holding], words)
        for quarter, holding in sorted(quarters.items())
    )


def _quarter(day: str) -> tuple[int, int]:
    return int(day[:4]), (int(day[5:7]) - 1) // 3 + 1


def _block(table: CoverageTable, quarter: tuple[int, int], sources: Sequence[str], words: Words) -> Block:
    year, number = quarter
    days = _days_of(year, number)
    drawn = [day for day in days if table.days[0] <= day.isoformat() <= table.days[-1]]
    places = _places(days)
    title = f"{year} Q{number}"
    rows = [_row(table, source, drawn, places, _HEAD + at * _ROW, words) for at, source in enumerate(sources)]
    partial = sum(table.at(source, day.isoformat()).standing is Standing.PARTIAL for source in sources for day in drawn)
    label = words(
        "News by day and source, {quarter}: {sources} sources, {partial} partial days; all in the tables below",
        quarter=title,
        sources=len(sources),
        partial=partial,
    )
    body = "".join((_heading(title, days, places, words), *rows))
    return Block(title, _svg(label, _WIDTH, _HEAD + len(sources) * _ROW + 3, body))


def _days_of(year: int, quarter: int) -> list[dt.date]:
    months = range(quarter * 3 - 2, quarter * 3 + 1)
    return [dt.date(year, month, day) for month in months for day in range(1, monthrange(year, month)[1] + 1)]


def _places(days: Sequence[dt.date]) -> Mapping[dt.date, int]:
    """Where each day stands: weeks, from Monday on, stand apart."""
    places, gaps = {}, 0
    for position, day in enumerate(days):
        gaps += position > 0 and day.weekday() == 0
        places[day] = _GUTTER + position * _PITCH + gaps * _WEEK_GAP
    return places


def _heading(title: str, days: Sequence[dt.date], places: Mapping[dt.date, int], words: Words) -> str:
    parts = [_text(0, 12, title, "title")]
    for day in days:
        if day.day == 1:
            parts.append(_text(places[day], 12, _months(words)[day.month - 1]))
        if day.weekday() == 0:
            parts.append(_text(places[day], 26, str(day.day), "tick"))
    return "".join(parts)


def _row(
    table: CoverageTable,
    source: str,
    days: Sequence[dt.date],
    places: Mapping[dt.date, int],
    top: int,
    words: Words,
) -> str:
    cells: list[str] = []
    marked: dict[Standing, list[str]] = {}
    for day in days:
        found = table.at(source, day.isoformat())
        left = places[day]
        if found.standing is not Standing.NEVER_ASKED:
            cells.append(_cell(found, _told(source, day, found, words), left, top))
        if found.standing is Standing.PARTIAL:
            marked.setdefault(found.standing, []).append(_rectangle(left, top, _CELL_WIDTH, _CELL_HEIGHT))
        elif found.standing in (Standing.OPEN, Standing.NEVER_ASKED):
            marked.setdefault(found.standing, []).append(_dot(left, top))
    marks = (_mark(standing, "".join(paths)) for standing, paths in marked.items())
    return "".join((_text(_GUTTER - 8, top + 10, _cut(source), "source", source), *cells, *marks))


def _cell(found: SourceDay, told: str, left: int, top: int) -> str:
    inset = 2 if found.standing is Standing.IMPORTED else 0
    shape = _rectangle(left + inset, top + inset, _CELL_WIDTH - 2 * inset, _CELL_HEIGHT - 2 * inset)
    level = sum(found.articles >= least for least in LEVELS) if found.articles else 0
    return f'<path class="k{level}" d="{shape}"><title>{html.escape(told)}</title></path>'


def _told(source: str, day: dt.date, found: SourceDay, words: Words) -> str:
    standing = standing_name(found.standing, words)
    known = f"{standing}: {found.reason}" if found.reason else standing
    articles = counted_articles(found.articles or 0, words)
    return f"{_weekdays(words)[day.weekday()]} {day.isoformat()} {source}: {articles}{words(', ')}{known}"


def counted_articles(count: int, words: Words) -> str:
    """So many articles."""
    return words("1 article") if count == 1 else words("{count} articles", count=f"{count:,}")


def _rectangle(left: int, top: int, width: int, height: int) -> str:
    return f"M{left} {top}h{width}v{height}h-{width}z"


def _dot(left: int, top: int) -> str:
    return f"M{left + 4} {top + 6}h1"


def _mark(standing: Standing, path: str) -> str:
    """What lies over the cells of a standing and tells it without colour."""
    match standing:
        case Standing.PARTIAL:
            return f'<path class="mark" fill="url(#{_HATCH})" d="{path}"/>'
        case Standing.OPEN:
            return f'<path class="ring" d="{path}"/><path class="dot" d="{path}"/>'
        case _:
            return f'<path class="never" d="{path}"/>'


def legend(words: Words) -> str:
    """What colours and shapes mean. It defines the hatch of partial days, so the blocks need it on their page."""
    hatch = (
        f'<defs><pattern id="{_HATCH}" width="4.5" height="4.5" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(-45)"><path class="under" d="M0 2.25h4.5"/><path class="over" d="M0 2.25h4.5"/>'
        "</pattern></defs>"
    )
    ends = (*(f"{least - 1:,}" for least in LEVELS[1:]), "")
    amounts = [
        "0",
        *(
            f"{least:,}–{end}" if end else words("{least} or more", least=f"{least:,}")
            for least, end in zip(LEVELS, ends, strict=True)
        ),
    ]
    parts = [hatch, _text(0, 12, words("Articles a day"), "title")]
    for level, amount in enumerate(amounts):
        left = _GUTTER + level * 105
        parts += [
            _cell(SourceDay((0, *LEVELS)[level], Standing.COMPLETE), amount, left, 2),
            _text(left + 14, 12, amount),
        ]
    parts.append(_text(0, 32, words("Known of the day"), "title"))
    left = _GUTTER
    names = {standing: standing_name(standing, words) for standing in Standing}
    names[Standing.OPEN] = words("open (the day was not over)")
    for standing, name in names.items():
        if standing is not Standing.NEVER_ASKED:
            parts.append(_cell(SourceDay(LEVELS[3], standing), name, left, 22))
        if standing is Standing.PARTIAL:
            parts.append(_mark(standing, _rectangle(left, 22, _CELL_WIDTH, _CELL_HEIGHT)))
        elif standing in (Standing.OPEN, Standing.NEVER_ASKED):
            parts.append(_mark(standing, _dot(left, 22)))
        parts.append(_text(left + 14, 32, name))
        left += 215 if len(name) > 12 else 105
    label = words(
        "Colour: articles a day, {amounts}. Shape: {names}",
        amounts=words(", ").join(amounts),
        names=words(", ").join(names.values()),
    )
    return _svg(label, _WIDTH, 38, "".join(parts))


def _svg(label: str, width: int, height: int, body: str) -> str:
    return f'<svg role="img" aria-label="{html.escape(label)}" viewBox="0 0 {width} {height}">{body}</svg>\n'


def _text(left: int, base: int, text: str, kind: str = "", whole: str = "") -> str:
    kinds = f' class="{kind}"' if kind else ""
    title = f"<title>{html.escape(whole)}</title>" if whole != text and whole else ""
    return f'<text{kinds} x="{left}" y="{base}">{html.escape(text)}{title}</text>'


def _cut(text: str) -> str:
    """As much of a name as fits left of its row; characters of East Asia take two columns."""
    columns, kept = 0, ""
    for character in text:
        columns += 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if columns > _LABEL_COLUMNS:
            return f"{kept}…"
        kept += character
    return kept
