"""The sensitivity page: its verdict in words, its matrix, the knowledge cutoff, in both languages."""

from __future__ import annotations

import ast
import inspect
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from jinja2 import Environment
from jinja2.ext import extract_from_ast
from report_page import Page

from finevolve_pipeline.evaluation.report import sensitivity_page
from finevolve_pipeline.evaluation.report.build import _environment
from finevolve_pipeline.evaluation.report.pages import Place
from finevolve_pipeline.evaluation.report.sensitivity_page import SensitivityView, sensitivity_view
from finevolve_pipeline.evaluation.report.words import LANGUAGES, Language, Words, chinese
from finevolve_pipeline.evaluation.sensitivity import CUTOFF_CHANGE, HEADLINE, change
from finevolve_pipeline.settings import Settings, load_settings
from finevolve_pipeline.tables import Sensitivity, conform, empty

TEMPLATES = Path(sensitivity_page.__file__).parent

Findings = dict[tuple[str, str, int], str]
"""By mechanism, metric and horizon."""

CALM: Findings = {("mem0", "csIC", 10): "above", ("mem0", "tsIC", 10): "noise", ("mem0", "csIC", 0): "above"}
_SIZES = {"above": 0.05, "below": -0.04, "noise": 0.01, "untested": math.nan}


def table(variants: dict[str, Findings], backbone: str = "rules", **columns: Any) -> pd.DataFrame:
    """A `Sensitivity` of differences that finds what is given; the first variant is the headline."""
    rows = [
        {
            "variant": variant,
            "mechanism": mechanism,
            "metric": metric,
            "horizon": horizon,
            "estimate": _SIZES[found],
            "finding": found,
            "change": change(variants[HEADLINE][mechanism, metric, horizon], found),  # type: ignore[arg-type]
        }
        for variant, findings in variants.items()
        for (mechanism, metric, horizon), found in findings.items()
    ]
    rest = {
        "stage": "overall",
        "backbone": backbone,
        "method": "spearman",
        "quantity": "difference",
        "cells": "common",
        "label_base": "close_t",
        "sessions": 299,
        **dict.fromkeys(("standard_error", "degrees", "low", "high", "p", "p_holm"), math.nan),
        **columns,
    }
    return conform(pd.DataFrame(rows).assign(**rest), Sensitivity, "sensitivity")


def view_of(frame: pd.DataFrame, settings: Settings | None = None, language: Language = "en") -> SensitivityView:
    return sensitivity_view(frame, settings or load_settings(), Words(language))


def rendered(view: SensitivityView, language: Language = "en") -> Page:
    words = Words(language)
    template = _environment(words).get_template("sensitivity.html.j2")
    return Page(template.render(place=Place("sensitivity.html", words), view=view))


def with_cutoff(day: str) -> Settings:
    return load_settings(overrides={"backbones": {"rules": {"knowledge_cutoff": day}}})


def test_a_conclusion_that_survives_is_said_to() -> None:
    view = view_of(table({HEADLINE: CALM, "pearson": CALM, "own_cells": CALM, "open_next": CALM}))
    assert view.sentences == ("The conclusion survives all 3 changes of the evaluation.",)
    (one,) = view.backbones
    assert one.conclusion == (
        "The headline: 2 of 3 differences from Pipe are beyond noise: "
        "Mem0 csIC 10d above Pipe; Mem0 csIC mean above Pipe."
    )
    assert one.changes == ()


def test_a_sentence_names_eight_findings_and_counts_the_rest() -> None:
    many = {(f"method{number:02}", "csIC", 10): "above" for number in range(11)}
    told = view_of(table({HEADLINE: many, "pearson": many})).backbones[0].conclusion
    assert told.endswith("method07 csIC 10d above Pipe; and 3 more.")


def test_what_changes_the_conclusion_is_named_with_what_becomes_of_it() -> None:
    reversed_ = {**CALM, ("mem0", "csIC", 10): "below"}
    faded = {**CALM, ("mem0", "csIC", 0): "noise", ("mem0", "tsIC", 10): "above"}
    view = view_of(table({HEADLINE: CALM, "pearson": reversed_, "own_cells": CALM, "open_next": faded}))
    assert view.sentences == (
        "The conclusion changes under: Pearson; From the next open.",
        "It survives 1 of 3 changes.",
    )
    assert view.backbones[0].changes == (
        "Pearson: Mem0 csIC 10d, reversed.",
        "From the next open: Mem0 tsIC 10d, new finding.",
        "From the next open: Mem0 csIC mean, within noise.",
    )


def test_what_could_not_be_tested_is_no_survival() -> None:
    nothing = dict.fromkeys(CALM, "untested")
    view = view_of(table({HEADLINE: CALM, "pearson": CALM, "after_cutoff": nothing}))
    assert view.sentences == (
        "The conclusion survives every change that could be tested: 1 of 2.",
        "Some of it could not be tested under: After the knowledge cutoff.",
    )


def test_that_nothing_differs_is_a_conclusion_too() -> None:
    quiet = dict.fromkeys(CALM, "noise")
    view = view_of(table({HEADLINE: quiet, "pearson": quiet, "close_next": CALM}))
    assert view.backbones[0].conclusion == "The headline: none of 3 differences from Pipe is beyond noise."
    assert view.sentences[0] == "The conclusion changes under: From the next close."


