"""Simulated time moves only when told to: news comes in, pages shift, words change."""

import pytest

from tests.sites.process import Running, running
from tests.sites.walking import BROWSER, yicai
from tests.sites.world import World

NOW = "2026-05-20T15:00:00+08:00"


def briefs(server: Running, page: int) -> list[str]:
    rows = server.ask("www.yicai.com", f"/api/ajax/getbrieflist?page={page}&pagesize=30", headers=BROWSER).json()
    return [str(row["id"]) for row in rows]


def test_without_arrivals_the_same_request_has_the_same_answer(sites: Running) -> None:
    assert briefs(sites, 1) == briefs(sites, 1)


def test_news_that_comes_in_shifts_the_pages_under_the_reader(sites: Running) -> None:
    before = briefs(sites, 1), briefs(sites, 2)
    sites.order(arrivals={"items": 2, "every": 1})
    first = briefs(sites, 1)
    assert first[2:] == before[0][:28]
    second = briefs(sites, 2)
    assert second[4:] == before[1][:26]
    assert second[2:4] == before[0][-2:]


def test_a_walk_over_a_moving_window_still_meets_all_that_was_there_at_its_start(sites: Running) -> None:
    start = sites.truth("yicai")
    sites.order(arrivals={"items": 1, "every": 3})
    found = yicai(sites)
    assert {row["id"] for row in start["public"] + start["forbidden"]} <= set(found)
    assert len(sites.truth("yicai")["public"]) > len(start["public"])


def test_arrivals_end_with_the_world(sites: Running) -> None:
    sites.order(arrivals={"items": 50, "every": 1})
    for _ in range(8):
        newest = briefs(sites, 1)
    assert briefs(sites, 1) == newest


def test_requests_for_robots_move_nothing(sites: Running) -> None:
    sites.order(arrivals={"items": 1, "every": 1})
    sites.ask("www.yicai.com", "/robots.txt")
    assert sites.told()["now"] == NOW


def test_an_edit_shows_under_the_same_id_with_the_first_time_kept(sites: Running) -> None:
    world = World(seed=7, days=30)
    feed = world.feeds["cls"]
    number = next(
        one
        for one, edited in enumerate(feed.edited)
        if feed.published[one] <= world.clock < edited and not feed.forbidden[one]
    )
    key = str(feed.plan.first_id + number)
    before = {row["id"]: row for row in sites.truth("cls")["public"]}[key]
    sites.order(now="2026-05-22T23:00:00")
    after = {row["id"]: row for row in sites.truth("cls")["public"]}[key]
    assert before["published_at"] == after["published_at"]
    assert before["modified_at"] is None
    assert after["modified_at"] > after["published_at"]
    assert before["content"] != after["content"]
    page = sites.ask("www.cls.cn", f"/detail/{key}", headers=BROWSER).body.decode()
    assert "更正：以正式公告为准。" in page


def test_nothing_is_served_before_it_is_published(sites: Running) -> None:
    sites.order(now="2026-05-10T12:00:00")
    rows = sites.ask("www.yicai.com", "/api/ajax/getbrieflist?page=1&pagesize=30", headers=BROWSER).json()
    assert max(row["CreateDate"] for row in rows) <= "2026-05-10T12:00:00"
    sites.order(now=NOW)
    newest = briefs(sites, 1)[0]
    sites.order(now="2026-05-10T12:00:00")
    assert newest not in {row["id"] for row in sites.truth("yicai")["public"]}


def test_reach_ends_a_list_after_its_newest_rows_and_shortens_the_truth() -> None:
    with running("--days", "12", "--reach", "10jqka=50", "--reach", "sina=800", "--items", "90") as server:
        target = "/tapp/news/push/stock/?page={}&pagesize=20"
        pages = [server.ask("news.10jqka.com.cn", target.format(page), headers=BROWSER).json() for page in (3, 4)]
        assert [len(page["data"]["list"]) for page in pages] == [10, 0]
        assert pages[0]["data"]["total"] == "50"
        info = server.ask(
            "zhibo.sina.com.cn", "/api/zhibo/feed?page=1&page_size=10&zhibo_id=152", headers=BROWSER
        ).json()
        assert info["result"]["data"]["feed"]["page_info"]["totalNum"] == 800
        assert len(server.truth("10jqka", channel="push")["public"]) <= 50


@pytest.mark.parametrize(
    "wrong",
    [{"now": "yesterday"}, {"arrivals": {"items": 0, "every": 1}}, {"weather": "fine"}, {"arrivals": {"rows": 1}}],
)
def test_an_order_that_cannot_be_obeyed_changes_nothing(sites: Running, wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="order"):
        sites.order(clear=True, **wrong)
    assert sites.told()["now"] == NOW
