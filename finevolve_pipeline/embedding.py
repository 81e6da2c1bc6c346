"""Embedders: a text becomes a unit vector, so that news blocks can be compared by cosine.

The default `hashing` embedder needs no weights: it counts character n-grams in hashed buckets. Its vectors
are the same on every platform, because counting is exact and each later step is one correctly rounded
operation. They are never stored, but computed again from the text. Embedders with weights live in
`resources.embedders`; their vectors are cached.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from finevolve_pipeline.digests import source_digest

Vectors = npt.NDArray[np.float32]


class Embedder(Protocol):
    """Turns texts into vectors."""

    @property
    def dimensions(self) -> int:
        """Length of a vector."""

    @property
    def identity(self) -> dict[str, object]:
        """Everything that can change a vector, as JSON; never a secret."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Vectors of the texts, shape (texts, dimensions), each of length 1; a zero row for an empty text.

        Raises:
            SettingsError: the embedder cannot be used as the settings say.
            BackboneError, BudgetError: as `llm.requests.Backbone.answer`.
            CacheMissError: only cached vectors may be used, and one is missing.
        """

    def cut(self, texts: Sequence[str]) -> int:
        """Of how many texts the embedder reads only the beginning: the same number whenever it is asked, from the
        cache too. Raises as `embed`, since what was never embedded is embedded first."""


_MULTIPLIER = np.uint32(0x9E3779B1)  # 2**32 / golden ratio, odd: neighbouring code points land far apart
_FINISHER = np.uint32(0x85EBCA77)


def _hashed(points: npt.NDArray[np.uint32], size: int) -> npt.NDArray[np.uint32]:
    """One 32-bit hash for every run of `size` code points, modulo 2**32."""
    hashed = points[: len(points) - size + 1] + np.uint32(size)
    for offset in range(1, size):
        hashed = hashed * _MULTIPLIER
        hashed ^= hashed >> np.uint32(15)
        hashed += points[offset : len(points) - size + 1 + offset]
    hashed = hashed * _MULTIPLIER
    hashed ^= hashed >> np.uint32(13)
    hashed *= _FINISHER
    hashed ^= hashed >> np.uint32(16)
    return hashed


class HashingEmbedder:
    """Signed counts of character n-grams in `dimensions` buckets, damped by a square root, scaled to length
    1.

    For the signed count c of a bucket the entry is sign(c) * sqrt(|c| / sum |c|): frequent n-grams (the
    labels that every article carries) weigh less than in proportion. A text shorter than the shortest
    n-gram is a zero vector.

    Args:
        dimensions: buckets.
        ngrams: lengths of the counted n-grams, in characters.
    """

    def __init__(self, dimensions: int, ngrams: Sequence[int]) -> None:
        self._dimensions = dimensions
        self._ngrams = tuple(ngrams)

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        return self._dimensions

    @property
    def identity(self) -> dict[str, object]:
        """Kind, parameters and code version."""
        return {
            "kind": "hashing",
            "dimensions": self._dimensions,
            "ngrams": list(self._ngrams),
            "code": source_digest("finevolve_pipeline.embedding"),
        }

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Vectors of the texts, shape (texts, dimensions), float32, each of length 1 or 0."""
        vectors = np.zeros((len(texts), self._dimensions), dtype=np.float32)
        for row, text in enumerate(texts):
            counts = self._counts(text)
            total = int(np.abs(counts).sum())
            if total:
                vectors[row] = np.sign(counts) * np.sqrt(np.abs(counts) / total)
        return vectors

    def cut(self, texts: Sequence[str]) -> int:
        """None: every text is read to its end."""
        return 0

    def _counts(self, text: str) -> npt.NDArray[np.int64]:
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.uint32)
        hashes = [_hashed(points, size) for size in self._ngrams if size <= len(points)]
        if not hashes:
            return np.zeros(self._dimensions, dtype=np.int64)
        hashed = np.concatenate(hashes)
        # The high bits choose the bucket, the lowest bit its sign; counting both at once keeps everything
        # integer.
        bucket = (hashed.astype(np.uint64) * np.uint64(self._dimensions)) >> np.uint64(32)
        slot = bucket.astype(np.intp) * 2 + (hashed & np.uint32(1)).astype(np.intp)
        counted = np.bincount(slot, minlength=2 * self._dimensions).reshape(self._dimensions, 2)
        signed: npt.NDArray[np.int64] = counted[:, 0] - counted[:, 1]
        return signed


class NoVectors:
    """An embedder for those who only want to know what is remembered: it reads no text, all its vectors are zero.

    Args:
        dimensions: length of a vector.
    """

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        return self._dimensions

    @property
    def identity(self) -> dict[str, object]:
        """No embedder's: nothing may be stored that rests on it."""
        return {"kind": "none"}

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Zero rows, shape (texts, dimensions)."""
        return np.zeros((len(texts), self._dimensions), dtype=np.float32)

    def cut(self, texts: Sequence[str]) -> int:
        """None is read, so none is cut."""
        return 0
