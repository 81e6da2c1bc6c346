"""`finevolve bundle`, `verify` and `leaderboard` as a person uses them, on a home in which everything has been run."""

from __future__ import annotations

import getpass
import gzip
import json
import os
import shutil
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from small_world import SESSIONS, Finevolve, Outcome, contents, copied, leftovers

from finevolve_pipeline.evaluation.bundle.archive import read_archive, write_archive
from finevolve_pipeline.evaluation.bundle.content import CHECKSUMS, checksums
from finevolve_pipeline.llm.cache import About, AnswerCache, AnswerEntry, answers_path, document_of
from finevolve_pipeline.llm.requests import Reply, Usage
from resources.table_store import TableStore

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "evaluation"))

from report_page import HOSTILE, Page

Command = Callable[..., Outcome]
NAME = "small.bundle.tar.gz"


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def quick(anywhere: Finevolve, world: Path, tmp_path_factory: pytest.TempPathFactory) -> Command:
    """The command line with the small world's settings and fewer draws in force: these tests infer nothing."""
    settings = tmp_path_factory.mktemp("settings") / "finevolve.toml"
    text = (world / "finevolve.toml").read_text()
    settings.write_text(text.replace("[evaluation]\n", "[evaluation]\nbootstrap_draws = 100\n"))
    assert "bootstrap_draws" in settings.read_text()
    return lambda *arguments, **how: anywhere(*arguments, **{"config": settings, **how})


