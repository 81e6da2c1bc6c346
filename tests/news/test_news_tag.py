import asyncio
import json
from dataclasses import dataclass, field

import pandas as pd
import pytest

from finevolve_pipeline.errors import UniverseError
from finevolve_pipeline.llm.requests import Reply, Request, TagRequest, Usage
from finevolve_pipeline.news.tag import Tagging, tag_articles, tagger_identity
from finevolve_pipeline.tables import Articles, TaggedArticles, conform, empty

SHIPPING = json.dumps(
    {
        "industries": ["801170"],
        "scope": "industry",
        "importance": 9,
        "importance_reason": "port strike",
        "topics": ["ports", "freight"],
    }
)


@dataclass
class Scripted:
    """A backbone that gives each article its scripted answers in turn and remembers how much ran at once."""

    answers: dict[str, list[str]] = field(default_factory=dict)
    name: str = "scripted"
    version: int = 1
    asked: list[str] = field(default_factory=list)
    running: int = 0
    most_running: int = 0

    @property
    def identity(self) -> dict[str, object]:
        return {"name": self.name, "version": self.version}

    async def answer(self, request: Request) -> Reply:
        assert isinstance(request, TagRequest)
        self.asked.append(request.article_id)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        answers = self.answers.get(request.article_id)
        return Reply(answers.pop(0) if answers else SHIPPING, Usage(1, 100, 10))


def articles(*rows: tuple[str, list[str], float]) -> pd.DataFrame:
    """Articles from (id, given industries, given importance)."""
    frame = pd.DataFrame(rows, columns=["article_id", "industries_given", "importance_given"])
    frame["published_at"] = pd.Timestamp("2025-05-14 10:00", tz="Asia/Shanghai").as_unit("us")
    frame["duplicates"] = [[] for _ in rows]
    text = {"source": "cls", "source_id": "1", "url": "u", "title": "t", "content": "c"}
    return conform(frame.assign(**text), Articles, "test")


NAN = float("nan")


def tag(frame: pd.DataFrame, backbone: Scripted) -> Tagging:
    tagging = asyncio.run(tag_articles(frame, backbone))
    assert tagging.frame.equals(conform(tagging.frame, TaggedArticles, "test"))
    return tagging


def test_every_article_gets_the_backbones_tags_in_order() -> None:
    backbone = Scripted()
    tagging = tag(articles(*((f"{n:03d}", [], NAN) for n in range(150))), backbone)
    assert tagging.frame["article_id"].to_list() == [f"{n:03d}" for n in range(150)]
    row = tagging.frame.iloc[149]
    assert (row["industries"], row["scope"], row["importance"]) == (["801170"], "industry", 9)
    assert (row["importance_reason"], row["topics"]) == ("port strike", ["freight", "ports"])
    assert row["tagger"] == tagger_identity(backbone)
    assert tagging[1:] == (150, 0, 0, Usage(150, 15_000, 1_500))


def test_requests_run_together_but_not_all_at_once() -> None:
    backbone = Scripted()
    tag(articles(*((str(n), [], NAN) for n in range(150))), backbone)
    assert 1 < backbone.most_running < 150


def test_an_unreadable_answer_is_asked_for_once_more() -> None:
    backbone = Scripted({"a": ["no JSON", SHIPPING]})
    tagging = tag(articles(("a", [], NAN), ("b", [], NAN)), backbone)
    assert tagging.frame["importance"].to_list() == [9, 9]
    assert (tagging.asked, tagging.asked_again, tagging.unreadable) == (2, 1, 0)
    assert sorted(backbone.asked) == ["a", "a", "b"]
    assert tagging.usage == Usage(3, 300, 30)


def test_an_article_whose_tags_stay_unreadable_is_kept_and_counted() -> None:
    tagging = tag(articles(("a", [], NAN)), Scripted({"a": ["no JSON", "{}"]}))
    row = tagging.frame.iloc[0]
    assert (row["industries"], row["scope"], row["importance"], row["topics"]) == ([], "none", 1, [])
    assert "could not be read" in row["importance_reason"]
    assert (tagging.asked_again, tagging.unreadable) == (1, 1)


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
    assert set(tagging.frame["tagger"]) == {f"given+{tagger_identity(backbone)}"}


def test_a_given_industry_outside_the_universe_is_refused() -> None:
    with pytest.raises(UniverseError, match="801020"):
        tag(articles(("a", ["801020"], 8.0)), Scripted())


def test_the_tagger_is_named_by_everything_that_can_change_its_answers() -> None:
    assert tagger_identity(Scripted(version=1)) != tagger_identity(Scripted(version=2))
    assert tagger_identity(Scripted()).startswith("scripted:")


def test_a_day_without_articles_asks_nothing() -> None:
    backbone = Scripted()
    assert tag(empty(Articles), backbone).frame.empty
    assert backbone.asked == []
