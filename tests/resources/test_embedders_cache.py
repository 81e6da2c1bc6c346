"""The cache in front of embedders: each text is embedded once, everyone gets the same bytes, misses are told."""

import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from finevolve_pipeline.embedding import HashingEmbedder
from finevolve_pipeline.errors import BackboneError, CacheError, CacheMissError, ReplayMismatchError
from finevolve_pipeline.llm.cache import VectorCache, vector_key
from finevolve_pipeline.settings import load_settings
from resources.embedders import build_embedder
from resources.embedders.caching import CachedEmbedder
from resources.embedders.model import Encoded, unit_rows

sys.path.insert(0, str(Path(__file__).parent.parent / "replay"))

from replay_world import contents, replayed, small_parts, small_settings

LONGEST = 20
"""Characters that the model of these tests reads."""


class Model:
    """Random directions that follow from a text's first characters; remembers what it was asked, in portions of two.

    `noise` changes every vector a little, as other hardware would.
    """

    def __init__(self, dimensions=8, noise=0.0, fails_on=""):
        self.dimensions = dimensions
        self.noise = noise
        self.fails_on = fails_on
        self.asked = []

    @property
    def identity(self):
        return {"kind": "random", "dimensions": self.dimensions}

    def encode(self, texts):
        for start in range(0, len(texts), 2):
            some = texts[start : start + 2]
            if self.fails_on in some:
                raise BackboneError("provider x: gone")
            self.asked += some
            raw = [self._direction(text[:LONGEST]) for text in some]
            rows = tuple(range(start, start + len(some)))
            yield Encoded(rows, unit_rows(np.stack(raw)), tuple(len(text) > LONGEST for text in some))

    def _direction(self, text):
        return np.random.default_rng(list(text.encode())).normal(size=self.dimensions) + self.noise


def cached(folder, model, mode="use", refreshed=None):
    cache = VectorCache(folder / "vectors.sqlite")
    return CachedEmbedder("random", model, cache, mode, set() if refreshed is None else refreshed)


def test_a_text_is_embedded_once_however_often_it_is_given(tmp_path):
    model = Model()
    vectors = cached(tmp_path, model).embed(["钢铁", "煤炭", "钢铁"])
    assert model.asked == ["钢铁", "煤炭"]
    assert vectors[0].tobytes() == vectors[2].tobytes() != vectors[1].tobytes()
    assert vectors.shape == (3, 8)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1, 1], abs=1e-6)
    cached(tmp_path, model).embed(["煤炭", "银行"])
    assert model.asked == ["钢铁", "煤炭", "银行"]


def test_vectors_come_back_byte_for_byte_whatever_the_model_would_say_now(tmp_path):
    texts = [f"新闻{i}" for i in range(40)]
    first = cached(tmp_path, Model()).embed(texts)
    again = cached(tmp_path, Model(noise=0.1)).embed(texts[::-1])
    assert again[::-1].tobytes() == first.tobytes()


def test_what_is_stored_is_the_vector_under_identity_and_text(tmp_path):
    model = Model()
    vectors = cached(tmp_path, model).embed(["钢铁"])
    key = vector_key(model.identity, "钢铁")
    assert VectorCache(tmp_path / "vectors.sqlite").get_many([key])[key].tobytes() == vectors[0].tobytes()


def test_blank_texts_are_zero_vectors_and_nobody_is_asked(tmp_path):
    model = Model()
    embedder = cached(tmp_path, model, "replay-only")
    assert not embedder.embed(["", " \n"]).any()
    assert embedder.embed([]).shape == (0, 8)
    assert embedder.cut(["", " \n"]) == 0
    assert model.asked == []


def test_cut_texts_are_counted_alike_live_and_from_the_cache(tmp_path):
    long, longer = "涨" * (LONGEST + 1), "跌" * 500
    texts = [long, "钢铁", longer, long, "涨" * LONGEST, ""]
    live = cached(tmp_path, Model())
    live.embed(texts)
    assert live.cut(texts) == 3
    later = cached(tmp_path, Model(), "replay-only")
    assert later.cut(texts) == 3
    assert later.cut(["钢铁", longer]) == 1
    assert cached(tmp_path / "other", Model()).cut(texts) == 3


def test_replay_only_asks_nobody_and_tells_which_embedder_and_how_many_but_not_what(tmp_path):
    cached(tmp_path, Model()).embed(["钢铁"])
    model = Model()
    embedder = cached(tmp_path, model, "replay-only")
    assert embedder.embed(["钢铁"]).any()
    with pytest.raises(CacheMissError, match=r"embedder random for 2 of 3 texts .*replay-only") as caught:
        embedder.embed(["钢铁", "机密的新闻", "银行"])
    assert "机密" not in str(caught.value)
    assert vector_key(model.identity, "机密的新闻").hex()[:16] in str(caught.value)
    assert "\n" not in str(caught.value)
    assert model.asked == []


