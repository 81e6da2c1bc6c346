"""What happens after a day changes nothing up to that day, through the whole pipeline and from real files on.

Two worlds share everything up to 24:00 of a session; after it, articles are added, deleted, edited and moved, and
all closes are others. Both are imported and run. And: order of import, number of processes and the days run at once
do not matter either.
"""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import json
import os
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from small_world import MECHANISMS, SESSIONS, Outcome, contents, copied, import_arguments

from finevolve_pipeline.calendar import cutoff, days_between
from finevolve_pipeline.replay.journal import DATA_FILES, MANIFEST, ReplayStore
from resources.table_store import TableStore

Command = Callable[..., Outcome]
Article = dict[str, Any]

LAST_COMMON = SESSIONS[4]
COMMON, AFTER = SESSIONS[:5], SESSIONS[5:]
EXPERIMENTS = [f"{mechanism}-rules" for mechanism in MECHANISMS]
NEWS_TABLES = ("articles", "tagged_articles", "benchmark_news")

pytestmark = pytest.mark.slow


def read_news(folder: Path) -> list[Article]:
    """The articles of a world's file."""
    with gzip.open(folder / "news.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def write_news(articles: Sequence[Article], folder: Path) -> None:
    """Articles as a world's file."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(article, ensure_ascii=False) + "\n" for article in articles)
    (folder / "news.jsonl.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))


def published(article: Article) -> dt.datetime:
    """When an article was published."""
    return dt.datetime.fromisoformat(article["published_at"])


def with_another_future(articles: Sequence[Article], end: dt.datetime, chance: random.Random) -> list[Article]:
    """The articles before `end`, and others after it: some gone, some edited, some moved, some new.

    New are also what could reach back: copies and later versions of articles before `end`, from the very instant
    on, which claim more industries and the highest importance.
    """
    past = [article for article in articles if published(article) < end]
    future: list[Article] = []
    for number, article in enumerate(a for a in articles if published(a) >= end):
        changed = dict(article)
        if number % 4 == 0:
            continue
        if number % 4 == 1:
            changed["title"], changed["content"] = (
                "银行板块重大利空，全线跌停",
                "银行业监管处罚，净利润大幅下滑，遭机构减持。",
            )
        if number % 4 == 2:
            later = end + dt.timedelta(seconds=chance.randrange(4 * 86_400))
            changed["published_at"] = later.isoformat()
        future.append(changed)
    for number, article in enumerate(past[-60:]):
        moment = end + dt.timedelta(minutes=number)
        claims = {"published_at": moment.isoformat(), "importance": 10, "industries": ["801780", "801170"]}
        other = "sina" if article["source"] == "cls" else "cls"
        future.append({**article, **claims, "source": other, "source_id": f"copy-{number}"})
        future.append({**article, **claims, "title": "更正：国务院重磅政策", "content": "全行业重大利好。" * 3})
        future.append({**article, **claims, "source_id": f"new-{number}", "title": f"突发{number}：央行降准利好银行"})
    mixed = past + future
    chance.shuffle(mixed)
    return mixed


def with_other_closes(path: Path, to: Path, chance: random.Random) -> None:
    """A file of bars whose prices differ on every session after the last common one."""
    with open(path, encoding="utf-8", newline="") as source:
        reader = csv.DictReader(source)
        rows, fields = list(reader), list(reader.fieldnames or ())
    for row in rows:
        if row["date"] > LAST_COMMON.isoformat():
            factor = chance.uniform(0.7, 1.4)
            row.update({name: str(float(row[name]) * factor) for name in ("open", "high", "low", "close") if row[name]})
    with open(to, "w", encoding="utf-8", newline="") as target:
        writer = csv.DictWriter(target, fields)
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture(scope="module")
def other(finevolve: Command, world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home made from the same world up to the last common session, and another one after it."""
    folder = tmp_path_factory.mktemp("other")
    chance = random.Random(11)
    changed = folder / "world"
    write_news(with_another_future(read_news(world), cutoff(LAST_COMMON), chance), changed)
    for name in ("industries.csv", "benchmark.csv"):
        with_other_closes(world / name, changed / name, chance)
    home = folder / "home"
    for arguments in import_arguments(changed):
        finevolve(*arguments, home=home).expect()
    finevolve("run", home=home).expect()
    return home


def test_no_table_up_to_the_day_knows_what_comes_after(complete: Path, other: Path) -> None:
    mine, theirs = TableStore(complete), TableStore(other)
    days = [day.isoformat() for day in days_between(dt.date(2024, 12, 29), LAST_COMMON)]
    for name in NEWS_TABLES:
        for day in days:
            assert mine.path(name, day).read_bytes() == theirs.path(name, day).read_bytes(), f"{name} {day}"
    for name in ("news_window", "matured_alpha", "industry_bars", "benchmark_bars"):
        for session in COMMON:
            key = session.isoformat()
            assert mine.path(name, key).read_bytes() == theirs.path(name, key).read_bytes(), f"{name} {key}"
            assert len(mine.read(name, key)) > 0 or name == "matured_alpha"


@pytest.mark.parametrize("key", EXPERIMENTS)
def test_no_prediction_memory_or_prompt_up_to_the_day_knows_what_comes_after(
    complete: Path, other: Path, key: str
) -> None:
    for session in COMMON:
        for name in (*DATA_FILES, MANIFEST):
            path = Path("replay") / key / session.isoformat() / name
            assert (complete / path).read_bytes() == (other / path).read_bytes(), str(path)


@pytest.mark.parametrize("key", EXPERIMENTS)
def test_every_day_after_it_is_another_one(complete: Path, other: Path, key: str) -> None:
    """So the tests above could fail."""
    mine, theirs = TableStore(complete), TableStore(other)
    for session in AFTER:
        for name in ("news_window", "matured_alpha"):
            assert mine.digest(name, session.isoformat()) != theirs.digest(name, session.isoformat())
        prompts = [
            store.replays.read_predictions(key, [session], ["prompt_digest"])["prompt_digest"].tolist()
            for store in (mine, theirs)
        ]
        assert prompts[0] != prompts[1]
    assert mine.digest("alpha", "all") != theirs.digest("alpha", "all")


def test_experience_is_shown_and_learned_from_within_the_common_days(complete: Path) -> None:
    """So the days compared above hold what could leak: memories, and outcomes that matured."""
    store = ReplayStore(complete / "replay")
    assert len(store.read_retrievals("memrl-rules", COMMON)) > 100
    assert sum(store.manifest("memrl-rules", session).counts.matured for session in COMMON) > 100
    assert any(len(store.events("memrl-rules", session)) > 31 for session in COMMON)


def test_order_and_chunks_of_the_imported_files_do_not_matter(
    finevolve: Command, world: Path, imported: Path, tmp_path: Path
) -> None:
    articles = read_news(world)
    random.Random(3).shuffle(articles)
    news, market = import_arguments(world)
    finevolve(*market, home=tmp_path / "home").expect()
    for part in range(3):
        write_news(articles[part::3], tmp_path / str(part))
        finevolve("import", "news", tmp_path / str(part) / "news.jsonl.gz", home=tmp_path / "home").expect()
    finevolve(*news, home=tmp_path / "home").expect()
    assert contents(tmp_path / "home") == contents(imported)


def without_replays(home: Path, to: Path) -> Path:
    """A copy of a home in which nothing has been replayed."""
    copied(home, to)
    for name in ("replay", "report"):
        shutil.rmtree(to / name)
    return to


def test_the_number_of_processes_does_not_matter(finevolve: Command, complete: Path, tmp_path: Path) -> None:
    # The complete home was made with as many processes as there are cores.
    jobs = 1 if (os.cpu_count() or 1) > 1 else 3
    home = without_replays(complete, tmp_path / "home")
    finevolve("run", "--jobs", jobs, home=home).expect()
    assert contents(home) == contents(complete)


def test_day_by_day_is_the_same_as_all_at_once(
    finevolve: Command, imported: Path, complete: Path, tmp_path: Path
) -> None:
    home = copied(imported, tmp_path / "home")
    for last in (SESSIONS[4], SESSIONS[-1]):
        finevolve("run", "--to", last, "--mechanism", "memrl", home=home).expect()
        assert ReplayStore(home / "replay").sessions("memrl-rules")[-1] == last
    assert contents(home, ["replay/memrl-rules"]) == contents(complete, ["replay/memrl-rules"])
    for name in ("raw_news", *NEWS_TABLES, "news_window", "matured_alpha", "industry_bars", "alpha"):
        assert contents(home, [f"tables/{name}"]) == contents(complete, [f"tables/{name}"])
