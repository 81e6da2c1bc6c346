"""The report's words in English and Chinese.

English stands in the code; a Chinese catalogue beside this file, `zh/<part>.toml`, maps each English text to its
Chinese one: `"text" = "译文"`. What belongs here: looking words up. What must not: any sentence of the report.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args

Language = Literal["en", "zh"]

LANGUAGES: tuple[Language, ...] = get_args(Language)


@cache
def chinese() -> dict[str, str]:
    """Every text that has a Chinese one.

    Raises:
        ValueError: two catalogues translate one text differently.
    """
    found: dict[str, str] = {}
    for path in sorted((Path(__file__).parent / "zh").glob("*.toml")):
        for english, text in tomllib.loads(path.read_text("utf-8")).items():
            if found.setdefault(english, text) != text:
                raise ValueError(f"{path.name}: {english!r} has two translations")
    return found


@dataclass(frozen=True)
class Words:
    """Texts of the report in one language."""

    language: Language = "en"

    def __call__(self, text: str, /, **values: object) -> str:
        """The text, with `{name}` filled in from `values`.

        Args:
            text: in English, as it stands in the code.
            values: what its braces name.

        Raises:
            KeyError: the language has no such text, or a brace has no value.
        """
        found = text if self.language == "en" else chinese()[text]
        return found.format(**values) if values else found