def test_refresh_embeds_each_text_anew_once_a_process_and_replaces_what_was_stored(tmp_path):
    old = cached(tmp_path, Model()).embed(["钢铁", "煤炭"])
    model, refreshed = Model(noise=0.1), set()
    new = cached(tmp_path, model, "refresh", refreshed).embed(["钢铁"])
    assert new.tobytes() != old[:1].tobytes()
    again = cached(tmp_path, model, "refresh", refreshed).embed(["钢铁"])
    assert model.asked == ["钢铁"]
    kept = cached(tmp_path, Model(noise=0.2)).embed(["钢铁", "煤炭"])
    assert again.tobytes() == new.tobytes() == kept[:1].tobytes()
    assert kept[1:].tobytes() == old[1:].tobytes()


def test_what_was_embedded_before_a_failure_is_not_embedded_again(tmp_path):
    texts = ["一", "二", "三", "四", "五"]
    with pytest.raises(BackboneError):
        cached(tmp_path, Model(fails_on="四")).embed(texts)
    model = Model()
    cached(tmp_path, model).embed(texts)
    assert model.asked == ["三", "四", "五"]


def test_threads_that_need_the_same_texts_embed_them_once(tmp_path):
    model = Model()
    embedder = cached(tmp_path, model)
    texts = [f"新闻{i}" for i in range(20)]
    threads = [threading.Thread(target=embedder.embed, args=(texts,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert model.asked == texts


def test_a_vector_of_another_length_is_refused(tmp_path):
    model = Model()
    VectorCache(tmp_path / "vectors.sqlite").put_many({vector_key(model.identity, "钢铁"): np.ones(5)})
    with pytest.raises(CacheError, match="has 5 dimensions, embedder random has 8"):
        cached(tmp_path, model).embed(["钢铁"])


def test_other_dimensions_or_weights_are_another_identity_and_share_nothing(tmp_path):
    cached(tmp_path, Model()).embed(["钢铁"])
    with pytest.raises(CacheMissError):
        cached(tmp_path, Model(dimensions=16), "replay-only").embed(["钢铁"])


def test_a_chain_made_with_one_embedder_is_refused_with_another(tmp_path):
    settings = small_settings(last="2025-01-08")
    chain = tmp_path / "chain"
    replayed(chain, "mem0", small_parts(settings, embedder=cached(tmp_path, Model())), settings.benchmark.sessions[:2])
    for other in (HashingEmbedder(8, (2, 3)), cached(tmp_path, Model(dimensions=16))):
        with pytest.raises(
            ReplayMismatchError, match=r"mem0-rules 2025-01-02.* settings or code: embedder\."
        ) as caught:
            replayed(chain, "mem0", small_parts(settings, embedder=other))
        assert "`finevolve reset mem0-rules" in str(caught.value)


def test_a_chain_from_the_cache_alone_has_the_same_bytes(tmp_path):
    settings = small_settings(last="2025-01-08")
    for name, model, mode in (("live", Model(), "use"), ("again", Model(fails_on="x", noise=1.0), "replay-only")):
        embedder = cached(tmp_path, model, mode)
        replayed(tmp_path / name, "mem0", small_parts(settings, embedder=embedder))
    assert model.asked == []
    assert contents(tmp_path / "live") == contents(tmp_path / "again")


@pytest.mark.parametrize(
    ("raw", "why"),
    [([[1.0, float("nan")]], "NaN"), ([[1.0, 2.0], [float("inf"), 0.0]], "infinity"), ([[0.0, 0.0]], "zeros")],
)
def test_rows_without_a_direction_are_refused(raw, why):
    with pytest.raises(ValueError, match=why):
        unit_rows(np.array(raw))


@pytest.mark.parametrize("precision", [np.float16, np.float32, np.float64])
def test_rows_of_any_precision_and_size_come_out_with_length_one(precision):
    raw = np.array([[3.0, 4.0], [6e-5, 8e-5], [3e4, 4e4]]).astype(precision)
    vectors = unit_rows(raw)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors.astype(np.float64), axis=1) == pytest.approx([1, 1, 1], abs=1e-7)


def test_the_hashing_embedder_is_not_cached(home):
    embedder = build_embedder(load_settings(), home)
    assert isinstance(embedder, HashingEmbedder)
    assert embedder.dimensions == 1024
    embedder.embed(["钢铁"])
    assert not home.exists()


@pytest.mark.parametrize("name", ["qwen3-embedding-8b", "universal-sentence-encoder", "endpoint"])
def test_every_packaged_embedder_is_built_without_loading_or_opening_anything(home, name):
    embedder = build_embedder(load_settings(overrides={"embedding": {"embedder": name}}), home)
    assert embedder.dimensions == {"universal-sentence-encoder": 512}.get(name, 4096)
    assert not embedder.embed([""]).any()
    assert not home.exists()
