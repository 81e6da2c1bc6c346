"""The report as a browser shows it: from a disk, without a network, hostile texts, both languages, every reader."""

from __future__ import annotations

import dataclasses
import functools
import http.server
import math
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from report_page import HOSTILE
from test_evaluation_report import article, case_run, paper_case, retrieved, with_cases, world, world_settings
from test_evaluation_sensitivity_page import Findings
from test_evaluation_sensitivity_page import table as sensitivity_table

from finevolve_pipeline.evaluation.ic import METRICS
from finevolve_pipeline.evaluation.report import ReportFiles, ReportInputs, build_report
from finevolve_pipeline.evaluation.sensitivity import HEADLINE
from finevolve_pipeline.tables import TIME

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on the path (Debian: apt install chromium)"
)

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
]

# Each sets `window.hostile` if it runs.
ATTACKS = (
    *HOSTILE,
    "<script>window.hostile=1</script>",
    '"><img src=x onerror=window.hostile=1>',
    "</script><script>window.hostile=1</script>",
    "'\"><svg onload=window.hostile=1>",
    '<a href="javascript:window.hostile=1">x</a>',
    "{{ 7*7 }}{% raw %}${window.hostile=1}",
)

PAGES = (
    "index.html",
    "index.zh.html",
    "cases/801170-2025-05-30.html",
    "cases/801170-2025-05-30.zh.html",
    "sensitivity.html",
    "sensitivity.zh.html",
)

Browser = Any
BrowserPage = Any


def hostile_sensitivity() -> pd.DataFrame:
    """Every variant, of a mechanism and a backbone with hostile names; one finding changes."""
    calm: Findings = {(ATTACKS[-4], metric, horizon): "above" for metric in METRICS for horizon in (10, 0)}
    changed: Findings = {**calm, (ATTACKS[-4], "csIC", 10): "noise"}
    variants = (HEADLINE, "spearman", "own_cells", "undefined_zero", "close_t", "open_next", "close_next")
    return sensitivity_table(
        {**dict.fromkeys((*variants, "before_cutoff", "after_cutoff"), calm), "pearson": changed}, backbone=HOSTILE[-1]
    )


