"""The report's section on news coverage: what the map and its tables say, and that no text breaks out of them."""

from __future__ import annotations

import csv
import datetime as dt
import io
import re
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from report_page import HOSTILE, Page, nothing_yet

from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.evaluation.report import ReportFiles, build_report, coverage_map, news_coverage
from finevolve_pipeline.evaluation.report.words import Words
from finevolve_pipeline.news.coverage import DayCoverage, SourceCoverage
from finevolve_pipeline.news.coverage_table import CoverageTable, Standing, coverage_table
from finevolve_pipeline.settings import load_settings

ENGLISH = Words()
ASKED = dt.datetime(2026, 6, 1, 9, tzinfo=SHANGHAI)


def day(reason: str = "", *, is_open: bool = False) -> DayCoverage:
    return DayCoverage({"feed": reason}, ASKED, 1, is_open)


def one_day(standing: str, articles: int | None) -> CoverageTable:
    """The second of May 2026 of cls, between two complete days."""
    days = {"2026-05-01": day(), "2026-05-03": day()}
    if standing not in ("imported", "never asked"):
        days["2026-05-02"] = day("page 3: timed out" if standing == "partial" else "", is_open=standing == "open")
    counts = {} if articles is None else {("cls", "2026-05-02"): articles}
    return coverage_table([SourceCoverage("cls", days)], counts)


def large(sources: int = 12, days: int = 882) -> CoverageTable:
    """Every standing, many reasons."""
    first = dt.date(2024, 1, 1)
    isos = [(first + dt.timedelta(days=n)).isoformat() for n in range(days)]
    known = []
    for number in range(sources):
        reasons = {n: f"page {n % 7}: HTTP 403" for n in range(number, days, 11)}
        found = {
            iso: day(reasons.get(n, ""), is_open=n == days - 1)
            for n, iso in enumerate(isos)
            if (n + number) % 5 or n in reasons
        }
        known.append(SourceCoverage(f"source-{number}", found, state="ok"))
    counts = {
        (f"source-{number}", iso): (n * 37 + number * 101) % 1500
        for number in range(sources)
        for n, iso in enumerate(isos)
        if (n + number) % 9
    }
    return coverage_table(known, counts)


def drawn(table: CoverageTable, configured: tuple[str, ...] = ("cls",)) -> str:
    return "".join(block.svg for block in coverage_map.blocks(table, configured, ENGLISH))


def told(drawing: str) -> list[str]:
    """What the cells of a drawing say."""
    return re.findall(r"<title>(.*?)</title></path>", drawing)


def report_of(table: CoverageTable, folder: Path) -> ReportFiles:
    return build_report(folder / "r", nothing_yet(load_settings(), table))


def section(built: ReportFiles) -> Page:
    source = built.index.read_text("utf-8")
    return Page(source[source.index('<section id="news-coverage"') : source.index('<section id="coverage"')])


def test_a_home_without_news_says_so_in_one_line(tmp_path: Path) -> None:
    page = section(report_of(coverage_table([SourceCoverage("cls")], {}), tmp_path))
    assert page.text == "News coverage No news has landed yet, and no site has been asked for any."
    assert not page.all("svg")
    assert not page.all("table")


def test_sites_that_were_asked_in_vain_are_shown_with_the_reason(tmp_path: Path) -> None:
    cls = SourceCoverage("cls", {"2026-05-02": day("HTTP 456")}, state="blocked", reason="HTTP 456 four times")
    page = section(report_of(coverage_table([cls], {}), tmp_path))
    assert "No article has landed, 2026-05-02 to 2026-05-02." in page.text
    assert "cls blocked HTTP 456 four times" in page.text
    assert "cls 2026-05-02 feed: HTTP 456 1 0" in page.text


def test_a_partial_day_is_shown_with_its_reason(tmp_path: Path) -> None:
    table = one_day("partial", 41)
    page = section(report_of(table, tmp_path))
    assert "cls 2026-05-02 feed: page 3: timed out 1 41" in page.text
    assert "Sat 2026-05-02 cls: 41 articles, partial: feed: page 3: timed out" in page.text
    assert "Days by source: 2 complete, 1 partial, 0 open, 0 imported, 0 never asked." in page.text
    assert "2026-05 41 (1)" in page.text


