from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import pandas as pd
import pytest

from finevolve_pipeline.errors import BackboneError, UniverseError
from finevolve_pipeline.llm.asking import Model
from finevolve_pipeline.llm.requests import Call, PredictRequest, Reply, TagBatchRequest, TagRequest, Usage
from finevolve_pipeline.llm.rules.backbone import RulesBackbone
from finevolve_pipeline.llm.tokens import estimate_tokens
from finevolve_pipeline.news.tag import LOOK_AHEAD, Tagging, requests_under_way, tag_days, tagger
from finevolve_pipeline.settings import load_settings
from finevolve_pipeline.tables import Articles, TaggedArticles, conform, empty

SETTINGS = load_settings()
NAN = float("nan")


def said(importance: int = 9, industries: tuple[str, ...] = ("801170",), **other: object) -> dict[str, object]:
    """What a model says of an article."""
    tags: dict[str, object] = {
        "industries": list(industries),
        "scope": "industry" if industries else "none",
        "importance": importance,
        "importance_reason": "port strike",
        "topics": ["供应链"],
    }
    return tags | other


SHIPPING = json.dumps(said())


@dataclass
class Scripted:
    """A backbone with a cache that gives each article its scripted answers in turn, by title.

    It remembers what it was asked, in groups of titles, and how much ran at once. An article in `held` is answered
    once the event loop has turned `turns` times.
    """

    answers: dict[str, list[str]] = field(default_factory=dict)
    batches: list[str] = field(default_factory=list)
    held: frozenset[str] = frozenset()
    turns: int = 1
    stops_at: str = ""
    name: str = "scripted"
    version: int = 1
    cache: dict[tuple[object, ...], Reply] = field(default_factory=dict)
    asked: list[tuple[str, ...]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    running: int = 0
    most_running: int = 0
    loops: set[int] = field(default_factory=set)

    @property
    def identity(self) -> dict[str, object]:
        return {"name": self.name, "version": self.version}

    def count_tokens(self, text: str) -> int:
        return estimate_tokens(text)

    def recall(self, call: Call) -> Reply | None:
        return self.cache.get((call.prompt.messages, call.variant))

    def remember(self, call: Call, reply: Reply) -> None:
        self.cache[call.prompt.messages, call.variant] = reply

    async def answer(self, call: Call) -> Reply:
        known = self.recall(call)
        if known is not None:
            return known
        request = call.request
        assert not isinstance(request, PredictRequest)
        articles = request.articles if isinstance(request, TagBatchRequest) else (request,)
        titles = tuple(one.title for one in articles)
        self.asked.append(titles)
        self.events.append(f"asked {titles[0]}")
        self.loops.add(id(asyncio.get_running_loop()))
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        for _ in range(self.turns if self.held & set(titles) else 1):
            await asyncio.sleep(0)
        self.running -= 1
        if self.stops_at in titles:
            raise BackboneError(f"the provider is gone at {self.stops_at}")
        if isinstance(request, TagBatchRequest):
            text = self.batches.pop(0) if self.batches else json.dumps({"articles": self._parts(request.articles)})
            reply = Reply(text, Usage(1, 100 * len(titles) + 1, 0, 10 * len(titles), 0, 0.5))
        else:
            answers = self.answers.get(request.title)
            reply = Reply(answers.pop(0) if answers else SHIPPING, Usage(1, 100, 0, 10))
        self.remember(call, reply)
        return reply

    def _parts(self, articles: tuple[TagRequest, ...]) -> list[dict[str, object]]:
        return [{"id": str(number), **said(len(one.title) % 10 + 1)} for number, one in enumerate(articles, 1)]

    async def close(self) -> None:
        self.events.append("closed")


def articles(*rows: tuple[str, list[str], float]) -> pd.DataFrame:
    """Articles from (id, given industries, given importance); the title is the id."""
    frame = pd.DataFrame(rows, columns=["article_id", "industries_given", "importance_given"])
    frame["published_at"] = pd.Timestamp("2025-05-14 10:00", tz="Asia/Shanghai").as_unit("us")
    frame["duplicates"] = [[] for _ in rows]
    text = {
        "source": "cls",
        "source_id": "1",
        "url": "u",
        "title": frame["article_id"],
        "content": "c",
        "origin": "file:x",
    }
    return conform(frame.assign(**text), Articles, "test")


def plain(*names: str) -> pd.DataFrame:
    """Articles of which nothing is given."""
    return articles(*((name, [], NAN) for name in names))


def tag(frame: pd.DataFrame, backbone: Scripted, batch: int = 1) -> Tagging:
    ((_, tagging),) = tag_days(iter([("2025-05-14", frame)]), Model(backbone, SETTINGS.prompts), batch, 64)
    assert tagging.frame.equals(conform(tagging.frame, TaggedArticles, "test"))
    return tagging


def identity(backbone: Scripted, batch: int = 1, **prompts: object) -> str:
    return tagger(Model(backbone, SETTINGS.prompts.model_copy(update=prompts)), batch).identity


def test_every_article_gets_the_backbones_tags_in_order() -> None:
    backbone = Scripted()
    tagging = tag(plain(*(f"{n:03d}" for n in range(150))), backbone)
    assert tagging.frame["article_id"].to_list() == [f"{n:03d}" for n in range(150)]
    row = tagging.frame.iloc[149]
    assert (row["industries"], row["scope"], row["importance"]) == (["801170"], "industry", 9)
    assert (row["importance_reason"], row["topics"], row["rejected_industries"]) == ("port strike", ["供应链"], [])
    assert row["tagger"] == identity(backbone)
    assert (tagging.asked, tagging.asked_again, tagging.unreadable, tagging.cut) == (150, 0, 0, 0)
    assert (tagging.rejected, tagging.failures, tagging.usage) == ({}, {}, Usage(150, 15_000, 0, 1_500))


def test_requests_run_together_but_not_all_at_once() -> None:
    backbone = Scripted()
    tag(plain(*map(str, range(150))), backbone)
    assert backbone.most_running == 64


def test_an_unreadable_answer_is_asked_for_once_more() -> None:
    backbone = Scripted({"a": ["no JSON", SHIPPING]})
    tagging = tag(plain("a", "b"), backbone)
    assert tagging.frame["importance"].to_list() == [9, 9]
    assert (tagging.asked, tagging.asked_again, tagging.unreadable) == (2, 1, 0)
    assert sorted(backbone.asked) == [("a",), ("a",), ("b",)]
    assert (tagging.usage, tagging.failures) == (Usage(3, 300, 0, 30), {"reasked": 1, "unreadable": 1})


def test_an_article_whose_tags_stay_unreadable_is_kept_and_counted() -> None:
    tagging = tag(plain("a"), Scripted({"a": ["no JSON", "{}"]}))
    row = tagging.frame.iloc[0]
    assert (row["industries"], row["scope"], row["importance"], row["topics"]) == ([], "none", 1, [])
    assert "could not be read" in row["importance_reason"]
    assert (tagging.asked_again, tagging.unreadable) == (1, 1)


def test_unknown_industry_names_are_kept_beside_the_tags_and_counted() -> None:
    odd = json.dumps(said(industries=("801170", "虚构行业", "Spaceships")))
    tagging = tag(plain("a", "b"), Scripted({"a": [odd, odd]}))
    assert tagging.frame["industries"].to_list() == [["801170"], ["801170"]]
    assert tagging.frame["rejected_industries"].to_list() == [["Spaceships", "虚构行业"], []]
    assert tagging.rejected == {"Spaceships": 1, "虚构行业": 1}
    assert tagging.facts["rejected_industries"] == 2
    assert tagging.facts["rejected_names"] == {"Spaceships": 1, "虚构行业": 1}


def test_an_article_longer_than_its_budget_is_cut_and_counted() -> None:
    frame = plain("a", "b").assign(content=["长" * 9000, "短"])
    tagging = tag(frame, Scripted())
    assert tagging.cut == 1
    assert tagging.frame["content"].map(len).to_list() == [9000, 1]


def test_given_industries_and_importance_stay_and_nobody_is_asked() -> None:
    backbone = Scripted()
    tagging = tag(articles(("a", ["801780", "银行", "801170.SI"], 8.0)), backbone)
    row = tagging.frame.iloc[0]
    assert (row["industries"], row["scope"], row["importance"]) == (["801170", "801780"], "industry", 8)
    assert (row["importance_reason"], row["tagger"], row["topics"]) == ("given with the data", "given", [])
    assert (backbone.asked, tagging.asked) == ([], 0)


def test_what_was_not_given_comes_from_the_backbone() -> None:
    backbone = Scripted()
    tagging = tag(articles(("a", ["801780"], NAN), ("b", [], 3.0), ("c", ["801780"], 11.0)), backbone)
    assert tagging.frame["industries"].to_list() == [["801780"], ["801170"], ["801780"]]
    assert tagging.frame["importance"].to_list() == [9, 3, 9]
    assert set(tagging.frame["tagger"]) == {f"given+{identity(backbone)}"}


def test_a_given_industry_outside_the_universe_is_refused() -> None:
    with pytest.raises(UniverseError, match="801020"):
        tag(articles(("a", ["801020"], 8.0)), Scripted())


def test_the_tagger_is_named_by_everything_that_can_change_its_answers() -> None:
    same = identity(Scripted())
    assert same.startswith("scripted:")
    others = {
        identity(Scripted(version=2)),
        identity(Scripted(), language="en"),
        identity(Scripted(), article_tokens=500),
        identity(Scripted(), batch=8),
        identity(Scripted(), batch=4),
    }
    assert len(others - {same}) == 5
    assert identity(Scripted(), news_tokens=500) == same


def test_a_day_without_articles_asks_nothing() -> None:
    backbone = Scripted()
    assert tag(empty(Articles), backbone).frame.empty
    assert backbone.asked == []


class Days:
    """Days of ten articles each, that know how many were taken."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.taken = 0

    def __iter__(self) -> Iterator[tuple[str, pd.DataFrame]]:
        for day in range(self.count):
            self.taken += 1
            yield f"day {day}", plain(*(f"{day:03d}-{n}" for n in range(10)))


@pytest.mark.parametrize("batch", [1, 4])
def test_later_days_are_asked_about_while_an_earlier_one_waits_and_come_out_in_order(batch: int) -> None:
    backbone = Scripted(held=frozenset({"000-3"}), turns=30)
    seen = []
    for key, tagging in tag_days(iter(Days(12)), Model(backbone, SETTINGS.prompts), batch, 4):
        seen.append(key)
        assert len(tagging.frame) == 10
        if key == "day 0":
            later = {title[:3] for titles in backbone.asked for title in titles} - {"000"}
            assert {"001", "002"} <= later
    assert seen == [f"day {n}" for n in range(12)]
    assert len(backbone.loops) == 1
    assert backbone.events[-1] == "closed"
    assert backbone.events.count("closed") == 1


def test_the_look_ahead_is_bounded_however_long_a_day_waits() -> None:
    days = Days(200)
    backbone = Scripted(held=frozenset({"000-3"}), turns=2000)
    tagged = tag_days(iter(days), Model(backbone, SETTINGS.prompts), 1, 4)
    assert next(tagged)[0] == "day 0"
    assert 2 <= days.taken <= LOOK_AHEAD * 4 // 10 + 2
    tagged.close()


def test_an_error_stops_what_is_under_way_after_the_complete_days_came_out() -> None:
    backbone = Scripted(stops_at="003-5", held=frozenset({"003-5"}), turns=5)
    seen: list[str] = []
    with pytest.raises(BackboneError, match="gone at 003-5"):
        seen.extend(key for key, _ in tag_days(iter(Days(50)), Model(backbone, SETTINGS.prompts), 1, 4))
    assert seen == ["day 0", "day 1", "day 2"]
    assert backbone.events[-1] == "closed"
    assert len(backbone.asked) < 100


def test_who_leaves_early_gives_up_what_is_under_way() -> None:
    backbone = Scripted()
    tagged = tag_days(iter(Days(50)), Model(backbone, SETTINGS.prompts), 1, 4)
    next(tagged)
    tagged.close()
    assert backbone.events[-1] == "closed"
    assert len(backbone.asked) < 100


def test_an_error_of_the_days_themselves_passes_through() -> None:
    def days() -> Iterator[tuple[str, pd.DataFrame]]:
        yield "day 0", plain("a")
        yield "day 1", articles(("b", ["801020"], 8.0))

    backbone = Scripted()
    tagged = tag_days(days(), Model(backbone, SETTINGS.prompts), 1, 4)
    with pytest.raises(UniverseError, match="801020"):
        list(tagged)
    assert backbone.events[-1] == "closed"


NAMES = tuple("x" * n for n in range(1, 20))


def test_a_batch_asks_about_several_articles_at_once_within_a_day() -> None:
    backbone = Scripted()
    days = [("a", plain(*NAMES[:11])), ("b", plain(*NAMES[11:]))]
    one, two = (tagging for _, tagging in tag_days(iter(days), Model(backbone, SETTINGS.prompts), 8, 4))
    assert sorted(map(len, backbone.asked)) == [3, 8, 8]
    assert backbone.asked[0] == NAMES[:8]
    assert one.frame["importance"].to_list() == [len(name) % 10 + 1 for name in NAMES[:11]]
    assert two.frame["importance"].to_list() == [len(name) % 10 + 1 for name in NAMES[11:]]
    assert (one.asked, one.asked_again) == (11, 0)


def test_what_a_batch_cost_is_split_without_a_rest() -> None:
    tagging = tag(plain(*NAMES[:8]), Scripted(), batch=8)
    assert tagging.usage == Usage(1, 801, 0, 80, 0, 0.5)


@pytest.mark.parametrize("batch", [1, 8])
def test_a_day_made_again_asks_about_new_and_changed_articles_only(batch: int) -> None:
    backbone = Scripted()
    tag(plain(*NAMES), backbone, batch)
    backbone.asked.clear()
    again = tag(plain(*NAMES), backbone, batch)
    assert (backbone.asked, again.asked) == ([], len(NAMES))
    frame = plain(*NAMES, "new")
    frame.loc[4, "content"] = "changed"
    tag(frame, backbone, batch)
    assert sorted(title for titles in backbone.asked for title in titles) == ["new", NAMES[4]]
    assert len(backbone.asked) == (1 if batch > 1 else 2)


def batch_answer(*parts: object) -> str:
    return json.dumps({"articles": list(parts)})


def test_an_article_that_an_answer_leaves_out_or_garbles_is_asked_about_alone_and_never_again() -> None:
    answer = batch_answer({"id": "1", **said(2)}, {"id": "3", **said(4)}, {"id": "4", **said(40)})
    backbone = Scripted({"b": [json.dumps(said(6))]}, [answer])
    tagging = tag(plain("a", "b", "c", "d"), backbone, batch=4)
    assert tagging.frame["importance"].to_list() == [2, 6, 4, 9]
    assert sorted(backbone.asked) == [("a", "b", "c", "d"), ("b",), ("d",)]
    assert (tagging.asked_again, tagging.unreadable) == (2, 0)
    assert tagging.failures == {"reasked": 2, "unreadable": 2}
    assert tagging.usage == Usage(3, 601, 0, 60, 0, 0.5)

    backbone.asked.clear()
    again = tag(plain("a", "b", "c", "d"), backbone, batch=4)
    assert backbone.asked == []
    assert again.frame.equals(tagging.frame)
    assert (again.usage, again.failures) == (tagging.usage, tagging.failures)


def test_an_answer_about_several_that_cannot_be_read_leads_to_one_request_each() -> None:
    backbone = Scripted(batches=["sorry, no"])
    tagging = tag(plain("a", "b", "c"), backbone, batch=3)
    assert tagging.frame["importance"].to_list() == [9, 9, 9]
    assert sorted(backbone.asked) == [("a",), ("a", "b", "c"), ("b",), ("c",)]


def test_a_flaw_in_a_part_is_asked_about_alone_with_the_flaw_named() -> None:
    odd = {"id": "1", **said(5, industries=("801170", "虚构行业"))}
    backbone = Scripted({"a": [json.dumps(said(5, industries=("801170", "801780")))]}, [batch_answer(odd)])
    tagging = tag(plain("a"), backbone, batch=2)
    assert backbone.asked == [("a",), ("a",)]
    assert (tagging.frame["industries"].to_list(), tagging.rejected) == ([["801170", "801780"]], {})


def test_a_part_that_contradicts_itself_is_asked_about_alone() -> None:
    backbone = Scripted(batches=[batch_answer({"id": "1", **said(5, scope="market")}, {"id": "2", **said(3)})])
    tagging = tag(plain("a", "b"), backbone, batch=2)
    assert backbone.asked == [("a", "b"), ("a",)]
    assert tagging.frame["importance"].to_list() == [9, 3]


def test_twice_the_providers_places_are_kept_filled() -> None:
    provider = SETTINGS.backbones["deepseek-v4-flash"].provider  # type: ignore[union-attr]
    expected = 2 * SETTINGS.providers[provider].concurrency
    assert requests_under_way(SETTINGS, "deepseek-v4-flash") == expected
    assert requests_under_way(SETTINGS, "rules") > 1


def test_rules_tag_in_batches_as_they_do_one_by_one() -> None:
    frame = plain("央行降准", "油价大涨").assign(content=["央行宣布全面降准，银行板块大涨。", "布伦特原油大涨8%。"])
    model = Model(RulesBackbone(), SETTINGS.prompts)
    results = []
    for batch in (1, 2):
        ((_, tagging),) = tag_days(iter([("d", frame)]), model, batch, 4)
        assert (tagging.asked, tagging.asked_again, tagging.usage.calls) == (2, 0, 2 // batch)
        results.append(tagging.frame.drop(columns="tagger"))
    assert results[0].equals(results[1])
