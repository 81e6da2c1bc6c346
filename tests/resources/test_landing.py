"""The landing store: idempotent, for news that does not contradict itself order-independent (of contradicting
copies the first to land stays, and the others are told), for bars newest first, whole after a crash."""

from __future__ import annotations

import datetime as dt
import fcntl
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from finevolve_pipeline import tables
from finevolve_pipeline.errors import InputError, MissingPartitionError, TableError
from finevolve_pipeline.files import files_below, read_many, write_atomically
from finevolve_pipeline.locks import LockLostError
from resources import landing as module
from resources.landing import (
    Contradiction,
    Landing,
    LandingLockedError,
    NewsCounts,
    Revision,
    register_sources,
    registered_sources,
)

if TYPE_CHECKING:
    from services import Postgres


def item(source_id: str, published_at: str | pd.Timestamp, **changes: Any) -> dict[str, Any]:
    return {
        "source": "cls",
        "source_id": source_id,
        "url": "",
        "title": f"title {source_id}",
        "content": "",
        "published_at": pd.Timestamp(published_at, tz="Asia/Shanghai")
        if isinstance(published_at, str)
        else published_at,
        "modified_at": pd.NaT,
        "crawled_at": pd.NaT,
        "origin": "file:x",
        "industries_given": [],
        "importance_given": np.nan,
    } | changes


def news(*items: dict[str, Any]) -> pd.DataFrame:
    frame = pd.DataFrame(list(items))
    for column in ("published_at", "modified_at", "crawled_at"):
        frame[column] = pd.to_datetime(frame[column], utc=True).astype(tables.TIME)
    return tables.conform(frame, tables.RawNews, "test")


def bars(*rows: tuple[str, str, float], volume: float = np.nan) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["session", "code", "close"])
    frame = frame.assign(open=np.nan, high=np.nan, low=np.nan, volume=volume, amount=np.nan)
    return tables.conform(frame, tables.Bars, "test")


def content(root: Path) -> dict[str, bytes]:
    names = files_below(root)
    return dict(zip(names, read_many([root / name for name in names]), strict=True))


@pytest.fixture
def store(anywhere: Path) -> Landing:
    return Landing.of(anywhere)


@pytest.fixture
def local(home: Path) -> Landing:
    return Landing.of(home)


def test_items_lie_by_source_and_shanghai_day_oldest_first(store: Landing) -> None:
    late = item("b", "2025-01-02 23:59:59.999999")
    counts = store.merge_news(
        news(
            late,
            item("a", "2025-01-03"),
            item("z", "2025-01-02 08:00"),
            item("q", "2025-01-02", source="sina"),
        )
    )
    assert counts == NewsCounts(added=4)
    assert store.news_partitions() == [("cls", "2025-01-02"), ("cls", "2025-01-03"), ("sina", "2025-01-02")]
    day = store.read_news("cls", "2025-01-02")
    assert day["source_id"].tolist() == ["z", "b"]
    assert day["published_at"].iloc[1] == pd.Timestamp("2025-01-02 23:59:59.999999", tz="Asia/Shanghai")
    pd.testing.assert_frame_equal(day, tables.conform(day, tables.RawNews, "day"))


