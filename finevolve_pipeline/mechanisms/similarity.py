"""Cosine similarity to the growing memories of one sector, the same number on every machine.

Floating-point sums depend on their order, and the order on the BLAS in use. So vectors are first rounded
onto an integer grid so coarse that every partial sum of a scalar product is an integer of at most 24 bits:
float32 then adds exactly, in any order. The rounding moves a cosine by about 1e-4; the result is given to 6
decimals.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from finevolve_pipeline.embedding import Vectors

DECIMALS = 6
_EXACT = 2**12  # float32 holds integers up to 2**24 exactly, and |a.b| <= |a||b| <= 2**24 for partial sums too


class SimilarityIndex:
    """Vectors in the order they were added; position 0 is the oldest.

    Args:
        dimensions: length of a vector.
    """

    def __init__(self, dimensions: int) -> None:
        # Rounding lengthens a vector by at most sqrt(dimensions)/2.
        self._scale = _EXACT - math.ceil(math.sqrt(dimensions) / 2)
        self._grid = np.zeros((16, dimensions), dtype=np.float32)
        self._lengths = np.zeros(16)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, vector: Vectors) -> int:
        """Add one vector of length 1 (or 0). Returns its position."""
        if self._count == len(self._grid):
            self._grid = np.concatenate([self._grid, np.zeros_like(self._grid)])
            self._lengths = np.concatenate([self._lengths, np.zeros_like(self._lengths)])
        self._grid[self._count], self._lengths[self._count] = self._on_grid(vector)
        self._count += 1
        return self._count - 1

    def similarities(self, vector: Vectors) -> npt.NDArray[np.float64]:
        """Cosine of `vector` to every added one, shape (memories,), 6 decimals; 0 where one has no length."""
        query, length = self._on_grid(vector)
        products = (self._grid[: self._count] @ query).astype(np.float64)
        lengths = self._lengths[: self._count] * length
        cosines = np.zeros(self._count)
        np.divide(products, lengths, out=cosines, where=lengths > 0)
        np.round(cosines, DECIMALS, out=cosines)
        cosines += 0.0  # makes -0.0 an ordinary zero
        return cosines

    def _on_grid(self, vector: Vectors) -> tuple[Vectors, float]:
        rounded = np.rint(vector * np.float32(self._scale))
        return rounded, math.sqrt(float(rounded @ rounded))


def most_similar_first(similarities: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """Positions by similarity, highest first; ties newest first."""
    return np.lexsort((-np.arange(len(similarities)), -similarities))
