"""Embedders by settings: `hashing` needs no weights; vectors of all others are cached, like answers."""

from __future__ import annotations

from pathlib import Path

from finevolve_pipeline.embedding import Embedder, HashingEmbedder
from finevolve_pipeline.llm.ledger import Purpose
from finevolve_pipeline.settings import (
    EndpointEmbedderSettings,
    HashingSettings,
    PriceSettings,
    SentenceTransformerSettings,
    Settings,
)
from resources.embedders.caching import CachedEmbedder
from resources.embedders.endpoint import EndpointModel
from resources.embedders.model import TextModel
from resources.embedders.sentence import SentenceTransformerModel
from resources.embedders.universal import UniversalSentenceEncoderModel
from resources.outside import Outside
from resources.provider import Provider


def build_embedder(settings: Settings, home: Path) -> Embedder:
    """The embedder that all mechanisms share. Nothing is loaded, opened or asked before its first use.

    Args:
        settings: effective settings.
        home: where vectors are cached and spending is written down.
    """
    section = settings.embedder
    if isinstance(section, HashingSettings):
        return HashingEmbedder(dimensions=section.dimensions, ngrams=section.ngrams)
    outside = Outside.of(settings, home)
    return CachedEmbedder(
        name=settings.embedding.embedder,
        model=_model(settings, home),
        cache=outside.vectors,
        mode=settings.cache.mode,
        refreshed=outside.refreshed,
    )


def _model(settings: Settings, home: Path) -> TextModel:
    name, section = settings.embedding.embedder, settings.embedder
    if isinstance(section, SentenceTransformerSettings):
        return SentenceTransformerModel(name, section)
    if isinstance(section, EndpointEmbedderSettings):
        return _endpoint(name, section, settings, home)
    return UniversalSentenceEncoderModel(name, section.dimensions)


def _endpoint(name: str, section: EndpointEmbedderSettings, settings: Settings, home: Path) -> EndpointModel:
    # Vectors serve every experiment and day, so they are on nobody's account in particular.
    purpose = Purpose(experiment="", backbone=name, phase="embed", day="")
    price = None
    if section.price is not None:
        price = PriceSettings(input=section.price, cached_input=section.price, output=0.0)
    # A provider of its own: the backbones' belongs to their event loop's thread. Limits are common all the same.
    provider = Provider(section.provider, settings.providers[section.provider], home / "providers")
    meter = Outside.of(settings, home).ledger.meter(purpose, price)
    return EndpointModel(name, section, provider, meter, price)
