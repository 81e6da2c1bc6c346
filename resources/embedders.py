"""Embedders by settings. The default `hashing` needs no weights."""

from __future__ import annotations

from finevolve_pipeline.embedding import Embedder, HashingEmbedder
from finevolve_pipeline.settings import Settings


def build_embedder(settings: Settings) -> Embedder:
    """The embedder that all mechanisms share."""
    return HashingEmbedder(dimensions=settings.embedder.dimensions, ngrams=settings.embedder.ngrams)
