"""What a plain client finds on the nine sites is exactly the world's truth, forbidden items under their flags."""

import datetime as dt
from collections import Counter

import pytest

from tests.sites.process import Running, running
from tests.sites.walking import WALKS, cls, jinrongjie_flash, wallstreetcn
from tests.sites.world import CHANNELS, World, same

WORLD = World(seed=7, days=30)


def test_every_channel_has_a_walk() -> None:
    assert set(WALKS) == {(source, name) for source, names in CHANNELS.items() for name in names}


@pytest.mark.parametrize(("source", "channel"), WALKS, ids=lambda name: name)
def test_walking_a_list_to_its_end_brings_the_truth_and_nothing_else(sites: Running, source: str, channel: str) -> None:
    found = WALKS[source, channel](sites)
    truth = WORLD.truth(source, channel)
    assert set(found) == set(truth.public) | set(truth.forbidden)
    assert {key for key, read in found.items() if read.flagged} == set(truth.forbidden)
    for key, item in truth.public.items():
        words = item.words(WORLD.clock)
        assert found[key].published == item.published, key
        assert same(found[key].title, words.title), key
        assert same(found[key].text, words.text), key


def test_the_served_truth_is_that_of_a_world_of_the_same_settings(sites: Running) -> None:
    told = sites.truth("sina", channel="live", start="2026-05-04", end="2026-05-06")
    truth = WORLD.truth("sina", "live", start=dt.date(2026, 5, 4), end=dt.date(2026, 5, 6))
    assert [row["id"] for row in told["public"]] == list(truth.public)
    assert [row["id"] for row in told["forbidden"]] == list(truth.forbidden)
    first = told["public"][0]
    item = truth.public[first["id"]]
    assert dt.datetime.fromisoformat(first["published_at"]) == item.moment
    assert first["published_at"].endswith("+08:00")
    assert first["content"] == item.words(WORLD.clock).text


def test_a_truth_that_does_not_exist_is_refused(sites: Running) -> None:
    assert sites.ask("control", "/__truth__?source=reuters").status == 400


def test_cursors_that_repeat_their_own_second_lose_nothing_either() -> None:
    inclusive = [part for name in ("cls", "wallstreetcn", "jinrongjie") for part in ("--inclusive", name)]
    with running("--days", "12", *inclusive) as server:
        world = World(days=12)
        for source, walk in (("cls", cls), ("wallstreetcn", wallstreetcn), ("jinrongjie", jinrongjie_flash)):
            truth = world.truth(source, next(iter(CHANNELS[source])))
            assert set(walk(server)) == set(truth.public) | set(truth.forbidden)


def test_a_run_of_ties_follows_the_page_size_a_client_asks_for() -> None:
    with running("--days", "12", "--ties", "cls=49") as server:
        world = World(days=12, ties={"cls": 49})
        truth = world.truth("cls")
        found = cls(server, size=50)
        assert set(found) == set(truth.public) | set(truth.forbidden)
        assert max(Counter(read.published for read in found.values()).values()) == 49


def test_without_overlap_the_strict_cursor_loses_rows_tied_at_a_border() -> None:
    channel = WORLD.channels["cls", "telegraph"]
    seen: set[int] = set()
    cursor = None
    while rows := channel.before(WORLD.clock, cursor, 20):
        seen.update(rows)
        cursor = channel.feed.published[rows[-1]]
    assert len(set(channel.before(WORLD.clock, None, 10_000))) - len(seen) > 0