@pytest.fixture(scope="module")
def bundle(quick: Command, complete: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of all runs of the small world."""
    path = tmp_path_factory.mktemp("bundled") / NAME
    told = quick(
        *("bundle", "mem0-rules", "memrl-rules", "--sessions", 1, "--output", path, "--submitter", "Ada", "--json"),
        home=complete,
    ).expect()
    assert told.document["runs"] == ["pipe-rules", "mem0-rules", "memrl-rules"]
    return path


def forged(bundle: Path, to: Path, member: str, old: str, new: str) -> Path:
    """A bundle with a text of one member replaced and its checksums repaired."""
    members = dict(read_archive(bundle).members)
    text = members[member].decode()
    assert old in text
    members[member] = text.replace(old, new).encode()
    del members[CHECKSUMS]
    write_archive(to, {**members, CHECKSUMS: checksums(members)})
    return to


# -- bundle ----------------------------------------------------------------------------------------------------------


def test_a_bundle_has_the_same_bytes_from_another_home_and_in_another_order(
    quick: Command, bundle: Path, complete: Path, tmp_path: Path
) -> None:
    home = copied(complete, tmp_path / "elsewhere" / "home")
    other = tmp_path / "again.bundle.tar.gz"
    names = ("memrl-rules", "mem0-rules", "pipe-rules")
    before = contents(home)
    quick("bundle", *names, "--sessions", 2, "--output", other, "--submitter", "Ada", home=home).expect()
    assert other.read_bytes() == bundle.read_bytes()
    assert contents(home) == before


def test_nothing_of_the_news_or_of_the_machine_stands_in_a_bundle(bundle: Path, complete: Path) -> None:
    whole = gzip.decompress(bundle.read_bytes()).decode("utf-8")
    store = TableStore(complete)
    texts = set()
    for day in store.partitions("tagged_articles"):
        frame = store.read("tagged_articles", day)
        texts |= {*frame["title"], *frame["content"], *frame["url"], *frame["article_id"], *frame["importance_reason"]}
    assert len(texts) > 500
    for text in texts - {""}:
        assert text not in whole
    for private in (str(complete), "/tmp/", os.uname().nodename, f"/{getpass.getuser()}/"):
        assert private not in whole


def test_an_incomplete_run_is_refused_with_the_command_that_completes_it(
    quick: Command, ready: Path, tmp_path: Path
) -> None:
    quick("reset", "mem0-rules", "--from", SESSIONS[5], "--yes", home=ready).expect()
    ended = quick("bundle", "mem0-rules", "--output", tmp_path / NAME, home=ready).expect(1)
    (line,) = ended.errors
    assert line.startswith("error: bundle mem0-rules: 3 of 8 sessions are not stored, 2025-01-09 to 2025-01-13; ")
    assert "`finevolve run --mechanism mem0 --backbone rules" in line
    assert not (tmp_path / NAME).exists()


def test_a_run_without_its_pipe_is_refused(quick: Command, ready: Path, tmp_path: Path) -> None:
    quick("reset", "pipe-rules", "--from", SESSIONS[0], "--yes", home=ready).expect()
    ended = quick("bundle", "mem0-rules", "--output", tmp_path / NAME, home=ready).expect(1)
    assert ended.errors == ["error: replay pipe-rules: nothing is stored; `finevolve run` makes it"]


def test_a_run_whose_audit_fails_is_refused(quick: Command, ready: Path, tmp_path: Path) -> None:
    day = ready / "replay" / "mem0-rules" / SESSIONS[3].isoformat()
    shutil.copy(day.with_name(SESSIONS[2].isoformat()) / "predictions.parquet", day)
    ended = quick("bundle", "mem0-rules", "--output", tmp_path / NAME, home=ready).expect(1)
    (line,) = ended.errors
    assert line.startswith("error: bundle mem0-rules: its audit fails, chain: ")
    assert "`finevolve audit mem0-rules` has all of it" in line
    assert not (tmp_path / NAME).exists()


def test_a_place_that_cannot_be_written_is_refused_before_any_work(
    quick: Command, complete: Path, submitted: Path
) -> None:
    """The audit, or a bundle's first check, would kill the process."""
    place = submitted / "readme.txt" / "new"
    for asked, work in (
        (("bundle", "pipe-rules"), "finevolve_pipeline.replay.audit.audit"),
        (("leaderboard", submitted), "finevolve_pipeline.evaluation.bundle.checks.check_checksums"),
    ):
        ended = quick(*asked, "--output", place / NAME, home=complete, death=(work, "before", 1)).expect(2)
        assert ended.errors == [f"error: {place / NAME}: cannot be written, Not a directory; name another place"]


def test_a_file_that_is_no_bundle_is_not_replaced(quick: Command, complete: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes.md"
    notes.write_text("mine")
    ended = quick("bundle", "pipe-rules", "--output", notes, home=complete).expect(2)
    assert ended.errors == [f"error: bundle {notes}: a file of another kind is there, and stays; name another one"]
    assert notes.read_text() == "mine"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_writer_leaves_the_whole_bundle_or_none(
    quick: Command, bundle: Path, complete: Path, tmp_path: Path, when: str
) -> None:
    path = tmp_path / NAME
    asked = ("bundle", "pipe-rules", "--sessions", 1, "--output", path)
    quick(*asked, home=complete, death=("os.replace", when, 1, NAME)).expect(-9)
    assert path.exists() == (when == "after")
    if when == "after":
        read_archive(path)
    else:
        assert leftovers(tmp_path)
    quick(*asked, home=complete).expect()
    assert leftovers(tmp_path) == []
    quick("verify", path, "--against", "bundle", home=complete).expect()


def test_a_submitter_of_many_lines_is_refused(quick: Command, complete: Path) -> None:
    ended = quick("bundle", "pipe-rules", "--submitter", "a\nb", home=complete).expect(2)
    assert ended.errors == ["Error: Invalid value for --submitter: at most 80 printable characters"]


# -- verify ----------------------------------------------------------------------------------------------------------


def test_verify_says_how_far_it_could_look(quick: Command, bundle: Path, complete: Path, tmp_path: Path) -> None:
    own = quick("verify", bundle, "--json", home=complete).expect().document
    assert (own["ok"], own["level"]) == (True, "runs repeated from own news and answers")
    alone = quick("verify", bundle, "--json", home=tmp_path / "empty").expect().document
    assert (alone["ok"], alone["level"]) == (True, "self-consistent")
    assert alone["digest"] == own["digest"]
    assert not (tmp_path / "empty").exists()
    closes = quick("verify", bundle, "--against", "closes", "--json", home=complete).expect().document
    assert closes["level"] == "labels checked against own closes"


def test_verify_needs_no_settings_of_the_runs(anywhere: Finevolve, bundle: Path, complete: Path) -> None:
    """Under other settings in force a run cannot be repeated, which is said, and is no failure."""
    told = anywhere("verify", bundle, "--json", home=complete).expect().document
    checks = {check["name"]: check for check in told["checks"]}
    assert told["level"] == "labels checked against own closes"
    assert checks["own run mem0-rules"]["status"] == "not run"
    assert "would be another run here" in checks["own run mem0-rules"]["detail"]


def test_a_forged_bundle_ends_in_one_line_a_failed_check(
    quick: Command, bundle: Path, complete: Path, tmp_path: Path
) -> None:
    path = forged(bundle, tmp_path / NAME, "figures/comparison.csv", ",overall,", ",cold_start,")
    ended = quick("verify", path, home=complete).expect(1)
    failed = [line for line in ended.out.splitlines() if line.startswith("FAILED ")]
    assert len(failed) == 1
    assert failed[0].startswith("FAILED figures: comparison: row ")
    assert ended.out.splitlines()[-1] == "level: refused"


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"not a bundle", "error: bundle x.bundle.tar.gz: is no gzip file, or a damaged one"),
        (None, "error: bundle x.bundle.tar.gz: is no file; name one that `finevolve bundle` wrote"),
    ],
)
def test_what_is_no_bundle_is_unusable_input(quick: Command, tmp_path: Path, data: bytes | None, line: str) -> None:
    path = tmp_path / "x.bundle.tar.gz"
    if data is not None:
        path.write_bytes(data)
    (told,) = quick("verify", path, home=tmp_path / "empty").expect(2).errors
    assert told.startswith(line)


