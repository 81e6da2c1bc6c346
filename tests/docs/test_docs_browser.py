"""The site as a reader opens it: files in a browser, no server, no network, search included."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from playwright.sync_api import Page, sync_playwright
from shown import CHECKOUT

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here (Debian: chromium)")

PHONE = {"width": 390, "height": 840}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real pages, without references made from code and without those of other folders."""
    folder = tmp_path_factory.mktemp("docs")
    shutil.copytree(CHECKOUT / "docs", folder / "docs", ignore=shutil.ignore_patterns("reference"))
    pages = sorted(str(page.relative_to(folder / "docs")) for page in (folder / "docs").rglob("*.md"))
    settings = {"docs_dir": str(folder / "docs"), "site_dir": str(folder / "site"), "nav": pages, "strict": False}
    build(load_config(str(CHECKOUT / "mkdocs.yml"), hooks=[], plugins=["search", "offline"], **settings))
    return folder / "site"


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    """A page of a browser that has no network."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(offline=True)
        yield context.new_page()
        browser.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_phone_and_ask_nothing(site: Path, page: Page, scheme: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for each in sorted(site.rglob("*.html")):
        page.goto(each.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0, each.name
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    luminance = (
        "getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).slice(0, 3).reduce((a, b) => a + +b, 0)"
    )
    assert (page.evaluate(luminance) < 382) == (scheme == "dark")


def test_search_finds_a_word_in_files_without_a_server(site: Path, page: Page) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto((site / "index.html").as_uri())
    page.locator("input[name=query]").press_sequentially("maturing", delay=30)
    first = page.locator(".md-search-result__link").first
    first.wait_for(timeout=20_000)
    first.click()
    page.wait_for_url("**/*.html*")
    assert "matur" in page.locator("article").inner_text().lower()
