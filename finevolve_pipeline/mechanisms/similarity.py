"""Cosine similarity to the growing memories of one sector, the same number on every machine.

Floating-point sums depend on their order, and the order on the BLAS in use. So vectors are first rounded onto an
integer grid on which every partial sum of a scalar product is an integer of at most 53 bits: float64 then adds exactly,
in any order. The rounding is finer than float32 itself for all but tiny entries, so a cosine is right to the 6 decimals
that are given.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from finevolve_pipeline.embedding import Vectors

DECIMALS = 6
_GRID = 2.0**26
"""Steps of 1. A vector of length 1 in float32 is no longer than 1.00001 times that, rounding included. So for partial
sums too |a.b| <= |a||b| < 2**53, and float64 holds such integers exactly."""


class SimilarityIndex:
    """Vectors in the order they were added; position 0 is the oldest.

    Args:
        dimensions: length of a vector.
    """

    def __init__(self, dimensions: int) -> None:
        self._grid = np.zeros((16, dimensions))
        self._lengths = np.zeros(16)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, vector: Vectors) -> int:
        """Add one vector of length 1 (or 0). Returns its position."""
        if self._count == len(self._grid):
            self._grid = _doubled(self._grid)
            self._lengths = _doubled(self._lengths)
        self._grid[self._count], self._lengths[self._count] = self._on_grid(vector)
        self._count += 1
        return self._count - 1

    def similarities(self, vector: Vectors) -> npt.NDArray[np.float64]:
        """Cosine of `vector` to every added one, shape (memories,), 6 decimals; 0 where one has no length."""
        query, length = self._on_grid(vector)
        products = self._grid[: self._count] @ query
        lengths = self._lengths[: self._count] * length
        cosines = np.zeros(self._count)
        np.divide(products, lengths, out=cosines, where=lengths > 0)
        np.round(cosines, DECIMALS, out=cosines)
        cosines += 0.0  # makes -0.0 an ordinary zero
        return cosines

    def _on_grid(self, vector: Vectors) -> tuple[npt.NDArray[np.float64], float]:
        rounded = np.rint(vector.astype(np.float64) * _GRID)
        return rounded, math.sqrt(float(rounded @ rounded))


def _doubled(array: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Twice as many rows. Those not yet used take no memory: their pages are only touched when they are written."""
    longer = np.zeros((2 * len(array), *array.shape[1:]))
    longer[: len(array)] = array
    return longer


def most_similar_first(similarities: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """Positions by similarity, highest first; ties newest first."""
    return np.lexsort((-np.arange(len(similarities)), -similarities))