# -- leaderboard -----------------------------------------------------------------------------------------------------


@pytest.fixture
def submitted(bundle: Path, tmp_path: Path) -> Path:
    """A folder with a good bundle, the same once more, one of a hostile submitter, and bad ones."""
    folder = tmp_path / "submitted"
    folder.mkdir()
    shutil.copy(bundle, folder / "good.bundle.tar.gz")
    shutil.copy(bundle, folder / "same.bundle.tar.gz")
    forged(bundle, folder / "hostile.bundle.tar.gz", "manifest.json", '"Ada"', json.dumps(HOSTILE[0]))
    forged(bundle, folder / "figures.bundle.tar.gz", "figures/ic_matrix.csv", ",overall,", ",cold_start,")
    (folder / "cut.bundle.tar.gz").write_bytes(bundle.read_bytes()[:5000])
    (folder / '"><b>x.bundle.tar.gz').write_bytes(b"no bundle")
    (folder / ".partial-1-0-x.bundle.tar.gz").write_bytes(b"half")
    (folder / "readme.txt").write_text("hello")
    return folder


def test_only_verified_bundles_stand_in_the_tables(
    quick: Command, submitted: Path, complete: Path, tmp_path: Path
) -> None:
    told = quick("leaderboard", submitted, "--output", tmp_path / "board", "--json", home=complete).expect().document
    reasons = {one["file"]: one["reason"] for one in told["refused"]}
    assert set(reasons) == {'"><b>x.bundle.tar.gz', "cut.bundle.tar.gz", "figures.bundle.tar.gz"}
    assert reasons["figures.bundle.tar.gz"].startswith("figures: ic_matrix: row ")
    assert reasons["cut.bundle.tar.gz"] == "is broken off; get the file again"
    assert told["verified"] == 3
    document = json.loads((tmp_path / "board" / "leaderboard.json").read_text("utf-8"))
    (board,) = document["boards"]
    assert (board["sessions"], board["industries"], board["horizons"]) == (8, 31, [1, 2, 4])
    # The same runs count once, under whatever name and whoever sends them.
    assert sorted((run["file"], run["mechanism"]) for run in board["runs"]) == [
        ("good.bundle.tar.gz", mechanism) for mechanism in ("mem0", "memrl", "pipe")
    ]
    ranked = [run for run in board["runs"] if run["rank"] is not None]
    assert [run["rank"] for run in ranked] == list(range(1, len(ranked) + 1))
    assert "pipe" not in {run["mechanism"] for run in ranked}
    assert {run["level"] for run in board["runs"]} == {"labels checked against own closes"}


