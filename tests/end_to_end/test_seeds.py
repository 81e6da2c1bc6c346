"""Experiments with several seeds, from the settings to every command: samples of their own, and no special way."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from small_world import FIRST, LAST, SESSIONS, Outcome, contents, copied, settings_text

from finevolve_pipeline.replay.journal import ReplayStore

pytestmark = pytest.mark.slow

KEYS = [f"{mechanism}-rules-noisy{at}" for mechanism in ("pipe", "mem0") for at in ("", "@1", "@2")]
Command = Callable[..., Outcome]


def config_with(folder: Path, seeds: str) -> Path:
    path = folder / "finevolve.toml"
    path.write_text(settings_text(["pipe", "mem0"]) + f'backbones = ["rules-noisy"]\nseeds = {seeds}\n')
    return path


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return config_with(tmp_path_factory.mktemp("seeds"), "[0, 1, 2]")


@pytest.fixture(scope="module")
def seeded(finevolve: Command, imported: Path, config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which everything has been run with three seeds. Look, do not touch."""
    home = copied(imported, tmp_path_factory.mktemp("seeded") / "home")
    told = finevolve("run", "--json", home=home, config=config).expect().document
    assert list(told["experiments"]) == KEYS
    assert None not in told["experiments"].values()
    return home


def replays_of(home: Path, key: str) -> dict[str, str]:
    return {path: digest for path, digest in contents(home, ["replay"]).items() if path.startswith(f"replay/{key}/")}


@pytest.fixture(scope="module")
def alone(finevolve: Command, imported: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which everything has been run with seed 0 alone. Look, do not touch."""
    folder = tmp_path_factory.mktemp("alone")
    home = copied(imported, folder / "home")
    finevolve("run", home=home, config=config_with(folder, "[0]")).expect()
    return home


def test_seed_0_is_the_run_without_seeds_byte_for_byte(alone: Path, seeded: Path) -> None:
    found = contents(alone, ["replay"])
    assert len(found) == 2 * (4 * len(SESSIONS) + 1)
    assert found == replays_of(seeded, KEYS[0]) | replays_of(seeded, KEYS[3])


def test_every_seed_has_predictions_of_its_own(seeded: Path) -> None:
    store = ReplayStore(seeded / "replay")
    scores = [store.read_predictions(key)["score"] for key in KEYS]
    for first in range(len(KEYS)):
        for second in range(first):
            assert (scores[first] != scores[second]).any(), (KEYS[first], KEYS[second])


def test_seeds_added_later_leave_what_is_stored(
    finevolve: Command, alone: Path, seeded: Path, config: Path, tmp_path: Path
) -> None:
    home = copied(alone, tmp_path / "home")
    told = finevolve("status", "--json", home=home, config=config).expect().document["experiments"]
    assert {key: facts["done"] for key, facts in told.items()} == {
        key: 0 if "@" in key else len(SESSIONS) for key in KEYS
    }
    finevolve("run", home=home, config=config).expect()
    assert contents(home) == contents(seeded)


def test_one_that_died_goes_on_and_ends_with_the_same_bytes(
    finevolve: Command, seeded: Path, config: Path, tmp_path: Path
) -> None:
    home, key = copied(seeded, tmp_path / "home"), "mem0-rules-noisy@1"
    finevolve("reset", key, "--from", str(SESSIONS[2]), "--yes", home=home, config=config).expect()
    death = ("finevolve_pipeline.replay.journal.write_atomically", "before", 2, f"/{SESSIONS[4]}/")
    dead = finevolve(key, key, str(FIRST), str(LAST), home=home, config=config, death=death, replay=True)
    assert dead.code == -signal.SIGKILL
    assert ReplayStore(home / "replay").sessions(key) == SESSIONS[:4]
    told = finevolve("run", "--mechanism", "mem0", "--seed", "1", "--json", home=home, config=config).expect().document
    assert list(told["experiments"]) == [key]
    assert contents(home) == contents(seeded)


def test_commands_take_and_show_a_key_with_a_seed(finevolve: Command, seeded: Path, config: Path) -> None:
    key = "mem0-rules-noisy@2"

    def document(*arguments: str) -> dict[str, object]:
        return finevolve(*arguments, "--json", home=seeded, config=config).expect().document

    memory = document("memory", key, "--sector", "801170")
    assert (memory["experiment"], memory["session"]) == (key, str(LAST))
    case = document("case", "801170", "2025-01-07", "--experiments", f"{key},pipe-rules-noisy")
    assert list(case["experiments"]) == [key, "pipe-rules-noisy"]
    assert "Mem0, seed 2" in finevolve("case", "801170", "2025-01-07", home=seeded, config=config).expect().out
    assert document("estimate", "--seed", "1")["sessions"] == {k: 0 for k in KEYS if k.endswith("@1")}
    (audited,) = (
        finevolve("audit", key, "--cut", "2025-01-07", "--sessions", "2", "--json", home=seeded, config=config)
        .expect()
        .document
    )
    assert (audited["experiment"], audited["ok"]) == (key, True)


def test_the_table_has_a_row_a_mechanism_and_the_matrix_one_a_run(
    finevolve: Command, seeded: Path, config: Path
) -> None:
    found = finevolve("ic", "--json", home=seeded, config=config).expect().document
    assert list(dict.fromkeys(row["experiment"] for row in found["ic"])) == KEYS
    assert {(row["mechanism"], row["seeds"]) for row in found["comparison"]} == {("pipe", 3), ("mem0", 3)}
    rows = finevolve("ic", home=seeded, config=config).expect().out.splitlines()
    assert sum("Mem0" in row for row in rows if "undefined" not in row) == 1


def test_lines_of_the_report_tell_the_seeds_apart(seeded: Path) -> None:
    page = (seeded / "report" / "index.html").read_text("utf-8")
    assert "Mem0, seed 1" in page
    assert "Pipe, seed 2" in page


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["memory", "mem0-rules-noisy@3", "--sector", "801170"], "seed 3 is not among 0, 1, 2; add it to"),
        (["run", "--seed", "3"], "seed 3: not among 0, 1, 2; add it under [experiments] in finevolve.toml"),
        (["reset", "mem0-rules-noisy@0", "--from", "2025-01-02", "--yes"], "name it mem0-rules-noisy"),
    ],
)
def test_a_seed_that_is_none_is_refused_with_one_line(
    finevolve: Command, seeded: Path, config: Path, arguments: list[str], told: str
) -> None:
    refused = finevolve(*arguments, home=seeded, config=config).expect(2)
    (line,) = refused.errors
    assert told in line
