"""`finevolve cache`: what it prints, where, and with which exit code."""

import json
from dataclasses import dataclass

import numpy as np
import pytest

from finevolve_pipeline.cli import cli, main
from finevolve_pipeline.cli.cache import cache_group
from finevolve_pipeline.llm.cache import About, AnswerCache, answers_path, vector_key
from finevolve_pipeline.llm.requests import Reply, Usage
from resources.records import answer_cache, vector_cache
from resources.storage import DATABASE

QWEN = "qwen3.6-35b-a3b"
FIRST, SECOND, THIRD = (vector_key({}, name) for name in "abc")


@dataclass(frozen=True)
class Outcome:
    """Exit code, standard output and standard error."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def finevolve(home, capsys, monkeypatch):
    """Run a command as a user would, on a wide terminal."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setitem(cli.commands, "cache", cache_group)

    def run(*arguments):
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(ended.value.code or 0, captured.out, captured.err)

    return run


def fill(home):
    answers, vectors = answer_cache(home), vector_cache(home)
    answers.put(FIRST, Reply("{}", Usage(1, 1000, 800, 50, 20, 0.25)), About(QWEN, "predict", "2025-01-02", "801730"))
    answers.put(SECOND, Reply("{}", Usage(1, 2000, 0, 70, 0, 0.5)), About(QWEN, "predict", "2025-01-02", "801010"))
    answers.put(THIRD, Reply("[red]", Usage(1, 10, 0, 5, 0, 0.125)), About("[b]old", "tag", "2025-01-03", "a1"))
    vectors.put_many({FIRST: np.ones(4), SECOND: np.ones(4), THIRD: np.ones(8)})
    answers.close()
    vectors.close()


