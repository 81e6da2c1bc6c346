"""The site: links of the checkout become links of the site, dead ones stop the build, nothing is asked of a network."""

import re
from pathlib import Path
from typing import Any

import docs_pages
import pytest
from click.exceptions import ClickException
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import Abort
from shown import CHECKOUT

REMOTE = re.compile(r"<(?:script|img|link|iframe|source)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")


def _site(folder: Path, pages: dict[str, str]) -> MkDocsConfig:
    """A small site under the settings of the real one, without what takes long."""
    for name, text in pages.items():
        (folder / "docs").mkdir(exist_ok=True)
        (folder / "docs" / name).write_text(text, "utf-8")
    site: dict[str, Any] = {"docs_dir": str(folder / "docs"), "site_dir": str(folder / "site"), "nav": list(pages)}
    site |= {"hooks": [], "plugins": ["search", "offline"], "extra_css": []}
    return load_config(str(CHECKOUT / "mkdocs.yml"), **site)


@pytest.mark.parametrize("link", ["b.md", "b.md#here", "#away", "index.md", "nowhere.md"])
def test_a_link_or_anchor_that_leads_nowhere_stops_the_build(tmp_path: Path, link: str) -> None:
    good = link in ("b.md", "b.md#here", "index.md")
    config = _site(tmp_path, {"index.md": f"# A\n\n[to]({link})\n", "b.md": "# B\n\n## Here\n"})
    if good:
        build(config)
        assert (tmp_path / "site" / "b.html").is_file()
    else:
        with pytest.raises((Abort, ClickException), match="strict mode"):
            build(config)


def test_a_page_asks_no_network(tmp_path: Path) -> None:
    build(_site(tmp_path, {"index.md": "# A\n\n```toml\n[news]\nmarket_wide = true\n```\n"}))
    html = (tmp_path / "site" / "index.html").read_text("utf-8")
    assert 'rel="stylesheet"' in html or "rel=stylesheet" in html
    assert REMOTE.findall(html) == []
    styles = "".join(path.read_text("utf-8") for path in (tmp_path / "site").rglob("*.css"))
    assert re.findall(r"url\([\"']?(?:https?:)?//", styles) == []


def test_published_files_exist_and_are_pages_of_the_navigation() -> None:
    navigation = (CHECKOUT / "mkdocs.yml").read_text("utf-8")
    for source, place in docs_pages.PUBLISHED.items():
        assert (CHECKOUT / source).is_file()
        assert place.startswith("images/") or f"- {place}\n" in navigation


def test_every_link_of_a_page_leads_somewhere_when_it_is_read_in_the_checkout() -> None:
    pages = [*(CHECKOUT / "docs").rglob("*.md"), CHECKOUT / "README.md"]
    pages += [CHECKOUT / source for source in docs_pages.PUBLISHED if source.endswith(".md")]
    dead = []
    for page in pages:
        text = docs_pages._FENCED.sub("", page.read_text("utf-8"))
        for link in docs_pages._LINK.finditer(text):
            path = link["target"].partition("#")[0]
            if path and ":" not in path and not (page.parent / path).exists():
                dead.append(f"{page.relative_to(CHECKOUT)}: {link['target']}")
    assert dead == []


@pytest.mark.parametrize(
    ("source", "place", "link", "shows"),
    [
        ("docs/data/law.md", "data/law.md", "[card](../../DATA_CARD.md)", "[card](card.md)"),
        ("docs/data/law.md", "data/law.md", "[sources](sources.md)", "[sources](sources.md)"),
        ("CONTRIBUTING.md", "project/contributing.md", "[g](crawlers/README.md)", "[g](../data/crawlers.md)"),
        (
            "DATA_CARD.md",
            "data/card.md",
            "[p](docs/protocol.md#task)",
            "[p](../protocol.md#task)",
        ),
        ("docs/data/law.md", "data/law.md", "[the text](../../LICENSE)", "the text (`LICENSE`)"),
        (
            "finevolve_pipeline/mechanisms/README.md",
            "mechanisms/own.md",
            "[`testing`](../testing.py)",
            "`testing` (`finevolve_pipeline/testing.py`)",
        ),
        ("docs/index.md", "index.md", "![r](../.github/report-desktop.png)", "![r](images/report-desktop.png)"),
        ("docs/index.md", "index.md", "[a](https://arxiv.org/abs/1)", "[a](https://arxiv.org/abs/1)"),
        ("docs/index.md", "index.md", "[a](../no/such.md)", "[a](../no/such.md)"),
        ("docs/index.md", "index.md", "```\n[a](../LICENSE)\n```", "```\n[a](../LICENSE)\n```"),
    ],
)
def test_links_of_the_checkout_become_links_of_the_site(source: str, place: str, link: str, shows: str) -> None:
    assert docs_pages.with_links_of_site(link, source, place) == shows