def test_one_backbone_that_changes_is_enough() -> None:
    both = pd.concat(
        [
            table({HEADLINE: CALM, "pearson": CALM}, "rules"),
            table({HEADLINE: CALM, "pearson": dict.fromkeys(CALM, "noise")}, "other"),
        ]
    )
    view = view_of(both)
    assert view.sentences[0] == "The conclusion changes under: Pearson."
    assert [one.sentences[0] for one in view.backbones] == [
        "The conclusion survives all 1 changes of the evaluation.",
        "The conclusion changes under: Pearson.",
    ]


def test_the_matrix_has_a_row_a_difference_and_a_column_a_variant() -> None:
    view = view_of(table({HEADLINE: CALM, "pearson": {**CALM, ("mem0", "csIC", 10): "below"}}))
    matrix = view.backbones[0].matrix
    assert matrix.columns == ("Mechanism", "Metric", "Horizon", "Headline", "Pearson")
    assert [[cell.text for cell in row] for row in matrix.rows] == [
        ["Mem0", "csIC", "10d", "+0.0500 ▲", "-0.0400 ▼ ≠"],
        ["Mem0", "tsIC", "10d", "+0.0100", "+0.0100"],
        ["Mem0", "csIC", "mean", "+0.0500 ▲", "+0.0500 ▲"],
    ]
    assert "Holm's adjusted p below 0.05" in matrix.notes[0]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (load_settings(), "rules is a lexicon and no model, so it knew no outcomes."),
        (with_cutoff("2024-06-30"), "All 299 sessions lie after the knowledge cutoff 2024-06-30."),
        (with_cutoff("2026-05-01"), "All 299 sessions lie up to the knowledge cutoff 2026-05-01"),
    ],
)
def test_a_cutoff_that_splits_nothing_is_told(settings: Settings, told: str) -> None:
    cutoff = view_of(table({HEADLINE: CALM}), settings).backbones[0].cutoff
    assert cutoff.sentence.startswith(told)
    assert cutoff.table is None


def split(before: str, after: str, between: str) -> pd.DataFrame:
    """Levels of Pipe on both sides of the cutoff, and their change."""
    where = ("pipe", "csIC", 10)
    levels = {HEADLINE: before, "before_cutoff": before, "after_cutoff": after, CUTOFF_CHANGE: between}
    return table({name: {where: found} for name, found in levels.items()}, quantity="level", low=-0.2, high=0.1)


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        (split("above", "noise", "below"), "beyond noise: Pipe csIC 10d falls by 0.0400. A fall is what knowledge"),
        (split("noise", "above", "above"), "beyond noise: Pipe csIC 10d rises by 0.0500."),
        (split("above", "above", "noise"), "No coefficient changes beyond noise."),
        (split("above", "untested", "untested"), "That is too few on one side to test any coefficient."),
    ],
)
def test_what_changes_at_the_cutoff_is_told_with_its_interval(frame: pd.DataFrame, told: str) -> None:
    cutoff = view_of(frame, with_cutoff("2025-05-31")).backbones[0].cutoff
    assert cutoff.sentence.startswith("97 sessions lie up to the knowledge cutoff 2025-05-31, 202 after it. ")
    assert told in cutoff.sentence
    assert cutoff.table is not None
    assert cutoff.table.rows[0][-1].text == "[-0.2000, +0.1000]"


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_says_what_the_view_holds(language: Language) -> None:
    view = view_of(table({HEADLINE: CALM, "pearson": dict.fromkeys(CALM, "noise")}), language=language)
    page = rendered(view, language)
    for sentence in (*view.sentences, view.backbones[0].conclusion, *view.backbones[0].changes):
        assert sentence in page.text
    assert len(page.all("table")) == 4


def test_nothing_evaluated_yet_is_said() -> None:
    view = view_of(empty(Sensitivity))
    assert view.sentences == ("There is no conclusion yet: no difference from Pipe could be tested.",)
    assert view.backbones == ()
    assert view.sentences[0] in rendered(view).text


def test_a_hostile_name_is_text() -> None:
    hostile = "<script>alert(1)</script>"
    findings = {(hostile, "csIC", 10): "above"}
    page = rendered(view_of(table({HEADLINE: findings, "pearson": dict.fromkeys(findings, "noise")})))
    assert "alert(1)" not in " ".join(str(one) for one in page.all("script"))
    assert hostile in page.text


def _literals(node: ast.expr) -> set[str]:
    if isinstance(node, ast.IfExp):
        return _literals(node.body) | _literals(node.orelse)
    return {node.value} if isinstance(node, ast.Constant) and isinstance(node.value, str) else set()


def _texts_of_code() -> set[str]:
    """Every text that the module gives to `words`, as it stands there or in its tables of texts."""
    tables = (
        sensitivity_page._TITLES,
        sensitivity_page._DEFINITIONS,
        sensitivity_page._STAGES,
        sensitivity_page._MOVED,
    )
    found = {text for texts in tables for text in texts.values()}
    for node in ast.walk(ast.parse(inspect.getsource(sensitivity_page))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "words":
            found |= _literals(node.args[0])
    return found


def test_every_text_of_the_page_has_a_chinese_one() -> None:
    template = Environment().parse((TEMPLATES / "sensitivity.html.j2").read_text("utf-8"))
    on_page = {text for _, _, text in extract_from_ast(template, gettext_functions=("_",)) if isinstance(text, str)}
    assert on_page
    assert (_texts_of_code() | on_page) - set(chinese()) == set()