def test_a_bundle_goes_from_one_home_to_another(finevolve, home, tmp_path):
    fill(home)
    exported = finevolve("cache", "export", "all.zip", "--json")
    assert exported.code == 0
    assert exported.json == {
        "bundle": "all.zip",
        "bytes": (tmp_path / "all.zip").stat().st_size,
        "answers": 3,
        "vectors": 3,
        "contents": [
            {"backbone": "[b]old", "phase": "tag", "answers": 1},
            {"backbone": QWEN, "phase": "predict", "answers": 2},
        ],
    }
    assert "[b]old: not in the settings, so the bundle does not say how it was asked" in exported.err
    other = tmp_path / "other"
    imported = finevolve("--home", other, "cache", "import", "all.zip", "--json")
    assert imported.json == {
        "bundle": "all.zip",
        "answers": {"new": 3, "same": 0, "conflicting": 0},
        "vectors": {"new": 3, "same": 0, "conflicting": 0},
        "asked_with_other_settings": [],
    }
    finevolve("--home", other, "cache", "export", "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == (tmp_path / "all.zip").read_bytes()


def test_people_read_where_the_bundle_is_and_what_became_of_it(finevolve, home, tmp_path, kept):
    fill(home)
    exported = finevolve("cache", "export", tmp_path / "b.zip", "--backbone", QWEN)
    assert exported.out == f"{tmp_path / 'b.zip'}\n"
    assert exported.err.startswith("2 answers, 3 vectors, ")
    changed = answer_cache(home)
    changed.replace(FIRST, Reply("mine", Usage()), About(QWEN, "predict", "2025-01-02", "801730"))
    changed.close()
    kept = finevolve("cache", "import", tmp_path / "b.zip")
    assert "differ, kept" in kept.out
    assert [line.split() for line in kept.out.splitlines()[-2:]] == [
        ["answers", "0", "1", "1"],
        ["vectors", "0", "3", "0"],
    ]
    assert changed.get(FIRST).text == "mine"
    assert "replaced" in finevolve("cache", "import", tmp_path / "b.zip", "--replace").out
    assert changed.get(FIRST).text == "{}"
    changed.close()


def test_answers_got_with_other_settings_are_pointed_out(finevolve, home, tmp_path):
    fill(home)
    finevolve("cache", "export", "b.zip")
    (tmp_path / "finevolve.toml").write_text(f'[backbones."{QWEN}"]\nmax_tokens = 5000\n')
    said = finevolve("cache", "import", "b.zip")
    assert said.code == 0
    assert f"{QWEN} was asked with other settings" in said.err
    assert "max_tokens 6000 there, 5000 here" in said.err
    assert finevolve("cache", "import", "b.zip", "--json").json["asked_with_other_settings"] == [QWEN]


def test_stats_tell_entries_tokens_and_cost(finevolve, home, kept):
    fill(home)
    told = finevolve("cache", "stats", "--json").json
    assert told["answers"]["entries"] == told["vectors"]["entries"] == 3
    assert told["answers"]["path"] == answer_cache(home).place
    assert told["answers"]["bytes"] == answer_cache(home).size() > 0
    assert told["vectors"]["by_dimensions"] == {"4": 2, "8": 1}
    assert told["answers"]["totals"][1] == {
        "backbone": QWEN,
        "phase": "predict",
        "entries": 2,
        "usage": {
            "calls": 2,
            "prompt_tokens": 3000,
            "cached_prompt_tokens": 800,
            "completion_tokens": 120,
            "reasoning_tokens": 20,
            "cost": 0.75,
        },
    }
    table = finevolve("cache", "stats").out
    assert ["[b]old", "tag", "1", "10", "0", "5", "0", "0.1250"] in [line.split() for line in table.splitlines()]
    assert [QWEN, "predict", "2", "3,000", "800", "120", "20", "0.7500"] in [
        line.split() for line in table.splitlines()
    ]


def test_a_home_without_a_cache_has_nothing_and_gets_none(finevolve, home, kept):
    assert finevolve("cache", "stats", "--json").json["answers"] == {
        "path": answer_cache(home).place, "bytes": 0, "entries": 0, "totals": []
    }  # fmt: skip
    assert [one["entries"] for one in finevolve("cache", "verify", "--json").json] == [0, 0]
    nothing = finevolve("cache", "export", "b.zip")
    assert (nothing.code, nothing.err) == (
        2, f"error: cache of {home}: nothing to export yet; `finevolve run` fills it\n"
    )  # fmt: skip
    assert not home.exists()
    assert not answer_cache(home).is_there()


def test_verify_finds_damage_and_repairs_it(finevolve, home, kept, changed):
    fill(home)
    answers = answer_cache(home)
    sound = finevolve("cache", "verify")
    assert (sound.code, sound.err) == (0, "")
    assert [answers.label, "3", "0", "0", "sound"] in [line.split() for line in sound.out.splitlines()]
    changed(answers_path(home), "UPDATE answers SET day = '2025-01-09' WHERE phase = 'tag'")
    found = finevolve("cache", "verify")
    assert found.code == 1
    assert f"{answers.label}: {THIRD.hex()} is damaged (tag a1 2025-01-09 [b]old)" in " ".join(found.err.split())
    assert finevolve("cache", "stats").code == 2
    assert finevolve("cache", "export", "b.zip").code == 2
    repaired = finevolve("cache", "verify", "--repair", "--json")
    assert repaired.code == 0
    assert repaired.json[0] == {
        "path": answers.place,
        "entries": 3,
        "damaged": [{"key": THIRD.hex(), "about": "tag a1 2025-01-09 [b]old"}],
        "deleted": 1,
        "structure": [],
    }
    assert finevolve("cache", "verify", "--json").json[0]["entries"] == 2


def test_a_bundle_goes_from_what_hosts_share_to_a_home_of_files_and_back(finevolve, home, database, monkeypatch):
    fill(home)
    assert finevolve("cache", "export", "shared.zip").code == 0
    assert not home.exists()
    monkeypatch.delenv(DATABASE)
    assert finevolve("cache", "import", "shared.zip", "--json").json["answers"]["new"] == 3
    finevolve("cache", "export", "local.zip")
    monkeypatch.setenv(DATABASE, database)
    back = finevolve("cache", "import", "local.zip", "--json").json
    assert (back["answers"], back["vectors"]) == ({"new": 0, "same": 3, "conflicting": 0},) * 2


def test_tables_of_another_version_are_set_aside_and_new_ones_made(finevolve, home, database, changed):
    fill(home)
    changed(answers_path(home), "UPDATE versions SET version = 2 WHERE name = 'answers'")
    found = finevolve("cache", "verify")
    assert found.code == 1
    assert "of version 2" in " ".join(found.err.split())
    aside = finevolve("cache", "verify", "--set-aside")
    assert aside.code == 0
    assert "answers cannot be read; it lies at table finevolve.answers_damaged_1 now" in " ".join(aside.err.split())
    assert finevolve("cache", "stats", "--json").json["answers"]["entries"] == 0
    assert finevolve("cache", "stats", "--json").json["vectors"]["entries"] == 3


def test_a_file_that_is_no_database_fails_verification(finevolve, home):
    answers_path(home).parent.mkdir(parents=True)
    answers_path(home).write_bytes(b"no database at all" * 100)
    found = finevolve("cache", "verify", "--repair")
    assert found.code == 1
    assert "the file is damaged" in " ".join(found.err.split())
    stats = finevolve("cache", "stats")
    assert stats.code == 2
    assert stats.err.startswith(f"error: cache {answers_path(home)}: the file is damaged")
    assert stats.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["import", "none.zip"], "Error: Invalid value for 'FILE': File 'none.zip' does not exist."),
        (["import", "bad.zip"], "error: bundle bad.zip: no bundle of version 1 (File is not a zip file); nothing was"),
        (["export", "b.zip", "--backbone", "gpt"], "no answer of backbone 'gpt'; `finevolve cache stats` lists them"),
        (["export", "folder"], "Error: Invalid value for 'FILE': File 'folder' is a directory."),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(finevolve, home, tmp_path, arguments, line):
    fill(home)
    (tmp_path / "bad.zip").write_text("bad")
    (tmp_path / "folder").mkdir()
    said = finevolve("cache", *arguments)
    assert said.code == 2
    assert line in said.err.splitlines()[-1]
    assert said.out == ""