def test_days_that_are_not_partial_have_no_table_of_reasons(tmp_path: Path) -> None:
    page = section(report_of(one_day("complete", 41), tmp_path))
    assert [(table.get("class") or "").split()[:1] for table in page.all("table")] == [["reasons"], []]
    assert "Why they are partial" not in page.text


def test_standings_are_told_apart_without_colour() -> None:
    shapes = {}
    for standing in Standing:
        drawing = drawn(one_day(standing.value, None if standing is Standing.NEVER_ASKED else 50))
        drawing = re.sub(r"<title>.*?</title>", "", drawing)
        shapes[standing] = re.sub(r'class="k\d"|aria-label="[^"]*"', "", drawing)
    assert len(set(shapes.values())) == len(Standing)


def test_what_a_shape_means_stands_in_the_legend() -> None:
    legend = coverage_map.legend(ENGLISH)
    for standing in Standing:
        assert f">{standing.value}" in legend
    hatch = re.findall(r'fill="url\(#(.*?)\)"', drawn(one_day("partial", 5)))
    assert hatch == re.findall(r'<pattern id="(.*?)"', legend)


@pytest.mark.parametrize(
    ("articles", "level"),
    [(None, 0), (0, 0), (1, 1), (9, 1), (10, 2), (99, 3), (100, 4), (999, 5), (1000, 6), (9999, 6)],
)
def test_colour_tells_how_many_articles(articles: int | None, level: int) -> None:
    (cell,) = re.findall(r'<path class="k(\d)"[^>]*><title>Sat', drawn(one_day("complete", articles)))
    assert int(cell) == level


def test_the_style_knows_every_class_of_the_drawing() -> None:
    css = (Path(coverage_map.__file__).parent / "report.css").read_text("utf-8")
    used = set(
        re.findall(r'class="(\w+)"', coverage_map.legend(ENGLISH) + drawn(large(2, 200), ("source-0", "source-1")))
    )
    assert {"k0", "k6", "never", "ring", "mark"} <= used
    assert {name for name in used if f".coverage .{name}" not in css} == set()


def test_every_known_day_is_drawn_once_and_says_its_numbers() -> None:
    table = large(3, 400)
    cells = told(drawn(table, ()))
    assert len(cells) == len(table.known)
    said = [re.fullmatch(r"\w{3} (\S+) (\S+): ([\d,]+) articles?, (\w+)(?:: .*)?", cell) for cell in cells]
    numbers = {(one[2], one[1]): (int(one[3].replace(",", "")), one[4]) for one in said if one is not None}
    assert numbers == {key: (found.articles or 0, found.standing.value) for key, found in table.known.items()}


def test_no_two_cells_of_a_block_lie_upon_each_other() -> None:
    for block in coverage_map.blocks(large(2, 400), (), ENGLISH):
        places = re.findall(r'<path class="k\d" d="M(\d+) (\d+)h', block.svg)
        assert len(places) == len(set(places)) > 50


def test_a_weekend_stands_at_the_end_of_its_week() -> None:
    drawing = drawn(coverage_table([SourceCoverage("cls", {f"2026-05-{n:02}": day() for n in range(1, 12)})], {}))
    lefts = {n: int(left) for left, n in re.findall(r'd="M(\d+) [^"]*"><title>\w+ 2026-05-(\d+)', drawing)}
    steps = {n: lefts[n] - lefts[f"{int(n) - 1:02}"] for n in lefts if n != "01"}
    assert {n for n, step in steps.items() if step > min(steps.values())} == {"04", "11"}  # Mondays


def test_quarters_without_anything_are_left_out() -> None:
    counts = {("cls", "1999-12-31"): 1, ("cls", "2026-05-02"): 2}
    titles = [
        block.title for block in coverage_map.blocks(coverage_table([SourceCoverage("cls")], counts), ("cls",), ENGLISH)
    ]
    assert titles == ["1999 Q4", "2026 Q2"]


