"""The cache in front of an embedding model: every text is embedded once, and everyone gets the same bytes.

A vector is stored under the model's identity and the text. Where the model read only a text's beginning, a mark is
stored beside, in the same transaction: so a day counts the same texts as cut whether it was embedded or looked up.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from finevolve_pipeline.embedding import Vectors
from finevolve_pipeline.errors import CacheError, CacheMissError
from finevolve_pipeline.llm.cache import VectorCache, vector_key
from resources.embedders.model import Encoded, TextModel

_CUT = np.ones(1, dtype=np.float32)
"""What stands under the mark of a text that was cut."""


class CachedEmbedder:
    """An `Embedder` that asks its model only for vectors that are not cached.

    Args:
        name: in the settings.
        model: embeds what is missing.
        cache: where vectors are kept.
        mode: as `settings.CacheSettings`.
        refreshed: keys that this process embedded anew already (mode `refresh`); added to.
    """

    def __init__(
        self,
        name: str,
        model: TextModel,
        cache: VectorCache,
        mode: Literal["use", "refresh", "replay-only"],
        refreshed: set[bytes],
    ) -> None:
        self._name = name
        self._model = model
        self._cache = cache
        self._mode = mode
        self._refreshed = refreshed
        self._alone = threading.Lock()

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        return self._model.dimensions

    @property
    def identity(self) -> dict[str, object]:
        """The model's: the cache changes no vector."""
        return self._model.identity

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Vectors of the texts, shape (texts, dimensions), float32, each of length 1; zeros for a blank text. Raises as
        `Embedder.embed`, and `CacheError`."""
        keys = self._keys(texts)
        found = self._vectors(keys)
        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for row, text in enumerate(texts):
            if text in keys:
                vectors[row] = found[keys[text]]
        return vectors

    def cut(self, texts: Sequence[str]) -> int:
        """Of how many texts the model read only the beginning. Raises as `embed`."""
        keys = self._keys(texts)
        self._vectors(keys)
        marks = {text: self._mark(text) for text in keys}
        marked = self._cache.get_many(list(marks.values()))
        return sum(1 for text in texts if marks.get(text) in marked)

    def _keys(self, texts: Sequence[str]) -> dict[str, bytes]:
        """The key of every distinct text that is not blank."""
        identity = self.identity
        return {text: vector_key(identity, text) for text in dict.fromkeys(texts) if text.strip()}

    def _mark(self, text: str) -> bytes:
        return vector_key({"cut by": self.identity}, text)

    def _vectors(self, keys: Mapping[str, bytes]) -> dict[bytes, Vectors]:
        """All of these vectors, by key: from the cache, and what is missing there from the model."""
        # One at a time: a text that two threads need is embedded once, and memory holds one batch.
        with self._alone:
            found = self._cached(list(keys.values()))
            missing = [text for text, key in keys.items() if key not in found]
            if missing:
                self._require_leave(missing, keys)
                for encoded in self._model.encode(missing):
                    found |= self._stored([missing[row] for row in encoded.rows], encoded, keys)
        return found

    def _cached(self, keys: Sequence[bytes]) -> dict[bytes, Vectors]:
        if self._mode == "refresh":
            keys = [key for key in keys if key in self._refreshed]
        found = self._cache.get_many(keys)
        for key, vector in found.items():
            if vector.shape != (self.dimensions,):
                raise CacheError(
                    f"cache {self._cache.place}: vector {key.hex()} has {vector.size} dimensions, embedder "
                    f"{self._name} has {self.dimensions}; `--cache refresh` embeds its text again"
                )
        return found

    def _require_leave(self, missing: Sequence[str], keys: Mapping[str, bytes]) -> None:
        if self._mode == "replay-only":
            raise CacheMissError(
                f"cache: no vector of embedder {self._name} for {len(missing)} of {len(keys)} texts (the first by key "
                f"{keys[missing[0]].hex()[:16]}), and mode replay-only computes none; `finevolve cache import FILE` "
                "brings vectors, `--cache use` computes them"
            )

    def _stored(self, texts: Sequence[str], encoded: Encoded, keys: Mapping[str, bytes]) -> dict[bytes, Vectors]:
        """Store a portion; its vectors as they are kept."""
        vectors = {keys[text]: vector for text, vector in zip(texts, encoded.vectors, strict=True)}
        marks = {self._mark(text): _CUT for text, cut in zip(texts, encoded.cut, strict=True) if cut}
        if self._mode == "refresh":
            self._cache.replace_many(vectors | marks)
            self._refreshed.update(vectors)
            return vectors
        kept = self._cache.put_many(vectors | marks)
        return {key: kept[key] for key in vectors}
