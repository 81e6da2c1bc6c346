"""The hashing embedder: unit vectors, the same everywhere, near for near texts."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest

from finevolve_pipeline.embedding import HashingEmbedder

TEXTS = [
    "钢铁限产政策落地，螺纹钢价格连续上涨，库存下降",
    "钢铁限产政策延续，螺纹钢价格继续上涨，库存回落",
    "医保集采降价，创新药企业利润承压",
]


@pytest.fixture
def embedder():
    return HashingEmbedder(1024, (2, 3))


def test_vectors_have_length_one_and_the_asked_shape(embedder):
    vectors = embedder.embed(TEXTS)
    assert vectors.shape == (3, 1024)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1, 1], abs=1e-6)


def test_near_texts_are_near(embedder):
    one, same, other = embedder.embed(TEXTS)
    assert one @ same > 0.5
    assert abs(one @ other) < 0.2


@pytest.mark.parametrize("text", ["", "a"])
def test_a_text_without_n_grams_is_the_zero_vector(embedder, text):
    assert not embedder.embed([text]).any()


def test_no_texts_give_no_vectors(embedder):
    assert embedder.embed([]).shape == (0, 1024)


def test_no_text_is_too_long_for_it(embedder):
    late = embedder.embed(["涨" * 100_000 + "跌停"])
    assert (late != embedder.embed(["涨" * 100_000])).any()
    assert embedder.cut(["涨" * 100_000]) == 0


def test_one_by_one_equals_the_batch(embedder):
    batch = embedder.embed(TEXTS)
    for row, text in enumerate(TEXTS):
        assert embedder.embed([text]).tobytes() == batch[row : row + 1].tobytes()


def test_all_characters_count_beyond_the_basic_plane_and_lone_surrogates_included(embedder):
    assert embedder.embed(["😀𠮷 ab", "\ud800\udfff ab"]).any(axis=1).all()
    assert (embedder.embed(["上涨上涨"]) != embedder.embed(["上跌上跌"])).any()


def test_frequent_n_grams_weigh_less_than_in_proportion(embedder):
    once, often = embedder.embed(["abcdef", "abcdef" + "ab" * 50])
    assert once @ often > 0.2


def test_the_vectors_are_the_recorded_ones_in_this_and_in_another_process(embedder):
    digest = hashlib.sha256(embedder.embed(TEXTS).astype("<f4").tobytes()).hexdigest()[:16]
    assert digest == "c70d622942893d25"
    code = (
        "import hashlib, sys; from finevolve_pipeline.embedding import HashingEmbedder as H; "
        "print(hashlib.sha256(H(1024, (2, 3)).embed(sys.argv[1:]).astype('<f4').tobytes()).hexdigest()[:16])"
    )
    run = subprocess.run([sys.executable, "-c", code, *TEXTS], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == digest


def test_the_identity_names_all_that_can_change_a_vector(embedder):
    identity = embedder.identity
    assert (identity["kind"], identity["dimensions"], identity["ngrams"]) == ("hashing", 1024, [2, 3])
    assert identity != HashingEmbedder(1024, (2,)).identity
