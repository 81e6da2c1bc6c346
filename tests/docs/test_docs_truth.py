"""What the documentation says is so: commands, settings, error texts, names of mechanisms, schedules and exit codes."""

import re
import tomllib
from pathlib import Path

import click
import pytest
from dagster._cli import create_dagster_cli
from shown import CHECKOUT, PAGES, Shown, blocks, command_lines, fault, running_text, texts_of_code

from finevolve_pipeline import errors
from finevolve_pipeline.cli import cli
from finevolve_pipeline.definitions import build_defs
from finevolve_pipeline.mechanisms.registry import BUILT_IN
from finevolve_pipeline.settings import load_settings

DOCS = CHECKOUT / "docs"
TROUBLESHOOTING = DOCS / "operating/troubleshooting.md"
FINEVOLVE, DAGSTER = list(command_lines("finevolve")), list(command_lines("dagster"))
QUOTED = [line.rstrip() for block in blocks(TROUBLESHOOTING, "text") for line in block.splitlines()]
SETTINGS = [
    (page, block)
    for page in PAGES
    if page.is_relative_to(DOCS) or page.name == "README.md"
    for block in blocks(page, "toml")
]


@pytest.mark.parametrize("line", FINEVOLVE, ids=str)
def test_every_command_line_of_ours_is_one(line: Shown) -> None:
    assert fault(line, cli) == ""


@pytest.mark.parametrize("line", DAGSTER, ids=str)
def test_every_command_line_of_dagster_is_one(line: Shown) -> None:
    assert fault(line, create_dagster_cli()) == ""


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("finevolve rnu", "no command 'rnu'"),
        ("finevolve run --tomorrow", "--tomorrow"),
        ("finevolve run --cache sometimes", "sometimes"),
        ("finevolve run --to 2025-02-30", "2025-02-30"),
        ("finevolve alpha 801170", "day is missing"),
        ("finevolve status now", "too much"),
        ("finevolve cache", "a command is missing"),
    ],
)
def test_a_command_line_that_is_none_would_be_found(words: str, why: str) -> None:
    assert why in fault(Shown(CHECKOUT / "README.md", tuple(words.split()), whole=True), cli)


def test_every_command_has_a_place_in_the_documentation() -> None:
    def leaves(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
        if isinstance(command, click.Group):
            return [leaf for name, below in command.commands.items() for leaf in leaves(below, (*path, name))]
        return [path]

    seen = {tuple(word for word in line.words[1:] if not word.startswith("-")) for line in FINEVOLVE}
    assert [leaf for leaf in leaves(cli) if not any(words[: len(leaf)] == leaf for words in seen)] == []


def test_every_make_target_shown_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE))
    wanted = {word for line in command_lines("make") for word in line.words[1:] if word.isalpha() or "-" in word}
    assert {"demo", "test", "ui", "docs"} <= wanted
    assert wanted <= targets


@pytest.mark.parametrize(
    ("page", "block"), SETTINGS, ids=[f"{page.relative_to(CHECKOUT)}-{at}" for at, (page, _) in enumerate(SETTINGS)]
)
def test_settings_shown_can_be_used(page: Path, block: str, tmp_path: Path) -> None:
    if "entry-points" in block:
        assert "project" in tomllib.loads(block)
        return
    (tmp_path / "finevolve.toml").write_text(f"{block}{_what_it_needs(block)}", "utf-8")
    load_settings(tmp_path / "finevolve.toml")


def _what_it_needs(block: str) -> str:
    """Sections of other packages that a piece of settings names and a reader has already."""
    experiments = tomllib.loads(block).get("experiments", {})
    own = [name for name in experiments.get("backbones", []) if name == "mine" and "backbones.mine" not in block]
    return "".join(f'\n[backbones.{name}]\nkind = "rules"\n' for name in own)


@pytest.mark.parametrize("text", QUOTED)
def test_every_error_that_is_explained_still_exists(text: str) -> None:
    assert text in texts_of_code()


def test_an_error_that_is_gone_would_be_found() -> None:
    assert len(QUOTED) > 50
    assert "session …: the exchange was never closed" not in texts_of_code()


def test_exit_codes_are_those_of_the_errors() -> None:
    table = (DOCS / "operating/index.md").read_text("utf-8")
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.FinEvolveError)
    ]
    assert {kind.exit_code for kind in kinds} | {0, 130} == listed


def test_every_mechanism_is_described() -> None:
    pages = "".join(page.read_text("utf-8") for page in (DOCS / "mechanisms").glob("*.md"))
    named = {section.get("kind", name) for name, section in load_settings().mechanisms.items()}
    assert [name for name in (*BUILT_IN, *named) if f"`{name}`" not in pages] == []


def test_schedules_and_sensors_are_listed_with_their_times(home: Path) -> None:
    definitions = build_defs(home=home)
    page = (DOCS / "operating/automation.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `(\w+)`(?: \(sensor\))? \| ([^|]+) \|", page, re.MULTILINE))
    schedules = {one.name: one for one in definitions.schedules or ()}
    assert set(rows) == {*schedules, *(one.name for one in definitions.sensors or ())}
    for name, schedule in schedules.items():
        minute, hour, *_, weekday = str(schedule.cron_schedule).split()
        time = "every half hour" if minute == "*/30" else f"{int(hour):02}:{int(minute):02}"
        assert rows[name] == (f"Sunday {time}" if weekday == "0" else time)


def test_settings_named_in_running_text_exist() -> None:
    """`[section] key` names a key that the settings have."""
    known = load_settings().model_dump()
    wrong = []
    for page in PAGES:
        for section, key in re.findall(r"`\[([a-z]+)\] ([a-z_]+)`", running_text(page)):
            if key not in known.get(section, {}):
                wrong.append(f"{page.relative_to(CHECKOUT)}: [{section}] {key}")
    assert wrong == []
