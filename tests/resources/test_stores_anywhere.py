"""The smaller stores on a disk and on an object store: coverage, revisions, sources, finished days, whole folders."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.errors import InputError, TableError
from finevolve_pipeline.evaluation.folders import require_own, whole_folder
from finevolve_pipeline.files import files_below, object_store, write_atomically
from finevolve_pipeline.news.coverage import SourceCoverage
from resources.coverage_store import CoverageStore, CrawlLockedError
from resources.history import FinishedDays
from resources.landing import Revision, register_sources, registered_sources
from resources.market.revisions import Revisions
from resources.market.sources import second_store
from resources.storage import Storage

NOW = dt.datetime(2025, 1, 7, 9, tzinfo=SHANGHAI)


def test_coverage_is_kept_by_source_and_one_crawl_holds_a_source(anywhere: Path) -> None:
    store = CoverageStore(anywhere)
    assert store.sources() == ()
    assert store.read("cls") == SourceCoverage("cls")
    known = replace(SourceCoverage("cls"), reason="asked")
    store.write(known)
    assert CoverageStore(anywhere).read("cls") == known
    assert store.sources() == ("cls",)
    refused = pytest.raises(CrawlLockedError, match="cls: another crawl of it is under way")
    with store.crawling("cls"), store.crawling("sina"), refused, store.crawling("cls"):
        pass
    with store.crawling("cls"):
        pass
    write_atomically(store.root / "coverage" / "cls.json", b"{")
    with pytest.raises(TableError, match="delete it, the days will be asked for again"):
        store.read("cls")


def test_revisions_are_told_once_and_an_unfinished_line_is_none(anywhere: Path) -> None:
    revisions = Revisions(anywhere)
    assert revisions.entries() == []
    tell = revisions.teller("industry_bars", "file:x", NOW)
    first, second = (Revision("2025-01-03", code, "close", 1.0, 2.0) for code in ("801010", "801030"))
    tell([first])
    whole = revisions.path.read_bytes()
    write_atomically(revisions.path, whole + b'{"table":')
    tell([first, second])
    assert [entry.code for entry in revisions.entries()] == ["801010", "801030"]
    assert revisions.path.read_bytes().startswith(whole)
    assert revisions.closes("benchmark_bars") == []


def test_revisions_told_at_the_same_time_are_all_kept(anywhere: Path) -> None:
    told = [Revision("2025-01-03", f"8010{number:02}", "close", 1.0, 2.0) for number in range(6)]
    with ThreadPoolExecutor(3) as writers:
        list(writers.map(lambda one: Revisions(anywhere).teller("industry_bars", "x", NOW)([one]), told))
    assert sorted(entry.code for entry in Revisions(anywhere).entries()) == [one.code for one in told]


def test_sources_registered_at_the_same_time_are_all_kept(anywhere: Path) -> None:
    with ThreadPoolExecutor(3) as writers:
        list(writers.map(lambda name: register_sources(anywhere, [name]), ["c", "a", "b"]))
    assert registered_sources(anywhere) == ("a", "b", "c")
    write_atomically(Storage.of(anywhere).root / "sources.json", b"{")
    with pytest.raises(InputError, match="delete it and import again"):
        registered_sources(anywhere)


def test_finished_days_are_remembered(anywhere: Path) -> None:
    FinishedDays(anywhere, "sina").add({"2025-01-02": 3})
    FinishedDays(anywhere, "sina").add({"2025-01-03": 0})
    assert FinishedDays(anywhere, "sina").rows == {"2025-01-02": 3, "2025-01-03": 0}
    assert FinishedDays(anywhere, "cls").rows == {}


def test_what_a_second_source_said_lies_apart(anywhere: Path) -> None:
    root = Storage.of(anywhere).root
    assert str(second_store(anywhere, "csindex").root) == str(root / "market" / "second" / "csindex")


def test_a_folder_is_replaced_as_a_whole(anywhere: Path) -> None:
    target = Storage.of(anywhere).root / "report"
    for texts in ({"index.html": "old", "gone.html": "x", "data/a.csv": "1"}, {"index.html": "new", "data/b.csv": "2"}):
        with whole_folder(target) as folder:
            for name, text in texts.items():
                write_atomically(folder / name, text.encode())
        assert {name: (target / name).read_text("utf-8") for name in files_below(target)} == texts
    with pytest.raises(ZeroDivisionError), whole_folder(target) as folder:
        write_atomically(folder / "index.html", str(1 // 0).encode())
    assert (target / "index.html").read_text("utf-8") == "new"
    require_own(target, ("index.html", "data"))


def test_on_an_object_store_the_page_that_leads_to_others_is_written_last_and_old_files_go_after_it(
    shared: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Storage.of(home).root / "report"
    write_atomically(target / "old.html", b"old")
    done: list[str] = []
    store = object_store(target)
    put, delete = store.pipe_file, store.rm_file

    def name(path: str) -> str:
        return path.rpartition("/")[2]

    monkeypatch.setattr(store, "pipe_file", lambda path, data, **how: (done.append(f"+{name(path)}"), put(path, data)))
    monkeypatch.setattr(store, "rm_file", lambda path: (done.append(f"-{name(path)}"), delete(path)))
    with whole_folder(target) as folder:
        for page in ("index.html", "a.html", "z.html"):
            write_atomically(folder / page, b"new")
    assert done == ["+a.html", "+z.html", "+index.html", "-old.html"]
