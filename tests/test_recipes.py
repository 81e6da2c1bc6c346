"""Why a partition is stale: what differs between what it was made of and what it would be made of now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from finevolve_pipeline.recipes import (
    SHORT,
    UNEXPLAINED,
    UNTOLD,
    Cause,
    Difference,
    Parts,
    Version,
    causes,
    differences,
    reasons,
    span,
)

DIGEST = "0123456789abcdef" * 2
OTHER = "f" * 32
WAS = Parts.of(
    Version({"pkg.news": DIGEST}, {"news.min_importance": 8, "news.window": {"days": (5, 6)}}),
    DIGEST,
    {"articles": {"2025-01-02": DIGEST, "2025-01-03": DIGEST}},
)


@pytest.mark.parametrize(
    ("now", "cause"),
    [
        (replace(WAS, code={"pkg.news": OTHER}), Cause("code", "pkg.news", "changed")),
        (replace(WAS, code={}), Cause("code", "pkg.news", "is gone")),
        (replace(WAS, columns=OTHER), Cause("columns", "", "made by another version, with other columns")),
        (
            replace(WAS, settings={**WAS.settings, "news.min_importance": 7}),
            Cause("setting", "news.min_importance", "was 8 and is 7"),
        ),
        (
            replace(WAS, settings={**WAS.settings, "news.window": {"days": [5, 7]}}),
            Cause("setting", "news.window.days", "was [5, 6] and is [5, 7]"),
        ),
        (
            replace(WAS, inputs={"articles": {"2025-01-02": OTHER, "2025-01-03": OTHER}}),
            Cause("input", "articles", "changed", ("2025-01-02", "2025-01-03")),
        ),
        (
            replace(WAS, inputs={"articles": {"2025-01-02": DIGEST[:SHORT], "2025-01-03": None}}),
            Cause("input", "articles", "is gone", ("2025-01-03",)),
        ),
        (
            replace(WAS, inputs={**WAS.inputs, "raw_news": {"2025-01-02|cls": OTHER}}),
            Cause("input", "raw_news", "is new", ("2025-01-02|cls",)),
        ),
    ],
)
def test_each_part_that_differs_is_a_cause(now: Parts, cause: Cause) -> None:
    assert causes(WAS, now) == (cause,)


def test_all_that_differs_is_told() -> None:
    now = replace(WAS, columns=OTHER, code={"pkg.news": OTHER}, settings={}, inputs={})
    assert [(one.kind, one.name) for one in causes(WAS, now)] == [
        ("columns", ""),
        ("code", "pkg.news"),
        ("setting", "news.min_importance"),
        ("setting", "news.window"),
        ("input", "articles"),
    ]


def test_what_nobody_noted_is_not_guessed() -> None:
    assert causes(None, WAS) == (UNTOLD,)
    assert causes(WAS, WAS) == (UNEXPLAINED,)


def test_parts_come_back_from_their_document() -> None:
    assert Parts.from_document(WAS.document()) == WAS
    assert WAS.code == {"pkg.news": DIGEST[:SHORT]}


def test_a_version_is_its_code_and_its_settings() -> None:
    version = Version({"a": DIGEST}, {"b": 1})
    assert version.digest == Version({"a": DIGEST}, {"b": 1}).digest
    assert len({version.digest, Version({"a": OTHER}, {"b": 1}).digest, Version({"a": DIGEST}, {"b": 2}).digest}) == 3


def test_partitions_with_the_same_cause_are_one_reason() -> None:
    code = Cause("code", "pkg.news", "changed")
    told = reasons(
        {
            "2025-01-02": (code, Cause("input", "articles", "changed", ("2025-01-02",))),
            "2025-01-03": (code, Cause("input", "articles", "changed", ("2025-01-02", "2025-01-01"))),
            "2025-01-06": (code,),
        }
    )
    assert [(one.partitions, one.words) for one in told] == [
        (("2025-01-02", "2025-01-03", "2025-01-06"), "code pkg.news changed"),
        (("2025-01-02", "2025-01-03"), "articles 2025-01-01 to 2025-01-02 (2) changed"),
    ]
    document = told[0].document()
    assert (document["count"], document["first"], document["last"]) == (3, "2025-01-02", "2025-01-06")


def test_a_setting_is_named_as_in_the_settings_file() -> None:
    (one,) = reasons({"all": (Cause("setting", "tagging.backbone", "was 'a' and is 'b'"),)})
    assert one.words == "settings.tagging.backbone was 'a' and is 'b'"


def test_differences_come_in_the_order_of_their_paths_with_what_is_absent_as_none() -> None:
    found = list(differences({"b": {"c": 1}, "a": 1}, {"b": {"c": 2, "d": 3}, "a": 1}))
    assert found == [Difference("b.c", 1, 2), Difference("b.d", None, 3)]
    assert str(found[0]) == "b.c was 1 and is 2"
    assert list(differences([1, 2], [1, 2])) == []


def test_a_span_names_its_ends_and_its_size() -> None:
    assert span(["2025-01-02"]) == "2025-01-02"
    assert span(["2025-01-02", "2025-01-03", "2025-01-06"]) == "2025-01-02 to 2025-01-06 (3)"
