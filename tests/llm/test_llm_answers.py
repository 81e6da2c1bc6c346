"""Answers of models are read strictly where it matters and leniently where models are sloppy."""

from __future__ import annotations

import contextlib
import json
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finevolve_pipeline.errors import AnswerError
from finevolve_pipeline.llm.answers import (
    TagAnswer,
    parse_prediction,
    parse_tag,
    parse_tag_batch,
    prediction_flaws,
    tag_flaws,
)

HORIZONS = (10, 20, 40)
PARSERS = (
    lambda text: parse_prediction(text, HORIZONS, "invalid"),
    parse_tag,
    lambda text: parse_tag_batch(text, ("a", "b")),
)
GOOD = (
    '{"scores": {"10": 0.5, "20": -0.25, "40": 0}, "confidence_score": 0.7, "key_factor": "油价", "logic_chain": "涨"}'
)


def _scores(ten: str) -> str:
    return f'{{"scores": {{"10": {ten}, "20": 0.1, "40": 0.2}}, "confidence_score": 0.5}}'


def test_a_good_answer_is_read_as_it_stands() -> None:
    answer = parse_prediction(GOOD, HORIZONS, "invalid")
    assert answer.scores == {10: 0.5, 20: -0.25, 40: 0.0}
    assert answer.invalid == {}
    assert (answer.confidence, answer.key_factor, answer.logic_chain) == (0.7, "油价", "涨")


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{GOOD}\n```",
        f"```\n{GOOD}```",
        f"好的，我的判断如下：\n{GOOD}",
        f"{GOOD}\n以上仅供参考。",
        GOOD.replace("0}", "0,}"),
        GOOD[:-1] + ",}",
        GOOD.replace(" ", "\n"),
        "思考{未完成\n" + GOOD,
        "\ufeff" + GOOD,
    ],
    ids=["fence", "bare fence", "prose before", "after", "comma", "outer comma", "lines", "stray brace", "bom"],
)
def test_what_models_put_around_json_is_removed(text: str) -> None:
    assert parse_prediction(text, HORIZONS, "invalid").scores == {10: 0.5, 20: -0.25, 40: 0.0}


@pytest.mark.parametrize(
    ("ten", "score"),
    [
        ("0.3", 0.3),
        ("+0.3", 0.3),
        ('"0.3"', 0.3),
        ('" -0.5 "', -0.5),
        ("1", 1.0),
        ("-1.0", -1.0),
        ('"+.5"', 0.5),
        ("1e-3", 0.001),
    ],
)
def test_numbers_and_numbers_as_text_are_scores(ten: str, score: float) -> None:
    answer = parse_prediction(_scores(ten), HORIZONS, "invalid")
    assert answer.scores[10] == score
    assert answer.invalid == {}


@pytest.mark.parametrize(
    "ten",
    [
        "1.01",
        "-3",
        "NaN",
        "Infinity",
        "-Infinity",
        "true",
        "false",
        "null",
        '"看多"',
        '"0.3分"',
        "[0.3]",
        "{}",
        '""',
        "1e400",
        "9" * 5000,
    ],
    ids=lambda ten: ten[:12],
)
def test_a_bad_score_costs_its_own_horizon_only(ten: str) -> None:
    answer = parse_prediction(_scores(ten), HORIZONS, "invalid")
    assert math.isnan(answer.scores[10])
    assert list(answer.invalid) == [10]
    assert (answer.scores[20], answer.scores[40]) == (0.1, 0.2)


def test_a_missing_score_costs_its_own_horizon_only() -> None:
    answer = parse_prediction('{"scores": {"10": 0.1, "40": 0.2}}', HORIZONS, "invalid")
    assert answer.invalid == {20: "score is missing"}
    assert (answer.scores[10], answer.scores[40]) == (0.1, 0.2)


@pytest.mark.parametrize("given", ["[0.1, 0.2, 0.3]", "0.5", '"0.5"', "null"])
def test_scores_that_are_no_object_invalidate_every_horizon(given: str) -> None:
    answer = parse_prediction(f'{{"scores": {given}, "confidence_score": 0.5}}', HORIZONS, "invalid")
    assert list(answer.invalid) == [10, 20, 40]


@pytest.mark.parametrize(("ten", "score"), [("1.7", 1.0), ("-42", -1.0), ('"2"', 1.0), ("0.5", 0.5)])
def test_clip_moves_finite_scores_to_the_nearer_end(ten: str, score: float) -> None:
    answer = parse_prediction(_scores(ten), HORIZONS, "clip")
    assert answer.scores[10] == score
    assert answer.invalid == {}


@pytest.mark.parametrize("ten", ["NaN", "Infinity", "true", '"高"'])
def test_clip_does_not_turn_nonsense_into_a_score(ten: str) -> None:
    assert list(parse_prediction(_scores(ten), HORIZONS, "clip").invalid) == [10]


@pytest.mark.parametrize("confidence", ["1.2", "-0.1", "NaN", "true", '"很高"', "null", "[]"])
def test_a_confidence_outside_its_range_is_none(confidence: str) -> None:
    text = GOOD.replace("0.7", confidence)
    answer = parse_prediction(text, HORIZONS, "invalid")
    assert answer.confidence is None
    assert answer.invalid == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "我无法回答。",
        "[0.1, 0.2, 0.3]",
        '"0.5"',
        "0.5",
        "null",
        "{",
        '{"scores": {"10": 0.1, "20": 0.2, "40": 0.3}, "confidence',
        "{'scores': {'10': 0.1}}",
        '{"a":' * 5000,
        "{" * 300_000,
    ],
    ids=[
        "empty",
        "blank",
        "refusal",
        "list",
        "text",
        "number",
        "null",
        "brace",
        "cut off",
        "python",
        "deep",
        "long",
    ],
)
def test_text_without_a_json_object_is_an_answer_error(text: str) -> None:
    with pytest.raises(AnswerError) as caught:
        parse_prediction(text, HORIZONS, "invalid")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_commas_inside_text_survive_the_repair() -> None:
    text = '{"scores": {"10": 0.1, "20": 0.2, "40": 0.3,}, "key_factor": "涨价, }", "logic_chain": "\\"a\\",]"}'
    answer = parse_prediction(text, HORIZONS, "invalid")
    assert (answer.key_factor, answer.logic_chain) == ("涨价, }", '"a",]')


def test_reasons_that_are_lists_or_missing_become_text() -> None:
    answer = parse_prediction('{"scores": {}, "key_factor": ["需求", "价格"]}', HORIZONS, "invalid")
    assert (answer.key_factor, answer.logic_chain) == ("需求；价格", "")


def _tag(**changes: object) -> str:
    answer = {
        "industries": ["801080"],
        "scope": "industry",
        "importance": 8,
        "importance_reason": "涨价",
        "topics": ["供应链"],
        **changes,
    }
    return json.dumps(answer, ensure_ascii=False)


@pytest.mark.parametrize(
    ("given", "codes"),
    [
        (["801080"], ("801080",)),
        (["801080.SI", "801010"], ("801010", "801080")),
        (["电子", "农林牧渔", "电子"], ("801010", "801080")),
        (["Electronics", "banks"], ("801080", "801780")),
        ([" 煤炭 "], ("801950",)),
        ([801080], ("801080",)),
        (["半导体", "医药", "休闲服务", "电气设备"], ("801080", "801150", "801210", "801730")),
        (["申万电子行业", "银行板块", "电子(801080)", "SW801780.SI", "公用事业指数"], ("801080", "801160", "801780")),
    ],
)
def test_industries_are_read_by_code_or_name(given: list[str], codes: tuple[str, ...]) -> None:
    assert parse_tag(_tag(industries=given)).industries == codes


@pytest.mark.parametrize("importance", [8, 8.0, "8", " 8 "])
def test_importance_may_be_written_as_number_or_text(importance: object) -> None:
    assert parse_tag(_tag(importance=importance)).importance == 8


@pytest.mark.parametrize(
    "changes",
    [
        {"industries": "801080"},
        {"industries": None},
        {"industries": []},
        {"scope": "sector"},
        {"scope": None},
        {"importance": 0},
        {"importance": 11},
        {"importance": 7.5},
        {"importance": True},
        {"importance": "高"},
        {"importance": None},
    ],
    ids=str,
)
def test_a_tag_that_breaks_the_rules_is_an_answer_error(changes: dict[str, object]) -> None:
    with pytest.raises(AnswerError):
        parse_tag(_tag(**changes))


def test_market_wide_tags_have_no_industry() -> None:
    answer = parse_tag(_tag(industries=[], scope="market", topics=["宏观经济", "宏观经济", " ", 3]))
    assert (answer.industries, answer.scope, answer.topics) == ((), "market", ("宏观经济",))


def test_names_that_are_no_industry_are_set_aside_and_kept_visible() -> None:
    answer = parse_tag(_tag(industries=["801080", "新能源", "采掘", "金融", "801020"]))
    assert answer.industries == ("801080",)
    assert answer.rejected == ("801020", "新能源", "采掘", "金融")
    assert len(tag_flaws(answer)) == 4
    assert tag_flaws(parse_tag(_tag())) == ()


def test_an_answer_of_unknown_names_alone_keeps_them_and_concerns_no_industry() -> None:
    answer = parse_tag(_tag(industries=["采掘", "801020"]))
    assert (answer.industries, answer.scope, answer.rejected) == ((), "none", ("801020", "采掘"))
    assert len(tag_flaws(answer)) == 3


@pytest.mark.parametrize("scope", ["market", "none"])
def test_industries_beside_another_scope_are_a_flaw_and_shown_to_nobody(scope: str) -> None:
    answer = parse_tag(_tag(scope=scope))
    assert (answer.industries, answer.scope) == ((), scope)
    assert "contradicts" in tag_flaws(answer)[0]


def test_a_batch_gives_each_article_its_own_item_or_its_own_problem() -> None:
    one, bad = json.loads(_tag()), json.loads(_tag(importance=99))
    items = [
        {"id": "2", **bad},
        {"id": 1, **one},
        {"id": "4", **one},
        {"id": "4", **one},
        "rubbish",
        {"id": "9", **one},
    ]
    found = parse_tag_batch(json.dumps({"articles": items}, ensure_ascii=False), ("a", "b", "c", "d"))
    assert list(found) == ["a", "b", "c", "d"]
    assert isinstance(found["a"], TagAnswer)
    assert "99" in found["b"]
    assert "0 items" in found["c"]
    assert "2 items" in found["d"]


@pytest.mark.parametrize("text", ["", "[]", '{"articles": 3}', '{"articles": {"1": {}}}'])
def test_an_answer_without_a_list_of_articles_is_an_answer_error(text: str) -> None:
    with pytest.raises(AnswerError):
        parse_tag_batch(text, ("a",))


def test_a_score_that_stands_there_twice_counts_only_if_both_agree() -> None:
    answer = parse_prediction(
        '{"scores": {"10": 0.1, "10": 0.1, "20": 0.2, "20": -0.2, "40": 0.3}}', HORIZONS, "invalid"
    )
    assert (answer.scores[10], answer.scores[40]) == (0.1, 0.3)
    assert math.isnan(answer.scores[20])
    assert "twice, 0.2 and -0.2" in answer.invalid[20]
    assert len(prediction_flaws(answer)) == 1
    whole = parse_prediction('{"scores": {"10": 0.1}, "scores": {"10": 0.2}}', HORIZONS, "invalid")
    assert len(whole.invalid) == 3


@pytest.mark.parametrize(
    "text",
    [
        '<think>先写 {"scores": {"10": 1, "20": 1, "40": 1}}</think>{"scores": {"10": 0.1, "20": 0.2, "40": 0.3}}',
        '\ufeff{"scores": {"10": "0.1", "20": 2e-1, "40": 0.3}}',
        '好的：```json\n{"scores": {"10": 0.1, "20": 0.2, "40": 0.3}}\n```',
        '先写 {"scores": {"10": 1}}\n</think>\n\n{"scores": {"10": 0.1, "20": 0.2, "40": 0.3}}',
        '[THINK]{"scores": {"10": 1}}[/THINK]{"scores": {"10": 0.1, "20": 0.2, "40": 0.3}}',
        '<think>\n\n</think>\n\n{"scores": {"10": 0.1, "20": 0.2, "40": 0.3}}',
        '{"scores": {"10": 0.1, "20": 0.2, "40": 0.3}, "key_factor": "</think> {}"}',
        '{"scores": {"10": 0.1, "20": 0.2, "40": 0.3}}\n{"scores": {"10": 0.1, "20": 0.2, "40": 0.3}}',
        '{"scores": {"10": 0.1, "10": 0.10, "20": 0.2, "40": 0.3}}',
    ],
)
def test_what_stands_around_an_answer_is_read_over(text: str) -> None:
    assert parse_prediction(text, HORIZONS, "invalid").scores == {10: 0.1, 20: 0.2, 40: 0.3}


@pytest.mark.parametrize(
    "text",
    [
        '文章说 {"scores": {"10": 1, "20": 1, "40": 1}}，我认为 {"scores": {"10": 0.1, "20": 0.2, "40": 0.3}}',
        '<think>不如 {"scores": {"10": 1, "20": 1, "40": 1}} 但是',
        '<think>{"scores": {"10": 1}}</think>我再想想<think>{"scores": {"10": 1, "20": 1, "40": 1}}',
        '{"scores": {"10": 0.1}, "key_factor": ' + "[" * 900 + "]" * 900 + "}",
    ],
    ids=["two answers", "thought only", "thought again", "deep"],
)
def test_between_two_answers_there_is_no_choice_and_a_thought_is_none(text: str) -> None:
    with pytest.raises(AnswerError):
        parse_prediction(text, HORIZONS, "invalid")


def test_texts_hold_what_a_table_can_store() -> None:
    answer = parse_tag(_tag(importance_reason="\ud800涨价", topics=["供\udfff应链"], industries=["801080", "\ud800"]))
    for text in (answer.importance_reason, *answer.topics, *answer.rejected):
        assert text.encode("utf-8").decode("utf-8") == text
    assert "涨价" in answer.importance_reason


def test_more_industries_than_allowed_are_kept_and_told() -> None:
    answer = parse_tag(_tag(industries=["801010", "801030", "801040", "801050", "801080"]))
    assert len(answer.industries) == 5
    assert tag_flaws(answer) == ("5 industries are more than the 4 allowed",)


@pytest.mark.parametrize("scope", ["Industry", " industry "])
def test_a_scope_may_be_written_in_any_case(scope: str) -> None:
    assert parse_tag(_tag(scope=scope)).scope == "industry"


HOSTILE = {
    "quotes": '{"' + '\\"' * 99_000,
    "quotes and a backslash": '{"' + '\\"' * 99_000 + "\\",
    "thoughts": "<think>" * 28_000,
    "thought ends": "</think>" * 25_000,
    "commas": "{" + ", " * 99_000,
    "blanks": "{," + " " * 199_000,
    "digits": '{"scores": {"10": "' + "1" * 190_000 + 'x"}}',
    "a number": '{"scores": {"10": ' + "1" * 190_000 + "}}",
    "decimals": '{"scores": {"10": ' + "." * 190_000 + "}}",
    "braces": "{" * 200_000,
    "brackets": '{"scores": ' + "[" * 199_000,
    "keys": "{" + '"10":1,"10":2,' * 14_000 + '"scores":{}}',
    "objects": '{"scores":{}}' * 15_000,
    "names": '{"industries": [' + '"业业业业业业",' * 15_000 + '""], "scope": "market", "importance": 1}',
    "a name": '{"industries": ["' + "业" * 190_000 + '"], "scope": "market", "importance": 1}',
    "articles": '{"articles": [' + '{"id":"1"},' * 18_000 + "{}]}",
    "plus signs": "{" + " +" * 99_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_length_is_read_in_a_moment(name: str) -> None:
    text = HOSTILE[name]
    assert len(text) <= 200_000
    started = time.perf_counter()
    for parse in PARSERS:
        with contextlib.suppress(AnswerError):
            parse(text)
    assert time.perf_counter() - started < 2.0  # measured: 0.15 at most


ANY_TEXT = st.one_of(
    st.text(max_size=300),
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(
                    ["scores", "10", "20", "industries", "scope", "importance", "articles", "id", "topics"]
                ),
                inner,
                max_size=6,
            )
        ),
        max_leaves=20,
    ).map(json.dumps),
)


@given(ANY_TEXT)
def test_no_answer_raises_anything_but_an_answer_error(text: str) -> None:
    for parse in PARSERS:
        with contextlib.suppress(AnswerError):
            parse(text)


PIECES = st.lists(
    st.sampled_from(
        (
            *("{", "}", "[", "]", '"', "\\", ",", ":", "+", "\n", "<think>", "</think>", "```", "\ud800", "\ufeff"),
            *('"scores"', '"10"', '"industries"', '"scope"', '"articles"', "0.5", "NaN", "9" * 5000, GOOD),
        )
    ),
    max_size=40,
).map("".join)


@given(PIECES)
def test_no_pieces_of_answers_raise_anything_but_an_answer_error(text: str) -> None:
    for parse in PARSERS:
        with contextlib.suppress(AnswerError):
            parse(text)


@given(st.lists(st.floats(-1, 1), min_size=3, max_size=3), st.text(max_size=50))
def test_what_was_written_is_what_is_read(scores: list[float], reason: str) -> None:
    written = {"scores": dict(zip(("10", "20", "40"), scores, strict=True)), "key_factor": reason}
    answer = parse_prediction(json.dumps(written), HORIZONS, "invalid")
    assert list(answer.scores.values()) == scores
    assert answer.invalid == {}
