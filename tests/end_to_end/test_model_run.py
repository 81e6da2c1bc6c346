"""The whole pipeline on a model behind HTTP: stopped, killed, out of money, without a key; nothing is asked twice.

The server runs in this process and answers from the prompt's digest, so that equal questions get equal answers.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "resources"))

from model_server import ModelServer, Question, Step, echoes_authorization, running, status
from small_world import FIRST, SESSIONS, Finevolve, command_line, contents, import_arguments, write_small_world

from finevolve_pipeline.cli.dagster_home import join_instance
from finevolve_pipeline.replay.journal import ReplayStore

pytestmark = pytest.mark.slow

MECHANISMS = ("pipe", "mem0")
KEYS = tuple(f"{name}-served" for name in MECHANISMS)
LAST = SESSIONS[3]
SECRET = "sk-6f1d0c2b9a8e47"
KEY = {"A_KEY": SECRET}

SECTIONS = """
[tagging]
backbone = "{tagger}"

[providers.loopback]
base_url = "{base_url}"
deployment = "loopback"
key_variable = "A_KEY"
concurrency = 64
attempts = 3
failures_in_a_row = 6
longest_wait_seconds = 0.2

[backbones.served]
kind = "openai"
provider = "loopback"
model = "m"
context_window = 40000
max_tokens = 2000
price = {{ input = 1.0, cached_input = 0.1, output = 2.0 }}
"""


@dataclass(frozen=True)
class Bench:
    """A home with everything imported and built up to the replay, and the command line on it."""

    finevolve: Finevolve
    home: Path
    world: Path

    @property
    def config(self) -> Path:
        return self.world / "finevolve.toml"

    def serve(self, base_url: str, tagger: str = "rules") -> None:
        """Write settings that name the server."""
        plain = self.config.read_text().partition("\n[tagging]")[0]
        self.config.write_text(plain + SECTIONS.format(base_url=base_url, tagger=tagger))

    def run(self, *options: object, **how: object):
        return self.finevolve(
            "run", "--to", LAST, *options, home=self.home, config=self.config, **{"environment": KEY, **how}
        )

    @property
    def replays(self) -> ReplayStore:
        return ReplayStore(self.home / "replay")


@pytest.fixture(scope="module")
def finevolve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finevolve]:
    with command_line(tmp_path_factory.mktemp("output")) as run:
        yield run


@pytest.fixture(scope="module")
def imported(finevolve: Finevolve, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("served")
    world = write_small_world(folder / "world", mechanisms=MECHANISMS, articles_per_day=12)
    config = world / "finevolve.toml"
    config.write_text(config.read_text().replace("[experiments]", '[experiments]\nbackbones = ["served"]'))
    bench = Bench(finevolve, folder / "home", world)
    bench.serve("http://127.0.0.1:9/v1")
    for arguments in import_arguments(world):
        finevolve(*arguments, home=bench.home, config=config).expect()
    return bench


@pytest.fixture
def bench(imported: Bench, tmp_path: Path) -> Bench:
    """A copy for one test."""

    shutil.copytree(imported.home, tmp_path / "home")
    shutil.copytree(imported.world, tmp_path / "world")
    return Bench(imported.finevolve, tmp_path / "home", tmp_path / "world")


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with running(ModelServer()) as started:
        yield started


def asked(server: ModelServer) -> Counter[str]:
    """How often each prompt was answered."""
    return Counter(seen.digest for seen in server.delivered)


def results(bench: Bench) -> dict[str, str]:
    return contents(bench.home, ("tables", "replay"))


def test_experiments_share_one_run_and_ask_each_question_once(bench: Bench, server: ModelServer) -> None:
    bench.serve(server.base_url, tagger="served")
    bench.run("--json").expect()
    assert max(asked(server).values()) == 1
    first = [bench.replays.read_predictions(key, [FIRST])["prompt_digest"].tolist() for key in KEYS]
    assert first[0] == first[1], "without any experience the mechanisms ask the same"
    with join_instance(bench.home) as instance:
        events = instance.fetch_materializations(dg.AssetKey("replay"), limit=100).records
    assert len(events) == len(KEYS) * 4
    assert len({event.run_id for event in events}) == 1
    for key in KEYS:
        manifest = bench.replays.manifest(key, LAST)
        assert manifest.usage.calls == 31
        assert manifest.usage.cost > 0
        assert manifest.models == ("m",)
        assert manifest.failures == {}
    seen = len(server.delivered)
    bench.run("--json").expect()
    assert len(server.delivered) == seen


def test_killed_and_run_again_asks_nothing_twice_and_ends_with_the_same_bytes(
    bench: Bench, server: ModelServer, tmp_path: Path
) -> None:
    bench.serve(server.base_url)
    started = bench.finevolve.start("run", "--to", LAST, home=bench.home, config=bench.config, environment=KEY)
    server.latency = 0.05
    until(lambda: len(server.delivered) > 100)
    started.kill(group=True)
    until(lambda: all(one.until for one in server.log))
    before = asked(server)
    bench.run("--json").expect()
    twice = {digest for digest, times in asked(server).items() if times > 1}
    assert len(before) >= 100
    # An answer that was on its way to a process that died is lost with it; there were never more than two days of them.
    assert len(twice) <= 62
    assert not twice & stored_before(bench, before)
    whole = Bench(bench.finevolve, tmp_path / "whole", bench.world)
    for arguments in import_arguments(bench.world):
        bench.finevolve(*arguments, home=whole.home, config=whole.config).expect()
    whole.run("--json").expect()
    assert results(whole) == results(bench)


def stored_before(bench: Bench, before: Counter[str]) -> set[str]:
    """Prompts of the committed days whose answers were there before the second run began."""
    first_days = SESSIONS[: len(before) // 62]
    return {
        digest for key in KEYS for digest in bench.replays.read_predictions(key, first_days)["prompt_digest"].tolist()
    }


def test_an_outage_stops_the_run_with_one_line_and_no_hole_and_the_next_goes_on(
    bench: Bench, server: ModelServer
) -> None:
    bench.serve(server.base_url)
    failing = {"on": True}

    def outage(question: Question) -> Step | None:
        return status(503) if failing["on"] and question.number >= 80 else None

    server.plan = outage
    said = bench.run().expect(1)
    assert len(said.errors) == 1
    assert "loopback" in said.errors[0]
    assert "503" in said.errors[0]
    for key in KEYS:
        for session in bench.replays.sessions(key):
            assert bench.replays.manifest(key, session).counts.invalid == 0
    failing["on"] = False
    bench.run("--json").expect()
    assert [bench.replays.sessions(key) for key in KEYS] == [SESSIONS[:4]] * 2
    assert max(asked(server).values()) == 1


def test_failures_on_the_way_are_counted_in_the_manifest_and_change_no_prediction(
    bench: Bench, server: ModelServer
) -> None:
    bench.serve(server.base_url)
    server.plan = lambda question: status(500) if question.number % 10 == 3 else None
    bench.run("--json").expect()
    manifests = [bench.replays.manifest(key, session) for key in KEYS for session in SESSIONS[:4]]
    failures = sum(manifest.failures.get("server_error", 0) for manifest in manifests)
    assert failures >= 15
    assert sum(manifest.counts.invalid for manifest in manifests) == 0


def test_a_budget_is_never_crossed_and_what_was_spent_counts_after_a_resume(bench: Bench, server: ModelServer) -> None:
    bench.serve(server.base_url)
    said = bench.run("--budget", "0.15").expect(1)
    assert "budget" in said.errors[0]
    usage = bench.finevolve("usage", "--json", home=bench.home, config=bench.config).expect().document
    first = usage["total"]["cost"]
    assert 0.1 < first <= 0.15
    asked_before = len(server.delivered)
    bench.run("--budget", "0.15").expect(1)
    assert len(server.delivered) - asked_before <= 2
    bench.run("--budget", "100", "--json").expect()
    assert max(asked(server).values()) == 1
    after = bench.finevolve("usage", "--json", home=bench.home, config=bench.config).expect().document
    stored = sum(bench.replays.manifest(key, session).usage.cost for key in KEYS for session in SESSIONS[:4])
    assert first < after["total"]["cost"] <= stored + 1e-9


def test_several_articles_a_request_cost_what_the_ledger_says_and_are_cached_once(
    bench: Bench, server: ModelServer
) -> None:
    bench.serve(server.base_url, tagger="served")
    bench.config.write_text(
        bench.config.read_text().replace('backbone = "served"\n', 'backbone = "served"\nbatch = 4\n', 1)
        + "\n[prompts]\narticle_tokens = 1000\n"
    )
    bench.run("--json").expect()
    usage = bench.finevolve("usage", "--by", "phase", "--json", home=bench.home, config=bench.config).expect().document
    spent = {row["group"]["phase"]: row["cost"] for row in usage["groups"]}
    stats = bench.finevolve("cache", "stats", "--json", home=bench.home, config=bench.config).expect().document
    kept = {row["phase"]: row["usage"]["cost"] for row in stats["answers"]["totals"]}
    assert kept == pytest.approx(spent)
    assert spent["tag"] > 0


def test_without_a_key_nothing_is_asked_and_the_variable_is_named(bench: Bench, server: ModelServer) -> None:
    bench.serve(server.base_url)
    said = bench.run(environment={"A_KEY": ""}).expect(1)
    assert "A_KEY" in said.errors[0]
    assert "A_KEY is not set" in said.err.splitlines()[0]
    assert server.delivered == []
    doctor = bench.finevolve("doctor", "--json", home=bench.home, config=bench.config, environment={"A_KEY": ""})
    assert [row["check"] for row in doctor.expect(1).document if not row["ok"]] == ["backbone served"]
    bench.finevolve("doctor", home=bench.home, config=bench.config, environment=KEY).expect()


def test_the_key_is_in_no_file_no_output_and_no_process_list(bench: Bench, server: ModelServer) -> None:
    bench.serve(server.base_url, tagger="served")
    server.latency = 0.02
    started = bench.finevolve.start("run", "--to", LAST, home=bench.home, config=bench.config, environment=KEY)
    until(lambda: len(server.delivered) > 20)
    commands = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    assert any("replay_child" in command or "zygote" in command for command in commands)
    assert not [command for command in commands if SECRET in command]
    said = [started.wait().expect()]
    sent = []

    def refuse(question: Question) -> Step:
        sent.append(question.headers.get("authorization"))
        return echoes_authorization(401)

    server.plan = refuse
    said.append(bench.run("--cache", "refresh", "--mechanism", "pipe").expect(0))
    bench.finevolve("reset", "pipe-served", "--from", FIRST, "--yes", home=bench.home, config=bench.config).expect()
    said.append(bench.run("--cache", "refresh", "--mechanism", "pipe").expect(1))
    assert "A_KEY" in said[-1].errors[0]
    said.append(bench.finevolve("usage", home=bench.home, config=bench.config).expect())
    assert sent[0] == f"Bearer {SECRET}"
    assert not [one for one in said if SECRET in one.out + one.err]
    files = [path for path in bench.home.rglob("*") if path.is_file()]
    assert len(files) > 50
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]


def test_a_bundle_of_answers_makes_the_same_bytes_without_key_or_server(
    bench: Bench, server: ModelServer, tmp_path: Path
) -> None:
    bench.serve(server.base_url, tagger="served")
    bench.run("--json").expect()
    bundle = tmp_path / "answers.zip"
    bench.finevolve("cache", "export", bundle, home=bench.home, config=bench.config).expect()
    again = Bench(bench.finevolve, tmp_path / "again", bench.world)
    seen = len(server.log)
    for arguments in import_arguments(bench.world):
        bench.finevolve(*arguments, home=again.home, config=again.config).expect()
    missed = again.run("--cache", "replay-only", environment={"A_KEY": ""}).expect(1)
    assert "replay-only" in missed.errors[0]
    bench.finevolve("cache", "import", bundle, home=again.home, config=again.config).expect()
    again.run("--cache", "replay-only", "--json", environment={"A_KEY": ""}).expect()
    assert results(again) == results(bench)
    assert len(server.log) == seen


def test_a_leaderboard_bundle_is_repeated_from_the_answers_without_key_or_server(
    bench: Bench, server: ModelServer, tmp_path: Path
) -> None:
    text = bench.config.read_text()
    bench.config.write_text(text.replace(f"last_session = {SESSIONS[-1]}", f"last_session = {LAST}", 1))
    bench.serve(server.base_url)
    server.plan = lambda question: status(500) if question.number % 10 == 3 else None
    bench.run("--json").expect()
    path, seen = tmp_path / "served.bundle.tar.gz", len(server.log)
    how = {"home": bench.home, "config": bench.config, "environment": {"A_KEY": ""}}
    bench.finevolve("bundle", "mem0-served", "--sessions", 1, "--output", path, **how).expect()
    told = bench.finevolve("verify", path, "--json", **how).expect().document
    assert told["level"] == "runs repeated from own news and answers"
    shutil.rmtree(bench.home / "cache")
    told = bench.finevolve("verify", path, "--json", **how).expect().document
    checks = {check["name"]: check for check in told["checks"]}
    assert told["level"] == "labels checked against own closes"
    assert checks["own prompts pipe-served"]["detail"] == "all 124 prompts are those of this home's news"
    assert "`finevolve cache import` adds them" in checks["own run mem0-served"]["detail"]
    assert len(server.log) == seen


WRITING = ("reflexion", "expel", "reasoningbank", "mem0_full", "expel_original")


def test_mechanisms_that_write_ask_the_model_count_their_updates_and_replay_from_the_cache(
    bench: Bench, server: ModelServer, tmp_path: Path
) -> None:
    plain = bench.config.read_text()
    bench.config.write_text(plain.replace(json.dumps(list(MECHANISMS)), json.dumps(WRITING)))
    bench.serve(server.base_url)
    bench.run("--json").expect()
    assert max(asked(server).values()) == 1
    maturing = 31 * (3 + 2)  # horizons 1 and 2 mature on three and on two of the four sessions
    expected = {"reflexion": 31 * 3, "expel": maturing, "reasoningbank": maturing, "expel_original": 31 * 3}
    for mechanism in WRITING:
        manifests = [bench.replays.manifest(f"{mechanism}-served", session) for session in SESSIONS[:4]]
        updates = sum(manifest.counts.updates for manifest in manifests)
        assert updates == expected.get(mechanism, updates) > 0
        assert sum(manifest.usage.calls for manifest in manifests) == 31 * 4 + updates
        assert sum(manifest.counts.update_failures + manifest.counts.invalid for manifest in manifests) == 0
    spent = bench.finevolve("usage", "--by", "phase", "--json", home=bench.home, config=bench.config).expect().document
    phases = {"reflect", "extract_insight", "extract_reasoning", "extract_facts", "update_memory", "update_rules"}
    assert phases <= {row["group"]["phase"] for row in spent["groups"]}
    seen = len(server.log)
    again = Bench(bench.finevolve, tmp_path / "again", bench.world)
    shutil.copytree(bench.home, again.home, ignore=shutil.ignore_patterns("replay", "dagster"))
    again.run("--cache", "replay-only", "--json", environment={"A_KEY": ""}).expect()
    assert contents(again.home, ("replay",)) == contents(bench.home, ("replay",))
    assert len(server.log) == seen


def until(happened: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for something, not for ever."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)
