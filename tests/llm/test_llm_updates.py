"""Answers that mechanisms learn from are read strictly: usable parts are used, flaws are named, nothing is invented."""

from __future__ import annotations

import json

import pytest

from finevolve_pipeline.errors import AnswerError
from finevolve_pipeline.llm.requests import ReasoningItem
from finevolve_pipeline.llm.updates import (
    Listed,
    Operation,
    listed_flaws,
    no_flaws,
    parse_facts,
    parse_insight,
    parse_items,
    parse_memory_operations,
    parse_reflection,
    parse_rule_operations,
)

PARSERS = {
    "reflection": parse_reflection,
    "insight": parse_insight,
    "items": lambda text: parse_items(text, 3),
    "facts": lambda text: parse_facts(text, 3),
    "rule operations": lambda text: parse_rule_operations(text, 2, 4),
    "memory operations": lambda text: parse_memory_operations(text, 2),
}
ITEM = {"title": "核对持续性", "description": "运价急升时", "content": "看订单是否前置。"}


def said(**answer: object) -> str:
    return json.dumps(answer, ensure_ascii=False)


def rule(operation: object, number: object = 0, text: object = "") -> dict[str, object]:
    return {"operation": operation, "rule": number, "text": text}


def memory(operation: object, number: object = 0, text: object = "") -> dict[str, object]:
    return {"operation": operation, "memory": number, "text": text}


@pytest.mark.parametrize("kind", PARSERS)
@pytest.mark.parametrize(
    "text",
    ["", "没有内容", "[]", "{", "null", '{"other": 1}', '{"items": [', '{"reflection": "a'],
    ids=["empty", "words", "list", "brace", "null", "another key", "cut off in a list", "cut off in a text"],
)
def test_what_is_no_answer_is_refused(kind: str, text: str) -> None:
    with pytest.raises(AnswerError, match="answer: "):
        PARSERS[kind](text)


@pytest.mark.parametrize("kind", ["reflection", "insight"])
@pytest.mark.parametrize("value", [None, "", "  \n ", 5, ["a"], {"text": "a"}, True], ids=repr)
def test_a_reflection_and_an_insight_must_be_texts(kind: str, value: object) -> None:
    with pytest.raises(AnswerError, match=f"answer: {kind} .* is no text"):
        PARSERS[kind](said(**{kind: value}))


@pytest.mark.parametrize("kind", ["items", "facts", "operations"])
@pytest.mark.parametrize("value", [None, "a", 5, {"1": "a"}], ids=repr)
def test_a_list_must_be_a_list(kind: str, value: object) -> None:
    for parse in [PARSERS[name] for name in PARSERS if name.endswith(kind)]:
        with pytest.raises(AnswerError, match=f"answer: {kind} .* is no list"):
            parse(said(**{kind: value}))


@pytest.mark.parametrize("kind", ["reflection", "insight"])
def test_a_text_keeps_its_lines_and_loses_blanks_around_it(kind: str) -> None:
    assert PARSERS[kind](said(**{kind: " 第一行\n\n- 第二行 \n"})) == "第一行\n\n- 第二行"


@pytest.mark.parametrize("kind", ["reflection", "insight"])
def test_what_models_write_around_an_answer_is_set_aside(kind: str) -> None:
    answer = said(**{kind: "要点"})
    for text in (f"```json\n{answer}\n```", f"<think>先想 {{}}</think>{answer}", f"好的：{answer}", answer[:-1] + ",}"):
        assert PARSERS[kind](text) == "要点"


def test_two_answers_that_differ_are_none() -> None:
    with pytest.raises(AnswerError, match="2 JSON objects that differ"):
        parse_insight(said(insight="甲") + said(insight="乙"))
    assert parse_insight(said(insight="甲") + said(insight="甲")) == "甲"
    with pytest.raises(AnswerError, match="is no text"):
        parse_insight('{"insight": "甲", "insight": "乙"}')


def test_halves_of_surrogate_pairs_become_storable() -> None:
    half = '"\\ud800坏"'
    assert parse_reflection(f'{{"reflection": {half}}}') == "?坏"
    assert parse_facts(f'{{"facts": [{half}]}}', 3).entries == ("?坏",)
    assert parse_items(f'{{"items": [{{"content": {half}}}]}}', 3).entries == (ReasoningItem("", "", "?坏"),)
    operation = f'{{"operation": "ADD", "rule": 0, "memory": 0, "text": {half}}}'
    for parse in (PARSERS["rule operations"], PARSERS["memory operations"]):
        found = parse(f'{{"operations": [{operation}]}}').entries
        assert found == (Operation("ADD", 0, "?坏"),)
        found[0].text.encode("utf-8")


