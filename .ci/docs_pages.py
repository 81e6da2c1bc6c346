"""Hooks of the site of documentation: files of the checkout that are pages too, and links that leave the site.

A guide that stands beside the code it is about (`crawlers/README.md`) is a page of the site without a second copy.
Links are written for a reader of the checkout; here one to a published file leads to its page, and one to any other
file of the checkout becomes the file's name, since the project has no public address to link to. What leads nowhere is
left as it is, and the strict build refuses it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

CHECKOUT = Path(__file__).resolve().parents[1]

PUBLISHED = {
    "finevolve_pipeline/mechanisms/README.md": "mechanisms/own.md",
    "crawlers/README.md": "data/crawlers.md",
    "benchmarks/README.md": "operating/figures.md",
    "deploy/README.md": "operating/server-profile.md",
    "tests/golden/README.md": "data/labels.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "CHANGELOG.md": "project/changelog.md",
    "DATA_CARD.md": "data/card.md",
    ".github/asset-graph.png": "images/asset-graph.png",
    ".github/report-desktop.png": "images/report-desktop.png",
}
"""Files of the checkout, and where the site has them."""

_FENCED = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^()\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the published files to those of `docs`."""
    for source, place in PUBLISHED.items():
        files.append(File.generated(config, place, abs_src_path=str(CHECKOUT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with its links as the site needs them."""
    place = page.file.src_uri
    sources = {to: source for source, to in PUBLISHED.items()}
    return with_links_of_site(markdown, sources.get(place, f"docs/{place}"), place)


def with_links_of_site(markdown: str, source: str, place: str) -> str:
    """Rewrite the relative links of a page, those in fenced code excepted.

    Args:
        markdown: the page's text.
        source: path of its file in the checkout, with `/`.
        place: path of the page in the site, with `/`.
    """

    def rewritten(link: re.Match[str]) -> str:
        path, mark, anchor = link["target"].partition("#")
        if not path or ":" in path or path.startswith("/"):
            return link[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        page = PUBLISHED.get(target, target.removeprefix("docs/") if target.startswith("docs/") else None)
        if page is not None:
            relative = posixpath.relpath(page, posixpath.dirname(place) or ".")
            return f"{link['image']}[{link['text']}]({relative}{mark}{anchor})"
        if target.startswith("..") or not (CHECKOUT / target).exists():
            return link[0]
        return link["text"] if target in link["text"] else f"{link['text']} (`{target}`)"

    pieces, at = [], 0
    for code in _FENCED.finditer(markdown):
        pieces += [_LINK.sub(rewritten, markdown[at : code.start()]), code[0]]
        at = code.end()
    return "".join([*pieces, _LINK.sub(rewritten, markdown[at:])])
