"""Takes the pictures of a home's report that the documentation shows: `screenshots.py HOME FOLDER`.

What must not live here: judging the report (see `tests/evaluation/test_report_in_browser.py`).
"""

from __future__ import annotations

import io
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright

COLOURS = 128
"""Of a picture's palette; text stays sharp, files stay small."""


@dataclass(frozen=True)
class Shot:
    """One picture: its name, the page, its size, and how the browser shows it."""

    name: str
    page: str
    width: int
    height: int
    context: dict[str, Any] = field(default_factory=dict)
    media: str = "screen"


SHOTS = (
    Shot("desktop", "index.html", 1280, 2000, {"color_scheme": "light"}),
    Shot("dark", "index.zh.html", 1280, 2000, {"color_scheme": "dark"}),
    Shot("phone", "index.html", 360, 1800, {"is_mobile": True, "has_touch": True, "device_scale_factor": 2}),
    Shot("print", "index.html", 1046, 1480, media="print"),
)


def main(home: Path, folder: Path) -> None:
    """Write `report-NAME.png` of every shot into the folder."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        raise SystemExit("no chromium, chromium-browser or google-chrome on the path (Debian: apt install chromium)")
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for shot in SHOTS:
            view = {"width": shot.width, "height": 800}
            context = browser.new_context(viewport=view, offline=True, **shot.context)
            picture = _picture(context.new_page(), (home / "report" / shot.page).resolve().as_uri(), shot)
            context.close()
            palette = Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
            palette.save(folder / f"report-{shot.name}.png", optimize=True)
        browser.close()


def _picture(page: Page, address: str, shot: Shot) -> bytes:
    page.goto(address)
    for figure in page.locator("figure:has(.chart)").all():
        figure.scroll_into_view_if_needed()
        figure.locator("svg.main-svg").first.wait_for()
    page.emulate_media(media=shot.media)  # type: ignore[arg-type]
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_timeout(500)
    clip = {"x": 0, "y": 0, "width": shot.width, "height": shot.height}
    return page.screenshot(full_page=True, clip=clip)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
