"""A damaged prompt template is told by file, part and placeholder."""

import dataclasses

import pytest

from finevolve_pipeline.errors import TemplateError
from finevolve_pipeline.llm import render
from finevolve_pipeline.llm.render import Part

FILE = "reflect.en"


@pytest.fixture
def damaged(monkeypatch):
    """Replaces a text in one template file."""
    true = render._source

    def damage(before, after):
        assert before in true(FILE)
        monkeypatch.setattr(
            render, "_source", lambda name: true(name).replace(before, after) if name == FILE else true(name)
        )
        render._parts.cache_clear()

    yield damage
    monkeypatch.undo()
    render._parts.cache_clear()


def test_an_unknown_placeholder_is_named_with_its_file_and_part(damaged):
    damaged("$analyst", "$analysst")
    part = render._parts("reflect", "en")["system"]
    with pytest.raises(
        TemplateError, match=r"^prompt template reflect\.en\.md, part 'system': nothing is known as "
    ) as at:
        part.substitute({"analyst": "", "rules": ""}, limit=1)
    assert "$analysst there; correct it to one of $analyst, $limit, $rules" in str(at.value)
    assert "\n" not in str(at.value)


def test_a_part_that_is_gone_is_named_with_its_files(damaged):
    damaged("<!-- user -->", "<!-- uesr -->")
    with pytest.raises(TemplateError, match=r"^prompt templates reflect\.en\.md and common\.en\.md: no part 'user'"):
        render._parts("reflect", "en")["user"]


def test_a_part_of_the_common_file_is_named_by_that_file():
    common = render._parts("common", "zh")
    where = render._parts("predict", "zh")["data"].where
    assert where == common["data"].where == "prompt template common.zh.md, part 'data'"


def test_fields_that_a_part_does_not_have_are_ignored_and_braces_stay():
    part = Part.of('{"x": $value}', "here")
    assert part.substitute(value=1, other=2) == '{"x": 1}'
    assert dataclasses.astuple(part) == ('{"x": $value}', '{{"x": {value}}}', "here")
