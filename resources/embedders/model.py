"""What a model that embeds texts offers to the cache in front of it, and what all such models share."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from finevolve_pipeline.embedding import Vectors
from finevolve_pipeline.errors import SettingsError


@dataclass(frozen=True)
class Encoded:
    """Vectors of some of the texts that a model was given.

    Attributes:
        rows: positions of these texts among all given ones.
        vectors: shape (rows, dimensions), each of length 1.
        cut: for each, whether the model read only its beginning.
    """

    rows: tuple[int, ...]
    vectors: Vectors
    cut: tuple[bool, ...]


class TextModel(Protocol):
    """Embeds texts that nobody embedded before. Nothing is loaded or asked before `encode`."""

    @property
    def dimensions(self) -> int:
        """Length of a vector."""

    @property
    def identity(self) -> dict[str, object]:
        """Everything that can change a vector, as JSON; never a secret, never a path."""

    def encode(self, texts: Sequence[str]) -> Iterator[Encoded]:
        """All texts, none of them blank, in portions: a portion is kept even if a later one fails.

        Raises:
            SettingsError: the model cannot be used as the settings say.
            BackboneError, BudgetError: as `llm.requests.Backbone.answer`.
        """


def encodable(text: str) -> str:
    """The text without lone surrogates, which no tokenizer and no JSON takes."""
    return text.encode("utf-8", "replace").decode("utf-8")


def unit_rows(raw: npt.NDArray[Any]) -> Vectors:
    """The rows as float32, each of length 1. `raw` has shape (rows, dimensions), in any precision.

    Raises:
        ValueError: a row holds NaN or infinity, or is all zeros.
    """
    # Through float32 first, so that a number sent as text or as bytes comes out the same.
    with np.errstate(over="ignore"):
        numbers = np.asarray(raw, dtype=np.float32).astype(np.float64)
    if not np.isfinite(numbers).all():
        raise ValueError("a vector with NaN or infinity in it")
    lengths = np.sqrt(np.square(numbers).sum(axis=1, keepdims=True))
    if not lengths.all():
        raise ValueError("a vector of zeros")
    vectors: Vectors = (numbers / lengths).astype(np.float32)
    return vectors


def library(embedder: str, package: str, module: str, release: str, extra: str) -> ModuleType:
    """An optional package's module, imported now.

    Args:
        embedder: name in the settings, for messages.
        package: as it is installed.
        module: as it is imported.
        release: beginning of the versions whose vectors are the ones meant, e.g. `6.`.
        extra: of this project, which brings the package.

    Raises:
        SettingsError: it is not installed, of another release, or broken.
    """
    remedy = f"`pip install -e '.[{extra}]'` in the checkout"
    try:
        version = importlib.metadata.version(package)
        if not version.startswith(release):
            raise SettingsError(
                f"embedder {embedder}: {package} {version} is installed, and its vectors may be others than those of "
                f"{release}x, which are meant; {remedy} brings that"
            )
        return importlib.import_module(module)
    except importlib.metadata.PackageNotFoundError:
        raise SettingsError(f"embedder {embedder}: the package {package} is not installed; {remedy}") from None
    except ImportError as broken:
        reason = " ".join(str(broken).split())[:160]
        raise SettingsError(f"embedder {embedder}: {package} cannot be imported ({reason}); {remedy}") from None