def test_the_same_rows_again_write_nothing(store: Landing, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = news(item("a", "2025-01-02"), item("b", "2025-01-02", industries_given=["801170", "801010"]))
    store.merge_news(frame)
    before = content(store.root)
    monkeypatch.setattr(module, "write_atomically", None)
    assert store.merge_news(frame) == NewsCounts(known=2)
    assert store.merge_news(frame.iloc[::-1]) == NewsCounts(known=2)
    assert content(store.root) == before


def test_the_first_publication_stays_and_moves_to_its_day(store: Landing) -> None:
    store.merge_news(news(item("a", "2025-01-05 09:00", title="edited"), item("b", "2025-01-05")))
    counts = store.merge_news(news(item("a", "2025-01-03 09:00", title="first"), item("b", "2025-01-06")))
    assert counts == NewsCounts(updated=1, known=1)
    assert store.read_news("cls", "2025-01-03")["title"].tolist() == ["first"]
    assert store.read_news("cls", "2025-01-05")["source_id"].tolist() == ["b"]
    assert store.news_digest("cls", "2025-01-06") is None
    store.merge_news(news(item("b", "2025-01-04")))
    assert store.news_digest("cls", "2025-01-05") is None


def test_among_equal_times_the_earlier_modification_stays(store: Landing) -> None:
    changed = pd.Timestamp("2025-01-02 10:00", tz="Asia/Shanghai")
    store.merge_news(news(item("a", "2025-01-02", modified_at=changed, title="later")))
    store.merge_news(news(item("a", "2025-01-02", title="sooner")))
    assert store.read_news("cls", "2025-01-02")["title"].tolist() == ["sooner"]


def test_industries_of_all_copies_are_joined_and_the_highest_importance_kept(store: Landing) -> None:
    first = item("a", "2025-01-02", industries_given=["801170"], importance_given=7.0)
    second = item("a", "2025-01-02", industries_given=["801010"], importance_given=9.0)
    store.merge_news(news(second, first))
    day = store.read_news("cls", "2025-01-02")
    assert [list(codes) for codes in day["industries_given"]] == [["801010", "801170"]]
    assert day["importance_given"].tolist() == [9.0]


@pytest.mark.parametrize("later", [{"published_at": "2025-01-04"}, {"modified_at": "2025-01-04"}])
def test_a_later_publication_or_edit_tells_nothing_about_the_first(store: Landing, later: dict[str, str]) -> None:
    moments = {name: pd.Timestamp(day, tz="Asia/Shanghai") for name, day in later.items()}
    edit = {"industries_given": ["801010"], "importance_given": 9.0} | moments
    store.merge_news(news(item("a", "2025-01-02", industries_given=["801170"], importance_given=7.0)))
    store.merge_news(news(item("a", "2025-01-02") | edit))
    day = store.read_news("cls", "2025-01-02")
    assert [list(codes) for codes in day["industries_given"]] == [["801170"]]
    assert day["importance_given"].tolist() == [7.0]


@pytest.mark.parametrize("texts", [("x", "y"), ("y", "x")])
def test_at_equal_times_the_text_that_landed_first_stays_and_the_other_is_told(
    store: Landing, texts: tuple[str, str]
) -> None:
    first = news(item("a", "2025-01-02", title=texts[0], industries_given=["801010"]))
    second = news(item("a", "2025-01-02", title=texts[1], industries_given=["801170"], importance_given=9.0))
    store.merge_news(first)
    before = content(store.root)
    told = store.merge_news(second.set_axis([7]))
    assert told == NewsCounts(known=1, contradictions=(Contradiction("cls", "a", 7, in_file=False),))
    assert store.merge_news(first) == NewsCounts(known=1)
    assert content(store.root) == before
    assert store.merge_news(second, replace=True) == NewsCounts(updated=1)
    day = store.read_news("cls", "2025-01-02")
    assert day["title"].tolist() == [texts[1]]
    assert [list(codes) for codes in day["industries_given"]] == [["801170"]]
    after = content(store.root)
    assert store.merge_news(second, replace=True) == NewsCounts(known=1) == store.merge_news(second)
    assert content(store.root) == after


def test_replacing_takes_no_later_publication(store: Landing) -> None:
    store.merge_news(news(item("a", "2025-01-02", title="first")))
    later = news(item("a", "2025-01-03", title="edited"))
    assert store.merge_news(later) == NewsCounts(known=1) == store.merge_news(later, replace=True)
    assert store.read_news("cls", "2025-01-02")["title"].tolist() == ["first"]


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("cut", [0, 1, 2, 3])
def test_two_texts_for_one_id_of_a_file_are_told_however_it_is_cut(tmp_path: Path, replace: bool, cut: int) -> None:
    rows = news(
        item("a", "2025-01-02", title="x"),
        item("a", "2025-01-02", title="y"),
        item("a", "2025-01-03", title="z"),
        item("a", "2025-01-02", title="x"),
    )
    store = Landing(tmp_path / "cut")
    store.merge_news(news(item("a", "2025-01-02", title="w")))
    for again in (False, True):
        own: set[tuple[str, str]] = set()
        parts = [part for part in (rows.iloc[:cut], rows.iloc[cut:]) if len(part)]
        counts = [store.merge_news(part, replace=replace, own=own) for part in parts]
        told = [c for count in counts for c in count.contradictions]
        if replace:
            assert told == [Contradiction("cls", "a", row, in_file=True) for row in (1, 2)]
        else:  # of the stored text: all of the same time
            assert told == [Contradiction("cls", "a", row, in_file=False) for row in (0, 1, 3)]
        assert sum(count.updated for count in counts) == (replace and not again)
        assert store.read_news("cls", "2025-01-02")["title"].tolist() == ["x" if replace else "w"]
        assert store.news_partitions() == [("cls", "2025-01-02")]


def test_an_earlier_row_in_a_later_table_of_the_file_is_told(store: Landing) -> None:
    own: set[tuple[str, str]] = set()
    store.merge_news(news(item("a", "2025-01-03", title="x")), own=own)
    told = store.merge_news(news(item("a", "2025-01-02", title="y")).set_axis([9]), own=own)
    assert told == NewsCounts(updated=1, contradictions=(Contradiction("cls", "a", 9, in_file=True),))


@pytest.mark.parametrize("seed", range(6))
def test_order_and_chunks_of_merging_do_not_matter(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    items = [
        item(
            f"id{chance.randrange(12)}",
            f"2025-01-0{chance.randrange(1, 5)} 0{chance.randrange(3)}:00",
            source=chance.choice(["cls", "sina"]),
            origin=chance.choice(["file:1", "file:2"]),
            industries_given=sorted(chance.sample(["801010", "801170", "801780"], chance.randrange(3))),
            importance_given=chance.choice([np.nan, 3.0, 8.0]),
        )
        for _ in range(40)
    ]
    for version in items:  # another text at another time is an edit; at the same time it would contradict
        version["title"] = f"as of {version['published_at']}"
    whole = Landing(tmp_path / "whole")
    whole.merge_news(news(*items))
    chance.shuffle(items)
    parts = Landing(tmp_path / "parts")
    for start in range(0, len(items), 7):
        parts.merge_news(news(*items[start : start + 7]))
    assert content(parts.root) == content(whole.root)
    digests = [[store.news_digest(*key) for key in store.news_partitions()] for store in (whole, parts)]
    assert digests[0] == digests[1]


def test_a_move_interrupted_between_its_two_writes_is_completed_by_the_same_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, moved = news(item("a", "2025-01-05"), item("b", "2025-01-05")), news(item("a", "2025-01-03"))
    calm, struck = Landing(tmp_path / "calm"), Landing(tmp_path / "struck")
    for store in (calm, struck):
        store.merge_news(before)
    calm.merge_news(moved)

    class Struck(Exception):
        pass

    write = module.write_atomically

    def strike_second(path: Path, data: bytes) -> None:
        if path.stem == "2025-01-05":
            raise Struck
        write(path, data)

    monkeypatch.setattr(module, "write_atomically", strike_second)
    with pytest.raises(Struck):
        struck.merge_news(moved)
    monkeypatch.undo()
    both = [struck.read_news("cls", day)["source_id"].tolist() for day in ("2025-01-03", "2025-01-05")]
    assert both == [["a"], ["a", "b"]]
    again = Landing(struck.root)
    again.merge_news(moved)
    assert content(again.root) == content(calm.root)


def test_the_digest_tells_content_and_lies_in_the_file(store: Landing) -> None:
    assert store.news_digest("cls", "2025-01-02") is None
    store.merge_news(news(item("a", "2025-01-02")))
    first = store.news_digest("cls", "2025-01-02")
    assert first is not None
    store.merge_news(news(item("a", "2025-01-02", importance_given=8.0)))
    assert store.news_digest("cls", "2025-01-02") != first


def test_what_never_landed_is_named(store: Landing) -> None:
    with pytest.raises(MissingPartitionError, match=r"landing_news 2025-01-02\|cls: nothing landed"):
        store.read_news("cls", "2025-01-02")
    with pytest.raises(MissingPartitionError, match="landing_industry_bars 2025-01-02: nothing landed"):
        store.read_bars("industry_bars", "2025-01-02")


def test_a_file_of_another_writer_is_refused(store: Landing) -> None:
    path = store.root / "news" / "cls" / "2025-01-02.parquet"
    write_atomically(path, b"not parquet")
    with pytest.raises(TableError, match="delete it and import again"):
        store.news_digest("cls", "2025-01-02")
    with pytest.raises(TableError, match="delete it and import again"):
        store.read_news("cls", "2025-01-02")


def test_bars_newest_number_wins_and_is_counted(store: Landing) -> None:
    store.merge_bars("industry_bars", bars(("2025-01-03", "801010", 2893.08), ("2025-01-03", "801030", 1.0)))
    counts = store.merge_bars("industry_bars", bars(("2025-01-03", "801010", 2893.10), ("2025-01-06", "801010", 5.0)))
    assert (counts.added, counts.updated, counts.known) == (1, 1, 0)
    assert counts.revised_closes == (Revision("2025-01-03", "801010", "close", 2893.08, 2893.10),)
    assert str(counts.revisions[0]) == "801010 2025-01-03 close 2893.08 -> 2893.1"
    assert store.read_bars("industry_bars", "2025-01-03")["close"].tolist() == [2893.10, 1.0]
    assert store.bars_sessions("industry_bars") == ["2025-01-03", "2025-01-06"]


def test_a_missing_number_erases_none_and_a_new_one_fills_no_revision(store: Landing) -> None:
    store.merge_bars("industry_bars", bars(("2025-01-03", "801010", 10.0), volume=7.0))
    counts = store.merge_bars("industry_bars", bars(("2025-01-03", "801010", 10.0)))
    assert (counts.known, counts.revisions) == (1, ())
    assert store.read_bars("industry_bars", "2025-01-03")["volume"].tolist() == [7.0]
    store.merge_bars("industry_bars", bars(("2025-01-06", "801010", np.nan)))
    filled = store.merge_bars("industry_bars", bars(("2025-01-06", "801010", 11.0)))
    assert (filled.updated, filled.revisions) == (1, ())
    assert store.read_bars("industry_bars", "2025-01-06")["close"].tolist() == [11.0]


def test_bars_again_change_no_byte(store: Landing) -> None:
    frame = bars(("2025-01-03", "801010", 10.0), ("2025-01-06", "801010", np.nan))
    store.merge_bars("industry_bars", frame)
    before = content(store.root)
    assert store.merge_bars("industry_bars", frame).known == 2
    assert content(store.root) == before
    assert np.isnan(store.read_bars("industry_bars", "2025-01-06")["close"].iloc[0])


def test_a_second_importer_is_refused(store: Landing, anywhere: Path) -> None:
    with store.importing(), pytest.raises(LandingLockedError, match="another import is writing here; wait until it"):
        Landing.of(anywhere).merge_news(news(item("a", "2025-01-02")))
    assert Landing.of(anywhere).merge_news(news(item("a", "2025-01-02"))).added == 1


def test_two_importers_in_turn_each_know_what_the_other_wrote(store: Landing, anywhere: Path) -> None:
    other = Landing.of(anywhere, 30.0)
    store.merge_news(news(item("a", "2025-01-05")))
    other.merge_news(news(item("a", "2025-01-03"), item("b", "2025-01-05")))
    assert store.merge_news(news(item("a", "2025-01-02"))) == NewsCounts(updated=1)
    assert store.news_partitions() == [("cls", "2025-01-02"), ("cls", "2025-01-05")]
    assert store.news_counts() == {("cls", "2025-01-02"): 1, ("cls", "2025-01-05"): 1}


def test_a_day_without_items_exists_once_it_was_asked_for(store: Landing) -> None:
    assert store.news_count("cls", "2025-01-02") is None
    store.note_day("cls", "2025-01-02")
    assert store.news_count("cls", "2025-01-02") == 0
    store.merge_news(news(item("a", "2025-01-02")))
    store.note_day("cls", "2025-01-02")
    assert store.news_count("cls", "2025-01-02") == 1
    assert len(store.news_times("cls", "2025-01-02")) == 1


def test_an_importer_whose_lock_is_lost_writes_nothing_more(shared: str, home: Path, postgres: Postgres) -> None:
    store = Landing.of(home)
    store.merge_news(news(item("a", "2025-01-02")))
    before = content(store.root)
    with store.importing():
        postgres.restart()
        with pytest.raises(LockLostError, match="the lock was lost"):
            store.merge_news(news(item("b", "2025-01-02")))
    assert content(store.root) == before
    assert store.merge_news(news(item("b", "2025-01-02"))) == NewsCounts(added=1)


def test_a_second_process_is_refused_and_leftovers_are_swept(local: Landing) -> None:
    store = local
    store.root.mkdir(parents=True)
    leftover = store.root / "news" / "cls" / ".partial-1-x-2025-01-02.parquet"
    leftover.parent.mkdir(parents=True)
    leftover.write_bytes(b"half")
    with open(store.root / ".lock", "ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(LandingLockedError, match="another import is writing here; wait until it has ended"):
            store.merge_news(news(item("a", "2025-01-02")))
        assert leftover.exists()
    assert store.merge_news(news(item("a", "2025-01-02"))).added == 1
    assert not leftover.exists()
    assert store.news_partitions() == [("cls", "2025-01-02")]


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(InputError, match="cannot be written"),
        Landing(tmp_path / "file" / "landing").importing(),
    ):
        pass


def test_sources_are_registered_once_and_sorted(tmp_path: Path) -> None:
    assert registered_sources(tmp_path) == ()
    register_sources(tmp_path, ["xueqiu", "bbb"])
    stamp = (tmp_path / "sources.json").stat().st_mtime_ns
    register_sources(tmp_path, ["bbb"])
    assert (tmp_path / "sources.json").stat().st_mtime_ns == stamp
    register_sources(tmp_path, ["aaa"])
    assert registered_sources(tmp_path) == ("aaa", "bbb", "xueqiu")
    (tmp_path / "sources.json").write_text("{")
    with pytest.raises(InputError, match=r"sources.json: damaged .*; delete it and import again"):
        registered_sources(tmp_path)


def test_day_boundary_is_midnight_in_shanghai(store: Landing) -> None:
    for microsecond, day in ((-1, dt.date(2025, 1, 1)), (0, dt.date(2025, 1, 2))):
        moment = pd.Timestamp("2025-01-02", tz="Asia/Shanghai") + pd.Timedelta(microsecond, "us")
        store.merge_news(news(item(f"m{microsecond}", moment)))
        assert ("cls", day.isoformat()) in store.news_partitions()


def test_times_and_counts_are_told_without_the_rows(store: Landing) -> None:
    store.merge_news(news(item("b", "2025-01-02 23:59:59"), item("a", "2025-01-02 08:00")))
    store.note_day("cls", "2025-01-03")
    times = store.news_times("cls", "2025-01-02")
    assert [f"{time:%Y-%m-%d %H:%M:%S}" for time in times] == ["2025-01-02 08:00:00", "2025-01-02 23:59:59"]
    assert [store.news_count("cls", f"2025-01-0{day}") for day in (2, 3, 4)] == [2, 0, None]
    assert store.news_times("cls", "2025-01-03") == store.news_times("cls", "2025-01-04") == []
