"""The report's words: every text has its Chinese one, none is left over, and both fill in the same values."""

from __future__ import annotations

import ast
import re
import string
from pathlib import Path

import pytest

from finevolve_pipeline import evaluation
from finevolve_pipeline.evaluation.report import words as catalogue
from finevolve_pipeline.evaluation.report.words import Words, chinese

HERE = Path(evaluation.__file__).parent

ENGLISH_ONLY = ("leaderboard.html.j2",)


def looked_up() -> set[str]:
    """Texts that the code and the templates give to `words` as they stand."""
    found = set()
    for path in HERE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("words", "_words"):
                found |= {one.value for one in node.args[:1] if isinstance(one, ast.Constant)}
    for path in HERE.rglob("*.j2"):
        found |= set(re.findall(r'\b_\("((?:[^"\\]|\\.)*)"', path.read_text("utf-8")))
    return found


def written() -> set[str]:
    """Every text constant of the code, as some are looked up by way of a mapping; and texts of the templates."""
    constants = {
        node.value
        for path in HERE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return constants | looked_up()


def braces(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def test_every_text_has_a_chinese_one() -> None:
    assert len(looked_up()) > 200
    assert looked_up() - set(chinese()) == set()


def test_no_translation_is_left_over() -> None:
    assert set(chinese()) - written() == set()


def test_both_languages_fill_in_the_same_values() -> None:
    differ = {english for english, text in chinese().items() if braces(english) != braces(text)}
    assert differ == set()


def test_templates_say_nothing_that_is_not_looked_up() -> None:
    """What remains of a template without its tags, expressions and elements are marks, not words."""
    for path in HERE.rglob("*.j2"):
        if path.name in ENGLISH_ONLY:
            continue
        text = re.sub(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}", "", path.read_text("utf-8"), flags=re.S)
        assert re.findall(r"[^\W\d_]{2,}", re.sub(r"<[^>]*>", "", text)) == [], path.name
        assert re.findall(r'(?:aria-label|title|alt)="([^"]+)"', text) == [], path.name


def test_a_text_without_a_chinese_one_is_named() -> None:
    with pytest.raises(KeyError, match="no such text"):
        Words("zh")("no such text")


def test_what_is_filled_in_is_left_as_it_is() -> None:
    assert Words("en")("{a} and {b}", a="{b}", b="{{x}}") == "{b} and {{x}}"


def test_two_different_translations_of_a_text_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "zh").mkdir()
    (tmp_path / "zh" / "a.toml").write_text('"Run" = "运行"\n', "utf-8")
    (tmp_path / "zh" / "b.toml").write_text('"Run" = "实验"\n', "utf-8")
    monkeypatch.setattr(catalogue, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(ValueError, match="'Run' has two translations"):
        catalogue.chinese.__wrapped__()