def test_a_configured_source_has_a_row_even_if_it_was_never_asked() -> None:
    counts = {("files", "2026-03-31"): 1, ("files", "2026-04-01"): 1, ("more", "2026-04-01"): 1}
    table = coverage_table([SourceCoverage(name) for name in ("cls", "files", "more")], counts)
    rows = [
        re.findall(r'<text class="source"[^>]*>([^<]*)<', block.svg)
        for block in coverage_map.blocks(table, ("cls",), ENGLISH)
    ]
    assert rows == [["cls", "files"], ["cls", "files", "more"]]


def test_nothing_is_said_of_days_after_the_last_known_one() -> None:
    drawing = drawn(one_day("never asked", None))
    (dots,) = re.findall(r'class="never" d="([^"]*)"', drawing)
    assert dots.count("M") == 1


def test_long_names_of_sources_are_cut_and_stand_there_whole_to_be_read() -> None:
    name = "财联社电报与其他来源的汇总"
    drawing = drawn(coverage_table([SourceCoverage(name)], {(name, "2026-05-02"): 2}))
    assert f">财联社电报与其他…<title>{name}</title></text>" in drawing


def test_hostile_reasons_and_names_are_shown_and_never_markup(tmp_path: Path) -> None:
    days: Mapping[str, DayCoverage] = {f"2026-05-{n:02}": day(text) for n, text in enumerate(HOSTILE, 1)}
    sources = [SourceCoverage(text, days, text, text, text, text) for text in HOSTILE]
    built = report_of(coverage_table(sources, {(text, "2026-05-01"): 3 for text in HOSTILE}), tmp_path)
    source, page = built.index.read_text("utf-8"), section(built)
    for text in HOSTILE:
        assert page.text.count(text) > 12
        if "<" in text:
            assert text not in source
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "img", "b", "style"}
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    rows = list(csv.reader(io.StringIO((built.folder / news_coverage.FILE).read_text("utf-8"), newline="")))
    assert not [cell for row in rows for cell in row if cell[:1] in tuple("=+-@")]


def test_of_very_many_partial_spans_the_newest_are_shown_and_the_others_counted(tmp_path: Path) -> None:
    days = {(dt.date(2024, 1, 1) + dt.timedelta(days=n)).isoformat(): day(f"reason {n}.") for n in range(130)}
    built = report_of(coverage_table([SourceCoverage("cls", days)], {}), tmp_path)
    view = news_coverage.partial_table(coverage_table([SourceCoverage("cls", days)], {}), ENGLISH)
    assert [len(view.rows), view.rows[0][2].text, view.rows[-1][2].text] == [
        100,
        "feed: reason 129.",
        "feed: reason 30.",
    ]
    assert "The newest 100; 30 older ones stand in tables/news_coverage.csv." in section(built).text
    assert "reason 0." in (built.folder / news_coverage.FILE).read_text("utf-8")


def test_the_file_has_every_known_day(tmp_path: Path) -> None:
    table = large(2, 40)
    text = (report_of(table, tmp_path).folder / news_coverage.FILE).read_text("utf-8")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert {(row["source"], row["day"]): (row["articles"], row["state"], row["reason"]) for row in rows} == {
        key: ("" if found.articles is None else str(found.articles), found.standing.value, found.reason)
        for key, found in table.known.items()
    }
    assert [row["day"] for row in rows] == sorted(row["day"] for row in rows)


def test_the_section_needs_no_network_and_every_drawing_has_words(tmp_path: Path) -> None:
    built = report_of(large(3, 100), tmp_path)
    page = section(built)
    assert all(svg["role"] == "img" and svg["aria-label"] for svg in page.all("svg"))
    assert len(page.all("svg")) == 3  # the legend and two quarters
    ids = [attributes["id"] for _, attributes in Page(built.index.read_text("utf-8")).elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {tag for tag, _ in page.elements} & {"script", "link", "img", "a"} == set()


def test_882_days_of_12_sources_are_drawn_in_under_two_seconds_and_always_the_same() -> None:
    began = time.process_time()
    table = large()
    first = news_coverage.news_coverage(table, ("source-0",), ENGLISH)
    news_coverage.day_rows(table)
    assert time.process_time() - began < 2
    assert len(table.days) == 882
    assert first == news_coverage.news_coverage(large(), ("source-0",), ENGLISH)
    assert sum(len(block.svg) for block in first.blocks) < 1_500_000