def test_a_file_that_cannot_be_read_is_set_aside_and_a_new_one_made(finevolve, home):
    path = answers_path(home)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no database at all" * 100)
    assert "--set-aside" in finevolve("cache", "verify").err
    assert finevolve("cache", "verify", "--set-aside").code == 0
    aside = path.with_name("answers.damaged-1.sqlite")
    assert aside.read_bytes() == b"no database at all" * 100
    assert finevolve("cache", "stats", "--json").json["answers"]["entries"] == 0
    AnswerCache(path).put(FIRST, Reply("{}", Usage(calls=1)), About(QWEN, "tag", "2025-01-02", "a"))
    assert finevolve("cache", "verify").code == 0


def test_an_export_replaces_a_bundle_and_nothing_else(finevolve, home, tmp_path):
    AnswerCache(answers_path(home)).put(FIRST, Reply("{}", Usage(calls=1)), About(QWEN, "tag", "2025-01-02", "a"))
    settings = tmp_path / "mine.toml"
    settings.write_text("[news]\n")
    refused = finevolve("cache", "export", settings)
    assert refused.code == 2
    assert "stays" in refused.err
    assert settings.read_text() == "[news]\n"
    bundle = tmp_path / "bundle"
    assert finevolve("cache", "export", bundle).code == 0
    assert finevolve("cache", "export", bundle).code == 0
    nowhere = finevolve("cache", "export", tmp_path / "absent" / "b.zip")
    assert nowhere.code == 2
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize("command", [("cache", "stats"), ("cache", "verify")])
def test_something_else_in_the_place_of_the_cache_is_named(finevolve, home, command):
    home.mkdir(parents=True, exist_ok=True)
    (home / "cache").write_text("a file")
    told = finevolve(*command)
    assert told.code == 2
    assert "is a file, not a folder" in told.err
    (home / "cache").unlink()
    answers_path(home).mkdir(parents=True)
    told = finevolve(*command)
    assert told.code == 2
    assert "a folder is in its place" in told.err
