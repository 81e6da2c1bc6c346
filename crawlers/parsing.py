"""Reading what sites send: JSON and its wrappers, inline state, encodings, times, texts, titles. Once, for all spiders."""

from __future__ import annotations
