"""`finevolve tagging agreement` on a few items."""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "resources"))

from model_server import ModelServer, running

from finevolve_pipeline.cli.tagging import PROJECT_LABELS, tagging_group
from finevolve_pipeline.errors import InputError, SettingsError

ITEMS = {
    "a": "央行宣布全面降准0.5个百分点，银行板块大涨。",
    "b": "布伦特原油期货大涨8%，石油板块走强。",
    "c": "某地举行马拉松比赛。",
}
LABELS = {"a": ("801780", "industry", 9), "b": ("801960", "industry", 8), "c": ("", "none", 1)}


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """Labels and the news they are about."""
    labels, news = tmp_path / "labels.csv", tmp_path / "news.jsonl.gz"
    rows = [
        f"{item},{hashlib.sha256(ITEMS[item].encode()).hexdigest()},{codes},{scope},{importance}\n"
        for item, (codes, scope, importance) in LABELS.items()
    ]
    labels.write_text("id,content_sha256,industries,scope,importance\n" + "".join(rows), "utf-8")
    with gzip.open(news, "wt", encoding="utf-8") as sink:
        for item, content in ITEMS.items():
            whole = {"id": item, "source": "cls", "title": "", "content": content, "time": "2026-03-01 10:00:00"}
            sink.write(json.dumps(whole) + "\n")
    return str(labels), str(news)


def run(*arguments: str) -> None:
    tagging_group.main(["agreement", *arguments], standalone_mode=False)


@pytest.mark.usefixtures("home")
def test_agreement_of_the_backbone_in_force_as_json(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    labels, news = files
    run("--labels", labels, "--articles", news, "--json")
    told = json.loads(capsys.readouterr().out)
    assert (told["backbone"], told["labelled"], told["tagging"]["asked"]) == ("rules", 3, 3)
    assert told["tagger"].startswith("rules:")
    assert told["agreement"]["overall"]["recall"] == 1.0
    assert told["agreement"]["spearman"] > 0.5
    assert (told["tagging"]["cost_usd"], told["tagging"]["unreadable"]) == (0.0, 0)


@pytest.mark.usefixtures("home")
def test_agreement_for_people_names_every_figure(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    labels, news = files
    run("--labels", labels, "--articles", news, "--backbone", "rules")
    shown = capsys.readouterr().out
    for figure in ("precision", "Spearman", "Kendall", "kappa", "importance >= 8, both", "unreadable", "cost, USD"):
        assert figure in shown


@pytest.mark.usefixtures("home")
def test_batches_agree_as_much(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    labels, news = files
    run("--labels", labels, "--articles", news, "--json")
    one = json.loads(capsys.readouterr().out)
    (tmp_path / "batch.toml").write_text("[tagging]\nbatch = 2\n")
    monkeypatch.setenv("FINEVOLVE_CONFIG", str(tmp_path / "batch.toml"))
    run("--labels", labels, "--articles", news, "--json")
    two = json.loads(capsys.readouterr().out)
    assert two["agreement"] == one["agreement"]
    assert two["tagger"] != one["tagger"]
    assert two["tagging"]["calls"] == 2


MODEL = """\
[providers.here]
base_url = "{url}"

[backbones.small]
kind = "openai"
provider = "here"
model = "m"
context_window = 65536
max_tokens = 2000
structured = "json_schema"
price = {{ input = 1.0, cached_input = 0.5, output = 2.0 }}

[tagging]
batch = {batch}
"""


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(("batch", "requests"), [(1, 3), (2, 2)])
def test_a_model_is_measured_once_and_then_from_the_cache(
    files: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    batch: int,
    requests: int,
) -> None:
    labels, news = files
    told = []
    with running(ModelServer()) as server:
        (tmp_path / "model.toml").write_text(MODEL.format(url=server.base_url, batch=batch))
        monkeypatch.setenv("FINEVOLVE_CONFIG", str(tmp_path / "model.toml"))
        for _ in range(2):
            run("--labels", labels, "--articles", news, "--backbone", "small", "--json")
            told.append(json.loads(capsys.readouterr().out))
        assert len(server.log) == requests
    assert told[0] == told[1]
    tagging = told[0]["tagging"]
    assert (tagging["asked"], tagging["asked_again"], tagging["calls"], tagging["failures"]) == (3, 0, requests, {})
    tokens = tagging["tokens"]
    assert tagging["cost_usd"] == pytest.approx((tokens["prompt"] + 2 * tokens["completion"]) / 1e6)
    assert tokens["prompt"] > 1000


@pytest.mark.usefixtures("home")
def test_a_backbone_nobody_has_is_refused(files: tuple[str, str]) -> None:
    labels, news = files
    with pytest.raises(SettingsError, match="backbone 'nobody'"):
        run("--labels", labels, "--articles", news, "--backbone", "nobody")


@pytest.mark.usefixtures("home")
def test_the_projects_labels_are_the_default(files: tuple[str, str]) -> None:
    assert PROJECT_LABELS.exists()
    with pytest.raises(InputError, match="is labelled but not in this file"):
        run("--articles", files[1])
