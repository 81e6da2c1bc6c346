"""What `finevolve doctor` says of mechanisms that are written or installed in vain."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from click.testing import CliRunner

from finevolve_pipeline.cli.inspect import doctor_command
from finevolve_pipeline.mechanisms import registry


@pytest.fixture
def doctor(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The doctor's warnings under some settings, by name of the check."""

    def ask(settings: str) -> list[tuple[str, str]]:
        path = tmp_path / "settings.toml"
        path.write_text(settings, "utf-8")
        monkeypatch.setenv("FINEVOLVE_CONFIG", str(path))
        result = CliRunner().invoke(doctor_command, ["--json"], catch_exceptions=False)
        found = json.loads(result.stdout)
        assert all(one["ok"] == (one["state"] != "failed") for one in found)
        return [(one["check"], one["detail"]) for one in found if one["state"] == "warning"]

    return ask


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            "[mechanisms.reflexon]\nshown = 2\n",
            "mechanisms.reflexon: no mechanism 'reflexon'; do you mean reflexion?",
        ),
        (
            "[mechanisms.mine]\nkind = 'exple'\n",
            "mechanisms.mine.kind: no mechanism 'exple'; do you mean expel?",
        ),
        (
            "[mechanisms.mine]\nkind = 'qwertyuiop'\n",
            "mechanisms.mine.kind: no mechanism 'qwertyuiop'; name one with `kind`, or install what offers it",
        ),
        ("[mechanisms.mine]\nkind = 5\n", "mechanisms.mine.kind: 5 is no text; name a mechanism"),
        ("[mechanisms.mine]\nkind = ['expel']\n", "mechanisms.mine.kind: ['expel'] is no text; name a mechanism"),
    ],
)
def test_a_section_that_configures_nothing_is_told_with_what_is_nearest(doctor, settings: str, said: str) -> None:
    assert doctor(settings) == [("settings", said)]


def test_seeds_of_a_backbone_without_samples_are_told_and_others_are_not(doctor) -> None:
    ((check, said),) = doctor("[experiments]\nbackbones = ['rules', 'rules-noisy']\nseeds = [0, 1]\n")
    assert check == "settings"
    assert said.startswith("backbone rules answers alike for every seed")
    assert doctor("[experiments]\nbackbones = ['rules-noisy']\nseeds = [0, 1]\n") == []


def test_more_industries_demanded_than_there_are_is_told(doctor) -> None:
    ((check, said),) = doctor("[benchmark]\nindustries = ['801170', '801180']\n")
    assert check == "settings"
    assert said.startswith("evaluation.min_industries 5: only 2 industries are predicted, so every csIC is undefined")


def test_sections_in_use_or_of_a_known_kind_are_no_matter(doctor) -> None:
    assert doctor("[mechanisms.expel_each]\nkind = 'expel'\ninsights = 3\nk_scope = 'per_horizon'\n") == []


def test_a_section_of_another_package_s_mechanism_is_none_either(doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint(name="diary", value="json:loads", group=registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    assert doctor("[mechanisms.diary]\n") == []


def test_an_entry_point_with_a_built_in_name_is_said_to_be_ignored(doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint(name="pipe", value="my_package:Pipe", group=registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    ((check, detail),) = doctor("")
    assert (check, detail[:34]) == ("entry point", "pipe of my_package:Pipe is ignored")
    assert "must offer it under another one" in detail


def test_a_warning_alone_is_no_failure_and_has_a_mark(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("[mechanisms.reflexon]\n", "utf-8")
    monkeypatch.setenv("FINEVOLVE_CONFIG", str(path))
    lines = CliRunner().invoke(doctor_command, [], catch_exceptions=False).stdout.splitlines()
    assert [line.split()[:2] for line in lines if "reflexon" in line] == [["settings", "??"]]