def test_the_page_has_no_script_and_no_address_and_shows_names_as_text(
    quick: Command, submitted: Path, complete: Path, tmp_path: Path
) -> None:
    (submitted / "hostile.bundle.tar.gz").rename(submitted / "first.bundle.tar.gz")
    quick("leaderboard", submitted, "--output", tmp_path / "board", home=complete).expect()
    text = (tmp_path / "board" / "index.html").read_text("utf-8")
    page: HTMLParser = Page(text)
    assert [tag for tag in ("script", "img", "link", "iframe", "form", "b") if page.all(tag)] == []
    assert "://" not in text
    assert HOSTILE[0] in page.text
    assert '"><b>x.bundle.tar.gz' in page.text
    assert "Refused bundles" in page.text


def test_the_leaderboard_is_the_same_again_and_quick_where_bundles_are_known(
    quick: Command, submitted: Path, complete: Path, tmp_path: Path
) -> None:
    home = copied(complete, tmp_path / "home")
    boards = [tmp_path / name for name in ("one", "two", "three")]
    quick("leaderboard", submitted, "--output", boards[0], home=home).expect()
    # A second one verifies nothing: it would die at the first check.
    known = ("finevolve_pipeline.evaluation.bundle.checks.check_checksums", "before", 1)
    quick("leaderboard", submitted, "--output", boards[1], home=home, death=known).expect()
    # A damaged note is not believed.
    for note in (home / "cache" / "verified").iterdir():
        note.write_text(note.read_text().replace('"problem": ""', '"problem": "x"').replace("0.", "1."))
    quick("leaderboard", submitted, "--output", boards[2], home=home).expect()
    first, *others = [{path.name: path.read_bytes() for path in board.iterdir()} for board in boards]
    assert set(first) == {"index.html", "leaderboard.csv", "leaderboard.json"}
    assert all(other == first for other in others)


def test_answers_that_have_come_since_are_looked_at(
    quick: Command, bundle: Path, complete: Path, tmp_path: Path
) -> None:
    """With all data a bundle's level can rise, so what was found without the answers is not believed."""
    home = copied(complete, tmp_path / "home")
    folder = tmp_path / "submitted"
    folder.mkdir()
    shutil.copy(bundle, folder / NAME)
    asked = ("leaderboard", folder, "--against", "all", "--output", tmp_path / "board")
    quick(*asked, home=home).expect()
    verified = home / "cache" / "verified"
    noted = set(verified.iterdir())
    quick(*asked, home=home).expect()
    assert set(verified.iterdir()) == noted
    cache = AnswerCache(answers_path(home))
    about = About("rules", "predict", SESSIONS[0].isoformat(), "801010")
    cache.merge([AnswerEntry(b"k" * 32, about, document_of(Reply("{}", Usage(), "stop")))])
    cache.close()
    quick(*asked, home=home).expect()
    assert len(set(verified.iterdir()) - noted) == 1


def test_a_folder_without_bundles_says_what_makes_one(quick: Command, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    (line,) = quick("leaderboard", tmp_path / "none", home=tmp_path / "empty").expect(1).errors
    assert line.endswith("holds no file *.bundle.tar.gz; `finevolve bundle` writes them")