@pytest.mark.parametrize("kind", ["items", "facts", "rule operations", "memory operations"])
def test_an_empty_list_is_an_answer(kind: str) -> None:
    read = PARSERS[kind](said(**{kind.split()[-1]: []}))
    assert read == Listed((), ())
    assert listed_flaws(read) == ()


def test_items_have_title_description_and_content() -> None:
    read = parse_items(said(items=[ITEM, {**ITEM, "more": 1, "title": "  另一条 "}]), 3)
    assert read.entries == (ReasoningItem(**ITEM), ReasoningItem(**{**ITEM, "title": "另一条"}))
    assert read.problems == ()


@pytest.mark.parametrize("bad", [{**ITEM, "content": " "}, {"title": "a"}, {}, "看订单", None, [ITEM], 3], ids=repr)
def test_an_item_without_content_costs_only_itself(bad: object) -> None:
    read = parse_items(said(items=[ITEM, bad, ITEM]), 3)
    assert read.entries == (ReasoningItem(**ITEM),) * 2
    assert len(listed_flaws(read)) == 1
    assert read.problems[0].startswith("item 2 ")
    assert read.problems[0].endswith(" has no content")


@pytest.mark.parametrize("bad", ["", " \n", None, 5, ["a"], {"fact": "a"}], ids=repr)
def test_a_fact_that_is_no_text_costs_only_itself(bad: object) -> None:
    read = parse_facts(said(facts=["甲", bad, "乙"]), 3)
    assert read.entries == ("甲", "乙")
    assert len(read.problems) == 1
    assert read.problems[0].startswith("fact 2 ")


def test_a_fact_told_twice_is_one() -> None:
    assert parse_facts(said(facts=["甲", " 甲 ", "乙", "甲"]), 2) == Listed(("甲", "乙"))


def test_what_exceeds_the_limit_is_left_out_and_named() -> None:
    items = parse_items(said(items=[{**ITEM, "title": str(number)} for number in range(5)]), 3)
    assert [item.title for item in items.entries] == ["0", "1", "2"]
    assert items.problems == ("5 items are more than the 3 allowed; the first 3 count",)
    facts = parse_facts(said(facts=["甲", "乙", "丙"]), 2)
    assert facts.entries == ("甲", "乙")
    assert facts.problems == ("3 facts are more than the 2 allowed; the first 2 count",)
    rules = parse_rule_operations(said(operations=[rule("ADD", 0, str(number)) for number in range(6)]), 2, 4)
    assert [operation.text for operation in rules.entries] == ["0", "1", "2", "3"]
    assert rules.problems == ("6 operations are more than the 4 allowed; the first 4 count",)


def test_the_limit_counts_usable_entries_only() -> None:
    assert parse_facts(said(facts=["甲", "", "乙"]), 2).entries == ("甲", "乙")
    read = parse_rule_operations(said(operations=[rule("DROP", 1), rule("AGREE", 1), rule("AGREE", 2)]), 2, 2)
    assert read.entries == (Operation("AGREE", 1, ""), Operation("AGREE", 2, ""))
    assert len(read.problems) == 1


def test_every_rule_operation_is_read() -> None:
    operations = [rule("ADD", 0, "新规则"), rule("EDIT", 1, "改写"), rule("AGREE", 2), rule("REMOVE", 1)]
    assert parse_rule_operations(said(operations=operations), 2, 4) == Listed(
        (
            Operation("ADD", 0, "新规则"),
            Operation("EDIT", 1, "改写"),
            Operation("AGREE", 2, ""),
            Operation("REMOVE", 1, ""),
        )
    )


def test_every_memory_operation_is_read() -> None:
    operations = [memory("ADD", 0, "新事实"), memory("UPDATE", 2, "改写"), memory("DELETE", 1), memory("NOOP")]
    assert parse_memory_operations(said(operations=operations), 2) == Listed(
        (
            Operation("ADD", 0, "新事实"),
            Operation("UPDATE", 2, "改写"),
            Operation("DELETE", 1, ""),
            Operation("NOOP", 0, ""),
        )
    )


def test_numbers_and_texts_that_an_operation_does_not_use_are_dropped() -> None:
    rules = [rule("ADD", 7, "新规则"), rule("AGREE", 1, "多余"), rule("REMOVE", 2, "多余")]
    assert parse_rule_operations(said(operations=rules), 2, 4).entries == (
        Operation("ADD", 0, "新规则"),
        Operation("AGREE", 1, ""),
        Operation("REMOVE", 2, ""),
    )
    memories = [memory("ADD", 7, "新事实"), memory("NOOP", 1, "多余"), memory("DELETE", 1, "多余")]
    assert parse_memory_operations(said(operations=memories), 2).entries == (
        Operation("ADD", 0, "新事实"),
        Operation("NOOP", 0, ""),
        Operation("DELETE", 1, ""),
    )


