"""The world behind the sites: repeatable, and with every oddity a crawl must survive."""

import datetime as dt
from collections import Counter

import pytest

from tests.sites.world import CHANNELS, FEEDS, SHANGHAI, World, clock_text, day_start, same

WORLD = World(seed=7, days=30)


def test_one_seed_makes_one_world_and_another_seed_another() -> None:
    again, other = World(seed=7, days=30), World(seed=8, days=30)
    for name in FEEDS:
        assert WORLD.feeds[name].published == again.feeds[name].published
        assert WORLD.item(name, 40) == again.item(name, 40)
        assert WORLD.feeds[name].published != other.feeds[name].published


def test_times_are_in_order_and_inside_the_days() -> None:
    for feed in WORLD.feeds.values():
        assert feed.published == sorted(feed.published)
        assert feed.published[0] >= day_start(WORLD.first_day)
        assert feed.published[-1] < day_start(dt.date(2026, 5, 23))


def test_the_truth_ends_at_the_simulated_clock() -> None:
    truth = WORLD.truth("yicai")
    assert max(item.published for item in truth.public.values()) <= WORLD.clock
    later = WORLD.truth("yicai", clock=WORLD.clock + 86_400)
    assert len(later.public) > len(truth.public)


def test_truth_of_single_days_adds_up_to_the_whole() -> None:
    whole = WORLD.truth("cls").public
    parts = [
        WORLD.truth("cls", start=day, end=day).public
        for day in (WORLD.first_day + dt.timedelta(days=offset) for offset in range(30))
    ]
    assert sum(len(part) for part in parts) == len(whole)
    assert set().union(*parts) == set(whole)


@pytest.mark.parametrize("name", FEEDS)
def test_ids_are_unique_and_forbidden_kinds_all_occur(name: str) -> None:
    feed = WORLD.feeds[name]
    items = [WORLD.item(name, number) for number in range(len(feed.published))]
    assert len({item.key for item in items}) == len(items)
    assert {item.forbidden for item in items} - {""} == set(FEEDS[name].forbidden)


@pytest.mark.parametrize("name", FEEDS)
def test_a_run_of_ties_is_one_short_of_a_page_and_none_is_longer(name: str) -> None:
    runs = Counter(WORLD.feeds[name].published)
    assert max(runs.values()) == FEEDS[name].page - 1
    assert sum(1 for size in runs.values() if size > 1) > 10


def test_news_stands_on_both_sides_of_midnight() -> None:
    for feed in WORLD.feeds.values():
        times = {clock_text(one, "%H:%M:%S") for one in feed.published}
        assert {"00:00:00", "00:00:01", "23:59:58", "23:59:59"} <= times


def test_one_source_is_silent_for_one_day_and_only_that() -> None:
    assert WORLD.silent is not None
    silent, silent_day = WORLD.silent
    for source in CHANNELS:
        for offset in range(29):
            day = WORLD.first_day + dt.timedelta(days=offset)
            truth = WORLD.truth(source, start=day, end=day)
            assert (not truth.public) == ((source, day) == (silent, silent_day))


def test_some_weekends_are_quieter_than_working_days() -> None:
    counts = Counter(dt.datetime.fromtimestamp(one, SHANGHAI).date() for one in WORLD.feeds["eastmoney"].published)
    weekend = sorted(counts[day] for day in counts if day.weekday() >= 5)
    working = sorted(counts[day] for day in counts if day.weekday() < 5)
    assert weekend[0] < working[0] / 2


def test_edits_change_title_and_text_at_their_moment_and_keep_the_first_time() -> None:
    feed = WORLD.feeds["sina_roll"]
    number = next(one for one, edited in enumerate(feed.edited) if edited)
    item = WORLD.item("sina_roll", number)
    assert item.edited is not None
    before, after = item.words(item.edited - 1), item.words(item.edited)
    assert before.title != after.title
    assert before.text != after.text
    assert item.modified_at(item.edited - 1) is None
    assert item.modified_at(item.edited) == item.edited > item.published


def test_some_edits_are_still_to_come_at_the_start_of_simulated_time() -> None:
    for source in CHANNELS:
        feed = WORLD.feeds[next(iter(CHANNELS[source].values()))]
        pairs = zip(feed.published, feed.edited, strict=True)
        assert sum(1 for published, edited in pairs if published <= WORLD.clock < edited) >= 1


@pytest.mark.parametrize(("name", "origin"), [("fenghuang", "cls"), ("jinrongjie", "eastmoney")])
def test_some_items_repeat_an_earlier_item_of_another_source(name: str, origin: str) -> None:
    originals = {
        WORLD.item(origin, number).first.text[-20:]: WORLD.feeds[origin].published[number]
        for number in range(len(WORLD.feeds[origin].published))
    }
    items = [WORLD.item(name, number) for number in range(len(WORLD.feeds[name].published))]
    copies = [item for item in items if item.copy]
    assert len(copies) > 20
    for item in copies:
        assert item.copy == origin
        assert originals[item.first.text[-20:]] < item.published
    assert all(item.first.text[-20:] not in originals for item in items if not item.copy)


def test_words_are_free_of_markup_and_unlike_each_other() -> None:
    texts = [WORLD.item("cls", number).first.text for number in range(500)]
    assert len(set(texts)) == 500
    assert not any(mark in text for text in texts for mark in "<>&\x00\u3000")


def test_jrj_lists_overlap_without_being_equal() -> None:
    flash, yaowen = (set(WORLD.truth("jinrongjie", name).public) for name in ("flash", "yaowen"))
    assert flash & yaowen
    assert flash - yaowen
    assert yaowen - flash


def test_white_space_is_no_part_of_the_truth() -> None:
    assert same("一 二\u3000三\r\n", "一二三")
    assert not same("一二", "一三")


@pytest.mark.parametrize(
    "wrong",
    [
        {"now": dt.datetime(2026, 5, 20)},
        {"reach": {"reuters": 5}},
        {"inclusive": frozenset({"yicai"})},
        {"days": 0},
    ],
)
def test_impossible_worlds_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        World(**wrong)  # type: ignore[arg-type]
