"""How many tokens a text has: by a model's own tokenizer where its file is named, else by an upper estimate."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from finevolve_pipeline.errors import SettingsError

_KEPT = 20_000

TokenCount = Callable[[str], int]
"""Tokens of a text."""


MESSAGE_TOKENS = 8
"""Tokens that a chat template adds to a message, at most."""

_DIGITS = "0123456789"


def estimate_tokens(text: str) -> int:
    """Upper estimate of a text's tokens without a tokenizer: one for each CJK character and each digit, one for three
    other ASCII characters. (A tokenizer that was made without Chinese takes more.)"""
    characters = len(text)
    wide = (len(text.encode("utf-8", "replace")) - characters) // 2
    digits = sum(map(text.count, _DIGITS))
    return wide + digits + -(-(characters - wide - digits) // 3)


def token_counter(tokenizer_file: str) -> tuple[TokenCount, dict[str, object]]:
    """A counter, and what identifies it in a run.

    Args:
        tokenizer_file: a `tokenizer.json` of the library `tokenizers`; empty: `estimate_tokens`.

    Raises:
        SettingsError: the file is missing or no such file, or the library is not installed.
    """
    if not tokenizer_file:
        return estimate_tokens, {"kind": "estimate", "version": 2}
    path = Path(tokenizer_file).expanduser()
    try:
        content = path.read_bytes()
    except OSError as refused:
        raise SettingsError(
            f"tokenizer {tokenizer_file}: cannot be read ({refused.strerror}); name a tokenizer.json, or leave "
            f"`tokenizer` empty for an estimate"
        ) from None
    digest = hashlib.sha256(content).hexdigest()[:32]
    return _loaded(tokenizer_file, content), {"kind": "tokenizer", "digest": digest}


@lru_cache(maxsize=4)
def _loaded(name: str, content: bytes) -> TokenCount:
    try:
        import tokenizers
    except ImportError:
        raise SettingsError(
            f"tokenizer {name}: the library `tokenizers` is not installed; install it, or leave `tokenizer` empty"
        ) from None
    try:
        tokenizer = tokenizers.Tokenizer.from_buffer(content)
    except ValueError as broken:
        reason = " ".join(str(broken).split())[:120]
        raise SettingsError(f"tokenizer {name}: no tokenizer.json ({reason}); give the one of the model") from None
    return _counting(tokenizer)


def _counting(tokenizer: Any) -> TokenCount:
    # Files made for embedders cut and pad to a fixed length, which would make every count the same.
    tokenizer.no_truncation()
    tokenizer.no_padding()

    # An article stands in the blocks of several industries and days.
    @lru_cache(maxsize=_KEPT)
    def count(text: str) -> int:
        encodable = text.encode("utf-8", "replace").decode("utf-8")
        return len(tokenizer.encode(encodable, add_special_tokens=False))

    return count