def hostile_inputs() -> ReportInputs:
    """A report of one backbone with hostile names, titles, texts and reasons wherever others may write."""
    settings = world_settings("2025-02-28", experiments={"mechanisms": ["pipe", "mem0"], "backbones": ["rules"]})
    inputs = world(settings)
    text = " ".join(ATTACKS)
    names = inputs.comparison["mechanism"].replace("mem0", ATTACKS[-4])
    sample = inputs.news_sample.iloc[[1] * len(ATTACKS)].assign(title=ATTACKS, content=text, importance_reason=text)
    counts = inputs.news_counts.assign(source=inputs.news_counts["source"].replace("cls", ATTACKS[-5]))
    memory = retrieved(1, text=text, memory_id=ATTACKS[-4], kind=ATTACKS[-6])
    study = paper_case(
        news=tuple(
            dataclasses.replace(article(number % 20, attack, attack * 2), source=attack)
            for number, attack in enumerate(ATTACKS)
        ),
        runs=(case_run("mem0", (0.1, math.nan, 0.1), memory, key_factor=text, logic_chain=text, articles=6),),
        absent=ATTACKS,
    )
    return with_cases(
        dataclasses.replace(
            inputs,
            comparison=inputs.comparison.assign(mechanism=names),
            news_sample=sample.assign(published_at=sample["published_at"].astype(TIME)),
            news_counts=counts,
            sensitivity=hostile_sensitivity(),
        ),
        study,
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> ReportFiles:
    return build_report(tmp_path_factory.mktemp("report") / "report", hostile_inputs())


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@dataclasses.dataclass
class Seen:
    """What a page asked for and complained of."""

    requests: list[str] = dataclasses.field(default_factory=list)
    complaints: list[str] = dataclasses.field(default_factory=list)


@contextmanager
def opened(browser: Browser, address: str, seen: Seen | None = None, **context: Any) -> Iterator[BrowserPage]:
    """A page in a context of its own, offline unless the context says otherwise."""
    own = browser.new_context(**{"offline": True, "viewport": {"width": 1280, "height": 900}, **context})
    page = own.new_page()
    if seen is not None:
        page.on("request", lambda request: seen.requests.append(request.url))
        page.on("console", lambda message: seen.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    page.goto(address)
    yield page
    own.close()


def address(built: ReportFiles, page: str) -> str:
    return (built.folder / page).as_uri()


def until(page: BrowserPage, condition: str) -> None:
    """Wait for a condition; the browser's own waiting makes scripts of text, which the page's policy forbids."""
    for _ in range(300):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never came true: {condition}")


def scroll_through(page: BrowserPage) -> None:
    """Scroll until every chart has been drawn."""
    for figure in range(page.locator("figure:has(.chart)").count()):
        page.evaluate(f"document.querySelectorAll('figure:has(.chart)')[{figure}].scrollIntoView()")
        until(page, f"!!document.querySelectorAll('.chart')[{figure}].querySelector('svg.main-svg .xtick, .ytick')")


def shown(page: BrowserPage, selector: str) -> list[bool]:
    return page.eval_on_selector_all(selector, "all => all.map((one) => one.checkVisibility())")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_opens_from_a_disk_without_a_network_and_no_text_of_others_runs(
    browser: Browser, built: ReportFiles, name: str
) -> None:
    seen = Seen()
    with opened(browser, address(built, name), seen) as page:
        scroll_through(page)
        for link in page.locator("a[href^='#']").all():
            link.dispatch_event("click")
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert page.evaluate("window.hostile") is None
        assert page.locator("img, iframe, object, a[href^='javascript:']").count() == 0
        assert all(attack.strip() in page.inner_text("main", timeout=5000) for attack in ("{{ 7*7 }}", ATTACKS[-4]))
    assert seen.complaints == []
    assert {url.partition(":")[0] for url in seen.requests} == {"file"}
    assert {url.rpartition("/")[2] for url in seen.requests} <= {Path(name).name, "report.js", "plotly.min.js"}


@pytest.mark.slow
def test_the_policy_stops_what_escaping_might_let_through(browser: Browser, built: ReportFiles) -> None:
    with opened(browser, address(built, "index.html")) as page:
        page.evaluate(
            """() => {
              const place = document.createElement("div");
              place.innerHTML =
                '<img src=x onerror="window.hostile=1"><a id=bad href="javascript:window.hostile=1">x</a>';
              document.body.append(place);
              const script = document.createElement("script");
              script.textContent = "window.hostile=1";
              document.body.append(script);
            }"""
        )
        page.locator("#bad").dispatch_event("click")
        page.wait_for_timeout(200)
        assert page.evaluate("window.hostile") is None
        assert page.evaluate("fetch('http://127.0.0.1:9/').catch((error) => error.name)") == "TypeError"


@pytest.mark.slow
def test_the_same_folder_works_behind_a_web_server(browser: Browser, built: ReportFiles) -> None:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(built.folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    seen = Seen()
    origin = f"http://127.0.0.1:{server.server_port}"
    try:
        with opened(browser, f"{origin}/index.html", seen, offline=False) as page:
            scroll_through(page)
            assert page.evaluate("window.hostile") is None
    finally:
        server.shutdown()
    assert {url for url in seen.requests if not url.startswith(f"{origin}/")} == set()
    assert [one for one in seen.complaints if "favicon" not in one and "404" not in one] == []


@pytest.mark.slow
def test_charts_take_the_place_of_drawings_and_tell_values(browser: Browser, built: ReportFiles) -> None:
    with opened(browser, address(built, "index.html")) as page:
        scroll_through(page)
        charts = page.locator(".chart").count()
        assert charts >= 7
        assert shown(page, "figure .drawing") == [False] * charts
        assert shown(page, ".chart") == [True] * charts
        page.locator("#p0bars").scroll_into_view_if_needed()
        page.locator("#p0bars .point path").first.hover(force=True)
        told = page.locator("#p0bars .hoverlayer").text_content(timeout=5000)
        assert re.search(r"10 sessions: [−-]?0\.\d{4}", told)
        names = page.locator("#p0bars .legendtext").all_text_contents()
        assert names == ["Pipe", ATTACKS[-4]]
        toggled = page.locator("#p0bars .legendtoggle").first
        toggled.click()
        until(page, "document.querySelector('#p0bars .chart').data[0].visible === 'legendonly'")


@pytest.mark.slow
def test_every_trace_of_every_chart_has_values_to_hover(browser: Browser, built: ReportFiles) -> None:
    with opened(browser, address(built, "index.zh.html")) as page:
        scroll_through(page)
        traces = page.eval_on_selector_all(
            ".chart", "all => all.flatMap((one) => one.data.map((t) => [t.x.length, t.y.length, t.hovertemplate]))"
        )
    assert len(traces) > 20
    assert all(x == y > 0 and template for x, y, template in traces)


@pytest.mark.slow
def test_charts_are_drawn_only_when_they_come_near(browser: Browser, built: ReportFiles) -> None:
    seen = Seen()
    with opened(browser, address(built, "index.html"), seen) as page:
        page.wait_for_timeout(300)
        drawn = page.locator(".drawn").count()
        assert drawn < page.locator(".chart").count()
    with opened(browser, address(built, PAGES[2]), seen := Seen()) as page:
        page.wait_for_timeout(100)
    assert not [url for url in seen.requests if "plotly" in url]


@pytest.mark.parametrize("name", PAGES)
def test_without_a_script_everything_can_be_read(browser: Browser, built: ReportFiles, name: str) -> None:
    with opened(browser, address(built, name), java_script_enabled=False) as page:
        drawings = page.locator("figure .drawing svg").all()
        assert all(drawing.is_visible() for drawing in drawings)
        assert page.locator("main table").first.is_visible()
        assert not page.locator("#theme").is_visible()
        assert not any(chart.is_visible() for chart in page.locator(".screen").all())


def colour(page: BrowserPage, what: str = "backgroundColor") -> float:
    """Lightness of the page, 0 to 1."""
    red, green, blue = map(int, re.findall(r"\d+", page.evaluate(f"getComputedStyle(document.body).{what}"))[:3])
    return (0.3 * red + 0.6 * green + 0.1 * blue) / 255


@pytest.mark.slow
def test_colours_follow_the_system_and_the_readers_choice(browser: Browser, built: ReportFiles) -> None:
    with opened(browser, address(built, "index.html"), color_scheme="dark") as page:
        assert colour(page) < 0.2 < 0.8 < colour(page, "color")
        page.emulate_media(color_scheme="light")
        assert colour(page) > 0.9
        button = page.locator("#theme")
        assert button.inner_text() == "Colours: as the system"
        button.click()
        button.click()
        assert button.inner_text() == "Colours: dark"
        assert colour(page) < 0.2
        page.reload()
        assert colour(page) < 0.2
        with page.expect_navigation():
            page.locator(".tools a").click()
        assert page.locator("#theme").inner_text() == "配色：深色"


@pytest.mark.slow
def test_charts_follow_the_colours_of_the_page(browser: Browser, built: ReportFiles) -> None:
    ink = "getComputedStyle(document.querySelector('#p0bars .xtick text')).fill"
    with opened(browser, address(built, "index.html"), color_scheme="light") as page:
        page.locator("#p0bars").scroll_into_view_if_needed()
        until(page, "!!document.querySelector('#p0bars .xtick text')")
        light = page.evaluate(ink)
        page.emulate_media(color_scheme="dark")
        until(page, f"{ink} !== '{light}'")
        assert page.evaluate(ink) == page.evaluate("getComputedStyle(document.body).color")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_paper_shows_drawings_folded_parts_and_no_tools_on_white(
    browser: Browser, built: ReportFiles, scheme: str
) -> None:
    with opened(browser, address(built, "index.html"), color_scheme=scheme) as page:
        scroll_through(page)
        page.emulate_media(media="print", color_scheme=scheme)
        assert all(shown(page, "figure .drawing svg"))
        assert not any(shown(page, ".chart, nav, .tools, .skip"))
        assert all(shown(page, "details table caption"))
        assert colour(page) == 1
        assert colour(page, "color") == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_no_table_is_cut_on_paper(browser: Browser, built: ReportFiles, name: str) -> None:
    paper = {"width": 1046, "height": 718}  # A4 on its side within margins of 10 mm, in CSS pixels
    with opened(browser, address(built, name), viewport=paper) as page:
        page.emulate_media(media="print")
        cut = page.eval_on_selector_all(
            "table, pre, .text, .drawing svg, figure.coverage svg",
            """all => all.filter((one) => one.getBoundingClientRect().right > 1047)
                .map((one) => one.caption?.textContent ?? one.outerHTML.slice(0, 80))""",
        )
    assert cut == []


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_a_phone_scrolls_tables_but_never_the_page_sideways(browser: Browser, built: ReportFiles, name: str) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}
    with opened(browser, address(built, name), **phone) as page:
        scroll_through(page)
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth") == 360


@pytest.mark.slow
def test_a_keyboard_reaches_the_content_and_the_tools(browser: Browser, built: ReportFiles) -> None:
    with opened(browser, address(built, "index.html")) as page:
        page.keyboard.press("Tab")
        assert page.locator(".skip").evaluate("(one) => one === document.activeElement")
        box = page.locator(".skip").bounding_box()
        assert box["x"] >= 0 <= box["y"]
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        page.keyboard.press("Shift+Tab")
        reached = []
        for _ in range(30):
            reached.append(page.evaluate("document.activeElement.id"))
            if reached[-1] == "theme":
                break
            page.keyboard.press("Shift+Tab")
        assert reached[-1] == "theme"
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.keyboard.press("Enter")
        assert page.evaluate("document.documentElement.dataset.theme") == "light"
        summary = page.locator("summary").first
        summary.focus()
        page.keyboard.press("Enter")
        assert page.locator("details").first.evaluate("(one) => one.open")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_no_barrier_to_readers_is_found(browser: Browser, built: ReportFiles, name: str, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    # Past the page's policy, which would stop the checker's own script.
    with opened(browser, address(built, name), color_scheme=scheme, bypass_csp=True) as page:
        scroll_through(page)
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        found = axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]
    told = [f"{one['impact']} {one['id']}: {one['nodes'][0]['html'][:200]}" for one in found]
    assert told == []


@pytest.mark.slow
def test_headings_are_in_order(browser: Browser, built: ReportFiles) -> None:
    for name in PAGES:
        with opened(browser, address(built, name)) as page:
            levels = page.eval_on_selector_all("h1, h2, h3, h4", "all => all.map((one) => Number(one.tagName[1]))")
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after <= before + 1 for before, after in pairwise(levels))
