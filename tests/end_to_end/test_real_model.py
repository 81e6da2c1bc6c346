"""A real language model through the real client: tags articles, replays two days of three sectors, is counted, and its
answers make the same bytes again in an empty home without it. The model is tiny: the path is true, the answers are not.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from small_language_model import CONTEXT, MODEL, SLOTS, serving, weights
from small_world import FIRST, SESSIONS, Finevolve, command_line, contents, import_arguments, write_small_world

from finevolve_pipeline.replay.journal import ReplayStore
from resources.table_store import TableStore

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(weights() is None, reason="no small model is installed (`make models`)"),
]

LAST = SESSIONS[1]
CODES = ["801170", "801780", "801950"]
KEYS = ("pipe-small", "mem0-small")

SECTIONS = f"""
[tagging]
backbone = "small"

[prompts]
language = "en"
news_tokens = 200
experience_tokens = 200
update_news_tokens = 200
article_tokens = 150

[scores]
out_of_range = "clip"  # a grammar bounds the form of a number, not its size

[providers.loopback]
base_url = "BASE_URL"
deployment = "a small model on loopback"
concurrency = {SLOTS}

[backbones.small]
kind = "openai"
provider = "loopback"
model = "{MODEL}"
context_window = {CONTEXT}
max_tokens = 160
structured = "json_schema"
decoding = {{ temperature = 0.0, seed = 7, repeat_penalty = 1.15 }}
price = {{ input = 0.1, cached_input = 0.01, output = 0.4 }}
"""


@dataclass(frozen=True)
class Ran:
    """A home in which the model has run, its settings, and a bundle of its answers."""

    home: Path
    config: Path
    world: Path
    bundle: Path


@pytest.fixture(scope="module")
def finevolve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finevolve]:
    with command_line(tmp_path_factory.mktemp("output")) as run:
        yield run


@pytest.fixture(scope="module")
def ran(finevolve: Finevolve, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("real-model")
    world = write_small_world(folder / "world", mechanisms=("pipe", "mem0"), articles_per_day=2)
    config, home, bundle = world / "finevolve.toml", folder / "home", folder / "answers.zip"
    settings = config.read_text().replace("[experiments]", '[experiments]\nbackbones = ["small"]')
    settings = settings.replace("horizons = [1, 2, 4]", f"horizons = [1, 2, 4]\nindustries = {json.dumps(CODES)}")
    settings = settings.replace("[news]", "[news]\nmin_importance = 1\nmarket_wide = true")
    for arguments in import_arguments(world):
        config.write_text(settings + SECTIONS.replace("BASE_URL", "http://127.0.0.1:9/v1"))
        finevolve(*arguments, home=home, config=config).expect()
    with serving() as base_url:
        config.write_text(settings + SECTIONS.replace("BASE_URL", base_url))
        finevolve("run", "--to", LAST, "--budget", 5, "--json", home=home, config=config).expect()
    finevolve("cache", "export", bundle, home=home, config=config).expect()
    return Ran(home, config, world, bundle)


def test_articles_carry_tags_of_the_schema(ran: Ran) -> None:
    store = TableStore(ran.home)
    tagged = pd.concat([store.read("tagged_articles", key) for key in store.partitions("tagged_articles")])
    assert len(tagged) >= 8
    assert set(tagged["tagger"].str.partition(":")[0]) == {"small"}
    assert tagged["importance"].between(1, 10).all()
    read = tagged[tagged["importance_reason"] != "the tagger's answer could not be read"]
    assert len(read) >= len(tagged) / 2


def test_two_days_of_three_sectors_were_predicted_and_counted(ran: Ran) -> None:
    store = ReplayStore(ran.home / "replay")
    for key in KEYS:
        assert store.sessions(key) == (FIRST, LAST)
        frame = store.read_predictions(key)
        assert sorted(frame["code"].unique()) == CODES
        assert len(frame) == 2 * 3 * 3
        assert frame["score"].notna().sum() >= 6
        assert frame["score"].dropna().between(-1, 1).all()
        for manifest in (store.manifest(key, session) for session in (FIRST, LAST)):
            assert manifest.models == (MODEL,)
            assert manifest.usage.calls >= 3
            assert manifest.usage.prompt_tokens > 3 * 300
            assert manifest.usage.completion_tokens > 0
            assert manifest.usage.cost > 0


def test_the_ledger_has_every_answered_call(ran: Ran, finevolve: Finevolve) -> None:
    said = finevolve("usage", "--json", home=ran.home, config=ran.config).expect()
    text = json.dumps(said.document)
    assert "tag" in text
    assert "predict" in text
    stats = finevolve("cache", "stats", "--json", home=ran.home, config=ran.config).expect().document
    assert stats


def test_the_answers_alone_make_the_same_bytes_in_an_empty_home(ran: Ran, finevolve: Finevolve, tmp_path: Path) -> None:
    home = tmp_path / "again"
    for arguments in import_arguments(ran.world):
        finevolve(*arguments, home=home, config=ran.config).expect()
    missing = finevolve("run", "--to", LAST, "--cache", "replay-only", home=home, config=ran.config).expect(1)
    assert "replay-only" in missing.errors[0]
    finevolve("cache", "import", ran.bundle, home=home, config=ran.config).expect()
    finevolve("run", "--to", LAST, "--cache", "replay-only", "--json", home=home, config=ran.config).expect()
    assert contents(home, ("tables", "replay")) == contents(ran.home, ("tables", "replay"))
