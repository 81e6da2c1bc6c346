"""What a crawl yields: one article as the site published it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Article:
    """A public article. `finevolve import news` reads files of these.

    Attributes:
        source: source id, e.g. cls.
        source_id: the site's own id of the article.
        url: its address.
        title, content: plain text as the site sent it.
        published_at: first publication, ISO 8601 with the offset of Asia/Shanghai.
        modified_at: last modification, the same form; empty if the site gives none.
        crawled_at: when the crawl began that fetched it, the same form.
    """

    source: str
    source_id: str
    url: str
    title: str
    content: str
    published_at: str
    modified_at: str
    crawled_at: str
