"""Where pages stand in the report's folder, in each language, and how they lead to each other.

What must not live here: what stands on a page.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from finevolve_pipeline.evaluation.report.words import LANGUAGES, Language, Words

INDEX = "index.html"
SENSITIVITY = "sensitivity.html"

TAGS: dict[Language, str] = {"en": "en", "zh": "zh-CN"}
"""Languages as pages and browsers name them."""

NAMES: dict[Language, str] = {"en": "English", "zh": "中文"}
"""Languages as their speakers name them."""


def file_of(page: str, language: Language) -> str:
    """A page's file: `index.html` is `index.zh.html` in Chinese."""
    return page if language == "en" else page.removesuffix(".html") + f".{language}.html"


@dataclass(frozen=True)
class Place:
    """A page in one language: its English file's name, relative to the folder, and the language."""

    page: str
    words: Words

    @property
    def file(self) -> str:
        """Its file, relative to the folder."""
        return file_of(self.page, self.words.language)

    @property
    def tag(self) -> str:
        """Its language for `lang`."""
        return TAGS[self.words.language]

    def to(self, name: str) -> str:
        """The address of any file of the folder, as this page has to write it."""
        return posixpath.relpath(name, posixpath.dirname(self.file) or ".")

    def link(self, page: str) -> str:
        """The address of another page in this page's language."""
        return self.to(file_of(page, self.words.language))

    @property
    def others(self) -> tuple[tuple[str, str, str], ...]:
        """This page in the other languages: its address, the language's tag, its name."""
        return tuple(
            (self.to(file_of(self.page, language)), TAGS[language], NAMES[language])
            for language in LANGUAGES
            if language != self.words.language
        )