@pytest.mark.parametrize("written", ["agree", " Agree ", "AGREE"])
@pytest.mark.parametrize("number", [1, 1.0, "1", " 1 "], ids=repr)
def test_case_and_blanks_do_not_matter_and_numbers_may_be_texts(written: str, number: object) -> None:
    assert parse_rule_operations(said(operations=[rule(written, number)]), 2, 4) == Listed((Operation("AGREE", 1, ""),))


@pytest.mark.parametrize("verb", ["", "UPVOTE", "UPDATE", "NOOP", None, 1, ["ADD"], {"ADD": 1}], ids=repr)
def test_a_verb_that_rules_do_not_know_costs_only_itself(verb: object) -> None:
    read = parse_rule_operations(said(operations=[rule(verb, 1, "文"), rule("AGREE", 1)]), 2, 4)
    # A list of one verb is read as that verb, as everywhere a list stands in the place of a text.
    assert read.entries == ((Operation("ADD", 0, "文"),) if verb == ["ADD"] else ()) + (Operation("AGREE", 1, ""),)
    assert all(
        problem.startswith("operation 1 ") and problem.endswith("is none of ADD, EDIT, AGREE, REMOVE")
        for problem in read.problems
    )
    assert len(read.entries) + len(read.problems) == 2


@pytest.mark.parametrize("verb", ["EDIT", "AGREE", "REMOVE", "", None], ids=repr)
def test_a_verb_that_memories_do_not_know_costs_only_itself(verb: object) -> None:
    read = parse_memory_operations(said(operations=[memory(verb, 1, "文"), memory("NOOP")]), 2)
    assert read.entries == (Operation("NOOP", 0, ""),)
    assert len(read.problems) == 1
    assert read.problems[0].endswith("is none of ADD, UPDATE, DELETE, NOOP")


@pytest.mark.parametrize("number", [0, 3, -1, 1.5, "一", None, True, [1], float("nan")], ids=repr)
@pytest.mark.parametrize("verb", ["EDIT", "AGREE", "REMOVE"])
def test_a_rule_that_does_not_exist_cannot_be_changed(verb: str, number: object) -> None:
    read = parse_rule_operations(said(operations=[rule(verb, number, "文")]), 2, 4)
    assert read == Listed((), (f"operation 1: {verb} needs the number of a rule, 1 to 2",))


@pytest.mark.parametrize("verb", ["UPDATE", "DELETE"])
def test_a_memory_that_does_not_exist_cannot_be_changed(verb: str) -> None:
    for memories, number in ((2, 3), (2, 0), (0, 1)):
        read = parse_memory_operations(said(operations=[memory(verb, number, "文")]), memories)
        assert read == Listed((), (f"operation 1: {verb} needs the number of a memory, 1 to {memories}",))


@pytest.mark.parametrize("text", ["", "  ", None], ids=repr)
def test_what_is_added_or_changed_needs_a_text(text: object) -> None:
    rules = parse_rule_operations(said(operations=[rule("ADD", 0, text), rule("EDIT", 1, text)]), 2, 4)
    assert rules == Listed((), ("operation 1: ADD needs a text", "operation 2: EDIT needs a text"))
    memories = parse_memory_operations(said(operations=[memory("ADD", 0, text), memory("UPDATE", 1, text)]), 2)
    assert memories == Listed((), ("operation 1: ADD needs a text", "operation 2: UPDATE needs a text"))


@pytest.mark.parametrize("bad", [None, "AGREE 1", 3, [], {}], ids=repr)
def test_an_operation_that_is_no_object_costs_only_itself(bad: object) -> None:
    read = parse_rule_operations(said(operations=[bad, rule("AGREE", 1)]), 2, 4)
    assert read.entries == (Operation("AGREE", 1, ""),)
    assert len(read.problems) == 1


def test_a_key_that_stands_twice_with_different_values_names_no_rule() -> None:
    twice = '{"operations": [{"operation": "AGREE", "rule": 1, "rule": 2, "text": ""}]}'
    assert parse_rule_operations(twice, 2, 4).problems == ("operation 1: AGREE needs the number of a rule, 1 to 2",)


def test_a_long_bad_entry_is_named_shortly() -> None:
    read = parse_facts(said(facts=[{"fact": "长" * 5000}]), 3)
    assert len(read.problems[0]) < 100


def test_an_answer_that_is_read_or_not_has_no_flaws() -> None:
    assert no_flaws(parse_reflection(said(reflection="甲"))) == ()
