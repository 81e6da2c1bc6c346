"""Asset pages of the Dagster UI in a real browser: what they say of an asset's partitions, and how soon."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from playwright.sync_api import Page, sync_playwright

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]

_NO_PARTITIONS = ("Latest materialization", " ago")
"""What an asset without partitions shows once its last materialisation is known."""

_DRAWN = "texts => texts.every(text => document.body.innerText.includes(text)) && performance.now()"
"""Milliseconds since the navigation began, once all texts are on the page."""


@dataclass(frozen=True)
class Health:
    """Partitions of an asset by colour."""

    materialized: int
    failed: int
    missing: int

    @property
    def texts(self) -> tuple[str, ...]:
        """What the page says of them."""
        every = self.materialized + self.failed + self.missing
        return (
            f"{every:,} Partition",
            f"Failed ({self.failed})",
            f"Materialized ({self.materialized})",
            "Materializing (0)",
            f"Missing ({self.missing})",
        )


@contextmanager
def browser_page() -> Iterator[Page]:
    """A page of a Chromium without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)
        try:
            yield browser.new_page(viewport={"width": 1400, "height": 900}, reduced_motion="reduce")
        finally:
            browser.close()


def seconds_to_health(page: Page, url: str, asset: str, health: Health | None, timeout: float = 60.0) -> float:
    """Seconds from the beginning of the navigation until an asset's page shows its health (None: no partitions).

    Raises:
        playwright.sync_api.TimeoutError: the page does not say so, or says something else.
    """
    view = "overview" if health is None else "partitions"
    page.goto(f"{url}/assets/{asset}?view={view}", wait_until="commit")
    texts = list(_NO_PARTITIONS if health is None else health.texts)
    drawn = page.wait_for_function(_DRAWN, arg=texts, timeout=1000 * timeout, polling="raf")
    return float(drawn.json_value()) / 1000
