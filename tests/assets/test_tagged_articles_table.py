"""The table `tagged_articles` of the graph: what makes it stale, and that a partition alone is as one of many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import pytest

from finevolve_pipeline.graph import Graph, Table
from finevolve_pipeline.llm.rules.backbone import RulesBackbone
from finevolve_pipeline.settings import load_settings
from finevolve_pipeline.tables import Articles, conform


def table(overrides: Mapping[str, Any] = {}, backbone: RulesBackbone | None = None) -> Table:
    settings = load_settings(overrides=dict(overrides))
    return Graph(settings, settings.news.sources, backbone or RulesBackbone()).tables["tagged_articles"]


@pytest.mark.parametrize(
    "overrides",
    [
        {"prompts": {"language": "en"}},
        {"prompts": {"article_tokens": 500}},
        {"tagging": {"batch": 2}},
        {"tagging": {"batch": 8}},
    ],
)
def test_what_can_change_a_tag_changes_the_version(overrides: Mapping[str, Any]) -> None:
    assert table(overrides).code_version != table().code_version


def test_another_backbone_changes_the_version() -> None:
    class Other(RulesBackbone):
        @property
        def identity(self) -> dict[str, object]:
            return {"kind": "rules", "version": "other"}

    assert table(backbone=Other()).code_version != table().code_version


@pytest.mark.parametrize(
    "overrides",
    [
        {"prompts": {"news_tokens": 9000, "experience_tokens": 0}},
        {"tagging": {"batch": 1}},
        {"providers": {"local": {"concurrency": 7}}},
        {"news": {"min_importance": 5}},
    ],
)
def test_what_cannot_change_a_tag_does_not(overrides: Mapping[str, Any]) -> None:
    assert table(overrides).code_version == table().code_version


class Reader:
    """Three articles a day."""

    def read(self, table: str, partition: str) -> pd.DataFrame:
        assert table == "articles"
        frame = pd.DataFrame(
            {"title": ["央行降准", "油价大涨", "会议"], "content": ["银行板块大涨。", "涨8%。", "召开。"]}
        )
        return conform(
            frame.assign(
                article_id=[f"{partition}-{n}" for n in range(3)],
                source="cls",
                source_id="1",
                url="",
                origin="file:x",
                published_at=pd.Timestamp(f"{partition} 10:00", tz="Asia/Shanghai").as_unit("us"),
                duplicates=[[] for _ in range(3)],
                industries_given=[[] for _ in range(3)],
                importance_given=float("nan"),
            ),
            Articles,
            partition,
        )

    def digest(self, table: str, partition: str) -> str | None:
        return "1"


def test_a_partition_alone_is_as_one_of_many() -> None:
    keys = table().partitions[:4]
    many = {built.partition: built.frame for built in table().build_many(iter(keys), Reader())}
    assert list(many) == list(keys)
    for key in keys:
        assert table().build(key, Reader()).equals(many[key])
